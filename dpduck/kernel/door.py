"""Lets noisy answers out, and nothing else: prices what is asked, charges for it durably, and only then counts.

`opened` is the order of a release. Exact counts exist inside a Door alone. They become numbers by `answer`, each ask
as often as it was declared and paid for; an ask that was not declared, or is used up, is a defect and raises.
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
from dpduck.kernel.ledger.secrets import required
from dpduck.kernel.ledger.table import Note
from dpduck.kernel.noise.entropy import Entropy
from dpduck.kernel.places.live import LIVE_PLACE
from dpduck.kernel.places.place import Over, Place
from dpduck.kernel.places.rows import LIVE
from dpduck.kernel.price import Answer, Ask, Scan, price
from dpduck.kernel.queries.key_counts import count_keys
from dpduck.kernel.queries.keys import KeyStream
from dpduck.kernel.queries.sessions import GateLaw, SessionGate
from dpduck.kernel.relations import Stored, every_table
from dpduck.kernel.rows import reader
from dpduck.kernel.worker.workers import StrictWorkers, Workers
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.periods import Periods, charged_key, split_key
from dpduck.values.privacy import ZERO, Charge

OpenCursor = Callable[[], duckdb.DuckDBPyConnection]
Unchanged = Callable[[duckdb.DuckDBPyConnection], None]
Steps = Callable[[str], None]

PAID = "paid before"
"""The step in the place of a charge where an earlier one paid."""


@dataclass(frozen=True)
class Bill:
    """Who pays how much from whose budget, and for what: the entry in the ledger.

    allotment: the share of the unit's budget that this principal may spend in all; None for no limit but the budget.
    periods: of a unit by periods, those whose rows are read.
    """

    unit_key: str
    table: str
    charge: Charge
    principal: str
    statement: str
    mechanism: str
    allotment: Fraction | None = None
    periods: Periods | None = None

    @property
    def charged_key(self) -> str:
        """Returns the key of the unit and its periods, as the ledger has it."""
        return charged_key(self.unit_key, self.periods)


class Door(Hidden):
    """Exact counts behind declared asks; hidden. entry: of the ledger, which paid for it.

    count: counts a job when it is asked for, not before. let_go: drops the temporary tables of these counts.
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
        """Reads the rows of everything that was declared."""
        for ask in self._asks:
            if not ask.query.is_counted_later():
                self._counted(ask.scan)

    def answer(self, ask: Ask[Answer], chosen: object = None) -> Answer:
        """Returns the noisy answer of an ask. chosen: what is chosen only now, free (Query.draw)."""
        self._use(ask)
        return ask.query.draw(self._counted(ask.scan), ask, self._entropy, chosen)

    def tables(self, asks: Sequence[Ask[Answer]]) -> list[Answer]:
        """Returns the answers of many asks of one kind and one scan: tables are rolled up together."""
        for ask in asks:
            self._use(ask)
            if type(ask.query) is not type(asks[0].query) or ask.scan is not asks[0].scan:
                raise InternalError("only tables of one scan are answered together")
        return asks[0].query.draw_together(self._counted(asks[0].scan), asks, self._entropy) if asks else []

    def admit(self, member: Ask[Any], family: Ask[None]) -> None:
        """Declares an ask that was not known before the charge, within the price of its family."""
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
        """Returns the part of a family's price that is not yet declared: a function of the asks, not of the answers."""
        return self._limits[id(family)]

    def close(self) -> None:
        """Ends all asks and lets the counts go."""
        self._left.clear()
        self._limits.clear()
        self._counts.clear()
        if self._let_go is not None:
            self._let_go()

    def _use(self, ask: Ask[Any]) -> None:
        if self._left.get(id(ask), 0) < 1:
            raise InternalError("an ask that was not declared, or is used up")
        self._left[id(ask)] -= 1

    def _counted(self, scan: Scan) -> Hidden:
        known = id(scan.job)
        if known not in self._counts:
            self._counts[known] = self._count(scan.job)
        return self._counts[known]


