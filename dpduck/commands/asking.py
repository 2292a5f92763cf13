"""The commands that ask a database and its store: statements of dp(), listings, checks, publishing, preparing, and
what is read there: dp's own functions, DESCRIBE visits, SHOW TABLES, private views.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import click
import duckdb
from sqlglot import exp, parse, parse_one
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope

from dpduck.commands import DATABASE, FORMAT, STORE, one_line_errors
from dpduck.commands.preparing import prepared_tables, preparing
from dpduck.commands.printing import SHORT_STATEMENT, WIDTH, boxed, counted, moment, print_findings, printed
from dpduck.database.attached import SERVED, WHEN_ENDED, StoreFiles, store_files
from dpduck.engine.connection import connect, verify_store
from dpduck.engine.macros import MACROS, SEVERAL_ARGUMENTS
from dpduck.frontend.text.names import in_sql, quote_identifier
from dpduck.publish.publish import certify, publish
from dpduck.server.owner_door import Owner, owner_of_server
from dpduck.server.runner_process import create_table
from dpduck.server.syntax import in_selects, is_ours
from dpduck.values.errors import Refusal

QUESTIONS = click.Group()
"""The commands of this file."""

BUDGET = ("table_name", "measure", "budget", "spent", "remaining", "share", "epsilon_left", "policy", "period")
LEDGER = ("id", moment("charged_at"), "principal", "epsilon", "rho", "delta", SHORT_STATEMENT)
RELEASES = ("name", "kind", "rows", "epsilon", "rho", "delta", moment("released_at"), SHORT_STATEMENT)
"""Columns of boxes, which have room for no more; --format csv has all."""

COMMENTED = {"ignore_unknown_options": True}
"""Of commands whose statement may begin with a comment of SQL, as what a draft prints does: it is no option."""

BYTE_ORDER_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
"""What some editors put before the first letter of a file."""

MOST_NAMED = 20
"""Views that a refusal names."""

_ANSWER = "dpduck_answer"


@QUESTIONS.command(context_settings=COMMENTED)
@DATABASE
@click.argument("statement")
@STORE
@FORMAT
def sql(database: Path, statement: str, store: Path | None, shape: str) -> None:
    """Run one statement of dp(): a question, a policy, a view. Or read: FROM dp_columns('visits'), FROM private.v.

    STATEMENT is the text, or - for standard input: dpduck sql clinic.duckdb - < policy.sql
    """
    text = sys.stdin.read().removeprefix(BYTE_ORDER_MARK) if statement == "-" else statement
    if is_of_views(text):
        with one_line_errors(), connect(database, store) as con:
            printed(con.sql(text), shape)
        return
    read = reading(text)
    if read is None:
        with answers(database, store) as ask:
            answered = ask("dp", text)
            printed(answered, shape)
            if not answered.limit(1).fetchall():
                _say_threshold(ask, text)
        return
    with answers(database, store) as ask:
        printed(read.shown(ask(read.function, read)), shape)


@QUESTIONS.command(context_settings=COMMENTED)
@DATABASE
@click.argument("statement")
@STORE
@FORMAT
@click.option("--all", "everything", is_flag=True, help="All strategies with all columns, as dp_explain has them.")
def explain(database: Path, statement: str, store: Path | None, shape: str, everything: bool) -> None:
    """Say how far the answers of a statement will be off, what helps, and what it costs; spends nothing."""
    if everything or shape != "box":
        answer(database, store, "dp_explain", statement, shape)
        return
    with answers(database, store) as ask:
        told = ask("dp_explain", statement).filter("chosen").project("strategy, price, seconds, note").fetchall()
        with suppress(duckdb.Error, Refusal):  # of a statement without aggregates there is no such table
            boxed(ask("dp_errors", statement).project("* EXCLUDE (note)"))  # dp_explain's has it, too
        for strategy, price, seconds, note in told:
            said = {"strategy": strategy, "cost": price, "time": _in_words(seconds), "note": note}
            for name, text in said.items():
                click.echo(textwrap.fill(f"{name}: {text}", WIDTH, subsequent_indent="  "))


def _say_threshold(ask: Callable[[str, str | Reading | None], duckdb.DuckDBPyRelation], text: str) -> None:
    """Says of an answer without rows which threshold its groups did not pass, from public facts alone."""
    with suppress(duckdb.Error, Refusal):  # of a statement that is no question, or has no threshold
        ((note,),) = ask("dp_explain", text).filter("chosen AND threshold IS NOT NULL").project("note").fetchall()
        click.echo(textwrap.fill(f"no group passed the threshold: {note}", WIDTH, subsequent_indent="  "), err=True)


def _in_words(seconds: float | None) -> str:
    """Says how long an answer may take."""
    if seconds is None:
        return "not known beforehand"
    return f"{'under a second' if seconds < 1 else f'about {seconds:.0f} s'}, and as long as reading the rows takes"


@QUESTIONS.command()
@DATABASE
@STORE
@FORMAT
def budget(database: Path, store: Path | None, shape: str) -> None:
    """List every table's budget, what is spent and what is left."""
    answer(database, store, "dp_budget", None, shape, BUDGET)


