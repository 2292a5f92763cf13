"""Worker processes that run programs over batches. A batch that fails is halved, until its faulty row is left out.

A row's result is the program's result for that row alone. If a batch raises, crashes its process, fills its memory or
never ends, its other rows are computed without the faulty row. The statement goes on, and only its time differs.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from dpduck.kernel.worker.worker import Room, limit_of
from dpduck.values.child_process import ChildFailed, ChildProcess
from dpduck.values.errors import InternalError

COMMAND = (sys.executable, "-I", str(Path(__file__).with_name("worker.py")))
MEMORY = 3 << 30
"""Bytes that DuckDB may use in a worker."""

ROOM = 9 << 28
"""Bytes of memory that a worker may map, beyond its libraries and threads. The operating system enforces it."""

MAPPED, DATA = (2 << 30, 64 << 20), (5 << 28, 32 << 20)
"""Most bytes of a new worker, and most additional bytes per processor: for address space, and for the worker's data."""

TEXTS = 18
"""All texts that are made of one row may have 1/TEXTS of ROOM, 128 MiB. So no row comes near the limits of memory,
where earlier computations in the same process could matter."""

ROW_SECONDS = 1.0
"""Processor seconds of one row, from which a batch gets its limit (processor_seconds). A row above it is left out."""

PATIENCE = 300.0
"""Seconds after which a process that neither reads nor writes is given up. No allowed SQL sleeps."""

LEAST_ROWS = 4096
"""Batches up to this size are sent whole, even if larger batches before them were too slow."""

MOST_IDLE = 2


@dataclass(frozen=True)
class WorkerProgram:
    """SQL over the table BATCH, with one answer for each row. schema: of the answers. A row left out has NULL.

    tells: whether DuckDB's error texts are sent back. They may quote rows, so this is for made-up rows alone.
    """

    sql: str
    schema: pa.Schema = field(repr=False)
    parameters: dict[str, object] = field(default_factory=dict, repr=False)
    tells: bool = False


def least_room() -> int:
    """Returns the part of ROOM that the limits of a worker and this process surely leave. With less, workers end."""
    processors = os.cpu_count() or 1
    kinds = {resource.RLIMIT_AS: MAPPED, resource.RLIMIT_DATA: DATA}
    left = (limit_of(kind) - started - each * processors for kind, (started, each) in kinds.items())
    return max(0, min(ROOM, *left))


def row_texts() -> int:
    """Returns the largest size in bytes of all texts that are made of one row."""
    return least_room() // TEXTS


class Worker(ChildProcess):
    """One worker process. It is killed if its answer has the wrong form, or is missing."""

    def __init__(self, command: tuple[str, ...] = COMMAND) -> None:
        arguments = map(str, (os.cpu_count() or 1, MEMORY, ROOM, least_room()))
        super().__init__([*command, *arguments], {}, PATIENCE)
        self._program: WorkerProgram | None = None
        self._room = Room()
        self.said, self.spent = "", False

    def prepare(self, program: WorkerProgram) -> None:
        if self._program is None and self._receive()[0] != b"S":
            raise ChildFailed
        if program != self._program:
            sent = {name: getattr(program, name) for name in ("sql", "parameters", "tells")} | {"seconds": ROW_SECONDS}
            self.send(b"P", json.dumps(sent).encode())
            self._program = program

    def begin(self, batch: pa.Table) -> None:
        self.send(b"B", self._room.stream(batch))

    def finish(self, batch: pa.Table, schema: pa.Schema) -> pa.Table | None:
        """Returns the last batch's answer, None if the batch failed. Sets `spent` if the process must be replaced."""
        kind, body = self._receive()
        self.spent, kind = kind.islower(), kind.upper()
        if kind == b"F":
            self.said = bytes(body).decode(errors="replace")
            return None
        if kind != b"R":
            raise ChildFailed
        answer = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
        answer.validate(full=True)
        if answer.num_rows != batch.num_rows or answer.schema.remove_metadata() != schema:
            raise ChildFailed
        return answer

    def _receive(self) -> tuple[bytes, memoryview]:
        return bytes(self.receive(PATIENCE, 1)), self.receive(PATIENCE, ROOM)