@contextmanager
def opened(
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
    place: Place = LIVE_PLACE,
) -> Iterator[Door]:
    """Lends the order of a release: price, room, facts, charge, and a door to count and answer by.

    unchanged: looks at public facts again, in the transaction that will count, and refuses what is no longer so.
    paid: the entry of this very bill, which ended before there was an answer: nothing of it left, and nothing is
    charged again (privacy.md, "Interrupted"). That there is no answer is known outside the store. note: of the charge,
    see LedgerChain.write. place: where rows are counted. Whoever opened the door lets the answer be
    seen when Ledger.end has returned, not before.
    """
    _require_room(asks, bill, ledger, paid)
    with ExitStack() as stack:
        cursor = stack.enter_context(open_cursor())
        reader.begin(cursor)
        unchanged(cursor)
        jobs = list({id(ask.scan): ask.scan.job for ask in asks}.values())
        require_units(cursor, jobs, bill.unit_key, ledger.store)
        second, over = stack.enter_context(place.opened(cursor, workers))
        for job in jobs:
            require_cell_key(cursor, job, place)
            over(job)  # what cannot be counted there is found out before it is paid for
        drop = partial(drop_unit_cells, second) if any(job.beside for job in jobs) else None
        if paid is None:
            steps("before the charge")
            entry = ledger.charge(
                bill.unit_key, bill.table, bill.charge, bill.principal, bill.statement, bill.mechanism,
                allotment=bill.allotment, note=note, periods=bill.periods,
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


def require_cell_key(cursor: duckdb.DuckDBPyConnection, job: CountingJob, place: Place) -> None:
    """Refuses bounds by a key that the rows to be counted lack. cursor: in the transaction that will count."""
    table = job.source.first.table if isinstance(job.source.first, Stored) else ""
    if job.cell_key and not place.has_key(cursor, table, job.cell_key):
        raise Refusal("a key changed meanwhile", accepted="the same statement again")


def _require_room(asks: Sequence[Ask[Any]], bill: Bill, ledger: Ledger, paid: int | None) -> None:
    """Refuses asks that are not those of the bill, and a bill beyond the budget; paid: the entry that it had."""
    require_paid(asks, bill.charge)
    for ask in asks:
        require_periods(ask.scan, bill.periods)
    if paid is not None:
        _require_same_bill(ledger, bill, asks, paid)
        return
    ledger.check(
        bill.unit_key, bill.charge, principal=bill.principal, allotment=bill.allotment, periods=bill.periods, anew=False
    )


def require_units(cursor: duckdb.DuckDBPyConnection, jobs: Sequence[CountingJob], unit_key: str, store: str) -> None:
    """Refuses jobs of rows that do not carry the unit that is charged, by facts of this transaction (kernel/check).

    They are jobs over the tables themselves. A place puts others in their stead, and says what is known of these.
    """
    if any(job.place != LIVE for job in jobs):
        raise InternalError("a job that says where its rows lie; nothing was charged")
    facts = read_facts(cursor, store, [table for job in jobs for table in every_table(job.source)])
    for job in jobs:
        if require_carried(job.source, job.unit, job.periods, job.read, facts, job.conditions) != unit_key:
            raise InternalError("the asks and the charge disagree about the privacy unit; nothing was charged")


def rehearse(cursor: duckdb.DuckDBPyConnection, asks: Sequence[Ask[Any]], workers: StrictWorkers) -> None:
    """Counts what the asks are about over rows that are made up, and lets the counts go: the very job that will run.

    cursor: of a database that holds nothing else.
    """
    count, shared = counting(cursor, bytes(32), workers), False
    for job in {id(ask.scan): ask.scan.job for ask in asks}.values():
        shared = shared or bool(job.beside)
        counts = count(job)
        if isinstance(counts, KeyStream):
            counts.read()
    if shared:
        drop_unit_cells(cursor)


def charged(charge: Charge, asks: Iterable[Ask[Any]], least: Fraction) -> Charge:
    """Computes what the ledger is charged for a statement of this price: if pure, no more rho than its asks cost.

    least: of rho, and no more than the price, so that MIN EPSILON bounds how often a unit is asked about.
    """
    if charge.epsilon is None:
        return charge
    return Charge(charge.epsilon, min(charge.rho, max(least, price(asks).rho)), charge.delta)


def _require_same_bill(ledger: Ledger, bill: Bill, asks: Sequence[Ask[Any]], paid: int) -> None:
    """Refuses an entry that paid for anything else, or for less."""
    entry = ledger.entry(paid)
    require_paid(asks, Charge(entry.epsilon, entry.rho, entry.delta))
    if (entry.unit_key, entry.table_name, entry.mechanism) != (bill.charged_key, bill.table, bill.mechanism):
        raise InternalError("an entry of another bill; nothing was charged")


def require_paid(asks: Sequence[Ask[Any]], charge: Charge) -> None:
    """Refuses asks that cost more than the charge, or whose bounds are not those of what will be counted."""
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


def require_periods(scan: Scan, periods: Periods | None) -> None:
    """Refuses to count rows of other periods than those that are charged."""
    if periods != scan.job.periods:
        raise InternalError("the asks and the charge disagree about periods; nothing was charged")


def _require_same_cells(scan: Scan) -> None:
    """Refuses a bound of one cell that is not that of what will be counted, or is of cells of other attributes."""
    job = scan.job
    if (scan.most, scan.squared) == (None, None):
        return
    if scan.attributes != len(job.attributes):
        raise InternalError("the asks and the counts disagree about the attributes; nothing was charged")
    for bounds, claimed in ((job.cell_bounds, scan.most), (job.squared_bounds, scan.squared)):
        if claimed is not None and any(bound != claimed for bound in _by_table(job, bounds, scan)):
            raise InternalError("the asks and the counts disagree about the bound of a cell; nothing was charged")


def _require_same_but_norms(scan: Scan, family: Scan) -> None:
    """Refuses an ask about other rows than those of its family, or with other bounds than those of its job.

    Norms and centres may differ: the job's own bounds follow from them.
    """
    job, known = scan.job, family.job
    bare, alike = (
        [[replace(one, norm=0, centre=ZERO) for one in listed] for listed in (both.aggregates, both.beside)]
        for both in (job, known)
    )
    same = replace(job, aggregates=known.aggregates) == known and bare == alike
    weighed = bool(job.levels) or all(one.norm for one in job.aggregates)
    if not same or not weighed or any(bound != scan.l1 for bound in job_bounds(scan)):
        raise InternalError("an ask of no family")
    _require_same_cells(scan)


def _by_table(job: CountingJob, bounds: Sequence[int], scan: Scan) -> list[int]:
    """Returns the bound of a scan's one aggregate, or 0, which no scan has, for several aggregates."""
    by_table = [number for number, one in enumerate(job.aggregates) for _ in range(one.tables)]
    return [bounds[one] for one in asked] if len(asked := {by_table[table] for table in scan.tables}) < 2 else [0]


def job_bounds(scan: Scan) -> list[int]:
    """Bounds what one unit adds to each table of a scan, by the description of what will be counted."""
    job = scan.job
    return _by_table(job, job.unit_bounds, scan)


def counting(
    cursor: duckdb.DuckDBPyConnection,
    bounding_key: bytes,
    workers: Workers | None,
    over: Over = lambda job: job,
) -> Callable[[CountingJob], Hidden]:
    """Returns the one way from a description of rows to exact counts; groups with private keys come as a stream.

    over: the job as it is counted there.
    """

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


def reopened(
    law: GateLaw,
    scan: Scan,
    secret: str,
    entry: int,
    ledger: Ledger,
    open_cursor: OpenCursor,
    unchanged: Unchanged,
    entropy: Entropy,
    workers: Workers,
    place: Place = LIVE_PLACE,
) -> SessionGate:
    """Returns the gate of a session that was paid for earlier; what it asks must not cost more than the ledger's entry
    says.

    secret: where its thresholds are among the secrets, put there after that charge. Which rounds are left is in the
    store (mechanisms/sparse/ask.py), and fenced against older copies of it.
    """
    paid = ledger.entry(entry)
    require_paid([law.total_ask(scan), law.gate_ask(scan)], Charge(paid.epsilon, paid.rho, paid.delta))
    require_periods(scan, split_key(paid.unit_key)[1])
    thresholds = required(ledger.secrets, secret)
    job = scan.job
    if job.digest is None:
        raise InternalError("a session counts by key")
    with open_cursor() as cursor:
        reader.begin(cursor)
        unchanged(cursor)
        require_units(cursor, [job], split_key(paid.unit_key)[0], ledger.store)
        with place.opened(cursor, workers) as (second, over):
            counts = count_keys(second, over(job), ledger.bounding_key, workers)
    return SessionGate(law, thresholds, counts, entropy)
