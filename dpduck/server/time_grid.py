"""A grid of times on which new answers are given, so that how long one took tells little about private rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

FLOOR = 0.5
"""Seconds before which no new answer is given."""


def next_point(elapsed: float, floor: float) -> float:
    """Returns the first of floor, 2 floor, 4 floor, .. that is not before these seconds.

    >>> [next_point(elapsed, 0.5) for elapsed in (0.01, 0.5, 0.6, 1.7, 24.2)]
    [0.5, 0.5, 1.0, 2.0, 32.0]
    """
    point = floor
    while point < elapsed:
        point *= 2
    return point


class TimeGrid:
    """Holds work that looked at private rows until the next point of the grid; a state for each thread.

    Whatever becomes of the work, its end is seen at a point of the grid alone: it is held before a release is stored,
    where others could see it, and before a failure is told. Held work waits: it costs no processor.
    """

    def __init__(
        self,
        floor: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """floor: in seconds; 0 for no grid."""
        self._floor, self._clock, self._sleep = floor, clock, sleep
        self._mine = threading.local()

    def begin(self) -> None:
        """Begins a question, of which nothing private was looked at yet."""
        self._mine.start, self._mine.looked = self._clock(), False

    def looked(self) -> None:
        """Notes that the question looks at private rows from here on."""
        self._mine.looked = True

    def holds(self) -> bool:
        """Tells whether private rows were looked at since the last time that this thread was held."""
        return bool(getattr(self._mine, "looked", False))

    def hold(self) -> None:
        """Waits for the next point, if private rows were looked at since the last time."""
        if not self.holds():
            return
        self._mine.looked = False
        if self._floor > 0:
            elapsed = self._clock() - self._mine.start
            self._sleep(max(0.0, next_point(elapsed, self._floor) - elapsed))
