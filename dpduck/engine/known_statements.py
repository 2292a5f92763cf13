"""Statements that are answered from what is known: dp_known, REFRESH PRIVATE VIEW, and reuse = TRUE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import duckdb

from dpduck.engine.known import known_table, refreshed, require_rows_of_view, resting_on
from dpduck.engine.reuse import Reuse, nothing_sql, reuse_digest, reused
from dpduck.kernel.places.place import Place
from dpduck.language.rows.facts import Rows
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
from dpduck.language.select.request import Request
from dpduck.language.statements.kinds import AskStatement
from dpduck.language.statements.parse import parse_ask, parse_statement
from dpduck.language.statements.synthetic import SampleRelease
from dpduck.language.text.names import GROUPING_LEVEL
from dpduck.mechanisms.answers_sql import notes_of, scope_of
from dpduck.mechanisms.known.answer import Answer, answers_of
from dpduck.mechanisms.known.tables import Same
from dpduck.mechanisms.registry import own_options
from dpduck.store import tables as listings
from dpduck.store.catalog import Catalog, Facts
from dpduck.store.cursors import Caller, OpenCursor, ReleaseCopies, SandboxAnswers
from dpduck.store.measured import Kept, MeasuredStore, rows_digest
from dpduck.store.policies import PolicyStore
from dpduck.store.releases import ReleaseStore, StoredRelease
from dpduck.store.sandbox import Sandbox
from dpduck.store.terms import Terms, as_answered
from dpduck.store.views import PrivateViews
from dpduck.values.errors import InternalError, Refusal

if TYPE_CHECKING:
    from dpduck.mechanisms.synthetic.recover import KnownMargins

MOST_KNOWN = 64
"""Sets of measurements whose combination is remembered."""

NOBODY = ""
"""A reader who released nothing, and knows what every private view shows."""

MOST_READ = 50_000
"""Conditions and tables of the same rows that are remembered as read."""

LONGEST_KEPT, MOST_LABELS = 4096, 2000
"""Characters and labels of a statement that is remembered with what it asks for."""


class KnownStatements:
    """Answers from releases alone; what pays is the engine's."""

    def __init__(
        self, open_cursor: OpenCursor, policies: PolicyStore, releases: ReleaseStore, measured: MeasuredStore,
        copies: ReleaseCopies, views: PrivateViews, answered: SandboxAnswers, analysed: SandboxAnswers,
        place_of: Callable[[Rows], Place],
    ) -> None:  # fmt: skip
        """place_of: where the rows of a request are counted."""
        self._open_cursor, self._policies, self._releases, self._measured = open_cursor, policies, releases, measured
        self._copies, self._views, self._answered, self._analysed = copies, views, answered, analysed
        self._place_of = place_of
        self._known, self._readings = SandboxAnswers(MOST_KNOWN), SandboxAnswers(MOST_KNOWN)

    def known(self, argument: str, caller: Caller) -> str:
        """Returns SQL with the answer to a plain SELECT over private tables from what was released of them, free of
        charge.
        """
        asked = known_arguments(argument)
        with Sandbox(self._answered) as box, self._open_cursor() as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            catalog = Catalog(cursor, self._policies, box, caller)
            found: tuple[KnownQuestion, Facts] | None = self._analysed.get((argument, caller, "known"))
            if found is not None and catalog.holds(found[1]):
                question = replace(found[0], facts=catalog)
            else:
                catalog = Catalog(cursor, self._policies, box, caller)
                question = self._read_before(analyse_known(asked, catalog))
            moment = self._moment(question.analysis.request.rows, cursor)
            sql, _ = known_table(question, self._measured, caller, self._copies, self._known, box, asked.text, moment)
            if len(argument) <= LONGEST_KEPT and sum(question.analysis.request.question.sizes) <= MOST_LABELS:
                self._analysed.put((argument, caller, "known"), (question, catalog.known))
            return sql

    def refresh(self, name: str, caller: Caller) -> str:
        """Puts what is known now under the name of a private view, free of charge."""
        view = self._views.own(name, caller)
        ask = parse_statement(view.statement)
        if not isinstance(ask, AskStatement) or ask.view is None:
            raise Refusal(f"{name!r} is no view of a SELECT", accepted="a name of CREATE PRIVATE VIEW .. AS SELECT")
        with Sandbox(self._answered) as box, self._open_cursor() as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")

            def read(terms: Terms | None) -> KnownQuestion:
                fresh = ask if terms is None else parse_ask(view.statement)
                catalog = Catalog(cursor, self._policies, box, caller, terms=terms)
                return analyse_refreshed(fresh, catalog, own_options())

            question = self._read_before(as_answered(read, lambda _: True, self._policies.earlier))
            moment = self._moment(question.analysis.request.rows, cursor)
            sql, answers = known_table(
                question, self._measured, caller, self._copies, self._known, box, ask.text, moment
            )
        require_rows_of_view(view, answers)
        return self._views.renew(refreshed(view, question, answers, self._releases), caller, sql)

    def margins(self, statement: SampleRelease, caller: Caller) -> KnownMargins:
        """Returns what is known of columns of a private table, for rows that are fitted to it; free of charge."""
        from dpduck.engine.known_rows import known_margins  # noqa: PLC0415

        with Sandbox(self._answered) as box, self._open_cursor() as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            catalog = Catalog(cursor, self._policies, box, caller)

            def kept(question: KnownQuestion) -> list[Kept]:
                caller.require_tables(question.analysis.request.asked_tables)
                table = question.analysis.request.rows.table.sql
                return self._measured.of(table, None if caller.owner else caller.name)

            def answers(question: KnownQuestion, same: Same | None) -> list[Answer | None]:
                moment = self._moment(question.analysis.request.rows, cursor)
                return answers_of(question, kept(question), self._known, moment, same=same)

            def ask(asked: KnownArguments) -> KnownQuestion:
                return self._read_before(analyse_known(asked, catalog))

            return known_margins(statement.source, statement.columns, kept, ask, answers, self._releases)

    def _read_before(self, question: KnownQuestion) -> KnownQuestion:
        """Returns a question with what was read of the same rows for others."""
        rows = question.analysis.request.rows
        name = rows_digest(rows), rows.revision, rows.shapes
        found: Readings | None = self._readings.get(name)
        if found is None or len(found.parts) + len(found.tables) > MOST_READ:
            found = question.readings
            self._readings.put(name, found)
        return replace(question, readings=found)

    def _moment(self, rows: Rows, cursor: duckdb.DuckDBPyConnection) -> str:
        """Names the moment of the rows that would be counted now; "" where they may change, or none would be."""
        try:
            place = self._place_of(rows)
        except Refusal:
            return ""
        if not (place.is_live or place.moment):
            return ""
        return self._measured.moment(rows, place if place.moment else None, cursor)

    def reuse(self, text: str, caller: Caller, catalog: Catalog, cursor: duckdb.DuckDBPyConnection) -> Reuse | None:
        """Returns what a statement with reuse = TRUE is combined with; None for statements without it."""
        if "reuse" not in text.lower():
            return None
        question = self._read_before(analyse_combined(parse_ask(text), catalog, own_options()))
        if not question.analysis.reuse:
            return None
        rows = question.analysis.request.rows
        kept = self._measured.of(rows.table.sql, None if caller.owner else caller.name)
        common = kept if caller.owner else self._measured.of(rows.table.sql, NOBODY)
        return Reuse(question, kept, self._moment(rows, cursor), common)

    def reused(
        self,
        statement: AskStatement,
        text: str,
        caller: Caller,
        analysis: Analysis,
        box: Sandbox,
        pay: Callable[..., StoredRelease],
        shown: Callable[[StoredRelease, Analysis, Sandbox], str],
        terms: Terms | None = None,
    ) -> str:
        """Returns SQL with the answer to a statement with reuse = TRUE: stored, or made from its release and all
        before.

        pay: makes the release of a request. shown: the SQL around a stored answer. terms: under which it was answered.
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

                def paid(request: Request) -> StoredRelease:  # no SQL of the analyst's stands around it
                    return pay(request, request, request.digest(), caller.with_room_for_a_view(), text)

                release = self._combine(reuse, caller, analysis, box, paid)
        outer = reuse.question.analysis
        select_sql = shown(release, outer, box)
        if statement.view is None:
            return select_sql
        notes = notes_of(outer, replace(release, laws=()))
        scope, caption = f"{scope_of(outer.request)}; {release.scope}", analysis.caption.text
        made = replace(release, digest=digest, scope=scope, notes=notes, caption=caption)
        return listings.status(self._views.put(statement, text, caller, made, select_sql, columns))

    def _combine(
        self,
        reuse: Reuse,
        caller: Caller,
        analysis: Analysis,
        box: Sandbox,
        release_of: Callable[[Request], StoredRelease],
    ) -> StoredRelease:
        """Pays for a release, and stores what is known by then as the answer of whoever asks."""
        reuse.require_one_moment()
        release = release_of(reuse.chosen(analysis.request).request)
        answers, columns, rows = reused(reuse, release, self._measured.one(release.name), box)
        digest = reuse_digest(analysis.request, caller)
        name = f"{release.name}_{int(digest[:12], 16)}"
        made = replace(resting_on(release, answers, self._releases), name=name, digest=digest, principal=caller.name,
                       laws=((),) * len(answers), rows=rows.num_rows, source=release.name)  # fmt: skip
        with self._views.naming():
            found = self._releases.by_digest(digest)
            if found is None:
                self._releases.put_table(made, columns, rows)
                self._copies.add(name, self._releases.table_sql(name), rows.num_rows)
        return found or made
