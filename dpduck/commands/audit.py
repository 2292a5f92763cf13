"""dpduck audit: lower bounds for the privacy losses of releases, on made-up neighbouring tables."""

from __future__ import annotations

import json
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from math import isfinite
from pathlib import Path

import click
import duckdb

from dpduck.auditor.audit import ADDITIVITY, ERROR, AuditFinding, Settings, audit
from dpduck.commands.answering import closing_owner
from dpduck.commands.errors import one_line_errors
from dpduck.commands.printing import say
from dpduck.database.connection import connect
from dpduck.database.macros import MACROS
from dpduck.language.text.names import in_sql
from dpduck.store.store_files import store_files
from dpduck.values.quoting import fold, printable

WIDTH = 80
HEADER = f"{'mechanism':<16}{'unit':<8} {'measure':<7} {'charged':>9} {'seen':>9} {'found':>9} {'runs':>7}  verdict"
EXPLAINED = (
    "seen: the least leak that these runs prove, wrong with probability 1e-9 a statement. found: a leak of this size "
    "would have been detected with probability 0.95. Smaller is better, and longer runs lower it. runs: the runs on "
    "each of two made-up tables that differ in one privacy unit. additivity: the counts of all units together are the "
    "sum of the counts of each alone, on a made-up table with parts that are constant or NULL."
)


def lines(finding: AuditFinding) -> Iterator[str]:
    """Yields the report's lines about one statement."""
    name = f"{finding.mechanism or 'statement':<16}{finding.kind:<8} "
    if finding.mechanism == ADDITIVITY and not finding.told:
        yield f"{name}{finding.statement:<44}  holds"
        return
    if finding.told:
        yield f"{name}{'':<44}  TELLS"
        what = "what does not add up" if finding.mechanism == ADDITIVITY else "what differs between neighbours"
        yield from wrap_text(f"{what}: {finding.told}")
    elif finding.refused:
        yield f"{name}{'':<44}  refused"
        yield from wrap_text(finding.refused)
    for place, bound in enumerate(finding.bounds):
        loss = f"{bound.found:9.3g}" if isfinite(bound.found) else f"{'nothing':>9}"
        verdict = "TELLS" if bound.broken else "holds"
        figures = f"{bound.measure:<7} {bound.charged:9.3g} {bound.seen:9.3g} {loss} {bound.runs:7}"
        yield f"{name if place == 0 else ' ' * 25}{figures}  {verdict}"
    if finding.mechanism != "search" or finding.broken:
        yield from wrap_text(finding.statement)


def wrap_text(text: str) -> list[str]:
    """Breaks a text into indented lines of WIDTH columns."""
    return textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="    ")


def as_json(finding: AuditFinding) -> str:
    """Returns a finding about a statement as one line of JSON."""
    fields = {**asdict(finding), "broken": finding.broken}
    for bound in fields["bounds"]:
        bound["found"] = bound["found"] if isfinite(bound["found"]) else None
    return json.dumps(fields)


def summary(findings: Sequence[AuditFinding], seed: str, passed: float) -> str:
    """Returns the last lines: the number of statements, and how many of these tell more than they are charged for."""
    broken = [finding for finding in findings if finding.broken]
    refused = sum(bool(finding.refused) for finding in findings)
    measured = sum(bool(finding.bounds) for finding in findings)
    verdict = (
        f"{len(broken)} TELL MORE THAN THEY ARE CHARGED FOR" if broken else "none tells more than it is charged for"
    )
    seeded = f"; seed of the search {seed}" if any(finding.mechanism == "search" for finding in findings) else ""
    counts = f"{measured} measured, {refused} refused alike, in {passed:.0f} s: {verdict}{seeded}"
    return "\n".join(textwrap.wrap(f"{counts}; false alarms below {max(len(findings), 1) * ERROR:.0e}", WIDTH))


def print_audit(database: Path, store: Path | None, statements: Sequence[str], settings: Settings, shape: str) -> bool:
    """Audits statements and prints the findings. Returns whether some statement tells more than it is charged for."""
    began, findings = time.monotonic(), list[AuditFinding]()
    with one_line_errors(), open_for_audit(database, store) as source:
        if shape == "text":
            click.echo(HEADER)
        for finding in audit(source, statements, settings, _progress):
            findings.append(finding)
            shown = [as_json(finding)] if shape == "json" else lines(finding)
            if shape == "json" or finding.mechanism != "search" or finding.broken:
                for line in shown:
                    say(line)
    _progress("")
    if shape == "text":
        click.echo(summary(findings, settings.seed, time.monotonic() - began))
        click.echo("\n".join(wrap_text(EXPLAINED)))
    return any(result.broken for result in findings)


@contextmanager
def open_for_audit(database: Path, store: Path | None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yields a database with the policies and public tables that an audit reads.

    While the store is served, the server tells the policies. The database file is opened read-only beside the server's,
    with a store in memory that has the same policies and nothing else.
    """
    with closing_owner(store_files(database, store)) as owner:
        if owner is None:
            with connect(database, store) as source:
                yield source
            return
        policies = owner.call(MACROS["dp_policies"][1], None).table.to_pylist()
        columns = owner.call(MACROS["dp_columns"][1], None).table.to_pylist()
        released = {fold(name) for name in owner.views()}
    with connect(database, ":memory:", read_only=True) as source:
        private = {fold(row["table_name"].rpartition(".")[2]) for row in policies}
        listed = {row["table_name"]: None for row in columns}
        public = [name for name in listed if fold(name.rpartition(".")[2]) not in private | released]
        for statement in (
            *(f"DECLARE PUBLIC TABLE {in_sql(name)}" for name in public),
            *(row["ddl"] for row in policies),
        ):
            source.execute("FROM dp(?)", [statement]).fetchall()
        yield source


def _progress(step: str) -> None:
    if sys.stderr.isatty():
        click.secho(f"\r\x1b[K{printable(step)[:78]}", fg="cyan", nl=False, err=True)
