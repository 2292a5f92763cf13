"""Listens for clients until the process is told to end. dpduck serve imports this file while its vault starts."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import click

from dpduck.commands.printing import say
from dpduck.server import Tls
from dpduck.server.audit import AuditFile
from dpduck.server.flight.listener import FlightListener
from dpduck.server.gate import Service, open_service
from dpduck.server.idle_vault import Keeping
from dpduck.server.limits import Limits, limit_memory
from dpduck.server.mcp.listener import AgentListener, agent_address
from dpduck.server.mcp.protocol import require_sdk
from dpduck.server.operations.alerts import Alerts
from dpduck.server.operations.figures import FigureReader
from dpduck.server.operations.metrics import MetricsListener, metrics_address
from dpduck.server.quack import QuackListener
from dpduck.server.web.identity import TrustedProxy, open_proxy
from dpduck.server.web.listener import WebListener, page_address
from dpduck.store.store_files import store_files
from dpduck.values.child_process import ChildProcess
from dpduck.values.errors import DpduckError, Refusal, StoreError

BESIDE = 6 * 2**30
"""Bytes that the server's process may have beyond its database: for messages, rows, and the stack of each connection's
thread. A stack counts with its full 8 MiB, even if it uses little memory."""

LOOKS = 10
"""Rounds of about a second between two checks for alerts."""

LAST_STATEMENTS, LAST_CONNECTIONS = 20.0, 10.0
"""Seconds for running releases, and then for connections, after the server is told to end."""


@dataclass(frozen=True)
class Proxied:
    """Options about a proxy that states identities: its header, its addresses, and the file with its secret."""

    header: str | None = None
    addresses: tuple[str, ...] = ()
    secret: Path | None = None


@dataclass(frozen=True)
class Listening:
    """Addresses of the listeners, None for no listener. in_the_clear: whether Quack may serve others without TLS.

    origin: the page's origin in browsers, if a proxy stands before it. title: the page's title. proxied: the proxy that
    states who a browser's user is. metrics: of the owner's figures. metrics_token: the file with the token for them.
    """

    quack: str | None
    flight: str | None
    web: str | None
    tls: Tls | None
    in_the_clear: bool
    origin: str | None
    title: str = ""
    proxied: Proxied = field(default_factory=Proxied)
    agents: str | None = None
    metrics: str | None = None
    metrics_token: Path | None = None


def listen(
    database: Path,
    store: Path | None,
    listening: Listening,
    limits: Limits,
    keeping: Keeping,
    audit: Path | None,
    idle: ChildProcess,
    ended: threading.Event,
    again: threading.Event,
) -> None:
    """Serves until `ended` is set. audit: path of the log, None for a log beside the store.

    idle: a process that opens the vault. again: set whenever the log has to go on in a new file.
    """
    path = audit or audit_path(database, store)
    log = AuditFile(path)
    quack = None
    if listening.quack is not None:
        quack = QuackListener(listening.quack, log, limits, listening.in_the_clear, listening.tls)
    _require_addresses(listening)
    try:
        prepare = None if quack is None else quack.prepare
        service = open_service(database, store, log, limits, prepare=prepare, keeping=keeping, idle=idle)
    except DpduckError:
        log.close()
        if ended.is_set():  # both processes were told to end while the vault started
            return
        raise
    limit_memory(limits.memory + BESIDE)
    closing: list[Callable[[], None]] = []
    try:
        sessions = {}
        if quack is not None and not ended.is_set():
            click.echo(quack.open(service.public, service.gate, service.book))
            closing.append(quack.close)
            sessions["quack"] = quack.sessions
        sessions |= _open_others(listening, service, limits, closing, ended)
        figures = FigureReader(service, store_files(database, store).store, sessions)
        _open_metrics(listening, figures, closing, ended)
        _say_what_is_served(service, path, "" if quack is None else quack.source)
        _keep_on(service, figures, ended, again)
    finally:
        _end(service, closing)


def _keep_on(service: Service, figures: FigureReader, ended: threading.Event, again: threading.Event) -> None:
    """Keeps the public database as the vault is, until `ended` is set. Alerts the owner now and then."""
    alerts, looks = Alerts(service.audit), 0
    while not ended.wait(1.0):
        if again.is_set():
            again.clear()
            service.audit.reopen()
        with suppress(DpduckError):  # the owner may drop tables meanwhile, as the next statement says
            service.gate.sync()
        if looks % LOOKS == 0:
            with suppress(DpduckError, OSError):
                alerts.look(figures.collect())
        looks += 1


def _open_metrics(
    listening: Listening, figures: FigureReader, closing: list[Callable[[], None]], ended: threading.Event
) -> None:
    """Starts the listener for the owner's figures. closing: receives the function that closes it."""
    if listening.metrics is not None and not ended.is_set():
        metrics = MetricsListener(listening.metrics, figures, listening.metrics_token)
        click.echo(metrics.address)
        closing.append(metrics.close)


