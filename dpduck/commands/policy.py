"""dpduck policy: drafts of policies, policies in force as text, and twins. Imports are made when a command runs."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import click

from dpduck.commands import STORE
from dpduck.commands.errors import one_line_errors
from dpduck.values.errors import Refusal

NEW_DATABASE = click.argument("database", type=click.Path(dir_okay=False, path_type=Path))


@click.group()
def policy() -> None:
    """Begin a privacy policy, or print those in force as statements."""


@policy.command()
@NEW_DATABASE
@click.argument("table")
@click.option(
    "--from",
    "files",
    multiple=True,
    metavar="FILE",
    help="A Parquet, CSV or JSON file, a folder, or a pattern in quotes. TABLE is made of all of them first.",
)
@click.option(
    "--read",
    multiple=True,
    metavar="NAME=VALUE",
    help="How DuckDB reads the files: encoding=latin-1, or skip=2. May be given again.",
)
@click.option("--convert", is_flag=True, help="Make dates and numbers of texts, if there is one way to read them.")
@click.option(
    "--privately", metavar="EPSILON", help="Suggest the rest from noisy facts, for this price of TABLE's budget."
)
@STORE
def draft(
    database: Path,
    table: str,
    files: tuple[str, ...],
    read: tuple[str, ...],
    convert: bool,
    privately: str | None,
    store: Path | None,
) -> None:
    """Print a policy for TABLE from its schema alone: types, keys, checks, public tables. No row is read.

    With --from, notes about the files are printed on standard error. They are for your eyes only.

    What only you can know is marked TODO. Fill it in and run it: dpduck sql DATABASE - < policy.sql. Once TABLE has a
    policy, even one of PRIVACY UNIT and BUDGET alone, --privately 0.05 asks for MAX ROWS, ranges, clamps and values.
    """
    from dpduck.commands.answering import answers  # noqa: PLC0415
    from dpduck.commands.importing import table_of_files  # noqa: PLC0415
    from dpduck.commands.printing import give  # noqa: PLC0415

    with one_line_errors():
        if not files and not database.exists():
            raise Refusal(f"there is no database {database}", accepted="one that exists, or --from a file")
        if (read or convert) and not files:
            raise Refusal("--read and --convert are about files", accepted="--from a file beside them")
        if privately and files:
            raise Refusal("--privately needs a table with a policy", accepted="--from first, and --privately later")
        made = table_of_files(database, table, files, read, convert=convert) if files else nullcontext()
        with made, answers(database, store) as ask:
            rows = ask("dp_draft", json.dumps([table, privately])).fetchall()
        give("".join(f"{row[0]}\n" for row in rows))


@policy.command()
@click.argument("database", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.argument("table", required=False)
@STORE
def show(database: Path, table: str | None, store: Path | None) -> None:
    """Print the policy of TABLE, or all policies in force, as the statements that make them."""
    from dpduck.commands.answering import answers  # noqa: PLC0415
    from dpduck.commands.printing import give  # noqa: PLC0415

    with answers(database, store) as ask:
        rows = ask("dp_policies", None).project("table_name, ddl").fetchall()
        chosen = [ddl for name, ddl in rows if table is None or f".{name}".lower().endswith(f".{table}".lower())]
        if not chosen:
            names = ", ".join(name for name, _ in rows) or "none yet"
            raise Refusal(f"there is no policy of {table or database.name}", accepted=f"a name of: {names}")
        for ddl in chosen:
            give(f"{ddl or '-- a policy that is too long for a statement'};\n")


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
    from dpduck.database.connection import connect  # noqa: PLC0415
    from dpduck.database.twins import prepare_alike, twin_database  # noqa: PLC0415

    with one_line_errors():
        if target.exists():
            raise Refusal(f"{target} exists", accepted="the name of a new file")
        with connect(database, store) as source, connect(target) as copy:
            for line in twin_database(source, copy, rows):
                click.echo(line)
            prepare_alike(source, copy)
