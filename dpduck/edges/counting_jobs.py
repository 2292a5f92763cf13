"""What trusted code counts for a request: one scan for all that adds up, one more for each other measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpduck.domain import RangeDomain
from dpduck.edges.planned import MeasurePlan, Planned, tree_buckets
from dpduck.errors import InternalError
from dpduck.frontend.request import Request
from dpduck.planning.measures import Measure
from dpduck.trusted.contribution import Contribution
from dpduck.trusted.counting_job import Attribute, CountingJob, KeyColumn


@dataclass(frozen=True)
class Scan:
    """A job, and the measures (by number) that its aggregates serve, in order."""

    job: CountingJob
    measures: tuple[int, ...]


def scans_of(found: Planned) -> list[Scan]:
    """Every scan of a release."""
    request = found.request
    added = [number for number, one in enumerate(found.measures) if one.measure.added]
    scans = []
    if added:
        contributions = [contribution_of(found.measures[number].measure) for number in added]
        scans.append(Scan(counting_job(request, contributions), tuple(added)))
    for number, one in enumerate(found.measures):
        if not one.measure.added:
            scans.append(Scan(_with_column(request, _last_key(found, one), one.measure.condition), (number,)))
    return scans


def contribution_of(measure: Measure) -> Contribution:
    """What every row adds to the tables of a measure."""
    operand = measure.operand
    if operand is None or measure.form == "count":
        return Contribution(measure.condition)
    return Contribution(
        measure.condition,
        measure.form,
        operand.sql,
        operand.low,
        operand.high,
        measure.steps,
        measure.degree,
        measure.rest,
        operand.per_group,
    )


def counting_job(request: Request, contributions: Sequence[Contribution]) -> CountingJob:
    """One scan that adds these contributions up by the request's keys."""
    sizes = [source.domain.size for source in request.sources]
    attributes = tuple(
        Attribute(
            key.sources,
            np.array(key.codes, np.int64).reshape([sizes[source] for source in key.sources]),
            len(key.labels),
        )
        for key in request.keys
        if not key.row_sql
    )
    if request.intervals:  # the bins of the one source, NULL among them, which no interval holds
        attributes = (Attribute((0,), np.arange(sizes[0], dtype=np.int64), sizes[0]),)
    return CountingJob(
        from_sql=request.from_sql,
        filters=request.filters,
        unit_sql=request.unit_sql,
        max_rows=request.max_rows,
        content_sql=request.content_sql,
        keys=tuple(KeyColumn(source.sql, source.domain) for source in request.sources),
        attributes=attributes,
        aggregates=tuple(contributions),
        lookup=request.lookup,
        source=request.rows,
        unit_type=request.unit_type,
        copies=request.unit_bound if request.unit_sql is None else 1,
    )


def _with_column(request: Request, key: KeyColumn, condition: str) -> CountingJob:
    """Rows counted by the request's keys and by one more column, which comes last."""
    job = counting_job(request, (Contribution(condition),))
    size = key.domain.size
    last = Attribute((len(job.keys),), np.arange(size, dtype=np.int64), size)
    return replace(job, keys=(*job.keys, key), attributes=(*job.attributes, last))


def _last_key(found: Planned, measured: MeasurePlan) -> KeyColumn:
    """Values that are counted once each, or buckets of a value; what is outside the bounds is in the outermost ones."""
    measure = measured.measure
    if measure.distinct is not None:
        return KeyColumn(measure.distinct.sql, measure.distinct.domain)
    if measure.operand is None:
        raise InternalError("a tree over nothing")
    buckets = tree_buckets(found.request, measure)
    edges = tuple(repr(float(edge)) for edge in buckets.edges)
    domain = RangeDomain("DOUBLE", edges[:-1], edges[-1], repr(float(buckets.width)), "", 1, with_edges=True)
    return KeyColumn(measure.operand.sql, domain)
