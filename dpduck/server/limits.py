"""How much one statement, one principal and all of them together may use of the server."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dpduck.values.errors import Refusal

SWITCH_SECONDS = 0.0005
"""After which a thread lets another one have the interpreter: whoever comes back from one of the many calls of DuckDB
in a statement waits so long for a thread that computes, and not ten times that."""

_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[kmgt]i?b|b)", re.IGNORECASE)
_POWERS = "kmgt"


@dataclass(frozen=True)
class Quota:
    """What one principal may keep in the store: releases with views, and their rows. A price bounds neither."""

    releases: int = 20_000
    rows: int = 20_000_000


@dataclass(frozen=True)
class Limits:
    """Bounds that a server keeps.

    seconds: of one statement's work. release_seconds: how long a client waits for a release; the release goes on, and
    asking again is free. characters: of one statement. rows: of one result. work: rows times parts of a statement that
    streams; what may cost more runs in a runner. running, running_each: statements at the same time, of all and of one
    principal. runners: processes for their work.
    sessions, sessions_each: remembered connections of clients. connections: that a principal may open in a minute.
    views_each: private views of one principal. kept, kept_each, kept_rows: results that wait for their readers.
    memory: bytes of the public database's database; a runner has a quarter of it, views half, kept results a quarter.
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
        """Memory of one runner."""
        return max(128 * 2**20, self.memory // 4)

    @property
    def view_bytes(self) -> int:
        """Returns the bytes of all private views; of those that principals made each principal has a quarter."""
        return self.memory // 2

    @property
    def kept_bytes(self) -> int:
        """Returns the bytes of all results that wait for their readers."""
        return self.memory // 4

    @property
    def kept_bytes_each(self) -> int:
        """Returns the bytes of one principal's waiting results."""
        return self.memory // 8

    @property
    def result_bytes(self) -> int:
        """Returns the bytes of one result that is kept for its reader."""
        return self.memory // 16


def parse_size(text: str) -> int:
    """Returns bytes, as people write them.

    >>> parse_size("4GB"), parse_size("300 MiB"), parse_size("1.5kB")
    (4000000000, 314572800, 1500)
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise Refusal(f"{text[:80]!r} is no amount of memory", accepted="4GB or 512MiB")
    unit = found["unit"].lower()
    base = 1024 if "i" in unit else 1000
    power = 0 if unit == "b" else _POWERS.index(unit[0]) + 1
    return int(float(found["number"]) * base**power)
