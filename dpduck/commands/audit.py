"""dpduck audit: bounds from below what releases tell, on made-up neighbouring tables; no private row is read.

Its report is lines of 80 columns for people, or one line of JSON for each statement.
"""

from __future__ import annotations

import json
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path

import click

from dpduck.auditor.audit import ADDITIVITY, ERROR, Finding, Settings, audit
from dpduck.commands import one_line_errors
from dpduck.engine.connection import connect

WIDTH = 80
HEADER = f"{'mechanism':<16}{'unit':<8} {'measure':<7} {'charged':>9} {'seen':>9} {'found':>9} {'runs':>7}  verdict"
EXPLAINED = (
    "seen: at least so much of the measure was told, but for a chance of 1e-9 a statement. found: a loss of so much "
    "would have been seen above what was charged, with probability 0.95. runs: on which the event was tested, of each "
    "of two made-up tables that differ in one privacy unit. additivity: what is counted of all units together is the "
    "sum of what is counted of each alone, of a made-up table with parts that are constant or NULL."
)


def lines(finding: Finding) -> Iterator[str]:
    """Yields what was seen of one statement."""
    name = f"{finding.mechanism or 'statement':<16}{finding.kind:<8} "
    if finding.mechanism == ADDITIVITY and not finding.told:
        yield f"{name}{finding.statement:<44}  holds"
        return
    if finding.told:
        yield f"{name}{'':<44}  TELLS"
        what = "what does not add up" if finding.mechanism == ADDITIVITY else "what differs between neighbours"
        yield from wrapped(f"{what}: {finding.told}")
    elif finding.refused:
        yield f"{name}{'':<44}  refused"
        yield from wrapped(finding.refused)
    for place, bound in enumerate(finding.bounds):
        found = f"{bound.found:9.3g}" if isfinite(bound.found) else f"{'nothing':>9}"
        verdict = "TELLS" if bound.broken else "holds"
        figures = f"{bound.measure:<7} {bound.charged:9.3g} {bound.seen:9.3g} {found} {bound.runs:7}"
        yield f"{name if place == 0 else ' ' * 25}{figures}  {verdict}"
    if finding.mechanism != "search" or finding.broken:
        yield from wrapped(finding.statement)


def wrapped(text: str) -> list[str]:
    """Breaks a text into indented lines."""
    return textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="    ")


def as_json(finding: Finding) -> str:
    """Returns one line with everything that was seen of a statement."""
    told = {**asdict(finding), "broken": finding.broken}
    for bound in told["bounds"]:
        bound["found"] = bound["found"] if isfinite(bound["found"]) else None
    return json.dumps(told)


def summary(findings: Sequence[Finding], seed: str, passed: float) -> str:
    """Returns the last lines: how many statements, and how many of them tell too much."""
    broken = [one for one in findings if one.broken]
    refused = sum(bool(one.refused) for one in findings)
    measured = sum(bool(one.bounds) for one in findings)
    verdict = (
        f"{len(broken)} TELL MORE THAN THEY ARE CHARGED FOR" if broken else "none tells more than it is charged for"
    )
    seeded = f"; seed of the search {seed}" if any(one.mechanism == "search" for one in findings) else ""
    told = f"{measured} measured, {refused} refused alike, in {passed:.0f} s: {verdict}{seeded}"
    return "\n".join(textwrap.wrap(f"{told}; false alarms below {max(len(findings), 1) * ERROR:.0e}", WIDTH))


def print_audit(database: Path, store: Path | None, statements: Sequence[str], settings: Settings, shape: str) -> bool:
    """Audits statements, prints the findings, and tells whether an answer tells more than it was charged for."""
    began, found = time.monotonic(), list[Finding]()
    with one_line_errors(), connect(database, store) as source:
        if shape == "text":
            click.echo(HEADER)
        for finding in audit(source, statements, settings, _progress):
            found.append(finding)
            shown = [as_json(finding)] if shape == "json" else lines(finding)
            if shape == "json" or finding.mechanism != "search" or finding.broken:
                for line in shown:
                    click.echo(line)
    _progress("")
    if shape == "text":
        click.echo(summary(found, settings.seed, time.monotonic() - began))
        click.echo("\n".join(wrapped(EXPLAINED)))
    return any(one.broken for one in found)


def _progress(step: str) -> None:
    """Shows what is being done, on a terminal: each step in place of the last."""
    if sys.stderr.isatty():
        click.secho(f"\r\x1b[K{step[:78]}", fg="cyan", nl=False, err=True)
