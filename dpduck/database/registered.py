"""dp's SQL functions on a connection: table macros over one scalar function, and the macros of sql/macros."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import duckdb
from duckdb.func import SPECIAL
from duckdb.sqltypes import VARCHAR

from dpduck.database.macros import (
    MACROS,
    MARK,
    SEVERAL_ARGUMENTS,
    list_macro_kinds,
    list_macro_names,
    raising_sql,
    read_macro_files,
)
from dpduck.database.started import Started
from dpduck.store.attaching import STORE_NAME
from dpduck.store.cursors import CLOSED
from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_text

FUNCTION = "dpduck_call"
CALLED = "query(coalesce(" + FUNCTION + "({}, {}), 'SELECT NULL AS {}'))"
"""Source of a macro: the SQL that the function returns, or a column with the macros' version if it returns NULL.

The function returns NULL to the thread that creates or compares macros, since DuckDB binds them meanwhile. For a text,
DuckDB's client would import pandas, to check whether the text is one of its values.
"""

IDENTITY = "identity"
_DATABASES: dict[str, Started] = {}
_STARTING: dict[str, int] = {}
"""The thread that puts macros on a database, by the database's identity."""

_SAID: dict[str, str] = {}
"""Identities of databases, by the random text of the call that asked for the identity."""

_KEPT: list[Callable[[str, str | None], str | None]] = []


def install_shipped(connection: duckdb.DuckDBPyConnection, temporary: str, store: str) -> None:
    """Creates the macros of sql/macros in the current database. They look up a name without a dot in the store."""
    for text in read_macro_files():
        connection.execute(text.replace(MARK, f"CREATE OR REPLACE {temporary}MACRO"))
    connection.execute(
        f"CREATE OR REPLACE {temporary}MACRO dp_released(name) AS "
        f"CASE WHEN contains(name, '.') THEN name ELSE {quote_text(store + '.')} || name END"
    )


def _foreign_shipped(macros: set[tuple[str, str]], store: str) -> str | None:
    """Returns the name of the first macro with a shipped macro's name and another body. macros: names and bodies."""
    names = list_macro_names()
    macros = {(name, body) for name, body in macros if name in names}
    if not macros:
        return None
    with duckdb.connect() as fresh:
        for text in read_macro_files():  # as if a user had run these files before dpduck was ever loaded
            fresh.execute(text)
        ours = _bodies(fresh, names)
        install_shipped(fresh, "", store)
        ours |= _bodies(fresh, names)
    return next((name for name, body in sorted(macros) if (name, body) not in ours), None)


