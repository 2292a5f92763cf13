"""The theorem of the counting stage for arbitrary integers: whatever the input is, a unit adds a bounded amount."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from math import prod

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpduck.kernel import stage
from dpduck.kernel.counting import contribution_sql
from dpduck.kernel.counting.contribution_sql import tables_from
from dpduck.kernel.stage import stage_sql
from tests.support.nodes import adds

CAPACITIES = {"dpduck_cell_0": 3, "dpduck_cell_1": 2}
AGGREGATES = (
    adds(""),
    adds("x"),
    adds("x", "sum", "v", Fraction(-2), Fraction(5), 7),
    adds("", "moments", "v", Fraction(0), Fraction(1), 3, 2, rest=True),
    adds("x", "moments", "v", Fraction(0), Fraction(10), 1 << 15, 1),
    adds("", "sum", "v", Fraction(0), Fraction(1 << 40), 1 << 40),
    adds("x", "sum", "v", Fraction(-3), Fraction(3), 6, per_group="sum"),
    adds("", "sum", "v", Fraction(0), Fraction(4), 4, per_group="average"),
    adds("x", "sum", "", Fraction(0), Fraction(2), 2, per_group="sum"),
)
INTEGERS = st.one_of(
    st.none(), st.integers(-2, 8), st.sampled_from([-(1 << 63), (1 << 63) - 1, 1 << 45, -(1 << 45), 1 << 40, 1 << 31])
)
Row = tuple[int | None, ...]
ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 3)),  # unit
        st.one_of(st.none(), st.integers(0, 3)),  # the order, with many ties
        *(st.one_of(st.integers(0, 2), INTEGERS),) * 2,
        *(st.one_of(st.none(), st.integers(0, 1)),) * len(AGGREGATES),
        *(INTEGERS,) * len(AGGREGATES),
    ),
    max_size=60,
)


def names() -> list[str]:
    numbers = range(len(AGGREGATES))
    return [
        *("dpduck_unit", "dpduck_order", *CAPACITIES),
        *(f"dpduck_flag_{number}" for number in numbers),
        *(f"dpduck_value_{number}" for number in numbers),
    ]


def tables(rows: Sequence[Row], max_rows: int | None) -> list[dict[tuple[int, ...], list[int]]]:
    """Returns for each aggregate the integers of all its tables, by cell."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names())
    types = [pa.bool_() if "flag" in name else pa.int64() for name in names()]
    arrays = [
        pa.array([None if value is None else bool(value) for value in column] if kind == pa.bool_() else column, kind)
        for column, kind in zip(columns, types, strict=True)
    ]
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("rows", pa.table(dict(zip(names(), arrays, strict=True))))
        sql = stage_sql("FROM rows", CAPACITIES, AGGREGATES if max_rows else AGGREGATES[:6], max_rows)
        found = list(connection.execute(sql).fetchnumpy().values())
    cells = list(zip(*(column.tolist() for column in found[: len(CAPACITIES)]), strict=True))
    values, answers = tables_from(AGGREGATES if max_rows else AGGREGATES[:6], found[len(CAPACITIES) :]), []
    start = 0
    for aggregate in AGGREGATES if max_rows else AGGREGATES[:6]:
        of_cells: dict[tuple[int, ...], list[int]] = defaultdict(lambda count=aggregate.tables: [0] * count)  # type: ignore[misc]
        for place, cell in enumerate(cells):
            of_cells[cell] = [int(table[place]) for table in values[start : start + aggregate.tables]]
        answers.append(dict(of_cells))
        start += aggregate.tables
    return answers


def differences(rows: Sequence[Row], without: Sequence[Row], max_rows: int | None) -> list[tuple[int, int]]:
    """Returns for each aggregate the L1 distance of its tables, and the largest distance within one cell."""
    found = []
    for large, small in zip(tables(rows, max_rows), tables(without, max_rows), strict=True):
        of_cells = [
            sum(abs(a - b) for a, b in zip(large.get(cell, [0] * 9), small.get(cell, [0] * 9), strict=False))
            for cell in {*large, *small}
        ]
        found.append((sum(of_cells), max(of_cells, default=0)))
    return found


def bounds(max_rows: int) -> list[int]:
    return [aggregate.unit_bound(max_rows, prod(CAPACITIES.values())) for aggregate in AGGREGATES]


@pytest.mark.slow
@settings(max_examples=100)
@given(rows=ROWS, unit=st.integers(0, 3), max_rows=st.sampled_from([1, 2, 3, 7, 31, 32, 40]))
def test_what_a_unit_adds_is_bounded(rows: list[Row], unit: int, max_rows: int) -> None:
    """No unit adds more than unit_bound, for any orders, cells, flags and steps, also NULL and overflowing ones."""
    without = [row for row in rows if row[0] != unit]
    found = differences(rows, without, max_rows)
    assert all(total <= bound for (total, _), bound in zip(found, bounds(max_rows), strict=True)), found


