"""SQL for exact counts of privacy units and rows by group, groups being bounded to C of each unit.

Texts are grouped by their bytes: a collation would show one person's spelling of a key that others wrote otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb
import numpy as np
import pyarrow as pa

from dpduck.frontend.row_parts import text_sql
from dpduck.trusted import reader
from dpduck.trusted.binning_sql import code_expression
from dpduck.trusted.bounding_sql import KEY, ORDER, UNIT, bounded_rows_sql, key_integer
from dpduck.trusted.counting_job import Attribute
from dpduck.trusted.key_job import KeyedJob
from dpduck.trusted.plain import plain_text
from dpduck.trusted.range_bins import texts_parameter, texts_sql
from dpduck.trusted.row_program import BATCH_TEXTS, LONGEST_TEXT, Division, Output
from dpduck.trusted.scan import Scan, read_rows, rows_sql, scan_of
from dpduck.trusted.workers import Workers

UNITS = "dpduck_units"
_IN_GROUP = 1
"""Sets the hash that orders a unit's groups apart from the one that orders its rows."""


def group_name(number: int) -> str:
    """The column of a group's key: first the attributes as codes, then the texts as bytes."""
    return f"dpduck_group_{number}"


def count_name(number: int) -> str:
    """The column of an aggregate."""
    return f"dpduck_count_{number}"


def grouped_sql(job: KeyedJob, bounding_key: bytes) -> tuple[str, dict[str, object]]:
    """One row per occupied group: its keys, how many units it has, and its aggregates; with prepared parameters."""
    rows, parameters = _coded_sql(job, scan_of(job.rows, job.rows.lookup), Division({}, (), {}))
    parameters.update(_key(job, bounding_key))
    return _stage_sql(job, rows), parameters


@contextmanager
def read_groups(
    cursor: duckdb.DuckDBPyConnection, job: KeyedJob, bounding_key: bytes, workers: Workers | None
) -> Iterator[Iterator[pa.Table]]:
    """The same as batches, an analyst's expressions being computed by a worker."""
    scan = scan_of(job.rows, job.rows.lookup)
    division = _division(job, scan)
    rows, parameters = _coded_sql(job, scan, division)
    parameters.update(_key(job, bounding_key))
    ordered = _key(job, bounding_key) if job.groups < job.rows.max_rows else {}
    with read_rows(cursor, scan, rows, parameters, division, workers) as (found, second, given):
        yield reader.batches(second, _stage_sql(job, found), {**given, **ordered}, BATCH_TEXTS)


def _key(job: KeyedJob, bounding_key: bytes) -> dict[str, object]:
    return {} if job.rows.unit_sql is None else {KEY: key_integer(bounding_key)}


def _division(job: KeyedJob, scan: Scan) -> Division:
    """What a worker computes: texts of expressions, and conditions that are not plain."""
    outputs: dict[str, Output] = {}
    for number, text in enumerate(job.texts, start=len(job.rows.attributes)):
        if scan.types is not None and plain_text(text, scan.types) is None:
            outputs[group_name(number)] = Output("bytes", text)
    for number, when in enumerate(job.conditions):
        if when and not scan.reads(when):
            outputs[_flag(number)] = Output("flag", when)
    return Division(outputs, scan.moved, scan.types or {})


def _stage_sql(job: KeyedJob, rows: str) -> str:
    """The constant stage: a unit's first C groups, its first m rows, counts of units and of rows.

    Theorem. Two inputs that differ by all rows of one unit differ in at most C groups, in the number of units of each
    by 1, and in the rows of each aggregate by at most m in all. Proof: both windows partition by unit, so what is kept
    of a unit is a function of its own rows, of at most C groups and m rows; ties are between rows that are alike.
    """
    groups = [group_name(number) for number in range(len(job.rows.attributes) + len(job.texts))]
    flags = [_flag(number) for number, when in enumerate(job.conditions) if when]
    inside = [f"{group_name(number)} BETWEEN 0 AND {one.size - 1}" for number, one in enumerate(job.rows.attributes)]
    if job.rows.unit_sql is not None:
        inside.append(f"{UNIT} IS NOT NULL")
    rows = f"SELECT * FROM ({rows}) WHERE {' AND '.join(inside)}" if inside else rows
    if job.rows.unit_sql is not None:
        if job.groups < job.rows.max_rows:
            rows = _bounded_groups_sql(rows, groups, job.groups)
        rows = bounded_rows_sql(rows, [UNIT, *groups, *flags], job.rows.max_rows)
    units = "count(*)" if job.counts_units else f"count(DISTINCT {UNIT})"
    counts = [
        f"{f'count(CASE WHEN {_flag(number)} THEN 1 END)' if when else 'count(*)'} AS {count_name(number)}"
        for number, when in enumerate(job.conditions)
    ]
    listed = ", ".join([*groups, f"{units} AS {UNITS}", *counts])
    return f"SELECT {listed} FROM ({rows}) GROUP BY {', '.join(groups)}"


def _bounded_groups_sql(rows_sql: str, groups: Sequence[str], most: int) -> str:
    """The rows of a unit's first C groups in the order of a keyed hash of unit and group: of no other unit's rows."""
    order = f"hash(CAST(${KEY} AS UBIGINT), {_IN_GROUP}, {UNIT}, {', '.join(groups)})"
    window = f"dense_rank() OVER (PARTITION BY {UNIT} ORDER BY {order}, {', '.join(groups)})"
    return f"SELECT * FROM ({rows_sql}) QUALIFY {window} <= {int(most)}"


def _coded_sql(job: KeyedJob, scan: Scan, division: Division) -> tuple[str, dict[str, object]]:
    """Rows with the columns of their group, flags, unit and order, but for what a worker computes; with parameters."""
    rows, parameters = job.rows, dict[str, object]()
    codes = {}
    for position, key in enumerate(rows.keys):
        code = code_expression(key, position)
        parameters.update(code.parameters)
        codes[f"dpduck_code_{position}"] = code.sql
    named = {group_name(number): text for number, text in enumerate(job.texts, start=len(rows.attributes))}
    texts = {name: _total_text(text, scan) for name, text in named.items() if name not in division.outputs}
    flags = {_flag(number): when for number, when in enumerate(job.conditions) if when}
    flags = {name: when for name, when in flags.items() if name not in division.outputs}
    encoded = {name: f"encode({_shielded(job, text, 'NULL')})" for name, text in texts.items()}
    shown = {name: _shielded(job, when, "FALSE") for name, when in flags.items()}
    short = [f"{text} IS NULL OR strlen({text}) <= {LONGEST_TEXT}" for text in texts.values() if "try(" not in text]
    read = rows_sql(scan, {**codes, **encoded, **shown}, short, division)
    if not rows.attributes:
        return read, parameters
    attributes = [
        f"{_attribute_sql(job, attribute, number, parameters)} AS {group_name(number)}"
        for number, attribute in enumerate(rows.attributes)
    ]
    kept = [*texts, *flags, *([UNIT, ORDER] if rows.unit_sql is not None else []), *division.inputs()]
    return f"SELECT {', '.join([*attributes, *kept])} FROM ({read})", parameters


def _total_text(text: str, scan: Scan) -> str:
    """The text of a stored column, total for every value of its type."""
    column = None if scan.types is None else plain_text(text, scan.types)
    return text if column is None or scan.types is None else text_sql(column, scan.types[column])


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


def _attribute_sql(job: KeyedJob, attribute: Attribute, number: int, parameters: dict[str, object]) -> str:
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
