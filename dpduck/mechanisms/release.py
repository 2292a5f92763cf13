"""One release, step by step: check, charge, count, add noise, store. Every release's guarantee rests on this order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa

from dpduck.kernel.door import Bill, Door, compute_charge, open_door
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.noise.entropy import Entropy
from dpduck.kernel.places.live import LIVE_PLACE
from dpduck.kernel.places.place import RowPlace
from dpduck.kernel.price import Ask
from dpduck.kernel.worker.workers import Workers
from dpduck.language.rows.facts import RequestRows
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.certificate import plan_text, versions_text
from dpduck.mechanisms.prices import describe_entry, in_both_forms
from dpduck.mechanisms.rehearsal import rehearse_asks
from dpduck.store.cursors import Caller, NamedLocks, OpenCursor, ReleaseCopies, SandboxAnswers, is_ctrl_c
from dpduck.store.releases import ReleaseStore, StoredRelease
from dpduck.strategies.recovery.intervals import ErrorLaw
from dpduck.values.errors import BudgetRefusal, Interrupted, Refusal, ReleaseFailed, StoreError

Steps = Callable[[str], None]
PlaceOf = Callable[[RequestRows], RowPlace]

WAITING = "waits for the same release"
"""Step of a caller who waits while the same release is made for another caller."""

MOST_TIMES = 3
"""Most attempts for one charge. Each crash between charge and answer could reveal facts about rows."""


@dataclass(frozen=True)
class ReleasedTable:
    """A released table. columns: names and DuckDB types. covariances, measured: data that is stored beside the table.

    laws, strategy: replace those of the header if they follow from noisy answers.
    """

    columns: Sequence[tuple[str, str]]
    rows: pa.Table
    covariances: str | None = None
    measured: bytes | None = None
    laws: tuple[tuple[ErrorLaw, ...], ...] | None = None
    strategy: str = ""


@dataclass(frozen=True)
class ReleaseHeader:
    """Description of a release before anything is counted. laws: an error law for each aggregate and grouping set.

    most_rows: the most rows of its table, 0 if noisy answers decide.
    """

    request: SelectRequest
    mechanism: str
    strategy: str
    laws: tuple[tuple[ErrorLaw, ...], ...] = ()
    most_rows: int = 0


@dataclass(frozen=True)
class ReleasePlan:
    """Plan of one release, made by a Mechanism. asks: all noisy queries, declared before any row is read.

    recheck: checks public facts once more, in the transaction that will count.
    produce: makes the table after the charge. Its exceptions are hidden, because they could quote data.
    """

    header: ReleaseHeader
    asks: Sequence[Ask[Any]]
    recheck: Callable[[duckdb.DuckDBPyConnection], None]
    produce: Callable[[Door], ReleasedTable]


class _Unstored(StoreError):
    """Error if a paid answer could not be stored. The same statement makes the answer again, for the same charge."""

    def __init__(self, entry: int) -> None:
        super().__init__(
            f"the store cannot be written, and the answer of ledger entry {entry} is not kept; accepted: the same "
            "statement when it can be, for the same charge"
        )


class Releaser:
    """Maker of releases. Equal requests that arrive together are answered once."""

    def __init__(
        self,
        open_cursor: OpenCursor,
        ledger: Ledger,
        releases: ReleaseStore,
        copies: ReleaseCopies,
        entropy: Entropy,
        steps: Steps,
        workers: Workers,
        place_of: PlaceOf = lambda rows: LIVE_PLACE,
        keep: Callable[..., None] = lambda *_: None,
    ) -> None:
        self._open_cursor, self._ledger, self._releases, self._copies = open_cursor, ledger, releases, copies
        self._entropy, self._steps, self._workers = entropy, steps, workers
        self._place_of, self._keep = place_of, keep
        self._answered, self._locks = SandboxAnswers(), NamedLocks()
        self._failed: dict[str, int] = {}
        self._made_by = versions_text()

    def release(self, digest: str, planned: Callable[[], ReleasePlan], caller: Caller, statement: str) -> StoredRelease:
        """Returns the release under a digest: the stored release, or a new release, charged and made as planned."""
        with self._locks.hold(digest, lambda: self._steps(WAITING)):
            asked = self._releases.find_outcome(digest)
            earlier = asked.release
            if earlier is not None:
                if caller.tables is not None:  # an earlier release is not for every caller
                    caller.require_table(self._ledger.entry(earlier.ledger_id).table_name)
                if not asked.there:
                    raise Refusal(
                        f"the answer was released as {earlier.name}, and that table is no longer in the store",
                        accepted="OPTIONS (refresh = '..') for a new release, which is charged for",
                    )
                return earlier
            failed = self._failed.get(digest) or asked.failed
            if failed is not None:  # a statement is bound more than once, and sent again: one failure is charged once
                raise ReleaseFailed(failed)
            return self._new(digest, planned(), caller, statement, asked.unanswered)

    def _new(
        self, digest: str, planned: ReleasePlan, caller: Caller, statement: str, paid: int | None
    ) -> StoredRelease:
        """Charges and makes a new release. paid: the ledger entry of an earlier attempt that gave no answer, if any."""
        asks = planned.asks
        header, rows, price = planned.header, planned.header.request.rows, planned.header.request.price
        charge, table = compute_charge(price.charge, asks, price.least_rho), str(rows.table)
        caller.require_table(table)
        if not caller.owner:
            caller.require_price(charge, self._ledger.budget(rows.unit_key))
        if paid is None:
            caller.require_within(charge)
        caller.take_room(header.most_rows, header.request.question.characters)
        place = self._place_of(rows)
        periods = None if rows.periods is None else rows.periods.periods
        bill = Bill(
            rows.unit_key, table, charge, caller.name, statement, header.mechanism, caller.share, periods,
            caller.project, caller.a_day,
        )  # fmt: skip
        rehearse_asks(asks, rows.shapes, self._answered, self._workers)
        if paid is not None and not 0 < self._ledger.times_begun(paid) < MOST_TIMES:
            self._note_failed(digest, paid)
            raise ReleaseFailed(paid)
        try:
            with open_door(
                asks,
                bill,
                self._ledger,
                self._open_cursor,
                planned.recheck,
                self._entropy,
                self._steps,
                self._workers,
                paid,
                self._releases.noting(digest, plan_text(asks), self._made_by),
                place,
            ) as door:
                if caller.charged is not None:
                    caller.charged(door.entry)
                release = self._produce(door, planned, _draft_release(header, digest, bill, door.entry), place)
        except BudgetRefusal as refused:
            raise in_both_forms(refused, self._ledger, bill) from None
        if release is None:  # raised here, so that no error that quotes data is its context
            self._note_failed(digest, door.entry)
            place.doubt()
            raise ReleaseFailed(door.entry)
        self._copies.add(release.name, self._releases.table_sql(release.name), release.rows)
        return release

    def _note_failed(self, digest: str, entry: int) -> None:
        """Notes a failed release in this process, and in the store if that can be written."""
        self._failed[digest] = entry
        with suppress(StoreError):
            self._ledger.end(entry)
        with suppress(duckdb.Error):
            self._releases.put_failure(digest, entry)

    def _produce(
        self, door: Door, planned: ReleasePlan, release: StoredRelease, place: RowPlace
    ) -> StoredRelease | None:
        """Makes and stores the release. Returns None for every failure, because its reason could quote data."""
        interrupted = ended = False

        def end() -> None:
            nonlocal ended
            self._ledger.end(door.entry, table.rows.nbytes)
            ended = True

        try:
            self._steps("after the charge")
            door.count()
            self._steps("after the count")
            table = planned.produce(door)
            door.close()  # no exact count is left anywhere when an answer is stored
            self._steps("after the noise")
            release = replace(release, rows=table.rows.num_rows, strategy=table.strategy or release.strategy)
            if table.laws is not None:
                release = replace(release, laws=table.laws)
            try:
                moment = place if place.moment else None
                also = partial(self._keep, release.name, planned.header.request.rows, moment, table.measured)
                values = self._releases.put_table(release, table.columns, table.rows, table.covariances, end, also)
            except (duckdb.IOException, duckdb.TransactionException, StoreError):  # errors of the disk, after the noise
                if not ended:
                    raise _Unstored(door.entry) from None
                raise
            if values:
                self._copies.write(release.name, values)
            self._steps("after the release")
        except (SystemExit, _Unstored):
            raise
        except BaseException as error:
            if is_ctrl_c(error):
                interrupted = True
            else:
                return None
        if interrupted:
            raise self._interruption(door, release)
        return release

    def _interruption(self, door: Door, release: StoredRelease) -> Interrupted:
        """Returns the error for Ctrl-C. It says whether the answer is stored, and if not, whether a retry is free."""
        if self._releases.by_digest(release.digest) is not None:
            rest = "the answer is stored: asking again is free"
        elif 0 < (times := self._ledger.times_begun(door.entry)) < MOST_TIMES:
            rest = "asked again, it goes on for the same charge"
        else:
            why = f"was begun {times} times" if times else "was about to be stored"
            rest = f"the answer {why} and is not begun again: OPTIONS (refresh = '..') pays for a new one"
        return Interrupted(f"interrupted; {describe_entry(self._ledger.entry(door.entry))} stays charged; {rest}")


def _draft_release(header: ReleaseHeader, digest: str, bill: Bill, ledger_id: int) -> StoredRelease:
    return StoredRelease(
        name=f"release_{ledger_id}",
        digest=digest,
        statement=bill.statement,
        strategy=header.strategy,
        epsilon=bill.charge.epsilon,
        delta=bill.charge.delta,
        rho=bill.charge.rho,
        rows=0,
        principal=bill.principal,
        ledger_id=ledger_id,
        laws=header.laws,
        kind="answer",
    )
