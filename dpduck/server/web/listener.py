"""Listener of the page: a limited number of connections, with one request each. Slow clients lose their place.

If all places are taken, the connection that has kept the server waiting longest is closed. No connection is closed
while the server works on its request.
"""

from __future__ import annotations

import io
import re
import socket
import ssl
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import StreamRequestHandler
from typing import Any

from dpduck.server import LOOPBACK, Tls
from dpduck.server.gate import Service
from dpduck.server.limits import Limits
from dpduck.server.web.identity import TrustedProxy
from dpduck.server.web.pages import Pages
from dpduck.server.web.requests import (
    HEAD_BYTES,
    LOGIN_BYTES,
    REFUSED,
    Patient,
    Response,
    form_bytes,
    form_of,
    headers_of,
    is_gone,
    length_of,
    place_of,
    request_of,
)
from dpduck.values.errors import Refusal, StoreError

PORT = 8080
MOST_CONNECTIONS = 128
READ_SECONDS, WRITE_SECONDS = 15.0, 30.0
"""Seconds in which a request must arrive, and in which its answer must be read."""

_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+)(?::(?P<port>[0-9]{1,5}))?")
_OPEN = (
    "the page listens at {} without TLS: tokens travel in the clear from the proxy to here, so nobody else may use "
    "this network; accepted otherwise: --web 127.0.0.1:PORT, or --tls-certificate with --tls-key"
)
_EVERYWHERE = ("0.0.0.0", "[::]")  # noqa: S104 - to refuse it


class PageConnections:
    """Open connections, the longest waiting one first. Many threads may use it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._waiting: OrderedDict[socket.socket, threading.Event] = OrderedDict()
        self._working: set[socket.socket] = set()

    def enter(self, connection: socket.socket) -> bool:
        """Takes a place, if necessary from the longest waiting connection. Returns False if all of these work."""
        with self._lock:
            if len(self._waiting) + len(self._working) >= self._most:
                if not self._waiting:
                    return False
                longest, gone = self._waiting.popitem(last=False)
                _hang_up(longest)
                gone.set()
            self._waiting[connection] = threading.Event()
        return True

    def works(self, connection: socket.socket) -> None:
        """Records that a request has arrived. While the server works on it, the connection keeps its place."""
        with self._lock:
            if connection in self._waiting:
                del self._waiting[connection]
                self._working.add(connection)

    def waits(self, connection: socket.socket) -> None:
        """Records that the server waits for the browser again. A new connection may now take the place."""
        with self._lock:
            if connection in self._working:
                self._working.discard(connection)
                self._waiting[connection] = threading.Event()

    def pause(self, connection: socket.socket, seconds: float) -> None:
        self.waits(connection)
        with self._lock:
            gone = self._waiting.get(connection)
        if gone is not None:
            gone.wait(seconds)

    def leave(self, connection: socket.socket) -> None:
        with self._lock:
            self._waiting.pop(connection, None)
            self._working.discard(connection)


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # also for TLS: its own would disturb a reading thread


class PatientHandler(BaseHTTPRequestHandler):
    """One request of a connection, read within limits of time and bytes. A subclass answers it."""

    protocol_version, timeout = "HTTP/1.1", READ_SECONDS
    server: PatientServer

    def setup(self) -> None:
        StreamRequestHandler.setup(self)
        if isinstance(self.connection, ssl.SSLSocket):
            self.connection.do_handshake()
        self._patient = Patient(self.connection, READ_SECONDS, HEAD_BYTES)
        self.rfile = io.BufferedReader(self._patient)

    def handle(self) -> None:
        self.close_connection = True
        self.raw_requestline = self.rfile.readline(HEAD_BYTES)
        response = self.respond() if self.raw_requestline else None
        if response is None:
            return
        self.server.connections.waits(self.connection)
        self.connection.settimeout(WRITE_SECONDS)
        self.request_version = self.protocol_version  # HTTP/0.9 would get no headers
        self.send_response_only(response.status)
        for name, value in self.headers_for(response):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(response.body)

    def respond(self) -> Response:
        """Returns the response to a request, of which the first line was read."""
        raise NotImplementedError

    def headers_for(self, response: Response) -> list[tuple[str, str]]:
        """Lists all headers of a response."""
        raise NotImplementedError

    def reads_head(self) -> bool:
        """Reads the headers. Returns False for a request that is malformed, or of another version of HTTP."""
        return self.parse_request() and self.request_version in ("HTTP/1.1", "HTTP/1.0")

    def handle_expect_100(self) -> bool:
        return False

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Sends nothing, since REFUSED is sent afterwards."""

    def log_message(self, format: str, *arguments: Any) -> None:
        """Writes nothing, since the audit log has every event."""


