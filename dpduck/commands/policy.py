"""What an owner types beside `dpduck serve`: policies, who may ask, and a report.

dpduck policy: a policy to begin with, from the schema of a table or of a file, and policies in force as text.
dpduck principal: who may ask over a server.
dpduck report: one page for whoever receives the numbers, with a picture of every private view.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import duckdb

from dpduck.commands import DATABASE, FORMAT, STORE, one_line_errors
from dpduck.commands.printing import counted, printed
from dpduck.database.attached import SERVED, WHEN_ENDED, store_files
from dpduck.engine.connection import connect, prepare_alike, twin_database
from dpduck.frontend.text.names import fold, quote_identifier, quote_text
from dpduck.publish.postgres import open_store
from dpduck.publish.report import Facts, write_report
from dpduck.server.owner_door import owner_of_server
from dpduck.server.principals import PrincipalBook, parse_share, parse_until
from dpduck.trusted.ledger.secrets import SecretsFile
from dpduck.values.errors import Refusal, StoreError

OWNERS = click.Group()
"""The commands of this file."""


@OWNERS.command()
@DATABASE
@STORE
@click.option("--to", "target", required=True, type=click.Path(dir_okay=False, path_type=Path), help="FILE.html")
@click.option("--title", help="The page's title; DATABASE's name unless given.")
@click.option("--with-ledger", is_flag=True, help="Tell who asked, and what, too.")
@click.option("--view", "views", multiple=True, help="A view to show; all if none is given.")
def report(
    database: Path, store: Path | None, target: Path, title: str | None, with_ledger: bool, views: tuple[str, ...]
) -> None:
    """Write one page with a picture of every private view, what is protected, and what was spent.

    The page fetches nothing and runs nothing: it can be mailed, printed, or put on any server.
    """
    with one_line_errors():
        files = store_files(database, store)
        served = owner_of_server(files)
        if served is not None:
            served.close()
        if files.store is None or served is not None:
            raise Refusal(SERVED, accepted=WHEN_ENDED)
        with connect(database, store) as connection:
            policies, budgets, ledger = (
                connection.sql(f"FROM {function}()").to_arrow_table().to_pylist()
                for function in ("dp_policies", "dp_budget", "dp_ledger")
            )
        with open_store(files.store) as released:
            facts = Facts(policies, budgets, ledger)
            named = title or database.stem
            shown = write_report(released, facts, target, title=named, with_ledger=with_ledger, views=views)
        click.echo(f"{counted(shown)} in {target}")


@OWNERS.group()
def principal() -> None:
    """Manage who may ask over a server."""


@principal.command()
@DATABASE
@click.argument("name")
@STORE
@click.option("--share", help="Of each budget: 0.5, 1/3 or 25%.")
@click.option("--tables", help="The private tables to ask about, as in visits,claims; all of them if not given.")
@click.option("--until", help="The token's last day, as in 2027-01-31; no end if not given.")
def add(
    database: Path, name: str, store: Path | None, share: str | None, tables: str | None, until: str | None
) -> None:
    """Add a principal and print the token, once: only its hash is kept."""
    with one_line_errors():
        named = None if tables is None else [table.strip() for table in tables.split(",") if table.strip()]
        require_policies(store_files(database, store).store, named or [])
        part, end = None if share is None else parse_share(share), None if until is None else parse_until(until)
        click.echo(_book(database, store).add(name, part, named, end))


@principal.command(name="list")
@DATABASE
@STORE
@FORMAT
def list_principals(database: Path, store: Path | None, shape: str) -> None:
    """Print every principal with its rights. With --format json, print one JSON object a line."""
    with one_line_errors(), duckdb.connect() as con:
        con.execute("CREATE TABLE principals (name VARCHAR, share VARCHAR, tables VARCHAR[], until VARCHAR)")
        for found in _book(database, store).all():
            share = None if found.share is None else str(found.share)
            tables = None if found.tables is None else list(found.tables)
            until = None if found.until is None else found.until.isoformat()
            con.execute("INSERT INTO principals VALUES (?, ?, ?, ?)", [found.name, share, tables, until])
        if con.execute("FROM principals LIMIT 1").fetchall():
            printed(con.sql("FROM principals"), shape)


@principal.command()
@DATABASE
@click.argument("name")
@STORE
def revoke(database: Path, name: str, store: Path | None) -> None:
    """Take a principal's token back, at once; what was charged stays charged."""
    with one_line_errors():
        _book(database, store).revoke(name)
        click.echo(f"{name} is revoked")


def _book(database: Path, store: Path | None) -> PrincipalBook:
    files = store_files(database, store)
    if files.secrets is None or not files.secrets.exists():
        raise StoreError("this database has no store; accepted: a database with a privacy policy (dpduck sql)")
    return PrincipalBook(SecretsFile.open(files.secrets, create=False))


