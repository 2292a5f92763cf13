"""Worker processes that run programs over batches. A batch that fails is halved, down to the row that is left out.

A row's result is the program's result for that row alone. If a batch raises, crashes its process, fills its memory or
never ends, its other rows are computed without the row at fault. The statement goes on: only time differs.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from dpduck.kernel.worker.worker import HEAD, Room, limit_of
from dpduck.values.errors import InternalError

COMMAND = (sys.executable, "-I", str(Path(__file__).with_name("worker.py")))
MEMORY = 3 << 30
"""Bytes that DuckDB may use in a worker."""

ROOM = 9 << 28
"""Bytes that the operating system lets a worker map beside its libraries and threads."""

MAPPED, DATA = (2 << 30, 64 << 20), (5 << 28, 32 << 20)
"""Most bytes of a worker that has just started, and most for each processor: of address space, and of its own data."""

TEXTS = 18
"""All texts that are made of one row may have 1/TEXTS of ROOM, 128 MiB: no row comes near the limits of memory then,
where earlier computations in a process could matter."""

ROW_SECONDS = 1.0
"""Processor seconds for one row, besides a margin (worker.allowed). A row that uses more contributes nothing."""

PATIENCE = 300.0
"""Seconds after which a process that neither reads nor says anything is given up: nothing allowed in it sleeps."""

LEAST_ROWS = 4096
"""Batches up to this size are not halved in advance, however slow the ones before were."""

MOST_IDLE = 2


@dataclass(frozen=True)
class WorkerProgram:
    """SQL over the table BATCH that answers each row once. schema: schema of the answer, NULL for a row left out.

    tells: whether DuckDB's error texts are wanted. They may quote rows, which then are made up.
    """

    sql: str
    schema: pa.Schema = field(repr=False)
    parameters: dict[str, object] = field(default_factory=dict, repr=False)
    tells: bool = False


def least_room() -> int:
    """Returns the bytes of ROOM that a worker surely has by its own limits and this process's. With fewer it ends."""
    processors = os.cpu_count() or 1
    kinds = {resource.RLIMIT_AS: MAPPED, resource.RLIMIT_DATA: DATA}
    left = (limit_of(kind) - started - each * processors for kind, (started, each) in kinds.items())
    return max(0, min(ROOM, *left))


def row_texts() -> int:
    """Returns the most bytes of all texts that are made of one row."""
    return least_room() // TEXTS


class WorkerFailed(Exception):
    """Failure of a process that is gone or was ended."""


