"""Locked DuckDB in memory: settings that keep SQL from files and the network, and released tables for the owner."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from dpduck.database.analyst_macros import install_analyst_macros
from dpduck.values.errors import StoreError
from dpduck.values.quoting import fold, quote_identifier, quote_text

if TYPE_CHECKING:
    from dpduck.server.vault import ReleasedRows

LOCK = (
    "SET temp_directory = ''",  # before the next line, which forbids it
    "SET enable_external_access = false",
    "SET disabled_filesystems = 'LocalFileSystem'",
    "SET python_enable_replacements = false",
    "SET python_scan_all_frames = false",
    "SET allow_community_extensions = false",
    "SET autoload_known_extensions = false",
    "SET autoinstall_known_extensions = false",
    "SET allow_unsigned_extensions = false",
    "SET lock_configuration = true",
)
"""The statements that lock the instance, in this order. They run after every step that needs more rights."""

PRIVATE, ANSWERS = "private", "dpduck_answers"
"""Databases of the owner's released tables: private views and other releases, and answers of dp functions."""

RELEASED = (
    "SELECT name, concat_ws('|', principal, ledger_id, released_at, digest) "
    "FROM {}.dpduck.releases ORDER BY kind <> 'view', ledger_id, name"
)
"""SQL of the released tables of a store, each with a mark that changes with the rows."""

CHANGES = frozenset(("ALTER", "CREATE", "DROP", "INSERT", "UPDATE", "DELETE", "MERGE_INTO"))
"""DuckDB's kinds of statements that change tables or views."""

SEED = "_seed"
"""End of the name of a table that belongs to a projection, which macros read together."""

_MISSING = re.compile(r"Table with name (.{1,200}?) does not exist")


class ReleasedTables:
    """DuckDB instance in which the owner's SELECTs run. It never has a private row, so no SELECT can read one."""

    def __init__(self, store: Path | None = None, text: str = "") -> None:
        """Opens the instance. store: its released tables are read where they lie, but only those named in `text`."""
        self._connection = duckdb.connect(":memory:")
        self._marks: dict[str, str] = {}
        try:
            for database in (PRIVATE, ANSWERS):
                self._connection.execute(f"ATTACH ':memory:' AS {database}")
            if store is not None:
                self._attach(store, text)
            if store is None or "dp_" in fold(text):
                install_analyst_macros(self._connection, PRIVATE)
            self._connection.execute(f"USE {PRIVATE}")
            for statement in LOCK:
                self._connection.execute(statement)
        except BaseException:
            self._connection.close()
            raise

    def _attach(self, store: Path, text: str) -> None:
        """Attaches a store read-only under a name that no statement knows, with a view of each named table."""
        hidden = f"dpduck_store_{secrets.token_hex(16)}"
        try:
            self._connection.execute(f"ATTACH {quote_text(str(store))} AS {hidden} (READ_ONLY)")
            listed = self._connection.execute(RELEASED.format(hidden)).fetchall()
        except duckdb.Error:
            raise StoreError("the store cannot be read; accepted: the file <name>_private.duckdb") from None
        for name in (name for name, _ in listed if is_named(name, text)):
            table = f"main.{quote_identifier(name)}"
            self._connection.execute(f"CREATE VIEW {PRIVATE}.{table} AS FROM {hidden}.{table}")

    def close(self) -> None:
        self.interrupt()
        self._connection.close()

    def interrupt(self) -> None:
        """Ends the query that Ctrl-C left. Otherwise threads of DuckDB go on with it, and the next query waits."""
        self._connection.interrupt()

    def mark(self, name: str) -> str | None:
        """Returns the mark of a copied table, or None if there is no copy."""
        return self._marks.get(fold(name))

    def copy(self, name: str, mark: str, rows: ReleasedRows) -> None:
        """Replaces the copy of a released table."""
        from dpduck.server.vault_messages import create_view_table  # noqa: PLC0415 - it loads Arrow

        self.drop(name)
        create_view_table(self._connection, f"{PRIVATE}.main.{quote_identifier(name)}", rows)
        self._marks[fold(name)] = mark

    def drop(self, name: str) -> None:
        self._connection.execute(f"DROP TABLE IF EXISTS {PRIVATE}.main.{quote_identifier(name)}")
        self._marks.pop(fold(name), None)

    def names(self) -> list[str]:
        """Lists the copied tables in small letters."""
        return list(self._marks)

    def put_answer(self, number: int, rows: ReleasedRows) -> None:
        """Stores the answer of a dp function. SQL reads it under the name answer_place(number)."""
        from dpduck.server.runner_process import create_table  # noqa: PLC0415 - it loads Arrow

        place = answer_place(number)
        self._connection.execute(f"DROP TABLE IF EXISTS {place}")
        create_table(self._connection, place, list(rows.columns), rows.table)

    def constant(self, parameters: str, result: str, arguments: str) -> str | None:
        """Evaluates `result`, an expression over parameters of a dp function, for the given arguments."""
        self._connection.execute(f"CREATE OR REPLACE TEMP MACRO dpduck_taken({parameters}) AS {result}")
        row = self._connection.execute(f"SELECT dpduck_taken({arguments})").fetchone()
        return None if row is None or row[0] is None else str(row[0])

    def is_query(self, text: str) -> bool:
        """Tells whether a text is one query: SELECT, FROM, WITH, VALUES, PIVOT, SUMMARIZE or DESCRIBE."""
        text = text.strip().rstrip(";")
        try:
            statements = self._connection.extract_statements(text)
            kinds = [statement.type for statement in statements]
            if kinds == [duckdb.StatementType.MULTI]:  # in 2.0 whatever has a PIVOT without IN, CREATE and COPY too
                return len(self._connection.extract_statements(f"FROM (\n{text}\n)")) == 1
        except (duckdb.Error, ValueError):  # the Python package of 2.0 has no name for some kinds
            return False
        expanded = all(not statement.query for statement in statements)  # in 1.5 such a PIVOT creates a type first
        return kinds[-1:] == [duckdb.StatementType.SELECT] and (len(kinds) == 1 or expanded)

    def is_change(self, text: str) -> bool:
        """Tells whether a text only changes tables or views: ALTER, CREATE, DROP, INSERT, UPDATE, DELETE or MERGE."""
        try:
            kinds = {str(statement.type).rpartition(".")[2] for statement in self._connection.extract_statements(text)}
        except (duckdb.Error, ValueError):  # the Python package of 2.0 has no name for some kinds
            return False
        return bool(kinds) and kinds <= CHANGES

    def run(self, text: str) -> duckdb.DuckDBPyRelation:
        self._connection.execute("SELECT NULL").fetchall()  # 2.0 runs nothing beside a result that was not read
        return self._connection.sql(text)


def answer_place(number: int) -> str:
    """Returns the full name of the table with an answer."""
    return f"{ANSWERS}.main.answer_{number}"


def is_named(name: str, text: str) -> bool:
    """Tells whether a text can name a table: it has the name's letters somewhere.

    >>> is_named("by_ward", "FROM private.By_Ward"), is_named("ages", "FROM private.by_ward")
    (True, False)
    """
    return fold(name).removesuffix(SEED).replace('"', '""') in fold(text)


def missing_table(error: duckdb.Error) -> str | None:
    """Returns the name of the table that DuckDB did not find, or None for another error.

    >>> missing_table(duckdb.CatalogException("Catalog Error: Table with name visits does not exist!"))
    'visits'
    """
    found = _MISSING.search(str(error)) if isinstance(error, duckdb.CatalogException) else None
    return None if found is None else found[1]
