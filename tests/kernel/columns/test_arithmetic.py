"""Numbers that the database's own process computes never raise, and equal the numbers of the analyst's SQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import product

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpduck.kernel.columns.arithmetic import (
    CaseNumber,
    Clamped,
    Computed,
    Double,
    LiteralNumber,
    Negated,
    Number,
    Product,
    StoredNumber,
    Sum,
)
from dpduck.kernel.columns.comparisons import Comparison, Literal
from dpduck.kernel.columns.expressions import AnalystSql, Expression, NotPlain, RelationColumn
from dpduck.kernel.columns.stored import text_sql
from dpduck.kernel.columns.whole_numbers import Cut
from dpduck.kernel.rows.plans import keep_plans_plain
from dpduck.language.rows.compiled import Columns, number_of, value_of
from dpduck.values.sqltypes import integer_name
from tests.support.nodes import columns_of

TYPES = {
    '"r"."tiny"': "TINYINT",
    '"r"."small"': "USMALLINT",
    '"r"."whole"': "INTEGER",
    '"r"."big"': "BIGINT",
    '"r"."price"': "DECIMAL(15,2)",
    '"r"."part"': "DECIMAL(4,4)",
    '"r"."wide"': "DECIMAL(30,5)",
}
STORED = columns_of(TYPES)
CONDITIONS = ('"r"."big" >= 7', '"r"."price" BETWEEN 1 AND 9.5', '"r"."whole" IS NULL OR NOT "r"."tiny" < 3', "TRUE")
COLUMNS = st.sampled_from(sorted(TYPES))
CUTS = st.builds(
    lambda column, low, high: (
        f"CASE WHEN {column} <= {low} THEN {low} WHEN {column} >= {high} THEN {high} ELSE {column} END"
    ),
    st.sampled_from(['"r"."price"', '"r"."whole"', '"r"."big"']),
    st.sampled_from(("0", "-5", "-12")),
    st.sampled_from(("1", "50", "105000")),
)
LITERALS = st.sampled_from(("0", "1", "007", "0.1", "2.50", "123456789", "1234567.125"))


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    condition = st.sampled_from(CONDITIONS)
    return st.one_of(
        st.builds(lambda left, sign, right: f"({left} {sign} {right})", inner, st.sampled_from("+-*"), inner),
        st.builds(lambda left, right: f"{left} - {right}", inner, inner),
        st.builds(lambda one: f"- {one}", inner),
        st.builds(lambda when, one, other: f"CASE WHEN {when} THEN {one} ELSE {other} END", condition, inner, inner),
        st.builds(lambda when, one: f"CASE WHEN {when} THEN {one} END", condition, inner),
    )


NUMBERS = st.recursive(st.one_of(COLUMNS, CUTS, LITERALS), _larger, max_leaves=5)


@pytest.fixture(scope="module")
def extremes() -> duckdb.DuckDBPyConnection:
    """A table of the least and largest values of every type, with NULLs, and with statistics."""
    connection = duckdb.connect()
    keep_plans_plain(connection)
    names = [name.split(".")[1].strip('"') for name in TYPES]
    connection.execute(f"CREATE TABLE r ({', '.join(f'{n} {t}' for n, t in zip(names, TYPES.values(), strict=True))})")
    values = {
        "tiny": (-128, 127, 0),
        "small": (0, 65535, 3),
        "whole": (-(2**31), 2**31 - 1, 7),
        "big": (-(2**63), 2**63 - 1, 7),
        "price": (Decimal("-9999999999999.99"), Decimal("9999999999999.99"), Decimal("104999.99")),
        "part": (Decimal("-0.9999"), Decimal("0.9999"), Decimal("0.05")),
        "wide": (
            Decimal("-9999999999999999999999999.99999"),
            Decimal("9999999999999999999999999.99999"),
            Decimal("0.00001"),
        ),
    }
    for row in range(4**7):
        chosen = [row // 4**place % 4 for place in range(7)]
        if row % 13 and len(set(chosen)) > 2:
            continue
        picked = [(*values[name], None)[which] for name, which in zip(names, chosen, strict=True)]
        connection.execute(f"INSERT INTO r VALUES ({', '.join('?' * len(names))})", picked)
    connection.execute("CHECKPOINT")
    return connection


def number_sql(text: str, columns: Columns) -> str | None:
    """Returns SQL by which the database computes a DOUBLE of an analyst, or None where a worker computes it."""
    found = number_of(text, columns)
    return found.sql if isinstance(found, Double) else None


def computed(text: str, columns: Columns, cuts: Sequence[Cut]) -> Computed | None:
    """Returns a number as it is computed over prepared rows, or None where a worker computes it."""
    found = number_of(text, columns)
    return found.computation(cuts) if isinstance(found, Double) else None


def differences(extremes: duckdb.DuckDBPyConnection, text: str, sql: str) -> tuple[int, int]:
    """Counts rows where `text` has a value and `sql` differs, and those among these rows where `sql` has a value."""
    written = f"try(CAST(({text}) AS DOUBLE))"
    found = extremes.execute(
        f'SELECT count(*), count({sql}) FROM "r" WHERE {written} IS DISTINCT FROM {sql} AND {written} IS NOT NULL'
    ).fetchone()
    assert found is not None
    return found[0], found[1]


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(text=NUMBERS)
def test_a_plain_number_never_raises_and_is_what_was_written(extremes: duckdb.DuckDBPyConnection, text: str) -> None:
    """Over extreme values no plain number raises. It equals the analyst's SQL wherever that does not raise."""
    sql = number_sql(f"try(CAST(({text}) AS DOUBLE))", STORED)
    if sql is not None:
        assert differences(extremes, text, sql) == (0, 0), (text, sql)


