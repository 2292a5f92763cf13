"""dpduck document: a record for the registry of deployments, a privacy label, a codebook, a paragraph on methods.

Each command makes its imports when it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpduck.commands import DATABASE, STORE
from dpduck.commands.errors import one_line_errors

if TYPE_CHECKING:
    import duckdb

    from dpduck.documents.facts import DocumentFacts

TO = click.option("--to", "target", type=click.Path(dir_okay=False, path_type=Path), help="A new file; else printed.")
VIEWS = click.option("--view", "views", multiple=True, help="A view to describe; all if none is given.")


@click.group()
def document() -> None:
    """Write a document about what was released: a registry record, a privacy label, a codebook, or methods."""


@document.command()
@DATABASE
@STORE
@TO
@VIEWS
@click.option("--title", help="The name of the data product.")
@click.option("--tier", type=click.Choice(["1", "2", "3"]), default="3", show_default=True, help="How much detail.")
def record(
    database: Path, store: Path | None, target: Path | None, views: tuple[str, ...], title: str | None, tier: str
) -> None:
    """Write a record for the registry of deployments, as YAML by its schema (opendp/deployments-registry-data).

    What the store cannot know is marked TODO: the purpose, the sector, the reasons.
    """
    from dpduck.documents.files import require_record_name  # noqa: PLC0415
    from dpduck.documents.record import record_text  # noqa: PLC0415

    with one_line_errors():
        if target is not None:
            require_record_name(target)
        with _facts(database, store, views) as (_, facts):
            _give(record_text(facts, title, int(tier)), target)


@document.command()
@DATABASE
@STORE
@click.option("--to", "target", required=True, type=click.Path(dir_okay=False, path_type=Path), help="FILE.html")
@VIEWS
@click.option("--title", help="The label's title; DATABASE's name unless given.")
@click.option("--contact", default="", help="Who answers questions, and where.")
def label(
    database: Path, store: Path | None, target: Path, views: tuple[str, ...], title: str | None, contact: str
) -> None:
    """Write a privacy label: one page of HTML about who is protected, from whom, and how strongly."""
    from dpduck.documents.label import MADE, label_page  # noqa: PLC0415
    from dpduck.publish.page_file import replace_page, require_place  # noqa: PLC0415

    with one_line_errors():
        require_place(target, MADE)
        with _facts(database, store, views) as (_, facts):
            replace_page(target, label_page(facts, title or database.stem, contact), 0o644)
        click.echo(f"a privacy label in {target}{'' if contact else '; --contact says who answers questions'}")


@document.command()
@DATABASE
@STORE
@TO
@VIEWS
@click.option("--title", help="The page's title; DATABASE's name unless given.")
def codebook(
    database: Path, store: Path | None, target: Path | None, views: tuple[str, ...], title: str | None
) -> None:
    """Write a codebook of the private views: columns, types, values, units, errors, and how to add them up.

    FILE.md is Markdown, FILE.csv has a line for each column, and FILE.html is a page.
    """
    from dpduck.documents.codebook import (  # noqa: PLC0415
        MADE,
        codebook_page,
        csv_text,
        describe_views,
        markdown_text,
    )
    from dpduck.documents.files import require_suffix  # noqa: PLC0415
    from dpduck.publish.page_file import PAGES, replace_page, require_place  # noqa: PLC0415

    with one_line_errors():
        suffix = ".md" if target is None else target.suffix.lower()
        if target is not None:
            require_suffix(target, (".md", ".csv", *PAGES), "a codebook")
            if suffix in PAGES:
                require_place(target, MADE)
        with _facts(database, store, views) as (connection, facts):
            described = describe_views(connection, facts)
        if target is not None and suffix in PAGES:
            replace_page(target, codebook_page(facts, described, title or database.stem), 0o644)
            click.echo(_report_file(target))
            return
        _give(csv_text(described) if suffix == ".csv" else markdown_text(facts, described), target)


@document.command()
@DATABASE
@STORE
@TO
@VIEWS
def methods(database: Path, store: Path | None, target: Path | None, views: tuple[str, ...]) -> None:
    """Write a paragraph on methods, with references, to paste into a paper."""
    from dpduck.documents.files import require_suffix  # noqa: PLC0415
    from dpduck.documents.methods import methods_text  # noqa: PLC0415

    with one_line_errors():
        if target is not None:
            require_suffix(target, (".md",), "a text in Markdown")
        with _facts(database, store, views) as (_, facts):
            _give(methods_text(facts), target)


@contextmanager
def _facts(
    database: Path, store: Path | None, views: Sequence[str]
) -> Iterator[tuple[duckdb.DuckDBPyConnection, DocumentFacts]]:
    """Yields the store, opened for reading, and its facts. The whole ledger is verified first."""
    from dpduck.database.connection import verify_store  # noqa: PLC0415
    from dpduck.documents.facts import read_facts  # noqa: PLC0415
    from dpduck.publish.published_views import open_store  # noqa: PLC0415
    from dpduck.server.owner import require_not_served  # noqa: PLC0415
    from dpduck.store.store_files import SERVED, WHEN_ENDED, store_files  # noqa: PLC0415
    from dpduck.values.errors import Refusal  # noqa: PLC0415

    files = store_files(database, store)
    if files.store is None:
        raise Refusal(SERVED, accepted=WHEN_ENDED)
    require_not_served(files)
    entries = verify_store(database, store)
    with open_store(files.store) as connection:
        yield connection, read_facts(connection, entries, views)


def _give(text: str, target: Path | None) -> None:
    from dpduck.commands.printing import give  # noqa: PLC0415
    from dpduck.documents.files import write_new  # noqa: PLC0415

    if target is None:
        give(text)
        return
    write_new(target, text)
    click.echo(_report_file(target))


def _report_file(target: Path) -> str:
    return f"{target} is written; fill in each TODO" if "TODO" in target.read_text("utf-8") else f"{target} is written"
