"""Sums of rows by unit and cell, computed once if several counts of a statement are over the same rows.

A search for a norm, the answers at this norm, their total, and the sum of all rows keep the same rows of each unit.
They differ in weights alone, which follow from a unit's sums by cell (loss.py). So rows are read and bounded once. Two
temporary tables hold the sums: one by unit and cell, one by unit. They are dropped before anything leaves.

The entries of a unit in each table are a function of this unit's kept rows, as in stage.py. So the theorem of the stage
holds for every count here. The SQL statements that are run depend on jobs alone, and on no row.

A unit adds at most B to any sum: m times the most that one row adds (loss.most_added). Nothing is counted here if B is
above WIDE. Squares add up to B^2 at most, and no product is beyond 2^120.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import duckdb

from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.contribution_sql import by_weighed_cell
from dpduck.kernel.counting.exact import JobReading, counts_of, read_job, read_rows, unit_facts, word_cells
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.loss import (
    ALL,
    add_by_weight_sql,
    level_counts_sql,
    magnitude_sql,
    most_added,
    shift,
    squares_of,
    type_for,
    weigh_cells_sql,
    weights_sql,
)
from dpduck.kernel.rows import reader
from dpduck.kernel.rows.bounding import UNIT
from dpduck.kernel.stage import total_name, unit_cells_sql
from dpduck.kernel.worker.workers import Workers
from dpduck.values.privacy import ZERO

WIDE = 1 << 46
"""Largest B, the most that a unit adds to a sum. Above it, a count reads the rows by itself, capped at loss.LONGEST."""

CELLS, SUMS = "temp.main.dpduck_unit_cells", "temp.main.dpduck_unit_sums"
"""Names of the two tables: by unit and cell, and by unit. A cursor counts for one statement at a time."""

POURED, BATCH = "dpduck_unit_parts", 1 << 17
"""Name of rows that come from a worker through another connection, and the number of rows in a batch."""


class UnitCells:
    """Sums of one statement's rows in two tables, and counts over them. Nothing is read before the first count."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, bounding_key: bytes, workers: Workers | None) -> None:
        self._cursor = cursor
        self._bounding_key = bounding_key
        self._workers = workers
        self._reading: JobReading | None = None
        self._summed: list[Contribution] = []

    def serves(self, job: CountingJob) -> bool:
        """Tells whether these tables count a job: it is shared, and reads the same rows as earlier jobs."""
        return is_shared(job) and (self._reading is None or self._reading.job == _rows_of(job))

    def counts(self, job: CountingJob) -> ExactCounts:
        if self._reading is None:
            self._reading = self._put_cells(_rows_of(job))
        if job.together or job.levels or _is_weighed(job):
            self._put_sums(job)
        columns = reader.columns(self._cursor, self._sql(job, list(word_cells(self._reading))), {})
        return counts_of(replace(self._reading, job=job), columns)

    def _put_cells(self, rows: CountingJob) -> JobReading:
        reading = read_job(rows)
        cells, parts = word_cells(reading), rows.aggregates
        listed = ", ".join(
            [*cells, UNIT, *(name for number, agg in enumerate(parts) for name in _part_columns(agg, number))]
        )
        create = f"CREATE OR REPLACE TEMP TABLE {CELLS} AS "
        with read_rows(self._cursor, reading, self._bounding_key, self._workers) as (read, second, parameters):
            added = unit_cells_sql(read, cells, parts, rows.max_rows, unit_facts(reading))
            sql = f"SELECT {listed} FROM ({added})"
            if second is self._cursor:
                reader.run(self._cursor, create + sql, parameters)
            else:
                batches = reader.record_batches(second, sql, parameters, BATCH)
                reader.pour_rows(self._cursor, f"{create}SELECT * FROM {POURED}", {}, POURED, batches)
        return reading

    def _put_sums(self, job: CountingJob) -> None:
        if set(_bare(job.aggregates)) <= set(self._summed):
            return
        self._summed = list(dict.fromkeys(_bare((*job.beside, *job.aggregates))))
        rows = _rows_of(job)
        stored = [name for number, aggregate in enumerate(rows.aggregates) for name in _part_columns(aggregate, number)]
        columns = [f"CAST(sum({name}) AS BIGINT) AS {name}" for name in stored]
        for number, aggregate in enumerate(self._summed):
            kind = type_for((aggregate,), job.max_rows)
            added = magnitude_sql(aggregate, _place(aggregate, rows), kind)
            columns += [f"CAST(sum({added} * {added}) AS {kind}) AS {squares_of(number)}"]
            columns += [f"CAST(sum({added}) AS {kind}) AS {_all_of(number)}"]
        sql = f"SELECT {', '.join([UNIT, *columns])} FROM {CELLS} GROUP BY {UNIT}"
        reader.run(self._cursor, f"CREATE OR REPLACE TEMP TABLE {SUMS} AS {sql}")

    def _sql(self, job: CountingJob, cells: Sequence[str]) -> str:
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
        if any(shift(aggregate.norm) for aggregate in aggregates):  # squares are of numbers without these bits
            return weigh_cells_sql(units, cells, aggregates, totals, kind=kind)
        squares = self._squares(job, kind)
        if job.together:
            whole = f"SELECT {', '.join([*own.values(), *squares])} FROM {SUMS}"
            return add_by_weight_sql(f"({weights_sql(whole, aggregates, list(own), kind)})", (), aggregates, totals)
        weights = weights_sql(f"SELECT {', '.join([UNIT, *squares])} FROM {SUMS}", aggregates, [UNIT], kind)
        return add_by_weight_sql(f"({units}) JOIN ({weights}) USING ({UNIT})", cells, aggregates, totals)

    def _squares(self, job: CountingJob, kind: str) -> list[str]:
        columns, rows = list[str](), _rows_of(job)
        for number, aggregate in enumerate(_bare(job.aggregates)):
            if job.together:
                added = magnitude_sql(aggregate, _place(aggregate, rows), kind)
                square = f"{added} * {added}"
            else:
                place = self._summed.index(aggregate)
                square, added = squares_of(place), _all_of(place)
            columns += [f"{square} AS {squares_of(number)}", *([] if number else [f"{added} AS {ALL}"])]
        return columns


