"""Progress line on a terminal or in a notebook: the present step of a long statement, and its time so far.

The words are fixed. Only the person who runs the process sees the line, no client of a server. A pipe gets no line.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from dpduck.values.quoting import printable

FIRST, EVERY = 2.0, 0.5
"""Seconds until the line appears, and seconds between its updates."""

WORDS = {
    "before the charge": "charging",
    "after the charge": "measuring",
    "after the count": "drawing noise",
    "fitting": "fitting",
    "drawing rows": "drawing rows",
    "reading releases": "reading releases",
    "after the noise": "computing answers",
    "after the release": "storing",
    "values computed": "storing",
    "preparing": "reading rows",
    "reading rows": "reading rows",
    "numbering units": "numbering units",
    "sorting rows": "sorting rows",
    "counting again": "counting again",
    "closing the file": "closing the file",
}
"""The line's words for the work that follows a step of a release or of a preparation."""

ROUND, COUNTED = "a round", "after the count"
"""Two steps: a round of synthetic data (it chooses, measures and fits), and the end of the count of private rows."""


class Progress:
    """Line with the steps of the present work. It appears after FIRST seconds."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._word = ""
        self._rounds = 0
        self._began = time.monotonic()
        self._seconds: float | None = None
        self._since: float | None = None
        self._busy = threading.Lock()

    def note(self, step: str) -> None:
        self._rounds += step == ROUND
        self._word = f"measuring and fitting, round {self._rounds}" if step == ROUND else WORDS.get(step, self._word)
        if step == COUNTED:
            self._since = time.monotonic()

    def expect(self, seconds: float | None, *, counted: bool) -> None:
        """Sets the expected time of the remaining work, from public facts, None if it is unknown.

        counted: whether that time begins now. Otherwise it begins when the count ends, which takes an unknown time.
        """
        self._seconds, self._since = seconds, time.monotonic() if counted else None

    def text(self) -> str:
        line = f"dpduck: {self._word}, {time.monotonic() - self._began:.0f} s"
        if self._seconds is not None and self._since is not None:
            line += f" of about {max(1, self._since - self._began + self._seconds):.0f} s"
        return line

    def say(self, text: str) -> None:
        self._write(f"\rdpduck: {printable(text)}\n")

    @contextmanager
    def working(self) -> Iterator[None]:
        """Shows the line while the block runs, unless another thread shows one already."""
        if not self._busy.acquire(blocking=False):
            yield
            return
        self._word, self._rounds, self._began, done = "planning", 0, time.monotonic(), threading.Event()
        self._seconds = self._since = None
        shower = threading.Thread(target=self._show, args=(done,), daemon=True)
        shower.start()
        try:
            yield
        finally:
            done.set()
            shower.join()
            self._busy.release()

    def _show(self, done: threading.Event) -> None:
        shown = 0
        if done.wait(FIRST):
            return
        while True:
            line = self.text()
            self._write("\r" + line.ljust(shown))
            shown = len(line)
            if done.wait(EVERY):
                break
        self._write("\r" + " " * shown + "\r")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal has gone, or the notebook's cell
            return


def progress_here() -> Progress | None:
    """Returns a line on standard error if that is a terminal or a notebook's cell, and otherwise None."""
    stream = sys.stderr
    looked_at = stream is not None and (stream.isatty() or type(stream).__module__.startswith("ipykernel"))
    return Progress(stream) if looked_at else None


def with_notes(progress: Progress | None, steps: Callable[[str], None]) -> Callable[[str], None]:
    """Wraps `steps`, so that the progress line records each step first."""
    if progress is None:
        return steps

    def noting(step: str) -> None:
        progress.note(step)
        steps(step)

    return noting
