"""The processes that a process started, as the operating system lists them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def children(process: int) -> list[int]:
    """The processes that this one started, from whichever thread."""
    found: list[int] = []
    for thread in Path(f"/proc/{process}/task").iterdir():
        with suppress(OSError):
            found += [int(child) for child in (thread / "children").read_text().split()]
    return found
