"""dpduck serve: private answers for others, over Quack, Arrow Flight SQL, and as a page for browsers."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import click

from dpduck.commands import DATABASE, STORE, one_line_errors
from dpduck.database.store_files import store_files
from dpduck.server.audit import Audit, AuditFile
from dpduck.server.flight.listener import FlightListener, Tls
from dpduck.server.gate import Service, open_service
from dpduck.server.limits import FLOOR, SWITCH_SECONDS, Limits, Quota, parse_size
from dpduck.server.quack import QuackListener
from dpduck.server.vault import SECONDS
from dpduck.server.vault_client import Keeping
from dpduck.server.web.listener import WebListener, page_address
from dpduck.trusted.rows.workers import limit_memory
from dpduck.values.errors import DpduckError, Refusal, StoreError

DEFAULT, QUOTA = Limits(), Quota()
FILE = click.Path(dir_okay=False, exists=True, path_type=Path)
BESIDE = 6 * 2**30
"""Bytes that the server's process may have beside its database: messages, rows on their way, and the stack of a thread
for each connection, which counts whole (8 MiB) however little of it is used."""
BESIDE_VAULT = 8 << 30
"""Bytes for everything but the vault; on small machines half of what there is."""

LAST_STATEMENTS, LAST_CONNECTIONS = 20.0, 10.0
"""Seconds for releases at work, then for connections, when the server is told to end."""


@dataclass(frozen=True)
class Listening:
    """Where to listen. quack, flight, web: addresses, None for not at all. in_the_clear: without TLS beyond here.

    origin: under which browsers see the page, where a proxy is before it.
    """

    quack: str | None
    flight: str | None
    web: str | None
    tls: Tls | None
    in_the_clear: bool
    origin: str | None


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
@click.option("--web", is_flag=False, flag_value="127.0.0.1:8080", help="A page too, at 127.0.0.1:8080 or ADDRESS.")
@click.option("--web-origin", help="How browsers see it behind a proxy that speaks TLS: https://NAME.")
@click.option(
    "--tls-certificate", type=FILE, help="Of Flight SQL and the page: the certificate with its chain, in PEM."
)
@click.option("--tls-key", type=FILE, help="Its private key, in PEM.")
@click.option("--in-the-clear", is_flag=True, help="Quack beyond this machine: tokens travel without TLS.")
@click.option("--audit", type=click.Path(dir_okay=False, path_type=Path), help="The audit log, if not beside STORE.")
@click.option("--seconds", default=DEFAULT.seconds, show_default=True, help="Of work of one statement.")
@click.option("--rows", default=DEFAULT.rows, show_default=True, help="Of one result.")
@click.option("--characters", default=DEFAULT.characters, show_default=True, help="Of one statement.")
@click.option("--at-once", default=DEFAULT.running_each, show_default=True, help="Statements at once, a principal.")
@click.option("--views", default=DEFAULT.views_each, show_default=True, help="Private views, a principal.")
@click.option("--releases", default=QUOTA.releases, show_default=True, help="Kept in the store, a principal.")
@click.option("--released-rows", default=QUOTA.rows, show_default=True, help="Kept in the store, a principal.")
@click.option("--floor", default=FLOOR, show_default=True, help="Seconds of the grid of times for new answers.")
@click.option("--memory", default="4GB", show_default=True, help="For released tables; as much for statements.")
@click.option("--vault-memory", help="For counting, if not this machine's but for 8 GiB, or half.")
@click.option("--prepare", is_flag=True, help="Prepare the tables that have a policy and are not prepared.")
@click.option("--engine", multiple=True, help="Whose tables are counted there: NAME=sc://HOST:PORT; several times.")
def serve(
    database: Path,
    store: Path | None,
    listen: str,
    flight_sql: str | None,
    web: str | None,
    web_origin: str | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
    in_the_clear: bool,
    audit: Path | None,
    seconds: float,
    rows: int,
    characters: int,
    at_once: int,
    views: int,
    releases: int,
    released_rows: int,
    floor: float,
    memory: str,
    vault_memory: str | None,
    prepare: bool,
    engine: tuple[str, ...],
) -> None:
    """Serve DATABASE's private answers to the principals of its store, until the process is told to end."""
    ended, again = threading.Event(), threading.Event()
    _on_signals(ended, again)
    sys.setswitchinterval(SWITCH_SECONDS)
    with one_line_errors():
        tls = _tls(tls_certificate, tls_key)
        quack = None if listen == "none" else listen
        listening = Listening(quack, flight_sql, web, tls, in_the_clear, web_origin)
        limits = Limits(
            seconds=seconds, rows=rows, characters=characters, running_each=at_once, views_each=views,
            memory=parse_size(memory),
        )  # fmt: skip
        own = parse_size(vault_memory) if vault_memory else _most_memory()
        keeping = Keeping(Quota(releases, released_rows), floor, own, min(seconds, SECONDS), engine)
        path = audit or audit_path(database, store)
        if prepare:
            _prepare(database, store)
        log = AuditFile(path)
        _serve(database, store, listening, limits, keeping, log, path, ended, again)


