"""SQL of contributions (contributions.py): of a row, of a unit in a cell if bounds are by group, and of a cell.

Nothing here raises on any row. Values are DOUBLE. They are cast by TRY_CAST, and subtracted and divided only between
their bounds or where types have room. Sums of BIGINT are HUGEINT, which 2^63 rows of 2^63 do not overflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.contributions import LARGEST_BOUND, Contribution

LIMB = 1 << 32
Column = NDArray[np.integer]


def flag(number: int) -> str:
    """Returns the column that tells whether a row meets the condition of an aggregate."""
    return f"dpduck_flag_{number}"


def value(number: int) -> str:
    """Returns the column with the number of steps of a row, or with its value before `steps_sql`."""
    return f"dpduck_value_{number}"


def _double(number: Fraction) -> str:
    return f"CAST({float(number)!r} AS DOUBLE)"


def row_columns(aggregates: Sequence[Contribution]) -> dict[str, str]:
    """Returns SQL of conditions and values of the rows, by column name."""
    columns: dict[str, str] = {}
    for number, aggregate in enumerate(aggregates):
        condition, expression = aggregate.condition, aggregate.value
        if condition is not None:
            columns[flag(number)] = condition.sql
        if expression is not None:
            written = expression.sql
            columns[value(number)] = written if condition is None else f"CASE WHEN {condition.sql} THEN {written} END"
    return columns


def steps_sql(aggregates: Sequence[Contribution], rows_sql: str, others: Sequence[str]) -> str:
    """Writes the rows with their values in steps, or leaves the rows as they are without values and flags."""
    columns = [
        f"{steps(aggregate, value(number))} AS {value(number)}"
        for number, aggregate in enumerate(aggregates)
        if aggregate.value is not None
    ]
    columns += [flag(number) for number, aggregate in enumerate(aggregates) if aggregate.condition is not None]
    return f"SELECT {', '.join([*others, *columns])} FROM ({rows_sql})" if columns else rows_sql


def clamp_columns(aggregates: Sequence[Contribution]) -> list[str]:
    """Lists flags, and steps clamped to their bounds. Steps are NULL where the condition does not hold."""
    columns = [flag(number) for number, aggregate in enumerate(aggregates) if aggregate.condition is not None]
    for number, aggregate in enumerate(aggregates):
        if aggregate.value is not None:
            low, high = bounds_of_steps(aggregate)
            inside, below = f"{value(number)} BETWEEN {low} AND {high}", f"{value(number)} < {low}"
            outside = f"CASE WHEN {below} THEN {low} WHEN {value(number)} > {high} THEN {high} END"
            cut = f"CASE WHEN {inside} THEN {value(number)} ELSE {outside} END"
            cut = f"CASE WHEN {flag(number)} THEN {cut} END" if aggregate.condition is not None else cut
            columns.append(f"{cut} AS {value(number)}")
    return columns


def bounds_of_steps(aggregate: Contribution) -> tuple[int, int]:
    """Returns the bounds of a row's number of steps. With bounds by group, clamp_sql clamps a unit's sum of steps."""
    return (-LARGEST_BOUND, LARGEST_BOUND) if aggregate.per_group else (0, aggregate.steps)


def steps(aggregate: Contribution, value: str) -> str:
    """Writes a row's number of steps k from `low`. If bounds are by group, k counts from 0: rows are added up first.

    No value is farther from 0 than 2^45 steps, where a double is exact to 2^-8. So nothing between low and high rounds
    to less than 0 or more than K. `least`, `greatest` and `round` would take several times as long as all the rest. If
    the type has room for every value, clamp_columns puts k between 0 and K.
    """
    if aggregate.stepped:
        return value
    low, high = aggregate.low, aggregate.high
    first, last = bounds_of_steps(aggregate)
    if aggregate.per_group:
        low, high = first * aggregate.step, last * aggregate.step
    above = f"({value} - {_double(low)})" if low and not aggregate.per_group else value
    quotient = f"{above} / {_double(aggregate.step)}" if aggregate.step != 1 else above
    type_name = "INTEGER" if last < LIMB >> 2 else "BIGINT"
    if aggregate.reach is not None and (aggregate.reach + abs(low)) / aggregate.step < LIMB >> 2:
        return f"TRY_CAST({quotient} AS {type_name})"
    return (
        f"CASE WHEN {value} BETWEEN {_double(low)} AND {_double(high)} THEN TRY_CAST({quotient} AS {type_name}) "
        f"WHEN isfinite({value}) THEN CASE WHEN {value} < {_double(low)} THEN {first} ELSE {last} END END"
    )


def by_unit(aggregates: Sequence[Contribution], kind: str = "HUGEINT") -> list[str]:
    """Writes the sums for each unit in each cell. kind: type that holds each sum."""
    columns = []
    for number, aggregate in enumerate(aggregates):
        if aggregate.per_group:
            columns.append(f"{clamp_sql(aggregate, number)} AS {value(number)}")
            continue
        columns.append(f"{_rows(aggregate, number)} AS dpduck_rows_{number}")
        if aggregate.form != "count":
            columns += [
                f"count({value(number)}) AS dpduck_valued_{number}",
                f"CAST(sum({value(number)}) AS {kind}) AS dpduck_sum_{number}",
            ]
        if aggregate.has_squares:
            columns.append(f"CAST(sum({_square(number)}) AS {kind}) AS dpduck_squares_{number}")
    return columns


def clamp_sql(aggregate: Contribution, number: int) -> str:
    """Writes the number of steps k of a unit's merged rows in a cell, NULL if no row of the unit contributes."""
    low, high = int(aggregate.low / aggregate.step), int(aggregate.high / aggregate.step)
    if aggregate.value is not None:
        present, total = f"count({value(number)})", f"sum({value(number)})"
    else:
        present = total = _rows(aggregate, number)
    if aggregate.per_group == "average":
        total = f"round(CAST({total} AS DOUBLE) / {present})"
    steps = f"CAST(least(greatest({total}, {low}), {high}) AS BIGINT) - ({low})"
    return f"CASE WHEN {present} > 0 THEN {steps} END"


