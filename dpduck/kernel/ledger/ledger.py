"""The ledger: every charge against a privacy unit, durable before the first private count.

The chain of entries in the store is the only record. Budgets and sums are rebuilt from it when it is opened, and every
row is verified (entries.py). No charge is ever taken back: a policy that is dropped and made again, or a wider budget,
leaves the sum of its unit unchanged. copies.py says which restores and copies are noticed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from fractions import Fraction
from functools import reduce
from pathlib import Path

from dpduck.kernel.ledger.budgets import (
    WIDENED,
    Limit,
    Payer,
    name_of_change,
    require_budget,
    require_change,
    require_charge,
    require_named,
    require_proven,
    require_room,
    share_of,
)
from dpduck.kernel.ledger.chain import LedgerChain
from dpduck.kernel.ledger.copies import Begun
from dpduck.kernel.ledger.entries import LedgerEntry, LedgerRow, microseconds_of
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
from dpduck.kernel.ledger.shares import (
    RELEASED,
    RESERVED,
    Project,
    Reservation,
    find_project,
    now_in_utc,
    read_projects,
)
from dpduck.kernel.ledger.table import LedgerTable, Note, OpenCursor
from dpduck.kernel.ledger.witness import Witness
from dpduck.values.errors import BudgetRefusal, InternalError, Refusal, StoreError
from dpduck.values.periods import Periods, charge_key, word_of
from dpduck.values.privacy import NOTHING, Budget, Charge, add_charges

TOMORROW = "the same after midnight in UTC, or a larger part a day, which the owner sets"


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

    def spent(self, unit_key: str, payer: Payer = None, within: Periods | None = None) -> Charge:
        """Returns a unit's spent sum, or that of its period with most, in `within`. No epsilon if a charge has none."""
        with self._lock:
            self._chain.read_on()
            return self._chain.state.of(unit_key, payer, within)

    def latest(self, unit_key: str, within: Periods | None = None) -> tuple[Budget | None, Charge]:
        """Returns a unit's budget and its spent sum, as the ledger was last read. It sends no statement to DuckDB."""
        with self._lock:
            return self._chain.state.budgets.get(unit_key), self._chain.state.of(unit_key, None, within)

    def spent_by_run(self, unit_key: str, payer: Payer = None) -> list[tuple[Periods, Charge]]:
        """Lists runs of periods with the same charges, in order, each with its sum. Empty for units without periods."""
        with self._lock:
            self._chain.read_on()
            sums = self._chain.state.sums_by_period(unit_key, payer)
            return [] if sums is None else sums.by_run()

    def spent_of_person(self, unit_key: str, payer: Payer = None) -> Charge:
        """Returns the sum that LIFETIME bounds: the cost of a unit's charges to a person with rows in each period."""
        with self._lock:
            self._chain.read_on()
            return self._chain.state.of_person(unit_key, payer)

    def check(
        self,
        unit_key: str,
        charge: Charge,
        *,
        principal: str | None = None,
        allotment: Fraction | None = None,
        project: str | None = None,
        a_day: Fraction | None = None,
        periods: Periods | None = None,
        anew: bool = True,
    ) -> None:
        """Raises BudgetRefusal if this charge is more than the rest. anew: whether to read new entries first."""
        require_charge(charge)
        with self._lock:
            if anew:
                self._chain.read_on()
            self._require_room(unit_key, charge, principal, allotment, project, a_day, periods)

    def charge(
        self, unit_key: str, table_name: str, charge: Charge, principal: str, statement: str, mechanism: str, *,
        allotment: Fraction | None = None, project: str | None = None, a_day: Fraction | None = None,
        note: Note | None = None, periods: Periods | None = None,
    ) -> int:  # fmt: skip
        """Records a charge and returns its entry's number. On return it is on disk, inside and outside the store.

        allotment, a_day: parts of the unit's budget for this principal, in all and on one day in UTC. project: the
        principal's project, if any. periods: run that may be read. note: see LedgerChain.write.
        """
        require_charge(charge)

        def prepare() -> LedgerRow:
            self._require_room(unit_key, charge, principal, allotment, project, a_day, periods)
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
        project: str | None = None,
        a_day: Fraction | None = None,
        periods: Periods | None = None,
    ) -> int:
        """Returns how often this charge still fits. If it fits n times, that many charges go through, and no more."""
        require_charge(charge)
        with self._lock:
            self._chain.read_on()
            limits = self._limits(unit_key, principal, allotment, project, a_day, periods)
        try:
            return min(limit.times(charge, periods) for limit in limits)
        except BudgetRefusal:  # no bound is proven for LIFETIME
            return 0

    def today(self, principal: str) -> Payer:
        """Returns the payer of a principal's charges on this day in UTC, for `spent` and the like."""
        with self._lock:
            self._chain.read_on()
            return self._today(principal)

    def _today(self, principal: str) -> str:
        return self._chain.state.on_day(principal, microseconds_of(now_in_utc()))

    def project(self, name: str) -> Project:
        return find_project(self.secrets, name)

    def kept_for_others(self, unit_key: str, principal: str | None) -> Charge:
        """Returns the unspent part of all reservations of a unit for others than a principal. None: of all."""
        with self._lock:
            self._chain.read_on()
            return self._kept_for_others(unit_key, principal)

    def reservations(self, unit_key: str) -> list[tuple[Reservation, Charge]]:
        """Lists the reservations of a unit that are in force, each with its unspent part."""
        with self._lock:
            self._chain.read_on()
            state = self._chain.state
            unspent = state.unspent(unit_key, self._members, now_in_utc())
            return [(state.reserved[unit_key][payer], charge) for payer, charge in unspent.items()]

    def reserve(self, unit_key: str, table_name: str, reservation: Reservation, principal: str) -> int:
        """Records a reservation. Refuses one beyond what is left of the budget beside all other reservations."""
        if word_of(unit_key) is not None:
            raise Refusal(
                f"each period of {unit_key} has a budget of its own, which nobody can spend before the period",
                accepted="a reservation of the budget of a unit without PER",
            )

        def prepare() -> LedgerRow:
            state = self._chain.state
            budget, owner = state.budgets.get(unit_key), f"budget of {unit_key}"
            for other in state.unspent(unit_key, self._members, now_in_utc()):
                if both := {*self._members(other)} & {*self._members(reservation.payer)}:
                    whom = "" if other == reservation.payer else f", which {min(both)} may use"
                    raise Refusal(f"{other} has a reservation already{whom}", accepted="RELEASE it first")
            part = NOTHING if budget is None else reservation.unspent(budget, {})
            require_room(owner, budget, add_charges(state.of(unit_key), self._kept_for_others(unit_key, None)), part)
            return self._chain.row(unit_key, table_name, NOTHING, principal, reservation.record(), RESERVED)

        with self._lock:
            return self._chain.write(prepare)

    def release_reservation(self, unit_key: str, table_name: str, payer: str, principal: str) -> int:
        """Records the end of a reservation. What is unspent of it is everybody's again."""

        def prepare() -> LedgerRow:
            present = self._chain.state.reserved.get(unit_key, {})
            if payer not in present:
                raise Refusal(f"{payer[:80]!r} has no reservation", accepted=", ".join(present) or "none yet")
            return self._chain.row(unit_key, table_name, NOTHING, principal, present[payer].record(), RELEASED)

        with self._lock:
            return self._chain.write(prepare)

    def _members(self, payer: str) -> tuple[str, ...]:
        """Lists the principals who may use a reservation: the members of a project of this name, and a principal."""
        members = (project.members for project in read_projects(self.secrets) if project.name == payer)
        return (payer, *next(members, ()))

    def _kept_for_others(self, unit_key: str, principal: str | None) -> Charge:
        unspent = self._chain.state.unspent(unit_key, self._members, now_in_utc())
        others = (part for payer, part in unspent.items() if principal not in self._members(payer))
        return reduce(add_charges, others, NOTHING)

    def _require_room(
        self, unit_key: str, charge: Charge, principal: str | None, allotment: Fraction | None, project: str | None,
        a_day: Fraction | None, periods: Periods | None,
    ) -> None:  # fmt: skip
        limits = self._limits(unit_key, principal, allotment, project, a_day, periods)
        if periods is not None and any(limit.person for limit in limits):
            require_proven(charge, periods)
        for limit in limits:
            limit.require_room(charge, periods)

    def _limits(
        self, unit_key: str, principal: str | None, allotment: Fraction | None, project: str | None,
        a_day: Fraction | None, periods: Periods | None,
    ) -> list[Limit]:  # fmt: skip
        """Lists what bounds a charge, in any of its periods: the budget, the parts of a principal and of its project.

        Each of them may have a LIFETIME beside it. What is reserved for others counts as spent.
        """
        require_named(unit_key, periods)
        state = self._chain.state
        budget, owner = state.budgets.get(unit_key), f"budget of {unit_key}"
        parts: list[tuple[str, Budget | None, Payer]] = [(owner, budget, None)]
        if principal is None and (allotment is not None or a_day is not None):
            raise InternalError("an allotment belongs to a principal")
        today = None if principal is None or a_day is None else self._today(principal)
        if a_day is not None:
            parts.append((f"part of {principal} for this day in the {owner}", share_of(budget, a_day), today))
        if allotment is not None:
            parts.append((f"share of {principal} in the {owner}", share_of(budget, allotment), principal))
        if project is not None:
            team = find_project(self.secrets, project)  # read after the entries: all who charged are in its list
            members = tuple(dict.fromkeys([*team.members, *([] if principal is None else [principal])]))
            parts.append((f"share of the project {project} in the {owner}", share_of(budget, team.share), members))
        limits = []
        for name, part, payer in parts:
            spent = state.of(unit_key, payer, periods)
            if payer is None:
                spent = add_charges(spent, self._kept_for_others(unit_key, principal))
            later = WIDENED if payer is None or payer != today else TOMORROW
            limits.append(Limit(name, part, spent, later=later))
            lifetime = None if part is None or periods is None else part.lifetime
            if lifetime is not None:
                spent = state.of_person(unit_key, payer)
                limits.append(Limit(f"LIFETIME in the {name}", lifetime, spent, person=True, later=later))
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