class Workers:
    """Worker processes of one database. They start when they are first needed, and wait for further work."""

    complaints: list[str] | None = None
    """Error texts of DuckDB, for made-up rows. None: rows that fail are left out, and no text is noted."""

    def __init__(self, command: tuple[str, ...] = COMMAND, idle: int = MOST_IDLE) -> None:
        """Starts no process yet. idle: largest number of processes that wait for work."""
        self._command, self._most_idle = command, idle
        self._idle: dict[bool, list[Worker]] = {False: [], True: []}
        self._lock = threading.Lock()
        self._closed = False
        weakref.finalize(self, _end_all, self._idle)

    def start(self) -> None:
        """Starts a process for private rows if none is idle, without waiting for it."""
        with self._lock:
            if not self._idle[False] and not self._closed:
                self._idle[False].append(Worker(self._command))

    @contextmanager
    def runner(self, program: WorkerProgram) -> Iterator[Runner]:
        """Yields a runner of one program. Afterwards a sound process serves other runners."""
        runner = Runner(self, program)
        try:
            yield runner
            runner.release()
        finally:
            runner.abandon()

    def take(self, clean: bool = False) -> Worker:
        """Returns an idle process or a new one. clean: True for one that has never read a private row."""
        with self._lock:
            while self._idle[clean]:
                worker = self._idle[clean].pop()
                if worker.alive:
                    return worker
                worker.kill()
        return Worker(self._command)

    def give_back(self, worker: Worker, clean: bool = False) -> None:
        with self._lock:
            if len(self._idle[clean]) < self._most_idle and not self._closed:
                self._idle[clean].append(worker)
                return
        worker.kill()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            _end_all(self._idle)


def _end_all(idle: dict[bool, list[Worker]]) -> None:
    for workers in idle.values():
        while workers:
            workers.pop().kill()


class StrictWorkers(Workers):
    """Processes for made-up rows: a batch that fails ends the job, and DuckDB's error text is noted.

    They have never read a private row. So a rehearsal, which is free, depends on no private row.
    """

    complaints: list[str]

    def __init__(self, pool: Workers) -> None:
        self._pool = pool
        self.complaints = []

    def take(self, clean: bool = True) -> Worker:
        self._pool.start()  # for private rows, which come next
        return self._pool.take(clean)

    def give_back(self, worker: Worker, clean: bool = True) -> None:
        self._pool.give_back(worker, clean)


class Runner:
    """One program over batches. The next batch may `begin` before the answer to the last one is used."""

    def __init__(self, workers: Workers, program: WorkerProgram) -> None:
        self._workers = workers
        self._program = program if workers.complaints is None else replace(program, tells=True)
        self._worker: Worker | None = None
        self._sent: pa.Table | None = None
        self._most = sys.maxsize

    def begin(self, batch: pa.Table) -> None:
        self._sent = None
        if batch.num_rows > self._most:
            return
        try:
            self._current().begin(batch)
            self._sent = batch
        except ChildFailed:
            self.abandon()

    def finish(self, batch: pa.Table) -> pa.Table:
        """Returns the answer to the batch that was begun last. Rows that cannot be computed have NULL."""
        answer = self._receive(batch)
        if answer is None and batch.num_rows == 1 and self._worker is None:
            # the process is gone, perhaps because of an earlier row: only a fresh process gives up a row
            self.begin(batch)
            answer = self._receive(batch)
        return answer if answer is not None else self._halve(batch)

    def check(self, batch: pa.Table) -> pa.Table:
        """Returns the answer to a batch without rows. If the program fails, the program is wrong, and not a row.

        Each call runs the program: an earlier measured time of planning may have been too small.
        """
        self.begin(batch)
        answer = self._receive(batch)
        if answer is not None and not batch.num_rows:
            return answer
        self._complain()
        raise InternalError("a worker does not run this program")

    def compute(self, batch: pa.Table) -> pa.Table:
        self.begin(batch)
        return self.finish(batch)

    def _halve(self, batch: pa.Table) -> pa.Table:
        if self._complain():
            raise InternalError("a row that was made up cannot be computed")
        if batch.num_rows <= 1:
            return pa.Table.from_pylist([{}] * batch.num_rows, self._program.schema)
        middle = batch.num_rows // 2
        return pa.concat_tables([self.compute(batch.slice(0, middle)), self.compute(batch.slice(middle))])

    def _complain(self) -> bool:
        """Notes DuckDB's error text if rows are made up. Returns whether rows are made up."""
        if self._workers.complaints is None:
            return False
        self._workers.complaints.append("" if self._worker is None else self._worker.said)
        return True

    def _receive(self, batch: pa.Table) -> pa.Table | None:
        was_sent, self._sent = self._sent is batch, None
        if self._worker is None or not was_sent:
            return None
        try:
            answer = self._worker.finish(batch, self._program.schema)
            if self._worker.spent:
                self.abandon()
            return answer
        except (OSError, pa.ArrowException):
            if self.abandon():
                self._most = max(LEAST_ROWS, batch.num_rows // 2)
            return None

    def _current(self) -> Worker:
        """Returns a process with the program. Raises InternalError if three processes in a row fail to take it."""
        for _ in range(3):
            self._worker = worker = self._worker or self._workers.take()
            try:
                worker.prepare(self._program)
                return worker
            except ChildFailed:
                self.abandon()
        raise InternalError("a worker process could not be started")

    def release(self) -> None:
        if self._sent is not None:
            self.abandon()
        if self._worker is not None:
            worker, self._worker = self._worker, None
            self._workers.give_back(worker)

    def abandon(self) -> bool:
        """Kills the process. Returns whether it had already ended because it used too much processor time."""
        worker, self._worker = self._worker, None
        return worker is not None and worker.kill() == -signal.SIGPROF
