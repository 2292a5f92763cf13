"""Runs the vault in another process, and asks it over a pipe. If the process ends, the next question starts another."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpduck.server.idle_vault import KINDNESS, PATIENCE, Keeping, begin_idle_vault
from dpduck.server.runner_process import Message, pack, unpack
from dpduck.server.vault import ReleasedRows, Reply
from dpduck.server.vault_messages import reply_from, rows_from
from dpduck.store.cursors import Ceiling
from dpduck.values.child_process import ChildProcess
from dpduck.values.errors import Refusal, StoreError

ENDED = "the vault's process ended; accepted: the same statement again, which pays once at most"
_LAST_RELEASES = 45.0
WATCH = 15.0, 60.0
"""Seconds between two checks of the process, and seconds of failed checks until it is killed."""

IDLE_AFTER = 5.0
"""Seconds until an idle process starts beside a vault, so that its imports do not slow the first answers."""

TOGETHER = 2
"""Times that a question is asked beside others, before it is asked alone. A charge is begun three times at most."""

Answer = tuple[Message, pa.Table | None]


class _Ended(StoreError): ...


class VaultProcess:
    """Vault in a separate process, which this object starts. The first question waits for the start. Thread-safe."""

    def __init__(
        self,
        database: Path,
        store: Path | None = None,
        keeping: Keeping | None = None,
        watch: tuple[float, float] = WATCH,
        idle: ChildProcess | None = None,
    ) -> None:
        """idle: a process that has already started. If given, an idle process always waits to replace a dead vault."""
        setup = {"database": str(database), "store": None if store is None else str(store)}
        self._opening = pack({**setup, "kindness": os.nice(0) + KINDNESS, "keeping": asdict(keeping or Keeping())})
        self._idle, self._keeps_idle = idle, idle is not None
        self._lock, self._again = threading.Lock(), threading.Lock()
        self._numbers, self.starts = itertools.count(), 0
        self._waiting, self._ended = dict[int, Future[Answer]](), threading.Event()
        self._closing = threading.Event()
        self._begin()
        threading.Thread(target=self._watch, args=watch, daemon=True).start()

    def wait(self) -> None:
        """Waits until the process is ready. Raises StoreError if it cannot open the vault."""
        with self._lock:
            self._require_ready()

    def ask(
        self, principal: str, action: str, argument: str | None, seconds: float, ceiling: Ceiling | None = None
    ) -> Reply:
        """Asks a question, and waits up to `seconds` for the answer. A release that takes longer goes on.

        If the process ends during a question, the question is asked once more, and pays at most once. Mostly something
        else ended the process, so all such questions are asked at once. If it ends again, they are asked one at a time.
        So other questions do not fail if one of them ends the process each time.
        """
        given = principal, action, argument, seconds, ceiling
        try:
            for _ in range(TOGETHER):
                with suppress(_Ended):
                    return reply_from(self._call("ask", *given, patience=seconds)[0])
            with self._again:
                return reply_from(self._call("ask", *given, patience=seconds)[0])
        except NotYet:
            raise Refusal(
                f"the release takes longer than {seconds:g} s and goes on", accepted="the same statement again: no cost"
            ) from None

    def rows(self, principal: str, key: str, most: int, most_bytes: int) -> ReleasedRows:
        return rows_from(*self._call("rows", principal, key, most, most_bytes))

    def views(self) -> dict[str, str]:
        return dict(self._call("views")[0]["views"])

    def view(self, name: str) -> ReleasedRows:
        return rows_from(*self._call("view", name))

    def spending(self) -> dict[str, float]:
        return {str(unit): float(share) for unit, share in self._call("spending")[0]["spending"].items()}

    @property
    def ready(self) -> bool:
        """Tells whether the process can answer now. It never waits for a process that starts."""
        return self._is_ready and not self._ended.is_set() and not self._closing.is_set() and self._vault.alive

    @property
    def waiting(self) -> int:
        """Counts the questions that the process has not answered yet."""
        return len(self._waiting)

    def close(self) -> None:
        """Ends the process after its running releases, or kills it if they take too long."""
        self._closing.set()
        self._end_idle()
        with suppress(OSError), socket.socket(fileno=os.dup(self._vault.pipe.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)  # closing alone would not wake the thread that reads
        with suppress(subprocess.TimeoutExpired):
            self._vault.process.wait(_LAST_RELEASES)
        self._vault.kill()

    def _call(self, operation: str, *given: Any, patience: float = PATIENCE) -> Answer:
        number, future = next(self._numbers), Future[Answer]()
        data = pack({"id": number, "do": operation, "with": given})
        with self._lock:
            if self._closing.is_set():
                raise StoreError(ENDED)
            if self._ended.is_set() or not self._vault.alive:
                self._vault.kill()  # after a hang-up it may still be ending
                try:
                    self._begin()
                except OSError:  # the system has no room for a process
                    raise StoreError(ENDED) from None
            self._require_ready()
            waiting = self._waiting
            waiting[number] = future
            try:
                self._vault.send(data)
            except OSError:
                self._ended.set()
                del waiting[number]
                raise _Ended(ENDED) from None
        try:
            message, table = future.result(patience)
        except NotYet:
            if operation == "ask":
                raise
            raise StoreError(ENDED) from None
        finally:
            with self._lock:
                waiting.pop(number, None)
        if "error" in message:
            raise StoreError(str(message["error"]))
        return message, table

    def _watch(self, every: float, most: float) -> None:
        """Kills a process that fails its checks for `most` seconds. Without memory, it may neither answer nor end.

        A check uses the parts that every question needs (LocalVault.well). The next question starts another process.
        """
        well, vault = time.monotonic(), self._vault
        while not self._closing.wait(every):
            if self._is_ready:
                self._keep_idle()
            if self._vault is not vault or not self._is_ready or not vault.alive:
                well, vault = time.monotonic(), self._vault
                continue
            with suppress(StoreError, MemoryError):
                self._call("well", patience=every)
                well = time.monotonic()
            if time.monotonic() - well > most:
                vault.process.kill()

    def _begin(self) -> None:
        """Sends the opening message to the idle process, or to a new one, without waiting for the answer."""
        idle, self._idle = self._idle, None
        if idle is not None and not idle.alive:
            idle.kill()
            idle = None
        self._vault = idle or begin_idle_vault()
        # Each process has its own: the thread that sees the old one end must not end questions to the new one.
        self._waiting, self._ended = {}, threading.Event()
        self._is_ready, self.starts = False, self.starts + 1
        with suppress(OSError):  # it has just ended, so that _require_ready will fail
            self._vault.send(self._opening)

    def _keep_idle(self) -> None:
        with self._lock:
            if not self._keeps_idle or (self._idle is not None and self._idle.alive):
                return
            self._end_idle()
            with suppress(OSError):  # the system has no room for it
                self._idle = begin_idle_vault()  # not kind to others: if a vault ends, everyone waits for this one
            if self._closing.is_set():
                self._end_idle()

    def _end_idle(self) -> None:
        idle, self._idle = self._idle, None
        if idle is not None:
            idle.kill()

    def _require_ready(self) -> None:
        """Waits once for the process's first message. Raises StoreError if the vault could not be opened."""
        if self._is_ready:
            return
        try:
            message, _ = unpack(self._vault.receive(None))
        except OSError:
            self._vault.process.wait()
            raise StoreError(
                "the vault's process could not start; accepted: a database that this user can read"
            ) from None
        if "failed" in message:
            self._vault.process.wait()
            raise StoreError(str(message["failed"]))
        self._is_ready = True
        if self._keeps_idle:
            later = threading.Timer(IDLE_AFTER, self._keep_idle)
            later.daemon = True
            later.start()
        threading.Thread(target=self._listen, args=(self._vault, self._waiting, self._ended), daemon=True).start()

    def _listen(self, vault: ChildProcess, waiting: dict[int, Future[Answer]], ended: threading.Event) -> None:
        """Gives every answer to the thread that waits for it. When the process ends, all waiting threads fail."""
        while True:
            try:
                message, table = unpack(vault.receive(None))
            except OSError:
                break
            with self._lock:
                future = waiting.pop(int(message["id"]), None)
            if future is not None:
                future.set_result((message, table))
        ended.set()
        with self._lock:
            left = list(waiting.values())
            waiting.clear()
        for future in left:
            future.set_exception(_Ended(ENDED))
