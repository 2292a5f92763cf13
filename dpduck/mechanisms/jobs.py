"""What trusted code counts for a request: a scan over its rows, whose they are, and what each of them adds."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from dpduck.frontend.select.request import Request
from dpduck.trusted.private.contributions import Contribution
from dpduck.trusted.private.jobs import Attribute, CountingJob, KeyColumn
from dpduck.values.errors import InternalError


def counting_job(request: Request, contributions: Sequence[Contribution]) -> CountingJob:
    """Returns one scan that adds these contributions up by the request's keys."""
    if request.rows.source is None:
        raise InternalError("only trusted code's own SQL is counted as it stands")
    sizes, groups = [one.domain.size for one in request.question.sources], request.question.treatment.groups
    attributes = tuple(
        Attribute(
            key.sources,
            np.array(key.codes, np.int64).reshape([sizes[source] for source in key.sources]),
            len(key.labels),
        )
        for key in request.question.keys
        if not key.row_sql
    )
    if request.question.matrix and len(attributes) > 1:  # a strategy of one's own is over all cells
        attributes = (crossed(attributes, sizes),)
    if request.question.intervals:  # the bins of the one source, NULL among them, which no interval holds
        attributes = (Attribute((0,), np.arange(sizes[0], dtype=np.int64), sizes[0]),)
    return CountingJob(
        from_sql=request.rows.from_sql,
        filters=request.rows.filters,
        unit_sql=request.rows.unit_sql,
        max_rows=request.rows.max_rows,
        content_sql=request.rows.content_sql,
        keys=tuple(KeyColumn(source.sql, source.domain) for source in request.question.sources),
        attributes=attributes,
        aggregates=tuple(contributions),
        lookup=request.rows.lookup,
        source=request.rows.source,
        unit_type=request.rows.unit_type,
        periods=request.rows.periods,
        copies=request.rows.unit_bound if request.rows.unit_sql is None else 1,
        groups=groups if groups < prod(sizes) else 0,  # no unit is in more groups than there are
        cell_key=request.rows.cell_key,
    )


def crossed(attributes: Sequence[Attribute], sizes: Sequence[int]) -> Attribute:
    """Returns one attribute for all. The first varies slowest, and each drops its combinations. sizes: of the sources.

    >>> both = [Attribute((0,), np.array([0, -1, 1]), 2), Attribute((1,), np.array([1, 0]), 2)]
    >>> crossed(both, (3, 2)).codes.tolist()
    [[1, 0], [-1, -1], [3, 2]]
    """
    sources = sorted({source for attribute in attributes for source in attribute.sources})
    places = dict(zip(sources, np.indices([sizes[source] for source in sources]), strict=True))
    own = [one.codes[tuple(places[source] for source in one.sources)] for one in attributes]
    counts = [one.size for one in attributes]
    codes = np.ravel_multi_index([np.maximum(one, 0) for one in own], counts)
    return Attribute(tuple(sources), np.where(np.minimum.reduce(own) < 0, -1, codes), prod(counts))
