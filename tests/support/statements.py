"""Counts the statements that dpduck sends to DuckDB: on cursors of the user's database, and on sandboxes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dpduck.store.cursors import DatabaseConnections
from dpduck.store.sandbox import Sandbox


class Counted:
    """A cursor that notes the SQL that it runs."""

    def __init__(self, cursor: Any, sent: list[str]) -> None:
        self._cursor = cursor
        self._sent = sent

    def execute(self, sql: str, *more: Any) -> Counted:
        self._sent.append(sql)
        self._cursor.execute(sql, *more)
        return self

    def sql(self, sql: str, **more: Any) -> Any:
        self._sent.append(sql)
        return self._cursor.sql(sql, **more)

    def cursor(self) -> Counted:
        return Counted(self._cursor.cursor(), self._sent)

    def __enter__(self) -> Counted:
        return self

    def __exit__(self, *_: object) -> None:
        self._cursor.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


def sent_statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns a list of all SQL sent from now on, by connections that load dpduck after this call."""
    sent: list[str] = []
    opened, lent = DatabaseConnections.cursor, Sandbox.cursor

    def cursor(self: DatabaseConnections) -> Any:
        sent.append("SET search_path")  # each cursor begins with this
        return Counted(opened(self), sent)

    @contextmanager
    def boxed(self: Sandbox, *tables: Any) -> Iterator[Any]:
        with lent(self, *tables) as found:
            yield Counted(found, sent)

    monkeypatch.setattr(DatabaseConnections, "cursor", cursor)
    monkeypatch.setattr(Sandbox, "cursor", boxed)
    return sent