@QUESTIONS.command()
@DATABASE
@click.argument("table")
@STORE
@FORMAT
def check(database: Path, table: str, store: Path | None, shape: str) -> None:
    """Show what the answers about TABLE leave out, exactly: for its owner's eyes only."""
    if shape != "box":
        answer(database, store, "dp_check", table, shape)
        return
    with answers(database, store) as ask:
        print_findings(ask("dp_check", table))


@QUESTIONS.command()
@DATABASE
@STORE
@FORMAT
def ledger(database: Path, store: Path | None, shape: str) -> None:
    """List every charge: when, who, what, how much. Of a statement in a box, its beginning on one line."""
    answer(database, store, "dp_ledger", None, shape, LEDGER)


@QUESTIONS.command()
@DATABASE
@STORE
@FORMAT
def releases(database: Path, store: Path | None, shape: str) -> None:
    """List every released table. Of a statement in a box, its beginning on one line."""
    answer(database, store, "dp_releases", None, shape, RELEASES)


@QUESTIONS.command()
@DATABASE
@STORE
@FORMAT
def policies(database: Path, store: Path | None, shape: str) -> None:
    """List every policy in force."""
    answer(database, store, "dp_policies", None, shape)


@QUESTIONS.command()
@DATABASE
@click.argument("view")
@STORE
@FORMAT
def show(database: Path, view: str, store: Path | None, shape: str) -> None:
    """Print a private view."""
    with one_line_errors(), closing_owner(store_files(database, store)) as owner, ExitStack() as stack:
        con = stack.enter_context(connect(database, store) if owner is None else owner.store())
        place, listed = ("private", "dp_releases()") if owner is None else ("store", "store.dpduck.releases")
        names = con.execute(f"SELECT name, kind FROM {listed} ORDER BY lower(name)").fetchall()
        if view.lower() not in [name.lower() for name, _ in names]:
            views = ", ".join([name for name, kind in names if kind == "view"][:MOST_NAMED]) or "none yet"
            raise Refusal(f"there is no private view {view[:80]!r}", accepted=f"a name of dpduck releases: {views}")
        printed(con.sql(f"FROM {place}.main.{quote_identifier(view)}"), shape)


