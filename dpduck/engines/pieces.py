"""Packed rows in an engine: the functions that its tasks run to write and read pieces of whole privacy units.

A piece is a row of the engine's table, with each column as bytes. So no engine can split a unit, and a statement reads
only the columns that it needs. This file is sent unchanged (engines/task.py).
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
"""Columns in an engine: a piece's name, and the number of left-out rows (without a unit, or over CROWD of a unit)."""

PIECE_ROWS = 1 << 16
"""Approximate number of rows of a piece, which has whole units only."""


def packing(tables: Sequence[Sent], key: int, number: int = 0) -> Order:
    """Returns the Order to pack tables, or to bundle rows of table `number`. It keeps at most CROWD rows of a unit."""
    return Order(tuple(tables), (), Asking(""), "", {TABLE: number}, "", 0, key=key)


def rows_name(table: int) -> str:
    """Names the column with the number of a table's rows in a piece."""
    return f"dpduck_rows_{table}"


def bundle_task(
    plain: Mapping[str, Any], given: Iterable[pa.RecordBatch], workers: Workers
) -> Iterator[pa.RecordBatch]:
    """Yields a table's rows in bundles of one bucket each. A bundle is one row, with each column as bytes.

    The last input column is the bucket of a row's unit. The first bundle of each part has the number of left-out rows.
    """
    order, number = orders.order_from(plain), plain["parameters"][TABLE]
    table = order.tables[number]
    for part in orders.parts(given):
        rows = pa.Table.from_arrays([*map(orders.whole_texts, part.columns)], names=part.column_names)
        if table.unit is not None:
            rows = orders.first_rows(order, table, rows.filter(pc.is_valid(rows.column(orders.unit_of(table)))))
        others = part.num_rows - rows.num_rows
        for bucket, bundle in [*orders.bundles(rows)] or [(0, rows.drop_columns(BUCKET))]:
            named = {column_name(0, place): [_pack_column(column)] for place, column in enumerate(bundle.columns)}
            yield pa.RecordBatch.from_pydict({BUCKET: [bucket], TABLE: [number], OTHERS: [others], **named})
            others = 0


def pack_task(plain: Mapping[str, Any], given: pa.Table, workers: Workers) -> pa.Table:
    """Packs the rows of a bucket into pieces of whole units. Each row of the result is a piece.

    For each table, a piece has the columns as bytes and the number of rows. The first piece also has the number of
    left-out rows.
    """
    order, bundles, output = orders.order_from(plain), given.to_pylist(), dict[str, list[Any]]()
    tables = [_of_units(order, number, bundles) for number in range(len(order.tables))]
    chunks = [chunk for _, units in tables for chunk in units.chunks if len(chunk)]
    counted = pc.value_counts(pa.chunked_array(chunks or [pa.nulls(0, pa.int64())]))
    counted = counted.take(pc.sort_indices(counted.field("values")))
    size = sum(rows.nbytes for rows, _ in tables) // max(sum(rows.num_rows for rows, _ in tables), 1) + 1
    places = pc.divide(pc.cumulative_sum(counted.field("counts")), max(1, min(PIECE_ROWS, orders.BUNDLE // size)))
    pieces = pc.unique(places).to_pylist() or [0]
    for number, (rows, units) in enumerate(tables):
        own = places.take(pc.index_in(units, counted.field("values"))) if len(units) else pa.nulls(0, pa.int64())
        others = sum(item[OTHERS] for item in bundles if item[TABLE] == number)
        for piece in pieces:
            part = rows.filter(pc.equal(own, piece))
            output.setdefault(rows_name(number), []).append(part.num_rows + (others if piece == pieces[0] else 0))
            for place, column in enumerate(part.columns):
                output.setdefault(column_name(number, place), []).append(_pack_column(column))
    output |= {BUCKET: [bundles[0][BUCKET]] * len(pieces), PIECE: [f"{bundles[0][BUCKET]}.{item}" for item in pieces]}
    return pa.Table.from_batches(pa.Table.from_pydict(output).to_batches(max_chunksize=1))


def _of_units(order: Order, number: int, bundles: Sequence[Mapping[str, Any]]) -> tuple[pa.Table, pa.ChunkedArray]:
    """Returns a table's rows and the unit of each row, from bundles. Both are sorted by unit.

    Units of any integer type become 64-bit integers. If the table has no unit column, each row is a unit.
    """
    table, own = order.tables[number], [item for item in bundles if item[TABLE] == number]
    columns = [_unpack_column(own, column_name(0, place)) for place in range(len(table.columns))]
    plain = [item.cast(item.type.value_type) if pa.types.is_dictionary(item.type) else item for item in columns]
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
    """Yields the sums of an Order over about PART rows at a time, with the names of the pieces that hold these rows."""
    order, pieces, count = orders.order_from(plain), list[Mapping[str, Any]](), 0
    private = list(enumerate(table for table in order.tables if table.rows is None))
    for piece in chain(chain.from_iterable(batch.to_pylist() for batch in given), [None]):
        if pieces and (piece is None or count >= PART):
            columns = [
                [_unpack_column(pieces, column_name(n, k)) for k, _ in enumerate(table.columns)] for n, table in private
            ]
            rows = [pa.Table.from_arrays(own, names=list(map(str, range(len(own))))) for own in columns]
            batches = orders.run_order(order, rows, workers).to_batches(max_chunksize=BATCH)
            sums: list[bytes | None] = [*map(orders.to_bytes, batches)] or [None]
            names = [" ".join(item[PIECE] for item in pieces), *[""] * (len(sums) - 1)]
            yield pa.RecordBatch.from_pydict({PIECE: names, PARTIAL: pa.array(sums, pa.binary())})
            pieces, count = [], 0
        if piece is not None:
            pieces, count = [*pieces, piece], count + sum(piece[rows_name(number)] for number, _ in private)


def _pack_column(column: pa.ChunkedArray) -> bytes:
    """Writes a column as compressed bytes. Texts are dictionary-encoded if fewer than half are distinct."""
    array = column.combine_chunks()
    if pa.types.is_string(array.type) and 2 * pc.count_distinct(array, mode="all").as_py() < len(array):
        array = array.dictionary_encode()
    return orders.to_bytes(pa.record_batch([array], names=[PIECE]), "zstd")


def _unpack_column(pieces: Sequence[Mapping[str, Any]], name: str) -> pa.ChunkedArray:
    """Reads a column from pieces. The whole column is dictionary-encoded if a piece of it is."""
    chunks = [chunk for piece in pieces for chunk in pa.ipc.open_stream(piece[name]).read_all().column(0).chunks]
    chunks = [chunk for chunk in chunks if len(chunk)]
    listed = [pa.types.is_dictionary(chunk.type) for chunk in chunks]
    if any(listed) and not all(listed):
        chunks = [chunk if flag else chunk.dictionary_encode() for chunk, flag in zip(chunks, listed, strict=True)]
    return pa.chunked_array(chunks or [pa.nulls(0)])
