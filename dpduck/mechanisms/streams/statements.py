"""Statements of streams. A stream has one charge when it is created. Its refreshes charge nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

import duckdb
import numpy as np

from dpduck.kernel.door import Bill, compute_charge, open_door
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.queries.stream_state import StreamShape, StreamState, Version
from dpduck.kernel.queries.streams import refresh_stream, require_stream
from dpduck.kernel.units import unit_type
from dpduck.kernel.worker.workers import Workers
from dpduck.language.rows.facts import RequestRows
from dpduck.language.select.private_keys import ONE_PER_GROUP
from dpduck.language.statements.kinds import CreateStream, DropStream, RefreshStream, StreamStatement
from dpduck.language.statements.parse import parse_statement
from dpduck.mechanisms.answers_sql import notes_of
from dpduck.mechanisms.certificate import plan_text
from dpduck.mechanisms.forecast import charge_price, explain_sql
from dpduck.mechanisms.prices import in_both_forms
from dpduck.mechanisms.rehearsal import rehearse_asks
from dpduck.mechanisms.release import WAITING, PlaceOf, Steps
from dpduck.mechanisms.streams.difference import difference
from dpduck.mechanisms.streams.plan import StreamRequest, analyse_stream, further_answers, require_day
from dpduck.mechanisms.streams.published import publication_sql, recover_rows
from dpduck.mechanisms.streams.store import (
    REFRESHED,
    StreamRecord,
    StreamStore,
    new_nonce,
    open_state,
    read_last_version,
    release_of,
    remove_file,
    version_text,
)
from dpduck.mechanisms.streams.strategies import StreamPlan, asks_of, cube_of, explain_stream, plan_from_facts, plans
from dpduck.store import tables as listings
from dpduck.store.catalog import Catalog
from dpduck.store.cursors import Caller, NamedLocks, OpenCursor, SandboxAnswers
from dpduck.store.policies import PolicyStore
from dpduck.store.releases import ReleaseStore, StoredRelease
from dpduck.store.sandbox import Sandbox
from dpduck.store.tables import Value, rows_sql
from dpduck.store.terms import PolicyTerms, as_answered, brought_up
from dpduck.store.twin_files import TwinFiles
from dpduck.store.views import require_view_name
from dpduck.values.column_notes import ANSWER, STDERR
from dpduck.values.errors import BudgetRefusal, InternalError, PermissionRefusal, Refusal, StoreError
from dpduck.values.quoting import fold
from dpduck.values.sqltypes import sql_type

LISTED = (
    ("name", "VARCHAR"), ("table_name", "VARCHAR"), ("strategy", "VARCHAR"), ("answers", "VARCHAR"),
    ("periods", "BIGINT"), ("published", "BIGINT"), ("next_period", "VARCHAR"), ("closes", "TIMESTAMP"),
    ("horizon", "TIMESTAMP"), ("refreshed_by", "VARCHAR"), ("ledger_id", "BIGINT"), ("statement", "VARCHAR"),
    ("late", "VARCHAR"), ("left_out", "VARCHAR"),
)  # fmt: skip
LATE = "rows that arrive after their period closed are never counted, in that period or a later one"
FEWER = "a unit that has added its most rows adds nothing to later periods: counts may fall where the rows do not"
SCOPE = (
    "all periods for one charge; a unit adds at most {rows} rows over the whole horizon, the earliest first: "
    f"{FEWER}; {LATE}"
)
SCOPE_OF_PERSONS = (
    "all periods for one charge; a unit is counted in at most {rows} groups over the whole horizon, the earliest "
    f"first: {FEWER}; {LATE}"
)
SCOPE_OF_ROWS = (
    "all periods for one charge; a unit is one row as it was inserted, in the period that it says: one that is altered "
    f"is another row; {LATE}"
)


def scope_of(stream: StreamRequest) -> str:
    """Renders the scope of a stream's table: the protected unit, and the counted rows."""
    rows = stream.request.rows
    if rows.unit_sql is None:
        return SCOPE_OF_ROWS
    persons = all(aggregate.operand == ONE_PER_GROUP for aggregate in stream.request.question.aggregates)
    return (SCOPE_OF_PERSONS if persons else SCOPE).format(rows=rows.max_rows)


