"""Takes a statement from any client and answers with SQL that reads released tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import duckdb

from dpduck.database import tables as listings
from dpduck.database.catalog import Catalog
from dpduck.database.check import check_table
from dpduck.database.cursors import Asker, Carriers, Roots
from dpduck.database.policies import PolicyStore
from dpduck.database.releases import ReleaseStore, StoredRelease
from dpduck.database.sandbox import Answered, Sandbox
from dpduck.database.views import PrivateViews
from dpduck.frontend.rows.relation import Reading, relation_of
from dpduck.frontend.rows.sql import from_sql, unit_sql
from dpduck.frontend.rows.tree import of_relation
from dpduck.frontend.select.analyse import Analysis, analyse
from dpduck.frontend.select.request import Request
from dpduck.frontend.statements.kinds import Ask, CreateSparse, DropPrivateView, DropSparse
from dpduck.frontend.statements.parse import parse_statement
from dpduck.frontend.statements.synthetic import CreateSynthetic, SampleRelease
from dpduck.frontend.text.friendly import meant_or
from dpduck.frontend.text.limits import bounded_tokens
from dpduck.frontend.text.names import TableName
from dpduck.frontend.text.tokens import TokenReader
from dpduck.mechanisms.answers_sql import empty_release_sql, margins_sql
from dpduck.mechanisms.cubes.combine import combined
from dpduck.mechanisms.cubes.matrix import with_matrix
from dpduck.mechanisms.prices import priced
from dpduck.mechanisms.registry import check_sql, explained, recipe
from dpduck.mechanisms.release import Recipe, Releaser, Steps
from dpduck.mechanisms.sparse.statements import SparseQueries
from dpduck.mechanisms.sparse.store import SparseStore
from dpduck.mechanisms.synthetic.measure import SyntheticRecipe
from dpduck.mechanisms.synthetic.plan import explained_synthetic, mechanisms
from dpduck.mechanisms.synthetic.recover import SyntheticTables
from dpduck.mechanisms.synthetic.request import SyntheticRequest, analyse_synthetic
from dpduck.owner.policies import OwnerChanges
from dpduck.trusted.ask import Ask as Question
from dpduck.trusted.ledger.ledger import Ledger
from dpduck.trusted.noise.entropy import operating_system_entropy
from dpduck.trusted.rows.workers import Workers
from dpduck.values.domain import Domain, RangeDomain
from dpduck.values.errors import PermissionRefusal, Refusal
from dpduck.values.privacy import Charge

MOST_BOUND = 10_000
"""Statements around releases that are remembered as bound."""


class Engine:
    """Everything behind the functions of one database: policies, ledger, releases."""

    def __init__(self, roots: Roots, store: str, ledger: Ledger, steps: Steps) -> None:
        self.roots = roots
        self._open_cursor = roots.cursor
        self._store = store
        self._bound: set[tuple[str, str, Fraction]] = set()
        self._answered = Answered()
        self._ledger = ledger
        self._policies = PolicyStore(roots.cursor, store, ledger.budget, roots.home)
        self._releases = ReleaseStore(roots.cursor, store, steps)
        self._policies.create_tables()
        self._releases.create_tables()
        self._carriers = Carriers(roots.cursor)
        self._workers = Workers()
        self._releaser = Releaser(
            roots.cursor, ledger, self._releases, self._carriers, operating_system_entropy(), steps, self._workers
        )
        self._changes = OwnerChanges(roots.cursor, self._policies, ledger)
        self._views = PrivateViews(self._releases, store)
        self._tables = SyntheticTables(self._releases, self._views, operating_system_entropy())
        self._sparse = SparseQueries(
            roots.cursor, self._policies, self._releases, self._releaser, self._views, ledger,
            SparseStore(roots.cursor, store), steps, self._workers,
        )  # fmt: skip

    @property
    def ledger(self) -> Ledger:
        """The ledger of the store."""
        return self._ledger

    def limit_selects(self, seconds: float) -> None:
        """Bounds the time of SELECTs around releases that make views."""
        self._releases.seconds = seconds

    def kept_by(self, principal: str) -> tuple[int, int]:
        """How many releases and views of a principal the store holds, and how many rows they have."""
        return self._releases.kept_by(principal)

    def run(self, text: str, asker: Asker) -> str:
        """SQL whose result is the answer to a statement of dp()."""
        statement = parse_statement(text)
        if isinstance(statement, Ask):
            return self._ask(statement, text, asker)
        if isinstance(statement, CreateSynthetic):
            return self._synthetic(statement, text, asker)
        if isinstance(statement, SampleRelease):
            return listings.status(self._tables.sample(statement, text, asker))
        if isinstance(statement, DropPrivateView):
            return listings.status(self._views.drop(statement, text, asker))
        if isinstance(statement, CreateSparse):
            return self._sparse.create(statement, text, asker)
        if isinstance(statement, DropSparse):
            return self._sparse.drop(statement, text, asker)
        _require_owner(asker)
        return listings.status(self._changes.carry_out(statement, text, asker))

    def explain(self, text: str, asker: Asker) -> str:
        """SQL whose result is the comparison of strategies; it spends nothing and opens no private row."""
        statement = parse_statement(text)
        if isinstance(statement, CreateSynthetic):
            synthetic = self._synthetic_request(statement, asker)
            asker.require_tables(synthetic.base.asked_tables)
            found = mechanisms(synthetic)
            asks = SyntheticRecipe(synthetic, found[0], lambda cursor: None).asks()
            return self._priced(explained_synthetic(synthetic, found), synthetic.base, asks)
        if isinstance(statement, CreateSparse):
            return self._sparse.explain(statement, asker)
        if not isinstance(statement, Ask):
            raise Refusal(
                "only statements with a price are explained",
                accepted="SELECT WITH DIFFERENTIAL_PRIVACY .., or CREATE PRIVATE .. OPTIONS (..)",
            )
        with Sandbox(self._answered) as box:
            request = self._analysis(statement, box, asker).request
        asker.require_tables(request.asked_tables)
        return self._priced(*explained(request))

    def describe(self, text: str, asker: Asker) -> str:
        """SQL with the columns that the answer to a statement of dp() would have, and no rows; it spends nothing."""
        statement = parse_statement(text)
        if not isinstance(statement, Ask) or statement.view is not None:
            return listings.rows_sql([("status", "VARCHAR")], [])
        with Sandbox(self._answered) as box:
            analysis = self._analysis(statement, box, asker)
            asker.require_tables(analysis.request.asked_tables)
            with self._open_cursor() as cursor:
                columns = Catalog(cursor, self._policies, box).bind(check_sql(analysis), analysis.outer.tables)
        return listings.rows_sql([(column.name, column.type_name) for column in columns], [])

    def budget(self, asker: Asker) -> str:
        """SQL that lists budgets, what was spent and what remains."""
        dropped = self._policies.dropped() if asker.owner else []
        return listings.budgets(self._policies.policies(), dropped, self._ledger, asker)

    def ledger_entries(self, asker: Asker) -> str:
        """SQL that lists charges: all for the owner, their own for others."""
        return listings.entries(self._ledger.entries(None if asker.owner else asker.name))

    def list_policies(self, asker: Asker) -> str:
        """SQL that lists the policies in force: they are public."""
        return listings.policies(self._policies.policies())

    def list_releases(self, asker: Asker) -> str:
        """SQL that lists released tables."""
        return listings.releases(self._releases.all(), None if asker.owner else asker.name)

    def check(self, text: str, asker: Asker) -> str:
        """SQL with exact facts about a table, for its owner's eyes only."""
        _require_owner(asker)
        reader = TokenReader(text, bounded_tokens(text))
        written = reader.table_name()
        reader.expect_end()
        with self._open_cursor() as cursor:
            catalog = Catalog(cursor, self._policies)
            table = catalog.resolve(written)
            policy = None if table is None else catalog.policy(table)
            if table is None or policy is None:
                accepted = meant_or(written.table, catalog.known_names(), "a table that has one")
                raise Refusal(f"{str(written)!r} has no privacy policy", accepted=accepted)
            source = of_relation(relation_of(table, policy, Reading(catalog, {})))
            return listings.check(check_table(cursor, policy, from_sql(source), unit_sql(source)))

    def stderr_of(self, text: str, asker: Asker) -> str:
        """SQL with a weighted sum of released cells, its standard error and its interval."""
        return combined(self._releases, text, asker)

    def ratio_of(self, text: str, asker: Asker) -> str:
        """SQL with the ratio of two such sums."""
        return combined(self._releases, text, asker)

    def ask(self, argument: str, asker: Asker) -> str:
        """SQL with the answers of a private histogram or session."""
        return self._sparse.ask(argument, asker)

    def describe_ask(self, argument: str, asker: Asker) -> str:
        """SQL with the columns of such answers and no rows; it looks at nothing private and uses no round up."""
        return self._sparse.describe_ask(argument, asker)

    def list_sessions(self, asker: Asker) -> str:
        """SQL that lists private histograms and sessions."""
        return self._sparse.list_sessions(asker)

    def _priced(self, sql: str, request: Request, asks: Sequence[Question[Any]]) -> str:
        return priced(sql, request, asks, self._ledger.budget(request.unit_key))

    def _analysis(self, statement: Ask, box: Sandbox, asker: Asker) -> Analysis:
        with self._open_cursor() as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")  # one snapshot: a public table may change meanwhile
            catalog = Catalog(cursor, self._policies, box, asker)
            return with_matrix(analyse(statement, catalog), catalog)

    def _ask(self, statement: Ask, text: str, asker: Asker) -> str:
        with Sandbox(self._answered) as box:
            analysis = self._analysis(statement, box, asker)
            asker.require_tables(analysis.request.asked_tables)
            digest = analysis.request.digest()
            if statement.view is not None and self._views.is_ready(statement, text, asker, digest):
                known = self._releases.by_digest(digest)
                return listings.status(self._views.ready(statement.view) + _nothing_shown(analysis.request, known))
            release = self._releaser.release(digest, lambda: self._recipe(analysis, box), asker, text)
            self._require_outer(release, analysis, box)
        select_sql = analysis.outer.over(self._released_sql(release, analysis))
        if statement.view is None:
            return select_sql
        scoped = replace(
            release, scope="; ".join(filter(None, (scope_of(analysis.request), errors_of(analysis, release))))
        )
        ready = self._views.put(statement, text, asker, scoped, select_sql)
        return listings.status(ready + _nothing_shown(analysis.request, release))

    def _synthetic_request(self, statement: CreateSynthetic, asker: Asker) -> SyntheticRequest:
        with self._open_cursor() as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            return analyse_synthetic(statement, Catalog(cursor, self._policies, None, asker))

    def _synthetic(self, statement: CreateSynthetic, text: str, asker: Asker) -> str:
        request = self._synthetic_request(statement, asker)
        asker.require_tables(request.base.asked_tables)
        if self._tables.is_ready(statement, text, asker, request):
            return listings.status(self._views.ready(statement.name))

        def recheck(cursor: duckdb.DuckDBPyConnection) -> None:
            Catalog(cursor, self._policies).require_unchanged(request.base)

        release = self._releaser.release(
            request.digest(), lambda: SyntheticRecipe(request, mechanisms(request)[0], recheck), asker, text
        )
        return listings.status(self._tables.put(statement, text, asker, request, release))

    def _recipe(self, analysis: Analysis, box: Sandbox) -> Recipe:
        return recipe(analysis, lambda cursor, outer_sql: self._recheck(analysis, box, cursor, outer_sql), box)

    def _recheck(self, analysis: Analysis, box: Sandbox, cursor: duckdb.DuckDBPyConnection, outer_sql: str) -> None:
        """What a new release must meet before its charge: facts as analysed, and SQL around it that binds."""
        catalog = Catalog(cursor, self._policies, box)
        catalog.require_unchanged(analysis.request)
        catalog.bind(outer_sql, analysis.outer.tables)

    def _require_outer(self, release: StoredRelease, analysis: Analysis, box: Sandbox) -> None:
        """SQL around a release binds where nothing else is, before it runs where private tables are.

        This is asked of cached answers too: the price was paid for the release, not for this SQL around it.
        """
        known = (release.name, analysis.outer.sql, analysis.confidence)
        if known in self._bound:
            return
        with self._open_cursor() as cursor:
            catalog = Catalog(cursor, self._policies, box)
            columns = catalog.columns(TableName((self._store, "main", release.name)))
            catalog.bind(empty_release_sql(columns, release.laws, analysis), analysis.outer.tables)
        if len(self._bound) >= MOST_BOUND:
            self._bound.clear()
        self._bound.add(known)

    def _released_sql(self, release: StoredRelease, analysis: Analysis) -> str:
        """The released table with half-widths of intervals for the confidence that was asked."""
        table = self._carriers.table_sql(release.name) or self._releases.table_sql(release.name)
        request = analysis.request
        aside = request.treatment.moves or request.summary is not None
        known = self._releases.column_names(release.name) if aside else None
        price = Charge(release.epsilon, release.rho, release.delta)
        return margins_sql(table, release.laws, analysis, known, price)


