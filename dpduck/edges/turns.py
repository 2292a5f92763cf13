"""One at a time for equal work, at the same time for different work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Turns:
    """A lock for each name that is in work; names at rest are forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def turn(self, name: str, waits: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Waits until nobody else works under this name. waits: called where somebody does."""
        with self._lock:
            lock, waiting = self._locks.get(name, (threading.Lock(), 0))
            self._locks[name] = (lock, waiting + 1)
        try:
            if not lock.acquire(blocking=False):
                waits()
                lock.acquire()
            try:
                yield
            finally:
                lock.release()
        finally:
            with self._lock:
                _, waiting = self._locks[name]
                if waiting == 1:
                    del self._locks[name]
                else:
                    self._locks[name] = (lock, waiting - 1)
