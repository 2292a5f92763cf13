"""Rows of the periods that were charged, and the unit of such a row: SQL of our own over a stored date.

What a statement says of that date is never relied on. The scan itself compares the stored column with the ends of the
charged run, so that no row of another period is counted, whatever was read of the statement's conditions; a row whose
date is NULL or infinite meets no comparison. A unit is its person and the number of its period, as one value: rows of
one person in two periods are those of two units. Where a row is made of rows of several private tables, these are of
one period, too: taking away a person's rows of one period takes away joined rows of that period alone. The number is
computed by functions that are total between the ends of all periods (rows/bins.py uses the same ones), behind a
comparison with these.
"""

from __future__ import annotations

from dpduck.kernel.columns.expressions import Column
from dpduck.kernel.relations import PeriodRows
from dpduck.values.errors import InternalError
from dpduck.values.periods import Periods, every
from dpduck.values.sqltypes import sql_type

_NUMBERS = {
    "DAY": "date_diff('day', DATE '0001-01-01', {day})",
    "WEEK": "date_diff('day', DATE '0001-01-01', {day}) // 7",
    "MONTH": "12 * (year({day}) - 1) + month({day}) - 1",
    "QUARTER": "(12 * (year({day}) - 1) + month({day}) - 1) // 3",
    "YEAR": "year({day}) - 1",
}


def inside_sql(rows: PeriodRows) -> list[str]:
    """Returns conditions of the rows that lie in the periods that are read; all tables of a row in one and the same."""
    first, *others = rows.columns
    found, word = _between(first, rows.periods), rows.periods.word
    for other in others:
        inside = " AND ".join([*_between(first, rows.periods), *_between(other, rows.periods)])
        same = f"{number_sql(first, word)} = {number_sql(other, word)}"
        found.append(f"CASE WHEN {inside} THEN {same} ELSE FALSE END")
    return found


def unit_sql(unit: str, rows: PeriodRows) -> str:
    """Returns one value for a unit's value and the period of its row; NULL for a row of no period, or of no unit."""
    column, word = rows.columns[0], rows.periods.word
    there = " AND ".join([*_between(column, every(word)), f"{unit} IS NOT NULL"])
    return f"CASE WHEN {there} THEN struct_pack(of := {unit}, in_period := {number_sql(column, word)}) END"


def number_sql(column: Column, word: str) -> str:
    """Returns the number of a row's period, as values/periods.number_of numbers it, for a row that is in one."""
    return _NUMBERS[word].format(day=column.quoted)


def _between(column: Column, periods: Periods) -> list[str]:
    if not sql_type(column.type_name).is_moment:
        raise InternalError("counting failed")
    start, end = (f"CAST('{day.isoformat()}' AS {column.type_name})" for day in (periods.start, periods.end))
    return [f"{column.quoted} >= {start}", f"{column.quoted} < {end}"]