class _Handler(PatientHandler):
    server: _PageServer

    def headers_for(self, response: Response) -> list[tuple[str, str]]:
        return headers_of(response, self.server.pages.place)

    def respond(self) -> Response:
        if not self.reads_head():
            return REFUSED
        pages, gone = self.server.pages, is_gone(self.connection)
        asked = request_of(self.command, self.path, self.headers, pages.place, pages.cookie, gone)
        if asked is None:
            return REFUSED
        if pages.proxy is not None:
            asked = replace(asked, claim=pages.proxy.claim(self.headers, str(self.client_address[0])))
        form: dict[str, str] | None = {}
        if asked.method == "POST":
            is_known = pages.knows(asked)
            length = length_of(self.headers, form_bytes(self.server.characters) if is_known else LOGIN_BYTES)
            if length is None:
                return REFUSED
            self._patient.allow(length)
            body = self.rfile.read(length)
            form = form_of(body) if len(body) == length else None  # a cut-off form is none
        if form is None:
            return REFUSED
        self.server.connections.works(self.connection)
        return pages.answer(
            replace(asked, form=form),
            lambda seconds: self.server.connections.pause(self.connection, seconds),
        )


class PatientServer(ThreadingHTTPServer):
    """Server with a limited number of connections, each with a thread and one request."""

    daemon_threads, block_on_close, request_queue_size = True, False, 128

    def __init__(
        self, host: str, port: int, handler: type[PatientHandler], most: int, tls: ssl.SSLContext | None = None
    ) -> None:
        """most: the largest number of connections."""
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._tls, self.connections = tls, PageConnections(most)
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        """Binds the address. The base class would also ask the network for this machine's name."""
        socket.socket.setsockopt(self.socket, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = self.socket.accept()
        if self._tls is None:
            return connection, address
        try:
            return self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address
        except OSError:  # it hung up meanwhile
            connection.close()
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.connections.enter(request):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.leave(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Writes nothing. A failed connection concerns its client alone."""


class _PageServer(PatientServer):
    def __init__(self, host: str, port: int, pages: Pages, characters: int, tls: ssl.SSLContext | None) -> None:
        self.pages, self.characters = pages, characters
        super().__init__(host, port, _Handler, MOST_CONNECTIONS, tls)


def page_address(address: str, tls: Tls | None, origin: str | None) -> tuple[str, int]:
    """Returns the host and port of an address. Refuses an address at which no page may be served."""
    parts = _ADDRESS.fullmatch(address)
    if parts is None or not int(parts["port"] or PORT) < 65536:
        raise Refusal(f"{address[:200]!r} is no address", accepted="127.0.0.1:8080")
    host, port = parts["host"].lower(), int(parts["port"] or PORT)
    if host not in LOOPBACK and tls is None and not (origin or "").startswith("https://"):
        raise Refusal(
            "tokens would travel in the clear",
            accepted="127.0.0.1, --tls-certificate with --tls-key, or behind a proxy --web-origin https://NAME",
        )
    if host in _EVERYWHERE and origin is None:
        raise Refusal(f"{host} is no name of a page", accepted="--web-origin https://NAME beside it")
    return host, port


class WebListener:
    """Listener of the page, in threads that it starts."""

    def __init__(
        self,
        address: str,
        service: Service,
        limits: Limits,
        tls: Tls | None = None,
        origin: str | None = None,
        title: str = "",
        proxy: TrustedProxy | None = None,
    ) -> None:
        """origin: the origin that browsers see, if a proxy with TLS stands before the page. title: the page's title.

        proxy: the proxy that may state who a browser's user is, None for no proxy.
        """
        host, port = page_address(address, tls, origin)
        place = place_of(host, port, tls is not None, origin)
        pages = Pages(service, limits, place, f"dpduck_{port}", title, proxy)
        try:
            self._server = _PageServer(host.strip("[]"), port, pages, limits.characters, _context(tls))
        except OSError:
            raise StoreError(
                f"{address} cannot be listened on; accepted: a free port, and files in PEM for TLS"
            ) from None
        self._pages = pages
        self.address = origin or f"{'http' if tls is None else 'https'}://{host}:{port}"
        self.warning = "" if tls is not None or host in LOOPBACK else _OPEN.format(f"{host}:{port}")
        threading.Thread(target=self._server.serve_forever, args=(0.2,), daemon=True).start()

    def sessions(self) -> int:
        """Counts the sessions of browsers."""
        return self._pages.sessions()

    def close(self) -> None:
        """Stops listening. Running work goes on until it is done, or until the process ends."""
        self._server.shutdown()
        self._server.server_close()
        self._pages.close()


def _context(tls: Tls | None) -> ssl.SSLContext | None:
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(tls.certificate, tls.key)
    return context
