"""Orders: one job as data, and one function that an engine's task runs over the rows of whole privacy units.

A task computes as this process does: rows to integers, with a worker process for the analyst's expressions, and then
the sums of stage.py. These add up over tasks, since no unit is in two tasks. This file is sent to the engine unchanged
(engines/task.py), with the files of dpduck that it imports.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from dpduck.kernel.rows import reader
from dpduck.kernel.worker.answered import Asking, answer_rows
from dpduck.kernel.worker.worker import CONFIG
from dpduck.kernel.worker.workers import WorkerProgram, Workers, least_room
from dpduck.values.errors import InternalError
from dpduck.values.quoting import quote_identifier

BATCH = 65_536
PART = 1 << 20
"""Most rows of a part. Units with very many rows lose rows part by part."""

BUNDLE = 1 << 21
"""Most bytes of a bundle of several rows. An engine may refuse to pass on more than 4 MiB at once."""

CROWD = 1 << 14
"""Most rows of a unit in each table, if tables are joined or rows counted for each unit. All others are left out."""

MEMORY = "4GiB"
"""Memory that DuckDB may use in a task, beside the rows that the engine handed over and the worker's process."""

WAITING = 1 << 20
"""Most rows of units with over CROWD rows that a task holds back, to choose among all rows of such a unit at once."""

TABLE, BUCKET, PARTIAL = "dpduck_table", "dpduck_bucket", "dpduck_partial"
"""An engine's names for the number of a row's table, the bucket of its unit, and the result of a task."""

ALIKE, GROUPS, CROWDED = "dpduck_alike", 1 << 16, 1024
"""Column that groups units by a hash, number of such groups, and rows up to which a group loses none. Each part keeps
at least as many rows of a unit, so that fewer units need a sort."""

_GIVEN, _PLACE = "dpduck_given", "dpduck_place"


@dataclass(frozen=True)
class Sent:
    """A table that a task reads. rows: a public table's rows in Arrow. unit: the column with a row's unit, if any."""

    parts: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    rows: bytes | None = field(default=None, repr=False)
    unit: str | None = None

    @property
    def sql(self) -> str:
        return ".".join(map(quote_identifier, self.parts))


@dataclass(frozen=True)
class Order:
    """Work on rows of whole units. tables: private ones first, in the order in which rows are handed over.

    stage_sql: SQL from integers to sums, with parameters. passes: DuckDB's optimizer passes that are off. room: memory
    that a worker must be sure to have (workers.least_room). With less, the worker might compute other rows than this
    process.
    before: order on parts of the rows. Its results are the rows of this order. crowds: order that drops rows that
    cannot count. key: key of the hash by which CROWD rows of a unit are kept in each table, None if all are kept.
    """

    tables: tuple[Sent, ...]
    stages: tuple[Asking, ...]
    asking: Asking
    stage_sql: str
    parameters: Mapping[str, object] = field(repr=False)
    passes: str
    room: int
    before: Order | None = None
    crowds: Order | None = None
    key: int | None = field(default=None, repr=False)

    def plain(self) -> dict[str, Any]:
        """Returns the order as it is sent, without `before`. All types are of the standard library or of pyarrow."""
        return asdict(replace(self, before=None))


def order_from(plain: Mapping[str, Any]) -> Order:
    """Reads the order that Order.plain wrote."""
    tables = tuple(Sent(**table) for table in plain["tables"])
    stages, crowds = tuple(map(_asking, plain["stages"])), plain["crowds"]
    crowds = None if crowds is None else order_from(crowds)
    return Order(**{**plain, "tables": tables, "stages": stages, "asking": _asking(plain["asking"]), "crowds": crowds})


def _asking(plain: Mapping[str, Any]) -> Asking:
    program = plain["program"]
    return Asking(**{**plain, "program": None if program is None else WorkerProgram(**program)})


def run_order(order: Order, rows: Sequence[pa.Table], workers: Workers) -> pa.Table:
    """Computes the sums of an order. rows: the rows of each private table, with its columns in their order."""
    if least_room() < order.room:
        raise InternalError(reader.FAILED)
    limits = {"threads": 1, "memory_limit": MEMORY}
    with duckdb.connect(":memory:", config=CONFIG | limits) as connection:
        given = iter(rows)
        for number, table in enumerate(order.tables):
            own = first_rows(order, table, next(given)) if table.rows is None else read_bytes(table.rows)
            _lay(connection, table, own, f"{_GIVEN}_{number}", numbered=bool(order.stages))
        settings = ("SET TimeZone = 'UTC'", f"SET disabled_optimizers = '{order.passes}'", reader.BUILT_IN_ONLY)
        for setting in (*settings, reader.SMALL_BUFFER, "SET lock_configuration = true"):
            reader.run(connection, setting)
        with answer_rows(connection, order.stages, order.asking, workers) as (second, own_parameters):
            given_parameters = {**own_parameters, **order.parameters}
            return pa.concat_tables(reader.batches(second, order.stage_sql, given_parameters, BATCH))


