"""The command line: statements of dp() on a file, what was released, publishing, serving, the demonstration."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
import duckdb

from dpduck.commands.arguments import DATABASE, FORMAT, STORE
from dpduck.commands.demo import run_demo
from dpduck.commands.errors import one_line_errors
from dpduck.commands.principals import principal
from dpduck.commands.serving import serve
from dpduck.database.store import StoreFiles, store_files
from dpduck.engine.connection import connect, verify_store
from dpduck.engine.functions import MACROS
from dpduck.frontend.text.names import quote_identifier
from dpduck.publish.publish import publish
from dpduck.server.owner_door import Owner, owner_of_server
from dpduck.server.runner_process import create_table
from dpduck.values.errors import Refusal

MOST_SHOWN = 80
"""Characters of a statement that a box of the ledger shows."""

MOST_NAMED = 20
"""Views that a refusal names."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dpduck")
def main() -> None:
    """Differential privacy inside DuckDB. DATABASE is a DuckDB file whose tables have privacy policies."""


@main.command()
@click.option(
    "--directory", type=click.Path(file_okay=False, path_type=Path), default=Path("dpduck_demo"), show_default=True
)
def demo(directory: Path) -> None:
    """Make a clinic of 1,000,000 visits, declare its policy, release counts, show them beside the exact ones."""

    def steps(name: str) -> None:
        if sys.stderr.isatty():
            click.secho(f"{name} ..", fg="cyan", err=True)

    with one_line_errors():
        run_demo(directory, click.echo, steps)


@main.command()
@DATABASE
@click.argument("statement")
@STORE
@FORMAT
def sql(database: Path, statement: str, store: Path | None, shape: str) -> None:
    """Run one statement of dp(): a question, a policy, a view.

    STATEMENT is the text, or - for standard input: dpduck sql clinic.duckdb - < policy.sql
    """
    answer(database, store, "dp", sys.stdin.read() if statement == "-" else statement, shape)


@main.command()
@DATABASE
@click.argument("statement")
@STORE
@FORMAT
def explain(database: Path, statement: str, store: Path | None, shape: str) -> None:
    """Compare strategies for a statement; spends nothing."""
    answer(database, store, "dp_explain", statement, shape)


@main.command()
@DATABASE
@STORE
@FORMAT
def budget(database: Path, store: Path | None, shape: str) -> None:
    """Every table's budget, what is spent and what is left."""
    answer(database, store, "dp_budget", None, shape)


@main.command()
@DATABASE
@STORE
@FORMAT
def ledger(database: Path, store: Path | None, shape: str) -> None:
    """Every charge: when, who, what, how much. Of a statement in a box, its beginning on one line."""
    shown = "regexp_replace(trim(statement), '\\s+', ' ', 'g')"
    short = f"CASE WHEN length({shown}) > {MOST_SHOWN} THEN {shown}[:{MOST_SHOWN}] || ' ..' ELSE {shown} END"
    answer(database, store, "dp_ledger", None, shape, f"* REPLACE ({short} AS statement)" if shape == "box" else "*")


@main.command()
@DATABASE
@STORE
@FORMAT
def releases(database: Path, store: Path | None, shape: str) -> None:
    """Every released table."""
    answer(database, store, "dp_releases", None, shape)


@main.command()
@DATABASE
@STORE
@FORMAT
def policies(database: Path, store: Path | None, shape: str) -> None:
    """Every policy in force."""
    answer(database, store, "dp_policies", None, shape)


@main.command()
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


@main.command(name="publish")
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
        click.echo(f"{len(published.views)} private views in {published.target}: {', '.join(published.views)}")


@main.command()
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


@contextmanager
def closing_owner(files: StoreFiles) -> Iterator[Owner | None]:
    """The door of the server that serves this store; None where nobody does, and its files are free."""
    owner = owner_of_server(files)
    try:
        yield owner
    finally:
        if owner is not None:
            owner.close()


def answer(
    database: Path, store: Path | None, function: str, argument: str | None, shape: str, columns: str = "*"
) -> None:
    """Prints columns of what a dp function answers the owner, through the server where one serves the store."""
    with one_line_errors(), closing_owner(store_files(database, store)) as owner:
        if owner is None:
            with connect(database, store) as con:
                query = f"SELECT {columns} FROM {function}({'' if argument is None else '$1'})"
                printed(con.sql(query, params=None if argument is None else [argument]), shape)
            return
        rows = owner.call(MACROS[function][1], argument)
        with duckdb.connect() as con:
            create_table(con, "answer", list(rows.columns), rows.table)
            printed(con.sql(f"SELECT {columns} FROM answer"), shape)


def printed(relation: duckdb.DuckDBPyRelation, shape: str) -> None:
    """Prints rows."""
    if shape == "box":
        relation.show(max_rows=200, max_width=200 if not sys.stdout.isatty() else 0)
        return
    columns = relation.columns
    rows = relation.fetchall()
    if shape == "csv":
        _print_csv(columns, rows)
    else:
        _print_json(columns, rows)


def _print_csv(columns: list[str], rows: list[tuple[object, ...]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)


def _print_json(columns: list[str], rows: list[tuple[object, ...]]) -> None:
    for row in rows:
        click.echo(json.dumps(dict(zip(columns, row, strict=True)), default=str))


for _command in (serve, principal):
    main.add_command(_command)

if __name__ == "__main__":
    main()
