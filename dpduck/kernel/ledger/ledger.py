"""The ledger: every charge against a privacy unit, durable before the first private count.

The chain of entries in the store is the only record. Budgets and sums are rebuilt from it when it is opened, and every
row is verified (entries.py). No charge is ever taken back: a policy that is dropped and made again, or a wider budget,
leaves the sum of its unit unchanged. copies.py says which restores and copies are noticed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

from dpduck.kernel.ledger.budgets import (
    Limit,
    name_of_change,
    require_budget,
    require_change,
    require_charge,
    require_named,
    share_of,
)
from dpduck.kernel.ledger.chain import LedgerChain
from dpduck.kernel.ledger.copies import Begun
from dpduck.kernel.ledger.entries import LedgerEntry, LedgerRow
from dpduck.kernel.ledger.secrets import (
    BOUNDING_KEY,
    STORE_ID,
    Secrets,
    SecretsFile,
    SecretsInMemory,
    Steps,
    no_step,
    require_secret,
)
from dpduck.kernel.ledger.table import LedgerTable, Note, OpenCursor
from dpduck.kernel.ledger.witness import Witness
from dpduck.values.errors import BudgetRefusal, InternalError, StoreError
from dpduck.values.periods import Periods, charge_key
from dpduck.values.privacy import NOTHING, Budget, Charge


class Ledger:
    """The ledger of one attached store, safe to use from many threads."""

    def __init__(self, chain: LedgerChain, secrets: Secrets, steps: Steps) -> None:
        self.secrets = secrets
        self._chain = chain
        self._steps = steps
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls,
        open_cursor: OpenCursor,
        store: str,
        *,
        secrets_path: Path | None,
        witness_directory: Path | None,
        steps: Steps = no_step,
    ) -> Ledger:
        """Opens the ledger of an attached store, or begins one. Verifies the whole ledger, or raises StoreError.

        secrets_path: None for a store in memory. witness_directory: None for no witness (see witness.state_directory).
        """
        chain, secrets = _assemble(open_cursor, store, secrets_path, witness_directory, steps)
        chain.begin()
        chain.settle()
        return cls(chain, secrets, steps)

    @classmethod
    def adopt(
        cls,
        open_cursor: OpenCursor,
        store: str,
        *,
        secrets_path: Path | None,
        witness_directory: Path | None,
        principal: str,
        statement: str,
    ) -> Ledger:
        """Opens an older copy of a store at the owner's request. Sums that only outside counters know are charged.

        No unit's spent amount becomes less than that of the ledger, the secrets file or the witness. The chain must be
        complete. Any other copy of the store is refused from then on. If nothing is wrong, nothing is recorded.
        """
        chain, secrets = _assemble(open_cursor, store, secrets_path, witness_directory, no_step)
        chain.begin(lost=True)
        chain.read_on()
        try:
            chain.settle()
        except StoreError:
            chain.adopt(principal, statement)
        return cls(chain, secrets, no_step)

    @property
    def store(self) -> str:
        return self._chain.store

    @property
    def bounding_key(self) -> bytes:
        return require_secret(self.secrets, BOUNDING_KEY)

    def declare_budget(self, unit_key: str, table_name: str, budget: Budget, principal: str, statement: str) -> int:
        """Records a budget for a unit. It never resets the spent sum, and is refused below that sum."""
        require_budget(budget)

        def prepare() -> LedgerRow:
            state = self._chain.state
            require_change(unit_key, budget, state.of(unit_key))
            if budget.lifetime is not None:
                require_change(f"LIFETIME of {unit_key}", budget.lifetime, state.of_person(unit_key))
            mechanism = name_of_change(state.budgets.get(unit_key), budget)
            return self._chain.row(unit_key, table_name, NOTHING, principal, statement, mechanism, budget)

        with self._lock:
            return self._chain.write(prepare)

    def last_entry(self) -> int:
        """Returns the number of the last entry, 0 if there is none. Every new entry increases it."""
        with self._lock:
            self._chain.read_on()
            return self._chain.state.last_id

    def budget(self, unit_key: str) -> Budget | None:
        with self._lock:
            self._chain.read_on()
            return self._chain.state.budgets.get(unit_key)

    def budgets(self) -> Mapping[str, Budget]:
        with self._lock:
            self._chain.read_on()
            return dict(self._chain.state.budgets)

    def spent(self, unit_key: str, principal: str | None = None, within: Periods | None = None) -> Charge:
        """Returns a unit's spent sum, for periods the largest in `within`. It has no epsilon if a charge has none."""
        with self._lock:
            self._chain.read_on()
            return self._chain.state.of(unit_key, principal, within)

    def spent_by_run(self, unit_key: str, principal: str | None = None) -> list[tuple[Periods, Charge]]:
        """Lists runs of periods with the same charges, in order, each with its sum. Empty for units without periods."""
        with self._lock:
            self._chain.read_on()
            sums = self._chain.state.periods.get((unit_key, principal))
            return [] if sums is None else sums.by_run()

    def spent_of_person(self, unit_key: str, principal: str | None = None) -> Charge:
        """Returns the sum that LIFETIME bounds: the cost of a unit's charges to a person with rows in each period."""
        with self._lock:
            self._chain.read_on()
            return self._chain.state.of_person(unit_key, principal)

    def check(
        self,
        unit_key: str,
        charge: Charge,
        *,
        principal: str | None = None,
        allotment: Fraction | None = None,
        periods: Periods | None = None,
        anew: bool = True,
    ) -> None:
        """Raises BudgetRefusal if this charge is more than the rest. anew: whether to read new entries first."""
        require_charge(charge)
        with self._lock:
            if anew:
                self._chain.read_on()
            self._require_room(unit_key, charge, principal, allotment, periods)

    def charge(
        self, unit_key: str, table_name: str, charge: Charge, principal: str, statement: str, mechanism: str, *,
        allotment: Fraction | None = None, note: Note | None = None, periods: Periods | None = None,
    ) -> int:  # fmt: skip
        """Records a charge and returns its entry's number. On return it is on disk, inside and outside the store.

        allotment: share of the unit's budget for this principal. note: see LedgerChain.write. periods: run that may be
        read.
        """
        require_charge(charge)

        def prepare() -> LedgerRow:
            self._require_room(unit_key, charge, principal, allotment, periods)
            key = charge_key(unit_key, periods)
            return self._chain.row(key, table_name, charge, principal, statement, mechanism)

        self._steps("charge begins")
        with self._lock:
            entry_id = self._chain.write(prepare, note)
        self._steps("charge returns")
        return entry_id

    def record(
        self, unit_key: str, table_name: str, principal: str, statement: str, mechanism: str, note: Note | None = None
    ) -> int:
        """Records an entry that costs nothing, and its note. On return it is on disk, inside and outside the store."""

        def prepare() -> LedgerRow:
            return self._chain.row(unit_key, table_name, NOTHING, principal, statement, mechanism)

        with self._lock:
            return self._chain.write(prepare, note)

    def times_begun(self, entry_id: int) -> int:
        """Returns how often the answer of a charge was begun: 0 if any copy of the store has ended it."""
        with self._lock:
            return self._chain.unanswered_charges().get(entry_id, 0)

    def begin_again(self, entry_id: int) -> None:
        """Records outside the store that the answer of a charge is begun again. Raises StoreError if it was ended."""

        def count_again(begun: Begun) -> Begun:
            return {**begun, entry_id: _still_begun(begun, entry_id) + 1}

        with self._lock:
            self._chain.settle(count_again)

    def end(self, entry_id: int, size: int = 0) -> None:
        """Records outside the store that a charge is answered, before the answer is seen. Raises if it was answered.

        size: bytes of the answer. If the disk has no room for these, this raises, and the charge has no answer yet.
        """

        def strike_off(begun: Begun) -> Begun:
            _still_begun(begun, entry_id)
            return {entry: times for entry, times in begun.items() if entry != entry_id}

        with self._lock:
            self._chain.require_disk(size)
            self._chain.settle(strike_off)
        self._steps("charge ended")

    def entries(self, principal: str | None = None) -> list[LedgerEntry]:
        return self._chain.entries(principal)

    def entry(self, entry_id: int) -> LedgerEntry:
        return self._chain.entry(entry_id)

    def verify(self) -> None:
        with self._lock:
            self._chain.verify()

    def times_left(
        self,
        unit_key: str,
        charge: Charge,
        principal: str,
        *,
        allotment: Fraction | None = None,
        periods: Periods | None = None,
    ) -> int:
        """Returns how often this charge still fits. If it fits n times, that many charges go through, and no more."""
        require_charge(charge)
        with self._lock:
            self._chain.read_on()
            limits = self._limits(unit_key, principal, allotment, periods)
        try:
            return min(limit.times(charge, periods) for limit in limits)
        except BudgetRefusal:  # no bound is proven for LIFETIME
            return 0

    def _require_room(
        self, unit_key: str, charge: Charge, principal: str | None, allotment: Fraction | None, periods: Periods | None
    ) -> None:
        for limit in self._limits(unit_key, principal, allotment, periods):
            limit.require_room(charge, periods)

    def _limits(
        self, unit_key: str, principal: str | None, allotment: Fraction | None, periods: Periods | None
    ) -> list[Limit]:
        """Lists what bounds a charge: the budget and a principal's share, in any of its periods, and each LIFETIME."""
        require_named(unit_key, periods)
        state = self._chain.state
        budget, owner = state.budgets.get(unit_key), f"budget of {unit_key}"
        parts: list[tuple[str, Budget | None, str | None]] = [(owner, budget, None)]
        if allotment is not None:
            if principal is None:
                raise InternalError("an allotment belongs to a principal")
            parts.append((f"share of {principal} in the {owner}", share_of(budget, allotment), principal))
        limits = []
        for name, part, payer in parts:
            limits.append(Limit(name, part, state.of(unit_key, payer, periods)))
            lifetime = None if part is None or periods is None else part.lifetime
            if lifetime is not None:
                spent = state.of_person(unit_key, payer)
                limits.append(Limit(f"LIFETIME in the {name}", lifetime, spent, person=True))
        return limits


