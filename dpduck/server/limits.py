"""How much one statement, one principal and all of them together may use of the server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds that a server keeps. seconds: of work over released tables; a scan of one table streams without clock.

    release_seconds: how long a client waits for a release; the release goes on, and asking again is free.
    rows: of one result. running, running_each: statements at work at the same time, of all and of one principal.
    sessions: remembered connections of clients. kept_rows: of answers that the window keeps for their readers.
    memory: of the window's database, as DuckDB writes it.
    """

    characters: int = 100_000
    seconds: float = 30.0
    release_seconds: float = 300.0
    rows: int = 10_000_000
    running: int = 64
    running_each: int = 32
    sessions: int = 20_000
    kept_rows: int = 20_000_000
    memory: str = "4GB"
