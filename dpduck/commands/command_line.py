"""The command line: statements of dp() on a file, what was released, publishing, serving, the demonstration."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import duckdb

from dpduck.commands.arguments import DATABASE, FORMAT, STORE
from dpduck.commands.demo import run_demo
from dpduck.commands.errors import one_line_errors
from dpduck.commands.serving import principal, serve
from dpduck.edges.connection import connect, verify_store
from dpduck.edges.publish import publish
from dpduck.errors import Refusal
from dpduck.frontend.names import quote_identifier

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
    """Run one statement of dp(): SELECT WITH DIFFERENTIAL_PRIVACY .., CREATE PRIVACY POLICY .., and so on."""
    with opened(database, store) as con:
        answer(con, "FROM dp($1)", [statement], shape)


@main.command()
@DATABASE
@click.argument("statement")
@STORE
@FORMAT
def explain(database: Path, statement: str, store: Path | None, shape: str) -> None:
    """Compare strategies for a statement; spends nothing."""
    with opened(database, store) as con:
        answer(con, "FROM dp_explain($1)", [statement], shape)


@main.command()
@DATABASE
@STORE
@FORMAT
def budget(database: Path, store: Path | None, shape: str) -> None:
    """Every table's budget, what is spent and what is left."""
    with opened(database, store) as con:
        answer(con, "FROM dp_budget()", [], shape)


@main.command()
@DATABASE
@STORE
@FORMAT
def ledger(database: Path, store: Path | None, shape: str) -> None:
    """Every charge: when, who, what, how much."""
    with opened(database, store) as con:
        answer(con, "FROM dp_ledger()", [], shape)


@main.command()
@DATABASE
@STORE
@FORMAT
def releases(database: Path, store: Path | None, shape: str) -> None:
    """Every released table."""
    with opened(database, store) as con:
        answer(con, "FROM dp_releases()", [], shape)


@main.command()
@DATABASE
@click.argument("view")
@STORE
@FORMAT
def show(database: Path, view: str, store: Path | None, shape: str) -> None:
    """Print a private view."""
    with opened(database, store) as con:
        listed = con.execute("SELECT name, kind FROM dp_releases() ORDER BY lower(name)").fetchall()
        if view.lower() not in [name.lower() for name, _ in listed]:
            views = ", ".join([name for name, kind in listed if kind == "view"][:MOST_NAMED]) or "none yet"
            raise Refusal(f"there is no private view {view[:80]!r}", accepted=f"a name of dpduck releases: {views}")
        answer(con, f"FROM private.main.{quote_identifier(view)}", [], shape)


@main.command(name="publish")
@click.argument("store", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option("--to", "target", required=True, help="FILE.duckdb, a directory (Parquet), or postgresql://..")
@click.option("--schema", default="public", show_default=True, help="The schema in PostgreSQL.")
@click.option("--with-ledger", is_flag=True, help="Tell who asked and the numbers of ledger entries too.")
def publish_command(store: Path, target: str, schema: str, with_ledger: bool) -> None:
    """Write the private views of STORE, and nothing else, to a DuckDB file, Parquet files or PostgreSQL."""
    with one_line_errors():
        published = publish(store, target, schema=schema, with_ledger=with_ledger)
        click.echo(f"{len(published.views)} private views in {published.target}: {', '.join(published.views)}")


@main.command()
@DATABASE
@STORE
@click.option("--adopt", is_flag=True, help="Accept an older copy of the store; what was spent stays spent.")
def verify(database: Path, store: Path | None, adopt: bool) -> None:
    """Check the ledger's whole chain, and that the store is not an older or a second copy."""
    with one_line_errors():
        click.echo(f"the ledger is whole: {verify_store(database, store, adopt=adopt)} entries")


@contextmanager
def opened(database: Path, store: Path | None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A loaded connection; errors end the command with their one line."""
    with one_line_errors(), connect(database, store) as con:
        yield con


def answer(con: duckdb.DuckDBPyConnection, query: str, parameters: list[str], shape: str) -> None:
    """Prints the answer of a query."""
    relation = con.sql(query, params=parameters) if parameters else con.sql(query)
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
