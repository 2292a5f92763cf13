"""Calls of dp's SQL functions: the database's method for each function, and the messages of failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import duckdb

from dpduck.database.macros import UNEXPECTED, raising_sql
from dpduck.database.registered import find_database
from dpduck.database.started import Started
from dpduck.store.cursors import Caller, is_ctrl_c
from dpduck.values.errors import BudgetRefusal, DpduckError, InternalError, Interrupted, StoreError

if TYPE_CHECKING:
    from dpduck.database.database import Database
    from dpduck.owner.private_draft import Rows


OWNER = Caller("owner", owner=True)
STOPPED = "interrupted; nothing more was charged than dp_ledger() shows; accepted: asking again"
UNWRITTEN = (
    "the store, or the file of a table, cannot be read or written; nothing was released; "
    "accepted: the same when its disk has room and is this user's to write"
)


def draft(database: Database, argument: str, caller: Caller) -> str:
    """Returns SQL with the draft of a policy. A private draft's statements are charged like any statement."""
    return database.about.draft(argument, caller, partial(_answer_statements, database, caller))


def _answer_statements(
    database: Database, caller: Caller, statements: Sequence[str]
) -> list[tuple[Rows, float | None]]:
    """Returns the rows of each statement, with the rank error of its first quantile.

    If the budget has no room for all statements, they are refused before anything is charged.
    """
    with database.connections.cursor() as cursor:
        batch = database.plan(";\n".join(statements), caller)
        ((fits,),) = cursor.execute(f"SELECT bool_and(fits) FROM ({batch}) WHERE number IS NULL").fetchall()
        if not fits:
            raise BudgetRefusal("the budget has no room for this private draft", accepted="a smaller epsilon")
        return [
            (
                cursor.execute(database.run(statement, caller)).fetchall(),
                database.foresight.rank_error(database.question_of(statement, caller)[0]),
            )
            for statement in statements
        ]


def answer(database: Database | Started, caller: Caller, action: str, argument: str | None) -> str:
    """Returns SQL for one call. If the call fails, this SQL raises the one-line message when any client binds it."""
    try:
        return run_call(database, caller, action, argument).sql
    except (DpduckError, Interrupted) as error:
        return raising_sql(str(error))
    except KeyboardInterrupt:
        return raising_sql(STOPPED)


@dataclass(frozen=True)
class CallResult:
    """Result of one call. entry: the ledger entry that paid for its release, if any."""

    sql: str
    entry: int | None


def run_call(database: Database | Started, caller: Caller, action: str, argument: str | None) -> CallResult:
    """Carries out a call. Every failure becomes a DpduckError with the ledger entry: other errors could quote data."""
    entries: list[int] = []
    caller = replace(caller, charged=entries.append)
    try:
        sql = _dispatch(database, caller, action, argument)
    except (duckdb.IOException, duckdb.TransactionException):
        failure: DpduckError = StoreError(UNWRITTEN)
    except DpduckError as error:
        failure = error
    except Exception as error:
        if is_ctrl_c(error):
            raise KeyboardInterrupt from None
        failure = InternalError(UNEXPECTED)
    else:
        return CallResult(sql, entries[-1] if entries else None)
    failure.entry = entries[-1] if entries else None
    raise failure


def _dispatch(started: Database | Started, caller: Caller, action: str, argument: str | None) -> str:
    """Returns SQL for one call. The database's parts are built when a call first needs them."""
    if action == "budget":
        return started.listings.budget(caller)
    if action == "ledger_entries":
        return started.listings.ledger_entries(caller)
    database, text = started.whole(), argument or ""
    match action:
        case "columns":
            return database.about.columns(argument, caller)
        case "check":
            return database.check(text, caller)
        case "trial":
            return database.trial(text, caller)
        case "compare":
            return database.about.compare(text, caller)
        case "twin":
            return database.about.twin(text, caller)
        case "certificate":
            return database.about.certificate(text, caller)
        case "difference":
            return database.streams.difference(text)
        case "list_streams":
            return database.streams.list_streams(caller)
        case "list_sessions":
            return database.sparse.list_sessions(caller)
        case "ask":
            return database.sparse.ask(text, caller)
        case "describe_ask":
            return database.sparse.describe_ask(text, caller)
        case "list_policies":
            return database.list_policies(caller)
        case "list_releases":
            return database.list_releases(caller)
    with_argument: dict[str, Callable[[str, Caller], str]] = {
        "run": database.run,
        "describe": database.describe,
        "explain": database.explain,
        "errors": database.errors,
        "known": database.known,
        "draft": partial(draft, database),
        "plan": database.plan,
        "stderr_of": database.combine_cells,
        "ratio_of": database.combine_cells,
    }
    return with_argument[action](text, caller)


def database_of(connection: duckdb.DuckDBPyConnection) -> Database | None:
    """Returns this connection's database. None if dpduck is not loaded on it."""
    started = find_database(connection)
    return None if started is None else started.whole()
