"""The reading of conditions is compared with DuckDB: no value that meets a condition is in an excluded label.

Each reader is asked about random conditions. DuckDB tells which of many awkward values meet them: values on edges and
beside them, beyond all edges, NULL, NaN and infinities.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.facts import SourceColumn
from dpduck.language.rows.moments import MomentColumn
from dpduck.language.rows.periods import moment_reader
from dpduck.language.rows.predicates import decimal_literal, moment_text, parse_moment
from dpduck.language.rows.scope import Relation, Scope, base_column
from dpduck.language.select.conditions import _stand_for_several
from dpduck.language.select.impossible_cells import impossible_cells
from dpduck.language.select.label_spans import label_reader
from dpduck.language.select.request import Key
from dpduck.language.text.dialect import PrivateDuckDB
from dpduck.values.domain import Domain, RangeDomain, ValueDomain

HALVES = ("2024-01-01 00:00:00", "2024-01-01 12:00:00"), "2024-01-02 00:00:00"
WEEKS = ("2024-01-01", "2024-01-08"), "2024-01-15"
TENS, ONES = (("0", "10", "20"), "30"), (tuple("01234"), "5")
LARGE = ("9007199254740992", "9007199254740994"), "9007199254740996"
RANGES = (
    ("INTEGER", TENS, "10"), ("INTEGER", ONES, "1"), ("UTINYINT", TENS, "10"), ("BIGINT", LARGE, "2"),
    ("DECIMAL(18,3)", (("0", "0.1"), "0.2"), "0.1"), ("DOUBLE", (("0", "0.1"), "0.2"), "0.1"), ("DATE", WEEKS, "day"),
    ("TIMESTAMP", HALVES, "hour"),
)  # fmt: skip
DOMAINS: list[Domain] = [
    RangeDomain(type_name, *bounds, step, "", 1, with_null, with_edges)
    for type_name, bounds, step in RANGES
    for with_null in (False, True)
    for with_edges in (False, True)
] + [
    ValueDomain("VARCHAR", ("a", "A"), True, "others"), ValueDomain("VARCHAR", ("a", "b")),
    ValueDomain("BOOLEAN", ("true", "false"), True), ValueDomain("BOOLEAN", ("true",)),
    ValueDomain("INTEGER", ("1", "5"), True), ValueDomain("DATE", ("2024-01-01", "2024-01-09")),
]  # fmt: skip
VALUES = {
    "INTEGER": ["-2147483648", "-1", *map(str, range(12)), "19", "20", "29", "30", "31", "2147483647"],
    "UTINYINT": ["0", "9", "10", "19", "20", "29", "30", "255"],
    "BIGINT": [str(9007199254740990 + step) for step in range(9)] + ["-9223372036854775808", "9223372036854775807"],
    "DECIMAL(18,3)": ["-0.001", "0", "0.001", "0.099", "0.1", "0.101", "0.2", "5", "999999999999999.999"],
    "DOUBLE": ["-0.0", "1e-300", "0.09999999999999999", "0.1", "0.2", "nan", "inf", "-inf", "0.15", "1e300", "-1"],
    "DATE": ["2023-12-31", "2024-01-01", "2024-01-07", "2024-01-08", "2024-01-14", "2024-01-15", "2024-03-09",
             "infinity", "-infinity", "0044-03-15 (BC)", "12024-01-01"],
    "TIMESTAMP": ["2023-12-31 23:59:59.999999", "2024-01-01 00:00:00", "2024-01-01 06:30:00",
                  "2024-01-01 11:59:59.999999", "2024-01-01 12:00:00", "2024-01-02 00:00:00", "2024-03-09 07:00:00",
                  "infinity", "-infinity", "0044-03-15 (BC) 12:00:00"],
    "VARCHAR": ["a", "A", "b", "", "z", "others", "é", "a\x00"],
    "BOOLEAN": ["true", "false"],
}  # fmt: skip
MOMENTS = (
    "'2024-01-01'", "DATE '2024-01-08'", "DATE '2024-01-01 12:00:00'", "TIMESTAMP '2024-01-01 12:00:00'",
    "'9999-12-31'", "'2024-01-01 12:00:00'", "'2024-01-01 06:30'", "'2024-01-01T12:00:00.000001'", "'0001-01-01'",
    "'2024-01-15'", "CAST('2024-01-01 11:59:59.9' AS TIMESTAMP(0))", "TRY_CAST('2024-01-09' AS DATE)",
    "'9999-12-31 23:59:59.999999'",
)  # fmt: skip
NUMBERS = (
    "0", "10", "20", "30", "-1", "2.5", "9.99", "1e1", "0.1", ".1", "0.2", "5", "9007199254740993", "300", "0.1000",
    "0.10000000000000000000000000000000000001", "0.1000000000000000000000000000000000001", "9007199254740993.5",
    "170141183460469231731687303715884105728", "-9223372036854775809", "-(1)",
)  # fmt: skip
LITERALS = {
    "VARCHAR": ("'a'", "'A'", "'b'", "'zz'", "'others'", "''"), "BOOLEAN": ("true", "false"),
    "DATE": MOMENTS, "TIMESTAMP": MOMENTS,
}  # fmt: skip
SIGNS = ("=", "<>", "<", "<=", ">", ">=")
OTHERS = (
    "nullif({x}, {y}) IS NULL", "CASE WHEN {x} < {y} THEN 1 END IS NOT NULL", "{x} IS NOT DISTINCT FROM {y}",
    "coalesce({x}, {y}) = {y}", "{x} = {x}", "{x} IN ({y}, NULL)", "try({x} < {y})", "CAST({x} AS VARCHAR) < '2'",
    "{x} <> {y} IS TRUE",
)  # fmt: skip
"""Conditions that no reader knows, though parts of them look like those that are known."""


class Writer:
    """Writes random conditions on a column of a type."""

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose

    def condition(self, columns: dict[str, str], depth: int = 3) -> str:
        """Writes a condition. columns: the type of each column."""
        kind = self.choose.randrange(8)
        if depth and kind < 4:
            left = self.condition(columns, depth - 1)
            word = self.choose.choice(("AND", "OR", "NOT"))
            return f"(NOT {left})" if word == "NOT" else f"({left} {word} {self.condition(columns, depth - 1)})"
        name = self.choose.choice(list(columns))
        literals = LITERALS.get(columns[name], NUMBERS)
        low, high = (self.choose.choice(literals) for _ in range(2))
        negation = self.choose.choice(("", "NOT "))
        return self.choose.choice([
            f"{name} {self.choose.choice(SIGNS)} {low}",
            f"({low}) {self.choose.choice(SIGNS)} ({name})",
            f"{name} {negation}BETWEEN {low} AND {high}",
            f"{name} {negation}IN ({low}, {high})",
            f"{name} IS {negation}NULL",
            name if columns[name] == "BOOLEAN" else f"{name} = {high}",
            self.choose.choice(OTHERS).format(x=name, y=low),
        ])  # fmt: skip


def parsed(text: str) -> exp.Expr:
    """Returns the condition as the reader gets it, with columns under the alias of their table."""
    query = PrivateDuckDB().parse(f"SELECT 1 WHERE {text}")[0]
    assert query is not None
    condition: exp.Expr = query.args["where"].this
    return condition


def codes_of(domain: Domain, connection: duckdb.DuckDBPyConnection) -> list[int | None]:
    """Returns the code of each value of a column's type, and of NULL. Values without a code have None."""
    if domain not in CODES:
        CODES[domain] = [*(_code(domain, value, connection) for value in VALUES[domain.type_name]), _null_code(domain)]
    return CODES[domain]


