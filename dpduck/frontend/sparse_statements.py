"""Statements of sparse queries, as frozen values; nothing here has been checked against a database yet."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

PROJECTION, HISTOGRAM, SESSION = "projection", "histogram", "session"
KINDS = (PROJECTION, HISTOGRAM, SESSION)


@dataclass(frozen=True)
class CreateSparse:
    """CREATE PRIVATE PROJECTION | HISTOGRAM | SESSION name OPTIONS (..) AS SELECT .. | ON table (..) [WHERE ..].

    query: a SELECT of the key's columns, also where it was written ON table (columns).
    """

    kind: str
    name: str
    query: exp.Query
    text: str
    options: tuple[exp.Expr, ...]


@dataclass(frozen=True)
class DropSparse:
    """DROP PRIVATE PROJECTION | HISTOGRAM | SESSION [IF EXISTS] name."""

    kind: str
    name: str
    if_exists: bool
