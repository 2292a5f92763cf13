"""Refreshes of a stream: rows of closed periods are counted once, and measured under the stream's charge.

A stream is one or more asks for tables of one scan. Each is a Kronecker product with a noise of its own: the matrix S
of the stream's strategy over the time axis, times any factors over the other keys. All asks share S. All rows of S were
charged when the stream was made. A refresh answers the next rows of S and no others, each once, for every ask. The
number of answered rows is in the stream's file, and the ledger knows the file's newest version (stream_state).

Theorem. Let m be the most rows of a unit in the scan. Let two histories of a database differ by rows of one unit, at
whatever times. Let D be the difference of an aggregate's exact tables, over all periods and values of the other keys.
Then |D|_1 <= Contribution.unit_bound(m, cells), whatever the noisy answers before were. So stage's bound for one scan
holds for all refreshes together. An ask's exact answers differ by K D, where K is its Kronecker product.
Proof. A refresh takes only rows of the periods that it closes (stage.arrivals_sql), each period once: so a row taken is
in one column. The rows taken of a unit depend only on its own rows and on the number of its rows taken before
(taken_sql). So both histories take the same rows of every other unit. Of the unit itself they take at most m rows in
all, and each row adds at most Contribution.bound. If a unit's rows of a cell are merged into one, the cell has a
period, and all these rows are in one refresh. So the unit adds to each cell of the horizon once, at most min(m, cells)
times in all. Counts of earlier periods come from the file, not from the present tables. A row of S that was answered
before a later period closed reads 0 for that period, which moves it no further than S says.

A row of the scan may join rows of several tables, or have its unit through another table. At each refresh it has one
unit. Without that unit's rows of that time this row is absent, and all other rows remain (language/rows/tree.py).

If rows are units themselves, each row is in one period, at most as often as joins copy it. The file keeps nothing about
such rows. Histories are then histories of inserted rows: an altered row is another row.

The noise of a row is independent of all other noise and of the past. So, given the earlier answers, an answer's law
depends on the two histories by its own part of K D alone. D may depend on earlier answers, and is bounded on every path
(docs/privacy.md, "Streams", for Laplace and Gaussian noise, and for several asks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import duckdb
import numpy as np

from dpduck.kernel.columns.comparisons import Comparison, Literal
from dpduck.kernel.columns.expressions import RelationColumn
from dpduck.kernel.counting.exact import counts_of, key_slot_sql, read_job, read_rows, word_cells
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.door import OpenCursor, Steps, Unchanged, require_paid, require_periods, require_units
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.noise.entropy import Entropy
from dpduck.kernel.places.rows import LIVE
from dpduck.kernel.price import Ask
from dpduck.kernel.queries.operators import KroneckerQuery, MatrixFactor
from dpduck.kernel.queries.stream_state import ARRIVED, POURED, TAKEN, StreamState, Version
from dpduck.kernel.queries.tables import Table, operator_of, require_weights
from dpduck.kernel.rows import reader
from dpduck.kernel.rows.bounding import UNIT
from dpduck.kernel.stage import arrivals_sql, cells_sql, taken_sql
from dpduck.kernel.worker.program import BATCH_TEXTS
from dpduck.kernel.worker.workers import Workers
from dpduck.values.arrays import IntegerArray
from dpduck.values.domain import RangeDomain
from dpduck.values.errors import InternalError
from dpduck.values.privacy import Charge
from dpduck.values.sqltypes import sql_type

StreamAsk = Ask[tuple[IntegerArray, ...]]


def require_stream(asks: Sequence[StreamAsk], axis: int) -> tuple[CountingJob, MatrixFactor, int]:
    """Returns a stream's job and matrix, and its first period's slot. Refuses asks that do not form a stream."""
    job, matrix = asks[0].scan.job, _over_time(asks[0], axis)
    if any(ask.scan.job is not job or _over_time(ask, axis) is not matrix for ask in asks):
        raise InternalError("asks of several streams")
    for ask in asks:
        require_weights(operator_of(ask))
    has_unit = job.unit is None or sql_type(job.unit_type).is_unit_part
    plain = job.place == LIVE and job.periods is None
    of_cells = job.groups or job.digest or job.cell_key
    fewer = of_cells or job.levels or any(contribution.norm for contribution in job.aggregates)  # a refresh takes more
    by_group = any(aggregate.per_group for aggregate in job.aggregates)
    if fewer or not has_unit or not plain or (job.unit is None and by_group):
        raise InternalError("rows that a stream does not follow")
    attribute = job.attributes[axis]
    (key,) = attribute.sources
    domain = job.keys[key].domain
    if not isinstance(domain, RangeDomain) or domain.with_null or domain.with_edges:
        raise InternalError("periods that are no bins of time")
    first = int(np.argmax(attribute.codes == 0))
    expected = np.full(domain.size, -1)
    expected[first : first + matrix.size] = np.arange(matrix.size)
    if attribute.size != matrix.size or not np.array_equal(attribute.codes, expected):
        raise InternalError("periods that do not follow each other")
    return job, matrix, first


def _over_time(ask: StreamAsk, axis: int) -> MatrixFactor:
    query = operator_of(ask)
    matrix = dict(zip(query.attributes, query.factors, strict=True)).get(axis)
    if ask.times != 1:
        raise InternalError("no ask of a stream")
    if not isinstance(matrix, MatrixFactor):
        raise InternalError("a stream of no strategy")
    return matrix


def refresh_stream(
    asks: Sequence[StreamAsk],
    axis: int,
    closed: int,
    rows: int,
    entry: int,
    state: StreamState,
    place: duckdb.DuckDBPyConnection,
    ledger: Ledger,
    open_cursor: OpenCursor,
    unchanged: Unchanged,
    entropy: Entropy,
    steps: Steps,
    workers: Workers,
) -> Version:
    """Counts the new periods, up to `closed` in all, measures them, and writes the version before it returns anything.

    rows: number of strategy rows answered after this refresh. entry: ledger entry that paid. place: cursor of the file.
    """
    paid = ledger.entry(entry)
    require_paid(asks, Charge(paid.epsilon, paid.rho, paid.delta))
    job, matrix, first = require_stream(asks, axis)
    require_periods(asks[0].scan, None)
    measured = next_row(state, matrix, asks, axis)
    if not state.number_closed < closed <= matrix.size or not measured <= rows <= matrix.rows:
        raise InternalError("periods that were measured, or are not of this stream")
    with open_cursor() as cursor:
        reader.begin(cursor)
        unchanged(cursor)
        require_units(cursor, [job], paid.unit_key, ledger.store)
        new = _take_rows(
            cursor, place, state, job, axis, (first + state.number_closed, first + closed - 1), ledger, workers
        )
    steps("stream counted")
    answers = np.empty((0, width_of(asks, axis)), np.int64)
    if rows > measured:
        answers = _measure_rows(state.counts(new), asks, axis, MatrixFactor(matrix.entries[measured:rows]), entropy)
    steps("stream measured")
    version = state.add(closed, new, answers)
    steps("stream written")
    return version


def _measure_rows(
    counts: ExactCounts, asks: Sequence[StreamAsk], axis: int, part: MatrixFactor, entropy: Entropy
) -> IntegerArray:
    """Returns noisy answers to some rows of the strategy. Each gives one row: all tables of all asks."""
    parts = []
    for tables, l1 in dict.fromkeys((ask.scan.tables, ask.scan.l1) for ask in asks):
        alike = [ask for ask in asks if (ask.scan.tables, ask.scan.l1) == (tables, l1)]
        part_asks = [Ask(ask.scan, Table(_of_part(ask, axis, part)), ask.noise) for ask in alike]
        for ask, by_table in zip(alike, part_asks[0].query.draw_together(counts, part_asks, entropy), strict=True):
            place = operator_of(ask).attributes.index(axis)
            noisy = [np.moveaxis(table, place, 0).reshape(part.rows, -1) for table in by_table]
            parts.append((asks.index(ask), np.concatenate(noisy, axis=1)))
    return np.concatenate([answers for _, answers in sorted(parts, key=lambda pair: pair[0])], axis=1)


def _of_part(ask: StreamAsk, axis: int, part: MatrixFactor) -> KroneckerQuery:
    query = operator_of(ask)
    pairs = zip(query.attributes, query.factors, strict=True)
    return KroneckerQuery(query.attributes, tuple(part if attribute == axis else factor for attribute, factor in pairs))


def width_of(asks: Sequence[StreamAsk], axis: int) -> int:
    """Returns the number of answers for each row of the strategy."""
    return sum(prod(operator_of(ask).shape) // _over_time(ask, axis).rows * len(ask.scan.tables) for ask in asks)


def next_row(state: StreamState, matrix: MatrixFactor, asks: Sequence[StreamAsk], axis: int) -> int:
    """Returns the number of answered rows of the strategy, from the number of stored answers."""
    width = width_of(asks, axis)
    total = sum(len(version.answers) for version in state.versions)
    if total % width or total // width > matrix.rows:
        raise InternalError("answers of another strategy")
    return total // width


def _take_rows(
    cursor: duckdb.DuckDBPyConnection,
    place: duckdb.DuckDBPyConnection,
    state: StreamState,
    job: CountingJob,
    axis: int,
    slots: tuple[int, int],
    ledger: Ledger,
    workers: Workers,
) -> ExactCounts:
    """Writes the rows that taken_sql keeps of each unit to the table TAKEN, and returns their counts."""
    reading = read_job(_narrow_to_slots(job, axis, slots), packed=True)
    cells, units = word_cells(reading), job.unit is not None
    (key,) = job.attributes[axis].sources
    period = key_slot_sql(reading, key)
    with read_rows(cursor, reading, ledger.bounding_key, workers) as (rows, second, given):
        arrived = arrivals_sql(rows, cells, job.aggregates, period, *slots, units=units)
        if not units:
            reader.run(place, f"CREATE OR REPLACE TEMP TABLE {TAKEN} AS SELECT 0 AS {UNIT} LIMIT 0")
            return counts_of(reading, reader.columns(second, cells_sql(arrived, list(cells), job.aggregates), given))
        unit_sql = f"CAST({UNIT} AS {sql_type(job.unit_type).kept_unit})"
        sql = f"SELECT * REPLACE ({unit_sql} AS {UNIT}) FROM ({arrived})"
        batches = reader.record_batches(second, sql, given, BATCH_TEXTS)
        reader.pour_rows(place, f"CREATE OR REPLACE TEMP TABLE {ARRIVED} AS FROM {POURED}", {}, POURED, batches)
    taken = taken_sql(ARRIVED, state.kept_table, list(cells), job.aggregates, job.max_rows)
    reader.run(place, f"CREATE OR REPLACE TEMP TABLE {TAKEN} AS {taken}")
    by_group = [UNIT] if any(aggregate.per_group for aggregate in job.aggregates) else []
    sql = cells_sql(f"FROM {TAKEN}", list(cells), job.aggregates, by_group)
    return counts_of(reading, reader.columns(place, sql, {}))


def _narrow_to_slots(job: CountingJob, axis: int, slots: tuple[int, int]) -> CountingJob:
    """Returns the job with two more filters. They keep rows of the periods from slots[0] to slots[1]."""
    key = job.keys[job.attributes[axis].sources[0]]
    column = key.value
    if (
        not isinstance(column, RelationColumn)
        or not sql_type(column.type_name).is_moment
        or not isinstance(key.domain, RangeDomain)
    ):
        raise InternalError("periods of no stored column")
    ends = (*key.domain.edges, key.domain.upper)
    start, end = (Literal(column.type_name, ends[slot]) for slot in (slots[0], slots[1] + 1))
    return replace(job, filters=(*job.filters, Comparison(column, ">=", start), Comparison(column, "<", end)))
