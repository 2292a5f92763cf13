"""One scan over private rows: from a counting job to exact counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpduck.domain import ValueDomain
from dpduck.errors import InternalError
from dpduck.frontend.unit_lookup import REFERENCE, ROWS
from dpduck.trusted.binning_sql import MOST_POSITIONS, KeyReading, ParameterValue, key_reading
from dpduck.trusted.bounding_sql import KEY, ORDER, UNIT, bounded_rows_sql, key_integer, order_sql
from dpduck.trusted.contribution import Contribution
from dpduck.trusted.contribution_sql import by_cell, by_unit, row_columns, steps_sql, tables_from
from dpduck.trusted.counting_job import Attribute, CountingJob
from dpduck.trusted.exact_counts import ExactCounts

FEW_GROUPS = 1 << 17  # below this, groups outside the domain cost less than filtering every row exactly
LARGEST_WORD = 1 << 62  # of a packed integer, with room for rows that the filters will drop

Column = NDArray[np.integer]


def count_exactly(cursor: duckdb.DuckDBPyConnection, job: CountingJob, bounding_key: bytes) -> ExactCounts:
    """Exact counts of `job`; its only error has one fixed text, since DuckDB's texts may quote data."""
    job, totals = pregrouped(job)
    readings = tuple(key_reading(key, position) for position, key in enumerate(job.keys))
    parameters: dict[str, ParameterValue] = {}
    for reading in readings:
        parameters.update(reading.parameters)
    if job.unit_sql is not None:
        parameters[KEY] = key_integer(bounding_key)
    sql = job_sql(job, readings) if totals is None else pregrouped_sql(job, readings, totals)
    columns = _fetched(cursor, sql, parameters)
    if columns is None:
        # Raised outside the handler: DuckDB's error, which may quote data, is not even this one's context.
        raise InternalError("counting failed")
    if job.unit_sql is None:
        keys = len(readings)
        codes = [_codes(reading, column) for reading, column in zip(readings, columns, strict=False)]
    else:
        keys = len(_words(readings))
        codes = _unpacked(readings, columns)
    return _exact_counts(job, codes, np.array(tables_from(job.aggregates, columns[keys:]), dtype=np.int64))


def job_sql(job: CountingJob, readings: Sequence[KeyReading] | None = None) -> str:
    """The one query that runs over private rows; labels, edges and the secret key are prepared parameters."""
    if readings is None:
        readings = tuple(key_reading(key, position) for position, key in enumerate(job.keys))
    if job.unit_sql is not None:
        return bounded_sql(job, readings, job.unit_sql)
    if any(aggregate.per_group for aggregate in job.aggregates):
        raise InternalError("contributions by group need a privacy unit")
    return unbounded_sql(job, readings)


def pregrouped(job: CountingJob) -> tuple[CountingJob, str | None]:
    """A count by long lists of labels as a job over DuckDB's own groups of the columns, with the column of their rows.

    Labels are then looked up once for each group, not for each row: 144 million rows by two lists of 3,220 labels took
    three times DuckDB's GROUP BY otherwise. Values outside the lists make groups too, as in any GROUP BY.
    """
    plain = job.unit_sql is None and job.aggregates == (Contribution(""),)
    listed = [key.domain for key in job.keys if isinstance(key.domain, ValueDomain)]
    if not plain or not listed or len(listed) < len(job.keys):
        return job, None
    if any(len(domain.values) <= MOST_POSITIONS for domain in listed):
        return job, None
    names = [f"dpduck_group_{number}" for number in range(len(job.keys))]
    columns = ", ".join(f"{key.sql} AS {name}" for key, name in zip(job.keys, names, strict=True))
    rows = f"SELECT {columns}, count(*) AS {ROWS} FROM {job.from_sql}{_where(job, (), False)} GROUP BY ALL"
    keys = tuple(replace(key, sql=f"dpduck_groups.{name}") for key, name in zip(job.keys, names, strict=True))
    return replace(job, from_sql=f"({rows}) AS dpduck_groups", filters=(), keys=keys), f"dpduck_groups.{ROWS}"


def pregrouped_sql(job: CountingJob, readings: Sequence[KeyReading], rows: str) -> str:
    """One row per occupied group, as of unbounded_sql, from groups with their numbers of rows."""
    groups = ", ".join(f"{reading.group_sql} AS dpduck_cell_{number}" for number, reading in enumerate(readings))
    found = f"SELECT {groups}, {rows} AS {ROWS} FROM {job.from_sql}{_where(job, readings, True)}"
    return f"SELECT * EXCLUDE ({ROWS}), CAST(sum({ROWS}) AS BIGINT) FROM ({found}) GROUP BY ALL"


