"""Statements that create, ask, describe, list and drop projections, lazy histograms and sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import duckdb

from dpduck.kernel.ledger.secrets import require_secret
from dpduck.kernel.queries.histograms import LazyHistogram
from dpduck.language.statements.kinds import HISTOGRAM, PROJECTION, SESSION, AskStatement, CreatePrivate
from dpduck.language.statements.parse import parse_statement
from dpduck.mechanisms.parts import DatabaseParts
from dpduck.mechanisms.release import WAITING
from dpduck.mechanisms.sparse.answers import COLUMNS, histogram_answers, session_answers
from dpduck.mechanisms.sparse.ask import OpenSessions
from dpduck.mechanisms.sparse.collations import with_collations
from dpduck.mechanisms.sparse.projection import projection_plan, seed_select, value_select
from dpduck.mechanisms.sparse.questions import KeyQuestions, read_argument, read_key_list, read_key_table
from dpduck.mechanisms.sparse.request import SparseRequest, analyse_sparse, secret_name
from dpduck.mechanisms.sparse.session import COMPUTATIONAL, histogram_from_facts
from dpduck.mechanisms.sparse.store import SparseRecord, SparseStore
from dpduck.store import tables as listings
from dpduck.store.catalog import Catalog
from dpduck.store.cursors import Caller
from dpduck.store.named import OWNER_NAME, PrivateNames
from dpduck.store.releases import SEED
from dpduck.store.terms import brought_up
from dpduck.values.errors import DpduckError, InternalError, PermissionRefusal, Refusal

LISTED = (
    ("name", "VARCHAR"), ("kind", "VARCHAR"), ("table_name", "VARCHAR"), ("principal", "VARCHAR"),
    ("sparsity", "BIGINT"), ("queries", "BIGINT"), ("answered", "BIGINT"), ("updates", "BIGINT"),
    ("updates_left", "BIGINT"), ("alpha", "DOUBLE"), ("note", "VARCHAR"),
)  # fmt: skip


class SparseQueries:
    """Sparse queries of a database."""

    def __init__(self, parts: DatabaseParts, store: SparseStore) -> None:
        self._parts, self._store = parts, store
        self._sessions = OpenSessions(parts, store)
        self._histograms: dict[str, LazyHistogram] = {}
        self._lock = threading.Lock()
        self.names = PrivateNames[SparseRecord](
            store.find, lambda named: named.kind, lambda named: store.drop_name(named.name), "dp_sessions()",
            waits=lambda: parts.steps(WAITING),
        )  # fmt: skip

    def create(self, statement: CreatePrivate, text: str, caller: Caller) -> str:
        sparse = self.analyse(statement, caller)
        caller.require_tables(sparse.request.asked_tables)
        if statement.kind == PROJECTION:
            return self._create_projection(sparse, statement, text, caller)
        return self._create_named(sparse, text, caller)

    def _create_projection(self, sparse: SparseRequest, statement: CreatePrivate, text: str, caller: Caller) -> str:
        main = AskStatement(statement.query, text, 0, statement.name, False, ())
        seed = replace(main, view=statement.name + SEED)
        digest = sparse.digest()
        self._parts.views.names.made_by(statement.name, text, caller, digest)
        ready = [self._parts.views.is_ready(view, text, caller, digest) for view in (main, seed)]
        if all(ready):
            return self._parts.views.ready(statement.name)
        release = self._parts.release(sparse, sparse.request, digest, caller, text)
        table = self._parts.releases.table_sql(release.name)
        both = [(main, value_select(table)), (seed, seed_select(table, projection_plan(sparse)))]
        return self._parts.views.put_together(both, text, caller, release)

    def analyse(self, statement: CreatePrivate, caller: Caller | None = None, digest: str = "") -> SparseRequest:
        return self._parts.analyse(
            statement, lambda fresh, catalog: with_collations(analyse_sparse(fresh, catalog), catalog), digest, caller
        )

    def ask(self, argument: str, caller: Caller) -> str:
        """Returns SQL with the answers of a histogram or session. Equal questions have equal answers for ever."""
        name, keys, weights = read_argument(argument)
        named = self._askable(name, caller)
        with self._parts.open_cursor() as cursor:
            if isinstance(keys, str):
                asked = read_key_table(cursor, named.keys, keys, Catalog(cursor, self._parts.policies, None, caller))
            else:
                asked = read_key_list(cursor, named.keys, keys, weights)
        if named.kind == HISTOGRAM:
            return self._histogram(named, asked)
        answers = self._sessions.ask(named, asked, lambda: self._look_up(named))
        return session_answers(named, self._sessions.plan(named), asked, answers)

    def describe_ask(self, argument: str, caller: Caller) -> str:
        """Returns SQL with an answer's columns and no rows, and uses up no round. Refuses callers who may not ask."""
        name, _, _ = read_argument(argument)
        self._askable(name, caller)
        return listings.rows_sql(COLUMNS, [])

    def list_sessions(self, caller: Caller) -> str:
        rows: list[list[listings.Value]] = []
        for named in self._store.all():
            if not may_ask(named, caller) or not self._has_permission(named, caller):
                continue
            used, answered = self._store.updates_used(named.digest)
            plan = self._sessions.plan(named) if named.kind == SESSION else None
            note = plan.warning if plan else COMPUTATIONAL
            rows.append([
                named.name, named.kind, named.table, named.principal, named.sparsity, named.queries,
                answered if plan else None, None if plan is None else plan.law.updates,
                None if plan is None else plan.law.updates - used, None if plan is None else plan.alpha, note,
            ])  # fmt: skip
        return listings.rows_sql(LISTED, rows)

    def _histogram(self, named: SparseRecord, asked: KeyQuestions) -> str:
        noise = histogram_from_facts(self._store.facts(named))
        histogram = self._histograms.get(named.digest)
        if histogram is None:
            histogram = LazyHistogram.from_bytes(require_secret(self._parts.ledger.secrets, secret_name(named.digest)))
            self._histograms[named.digest] = histogram
        values = histogram.values(asked.digests, noise).tolist()
        self._parts.steps("values computed")
        with self._lock:
            released = self._store.store_first_values(named.digest, asked.keys(), values)
        self._parts.steps("values stored")
        return histogram_answers(named, noise, asked, released)

    def _askable(self, name: str, caller: Caller) -> SparseRecord:
        named = self._store.find(name)
        if named is None:
            view = self._parts.releases.view(name)
            if view is not None and view.strategy == PROJECTION:
                raise Refusal(
                    f"{view.name!r} is a projection",
                    accepted=f"FROM dp_project('{view.name}', 'q'), q a table or CTE with columns key and weight",
                )
            raise Refusal(
                f"there is no private histogram or session {name[:100]!r}", accepted="a name of dp_sessions()"
            )
        if not may_ask(named, caller):
            raise PermissionRefusal(
                f"the {named.kind} {named.name!r} belongs to somebody else", accepted="one of dp_sessions()"
            )
        caller.require_table(named.table)
        if not self._has_permission(named, caller):
            raise PermissionRefusal(
                f"{caller.name} may not ask about every table of {named.name!r}", accepted="one of dp_sessions()"
            )
        return named

    def _has_permission(self, named: SparseRecord, caller: Caller) -> bool:
        """Tells whether the caller may ask about every private table behind a name. False if the tables are unknown."""
        if caller.tables is None:
            return True
        try:
            caller.require_tables(self._reanalyse(named).request.asked_tables)
        except DpduckError:
            return False
        return True

    def _create_named(self, sparse: SparseRequest, text: str, caller: Caller) -> str:
        """Creates a histogram or session. Returns its status, with a warning if public facts show it to be useless."""

        digest = sparse.digest()

        def make() -> None:
            release = self._parts.release(sparse, sparse.request, digest, caller, text)
            self._store.put_name(sparse, text, caller.name, release.name)

        named = self.names.create(sparse.name, text, caller, digest, make)
        warning = self._sessions.plan(named).warning if named.kind == SESSION else ""
        return "; ".join(filter(None, (f"{named.name} is ready", warning)))

    def _reanalyse(self, named: SparseRecord) -> SparseRequest:
        statement = parse_statement(named.statement)
        if not isinstance(statement, CreatePrivate):
            raise InternalError("a session was made by another statement")
        return self.analyse(statement, digest=named.digest)

    def _look_up(self, named: SparseRecord) -> tuple[SparseRequest, Callable[[duckdb.DuckDBPyConnection], None]]:
        sparse = self._reanalyse(named)
        if sparse.digest() != named.digest:
            raise Refusal(
                f"the policy of {named.table} changed since {named.name!r} was made: it repeats its answers alone",
                accepted="DROP PRIVATE SESSION and CREATE PRIVATE SESSION, which pays",
            )
        rows = brought_up(sparse.request.rows, self._parts.policies.now().policies)
        sparse = replace(sparse, request=replace(sparse.request, rows=rows))
        return sparse, lambda cursor: Catalog(cursor, self._parts.policies).require_unchanged(rows)


def may_ask(named: SparseRecord, caller: Caller) -> bool:
    """Tells whether a caller may ask. The owner always may. Others may ask the owner's names and their own."""
    return caller.owner or named.principal in (caller.name, OWNER_NAME)
