"""Work in several threads at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence


def at_once(work: Sequence[Callable[[], None]]) -> None:
    """Does each piece of work in a thread of its own, and waits for all."""
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
