"""Runner: a process that runs statements of principals over copies of released tables, one at a time.

It has no token, no file, no private row and no import of dpduck. It may be killed at any time, so that no statement
exceeds its time or memory. Messages between processes have the format of `pack`.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import duckdb
import pyarrow as pa

Message = dict[str, Any]
LATE, MEMORY, ROWS, BYTES, FAILED = "late", "memory", "rows", "bytes", "failed"
"""Reasons why a statement has no result."""

_MEMORY = ("bad_alloc", "failed to allocate", "Cannot allocate memory", "malloc of size")
_VALUES_AT_ONCE = 2_000_000
ROWS_AT_ONCE = 65_536
"""Rows of an Arrow batch. DuckDB reserves memory for a whole batch of every column, even for few rows."""

_ALIGNMENT = 64
_DECIMAL = re.compile(r"DECIMAL\([0-9]+,[0-9]+\)")


def pack(message: Message, table: pa.Table | None = None) -> bytes:
    """Writes a message as bytes: the length of its JSON, the JSON, the rows."""
    head = json.dumps(message).encode()
    head += b" " * (-(4 + len(head)) % _ALIGNMENT)  # aligned, since Arrow reads in place
    return b"".join((len(head).to_bytes(4, "big"), head, b"" if table is None else _stream(table)))


def unpack(data: bytes | memoryview) -> tuple[Message, pa.Table | None]:
    """Reads a message from its bytes."""
    end = 4 + int.from_bytes(data[:4], "big")
    message: Message = json.loads(bytes(data[4:end]))
    if end == len(data):
        return message, None
    with pa.ipc.open_stream(pa.py_buffer(memoryview(data)[end:])) as reader:
        return message, reader.read_all()


def _stream(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def create_table(cursor: duckdb.DuckDBPyConnection, name: str, columns: list[tuple[str, str]], rows: pa.Table) -> None:
    """Creates a table of released rows. name: the full name, quoted. columns: names and DuckDB types."""
    listed = ", ".join(f'"{column.replace(chr(34), chr(34) * 2)}" {kind}' for column, kind in columns)
    cursor.register("dpduck_rows", rows)
    cursor.execute(f"CREATE TABLE {name} ({listed})")
    cursor.execute(f"INSERT INTO {name} SELECT * FROM dpduck_rows")
    cursor.unregister("dpduck_rows")


def shown_sql(sql: str, names: Sequence[str], types: Sequence[str], letters: int, keeps: Callable[[str], bool]) -> str:
    """Returns a SELECT for display. Values of types that `keeps` rejects become texts of at most `letters` letters.

    names: all columns. types: types of the first columns. Only these columns are shown.
    """
    parts = []
    for place, (name, kind) in enumerate(zip(distinct(list(names))[: len(types)], types, strict=True)):
        value = f"c{place}" if keeps(kind) else f"left(CAST(c{place} AS VARCHAR), {letters})"
        parts.append(f'{value} AS "{name.replace(chr(34), chr(34) * 2)}"')
    columns = ", ".join(f"c{place}" for place in range(len(names)))
    return f"SELECT {', '.join(parts)} FROM ({sql}\n) AS dpduck_shown({columns})"


def distinct(names: list[str]) -> list[str]:
    """Makes names distinct, like the column names of a table. A repeated name gets a number.

    >>> distinct(["n", "N", "m"])
    ['n', 'N_1', 'm']
    """
    taken: dict[str, int] = {}
    distinct_names = []
    for name in names:
        folded = name.lower()
        taken[folded] = taken.get(folded, -1) + 1
        distinct_names.append(name if not taken[folded] else f"{name}_{taken[folded]}")
    return distinct_names


@contextmanager
def clock(cursor: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[Callable[[], bool]]:
    """Interrupts the cursor after `seconds`. Yields a function that tells whether this has happened."""
    rung = threading.Event()

    def ring() -> None:
        rung.set()
        cursor.interrupt()

    timer = threading.Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    try:
        yield rung.is_set
    finally:
        timer.cancel()
        timer.join()  # the cursor may be closed from here on


class Instance:
    """DuckDB instance of a runner, with a method for each kind of message."""

    def __init__(self, setup: list[str], memory: str, threads: int) -> None:
        self._root = duckdb.connect(":memory:", config={"memory_limit": memory, "threads": threads})
        for statement in setup:
            self._root.execute(statement)

    def put(self, message: Message, rows: pa.Table) -> None:
        create_table(self._root, str(message["name"]), [(n, k) for n, k in message["columns"]], rows)

    def drop(self, message: Message) -> None:
        for name in message["names"]:
            self._root.execute(f"DROP TABLE IF EXISTS {name}")

    def run(self, message: Message) -> tuple[Message, pa.Table | None]:
        with self._root.cursor() as cursor, clock(cursor, message["seconds"]) as late:
            try:
                return _result(cursor, message)
            except (duckdb.FatalException, duckdb.InternalException) as error:
                raise EOFError from error  # the instance cannot be used any more
            except Exception as error:  # while rows are read, Arrow replaces DuckDB's errors by its own
                said = str(error).strip().split("\n", 1)[0][:300].split(": ", 1)[-1]
                memory = isinstance(error, (MemoryError, duckdb.OutOfMemoryException))
                memory = memory or any(word in said for word in _MEMORY)
                return {"why": LATE if late() else MEMORY if memory else FAILED, "said": said}, None


def _result(cursor: duckdb.DuckDBPyConnection, message: Message) -> tuple[Message, pa.Table | None]:
    sql = message["sql"]
    if message.get("letters") is not None:
        bound = cursor.sql(f"SELECT * FROM ({sql}\n) LIMIT 0")
        short = frozenset(message["short"])  # names of types: this process has no table of types
        types = [_DECIMAL.sub("DECIMAL", str(kind)) for kind in bound.types]
        sql = shown_sql(sql, bound.columns, types, message["letters"], short.__contains__)
    relation = cursor.sql(f"SELECT * FROM ({sql}\n) LIMIT {message['rows'] + 1}")
    columns = list(zip(distinct(relation.columns), map(str, relation.types), strict=True))
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    with relation.to_arrow_reader(max(2_048, min(ROWS_AT_ONCE, _VALUES_AT_ONCE // len(columns)))) as reader:
        schema = reader.schema
        for batch in reader:
            batches.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows > message["rows"]:
                return {"why": ROWS}, None
            if size > message["bytes"]:
                return {"why": BYTES}, None
    return {"columns": columns}, pa.Table.from_batches(batches, schema)


def end_with(descriptor: int) -> None:
    """Ends the process when the other end of its pipe is gone, even while DuckDB works. Nobody else would end it."""
    poller = select.poll()
    poller.register(descriptor, 0)  # poll always reports a hang-up
    poller.poll()
    os._exit(0)


def main() -> None:
    """Carries out messages from the socket until its other end hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with, args=(0,), daemon=True).start()
    pipe = Connection(0)
    try:
        message, _ = unpack(pipe.recv_bytes())
        runner = Instance(message["setup"], message["memory"], message["threads"])
        pipe.send_bytes(pack({"ready": True}))
        while True:
            message, rows = unpack(pipe.recv_bytes())
            if message["do"] == "put":
                runner.put(message, rows)
            elif message["do"] == "drop":
                runner.drop(message)
            else:
                pipe.send_bytes(pack(*runner.run(message)))
    except (EOFError, OSError, MemoryError, duckdb.Error):
        return  # the other end sees that this process has gone, and starts another


if __name__ == "__main__":
    main()
