"""Private views: answers with names of their own. The releasing principal, or the owner, creates and drops them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import duckdb

from dpduck.language.statements.kinds import PROJECTION, VIEW, AskStatement
from dpduck.language.text.names import TableName
from dpduck.store.cursors import Caller
from dpduck.store.named import PrivateNames, is_made_by, require_name
from dpduck.store.releases import STREAM, ReleaseStore, StoredRelease
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold


class PrivateViews:
    """Creates, replaces and drops private views, one at a time."""

    def __init__(self, releases: ReleaseStore, store: str, declared: Callable[[], Iterable[TableName]]) -> None:
        """declared: returns the tables with a policy and public tables. No principal may give a view their names."""
        self._releases, self._declared = releases, declared
        self._store = store
        self.names = PrivateNames[StoredRelease](
            releases.view, lambda view: view.strategy if view.strategy in (PROJECTION, STREAM) else VIEW,
            lambda view: releases.drop_view(view.name), "dp_releases()", releases.views, prefix=f"{store}.",
            lock_of=lambda name: "",
        )  # fmt: skip

    def naming(self) -> AbstractContextManager[None]:
        """Holds the one lock on names, from the check that a name is free until its table exists.

        The lock serves all kinds of tables, since two kinds may want the same name, or one may replace the other.
        """
        return self.names.naming("")

    def ready(self, name: str) -> str:
        return f"{self._store}.{name} is ready"

    def is_ready(
        self, statement: AskStatement, text: str, caller: Caller, digest: str, columns: Sequence[str] = ()
    ) -> bool:
        """Tells whether this very statement has already made the view. Refuses a name that the view may not get.

        columns: names that the view must have. A view of an earlier version, which lacks some, is made again.
        """
        exists = self.is_made(statement.view or "", statement.replace, text, caller, digest)
        return exists and not self._lacks(statement.view or "", columns)

    def _lacks(self, name: str, columns: Sequence[str]) -> bool:
        return bool(columns) and not {*map(fold, columns)} <= {*map(fold, self._releases.column_names(name))}

    def is_made(self, name: str, replaces: bool, text: str, caller: Caller, digest: str) -> bool:
        """Tells whether this very statement has already made the table, whatever its kind. Refuses a taken name."""
        require_name(name)
        if not caller.owner and fold(name) in {fold(table.table) for table in self._declared()}:
            # plain SQL would read the view in the table's place, whoever asks
            raise Refusal(f"the name {name!r} is that of a declared table", accepted="another name")
        existing = self._releases.view(name)
        if existing is None:
            if self._releases.means_something(name):
                raise Refusal(f"the name {name!r} is one of DuckDB's own tables", accepted="another name")
            if not self._releases.is_taken(name):
                return False
            existing = self._releases.view(name)  # the view may have been made between the two checks
            if existing is None:
                raise Refusal(f"the name {name!r} is taken", accepted="another name")
        if is_made_by(existing, text, caller, digest):
            if self._releases.is_taken(name):
                return True
            self._releases.drop_view(name)  # the owner dropped its table by DuckDB's own DROP TABLE
            return False
        if not replaces:
            raise Refusal(f"the private view {name!r} exists", accepted="CREATE OR REPLACE PRIVATE .., or another name")
        self.names.require_own(VIEW, existing, caller, "another name")
        return False

    def save(
        self, statement: AskStatement, text: str, caller: Caller, release: StoredRelease, select_sql: str,
        columns: Sequence[str] = (),
    ) -> str:  # fmt: skip
        return self.put_together([(statement, select_sql)], text, caller, release, columns)

    def put_together(
        self, statements: Sequence[tuple[AskStatement, str]], text: str, caller: Caller, release: StoredRelease,
        columns: Sequence[str] = (),
    ) -> str:  # fmt: skip
        """Stores the views of a release, each with its SELECT, in one transaction. Returns the first view's message."""
        name, release = statements[0][0].view or "", replace(release, source=release.source or release.name)
        with self.naming():
            missing = [
                (replace(release, name=ask.view or "", statement=text, principal=caller.name, kind="view"), select_sql)
                for ask, select_sql in statements
                if not self.is_ready(ask, text, caller, release.digest, columns)
            ]
            anew = statements[0][0].replace or any(self._releases.view(ask.view or "") for ask, _ in statements)
            try:
                most = None if caller.room is None else caller.room(None)
                self._releases.put_views(missing, anew, most, caller.most_characters)
            except duckdb.Error:  # its text could quote only noisy answers, but not in one line
                raise Refusal(
                    f"the SELECT of {name!r} fails or takes too long over the released answers, which are kept: asking "
                    "for them again is free",
                    accepted="expressions that every number can go through",
                ) from None
        return self.ready(name)

    def own(self, name: str, caller: Caller) -> StoredRelease:
        return self.names.own(VIEW, name, caller)

    def renew(self, view: StoredRelease, caller: Caller, select_sql: str) -> str:
        with self.naming():
            self.own(view.name, caller)
            most = None if caller.room is None else caller.room(None)
            self._releases.put_views([(view, select_sql)], True, most, caller.most_characters)
        return self.ready(view.name)