# Whether names that an owner types are tables with a policy.


def require_policies(store: Path | None, names: Sequence[str]) -> None:
    """Refuses a name of no private table; what a store that is open elsewhere holds is not known, and is not asked."""
    known = _private_tables(store)
    for name in names:
        wanted = fold(name).split(".")
        if known is not None and not any(parts[-len(wanted) :] == wanted for parts in known):
            shown = ", ".join(parts[-1] for parts in known) or "none yet"
            raise Refusal(
                f"there is no policy on {name[:80]!r}", accepted=f"names with commas between them, of {shown}"
            )


def _private_tables(store: Path | None) -> list[list[str]] | None:
    try:
        with duckdb.connect(str(store), read_only=True) as found:
            rows = found.execute(
                "SELECT lower(table_name) FROM dpduck.policies GROUP BY 1 HAVING arg_max(active, revision) ORDER BY 1"
            ).fetchall()
    except duckdb.Error:
        return None
    return [[part.strip('"') for part in str(name).split(".")] for (name,) in rows]


NEW_DATABASE = click.argument("database", type=click.Path(dir_okay=False, path_type=Path))


@OWNERS.group()
def policy() -> None:
    """Begin a privacy policy, or print those in force as statements."""


@policy.command()
@NEW_DATABASE
@click.argument("table")
@click.option(
    "--from",
    "file",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="A Parquet, CSV or JSON file; TABLE is made of it first.",
)
@click.option(
    "--privately", metavar="EPSILON", help="Suggest the rest from noisy facts, for this price of TABLE's budget."
)
@STORE
def draft(database: Path, table: str, file: Path | None, privately: str | None, store: Path | None) -> None:
    """Print a policy for TABLE from its schema alone: types, keys, checks, public tables. No row is read.

    What only you can know is marked TODO. Fill it in and run it: dpduck sql DATABASE - < policy.sql. Once TABLE has a
    policy, if only of PRIVACY UNIT and BUDGET, --privately 0.05 asks for MAX ROWS, ranges, clamps and values.
    """
    with one_line_errors():
        if file is None and not database.exists():
            raise Refusal(f"there is no database {database}", accepted="one that exists, or --from a file")
        if file is not None:
            _import(database, table, file)
        with connect(database, store) as con:
            rows = con.execute("FROM dp_draft(?, privately := ?)", [table, privately]).fetchall()
        click.echo("\n".join(row[0] for row in rows))


@policy.command()
@click.argument("database", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.argument("table", required=False)
@STORE
def show(database: Path, table: str | None, store: Path | None) -> None:
    """Print policies in force, that of TABLE or all, as the statements that make them."""
    with one_line_errors(), connect(database, store) as con:
        rows = con.execute("SELECT table_name, ddl FROM dp_policies()").fetchall()
        chosen = [ddl for name, ddl in rows if table is None or f".{name}".lower().endswith(f".{table}".lower())]
        if not chosen:
            names = ", ".join(name for name, _ in rows) or "none yet"
            raise Refusal(f"there is no policy of {table or database.name}", accepted=f"a name of: {names}")
        for ddl in chosen:
            click.echo(f"{ddl or '-- a policy that is too long for a statement'};")


@policy.command()
@click.argument("database", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option("--to", "target", required=True, type=click.Path(dir_okay=False, path_type=Path), help="A new file.")
@click.option("--rows", default=10_000, show_default=True, type=click.IntRange(1), help="Of each table.")
@STORE
def twin(database: Path, target: Path, rows: int, store: Path | None) -> None:
    """Make a database to develop on: tables of made-up rows under the same policies, public tables as they are.

    Statements, dashboards and models run on it unchanged. It is made of policies and schemas alone, and has a budget
    of its own: nothing asked of it is charged to DATABASE, and nothing it answers is true.
    """
    with one_line_errors():
        if target.exists():
            raise Refusal(f"{target} exists", accepted="the name of a new file")
        with connect(database, store) as source, connect(target) as made:
            for line in twin_database(source, made, rows):
                click.echo(line)
            prepare_alike(source, made)


def _import(database: Path, table: str, file: Path) -> None:
    """Creates a table of a file's rows. The file is read by DuckDB, and the database has no other name for it."""
    with duckdb.connect(str(database)) as con:
        try:
            con.execute(f"CREATE TABLE {quote_identifier(table)} AS FROM {quote_text(str(file))}")
        except duckdb.CatalogException:
            known = con.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = ?", [table]).fetchall()
            if not known:
                raise
            raise Refusal(f"{database.name} has a table {table!r}", accepted="no --from, or another name") from None
