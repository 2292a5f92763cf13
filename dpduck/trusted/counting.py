"""One scan over private rows: from a counting job to exact counts."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpduck.errors import InternalError
from dpduck.trusted.binning_sql import KeyReading, ParameterValue, key_reading
from dpduck.trusted.bounding_sql import KEY, ORDER, UNIT, bounded_rows_sql, key_integer, order_sql
from dpduck.trusted.counting_job import Attribute, CountingJob
from dpduck.trusted.exact_counts import ExactCounts

FEW_GROUPS = 1 << 17  # below this, groups outside the domain cost less than filtering every row exactly
LARGEST_WORD = 1 << 62  # of a packed integer, with room for rows that the filters will drop

Column = NDArray[np.integer]


def count_exactly(cursor: duckdb.DuckDBPyConnection, job: CountingJob, bounding_key: bytes) -> ExactCounts:
    """Exact counts of `job`; its only error has one fixed text, since DuckDB's texts may quote data."""
    readings = tuple(key_reading(key, position) for position, key in enumerate(job.keys))
    parameters: dict[str, ParameterValue] = {}
    for reading in readings:
        parameters.update(reading.parameters)
    if job.unit_sql is not None:
        parameters[KEY] = key_integer(bounding_key)
    sql = unbounded_sql(job, readings) if job.unit_sql is None else bounded_sql(job, readings, job.unit_sql)
    columns = _fetched(cursor, sql, parameters)
    if columns is None:
        # Raised outside the handler: DuckDB's error, which may quote data, is not even this one's context.
        raise InternalError("counting failed")
    counts = columns[len(columns) - len(job.aggregates) :]
    if job.unit_sql is None:
        codes = [_codes(reading, column) for reading, column in zip(readings, columns, strict=False)]
    else:
        codes = _unpacked(readings, columns)
    return _exact_counts(job, codes, np.array([np.ma.getdata(count) for count in counts], dtype=np.int64))


def _fetched(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: dict[str, ParameterValue]) -> list[Column] | None:
    """The columns of the answer, None where DuckDB failed."""
    try:
        return list(cursor.execute(sql, parameters).fetchnumpy().values())
    except duckdb.Error:
        return None


def unbounded_sql(job: CountingJob, readings: Sequence[KeyReading]) -> str:
    """One row per occupied group: a column per key, then one per aggregate.

    Grouping by the columns themselves, or by a position in the list of labels, is as fast as DuckDB's own query;
    packing several keys into one integer is not (DESIGN 6.2).
    """
    exactly = prod(reading.slots for reading in readings) > FEW_GROUPS
    outputs = [reading.group_sql for reading in readings] + [_count(when) for when in _shielded(job)]
    groups = ", ".join(str(position + 1) for position in range(len(readings)))
    grouping = f" GROUP BY {groups}" if groups else ""
    return f"SELECT {', '.join(outputs)} FROM {job.from_sql}{_where(job, readings, exactly)}{grouping}"


def bounded_sql(job: CountingJob, readings: Sequence[KeyReading], unit_sql: str) -> str:
    """One row per occupied cell of the bounded rows: its keys packed into integers, then a column per aggregate.

    Here packing pays: rows are narrow when they are sorted. Rows outside a domain are dropped before bounding.
    """
    words = [_word_sql(readings, word) for word in _words(readings)]
    cells = [f"dpduck_cell_{number}" for number in range(len(words))]
    flags = {f"dpduck_flag_{number}": when for number, when in enumerate(_shielded(job)) if when}
    outputs = [f"{sql} AS {name}" for name, sql in zip(cells, words, strict=True)]
    outputs += [f"{when} AS {name}" for name, when in flags.items()]
    outputs += [f"{unit_sql} AS {UNIT}", f"{order_sql(job.content_sql)} AS {ORDER}"]
    rows = f"SELECT {', '.join(outputs)} FROM {job.from_sql}{_where(job, readings, exactly=True)}"
    kept = bounded_rows_sql(rows, [*cells, *flags], job.max_rows)
    counts = [_count(f"dpduck_flag_{number}" if when else "") for number, when in enumerate(job.aggregates)]
    grouping = f" GROUP BY {', '.join(cells)}" if cells else ""
    return f"SELECT {', '.join([*cells, *counts])} FROM ({kept}){grouping}"


def _shielded(job: CountingJob) -> list[str]:
    """The aggregates' conditions, with a shield before those that need TRY.

    DuckDB computes an expression that occurs twice in a projection once, below it, and takes it out of TRY for that:
    there it raises. It leaves alone what only a later branch of CASE computes; no hash is NULL, which it cannot know.
    """
    shield = f"CASE WHEN hash({job.content_sql[0] if job.content_sql else 0}) IS NULL THEN FALSE WHEN"
    return [f"{shield} {when} THEN TRUE ELSE FALSE END" if "try(" in when else when for when in job.aggregates]


def _count(condition: str) -> str:
    """A count as BIGINT: it cannot overflow, as a sum could be said to."""
    return f"count(CASE WHEN {condition} THEN 1 END)" if condition else "count(*)"


def _where(job: CountingJob, readings: Sequence[KeyReading], exactly: bool) -> str:
    conditions = [*job.filters, *(condition for reading in readings for condition in reading.filters)]
    if exactly:
        conditions += [reading.guard for reading in readings if reading.guard]
    if job.unit_sql is not None:
        conditions.append(f"{job.unit_sql} IS NOT NULL")
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
    return ExactCounts(tuple(coordinates), counts, sizes, 1 if job.unit_sql is None else job.max_rows)


def _all_inside(columns: Sequence[Column]) -> NDArray[np.bool_] | None:
    """Which combinations no column drops; None where none is dropped."""
    dropping = [codes < 0 for codes in columns if codes.dtype.kind == "i" and codes.size and codes.min() < 0]
    return ~np.logical_or.reduce(dropping) if dropping else None


def _attribute_codes(attribute: Attribute, keys: Sequence[Column]) -> Column:
    sources = tuple(keys[source] for source in attribute.sources)
    plain = len(sources) == 1 and np.array_equal(attribute.codes, np.arange(attribute.size))
    return sources[0] if plain else attribute.codes[sources]