def _fetched(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: dict[str, ParameterValue]) -> list[Column] | None:
    """The columns of the answer, None where DuckDB failed."""
    try:
        return list(cursor.execute(sql, parameters).fetchnumpy().values())
    except duckdb.Error:
        return None


def unbounded_sql(job: CountingJob, readings: Sequence[KeyReading]) -> str:
    """One row per occupied group: a column per key, then those of the aggregates.

    Grouping by the columns themselves, or by a position in the list of labels, is as fast as DuckDB's own query;
    packing several keys into one integer is not (DESIGN 6.2).
    """
    exactly = prod(reading.slots for reading in readings) > FEW_GROUPS
    groups = {f"dpduck_cell_{number}": reading.group_sql for number, reading in enumerate(readings)}
    columns = {**groups, **row_columns(job.aggregates, _shield(job))}
    listed = ", ".join(f"{sql} AS {name}" for name, sql in columns.items()) or "1 AS dpduck_row"
    rows = f"SELECT {listed} FROM {job.from_sql}{_where(job, readings, exactly)}"
    return _cells_sql(job, steps_sql(job.aggregates, rows, list(groups)), list(groups))


def bounded_sql(job: CountingJob, readings: Sequence[KeyReading], unit_sql: str) -> str:
    """One row per occupied cell of the bounded rows: its keys packed into integers, then those of the aggregates.

    Here packing pays: rows are narrow when they are sorted. Rows outside a domain are dropped before bounding.
    """
    words = [_word_sql(readings, word) for word in _words(readings)]
    cells = [f"dpduck_cell_{number}" for number in range(len(words))]
    columns = row_columns(job.aggregates, _shield(job))
    outputs = {**dict(zip(cells, words, strict=True)), **columns, ORDER: order_sql(job.content_sql)}
    rows = _rows_with_units(job, outputs, _conditions(job, readings, exactly=True), unit_sql)
    units = [UNIT] if any(aggregate.per_group for aggregate in job.aggregates) else []
    kept = bounded_rows_sql(
        steps_sql(job.aggregates, rows, [*cells, UNIT, ORDER]), [*cells, *columns, *units], job.max_rows
    )
    return _cells_sql(job, kept, cells, units)


def _rows_with_units(job: CountingJob, outputs: Mapping[str, str], conditions: Sequence[str], unit_sql: str) -> str:
    """Rows with their unit; where it is looked up, rows are filtered and narrowed before that.

    A looked-up row has a reference, so that the condition is that of the unit alone. It is written over both sides
    because DuckDB takes a condition on the table of units for one that leaves a fifth of them, and hashes that table
    in place of the few rows that are looked up: of TPC-H query 6, twice the time.
    """
    lookup = job.lookup
    found = {**outputs, UNIT: unit_sql} if lookup is None else {**outputs, REFERENCE: lookup.reference_sql}
    listed = ", ".join(f"{sql} AS {name}" for name, sql in found.items())
    if lookup is None:
        return f"SELECT {listed} FROM {job.from_sql}{_and([*conditions, f'{unit_sql} IS NOT NULL'])}"
    rows = f"SELECT {listed} FROM {lookup.rows_sql}{_and(conditions)}"
    return (
        f"SELECT {', '.join(f'{ROWS}.{name}' for name in outputs)}, {unit_sql} AS {UNIT} FROM ({rows}) AS {ROWS} "
        f"{lookup.joins_sql} WHERE {unit_sql} IS NOT NULL OR {ROWS}.{REFERENCE} IS NULL"
    )


def _cells_sql(job: CountingJob, rows_sql: str, cells: Sequence[str], units: Sequence[str] = ()) -> str:
    """Rows in steps to units, where bounds are by group, to cells."""
    sql = rows_sql
    if units:
        grouping = ", ".join([*cells, *units])
        sql = f"SELECT {', '.join([*cells, *by_unit(job.aggregates)])} FROM ({sql}) GROUP BY {grouping}"
    grouping = f" GROUP BY {', '.join(cells)}" if cells else ""
    outputs = [f"{total} AS dpduck_total_{number}" for number, total in enumerate(by_cell(job.aggregates, bool(units)))]
    return f"SELECT {', '.join([*cells, *outputs])} FROM ({sql}){grouping}"


