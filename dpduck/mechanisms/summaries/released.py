"""A noisy summary as a released table: its keys, weights, counts, variances and, for ranges, levels and intervals."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa

from dpduck.algebra.dyadic import DyadicAxis
from dpduck.kernel.queries.cells import MixedRadix
from dpduck.language.select.cells import node_columns
from dpduck.language.select.request import SelectRequest
from dpduck.language.text.names import (
    GROUPING_ID,
    GROUPING_SET,
    answer_column,
    chance_column,
    raw_column,
    stderr_column,
    variance_column,
)
from dpduck.mechanisms.released_rows import label_array
from dpduck.mechanisms.summaries.parents import ends_of, places_of
from dpduck.mechanisms.summaries.recover import EstimatedSummary
from dpduck.store.sandbox import sandbox


def summary_columns(request: SelectRequest) -> tuple[tuple[str, str], ...]:
    """Returns the column names and DuckDB types of the released table."""
    keys = [(key.name, key.type_name) for key in request.question.keys]
    ranges = [key for key in request.question.keys if key.shape]
    keys += [(key.end_name, key.type_name) for key in ranges]
    for key in ranges:
        level, node = node_columns(key)
        keys += [(level, "INTEGER"), (node, "BIGINT")]
    numbers = ((answer_column(0), "DOUBLE"), (stderr_column(0), "DOUBLE"))
    raw = "BIGINT" if request.question.aggregates[0].operand is None else "DOUBLE"
    more = ((raw_column(0), raw), (variance_column(0), "DOUBLE"), (chance_column(0), "DOUBLE"))
    return (*keys, (GROUPING_ID, "BIGINT"), (GROUPING_SET, "INTEGER"), *numbers, *more)


def summary_rows(
    request: SelectRequest,
    summary: EstimatedSummary,
    radix: MixedRadix,
    axes: Sequence[DyadicAxis | None],
    worth: Fraction,
) -> pa.Table:
    """Returns the rows of a release, with the columns of summary_columns. worth: the value of a count of 1."""
    codes = radix.unpack(summary.positions)
    firsts: dict[str, pa.Array] = {}
    ends: dict[str, pa.Array] = {}
    places: dict[str, pa.Array] = {}
    with sandbox() as connection:
        for key, axis, code in zip(request.question.keys, axes, codes, strict=True):
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
    count, unit = len(summary.counts), float(worth)
    plain = request.question.aggregates[0].operand is None
    counts = summary.counts if plain else summary.counts * worth.numerator / worth.denominator
    return pa.table(
        firsts
        | ends
        | places
        | {
            GROUPING_ID: pa.array(np.zeros(count, np.int64)),
            GROUPING_SET: pa.array(np.zeros(count, np.int32)),
            answer_column(0): pa.array(summary.weights * worth.numerator / worth.denominator),
            stderr_column(0): pa.array(np.sqrt(summary.variances) * unit),
            raw_column(0): pa.array(counts),
            variance_column(0): pa.array(summary.sums * unit**2, from_pandas=True),
            chance_column(0): pa.array(summary.chances),
        }
    )