class Worker:
    """One process. It is ended whenever it gives anything but a plain answer."""

    def __init__(self, command: tuple[str, ...] = COMMAND) -> None:
        arguments = map(str, (os.cpu_count() or 1, MEMORY, ROOM, least_room()))
        self._process = subprocess.Popen(  # noqa: S603
            [*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise InternalError("a worker without pipes")
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        self._program: WorkerProgram | None = None
        self._ready = False
        self._room = Room()
        self.said, self.spent = "", False

    def prepare(self, program: WorkerProgram) -> None:
        """Sends a program, unless it is the last one."""
        if not self._ready:
            if self._frame()[0] != b"S":
                raise WorkerFailed
            self._ready = True
        if program != self._program:
            sent = {name: getattr(program, name) for name in ("sql", "parameters", "tells")} | {"seconds": ROW_SECONDS}
            self._write(b"P", json.dumps(sent).encode())
            self._program = program

    def send(self, batch: pa.Table) -> None:
        """Sends a batch. `receive` waits for its answer."""
        self._write(b"B", self._room.stream(batch))

    def receive(self, batch: pa.Table, schema: pa.Schema) -> pa.Table | None:
        """Returns the answer to the last batch. None if it failed and the process lives on, or is spent."""
        kind, body = self._frame()
        self.spent, kind = kind.islower(), kind.upper()
        if kind == b"F":
            self.said = body.to_pybytes().decode(errors="replace")
            return None
        if kind != b"R":
            raise WorkerFailed
        try:
            answer = pa.ipc.open_stream(body).read_all()
        except pa.ArrowException:
            raise WorkerFailed from None
        if answer.num_rows != batch.num_rows or answer.schema.remove_metadata() != schema:
            raise WorkerFailed
        return answer

    def end(self) -> bool:
        """Ends the process. Tells whether it had been ended for using too much of the processor."""
        self._process.kill()
        slow = self._process.wait() == -signal.SIGPROF
        for pipe in filter(None, (self._process.stdin, self._process.stdout)):
            pipe.close()
        return slow

    @property
    def alive(self) -> bool:
        """Tells whether the process runs."""
        return self._process.poll() is None

    def _write(self, kind: bytes, body: bytes | memoryview) -> None:
        for part in (HEAD.pack(kind, len(body)), body):
            view = memoryview(part)
            while view:
                try:
                    view = view[os.write(self._input, view) :]
                except BlockingIOError:
                    self._wait(self._input, select.POLLOUT)
                except OSError:
                    raise WorkerFailed from None

    def _frame(self) -> tuple[bytes, pa.Buffer]:
        kind, length = HEAD.unpack(self._read_bytes(HEAD.size))
        if length > ROOM:
            raise WorkerFailed
        return kind, self._read_bytes(length)

    def _read_bytes(self, count: int) -> pa.Buffer:
        buffer = pa.allocate_buffer(count)
        view, filled = memoryview(buffer), 0
        while filled < count:
            try:
                read = os.readv(self._output, [view[filled:]])
            except BlockingIOError:
                self._wait(self._output, select.POLLIN)
                continue
            if not read:
                raise WorkerFailed
            filled += read
        return buffer

    def _wait(self, descriptor: int, event: int) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        if not poll.poll(PATIENCE * 1000):
            raise WorkerFailed


class Workers:
    """Worker processes of one database, started when they are first needed and kept warm."""

    complaints: list[str] | None = None
    """Failures that are noted instead of passed over, for rows that are made up. None passes over failures."""

    def __init__(self, command: tuple[str, ...] = COMMAND, idle: int = MOST_IDLE) -> None:
        """Starts no process yet. idle: the most processes that are kept while nobody uses them."""
        self._command, self._most_idle = command, idle
        self._idle: list[Worker] = []
        self._clean: list[Worker] = []
        self._lock = threading.Lock()
        self._closed = False
        weakref.finalize(self, _end_all, self._idle, self._clean)

    def start(self) -> None:
        """Starts a process for private rows if none is idle, without waiting for it."""
        with self._lock:
            if not self._idle and not self._closed:
                self._idle.append(Worker(self._command))

    @contextmanager
    def runner(self, program: WorkerProgram) -> Iterator[Runner]:
        """Lends a runner of one program. Its process is kept for the next one if it is sound."""
        runner = Runner(self, program)
        try:
            yield runner
        except BaseException:
            runner.abandon()
            raise
        runner.release()

    def take(self, clean: bool = False) -> Worker:
        """Returns an idle process or a new one. clean: whether it must never have computed a private row."""
        with self._lock:
            idle = self._clean if clean else self._idle
            while idle:
                worker = idle.pop()
                if worker.alive:
                    return worker
                worker.end()
        return Worker(self._command)

    def give_back(self, worker: Worker, clean: bool = False) -> None:
        """Keeps a sound process, or ends it if enough are idle."""
        with self._lock:
            idle = self._clean if clean else self._idle
            if len(idle) < self._most_idle and not self._closed:
                idle.append(worker)
                return
        worker.end()

    def close(self) -> None:
        """Ends every idle process."""
        with self._lock:
            self._closed = True
            _end_all(self._idle, self._clean)


def _end_all(*pools: list[Worker]) -> None:
    for workers in pools:
        while workers:
            workers.pop().end()


class StrictWorkers(Workers):
    """Processes for rows that are made up: a batch that fails ends the job, and DuckDB's error text is kept.

    They never computed a private row. Otherwise their used memory would depend on such rows, and so would a rehearsal,
    which costs no budget.
    """

    complaints: list[str]

    def __init__(self, pool: Workers) -> None:
        self._pool = pool
        self.complaints = []

    def take(self, clean: bool = True) -> Worker:
        self._pool.start()  # for private rows, which are next
        return self._pool.take(clean)

    def give_back(self, worker: Worker, clean: bool = True) -> None:
        self._pool.give_back(worker, clean)


class Runner:
    """One program over batch after batch: `begin` the next one while the last answer is used."""

    def __init__(self, workers: Workers, program: WorkerProgram) -> None:
        self._workers = workers
        self._program = program if workers.complaints is None else replace(program, tells=True)
        self._worker: Worker | None = None
        self._sent: pa.Table | None = None
        self._most = sys.maxsize

    def begin(self, batch: pa.Table) -> None:
        """Sends a batch, unless it will be halved anyway. A failure shows when its answer is asked for."""
        self._sent = None
        if batch.num_rows > self._most:
            return
        try:
            self._current().send(batch)
            self._sent = batch
        except WorkerFailed:
            self.abandon()

    def finish(self, batch: pa.Table) -> pa.Table:
        """Returns the answer to the batch that was begun last, NULL for rows that cannot be computed."""
        answer = self._receive(batch)
        if answer is None and batch.num_rows == 1 and self._worker is None:
            # the process is gone, perhaps because of an earlier row: only a fresh process gives up a row
            self.begin(batch)
            answer = self._receive(batch)
        return answer if answer is not None else self._halve(batch)

    def check(self, batch: pa.Table) -> pa.Table:
        """Answers a batch without rows. A program that fails on it is a defect, and no row is the reason.

        It is asked each time, since it measures the present time of planning. On a busy machine an earlier measure can
        be too small: rehearsals failed, and no row was the reason.
        """
        self.begin(batch)
        answer = self._receive(batch)
        if answer is not None and not batch.num_rows:
            return answer
        self._complain()
        raise InternalError("a worker does not run this program")

    def compute(self, batch: pa.Table) -> pa.Table:
        """Begins and finishes a batch."""
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
        """Keeps DuckDB's error text on rows that are made up. Returns False if they are not."""
        if self._workers.complaints is None:
            return False
        self._workers.complaints.append("" if self._worker is None else self._worker.said)
        return True

    def _receive(self, batch: pa.Table) -> pa.Table | None:
        was_sent, self._sent = self._sent is batch, None
        if self._worker is None or not was_sent:
            return None
        try:
            answer = self._worker.receive(batch, self._program.schema)
            if self._worker.spent:
                self.abandon()
            return answer
        except WorkerFailed:
            if self.abandon():
                self._most = max(LEAST_ROWS, batch.num_rows // 2)
            return None

    def _current(self) -> Worker:
        """Returns the process, with the program. A new one is tried twice before it counts as the machine's failure."""
        for _ in range(3):
            self._worker = worker = self._worker or self._workers.take()
            try:
                worker.prepare(self._program)
                return worker
            except WorkerFailed:
                self.abandon()
        raise InternalError("a worker process could not be started")

    def release(self) -> None:
        """Gives the process back. One that still computes is ended."""
        if self._sent is not None:
            self.abandon()
        if self._worker is not None:
            worker, self._worker = self._worker, None
            self._workers.give_back(worker)

    def abandon(self) -> bool:
        """Ends the process. Tells whether it had been ended before, for using too much of the processor."""
        worker, self._worker = self._worker, None
        return worker is not None and worker.end()