CODES: dict[Domain, list[int | None]] = {}


def _null_code(domain: Domain) -> int | None:
    return domain.labels.index(None) if domain.with_null else None


def _code(domain: Domain, value: str, connection: duckdb.DuckDBPyConnection) -> int | None:
    if isinstance(domain, ValueDomain):
        other = None if domain.other is None else domain.size - 1
        return domain.values.index(value) if value in domain.values else other
    edges = ", ".join(f"'{edge}'::{domain.type_name}" for edge in (*domain.edges, domain.upper))
    ((below,),) = connection.execute(
        f"SELECT len(list_filter([{edges}], lambda edge: edge <= '{value}'::{domain.type_name}))"
    ).fetchall()
    last = len(domain.edges) - 1
    if value in ("nan", "inf", "-inf") or not (domain.with_edges or 0 < below <= last + 1):
        return None
    return min(max(int(below) - 1, 0), last)


@pytest.fixture(scope="module")
def tables() -> Iterator[duckdb.DuckDBPyConnection]:
    """A table of each type, with the number and the value of each row. The last row is NULL."""
    with duckdb.connect(config={"threads": 1}) as connection:
        for type_name, values in VALUES.items():
            table = type_name.partition("(")[0]
            connection.execute(f"CREATE TABLE {table} (i INTEGER, x {type_name}, y {type_name})")
            for number, value in enumerate([*values, None]):
                connection.execute(
                    f"INSERT INTO {table} SELECT $1, v, v FROM (SELECT $2::{type_name} AS v)", [number, value]
                )
        yield connection


def rows_that_meet(connection: duckdb.DuckDBPyConnection, source: str, condition: str) -> list[tuple[int, ...]] | None:
    """Returns the numbers of the rows that meet the condition by DuckDB, or None if DuckDB refuses it."""
    try:
        return connection.execute(f"SELECT COLUMNS('^i') FROM {source} WHERE {condition}").fetchall()
    except duckdb.Error:
        return None


