"""Runs the statements and dp functions of one database. The result is always SQL that reads released tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb

from dpduck.database.foresight import Foresight
from dpduck.database.late import Late
from dpduck.database.started import Started
from dpduck.engines.tables import EngineTables
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.places.live import LIVE_PLACE
from dpduck.kernel.places.place import RowPlace
from dpduck.kernel.worker.workers import Workers
from dpduck.language.rows.facts import Policy, RequestRows
from dpduck.language.select.analyse import Analysis, analyse
from dpduck.language.select.request import SelectRequest
from dpduck.language.statements.kinds import (
    PROJECTION,
    STREAM,
    TABLE,
    VIEW,
    AlterPolicy,
    AskStatement,
    CreatePrivate,
    DropPrivate,
    RefreshPrivate,
    Statement,
)
from dpduck.language.statements.parse import parse_ask, parse_statement
from dpduck.language.statements.synthetic import CreateSynthetic, SampleRelease
from dpduck.language.text.names import GROUPING_LEVEL, TableName
from dpduck.mechanisms.answers_sql import empty_release_sql, margins_sql
from dpduck.mechanisms.cubes.public_totals import with_tables
from dpduck.mechanisms.forecast import ANSWERED, explain_sql
from dpduck.mechanisms.known.cells import cells_sql
from dpduck.mechanisms.known.reuse import forecast_reuse, nothing_sql, reuse_digest
from dpduck.mechanisms.known.statements import LONGEST_KEPT, MOST_LABELS, KnownStatements
from dpduck.mechanisms.mechanism import Tools
from dpduck.mechanisms.parts import DatabaseParts
from dpduck.mechanisms.prices import price_of_view
from dpduck.mechanisms.published_facts import errors_of, notes_of, nothing_shown, scope_of
from dpduck.mechanisms.registry import check_sql, mechanism_of, own_options
from dpduck.mechanisms.release import Releaser
from dpduck.owner.changes import OwnerChanges
from dpduck.owner.policy_text import policy_sql
from dpduck.store import tables as listings
from dpduck.store.catalog import Catalog, Facts
from dpduck.store.cursors import Caller, ReleaseCopies, SandboxAnswers, require_owner
from dpduck.store.measured import MeasuredStore
from dpduck.store.policies import PolicyStore
from dpduck.store.prepared import PreparedTables
from dpduck.store.prepared_files import PreparedFiles
from dpduck.store.releases import ReleaseStore, StoredRelease
from dpduck.store.sandbox import Sandbox
from dpduck.store.terms import PolicyTerms, as_answered
from dpduck.store.views import PrivateViews
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Charge

if TYPE_CHECKING:
    from dpduck.database.about import AboutTables
    from dpduck.database.checks import StatementChecks
    from dpduck.mechanisms.sparse.request import SparseRequest
    from dpduck.mechanisms.sparse.statements import SparseQueries
    from dpduck.mechanisms.streams.statements import Streams
    from dpduck.mechanisms.synthetic.recover import SyntheticTables
    from dpduck.mechanisms.synthetic.request import SyntheticRequest
    from dpduck.trial.trial import Trials

MOST_BOUND = 10_000

MOST_ANALYSED = 128


@dataclass(frozen=True)
class Analysed:
    """Statement with its analysis, and the public facts behind it. terms: earlier terms that answered, if any."""

    statement: AskStatement
    analysis: Analysis
    facts: Facts
    terms: PolicyTerms | None


class Database:
    """Database with dpduck loaded: its policies, ledger and releases, and the statements of its dp functions."""

    def __init__(self, started: Started) -> None:
        connections, store, ledger, steps = started.connections, started.store, started.ledger, started.steps
        progress = started.progress
        self.connections = connections
        self.progress = progress
        self.listings = started.listings
        self._open_cursor = connections.cursor
        self._store = store
        self._steps = steps
        self._bound: set[tuple[str, str, Fraction]] = set()
        self._answered = SandboxAnswers()
        self._analysed = SandboxAnswers(MOST_ANALYSED)
        self._ledger = ledger
        self._policies = started.listings.policies
        self._files = files = PreparedFiles(connections.cursor, started.beside, lambda: ledger.bounding_key)
        self.releases = self._releases = ReleaseStore(connections.cursor, store, steps)
        self._prepared = PreparedTables(connections.cursor, store, self._policies, ledger, files, steps)
        self._workers = Workers()
        self.engines = EngineTables(connections.cursor, store, self._policies, self._workers)
        self._measured = MeasuredStore(connections.cursor, store)
        self._prepared.read_records()
        self._copies = ReleaseCopies(connections.cursor)
        self._releaser = Releaser(
            connections.cursor, ledger, self._releases, self._copies, operating_system_entropy(), steps, self._workers,
            self._place_of, self._measured.save,
        )  # fmt: skip
        self._changes = OwnerChanges(connections.cursor, self._policies, ledger, self._prepared, self.engines)
        self._views = PrivateViews(self._releases, store, self._policies.all_tables)
        self._parts = DatabaseParts(
            connections.cursor, self._policies, self._releases, self._views, ledger, operating_system_entropy(), steps,
            self._workers, self._place_of, self._answered, self._release,
        )  # fmt: skip
        self.foresight = Foresight(self._policies, ledger, steps, progress)
        self._from_known = self._known_statements()
        self.known = self._from_known.known
        self._about, self._tables = Late(self._new_about), Late(self._new_tables)
        self._checks, self._trials = Late(self._new_checks), Late(self._new_trials)
        self._sparse, self._streams = Late(self._new_sparse), Late(self._new_streams)

    @property
    def about(self) -> AboutTables:
        return self._about()

    @property
    def checks(self) -> StatementChecks:
        return self._checks()

    @property
    def trials(self) -> Trials:
        return self._trials()

    @property
    def sparse(self) -> SparseQueries:
        return self._sparse()

    @property
    def streams(self) -> Streams:
        return self._streams()

    def _known_statements(self) -> KnownStatements:
        return KnownStatements(
            self._open_cursor, self._policies, self._releases, self._measured, self._copies, self._views,
            self._answered, self._analysed, self._place_of,
        )  # fmt: skip

    def under(self, policies: PolicyStore) -> Database:
        """Returns this database as it would read statements under other policies. It must not run a statement."""
        other = copy(self)
        other._policies, other._answered, other._analysed = policies, SandboxAnswers(), SandboxAnswers(MOST_ANALYSED)
        other._parts = replace(self._parts, policies=policies, answered=other._answered)
        other._from_known = other._known_statements()
        other._tables, other._sparse = Late(other._new_tables), Late(other._new_sparse)
        other._streams = Late(other._new_streams)
        return other

    def _new_about(self) -> AboutTables:
        from dpduck.database.about import AboutTables  # noqa: PLC0415

        return AboutTables(self._open_cursor, self._policies, self._releases, self._prepared, self.engines)

    def _new_checks(self) -> StatementChecks:
        from dpduck.database.checks import StatementChecks  # noqa: PLC0415

        return StatementChecks(self._open_cursor, self._policies, self._ledger, self._place_of, self._workers)

    def _new_trials(self) -> Trials:
        from dpduck.database.functions import OWNER  # noqa: PLC0415
        from dpduck.trial.tools import TrialTools  # noqa: PLC0415
        from dpduck.trial.trial import Trials  # noqa: PLC0415

        def facts_of(table: TableName) -> list[Any]:
            with self._open_cursor() as cursor:
                return cursor.execute(self.about.check(table.sql, OWNER)).fetchall()

        return Trials(TrialTools(
            self._open_cursor, self._policies, self._ledger, self._workers, self._place_of, self._answered, facts_of
        ))  # fmt: skip

    def _new_tables(self) -> SyntheticTables:
        from dpduck.mechanisms.synthetic.recover import SyntheticTables  # noqa: PLC0415

        margins, expect = self._from_known.margins, self.foresight.expect
        return SyntheticTables(self._parts, margins, expect)

    def _new_sparse(self) -> SparseQueries:
        from dpduck.mechanisms.sparse.statements import SparseQueries  # noqa: PLC0415
        from dpduck.mechanisms.sparse.store import SparseStore  # noqa: PLC0415

        return SparseQueries(self._parts, SparseStore(self._open_cursor, self._store))

    def _new_streams(self) -> Streams:
        from dpduck.mechanisms.streams.statements import Streams  # noqa: PLC0415
        from dpduck.mechanisms.streams.store import StreamStore  # noqa: PLC0415

        return Streams(self._parts, StreamStore(self._open_cursor, self._store, self._releases), self._files)

    def whole(self) -> Database:
        """Returns this database. The same method of Started builds the database."""
        return self

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    def _place_of(self, rows: RequestRows) -> RowPlace:
        """Returns the place that counts a request's rows: an engine, the prepared tables, or the live tables."""
        return self.engines.place(rows) or self._prepared.place(rows) or LIVE_PLACE

    def limit_selects(self, seconds: float) -> None:
        self._releases.seconds = seconds

    def kept_by(self, principal: str) -> tuple[int, int]:
        return self._releases.kept_by(principal)

    def has_copies(self, sql: str) -> bool:
        return self._copies.has_all(sql)

    def run(self, text: str, caller: Caller) -> str:
        """Returns SQL that reads the answer to a statement of dp()."""
        analysed: Analysed | None = self._analysed.get((text, caller))
        statement = parse_statement(text) if analysed is None else analysed.statement
        if isinstance(statement, AskStatement):
            return self._ask(statement, text, caller, analysed)
        if isinstance(statement, CreateSynthetic):
            return listings.status(self._tables().create(statement, text, caller))
        if isinstance(statement, SampleRelease):
            return listings.status(self._tables().sample(statement, text, caller))
        if isinstance(statement, CreatePrivate | RefreshPrivate | DropPrivate) and statement.kind == STREAM:
            return listings.status(self.streams.run(statement, text, caller))
        if isinstance(statement, DropPrivate):
            names = self._views.names if statement.kind in (VIEW, TABLE, PROJECTION) else self.sparse.names
            return listings.status(names.drop(statement, text, caller))
        if isinstance(statement, CreatePrivate):
            return listings.status(self.sparse.create(statement, text, caller))
        if isinstance(statement, RefreshPrivate):
            return listings.status(self._from_known.refresh(statement.name, caller))
        require_owner(caller)
        announce = None if self.progress is None else self._announce_change
        return listings.status(self._changes.carry_out(statement, text, caller, announce))

    def _announce_change(self, changed: Sequence[Policy]) -> None:
        """Tells a person at a terminal, before a change of policies, which paid answers it takes away."""
        from dpduck.database.effects import MOST_ANNOUNCED, describe_effects, list_effects  # noqa: PLC0415

        effects = list_effects(self, self.under(self._policies.after(changed)), MOST_ANNOUNCED) if changed else ()
        words = describe_effects(list(effects), self._ledger)
        if words and self.progress is not None:
            self.progress.say(words)
            self._steps(words)

    def _explain_change(self, statement: AlterPolicy, text: str, caller: Caller) -> str:
        """Returns SQL with the paid answers that a change of policies takes away, and their prices afterwards."""
        from dpduck.database.effects import MOST_READ, effects_sql, list_effects  # noqa: PLC0415

        changed = self._changes.propose(statement, text, caller)
        effects = list_effects(self, self.under(self._policies.after(changed)), MOST_READ) if changed else ()
        return effects_sql(list(effects), self._ledger, caller)

    def explain(self, text: str, caller: Caller) -> str:
        """Returns SQL with the comparison of strategies. It spends nothing and reads no private row."""
        statement, chosen = parse_statement(text), None
        if isinstance(statement, AlterPolicy) and caller.owner:
            return self._explain_change(statement, text, caller)
        if isinstance(statement, CreatePrivate) and statement.kind == STREAM:
            return self.streams.explain(statement, caller)
        if isinstance(statement, SampleRelease):
            return self._tables().explain(statement, caller)
        question, request = self._question(statement, text, caller)
        caller.require_tables(request.asked_tables)
        if isinstance(statement, AskStatement):
            with Sandbox(self._answered) as box, self._open_cursor() as cursor:
                earlier = self._analysed.get((text, caller)) if "reuse" in text.lower() else None
                catalog = Catalog(cursor, self._policies, box, caller, terms=None if earlier is None else earlier.terms)
                reuse = self._from_known.reuse(text, caller, catalog, cursor)
                if reuse is not None and isinstance(question, SelectRequest):
                    chosen = reuse.choose(request)
        forecast = partial(self.foresight.forecasts, caller=caller)
        ways = forecast(question) if chosen is None else forecast_reuse(chosen, forecast)
        if self._releases.answers(question.digest(), caller):
            ways = [way.with_notes(ANSWERED) if way.chosen else way for way in ways]
        return explain_sql(ways)

    def errors(self, text: str, caller: Caller) -> str:
        return self.foresight.errors(self.question_of(text, caller)[0])

    def question_of(
        self, text: str, caller: Caller
    ) -> tuple[SyntheticRequest | SparseRequest | SelectRequest, SelectRequest]:
        """Returns a priced statement's question and the request for its rows. Refuses tables not open to the caller."""
        question, request = self._question(parse_statement(text), text, caller)
        caller.require_tables(request.asked_tables)
        return question, request

    def _question(
        self, statement: Statement, text: str, caller: Caller
    ) -> tuple[SyntheticRequest | SparseRequest | SelectRequest, SelectRequest]:
        if isinstance(statement, CreateSynthetic):
            synthetic = self._tables().analyse(statement, caller)
            return synthetic, synthetic.base
        if isinstance(statement, CreatePrivate) and statement.kind != STREAM:
            sparse = self.sparse.analyse(statement, caller)
            return sparse, sparse.request
        if isinstance(statement, AskStatement):
            with Sandbox(self._answered) as box:
                read = self._analysis(statement, text, box, caller, self._analysed.get((text, caller)))
            return read.analysis.request, read.analysis.request
        raise Refusal(
            "only statements with a price are explained",
            accepted="SELECT WITH DIFFERENTIAL_PRIVACY .., or CREATE PRIVATE .. OPTIONS (..)"
            + (", or the owner's ALTER PRIVACY POLICY" if caller.owner else ""),
        )

    def describe(self, text: str, caller: Caller) -> str:
        """Returns SQL with the columns of dp()'s answer to a statement, and without rows. It spends nothing."""
        statement = parse_statement(text)
        if not isinstance(statement, AskStatement) or statement.view is not None:
            return listings.rows_sql([("status", "VARCHAR")], [])
        with Sandbox(self._answered) as box:
            read = self._analysis(statement, text, box, caller)
            analysis = read.analysis
            caller.require_tables(analysis.request.asked_tables)
            mechanism = mechanism_of(analysis.request)
            bound = check_sql(analysis, mechanism, mechanism.plan(analysis.request))
            with self._open_cursor() as cursor:
                catalog = Catalog(cursor, self._policies, box, caller, terms=read.terms)
                reuse = self._from_known.reuse(text, caller, catalog, cursor)
                bound = bound if reuse is None else nothing_sql(reuse.question)
                columns = Catalog(cursor, self._policies, box).bind(bound, analysis.outer.tables)
        return listings.rows_sql([(column.name, column.type_name) for column in columns], [])

    def check(self, argument: str, caller: Caller) -> str:
        """Returns SQL with exact facts for the owner alone. argument: JSON of a table and a statement or null."""
        require_owner(caller)
        name, text = json.loads(argument)
        if text is None:
            return self.about.check(name or "", caller)
        question, request = self.question_of(text, caller)
        return self.checks.check(name or "", question, request, caller)

    def trial(self, argument: str, caller: Caller) -> str:
        """Returns SQL with the errors that statements would have on the true rows, for the owner alone."""
        from dpduck.trial.listing import trial_sql  # noqa: PLC0415

        require_owner(caller)
        return trial_sql(self.trials, argument, caller)

    def list_policies(self, caller: Caller) -> str:
        policies, at = self._policies.policies(), {**self._prepared.at(), **self.engines.prepared.at()}
        return listings.policies(policies, at, [policy_sql(policy, self.connections.home) for policy in policies])

    def list_releases(self, caller: Caller) -> str:
        return listings.releases(self._releases.all(), None if caller.owner else caller.name)

    def plan(self, text: str, caller: Caller) -> str:
        from dpduck.mechanisms.batch import plan_batch  # noqa: PLC0415

        question_of, beside = (
            partial(self.question_of, caller=caller),
            partial(self.foresight.other_prices, caller=caller),
        )
        return plan_batch(text, question_of, beside, self._releases, self._ledger, caller)

    def combine_cells(self, text: str, caller: Caller) -> str:
        """Returns SQL with a weighted sum of released cells, or a ratio of two, its standard error and its interval."""
        from dpduck.mechanisms.cubes.combine import combine_cells  # noqa: PLC0415

        return combine_cells(self._releases, text, caller)

    def _analysis(
        self, statement: AskStatement, text: str, box: Sandbox, caller: Caller, earlier: Analysed | None = None
    ) -> Analysed:
        """Returns the analysis of a statement. A statement that was paid under other defaults keeps them.

        earlier: the statement's last analysis, which is reused if its public facts are still the same.
        """
        read = self._analyse_under_terms(statement, text, box, caller, earlier)
        rows = read.analysis.request.rows
        if rows.cell_key and not self._prepared.has_key(rows):  # its rows are older than the key or its record
            bare = replace(read.analysis.request, rows=replace(rows, cell_key=()))
            read = replace(read, analysis=replace(read.analysis, request=bare))
        request, before = read.analysis.request, read.analysis.request.as_before()
        if before is None or self._is_paid(request) or not self._is_paid(before):
            return read
        return replace(read, analysis=replace(read.analysis, request=before))

    def _is_paid(self, request: SelectRequest) -> bool:
        return self.is_charged(request.digest())

    def is_charged(self, digest: str) -> bool:
        """Tells whether a request was ever charged, even if it failed or was not answered."""
        asked = self._releases.find_outcome(digest)
        return (asked.release, asked.failed, asked.unanswered) != (None, None, None)

    def require_name(self, name: str, *, replaces: bool) -> None:
        """Refuses a name that a new private view, table or stream of the owner may not get."""
        from dpduck.database.functions import OWNER  # noqa: PLC0415

        self._views.is_made(name, replaces, "", OWNER, "")

    def _analyse_under_terms(
        self, statement: AskStatement, text: str, box: Sandbox, caller: Caller, earlier: Analysed | None
    ) -> Analysed:
        with self._open_cursor() as cursor, self._policies.shadows.search_names(cursor, self._open_cursor) as looked:
            cursor.execute("BEGIN TRANSACTION READ ONLY")  # one snapshot: a public table may change meanwhile
            catalog = Catalog(cursor, self._policies, box, caller, looked)
            if earlier is not None and catalog.holds(earlier.facts):
                return earlier
            now, finished = Catalog(cursor, self._policies, box, caller, looked), list[Analysed]()

            def analyse_under(terms: PolicyTerms | None) -> Analysed:
                catalog = now if terms is None else Catalog(cursor, self._policies, box, caller, looked, terms)
                fresh = statement if terms is None and earlier is None else parse_ask(text)
                analysis = analyse(fresh, catalog, own_options())
                if analysis.request.question.treatment.names_tables:
                    analysis = with_tables(analysis, catalog)
                finished.append(Analysed(fresh, analysis, now.facts, terms))
                return finished[-1]

            analysed: Analysed = as_answered(
                analyse_under, partial(self._is_answered, caller=caller), self._policies.earlier
            )
            whole = finished[0].terms is None  # a refused reading lacks some facts
            if whole and len(text) <= LONGEST_KEPT and sum(analysed.analysis.request.question.sizes) <= MOST_LABELS:
                self._analysed.save((text, caller), analysed)
            return analysed

    def _is_answered(self, read: Analysed, caller: Caller) -> bool:
        request = read.analysis.request
        if read.analysis.reuse:
            return self._releases.by_digest(reuse_digest(request, caller)) is not None
        forms = (request, request.as_before())
        return any(form is not None and self._releases.by_digest(form.digest()) is not None for form in forms)

    def _ask(self, statement: AskStatement, text: str, caller: Caller, earlier: Analysed | None) -> str:
        with Sandbox(self._answered) as box:
            read = self._analysis(statement, text, box, caller, earlier)
            analysis = read.analysis
            caller.require_tables(analysis.request.asked_tables)
            digest = analysis.request.digest()
            if analysis.reuse:
                pay, shown = self._release, self._outer_sql
                return self._from_known.reused(statement, text, caller, analysis, box, pay, shown, read.terms)
            columns = (GROUPING_LEVEL,) if statement.view is not None and analysis.levels else ()
            if statement.view is not None and self._views.is_ready(statement, text, caller, digest, columns):
                stored = self._releases.by_digest(digest)
                return listings.status(self._views.ready(statement.view) + nothing_shown(analysis.request, stored))
            kept_by = caller if statement.view is None else caller.with_room_for_a_view()
            release = self._release(analysis.request, analysis.request, digest, kept_by, text, analysis, box)
            self._require_outer(release, analysis, box)
        select_sql = analysis.outer.over(self._release_sql(release, analysis))
        if statement.view is None:
            return select_sql
        errors = errors_of(analysis, release)
        if analysis.cells:
            select_sql, errors = cells_sql(analysis, self._measured.find(release.name), self._copies), ""
        scoped = replace(
            release,
            scope="; ".join(filter(None, (scope_of(analysis.request), errors))),
            price=price_of_view(release, analysis.request, self.ledger.budget(analysis.request.rows.unit_key)),
            notes=notes_of(analysis, release),
            caption=analysis.caption.text,
        )
        ready = self._views.save(statement, text, caller, scoped, select_sql, columns)
        return listings.status(ready + nothing_shown(analysis.request, release))

    def _release(
        self,
        question: object,
        request: SelectRequest,
        digest: str,
        caller: Caller,
        text: str,
        analysis: Analysis | None = None,
        box: Sandbox | None = None,
    ) -> StoredRelease:
        """Returns the release of a question about a request's rows: the stored one, or a new one by its mechanism.

        analysis: given if an analyst's SQL reads the release. That SQL must bind before the charge.
        """
        mechanism, bound = mechanism_of(question), list[Analysis]()

        def recheck(cursor: duckdb.DuckDBPyConnection, plan: Any) -> None:
            catalog = Catalog(cursor, self._policies, box)
            catalog.require_unchanged(request.rows)
            if analysis is not None:
                catalog.bind(check_sql(analysis, mechanism, plan), analysis.outer.tables)
                bound.append(analysis)

        tools = Tools(box or Sandbox(), self._ledger.secrets, self._steps)
        announce = partial(self.foresight.say, mechanism)
        planned_now = partial(mechanism.plan_release, question, recheck, tools, announce)
        release = self._releaser.release(digest, planned_now, caller, text)
        for bound_analysis in bound:  # it bound before the charge, over the same columns
            self._note_bound(release, bound_analysis)
        return release

    def _require_outer(self, release: StoredRelease, analysis: Analysis, box: Sandbox) -> None:
        """Refuses SQL around a release that does not bind in the empty sandbox, before it runs beside private tables.

        Stored answers are checked, too: the price was paid for the release, and not for the SQL around it.
        """
        if (release.name, analysis.outer.sql, analysis.confidence) in self._bound:
            return
        with self._open_cursor() as cursor:
            catalog = Catalog(cursor, self._policies, box)
            columns = catalog.columns(TableName((self._store, "main", release.name)))
            catalog.bind(empty_release_sql(columns, release.laws, analysis), analysis.outer.tables)
        self._note_bound(release, analysis)

    def _note_bound(self, release: StoredRelease, analysis: Analysis) -> None:
        if len(self._bound) >= MOST_BOUND:
            self._bound.clear()
        self._bound.add((release.name, analysis.outer.sql, analysis.confidence))

    def _outer_sql(self, release: StoredRelease, analysis: Analysis, box: Sandbox) -> str:
        self._require_outer(release, analysis, box)
        return analysis.outer.over(self._release_sql(release, analysis))

    def _release_sql(self, release: StoredRelease, analysis: Analysis) -> str:
        """Returns SQL of the released table, with half-widths of intervals at the requested confidence."""
        table = self._copies.table_sql(release.name) or self._releases.table_sql(release.name)
        request = analysis.request
        aside = (
            request.question.treatment.moves
            or request.question.treatment.total
            or request.question.treatment.left_out
            or request.question.summary is not None
            or request.question.selection is not None
        )
        column_names = self._releases.column_names(release.name) if aside else None
        price = Charge(release.epsilon, release.rho, release.delta)
        return margins_sql(table, release.laws, analysis, column_names, price)
