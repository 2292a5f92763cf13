"""A noisy summary as a released table: its keys, weights, noisy counts, variances and, for ranges, levels and nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dpduck.edges.released_rows import label_array
from dpduck.edges.sandbox import sandbox
from dpduck.frontend.released_columns import (
    GROUPING_ID,
    GROUPING_SET,
    answer_column,
    chance_column,
    raw_column,
    stderr_column,
    variance_column,
)
from dpduck.frontend.request import Request
from dpduck.frontend.summary_checks import node_columns
from dpduck.summaries.consistency import ends_of, places_of
from dpduck.summaries.estimators import EstimatedSummary
from dpduck.trusted.mixed_radix import MixedRadix
from dpduck.workload.dyadic import Axis


def summary_columns(request: Request) -> tuple[tuple[str, str], ...]:
    """Names and DuckDB types of the released table."""
    keys = [(key.name, key.type_name) for key in request.keys]
    ranges = [key for key in request.keys if key.shape]
    keys += [(key.end_name, key.type_name) for key in ranges]
    for key in ranges:
        level, node = node_columns(key)
        keys += [(level, "INTEGER"), (node, "BIGINT")]
    numbers = ((answer_column(0), "DOUBLE"), (stderr_column(0), "DOUBLE"))
    more = ((raw_column(0), "BIGINT"), (variance_column(0), "DOUBLE"), (chance_column(0), "DOUBLE"))
    return (*keys, (GROUPING_ID, "BIGINT"), (GROUPING_SET, "INTEGER"), *numbers, *more)


def summary_rows(
    request: Request, summary: EstimatedSummary, radix: MixedRadix, axes: Sequence[Axis | None]
) -> pa.Table:
    """The rows of a release, in the order of the columns above."""
    codes = radix.unpack(summary.positions)
    firsts: dict[str, pa.Array] = {}
    ends: dict[str, pa.Array] = {}
    places: dict[str, pa.Array] = {}
    with sandbox() as connection:
        for key, axis, code in zip(request.keys, axes, codes, strict=True):
            labels = label_array(connection, key.labels, key.type_name)
            if axis is None:
                firsts[key.name] = labels.take(pa.array(code))
                continue
            first, last = ends_of(axis, code)
            firsts[key.name] = labels.take(pa.array(first))
            ends[key.end_name] = label_array(connection, key.ends, key.type_name).take(pa.array(last))
            level, node = node_columns(key)
            levels, nodes = places_of(axis, code)
            places |= {level: pa.array(levels.astype(np.int32)), node: pa.array(nodes)}
    count = len(summary.counts)
    return pa.table(
        firsts
        | ends
        | places
        | {
            GROUPING_ID: pa.array(np.zeros(count, np.int64)),
            GROUPING_SET: pa.array(np.zeros(count, np.int32)),
            answer_column(0): pa.array(summary.weights),
            stderr_column(0): pa.array(np.sqrt(summary.variances)),
            raw_column(0): pa.array(summary.counts),
            variance_column(0): pa.array(summary.sums, from_pandas=True),
            chance_column(0): pa.array(summary.chances),
        }
    )
