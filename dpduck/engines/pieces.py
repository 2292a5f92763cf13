"""Rows that lie packed in an engine: what its tasks run to write pieces of whole privacy units, and to read them.

A piece is a row of the engine's table, with each column as bytes, so that no engine can part a unit, and a statement
reads the columns alone that it needs. This file is sent as it is (engines/task.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dpduck.kernel.places import orders
from dpduck.kernel.places.orders import BATCH, BUCKET, PART, PARTIAL, TABLE, Order, Sent, column_name
from dpduck.kernel.worker.answered import Asking
from dpduck.kernel.worker.workers import Workers

PIECE, OTHERS = "dpduck_piece", "dpduck_others"
"""What an engine calls the name of a piece, and how many rows of no unit were left out."""

PIECE_ROWS = 1 << 16
"""Of a piece, more or less, since its units are whole."""


def packing(tables: Sequence[Sent], key: int, number: int = 0) -> Order:
    """Returns the order by which tables are packed, or rows of one of them bundled; of crowds the first rows."""
    return Order(tuple(tables), (), Asking(""), "", {TABLE: number}, "", 0, key=key)


def rows_name(table: int) -> str:
    """Returns what an engine calls the number of rows that a piece has of a table."""
    return f"dpduck_rows_{table}"


def bundle_task(
    plain: Mapping[str, Any], given: Iterable[pa.RecordBatch], workers: Workers
) -> Iterator[pa.RecordBatch]:
    """Yields parts of a table's rows by bucket, a row for each: as bytes, which are fewer, they go from task to task.

    The last column of what is given is the bucket of a row's unit. Rows of no unit are counted in the first one.
    """
    order, number = orders.order_from(plain), plain["parameters"][TABLE]
    table = order.tables[number]
    for part in orders.parts(given):
        rows = pa.Table.from_arrays([*map(orders.whole_texts, part.columns)], names=part.column_names)
        if table.unit is not None:
            rows = orders.first_rows(order, table, rows.filter(pc.is_valid(rows.column(orders.unit_of(table)))))
        others = part.num_rows - rows.num_rows
        for bucket, bundle in [*orders.bundles(rows)] or [(0, rows.drop_columns(BUCKET))]:
            named = {column_name(0, place): [_packed(one)] for place, one in enumerate(bundle.columns)}
            yield pa.RecordBatch.from_pydict({BUCKET: [bucket], TABLE: [number], OTHERS: [others], **named})
            others = 0


def pack_task(plain: Mapping[str, Any], given: pa.Table, workers: Workers) -> pa.Table:
    """Returns the rows of a bucket as pieces of whole units, one in a row: each column as bytes, and of each table how
    many rows there are; in the first piece, with those of no unit.
    """
    order, bundles, found = orders.order_from(plain), given.to_pylist(), dict[str, list[Any]]()
    tables = [_of_units(order, number, bundles) for number in range(len(order.tables))]
    chunks = [chunk for _, units in tables for chunk in units.chunks if len(chunk)]
    counted = pc.value_counts(pa.chunked_array(chunks or [pa.nulls(0, pa.int64())]))
    counted = counted.take(pc.sort_indices(counted.field("values")))
    size = sum(rows.nbytes for rows, _ in tables) // max(sum(rows.num_rows for rows, _ in tables), 1) + 1
    places = pc.divide(pc.cumulative_sum(counted.field("counts")), max(1, min(PIECE_ROWS, orders.BUNDLE // size)))
    pieces = pc.unique(places).to_pylist() or [0]
    for number, (rows, units) in enumerate(tables):
        own = places.take(pc.index_in(units, counted.field("values"))) if len(units) else pa.nulls(0, pa.int64())
        others = sum(one[OTHERS] for one in bundles if one[TABLE] == number)
        for piece in pieces:
            part = rows.filter(pc.equal(own, piece))
            found.setdefault(rows_name(number), []).append(part.num_rows + (others if piece == pieces[0] else 0))
            for place, column in enumerate(part.columns):
                found.setdefault(column_name(number, place), []).append(_packed(column))
    found |= {BUCKET: [bundles[0][BUCKET]] * len(pieces), PIECE: [f"{bundles[0][BUCKET]}.{one}" for one in pieces]}
    return pa.Table.from_batches(pa.Table.from_pydict(found).to_batches(max_chunksize=1))


def _of_units(order: Order, number: int, bundles: Sequence[Mapping[str, Any]]) -> tuple[pa.Table, pa.ChunkedArray]:
    """Returns a table's rows in bundles, sorted by their units, and these, whole numbers as one type.

    Each row is a unit where the table has no column of them.
    """
    table, own = order.tables[number], [one for one in bundles if one[TABLE] == number]
    columns = [_unpacked(own, column_name(0, place)) for place in range(len(table.columns))]
    plain = [one.cast(one.type.value_type) if pa.types.is_dictionary(one.type) else one for one in columns]
    rows = pa.Table.from_arrays(plain, names=[column_name(0, place) for place in range(len(plain))])
    if table.unit is None:
        return rows, pa.chunked_array([pa.array(range(rows.num_rows), pa.int64())])
    rows = orders.first_rows(order, table, rows)
    units = rows.column(orders.unit_of(table))
    units = units.cast(pa.int64()) if pa.types.is_integer(units.type) else units
    order_of_units = pc.sort_indices(units)
    return rows.take(order_of_units), units.take(order_of_units)


def answer_packed(
    plain: Mapping[str, Any], given: Iterable[pa.RecordBatch], workers: Workers
) -> Iterator[pa.RecordBatch]:
    """Yields the sums of an order over pieces, some million rows at a time, beside the names of the pieces."""
    order, pieces, count = orders.order_from(plain), list[Mapping[str, Any]](), 0
    private = list(enumerate(table for table in order.tables if table.rows is None))
    for piece in chain(chain.from_iterable(batch.to_pylist() for batch in given), [None]):
        if pieces and (piece is None or count >= PART):
            columns = [[_unpacked(pieces, column_name(n, k)) for k, _ in enumerate(one.columns)] for n, one in private]
            rows = [pa.Table.from_arrays(own, names=list(map(str, range(len(own))))) for own in columns]
            found = orders.carried_out(order, rows, workers).to_batches(max_chunksize=BATCH)
            said: list[bytes | None] = [*map(orders.to_bytes, found)] or [None]
            names = [" ".join(one[PIECE] for one in pieces), *[""] * (len(said) - 1)]
            yield pa.RecordBatch.from_pydict({PIECE: names, PARTIAL: pa.array(said, pa.binary())})
            pieces, count = [], 0
        if piece is not None:
            pieces, count = [*pieces, piece], count + sum(piece[rows_name(number)] for number, _ in private)


def _packed(column: pa.ChunkedArray) -> bytes:
    """Returns a column as bytes: texts that repeat, as their numbers in a list."""
    array = column.combine_chunks()
    if pa.types.is_string(array.type) and 2 * pc.count_distinct(array, mode="all").as_py() < len(array):
        array = array.dictionary_encode()
    return orders.to_bytes(pa.record_batch([array], names=[PIECE]), "zstd")


def _unpacked(pieces: Sequence[Mapping[str, Any]], name: str) -> pa.ChunkedArray:
    """Returns a column of pieces: as numbers in lists of texts if it is so in one."""
    chunks = [chunk for piece in pieces for chunk in pa.ipc.open_stream(piece[name]).read_all().column(0).chunks]
    chunks = [chunk for chunk in chunks if len(chunk)]
    listed = [pa.types.is_dictionary(chunk.type) for chunk in chunks]
    if any(listed) and not all(listed):
        chunks = [chunk if one else chunk.dictionary_encode() for chunk, one in zip(chunks, listed, strict=True)]
    return pa.chunked_array(chunks or [pa.nulls(0)])
