"""Runs programs over batches in worker processes; a batch that fails is halved, down to the row that is left out.

What a row becomes is what the program makes of it alone. Whether a batch raises, crashes its process, fills its memory
or never ends, the other rows of the batch are computed without it, and the statement goes on: only time differs.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from dpduck.trusted.rows.worker import HEAD, Room
from dpduck.values.errors import InternalError

COMMAND = (sys.executable, "-I", str(Path(__file__).with_name("worker.py")))
MEMORY = 1 << 30
"""What DuckDB may use in a worker."""

ADDRESS_SPACE = 4 << 30
"""What the operating system lets a worker map, its libraries included."""

ROW_SECONDS = 1.0
"""How long one row may take; a row that takes longer contributes nothing."""

BATCH_SECONDS_A_ROW = 50e-6
"""What is added for each row of a batch, before it is halved for being slow."""

START_SECONDS = 60.0
MOST_IDLE = 2


@dataclass(frozen=True)
class Program:
    """SQL over the table BATCH that answers each row once. schema: of its answer, which is NULL for a row left out.

    tells: whether DuckDB's words are wanted where it fails: they may quote rows, which then are made up.
    """

    sql: str
    schema: pa.Schema = field(repr=False)
    parameters: dict[str, object] = field(default_factory=dict, repr=False)
    tells: bool = False


class WorkerFailed(Exception):
    """The process is gone or was ended."""


class Worker:
    """One process; it is ended whenever anything but a plain answer comes of it."""

    def __init__(self, command: tuple[str, ...] = COMMAND) -> None:
        arguments = (str(os.cpu_count() or 1), str(MEMORY), str(ADDRESS_SPACE))
        self._process = subprocess.Popen(  # noqa: S603
            [*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise InternalError("a worker without pipes")
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        self._program: Program | None = None
        self._ready = False
        self._room = Room()
        self.said = ""

    def prepare(self, program: Program) -> None:
        """Sends a program, where it is not the last one."""
        if not self._ready:
            if self._frame(time.monotonic() + START_SECONDS)[0] != b"S":
                raise WorkerFailed
            self._ready = True
        if program != self._program:
            text = json.dumps({"sql": program.sql, "parameters": program.parameters, "tells": program.tells})
            self._write(b"P", text.encode(), time.monotonic() + START_SECONDS)
            self._program = program

    def send(self, batch: pa.Table) -> None:
        """Sends a batch; its answer is waited for by `receive`."""
        self._write(b"B", self._room.stream(batch), time.monotonic() + _seconds(batch))

    def receive(self, batch: pa.Table, schema: pa.Schema) -> pa.Table | None:
        """The answer to the batch that was sent last; None where it failed and the process lives on."""
        kind, body = self._frame(time.monotonic() + _seconds(batch))
        if kind == b"F":
            self.said = body.to_pybytes().decode(errors="replace")
            return None
        if kind != b"R":
            raise WorkerFailed
        try:
            found = pa.ipc.open_stream(body).read_all()
        except pa.ArrowException:
            raise WorkerFailed from None
        if found.num_rows != batch.num_rows or found.schema.remove_metadata() != schema:
            raise WorkerFailed
        return found

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def _write(self, kind: bytes, body: bytes | memoryview, deadline: float) -> None:
        for part in (HEAD.pack(kind, len(body)), body):
            view = memoryview(part)
            while view:
                try:
                    view = view[os.write(self._input, view) :]
                except BlockingIOError:
                    self._wait(self._input, select.POLLOUT, deadline)
                except OSError:
                    raise WorkerFailed from None

    def _frame(self, deadline: float) -> tuple[bytes, pa.Buffer]:
        kind, length = HEAD.unpack(self._read(HEAD.size, deadline))
        if length > ADDRESS_SPACE:
            raise WorkerFailed
        return kind, self._read(length, deadline)

    def _read(self, count: int, deadline: float) -> pa.Buffer:
        found = pa.allocate_buffer(count)
        view, filled = memoryview(found), 0
        while filled < count:
            try:
                read = os.readv(self._output, [view[filled:]])
            except BlockingIOError:
                self._wait(self._output, select.POLLIN, deadline)
                continue
            if not read:
                raise WorkerFailed
            filled += read
        return found

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise WorkerFailed


def _seconds(batch: pa.Table) -> float:
    """How long a batch may take; one without rows, which no row decides about, as long as a start."""
    return ROW_SECONDS + int(batch.num_rows) * BATCH_SECONDS_A_ROW if batch.num_rows else START_SECONDS


class Workers:
    """Worker processes of one database, started when they are first needed and kept warm."""

    complaints: list[str] | None = None
    """Where failures are noted instead of passed over: over rows that are made up."""

    def __init__(self, command: tuple[str, ...] = COMMAND) -> None:
        self._command = command
        self._idle: list[Worker] = []
        self._lock = threading.Lock()
        self._closed = False
        weakref.finalize(self, _end_all, self._idle)

    def start(self) -> None:
        """Starts a process where none is idle, without waiting for it."""
        with self._lock:
            if not self._idle and not self._closed:
                self._idle.append(Worker(self._command))

    @contextmanager
    def runner(self, program: Program) -> Iterator[Runner]:
        """Runs one program; the process behind it is kept for the next one if it is sound."""
        runner = Runner(self, program)
        try:
            yield runner
        except BaseException:
            runner.abandon()
            raise
        runner.release()

    def take(self) -> Worker:
        """An idle process or a new one."""
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.alive:
                    return worker
                worker.end()
        return Worker(self._command)

    def give_back(self, worker: Worker) -> None:
        """Keeps a sound process, or ends it where enough are idle."""
        with self._lock:
            if len(self._idle) < MOST_IDLE and not self._closed:
                self._idle.append(worker)
                return
        worker.end()

    def close(self) -> None:
        """Ends every idle process."""
        with self._lock:
            self._closed = True
            _end_all(self._idle)


def _end_all(workers: list[Worker]) -> None:
    while workers:
        workers.pop().end()


class StrictWorkers(Workers):
    """The same processes for rows that are made up: a batch that fails ends the job, and what DuckDB says is kept."""

    def __init__(self, pool: Workers) -> None:
        self._pool = pool
        self.complaints = []

    def take(self) -> Worker:
        return self._pool.take()

    def give_back(self, worker: Worker) -> None:
        self._pool.give_back(worker)


class Runner:
    """One program over batch after batch: `begin` the next one while the answer of the last one is used."""

    def __init__(self, workers: Workers, program: Program) -> None:
        self._workers = workers
        self._program = program if workers.complaints is None else replace(program, tells=True)
        self._worker: Worker | None = None
        self._sent: pa.Table | None = None

    def begin(self, batch: pa.Table) -> None:
        """Sends a batch; a failure shows when its answer is asked for."""
        self._sent = None
        try:
            self._current().send(batch)
            self._sent = batch
        except WorkerFailed:
            self.abandon()

    def finish(self, batch: pa.Table) -> pa.Table:
        """The answer to the batch that was begun last, NULL for rows that cannot be computed."""
        found = self._received(batch) if self._sent is batch else None
        self._sent = None
        if found is None and batch.num_rows == 1 and self._worker is None:
            # the process is gone, perhaps for what an earlier row did: a row is given up by a fresh one alone
            self.begin(batch)
            found = self._received(batch) if self._sent is batch else None
            self._sent = None
        return found if found is not None else self._halved(batch)

    def check(self, batch: pa.Table) -> pa.Table:
        """The answer to a batch without rows; a program that fails on it is a defect, of which no row is the reason."""
        self.begin(batch)
        found = self._received(batch) if self._sent is batch else None
        self._sent = None
        if found is None and self._workers.complaints is not None:
            self._workers.complaints.append("" if self._worker is None else self._worker.said)
        if found is None or batch.num_rows:
            raise InternalError("a worker does not run this program")
        return found

    def compute(self, batch: pa.Table) -> pa.Table:
        """Both at once."""
        self.begin(batch)
        return self.finish(batch)

    def _halved(self, batch: pa.Table) -> pa.Table:
        if self._workers.complaints is not None:
            self._workers.complaints.append("" if self._worker is None else self._worker.said)
            raise InternalError("a row that was made up cannot be computed")
        if batch.num_rows <= 1:
            return pa.Table.from_arrays(
                [pa.nulls(batch.num_rows, part.type) for part in self._program.schema], schema=self._program.schema
            )
        middle = batch.num_rows // 2
        halves = [self.compute(batch.slice(0, middle)), self.compute(batch.slice(middle))]
        return pa.concat_tables(halves)

    def _received(self, batch: pa.Table) -> pa.Table | None:
        if self._worker is None:
            return None
        try:
            return self._worker.receive(batch, self._program.schema)
        except WorkerFailed:
            self.abandon()
            return None

    def _current(self) -> Worker:
        """The process, with the program; a new one is tried twice before it counts as a failure of the machine."""
        for _ in range(3):
            worker = self._worker or self._workers.take()
            self._worker = worker
            try:
                worker.prepare(self._program)
                return worker
            except WorkerFailed:
                self.abandon()
        raise InternalError("a worker process could not be started")

    def release(self) -> None:
        """Gives the process back; one that still computes is ended."""
        if self._sent is not None:
            self.abandon()
        if self._worker is not None:
            worker, self._worker = self._worker, None
            self._workers.give_back(worker)

    def abandon(self) -> None:
        """Ends the process."""
        if self._worker is not None:
            worker, self._worker = self._worker, None
            worker.end()
