"""Signs of life: on a terminal or in a notebook, a line that says what a long statement does and since when.

Its words are fixed, and it is for whoever holds the database: clients of a server see none of it. A pipe has none.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

FIRST, EVERY = 2.0, 0.5
"""Seconds after which the line appears, and after which it is written anew."""

WORDS = {
    "before the charge": "charging",
    "after the charge": "measuring",
    "after the count": "drawing noise",
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
"""What follows a step of a release or of a preparation, in the words of the line."""


class Progress:
    """Notes the steps of what is at work, and shows them from FIRST seconds on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._word = ""
        self._busy = threading.Lock()

    def note(self, step: str) -> None:
        """Notes that a step was reached."""
        self._word = WORDS.get(step, self._word)

    def say(self, text: str) -> None:
        """Prints a line that stays."""
        self._write(f"\rdpduck: {text}\n")

    @contextmanager
    def working(self) -> Iterator[None]:
        """Shows the line while the block runs; one line at a time, whoever else is at work."""
        if not self._busy.acquire(blocking=False):
            yield
            return
        self._word, done = "planning", threading.Event()
        shower = threading.Thread(target=self._show, args=(done, time.monotonic()), daemon=True)
        shower.start()
        try:
            yield
        finally:
            done.set()
            shower.join()
            self._busy.release()

    def _show(self, done: threading.Event, began: float) -> None:
        shown = 0
        if done.wait(FIRST):
            return
        while True:
            line = f"dpduck: {self._word}, {time.monotonic() - began:.0f} s"
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
    """Returns a line on standard error where somebody looks at it: a terminal, or a notebook's cell."""
    stream = sys.stderr
    looked_at = stream is not None and (stream.isatty() or type(stream).__module__.startswith("ipykernel"))
    return Progress(stream) if looked_at else None


def with_notes(progress: Progress | None, steps: Callable[[str], None]) -> Callable[[str], None]:
    """Steps, noted on the way."""
    if progress is None:
        return steps

    def noting(step: str) -> None:
        progress.note(step)
        steps(step)

    return noting