@pytest.mark.parametrize("sign", ["+", "-", "*"])
def test_two_columns_of_any_types_do_not_overflow(extremes: duckdb.DuckDBPyConnection, sign: str) -> None:
    """The sum, the difference and the product of any two columns, and their product with a third, never raise."""
    computed = 0
    for left, right in product(TYPES, repeat=2):
        for text in (f"{left} {sign} {right}", f'({left} {sign} {right}) * "r"."part"'):
            sql = number_sql(f"try(CAST(({text}) AS DOUBLE))", STORED)
            if sql is not None:
                computed += 1
                assert differences(extremes, text, sql) == (0, 0), (text, sql)
    assert computed > 30


def test_what_is_plain() -> None:
    """Sums, products and cases of exact columns are computed here. A worker computes everything else."""

    known = columns_of({**TYPES, '"r"."x"': "DOUBLE", '"r"."t"': "VARCHAR"})

    def plain(text: str) -> bool:
        return number_of(f"try(CAST(({text}) AS DOUBLE))", known).plain

    accepted = (
        '"r"."price" * (1 - "r"."part")',
        'CASE WHEN "r"."t" LIKE \'PROMO%\' THEN "r"."price" ELSE 0 END',
        '"r"."tiny" + "r"."big" - 2',
    )
    refused = (
        '"r"."price" / 2',
        '"r"."x" * 2',
        '"r"."wide" * "r"."wide"',
        '"r"."small" - 1',
        '--"r"."tiny"',
        '1 --"r"."tiny"',
        'length("r"."t")',
        'CAST("r"."t" AS INTEGER)',
        'CASE WHEN length("r"."t") > 1 THEN 1 END',
        'CASE "r"."tiny" WHEN 1 THEN 1 END',
        '"r"."other"',
        "1e3",
        '"r"."tiny" +',
        '"r"."tiny") AS DOUBLE) + CAST(("r"."t"',
    )
    assert [text for text in accepted if not plain(text)] == []
    assert [text for text in refused if plain(text)] == []
    assert number_sql('CAST("r"."small" AS DOUBLE)', STORED) == 'CAST("r"."small" AS DOUBLE)'
    assert number_sql('try(CAST("r"."tiny" AS DOUBLE)', STORED) is None
    assert number_sql('CAST("r"."tiny" AS DOUBLE))', STORED) is None


