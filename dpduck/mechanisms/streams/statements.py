"""Statements of streams. A stream has one charge when it is created. Its refreshes charge nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import duckdb
import numpy as np

from dpduck.kernel.door import Bill, compute_charge, open_door
from dpduck.kernel.queries.stream_state import StreamShape, StreamState, Version
from dpduck.kernel.queries.streams import refresh_stream, require_stream
from dpduck.kernel.units import unit_type
from dpduck.language.rows.facts import RequestRows
from dpduck.language.select.private_keys import ONE_PER_GROUP
from dpduck.language.statements.kinds import STREAM, CreatePrivate, DropPrivate, RefreshPrivate
from dpduck.language.statements.parse import parse_statement
from dpduck.mechanisms.certificate import plan_text
from dpduck.mechanisms.forecast import charge_price, explain_sql
from dpduck.mechanisms.other_prices import times_left
from dpduck.mechanisms.parts import DatabaseParts
from dpduck.mechanisms.prices import in_both_forms, price_of_view
from dpduck.mechanisms.published_facts import notes_of
from dpduck.mechanisms.rehearsal import rehearse_asks
from dpduck.mechanisms.release import WAITING
from dpduck.mechanisms.streams.difference import difference
from dpduck.mechanisms.streams.measurements import asks_of, cube_of
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
from dpduck.mechanisms.streams.strategies import explain_stream, plans
from dpduck.mechanisms.streams.stream_plan import StreamPlan, plan_from_facts
from dpduck.store.catalog import Catalog
from dpduck.store.cursors import Caller
from dpduck.store.named import PrivateNames
from dpduck.store.prepared_files import PreparedFiles
from dpduck.store.releases import StoredRelease
from dpduck.store.sandbox import Sandbox
from dpduck.store.tables import Value, rows_sql
from dpduck.store.terms import brought_up
from dpduck.values.column_notes import ANSWER, STDERR
from dpduck.values.errors import BudgetRefusal, InternalError, PermissionRefusal, Refusal, StoreError
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


class Streams:
    """Streams of a database."""

    def __init__(self, parts: DatabaseParts, store: StreamStore, files: PreparedFiles) -> None:
        self.parts, self.store, self.files = parts, store, files
        self.names = PrivateNames[StreamRecord](
            store.find, lambda stream: STREAM, self._remove, "dp_streams()", waits=lambda: parts.steps(WAITING)
        )

    def run(self, statement: CreatePrivate | RefreshPrivate | DropPrivate, text: str, caller: Caller) -> str:
        if not caller.owner:
            raise PermissionRefusal("streams are the data owner's", accepted="FROM dp_streams(), and their tables")
        if isinstance(statement, DropPrivate):
            return self.names.drop(statement, text, caller)
        if isinstance(statement, CreatePrivate):
            stream = self.analyse(statement, self.store.find(statement.name))
            make = partial(self._create, stream, text, caller)
            named = self.names.create(statement.name, text, caller, stream.digest(), make)
        else:
            with self.names.naming(statement.name):
                named = self._refresh(statement, caller)
        return self._word(named)

    def explain(self, statement: CreatePrivate, caller: Caller) -> str:
        """Returns SQL that compares the strategies of a stream. It spends nothing and opens no private row."""
        stream = self.analyse(statement)
        caller.require_tables(stream.request.asked_tables)
        ranked, request = plans(stream), stream.request
        chosen, *others = explain_stream(stream, ranked)
        forecasts = [chosen.with_notes(scope_of(stream)), *others]
        budget = self.parts.ledger.budget(request.rows.unit_key)
        priced = charge_price(forecasts, request, asks_of(stream, ranked[0]), budget, caller.share)
        charge = compute_charge(request.price.charge, asks_of(stream, ranked[0]), request.price.least_rho)
        left = times_left(request, charge, self.parts.ledger, caller)
        return explain_sql([replace(way, times_left=left) if way.chosen else way for way in priced])

    def list_streams(self, caller: Caller) -> str:
        rows: list[list[Value]] = []
        for named in self.store.all():
            following = named.published < len(named.ends)
            rows.append([
                named.name, named.table, plan_from_facts(named.plan).name, named.answers, len(named.ends),
                named.published, named.labels[named.published] if following else None,
                named.ends[named.published] if following else None, named.ends[-1], named.principal, named.entry,
                named.statement if caller.owner else None, LATE, self._fewer(named),
            ])  # fmt: skip
        return rows_sql(LISTED, rows)

    def difference(self, argument: str) -> str:
        return difference(self.store, self.parts.releases, self.parts.ledger, argument)

    def analyse(self, statement: CreatePrivate, named: StreamRecord | None = None) -> StreamRequest:
        """Returns the request of a statement. named: the stream that the statement created before, under any terms."""

        def analyse_now(fresh: CreatePrivate, catalog: Catalog) -> StreamRequest:
            stream = analyse_stream(fresh, catalog)
            rows = brought_up(stream.request.rows, self.parts.policies.now().policies)
            return replace(stream, request=replace(stream.request, rows=rows))

        with Sandbox(self.parts.answered) as box:
            return self.parts.analyse(statement, analyse_now, named.digest if named else "", box=box)

    def _create(self, stream: StreamRequest, text: str, caller: Caller) -> None:
        if self.parts.releases.is_taken(stream.name) or self.parts.releases.means_something(stream.name):
            raise Refusal(f"the name {stream.name!r} is taken", accepted="another name")
        self._require_live(stream.request.rows)
        plan = plans(stream)[0]
        asks, request = asks_of(stream, plan), stream.request
        rows, price = request.rows, compute_charge(request.price.charge, asks, request.price.least_rho)
        law = f"{plan.noise.kind.value}, stream of {stream.periods} periods, {plan.name}"
        bill = Bill(rows.unit_key, str(rows.table), price, caller.name, text, law)
        named = StreamRecord(
            stream.name, stream.digest(), text, str(rows.table), new_nonce(), 0, plan.to_facts(),
            tuple(str(label) for label in stream.labels), tuple(end.isoformat(" ") for end in stream.ends),
            stream.question.text, stream.column, stream.window, 0,
        )  # fmt: skip
        scope = scope_of(stream)
        release = _add_notes(stream, release_of(named, price, caller.name, scope))
        release = replace(release, price=price_of_view(release, request, self.parts.ledger.budget(rows.unit_key)))
        empty = publication_sql(stream, plan, "")
        note = self.store.note_creation(named, release, empty, plan_text(asks))
        require_stream(asks, stream.axis)
        rehearse_asks(asks, rows.shapes, self.parts.answered, self.parts.workers)
        try:
            with open_door(
                asks, bill, self.parts.ledger, self.parts.open_cursor, partial(self._require_unchanged, rows),
                self.parts.entropy, self.parts.steps, self.parts.workers, note=note,
            ) as door:  # fmt: skip
                entry = door.entry
        except BudgetRefusal as refused:
            raise in_both_forms(refused, self.parts.ledger, bill) from None
        self.parts.ledger.end(entry)
        if caller.charged is not None:
            caller.charged(entry)

    def _refresh(self, statement: RefreshPrivate, caller: Caller) -> StreamRecord:
        named = self.names.own(STREAM, statement.name, caller)
        stream = self._again(named)
        until = require_day(statement.until) if statement.until else datetime.max
        now = min(datetime.now(UTC).replace(tzinfo=None), until)
        due = sum(end <= now for end in stream.ends)
        plan = plan_from_facts(named.plan)
        last, versions = read_last_version(self.parts.ledger, named), list[Version]()
        with open_state(self.files, named, shape_of(stream, plan, named), self.parts.ledger.bounding_key, last) as (
            place,
            state,
        ):
            if len(state.versions) == last.version and due > state.number_closed:
                self._count(stream, plan, named, due, state, place)
            if len(state.versions) > last.version:  # new, or of a process that ended before publication
                versions = list(state.versions)
        if versions:
            self._publish(stream, plan, named, versions, caller)
        return self.names.own(STREAM, statement.name, caller)

    def _count(
        self, stream: StreamRequest, plan: StreamPlan, named: StreamRecord, due: int, state: StreamState,
        place: duckdb.DuckDBPyConnection,
    ) -> None:  # fmt: skip
        rows, asks = stream.request.rows, asks_of(stream, plan)
        self._require_live(rows)
        failed = False
        try:
            refresh_stream(
                asks, stream.axis, due, plan.axis.rows_measured(due), named.entry, state, place, self.parts.ledger,
                self.parts.open_cursor, partial(self._require_unchanged, rows), self.parts.entropy, self.parts.steps,
                self.parts.workers,
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
        """Appends the unpublished periods up to the last version, in one transaction with the ledger's record."""
        version, answers = versions[-1], np.concatenate([one_version.answers for one_version in versions])
        rows = recover_rows(stream, plan, named.published, version.closed, answers)
        select = publication_sql(stream, plan, "dpduck_released_rows")
        said = version_text(named, version.closed, version.version, version.seal)
        note = self.store.note_rows(named, version.closed, rows, select)
        unit = stream.request.rows.unit_key
        self.parts.ledger.record(unit, named.table, caller.name, said, REFRESHED, note)
        self.parts.steps("stream published")

    def _remove(self, named: StreamRecord) -> None:
        remove_file(self.files.stream_path(named.nonce))
        self.store.drop(named)

    def _again(self, named: StreamRecord) -> StreamRequest:
        """Returns the request of a stream. Refuses a stream that has changed since it was created."""
        statement = parse_statement(named.statement)
        if not isinstance(statement, CreatePrivate):
            raise InternalError("a stream of no statement")
        stream = self.analyse(statement, named)
        if stream.digest() != named.digest:
            raise Refusal(
                f"what {named.name!r} rests on changed: the unit, MAX ROWS, a DOMAIN that it groups by, a CLAMP that "
                "it sums with, how many rows of a public table join a row, or the epoch",
                accepted="the policy as it was; or DROP PRIVATE STREAM and CREATE PRIVATE STREAM, which pays",
            )
        if not self.parts.releases.is_taken(named.name):
            raise StoreError(
                f"the table of the stream {named.name!r} is no longer in the store; accepted: DROP PRIVATE STREAM"
            )
        return stream

    def _require_live(self, rows: RequestRows) -> None:
        if not self.parts.place_of(rows).is_live:
            raise Refusal(
                f"{rows.table} is prepared, or lies in an engine: a stream reads its rows as they are",
                accepted=f"ALTER PRIVACY POLICY ON {rows.table} UNPREPARE",
            )

    def _require_unchanged(self, rows: RequestRows, cursor: duckdb.DuckDBPyConnection) -> None:
        Catalog(cursor, self.parts.policies).require_unchanged(rows)

    def _word(self, named: StreamRecord) -> str:
        status = f"{named.name} has {named.published} of {len(named.ends)} periods"
        if named.published == len(named.ends):
            status += ": its horizon has ended"
        else:
            status += f"; the next, {named.labels[named.published]}, closes at {named.ends[named.published]} UTC"
        fewer = self._fewer(named)
        return status if fewer is None else f"{status}; {fewer}"

    def _fewer(self, named: StreamRecord) -> str | None:
        policies = self.parts.policies.now().policies.values()
        of_rows = any(str(policy.table) == named.table and policy.unit.column is None for policy in policies)
        return None if of_rows else FEWER


def _add_notes(stream: StreamRequest, release: StoredRelease) -> StoredRelease:
    """Adds comments to the columns of a release. Readers and pictures tell keys from answers by these comments."""
    notes = notes_of(stream.analysis, release)
    for name in further_answers(stream):
        notes |= {name: ANSWER, f"{name}_stderr": STDERR + name}
    return replace(release, notes=notes, caption=stream.analysis.caption.text)


def shape_of(stream: StreamRequest, plan: StreamPlan, named: StreamRecord) -> StreamShape:
    """Returns the shape of the stream's file, with the identity of the stream."""
    identity = f"{named.nonce} {named.digest} {named.entry} {named.name}"
    rows, cube = stream.request.rows, cube_of(stream, plan)
    held = "BIGINT" if rows.unit_sql is None else sql_type(unit_type(rows.unit)).kept_unit
    tables = sum(measure_plan.measure.contribution.tables for measure_plan in cube.measures)
    return StreamShape(identity, held, len(stream.request.question.keys), tables)