def _rows(aggregate: Contribution, number: int) -> str:
    return f"count(CASE WHEN {flag(number)} THEN 1 END)" if aggregate.condition is not None else "count(*)"


def _square(number: int) -> str:
    return f"CAST({value(number)} AS BIGINT) * {value(number)}"


def by_cell(aggregates: Sequence[Contribution], units: bool, *, weighed: bool = False) -> list[str]:
    """Writes the sums for each cell, over rows or over the units of `by_unit`. weighed: as in `by_weighed_cell`."""
    columns: list[str] = []
    for number, aggregate in enumerate(aggregates):
        added = weighed or (units and not aggregate.per_group)
        if aggregate.form == "count":
            columns.append(_total(f"dpduck_rows_{number}") if added else _rows(aggregate, number))
            continue
        rows, valued = _rows(aggregate, number), f"count({value(number)})"
        sums, squares = f"sum({value(number)})", f"sum({_square(number)})"
        if added:
            rows, valued = _total(f"dpduck_rows_{number}"), _total(f"dpduck_valued_{number}")
            sums, squares = f"sum(dpduck_sum_{number})", f"sum(dpduck_squares_{number})"
        elif aggregate.per_group:
            rows = valued
        columns += [rows, valued, *_limbs(sums)]
        if aggregate.has_squares:
            columns += _limbs(squares)
    return columns


def by_weighed_cell(aggregates: Sequence[Contribution]) -> list[str]:
    """Writes the sums of `by_cell` over units, after the units' columns were multiplied by weights."""
    return by_cell(aggregates, True, weighed=True)


def _total(column: str) -> str:
    return f"CAST(ifnull(sum({column}), 0) AS BIGINT)"


def _limbs(total: str) -> list[str]:
    """Writes a total that is not negative, modulo 2^64, in two halves that fit BIGINT."""
    return [f"CAST(ifnull({total}, 0) % {LIMB} AS BIGINT)", f"CAST((ifnull({total}, 0) // {LIMB}) % {LIMB} AS BIGINT)"]


def tables_from(aggregates: Sequence[Contribution], columns: Sequence[Column]) -> list[NDArray[np.int64]]:
    """Computes the tables of all aggregates from the columns of `by_cell`, in 64 bits that wrap."""
    fetched = iter([np.ma.getdata(column).astype(np.int64) for column in columns])
    tables: list[NDArray[np.int64]] = []
    for aggregate in aggregates:
        rows = next(fetched)
        if aggregate.form == "count":
            tables.append(rows)
            continue
        valued, sums = next(fetched), _join_limbs(next(fetched), next(fetched))
        squares = _join_limbs(next(fetched), next(fetched)) if aggregate.has_squares else sums
        tables += aggregate.tables_of(rows, valued, sums, squares)
    return tables


def _join_limbs(low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.int64]:
    joined: NDArray[np.int64] = (high << 32) + low
    return joined