def test_a_column_within_bounds_is_narrow() -> None:
    """A product of columns that are cut to short bounds stays in 64 bits, which makes it fast."""
    cut = 'CASE WHEN "r"."price" <= 0 THEN 0 WHEN "r"."price" >= 105000 THEN 105000 ELSE "r"."price" END'
    narrow = number_sql(f'CAST({cut} * (1 - "r"."part") AS DOUBLE)', STORED)
    assert narrow is not None and "TRY_CAST" in narrow
    assert max(int(digits) for digits in re.findall(r"DECIMAL\((\d+)", narrow)) <= 18
    loose = number_sql(f"CAST({cut.replace('<= 0', '<= 1')} * 2 AS DOUBLE)", STORED)
    assert loose is not None and "TRY_CAST" not in loose, "bounds that are not those of the values"


NUMBER = {
    name: StoredNumber(RelationColumn("r", name, TYPES[f'"r"."{name}"'])) for name in ("tiny", "big", "price", "wide")
}
ONE = LiteralNumber(Literal("number", "1.25"))
AT_LEAST = Comparison(NUMBER["price"].column, ">=", Literal("number", "1"))
LOW, HIGH = Literal("number", "5", "-"), Literal("number", "105000")
MADE: dict[str, tuple[Callable[[], Number], tuple[int, int]]] = {
    "an integer": (partial(StoredNumber, NUMBER["big"].column), (19, 0)),
    "a decimal": (partial(StoredNumber, NUMBER["price"].column), (15, 2)),
    "a constant": (partial(LiteralNumber, Literal("number", "1.25")), (3, 2)),
    "the other sign": (partial(Negated, NUMBER["price"]), (15, 2)),
    "a sum": (partial(Sum, NUMBER["tiny"], "+", NUMBER["price"]), (16, 2)),
    "a difference": (partial(Sum, ONE, "-", NUMBER["tiny"]), (6, 2)),
    "a product": (partial(Product, NUMBER["tiny"], NUMBER["price"]), (18, 2)),
    "a product of 128 bits": (partial(Product, NUMBER["price"], NUMBER["price"]), (34, 4)),
    "a long product": (partial(Product, NUMBER["wide"], NUMBER["tiny"]), (33, 5)),
    "a case": (partial(CaseNumber, (AT_LEAST,), (NUMBER["tiny"], ONE)), (5, 2)),
    "a case without ELSE": (partial(CaseNumber, (AT_LEAST,), (NUMBER["tiny"],)), (3, 0)),
    "a short clamp": (partial(Clamped, NUMBER["price"], LOW, HIGH), (8, 2)),
    "a clamp that is wider than its type": (partial(Clamped, NUMBER["tiny"], LOW, HIGH), (6, 0)),
}


@pytest.mark.parametrize("name", MADE)
def test_digits_of_numbers(name: str, extremes: duckdb.DuckDBPyConnection) -> None:
    """The digits before and behind the point are those computed by hand, and DuckDB finds the same type over rows."""
    made, (digits, scale) = MADE[name]
    number = made()
    assert (number.digits, number.scale, number.whole) == (digits, scale, digits - scale)
    rows = extremes.execute(f'SELECT DISTINCT typeof({number.sql}) FROM "r"').fetchall()
    assert rows == [(f"DECIMAL({digits},{scale})",)]
    assert Double(number).plain and Double(number).columns == number.columns


