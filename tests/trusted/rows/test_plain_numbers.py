"""Numbers that the database's own process computes: they never raise, and are what the analyst's text says."""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import product

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpduck.frontend.rows.parts import text_sql
from dpduck.trusted.rows.plain import keep_plans_plain, plain_number
from dpduck.trusted.rows.plain_numbers import number_sql

TYPES = {
    '"r"."tiny"': "TINYINT",
    '"r"."small"': "USMALLINT",
    '"r"."whole"': "INTEGER",
    '"r"."big"': "BIGINT",
    '"r"."price"': "DECIMAL(15,2)",
    '"r"."part"': "DECIMAL(4,4)",
    '"r"."wide"': "DECIMAL(30,5)",
}
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


def differences(extremes: duckdb.DuckDBPyConnection, text: str, sql: str) -> tuple[int, int]:
    """Rows for which the two differ although the analyst's text has a value, and those of them with a value here."""
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
    """Over extreme values each plain number is computed, and is what the analyst's own text gives unless it raises."""
    sql = number_sql(f"try(CAST(({text}) AS DOUBLE))", TYPES)
    if sql is not None:
        assert differences(extremes, text, sql) == (0, 0), (text, sql)


@pytest.mark.parametrize("sign", ["+", "-", "*"])
def test_two_columns_of_any_types_do_not_overflow(extremes: duckdb.DuckDBPyConnection, sign: str) -> None:
    """The sum, the difference and the product of any two columns, and their product with a third, never raise."""
    computed = 0
    for left, right in product(TYPES, repeat=2):
        for text in (f"{left} {sign} {right}", f'({left} {sign} {right}) * "r"."part"'):
            sql = number_sql(f"try(CAST(({text}) AS DOUBLE))", TYPES)
            if sql is not None:
                computed += 1
                assert differences(extremes, text, sql) == (0, 0), (text, sql)
    assert computed > 30


def test_what_is_plain() -> None:
    """Sums, products and cases of exact columns are computed here; everything else is a worker's."""

    def plain(text: str) -> bool:
        return (
            number_sql(f"try(CAST(({text}) AS DOUBLE))", {**TYPES, '"r"."x"': "DOUBLE", '"r"."t"': "VARCHAR"})
            is not None
        )

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
    assert number_sql('CAST("r"."small" AS DOUBLE)', TYPES) == 'CAST("r"."small" AS DOUBLE)'
    assert number_sql('try(CAST("r"."tiny" AS DOUBLE)', TYPES) is None
    assert number_sql('CAST("r"."tiny" AS DOUBLE))', TYPES) is None


def test_a_column_within_bounds_is_narrow() -> None:
    """A product of columns that are cut to short bounds stays in 64 bits, which is what makes it fast."""
    cut = 'CASE WHEN "r"."price" <= 0 THEN 0 WHEN "r"."price" >= 105000 THEN 105000 ELSE "r"."price" END'
    narrow = number_sql(f'CAST({cut} * (1 - "r"."part") AS DOUBLE)', TYPES)
    assert narrow is not None and "TRY_CAST" in narrow
    assert max(int(digits) for digits in re.findall(r"DECIMAL\((\d+)", narrow)) <= 18
    loose = number_sql(f"CAST({cut.replace('<= 0', '<= 1')} * 2 AS DOUBLE)", TYPES)
    assert loose is not None and "TRY_CAST" not in loose, "bounds that are not those of the values"


def stored(values: list[int], digits: int, scale: int) -> pa.Array:
    """Decimals of 128 bits, as Arrow brings them: nothing looks at how many digits they have."""
    buffer = b"".join(value.to_bytes(16, "little", signed=True) for value in values)
    return pa.Array.from_buffers(pa.decimal128(digits, scale), len(values), [None, pa.py_buffer(buffer)])


@pytest.mark.parametrize("number", ["x * x + 1", "x + x", "x"])
def test_decimals_beyond_their_type_count_for_nothing(number: str) -> None:
    """Arrow brings decimals with more digits than their type, and DuckDB keeps them: no sum of them raises."""
    column = '"r"."x"'
    sql = number_sql(f"CAST({number.replace('x', column)} AS DOUBLE)", {column: "DECIMAL(4,0)"})
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
    """DuckDB 2.0 ends an instance that makes a DOUBLE, or the negative, of the least integer stored as a decimal."""
    column, type_name = '"r"."x"', f"DECIMAL({digits},{scale})"
    sql = number_sql(f"CAST({number.replace('x', column)} AS DOUBLE)", {column: type_name})
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
    """Bins of a DOUBLE that is made of a stored decimal are a worker's where the decimal has more than 64 bits."""
    types = {'"r"."x"': "DECIMAL(18,2)", '"r"."y"': "DECIMAL(19,2)"}
    assert plain_number('CAST("r"."x" AS DOUBLE)', types)
    assert not plain_number('CAST("r"."y" AS DOUBLE)', types)
