"""Periods in SQL: which rows are of the charged periods, and the unit of a row, computed from a stored date.

The kernel never relies on a statement's conditions on that date. Each stored table is read in its own SELECT, which
compares the stored date with the ends of the charged run. So no row of another period gets into a join, a UNION ALL or
a feature, whatever the language made of the statement. A NULL or infinite date fails the comparison.

A unit is a person and the number of a period, as one value. A CASE computes the number only for dates between the ends
of all periods, for which its functions raise no error.
"""

from __future__ import annotations

from dpduck.kernel.columns.expressions import RelationColumn, require
from dpduck.values.periods import Periods, every
from dpduck.values.sqltypes import sql_type

_NUMBERS = {
    "DAY": "date_diff('day', DATE '0001-01-01', {day})",
    "WEEK": "date_diff('day', DATE '0001-01-01', {day}) // 7",
    "MONTH": "12 * (year({day}) - 1) + month({day}) - 1",
    "QUARTER": "(12 * (year({day}) - 1) + month({day}) - 1) // 3",
    "YEAR": "year({day}) - 1",
}


def pair_sql(unit: str, number: str) -> str:
    """Writes one value for a unit and the number of a period, NULL if either is NULL."""
    is_known = f"{number} IS NOT NULL AND {unit} IS NOT NULL"
    return f"CASE WHEN {is_known} THEN struct_pack(of := {unit}, in_period := {number}) END"


def inside_sql(name: str, moment: RelationColumn, periods: Periods) -> list[str]:
    """Writes the conditions that a row lies in these periods. name: SQL of the row's date or time."""
    require(sql_type(moment.type_name).is_moment)
    return _between(name, moment.type_name, periods)


def period_number_sql(name: str, type_name: str, word: str) -> str:
    """Writes the number of a row's period, NULL for a row without a period. name: SQL of the row's date or time."""
    require(sql_type(type_name).is_moment and word in _NUMBERS)
    return f"CASE WHEN {' AND '.join(_between(name, type_name, every(word)))} THEN {number_sql(name, word)} END"


def number_sql(name: str, word: str) -> str:
    """Writes the number of a row's period, as in values/periods.number_of, for a row that is in a period."""
    return _NUMBERS[word].format(day=name)


def _between(name: str, type_name: str, periods: Periods) -> list[str]:
    start, end = (f"CAST('{day.isoformat()}' AS {type_name})" for day in (periods.start, periods.end))
    return [f"{name} >= {start}", f"{name} < {end}"]
