"""What trusted code counts for a request: a scan over its rows, whose they are, and what each of them adds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpduck.frontend.select.request import Request
from dpduck.trusted.private.contributions import Contribution
from dpduck.trusted.private.jobs import Attribute, CountingJob, KeyColumn
from dpduck.values.errors import InternalError


def counting_job(request: Request, contributions: Sequence[Contribution]) -> CountingJob:
    """One scan that adds these contributions up by the request's keys."""
    if request.rows is None:
        raise InternalError("only trusted code's own SQL is counted as it stands")
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
