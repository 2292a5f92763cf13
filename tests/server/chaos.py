"""A server that is restarted whenever it ends, and the disturbances that tests/server/test_chaos.py does to it.

Its clock and its disk are disturbed by a library that is preloaded (disturbed.c), where there is a C compiler. Without
one the disk is full by a limit on the size of files, and no clock jumps. `Chaos.done` lists the disturbances.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from tests.server.shell import Server, eventually, start
from tests.server.test_protocol import recorded, sent
from tests.support.ports import free_port
from tests.support.processes import children

ROOT = Path(__file__).resolve().parent.parent.parent
BACK = 30.0
"""Seconds within which the server is back on a machine that does other work too; the report has the figure itself."""

FILES = ("clinic_private.duckdb", "clinic_private.duckdb.wal")
DAY = 86_400
JUMPS = (-1, 1, -3600, 3600, -400 * DAY, 400 * DAY)
"""Seconds by which the clock is off."""

PATIENCE = 60
"""Seconds for a command of the owner, which waits for what is at work, and for a vault that lost its server."""

LIMITS = ("--memory", "800MB")
MONTHS = 288


def alive(process: int) -> str:
    """Returns a process's name and state. Empty where it is gone, or has ended and waits for its parent."""
    with suppress(OSError):
        stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        words = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        return "" if stat[0] in "ZX" else f"{process} {stat[0]} {words[-120:]}"
    return ""


class Disturbance:
    """The input of disturbed.c: the clock's error, and that of writing. None where there is no compiler."""

    def __init__(self, folder: Path) -> None:
        self.library, self._file = folder / "disturbed.so", folder / "disturbed"
        self._file.write_bytes(bytes(16))
        source = Path(__file__).with_name("disturbed.c")
        compiler = shutil.which("cc")
        built = compiler is not None and subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", str(self.library), str(source), "-ldl", "-lpthread"],
            capture_output=True, check=False,
        ).returncode == 0  # fmt: skip
        self.there = built
        self.environment = {"LD_PRELOAD": str(self.library), "DPDUCK_DISTURBED": str(self._file)} if built else {}
        self.seconds = 0

    def write(self, fails: int = 0) -> None:
        """Changes what running servers see."""
        with self._file.open("r+b") as file, mmap.mmap(file.fileno(), 16) as at:
            at[:] = struct.pack("=qq", self.seconds, fails)

    @contextmanager
    def failing(self, number: int) -> Iterator[None]:
        """Lets every write to a file fail."""
        self.write(number)
        try:
            yield
        finally:
            self.write()


