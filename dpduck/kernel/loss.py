"""Cuts the loss of a unit: if its counts are large, it counts for a part of itself, its weight (`weights_sql`).

docs/privacy.md, section 5, has the theorem and its proof, and says how the rule is kept in whole numbers. Let y be the
integers that one unit adds to all cells of an aggregate, N the aggregate's norm, and F = FULL. The weight w(y) is a
whole number from 0 to F with w^2 |y|^2 <= F^2 N, and F where |y|^2 <= N.

Where cells are weighed together (jobs.CountingJob), y is one number: the sum over all cells. The unit then adds at most
the root of F^2 N to this sum.

Of a unit that adds at most B in L1 no square and no product here is beyond 2^62 where B is at most `NARROW`: the sum of
squares is at most B^2, and w^2 s is about F^2 N at most, or s where w is 1. Then BIGINT holds all that HUGEINT would.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

from dpduck.kernel.contributions import FULL, UNIT, Contribution
from dpduck.kernel.counting.contribution_sql import clamped_sql

BITS = 40
"""Of a norm after the shift: enough that rounding changes no weight by much."""

NARROW = 1 << 28
"""Largest sum of a unit for BIGINT, which is faster: its square has room for squares of small numbers."""


def most_added(aggregates: Sequence[Contribution], max_rows: int) -> int:
    """Bounds what so many rows add to any sum here: values, their steps, or themselves."""
    return max_rows * max((max(one.bound, one.steps ** (2 if one.has_squares else 1)) for one in aggregates), default=1)


def type_for(aggregates: Sequence[Contribution], max_rows: int) -> str:
    """Returns the type that holds all whole numbers of a unit with so many rows."""
    return "BIGINT" if most_added(aggregates, max_rows) <= NARROW else "HUGEINT"


def shift(norm: int) -> int:
    """Returns g, by which numbers are shortened before they are squared.

    >>> shift(900), shift(1 << 41)
    (0, 1)
    """
    return max(0, (norm.bit_length() - BITS + 1) // 2)


def ceiling(norm: int) -> int:
    """Returns where a number is cut, in units of 2^g: its square alone is above F^2 N."""
    return isqrt(FULL * FULL * _short(norm)) + 1


def _short(norm: int) -> int:
    return norm >> 2 * shift(norm)


def light_rows(aggregates: Sequence[Contribution]) -> int:
    """Returns the most rows of units that are surely counted whole, 0 where there is no such number."""
    if any(one.per_group for one in aggregates):
        return 0
    return min(isqrt(one.norm) // one.bound for one in aggregates)


def weighed_sql(
    units_sql: str,
    cells: Sequence[str],
    aggregates: Sequence[Contribution],
    totals: Sequence[str],
    light_sql: str = "",
    kind: str = "HUGEINT",
    first: str = "",
) -> str:
    """Returns sums by cell, of units that are weighed.

    units_sql: a row for each unit and cell, with the columns of `unit_columns`. totals: of by_weighed_cell, over those
    columns times weights. light_sql: the same columns of units that are counted whole, by cell. kind: as of type_for.
    first: tables of WITH that are read here.
    """
    squares = (f"sum({_square(one, place, kind)})" for place, one in enumerate(aggregates))
    listed = ", ".join(f"CAST({one} AS {kind}) AS {squares_of(place)}" for place, one in enumerate(squares))
    by_unit = f"SELECT {UNIT}, {listed} FROM dpduck_cells GROUP BY {UNIT}"
    light = ""
    if light_sql:
        whole = [*cells, *(f"CAST({name} AS HUGEINT) * {FULL} AS {name}" for _, name in _counted(aggregates))]
        light = f" UNION ALL SELECT {', '.join(whole)} FROM ({light_sql})"
    weights = f"dpduck_weights AS ({weights_sql(by_unit, aggregates, [UNIT], kind)})"
    rows = f"dpduck_cells JOIN dpduck_weights USING ({UNIT})"
    return (
        f"WITH {first}dpduck_cells AS MATERIALIZED ({units_sql}), {weights} "
        f"{added_by_weight_sql(rows, cells, aggregates, totals, light)}"
    )


def weights_sql(squares_sql: str, aggregates: Sequence[Contribution], kept: Sequence[str], kind: str) -> str:
    """Returns the weights of each unit. squares_sql: a row for each unit, with sums of squares and `kept`."""
    numbers = range(len(aggregates))
    roots = [f"{squares_of(place)}, {_root(aggregates[place], place, kind)} AS {_weight(place)}" for place in numbers]
    weights = [f"{_shared(aggregates, place)} AS {_weight(place)}" for place in numbers]
    inner = f"SELECT {', '.join([*kept, *roots])} FROM ({squares_sql})"
    return f"SELECT {', '.join([*kept, *weights])} FROM ({inner})"


def added_by_weight_sql(
    rows: str, cells: Sequence[str], aggregates: Sequence[Contribution], totals: Sequence[str], more: str = ""
) -> str:
    """Returns sums by cell. rows: what follows FROM, columns of units with their weights. more: other rows."""
    columns = [*cells, *(f"{name} * {_weight(number)} AS {name}" for number, name in _counted(aggregates))]
    grouping = f" GROUP BY {', '.join(cells)}" if cells else ""
    return f"SELECT {', '.join([*cells, *totals])} FROM (SELECT {', '.join(columns)} FROM {rows}{more}){grouping}"


def together_sql(units_sql: str, aggregates: Sequence[Contribution], kind: str = "HUGEINT") -> str:
    """Returns the columns of each unit over all of its cells together. units_sql: as of weighed_sql."""
    summed = ", ".join(f"CAST(sum({name}) AS {kind}) AS {name}" for _, name in _counted(aggregates))
    return f"SELECT {UNIT}, {summed} FROM ({units_sql}) GROUP BY {UNIT}"


LONGEST, MOST_ADDED, MOST_SQUARES = 1 << 46, 1 << 60, 1 << 112
"""Numbers are cut here before levels are told, and so are their sum and the sum of their squares: no product is beyond
2^120, however many cells there are."""


def levels_sql(units_sql: str, aggregate: Contribution, levels: int, spread: int, kind: str = "HUGEINT") -> str:
    """Returns how much units count for, by level (jobs.CountingJob.levels). units_sql: as of weighed_sql.

    A unit with rows in many cells has a small norm beside its rows. It counts for the rows that it would lose.
    """
    added = added_sql(aggregate, 0, kind)
    if kind != "BIGINT":
        added = f"least({added}, {LONGEST})"
    squares, everything = f"least(sum({added} * {added}), {MOST_SQUARES})", f"least(sum({added}), {MOST_ADDED})"
    summed = f"CAST({squares} AS {kind}) AS {squares_of(0)}, CAST({everything} AS {kind}) AS {ALL}"
    return level_counts_sql(f"SELECT {UNIT}, {summed} FROM ({units_sql}) GROUP BY {UNIT}", levels, spread)


ALL = "dpduck_all"
"""The column with the sum of a unit's numbers over all cells, each without its sign."""


