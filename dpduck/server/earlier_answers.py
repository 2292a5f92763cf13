"""Cache of answers that principals have had before."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from dpduck.server.limits import remember

if TYPE_CHECKING:
    from dpduck.store.cursors import Caller

MOST_KNOWN = 200
"""The largest number of remembered statements of one principal."""


class AnswerCache:
    """Cache of the SQL that reads earlier answers, so that a repeated statement costs no work.

    A stored answer depends only on the caller and its permissions, which are in the key, and on facts that the owner
    may change. The tables cannot change, since the database is read-only.
    """

    def __init__(self, has_copies: Callable[[str], bool]) -> None:
        """has_copies: tells whether all copies that SQL reads still exist. If not, only the store has the answer."""
        self.changes = 0
        self._has_copies = has_copies
        self._lock = threading.Lock()
        self._of: dict[str, OrderedDict[tuple[Caller, str], str]] = {}

    def get(self, caller: Caller, action: str, argument: str | None) -> str | None:
        if action != "run" or argument is None:
            return None
        with self._lock:
            mine = self._of.get(caller.name)
            sql = None if mine is None else mine.get((caller, argument))
        return sql if sql is not None and self._has_copies(sql) else None

    def save(self, caller: Caller, action: str, argument: str | None, sql: str, changes: int) -> None:
        """Remembers SQL unless the owner has changed something since `changes`. Drops a principal's oldest entries."""
        if action != "run" or argument is None or not argument.lstrip().lower().startswith(("select", "with")):
            return
        with self._lock:
            if changes != self.changes:
                return
            remember(self._of.setdefault(caller.name, OrderedDict()), (caller, argument), sql, MOST_KNOWN)

    def forget(self) -> None:
        with self._lock:
            self.changes += 1
            self._of.clear()