@pytest.mark.audit
@settings(max_examples=600, deadline=None)
@given(rows=ROWS, unit=st.integers(0, 3), max_rows=st.sampled_from([1, 2, 3, 7, 31, 32, 40]))
def test_what_a_unit_adds_is_bounded_six_times_as_often(rows: list[Row], unit: int, max_rows: int) -> None:
    """The audit tries six times as many random rows."""
    found = differences(rows, [row for row in rows if row[0] != unit], max_rows)
    assert all(total <= bound for (total, _), bound in zip(found, bounds(max_rows), strict=True)), found


@pytest.mark.slow
@settings(max_examples=50)
@given(rows=ROWS)
def test_without_a_unit_a_row_adds_at_most_its_bound(rows: list[Row]) -> None:
    """PRIVACY UNIT ROW: removing the first row changes each aggregate by at most the bound of one row."""
    if rows:
        found = differences(rows, rows[1:], None)
        assert all(total <= one.bound for (total, _), one in zip(found, AGGREGATES, strict=False)), found


def crowded() -> list[Row]:
    """Nine rows of one unit, the worst of each kind."""
    huge = (1 << 63) - 1
    rows = [
        (1, order, cell % 3, 0, *(1,) * len(AGGREGATES), *(huge,) * len(AGGREGATES))
        for order, cell in enumerate(range(9))
    ]
    return [*rows, (2, 0, 0, 0, *(1,) * len(AGGREGATES), *(1,) * len(AGGREGATES))]


def test_the_bound_is_reached() -> None:
    """Some unit reaches the bound of each plain aggregate, so that no bound is larger than necessary."""
    rows = crowded()
    found = differences(rows, [row for row in rows if row[0] != 1], 4)
    reached = [total for total, _ in found]
    assert reached[:6] == bounds(4)[:6]


@pytest.mark.parametrize("broken", ["steps", "window", "cells"])
def test_each_guard_is_needed(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """Without the clamp of steps, the window or the range of cells, the theorem fails on the rows above."""
    if broken == "steps":
        monkeypatch.setattr(contribution_sql, "bounds_of_steps", lambda _: (-(1 << 31), 1 << 31))
    if broken == "window":
        monkeypatch.setattr(stage, "bound_rows_sql", lambda rows, *_: f"FROM ({rows})")
    rows = crowded()
    if broken == "cells":
        monkeypatch.setitem(CAPACITIES, "dpduck_cell_0", 1 << 62)
        rows = [(1, 0, 77, 0, *row[4:]) for row in rows[:3]]
        assert len({cell for table in tables(rows, 4) for cell in table} - {(0, 0), (1, 0), (2, 0)}) == 1
        return
    found = differences(rows, [row for row in rows if row[0] != 1], 4)
    assert any(total > bound for (total, _), bound in zip(found, bounds(4), strict=True))


@pytest.mark.parametrize("unit", [0, None])
@pytest.mark.parametrize("cells", [(2, 1), (3, 1), (2, 2), (-1, 0), (0, None)])
def test_which_rows_take_part(unit: int | None, cells: tuple[int, int | None]) -> None:
    """Rows without a unit, and rows in cells below 0, NULL, or from the capacity on, add nothing. Others add.

    The reader of rows may leave these out before. The stage relies on nobody.
    """
    row = (unit, 0, *cells, *(1,) * len(AGGREGATES), *(1,) * len(AGGREGATES))
    found = tables([row], 4)
    assert all(list(of_cells) == ([cells] if (unit, cells) == (0, (2, 1)) else []) for of_cells in found)


def test_which_rows_arrive() -> None:
    """A stream passes on rows of closing periods alone, and no rows without a unit or with a long text as the unit.

    The scan may leave out other periods before. The stage relies on nobody.
    """
    long = "x" * (stage.LONGEST_UNIT + 1)
    rows = f"FROM (VALUES ('a', 0), ('a', 1), ('b', 2), ('b', 3), (NULL, 1), ('{long}', 1)) AS t(dpduck_unit, cell)"
    given = f"SELECT *, 0 AS dpduck_order {rows}"
    for units, expected in ((True, [1, 2]), (False, [1, 1, 1, 2])):
        sql = stage.arrivals_sql(given, {"cell": 4}, AGGREGATES[:1], "cell", 1, 2, units=units)
        with duckdb.connect(config={"threads": 1}) as connection:
            found = connection.execute(f"SELECT cell FROM ({sql}) ORDER BY cell").fetchall()
        assert [cell for (cell,) in found] == expected


def test_counts_are_64_bit_integers() -> None:
    """No row decides the type of a count: sums are split into halves that fit 64 bits, whatever they are."""
    for rows in ([], crowded(), [(1, 0, 0, 0, *(None,) * len(AGGREGATES), *(None,) * len(AGGREGATES))]):
        for table in tables(rows, 3):
            assert all(isinstance(value, int) for values in table.values() for value in values)
    assert np.dtype(np.int64).itemsize == 8