WORKED = AnalystSql(("length(note) > 1",))
REFUSED: dict[str, Callable[[], Expression]] = {
    "integers without a sign": lambda: StoredNumber(RelationColumn("r", "small", "USMALLINT")),
    "a double": lambda: StoredNumber(RelationColumn("r", "x", "DOUBLE")),
    "a text": lambda: StoredNumber(RelationColumn("r", "t", "VARCHAR")),
    "128 bits": lambda: StoredNumber(RelationColumn("r", "h", "HUGEINT")),
    "a constant with a sign": lambda: LiteralNumber(LOW),
    "a text for a constant": lambda: LiteralNumber(Literal("text", "1")),
    "a long constant": lambda: LiteralNumber(Literal("number", "1" * 17)),
    "another sign": lambda: Sum(ONE, "*", ONE),
    "a sum of more digits": lambda: Sum(NUMBER["wide"], "+", StoredNumber(RelationColumn("r", "y", "DECIMAL(38,30)"))),
    "a product of more digits": lambda: Product(NUMBER["wide"], NUMBER["wide"]),
    "a product of one digit more": lambda: Product(
        StoredNumber(RelationColumn("r", "y", "DECIMAL(19,0)")), StoredNumber(RelationColumn("r", "z", "DECIMAL(20,0)"))
    ),
    "a case of nothing": lambda: CaseNumber((), (ONE,)),
    "a case of a worker's": lambda: CaseNumber((WORKED,), (ONE,)),
    "a case of a text": lambda: CaseNumber((RelationColumn("r", "t", "VARCHAR"),), (ONE,)),
    "a case with two values too many": lambda: CaseNumber((AT_LEAST,), (ONE, ONE, ONE)),
    "a case without its value": lambda: CaseNumber((AT_LEAST, AT_LEAST), (ONE,)),
    "a case of many digits": lambda: CaseNumber(
        (AT_LEAST,), (NUMBER["wide"], StoredNumber(RelationColumn("r", "y", "DECIMAL(38,30)")))
    ),
    "a clamp at a text": lambda: Clamped(NUMBER["price"], LOW, Literal("text", "9")),
    "a clamp at a long number": lambda: Clamped(NUMBER["price"], LOW, Literal("number", "0" * 16 + "5")),
    "a clamp beyond the type": lambda: Clamped(NUMBER["price"], LOW, Literal("number", "1" * 14)),
    "a clamp of more places": lambda: Clamped(NUMBER["price"], LOW, Literal("number", "1.125")),
    "a text as a double": lambda: Double(RelationColumn("r", "t", "VARCHAR")),
    "a decimal as it stands": lambda: Double(RelationColumn("r", "price", "DECIMAL(15,2)")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_numbers_that_could_overflow_are_refused(name: str) -> None:
    """Each constructor refuses a number that breaks one of its rules."""
    with pytest.raises(NotPlain):
        REFUSED[name]()


def stored(values: list[int], digits: int, scale: int) -> pa.Array:
    """Decimals of 128 bits, as Arrow hands them over: nobody checks how many digits they have."""
    buffer = b"".join(value.to_bytes(16, "little", signed=True) for value in values)
    return pa.Array.from_buffers(pa.decimal128(digits, scale), len(values), [None, pa.py_buffer(buffer)])


@pytest.mark.parametrize("number", ["x * x + 1", "x + x", "x"])
def test_decimals_beyond_their_type_count_for_nothing(number: str) -> None:
    """A decimal from Arrow with more digits than its type, which DuckDB keeps, is NULL in a sum and raises nothing."""
    column = '"r"."x"'
    sql = number_sql(f"CAST({number.replace('x', column)} AS DOUBLE)", columns_of({column: "DECIMAL(4,0)"}))
    assert sql is not None
    with duckdb.connect() as connection:
        connection.register("given", pa.table({"x": stored([32767, 5], 4, 0)}))
        connection.execute("CREATE TABLE r AS FROM given")
        values = connection.execute(f"SELECT {sql}, {text_sql('x', 'DECIMAL(4,0)')} FROM r").fetchall()
    assert values[1] == (5.0 if number == "x" else 10.0 if number == "x + x" else 26.0, "5")
    assert values[0][1] is None


@pytest.mark.parametrize("number", ["x", "(x)", "- x", "x + 1", "CASE WHEN x > 0 THEN x ELSE 0 END"])
@pytest.mark.parametrize(("digits", "scale"), [(4, 2), (9, 9), (18, 1), (19, 1), (27, 27), (36, 5), (37, 37)])
def test_the_least_that_storage_holds_ends_nothing(number: str, digits: int, scale: int) -> None:
    """The least integer of storage as a decimal raises nothing, although DuckDB 2.0 ends an instance that casts it."""
    column, type_name = '"r"."x"', f"DECIMAL({digits},{scale})"
    sql = number_sql(f"CAST({number.replace('x', column)} AS DOUBLE)", columns_of({column: type_name}))
    if sql is None:
        assert digits - scale == 0, "literals that a decimal has no place for"
        return
    bits = 15 if digits <= 4 else 31 if digits <= 9 else 63 if digits <= 18 else 127
    with duckdb.connect() as connection:
        keep_plans_plain(connection)
        connection.register("given", pa.table({"x": stored([-(2**bits), 1], digits, scale)}))
        connection.execute("CREATE TABLE r AS FROM given")
        assert connection.execute(f"SELECT count(*), max({sql}) IS NOT NULL FROM r").fetchall() == [(2, True)]


def test_a_long_decimal_is_no_plain_number() -> None:
    """A worker bins a DOUBLE that is cast from a decimal of more than 64 bits."""
    known = columns_of({'"r"."x"': "DECIMAL(18,2)", '"r"."y"': "DECIMAL(19,2)"})
    assert value_of('CAST("r"."x" AS DOUBLE)', known).plain
    assert not value_of('CAST("r"."y" AS DOUBLE)', known).plain


@pytest.mark.parametrize("bounds", [(127, 32_767, (1 << 31) - 1), (1, 128, 32_768)], ids=["longest", "shortest"])
def test_numbers_of_any_stored_units_do_not_overflow(bounds: tuple[int, ...]) -> None:
    """Numbers over stored units of a file never overflow, whatever units fit the types. bounds: one for each type."""
    types = {"TINYINT": 7, "SMALLINT": 15, "INTEGER": 31}
    cuts, kinds = [], dict[str, str]()
    for number, (name, bound) in enumerate(zip(types, bounds, strict=True)):
        assert integer_name(bound) == name
        kinds[f'"r"."{name}"'] = f"DECIMAL({len(str(bound)) + 4},2)"
        column = RelationColumn("r", name, f"DECIMAL({len(str(bound)) + 4},2)")
        cuts.append(Cut(column, Fraction(-bound, 100), Fraction(bound, 100), Fraction(1), 2, f'"r"."u{number}"', ""))
    held = ", ".join(
        f"CAST([{-(1 << bits)}, {(1 << bits) - 1}, 0, NULL][i % {4 ** (place + 1)} // {4**place} + 1] AS {name}) "
        f"AS u{place}"
        for place, (name, bits) in enumerate(types.items())
    )
    texts, columns, found = [_cut(cut) for cut in cuts], columns_of(kinds), 0
    with duckdb.connect() as connection:
        listed = ", ".join(f"CAST(0 AS {kind}) AS {name.partition('.')[2]}" for name, kind in kinds.items())
        connection.execute(f"CREATE TABLE r AS SELECT {listed}, {held} FROM range(64) AS g(i)")
        for first, sign, second, third in product(texts, "+-*", texts, texts):
            made = computed(f"CAST(({first} {sign} {second}) * (1 - {third}) AS DOUBLE)", columns, cuts)
            if made is not None and '"u' in made.sql:
                found += 1
                connection.execute(f'SELECT sum({made.sql}) FROM r AS "r"').fetchall()
    assert found > 20


def _cut(cut: Cut) -> str:
    column, low, high = cut.column.quoted_name, f"{float(cut.low):.2f}", f"{float(cut.high):.2f}"
    return f"CASE WHEN {column} <= {low} THEN {low} WHEN {column} >= {high} THEN {high} ELSE {column} END"


def test_what_doubles_do_not_hold_stays_decimal() -> None:
    """Above 2^53 units a double may differ from the decimal: the decimal is computed."""
    column = RelationColumn("r", "x", "DECIMAL(12,2)")
    cuts = [Cut(column, Fraction(0), Fraction(10**7), Fraction(1), 2, '"r"."u"', "")]
    number = computed(f"CAST({_cut(cuts[0])} * {_cut(cuts[0])} AS DOUBLE)", {column.quoted_name: column}, cuts)
    assert number is not None and '"u"' not in number.sql and number.reach is None