def _shield(job: CountingJob) -> str:
    """No hash is NULL, which DuckDB cannot know (see row_columns)."""
    return f"CASE WHEN hash({job.content_sql[0] if job.content_sql else 0}) IS NULL THEN"


def _where(job: CountingJob, readings: Sequence[KeyReading], exactly: bool) -> str:
    return _and(_conditions(job, readings, exactly))


def _conditions(job: CountingJob, readings: Sequence[KeyReading], exactly: bool) -> list[str]:
    conditions = [*job.filters, *(condition for reading in readings for condition in reading.filters)]
    if exactly:
        conditions += [reading.guard for reading in readings if reading.guard]
    return conditions


def _and(conditions: Sequence[str]) -> str:
    return " WHERE " + " AND ".join(f"({condition})" for condition in conditions) if conditions else ""


def _words(readings: Sequence[KeyReading]) -> list[list[int]]:
    """Positions of the keys that share one 64-bit integer, mixed radix: the first key of a word varies slowest."""
    words: list[list[int]] = []
    for position in range(len(readings)):
        longer = [*words[-1], position] if words else []
        if longer and _farthest(readings, longer) < LARGEST_WORD:
            words[-1] = longer
        else:
            words.append([position])
    return words


def _weights(readings: Sequence[KeyReading], word: Sequence[int]) -> list[int]:
    return [prod(readings[later].slots for later in word[rank + 1 :]) for rank in range(len(word))]


def _farthest(readings: Sequence[KeyReading], word: Sequence[int]) -> int:
    """No row of the table, inside the domains or not, packs to an integer farther from zero."""
    reaches = (max(readings[position].reach, readings[position].slots) for position in word)
    return sum(reach * weight for reach, weight in zip(reaches, _weights(readings, word), strict=True))


def _word_sql(readings: Sequence[KeyReading], word: Sequence[int]) -> str:
    """The packed integer; 32 bits sort faster than 64."""
    type_name = "INTEGER" if _farthest(readings, word) < 1 << 31 else "BIGINT"
    slots = (readings[position].slot_sql(type_name) for position in word)
    return " + ".join(f"{slot} * {weight}" for slot, weight in zip(slots, _weights(readings, word), strict=True))


def _unpacked(readings: Sequence[KeyReading], columns: Sequence[Column]) -> list[Column]:
    """Domain codes from packed integers."""
    codes: list[Column] = []
    for word, column in zip(_words(readings), columns, strict=False):
        slots = np.unravel_index(np.ma.getdata(column), [readings[position].slots for position in word])
        codes += [readings[position].decode(slot) for position, slot in zip(word, slots, strict=True)]
    return codes


def _codes(reading: KeyReading, column: Column) -> Column:
    """Domain codes from group values; a column that is its own code is not copied."""
    values, missing = np.ma.getdata(column), np.ma.getmask(column)
    if not np.any(missing) and reading.first == 0 and np.array_equal(reading.codes, np.arange(len(reading.codes))):
        return values
    slots = values.astype(np.int64) - reading.first
    slots[missing] = len(reading.codes)
    return reading.decode(slots)


def _exact_counts(job: CountingJob, keys: Sequence[Column], counts: NDArray[np.int64]) -> ExactCounts:
    """Key codes become codes of released attributes; combinations outside a domain or an attribute are left out."""
    inside = _all_inside(keys)
    if inside is not None:
        keys, counts = [codes[inside] for codes in keys], counts[:, inside]
    coordinates = [_attribute_codes(attribute, keys) for attribute in job.attributes]
    kept = _all_inside(coordinates)
    if kept is not None:
        coordinates, counts = [codes[kept] for codes in coordinates], counts[:, kept]
    sizes = tuple(attribute.size for attribute in job.attributes)
    bounds = zip(job.aggregates, job.unit_bounds, strict=True)
    return ExactCounts(
        tuple(coordinates), counts, sizes, tuple(bound for aggregate, bound in bounds for _ in range(aggregate.tables))
    )


def _all_inside(columns: Sequence[Column]) -> NDArray[np.bool_] | None:
    """Which combinations no column drops; None where none is dropped."""
    dropping = [codes < 0 for codes in columns if codes.dtype.kind == "i" and codes.size and codes.min() < 0]
    return ~np.logical_or.reduce(dropping) if dropping else None


def _attribute_codes(attribute: Attribute, keys: Sequence[Column]) -> Column:
    sources = tuple(keys[source] for source in attribute.sources)
    plain = len(sources) == 1 and np.array_equal(attribute.codes, np.arange(attribute.size))
    return sources[0] if plain else attribute.codes[sources]
