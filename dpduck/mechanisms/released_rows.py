"""Recovered answers with standard errors, one row per cell of each grouping set. Rolled-up columns are NULL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import duckdb
import numpy as np
import pyarrow as pa

from dpduck.algebra.ranges import RangeWorkload, all_ranges, identity, prefixes
from dpduck.language.select.request import Key, Question, SelectRequest
from dpduck.language.text.names import (
    GROUPING_ID,
    GROUPING_SET,
    answer_column,
    highs_column,
    lows_column,
    raw_column,
    stderr_column,
)
from dpduck.store.sandbox import Sandbox
from dpduck.values.arrays import FloatArray
from dpduck.values.quoting import written_values
from dpduck.values.sqltypes import sql_type

WRITTEN = 1024
"""Most labels written into SQL. A scan of an Arrow table would make DuckDB import all of Arrow's file systems."""


@dataclass(frozen=True)
class AnswerColumn:
    """Answers of one aggregate over all cells of all grouping sets, in order. NaN is NULL.

    lows, highs: interval ends, shape (levels, cells), if these depend on the answer.
    raw: the answers before options changed them, if any did. Intervals are then about these.
    """

    estimates: FloatArray
    stderrs: FloatArray
    lows: FloatArray | None = None
    highs: FloatArray | None = None
    raw: FloatArray | None = None


def release_columns(request: SelectRequest, whole: Sequence[bool]) -> tuple[tuple[str, str], ...]:
    """Returns column names and DuckDB types of a released table. whole: whether each aggregate has whole answers."""
    keys = [(key.name, key.type_name) for key in request.question.keys]
    keys += [(key.end_name, key.type_name) for key in request.question.keys if key.shape]
    answers = []
    for number, aggregate in enumerate(request.question.aggregates):
        type_name = "BIGINT" if whole[number] else "DOUBLE"
        answers += [(answer_column(number), type_name), (stderr_column(number), "DOUBLE")]
        if request.question.treatment.moves and not aggregate.has_curved_error:
            answers += [(raw_column(number), "DOUBLE")]
        if aggregate.has_curved_error or request.question.treatment.total or request.question.treatment.left_out:
            answers += [(lows_column(number), "DOUBLE[]"), (highs_column(number), "DOUBLE[]")]
    return (*keys, (GROUPING_ID, "BIGINT"), (GROUPING_SET, "INTEGER"), *answers)


def release_rows(
    request: SelectRequest, answers: Sequence[AnswerColumn], whole: Sequence[bool], box: Sandbox
) -> pa.Table:
    """Returns a release's rows from each aggregate's answers. whole: as in release_columns. box: casts labels."""
    sizes, cells = request.question.answer_sizes, rows_per_set(request.question)
    columns: dict[str, pa.ChunkedArray] = {}
    for position, name, labels in _key_columns(request.question.keys, box):
        chunks = [
            _key_chunk(labels, grouping_set, position, sizes, count)
            for grouping_set, count in zip(request.question.grouping_sets, cells, strict=True)
        ]
        columns[name] = pa.chunked_array(chunks, labels.type)
    rolled_up = [
        sum(1 << position for position in range(len(sizes)) if position not in grouping_set)
        for grouping_set in request.question.grouping_sets
    ]
    columns[GROUPING_ID] = pa.array(np.repeat(np.array(rolled_up, np.int64), cells))
    columns[GROUPING_SET] = pa.array(np.repeat(np.arange(len(cells), dtype=np.int32), cells))
    for number, answer in enumerate(answers):
        estimates = answer.estimates.astype(np.int64) if whole[number] else answer.estimates
        columns[answer_column(number)] = pa.array(estimates, from_pandas=True)
        columns[stderr_column(number)] = pa.array(answer.stderrs, from_pandas=True)
        if answer.raw is not None:
            columns[raw_column(number)] = pa.array(answer.raw)
        if answer.lows is not None and answer.highs is not None:
            columns[lows_column(number)] = interval_lists(answer.lows)
            columns[highs_column(number)] = interval_lists(answer.highs)
    return pa.table(columns)


def rows_per_set(question: Question) -> list[int]:
    """Returns the number of rows of each grouping set."""
    sizes = question.answer_sizes
    return [prod(sizes[position] for position in grouping_set) for grouping_set in question.grouping_sets]


def interval_lists(levels: FloatArray) -> pa.Array:
    """Returns one list per cell, with one end of its interval at every level. levels: shape (levels, cells)."""
    return pa.FixedSizeListArray.from_arrays(pa.array(levels.T.ravel()), len(levels)).cast(pa.list_(pa.float64()))


def _key_chunk(
    labels: pa.Array, grouping_set: tuple[int, ...], position: int, sizes: tuple[int, ...], count: int
) -> pa.Array:
    if position not in grouping_set:
        return pa.nulls(count, labels.type)
    place = grouping_set.index(position)
    after = prod(sizes[other] for other in grouping_set[place + 1 :])
    codes = np.tile(np.repeat(np.arange(sizes[position]), after), count // (sizes[position] * after))
    return labels.take(pa.array(codes))


def _key_columns(keys: Sequence[Key], box: Sandbox) -> list[tuple[int, str, pa.Array]]:
    """Returns a column for each key: its position, its name, and a label for each code or interval.

    A key with ranges has a second column, of their ends. These columns come last.
    """
    columns, ends = [], []
    for position, key in enumerate(keys):
        labels = _cast_labels(box, key.labels, key.type_name)
        if key.shape:
            workload = range_workload(key)
            last = pa.array(workload.stops - 1)
            shown = last if key.shape == "prefixes" else pa.array(workload.starts)
            ends.append((position, key.end_name, _cast_labels(box, key.ends, key.type_name).take(last)))
            labels = labels.take(shown)
        columns.append((position, key.name, labels))
    return columns + ends


def range_workload(key: Key) -> RangeWorkload:
    """Returns the queries over one key: its labels one by one, or their intervals in released order."""
    makers: dict[str, Callable[[int], RangeWorkload]] = {"": identity, "prefixes": prefixes, "ranges": all_ranges}
    return makers[key.shape](len(key.labels))


def _cast_labels(box: Sandbox, labels: Sequence[str | None], type_name: str) -> pa.Array:
    ask = partial(label_array, labels=labels, type_name=type_name)
    return box.answer(("labels", tuple(labels), type_name), ask, labels=len(labels))


def label_array(connection: duckdb.DuckDBPyConnection, labels: Sequence[str | None], type_name: str) -> pa.Array:
    """Returns labels as an Arrow array of a DuckDB type. Types that Arrow lacks stay text until they are stored."""
    texts = pa.array(labels, pa.string())
    if sql_type(type_name).is_released_as_text:
        return texts
    rows = [written_values(row) for row in enumerate(labels[:WRITTEN])]
    if 0 < len(labels) <= WRITTEN and not any(parameters for _, parameters in rows):
        listed = ", ".join(f"({row})" for row, _ in rows)
        return _cast(connection, type_name, f"(VALUES {listed}) AS labels(place, label)")
    connection.register("labels", pa.table({"place": np.arange(len(labels)), "label": texts}))
    try:
        return _cast(connection, type_name, "labels")
    finally:
        connection.unregister("labels")


def _cast(connection: duckdb.DuckDBPyConnection, type_name: str, labels: str) -> pa.Array:
    query = f"SELECT CAST(CAST(label AS VARCHAR) AS {type_name}) AS label FROM {labels} ORDER BY place"
    return connection.sql(query).to_arrow_table().column("label").combine_chunks()
