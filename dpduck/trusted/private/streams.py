"""Refreshes of a stream: rows of periods that have closed are counted once, and measured by what was paid for.

A stream is one ask for a table: the matrix S of its strategy over the time axis, every value of the other keys beside
it, and one noise. All of it was charged when the stream was made. A refresh answers the next rows of S and no others,
each once: how many were answered is in the stream's file, whose newest version the ledger knows (stream_state).

Theorem. Let m be the most rows of a unit in the scan, and two histories of a database differ by rows of one unit, at
whatever times. Then the exact answers of all refreshes together differ by S D with |D|_1 <= m, D of a period and a
value of the other keys, whatever the noisy answers before were.
Proof. A refresh takes rows of the periods that it closes alone (counting_stage.arrivals_sql), each period once: so a
row taken is in one column. What is taken of a unit is a function of its own rows and of how many were taken of it
before (taken_sql), so both histories take the same of every other unit, and of the unit itself m in all at most.
Counts of earlier periods are those that the file holds, not what the tables say by now. A row of S that was answered
before a later period closed reads 0 for it, which moves it no further than S says.

The noise of a row is independent of all others and of the past. So given the answers before, an answer's law depends on
the two histories by its own part of S D alone; D may depend on answers before, and is bounded on every path
(docs/privacy.md, "Streams", for Laplace and Gaussian noise).
"""

from __future__ import annotations

from dataclasses import replace

import duckdb
import numpy as np

from dpduck.trusted.ask import Ask, Table
from dpduck.trusted.ledger.ledger import Ledger
from dpduck.trusted.noise.entropy import Entropy
from dpduck.trusted.operators import IdentityFactor, KroneckerQuery, MatrixFactor
from dpduck.trusted.private.contributions import KEY, UNIT, key_integer
from dpduck.trusted.private.counting import counts_of_packed, key_slot_sql, packed_cells, packed_rows, read_job
from dpduck.trusted.private.counting_stage import arrivals_sql, cells_sql, taken_sql
from dpduck.trusted.private.door import OpenCursor, Steps, Unchanged, require_paid, require_periods
from dpduck.trusted.private.hidden import ExactCounts
from dpduck.trusted.private.jobs import CountingJob
from dpduck.trusted.private.measure import measure
from dpduck.trusted.private.stream_state import ARRIVED, HELD_UNITS, POURED, TAKEN, StreamState, Version
from dpduck.trusted.rows import reader
from dpduck.trusted.rows.plain import MOMENTS
from dpduck.trusted.rows.program import BATCH_TEXTS
from dpduck.trusted.rows.scan import counted
from dpduck.trusted.rows.workers import Workers
from dpduck.values.arrays import IntegerArray
from dpduck.values.domain import RangeDomain
from dpduck.values.errors import InternalError
from dpduck.values.privacy import Charge

StreamAsk = Ask[tuple[IntegerArray, ...]]


def require_stream(ask: StreamAsk, axis: int) -> tuple[CountingJob, KroneckerQuery, MatrixFactor, int]:
    """Refuses what is no stream over this attribute; returns its parts, and the slot of its first period.

    Its rows have a unit, its counts no bound by group, and its periods are consecutive bins of one column.
    """
    job, query = ask.scan.job, ask.query
    if not isinstance(job, CountingJob) or not isinstance(query, Table) or ask.noise is None or ask.times != 1:
        raise InternalError("no ask of a stream")
    held = job.unit_sql is not None and job.unit_type in HELD_UNITS and job.lookup is None and job.source is not None
    plain = job.prepared is None and job.elsewhere is None and job.periods is None
    if not held or not plain or any(aggregate.per_group for aggregate in job.aggregates):
        raise InternalError("rows that a stream does not follow")
    factors, attribute = query.query.factors, job.attributes[axis]
    matrix = factors[axis]
    others = [factor for number, factor in enumerate(factors) if number != axis]
    if not isinstance(matrix, MatrixFactor) or not all(isinstance(factor, IdentityFactor) for factor in others):
        raise InternalError("a stream of no strategy")
    (key,) = attribute.sources
    domain = job.keys[key].domain
    if not isinstance(domain, RangeDomain) or domain.with_null or domain.with_edges:
        raise InternalError("periods that are no bins of time")
    first = int(np.argmax(attribute.codes == 0))
    expected = np.full(domain.size, -1)
    expected[first : first + matrix.size] = np.arange(matrix.size)
    if attribute.size != matrix.size or not np.array_equal(attribute.codes, expected):
        raise InternalError("periods that do not follow each other")
    if query.query.attributes != tuple(range(len(job.attributes))):
        raise InternalError("a stream of some of its keys")
    return job, query.query, matrix, first