def level_counts_sql(squares_sql: str, levels: int, spread: int) -> str:
    """Returns how much units count for, by level. squares_sql: a row for each unit, with its squares and ALL."""
    above = " + ".join(f"CAST({squares_of(0)} > {1 << power} AS BIGINT)" for power in range(levels))
    times = " + ".join(
        ["1", *(f"CAST({ALL} * {ALL} >= {k * k} * {squares_of(0)} AS BIGINT)" for k in range(2, spread + 1))]
    )
    leveled = f"SELECT {above} AS dpduck_level, {times} AS dpduck_times FROM ({squares_sql})"
    counted = "CAST(sum(dpduck_times) AS BIGINT) AS dpduck_units"
    return f"SELECT dpduck_level, {counted} FROM ({leveled}) GROUP BY dpduck_level"


def squares_of(number: int) -> str:
    """Returns the column of a unit's squared norm: the sum of squares of its integers."""
    return f"dpduck_norm_{number}"


def _weight(number: int) -> str:
    return f"dpduck_weight_{number}"


def _counted(aggregates: Sequence[Contribution]) -> list[tuple[int, str]]:
    """Returns the columns that are multiplied by weights, with their aggregates."""
    found = []
    for number, aggregate in enumerate(aggregates):
        names = [f"dpduck_rows_{number}"]
        if aggregate.form != "count":
            names += [f"dpduck_valued_{number}", f"dpduck_sum_{number}"]
        if aggregate.has_squares:
            names.append(f"dpduck_squares_{number}")
        found += [(number, name) for name in names]
    return found


