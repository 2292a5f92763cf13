"""Which groups are published is decided here, by noisy counts alone; nothing else of a group leaves before that."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from dpduck.trusted.ask import Threshold
from dpduck.trusted.noise.draw import draw
from dpduck.trusted.noise.entropy import Entropy
from dpduck.trusted.noise.law import Noise
from dpduck.trusted.private.counting_stage import UNITS, total_name
from dpduck.trusted.private.hidden import Hidden
from dpduck.trusted.private.jobs import KeyedJob
from dpduck.trusted.private.key_counting import group_name, read_groups
from dpduck.trusted.private.key_delta import GroupBounds, PublishedKeys
from dpduck.trusted.rows.workers import Workers
from dpduck.values.errors import InternalError


class KeyStream(Hidden):
    """Groups that are not counted before they are looked at; hidden."""

    __slots__ = ("_bounding_key", "_cursor", "_job", "_workers")

    def __init__(
        self, cursor: duckdb.DuckDBPyConnection, job: KeyedJob, bounding_key: bytes, workers: Workers | None = None
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
    require_same_bounds(job, query.bounds)
    published, suppressed = _selected(stream, query, noise, entropy)
    names = [group_name(number) for number in range(len(job.rows.attributes) + len(job.texts))]
    published = published.take(pc.sort_indices(published, sort_keys=[(name, "ascending") for name in names]))
    answers = []
    for number in range(query.aggregates):
        exact = published.column(_answer_name(number, query)).to_numpy()
        if number not in query.reused:
            exact = exact + draw(query.answers, len(exact), entropy)
        answers.append(exact)
    other = None
    if query.other:
        added = draw(query.answers, query.aggregates, entropy).tolist()
        other = tuple(exact + more for exact, more in zip(suppressed, added, strict=True))
    return PublishedKeys(tuple(published.column(name).combine_chunks() for name in names), tuple(answers), other)


def _answer_name(number: int, query: Threshold) -> str:
    return UNITS if number in query.reused else total_name(number)


def _selected(stream: KeyStream, query: Threshold, noise: Noise, entropy: Entropy) -> tuple[pa.Table, list[int]]:
    """The published groups, their units noisy, and the exact sums of all others."""
    suppressed, kept = [0] * query.aggregates, []
    with read_groups(stream._cursor, stream._job, stream._bounding_key, stream._workers) as batches:
        for groups in batches:
            units = groups.column(UNITS).to_numpy()
            noisy = units + draw(noise, len(units), entropy)
            chosen = (units >= query.least) & (noisy > query.above)
            for number in range(query.aggregates):
                counts = groups.column(total_name(number)).to_numpy()
                suppressed[number] += int(counts[~chosen].sum())
            place = groups.schema.get_field_index(UNITS)
            kept.append(groups.set_column(place, UNITS, pa.array(noisy)).filter(pa.array(chosen)))
    return pa.concat_tables(kept), suppressed


def require_same_bounds(job: object, bounds: GroupBounds) -> None:
    """Refuses a price for other bounds than those of the SQL that will run."""
    if not isinstance(job, KeyedJob) or bounds_of(job) != bounds:
        raise InternalError("the plan and the counts disagree about the contribution bounds")


def bounds_of(job: KeyedJob) -> GroupBounds:
    """C, k, the total and the rows of one unit, as the SQL that will run bounds them."""
    if job.rows.unit_sql is None:
        copies = job.rows.copies
        return GroupBounds(copies, copies, copies, copies)
    groups = min(job.groups, job.rows.max_rows)
    return GroupBounds(groups, 1, groups, job.rows.max_rows)
