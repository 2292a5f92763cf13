"""dpduck release: from a plan of statements to a folder for the public, in one command that can be run again.

The steps are a trial (if there are criteria), the price and its confirmation, the statements, and the folder. Each
statement is paid once: a second run finds its answer. The folder is whole or absent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import duckdb

from dpduck.commands.errors import one_line_errors
from dpduck.commands.trial import require_criteria
from dpduck.database.connection import connect, verify_store
from dpduck.database.functions import database_of
from dpduck.kernel.ledger.secrets import Steps, no_step
from dpduck.mechanisms.forecast import ANSWERED
from dpduck.publication.folder import Publication, build_folder, is_complete, require_place
from dpduck.publication.plan import PlanStep, read_plan
from dpduck.publication.prices import require_names, require_room
from dpduck.publish.postgres import is_postgres
from dpduck.publish.publish import publish
from dpduck.publish.report import ReportFacts, require_pictures
from dpduck.server.owner import require_not_served
from dpduck.store.store_files import SERVED, WHEN_ENDED, store_files
from dpduck.values.errors import Refusal, StoreError
from dpduck.values.quoting import fold


@dataclass(frozen=True)
class ReleaseSettings:
    """Options of the command. postgresql: an address to which views are also published, or ""."""

    title: str
    contact: str
    criteria: Path | None
    runs: int
    postgresql: str
    confirm: Callable[[str], bool]


def release_plan(
    database: Path, store: Path | None, plan: Path, folder: Path, settings: ReleaseSettings, steps: Steps = no_step
) -> bool:
    """Releases a plan. Returns False if a criterion is not met, or nobody confirmed."""
    with one_line_errors():
        files = store_files(database, store)
        if files.store is None:
            raise Refusal(SERVED, accepted=WHEN_ENDED)
        require_not_served(files)
        require_pictures()
        text = _read(plan)
        planned = read_plan(text)
        folder = folder.resolve()
        if settings.postgresql and not is_postgres(settings.postgresql):
            raise Refusal("--postgresql takes an address", accepted="postgresql://user@host:port/database")
        with connect(database, store) as connection:
            tried = _pay(connection, planned, folder, settings, steps)
            if tried is None:
                return False
            released = _released(connection, list(dict.fromkeys(fold(step.name) for step in planned)))
            report = ReportFacts(*(
                connection.sql(f"FROM {function}()").to_arrow_table().to_pylist()
                for function in ("dp_policies", "dp_budget", "dp_ledger")
            ))  # fmt: skip
        views = tuple(str(row[0]) for row in released)  # as their statements spell them
        publication = Publication(text, views, settings.title, settings.contact, tried)
        if is_complete(folder, publication, released):
            click.echo(f"{folder} has this release; nothing was charged or changed")
        else:
            entries = verify_store(database, store)
            build_folder(folder, files.store, entries, report, publication, released, steps)
            tables = f"{len(views)} table{'' if len(views) == 1 else 's'}"
            click.echo(f"{tables} with certificates and documents in {folder}: python {folder}/check.py")
        if settings.postgresql:
            published = publish(files.store, settings.postgresql, views=views)
            click.echo(f"{', '.join(published.views)} in {published.target}")
    return True


def _read(plan: Path) -> str:
    try:
        return plan.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        raise Refusal(f"{plan} cannot be read", accepted="a file of statements with ; between them") from None


def _pay(
    connection: duckdb.DuckDBPyConnection, planned: Sequence[PlanStep], folder: Path, settings: ReleaseSettings,
    steps: Steps,
) -> frozenset[str] | None:  # fmt: skip
    """Tries, prices and runs the statements. Returns the names of tables that were tried on the true rows.

    Returns None if this ends before anything is charged.

    A statement that has made its table is not run again, so that no later policy gives it a second price.
    """
    there = _statements_of_views(connection)
    numbered = {number: step for number, step in enumerate(planned, 1) if there.get(fold(step.name)) != step.text}
    unpaid = {number: step for number, step in numbered.items() if step.has_price}
    tried, loaded = frozenset[int](), database_of(connection)
    require_place(folder, anew=any(step.makes for step in numbered.values()))
    if loaded is None:
        raise StoreError("dpduck is not loaded; accepted: a database with a store")
    require_names(loaded, numbered, there)
    if unpaid:
        if settings.criteria is not None:
            texts = {number: step.text for number, step in unpaid.items()}
            met = require_criteria(connection, texts, settings.criteria, settings.runs, len(planned))
            if met is None:
                click.echo("nothing was charged: a criterion is not met; see dpduck trial --suggest", err=True)
                return None
            tried = met
        steps("tried")
        charged = require_room(loaded, unpaid)
        for number, step in unpaid.items():
            click.echo(f"{step.name}: {_price(connection, step) if charged[number] else ANSWERED}")
        count = sum(charged.values())
        if count and not settings.confirm(f"Charge {count} of {len(planned)} statements to the budget?"):
            click.echo("nothing was charged", err=True)
            return None
        steps("confirmed")
    for number, step in numbered.items():
        connection.execute("FROM dp($1)", [step.text]).fetchall()
        steps(f"statement {number} is answered")
    return frozenset(fold(planned[number - 1].name) for number in tried)


def _statements_of_views(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Returns the statement that made each view."""
    rows = connection.execute("SELECT name, statement FROM dp_releases() WHERE kind = 'view'").fetchall()
    return {fold(name): text.strip() for name, text in rows}


def _price(connection: duckdb.DuckDBPyConnection, step: PlanStep) -> str:
    row = connection.execute("SELECT price FROM dp_explain($1) WHERE chosen", [step.text]).fetchone()
    return "no price" if row is None or row[0] is None else str(row[0])


def _released(connection: duckdb.DuckDBPyConnection, views: Sequence[str]) -> list[tuple[object, ...]]:
    """Returns the name, the moment, the rows and the ledger entry of each view, in the order of the plan."""
    rows = connection.execute(
        "SELECT name, released_at, rows, ledger_id FROM dp_releases() WHERE kind = 'view' ORDER BY name"
    ).fetchall()
    named = {fold(row[0]): row for row in rows}
    missing = [view for view in views if fold(view) not in named]
    if missing:
        raise Refusal(f"{missing[0]} was not made", accepted="a statement that makes it")
    return [named[fold(view)] for view in views]
