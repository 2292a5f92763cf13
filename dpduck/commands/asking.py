"""Commands that ask a database and its store: statements of dp(..), listings, checks, publishing, preparing, reading.

Each command makes its imports when it runs, so that help and completion load only click.
"""

from __future__ import annotations

from pathlib import Path

import click

from dpduck.commands import DATABASE, ENGINE, FORMAT, STORE
from dpduck.commands.errors import lines_of_input, one_line_errors

QUESTIONS = click.Group()
"""The commands of this file."""

COMMENTED = {"ignore_unknown_options": True}
"""Click settings for statements that may begin with an SQL comment. Click would take "--" for an option."""


@QUESTIONS.command(context_settings=COMMENTED)
@DATABASE
@click.argument("statement")
@STORE
@FORMAT
@click.option("--dry-run", is_flag=True, help="Only say what it costs, or which paid answers an ALTER takes away.")
@ENGINE
def sql(
    database: Path, statement: str, store: Path | None, shape: str, dry_run: bool, engines: tuple[str, ...]
) -> None:
    """Run one statement of dp(): a question, a policy, a view. Or read: FROM dp_columns('visits'), FROM private.v.

    STATEMENT is the text, or - for standard input: dpduck sql clinic.duckdb - < policy.sql
    """
    from dpduck.commands.answering import foretell, run_statement  # noqa: PLC0415

    with one_line_errors():
        text = "".join(lines_of_input()) if statement == "-" else statement
    if dry_run:
        foretell(database, store, text, shape, engines)
    else:
        run_statement(database, store, text, shape, engines)


@QUESTIONS.command(context_settings=COMMENTED)
@DATABASE
@click.argument("statement")
@STORE
@FORMAT
@click.option("--all", "everything", is_flag=True, help="All strategies with all columns, as dp_explain has them.")
@ENGINE
def explain(
    database: Path, statement: str, store: Path | None, shape: str, everything: bool, engines: tuple[str, ...]
) -> None:
    """Say how far a statement's answers will be off, what helps, and what they cost. Spends nothing."""
    from dpduck.commands.answering import answer, explain_in_words  # noqa: PLC0415

    if everything or shape != "box":
        answer(database, store, "dp_explain", statement, shape, engines=engines)
    else:
        explain_in_words(database, store, statement, engines)


@QUESTIONS.command()
@DATABASE
@STORE
@FORMAT
@click.option("--forecast", metavar="DATE", help="Also say how much is spent on this day if the last 30 days go on.")
def budget(database: Path, store: Path | None, shape: str, forecast: str | None) -> None:
    """List every table's budget, what is spent and what is left, and until when it lasts at the present rate."""
    from dpduck.commands.answering import answer_budget  # noqa: PLC0415

    answer_budget(database, store, forecast, shape)


@QUESTIONS.command(context_settings=COMMENTED)
@DATABASE
@click.argument("table")
@click.argument("statement", required=False)
@STORE
@FORMAT
@ENGINE
def check(
    database: Path, table: str, statement: str | None, store: Path | None, shape: str, engines: tuple[str, ...]
) -> None:
    """Show what the answers about TABLE leave out, exactly: for its owner's eyes only.

    With a STATEMENT over TABLE, also show what each bound on rows or norms leaves out of the answers, and their error.
    """
    from dpduck.commands.answering import check_table  # noqa: PLC0415

    check_table(database, store, table, statement, shape, engines)


@QUESTIONS.command()
@DATABASE
@STORE
@FORMAT
def ledger(database: Path, store: Path | None, shape: str) -> None:
    """List every charge: when, who, what, how much. A box has only the beginning of each statement."""
    from dpduck.commands.answering import LEDGER, answer  # noqa: PLC0415

    answer(database, store, "dp_ledger", None, shape, LEDGER)


@QUESTIONS.command()
@DATABASE
@STORE
@FORMAT
def releases(database: Path, store: Path | None, shape: str) -> None:
    """List every released table. A box has only the beginning of each statement."""
    from dpduck.commands.answering import RELEASES, answer  # noqa: PLC0415

    answer(database, store, "dp_releases", None, shape, RELEASES)


@QUESTIONS.command()
@DATABASE
@STORE
@FORMAT
def policies(database: Path, store: Path | None, shape: str) -> None:
    """List every policy in force."""
    from dpduck.commands.answering import answer  # noqa: PLC0415

    answer(database, store, "dp_policies", None, shape)


