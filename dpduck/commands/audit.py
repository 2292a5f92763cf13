"""dpduck audit: bounds from below what releases tell, on made-up neighbouring tables; no private row is read."""

from __future__ import annotations

import secrets
import sys
import time
from pathlib import Path

import click

from dpduck.auditor import report
from dpduck.auditor.audit import Finding, Settings, audit
from dpduck.commands import DATABASE, STORE, one_line_errors
from dpduck.engine.connection import connect


@click.command(name="audit")
@DATABASE
@click.argument("statements", nargs=-1)
@STORE
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(0.1), help="Of each statement.")
@click.option("--epsilon", default="1", show_default=True, help="The price of each own statement.")
@click.option(
    "--search", default=0.0, show_default=True, type=click.FloatRange(0), help="Seconds of a search for others."
)
@click.option("--seed", help="Of the search, to repeat it; a fresh one if none is given.")
@click.option(
    "--format", "shape", type=click.Choice(["text", "json"]), default="text", help="json: a line a statement."
)
def audit_command(
    database: Path, statements: tuple[str, ...], store: Path | None, seconds: float, epsilon: str, search: float,
    seed: str | None, shape: str,
) -> None:  # fmt: skip
    """Ask STATEMENTS, or some of every mechanism, of two made-up tables that differ in one privacy unit.

    The tables are made from the policies of DATABASE in memory: no private row is read, and nothing is charged to it.
    Each statement is answered thousands of times on both. What is told of the unit is bounded from below: the exit
    status is 1 if it is more than was charged, or if a message, a shape or a price tells of the unit.
    """
    settings = Settings(epsilon, seconds, search, seed or secrets.token_hex(4))
    began, found = time.monotonic(), list[Finding]()
    with one_line_errors(), connect(database, store) as source:
        if shape == "text":
            click.echo(report.HEADER)
        for finding in audit(source, statements, settings, _progress):
            found.append(finding)
            shown = [report.as_json(finding)] if shape == "json" else report.lines(finding)
            if shape == "json" or finding.mechanism != "search" or finding.broken:
                for line in shown:
                    click.echo(line)
    _progress("")
    if shape == "text":
        click.echo(report.summary(found, settings.seed, time.monotonic() - began))
        click.echo("\n".join(report.wrapped(report.EXPLAINED)))
    if any(one.broken for one in found):
        sys.exit(1)


def _progress(step: str) -> None:
    """Shows what is being done, on a terminal: each step in place of the last."""
    if sys.stderr.isatty():
        click.secho(f"\r\x1b[K{step[:78]}", fg="cyan", nl=False, err=True)
