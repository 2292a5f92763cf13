"""Owner statements, one at a time. Each is carried out once, however often DuckDB binds it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import duckdb

from dpduck.engines.tables import EngineTables
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.language.rows.facts import Policy
from dpduck.language.statements.kinds import AlterPolicy, CreatePolicy, DropPolicy, OwnerStatement, ReserveBudget
from dpduck.owner.policies import ANEW, OwnerDesk
from dpduck.store.catalog import Catalog
from dpduck.store.cursors import Caller, OpenCursor
from dpduck.store.policies import PolicyStore
from dpduck.store.prepared import PreparedTables

Announce = Callable[[Sequence[Policy]], None]


class OwnerChanges:
    """Executor of owner statements that remembers the last one, since DuckDB may bind the same text twice.

    Most statements change nothing the second time. A repetition of any other statement is recognised: the same text by
    the same person, with no ledger entry in between. So nothing was released since a new epoch, and another epoch is
    not needed.
    """

    def __init__(
        self,
        open_cursor: OpenCursor,
        policies: PolicyStore,
        ledger: Ledger,
        prepared: PreparedTables,
        engines: EngineTables,
    ) -> None:
        self._open_cursor = open_cursor
        self._prepared, self._engines = prepared, engines
        self._policies = policies
        self._ledger = ledger
        self._lock = threading.Lock()
        self._last: tuple[tuple[str, str, int], str] | None = None

    def propose(self, statement: AlterPolicy, text: str, caller: Caller) -> tuple[Policy, ...]:
        """Returns the policies that a statement would put in force. Refuses whatever the statement would refuse."""
        with self._lock, self._open_cursor() as cursor:
            return self._desk(cursor, text, caller).propose(statement)

    def _desk(self, cursor: duckdb.DuckDBPyConnection, text: str, caller: Caller) -> OwnerDesk:
        catalog = Catalog(cursor, self._policies)
        return OwnerDesk(catalog, self._policies, self._ledger, caller.name, text, self._prepared, self._engines)

    def carry_out(self, statement: OwnerStatement, text: str, caller: Caller, announce: Announce | None) -> str:
        """Carries out a statement. announce: called with the new policies before an ALTER."""
        with self._lock:
            last, self._last = self._last, None
            if last is not None and last[0] == (text, caller.name, self._ledger.last_entry()):
                if _happens_once(statement):
                    self._last = last
                    return last[1] if isinstance(statement, DropPolicy) else self._prepare_again(statement, last[1])
                if isinstance(statement, CreatePolicy):
                    statement = replace(statement, replace=True)
            with self._open_cursor() as cursor:
                desk = self._desk(cursor, text, caller)
                if announce is not None and isinstance(statement, AlterPolicy):
                    announce(desk.propose(statement))
                done = desk.apply(statement)
            self._last = ((text, caller.name, self._ledger.last_entry()), done)
            return done

    def _prepare_again(self, statement: OwnerStatement, done: str) -> str:
        """Returns the outcome of a repeated statement. For NEW EPOCH, it prepares prepared tables again."""
        if not isinstance(statement, AlterPolicy) or not statement.new_epoch:
            return done
        with self._open_cursor() as cursor:
            catalog = Catalog(cursor, self._policies)
            tables = [catalog.resolve(table) for table in (statement.table, *statement.others)]
        packed, policies = self._engines.prepared, [self._policies.policy(own) for own in tables if own is not None]
        here = [own for own in tables if own is not None and own.sql in self._prepared.at()]
        there = [own for own in policies if own is not None and own.table.sql in packed.at()]
        again = [self._prepared.prepare(here, anew=True)] if here else []
        again += [packed.prepare(there, self._ledger.bounding_key, anew=True)] if there else []
        return "; ".join([f"{done.partition(ANEW)[0]}{ANEW}", *again]) if again else done


def _happens_once(statement: OwnerStatement) -> bool:
    if isinstance(statement, AlterPolicy):
        return statement.new_epoch or statement.drop_domain is not None or statement.drop_clamp is not None
    return isinstance(statement, DropPolicy | ReserveBudget)
