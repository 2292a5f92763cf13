"""SQL for exact counts of privacy units and rows by group, groups being bounded to C of each unit.

Texts are grouped by their bytes: a collation would show one person's spelling of a key that others wrote otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpduck.trusted.binning_sql import ParameterValue, code_expression
from dpduck.trusted.bounding_sql import KEY, ORDER, UNIT, bounded_rows_sql, key_integer, order_sql
from dpduck.trusted.counting_job import Attribute
from dpduck.trusted.key_job import KeyedJob
from dpduck.trusted.range_bins import texts_parameter, texts_sql

UNITS = "dpduck_units"
_IN_GROUP = 1
"""Sets the hash that orders a unit's groups apart from the one that orders its rows."""


def group_name(number: int) -> str:
    """The column of a group's key: first the attributes as codes, then the texts as bytes."""
    return f"dpduck_group_{number}"


def count_name(number: int) -> str:
    """The column of an aggregate."""
    return f"dpduck_count_{number}"


def grouped_sql(job: KeyedJob, bounding_key: bytes) -> tuple[str, dict[str, ParameterValue]]:
    """One row per occupied group: its keys, how many units it has, and its aggregates; with prepared parameters."""
    parameters: dict[str, ParameterValue] = {}
    groups = [group_name(number) for number in range(len(job.rows.attributes) + len(job.texts))]
    rows, flags = _coded_sql(job, groups, parameters)
    if job.rows.unit_sql is not None:
        parameters[KEY] = key_integer(bounding_key)
        if job.groups < job.rows.max_rows:
            rows = _bounded_groups_sql(rows, groups, job.groups)
        rows = bounded_rows_sql(rows, [UNIT, *groups, *flags], job.rows.max_rows)
    units = "count(*)" if job.counts_units else f"count(DISTINCT {UNIT})"
    counts = [
        f"{f'count(CASE WHEN {_flag(number)} THEN 1 END)' if when else 'count(*)'} AS {count_name(number)}"
        for number, when in enumerate(job.conditions)
    ]
    listed = ", ".join([*groups, f"{units} AS {UNITS}", *counts])
    return f"SELECT {listed} FROM ({rows}) GROUP BY {', '.join(groups)}", parameters


def _bounded_groups_sql(rows_sql: str, groups: Sequence[str], most: int) -> str:
    """The rows of a unit's first C groups in the order of a keyed hash of unit and group: of no other unit's rows."""
    order = f"hash(CAST(${KEY} AS UBIGINT), {_IN_GROUP}, {UNIT}, {', '.join(groups)})"
    window = f"dense_rank() OVER (PARTITION BY {UNIT} ORDER BY {order}, {', '.join(groups)})"
    return f"SELECT * FROM ({rows_sql}) QUALIFY {window} <= {int(most)}"


def _coded_sql(job: KeyedJob, groups: Sequence[str], parameters: dict[str, ParameterValue]) -> tuple[str, list[str]]:
    """Rows inside every domain, with the columns of their group, flags, unit and order; and the names of the flags."""
    rows = job.rows
    codes = []
    for position, key in enumerate(rows.keys):
        code = code_expression(key, position)
        parameters.update(code.parameters)
        codes.append(f"{code.sql} AS dpduck_code_{position}")
    texts = [
        f"encode({_shielded(job, sql, 'NULL')}) AS {name}"
        for sql, name in zip(job.texts, groups[len(rows.attributes) :], strict=True)
    ]
    flags = {_flag(number): _shielded(job, when, "FALSE") for number, when in enumerate(job.conditions) if when}
    outputs = [*codes, *texts, *(f"{when} AS {name}" for name, when in flags.items())]
    conditions = list(rows.filters)
    if rows.unit_sql is not None:
        outputs += [f"{rows.unit_sql} AS {UNIT}", f"{order_sql(rows.content_sql)} AS {ORDER}"]
        conditions.append(f"{rows.unit_sql} IS NOT NULL")
    where = " WHERE " + " AND ".join(f"({condition})" for condition in conditions) if conditions else ""
    read = f"SELECT {', '.join(outputs)} FROM {rows.from_sql}{where}"
    if not rows.attributes:
        return read, list(flags)
    attributes = [
        f"{_attribute_sql(job, attribute, number, parameters)} AS {group_name(number)}"
        for number, attribute in enumerate(rows.attributes)
    ]
    kept = [*groups[len(rows.attributes) :], *flags, *([UNIT, ORDER] if rows.unit_sql is not None else [])]
    inside = " AND ".join(f"{group_name(number)} >= 0" for number in range(len(rows.attributes)))
    return f"SELECT * FROM (SELECT {', '.join([*attributes, *kept])} FROM ({read})) WHERE {inside}", list(flags)


def _flag(number: int) -> str:
    return f"dpduck_flag_{number}"


def _shielded(job: KeyedJob, sql: str, never: str) -> str:
    """A shield before what needs TRY.

    DuckDB computes an expression that occurs twice in a projection once, below it, and takes it out of TRY for that:
    there it raises. It leaves alone what only a later branch of CASE computes; no hash is NULL, which it cannot know.
    """
    content = job.rows.content_sql
    return (
        f"CASE WHEN hash({content[0] if content else 0}) IS NULL THEN {never} ELSE {sql} END" if "try(" in sql else sql
    )


def _attribute_sql(job: KeyedJob, attribute: Attribute, number: int, parameters: dict[str, ParameterValue]) -> str:
    """The attribute's code, NULL or -1 where a row is outside: for a plain key its own, else looked up."""
    codes = [f"CAST(dpduck_code_{source} AS BIGINT)" for source in attribute.sources]
    if len(codes) == 1 and np.array_equal(attribute.codes, np.arange(attribute.size)):
        return codes[0]
    name = f"dpduck_image_{number}"
    parameters[name] = texts_parameter(str(code) for code in attribute.codes.reshape(-1).tolist())
    place = codes[0]
    for code, source in zip(codes[1:], attribute.sources[1:], strict=True):
        place = f"({place} * {job.rows.keys[source].domain.size} + {code})"
    return f"list_extract({texts_sql(name, 'BIGINT')}, {place} + 1)"
