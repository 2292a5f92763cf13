"""Statements of sparse queries: projections, lazy histograms and sessions, made, asked, explained and dropped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import duckdb

from dpduck.edges import listings
from dpduck.edges.asker import Asker
from dpduck.edges.catalog import Catalog
from dpduck.edges.collations import collation_of
from dpduck.edges.policy_store import PolicyStore
from dpduck.edges.private_views import PrivateViews
from dpduck.edges.projection_release import ProjectionRecipe, projection_plan, seed_select, value_select
from dpduck.edges.release_store import ReleaseStore
from dpduck.edges.releaser import Releaser
from dpduck.edges.roots import OpenCursor
from dpduck.errors import Refusal
from dpduck.frontend.sparse_keys import require_collation
from dpduck.frontend.sparse_request import SparseRequest, analyse_sparse
from dpduck.frontend.sparse_statements import PROJECTION, CreateSparse, DropSparse
from dpduck.frontend.statements import Ask, DropPrivateView

SEED = "_seed"


class SparseQueries:
    """What an engine does about sparse queries."""

    def __init__(
        self,
        open_cursor: OpenCursor,
        policies: PolicyStore,
        releases: ReleaseStore,
        releaser: Releaser,
        views: PrivateViews,
    ) -> None:
        self._open_cursor = open_cursor
        self._policies = policies
        self._releases = releases
        self._releaser = releaser
        self._views = views

    def create(self, statement: CreateSparse, text: str, asker: Asker) -> str:
        """Releases what the statement asks for, under its name."""
        sparse = self._analysed(statement)
        asker.require_tables(sparse.request.asked_tables)
        return listings.status(self._create_projection(sparse, statement, text, asker))

    def drop(self, statement: DropSparse, text: str, asker: Asker) -> str:
        """Takes a name away; what was released under it stays, so that asking again is free."""
        existing = self._releases.view(statement.name)
        if existing is not None and existing.strategy != PROJECTION:
            raise Refusal(f"{statement.name!r} is no projection", accepted="DROP PRIVATE VIEW")
        self._views.drop(DropPrivateView(statement.name + SEED, True), text, asker)
        return listings.status(self._views.drop(DropPrivateView(statement.name, statement.if_exists), text, asker))

    def _create_projection(self, sparse: SparseRequest, statement: CreateSparse, text: str, asker: Asker) -> str:
        main = Ask(statement.query, text, 0, statement.name, False, ())
        seed = replace(main, view=statement.name + SEED)
        digest = sparse.digest()
        ready = [self._views.is_ready(view, text, asker, digest) for view in (seed, main)]
        if all(ready):
            return self._views.ready(statement.name)
        release = self._releaser.release(
            digest, lambda: ProjectionRecipe(sparse, self._rechecking(sparse)), asker, text
        )
        table = self._releases.table_sql(release.name)
        self._views.put(seed, text, asker, release, seed_select(table, projection_plan(sparse)))
        return self._views.put(main, text, asker, release, value_select(table))

    def _rechecking(self, sparse: SparseRequest) -> Callable[[duckdb.DuckDBPyConnection], None]:
        return lambda cursor: Catalog(cursor, self._policies).require_unchanged(sparse.request)

    def _analysed(self, statement: CreateSparse) -> SparseRequest:
        with self._open_cursor() as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            return with_collations(analyse_sparse(statement, Catalog(cursor, self._policies)), cursor)


def with_collations(sparse: SparseRequest, cursor: duckdb.DuckDBPyConnection) -> SparseRequest:
    """The request with its columns' collations; a projection, asked where the column is unknown, must have none."""
    keys = []
    for key in sparse.keys:
        collation = collation_of(cursor, sparse.table, key.name) if key.type_name == "VARCHAR" else ""
        require_collation(key.name, collation)
        if collation and sparse.kind == PROJECTION:
            raise Refusal(
                f"the column {key.name!r} has a collation, of which a projection knows nothing",
                accepted="a column without COLLATE, or a private histogram",
            )
        keys.append(replace(key, collation=collation))
    return replace(sparse, keys=tuple(keys))
