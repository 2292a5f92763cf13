"""Calls of dp's SQL functions: the engine's method for each function, and the messages of failures.

dp_draft writes a policy from the schema, or also from priced answers to statements. These statements go through the
same door as anybody's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import duckdb

from dpduck.engine.macros import UNEXPECTED, raising_sql
from dpduck.engine.registered import find_database
from dpduck.engine.started import Started
from dpduck.store.cursors import Caller, is_ctrl_c
from dpduck.values.errors import BudgetRefusal, DpduckError, InternalError, Interrupted, StoreError

if TYPE_CHECKING:
    from dpduck.engine.engine import Engine
    from dpduck.owner.private_draft import Rows


OWNER = Caller("owner", owner=True)
STOPPED = "interrupted; nothing more was charged than dp_ledger() shows; accepted: asking again"
UNWRITTEN = (
    "the store, or the file of a table, cannot be read or written; nothing was released; "
    "accepted: the same when its disk has room and is this user's to write"
)


def draft(engine: Engine, argument: str, caller: Caller) -> str:
    """Returns SQL with the draft of a policy, line by line."""
    return engine.about.draft(argument, caller, partial(_answer_statements, engine, caller))


def _answer_statements(engine: Engine, caller: Caller, statements: Sequence[str]) -> list[tuple[Rows, float | None]]:
    """Returns the rows of each statement, with the rank error of its first quantile. If the budget has no room for all
    statements, refuses before anything is charged.
    """
    with engine.connections.cursor() as cursor:
        batch = engine.plan(";\n".join(statements), caller)
        ((fits,),) = cursor.execute(f"SELECT bool_and(fits) FROM ({batch}) WHERE number IS NULL").fetchall()
        if not fits:
            raise BudgetRefusal("the budget has no room for this private draft", accepted="a smaller epsilon")
        return [
            (
                cursor.execute(engine.run(statement, caller)).fetchall(),
                engine.foresight.rank_error(engine.question_of(statement, caller)[0]),
            )
            for statement in statements
        ]


def answer(engine: Engine | Started, caller: Caller, action: str, argument: str | None) -> str:
    """Returns SQL for one call. If the call fails, this SQL raises the one-line message when any client binds it."""
    try:
        return run_call(engine, caller, action, argument).sql
    except (DpduckError, Interrupted) as error:
        return raising_sql(str(error))
    except KeyboardInterrupt:
        return raising_sql(STOPPED)


@dataclass(frozen=True)
class CallResult:
    """Result of one call. entry: the ledger entry that paid for its release. None if it needed no entry."""

    sql: str
    entry: int | None


def run_call(engine: Engine | Started, caller: Caller, action: str, argument: str | None) -> CallResult:
    """Carries out a call. Every failure becomes a DpduckError with the ledger entry: other errors could quote data."""
    entries: list[int] = []
    caller = replace(caller, charged=entries.append)
    try:
        sql = _dispatch(engine, caller, action, argument)
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


def _dispatch(started: Engine | Started, caller: Caller, action: str, argument: str | None) -> str:
    """Returns SQL for one call. The engine is built when a call first needs it."""
    if action == "budget":
        return started.listings.budget(caller)
    if action == "ledger_entries":
        return started.listings.ledger_entries(caller)
    engine, text = started.whole(), argument or ""
    match action:
        case "columns":
            return engine.about.columns(argument, caller)
        case "check":
            return engine.check(text, caller)
        case "compare":
            return engine.about.compare(text, caller)
        case "twin":
            return engine.about.twin(text, caller)
        case "certificate":
            return engine.about.certificate(text, caller)
        case "difference":
            return engine.streams.difference(text)
        case "list_streams":
            return engine.streams.list_streams(caller)
        case "list_sessions":
            return engine.sparse.list_sessions(caller)
        case "list_policies":
            return engine.list_policies(caller)
        case "list_releases":
            return engine.list_releases(caller)
    with_argument: dict[str, Callable[[str, Caller], str]] = {
        "run": engine.run,
        "describe": engine.describe,
        "explain": engine.explain,
        "errors": engine.errors,
        "known": engine.known,
        "draft": partial(draft, engine),
        "plan": engine.plan,
        "ask": engine.ask,
        "describe_ask": engine.describe_ask,
        "stderr_of": engine.combine_cells,
        "ratio_of": engine.combine_cells,
    }
    return with_argument[action](text, caller)


def engine_of(connection: duckdb.DuckDBPyConnection) -> Engine | None:
    """Returns the engine of this connection's database. None if dpduck is not loaded on it."""
    started = find_database(connection)
    return None if started is None else started.whole()
