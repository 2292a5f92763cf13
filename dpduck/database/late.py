"""Parts of a database that most statements do without: each is imported and built when a statement first needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Late(Generic[T]):
    """A part that the first thread to ask builds. It is built once."""

    def __init__(self, build: Callable[[], T]) -> None:
        self._build = build
        self._lock = threading.RLock()
        self._built: tuple[T] | None = None

    def __call__(self) -> T:
        with self._lock:
            if self._built is None:
                self._built = (self._build(),)
            return self._built[0]
