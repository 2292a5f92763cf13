"""Lets only noisy answers out: prices the asks, charges for them durably, and only then counts.

`open_door` runs the steps of a release in order. A Door, or a session's gate, hides the exact counts. An ask is one
declared kind of noisy answer (price.py). Nothing else leaves, and no answer more often than its ask was paid for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import duckdb

from dpduck.kernel.check import require_carried
from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.counting.hidden import Hidden
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.counting.unit_cells import UnitCells, drop_unit_cells
from dpduck.kernel.facts import read_facts
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.ledger.secrets import require_secret
from dpduck.kernel.ledger.table import Note
from dpduck.kernel.noise.entropy import Entropy
from dpduck.kernel.places.live import LIVE_PLACE
from dpduck.kernel.places.place import Opened, Over, RowPlace
from dpduck.kernel.places.rows import LIVE
from dpduck.kernel.price import Answer, Ask, AskScan, price
from dpduck.kernel.queries.key_counts import count_keys
from dpduck.kernel.queries.keys import KeyStream
from dpduck.kernel.queries.sessions import GateLaw, SessionGate
from dpduck.kernel.relations import Stored, every_table
from dpduck.kernel.rows import reader
from dpduck.kernel.worker.workers import StrictWorkers, Workers
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.periods import Periods, charge_key, split_key
from dpduck.values.privacy import ZERO, Charge

OpenCursor = Callable[[], duckdb.DuckDBPyConnection]
Unchanged = Callable[[duckdb.DuckDBPyConnection], None]
Steps = Callable[[str], None]

PAID = "paid before"
"""Step in place of the charge, if an earlier charge has paid."""


@dataclass(frozen=True)
class Bill:
    """Entry for the ledger: the budget, the price, the principal who spends it, and the purpose.

    allotment, a_day: parts of the unit's budget that this principal may spend, in all and a day. None: no such limit.
    project: its project, with a share of its own, or None. periods: of the rows that are read, for units by periods.
    """

    unit_key: str
    table: str
    charge: Charge
    principal: str
    statement: str
    mechanism: str
    allotment: Fraction | None = None
    periods: Periods | None = None
    project: str | None = None
    a_day: Fraction | None = None

    @property
    def ledger_key(self) -> str:
        return charge_key(self.unit_key, self.periods)


class Door(Hidden):
    """Hidden exact counts, which only declared asks can read. entry: the ledger's entry that paid.

    count: function that counts a job when it is first needed. let_go: function that drops the counts' temporary tables.
    """

    __slots__ = ("_asks", "_count", "_counts", "_entropy", "_left", "_let_go", "_limits", "entry")

    def __init__(
        self,
        asks: Sequence[Ask[Any]],
        count: Callable[[CountingJob], Hidden],
        entropy: Entropy,
        entry: int = 0,
        let_go: Callable[[], None] | None = None,
    ) -> None:
        self._asks = list(asks)
        self._left = {id(ask): ask.times for ask in asks}
        allowed = {id(ask): ask.query.allowance() for ask in asks}
        self._limits = {ask: limit for ask, limit in allowed.items() if limit is not None}
        self._count = count
        self._counts: dict[int, Hidden] = {}
        self._entropy = entropy
        self._let_go = let_go
        self.entry = entry

    def count(self) -> None:
        """Counts the jobs of all declared asks, except asks with a query that is counted later."""
        for ask in self._asks:
            if not ask.query.is_counted_later():
                self._count_scan(ask.scan)

    def answer(self, ask: Ask[Answer], chosen: object = None) -> Answer:
        """Draws the noisy answer to an ask. chosen: public choice that is made only now, and is free (Query.draw)."""
        self._use(ask)
        return ask.query.draw(self._count_scan(ask.scan), ask, self._entropy, chosen)

    def tables(self, asks: Sequence[Ask[Answer]]) -> list[Answer]:
        """Draws the answers to many asks of one kind about one scan. Their tables are computed together."""
        for ask in asks:
            self._use(ask)
            if type(ask.query) is not type(asks[0].query) or ask.scan is not asks[0].scan:
                raise InternalError("only tables of one scan are answered together")
        return asks[0].query.draw_together(self._count_scan(asks[0].scan), asks, self._entropy) if asks else []

    def admit(self, member: Ask[Any], family: Ask[None]) -> None:
        """Declares an ask after the charge. family: declared ask that has reserved the price (Query.allowance)."""
        paid, left = family.query.admit(member), self._limits.get(id(family))
        if left is None:
            raise InternalError("an ask of no family")
        if family.query.is_counted_later():
            _require_same_but_norms(member.scan, family.scan)
        elif member.scan is not family.scan:
            raise InternalError("an ask of no family")
        if paid > left:
            raise InternalError("an ask beyond its family")
        self._limits[id(family)] = left - paid
        self._asks.append(member)
        self._left[id(member)] = self._left.get(id(member), 0) + member.times

    def left(self, family: Ask[None]) -> Fraction:
        """Returns the unused part of the price that an ask reserved. It depends on the asks, not on the answers."""
        return self._limits[id(family)]

    def close(self) -> None:
        self._left.clear()
        self._limits.clear()
        self._counts.clear()
        if self._let_go is not None:
            self._let_go()

    def _use(self, ask: Ask[Any]) -> None:
        if self._left.get(id(ask), 0) < 1:
            raise InternalError("an ask that was not declared, or is used up")
        self._left[id(ask)] -= 1

    def _count_scan(self, scan: AskScan) -> Hidden:
        key = id(scan.job)
        if key not in self._counts:
            self._counts[key] = self._count(scan.job)
        return self._counts[key]


@contextmanager
def open_door(
    asks: Sequence[Ask[Any]],
    bill: Bill,
    ledger: Ledger,
    open_cursor: OpenCursor,
    unchanged: Unchanged,
    entropy: Entropy,
    steps: Steps,
    workers: Workers,
    paid: int | None = None,
    note: Note | None = None,
    place: RowPlace = LIVE_PLACE,
) -> Iterator[Door]:
    """Runs the steps of a release in order: price, budget, public facts, charge. Yields the Door.

    unchanged: function that reads public facts again, in the transaction that will count, and refuses changes.
    paid: ledger entry that has paid this very bill, for a release that ended before its answer. No part of the answer
    has left, as records outside the store say, so nothing is charged again (privacy.md, "Interrupted").
    note: note of the charge (LedgerChain.write). The caller may show the answer only after Ledger.end has returned.
    """
    _require_room(asks, bill, ledger, paid)
    jobs = jobs_of(asks)
    with open_rows(jobs, bill.unit_key, ledger.store, open_cursor, unchanged, workers, place) as (second, over):
        drop = partial(drop_unit_cells, second) if any(job.beside for job in jobs) else None
        if paid is None:
            steps("before the charge")
            entry = ledger.charge(
                bill.unit_key, bill.table, bill.charge, bill.principal, bill.statement, bill.mechanism,
                allotment=bill.allotment, project=bill.project, a_day=bill.a_day, note=note, periods=bill.periods,
            )  # fmt: skip
        else:
            steps(PAID)
            ledger.begin_again(paid)
            entry = paid
        door = Door(asks, counting(second, ledger.bounding_key, workers, over), entropy, entry, drop)
        try:
            yield door
        finally:
            door.close()


@contextmanager
def open_rows(
    jobs: Sequence[CountingJob],
    unit_key: str,
    store: str,
    open_cursor: OpenCursor,
    unchanged: Unchanged,
    workers: Workers,
    place: RowPlace,
) -> Iterator[Opened]:
    """Checks public facts and privacy units, then opens the rows in the same transaction. Nothing is counted here."""
    with ExitStack() as stack:
        cursor = stack.enter_context(open_cursor())
        reader.begin(cursor)
        unchanged(cursor)
        require_units(cursor, jobs, unit_key, store)
        second, over = stack.enter_context(place.open_rows(cursor, workers))
        for job in jobs:
            require_cell_key(cursor, job, place)
            over(job)  # a job that the place cannot count fails before the charge
        yield second, over


def jobs_of(asks: Iterable[Ask[Any]]) -> list[CountingJob]:
    """Lists the jobs of asks, each once."""
    return list({id(ask.scan): ask.scan.job for ask in asks}.values())


def require_cell_key(cursor: duckdb.DuckDBPyConnection, job: CountingJob, place: RowPlace) -> None:
    """Refuses a job with a cell_key that the table no longer has. cursor: connection in the transaction that counts."""
    table = job.source.first.table if isinstance(job.source.first, Stored) else ""
    if job.cell_key and not place.has_key(cursor, table, job.cell_key):
        raise Refusal("a key changed meanwhile", accepted="the same statement again")


def _require_room(asks: Sequence[Ask[Any]], bill: Bill, ledger: Ledger, paid: int | None) -> None:
    require_paid(asks, bill.charge)
    for ask in asks:
        require_periods(ask.scan, bill.periods)
    if paid is not None:
        _require_same_bill(ledger, bill, asks, paid)
        return
    ledger.check(
        bill.unit_key, bill.charge, principal=bill.principal, allotment=bill.allotment, project=bill.project,
        a_day=bill.a_day, periods=bill.periods, anew=False,
    )  # fmt: skip


def require_units(cursor: duckdb.DuckDBPyConnection, jobs: Sequence[CountingJob], unit_key: str, store: str) -> None:
    """Refuses jobs with rows of another unit than the charged unit, by facts read in this transaction."""
    # the jobs read the stored tables: a place later replaces them by jobs of its own, with facts about their rows
    if any(job.place != LIVE for job in jobs):
        raise InternalError("a job that says where its rows lie; nothing was charged")
    facts = read_facts(cursor, store, [table for job in jobs for table in every_table(job.source)])
    for job in jobs:
        if require_carried(job.source, job.unit, job.periods, job.row_values, facts, job.conditions) != unit_key:
            raise InternalError("the asks and the charge disagree about the privacy unit; nothing was charged")


def rehearse(cursor: duckdb.DuckDBPyConnection, asks: Sequence[Ask[Any]], workers: StrictWorkers) -> None:
    """Counts the jobs of the asks over made-up rows, and drops the counts. cursor: its database has no other rows."""
    count, shared = counting(cursor, bytes(32), workers), False
    for job in jobs_of(asks):
        shared = shared or bool(job.beside)
        counts = count(job)
        if isinstance(counts, KeyStream):
            counts.read_all()
    if shared:
        drop_unit_cells(cursor)


def compute_charge(charge: Charge, asks: Iterable[Ask[Any]], least: Fraction) -> Charge:
    """Computes a statement's charge. With an epsilon, rho is the asks' cost, from `least` to the charge's rho."""
    # so MIN EPSILON bounds the number of statements about a unit
    if charge.epsilon is None:
        return charge
    return Charge(charge.epsilon, min(charge.rho, max(least, price(asks).rho)), charge.delta)


