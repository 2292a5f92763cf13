"""What the window keeps for readers who have not come yet: whose it is, how large, and what goes first."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from dpduck.server.limits import Limits
from dpduck.server.sizes import Size

YOUNG = 60.0
"""Seconds for which an answer is surely kept from others: its reader may not have begun yet."""


@dataclass(frozen=True)
class _Entry:
    principal: str
    size: Size
    used: float


class Kept:
    """Answers by key, the longest unused first; safe to use from many threads.

    A principal has a share of the room, and makes room for what is new by what is the principal's own. Others' answers
    go only where all of them together are too many, and only when they are not young.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def used(self, key: str) -> bool:
        """Whether an answer is here; if so it counts as just used."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return False
            self._entries[key] = _Entry(found.principal, found.size, time.monotonic())
            self._entries.move_to_end(key)
            return True

    def size(self, key: str) -> Size | None:
        with self._lock:
            found = self._entries.get(key)
        return None if found is None else found.size

    def enter(self, principal: str, key: str, size: Size) -> None:
        with self._lock:
            self._entries[key] = _Entry(principal, size, time.monotonic())

    def unread(self) -> list[str]:
        """Takes everything that is not young out, and says what it was."""
        now = time.monotonic()
        with self._lock:
            return self._taken([key for key, entry in self._entries.items() if now - entry.used >= YOUNG])

    def room_for(self, principal: str, size: Size) -> list[str]:
        """Takes out what has to go for something of this size, and says what it was."""
        limits, now = self._limits, time.monotonic()
        with self._lock:
            own = [key for key, entry in self._entries.items() if entry.principal == principal]
            gone = self._first(own, size, limits.kept_each, limits.kept_bytes_each, limits.kept_rows // 2)
            old = [key for key, entry in self._entries.items() if key not in gone and now - entry.used >= YOUNG]
            left = [key for key in self._entries if key not in gone]
            needed = self._first(left, size, limits.kept, limits.kept_bytes, limits.kept_rows)
            gone += old[: len(needed)]
            return self._taken(gone)

    def _first(self, keys: list[str], size: Size, most: int, most_bytes: int, most_rows: int) -> list[str]:
        """The first of these, as many as have to go so that the rest and something new stay below these bounds."""
        count, rows, used = len(keys) + 1, size.rows, size.bytes
        for key in keys:
            rows, used = rows + self._entries[key].size.rows, used + self._entries[key].size.bytes
        gone: list[str] = []
        for key in keys:
            if count <= most and rows <= most_rows and used <= most_bytes:
                break
            gone.append(key)
            entry = self._entries[key]
            count, rows, used = count - 1, rows - entry.size.rows, used - entry.size.bytes
        return gone

    def _taken(self, keys: list[str]) -> list[str]:
        for key in keys:
            del self._entries[key]
        return keys
