"""dpduck principal: rights to ask over a server. Each command makes its imports when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpduck.commands import DATABASE, FORMAT, STORE
from dpduck.commands.connect_file import ADDRESS, TO_OUTPUT, connect_sql, require_new_file, write_new_file
from dpduck.commands.errors import one_line_errors
from dpduck.commands.names_of_tables import require_policies
from dpduck.store.store_files import store_files
from dpduck.values.errors import Refusal
from dpduck.values.per_cent import in_per_cent

if TYPE_CHECKING:
    from dpduck.server.principals import PrincipalBook

COLUMNS = ("name", "share", "tables", "until", "project", "a_day", "identity")
"""Printed facts about each principal."""


@click.group()
def principal() -> None:
    """Manage who may ask over a server."""


@principal.command()
@DATABASE
@click.argument("name")
@STORE
@click.option("--share", help="Of each budget: 0.5, 1/3 or 25%.")
@click.option("--tables", help="The private tables to ask about, as in visits,claims; all of them if not given.")
@click.option("--until", help="The token's last day, as in 2027-01-31; no end if not given.")
@click.option("--project", help="A project, with a share that its members spend together.")
@click.option("--a-day", help="Of each budget on one day in UTC: 1%, or 1/50. For agents, above all.")
@click.option("--identity", help="What a trusted proxy states for it, as in alice@example.org; else its name.")
@click.option(
    "--shell",
    type=click.Path(path_type=Path),
    help="A new file with address and token for: duckdb -init FILE. Or - to print it.",
)
@click.option("--address", default=ADDRESS, show_default=True, help="With --shell: where the server listens.")
def add(
    database: Path, name: str, store: Path | None, share: str | None, tables: str | None, until: str | None,
    project: str | None, a_day: str | None, identity: str | None, shell: Path | None, address: str,
) -> None:  # fmt: skip
    """Add a principal and print the token, once: only its hash is kept."""
    from dpduck.server.principals import parse_share, parse_until  # noqa: PLC0415

    with one_line_errors():
        if shell is not None:
            require_new_file(shell, address)
        named = None if tables is None else [table.strip() for table in tables.split(",") if table.strip()]
        require_policies(store_files(database, store).store, named or [])
        part, end = None if share is None else parse_share(share), None if until is None else parse_until(until)
        daily = None if a_day is None else parse_share(a_day)
        token = _book(database, store).add(name, part, named, end, project, daily, identity)
        if shell is None:
            click.echo(token)
        else:
            _give(shell, connect_sql(address, token, database), token)


def _give(shell: Path, text: str, token: str) -> None:
    """Prints the file for the shell, or writes it. If it cannot be written, prints the token as well as the reason."""
    if shell == TO_OUTPUT:
        click.echo(text, nl=False)
        return
    try:
        write_new_file(shell, text)
    except Refusal:
        click.echo(token)
        raise
    click.echo(f"{shell} has the address and the token: duckdb -init {shell}")


@principal.command()
@DATABASE
@click.argument("name")
@STORE
@click.option("--a-day", help="Of each budget on one day in UTC: 1%, or 1/50. Or: none.")
@click.option("--share", help="Of each budget in all: 0.5, 1/3 or 25%. Or: none.")
def limit(database: Path, name: str, store: Path | None, a_day: str | None, share: str | None) -> None:
    """Change the part of each budget that a principal may spend, in all or on one day. It holds for the next charge.

    The token and the spending so far stay as they are.
    """
    from dpduck.server.principals import parse_share  # noqa: PLC0415

    with one_line_errors():
        if a_day is None and share is None:
            raise Refusal("this changes nothing", accepted="--share 40%, or --a-day 1%, or both")
        daily, part = (None if text in (None, "none") else parse_share(text) for text in (a_day, share))
        book = _book(database, store)
        if share is not None:
            book.limit_share(name, part)
            click.echo(f"{name}: {'all' if part is None else in_per_cent(part, up=False)} of each budget")
        if a_day is not None:
            book.limit_day(name, daily)
            shown = "all that its share allows" if daily is None else f"{in_per_cent(daily, up=False)} of each budget"
            click.echo(f"{name}: {shown} on one day in UTC")


@principal.command()
@DATABASE
@click.argument("name")
@click.argument("stated", metavar="[IDENTITY]", required=False)
@STORE
def identity(database: Path, name: str, stated: str | None, store: Path | None) -> None:
    """Set the IDENTITY that a trusted proxy states for a principal. Without IDENTITY, take it away."""
    with one_line_errors():
        _book(database, store).put_identity(name, stated)
        click.echo(f"{name} has no identity now" if stated is None else f"{name} is {stated}")


@principal.command()
@DATABASE
@click.argument("name", required=False)
@STORE
@click.option("--share", help="Of each budget, for all members together: 0.5, 1/3 or 25%.")
def project(database: Path, name: str | None, store: Path | None, share: str | None) -> None:
    """Make a project, or change its share. Its members spend the share together. Without NAME, print all projects.

    Members are added with: dpduck principal add DATABASE NAME --project PROJECT
    """
    from dpduck.server.principals import parse_share  # noqa: PLC0415

    with one_line_errors():
        book = _book(database, store)
        if name is not None:
            if share is None:
                raise Refusal("a project has a share", accepted=f"dpduck principal project .. {name[:80]} --share 30%")
            book.put_project(name, parse_share(share))
        for entry in book.projects():
            if name is None or entry.name.lower() == name.lower():
                members = ", ".join(entry.members) or "no members yet"
                click.echo(f"{entry.name}: {in_per_cent(entry.share, up=False)} of each budget; {members}")


@principal.command(name="list")
@DATABASE
@STORE
@FORMAT
def list_principals(database: Path, store: Path | None, shape: str) -> None:
    """Print every principal with its rights. With --format json, print one JSON object a line."""
    from dpduck.commands.printing import print_rows  # noqa: PLC0415

    with one_line_errors():
        rows = []
        for entry in _book(database, store).all():
            share = None if entry.share is None else str(entry.share)
            tables = None if entry.tables is None else list(entry.tables)
            until = None if entry.until is None else entry.until.isoformat()
            daily = None if entry.a_day is None else str(entry.a_day)
            rows.append((entry.name, share, tables, until, entry.project, daily, entry.identity))
        if not rows:
            return
        if shape == "box":
            _print_box(rows)
        else:
            print_rows(COLUMNS, rows, shape)


def _print_box(rows: Sequence[tuple[object, ...]]) -> None:
    """Prints principals as DuckDB prints a table. No other output needs DuckDB."""
    import duckdb  # noqa: PLC0415

    from dpduck.commands.printing import print_box  # noqa: PLC0415

    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE principals (name VARCHAR, share VARCHAR, tables VARCHAR[], until VARCHAR, project VARCHAR, "
            "a_day VARCHAR, identity VARCHAR)"
        )
        con.executemany("INSERT INTO principals VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        print_box(con.sql("FROM principals"))


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
    from dpduck.kernel.ledger.secrets import SecretsFile  # noqa: PLC0415
    from dpduck.server.principals import PrincipalBook  # noqa: PLC0415

    files = store_files(database, store)
    if files.secrets is None or not files.secrets.exists():
        from dpduck.store.attaching import no_store  # noqa: PLC0415 - most lists start without DuckDB

        raise no_store(database)
    return PrincipalBook(SecretsFile.open(files.secrets, create=False))
