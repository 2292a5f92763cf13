"""Statements that are answered from earlier releases: dp_known, REFRESH PRIVATE VIEW, and reuse = TRUE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import duckdb

from dpduck.kernel.places.place import RowPlace
from dpduck.language.rows.facts import RequestRows
from dpduck.language.select.analyse import Analysis
from dpduck.language.select.known import (
    KnownArguments,
    KnownQuestion,
    Readings,
    analyse_combined,
    analyse_known,
    analyse_refreshed,
    known_arguments,
)
from dpduck.language.select.request import SelectRequest
from dpduck.language.statements.kinds import AskStatement
from dpduck.language.statements.parse import parse_ask, parse_statement
from dpduck.language.statements.synthetic import SampleRelease
from dpduck.language.text.names import GROUPING_LEVEL
from dpduck.mechanisms.known.answer import KnownReleases
from dpduck.mechanisms.known.known_table import known_table, refresh_view, require_rows_of_view, resting_on
from dpduck.mechanisms.known.reuse import Reuse, combine_answers, nothing_sql, reuse_digest
from dpduck.mechanisms.published_facts import notes_of, scope_of
from dpduck.mechanisms.registry import own_options
from dpduck.store import tables as listings
from dpduck.store.catalog import Catalog, Facts
from dpduck.store.cursors import Caller, OpenCursor, ReleaseCopies, SandboxAnswers
from dpduck.store.measured import MeasuredStore, rows_digest
from dpduck.store.policies import PolicyStore
from dpduck.store.releases import ReleaseStore, StoredRelease
from dpduck.store.sandbox import Sandbox
from dpduck.store.terms import PolicyTerms, as_answered
from dpduck.store.views import PrivateViews
from dpduck.values.errors import InternalError, Refusal

if TYPE_CHECKING:
    from dpduck.mechanisms.known.margins import KnownMargins

MOST_KNOWN = 64
"""Most sets of measurements that are remembered with their combination."""

NOBODY = ""
"""A reader who released nothing, and knows the contents of every private view."""

MOST_READ = 50_000
"""Most conditions and tables of the same rows that are remembered with their readings."""

LONGEST_KEPT, MOST_LABELS = 4096, 2000
"""Most characters and labels of a statement that is remembered with its analysis."""


class KnownStatements:
    """Answers to statements from stored releases. Class Releaser makes the releases that must be paid for."""

    def __init__(
        self, open_cursor: OpenCursor, policies: PolicyStore, releases: ReleaseStore, measured: MeasuredStore,
        copies: ReleaseCopies, views: PrivateViews, answered: SandboxAnswers, analysed: SandboxAnswers,
        place_of: Callable[[RequestRows], RowPlace],
    ) -> None:  # fmt: skip
        self._open_cursor, self._policies, self._releases, self._measured = open_cursor, policies, releases, measured
        self._copies, self._views, self._answered, self._analysed = copies, views, answered, analysed
        self._place_of = place_of
        self._known, self._readings = SandboxAnswers(MOST_KNOWN), SandboxAnswers(MOST_KNOWN)

    def known(self, argument: str, caller: Caller) -> str:
        """Returns SQL with the answer to a plain SELECT from earlier releases of its private tables, free of charge."""
        inputs = known_arguments(argument)
        with Sandbox(self._answered) as box, self._open_cursor() as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            catalog = Catalog(cursor, self._policies, box, caller)
            remembered: tuple[KnownQuestion, Facts] | None = self._analysed.get((argument, caller, "known"))
            if remembered is not None and catalog.holds(remembered[1]):
                question = replace(remembered[0], facts=catalog)
            else:
                catalog = Catalog(cursor, self._policies, box, caller)
                question = self._read_before(analyse_known(inputs, catalog))
            releases = self._releases_of(question, caller, cursor)
            sql, _ = known_table(question, releases, self._copies, box, inputs.text)
            if len(argument) <= LONGEST_KEPT and sum(question.analysis.request.question.sizes) <= MOST_LABELS:
                self._analysed.save((argument, caller, "known"), (question, catalog.facts))
            return sql

    def refresh(self, name: str, caller: Caller) -> str:
        """Replaces the rows of a private view by the answers that stored releases give now, free of charge."""
        view = self._views.own(name, caller)
        ask = parse_statement(view.statement)
        if not isinstance(ask, AskStatement) or ask.view is None:
            raise Refusal(f"{name!r} is no view of a SELECT", accepted="a name of CREATE PRIVATE VIEW .. AS SELECT")
        with Sandbox(self._answered) as box, self._open_cursor() as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")

            def analyse_under(terms: PolicyTerms | None) -> KnownQuestion:
                fresh = ask if terms is None else parse_ask(view.statement)
                catalog = Catalog(cursor, self._policies, box, caller, terms=terms)
                return analyse_refreshed(fresh, catalog, own_options())

            question = self._read_before(as_answered(analyse_under, lambda _: True, self._policies.earlier))
            releases = self._releases_of(question, caller, cursor)
            sql, answers = known_table(question, releases, self._copies, box, ask.text)
        require_rows_of_view(view, answers)
        return self._views.renew(refresh_view(view, question, answers, self._releases), caller, sql)

    def margins(self, statement: SampleRelease, caller: Caller) -> KnownMargins:
        """Returns the known margins of a private table's columns, which rows are fitted to. This is free of charge."""
        from dpduck.mechanisms.known.margins import known_margins  # noqa: PLC0415

        with Sandbox(self._answered) as box, self._open_cursor() as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            catalog = Catalog(cursor, self._policies, box, caller)

            def ask(arguments: KnownArguments) -> KnownQuestion:
                return self._read_before(analyse_known(arguments, catalog))

            releases_of = partial(self._releases_of, caller=caller, cursor=cursor)
            return known_margins(statement.source, statement.columns, ask, releases_of, self._releases)

    def _releases_of(self, question: KnownQuestion, caller: Caller, cursor: duckdb.DuckDBPyConnection) -> KnownReleases:
        """Returns the releases about a question's rows that a caller may read. Refuses a caller who may not ask."""
        request = question.analysis.request
        caller.require_tables(request.asked_tables)
        records = self._measured.of(request.rows.table.sql, None if caller.owner else caller.name)
        return KnownReleases(records, self._moment(request.rows, cursor), self._known)

    def _read_before(self, question: KnownQuestion) -> KnownQuestion:
        """Returns a question that shares cached readings of conditions and tables with others about the same rows."""
        rows = question.analysis.request.rows
        name = rows_digest(rows), rows.revision, rows.shapes
        readings: Readings | None = self._readings.get(name)
        if readings is None or len(readings.parts) + len(readings.tables) > MOST_READ:
            readings = question.readings
            self._readings.save(name, readings)
        return replace(question, readings=readings)

    def _moment(self, rows: RequestRows, cursor: duckdb.DuckDBPyConnection) -> str:
        """Names the moment of rows that would be counted now. It is "" if these may change, or cannot be counted."""
        try:
            place = self._place_of(rows)
        except Refusal:
            return ""
        if not (place.is_live or place.moment):
            return ""
        return self._measured.moment(rows, place if place.moment else None, cursor)

    def reuse(self, text: str, caller: Caller, catalog: Catalog, cursor: duckdb.DuckDBPyConnection) -> Reuse | None:
        """Returns the question and the releases of a statement with reuse = TRUE, None for any other statement."""
        if "reuse" not in text.lower():
            return None
        question = self._read_before(analyse_combined(parse_ask(text), catalog, own_options()))
        if not question.analysis.reuse:
            return None
        releases, table = self._releases_of(question, caller, cursor), question.analysis.request.rows.table.sql
        common = releases if caller.owner else replace(releases, records=self._measured.of(table, NOBODY))
        return Reuse(question, releases, common)

    def reused(
        self,
        statement: AskStatement,
        text: str,
        caller: Caller,
        analysis: Analysis,
        box: Sandbox,
        pay: Callable[..., StoredRelease],
        shown: Callable[[StoredRelease, Analysis, Sandbox], str],
        terms: PolicyTerms | None = None,
    ) -> str:
        """Answers a statement with reuse = TRUE, by its stored answer, or from its own release and all earlier ones.

        pay: makes the release of a request.
        shown: writes the SQL around a stored answer.
        """
        digest = analysis.request.digest()
        if statement.view is not None and analysis.request.price.target is not None:
            raise Refusal("a view with reuse is asked for at a price", accepted="epsilon or rho, or a plain statement")
        columns = (GROUPING_LEVEL,) if analysis.levels else ()
        if statement.view is not None and self._views.is_ready(statement, text, caller, digest, columns):
            return listings.status(self._views.ready(statement.view))
        with self._open_cursor() as cursor:
            catalog = Catalog(cursor, self._policies, box, caller, terms=terms)
            reuse = self.reuse(text, caller, catalog, cursor)
            if reuse is None:
                raise InternalError("a statement with reuse lost it")
            catalog.bind(nothing_sql(reuse.question), reuse.question.analysis.outer.tables)
            release = self._releases.by_digest(reuse_digest(analysis.request, caller))
            if release is None:

                def paid(request: SelectRequest) -> StoredRelease:  # without the analyst's SQL around it
                    return pay(request, request, request.digest(), caller.with_room_for_a_view(), text)

                release = self._combine(reuse, caller, analysis, box, paid)
        outer = reuse.question.analysis
        select_sql = shown(release, outer, box)
        if statement.view is None:
            return select_sql
        notes = notes_of(outer, replace(release, laws=()))
        scope, caption = f"{scope_of(outer.request)}; {release.scope}", analysis.caption.text
        record = replace(release, digest=digest, scope=scope, notes=notes, caption=caption)
        return listings.status(self._views.save(statement, text, caller, record, select_sql, columns))

    def _combine(
        self,
        reuse: Reuse,
        caller: Caller,
        analysis: Analysis,
        box: Sandbox,
        release_of: Callable[[SelectRequest], StoredRelease],
    ) -> StoredRelease:
        """Pays for a release, and stores the caller's answer from all releases that are known by then."""
        reuse.require_one_moment()
        release = release_of(reuse.choose(analysis.request).request)
        answers, columns, rows = combine_answers(reuse, release, self._measured.one(release.name), box)
        digest = reuse_digest(analysis.request, caller)
        name = f"{release.name}_{int(digest[:12], 16)}"
        record = replace(resting_on(release, answers, self._releases), name=name, digest=digest, principal=caller.name,
                       laws=((),) * len(answers), rows=rows.num_rows, source=release.name)  # fmt: skip
        with self._views.naming():
            stored = self._releases.by_digest(digest)
            if stored is None:
                self._releases.put_table(record, columns, rows)
                self._copies.add(name, self._releases.table_sql(name), rows.num_rows)
        return stored or record
