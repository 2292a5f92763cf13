"""Statements that create, ask, describe, list and drop projections, lazy histograms and sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log, sqrt

import duckdb
import numpy as np
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.ledger.secrets import require_secret
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.queries.histograms import LazyHistogram
from dpduck.kernel.queries.sessions import UNITS
from dpduck.kernel.worker.workers import Workers
from dpduck.language.statements.kinds import (
    HISTOGRAM,
    PROJECTION,
    SESSION,
    AskStatement,
    CreateSparse,
    DropPrivateView,
    DropSparse,
)
from dpduck.language.statements.parse import parse_statement
from dpduck.language.text.names import TableName
from dpduck.mechanisms.release import WAITING, PlaceOf, Steps
from dpduck.mechanisms.sparse.ask import HYPOTHESIS, MEASURED, OpenSessions
from dpduck.mechanisms.sparse.keys import require_collation
from dpduck.mechanisms.sparse.projection import projection_plan, seed_select, value_select
from dpduck.mechanisms.sparse.questions import KeyQuestions, read_argument, read_key_list, read_key_table
from dpduck.mechanisms.sparse.request import SparseRequest, analyse_sparse
from dpduck.mechanisms.sparse.session import COMPUTATIONAL, SessionPlan, histogram_from_facts, secret_name
from dpduck.mechanisms.sparse.store import SessionAnswer, SparseRecord, SparseStore
from dpduck.store import tables as listings
from dpduck.store.catalog import Catalog
from dpduck.store.cursors import Caller, NamedLocks, OpenCursor
from dpduck.store.policies import PolicyStore
from dpduck.store.releases import SEED, ReleaseStore, StoredRelease
from dpduck.store.tables import Value, rows_sql
from dpduck.store.terms import PolicyTerms, as_answered, brought_up
from dpduck.store.views import PrivateViews, require_view_name
from dpduck.values.errors import DpduckError, InternalError, PermissionRefusal, Refusal
from dpduck.values.quoting import fold

# Answers of histograms and sessions as tables.


COLUMNS = (
    ("question", "VARCHAR"), ("answer", "DOUBLE"), ("margin", "DOUBLE"), ("source", "VARCHAR"), ("updated", "BOOLEAN"),
    ("updates_left", "BIGINT"), ("note", "VARCHAR"),
)  # fmt: skip
OUT_OF_UPDATES = "no updates are left: from the hypothesis, without a statement about its error"
MORE_THAN_DECLARED = "beyond the declared number of questions"


def session_answers(
    named: SparseRecord, plan: SessionPlan, asked: KeyQuestions, answers: Sequence[SessionAnswer]
) -> str:
    """Renders SQL with one row for each question of a session."""
    bounds = {HYPOTHESIS: plan.alpha, MEASURED: plan.measured}
    rows: list[list[Value]] = []
    for label, reply in zip(asked.labels, answers, strict=True):
        note = "" if reply.source in bounds else OUT_OF_UPDATES
        if reply.number > named.queries:
            note = note or MORE_THAN_DECLARED
        left = plan.law.updates - reply.updates
        rows.append([label, reply.answer, bounds.get(reply.source), reply.source, reply.source == MEASURED, left, note])
    return rows_sql(COLUMNS, rows)


def histogram_answers(named: SparseRecord, noise: Noise, asked: KeyQuestions, values: Sequence[int]) -> str:
    """Renders SQL with one row for each question of a histogram. All margins hold together, except with chance beta."""
    shares = asked.weights / UNITS
    starts = np.concatenate([[0], np.cumsum(asked.lengths)[:-1]]).astype(np.intp)
    sums = np.add.reduceat(np.asarray(values, dtype=np.float64) * shares, starts)
    squares = np.add.reduceat(shares * shares, starts)
    rows: list[list[Value]] = [
        [
            label,
            float(answer),
            histogram_margin(noise, float(square), named.queries, named.beta),
            "histogram",
            False,
            None,
            "",
        ]
        for label, answer, square in zip(asked.labels, sums, squares, strict=True)
    ]
    return rows_sql(COLUMNS, rows)


def histogram_margin(noise: Noise, weight_squared: float, queries: int, beta: float) -> float:
    """Returns the margin by a sub-Gaussian tail, or for Laplace by Bernstein's bound with weights of at most 1."""
    chances = log(2 * queries / beta)
    parameter = float(noise.parameter)
    if noise.kind is NoiseKind.GAUSSIAN:
        return sqrt(parameter) * sqrt(2 * weight_squared * chances)
    return sqrt(2.0) * parameter * sqrt(2 * weight_squared * chances) + parameter * chances


