"""Counting job of a request, for trusted code: its rows, their unit, and the contribution of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from dpduck.kernel.columns.expressions import AnalystSql
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.jobs import Attribute, CountingJob, GroupKey
from dpduck.language.rows.compiled import condition_of, number_of, value_of
from dpduck.language.rows.facts import RequestRows, SourceColumn
from dpduck.language.select.request import SelectRequest


def counting_job(request: SelectRequest, contributions: Sequence[Contribution]) -> CountingJob:
    """Returns the job that adds up these contributions by the request's keys in one scan."""
    rows = request.rows
    sizes, groups = [column.domain.size for column in request.question.sources], request.question.treatment.groups
    attributes = tuple(
        Attribute(
            key.sources,
            np.array(key.codes, np.int64).reshape([sizes[source] for source in key.sources]),
            len(key.labels),
        )
        for key in request.question.keys
        if not key.row_sql
    )
    if request.question.matrix and len(attributes) > 1:  # a strategy in the statement is over all cells
        attributes = (cross_attributes(attributes, sizes),)
    if request.question.intervals:  # the bins of the only source, with NULL, which is in no interval
        attributes = (Attribute((0,), np.arange(sizes[0], dtype=np.int64), sizes[0]),)
    return CountingJob(
        source=rows.source,
        filters=tuple(condition_of(text, rows.columns) for text in rows.filters),
        unit=rows.unit,
        max_rows=rows.max_rows,
        content=tuple(rows.columns[sql] for sql in rows.content_sql),
        keys=tuple(key_column(source, rows) for source in request.question.sources),
        attributes=attributes,
        aggregates=bind_contributions(contributions, rows),
        periods=None if rows.periods is None else rows.periods.periods,
        copies=rows.unit_bound if rows.unit is None else 1,
        groups=groups if groups < prod(sizes) else 0,  # no unit is in more groups than there are
        cell_key=rows.cell_key,
    )


def key_column(source: SourceColumn, rows: RequestRows) -> GroupKey:
    """Returns a column by which rows are grouped. source: the column's SQL over `rows`, and its domain."""
    return GroupKey(value_of(source.sql, rows.columns), source.domain)


def bind_contributions(contributions: Sequence[Contribution], rows: RequestRows) -> tuple[Contribution, ...]:
    """Binds the conditions and values of contributions, as the statement wrote them, to the columns of `rows`."""
    results = []
    for contribution in contributions:
        condition, value = contribution.condition, contribution.value
        if isinstance(condition, AnalystSql):
            condition = condition_of(condition.sql, rows.columns)
        if isinstance(value, AnalystSql):
            value = number_of(value.sql, rows.columns)
        results.append(replace(contribution, condition=condition, value=value))
    return tuple(results)


def cross_attributes(attributes: Sequence[Attribute], sizes: Sequence[int]) -> Attribute:
    """Combines attributes into one, the first varying slowest. Any can drop a cell. sizes: the size of each source.

    >>> both = [Attribute((0,), np.array([0, -1, 1]), 2), Attribute((1,), np.array([1, 0]), 2)]
    >>> cross_attributes(both, (3, 2)).codes.tolist()
    [[1, 0], [-1, -1], [3, 2]]
    """
    sources = sorted({source for attribute in attributes for source in attribute.sources})
    places = dict(zip(sources, np.indices([sizes[source] for source in sources]), strict=True))
    own = [axis.codes[tuple(places[source] for source in axis.sources)] for axis in attributes]
    counts = [axis.size for axis in attributes]
    codes = np.ravel_multi_index([np.maximum(axis, 0) for axis in own], counts)
    return Attribute(tuple(sources), np.where(np.minimum.reduce(own) < 0, -1, codes), prod(counts))
