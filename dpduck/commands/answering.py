"""Asks dp functions as the owner, through the server if one serves the store, and prints the answers."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from dpduck.commands.errors import one_line_errors
from dpduck.commands.owner_session import MOST_NAMED, OwnerSession
from dpduck.commands.printing import (
    ALL_COLUMNS,
    SHORT_STATEMENT,
    WIDTH,
    moment,
    print_box,
    print_findings,
    print_relation,
    say,
)
from dpduck.database.connection import connect
from dpduck.server.bare_statements import read_bare
from dpduck.server.owner import owner_of_server
from dpduck.store.spending import days_until
from dpduck.store.store_files import StoreFiles, store_files
from dpduck.values.errors import DpduckError, Refusal
from dpduck.values.quoting import quote_identifier

if TYPE_CHECKING:
    from dpduck.server.owner_door import Owner

BUDGET = (
    "table_name",
    "declared",
    "CASE WHEN measure = 'delta' THEN 'delta for keys' ELSE '' END AS measure",
    "CASE WHEN budget > 0 THEN printf('%.3g %%', 100 * spent / budget) END AS spent",
    "CASE WHEN budget > 0 THEN printf('%.3g %%', 100 * remaining / budget) END AS remaining",
    "share",
    "epsilon_left",
    "policy",
    "period",
)
LEDGER = (
    "id",
    moment("charged_at"),
    "principal",
    "replace(price, ' of your budget', '') AS of_your_budget",
    SHORT_STATEMENT,
)
RELEASES = ("name", "kind", "rows", "epsilon", "rho", "delta", moment("released_at"), SHORT_STATEMENT)
"""Columns of boxes, which have no room for more. With --format csv all columns are printed."""

EFFECTS = ("kind", "name", "principal", "afterwards", "replace(price, ' of your budget', '') AS of_your_budget", "note")
"""Columns of a box about a change of a policy: the answers that it takes away."""

EXPLAINED = "strategy, price, seconds, note, times_left, other_prices"
"""Columns of dp_explain that are told in words."""

BOUNDS = "aggregate, option, bound, percent, stderr, CASE WHEN advice LIKE '%least error%' THEN 'least' END AS error"
"""Columns of a box about the bounds of a statement. The last column marks the bound with a cell's least error."""

TOO_DEAR = "costs more than what is left"

LISTS = ("dp_budget", "dp_ledger")
"""Functions that read the ledger and the policies alone."""

Ask = Callable[[str, str | None], duckdb.DuckDBPyRelation]


@contextmanager
def closing_owner(files: StoreFiles) -> Iterator[Owner | None]:
    """Yields a connection to the server that serves this store, or None if no server does and its files are free."""
    owner = owner_of_server(files)
    try:
        yield owner
    finally:
        if owner is not None:
            owner.close()


@contextmanager
def answers(database: Path, store: Path | None, *, lists: bool = False, engines: Sequence[str] = ()) -> Iterator[Ask]:
    """Yields a function that asks dp functions as the owner, through the server if one serves the store.

    Each answer replaces the last one. lists: whether only functions of LISTS are asked, which need no full database.
    engines: those that are attached first.
    """
    with one_line_errors(), OwnerSession(database, store, lists=lists, engines=engines) as session:
        yield session.ask


def answer(
    database: Path,
    store: Path | None,
    function: str,
    argument: str | None,
    shape: str,
    narrow: Sequence[str] = (),
    engines: Sequence[str] = (),
) -> None:
    """Prints the answer of a dp function to the owner. narrow: SQL of the columns that a printed box shows."""
    with answers(database, store, lists=function in LISTS, engines=engines) as ask:
        print_relation(ask(function, argument), shape, narrow)


def answer_budget(database: Path, store: Path | None, forecast: str | None, shape: str) -> None:
    """Prints dp_budget. forecast: a day, for a column with the amount that is spent by its end at the present rate."""
    now, then = datetime.now(UTC), "*"
    with one_line_errors():
        if forecast is not None:
            try:
                day = date.fromisoformat(forecast)
            except ValueError:
                raise Refusal(f"{forecast[:80]!r} is no date", accepted="2027-01-31") from None
            then = f"*, spent + per_day * {days_until(day, now)!r} AS spent_then"
    share = "100 * spent_then / budget"
    form = f"CASE WHEN {share} < 100 THEN '%.3g %%' ELSE '%.0f %%' END"
    named = f"CASE WHEN budget > 0 THEN printf({form}, {share}) END AS "
    more = () if forecast is None else ("lasts_until", "warning", named + quote_identifier(f"spent on {forecast}"))
    with answers(database, store, lists=True) as ask:
        print_relation(ask("dp_budget", None).project(then), shape, (*BUDGET, *more))


def run_statement(database: Path, store: Path | None, text: str, shape: str, engines: Sequence[str] = ()) -> None:
    """Runs a statement of dp(..), or a query over released tables and dp functions, and prints its rows."""
    with one_line_errors(), OwnerSession(database, store, engines=engines) as session:
        print_answer(session, text, shape)