def first_rows(order: Order, table: Sent, rows: pa.Table) -> pa.Table:
    """Returns each unit's first CROWD rows by a keyed hash of the sent columns: a function of that unit's rows alone.

    The first rows of a table are among the first rows of its parts. Tied rows are equal, even in the sign of 0.
    """
    if order.key is None or table.unit is None or not len(_many(rows.column(unit_of(table)), CROWD + 1)):
        return rows
    names = [f"dpduck_{number}" for number in range(len(table.columns))]
    unit = names[unit_of(table)]
    signs = [f"signbit(dpduck_{n})" for n, (_, kind) in enumerate(table.columns) if kind in ("FLOAT", "DOUBLE")]
    ranked = ", ".join([f"hash(CAST($key AS UBIGINT), {', '.join(names)})", *names, *signs])
    columns = [*map(whole_texts, rows.columns[: len(names)]), pa.array(range(rows.num_rows), pa.int64())]
    whole = pa.Table.from_arrays(columns, names=[*names, _PLACE])
    with duckdb.connect(":memory:", config=CONFIG | {"threads": 1, "memory_limit": MEMORY}) as connection:
        connection.register(_GIVEN, whole)
        crowds = f"SELECT {unit} FROM {_GIVEN} GROUP BY {unit} HAVING count(*) > {CROWD}"
        window = f"row_number() OVER (PARTITION BY {unit} ORDER BY {ranked})"
        others = f"SELECT {_PLACE} FROM (FROM {_GIVEN} SEMI JOIN ({crowds}) USING ({unit})) QUALIFY {window} > {CROWD}"
        left_out = pa.concat_tables(reader.batches(connection, others, {"key": order.key}, BATCH)).column(0)
    return rows.filter(pc.invert(pc.is_in(whole.column(_PLACE), value_set=left_out))) if len(left_out) else rows


def unit_of(table: Sent) -> int:
    """Returns the position of the column with the unit of a row."""
    return [name for name, _ in table.columns].index(str(table.unit))


def _many(column: pa.ChunkedArray, least: int) -> pa.Array:
    counted = pc.value_counts(column)
    return counted.field("values").filter(pc.greater_equal(counted.field("counts"), least))


def _lay(connection: duckdb.DuckDBPyConnection, table: Sent, rows: pa.Table, name: str, *, numbered: bool) -> None:
    """Puts rows under a table's name, cast to its types. numbered: whether the rows need a rowid."""
    database, schema, _ = table.parts
    names = [f"dpduck_{number}" for number in range(len(table.columns))]
    whole = pa.Table.from_arrays([*map(whole_texts, rows.columns)], names=names)
    reader.run(connection, f"ATTACH IF NOT EXISTS ':memory:' AS {quote_identifier(database)}")
    reader.run(connection, f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(database)}.{quote_identifier(schema)}")
    typed = ", ".join(
        f"CAST(dpduck_{n} AS {of}) AS {quote_identifier(column)}" for n, (column, of) in enumerate(table.columns)
    )
    connection.register(name, whole)
    kind = "TABLE" if numbered else "VIEW"
    reader.run(connection, f"CREATE {kind} {table.sql} AS SELECT {typed} FROM {name}")


def whole_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns a column with NULL in place of texts that are not valid UTF-8, since such a text could end a task."""
    if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
        return column
    return pa.chunked_array([_whole_text(chunk) for chunk in column.chunks], type=column.type)


def _whole_text(chunk: pa.Array) -> pa.Array:
    try:
        chunk.validate(full=True)
    except pa.ArrowInvalid:
        texts = [(raw, (raw or b"").decode(errors="ignore")) for raw in chunk.cast(pa.large_binary()).to_pylist()]
        return pa.array([text if text.encode() == raw else None for raw, text in texts], chunk.type)
    return chunk


def answer_task(plain: Mapping[str, Any], given: pa.Table, workers: Workers) -> pa.Table:
    """Returns the sums of an order over the rows of a task. Each batch is bytes, which the engine does not read."""
    order = order_from(plain)
    sums = run_order(order, _by_table(order, given), workers)
    return pa.Table.from_pydict({PARTIAL: pa.array(map(to_bytes, sums.to_batches(max_chunksize=BATCH)), pa.binary())})


def _by_table(order: Order, given: pa.Table) -> list[pa.Table]:
    rows, private = [], [table for table in order.tables if table.rows is None]
    if PARTIAL in given.column_names:
        return [pa.concat_tables(read_bytes(body.as_buffer()) for body in given[PARTIAL])]
    for number, table in enumerate(private):
        own = given.filter(pc.equal(given[TABLE], number)) if len(private) > 1 else given
        rows.append(own.select([column_name(number, place) for place in range(len(table.columns))]))
    return rows


def cut_task(plain: Mapping[str, Any], given: Iterable[pa.RecordBatch], workers: Workers) -> Iterator[pa.RecordBatch]:
    """Yields the first rows of each unit by an order's key. Rows of a few units at the limit wait for the next part."""
    order, waiting = order_from(plain), list[pa.Table]()
    for rows in parts(given):
        ready, waiting = _without_crowds(order, pa.concat_tables([*waiting, rows]))
        yield from ready.to_batches(max_chunksize=BATCH)
    for rows in waiting:
        yield from rows.to_batches(max_chunksize=BATCH)