def _require_same_bill(ledger: Ledger, bill: Bill, asks: Sequence[Ask[Any]], paid: int) -> None:
    """Refuses an entry that paid for anything else, or paid less than the asks cost."""
    entry = ledger.entry(paid)
    require_paid(asks, Charge(entry.epsilon, entry.rho, entry.delta))
    if (entry.unit_key, entry.table_name, entry.mechanism) != (bill.ledger_key, bill.table, bill.mechanism):
        raise InternalError("an entry of another bill; nothing was charged")


def require_paid(asks: Sequence[Ask[Any]], charge: Charge) -> None:
    """Refuses asks that cost more than the charge, or that have other bounds than the jobs that will be counted."""
    for scan in {id(ask.scan): ask.scan for ask in asks}.values():
        if any(bound != scan.l1 for bound in job_bounds(scan)):
            raise InternalError("the asks and the counts disagree about the contribution bound; nothing was charged")
        _require_same_cells(scan)
    for ask in asks:
        ask.query.require(ask.scan.job)
    cost = price(asks)
    if charge.epsilon is None:
        within = cost.rho <= charge.rho
    else:
        within = cost.epsilon is not None and cost.epsilon <= charge.epsilon and cost.rho <= charge.rho
    if not within or cost.delta > charge.delta:
        raise InternalError("the asks cost more than the statement; nothing was charged")


