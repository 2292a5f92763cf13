"""dpduck serve: private answers for others, over Quack, Arrow Flight SQL, and as a page for browsers."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import click

from dpduck.commands import DATABASE, STORE
from dpduck.commands.errors import one_line_errors
from dpduck.server import Tls
from dpduck.server.idle_vault import Keeping, begin_idle_vault
from dpduck.server.limits import FLOOR, SECONDS, SWITCH_SECONDS, Limits, Quota, parse_size
from dpduck.values.errors import Refusal

DEFAULT, QUOTA = Limits(), Quota()
FILE = click.Path(dir_okay=False, exists=True, path_type=Path)
BESIDE_VAULT = 8 << 30
"""Bytes of this machine's memory that are not for the vault. On small machines it is half of the memory."""


@click.command()
@DATABASE
@STORE
@click.option(
    "--listen",
    "address",
    default="quack:localhost:9494",
    show_default=True,
    help="Where to listen for DuckDB clients; or: none.",
)
@click.option(
    "--flight-sql",
    is_flag=False,
    flag_value="localhost:32010",
    help="Arrow Flight SQL too, at localhost:32010 or ADDRESS.",
)
@click.option("--web", is_flag=False, flag_value="127.0.0.1:8080", help="A page too, at 127.0.0.1:8080 or ADDRESS.")
@click.option("--mcp", is_flag=False, flag_value="127.0.0.1:8090", help="Agents too, at 127.0.0.1:8090 or ADDRESS.")
@click.option("--web-origin", help="How browsers see it behind a proxy that speaks TLS: https://NAME.")
@click.option("--identity-header", help="Behind a proxy that logs people in: its header with who it is.")
@click.option("--identity-from", multiple=True, help="The proxy's address, as 127.0.0.1/32; several times.")
@click.option("--identity-secret", type=FILE, help="The secret that the proxy sends as X-Dpduck-Proxy-Secret.")
@click.option("--web-title", default="", help="What the page is about and whose it is: everybody sees it at log-in.")
@click.option(
    "--tls-certificate", type=FILE, help="Of Flight SQL, the page, and Quack of DuckDB 2.0: the certificate in PEM."
)
@click.option("--metrics", is_flag=False, flag_value="127.0.0.1:9464", help="/metrics and /health for the owner.")
@click.option("--metrics-token", type=FILE, help="A file with the token that /metrics wants.")
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
    database: Path, store: Path | None, address: str, flight_sql: str | None, web: str | None, mcp: str | None,
    web_origin: str | None, identity_header: str | None, identity_from: tuple[str, ...], identity_secret: Path | None,
    web_title: str, metrics: str | None, metrics_token: Path | None,
    tls_certificate: Path | None, tls_key: Path | None, in_the_clear: bool, audit: Path | None, seconds: float,
    rows: int, characters: int, at_once: int, views: int, releases: int, released_rows: int, floor: float,
    memory: str, vault_memory: str | None, prepare: bool, engine: tuple[str, ...],
) -> None:  # fmt: skip
    """Serve DATABASE's private answers to the principals of its store, until the process is told to end."""
    ended, again = threading.Event(), threading.Event()
    _on_signals(ended, again)
    sys.setswitchinterval(SWITCH_SECONDS)
    with one_line_errors():
        tls = _tls(tls_certificate, tls_key)
        limits = Limits(
            seconds=seconds, rows=rows, characters=characters, running_each=at_once, views_each=views,
            memory=parse_size(memory),
        )  # fmt: skip
        own = parse_size(vault_memory) if vault_memory else most_memory()
        keeping = Keeping(Quota(releases, released_rows), floor, own, min(seconds, SECONDS), engine)
        idle = begin_idle_vault()
        try:  # the vault's process makes its imports meanwhile
            from dpduck.commands.listening import Listening, Proxied, listen  # noqa: PLC0415

            if prepare:
                _prepare(database, store)
            quack = None if address == "none" else address
            proxy = Proxied(identity_header, identity_from, identity_secret)
            listening = Listening(
                quack, flight_sql, web, tls, in_the_clear, web_origin, web_title, proxy, mcp, metrics, metrics_token
            )
            listen(database, store, listening, limits, keeping, audit, idle, ended, again)
        finally:
            idle.kill()


def _on_signals(ended: threading.Event, again: threading.Event) -> None:
    """Makes SIGTERM and Ctrl-C end the server, and SIGHUP continue the audit log in a new file."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        ended.set()

    def reopen(_signal: int, _frame: FrameType | None) -> None:
        again.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    signal.signal(signal.SIGHUP, reopen)


def most_memory() -> int:
    """Returns how many bytes of memory a vault may use."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(total // 2, total - BESIDE_VAULT)


def _prepare(database: Path, store: Path | None) -> None:
    """Prepares the tables that are not prepared. No other step counts rows in the server's process."""
    from dpduck.commands.preparing import prepare_tables  # noqa: PLC0415

    for line in prepare_tables(database, store, (), read_only=True):
        click.echo(line)


def _tls(certificate: Path | None, key: Path | None) -> Tls | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise Refusal("TLS needs a certificate and its key", accepted="--tls-certificate and --tls-key")
    return Tls(certificate, key)