def print_answer(session: OwnerSession, text: str, shape: str, all_columns: str = ALL_COLUMNS) -> None:
    """Prints the rows of a statement, or EXPLAIN in words. If no group passed a threshold, says the threshold, too."""
    bare = read_bare(text)
    if bare is not None and bare.function == "dp_explain" and shape == "box":
        print_explanation(session.ask, bare.statement)
        return
    answered = session.run(text)
    print_relation(answered, shape, all_columns=all_columns)
    if bare is not None and not answered.limit(1).fetchall():
        _say_threshold(session.ask, text)


def _say_threshold(ask: Ask, text: str) -> None:
    """Prints the threshold, a public fact, after an answer that is empty because no group passed the threshold."""
    with suppress(duckdb.Error, DpduckError):  # the statement is no question, or has no threshold
        ((note,),) = ask("dp_explain", text).filter("chosen AND threshold IS NOT NULL").project("note").fetchall()
        say(textwrap.fill(f"no group passed the threshold: {note}", WIDTH, subsequent_indent="  "), err=True)


def foretell(database: Path, store: Path | None, text: str, shape: str, engines: Sequence[str] = ()) -> None:
    """Prints what a statement would cost, or which paid answers an ALTER would take away. Nothing is done."""
    from dpduck.language.statements.kinds import AlterPolicy  # noqa: PLC0415 - listings start without a parser
    from dpduck.language.statements.parse import parse_statement  # noqa: PLC0415

    with one_line_errors():
        is_change = isinstance(parse_statement(text), AlterPolicy)
    if is_change or shape != "box":
        answer(database, store, "dp_explain", text, shape, EFFECTS if is_change else (), engines)
    else:
        explain_in_words(database, store, text, engines)


def explain_in_words(database: Path, store: Path | None, statement: str, engines: Sequence[str] = ()) -> None:
    """Prints the errors of a statement's answers, its chosen strategy, its price and its time."""
    with answers(database, store, engines=engines) as ask:
        print_explanation(ask, statement)


def print_explanation(ask: Ask, statement: str) -> None:
    """Prints the errors of a statement's answers, its chosen strategy, its price and its time."""
    rows = ask("dp_explain", statement).filter("chosen").project(EXPLAINED).fetchall()
    with suppress(duckdb.Error, DpduckError):  # a statement without aggregates has no such errors
        print_box(ask("dp_errors", statement).project("* EXCLUDE (note)"))  # dp_explain has this note, too
    for strategy, price, seconds, note, times, others in rows:
        left = None if times is None else times_in_words(times)
        said = {"strategy": strategy, "cost": price, "time": _in_words(seconds)}
        more = {"left": left, "at other prices": others}
        said |= {name: text for name, text in more.items() if text} | {"note": note}
        for name, text in said.items():
            say(textwrap.fill(f"{name}: {text}", WIDTH, subsequent_indent="  "))


def times_in_words(times: int) -> str:
    """Says how often a statement can still be asked.

    >>> times_in_words(3), times_in_words(0)
    ('you can still ask this 3 times', 'costs more than what is left')
    """
    return f"you can still ask this {times:,} time{'' if times == 1 else 's'}" if times else TOO_DEAR


def _in_words(seconds: float | None) -> str:
    if seconds is None:
        return "not known beforehand"
    return f"{'under a second' if seconds < 1 else f'about {seconds:.0f} s'}, plus the time to read the rows"


def check_table(
    database: Path, store: Path | None, table: str, statement: str | None, shape: str, engines: Sequence[str] = ()
) -> None:
    """Prints the findings of dp_check. In a box, each finding has its own lines, and effects of bounds are a table."""
    with answers(database, store, engines=engines) as ask:
        findings = ask("dp_check", json.dumps([table, statement]))
        if shape != "box":
            print_relation(findings, shape)
        elif statement is None:
            print_findings(findings)
        else:
            print_findings(findings.filter("bound IS NULL"))
            print_box(findings.filter("bound IS NOT NULL").project(BOUNDS))


def show_view(database: Path, store: Path | None, view: str, shape: str) -> None:
    """Prints a private view. Refuses a name that is no view's."""
    with one_line_errors(), closing_owner(store_files(database, store)) as owner, ExitStack() as stack:
        con = stack.enter_context(connect(database, store) if owner is None else owner.store())
        place, listed = ("private", "dp_releases()") if owner is None else ("store", "store.dpduck.releases")
        names = con.execute(f"SELECT name, kind FROM {listed} ORDER BY lower(name)").fetchall()
        if view.lower() not in [name.lower() for name, _ in names]:
            views = ", ".join([name for name, kind in names if kind == "view"][:MOST_NAMED]) or "none yet"
            raise Refusal(f"there is no private view {view[:80]!r}", accepted=f"a name of dpduck releases: {views}")
        print_relation(con.sql(f"FROM {place}.main.{quote_identifier(view)}"), shape)