def _nothing_shown(request: Request, release: StoredRelease | None) -> str:
    """A word about a view of selected keys in which no group is."""
    if request.selection is None or release is None or release.rows:
        return ""
    return "; no group was above the threshold, which dp_explain shows: fewer or larger groups, or a higher price"


def _require_owner(asker: Asker) -> None:
    if not asker.owner:
        raise PermissionRefusal("this statement is the data owner's", accepted="SELECT WITH DIFFERENTIAL_PRIVACY ..")


# What travels with a private view beside its price: whose rows it is about, which it leaves out, how far it
# is off.


def _leaves_out(domain: Domain) -> bool:
    """Whether values that are not NULL can be outside."""
    return not domain.with_edges if isinstance(domain, RangeDomain) else domain.other is None


def scope_of(request: Request) -> str:
    """The privacy unit, MAX ROWS and the domains of a release in one line, from public facts alone.

    A view is published, and the column that tells whose rows are whose is not: the unit goes without its name.
    """
    unit = (
        "a row"
        if request.unit_sql is None
        else f"all rows of one value of its column, at most {request.max_rows} counted"
    )
    keys = []
    for key in request.keys:
        domains = [request.sources[position].domain for position in key.sources]
        without = [one for one in domains if not one.with_null]
        others = [one for one in domains if _leaves_out(one)]
        left = [word for word, missing in (("NULL", without), ("other values", others)) if missing]
        size = "selected values" if not key.labels else f"{len(key.labels)} values"
        keys.append(f"{key.name} ({', without '.join([size, *([' and '.join(left)] if left else [])])})")
    return f"privacy unit {unit}" + (f"; by {', '.join(keys)}" if keys else "")


def errors_of(analysis: Analysis, release: StoredRelease) -> str:
    """The standard errors of the answers that a view shows, so that they are with it whatever its author selected.

    Of counts and sums; where it depends on the answer, or where options move answers after the noise, dp_stderr has it.
    """
    request, said = analysis.request, []
    if request.summary is not None or request.treatment.moves:
        return ""  # a summary's rows carry their own
    for name, number in analysis.shown:
        errors = [law.stderr for law in release.laws[number]] if number < len(release.laws) else []
        if errors and not request.aggregates[number].curved:
            low, high = f"{min(errors):.4g}", f"{max(errors):.4g}"
            said.append(f"{name} {low}" if low == high else f"{name} {low} to {high}")
    return f"standard error of {', '.join(said)}" if said else ""
