"""Interval arithmetic: every value of an expression over clamped columns lies in its range, on its step."""

from __future__ import annotations

import duckdb
import pytest
from sqlglot import exp

from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.facts import Clamp
from dpduck.language.select.value_ranges import grid_of, with_clamped_columns
from dpduck.language.statements.parse import parse_expression

CLAMPS = {"a": Clamp("a", "-5", "10", "1"), "b": Clamp("b", "0", "2", "0.25"), "c": Clamp("c", "0.5", "4.5", "1")}
EXPRESSIONS = (
    "a", "-a", "a + b", "a - b", "a * b", "a * a", "a * b * c", "2 * a + 1", "a / 4", "abs(a)", "abs(c - 3)",
    "round(b)", "floor(c)", "CAST(b AS INTEGER)", "CAST(b AS DOUBLE)", "CASE WHEN a > 0 THEN b ELSE -c END",
    "CASE WHEN a > 0 THEN 1 END", "coalesce(a, 3)", "greatest(a, b)", "least(a, 0)", "nullif(a, 0)",
    "CAST(a > 0 AND b < 1 AS INTEGER)", "0.1 * a + 0.01 * b", "least(greatest(a * 100, -7), 8)", "(1 - b) * (1 + a)",
)  # fmt: skip


def clamp_of(column: exp.Column) -> Clamp | None:
    return CLAMPS.get(column.name)


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_values_lie_on_the_grid(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    """Over a grid of rows, in and out of the clamps, every value is in its range, and on its step if it has one."""
    node = parse_expression(text)
    grid = grid_of(node, clamp_of, {})
    assert grid is not None
    sql = sql_of(with_clamped_columns(node, clamp_of, {}))
    rows = connection.execute(
        f"SELECT CAST({sql} AS DOUBLE) FROM (SELECT unnest([-99, -5, -1, 0, 3, 10, 99, NULL]) AS a), "
        "(SELECT unnest([-1, 0, 0.25, 1.75, 2, 7]::DECIMAL(9, 2)[]) AS b), (SELECT unnest([0.5, 1.5, 4.5, 9]) AS c)"
    ).fetchall()
    settled = grid.align()
    for (value,) in rows:
        if value is not None:
            assert float(grid.low) - 1e-9 <= value <= float(grid.high) + 1e-9
            steps = (value - float(settled.low)) / float(settled.step)
            assert not grid.step or abs(steps - round(steps)) < 1e-6


@pytest.mark.parametrize(
    "text", ["d", "a + d", "a / b", "sqrt(a)", "a % 3", "greatest(d, 0)", "CASE WHEN a > 0 THEN d END", "d::INTEGER"]
)
def test_what_nothing_bounds_has_no_range(text: str) -> None:
    """A column without a clamp, a division by a column, and an unknown function have no range."""
    assert grid_of(parse_expression(text), clamp_of, {}) is None


CONDITIONS: tuple[tuple[str, list[float | None]], ...] = (
    ("CASE WHEN d > 500 THEN 1 ELSE 0 END", [1, 1, 0, 0, 1, 0]),
    ("CAST(d > 500 AND NOT d = 700 AS INTEGER)", [0, 1, 0, 0, 1, None]),
    ("CASE WHEN d > 500 THEN d END", [200, 200, None, None, None, None]),
    ("CASE d WHEN 700 THEN 5 ELSE d END", [5, 200, 0, 7, None, None]),
    ("if(d >= 700, 1, 0)", [1, 1, 0, 0, 1, 0]),
    ("nullif(d, 700)", [None, 200, 0, 7, None, None]),
    ("coalesce(nullif(d, 700), 3)", [3, 200, 0, 7, 3, 3]),
    ("least(greatest(d, 1), 100)", [100, 100, 1, 7, 100, 1]),
    ("greatest(least(d, 100), 1) + d", [300, 300, 1, 14, None, None]),
)


@pytest.mark.parametrize(("text", "wanted"), CONDITIONS)
def test_conditions_see_columns_as_they_are(
    connection: duckdb.DuckDBPyConnection, text: str, wanted: list[float | None]
) -> None:
    """A CLAMP bounds the values that are added up, and never changes which rows meet a condition. NaN counts as in
    DuckDB in greatest, in least and in conditions, and is NULL elsewhere."""
    clamp, types = Clamp("d", "0", "200", "1"), {sql_of(parse_expression("d")): "DOUBLE"}
    clamped = with_clamped_columns(parse_expression(text), lambda _: clamp, types)
    rows = connection.execute(
        f"SELECT CAST({sql_of(clamped)} AS DOUBLE) "
        "FROM (SELECT unnest([700, 701, -3, 7, CAST('nan' AS DOUBLE), NULL]) AS d)"
    ).fetchall()
    assert [value for (value,) in rows] == wanted
