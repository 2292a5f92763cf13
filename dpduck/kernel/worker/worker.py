"""Worker: computes an analyst's expressions over batches of rows, in a process that holds nothing else.

This file is run by its path and imports nothing of dpduck, so that an engine's worker can be sent it unchanged. The
process has no environment, no file but its one socket, and no way to open another file or a socket. Its DuckDB reaches
nothing outside itself. If an expression raises, crashes, uses too much memory, or never returns, the calling process
gets one answer: this batch failed. That process halves the batch (see workers).

Frames on standard input come in pairs: one for the kind, one for the content. P: a program as JSON. B: a batch as an
Arrow stream. R: its result. F: it failed, with DuckDB's message if the program says that its rows are made up. r and f:
as R and F, but this process must get no more batches. S: the process is ready.

The operating system ends the process if a batch uses more of the processor than it may (ITIMER_PROF), and refuses
memory beyond a limit (RLIMIT_AS). Time without a processor does not count, so a busy machine leaves out no row. A row
alone may use a multiple of a batch's allowance. So a row that succeeds in any batch also succeeds alone.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import struct
import sys
import time
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

BATCH = "dpduck_batch"
CHUNK = 30_720
"""Rows that one thread takes at a time, a multiple of VECTOR."""

VECTOR = 2048
"""Rows that DuckDB computes together."""

SHARE = 6
"""A batch may take 1/SHARE of the memory that is left at the start. A single row gets at least five times that, even if
earlier rows left memory in use. A single row is computed twice, and DuckDB doubles its blocks for texts."""

PLANNING = 5
"""Processor seconds that planning may take in a rehearsal. They do not count as seconds of rows."""

COUNTED = "/proc/self/statm"
HEAD = struct.Struct("!IcI")
"""Header of a frame: a kind of one byte, and the length of the frame that follows (values/child_process)."""

ORDINARY = (duckdb.ConversionException, duckdb.InvalidInputException, duckdb.OutOfRangeException)
"""Errors after which DuckDB can go on. Any other exception ends the process."""

PASSES = ("expression_rewriter",)
"""DuckDB's optimizer passes that stay on: this one folds constants. All others are off, also unknown ones. Some move an
expression in the plan, or read statistics of the batch."""

CONFIG: dict[str, Any] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "arrow_large_buffer_size": "true",
    "temp_directory": "",
}


def evaluate(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: dict[str, object], batch: pa.Table
) -> pa.Table:
    """Runs a program over a batch. The result has one row for each row of the batch, in the same order.

    A row that would be alone in its vector is put into it twice. DuckDB 2.0 takes the result of COALESCE over one row
    for a constant, and if that is NULL, leaves out arguments that raise. Then the number of other rows would matter.
    """
    rows = batch.num_rows
    if any(part.num_rows % VECTOR == 1 for part in batch.to_batches()):
        last_row = [batch.slice(rows - 1)] if rows % VECTOR == 1 else []
        batch = pa.concat_tables([batch, *last_row]).combine_chunks()
    connection.register(BATCH, batch)
    try:
        result: pa.Table = connection.sql(sql, params=parameters or None).to_arrow_table()
    finally:
        connection.unregister(BATCH)
    if result.num_rows != batch.num_rows:
        raise ValueError("a program answers every row once")
    return result.slice(0, rows)


def open_database(threads: int, memory: int) -> duckdb.DuckDBPyConnection:
    """Opens a DuckDB in memory without access to files or networks. Its configuration is locked."""
    limits: dict[str, Any] = {"threads": threads, "memory_limit": f"{memory >> 20}MiB"}
    connection = duckdb.connect(":memory:", config=CONFIG | limits)
    connection.execute("SET TimeZone = 'UTC'")
    listed = connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()
    connection.execute(f"SET disabled_optimizers = '{','.join(name for (name,) in listed if name not in PASSES)}'")
    connection.execute("SET lock_configuration = true")
    return connection


class Room:
    """Reusable buffer for frames, since a new buffer for each frame takes longer than a copy."""

    def __init__(self) -> None:
        self._memory = pa.allocate_buffer(0)

    def of(self, count: int) -> memoryview:
        """Returns memory for `count` bytes. Its previous content is written over."""
        if self._memory.size < count:
            self._memory = pa.allocate_buffer(count)
        return memoryview(self._memory)[:count]

    def stream(self, table: pa.Table) -> memoryview:
        """Writes a table as an Arrow stream, in chunks that threads can share. Returns the stream's memory."""
        counter = pa.MockOutputStream()
        write_stream(counter, table)
        view = self.of(counter.size())
        with pa.FixedSizeBufferWriter(self._memory) as sink:
            write_stream(sink, table)
        return view


def write_stream(sink: pa.NativeFile, table: pa.Table) -> None:
    """Writes a table as an Arrow stream."""
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=CHUNK)


def read_exactly(pipe: socket.socket, view: memoryview) -> None:
    """Fills memory from the socket. Ends the process at the end of input. A signal may cut a read short."""
    while view:
        count = pipe.recv_into(view, flags=socket.MSG_WAITALL)
        if not count:
            os._exit(0)
        view = view[count:]


