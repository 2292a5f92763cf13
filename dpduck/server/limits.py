"""Limits of the server for one statement, for one principal, and for all principals together.

A statement needs one of few places to run, and the principal with the least recent work gets the next one. New answers
are given at points of a time grid, so that the time of an answer tells little about private rows.
"""

from __future__ import annotations

import os
import re
import resource
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dpduck.values.errors import Refusal

HALF_LIFE = 10.0
"""Seconds after which half of a principal's work is forgotten."""

PROMPT = 1.0
"""Seconds of recent work up to which a principal never waits for less busy ones."""

_LOOK_AGAIN = 0.25
_OWN_DATA = re.compile(r"^VmData:\s+(\d+) kB$", re.MULTILINE)

GivenUp = Callable[[], bool]
Key = TypeVar("Key")
Value = TypeVar("Value")


def never() -> bool:
    """Returns False, for clients that cannot report that they no longer wait."""
    return False


def remember(known: OrderedDict[Key, Value], key: Key, value: Value, most: int) -> None:
    """Adds an entry as the latest one, and removes the oldest entries beyond `most`."""
    known[key] = value
    known.move_to_end(key)
    while len(known) > most:
        known.popitem(last=False)


class Debts:
    """Seconds of recent work by principal. Many threads may use it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._amounts: dict[str, tuple[float, float]] = {}

    def of(self, name: str) -> float:
        """Returns a principal's seconds of recent work. Each second counts half after every HALF_LIFE."""
        with self._lock:
            return self._now(name)

    def add(self, name: str, seconds: float) -> None:
        with self._lock:
            self._amounts[name] = max(0.0, self._now(name) + seconds), self._clock()

    def _now(self, name: str) -> float:
        seconds, at = self._amounts.get(name, (0.0, 0.0))
        return float(seconds * 0.5 ** ((self._clock() - at) / HALF_LIFE)) if seconds else 0.0


class Places:
    """Limited places for running statements. The principal with the least recent work gets the next free place.

    A principal with more than PROMPT seconds of recent work waits while one with less than half as much runs. So an
    occasional statement does not share the processor with a busy principal. The wait ends, since running work adds up.
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
        """Holds a place for this principal until the block ends. Refuses if no place is free in `patience` seconds."""
        self.take(name, patience, given_up)
        try:
            yield
        finally:
            self.give_back(name)

    def take(self, name: str, patience: float, given_up: GivenUp = never) -> None:
        """Waits for a place, which the caller must give back. given_up: tells whether the client has gone."""
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
                    raise Refusal(
                        f"the server is busy: no place was free in {waited:.0f} s",
                        accepted="the same statement later, or fewer",
                    )
        if self._closed:
            raise Refusal("the server is ending", accepted="the same statement when it is there again")

    def give_back(self, name: str) -> None:
        with self._lock:
            self._settle()
            self._taken[name] -= 1
            self._call()

    def debt(self, name: str) -> float:
        with self._lock:
            self._settle()
        return self._debts.of(name)

    def owe(self, name: str, seconds: float) -> None:
        """Adds seconds to a principal's work, or subtracts seconds without work."""
        with self._lock:
            self._settle()
        self._debts.add(name, seconds)

    def close(self) -> None:
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
        """Gives free places to waiting statements. Once closed, wakes all statements, which are then refused."""
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
            name = min(free, key=self._debts.of)  # principals with equal work take turns
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


FLOOR = 0.5
"""Seconds before which no new answer is given."""

SECONDS = 50.0
"""Seconds that a SELECT over released answers may take, unless the server allows less."""


def next_point(elapsed: float, floor: float) -> float:
    """Returns the first of floor, 2 floor, 4 floor, .. that is not less than `elapsed`.

    >>> [next_point(elapsed, 0.5) for elapsed in (0.01, 0.5, 0.6, 1.7, 24.2)]
    [0.5, 0.5, 1.0, 2.0, 32.0]
    """
    point = floor
    while point < elapsed:
        point *= 2
    return point


