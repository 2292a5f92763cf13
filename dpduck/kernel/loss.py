"""Caps the privacy loss of a unit: large counts of a unit are multiplied by a weight below 1 (`weights_sql`).

docs/privacy.md, section 5, has the theorem, its proof, and the computation in whole numbers. Let y be the integers that
one unit adds to all cells of an aggregate, N the aggregate's norm, and F = FULL. The weight w(y) is a whole number from
0 to F with w^2 |y|^2 <= F^2 N. It is F if |y|^2 <= N. Counts are in parts of 1/F. Where cells are weighed together
(jobs.CountingJob), y is one number: the sum over all cells.

Let a unit add at most B in L1, with B at most `NARROW`. Then no square and no product here is beyond 2^62. The sum s of
squares is at most B^2, and w^2 s is about F^2 N at most, or s if w is 1. So BIGINT is as good as HUGEINT.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

from dpduck.kernel.contributions import FULL, Contribution
from dpduck.kernel.counting.contribution_sql import clamp_sql
from dpduck.kernel.rows.bounding import UNIT

BITS = 40
"""Bits of a norm after the shift: enough that rounding changes no weight by much."""

NARROW = 1 << 28
"""Largest sum of a unit for BIGINT, which is faster. The square of NARROW leaves room for squares of small numbers."""


def most_added(aggregates: Sequence[Contribution], max_rows: int) -> int:
    """Bounds each sum that this file forms over `max_rows` rows: of integers, steps, squared steps, or ones."""
    return max_rows * max((max(agg.bound, agg.steps ** (2 if agg.has_squares else 1)) for agg in aggregates), default=1)


def type_for(aggregates: Sequence[Contribution], max_rows: int) -> str:
    """Returns the type that holds all whole numbers of a unit with `max_rows` rows."""
    return "BIGINT" if most_added(aggregates, max_rows) <= NARROW else "HUGEINT"


def shift(norm: int) -> int:
    """Returns g for a norm: integers are divided by 2^g and rounded up before they are squared.

    >>> shift(900), shift(1 << 41)
    (0, 1)
    """
    return max(0, (norm.bit_length() - BITS + 1) // 2)


def ceiling(norm: int) -> int:
    """Returns the cap of a number, in units of 2^g. The cap's square exceeds F^2 floor(N / 4^g), so the weight is 0."""
    return isqrt(FULL * FULL * _short(norm)) + 1


def _short(norm: int) -> int:
    return norm >> 2 * shift(norm)