OWNER_NAME = "owner"
Release = Callable[[SparseRequest, Caller, str], StoredRelease]
"""Creates the release of a request, or finds an existing release."""

LISTED = (
    ("name", "VARCHAR"), ("kind", "VARCHAR"), ("table_name", "VARCHAR"), ("principal", "VARCHAR"),
    ("sparsity", "BIGINT"), ("queries", "BIGINT"), ("answered", "BIGINT"), ("updates", "BIGINT"),
    ("updates_left", "BIGINT"), ("alpha", "DOUBLE"), ("note", "VARCHAR"),
)  # fmt: skip


class SparseQueries:
    """Sparse queries of an engine."""

    def __init__(
        self,
        open_cursor: OpenCursor,
        policies: PolicyStore,
        releases: ReleaseStore,
        release: Release,
        views: PrivateViews,
        ledger: Ledger,
        store: SparseStore,
        steps: Steps,
        workers: Workers,
        place_of: PlaceOf,
    ) -> None:
        self._open_cursor = open_cursor
        self._policies = policies
        self._releases = releases
        self._release = release
        self._views = views
        self._ledger = ledger
        self._store = store
        self._steps = steps
        self._sessions = OpenSessions(open_cursor, ledger, store, operating_system_entropy(), steps, workers, place_of)
        self._histograms: dict[str, LazyHistogram] = {}
        self._lock = threading.Lock()
        self._names = NamedLocks()
        self._last_drop: tuple[str, str] | None = None

    def run(self, statement: CreateSparse | DropSparse, text: str, caller: Caller) -> str:
        """Runs a statement."""
        if isinstance(statement, CreateSparse):
            return self.create(statement, text, caller)
        return self.drop(statement, text, caller)

    def create(self, statement: CreateSparse, text: str, caller: Caller) -> str:
        """Creates the projection, histogram or session of a statement under its name."""
        sparse = self.analyse_statement(statement, caller)
        caller.require_tables(sparse.request.asked_tables)
        if statement.kind == PROJECTION:
            return listings.status(self._create_projection(sparse, statement, text, caller))
        return listings.status(self._create_named(sparse, text, caller))

    def drop(self, statement: DropSparse, text: str, caller: Caller) -> str:
        """Drops a name. Its release stays, so that asking again is free."""
        if statement.kind != PROJECTION:
            return listings.status(self._drop_named(statement, text, caller))
        existing = self._releases.view(statement.name)
        if existing is not None and existing.strategy != PROJECTION:
            raise Refusal(f"{statement.name!r} is no projection", accepted="DROP PRIVATE VIEW")
        return listings.status(self._views.drop(DropPrivateView(statement.name, statement.if_exists), text, caller))

    def _create_projection(self, sparse: SparseRequest, statement: CreateSparse, text: str, caller: Caller) -> str:
        main = AskStatement(statement.query, text, 0, statement.name, False, ())
        seed = replace(main, view=statement.name + SEED)
        digest, existing = sparse.digest(), self._releases.view(statement.name)
        if existing is not None and (existing.digest, existing.statement, existing.principal) != (
            digest, text, caller.name
        ):  # fmt: skip
            kind = "PROJECTION" if existing.strategy == PROJECTION else "VIEW"
            raise Refusal(f"the name {existing.name!r} is taken", accepted=f"DROP PRIVATE {kind}, or another name")
        ready = [self._views.is_ready(view, text, caller, digest) for view in (main, seed)]
        if all(ready):
            return self._views.ready(statement.name)
        release = self._release(sparse, caller, text)
        table = self._releases.table_sql(release.name)
        both = [(main, value_select(table)), (seed, seed_select(table, projection_plan(sparse)))]
        return self._views.put_together(both, text, caller, release)

    def analyse_statement(
        self, statement: CreateSparse, caller: Caller | None = None, digest: str = ""
    ) -> SparseRequest:
        """Returns the request of a statement, from one snapshot of public facts.

        digest: the digest of the release that the statement made. If it is empty, any release under the statement's
        own digest counts.
        """
        with self._open_cursor() as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")

            def read_request(terms: PolicyTerms | None) -> SparseRequest:
                fresh = statement if terms is None else replace(statement, query=statement.query.copy())
                catalog = Catalog(cursor, self._policies, None, caller, terms=terms)
                return with_collations(analyse_sparse(fresh, catalog), cursor)

            def is_answered(sparse: SparseRequest) -> bool:
                own_digest = sparse.digest()
                return own_digest == digest if digest else self._releases.by_digest(own_digest) is not None

            return as_answered(read_request, is_answered, self._policies.earlier)

    def ask(self, argument: str, caller: Caller) -> str:
        """Returns SQL with the answers of a histogram or session. Equal questions have equal answers for ever."""
        name, keys, weights = read_argument(argument)
        named = self._askable(name, caller)
        with self._open_cursor() as cursor:
            if isinstance(keys, str):
                asked = read_key_table(cursor, named.keys, keys, Catalog(cursor, self._policies, None, caller))
            else:
                asked = read_key_list(cursor, named.keys, keys, weights)
        if named.kind == HISTOGRAM:
            return self._histogram(named, asked)
        answers = self._sessions.ask(named, asked, lambda: self._look_up(named))
        return session_answers(named, self._sessions.plan(named), asked, answers)

    def describe_ask(self, argument: str, caller: Caller) -> str:
        """Returns SQL with the columns of an answer and no rows. Refuses callers who may not ask."""
        name, _, _ = read_argument(argument)
        self._askable(name, caller)
        return listings.rows_sql(COLUMNS, [])

    def list_sessions(self, caller: Caller) -> str:
        """Returns SQL that lists the histograms and sessions that the caller may ask."""
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
            histogram = LazyHistogram.from_bytes(require_secret(self._ledger.secrets, secret_name(named.digest)))
            self._histograms[named.digest] = histogram
        values = histogram.values(asked.digests, noise).tolist()
        self._steps("values computed")
        with self._lock:
            released = self._store.store_first_values(named.digest, asked.keys(), values)
        self._steps("values stored")
        return histogram_answers(named, noise, asked, released)

    def _askable(self, name: str, caller: Caller) -> SparseRecord:
        named = self._store.named(name)
        if named is None:
            view = self._releases.view(name)
            if view is not None and view.strategy == PROJECTION:
                raise Refusal(
                    f"{view.name!r} is a projection",
                    accepted=f"FROM dp_project('{view.name}', 'q'), q a table or CTE with columns key and weight",
                )
            raise Refusal(
                f"there is no private histogram or session {name[:100]!r}", accepted="a name of dp_sessions()"
            )
        if not may_ask(named, caller):
            raise PermissionRefusal(f"the {named.kind} {named.name!r} is another's", accepted="one of dp_sessions()")
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
        require_view_name(sparse.name)
        # locks one name alone: a release may wait for its point of time, and other names need not wait
        with self._names.held(fold(sparse.name), lambda: self._steps(WAITING)):
            existing = self._store.named(sparse.name)
            if existing is not None:
                if (existing.digest, existing.statement, existing.principal) == (sparse.digest(), text, caller.name):
                    return self._ready(existing)
                raise Refusal(
                    f"the name {sparse.name!r} is taken",
                    accepted=f"DROP PRIVATE {existing.kind.upper()}, or another name",
                )
            release = self._release(sparse, caller, text)
            self._store.put_name(sparse, text, caller.name, release.name)
            self._last_drop = None
            named = self._store.named(sparse.name)
            if named is None:
                raise InternalError("a name that was given is not there")
            return self._ready(named)

    def _ready(self, named: SparseRecord) -> str:
        """Renders the status of a name, with a warning if the public facts already show that it is of no use."""
        warning = self._sessions.plan(named).warning if named.kind == SESSION else ""
        return "; ".join(filter(None, (f"{named.name} is ready", warning)))

    def _drop_named(self, statement: DropSparse, text: str, caller: Caller) -> str:
        done = f"{statement.name} is dropped; its budget stays spent"
        with self._names.held(fold(statement.name), lambda: self._steps(WAITING)):
            existing = self._store.named(statement.name)
            if existing is None or existing.kind != statement.kind:
                if self._last_drop == (text, caller.name):
                    return done
                if statement.if_exists:
                    return f"there was no such {statement.kind}"
                raise Refusal(
                    f"there is no private {statement.kind} {statement.name!r}",
                    accepted="a name of dp_sessions(), or IF EXISTS",
                )
            if not caller.owner and existing.principal != caller.name:
                raise PermissionRefusal(
                    f"the {existing.kind} {existing.name!r} is another's", accepted="one of your own"
                )
            self._store.drop_name(existing.name)
            self._last_drop = (text, caller.name)
        return done

    def _reanalyse(self, named: SparseRecord) -> SparseRequest:
        statement = parse_statement(named.statement)
        if not isinstance(statement, CreateSparse):
            raise InternalError("a session was made by another statement")
        return self.analyse_statement(statement, digest=named.digest)

    def _look_up(self, named: SparseRecord) -> tuple[SparseRequest, Callable[[duckdb.DuckDBPyConnection], None]]:
        sparse = self._reanalyse(named)
        if sparse.digest() != named.digest:
            raise Refusal(
                f"the policy of {named.table} changed since {named.name!r} was made: it repeats its answers alone",
                accepted="DROP PRIVATE SESSION and CREATE PRIVATE SESSION, which pays",
            )
        rows = brought_up(sparse.request.rows, self._policies.now().policies)
        sparse = replace(sparse, request=replace(sparse.request, rows=rows))
        return sparse, lambda cursor: Catalog(cursor, self._policies).require_unchanged(rows)


