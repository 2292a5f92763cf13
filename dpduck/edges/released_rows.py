"""Recovered answers as rows: one per cell of each grouping set, rolled-up columns NULL, with standard errors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpduck.edges.planned import range_workload
from dpduck.edges.sandbox import sandbox
from dpduck.frontend.released_columns import GROUPING_ID, GROUPING_SET, answer_column, stderr_column
from dpduck.frontend.request import Key, Request

FloatArray = NDArray[np.float64]


def released_columns(request: Request, whole_numbers: bool) -> tuple[tuple[str, str], ...]:
    """Names and DuckDB types of the released table."""
    keys = [(key.name, key.type_name) for key in request.keys]
    keys += [(key.end_name, key.type_name) for key in request.keys if key.shape]
    answers = []
    for number in range(len(request.aggregates)):
        answers += [(answer_column(number), "BIGINT" if whole_numbers else "DOUBLE"), (stderr_column(number), "DOUBLE")]
    return (*keys, (GROUPING_ID, "BIGINT"), (GROUPING_SET, "INTEGER"), *answers)


def released_rows(
    request: Request,
    answers: Sequence[Sequence[FloatArray]],
    stderrs: Sequence[Sequence[FloatArray]],
    whole_numbers: bool,
) -> pa.Table:
    """The rows of a release.

    answers: for each aggregate, an array per grouping set. stderrs: likewise, of every cell or one for all.
    """
    sizes = request.released_sizes
    cells = [prod(sizes[position] for position in grouping_set) for grouping_set in request.grouping_sets]
    columns: dict[str, pa.ChunkedArray] = {}
    for position, name, labels in _key_columns(request.keys):
        chunks = [
            _key_chunk(labels, grouping_set, position, sizes, count)
            for grouping_set, count in zip(request.grouping_sets, cells, strict=True)
        ]
        columns[name] = pa.chunked_array(chunks, labels.type)
    rolled_up = [
        sum(1 << position for position in range(len(sizes)) if position not in grouping_set)
        for grouping_set in request.grouping_sets
    ]
    columns[GROUPING_ID] = pa.array(np.repeat(np.array(rolled_up, np.int64), cells))
    columns[GROUPING_SET] = pa.array(np.repeat(np.arange(len(cells), dtype=np.int32), cells))
    for number in range(len(request.aggregates)):
        estimates = np.concatenate([array.reshape(-1) for array in answers[number]])
        columns[answer_column(number)] = pa.array(estimates.astype(np.int64) if whole_numbers else estimates)
        columns[stderr_column(number)] = pa.array(
            np.concatenate(
                [np.broadcast_to(of_set, count) for of_set, count in zip(stderrs[number], cells, strict=True)]
            )
        )
    return pa.table(columns)


def _key_chunk(
    labels: pa.Array, grouping_set: tuple[int, ...], position: int, sizes: tuple[int, ...], count: int
) -> pa.Array:
    if position not in grouping_set:
        return pa.nulls(count, labels.type)
    place = grouping_set.index(position)
    after = prod(sizes[other] for other in grouping_set[place + 1 :])
    codes = np.tile(np.repeat(np.arange(sizes[position]), after), count // (sizes[position] * after))
    return labels.take(pa.array(codes))


def _key_columns(keys: Sequence[Key]) -> list[tuple[int, str, pa.Array]]:
    """Every key column, those of range_end last: the key's position, the name, what each code or interval shows."""
    columns, ends = [], []
    with sandbox() as connection:
        for position, key in enumerate(keys):
            labels = label_array(connection, key.labels, key.type_name)
            if key.shape:
                workload = range_workload(key)
                last = pa.array(workload.stops - 1)
                shown = last if key.shape == "prefixes" else pa.array(workload.starts)
                ends.append((position, key.end_name, label_array(connection, key.ends, key.type_name).take(last)))
                labels = labels.take(shown)
            columns.append((position, key.name, labels))
    return columns + ends


def label_array(connection: duckdb.DuckDBPyConnection, labels: Sequence[str | None], type_name: str) -> pa.Array:
    """Labels as an Arrow array of the released type; types that Arrow lacks stay text and are cast on insertion."""
    texts = pa.table({"place": np.arange(len(labels)), "label": pa.array(labels, pa.string())})
    connection.register("labels", texts)
    array = _cast(connection, type_name) or texts.column("label").combine_chunks()
    connection.unregister("labels")
    return array


def _cast(connection: duckdb.DuckDBPyConnection, type_name: str) -> pa.Array | None:
    if type_name in ("VARCHAR", "HUGEINT", "UHUGEINT", "UUID", "TIME"):
        return None
    table = connection.sql(f"SELECT CAST(label AS {type_name}) AS label FROM labels ORDER BY place").to_arrow_table()
    return table.column("label").combine_chunks()
