"""Rows of the periods that were charged, and the unit of such a row: SQL of our own over a stored date.

What a statement says of that date is never relied on. Each stored table is read in a SELECT of its own, which compares
the stored column with the ends of the charged run. So no row of another period gets into a join, a UNION ALL or a
feature, whatever was read of the statement's conditions. A row whose date is NULL or infinite meets no comparison.

A unit is a person and the number of a period, as one value. Rows of one person in two periods are rows of two units.
The number is computed by functions that are total between the ends of all periods (rows/bins.py uses the same ones),
behind a comparison with these ends.
"""

from __future__ import annotations

from dpduck.kernel.columns.expressions import Column, require
from dpduck.values.periods import Periods, every
from dpduck.values.sqltypes import sql_type

_NUMBERS = {
    "DAY": "date_diff('day', DATE '0001-01-01', {day})",
    "WEEK": "date_diff('day', DATE '0001-01-01', {day}) // 7",
    "MONTH": "12 * (year({day}) - 1) + month({day}) - 1",
    "QUARTER": "(12 * (year({day}) - 1) + month({day}) - 1) // 3",
    "YEAR": "year({day}) - 1",
}


def paired_sql(unit: str, number: str) -> str:
    """Writes one value for a unit and the number of a period."""
    there = f"{number} IS NOT NULL AND {unit} IS NOT NULL"
    return f"CASE WHEN {there} THEN struct_pack(of := {unit}, in_period := {number}) END"


def inside_sql(name: str, moment: Column, periods: Periods) -> list[str]:
    """Writes the conditions of a row of these periods. name: of its moment in SQL."""
    require(sql_type(moment.type_name).is_moment)
    return _between(name, moment.type_name, periods)


def numbered_sql(name: str, type_name: str, word: str) -> str:
    """Writes the number of a row's period, NULL for a row of no period. name: of its moment in SQL."""
    require(sql_type(type_name).is_moment and word in _NUMBERS)
    return f"CASE WHEN {' AND '.join(_between(name, type_name, every(word)))} THEN {number_sql(name, word)} END"


def number_sql(name: str, word: str) -> str:
    """Writes the number of a row's period, as values/periods.number_of numbers it, for a row that is in one."""
    return _NUMBERS[word].format(day=name)


def _between(name: str, type_name: str, periods: Periods) -> list[str]:
    start, end = (f"CAST('{day.isoformat()}' AS {type_name})" for day in (periods.start, periods.end))
    return [f"{name} >= {start}", f"{name} < {end}"]