@QUESTIONS.command()
@DATABASE
@click.argument("view")
@STORE
@FORMAT
def show(database: Path, view: str, store: Path | None, shape: str) -> None:
    """Print a private view."""
    from dpduck.commands.answering import show_view  # noqa: PLC0415

    show_view(database, store, view, shape)


@QUESTIONS.command(name="publish")
@click.argument("database", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option("--to", "target", required=True, help="FILE.duckdb, a directory (Parquet), or postgresql://..")
@click.option("--schema", default="public", show_default=True, help="The schema in PostgreSQL.")
@click.option("--with-ledger", is_flag=True, help="Tell who asked and the numbers of ledger entries too.")
@click.option("--view", "views", multiple=True, help="A view to publish, may be given again; all if none is.")
def publish_command(database: Path, target: str, schema: str, with_ledger: bool, views: tuple[str, ...]) -> None:
    """Write private views, and nothing else, to a DuckDB file, Parquet files or PostgreSQL.

    DATABASE is a database with its store beside it, or the store itself.
    """
    from dpduck.commands.answering import closing_owner  # noqa: PLC0415
    from dpduck.commands.printing import say, views_in_words  # noqa: PLC0415
    from dpduck.publish.publish import publish  # noqa: PLC0415
    from dpduck.store.store_files import store_files  # noqa: PLC0415

    beside = store_files(database, None).store
    store = beside if beside is not None and beside.exists() else database
    with one_line_errors(), closing_owner(store_files(None, store)) as owner:
        source = store if owner is None else owner.store()
        published = publish(source, target, schema=schema, with_ledger=with_ledger, views=views)
        say(f"{views_in_words(len(published.views))} in {published.target}: {', '.join(published.views)}")


@QUESTIONS.command()
@DATABASE
@STORE
@click.option("--adopt", is_flag=True, help="Accept an older copy of the store; what was spent stays spent.")
def verify(database: Path, store: Path | None, adopt: bool) -> None:
    """Check the ledger's whole chain, and that the store is not an older or a second copy."""
    from dpduck.commands.answering import closing_owner  # noqa: PLC0415
    from dpduck.database.connection import verify_store  # noqa: PLC0415
    from dpduck.store.store_files import store_files  # noqa: PLC0415
    from dpduck.values.errors import Refusal  # noqa: PLC0415

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
    from dpduck.commands.answering import closing_owner  # noqa: PLC0415
    from dpduck.database.connection import verify_store  # noqa: PLC0415
    from dpduck.publish.publish import certify, write_certificates  # noqa: PLC0415
    from dpduck.store.store_files import store_files  # noqa: PLC0415
    from dpduck.values.errors import Refusal  # noqa: PLC0415

    with one_line_errors(), closing_owner(store_files(database, store)) as owner:
        path = store_files(database, store).store
        if path is None:
            raise Refusal("a store in memory has no certificates", accepted="a store in a file")
        if owner is not None:
            written = write_certificates(*owner.certificates(), target)
        else:
            written = certify(path, verify_store(database, store), target)
        click.echo(f"{written.certificates} certificates of {written.entries} entries in {target}")
        click.echo(f"last link {written.head}")


@QUESTIONS.command()
@DATABASE
@click.argument("tables", nargs=-1)
@STORE
def prepare(database: Path, tables: tuple[str, ...], store: Path | None) -> None:
    """Prepare the named tables, or all with a policy, so that answers take less time.

    Answers are then about the rows of this moment, until ALTER PRIVACY POLICY ON .. NEW EPOCH, or UNPREPARE.
    """
    from dpduck.commands.answering import closing_owner  # noqa: PLC0415
    from dpduck.commands.preparing import prepare_tables, preparing  # noqa: PLC0415
    from dpduck.commands.printing import say  # noqa: PLC0415
    from dpduck.database.macros import MACROS  # noqa: PLC0415
    from dpduck.language.text.names import in_sql  # noqa: PLC0415
    from dpduck.store.store_files import store_files  # noqa: PLC0415

    with one_line_errors(), closing_owner(store_files(database, store)) as owner:
        if owner is None:
            for line in prepare_tables(database, store, tables):
                say(line)
            return
        listed = owner.call(MACROS["dp_policies"][1], None).table.column(0).to_pylist()
        ask = MACROS["dp"][1]
        names = [in_sql(name) for name in listed]
        for line in preparing(lambda text: owner.call(ask, text).table.column(0)[0].as_py(), tables, names):
            say(line)