def may_ask(named: SparseRecord, caller: Caller) -> bool:
    """Tells whether a caller may ask. The owner always may. Others may ask the owner's names and their own."""
    return caller.owner or named.principal in (caller.name, OWNER_NAME)


def with_collations(sparse: SparseRequest, cursor: duckdb.DuckDBPyConnection) -> SparseRequest:
    """Returns the request with its columns' collations. A projection must have none: its queries are unknown."""
    keys = []
    for key in sparse.keys:
        collation = collation_of(cursor, sparse.table, key.name) if key.type_name == "VARCHAR" else ""
        keys.append(replace(key, collation=collation))
        require_collation(keys[-1])
        if collation and sparse.kind == PROJECTION:
            raise Refusal(
                f"the column {key.name!r} has a collation, of which a projection knows nothing",
                accepted="a column without COLLATE, or a private histogram",
            )
    return replace(sparse, keys=tuple(keys))


# Collations of columns, which DuckDB's catalog shows only in the text of a table's definition.


def collation_of(cursor: duckdb.DuckDBPyConnection, table: TableName, column: str) -> str:
    """Returns the declared collation of a column, '' if it has none."""
    rows = cursor.execute(
        "SELECT sql, database_name, schema_name, table_name FROM duckdb_tables() WHERE lower(table_name) = lower($1)",
        [table.table],
    ).fetchall()
    row = next((entry for entry in rows if tuple(map(fold, entry[1:])) == tuple(map(fold, table.parts))), None)
    definition = "" if row is None else str(row[0])
    if row is not None and " COLLATE " not in definition.upper():
        return ""
    try:
        parsed = parse_one(definition, dialect="duckdb")
    except SqlglotError:
        parsed = exp.Expr()
    for node in parsed.find_all(exp.ColumnDef):
        if fold(node.name) == fold(column):
            rule = node.find(exp.CollateColumnConstraint)
            return "" if rule is None else rule.this.name
    raise Refusal(f"the collation of {column!r} cannot be read", accepted="a table of columns without COLLATE")
