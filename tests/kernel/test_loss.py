"""Units that are weighed get the largest weight that fits, by their own rows alone, whatever the rows hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import isqrt

import duckdb
import numpy as np
import pytest
from numpy.typing import NDArray

from dpduck.kernel.contributions import FULL, Contribution
from dpduck.kernel.counting.contribution_sql import tables_from
from dpduck.kernel.loss import ceiling, shift, type_for
from dpduck.kernel.stage import stage_sql
from dpduck.values.errors import InternalError
from tests.support.nodes import adds

CELLS, ROWS = 40, 60
Row = tuple[int, int, int | None]
"""A unit, a cell, and a number of steps."""


def aggregates(norm: int) -> dict[str, Contribution]:
    """A count, a sum of both signs, squares about a centre, and persons, each with the norm of `norm` rows."""
    return {
        "count": adds("", norm=norm),
        "sum": adds("", "sum", "v", Fraction(-60), Fraction(600), 660, norm=norm * 600**2),
        "squares": adds("", "squares", "v", Fraction(-60), Fraction(600), 660, norm=norm * 540**4, centre=Fraction(60)),
        "persons": adds("", "sum", per_group="sum", norm=norm),
    }


def tables_of(rows: Sequence[Row], one: Contribution, *, most: int = ROWS, threads: int = 2) -> NDArray[np.int64]:
    """Returns the exact table of an aggregate over rows, by cell, as the stage computes it."""
    return tables_together(rows, [one], most=most, threads=threads)[0]


def tables_together(
    rows: Sequence[Row], aggregates: Sequence[Contribution], *, most: int = ROWS, threads: int = 2
) -> list[NDArray[np.int64]]:
    """Returns the exact tables of several aggregates over one column, by cell."""
    copies = ", ".join(f"dpduck_value_0 AS dpduck_value_{number}" for number in range(1, len(aggregates)))
    with duckdb.connect(config={"threads": threads}) as connection:
        connection.execute(
            "CREATE TABLE r (dpduck_unit BIGINT, dpduck_cell_0 BIGINT, dpduck_value_0 BIGINT, dpduck_order UBIGINT)"
        )
        columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
        connection.execute(
            "INSERT INTO r SELECT u, c, v, hash(u, c, v) "
            "FROM (SELECT unnest($1) AS u, unnest($2) AS c, unnest($3) AS v)",
            columns,
        )
        listed = f"SELECT *, {copies} FROM r" if copies else "SELECT * FROM r"
        sql = stage_sql(listed, {"dpduck_cell_0": CELLS}, aggregates, most)
        cells, *found = connection.execute(sql).fetchnumpy().values()
    tables = []
    for one in tables_from(aggregates, found):
        table = np.zeros(CELLS, np.int64)
        table[np.asarray(cells, np.int64)] = one
        tables.append(table)
    return tables


def added(rows: Sequence[Row], one: Contribution) -> dict[int, int]:
    """The sums that one unit's rows add to each cell when it has full weight, by hand."""
    found: dict[int, int] = {}
    for _, cell, value in rows:
        number = 1
        if one.value is not None:
            number = 0 if value is None else int(one.low + value * one.step - one.centre)
            number = number**2 if one.form == "squares" else number
        found[cell] = 1 if one.per_group else found.get(cell, 0) + number
    return found