@settings(max_examples=60, deadline=None)
@given(choose=st.randoms(use_true_random=False))
def test_labels_that_are_ruled_out_have_no_row(tables: duckdb.DuckDBPyConnection, choose: random.Random) -> None:
    """No row of an excluded label meets the condition, with NOT or without. Bins decide as all their values do."""
    for domain in choose.sample(DOMAINS, 8):
        kind = domain.type_name
        condition = Writer(choose).condition({"x": kind})
        numbers = rows_that_meet(tables, kind.partition("(")[0], condition)
        values: list[str | None] = [*VALUES[kind], None]
        if numbers is None:
            continue
        met, node = {number for (number,) in numbers}, parsed(condition)
        codes = codes_of(domain, tables)
        for reads_not in (False, True):
            reader = label_reader(domain, False, reads_not=reads_not)
            if reader is None:
                continue
            may = reader.read_condition(node)
            wrong = [values[number] for number in met if (code := codes[number]) is not None and not may[code]]
            assert (condition, domain, wrong) == (condition, domain, [])
        reader = label_reader(domain, False, closely=True)
        outside = label_reader(domain, False, closely=True, outside=True)
        assert reader is not None and outside is not None
        may, fails = reader.read_condition(node), reader.read_condition(node, False)
        may_outside = outside.read_condition(node).any()
        for number, (code, value) in enumerate(zip(codes, values, strict=True)):
            if code is None:
                assert may_outside or number not in met, (condition, domain, value)
            elif _stand_for_several(domain)[code] and may[code] != fails[code]:
                assert may[code] == (number in met), (condition, domain, value)