def _serve(
    database: Path,
    store: Path | None,
    listening: Listening,
    limits: Limits,
    keeping: Keeping,
    log: Audit,
    path: Path,
    ended: threading.Event,
    again: threading.Event,
) -> None:
    quack = None if listening.quack is None else QuackListener(listening.quack, log, limits, listening.in_the_clear)
    _require_addresses(listening)
    try:
        prepare = None if quack is None else quack.prepare
        service = open_service(database, store, log, limits, prepare=prepare, keeping=keeping)
    except DpduckError:
        log.close()
        if ended.is_set():  # whoever told this process to end may have told the vault's, which was starting, too
            return
        raise
    limit_memory(limits.memory + BESIDE)
    closing: list[Callable[[], None]] = []
    try:
        if quack is not None and not ended.is_set():
            click.echo(quack.open(service.public, service.gate, service.book))
            closing.append(quack.close)
        if listening.flight is not None and not ended.is_set():
            flight = FlightListener(listening.flight, service, limits, listening.tls)
            click.echo(flight.address)
            closing.append(flight.close)
        if listening.web is not None and not ended.is_set():
            page = WebListener(listening.web, service, limits, listening.tls, listening.origin)
            click.echo(page.address)
            if page.warning:
                click.echo(page.warning, err=True)
            closing.append(page.close)
        _say_what_is_served(service, path)
        while not ended.wait(1.0):
            if again.is_set():
                again.clear()
                log.reopen()
            with suppress(
                DpduckError
            ):  # what the owner makes or drops meanwhile; the next statement says what is wrong
                service.gate.sync()
    finally:
        _end(service, closing)


def _prepare(database: Path, store: Path | None) -> None:
    """Prepares what is not prepared: here alone this process needs the engine."""
    from dpduck.commands.preparing import prepared_tables  # noqa: PLC0415

    for line in prepared_tables(database, store, (), read_only=True):
        click.echo(line)


def _require_addresses(listening: Listening) -> None:
    """Refuses what cannot be listened on before a vault is started for nothing."""
    if listening.quack is None and listening.flight is None and listening.web is None:
        raise Refusal("there is nothing to listen on", accepted="--listen quack:localhost:9494, --flight-sql or --web")
    if listening.web is not None:
        page_address(listening.web, listening.tls, listening.origin)


def _on_signals(ended: threading.Event, again: threading.Event) -> None:
    """SIGTERM and Ctrl-C end the server; SIGHUP lets it go on in a new audit log."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        ended.set()

    def reopen(_signal: int, _frame: FrameType | None) -> None:
        again.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    signal.signal(signal.SIGHUP, reopen)


def _say_what_is_served(service: Service, path: Path) -> None:
    names = [principal.name for principal in service.book.all()]
    shown = ", ".join(names) if names else "nobody yet: dpduck principal add DATABASE NAME prints a token"
    click.echo(f"principals: {shown}")
    click.echo(f"audit log: {path}")
    for view in service.gate.left_out():
        click.echo(f"left out, for want of memory: {view}")
    sys.stdout.flush()


def _end(service: Service, closing: list[Callable[[], None]]) -> None:
    """Ends what is at work, in a bounded time; the process ends with status 0 whatever clients do meanwhile."""
    idle = service.gate.end(LAST_STATEMENTS)
    threads = [threading.Thread(target=close, daemon=True) for close in closing]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LAST_CONNECTIONS)
    if idle and not any(thread.is_alive() for thread in threads):
        service.close()
        return
    # threads of connections are still inside DuckDB, which cannot be closed around them
    service.vault.close()
    service.audit.close()
    sys.stdout.flush()
    os._exit(0)


def _most_memory() -> int:
    """Returns bytes of this machine's memory for the vault: what readers, runners and workers need is left."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(total // 2, total - BESIDE_VAULT)


def _tls(certificate: Path | None, key: Path | None) -> Tls | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise Refusal("half of what TLS needs", accepted="--tls-certificate and --tls-key")
    return Tls(certificate, key)


def audit_path(database: Path, store: Path | None) -> Path:
    """Returns the default path of the audit log: beside the store."""
    files = store_files(database, store)
    if files.store is None:
        raise StoreError("a store in memory is not served; accepted: a store in a file")
    return files.store.with_name(f"{files.store.stem}_audit.jsonl")
