"""Places for work that costs time: so many at once, so many of one principal, and the others in turn."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager

from dpduck.errors import Refusal


class Places:
    """Lets so many in at once; who waits is let in by turns of principals, however many statements each sends."""

    def __init__(self, total: int, each: int) -> None:
        self._total, self._each = total, each
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[threading.Event]] = OrderedDict()
        self._closed = False

    @contextmanager
    def place(self, name: str, patience: float) -> Iterator[None]:
        """A place for this principal; Refusal where none is free in so many seconds."""
        self.take(name, patience)
        try:
            yield
        finally:
            self.give_back(name)

    def take(self, name: str, patience: float) -> None:
        """Waits for a place, which is to be given back."""
        called = threading.Event()
        with self._lock:
            self._waiting.setdefault(name, deque()).append(called)
            self._call()
        start = time.monotonic()
        called.wait(patience)
        with self._lock:
            if not called.is_set():
                self._leave(name, called)
                waited = time.monotonic() - start
                raise Refusal(f"no place was free in {waited:.0f} s", accepted="the same statement later, or fewer")
            if self._closed:
                raise Refusal("the server is ending", accepted="the same statement when it is there again")

    def give_back(self, name: str) -> None:
        """A place that was taken is free."""
        with self._lock:
            self._taken[name] -= 1
            self._call()

    def close(self) -> None:
        """Sends away everybody who waits, and who comes."""
        with self._lock:
            self._closed = True
            self._call()

    def _call(self) -> None:
        """Calls the next of those who wait, as long as there are places."""
        if self._closed:
            for waiting in self._waiting.values():
                for called in waiting:
                    called.set()
            self._waiting.clear()
        while self._taken.total() < self._total:
            name = next((name for name in self._waiting if self._taken[name] < self._each), None)
            if name is None:
                return
            called = self._waiting[name].popleft()
            if self._waiting[name]:
                self._waiting.move_to_end(name)
            else:
                del self._waiting[name]
            self._taken[name] += 1
            called.set()

    def _leave(self, name: str, called: threading.Event) -> None:
        waiting = self._waiting.get(name)
        if waiting is not None and called in waiting:
            waiting.remove(called)
            if not waiting:
                del self._waiting[name]