def _open_others(
    listening: Listening,
    service: Service,
    limits: Limits,
    closing: list[Callable[[], None]],
    ended: threading.Event,
) -> dict[str, Callable[[], int]]:
    """Starts the listeners for Flight SQL, browsers and agents. closing: receives the function that closes each.

    Returns a function for each protocol that counts its sessions.
    """
    sessions = {}
    if listening.flight is not None and not ended.is_set():
        flight = FlightListener(listening.flight, service, limits, listening.tls)
        click.echo(flight.address)
        closing.append(flight.close)
    if listening.web is not None and not ended.is_set():
        origin, title = listening.origin, listening.title
        page = WebListener(listening.web, service, limits, listening.tls, origin, title, _proxy(listening))
        click.echo(page.address)
        if page.warning:
            click.echo(page.warning, err=True)
        closing.append(page.close)
        sessions["web"] = page.sessions
    if listening.agents is not None and not ended.is_set():
        agents = AgentListener(listening.agents, service, limits, listening.tls, listening.origin)
        click.echo(agents.address)
        if agents.warning:
            click.echo(agents.warning, err=True)
        closing.append(agents.close)
    return sessions


def _require_addresses(listening: Listening) -> None:
    if not (listening.quack or listening.flight or listening.web or listening.agents):
        accepted = "--listen quack:localhost:9494, --flight-sql, --web or --mcp"
        raise Refusal("there is nothing to listen on", accepted=accepted)
    if listening.web is not None:
        page_address(listening.web, listening.tls, listening.origin)
    if listening.agents is not None:
        require_sdk()
        agent_address(listening.agents, listening.tls, listening.origin)
    if listening.metrics is not None:
        metrics_address(listening.metrics)
    elif listening.metrics_token is not None:
        raise Refusal("a token for figures that nobody can ask for", accepted="--metrics beside it")
    if _proxy(listening) is not None and listening.web is None:
        raise Refusal("identities are stated to the page, and there is none", accepted="--web beside them")


def _proxy(listening: Listening) -> TrustedProxy | None:
    proxied = listening.proxied
    return open_proxy(proxied.header, proxied.addresses, proxied.secret)


def _say_what_is_served(service: Service, path: Path, source: str) -> None:
    """Prints who may ask, where the log is, and which views are left out. source: the line about Quack's extension."""
    names = [principal.name for principal in service.book.all()]
    shown = ", ".join(names) if names else "nobody yet: dpduck principal add DATABASE NAME prints a token"
    say(f"principals: {shown}")
    click.echo(f"audit log: {path}")
    if source:
        click.echo(source)
    for view in service.gate.left_out():
        say(f"left out, for want of memory: {view}")
    sys.stdout.flush()


def _end(service: Service, closing: list[Callable[[], None]]) -> None:
    """Ends running work in a limited time. The process ends with status 0, whatever clients do meanwhile."""
    idle = service.gate.end(LAST_STATEMENTS)
    threads = [threading.Thread(target=close, daemon=True) for close in closing]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LAST_CONNECTIONS)
    if idle and not any(thread.is_alive() for thread in threads):
        service.close()
        return
    # threads of connections still run in DuckDB, which cannot be closed meanwhile
    service.vault.close()
    service.audit.close()
    sys.stdout.flush()
    os._exit(0)


def audit_path(database: Path, store: Path | None) -> Path:
    """Returns the default path of the audit log, beside the store."""
    files = store_files(database, store)
    if files.store is None:
        raise StoreError("a store in memory is not served; accepted: a store in a file")
    return files.store.with_name(f"{files.store.stem}_audit.jsonl")
