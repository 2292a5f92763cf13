"""Places for work that costs time: so many at once, so many of one principal, and who worked least lately first."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dpduck.values.errors import Refusal

HALF_LIFE = 10.0
"""Seconds after which half of what somebody worked is forgotten."""

PROMPT = 1.0
"""Seconds of work lately up to which nobody stands back behind others."""

_LOOK_AGAIN = 0.25

GivenUp = Callable[[], bool]


def never() -> bool:
    """Answers False, for statements whose client cannot say that it does not wait any more."""
    return False


class Debts:
    """How many seconds each principal was at work lately; safe to use from many threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, float]] = {}

    def of(self, name: str) -> float:
        """Returns seconds, of which older ones count less."""
        with self._lock:
            return self._now(name)

    def add(self, name: str, seconds: float) -> None:
        """Notes work that was done, or what somebody's work cost the others."""
        with self._lock:
            self._known[name] = max(0.0, self._now(name) + seconds), self._clock()

    def _now(self, name: str) -> float:
        seconds, at = self._known.get(name, (0.0, 0.0))
        return float(seconds * 0.5 ** ((self._clock() - at) / HALF_LIFE)) if seconds else 0.0


class Places:
    """Lets so many in at once; who waits is let in by what they worked lately, however many statements each sends.

    Who worked much waits for whoever is at work and worked less than half of that: an occasional statement is at work
    alone, not beside those of somebody who never stops. The other's work counts as it goes on, so that wait ends.
    """

    def __init__(self, total: int, each: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._each, self._clock = total, each, clock
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[threading.Event]] = OrderedDict()
        self._closed = False
        self._settled = clock()
        self._debts = Debts(clock)

    @contextmanager
    def place(self, name: str, patience: float, given_up: GivenUp = never) -> Iterator[None]:
        """Lends a place for this principal; Refusal where none is free in so many seconds."""
        self.take(name, patience, given_up)
        try:
            yield
        finally:
            self.give_back(name)

    def take(self, name: str, patience: float, given_up: GivenUp = never) -> None:
        """Waits for a place, which is to be given back. given_up: whether nobody waits for the answer any more."""
        called = threading.Event()
        with self._lock:
            self._waiting.setdefault(name, deque()).append(called)
            self._call()
        start = time.monotonic()
        while not called.wait(min(_LOOK_AGAIN, max(0.0, start + patience - time.monotonic()))):
            with self._lock:
                self._call()
                waited = time.monotonic() - start
                if (waited >= patience or given_up()) and not called.is_set():
                    self._leave(name, called)
                    raise Refusal(f"no place was free in {waited:.0f} s", accepted="the same statement later, or fewer")
        if self._closed:
            raise Refusal("the server is ending", accepted="the same statement when it is there again")

    def give_back(self, name: str) -> None:
        """Gives back a place that was taken."""
        with self._lock:
            self._settle()
            self._taken[name] -= 1
            self._call()

    def debt(self, name: str) -> float:
        """Tells how many seconds this principal was at work lately."""
        with self._lock:
            self._settle()
        return self._debts.of(name)

    def owe(self, name: str, seconds: float) -> None:
        """Notes what a principal's work cost beside its time; less than nothing for time that was no work."""
        with self._lock:
            self._settle()
        self._debts.add(name, seconds)

    def close(self) -> None:
        """Sends away everybody who waits, and who comes."""
        with self._lock:
            self._closed = True
            self._call()

    def _settle(self) -> None:
        now = self._clock()
        for name, places in self._taken.items():
            if places:
                self._debts.add(name, places * (now - self._settled))
        self._settled = now

    def _call(self) -> None:
        """Calls the next of those who wait, as long as there are places."""
        if self._closed:
            for waiting in self._waiting.values():
                for called in waiting:
                    called.set()
            self._waiting.clear()
        self._settle()
        while self._taken.total() < self._total:
            free = [name for name in self._waiting if self._taken[name] < self._each and not self._stands_back(name)]
            if not free:
                return
            name = min(free, key=self._debts.of)  # of equals the one whose turn it is
            called = self._waiting[name].popleft()
            if self._waiting[name]:
                self._waiting.move_to_end(name)
            else:
                del self._waiting[name]
            self._taken[name] += 1
            called.set()

    def _stands_back(self, name: str) -> bool:
        own = self._debts.of(name)
        return own > PROMPT and any(
            self._debts.of(other) < own / 2 for other, places in self._taken.items() if places and other != name
        )

    def _leave(self, name: str, called: threading.Event) -> None:
        waiting = self._waiting.get(name)
        if waiting is not None and called in waiting:
            waiting.remove(called)
            if not waiting:
                del self._waiting[name]
