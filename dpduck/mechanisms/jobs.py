"""The job that trusted code counts for a request: its rows, their unit, and the contribution of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from dpduck.kernel.columns.expressions import Program
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.jobs import Attribute, CountingJob, KeyColumn
from dpduck.language.rows.compiled import condition_of, number_of, value_of
from dpduck.language.rows.facts import Rows, SourceColumn
from dpduck.language.select.request import Request


def counting_job(request: Request, contributions: Sequence[Contribution]) -> CountingJob:
    """Returns one scan that adds these contributions up by the request's keys."""
    rows = request.rows
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
        source=rows.source,
        filters=tuple(condition_of(text, rows.columns) for text in rows.filters),
        unit=rows.unit,
        max_rows=rows.max_rows,
        content=tuple(rows.columns[sql] for sql in rows.content_sql),
        keys=tuple(key_column(source, rows) for source in request.question.sources),
        attributes=attributes,
        aggregates=resolved(contributions, rows),
        periods=None if rows.periods is None else rows.periods.periods,
        copies=rows.unit_bound if rows.unit is None else 1,
        groups=groups if groups < prod(sizes) else 0,  # no unit is in more groups than there are
        cell_key=rows.cell_key,
    )


def key_column(source: SourceColumn, rows: Rows) -> KeyColumn:
    """Returns a value that rows are grouped by. source: its SQL over the columns of these rows, with its domain."""
    return KeyColumn(value_of(source.sql, rows.columns), source.domain)


def resolved(contributions: Sequence[Contribution], rows: Rows) -> tuple[Contribution, ...]:
    """Returns contributions with their conditions and values over the columns of rows, as the statement wrote them."""
    found = []
    for one in contributions:
        condition, value = one.condition, one.value
        if isinstance(condition, Program):
            condition = condition_of(condition.sql, rows.columns)
        if isinstance(value, Program):
            value = number_of(value.sql, rows.columns)
        found.append(replace(one, condition=condition, value=value))
    return tuple(found)


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