def _bodies(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> set[tuple[str, str]]:
    listed = ", ".join(map(quote_text, names))  # a parameter costs 0.1 ms if pandas is not installed
    rows = connection.execute(
        "SELECT function_name, coalesce(macro_definition, '') FROM duckdb_functions() WHERE NOT internal AND "
        f"database_name = current_database() AND function_name IN ({listed})"
    ).fetchall()
    return {(str(name), str(body)) for name, body in rows}


def find_database(connection: duckdb.DuckDBPyConnection) -> Started | None:
    """Returns the open parts of this connection's database. None if dpduck was not loaded on it."""
    identity = _identity(connection)
    return None if identity is None else _DATABASES.get(identity)


def serve(connection: duckdb.DuckDBPyConnection, database: Started, *, kept: bool) -> None:
    """Lets dpduck answer for this connection's database, through macros in the database.

    kept: whether macros of all names are there. If all have this version, nothing is written.
    """
    for ended in [identity for identity, served in _DATABASES.items() if not served.connections.any_open()]:
        del _DATABASES[ended]
    identity = _identity(connection) or _register(connection)
    _STARTING[identity] = threading.get_ident()
    try:
        if not (kept and _are_ours(connection)):
            if kept:
                require_free_names(connection)
            _install_macros(connection)
    finally:
        del _STARTING[identity]
    _DATABASES[identity] = database


def _identity(connection: duckdb.DuckDBPyConnection) -> str | None:
    """Returns a database's identity, if any. It comes through _SAID, since DuckDB may import pandas for a result."""
    question = secrets.token_hex(16)
    with connection.cursor() as cursor:  # a call takes a hundredth of the time of a search among functions
        try:
            cursor.execute(f"SELECT {FUNCTION}({quote_text(IDENTITY)}, {quote_text(question)})").fetchall()
        except duckdb.CatalogException:
            return None
    return _SAID.pop(question, None)


def _register(connection: duckdb.DuckDBPyConnection) -> str:
    """Registers the scalar function, with side effects declared so that DuckDB neither folds nor caches its calls.

    DuckDB calls it while the database is open, but frees its Python object with the connection that registered it,
    which is a crash in 1.5 and 2.0. So the object is kept forever, and holds nothing.
    """
    identity = secrets.token_hex(16)

    def call(action: str, argument: str | None) -> str | None:
        if action == IDENTITY:
            _SAID[str(argument)] = identity
            return None
        if _STARTING.get(identity) == threading.get_ident():
            return None
        from dpduck.database.functions import OWNER, answer  # noqa: PLC0415

        database = _DATABASES.get(identity)
        if database is None or database.progress is None:
            return raising_sql(CLOSED) if database is None else answer(database, OWNER, action, argument)
        with database.progress.working():
            return answer(database, OWNER, action, argument)

    _KEPT.append(call)
    connection.create_function(FUNCTION, call, [VARCHAR, VARCHAR], VARCHAR, side_effects=True, null_handling=SPECIAL)
    return identity


def _install_macros(connection: duckdb.DuckDBPyConnection) -> None:
    """Creates the macros in the current database, or for this connection alone if the database is read-only."""
    row = connection.execute(
        "SELECT readonly FROM duckdb_databases() WHERE database_name = current_database()"
    ).fetchone()
    temporary = "TEMP " if row is not None and row[0] else ""
    with _transaction(connection):  # one transaction takes two thirds of the time of one per macro
        for name, (parameter, _) in MACROS.items():
            body = f"FROM {CALLED.format(*_call(name), _version())}"
            connection.execute(f"CREATE OR REPLACE {temporary}MACRO {name}({parameter}) AS TABLE {body}")
        install_shipped(connection, temporary, STORE_NAME)


def _call(name: str) -> tuple[str, str]:
    """Returns the arguments of a macro's call of the function, in SQL: the action and the argument."""
    parameter, action = MACROS[name]
    return quote_text(action), SEVERAL_ARGUMENTS.get(name, parameter or "NULL")


@lru_cache(maxsize=1)
def _version() -> str:
    """Returns a name for this version of all macros, which no other version has."""
    texts = [*((name, MACROS[name][0], *_call(name)) for name in MACROS), CALLED, STORE_NAME, *read_macro_files()]
    return f"dpduck_{hashlib.sha256(repr(texts).encode()).hexdigest()[:32]}"


def are_kept(connection: duckdb.DuckDBPyConnection) -> bool:
    """Tells whether macros of all names are in the current database. It drops them all and rolls the drop back."""
    shipped = (f"DROP MACRO {kind}{name}" for name, kind in list_macro_kinds())
    return _taken_back(connection, "; ".join([*(f"DROP MACRO TABLE {name}" for name in MACROS), *shipped]))


def _are_ours(connection: duckdb.DuckDBPyConnection) -> bool:
    """Tells whether every macro is of this version. A bound macro has a column named by its version."""
    calls = (
        f"{name}({', '.join('NULL' for _ in _mandatory_parameters(parameter))})"
        for name, (parameter, _) in MACROS.items()
    )
    listed = ", ".join(f"{call} AS m{number}" for number, call in enumerate(calls))
    columns = ", ".join(f"m{number}.{_version()} AS c{number}" for number in range(len(MACROS)))
    try:
        connection.sql(f"SELECT {columns} FROM {listed}")  # a relation is bound, not run
    except duckdb.Error:
        return False
    return True


def _mandatory_parameters(parameters: str) -> list[str]:
    return [parameter for parameter in parameters.split(", ") if parameter and ":=" not in parameter]


@contextmanager
def _transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Runs the block in a transaction and commits it, unless the user has begun one."""
    try:
        connection.begin()
    except duckdb.TransactionException:
        yield
        return
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def _are_new(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> bool:
    """Returns True if no macro has such a name. False means that only a slower search can tell.

    It creates macros of all names, of both kinds, and rolls back. This takes a third of the time of a list of macros.
    """
    kinds = "; ".join(f"CREATE MACRO {name}() AS {body}" for name in names for body in ("NULL", "TABLE SELECT NULL"))
    return _taken_back(connection, kinds)


def _taken_back(connection: duckdb.DuckDBPyConnection, statements: str) -> bool:
    """Runs statements and rolls them back. Returns False if one fails, or if the user's own transaction is open."""
    try:
        connection.begin()
    except duckdb.TransactionException:
        return False
    try:
        connection.execute(statements)
    except duckdb.Error:  # a name is taken or free, or the database is read-only
        return False
    finally:
        connection.rollback()
    return True


def require_free_names(connection: duckdb.DuckDBPyConnection) -> None:
    """Refuses a database in which a user's macro has one of dpduck's names, so that no such macro is replaced.

    If dp() is dpduck's, the shipped macros count as dpduck's, too, in any version. Each load replaces them.
    """
    names = [*MACROS, *list_macro_names()]
    if _are_new(connection, names):
        return
    bodies = _bodies(connection, names)
    ours = {name for name, body in bodies if name in MACROS and FUNCTION in body}
    foreign = next((name for name, _ in sorted(bodies) if name in MACROS and name not in ours), None)
    if foreign is None and "dp" not in ours:
        foreign = _foreign_shipped(bodies, STORE_NAME)
    if foreign is not None:
        raise Refusal(f"this database has a function {foreign} of its own", accepted="dropping or renaming it")
