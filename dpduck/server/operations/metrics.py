"""Figures of a server in the text form of Prometheus, over a listener that only this machine reaches.

`/metrics` has the figures, and `/health` one word: status 200 if a statement could be answered now, otherwise 503.
Neither has a row, a statement or a principal's name. Both are for the owner, apart from the page of analysts.
"""

from __future__ import annotations

import hmac
import re
import threading
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path

from dpduck.server import LOOPBACK
from dpduck.server.operations.figures import FigureReader, Figures
from dpduck.server.operations.secret_file import read_secret
from dpduck.server.web.listener import PatientHandler, PatientServer
from dpduck.server.web.requests import REFUSED, Response, place_of
from dpduck.values.errors import Refusal, StoreError

PORT = 9464
MOST_CONNECTIONS = 16
KIND = "text/plain; version=0.0.4; charset=utf-8"
EVENTS = ("asked", "answered", "charged", "refused", "warned", "alert", "connected", "disconnected", "turned away")
"""Events of the audit log that have a line from the start, so that a rate can be taken of the first one."""

OTHER_HOSTS = "figures are for the owner on this machine alone"
_ADDRESS = re.compile(r"(?P<host>\[::1\]|[A-Za-z0-9.-]+)(?::(?P<port>[0-9]{1,5}))?")
_WELL = Response(HTTPStatus.OK, b"ready\n", "text/plain; charset=utf-8")
_STARTING = Response(HTTPStatus.SERVICE_UNAVAILABLE, b"not ready\n", "text/plain; charset=utf-8")
_NO_TOKEN = Response(
    HTTPStatus.UNAUTHORIZED, b"", "text/plain; charset=utf-8", (("WWW-Authenticate", 'Bearer realm="dpduck"'),)
)


def metrics_text(figures: Figures, version: str) -> str:
    """Returns figures in the text form of Prometheus, version 0.0.4."""
    events = {name: figures.events.get(name, 0) for name in EVENTS} | dict(figures.events)
    families = (
        _family("info", "gauge", "Version of dpduck.", "version", {version: 1}),
        _family("ready", "gauge", "1 if a statement could be answered now.", None, {"": int(figures.ready)}),
        _family("uptime_seconds", "gauge", "Seconds since the server started.", None, {"": round(figures.seconds, 3)}),
        _family("budget_spent_ratio", "gauge", "Share of a budget that all principals spent together.", "unit",
                figures.spending),
        _family("events_total", "counter", "Lines for the audit log by kind.", "event", events),
        _family("statements_running", "gauge", "Statements of clients that run.", None, {"": figures.running}),
        _family("questions_waiting", "gauge", "Questions that the vault has not answered.", None,
                {"": figures.waiting}),
        _family("vault_restarts_total", "counter", "Restarts of the vault.", None, {"": figures.restarts}),
        _family("sessions", "gauge", "Open connections of clients.", "protocol", figures.sessions),
        _family("private_views", "gauge", "Private views that clients can read.", None, {"": figures.views}),
        _family("views_left_out", "gauge", "Private views without room.", None, {"": figures.left_out}),
        _family("principals", "gauge", "Principals with a token in force.", None, {"": figures.principals}),
        _family("store_free_bytes", "gauge", "Bytes free on the disk of the store.", None,
                {} if figures.free_bytes is None else {"": figures.free_bytes}),
    )  # fmt: skip
    return "".join(f"{line}\n" for family in families for line in family)


def _family(name: str, kind: str, about: str, label: str | None, values: Mapping[str, float]) -> Iterator[str]:
    """Yields the lines of one figure. label: the name of the label by which its values differ, None for one value."""
    yield f"# HELP dpduck_{name} {about}"
    yield f"# TYPE dpduck_{name} {kind}"
    for value_of, value in values.items():
        labels = "" if label is None else f'{{{label}="{escape_label(value_of)}"}}'
        yield f"dpduck_{name}{labels} {value}"


def escape_label(text: str) -> str:
    r"""Escapes the value of a label. A name of a table may have quotes and line ends.

    >>> print(escape_label('a"b\\c\nd'))
    a\"b\\c\nd
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", " ")


class _FiguresHandler(PatientHandler):
    server: _MetricsServer

    def headers_for(self, response: Response) -> list[tuple[str, str]]:
        return [
            ("Content-Type", response.kind),
            ("Content-Length", str(len(response.body))),
            ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
            *response.headers,
        ]

    def respond(self) -> Response:
        if not self.reads_head() or not self._is_wanted():
            return REFUSED
        self.server.connections.works(self.connection)
        if self.path == "/health":
            return _WELL if self.server.figures.ready() else _STARTING
        if not self.server.has_token(self.headers.get_all("Authorization") or []):
            return _NO_TOKEN
        figures = self.server.figures
        return Response(HTTPStatus.OK, metrics_text(figures.collect(), figures.version).encode(), KIND)

    def _is_wanted(self) -> bool:
        """Tells whether a request is a plain GET, names this machine as its host, and is from no page of a browser."""
        hosts = self.headers.get_all("Host") or []
        bodies = ("Content-Length", "Transfer-Encoding", "Origin", "Sec-Fetch-Site")
        return (
            self.command == "GET"
            and self.path in ("/health", "/metrics")
            and len(hosts) == 1
            and hosts[0].lower() in self.server.hosts
            and not self.headers.defects
            and not self.headers.get_payload()
            and not any(name in self.headers for name in bodies)
        )


class _MetricsServer(PatientServer):
    def __init__(self, host: str, port: int, figures: FigureReader, token: bytes | None) -> None:
        self.figures, self._token = figures, token
        self.hosts = place_of("localhost", port, False, None).hosts
        super().__init__(host, port, _FiguresHandler, MOST_CONNECTIONS)

    def has_token(self, given: list[str]) -> bool:
        """Tells whether a request may see the figures: if no token is wanted, or if its header has the token."""
        if self._token is None:
            return True
        stated = given[0].encode("latin-1", "replace") if len(given) == 1 else b""
        return hmac.compare_digest(stated, b"Bearer " + self._token)


def metrics_address(address: str) -> tuple[str, int]:
    """Returns the host and the port of an address of this machine. Refuses any other address."""
    parts = _ADDRESS.fullmatch(address)
    if parts is None or not 0 < int(parts["port"] or PORT) < 65536:
        raise Refusal(f"{address[:200]!r} is no address", accepted=f"127.0.0.1:{PORT}")
    if parts["host"].lower() not in LOOPBACK:
        raise Refusal(OTHER_HOSTS, accepted=f"127.0.0.1:{PORT}, and a collector on this machine")
    return parts["host"].lower(), int(parts["port"] or PORT)


class MetricsListener:
    """Listener of the owner's figures, in threads that it starts."""

    def __init__(self, address: str, figures: FigureReader, token: Path | None = None) -> None:
        """token: the file with the token that /metrics wants, None if every account of this machine may see it."""
        host, port = metrics_address(address)
        secret = None if token is None else read_secret(token)
        try:
            self._server = _MetricsServer(host.strip("[]"), port, figures, secret)
        except OSError:
            raise StoreError(f"{address} cannot be listened on; accepted: a free port of this machine") from None
        self.address = f"http://{host}:{port}/metrics"
        threading.Thread(target=self._server.serve_forever, args=(0.2,), daemon=True).start()

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
