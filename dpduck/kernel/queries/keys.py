"""Counts groups by private keys, and decides by noisy counts alone which of them are published; nothing else of a
group leaves before that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from dpduck.kernel.ask import Threshold
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.contribution_sql import tables_from
from dpduck.kernel.counting.exact import GROUP, counting_cells, read_job
from dpduck.kernel.counting.hidden import Hidden
from dpduck.kernel.counting.jobs import CountingJob, job_of
from dpduck.kernel.noise.draw import draw
from dpduck.kernel.noise.entropy import Entropy
from dpduck.kernel.noise.law import Noise
from dpduck.kernel.queries.key_delta import GroupBounds, PublishedKeys
from dpduck.kernel.rows import reader
from dpduck.kernel.stage import UNITS
from dpduck.kernel.worker.program import BATCH_TEXTS
from dpduck.kernel.worker.workers import Workers
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError


class KeyStream(Hidden):
    """Groups that are not counted before they are looked at; hidden."""

    __slots__ = ("_bounding_key", "_cursor", "_job", "_workers")

    def __init__(
        self, cursor: duckdb.DuckDBPyConnection, job: CountingJob, bounding_key: bytes, workers: Workers | None = None
    ) -> None:
        self._cursor, self._job, self._bounding_key, self._workers = cursor, job, bounding_key, workers

    def read(self) -> None:
        """Reads every group and lets it go."""
        with read_groups(self._cursor, self._job, self._bounding_key, self._workers) as batches:
            for _ in batches:
                pass


def publish_keys(stream: KeyStream, query: Threshold, noise: Noise, entropy: Entropy) -> PublishedKeys:
    """Counts, adds noise, compares and answers, group by group as they are counted.

    noise: of the selecting count.
    """
    job = stream._job
    require_same_bounds(job, query)
    published, suppressed = _selected(stream, query, noise, entropy)
    names = [f"{GROUP}{number}" for number in range(len(job.attributes) + len(job.texts))]
    published = published.take(pc.sort_indices(published, sort_keys=[(name, "ascending") for name in names]))
    answers = []
    for number in range(query.aggregates):
        exact = published.column(_answer_name(number, query)).to_numpy()
        if number not in query.reused:
            exact = exact + draw(query.of_aggregate(number).noise, len(exact), entropy)  # modulo 2^64
        answers.append(exact)
    other = _others(suppressed, query, entropy) if query.other else None
    return PublishedKeys(tuple(published.column(name).combine_chunks() for name in names), tuple(answers), other)


def _answer_name(number: int, query: Threshold) -> str:
    return UNITS if number in query.reused else _table_name(number)


def _table_name(number: int) -> str:
    """Returns the column of an aggregate's table, one integer a group."""
    return f"dpduck_table_{number}"


def _others(suppressed: Sequence[int], query: Threshold, entropy: Entropy) -> tuple[int, ...]:
    """Returns what was suppressed of each aggregate, with noise."""
    if not query.beside:
        added = draw(query.answers, query.aggregates, entropy).tolist()
    else:
        added = [int(draw(one.noise, 1, entropy)[0]) for one in query.beside]
    return tuple(_wrapped(exact + more) for exact, more in zip(suppressed, added, strict=True))


def _wrapped(number: int) -> int:
    """Returns a number modulo 2^64, as all tables are."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _selected(stream: KeyStream, query: Threshold, noise: Noise, entropy: Entropy) -> tuple[pa.Table, list[int]]:
    """Returns the published groups, their units noisy, and the exact sums of all others."""
    suppressed, kept = [0] * query.aggregates, []
    with read_groups(stream._cursor, stream._job, stream._bounding_key, stream._workers) as batches:
        for groups in batches:
            units = groups.column(UNITS).to_numpy()
            noisy = units + draw(noise, len(units), entropy)
            chosen = (units >= query.least) & (noisy > query.above)
            tables = _tables(groups, stream._job.aggregates)
            for number, table in enumerate(tables):
                suppressed[number] += int(table[~chosen].sum())
            names = [name for name in groups.column_names if name.startswith(GROUP)]
            columns = {name: groups.column(name) for name in names} | {UNITS: pa.array(noisy)}
            columns |= {_table_name(number): pa.array(table) for number, table in enumerate(tables)}
            kept.append(pa.Table.from_pydict(columns).filter(pa.array(chosen)))
    return pa.concat_tables(kept), suppressed


def _tables(groups: pa.Table, aggregates: Sequence[Contribution]) -> list[IntegerArray]:
    """Returns the exact tables of all aggregates, one integer a group each."""
    names = [name for name in groups.column_names if not name.startswith(GROUP) and name != UNITS]
    return tables_from(aggregates, [groups.column(name).to_numpy() for name in names])


def require_same_bounds(job: object, query: Threshold) -> None:
    """Refuses a price for other bounds than those of the SQL that will run."""
    counted = job_of(job)
    if not counted.selected or bounds_of(counted) != query.bounds or len(counted.aggregates) != query.aggregates:
        raise InternalError("the plan and the counts disagree about the contribution bounds")
    moved = zip(map(query.of_aggregate, range(query.aggregates)), counted.norms_beside(query.other), strict=True)
    if any(one.norms != norms for one, norms in moved):
        raise InternalError("the plan and the counts disagree about what a unit adds to a group")


def bounds_of(job: CountingJob) -> GroupBounds:
    """C, k, the total and the rows of one unit, as the SQL that will run bounds them."""
    if job.unit is None:
        return GroupBounds(job.copies, job.copies, job.copies, job.copies)
    return GroupBounds(job.group_bound, 1, job.group_bound, job.max_rows)


@contextmanager
def read_groups(
    cursor: duckdb.DuckDBPyConnection, job: CountingJob, bounding_key: bytes, workers: Workers | None
) -> Iterator[Iterator[pa.Table]]:
    """Lends one row per occupied group, in batches: its keys, its aggregates, and how many units it has."""
    with counting_cells(cursor, read_job(job), bounding_key, workers) as (counts, second, given):
        yield reader.text_batches(second, counts, given, BATCH_TEXTS)
