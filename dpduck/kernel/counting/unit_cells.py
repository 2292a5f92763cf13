"""Adds rows up by unit and cell once, where several counts of a statement are about the same rows.

A search for a norm, the answers at it, its total and the sum of all rows keep the same rows of each unit. They differ
in weights alone, which follow from a unit's sums by cell (loss.py). So rows are read and bounded once. Two
temporary tables of the cursor that counts hold the sums: one by unit and cell, one by unit. Both are made in the
transaction of the count, and are dropped before anything leaves.

What each table holds of a unit is a function of this unit's kept rows, as in stage. So its theorem holds of
every count here: both inputs have the same sums of every other unit. A job says which aggregates are counted beside its
own. Which statements are sent follows from jobs alone, and from no row.

All is in whole numbers. A unit adds at most B to any sum: its most rows times the bound of a row, or times its steps.
Nothing is counted here where B is above WIDE: squares add up to B^2 at most, and no product is beyond 2^120.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import duckdb

from dpduck.kernel.contributions import UNIT, Contribution
from dpduck.kernel.counting.contribution_sql import by_weighed_cell
from dpduck.kernel.counting.exact import Reading, counts_of, known_units, packed_cells, read_job, read_rows
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.loss import (
    ALL,
    added_by_weight_sql,
    added_sql,
    level_counts_sql,
    most_added,
    shift,
    squares_of,
    type_for,
    weighed_sql,
    weights_sql,
)
from dpduck.kernel.rows import reader
from dpduck.kernel.stage import total_name, unit_cells_sql
from dpduck.kernel.worker.workers import Workers
from dpduck.values.privacy import ZERO

WIDE = 1 << 46
"""A unit that may add more has numbers cut (loss.LONGEST): each count then reads rows by itself."""

CELLS, SUMS = "temp.main.dpduck_unit_cells", "temp.main.dpduck_unit_sums"
"""Each unit by cell, and each unit. A cursor counts for one statement at a time."""

POURED, BATCH = "dpduck_unit_parts", 1 << 17
"""Rows that a worker has answered come from another connection under this name, so many at a time."""


class UnitCells:
    """The tables of one statement, and counts over them. Nothing is read before the first count."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, bounding_key: bytes, workers: Workers | None) -> None:
        self._cursor = cursor
        self._bounding_key = bounding_key
        self._workers = workers
        self._reading: Reading | None = None
        self._summed: list[Contribution] = []

    def serves(self, job: CountingJob) -> bool:
        """Tells whether a job is counted here: it says so, and is about the rows of the jobs before it."""
        return is_shared(job) and (self._reading is None or self._reading.job == _rows_of(job))

    def counts(self, job: CountingJob) -> ExactCounts:
        """Returns the exact counts of a job."""
        if self._reading is None:
            self._reading = self._put_cells(_rows_of(job))
        if job.together or job.levels or _is_weighed(job):
            self._put_sums(job)
        columns = reader.columns(self._cursor, self._sql(job, list(packed_cells(self._reading))), {})
        return counts_of(replace(self._reading, job=job), columns)

    def _put_cells(self, rows: CountingJob) -> Reading:
        """Puts what each unit adds to each cell into a table."""
        reading = read_job(rows)
        cells, parts = packed_cells(reading), rows.aggregates
        listed = ", ".join([*cells, UNIT, *(name for number, one in enumerate(parts) for name in _stored(one, number))])
        made = f"CREATE OR REPLACE TEMP TABLE {CELLS} AS "
        with read_rows(self._cursor, reading, self._bounding_key, self._workers) as (read, second, given):
            added = unit_cells_sql(read, cells, parts, rows.max_rows, known_units(reading))
            sql = f"SELECT {listed} FROM ({added})"
            if second is self._cursor:
                reader.run(self._cursor, made + sql, given)
            else:
                found = reader.record_batches(second, sql, given, BATCH)
                reader.poured(self._cursor, f"{made}SELECT * FROM {POURED}", {}, POURED, found)
        return reading

    def _put_sums(self, job: CountingJob) -> None:
        """Puts the sums of each unit into a table: of its cells, and of the squares of all that are beside a job."""
        if set(_bare(job.aggregates)) <= set(self._summed):
            return
        self._summed = list(dict.fromkeys(_bare((*job.beside, *job.aggregates))))
        rows = _rows_of(job)
        stored = [name for number, one in enumerate(rows.aggregates) for name in _stored(one, number)]
        columns = [f"CAST(sum({name}) AS BIGINT) AS {name}" for name in stored]
        for number, one in enumerate(self._summed):
            kind = type_for((one,), job.max_rows)
            added = added_sql(one, _place(one, rows), kind)
            columns += [f"CAST(sum({added} * {added}) AS {kind}) AS {squares_of(number)}"]
            columns += [f"CAST(sum({added}) AS {kind}) AS {_all_of(number)}"]
        sql = f"SELECT {', '.join([UNIT, *columns])} FROM {CELLS} GROUP BY {UNIT}"
        reader.run(self._cursor, f"CREATE OR REPLACE TEMP TABLE {SUMS} AS {sql}")

    def _sql(self, job: CountingJob, cells: Sequence[str]) -> str:
        """Returns SQL of a job's counts, over the tables."""
        aggregates, own = job.aggregates, _own_columns(job)
        cells, kind = [] if job.together else cells, type_for(aggregates, job.max_rows)
        totals = [f"{total} AS {total_name(number)}" for number, total in enumerate(by_weighed_cell(aggregates))]
        if job.levels:
            return level_counts_sql(f"SELECT {', '.join(self._squares(job, kind))} FROM {SUMS}", job.levels, job.spread)
        source = SUMS if job.together else CELLS
        units = f"SELECT {', '.join([*cells, UNIT, *own.values()])} FROM {source}"
        if not _is_weighed(job):
            grouping = f" GROUP BY {', '.join(cells)}" if cells else ""
            return f"SELECT {', '.join([*cells, *totals])} FROM ({units}){grouping}"
        if any(shift(one.norm) for one in aggregates):  # squares of shorter numbers
            return weighed_sql(units, cells, aggregates, totals, kind=kind)
        squares = self._squares(job, kind)
        if job.together:
            whole = f"SELECT {', '.join([*own.values(), *squares])} FROM {SUMS}"
            return added_by_weight_sql(f"({weights_sql(whole, aggregates, list(own), kind)})", (), aggregates, totals)
        weights = weights_sql(f"SELECT {', '.join([UNIT, *squares])} FROM {SUMS}", aggregates, [UNIT], kind)
        return added_by_weight_sql(f"({units}) JOIN ({weights}) USING ({UNIT})", cells, aggregates, totals)

    def _squares(self, job: CountingJob, kind: str) -> list[str]:
        """Returns the sum of squares of each aggregate of a unit, and of the first also all that it adds."""
        found, rows = list[str](), _rows_of(job)
        for number, one in enumerate(_bare(job.aggregates)):
            if job.together:
                added = added_sql(one, _place(one, rows), kind)
                square = f"{added} * {added}"
            else:
                place = self._summed.index(one)
                square, added = squares_of(place), _all_of(place)
            found += [f"{square} AS {squares_of(number)}", *([] if number else [f"{added} AS {ALL}"])]
        return found