def refreshed(
    ask: StreamAsk,
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
    """Counts and measures the periods that closed, up to so many in all, and writes that down before it says anything.

    rows: of the strategy, measured by then. entry: of the ledger, which paid. place: a cursor of the stream's file.
    """
    paid = ledger.entry(entry)
    require_paid([ask], Charge(paid.epsilon, paid.rho, paid.delta))
    require_periods(ask.scan, None)
    job, query, matrix, first = require_stream(ask, axis)
    measured = answered(state, matrix, job, axis)
    if not state.closed < closed <= matrix.size or not measured <= rows <= matrix.rows or ask.noise is None:
        raise InternalError("periods that were measured, or are not of this stream")
    with open_cursor() as cursor:
        reader.begin(cursor)
        unchanged(cursor)
        new = _taken(cursor, place, state, job, axis, (first + state.closed, first + closed - 1), ledger, workers)
    steps("stream counted")
    counts = state.counts(new)
    answers = np.empty(0, np.int64)
    if rows > measured:
        part = MatrixFactor(matrix.entries[measured:rows])
        factors = tuple(part if one == axis else of for one, of in enumerate(query.factors))
        asked = [(KroneckerQuery(query.attributes, factors), ask.noise)]
        found = [measure(counts, asked, table, ask.scan.l1, entropy)[0] for table in ask.scan.tables]
        answers = np.stack([np.moveaxis(one, axis, 0).reshape(rows - measured, -1) for one in found])
    steps("stream measured")
    version = state.add(closed, new, answers)
    steps("stream written")
    return version


def answered(state: StreamState, matrix: MatrixFactor, job: CountingJob, axis: int) -> int:
    """Tells how many rows of the strategy were answered before: each has a number for every cell of the other keys."""
    others = [attribute.size for number, attribute in enumerate(job.attributes) if number != axis]
    cells = int(np.prod(others, dtype=np.int64)) * sum(aggregate.tables for aggregate in job.aggregates)
    told = sum(len(version.answers) for version in state.versions)
    if told % cells or told // cells > matrix.rows:
        raise InternalError("answers of another strategy")
    return told // cells


def _taken(
    cursor: duckdb.DuckDBPyConnection,
    place: duckdb.DuckDBPyConnection,
    state: StreamState,
    job: CountingJob,
    axis: int,
    slots: tuple[int, int],
    ledger: Ledger,
    workers: Workers,
) -> ExactCounts:
    """Leaves the rows that are taken of each unit in the table TAKEN, and returns their counts."""
    reading = read_job(_narrowed(job, axis, slots))
    cells = packed_cells(reading)
    parameters: dict[str, object] = {**reading.parameters, KEY: key_integer(ledger.bounding_key)}
    (key,) = job.attributes[axis].sources
    period = key_slot_sql(reading, key)

    def stage(rows: str) -> str:
        held = f"CAST({UNIT} AS {HELD_UNITS[job.unit_type]})"
        return f"SELECT * REPLACE ({held} AS {UNIT}) FROM ({arrivals_sql(rows, cells, job.aggregates, period, *slots)})"

    with counted(cursor, reading.scan, packed_rows(reading), parameters, reading.division, workers, stage) as found:
        sql, second, given = found
        batches = reader.record_batches(second, sql, given, BATCH_TEXTS)
        reader.poured(place, f"CREATE OR REPLACE TEMP TABLE {ARRIVED} AS FROM {POURED}", {}, POURED, batches)
    taken = taken_sql(ARRIVED, state.kept, list(cells), job.aggregates, job.max_rows)
    reader.run(place, f"CREATE OR REPLACE TEMP TABLE {TAKEN} AS {taken}")
    return counts_of_packed(reading, reader.columns(place, cells_sql(f"FROM {TAKEN}", list(cells), job.aggregates), {}))


def _narrowed(job: CountingJob, axis: int, slots: tuple[int, int]) -> CountingJob:
    """Returns the job without rows of other periods, by a comparison with the stored column that skips storage."""
    key = job.keys[job.attributes[axis].sources[0]]
    types = {} if job.source is None else dict(job.source.types)
    if types.get(key.sql) not in MOMENTS or not isinstance(key.domain, RangeDomain):
        raise InternalError("periods of no stored column")
    ends = (*key.domain.edges, key.domain.upper)
    start, end = (f"CAST('{ends[slot]}' AS {types[key.sql]})" for slot in (slots[0], slots[1] + 1))
    return replace(job, filters=(*job.filters, f"{key.sql} >= {start}", f"{key.sql} < {end}"))
