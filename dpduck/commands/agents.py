"""dpduck mcp: one agent over this process's input and output. Each command makes its imports when it runs."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TextIO

import click

from dpduck.commands import DATABASE, STORE
from dpduck.commands.errors import one_line_errors
from dpduck.store.store_files import store_files
from dpduck.values.errors import DpduckError, Refusal

if TYPE_CHECKING:
    from dpduck.server.gate import Service

SERVED = "a server has this store open, and one process at a time can"
BY_ADDRESS = "dpduck serve .. --mcp, and the address that it prints with the token, in place of this command"


@click.command(name="mcp")
@DATABASE
@STORE
@click.option("--principal", required=True, help="As whom the agent asks: a name of dpduck principal list.")
@click.option("--audit", type=click.Path(dir_okay=False, path_type=Path), help="The audit log, if not beside STORE.")
def mcp(database: Path, store: Path | None, principal: str, audit: Path | None) -> None:
    """Let an agent ask over MCP, on this process's input and output, until its input ends.

    The agent's program starts this command. Set a ceiling first: dpduck principal limit DATABASE NAME --a-day 1%
    """
    with one_line_errors():
        from dpduck.server.mcp.protocol import require_sdk, serve_streams  # noqa: PLC0415

        require_sdk()
        _require_not_served(database, store)
        wire = _claim_wire()  # before any other process starts
        service = _open_service(database, store, audit)
        try:
            _require_principal(service, principal)
        except BaseException:
            service.close()
            raise
        ended = threading.Event()
        _end_on_signals(service, ended)
        threading.Thread(target=_sync, args=(service, ended), daemon=True).start()
        status = 1
        try:
            serve_streams(service, principal, *wire)
            status = 0
        except Exception as error:  # its text could quote data
            from dpduck.server.audit import kind_of  # noqa: PLC0415

            click.echo(f"Error: the connection of the agent failed: {kind_of(error)}; accepted: a new start", err=True)
        finally:
            _end(service, ended, status)


def _require_principal(service: Service, name: str) -> None:
    """Refuses a name that may not ask. The owner reads the message, so it lists the names that may."""
    principals = service.book.all()
    names = [entry.name for entry in principals if entry.in_force()]
    if name not in names:
        ended = any(entry.name == name for entry in principals)
        what = f"the token of {name!r} has ended" if ended else f"there is no principal {name[:80]!r}"
        raise Refusal(what, accepted=", ".join(names) or "dpduck principal add")


def _claim_wire() -> tuple[TextIO, TextIO]:
    """Returns the input and the output. From then on no other code here and no child process reads or writes them."""
    given, written = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return os.fdopen(given, encoding="utf-8", errors="replace"), os.fdopen(written, "w", encoding="utf-8")


def _require_not_served(database: Path, store: Path | None) -> None:
    from dpduck.server.owner import owner_of_server  # noqa: PLC0415

    served = owner_of_server(store_files(database, store))
    if served is not None:
        served.close()
        raise Refusal(SERVED, accepted=BY_ADDRESS)


def _open_service(database: Path, store: Path | None, audit: Path | None) -> Service:
    from dpduck.commands.listening import BESIDE, audit_path  # noqa: PLC0415
    from dpduck.commands.serving import DEFAULT, most_memory  # noqa: PLC0415
    from dpduck.server.audit import AuditFile  # noqa: PLC0415
    from dpduck.server.gate import open_service  # noqa: PLC0415
    from dpduck.server.idle_vault import Keeping  # noqa: PLC0415
    from dpduck.server.limits import limit_memory  # noqa: PLC0415

    log = AuditFile(audit or audit_path(database, store))
    try:
        service = open_service(database, store, log, DEFAULT, keeping=Keeping(memory=most_memory()))
    except BaseException:
        log.close()
        raise
    limit_memory(DEFAULT.memory + BESIDE)
    return service


def _sync(service: Service, ended: threading.Event) -> None:
    """Reads new private views every second, as every server does."""
    while not ended.wait(1.0):
        with suppress(DpduckError):
            service.gate.sync()


def _end_on_signals(service: Service, ended: threading.Event) -> None:
    """Ends the process on SIGTERM and Ctrl-C, after the releases at work."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        threading.Thread(target=_end, args=(service, ended)).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


def _end(service: Service, ended: threading.Event, status: int = 0) -> None:
    """Ends the process, once, after the releases at work. The thread that reads the input may wait for ever."""
    if ended.is_set():
        threading.Event().wait()
    ended.set()
    from dpduck.commands.listening import LAST_STATEMENTS  # noqa: PLC0415

    try:
        service.gate.end(LAST_STATEMENTS)
        service.vault.close()
        service.audit.close()
        sys.stderr.flush()
    finally:
        os._exit(status)