class TimeGrid:
    """Grid of times at which work on private rows ends. Each thread has its own start time and state.

    The end of the work is visible only at a point of the grid. So a question waits before its release is stored, where
    others could see it, and before a failure is reported. Waiting takes no processor time.
    """

    def __init__(
        self, floor: float, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """floor: the first point of the grid in seconds, 0 for no grid. Each further point is twice the one before."""
        self._floor, self._clock, self._sleep = floor, clock, sleep
        self._mine = threading.local()

    def begin(self) -> None:
        """Starts the clock of a question, which has read no private rows yet."""
        self._mine.start, self._mine.looked = self._clock(), False

    def note_reading(self) -> None:
        """Records that the question reads private rows from here on."""
        self._mine.looked = True

    def holds(self) -> bool:
        """Tells whether this thread has read private rows since its last wait for the grid."""
        return bool(getattr(self._mine, "looked", False))

    def hold(self) -> None:
        """Waits for the next point of the grid, if this thread has read private rows since its last wait."""
        if not self.holds():
            return
        self._mine.looked = False
        if self._floor > 0:
            elapsed = self._clock() - self._mine.start
            self._sleep(max(0.0, next_point(elapsed, self._floor) - elapsed))


SWITCH_SECONDS = 0.0005
"""Seconds after which a thread gives the interpreter to another one. A statement calls DuckDB many times, and waits
this long after each call if another thread computes. Python's default is ten times as long."""


def stand_back(kindness: int, process: int) -> None:
    """Makes a process yield the processor to others. None of its threads can undo this. kindness: its steps of nice."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, process, kindness)
        for thread in Path(f"/proc/{process}/task").glob("*"):  # on Linux each thread has its own nice value
            os.setpriority(os.PRIO_PROCESS, int(thread.name), kindness)


_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[kmgt]i?b|b)", re.IGNORECASE)
_POWERS = "kmgt"


@dataclass(frozen=True)
class Quota:
    """Limits of one principal in the store: releases with views, and their rows. Privacy budgets do not limit these."""

    releases: int = 20_000
    rows: int = 20_000_000


@dataclass(frozen=True)
class Limits:
    """Limits of a server. A name with `each` is a limit of one principal.

    seconds: the time limit of one statement. release_seconds: the time that a client waits for a release, which goes on
    afterwards. rows: the rows of one result. work: rows times parts of a statement without a runner. sessions:
    remembered connections of clients. connections: new connections of a principal in a minute. kept: results that wait
    for their readers. memory: bytes of the public database. A runner may have a quarter as much.
    """

    characters: int = 100_000
    seconds: float = 30.0
    release_seconds: float = 300.0
    rows: int = 10_000_000
    work: int = 100_000_000
    running: int = 64
    running_each: int = 32
    runners: int = 4
    sessions: int = 20_000
    sessions_each: int = 1_000
    connections: int = 120
    views_each: int = 200
    kept: int = 1_000
    kept_each: int = 250
    kept_rows: int = 20_000_000
    memory: int = 4_000_000_000

    @property
    def runner_bytes(self) -> int:
        return max(128 * 2**20, self.memory // 4)

    @property
    def view_bytes(self) -> int:
        """Returns the largest size of all private views in bytes. One principal's views may have a quarter as much."""
        return self.memory // 2

    @property
    def kept_bytes(self) -> int:
        return self.memory // 4

    @property
    def kept_bytes_each(self) -> int:
        return self.memory // 8

    @property
    def result_bytes(self) -> int:
        return self.memory // 16


def parse_size(text: str) -> int:
    """Returns a size in bytes from a text, as people write it.

    >>> parse_size("4GB"), parse_size("300 MiB"), parse_size("1.5kB")
    (4000000000, 314572800, 1500)
    """
    size = _SIZE.fullmatch(text.strip())
    if size is None:
        raise Refusal(f"{text[:80]!r} is no amount of memory", accepted="4GB or 512MiB")
    unit = size["unit"].lower()
    base = 1024 if "i" in unit else 1000
    power = 0 if unit == "b" else _POWERS.index(unit[0]) + 1
    return int(float(size["number"]) * base**power)


def limit_memory(more: int, process: int | None = None) -> bool:
    """Limits a process to `more` bytes beyond its present data, for ever. Returns False if the system has no such
    limit.

    The limit counts the process's own data (RLIMIT_DATA of Linux), but no mapped files or reserved address space.
    Beyond the limit, allocations fail in the process itself, so that the system kills no other.
    """
    status = Path(f"/proc/{process or 'self'}/status")
    if not status.is_file() or not hasattr(resource, "prlimit"):
        return False
    data_size = _OWN_DATA.search(status.read_text(encoding="ascii", errors="replace"))
    if data_size is None:
        return False
    most = int(data_size[1]) * 1024 + more
    _, hard = resource.prlimit(process or 0, resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.prlimit(process or 0, resource.RLIMIT_DATA, (most, most))
    return True
