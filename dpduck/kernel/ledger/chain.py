"""The ledger's chain of rows. Each write also moves the counters outside of the store, so that both always agree.

Nothing here checks budgets. The caller holds a lock, so that one thread at a time calls.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dpduck.kernel.ledger.budgets import LedgerState
from dpduck.kernel.ledger.copies import Begun, Change, OutsideCounters, PositionTexts, latest
from dpduck.kernel.ledger.entries import (
    LedgerEntry,
    LedgerRow,
    amounts_text,
    budget_text,
    entry_of,
    microseconds_of,
    require_next,
    require_untouched,
    seal_row,
)
from dpduck.kernel.ledger.secrets import CHAIN_KEY, STORE_ID, Secrets, Steps, require_secret
from dpduck.kernel.ledger.table import LedgerTable, Note, TakenError
from dpduck.kernel.ledger.witness import Witness
from dpduck.values.errors import InternalError, StoreError
from dpduck.values.privacy import NOTHING, Budget, Charge, missing_from

ROOM = 2**20
"""Free bytes that the disk of the store must have before anything is recorded."""

_ATTEMPTS = 100  # several ledgers on one store in one process may try to write the same entry number


@dataclass(frozen=True)
class _Seen:
    """The outside counters after this ledger's last write. found: the texts. last_id, begun: decoded values."""

    found: PositionTexts | None
    last_id: int
    begun: Begun


