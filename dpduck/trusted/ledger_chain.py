"""Reading and writing the ledger's chain so that the store and the counters outside it never part.

Nothing here knows of budgets. The caller holds a lock: one thread at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from dpduck.errors import InternalError, StoreError
from dpduck.privacy import Budget, Charge
from dpduck.trusted.hash_chain import LedgerRow, microseconds_of, require_next, require_untouched, sealed
from dpduck.trusted.ledger_schema import LedgerTable, TakenError
from dpduck.trusted.ledger_values import (
    NOTHING,
    LedgerEntry,
    LedgerState,
    amounts_text,
    budget_text,
    entry_of,
    missing_from,
)
from dpduck.trusted.outside_counters import OutsideCounters
from dpduck.trusted.secrets_file import CHAIN_KEY, STORE_ID, Secrets, Steps, required
from dpduck.trusted.witness import Witness

ROOM = 2**20
"""Bytes that must be free where the store is before anything is recorded in it."""

_ATTEMPTS = 100  # several ledgers on one store in one process may take each other's numbers


class LedgerChain:
    """The chain of one store, its running state, and its counters outside."""

    def __init__(
        self,
        table: LedgerTable,
        secrets: Secrets,
        witness: Witness | None,
        steps: Steps,
        folder: Path | None = None,
    ) -> None:
        """folder: of the store's files, None for a store in memory."""
        self.state = LedgerState()
        self._folder = folder
        self._table = table
        self._outside = OutsideCounters(secrets, witness)
        self._steps = steps
        self._store_id = required(secrets, STORE_ID).decode()
        self._chain_key = required(secrets, CHAIN_KEY)

    def begin(self, *, lost: bool = False) -> None:
        """Make the tables of a new store; `lost`: even if its secrets say that it had entries once."""
        if self._table.store_id() is None:
            if not lost:
                self._outside.require_same(self._outside.read(), self.state)
            self._table.create(self._store_id)

    def settle(self) -> None:
        """Bring the running state to the chain's end, require the outside counters to agree, and move them there."""
        for _ in range(_ATTEMPTS):
            found = self._outside.read()  # before the store: whoever writes them has written the store
            self.read_on()
            try:
                self._outside.require_same(found, self.state)
            except StoreError:
                if self._outside.read() == found:
                    raise
                continue  # another ledger of this process wrote in between
            if self._outside.advance(found, self.state):
                return
        raise _crowded()

    def read_on(self) -> None:
        """Absorb what was written since, and require the last entry known to be there still."""
        last_id = self.state.last_id
        rows = iter(self._table.rows_from(last_id))
        if last_id:
            last = next(rows, None)
            if last is None or last.id != last_id or last.hash != self.state.hash_at(last_id):
                raise StoreError(
                    f"ledger entry {last_id} is missing or changed; accepted: the store as it was last written"
                )
        self._absorb(self.state, rows)

    def write(self, prepare: Callable[[], LedgerRow]) -> int:
        """Append the row that `prepare` makes of the settled state; on disk, inside and outside, when it returns."""
        for _ in range(_ATTEMPTS):
            self.settle()
            row = prepare()
            self._require_disk()
            self._steps("row not committed")
            try:
                self._table.append(row)
            except TakenError:
                continue
            self._steps("row committed")
            self.settle()
            self._steps("counters written")
            return row.id
        raise _crowded()

    def adopt(self, principal: str, statement: str) -> None:
        """Charge every unit what the outside counters know beyond this chain, and move the counters here."""
        found = self._outside.read()
        known = self._outside.spent(found)
        self._table.append(self.row("", "", NOTHING, principal, statement, "adopted an older copy"))
        self.read_on()
        for unit_key, amounts in known:
            missing = missing_from(self.state.spent.get(unit_key, NOTHING), amounts)
            if missing != NOTHING:
                self._table.append(self.row(unit_key, "", missing, principal, statement, "adopted charges"))
                self.read_on()
        if not self._outside.advance(found, self.state):
            raise _crowded()

    def entries(self, principal: str | None) -> list[LedgerEntry]:
        """All entries in order, or those of one principal."""
        found = []
        for row in self._table.rows_of(principal):
            require_untouched(self._chain_key, self._store_id, row)
            found.append(entry_of(row))
        return found

    def entry(self, entry_id: int) -> LedgerEntry:
        """One entry by its number."""
        row = next(self._table.rows_from(entry_id), None)
        if row is None or row.id != entry_id:
            raise StoreError(f"ledger entry {entry_id} is missing; accepted: the store as it was last written")
        require_untouched(self._chain_key, self._store_id, row)
        return entry_of(row)

    def verify(self) -> None:
        """Read the whole chain again; StoreError names the first entry that is not what was written."""
        state = LedgerState()
        self._absorb(state, self._table.rows_of(None))
        self.settle()
        if (state.last_id, state.spent) != (self.state.last_id, self.state.spent):
            raise InternalError("the ledger's running sums are not those of its entries")

    def row(
        self,
        unit_key: str,
        table_name: str,
        charge: Charge,
        principal: str,
        statement: str,
        mechanism: str,
        budget: Budget | None = None,
    ) -> LedgerRow:
        """The next row of the chain."""
        epsilon, rho, delta = amounts_text(charge)
        last_id = self.state.last_id
        row = LedgerRow(
            id=last_id + 1,
            at=microseconds_of(datetime.now(UTC)),
            principal=principal,
            unit_key=unit_key,
            table_name=table_name,
            statement=statement,
            mechanism=mechanism,
            epsilon=epsilon,
            rho=rho,
            delta=delta,
            budget=None if budget is None else budget_text(budget),
            previous_hash=self.state.hash_at(last_id),
            hash="",
        )
        return sealed(self._chain_key, self._store_id, row)

    def _require_disk(self) -> None:
        """Refuses to begin what a full disk would end half-way: charged, and not answered."""
        if self._folder is None:
            return
        with suppress(OSError, AttributeError):
            found = os.statvfs(self._folder)
            if found.f_bavail * found.f_frsize < ROOM:
                raise StoreError(
                    "the disk of the store is full; nothing is charged and nothing is answered; "
                    f"accepted: the same when more than {ROOM // 2**20} MiB are free there"
                )

    def _absorb(self, state: LedgerState, rows: Iterable[LedgerRow]) -> None:
        for row in rows:
            require_next(self._chain_key, self._store_id, row, state.last_id, state.hash_at(state.last_id))
            state.absorb(row)


def _crowded() -> StoreError:
    return StoreError("the ledger is being written by too many at once; nothing is answered; accepted: try again")