class Chaos:
    """A server that is restarted whenever it ends, and the disturbances."""

    def __init__(self, database: Path, seed: int, hostile: str) -> None:
        self.database, self.address = database, f"quack:localhost:{free_port()}"
        self.port = int(self.address.rpartition(":")[2])
        self.over, self.rng = threading.Event(), np.random.default_rng(seed)
        self.done: Counter[str] = Counter()
        self.back, self.gone = list[float](), list[float]()
        self.hostile_token, self.messages, self.refreshed = hostile, list[bytes](), 0
        self.disturbance, self.copied = Disturbance(database.parent), ""
        self.server: Server = self._start()

    def _start(self) -> Server:
        return start(self.database, *LIMITS, address=self.address, environment=self.disturbance.environment)

    def one(self) -> None:
        """Does one thing to the server, at random."""
        if self.server.process.poll() is not None:
            self.done[f"ended by itself ({self.server.process.returncode})"] += 1
            self._again()
        actions = [self.kill_child, self.kill_child, self.kill_server, self.told_to_end, self.swapped, self.full]
        actions += [self.cut, self.mutated, self.hostile, self.publish, self.prepare, self.refresh, self.refresh]
        actions += [self.read_only, self.clock] if self.disturbance.there else []
        action = actions[self.rng.integers(len(actions))]
        action()
        self.done[action.__name__] += 1

    def _processes(self) -> list[int]:
        found = list[int]()
        with suppress(OSError):  # the process has ended meanwhile
            found = children(self.server.process.pid)
            found += [grandchild for child in found for grandchild in children(child)]
        return found

    def kill_child(self) -> None:
        """Ends the vault, a worker or a runner."""
        with suppress(OSError):
            found = self._processes()
            if found:
                os.kill(found[self.rng.integers(len(found))], signal.SIGKILL)

    def kill_server(self) -> None:
        """Ends the server, and with it its vault. The test starts it again."""
        self._end()
        self._again()

    def told_to_end(self) -> None:
        """Ends the server as it should be, with statements at work: its status is 0."""
        status = self._end(signal.SIGTERM)
        assert status == 0, f"a server that was told to end says {status}"
        self._again()

    def swapped(self) -> None:
        """Puts an older copy of the store in its place: it is refused. With the newer one the server starts again.

        Where nothing was charged meanwhile the copy is no older, and whole.
        """
        room = self.database.parent / "older"
        self._end()
        whole = self._command("verify")
        assert whole.returncode == 0, whole.stdout + whole.stderr
        now = {name: (self.database.parent / name) for name in FILES}
        if room.exists():
            kept = self.database.parent / "newer"
            kept.mkdir()
            for name, path in now.items():
                if path.exists():
                    shutil.move(path, kept / name)
                if (room / name).exists():
                    shutil.copy(room / name, path)
            run = self._command("verify")
            if whole.stdout == self.copied:
                assert run.stdout == self.copied, run.stdout + run.stderr
            else:
                assert run.returncode == 1 and "older" in run.stderr, run.stdout + run.stderr
                self.done["an older copy was refused"] += 1
            for name, path in now.items():
                path.unlink(missing_ok=True)
                if (kept / name).exists():
                    shutil.move(kept / name, path)
            kept.rmdir()
        else:
            room.mkdir()
            self.copied = whole.stdout
            for name, path in now.items():
                if path.exists():
                    shutil.copy(path, room / name)
        self._again()

    def full(self) -> None:
        """Lets nothing be written for a moment, as on a full disk."""
        if self.disturbance.there:
            with self.disturbance.failing(errno.ENOSPC):
                time.sleep(float(self.rng.uniform(0.2, 2)))
            return
        largest = max(path.stat().st_size for path in self.database.parent.iterdir() if path.is_file())
        limited = {}
        for process in children(self.server.process.pid):
            with suppress(OSError):
                limited[process] = resource.prlimit(process, resource.RLIMIT_FSIZE)
                resource.prlimit(process, resource.RLIMIT_FSIZE, (largest, limited[process][1]))
        time.sleep(1)
        for process, before in limited.items():
            with suppress(OSError):
                resource.prlimit(process, resource.RLIMIT_FSIZE, before)

    def read_only(self) -> None:
        """Makes all writing fail, as on a disk that the system has made read-only."""
        with self.disturbance.failing(errno.EROFS):
            time.sleep(float(self.rng.uniform(0.2, 2)))

    def clock(self) -> None:
        """Sets the clock, until it is set again."""
        self.disturbance.seconds = int(self.rng.choice((0, *JUMPS)))
        self.disturbance.write()

    def cut(self) -> None:
        """Sends half of a message, and bytes that are none, and goes away."""
        for given in (b"POST /quack HTTP/1.1\r\nContent-Length: 900\r\n\r\nabc", self.rng.bytes(200)):
            with suppress(OSError), socket.create_connection(("localhost", self.port), 5) as to:
                to.sendall(given)

    def mutated(self) -> None:
        """Sends what clients sent with some bytes changed, or cut in the middle."""
        for _ in range(20 if self.messages else 0):
            head, _, body = self.messages[self.rng.integers(len(self.messages))].partition(b"\r\n\r\n")
            damaged = bytearray(body)
            for _ in range(self.rng.integers(1, 4)):
                if damaged:
                    damaged[self.rng.integers(len(damaged))] = self.rng.integers(256)
            with suppress(OSError):
                cut = bool(self.rng.integers(4) == 0)
                sent(self.port, head + b"\r\n\r\n" + bytes(damaged[: len(damaged) // 2] if cut else damaged),
                     unfinished=cut, patience=1)  # fmt: skip

    def record(self, attach: object) -> None:
        """Keeps the messages of one client, to be changed later. attach: opens a connection at a port, and asks."""
        assert callable(attach)
        with recorded(self.port) as recorder:
            attach(f"quack:localhost:{recorder.port}")
            self.messages = [request for request in recorder.requests if b"\r\n\r\n" in request]

    def publish(self) -> None:
        """Publishes private views through the owner's door."""
        self._command("publish", "--to", str(self.database.parent / "published.duckdb"))

    def prepare(self) -> None:
        """Prepares the table through the owner's door."""
        self._command("prepare")

    def refresh(self) -> None:
        """Publishes one more month of the stream through the owner's door."""
        month = 1 + self.refreshed % MONTHS
        until = f"{2000 + month // 12}-{1 + month % 12:02d}-01"
        run = self._command("sql", f"REFRESH PRIVATE STREAM monthly UNTIL '{until}'")
        self.refreshed += run.returncode == 0

    def hostile(self) -> None:
        """One principal does for some seconds all that tests/server/hostile.py knows."""
        words = ["-m", "tests.server.hostile", str(self.port), self.hostile_token, "3"]
        with suppress(subprocess.TimeoutExpired):
            subprocess.run([sys.executable, *words], capture_output=True, check=False, timeout=60, cwd=ROOT)

    def _command(self, word: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dpduck.commands.command_line", word, str(self.database), *words]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.done[f"{word} not answered in {PATIENCE} s"] += 1
            return subprocess.CompletedProcess(command, -1, "", "")

    def end(self) -> None:
        """Ends the server for good, with the right time and a disk to write on."""
        self.disturbance.seconds = 0
        self.disturbance.write()
        self._end()

    def _end(self, number: int = signal.SIGKILL) -> int:
        orphans = self._processes() if self.server.process.poll() is None else []
        status = self.server.stop(number)
        began = time.monotonic()
        assert eventually(lambda: not any(map(alive, orphans)), 3 * PATIENCE), [alive(one) for one in orphans]
        self.gone.append(time.monotonic() - began)
        for pipe in (self.server.process.stdout, self.server.process.stderr):
            if pipe is not None:
                pipe.close()
        return status

    def _again(self) -> None:
        """Starts the server. Its vault, which ends by itself, may hold the store for a moment."""
        began = time.monotonic()
        while True:
            try:
                self.server = self._start()
                break
            except AssertionError:
                if time.monotonic() - began > BACK:
                    raise
                time.sleep(0.2)
        self.back.append(time.monotonic() - began)