@dataclass(frozen=True)
class Streams:
    """Streams of an engine.

    dropped: the text of the last DROP, which DuckDB may bind again.
    """

    open_cursor: OpenCursor
    policies: PolicyStore
    releases: ReleaseStore
    store: StreamStore
    ledger: Ledger
    files: TwinFiles
    steps: Steps
    workers: Workers
    place_of: PlaceOf
    answered: SandboxAnswers
    names: NamedLocks = field(default_factory=NamedLocks)
    dropped: list[str] = field(default_factory=list)

    def run(self, statement: StreamStatement, text: str, caller: Caller) -> str:
        """Runs a statement. Refuses callers other than the owner."""
        if not caller.owner:
            raise PermissionRefusal("streams are the data owner's", accepted="FROM dp_streams(), and their tables")
        with self.names.held(fold(statement.name), lambda: self.steps(WAITING)):
            if isinstance(statement, CreateStream):
                return listings.status(self._create(statement, text, caller))
            if isinstance(statement, RefreshStream):
                return listings.status(self._refresh(statement, caller))
            return listings.status(self._drop(statement, text))

    def explain(self, statement: StreamStatement, caller: Caller) -> str:
        """Returns SQL that compares the strategies of a stream. It spends nothing and opens no private row."""
        if not isinstance(statement, CreateStream):
            raise Refusal("only a stream that is made has a price", accepted="CREATE PRIVATE STREAM ..")
        stream = self._analyse_statement(statement)
        caller.require_tables(stream.request.asked_tables)
        ranked, request = plans(stream), stream.request
        chosen, *others = explain_stream(stream, ranked)
        forecasts, budget = [chosen.noted(scope_of(stream)), *others], self.ledger.budget(request.rows.unit_key)
        return explain_sql(charge_price(forecasts, request, asks_of(stream, ranked[0]), budget, caller.share))

    def list_streams(self, caller: Caller) -> str:
        """Returns SQL that lists the streams."""
        rows: list[list[Value]] = []
        for named in self.store.all():
            following = named.published < len(named.ends)
            rows.append([
                named.name, named.table, plan_from_facts(named.plan).name, named.answers, len(named.ends),
                named.published, named.labels[named.published] if following else None,
                named.ends[named.published] if following else None, named.ends[-1], "owner", named.entry,
                named.statement if caller.owner else None, LATE, self._fewer(named),
            ])  # fmt: skip
        return rows_sql(LISTED, rows)

    def difference(self, argument: str) -> str:
        """Returns SQL that compares two private views, or two periods of a stream, with the error of the difference."""
        return difference(self.store, self.releases, self.ledger, argument)

    def _analyse_statement(
        self, statement: CreateStream, text: str = "", named: StreamRecord | None = None
    ) -> StreamRequest:
        """Returns the request of a statement. named: the stream that the statement created before, under any terms."""
        with Sandbox(self.answered) as box, self.open_cursor() as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")

            def read_request(terms: PolicyTerms | None) -> StreamRequest:
                fresh = statement if terms is None else parse_statement(text)
                if not isinstance(fresh, CreateStream):
                    raise InternalError("a stream of no statement")
                stream = analyse_stream(fresh, Catalog(cursor, self.policies, box, terms=terms))
                rows = brought_up(stream.request.rows, self.policies.now().policies)
                return replace(stream, request=replace(stream.request, rows=rows))

            return as_answered(
                read_request,
                lambda stream: named is None or stream.digest() == named.digest,
                self.policies.earlier if named is not None else lambda: (),
            )

    def _create(self, statement: CreateStream, text: str, caller: Caller) -> str:
        require_view_name(statement.name)
        existing = self.store.named(statement.name)
        stream = self._analyse_statement(statement, text, existing)
        if existing is not None:
            if (existing.statement, existing.digest) != (text, stream.digest()):
                raise Refusal(f"the stream {existing.name!r} exists", accepted="DROP PRIVATE STREAM, or another name")
            return self._word(existing)
        if self.releases.taken(statement.name) or self.releases.means_something(statement.name):
            raise Refusal(f"the name {statement.name!r} is taken", accepted="another name")
        self._require_live(stream.request.rows)
        plan = plans(stream)[0]
        asks, request = asks_of(stream, plan), stream.request
        rows, price = request.rows, compute_charge(request.price.charge, asks, request.price.least_rho)
        law = f"{plan.noise.kind.value}, stream of {stream.periods} periods, {plan.name}"
        bill = Bill(rows.unit_key, str(rows.table), price, caller.name, text, law)
        named = StreamRecord(
            statement.name, stream.digest(), text, str(rows.table), new_nonce(), 0, plan.to_facts(),
            tuple(str(label) for label in stream.labels), tuple(end.isoformat(" ") for end in stream.ends),
            stream.question.text, stream.column, stream.window, 0,
        )  # fmt: skip
        scope = scope_of(stream)
        release = _add_notes(stream, release_of(named, price, caller.name, scope))
        empty = publication_sql(stream, plan, "")
        note = self.store.made(named, release, empty, plan_text(asks))
        require_stream(asks, stream.axis)
        rehearse_asks(asks, rows.shapes, self.answered, self.workers)
        try:
            with open_door(
                asks, bill, self.ledger, self.open_cursor, partial(self._require_unchanged, rows),
                operating_system_entropy(), self.steps, self.workers, note=note,
            ) as door:  # fmt: skip
                entry = door.entry
        except BudgetRefusal as refused:
            raise in_both_forms(refused, self.ledger, bill) from None
        self.ledger.end(entry)
        if caller.charged is not None:
            caller.charged(entry)
        self.dropped.clear()
        stored = self.store.named(statement.name)
        if stored is None:
            raise InternalError("a stream that was made is not there")
        return self._word(stored)

    def _refresh(self, statement: RefreshStream, caller: Caller) -> str:
        named = self._existing(statement.name)
        stream = self._again(named)
        until = require_day(statement.until) if statement.until else datetime.max
        now = min(datetime.now(UTC).replace(tzinfo=None), until)
        due = sum(end <= now for end in stream.ends)
        plan = plan_from_facts(named.plan)
        last, versions = read_last_version(self.ledger, named), list[Version]()
        with open_state(self.files, named, shape_of(stream, plan, named), self.ledger.bounding_key, last) as (
            place,
            state,
        ):
            if len(state.versions) == last.version and due > state.closed:
                self._count(stream, plan, named, due, state, place)
            if len(state.versions) > last.version:  # new, or of a process that ended before publication
                versions = list(state.versions)
        if versions:
            self._publish(stream, plan, named, versions, caller)
        return self._word(self._existing(statement.name))

    def _count(
        self, stream: StreamRequest, plan: StreamPlan, named: StreamRecord, due: int, state: StreamState,
        place: duckdb.DuckDBPyConnection,
    ) -> None:  # fmt: skip
        """Counts and measures the periods that closed."""
        rows, asks = stream.request.rows, asks_of(stream, plan)
        self._require_live(rows)
        failed = False
        try:
            refresh_stream(
                asks, stream.axis, due, plan.axis.measured(due), named.entry, state, place, self.ledger,
                self.open_cursor, partial(self._require_unchanged, rows), operating_system_entropy(), self.steps,
                self.workers,
            )  # fmt: skip
        except (InternalError, duckdb.Error):
            failed = True
        if failed:  # outside the handler: no error that quotes data is its context
            raise StoreError(
                "the periods could not be counted; nothing was published, nothing is charged; accepted: the same again"
            )

    def _publish(
        self, stream: StreamRequest, plan: StreamPlan, named: StreamRecord, versions: Sequence[Version], caller: Caller
    ) -> None:
        """Appends the periods of the last version, in one transaction with the ledger's record."""
        version, answers = versions[-1], np.concatenate([one_version.answers for one_version in versions])
        rows = recover_rows(stream, plan, named.published, version.closed, answers)
        select = publication_sql(stream, plan, "dpduck_released_rows")
        said = version_text(named, version.closed, version.version, version.seal)
        note = self.store.published(named, version.closed, rows, select)
        unit = stream.request.rows.unit_key
        self.ledger.record(unit, named.table, caller.name, said, REFRESHED, note)
        self.steps("stream published")

    def _drop(self, statement: DropStream, text: str) -> str:
        named = self.store.named(statement.name)
        done = f"{statement.name} is dropped; its budget stays spent"
        if named is None:
            if self.dropped == [text]:
                return done
            if statement.if_exists:
                return "there was no such stream"
            raise Refusal(f"there is no stream {statement.name!r}", accepted="a name of dp_streams(), or IF EXISTS")
        remove_file(self.files.stream_path(named.nonce))
        self.store.drop(named)
        self.dropped[:] = [text]
        return done

    def _existing(self, name: str) -> StreamRecord:
        named = self.store.named(name)
        if named is None:
            raise Refusal(f"there is no stream {name!r}", accepted="a name of dp_streams()")
        return named

    def _again(self, named: StreamRecord) -> StreamRequest:
        """Returns the request of a stream. Refuses one that has changed since the stream was created."""
        statement = parse_statement(named.statement)
        if not isinstance(statement, CreateStream):
            raise InternalError("a stream of no statement")
        stream = self._analyse_statement(statement, named.statement, named)
        if stream.digest() != named.digest:
            raise Refusal(
                f"what {named.name!r} rests on changed: the unit, MAX ROWS, a DOMAIN that it groups by, a CLAMP that "
                "it sums with, how many rows of a public table join a row, or the epoch",
                accepted="the policy as it was; or DROP PRIVATE STREAM and CREATE PRIVATE STREAM, which pays",
            )
        if not self.releases.taken(named.name):
            raise StoreError(
                f"the table of the stream {named.name!r} is no longer in the store; accepted: DROP PRIVATE STREAM"
            )
        return stream

    def _require_live(self, rows: RequestRows) -> None:
        if not self.place_of(rows).is_live:
            raise Refusal(
                f"{rows.table} is prepared, or lies in an engine: a stream reads its rows as they are",
                accepted=f"ALTER PRIVACY POLICY ON {rows.table} UNPREPARE",
            )

    def _require_unchanged(self, rows: RequestRows, cursor: duckdb.DuckDBPyConnection) -> None:
        Catalog(cursor, self.policies).require_unchanged(rows)

    def _word(self, named: StreamRecord) -> str:
        status = f"{named.name} has {named.published} of {len(named.ends)} periods"
        if named.published == len(named.ends):
            status += ": its horizon has ended"
        else:
            status += f"; the next, {named.labels[named.published]}, closes at {named.ends[named.published]} UTC"
        fewer = self._fewer(named)
        return status if fewer is None else f"{status}; {fewer}"

    def _fewer(self, named: StreamRecord) -> str | None:
        """Returns the note on units that later periods leave out, None if a unit is one row."""
        policies = self.policies.now().policies.values()
        of_rows = any(str(policy.table) == named.table and policy.unit.column is None for policy in policies)
        return None if of_rows else FEWER


def _add_notes(stream: StreamRequest, release: StoredRelease) -> StoredRelease:
    """Adds comments to the columns of a release. They tell readers and pictures keys from answers."""
    notes = notes_of(stream.analysis, release)
    for name in further_answers(stream):
        notes |= {name: ANSWER, f"{name}_stderr": STDERR + name}
    return replace(release, notes=notes, caption=stream.analysis.caption.text)


def shape_of(stream: StreamRequest, plan: StreamPlan, named: StreamRecord) -> StreamShape:
    """Returns the shape of the stream's file, with the identity of the stream."""
    identity = f"{named.nonce} {named.digest} {named.entry} {named.name}"
    rows, cube = stream.request.rows, cube_of(stream, plan)
    held = "BIGINT" if rows.unit_sql is None else sql_type(unit_type(rows.unit)).kept_unit
    tables = sum(measure_plan.measure.tables for measure_plan in cube.measures)
    return StreamShape(identity, held, len(stream.request.question.keys), tables)