class LedgerChain:
    """The chain of one store, the sums over its rows (state), and its counters outside of the store."""

    def __init__(
        self, table: LedgerTable, secrets: Secrets, witness: Witness | None, steps: Steps, folder: Path | None = None
    ) -> None:
        """Begins with an empty state. folder: the folder of the store's files, None for a store in memory."""
        self.state = LedgerState()
        self.store = table.store
        self._folder = folder
        self._table = table
        self._outside = OutsideCounters(secrets, witness)
        self._seen = _Seen(None, 0, {})
        self._steps = steps
        self._store_id = require_secret(secrets, STORE_ID).decode()
        self._chain_key = require_secret(secrets, CHAIN_KEY)

    def begin(self, *, lost: bool = False) -> None:
        """Makes the tables of a new store. lost: whether to make them even if the secrets say that entries existed."""
        if self._table.store_id() is None:
            if not lost:
                self._outside.require_same(self._outside.read_text(), self.state)
            self._table.create(self._store_id)

    def unanswered_charges(self) -> Begun:
        """Settles the chain. Returns the charges that have no answer yet, according to all counters."""
        self.settle()
        return self._seen.begun

    def settle(self, change: Change = dict) -> None:
        """Reads the chain to its end, requires the outside counters to agree, and moves them to that end.

        change: function of the charges without an answer. The counters hold its result from now on.
        """
        for _ in range(_ATTEMPTS):
            texts = self._outside.read_text()  # before the store: each writer writes the store first
            self.read_on()
            if texts == self._seen.found and self.state.last_id == self._seen.last_id:
                begun = self._seen.begun  # unchanged since this ledger's write, so nothing is decoded again
            else:
                try:
                    self._outside.require_same(texts, self.state)
                except StoreError:
                    if self._outside.read_text() == texts:
                        raise
                    continue  # another ledger of this process wrote in between
                begun = self._outside.unanswered_charges(texts, self.state)
            if self._advance(texts, change(begun)):
                return
        raise _crowding_error()

    def _advance(self, texts: PositionTexts, begun: Begun) -> bool:
        """Moves the outside counters from `texts` to this state. Returns False if they are no longer `texts`."""
        moved = self._outside.advance(texts, self.state, begun)
        if moved is None:
            return False
        self._seen = _Seen(moved, self.state.last_id, latest(begun))
        return True

    def read_on(self) -> None:
        """Adds new rows of the table to the state. Requires that the last row it had before is still there."""
        last_id = self.state.last_id
        rows = iter(self._table.rows_from(last_id))
        if last_id:
            last = next(rows, None)
            if last is None or last.id != last_id or last.hash != self.state.last_hash:
                raise StoreError(
                    f"ledger entry {last_id} is missing or changed; accepted: the store as it was last written"
                )
        self._absorb(self.state, rows)

    def write(self, prepare: Callable[[], LedgerRow], note: Note | None = None) -> int:
        """Appends the row that `prepare` makes from the settled state. On return it is on disk, also in the counters.

        note: function that writes data of the entry into the store, in the same transaction.
        """
        for _ in range(_ATTEMPTS):
            self.settle()
            row = prepare()
            self.require_disk()
            self._steps("row not committed")
            try:
                self._table.append(row, note)
            except TakenError:
                continue
            self._steps("row committed")
            self._count_on(row)
            self._steps("counters written")
            return row.id
        raise _crowding_error()

    def _count_on(self, row: LedgerRow) -> None:
        """Adds the committed row to the state, and moves the outside counters on from where `settle` left them."""
        # No other row can have its number, so it is not read again, unless another ledger moved the counters.
        before = self._seen
        self._absorb(self.state, [row])
        begun = {**before.begun, row.id: 1} if self.state.charged_last else before.begun
        if before.found is None or not self._advance(before.found, begun):
            self.settle()

    def adopt(self, principal: str, statement: str) -> None:
        """Charges each unit the excess of the outside counters over this chain, and moves the counters to its end."""
        texts = self._outside.read_text()
        sums = self._outside.spent(texts)
        self._table.append(self.row("", "", NOTHING, principal, statement, "adopted an older copy"))
        self.read_on()
        for unit_key, amounts in sums:
            missing = missing_from(self.state.spent.get(unit_key, NOTHING), amounts)
            if missing != NOTHING:
                self._table.append(self.row(unit_key, "", missing, principal, statement, "adopted charges"))
                self.read_on()
        if not self._advance(texts, {}):  # charges that have no answer yet get none here
            raise _crowding_error()

    def entries(self, principal: str | None) -> list[LedgerEntry]:
        rows = self._table.rows() if principal is None else self._table.rows("WHERE principal = ?", principal)
        return [self._entry_of(row) for row in rows]

    def entry(self, entry_id: int) -> LedgerEntry:
        row = next(self._table.rows(f"WHERE id = {int(entry_id)}", in_order=False), None)
        if row is None:
            raise StoreError(f"ledger entry {entry_id} is missing; accepted: the store as it was last written")
        return self._entry_of(row)

    def _entry_of(self, row: LedgerRow) -> LedgerEntry:
        require_untouched(self._chain_key, self._store_id, row)
        return entry_of(row)

    def verify(self) -> None:
        """Reads the whole chain again. Raises StoreError with the first entry that has changed since it was written."""
        state = LedgerState()
        self._absorb(state, self._table.rows())
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
        last_id, at = self.state.last_id, microseconds_of(datetime.now(UTC))
        declared, previous = None if budget is None else budget_text(budget), self.state.last_hash
        texts = (principal, unit_key, table_name, statement, mechanism, *amounts_text(charge))
        row = LedgerRow(last_id + 1, at, *texts, budget=declared, previous_hash=previous, hash="")
        return seal_row(self._chain_key, self._store_id, row)

    def require_disk(self, size: int = 0) -> None:
        """Refuses work that a full disk could end after the charge and before the answer. size: bytes to store."""
        if self._folder is None:
            return
        with suppress(OSError, AttributeError):
            disk = os.statvfs(self._folder)
            if disk.f_bavail * disk.f_frsize < ROOM + size:
                raise StoreError(
                    "the disk of the store is full; nothing is charged and nothing is answered; "
                    f"accepted: the same when more than {ROOM // 2**20} MiB are free there"
                )

    def _absorb(self, state: LedgerState, rows: Iterable[LedgerRow]) -> None:
        for row in rows:
            require_next(self._chain_key, self._store_id, row, state.last_id, state.last_hash)
            state.absorb(row)


def _crowding_error() -> StoreError:
    return StoreError("the ledger is being written by too many at once; nothing is answered; accepted: try again")
