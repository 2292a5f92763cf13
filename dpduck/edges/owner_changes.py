"""Owner statements, one at a time, and each carried out once however often DuckDB binds it."""

from __future__ import annotations

import threading
from dataclasses import replace

from dpduck.edges.asker import Asker
from dpduck.edges.catalog import Catalog
from dpduck.edges.policy_changes import OwnerDesk
from dpduck.edges.policy_store import PolicyStore
from dpduck.edges.roots import OpenCursor
from dpduck.frontend.statements import AlterPolicy, CreatePolicy, DropPolicy, OwnerStatement
from dpduck.trusted.ledger import Ledger


class OwnerChanges:
    """Remembers the last change, since a relation or a prepared statement binds the same text again.

    Most statements change nothing the second time. Those that would are recognised: the same text by the same person
    with nothing written in the ledger since. A new epoch under which nothing was released is as good as another.
    """

    def __init__(self, open_cursor: OpenCursor, policies: PolicyStore, ledger: Ledger) -> None:
        self._open_cursor = open_cursor
        self._policies = policies
        self._ledger = ledger
        self._lock = threading.Lock()
        self._last: tuple[tuple[str, str, int], str] | None = None

    def carry_out(self, statement: OwnerStatement, text: str, asker: Asker) -> str:
        """Does what the statement says, and says what was done."""
        with self._lock:
            last, self._last = self._last, None
            if last is not None and last[0] == (text, asker.name, self._ledger.last_entry()):
                if _happens_once(statement):
                    self._last = last
                    return last[1]
                if isinstance(statement, CreatePolicy):
                    statement = replace(statement, replace=True)
            with self._open_cursor() as cursor:
                catalog = Catalog(cursor, self._policies)
                done = OwnerDesk(catalog, self._policies, self._ledger, asker.name, text).apply(statement)
            self._last = ((text, asker.name, self._ledger.last_entry()), done)
            return done


def _happens_once(statement: OwnerStatement) -> bool:
    if isinstance(statement, AlterPolicy):
        return statement.new_epoch or statement.drop_domain is not None or statement.drop_clamp is not None
    return isinstance(statement, DropPolicy)