def require_periods(scan: AskScan, periods: Periods | None) -> None:
    """Refuses to count rows of other periods than the charged periods."""
    if periods != scan.job.periods:
        raise InternalError("the asks and the charge disagree about periods; nothing was charged")


def _require_same_cells(scan: AskScan) -> None:
    """Refuses a scan with other bounds of cells than its job has, or with another number of attributes."""
    job = scan.job
    if (scan.most, scan.squared) == (None, None):
        return
    if scan.attributes != len(job.attributes):
        raise InternalError("the asks and the counts disagree about the attributes; nothing was charged")
    for bounds, claimed in ((job.cell_bounds, scan.most), (job.squares_bounds, scan.squared)):
        if claimed is not None and any(bound != claimed for bound in _by_table(job, bounds, scan)):
            raise InternalError("the asks and the counts disagree about the bound of a cell; nothing was charged")


def _require_same_but_norms(scan: AskScan, family: AskScan) -> None:
    """Refuses an ask with another job than its family, or with other bounds than its own job."""
    # norms and centres may differ, since the job's own bounds follow from them; without levels, all have norms
    job, family_job = scan.job, family.job
    bare, family_bare = (
        [[replace(aggregate, norm=0, centre=ZERO) for aggregate in listed] for listed in (own.aggregates, own.beside)]
        for own in (job, family_job)
    )
    same = replace(job, aggregates=family_job.aggregates) == family_job and bare == family_bare
    weighed = bool(job.levels) or all(aggregate.norm for aggregate in job.aggregates)
    if not same or not weighed or any(bound != scan.l1 for bound in job_bounds(scan)):
        raise InternalError("an ask of no family")
    _require_same_cells(scan)