def light_rows(aggregates: Sequence[Contribution]) -> int:
    """Returns the number of rows up to which every unit has full weight, 0 if there is no such number."""
    if any(aggregate.per_group for aggregate in aggregates):
        return 0
    return min(isqrt(aggregate.norm) // aggregate.bound for aggregate in aggregates)


def weigh_cells_sql(
    units_sql: str,
    cells: Sequence[str],
    aggregates: Sequence[Contribution],
    totals: Sequence[str],
    light_sql: str = "",
    kind: str = "HUGEINT",
    first: str = "",
) -> str:
    """Writes the sums by cell, over all units, of a unit's numbers times its weight.

    units_sql: SQL of a row for each unit and cell, with `unit_columns`. totals: sums of by_weighed_cell, over those
    columns times weights. light_sql: SQL of the same columns by cell, for units that are counted whole. kind: type that
    type_for returns. first: text of WITH tables that units_sql and light_sql read.
    """
    squares = (f"sum({_square(item, place, kind)})" for place, item in enumerate(aggregates))
    listed = ", ".join(f"CAST({item} AS {kind}) AS {squares_of(place)}" for place, item in enumerate(squares))
    by_unit = f"SELECT {UNIT}, {listed} FROM dpduck_cells GROUP BY {UNIT}"
    light = ""
    if light_sql:
        whole = [*cells, *(f"CAST({name} AS HUGEINT) * {FULL} AS {name}" for _, name in _sum_columns(aggregates))]
        light = f" UNION ALL SELECT {', '.join(whole)} FROM ({light_sql})"
    weights = f"dpduck_weights AS ({weights_sql(by_unit, aggregates, [UNIT], kind)})"
    rows = f"dpduck_cells JOIN dpduck_weights USING ({UNIT})"
    return (
        f"WITH {first}dpduck_cells AS MATERIALIZED ({units_sql}), {weights} "
        f"{add_by_weight_sql(rows, cells, aggregates, totals, light)}"
    )


def weights_sql(squares_sql: str, aggregates: Sequence[Contribution], columns: Sequence[str], kind: str) -> str:
    """Writes the weights of each unit. squares_sql: SQL of a row for each unit, with sums of squares and `columns`."""
    numbers = range(len(aggregates))
    roots = [f"{squares_of(place)}, {_root(aggregates[place], place, kind)} AS {_weight(place)}" for place in numbers]
    weights = [f"{_least_weight(aggregates, place)} AS {_weight(place)}" for place in numbers]
    inner = f"SELECT {', '.join([*columns, *roots])} FROM ({squares_sql})"
    return f"SELECT {', '.join([*columns, *weights])} FROM ({inner})"


def add_by_weight_sql(
    rows: str, cells: Sequence[str], aggregates: Sequence[Contribution], totals: Sequence[str], more: str = ""
) -> str:
    """Writes the sums by cell. rows: text after FROM, with units' columns and weights. more: UNION ALL of more rows."""
    columns = [*cells, *(f"{name} * {_weight(number)} AS {name}" for number, name in _sum_columns(aggregates))]
    grouping = f" GROUP BY {', '.join(cells)}" if cells else ""
    return f"SELECT {', '.join([*cells, *totals])} FROM (SELECT {', '.join(columns)} FROM {rows}{more}){grouping}"


def together_sql(units_sql: str, aggregates: Sequence[Contribution], kind: str = "HUGEINT") -> str:
    """Writes the columns of each unit, summed over all of its cells. units_sql: as in weigh_cells_sql."""
    summed = ", ".join(f"CAST(sum({name}) AS {kind}) AS {name}" for _, name in _sum_columns(aggregates))
    return f"SELECT {UNIT}, {summed} FROM ({units_sql}) GROUP BY {UNIT}"


LONGEST, MOST_ADDED, MOST_SQUARES = 1 << 46, 1 << 60, 1 << 112
"""Caps of a number, of the sum and of the sum of squares, before levels are computed. So no product is beyond 2^120,
however many cells there are."""


def levels_sql(units_sql: str, aggregate: Contribution, levels: int, spread: int, kind: str = "HUGEINT") -> str:
    """Writes the number of units at each level (levels, spread: jobs.CountingJob). units_sql: see weigh_cells_sql."""
    # a unit with rows in many cells has a small norm but many rows to lose, so it counts several times
    added = magnitude_sql(aggregate, 0, kind)
    if kind != "BIGINT":
        added = f"least({added}, {LONGEST})"
    squares, everything = f"least(sum({added} * {added}), {MOST_SQUARES})", f"least(sum({added}), {MOST_ADDED})"
    summed = f"CAST({squares} AS {kind}) AS {squares_of(0)}, CAST({everything} AS {kind}) AS {ALL}"
    return level_counts_sql(f"SELECT {UNIT}, {summed} FROM ({units_sql}) GROUP BY {UNIT}", levels, spread)


ALL = "dpduck_all"
"""Column with the sum of the absolute values of a unit's numbers over all cells."""


def level_counts_sql(squares_sql: str, levels: int, spread: int) -> str:
    """Writes the number of units at each level, as levels_sql does. squares_sql: SQL of each unit's squares and ALL."""
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


def _sum_columns(aggregates: Sequence[Contribution]) -> list[tuple[int, str]]:
    """Lists the columns to be multiplied by weights, each with the number of its aggregate."""
    columns = []
    for number, aggregate in enumerate(aggregates):
        names = [f"dpduck_rows_{number}"]
        if aggregate.form != "count":
            names += [f"dpduck_valued_{number}", f"dpduck_sum_{number}"]
        if aggregate.has_squares:
            names.append(f"dpduck_squares_{number}")
        columns += [(number, name) for name in names]
    return columns


def unit_columns(aggregates: Sequence[Contribution], by_unit: Sequence[str]) -> list[str]:
    """Returns SQL of a unit's columns in a cell, with the same names for bounds by group. by_unit: SQL of by_unit."""
    columns, sums = [], iter(by_unit)
    for number, aggregate in enumerate(aggregates):
        if not aggregate.per_group:
            columns += [next(sums) for _ in range(1 if aggregate.form == "count" else 3 + aggregate.has_squares)]
            continue
        next(sums)
        steps = clamp_sql(aggregate, number)
        columns += [
            f"CAST(({steps}) IS NOT NULL AS BIGINT) AS dpduck_rows_{number}",
            f"CAST(({steps}) IS NOT NULL AS BIGINT) AS dpduck_valued_{number}",
            f"({steps}) AS dpduck_sum_{number}",
        ]
    return columns


def magnitude_sql(aggregate: Contribution, number: int, kind: str) -> str:
    """Writes the absolute value of a unit's integer, either in one cell or added up over all cells."""
    if aggregate.form == "count":
        return f"CAST(dpduck_rows_{number} AS {kind})"
    if aggregate.form == "valued":
        return f"CAST(dpduck_valued_{number} AS {kind})"
    low, step = aggregate.of_steps
    valued, summed = f"CAST(dpduck_valued_{number} AS {kind})", f"CAST(ifnull(dpduck_sum_{number}, 0) AS {kind})"
    if aggregate.form == "squares":  # never below 0
        squares = f"CAST(ifnull(dpduck_squares_{number}, 0) AS {kind})"
        return f"({valued} * {low * low} + {summed} * {2 * low * step} + {squares} * {step * step})"
    return f"abs({valued} * {low} + {summed} * {step})"


def _square(aggregate: Contribution, number: int, kind: str) -> str:
    """Writes the square of a unit's integer in a cell. The integer is first rounded up to units of 2^g."""
    # no BIGINT needs the cap: where the cap would apply, the weight is 0 with and without it
    added, places = magnitude_sql(aggregate, number, kind), shift(aggregate.norm)
    if places:
        added = f"(({added} + {(1 << places) - 1}) // {1 << places})"
    cut = added if kind == "BIGINT" else f"least({added}, {ceiling(aggregate.norm)})"
    return f"{cut} * {cut}"


def _root(aggregate: Contribution, number: int, kind: str) -> str:
    """Writes the weight up to the rounding of doubles. Nothing here raises, since the root is of a finite number."""
    squares = f"CAST(greatest({squares_of(number)}, 1) AS DOUBLE)"
    root = f"floor({FULL} * sqrt(CAST({_short(aggregate.norm)} AS DOUBLE) / {squares}))"
    return f"CAST(least({FULL}, {root}) AS {kind})"


def _least_weight(aggregates: Sequence[Contribution], number: int) -> str:
    """Writes the weight of an aggregate. Aggregates that share one get the smallest, which keeps every norm."""
    first = last = number
    while first > 0 and aggregates[first - 1].shared:
        first -= 1
    while aggregates[last].shared:
        last += 1
    weights = [_correct_weight(aggregates[place], place) for place in range(first, last + 1)]
    return weights[0] if len(weights) == 1 else f"least({', '.join(weights)})"


def _correct_weight(aggregate: Contribution, number: int) -> str:
    """Writes the weight, less 1 where rounding in doubles made it too large."""
    weight, most = _weight(number), FULL * FULL * _short(aggregate.norm)
    return f"{weight} - CASE WHEN {weight} * {weight} * {squares_of(number)} > {most} THEN 1 ELSE 0 END"