@QUESTIONS.command(name="publish")
@click.argument("database", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option("--to", "target", required=True, help="FILE.duckdb, a directory (Parquet), or postgresql://..")
@click.option("--schema", default="public", show_default=True, help="The schema in PostgreSQL.")
@click.option("--with-ledger", is_flag=True, help="Tell who asked and the numbers of ledger entries too.")
@click.option("--view", "views", multiple=True, help="A view to publish, may be given again; all if none is.")
def publish_command(database: Path, target: str, schema: str, with_ledger: bool, views: tuple[str, ...]) -> None:
    """Write private views, and nothing else, to a DuckDB file, Parquet files or PostgreSQL.

    DATABASE has its store beside it; the store itself is taken, too.
    """
    beside = store_files(database, None).store
    store = beside if beside is not None and beside.exists() else database
    with one_line_errors(), closing_owner(store_files(None, store)) as owner:
        source = store if owner is None else owner.store()
        published = publish(source, target, schema=schema, with_ledger=with_ledger, views=views)
        click.echo(f"{counted(len(published.views))} in {published.target}: {', '.join(published.views)}")


@QUESTIONS.command()
@DATABASE
@STORE
@click.option("--adopt", is_flag=True, help="Accept an older copy of the store; what was spent stays spent.")
def verify(database: Path, store: Path | None, adopt: bool) -> None:
    """Check the ledger's whole chain, and that the store is not an older or a second copy."""
    with one_line_errors(), closing_owner(store_files(database, store)) as owner:
        if owner is not None and adopt:
            raise Refusal("a store that is served was adopted already", accepted="verify without --adopt")
        entries = verify_store(database, store, adopt=adopt) if owner is None else owner.verify()
        click.echo(f"the ledger is whole: {entries} entries")


@QUESTIONS.command(name="certify")
@DATABASE
@STORE
@click.option("--to", "target", required=True, type=click.Path(path_type=Path), help="A directory for the bundle.")
def certify_command(database: Path, store: Path | None, target: Path) -> None:
    """Write a certificate for every release, which anyone can check without the data: python BUNDLE/check.py

    Publish the last link where nobody can change it.
    """
    with one_line_errors(), closing_owner(store_files(database, store)) as owner:
        found = store_files(database, store).store
        if owner is not None or found is None:
            raise Refusal(SERVED, accepted=WHEN_ENDED)
        written = certify(found, verify_store(database, store), target)
        click.echo(f"{written.certificates} certificates of {written.entries} entries in {target}")
        click.echo(f"last link {written.head}")


@QUESTIONS.command()
@DATABASE
@click.argument("tables", nargs=-1)
@STORE
def prepare(database: Path, tables: tuple[str, ...], store: Path | None) -> None:
    """Prepare tables, all that have a policy if none is named: answers cost what exact ones cost.

    From then on they are about the rows of this moment, until ALTER PRIVACY POLICY ON .. NEW EPOCH, or UNPREPARE.
    """
    with one_line_errors(), closing_owner(store_files(database, store)) as owner:
        if owner is None:
            for line in prepared_tables(database, store, tables):
                click.echo(line)
            return
        listed = owner.call(MACROS["dp_policies"][1], None).table.column(0).to_pylist()
        ask = MACROS["dp"][1]
        known = [in_sql(name) for name in listed]
        for line in preparing(lambda text: owner.call(ask, text).table.column(0)[0].as_py(), tables, known):
            click.echo(line)


@contextmanager
def closing_owner(files: StoreFiles) -> Iterator[Owner | None]:
    """Lends the door of the server that serves this store; None where nobody does, and its files are free."""
    owner = owner_of_server(files)
    try:
        yield owner
    finally:
        if owner is not None:
            owner.close()


@contextmanager
def answers(
    database: Path, store: Path | None
) -> Iterator[Callable[[str, str | Reading | None], duckdb.DuckDBPyRelation]]:
    """Asks dp functions as the owner, through the server where one serves the store; each answer replaces the last."""
    with one_line_errors(), closing_owner(store_files(database, store)) as owner, ExitStack() as stack:
        con = stack.enter_context(connect(database, store) if owner is None else duckdb.connect())

        place = "temp.answer" if owner is None else "answer"

        def ask(function: str, argument: str | Reading | None) -> duckdb.DuckDBPyRelation:
            con.execute(f"DROP TABLE IF EXISTS {place}")
            written = argument.call if isinstance(argument, Reading) else ""
            if owner is None:  # a relation of the query itself would ask it again
                given = [argument] if isinstance(argument, str) else []
                call = written or f"{function}({'$1' if given else ''})"
                con.execute(f"CREATE TEMP TABLE answer AS FROM {call}", given)
            else:
                text = argument.argument if isinstance(argument, Reading) else argument
                rows = owner.call(MACROS[function][1], text)
                create_table(con, place, list(rows.columns), rows.table)
            return con.sql(f"FROM {place}")

        yield ask


def answer(
    database: Path, store: Path | None, function: str, argument: str | None, shape: str, narrow: Sequence[str] = ()
) -> None:
    """Prints what a dp function answers the owner; of a box the columns that narrow has."""
    with answers(database, store) as ask:
        printed(ask(function, argument), shape, narrow)


# What is read.


@dataclass(frozen=True)
class Reading:
    """A SELECT over one function of dp's and over nothing else. call: the function with its arguments, as SQL.

    arguments: of the call. over: the SELECT over the function's answer, which has the name _ANSWER there.
    """

    function: str
    call: str
    arguments: str
    over: str

    @property
    def argument(self) -> str | None:
        """Returns the one text that an engine takes for the arguments."""
        parameters, _ = MACROS[self.function]
        taken = SEVERAL_ARGUMENTS.get(self.function, parameters or "NULL")
        with duckdb.connect() as con:
            con.execute(f"CREATE MACRO taken({parameters}) AS {taken}")
            row = con.execute(f"SELECT taken({self.arguments})").fetchone()
        return None if row is None or row[0] is None else str(row[0])

    def shown(self, answer: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
        """Returns what is read of the function's answer."""
        return answer.query(_ANSWER, self.over)


def reading(text: str) -> Reading | None:
    """Returns what a text reads of one of dp's functions; None where it is a statement of dp(), or anything else.

    >>> reading("SELECT domain FROM dp_columns('visits') WHERE column_name = 'sex'").call
    "dp_columns('visits')"
    >>> reading("SELECT * FROM visits")
    """
    if is_ours(text):
        return None
    try:
        tree = parse_one(in_selects(text).strip().rstrip(";"), read="duckdb")
    except (SqlglotError, RecursionError):
        return None
    tables = list(tree.find_all(exp.Table))
    called = tables[0].this if len(tables) == 1 and isinstance(tree, exp.Select) else None
    if not isinstance(called, exp.Anonymous) or called.name.lower() not in MACROS:
        return None
    arguments = ", ".join(one.sql("duckdb") for one in called.expressions)
    function = called.name.lower()
    tables[0].set("this", exp.to_identifier(_ANSWER))
    return Reading(function, f"{function}({arguments})", arguments, tree.sql("duckdb"))


def is_of_views(text: str) -> bool:
    """Tells whether a text is a SELECT over private views and over nothing else.

    >>> is_of_views("WITH w AS (FROM private.by_ward) FROM w WHERE n > 9"), is_of_views("SELECT ward FROM visits")
    (True, False)
    """
    try:
        trees = [] if is_ours(text) else parse(text.strip().rstrip(";"), read="duckdb")
        scopes = traverse_scope(trees[0]) if len(trees) == 1 and isinstance(trees[0], exp.Query) else []
    except (SqlglotError, RecursionError):
        return False
    sources = [source for scope in scopes for source in scope.sources.values()]
    tables = [one for one in sources if isinstance(one, exp.Table)]  # what WITH names is no table
    views = {isinstance(one.this, exp.Identifier) and (one.catalog, one.db) for one in tables}
    return bool(views) and views <= {("", "private"), ("private", "main")}
