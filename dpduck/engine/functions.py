"""The SQL functions of a connection: table macros over one scalar function (DESIGN 6.1)."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import duckdb
from duckdb.func import SPECIAL
from duckdb.sqltypes import VARCHAR

from dpduck.database.cursors import CLOSED, Asker
from dpduck.database.store import STORE_NAME
from dpduck.engine.engine import Engine
from dpduck.engine.macros import foreign_shipped, install_shipped
from dpduck.frontend.text.names import quote_text
from dpduck.values.errors import DpduckError, Interrupted, Refusal, StoreError

FUNCTION = "dpduck_call"
OWNER = Asker("owner", owner=True)
UNEXPECTED = "an unexpected failure inside dpduck; nothing was released; accepted: a report to its makers"
STOPPED = "interrupted; nothing more was charged than dp_ledger() shows; accepted: asking again"
UNWRITTEN = (
    "the store, or the file of a table, cannot be read or written; nothing was released; "
    "accepted: the same when its disk has room and is this user's to write"
)
MACROS = {
    "dp": ("statement", "run"),
    "dp_explain": ("statement", "explain"),
    "dp_budget": ("", "budget"),
    "dp_ledger": ("", "ledger_entries"),
    "dp_policies": ("", "list_policies"),
    "dp_releases": ("", "list_releases"),
    "dp_check": ("table_name", "check"),
    "dp_sessions": ("", "list_sessions"),
    "dp_ask": ("name, keys, weights := NULL", "ask"),
    "dp_stderr_of": ("release, weight, confidence := 0.95, aggregate := 1", "stderr_of"),
    "dp_ratio_of": ("release, numerator, denominator, confidence := 0.95, aggregate := 1", "ratio_of"),
}
SEVERAL_ARGUMENTS = {
    "dp_ask": "CAST(json_array(name, keys, weights) AS VARCHAR)",
    "dp_stderr_of": "CAST(json_array(release, confidence, aggregate, weight) AS VARCHAR)",
    "dp_ratio_of": "CAST(json_array(release, confidence, aggregate, numerator, denominator) AS VARCHAR)",
}
"""The scalar function takes one text: several arguments travel as JSON."""

IDENTITY = "identity"
_ENGINES: dict[str, Engine] = {}
_KEPT: list[Callable[[str, str | None], str]] = []


def answer(engine: Engine, asker: Asker, action: str, argument: str | None) -> str:
    """SQL for one call; an error becomes SQL that raises its one line when it is bound, in every client alike."""
    try:
        return called(engine, asker, action, argument)
    except DpduckError as error:
        return raising_sql(str(error))
    except Interrupted as error:
        return raising_sql(str(error))
    except KeyboardInterrupt:
        return raising_sql(STOPPED)
    except Exception:  # whatever it says could quote data
        return raising_sql(UNEXPECTED)


def called(engine: Engine, asker: Asker, action: str, argument: str | None) -> str:
    """SQL for one call, or a DpduckError; any other error may quote data, and is not for anybody's eyes."""
    with_argument: dict[str, Callable[[str, Asker], str]] = {
        "run": engine.run,
        "describe": engine.describe,
        "explain": engine.explain,
        "check": engine.check,
        "ask": engine.ask,
        "describe_ask": engine.describe_ask,
        "stderr_of": engine.stderr_of,
        "ratio_of": engine.ratio_of,
    }
    without: dict[str, Callable[[Asker], str]] = {
        "budget": engine.budget,
        "ledger_entries": engine.ledger_entries,
        "list_policies": engine.list_policies,
        "list_releases": engine.list_releases,
        "list_sessions": engine.list_sessions,
    }
    try:
        return with_argument[action](argument or "", asker) if action in with_argument else without[action](asker)
    except (duckdb.IOException, duckdb.TransactionException):
        raise StoreError(UNWRITTEN) from None


def raising_sql(message: str) -> str:
    """A statement that fails to bind with exactly this message."""
    return f"FROM query(error({quote_text(message)}))"


def engine_of(connection: duckdb.DuckDBPyConnection) -> Engine | None:
    """The engine that serves this connection's database already."""
    identity = _identity(connection)
    return None if identity is None else _ENGINES.get(identity)


def serve(connection: duckdb.DuckDBPyConnection, engine: Engine) -> None:
    """Lets an engine answer for this connection's database; registers the scalar function where it is new."""
    for identity in [identity for identity, served in _ENGINES.items() if not served.roots.any_open()]:
        del _ENGINES[identity]
    _ENGINES[_identity(connection) or _register(connection)] = engine


def _identity(connection: duckdb.DuckDBPyConnection) -> str | None:
    row = connection.execute("SELECT 1 FROM duckdb_functions() WHERE function_name = ?", [FUNCTION]).fetchone()
    if row is None:
        return None
    found = connection.execute(f"SELECT {FUNCTION}({quote_text(IDENTITY)}, NULL)").fetchone()
    return None if found is None else str(found[0])


def _register(connection: duckdb.DuckDBPyConnection) -> str:
    """Registers the scalar function; side_effects, so that DuckDB neither folds nor caches it.

    DuckDB calls it as long as the database is open, but its Python object is freed with the connection that
    registered it (a crash, in 1.5 and 2.0): so it is kept for ever, and holds nothing.
    """
    identity = secrets.token_hex(16)

    def call(action: str, argument: str | None) -> str:
        if action == IDENTITY:
            return identity
        engine = _ENGINES.get(identity)
        return raising_sql(CLOSED) if engine is None else answer(engine, OWNER, action, argument)

    _KEPT.append(call)
    connection.create_function(FUNCTION, call, [VARCHAR, VARCHAR], VARCHAR, side_effects=True, null_handling=SPECIAL)
    return identity


def install_macros(connection: duckdb.DuckDBPyConnection) -> None:
    """Creates the table macros in the current database, or for this connection alone where it is read-only."""
    row = connection.execute(
        "SELECT readonly FROM duckdb_databases() WHERE database_name = current_database()"
    ).fetchone()
    temporary = "TEMP " if row is not None and row[0] else ""
    for name, (parameter, action) in MACROS.items():
        argument = SEVERAL_ARGUMENTS.get(name, parameter or "NULL")
        body = f"FROM query({FUNCTION}({quote_text(action)}, {argument}))"
        connection.execute(f"CREATE OR REPLACE {temporary}MACRO {name}({parameter}) AS TABLE {body}")
    install_shipped(connection, temporary, STORE_NAME)


def require_free_names(connection: duckdb.DuckDBPyConnection) -> None:
    """Nothing of the user's is replaced: a macro of one of our names that is not ours is refused.

    Where dp() is ours the others are taken to be, of whatever version: each load puts its own in their place.
    """
    rows = connection.execute(
        "SELECT function_name, contains(coalesce(macro_definition, ''), $1) FROM duckdb_functions() "
        "WHERE NOT internal AND database_name = current_database() AND list_contains($2, function_name)",
        [FUNCTION, list(MACROS)],
    ).fetchall()
    foreign = next((str(name) for name, ours in rows if not ours), None)
    if foreign is None and ("dp", True) not in rows:
        foreign = foreign_shipped(connection, STORE_NAME)
    if foreign is not None:
        raise Refusal(f"this database has a function {foreign} of its own", accepted="dropping or renaming it")