def drop_unit_cells(cursor: duckdb.DuckDBPyConnection) -> None:
    """Drops the two tables of a cursor. After a failed count, they disappear with the transaction."""
    for table in (CELLS, SUMS):
        reader.drop(cursor, table)


def is_shared(job: CountingJob) -> bool:
    """Tells whether a job can use the shared tables: it counts by cells of its keys, in numbers that need no cap."""
    every = (*job.beside, *job.aggregates)
    plain = not (job.merges or job.groups) and all(aggregate.form != "moments" for aggregate in every)
    in_duckdb = job.unit is not None and not job.place.in_engine
    return bool(job.beside) and plain and in_duckdb and most_added(every, job.max_rows) <= WIDE


def _is_weighed(job: CountingJob) -> bool:
    return any(aggregate.norm for aggregate in job.aggregates)


def _bare(aggregates: Sequence[Contribution]) -> list[Contribution]:
    return [replace(aggregate, norm=0, shared=False) for aggregate in aggregates]


def _rows_of(job: CountingJob) -> CountingJob:
    """Returns the job that sums rows without weights. Its aggregates are parts. A part serves one aggregate or more."""
    parts: dict[object, Contribution] = {}
    for aggregate in (*job.beside, *job.aggregates):
        bare, part = replace(aggregate, norm=0, shared=False, centre=ZERO), _part(aggregate)
        parts[part] = bare if part not in parts or aggregate.has_squares else parts[part]
    alone = replace(job, beside=(), aggregates=(), levels=0, spread=1, together=False, attributes=())
    return replace(alone, aggregates=tuple(parts.values()))


def _part(aggregate: Contribution) -> tuple[object, ...]:
    """Returns a key that is equal for aggregates with the same sums of rows. Centres are subtracted later."""
    values = aggregate.value, aggregate.low, aggregate.high, aggregate.steps, aggregate.reach, aggregate.stepped
    return aggregate.condition, aggregate.form == "count", aggregate.per_group, *values


def _place(aggregate: Contribution, rows: CountingJob) -> int:
    return [_part(part) for part in rows.aggregates].index(_part(aggregate))


def _part_columns(part: Contribution, number: int) -> list[str]:
    """Lists the columns of a part: the number of rows, or the values' number, their sum and sum of squares."""
    if part.form == "count":
        return [f"dpduck_rows_{number}"]
    squares = [f"dpduck_squares_{number}"] if part.has_squares else []
    return [f"dpduck_valued_{number}", f"dpduck_sum_{number}", *squares]


def _own_columns(job: CountingJob) -> Mapping[str, str]:
    """Writes a job's columns for loss.unit_columns, by name. Counts use numbers of rows, others numbers of values."""
    rows, columns = _rows_of(job), dict[str, str]()
    for number, agg in enumerate(job.aggregates):
        place = _place(agg, rows)
        stored = _part_columns(rows.aggregates[place], place)
        names = (
            ["rows"] if agg.form == "count" else ["rows", "valued", "sum", *(["squares"] if agg.has_squares else [])]
        )
        for name, column in zip(names, [stored[0], *stored], strict=False):
            columns[f"dpduck_{name}_{number}"] = f"{column} AS dpduck_{name}_{number}"
    return columns


def _all_of(number: int) -> str:
    return f"dpduck_all_{number}"
