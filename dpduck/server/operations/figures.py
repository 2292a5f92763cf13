"""Figures of a running server for its owner: spending, refusals, queues, connections. No rows, statements or names."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from dpduck.server.gate import Service
from dpduck.server.vault_client import VaultProcess
from dpduck.values.errors import DpduckError

FRESH = 5.0
"""Seconds for which figures are kept, so that asking for them often costs nothing."""

Count = Callable[[], int]


@dataclass(frozen=True)
class Figures:
    """State of a server. ready: whether a statement could be answered now. spending: the spent share of each budget.

    events: the number of lines of the audit log by kind. running: statements at the gate. waiting: questions that the
    vault has not answered. restarts: of the vault. sessions: open connections by protocol. left_out: private views
    without room. free_bytes: of the store's disk, None if unknown. ends: the last moment of each principal's token.
    """

    ready: bool
    seconds: float
    spending: Mapping[str, float] = field(default_factory=dict)
    events: Mapping[str, int] = field(default_factory=dict)
    running: int = 0
    waiting: int = 0
    restarts: int = 0
    sessions: Mapping[str, int] = field(default_factory=dict)
    views: int = 0
    left_out: int = 0
    free_bytes: int | None = None
    principals: int = 0
    ends: Mapping[str, datetime] = field(default_factory=dict)


class FigureReader:
    """Reader of a server's figures. Many threads may use it."""

    def __init__(
        self,
        service: Service,
        store: Path | None,
        sessions: Mapping[str, Count],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """store: the file of the store. sessions: a function for each protocol that counts its open connections."""
        self._service, self._store, self._sessions, self._clock = service, store, sessions, clock
        self._begun, self._lock = clock(), threading.Lock()
        self._last: Figures | None = None
        self._last_at = 0.0
        self._spending: dict[str, float] = {}
        self.version = version("dpduck")

    def ready(self) -> bool:
        """Tells whether a statement could be answered now. It waits for nothing."""
        vault = self._service.vault
        return self._service.gate.accepts() and (not isinstance(vault, VaultProcess) or vault.ready)

    def collect(self) -> Figures:
        """Returns figures that are at most FRESH seconds old, but for `ready`."""
        with self._lock:
            ready = self.ready()
            if self._last is None or self._clock() - self._last_at >= FRESH or self._last.ready is not ready:
                self._last, self._last_at = self._collect(ready), self._clock()
            return self._last

    def _collect(self, ready: bool) -> Figures:
        service, vault = self._service, self._service.vault
        if ready:  # a vault that starts would be waited for, so that the last shares stand meanwhile
            with suppress(DpduckError):
                self._spending = vault.spending()
        in_force = []
        with suppress(DpduckError, OSError):
            in_force = [principal for principal in service.book.all() if principal.in_force()]
        return Figures(
            ready=ready,
            seconds=self._clock() - self._begun,
            spending=dict(sorted(self._spending.items())),
            events=service.audit.counts(),
            running=service.gate.running(),
            waiting=vault.waiting if isinstance(vault, VaultProcess) else 0,
            restarts=vault.starts - 1 if isinstance(vault, VaultProcess) else 0,
            sessions={name: count() for name, count in self._sessions.items()},
            views=len(service.public.marks()),
            left_out=len(service.gate.left_out()),
            free_bytes=_free_bytes(self._store),
            principals=len(in_force),
            ends={principal.name: principal.until for principal in in_force if principal.until is not None},
        )


def _free_bytes(store: Path | None) -> int | None:
    """Returns the bytes that this account may still write to the disk of a file."""
    if store is None:
        return None
    try:
        disk = os.statvfs(store.parent)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize
