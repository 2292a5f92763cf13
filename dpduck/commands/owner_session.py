"""Owner's session with a database: at the server that serves its store, or in this process if no server does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from dpduck.commands.errors import one_line
from dpduck.commands.reading import FunctionQuery, missing_of, reading
from dpduck.database.connection import attach_known, connect, open_for_lists
from dpduck.database.functions import OWNER
from dpduck.database.functions import answer as answer_sql
from dpduck.database.macros import MACROS
from dpduck.database.registered import find_database
from dpduck.database.started import Started
from dpduck.language.text.words import meant_or
from dpduck.server.bare_statements import read_bare
from dpduck.server.locked import RELEASED, ReleasedTables, is_named, missing_table
from dpduck.server.owner import owner_of_server
from dpduck.server.syntax import in_selects
from dpduck.store.attaching import STORE_NAME
from dpduck.store.store_files import store_files
from dpduck.values.errors import NOTHING_PRIVATE, DpduckError, InternalError, Interrupted, Refusal, StoreError
from dpduck.values.quoting import fold, quote_identifier

if TYPE_CHECKING:
    from dpduck.server.owner_door import Owner
    from dpduck.server.vault import ReleasedRows

CONFIDENCE = 0.95
"""Confidence of the intervals of dp_known for a plain SELECT."""

MOST_NAMED = 20
"""Largest number of views that a refusal names."""

AS_TEXTS = frozenset(("BIT", "TIME WITH TIME ZONE"))
"""Types that Arrow does not have. Their values travel as texts."""

GOES_ON = (
    "interrupted; the server may go on with the statement; dp_ledger() shows what stays charged; accepted: the same "
    "again, which is free if it was answered"
)


IN_DUCKDB = (
    'in DuckDB, while nothing else has the file open: duckdb {0}, or python -c "import duckdb; '
    "duckdb.connect('{0}').execute('..')\""
)
"""Ways to change a table. dpduck only reads tables."""


class OwnerSession:
    """Asks dp functions and reads released tables as the owner. Opens files and connections at their first use.

    After the server has ended, the next statement finds another server or opens the files.
    """

    def __init__(self, database: Path, store: Path | None, *, lists: bool = False, engines: Sequence[str] = ()) -> None:
        """lists: whether only dp_budget and dp_ledger are asked, which need no full database.

        engines: each a name and an address, as lake=sc://host:15002. A server has those that it was started with.
        """
        self._engines = tuple(engines)
        self._database, self._store, self._lists = database, store, lists
        self._files = store_files(database, store)
        self._open = ExitStack()
        self._owner: Owner | None = None
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._started: Started | None = None
        self._tables: ReleasedTables | None = None
        self._stored: ReleasedTables | None = None

    def __enter__(self) -> OwnerSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes files and connections. The session can be used again."""
        for part in (self._stored, self._open, self._owner):
            if part is not None:
                part.close()
        self._owner = self._connection = self._started = self._tables = self._stored = None

    def interrupt(self) -> None:
        """Ends the query that Ctrl-C left."""
        for tables in (self._tables, self._stored):
            if tables is not None:
                tables.interrupt()

    def is_served(self) -> bool:
        """Tells whether a server answers, after opening what answers."""
        self._connect()
        return self._owner is not None

    def ask(self, function: str, argument: str | None) -> duckdb.DuckDBPyRelation:
        """Returns the answer of a dp function, which replaces the answer before it."""
        connection, action = self._connect(), MACROS[function][1]
        place = "temp.answer" if self._owner is None else "memory.main.answer"
        connection.execute(f"DROP TABLE IF EXISTS {place}")
        if self._owner is not None:
            with self._at_server() as owner:
                owner.write_table(connection, place, action, argument)
        elif self._started is not None:
            progress = self._started.progress
            with nullcontext() if progress is None else progress.working():
                sql = answer_sql(self._started, OWNER, action, argument)
            connection.execute(f"CREATE TEMP TABLE answer AS {sql}")
        return connection.sql(f"FROM {place}")

    def run(self, text: str) -> duckdb.DuckDBPyRelation:
        """Runs a statement of dp(), or a query over released tables and dp functions.

        A query over private rows gives the answer that is known already, and charges nothing.
        """
        bare = read_bare(text)
        if bare is not None:
            return self.ask(bare.function, text if bare.function == "dp" else bare.statement)
        text = in_selects(text)
        query = reading(text)
        tables = self._tables_of(query)
        if not tables.is_query(text):
            if tables.is_change(text) and f"{STORE_NAME}." not in fold(text):
                raise Refusal("this changes the table itself", accepted=IN_DUCKDB.format(self._database.name))
            return self.ask("dp", text)  # which says what a statement looks like
        self._answer_calls(query, tables)
        try:
            return tables.run(query.sql)
        except duckdb.PermissionException:
            raise Refusal("a query here reads no file", accepted="private views, and dp functions") from None
        except duckdb.CatalogException as error:
            name = missing_table(error)
            if name is None or query.calls:
                raise
        return self._ask_known(text, name)

    def names(self) -> dict[str, str]:
        """Returns the released tables, each with a mark that changes with its rows."""
        connection = self._connect()
        if self._owner is None:
            return dict(connection.execute(RELEASED.format(STORE_NAME)).fetchall())
        with self._at_server() as owner:
            return owner.views()

    def views(self) -> list[str]:
        """Lists the private views, the oldest first."""
        connection = self._connect()
        if self._owner is None:
            listed = f"SELECT name FROM {STORE_NAME}.dpduck.releases WHERE kind = 'view' ORDER BY ledger_id, name"
            return [str(name) for (name,) in connection.execute(listed).fetchall()]
        return list(self.names())

    def _no_view(self, name: str) -> Refusal:
        from dpduck.server.gate import ASKING  # noqa: PLC0415 - it loads what a server needs

        views = self.views()
        accepted = meant_or(name, views, ", ".join([*views[:MOST_NAMED], ASKING]))
        return Refusal(f"there is no private view {name[:80]!r}", accepted=accepted)

    def _ask_known(self, text: str, missing: str) -> duckdb.DuckDBPyRelation:
        """Returns the known answer to a query over private rows. If it reads none, refuses the missing view."""
        try:
            return self.ask("dp_known", json.dumps([text.strip().rstrip(";"), CONFIDENCE, None]))
        except (DpduckError, duckdb.Error) as error:
            if not one_line(error).startswith(NOTHING_PRIVATE):
                raise
        raise self._no_view(missing.strip('"'))

    def _answer_calls(self, query: FunctionQuery, tables: ReleasedTables) -> None:
        """Answers the dp functions of a query, and puts the answers beside the released tables."""
        missing = missing_of(query, self.names()) if query.calls else None
        if missing is not None:
            raise self._no_view(missing)
        for number, call in enumerate(query.calls):
            tables.put_answer(number, self._answer_rows(call.function, call.argument(tables)))

    def _answer_rows(self, function: str, argument: str | None) -> ReleasedRows:
        self._connect()
        if self._owner is not None:
            with self._at_server() as owner:
                return owner.call(MACROS[function][1], argument)
        return rows_of(self.ask(function, argument))

    def _tables_of(self, query: FunctionQuery) -> ReleasedTables:
        """Returns an instance with the released tables that a query names."""
        stored = None if query.calls else self._read_store(query.sql)
        if stored is not None:
            return stored
        self._connect()
        if self._tables is None:
            self._tables = ReleasedTables()
            self._open.callback(self._tables.close)
        tables, names = self._tables, self.names()
        for copied in set(tables.names()) - {fold(name) for name in names}:
            tables.drop(copied)
        for name, mark in names.items():
            if is_named(name, query.sql) and tables.mark(name) != mark:
                tables.copy(name, mark, self._table(name))
        return tables

    def _read_store(self, text: str) -> ReleasedTables | None:
        """Reads the released tables in the store's file. None if the session is open, or the store is in use."""
        store = self._files.store
        if self._connection is not None or store is None or not store.exists() or self._find_server() is not None:
            return None
        try:
            self._stored = ReleasedTables(store, text)
        except StoreError:  # opening the database tells why
            return None
        return self._stored

    def _table(self, name: str) -> ReleasedRows:
        connection = self._connect()
        if self._owner is not None:
            with self._at_server() as owner:
                return owner.view(name)
        return rows_of(connection.sql(f"FROM {STORE_NAME}.main.{quote_identifier(name)}"))

    def _find_server(self) -> Owner | None:
        if self._owner is None:
            self._owner = owner_of_server(self._files)
        return self._owner

    def _connect(self) -> duckdb.DuckDBPyConnection:
        """Returns the connection that keeps answers: to the database, or in memory beside the server's."""
        if self._stored is not None:
            self._stored.close()
            self._stored = None
        if self._connection is not None:
            return self._connection
        owner = self._find_server()
        if owner is not None and self._engines:
            raise Refusal("a server counts for this store", accepted="dpduck serve .. --engine, and no --engine here")
        if owner is not None:
            self._open.callback(owner.close)
            self._connection = self._open.enter_context(duckdb.connect())
        elif self._lists:
            self._connection, self._started = self._open.enter_context(open_for_lists(self._database, self._store))
        else:
            self._connection = self._open.enter_context(connect(self._database, self._store))
            self._started = find_database(self._connection)
            for named in self._engines:
                attach_known(self._connection, named)
        return self._connection

    @contextmanager
    def _at_server(self) -> Iterator[Owner]:
        """Yields the server's door. After an interruption, or if the server has ended, the session begins anew."""
        from dpduck.server.owner_door import ServerGone  # noqa: PLC0415 - it loads Arrow

        self._connect()
        if self._owner is None:
            raise InternalError("no server serves this store")
        try:
            yield self._owner
        except ServerGone:
            self.close()
            raise
        except KeyboardInterrupt:
            self.close()  # the rest of an answer could come later
            raise Interrupted(GOES_ON) from None


def rows_of(relation: duckdb.DuckDBPyRelation) -> ReleasedRows:
    """Returns the rows of a relation with the names and types of its columns."""
    from dpduck.server.vault import ReleasedRows  # noqa: PLC0415 - it loads Arrow

    columns = tuple(zip(relation.columns, map(str, relation.types), strict=True))
    if {kind for _, kind in columns} & AS_TEXTS:
        names = [(quote_identifier(name), kind) for name, kind in columns]
        texts = (f"CAST({name} AS VARCHAR) AS {name}" if kind in AS_TEXTS else name for name, kind in names)
        relation = relation.project(", ".join(texts))
    return ReleasedRows(columns, relation.to_arrow_table())