@settings(max_examples=60, deadline=None)
@given(choose=st.randoms(use_true_random=False))
def test_combinations_that_are_ruled_out_have_no_row(tables: duckdb.DuckDBPyConnection, choose: random.Random) -> None:
    """An excluded combination has no row that meets a condition on two columns, also with bins that are merged."""
    for _ in range(6):
        domains = dict(zip("xy", choose.sample(DOMAINS, 2), strict=True))
        kinds = {name: domain.type_name for name, domain in domains.items()}
        first, second = (kind.partition("(")[0] for kind in kinds.values())
        condition = Writer(choose).condition(kinds)
        source = f"(SELECT i AS i0, x FROM {first}), (SELECT i AS i1, y FROM {second})"
        met = rows_that_meet(tables, source, condition)
        if met is None:
            continue
        keys, sources, codes = [], [], []
        for axis, (name, domain) in enumerate(domains.items()):
            merged = [code // choose.choice((1, 2)) for code in range(domain.size)]
            merged = np.unique(np.maximum.accumulate(merged), return_inverse=True)[1].tolist()
            labels = tuple(str(number) for number in range(max(merged) + 1))
            keys.append(Key(name, sql_of(base_column("r", name)), kinds[name], labels, (axis,), tuple(merged)))
            sources.append(SourceColumn(keys[-1].expression, domain))
            codes.append([None if code is None else merged[code] for code in codes_of(domain, tables)])
        scope = Scope((Relation("r", tuple((name, base_column("r", name)) for name in domains)),))
        for zero in impossible_cells(parsed(condition), keys, sources, scope, False):
            cells = {tuple(codes[member][numbers[member]] for member in zero.members) for numbers in met}
            shape = [len(keys[member].labels) for member in zero.members]
            positions = np.arange(np.prod(shape)).reshape(shape)
            numbered = {int(positions[cell]) for cell in cells if None not in cell}
            assert (condition, domains, numbered & set(zero.cells)) == (condition, domains, set())


@settings(max_examples=60, deadline=None)
@given(choose=st.randoms(use_true_random=False))
def test_moments_that_are_ruled_out_have_no_row(tables: duckdb.DuckDBPyConnection, choose: random.Random) -> None:
    """An excluded moment has no row that meets a condition on the column and on truncations."""
    for kind in ("DATE", "TIMESTAMP"):
        shown = choose.choice(("x", "date_trunc('month', x)", "CAST(x AS DATE)", "date_trunc('week', x)", "year(x)"))
        condition = Writer(choose).condition({shown: kind})
        if shown == "year(x)":
            condition = f"{shown} {choose.choice(SIGNS)} 2024 OR {condition}"
        met = rows_that_meet(tables, kind, condition)
        column = MomentColumn("", "x", kind == "DATE")
        span = moment_reader(column).read_condition(parsed(condition))
        for (number,) in met or ():
            text = [*VALUES[kind], None][number]
            moment = None if text is None else parse_moment(text)
            assert moment is None or span.low <= moment <= span.high, (condition, text)


def test_literals_that_duckdb_reads_otherwise_are_not_read() -> None:
    """A DATE drops the time of its text. A number with an exponent or more than 38 digits is a DOUBLE. None is read."""
    for text, expected in (
        ("DATE '2024-01-01 12:00:00'", None), ("DATE '2024-01-01'", "2024-01-01"), ("'2024-01-01'", "2024-01-01"),
        ("CAST('2024-01-01' AS TIMESTAMP(0))", None), ("upper('2024-01-01')", None), ("CAST('10:00' AS TIME)", None),
        ("TIMESTAMP '2024-01-01 12:00:00'", "2024-01-01 12:00:00"), ("('2024-01-01')", "2024-01-01"),
    ):  # fmt: skip
        assert (text, moment_text(parsed(text))) == (text, expected)
    for text, moment in (
        ("2024-01-01", datetime(2024, 1, 1)), ("20240101", None), ("2024-W01-1", None), ("2024-01-01 12", None),
        ("2024-01-01 12:00", datetime(2024, 1, 1, 12)),
        ("2024-01-01T12:00:00.5", datetime(2024, 1, 1, 12, 0, 0, 500_000)),
        ("2024-01-01 12:00:00+01", None), ("2024-13-01", None), ("0000-01-01", None), ("infinity", None),
    ):  # fmt: skip
        assert (text, parse_moment(text)) == (text, moment)
    for text, read in (
        ("1e1", False),
        ("0." + "0" * 37 + "1", False),
        ("0." + "0" * 36 + "1", True),
        ("-(2.50)", True),
    ):
        assert (text, decimal_literal(parsed(text)) is not None) == (text, read)


def domain_of(type_name: str, with_edges: bool = False) -> Domain:
    """Returns the first domain of bins of this type, without NULL."""
    listed = [domain for domain in DOMAINS if domain.type_name == type_name and not domain.with_null]
    return next(domain for domain in listed if isinstance(domain, RangeDomain) and domain.with_edges is with_edges)


def possible(domain: Domain, condition: str, closely: bool = False) -> list[bool]:
    """Lists the labels that rows that meet a condition may have."""
    reader = label_reader(domain, False, closely=closely)
    assert reader is not None
    labels: list[bool] = reader.read_condition(parsed(condition)).tolist()
    return labels


def test_conditions_that_look_known_rule_out_nothing() -> None:
    """DuckDB reads these conditions in another way than they look, so that they exclude no label and decide no bin."""
    for type_name, condition in (
        ("TIMESTAMP", "x >= DATE '2024-01-01 12:00:00'"), ("TIMESTAMP", "x"),
        ("INTEGER", "nullif(x, 5) IS NULL"), ("INTEGER", "CASE WHEN x < 5 THEN 1 END IS NULL"),
        ("INTEGER", "nullif(x, 5) IS NOT NULL"), ("DECIMAL(18,3)", f"x >= 0.1{'0' * 36}1"),
        ("DECIMAL(18,3)", "x NOT IN (1e-400, 0.100)"), ("DECIMAL(18,3)", f"x IN (12, 0.{'0' * 38}1)"),
    ):  # fmt: skip
        assert all(possible(domain_of(type_name), condition)), condition
    for condition in ("x < '0001-01-01'", "x >= '9999-12-31 23:59:59.999999'"):
        assert any(possible(domain_of("TIMESTAMP", True), condition, closely=True)), "before Christ and infinity"


def test_a_list_with_a_double_is_not_read() -> None:
    """One DOUBLE makes a list and its column DOUBLE, so DuckDB 1.5 rounds 0.1 on one side, and its rows meet NOT IN.

    DuckDB 2.0 rounds both sides: there a possible value is one too many, which is safe.
    """
    listed = ValueDomain("DECIMAL(18,3)", ("0.1", "2"), with_null=False, other=None)
    assert possible(listed, "x NOT IN (7, 0.100)") == [False, True]
    for number in ("1e-400", f"0.{'0' * 38}1"):
        assert possible(listed, f"x NOT IN ({number}, 0.1{'0' * 29})") == [True, True]
    with duckdb.connect() as connection:
        asked = f"SELECT 0.1::DECIMAL(18, 3) NOT IN (1e-400, 0.1{'0' * 29})"
        assert connection.execute(asked).fetchall() == [(duckdb.__version__.startswith("1."),)], "as DuckDB has it"


def test_not_is_read_before_not() -> None:
    """Three NOTs exclude the same as one, for combinations of columns and for known answers."""
    for closely in (False, True):
        assert possible(domain_of("INTEGER"), "NOT (NOT (NOT x < 20))", closely) == [False, False, True]
        assert possible(domain_of("INTEGER"), "NOT (x < 20 OR x IS NULL)", closely) == [False, False, True]