def _by_table(job: CountingJob, bounds: Sequence[int], scan: AskScan) -> list[int]:
    """Lists the bound of a scan's tables if they are of one aggregate. Otherwise lists 0, which no scan has."""
    by_table = [number for number, item in enumerate(job.aggregates) for _ in range(item.tables)]
    return [bounds[own] for own in numbers] if len(numbers := {by_table[table] for table in scan.tables}) < 2 else [0]


def job_bounds(scan: AskScan) -> list[int]:
    """Bounds the contribution of one unit to the tables of a scan, by the job that will be counted."""
    job = scan.job
    return _by_table(job, job.unit_bounds, scan)


def counting(
    cursor: duckdb.DuckDBPyConnection,
    bounding_key: bytes,
    workers: Workers | None,
    over: Over = lambda job: job,
) -> Callable[[CountingJob], Hidden]:
    """Returns a function that counts a job exactly. over: function from a job to the job that the place counts."""

    shared: UnitCells | None = None

    def count(described: CountingJob) -> Hidden:
        nonlocal shared
        job = over(described)
        if job.beside:
            shared = shared or UnitCells(cursor, bounding_key, workers)
            if shared.serves(job):
                return shared.counts(job)
        if job.selected:
            return KeyStream(cursor, job, bounding_key, workers)
        of_kind = count_exactly if job.digest is None else count_keys
        return of_kind(cursor, job, bounding_key, workers)

    return count


def open_gate(
    law: GateLaw,
    scan: AskScan,
    secret: str,
    entry: int,
    ledger: Ledger,
    open_cursor: OpenCursor,
    unchanged: Unchanged,
    entropy: Entropy,
    workers: Workers,
    place: RowPlace = LIVE_PLACE,
) -> SessionGate:
    """Returns the gate of a session that was paid for earlier. Its asks must not cost more than the ledger's entry.

    secret: name of the secret with the session's thresholds, written after the charge. The store keeps the number of
    rounds that are left (mechanisms/sparse/ask.py), protected against older copies of the store.
    """
    paid = ledger.entry(entry)
    require_paid([law.total_ask(scan), law.gate_ask(scan)], Charge(paid.epsilon, paid.rho, paid.delta))
    require_periods(scan, split_key(paid.unit_key)[1])
    thresholds = require_secret(ledger.secrets, secret)
    job = scan.job
    if job.digest is None:
        raise InternalError("a session counts by key")
    with open_cursor() as cursor:
        reader.begin(cursor)
        unchanged(cursor)
        require_units(cursor, [job], split_key(paid.unit_key)[0], ledger.store)
        with place.open_rows(cursor, workers) as (second, over):
            counts = count_keys(second, over(job), ledger.bounding_key, workers)
    return SessionGate(law, thresholds, counts, entropy)