def largest_weight(squares: int, norm: int) -> int:
    """Returns the largest whole w up to FULL with w^2 squares <= FULL^2 norm."""
    return FULL if squares <= norm else min(FULL, isqrt(FULL * FULL * norm // squares))


def units_of(seed: int, units: int) -> list[Row]:
    """Units with one to sixty rows, in few cells or many."""
    drawn, rows = np.random.default_rng(seed), list[Row]()
    for unit in range(units):
        cells = int(drawn.choice([1, 2, CELLS]))
        for _ in range(int(drawn.integers(1, ROWS + 1))):
            value = None if drawn.random() < 0.1 else int(drawn.integers(0, 661))
            rows.append((unit, int(drawn.integers(0, cells)), value))
    return rows


@pytest.mark.parametrize("name", ["count", "sum", "squares", "persons"])
@pytest.mark.parametrize("norm", [1, 9, 900])
def test_a_unit_has_the_largest_weight_that_fits(name: str, norm: int) -> None:
    """The weight of each unit equals the weight that Python's whole numbers give."""
    one = aggregates(norm)[name]
    rows = units_of(norm, 12)
    for unit in range(12):
        own = [row for row in rows if row[0] == unit]
        whole = added(own, one)
        weight = largest_weight(sum(number * number for number in whole.values()), one.norm)
        expected = np.zeros(CELLS, np.int64)
        for cell, number in whole.items():
            expected[cell] = weight * number
        assert tables_of(own, one).tolist() == expected.tolist()
        assert int((expected * expected).sum()) <= FULL * FULL * one.norm


@pytest.mark.parametrize("name", ["count", "sum", "squares", "persons"])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_no_unit_changes_the_weight_of_another(name: str, threads: int) -> None:
    """The table is the sum of the tables of each unit alone, in any order of rows and with any number of threads."""
    one, rows = aggregates(25)[name], units_of(7, 40)
    alone = sum(tables_of([row for row in rows if row[0] == unit], one) for unit in range(40))
    order = np.random.default_rng(threads).permutation(len(rows))
    together = tables_of([rows[place] for place in order], one, threads=threads)
    assert isinstance(alone, np.ndarray)
    assert together.tolist() == alone.tolist()


def test_squares_beyond_doubles_are_whole_numbers() -> None:
    """At squares of 2^52 and more a root in doubles may be too large by one. The weight still fits."""
    for root in (67_108_863, 67_108_864, 67_108_865, 94_906_266):
        one = adds("", "sum", "v", Fraction(0), Fraction(1 << 40), 1 << 40, norm=root * root - 1)
        found = int(tables_of([(1, 0, root)], one)[0])
        weight = found // root
        assert found == weight * root
        assert weight * weight * root * root <= FULL * FULL * one.norm
        assert FULL - 2 <= weight <= FULL - 1


def test_a_root_that_is_too_large_is_corrected() -> None:
    """Squares of 2^58 + 1 are 2^58 as doubles, with a weight of 1. In whole numbers the weight is 0."""
    one = adds("", "sum", "v", Fraction(0), Fraction(1 << 40), 1 << 40, norm=1 << 38)
    assert not tables_of([(1, 0, 1 << 29), (1, 1, 1)], one).any()
    assert tables_of([(1, 0, 1 << 29)], one).any()


def test_nothing_but_the_root_is_in_doubles() -> None:
    """All sums are of whole numbers, since a sum of doubles depends on the order of its terms."""
    for one in aggregates(900).values():
        sql = stage_sql("SELECT 1", {"dpduck_cell_0": 2}, [one], 3)
        assert sql.count("DOUBLE") == sql.count("sqrt(") * 2 == 2


@pytest.mark.parametrize("norm", [1, 10**12, 10**20, 10**26])
def test_no_value_makes_the_stage_fail_or_overflow(norm: int) -> None:
    """Sixty rows at the largest bound, beside a small norm or a large one, give a weight and no error."""
    one = adds("", "sum", "v", Fraction(-(1 << 40)), Fraction(1 << 40), 1 << 40, norm=norm)
    rows: list[Row] = [(1, cell % CELLS, (1 << 40) * (cell % 2)) for cell in range(ROWS)]
    table = [int(number) for number in tables_of(rows, one)]
    assert sum(number * number for number in table) <= FULL * FULL * norm


@pytest.mark.parametrize("value", [0, 1, 1 << 40])
def test_levels_of_any_rows_are_told(value: int) -> None:
    """Sixty rows of nothing, or at the largest bound, have one level and no overflow."""
    one = adds("", "sum", "v", Fraction(0), Fraction(1 << 40), 1 << 40)
    with duckdb.connect() as connection:
        columns = f"n AS dpduck_order, n AS dpduck_cell_0, {value} AS dpduck_value_0"
        rows = f"SELECT 1 AS dpduck_unit, {columns} FROM range(60) AS r(n)"
        sql = stage_sql(rows, {"dpduck_cell_0": 60}, [one], ROWS, levels=(100, 8))
        ((level, times),) = connection.execute(sql).fetchall()
    assert level == (0 if value == 0 else (60 * value * value - 1).bit_length())
    assert times == (8 if value == 0 else 7)


def test_rounding_takes_little_away() -> None:
    """Numbers are shortened before they are squared. A unit at 0.999 of its norm keeps its full weight."""
    norm = 10**24
    assert shift(norm) > 0
    one = adds("", "sum", "v", Fraction(0), Fraction(1 << 40), 1 << 40, norm=norm)
    root = isqrt(norm) * 999 // 1000
    assert tables_of([(1, 0, root)], one)[0] == FULL * root
    assert ceiling(norm) ** 2 > FULL * FULL * (norm >> 2 * shift(norm))


@pytest.mark.parametrize("form", ["sum", "squares"])
def test_shortened_numbers_of_either_type_are_squared_alike(form: str) -> None:
    """A unit at its norm has full weight in BIGINT and in HUGEINT, where no rounding moves it."""
    steps, power = (1 << 21, 1) if form == "sum" else (1 << 11, 2)
    one = adds("", form, "v", Fraction(0), Fraction(steps), steps, norm=steps ** (2 * power))
    assert shift(one.norm) > 0
    for most, kind in ((1, "BIGINT"), (1 << 30, "HUGEINT")):
        assert type_for([one], most) == kind
        more: Row = (1, 0, steps if most == 1 else 0)
        rows: list[Row] = [(1, 0, steps), more]
        assert tables_of(rows, one, most=most)[0] == FULL * steps**power


def test_the_norm_is_of_the_rows_that_are_kept() -> None:
    """MAX ROWS comes first: of sixty rows in one cell four are kept, which have full weight under a norm of sixteen."""
    rows: list[Row] = [(1, 3, None)] * ROWS
    assert tables_of(rows, adds("", norm=16), most=4)[3] == 4 * FULL
    assert tables_of(rows, adds("", norm=16), most=ROWS)[3] == ROWS * (FULL * 4 // ROWS)


@pytest.mark.parametrize("name", ["count", "sum", "squares", "persons"])
@pytest.mark.parametrize("norm", [1, 9, 900])
def test_bounds_hold_for_every_unit(name: str, norm: int) -> None:
    """The sums that a unit adds are within all three bounds of its price."""
    one, rows = aggregates(norm)[name], units_of(norm + 1, 12)
    for unit in range(12):
        table = np.abs(tables_of([row for row in rows if row[0] == unit], one))
        assert table.sum() <= one.unit_bound(ROWS, CELLS)
        assert table.max() <= one.unit_bound(ROWS, 1)
        assert (table * table).sum() <= one.squared_bound(ROWS, CELLS, ROWS)


def test_two_aggregates_share_the_smaller_weight() -> None:
    """A count of values and a sum about a centre share one weight, within the smaller of both norms."""
    for count_norm, sum_norm in ((4, 10**9), (10**6, 900), (16, 40_000)):
        counted = adds("", "valued", "v", Fraction(0), Fraction(100), 100, norm=count_norm, shared=True)
        summed = replace(counted, form="sum", norm=sum_norm, centre=Fraction(40), shared=False)
        rows: list[Row] = [(1, cell % 3, 20 * cell % 101) for cell in range(12)]
        values: dict[int, list[int]] = {}
        for _, cell, value in rows:
            values.setdefault(cell, []).append((value or 0) - 40)
        squares = sum(len(one) ** 2 for one in values.values()), sum(sum(one) ** 2 for one in values.values())
        weight = min(largest_weight(squares[0], count_norm), largest_weight(squares[1], sum_norm))
        counts, sums = tables_together(rows, [counted, summed])
        assert [int(counts[cell]) for cell in values] == [weight * len(one) for one in values.values()]
        assert [int(sums[cell]) for cell in values] == [weight * sum(one) for one in values.values()]


def test_three_aggregates_share_the_smallest_weight() -> None:
    """Values, sums and squares about a centre share one weight, within the smallest of the norms."""
    for norms in ((4, 10**9, 10**12), (10**6, 900, 10**12), (10**6, 10**9, 40_000), (16, 40_000, 10**7)):
        counted = adds("", "valued", "v", Fraction(0), Fraction(100), 100, norm=norms[0], shared=True)
        summed = replace(counted, form="sum", norm=norms[1], centre=Fraction(40))
        squared = replace(summed, form="squares", norm=norms[2], shared=False)
        every = (counted, summed, squared)
        rows: list[Row] = [(1, cell % 3, 20 * cell % 101) for cell in range(12)]
        exact = [added(rows, replace(counted, form="count", value=None)), added(rows, summed), added(rows, squared)]
        squares = [sum(number**2 for number in one.values()) for one in exact]
        weight = min(map(largest_weight, squares, norms))
        for one, table in zip(exact, tables_together(rows, every), strict=True):
            assert {cell: int(table[cell]) for cell in one} == {cell: weight * number for cell, number in one.items()}


def test_weights_of_some_counts_are_a_defect() -> None:
    """Weighing some aggregates of a scan and not others is refused. Rows that are units have no weight."""
    for wrong, most in (([adds("", norm=4), adds("")], 3), ([adds("", norm=4)], None)):
        with pytest.raises(InternalError, match="weights"):
            stage_sql("SELECT 1", {"dpduck_cell_0": 2}, wrong, most)
