"""Index of the answers that wait for their readers: their principals and sizes, and which ones are removed first."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from dpduck.server.limits import Limits
from dpduck.server.vault import ReleasedRows

YOUNG = 60.0
"""Seconds after its last use in which an answer is not removed for others, since its reader may not have begun."""


@dataclass(frozen=True)
class _Entry:
    principal: str
    size: Size
    used: float


class AnswerIndex:
    """Index of stored answers by key, the longest unused first. Many threads may use it.

    Beyond a principal's limit, its own longest unused answers are removed. Beyond the limit of all principals together,
    only answers are removed that were not used for YOUNG seconds.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def touch(self, key: str) -> bool:
        """Tells whether the index has an answer. If so, the answer counts as just used."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return False
            self._entries[key] = _Entry(entry.principal, entry.size, time.monotonic())
            self._entries.move_to_end(key)
            return True

    def size(self, key: str) -> Size | None:
        with self._lock:
            entry = self._entries.get(key)
        return None if entry is None else entry.size

    def enter(self, principal: str, key: str, size: Size) -> None:
        with self._lock:
            self._entries[key] = _Entry(principal, size, time.monotonic())

    def unread(self) -> list[str]:
        """Removes all answers that were not used for YOUNG seconds, and returns their keys."""
        now = time.monotonic()
        with self._lock:
            return self._remove_keys([key for key, entry in self._entries.items() if now - entry.used >= YOUNG])

    def room_for(self, principal: str, size: Size) -> list[str]:
        """Removes answers until there is room for a new one of this size, and returns the removed keys."""
        limits, now = self._limits, time.monotonic()
        with self._lock:
            own = [key for key, entry in self._entries.items() if entry.principal == principal]
            gone = self._first(own, size, limits.kept_each, limits.kept_bytes_each, limits.kept_rows // 2)
            old = [key for key, entry in self._entries.items() if key not in gone and now - entry.used >= YOUNG]
            left = [key for key in self._entries if key not in gone]
            needed = self._first(left, size, limits.kept, limits.kept_bytes, limits.kept_rows)
            gone += old[: len(needed)]
            return self._remove_keys(gone)

    def _first(self, keys: list[str], size: Size, most: int, most_bytes: int, most_rows: int) -> list[str]:
        """Returns the first keys that must be removed so that the rest and a new answer stay within these limits."""
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

    def _remove_keys(self, keys: list[str]) -> list[str]:
        for key in keys:
            del self._entries[key]
        return keys


@dataclass(frozen=True)
class Size:
    """Size of a table of released rows."""

    rows: int
    columns: int
    bytes: int


NOTHING = Size(0, 0, 0)


def size_of(rows: ReleasedRows) -> Size:
    """Returns the size of released rows."""
    return Size(rows.table.num_rows, len(rows.columns), rows.table.nbytes)