def drop_unit_cells(cursor: duckdb.DuckDBPyConnection) -> None:
    """Drops the tables of a cursor. Where a count has failed, they end with its transaction."""
    for table in (CELLS, SUMS):
        reader.drop(cursor, table)


def is_shared(job: CountingJob) -> bool:
    """Tells whether a job may be counted beside others: by cells of its keys, in numbers that nothing cuts."""
    every = (*job.beside, *job.aggregates)
    plain = not (job.merges or job.groups) and all(one.form != "moments" for one in every)
    here = job.unit is not None and not job.place.in_engine
    return bool(job.beside) and plain and here and most_added(every, job.max_rows) <= WIDE


def _is_weighed(job: CountingJob) -> bool:
    return any(one.norm for one in job.aggregates)


def _bare(aggregates: Sequence[Contribution]) -> list[Contribution]:
    return [replace(one, norm=0, shared=False) for one in aggregates]


def _rows_of(job: CountingJob) -> CountingJob:
    """Returns the job of the rows alone. Its aggregates are parts: sums of rows that serve one aggregate or several."""
    parts: dict[object, Contribution] = {}
    for one in (*job.beside, *job.aggregates):
        bare, part = replace(one, norm=0, shared=False, centre=ZERO), _part(one)
        parts[part] = bare if part not in parts or one.has_squares else parts[part]
    alone = replace(job, beside=(), aggregates=(), levels=0, spread=1, together=False, attributes=())
    return replace(alone, aggregates=tuple(parts.values()))


def _part(one: Contribution) -> tuple[object, ...]:
    """Returns what tells sums of rows apart: centres are subtracted later, and a sum comes with its count."""
    values = one.value, one.low, one.high, one.steps, one.reach, one.stepped
    return one.condition, one.form == "count", one.per_group, *values


def _place(one: Contribution, rows: CountingJob) -> int:
    return [_part(part) for part in rows.aggregates].index(_part(one))


def _stored(one: Contribution, number: int) -> list[str]:
    """Returns the columns of a part: its rows, or its values, their sum and that of their squares."""
    if one.form == "count":
        return [f"dpduck_rows_{number}"]
    squares = [f"dpduck_squares_{number}"] if one.has_squares else []
    return [f"dpduck_valued_{number}", f"dpduck_sum_{number}", *squares]


def _own_columns(job: CountingJob) -> Mapping[str, str]:
    """Returns SQL of the columns of loss.unit_columns, of a job's aggregates, by their names.

    Rows are asked of counts alone. Elsewhere the number of values stands in their place, which nobody reads.
    """
    rows, found = _rows_of(job), dict[str, str]()
    for number, one in enumerate(job.aggregates):
        place = _place(one, rows)
        stored = _stored(rows.aggregates[place], place)
        names = (
            ["rows"] if one.form == "count" else ["rows", "valued", "sum", *(["squares"] if one.has_squares else [])]
        )
        for name, column in zip(names, [stored[0], *stored], strict=False):
            found[f"dpduck_{name}_{number}"] = f"{column} AS dpduck_{name}_{number}"
    return found


def _all_of(number: int) -> str:
    return f"dpduck_all_{number}"