def made_task(plain: Mapping[str, Any], given: Iterable[pa.RecordBatch], workers: Workers) -> Iterator[pa.RecordBatch]:
    """Yields the results of an order over parts of the rows, in bundles by the bucket of the unit (the last column)."""
    order = order_from(plain)
    for rows in parts(given):
        for bucket, bundle in bundles(_cut_crowds(order, run_order(order, _by_table(order, rows), workers), workers)):
            (batch,) = bundle.combine_chunks().to_batches()
            yield pa.RecordBatch.from_pydict({BUCKET: [bucket], PARTIAL: pa.array([to_bytes(batch)], pa.binary())})


def _cut_crowds(order: Order, integers: pa.Table, workers: Workers) -> pa.Table:
    """Drops rows of integers that cannot count, for units of a part that may have very many rows.

    Units with one value of ALIKE are counted together. If such a group has few rows, so has each of its units.
    """
    many = _many(integers.column(ALIKE), CROWDED + 1)
    if not len(many):
        return integers.drop_columns(ALIKE)
    if order.crowds is None:
        raise InternalError(reader.FAILED)
    crowded = pc.is_in(integers.column(ALIKE), value_set=many)
    rows, others = integers.filter(crowded).drop_columns([ALIKE, BUCKET]), integers.filter(pc.invert(crowded))
    cut = run_order(order.crowds, [rows], workers).select(integers.column_names).cast(integers.schema)
    return pa.concat_tables([others, cut]).drop_columns(ALIKE)


def bundles(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yields each bucket (the last column) with its rows, in bundles of few bytes that go from task to task."""
    rows = rows.combine_chunks()  # with one chunk, both calls take a quarter of the time
    rows = rows.take(pc.sort_indices(rows.column(BUCKET)))
    start = 0
    for counted in pc.value_counts(rows.column(BUCKET)).to_pylist():
        waiting = [rows.slice(start, counted["counts"]).drop_columns(BUCKET)]
        while waiting:
            part = waiting.pop()
            half = part.num_rows // 2 if part.nbytes > BUNDLE else 0
            if half:
                waiting += [part.slice(half), part.slice(0, half)]
            else:
                yield counted["values"], part
        start += counted["counts"]


def parts(given: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yields rows in tables of at most PART rows, if no batch is larger."""
    part, count = list[pa.RecordBatch](), 0
    for batch in given:
        if part and count + batch.num_rows > PART:
            yield pa.Table.from_batches(part)
            part, count = [], 0
        part, count = [*part, batch], count + batch.num_rows
    if part:
        yield pa.Table.from_batches(part)


def _without_crowds(order: Order, rows: pa.Table) -> tuple[pa.Table, list[pa.Table]]:
    """Returns each unit's first rows. Rows of units with CROWD rows come separately, unless they are too many."""
    (table,) = order.tables
    first = first_rows(order, table, rows)
    crowds = _many(first.column(unit_of(table)), CROWD)
    if not len(crowds) or len(crowds) * CROWD > WAITING:
        return first, []
    waits = pc.is_in(first.column(unit_of(table)), value_set=crowds)
    return first.filter(pc.invert(waits)), [first.filter(waits)]


def to_bytes(batch: pa.RecordBatch, compression: str | None = None) -> bytes:
    """Writes rows as bytes of Arrow."""
    sink, options = pa.BufferOutputStream(), pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def read_bytes(body: bytes | pa.Buffer) -> pa.Table:
    """Reads rows from bytes of Arrow."""
    return pa.ipc.open_stream(body).read_all()


def column_name(table: int, column: int) -> str:
    """Returns a column's name in the engine. It consists of numbers, so it tells the engine nothing."""
    return f"dpduck_{table}_{column}"
