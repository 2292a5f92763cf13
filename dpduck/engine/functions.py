"""The SQL functions of a connection: table macros over one scalar function.

dp_draft makes a policy from the schema alone, or with what statements answer for a price, through the same door as
anybody's.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import duckdb
from duckdb.func import SPECIAL
from duckdb.sqltypes import VARCHAR

from dpduck.database.attached import STORE_NAME
from dpduck.database.cursors import CLOSED, Caller
from dpduck.engine.engine import Engine
from dpduck.engine.macros import MACROS, MARK, SEVERAL_ARGUMENTS, UNEXPECTED, raising_sql, shipped_names, shipped_texts
from dpduck.frontend.text.names import quote_text
from dpduck.mechanisms.release import is_ctrl_c
from dpduck.owner.private_draft import Rows
from dpduck.values.errors import BudgetRefusal, DpduckError, InternalError, Interrupted, Refusal, StoreError


def draft(engine: Engine, argument: str, caller: Caller) -> str:
    """Returns SQL with a policy to begin with, line by line."""
    return engine.about.draft(argument, caller, partial(_asked, engine, caller))


def _asked(engine: Engine, caller: Caller, statements: Sequence[str]) -> list[tuple[Rows, float | None]]:
    """Returns the answers to all statements, or, where the budget has no room for all of them, a refusal that costs
    nothing.
    """
    with engine.connections.cursor() as cursor:
        batch = engine.plan(";\n".join(statements), caller)
        ((fits,),) = cursor.execute(f"SELECT bool_and(fits) FROM ({batch}) WHERE number IS NULL").fetchall()
        if not fits:
            raise BudgetRefusal("the budget has no room for this private draft", accepted="a smaller epsilon")
        return [
            (
                cursor.execute(engine.run(one, caller)).fetchall(),
                engine.foresight.rank_error(engine.question_of(one, caller)[0]),
            )
            for one in statements
        ]


# The macros of sql/macros, which any DuckDB runs over released tables, put on a connection where dpduck is loaded.


def install_shipped(connection: duckdb.DuckDBPyConnection, temporary: str, store: str) -> None:
    """Creates them in the current database. A released table without a database's name is the store's."""
    for text in shipped_texts():
        connection.execute(text.replace(MARK, f"CREATE OR REPLACE {temporary}MACRO"))
    connection.execute(
        f"CREATE OR REPLACE {temporary}MACRO dp_released(name) AS "
        f"CASE WHEN contains(name, '.') THEN name ELSE {quote_text(store + '.')} || name END"
    )


def _foreign_shipped(found: set[tuple[str, str]], store: str) -> str | None:
    """Returns the first of these macros, names and bodies, that has a shipped name and another body."""
    names = shipped_names()
    found = {(name, body) for name, body in found if name in names}
    if not found:
        return None
    with duckdb.connect() as fresh:
        for text in shipped_texts():  # read by hand, before dpduck was ever loaded
            fresh.execute(text)
        ours = _bodies(fresh, names)
        install_shipped(fresh, "", store)
        ours |= _bodies(fresh, names)
    return next((name for name, body in sorted(found) if (name, body) not in ours), None)


def _bodies(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> set[tuple[str, str]]:
    listed = ", ".join(map(quote_text, names))  # a parameter costs 0.1 ms where pandas is not installed
    rows = connection.execute(
        "SELECT function_name, coalesce(macro_definition, '') FROM duckdb_functions() WHERE NOT internal AND "
        f"database_name = current_database() AND function_name IN ({listed})"
    ).fetchall()
    return {(str(name), str(body)) for name, body in rows}


FUNCTION = "dpduck_call"
OWNER = Caller("owner", owner=True)
STOPPED = "interrupted; nothing more was charged than dp_ledger() shows; accepted: asking again"
UNWRITTEN = (
    "the store, or the file of a table, cannot be read or written; nothing was released; "
    "accepted: the same when its disk has room and is this user's to write"
)
IDENTITY = "identity"
_ENGINES: dict[str, Engine] = {}
_STARTING: set[str] = set()
_KEPT: list[Callable[[str, str | None], str]] = []


def answer(engine: Engine, caller: Caller, action: str, argument: str | None) -> str:
    """Returns SQL for one call; an error becomes SQL that raises its one line when bound, in every client alike."""
    try:
        return called(engine, caller, action, argument).sql
    except (DpduckError, Interrupted) as error:
        return raising_sql(str(error))
    except KeyboardInterrupt:
        return raising_sql(STOPPED)


@dataclass(frozen=True)
class Answer:
    """What one call returns. entry: of the ledger, which paid for its release; None where it needed none."""

    sql: str
    entry: int | None


def called(engine: Engine, caller: Caller, action: str, argument: str | None) -> Answer:
    """Carries out one call. Whatever fails raises a DpduckError that has the entry: other errors could quote data."""
    with_argument: dict[str, Callable[[str, Caller], str]] = {
        "run": engine.run,
        "describe": engine.describe,
        "explain": engine.explain,
        "errors": engine.errors,
        "check": engine.about.check,
        "compare": engine.about.compare,
        "known": engine.known,
        "draft": partial(draft, engine),
        "twin": engine.about.twin,
        "plan": engine.plan,
        "certificate": engine.about.certificate,
        "ask": engine.ask,
        "describe_ask": engine.describe_ask,
        "difference": engine.streams.difference,
        "stderr_of": engine.combined,
        "ratio_of": engine.combined,
    }
    without: dict[str, Callable[[Caller], str]] = {
        "budget": engine.budget,
        "ledger_entries": engine.ledger_entries,
        "list_policies": engine.list_policies,
        "list_releases": engine.list_releases,
        "list_sessions": engine.sparse.list_sessions,
        "list_streams": engine.streams.listed,
    }
    optional: dict[str, Callable[[str | None, Caller], str]] = {"columns": engine.about.columns}
    entries: list[int] = []
    caller = replace(caller, charged=entries.append)
    try:
        if action in optional:
            sql = optional[action](argument, caller)
        else:
            sql = with_argument[action](argument or "", caller) if action in with_argument else without[action](caller)
    except (duckdb.IOException, duckdb.TransactionException):
        failure: DpduckError = StoreError(UNWRITTEN)
    except DpduckError as error:
        failure = error
    except Exception as error:
        if is_ctrl_c(error):
            raise KeyboardInterrupt from None
        failure = InternalError(UNEXPECTED)
    else:
        return Answer(sql, entries[-1] if entries else None)
    failure.entry = entries[-1] if entries else None
    raise failure


def engine_of(connection: duckdb.DuckDBPyConnection) -> Engine | None:
    """Returns the engine that serves this connection's database already."""
    identity = _identity(connection)
    return None if identity is None else _ENGINES.get(identity)


