"""Private views: answers under their own names, made and dropped by the releasing principal, or by the owner."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import duckdb

from dpduck.language.statements.kinds import AskStatement, DropPrivateView
from dpduck.language.text.names import TableName
from dpduck.language.text.words import meant_or
from dpduck.store.cursors import Caller
from dpduck.store.releases import STREAM, ReleaseStore, StoredRelease
from dpduck.values.errors import PermissionRefusal, Refusal
from dpduck.values.quoting import fold

_VIEW_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]{0,99}")


class PrivateViews:
    """Changes of views, one at a time. DuckDB binds a statement more than once, so each change may be asked twice."""

    def __init__(self, releases: ReleaseStore, store: str, declared: Callable[[], Iterable[TableName]]) -> None:
        """`declared` returns tables with a policy and public tables. No principal may give their names to a view."""
        self._releases, self._declared = releases, declared
        self._store = store
        self._lock = threading.Lock()
        self._last_drop: tuple[str, str, str] | None = None

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Holds the naming lock, from the check that a name is free until the table exists.

        One lock serves all kinds of tables, since each kind may want the same name, or replace a table of another kind.
        """
        with self._lock:
            self._last_drop = None
            yield

    def ready(self, name: str) -> str:
        """Returns the message that a view can be read."""
        return f"{self._store}.{name} is ready"

    def is_ready(
        self, statement: AskStatement, text: str, caller: Caller, digest: str, columns: Sequence[str] = ()
    ) -> bool:
        """Tells whether this very statement made the view already. Refuses a name that is not free for the view.

        columns: names that the view must have. A view of an earlier version may lack such names. It is made again.
        """
        exists = self.is_made(statement.view or "", statement.replace, text, caller, digest)
        return exists and not self._lacks(statement.view or "", columns)

    def _lacks(self, name: str, columns: Sequence[str]) -> bool:
        return bool(columns) and not {*map(fold, columns)} <= {*map(fold, self._releases.column_names(name))}

    def is_made(self, name: str, replaces: bool, text: str, caller: Caller, digest: str) -> bool:
        """Tells whether this very statement made the table already, for any kind of table with a name of its own."""
        require_view_name(name)
        if not caller.owner and fold(name) in {fold(table.table) for table in self._declared()}:
            # plain SQL would read the view in the table's place, whoever asks
            raise Refusal(f"the name {name!r} is that of a declared table", accepted="another name")
        existing = self._releases.view(name)
        if existing is None:
            if self._releases.means_something(name):
                raise Refusal(f"the name {name!r} is one of DuckDB's own tables", accepted="another name")
            if not self._releases.taken(name):
                return False
            existing = self._releases.view(name)  # the view may have been made between the two checks
            if existing is None:
                raise Refusal(f"the name {name!r} is taken", accepted="another name")
        if (existing.digest, existing.statement, existing.principal) == (digest, text, caller.name):
            if self._releases.taken(name):
                return True
            self._releases.drop_view(name)  # the owner dropped its table by DuckDB's own DROP TABLE
            return False
        if not replaces:
            raise Refusal(f"the private view {name!r} exists", accepted="CREATE OR REPLACE PRIVATE .., or another name")
        _require_own(existing, caller, "another name")
        return False

    def put(
        self, statement: AskStatement, text: str, caller: Caller, release: StoredRelease, select_sql: str,
        columns: Sequence[str] = (),
    ) -> str:  # fmt: skip
        """Stores the view for which a release was made. columns: see is_ready."""
        return self.put_together([(statement, select_sql)], text, caller, release, columns)

    def put_together(
        self, statements: Sequence[tuple[AskStatement, str]], text: str, caller: Caller, release: StoredRelease,
        columns: Sequence[str] = (),
    ) -> str:  # fmt: skip
        """Stores the views of a release, each with its SELECT, all or none. Returns the message of the first."""
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
        """Returns the view of this name. Refuses a caller who may not change it."""
        existing = self._releases.view(name)
        if existing is None:
            raise Refusal(
                f"there is no private view {name!r}",
                accepted=meant_or(name, self._releases.views(), "a name of dp_releases()"),
            )
        _require_own(existing, caller, "one of your own")
        return existing

    def renew(self, view: StoredRelease, caller: Caller, select_sql: str) -> str:
        """Puts newer rows under a view's name."""
        with self.naming():
            self.own(view.name, caller)
            most = None if caller.room is None else caller.room(None)
            self._releases.put_views([(view, select_sql)], True, most, caller.most_characters)
        return self.ready(view.name)

    def drop(self, statement: DropPrivateView, text: str, caller: Caller) -> str:
        """Drops a view. Its release stays, so that asking again is free."""
        with self._lock:
            existing = self._releases.view(statement.name)
            if existing is None:
                if self._last_drop is not None and self._last_drop[:2] == (text, caller.name):
                    return self._last_drop[2]
                if statement.if_exists:
                    return "there was no such view"
                raise Refusal(
                    f"there is no private view {statement.name!r}",
                    accepted=meant_or(statement.name, self._releases.views(), "a name of dp_releases(), or IF EXISTS"),
                )
            _require_own(existing, caller, "one of your own")
            self._releases.drop_view(statement.name)
            done = f"{self._store}.{existing.name} is dropped; its budget stays spent"
            self._last_drop = (text, caller.name, done)
            return done


def _require_own(view: StoredRelease, caller: Caller, accepted: str) -> None:
    if view.strategy == STREAM:
        raise Refusal(f"{view.name!r} is a private stream", accepted="DROP PRIVATE STREAM, or another name")
    if not caller.owner and view.principal != caller.name:
        raise PermissionRefusal(f"the private view {view.name!r} is another's", accepted=accepted)


def require_view_name(name: str) -> None:
    """Refuses names that no private view may have. Accepted names are valid file names, too, and not dpduck's own."""
    accepted = "up to 100 letters, digits and _, not beginning with a digit, release_ or dpduck_"
    if not _VIEW_NAME.fullmatch(name):
        raise Refusal(f"{name[:40]!r} cannot be the name of a view", accepted=accepted)
    if name.lower().startswith(("release_", "dpduck_")):
        raise Refusal(f"the name {name[:40]!r} is reserved", accepted=accepted)
