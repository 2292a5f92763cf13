"""dpduck serve and dpduck principal: private answers for others, over Quack and Arrow Flight SQL."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from types import FrameType

import click

from dpduck.commands.arguments import DATABASE, STORE
from dpduck.commands.errors import one_line_errors
from dpduck.commands.known_tables import require_policies
from dpduck.edges.store import store_files
from dpduck.errors import DpduckError, Refusal, StoreError
from dpduck.server.audit import AuditFile
from dpduck.server.flight_listener import FlightListener, Tls
from dpduck.server.house import open_house
from dpduck.server.limits import Limits
from dpduck.server.principals import PrincipalBook, parse_share
from dpduck.server.quack import QuackListener
from dpduck.trusted.secrets_file import SecretsFile

DEFAULT = Limits()
FILE = click.Path(dir_okay=False, exists=True, path_type=Path)


@click.command()
@DATABASE
@STORE
@click.option(
    "--listen", default="quack:localhost:9494", show_default=True, help="Where to listen for DuckDB clients; or: none."
)
@click.option(
    "--flight-sql",
    is_flag=False,
    flag_value="localhost:32010",
    help="Arrow Flight SQL too, at localhost:32010 or ADDRESS.",
)
@click.option("--tls-certificate", type=FILE, help="For Flight SQL: the certificate with its chain, in PEM.")
@click.option("--tls-key", type=FILE, help="Its private key, in PEM.")
@click.option(
    "--audit", type=click.Path(dir_okay=False, path_type=Path), help="The audit log, if not <store>_audit.jsonl."
)
@click.option(
    "--seconds", default=DEFAULT.seconds, show_default=True, help="Of work over released tables, a statement."
)
@click.option("--rows", default=DEFAULT.rows, show_default=True, help="Of one result.")
@click.option("--characters", default=DEFAULT.characters, show_default=True, help="Of one statement.")
@click.option(
    "--at-once", default=DEFAULT.running_each, show_default=True, help="Statements of one principal at a time."
)
@click.option("--memory", default=DEFAULT.memory, show_default=True, help="For released tables.")
def serve(
    database: Path,
    store: Path | None,
    listen: str,
    flight_sql: str | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
    audit: Path | None,
    seconds: float,
    rows: int,
    characters: int,
    at_once: int,
    memory: str,
) -> None:
    """Serve DATABASE's private answers to the principals of its store, until the process is told to end."""
    limits = Limits(seconds=seconds, rows=rows, characters=characters, running_each=at_once, memory=memory)
    ended = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    with one_line_errors():
        tls = _tls(tls_certificate, tls_key)
        log = AuditFile(audit or audit_path(database, store))
        quack = None if listen == "none" else QuackListener(listen, log, limits)
        try:
            house = open_house(database, store, log, limits, prepare=None if quack is None else quack.prepare)
        except DpduckError:
            log.close()
            if ended.is_set():  # whoever told this process to end may have told the vault's, which was starting, too
                return
            raise
        flight = None
        try:
            if quack is not None and not ended.is_set():
                click.echo(quack.open(house.window, house.gate, house.book))
            if flight_sql is not None and not ended.is_set():
                flight = FlightListener(flight_sql, house, limits, tls)
                click.echo(flight.address)
            ended.wait()
            if quack is not None:
                quack.close()
            if flight is not None:
                flight.close()
        finally:
            house.close()


def _tls(certificate: Path | None, key: Path | None) -> Tls | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise Refusal("half of what TLS needs", accepted="--tls-certificate and --tls-key")
    return Tls(certificate, key)


def audit_path(database: Path, store: Path | None) -> Path:
    """Where the audit log is unless the owner says otherwise: beside the store."""
    files = store_files(database, store)
    if files.store is None:
        raise StoreError("a store in memory is not served; accepted: a store in a file")
    return files.store.with_name(f"{files.store.stem}_audit.jsonl")


@click.group()
def principal() -> None:
    """Who may ask over a server: principals with tokens, tables and shares of the budget."""


@principal.command()
@DATABASE
@click.argument("name")
@STORE
@click.option("--share", help="Of each budget: 0.5, 1/3 or 25%.")
@click.option("--tables", help="The private tables to ask about, as in visits,claims; all of them if not given.")
def add(database: Path, name: str, store: Path | None, share: str | None, tables: str | None) -> None:
    """Add a principal and print the token, once: only its hash is kept."""
    with one_line_errors():
        named = None if tables is None else [table.strip() for table in tables.split(",") if table.strip()]
        require_policies(store_files(database, store).store, named or [])
        click.echo(_book(database, store).add(name, None if share is None else parse_share(share), named))


@principal.command(name="list")
@DATABASE
@STORE
def list_principals(database: Path, store: Path | None) -> None:
    """Print every principal, one JSON object a line."""
    with one_line_errors():
        for found in _book(database, store).all():
            share = None if found.share is None else str(found.share)
            click.echo(json.dumps({"name": found.name, "share": share, "tables": found.tables}))


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