def serve(connection: duckdb.DuckDBPyConnection, engine: Engine) -> None:
    """Lets an engine answer for this connection's database, and creates the macros that ask it."""
    for identity in [identity for identity, served in _ENGINES.items() if not served.connections.any_open()]:
        del _ENGINES[identity]
    identity = _identity(connection) or _register(connection)
    _STARTING.add(identity)
    try:
        install_macros(connection)
    finally:
        _STARTING.discard(identity)
    _ENGINES[identity] = engine


def _identity(connection: duckdb.DuckDBPyConnection) -> str | None:
    with connection.cursor() as cursor:  # to call it takes a hundredth of the time of looking for it among functions
        try:
            found = cursor.execute(f"SELECT {FUNCTION}({quote_text(IDENTITY)}, NULL)").fetchone()
        except duckdb.CatalogException:
            return None
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
        if identity in _STARTING:  # DuckDB asks what has no parameter when its macro is created, and uses no answer
            return "SELECT NULL"
        engine = _ENGINES.get(identity)
        if engine is None or engine.progress is None:
            return raising_sql(CLOSED) if engine is None else answer(engine, OWNER, action, argument)
        with engine.progress.working():
            return answer(engine, OWNER, action, argument)

    _KEPT.append(call)
    connection.create_function(FUNCTION, call, [VARCHAR, VARCHAR], VARCHAR, side_effects=True, null_handling=SPECIAL)
    return identity


def install_macros(connection: duckdb.DuckDBPyConnection) -> None:
    """Creates the table macros in the current database, or for this connection alone where it is read-only."""
    row = connection.execute(
        "SELECT readonly FROM duckdb_databases() WHERE database_name = current_database()"
    ).fetchone()
    temporary = "TEMP " if row is not None and row[0] else ""
    with _transaction(connection):  # one takes two thirds of the time of one for each macro
        for name, (parameter, action) in MACROS.items():
            argument = SEVERAL_ARGUMENTS.get(name, parameter or "NULL")
            body = f"FROM query({FUNCTION}({quote_text(action)}, {argument}))"
            connection.execute(f"CREATE OR REPLACE {temporary}MACRO {name}({parameter}) AS TABLE {body}")
        install_shipped(connection, temporary, STORE_NAME)


@contextmanager
def _transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Begins a transaction and commits it, where the user has not begun one."""
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
    """Tells whether no macro has one of these names; False where that takes longer to find out.

    Creating all of them, of both kinds, and taking it back takes a third of the time of listing what is there.
    """
    kinds = "; ".join(f"CREATE MACRO {name}() AS {body}" for name in names for body in ("NULL", "TABLE SELECT NULL"))
    try:
        connection.begin()
    except duckdb.TransactionException:  # of the user's
        return False
    try:
        connection.execute(kinds)
    except duckdb.Error:  # a name is taken, or the database is read-only
        return False
    finally:
        connection.rollback()
    return True


def require_free_names(connection: duckdb.DuckDBPyConnection) -> None:
    """Refuses to replace anything of the user's: a macro of one of our names that is not ours is refused.

    Where dp() is ours the others are taken to be, of whatever version: each load puts its own in their place.
    """
    names = [*MACROS, *shipped_names()]
    if _are_new(connection, names):
        return
    found = _bodies(connection, names)
    ours = {name for name, body in found if name in MACROS and FUNCTION in body}
    foreign = next((name for name, _ in sorted(found) if name in MACROS and name not in ours), None)
    if foreign is None and "dp" not in ours:
        foreign = _foreign_shipped(found, STORE_NAME)
    if foreign is not None:
        raise Refusal(f"this database has a function {foreign} of its own", accepted="dropping or renaming it")