def unit_columns(aggregates: Sequence[Contribution], by_unit: Sequence[str]) -> list[str]:
    """Returns the columns of a unit in a cell, those of bounds by group under the names of all others."""
    columns, given = [], iter(by_unit)
    for number, aggregate in enumerate(aggregates):
        if not aggregate.per_group:
            columns += [next(given) for _ in range(1 if aggregate.form == "count" else 3 + aggregate.has_squares)]
            continue
        next(given)
        steps = clamped_sql(aggregate, number)
        columns += [
            f"CAST(({steps}) IS NOT NULL AS BIGINT) AS dpduck_rows_{number}",
            f"CAST(({steps}) IS NOT NULL AS BIGINT) AS dpduck_valued_{number}",
            f"({steps}) AS dpduck_sum_{number}",
        ]
    return columns


def added_sql(aggregate: Contribution, number: int, kind: str) -> str:
    """Returns SQL of the distance of a unit's integer from 0, in one cell or over all cells."""
    if aggregate.form == "count":
        return f"CAST(dpduck_rows_{number} AS {kind})"
    if aggregate.form == "valued":
        return f"CAST(dpduck_valued_{number} AS {kind})"
    low, step = aggregate.of_steps
    valued, summed = f"CAST(dpduck_valued_{number} AS {kind})", f"CAST(ifnull(dpduck_sum_{number}, 0) AS {kind})"
    if aggregate.form == "squares":  # none is below 0
        squares = f"CAST(ifnull(dpduck_squares_{number}, 0) AS {kind})"
        return f"({valued} * {low * low} + {summed} * {2 * low * step} + {squares} * {step * step})"
    return f"abs({valued} * {low} + {summed} * {step})"


def _square(aggregate: Contribution, number: int, kind: str) -> str:
    """Returns SQL of the square of a unit's integer in a cell, rounded up in units of 2^g.

    In BIGINT none is so large that it has to be cut: a weight is 0 either way where it would be.
    """
    added, places = added_sql(aggregate, number, kind), shift(aggregate.norm)
    if places:
        added = f"(({added} + {(1 << places) - 1}) // {1 << places})"
    cut = added if kind == "BIGINT" else f"least({added}, {ceiling(aggregate.norm)})"
    return f"{cut} * {cut}"


def _root(aggregate: Contribution, number: int, kind: str) -> str:
    """Returns the weight up to the rounding of doubles. Nothing here raises: the root is of a finite number."""
    squares = f"CAST(greatest({squares_of(number)}, 1) AS DOUBLE)"
    root = f"floor({FULL} * sqrt(CAST({_short(aggregate.norm)} AS DOUBLE) / {squares}))"
    return f"CAST(least({FULL}, {root}) AS {kind})"


def _shared(aggregates: Sequence[Contribution], number: int) -> str:
    """Returns the weight of an aggregate. Aggregates that share one have the smallest, which is within all norms."""
    first = last = number
    while first > 0 and aggregates[first - 1].shared:
        first -= 1
    while aggregates[last].shared:
        last += 1
    weights = [_corrected(aggregates[place], place) for place in range(first, last + 1)]
    return weights[0] if len(weights) == 1 else f"least({', '.join(weights)})"


def _corrected(aggregate: Contribution, number: int) -> str:
    """Returns the weight, one less where a root in doubles was too large."""
    weight, most = _weight(number), FULL * FULL * _short(aggregate.norm)
    return f"{weight} - CASE WHEN {weight} * {weight} * {squares_of(number)} > {most} THEN 1 ELSE 0 END"