def _still_begun(begun: Begun, entry_id: int) -> int:
    if entry_id not in begun:
        raise StoreError(
            f"ledger entry {entry_id} has had its answer, or another copy of the store was used; nothing is answered; "
            "accepted: the same with refresh = 'tag', which pays again"
        )
    return begun[entry_id]


def _assemble(
    open_cursor: OpenCursor, store: str, secrets_path: Path | None, witness_directory: Path | None, steps: Steps
) -> tuple[LedgerChain, Secrets]:
    """Opens the ledger's tables, and opens or makes the secrets. Verifies only that tables and secrets match."""
    table = LedgerTable(open_cursor, store)
    store_id = table.store_id()
    secrets: Secrets
    if secrets_path is None:
        secrets = SecretsInMemory()
    else:
        secrets = SecretsFile.open(secrets_path, create=store_id is None, steps=steps)
    identity = require_secret(secrets, STORE_ID).decode()
    if store_id not in (None, identity):
        raise StoreError(
            "the secrets do not belong to this store; accepted: the file <name>_secrets that was made with it"
        )
    witness = None if witness_directory is None else Witness(witness_directory, identity, steps=steps)
    folder = None if secrets_path is None else secrets_path.parent
    return LedgerChain(table, secrets, witness, steps, folder), secrets
