"""dpduck report: one page for whoever receives the numbers, with a picture of every private view."""

from __future__ import annotations

from pathlib import Path

import click

from dpduck.commands import DATABASE, STORE, one_line_errors
from dpduck.database.attached import store_files
from dpduck.engine.connection import connect
from dpduck.publish.postgres import open_store
from dpduck.publish.report import Facts, write_report
from dpduck.server.owner_door import owner_of_server
from dpduck.values.errors import Refusal


@click.command()
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
            raise Refusal("the store is being served", accepted="the same when dpduck serve has ended")
        with connect(database, store) as connection:
            policies, budgets, ledger = (
                connection.sql(f"FROM {function}()").to_arrow_table().to_pylist()
                for function in ("dp_policies", "dp_budget", "dp_ledger")
            )
        with open_store(files.store) as released:
            facts = Facts(policies, budgets, ledger)
            named = title or database.stem
            shown = write_report(released, facts, target, title=named, with_ledger=with_ledger, views=views)
        click.echo(f"{shown} private views in {target}")