def write_frames(pipe: socket.socket, kind: bytes, body: bytes | memoryview) -> None:
    """Writes a frame with the kind, and one with the body, to the socket."""
    pipe.sendall(HEAD.pack(1, kind, len(body)))
    pipe.sendall(body)


class Memory:
    """Limit of the address space of a batch: the whole grant for a batch of one row, else 1/SHARE.

    The grant is `room` bytes, in addition to what the process maps at its start, which grows with the machine's
    processors. It is less if a parent limited the process's address space or its data (a vault does).
    """

    def __init__(self, room: int) -> None:
        self._counted = os.open(COUNTED, os.O_RDONLY) if Path(COUNTED).exists() else None
        self._mapped, data = self._usage()
        self.left = min(room, limit_of(resource.RLIMIT_AS) - self._mapped, limit_of(resource.RLIMIT_DATA) - data)
        self._most, self._shared = self._mapped + self.left, self._mapped + self.left // SHARE
        self.allow(2)

    def allow(self, rows: int) -> None:
        """Sets the limit for a batch of `rows` rows. The process may later raise the limit, up to the whole grant."""
        resource.setrlimit(resource.RLIMIT_AS, (self._most if rows == 1 else self._shared, self._most))

    def outgrown(self) -> bool:
        """Tells whether a single row left more memory in use than a batch may have, for later batches to use."""
        return self._usage()[0] > self._shared

    def _usage(self) -> tuple[int, int]:
        if self._counted is None:  # a system that does not count memory does not limit it
            return 2 << 30, 2 << 30
        pages = os.pread(self._counted, 128, 0).split()
        return int(pages[0]) * resource.getpagesize(), int(pages[5]) * resource.getpagesize()


def limit_of(kind: int) -> int:
    """Returns the operating system's limit of a resource, in bytes."""
    soft, _ = resource.getrlimit(kind)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def seal() -> None:
    """Forbids core files, and any further file or socket."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


def processor_seconds(seconds: float, rows: int, planning: float) -> float:
    """Returns the processor seconds that a batch may use, if one row may use `seconds`.

    planning: measured seconds of planning over no rows. A batch gets twice that, since times vary. A single row is
    computed twice (evaluate), perhaps in a process that must first ask for memory. So a single row gets more time.
    """
    return 6 * planning + 4 * seconds if rows == 1 else 2 * planning + seconds / 2


class _WorkerPandasBlocker(MetaPathFinder):
    """Import finder that raises for pandas as if it were not installed."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("not needed here", name=fullname)


def do_without_pandas() -> None:
    """Keeps DuckDB from importing pandas for a bound parameter. That takes 0.3 s and 90 MB in every process."""
    sys.meta_path.insert(0, _WorkerPandasBlocker())


def serve(threads: int, memory: int, space: int, least: int) -> None:
    """Answers frames until input ends, or a failure that is not ORDINARY. space: bytes to map, at least `least`."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # signals that a parent ignores or blocks are inherited
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGPROF,))
    connection, pipe = open_database(threads, memory), socket.socket(fileno=0)
    warm = pa.table({"x": pa.array(["1"], pa.large_string())})
    received, sent, head = Room(), Room(), memoryview(bytearray(HEAD.size))
    sent.stream(evaluate(connection, f"SELECT TRY_CAST(x AS DOUBLE) FROM {BATCH}", {}, warm))
    evaluate(connection, f"SELECT x = $p FROM {BATCH}", {"p": "1"}, warm)
    room = Memory(space)
    if room.left < least:
        return
    seal()
    write_frames(pipe, b"S", b"")
    sql, parameters, tells, seconds, empty = "", {}, False, 0.0, -1.0
    while True:
        read_exactly(pipe, head)
        _, kind, length = HEAD.unpack(head)
        body = received.of(length)
        read_exactly(pipe, body)
        if kind == b"P":
            program = json.loads(bytes(body))
            sql, parameters, tells = program["sql"], program["parameters"], program["tells"]
            seconds, empty = program["seconds"], -1.0
            continue
        try:
            batch = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
            if empty < 0 or not batch.num_rows:  # planning is timed apart from rows
                room.allow(1)  # planning needs its memory, whatever the rows are
                empty = -time.process_time()
                result = evaluate(connection, sql, parameters, batch.slice(0, 0))
                empty += time.process_time()
                if tells and (empty > PLANNING or room.outgrown()):  # in a rehearsal: equal for all rows
                    raise duckdb.InvalidInputException(f"planning takes more than {PLANNING} seconds, or much memory")
            if batch.num_rows:
                room.allow(batch.num_rows)
                signal.setitimer(signal.ITIMER_PROF, processor_seconds(seconds, batch.num_rows, empty))
                result = evaluate(connection, sql, parameters, batch)
            status, answer = b"R", sent.stream(result)
        except ORDINARY as error:
            status, answer = b"F", memoryview(str(error).encode() if tells else b"")
        signal.setitimer(signal.ITIMER_PROF, 0)
        write_frames(pipe, status.lower() if room.outgrown() else status, answer)
        room.allow(2)


if __name__ == "__main__":
    do_without_pandas()
    os.chdir("/")
    serve(*map(int, sys.argv[1:5]))
