"""Prepares tables for the owner, and shows the progress: for dpduck prepare, and for dpduck serve --prepare."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import duckdb

from dpduck.commands.errors import one_line
from dpduck.database.connection import load
from dpduck.language.text.names import in_sql
from dpduck.values.errors import DpduckError, Refusal

BEFORE = {
    "reading rows": 0.0, "numbering units": 0.35, "sorting rows": 0.4, "counting again": 0.75, "closing the file": 0.95,
}  # fmt: skip
"""Part of the whole time that has passed before each step. It was measured once, to estimate the remaining time."""


def prepare_tables(
    database: Path, store: Path | None, tables: Sequence[str], *, read_only: bool = False
) -> Iterator[str]:
    """Prepares the named tables, or all with a policy if none is named, at one moment. Yields the outcomes."""
    number, began = 0, time.monotonic()

    def tell(step: str) -> None:
        nonlocal number, began
        if step == "preparing":
            number, began = number + 1, time.monotonic()
        if step in BEFORE and sys.stderr.isatty():
            part, passed = BEFORE[step], time.monotonic() - began
            left = f", about {passed * (1 - part) / part:.0f} s left" if part else ""
            click.secho(f"table {number}: {step} .. {part:.0%}{left}", fg="cyan", err=True)

    with duckdb.connect(str(database), read_only=read_only) as connection:
        load(connection, store, steps=tell)
        names = [in_sql(row[0]) for row in connection.execute("SELECT table_name FROM dp_policies()").fetchall()]
        ask = "SELECT status FROM dp(?)"
        yield from preparing(lambda text: connection.execute(ask, [text]).fetchall()[0][0], tables, names)


def preparing(ask: Callable[[str], str], named: Sequence[str], candidates: Sequence[str]) -> Iterator[str]:
    """Prepares the named tables at one moment. Without names, prepares all candidates that can be. ask: runs SQL."""
    tables = named or candidates
    if not tables:
        yield "no table has a privacy policy: nothing was prepared"
        return
    try:
        yield ask(f"ALTER PRIVACY POLICY ON {', '.join(tables)} PREPARE")
        return
    except (DpduckError, duckdb.Error):
        if named or len(tables) == 1:
            raise
    failed = 0
    for table in tables:
        try:
            yield ask(f"ALTER PRIVACY POLICY ON {table} PREPARE")
        except (DpduckError, duckdb.Error) as error:
            failed += 1
            yield f"not prepared: {one_line(error)}"
    raise Refusal(f"{failed} of {len(tables)} tables were not prepared", accepted="the names of those that shall be")
