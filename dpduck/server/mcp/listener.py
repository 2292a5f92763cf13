"""Listener of agents: MCP over streamable HTTP, at /mcp. Each request has a principal's token, and none has a session.

Only a POST of one JSON object to /mcp, at the listener's own host, is read. Any other request gets a fixed answer. So
does a request with a token in its address, with several tokens, or from another origin. No answer quotes a request.

A connection has one request. Each principal has a number of connections, and so have all strangers together. Whoever
reads too slowly loses the connection, so nobody can take the places of others.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any

from dpduck.server import LOOPBACK, Tls
from dpduck.server.gate import Service
from dpduck.server.limits import Limits
from dpduck.server.mcp.protocol import agent_server, require_sdk
from dpduck.server.principals import Principal
from dpduck.server.web.listener import page_address
from dpduck.server.web.requests import PageHosts, place_of
from dpduck.values.errors import DpduckError, PermissionRefusal, StoreError

PORT = 8090
PATH = "/mcp"
MOST_CONNECTIONS, MOST_STRANGERS, CONNECTIONS_EACH, AT_WORK_EACH = 256, 64, 16, 8
"""Connections in all, of strangers, and of one principal, and requests of one principal at the same time."""

READ_SECONDS, WRITE_SECONDS = 15.0, 30.0
"""Seconds in which a request must arrive, and in which its answer must be read."""

WRONG_TOKEN_SECONDS, MOST_WRONG = 1.0, 32
"""Seconds that a wrong token waits, and the largest number that wait at the same time. More are answered at once."""

HEAD_BYTES, BESIDE_BYTES = 16_384, 65_536
"""Bytes of a request's headers, and of its body beside the statement."""

_BYTES_OF_A_CHARACTER = 12  # two escapes of JSON
_OPEN = (
    "agents are served at {} without TLS: tokens travel in the clear from the proxy to here, so nobody else may use "
    "this network; accepted otherwise: --mcp 127.0.0.1:PORT, or --tls-certificate with --tls-key"
)
_TOKEN = re.compile(rb"[Bb]earer ([A-Za-z0-9_.~+/=-]{1,200})")
PRINCIPAL, GONE, CONNECTION = "dpduck.principal", "dpduck.gone", "dpduck.connection"
"""Keys of a request: its principal with the token, whether its client has gone, and its connection."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class AgentGateway:
    """Reads requests of agents within limits, finds their principals, and hands them to the SDK."""

    def __init__(self, service: Service, limits: Limits, hosts: PageHosts) -> None:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager  # noqa: PLC0415

        self._service, self._hosts = service, hosts
        self._most = BESIDE_BYTES + _BYTES_OF_A_CHARACTER * limits.characters
        self._at_work, self._connections = Counter[str](), Counter[str]()
        self._wrong = 0
        server = agent_server(
            service, lambda context: principal_of(service, context), lambda context: context.request.scope[GONE]()
        )
        self.manager = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=self._most
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            return
        if scope["method"] in ("GET", "DELETE") and scope["raw_path"] == PATH.encode():
            await _send(send, 405)  # as MCP says of a server without streams and sessions
            return
        connection, token = scope["state"].pop(CONNECTION), token_of(scope, self._hosts)
        if token is None:
            await _send(send, 400)
            return
        connection.asks()
        principal = await asyncio.to_thread(self._authenticate, token)
        if connection.transport.is_closing():  # its client has gone
            return
        if principal is None:
            await self._wait(connection)
            await _send(send, 401)
            return
        name = principal.name
        if self._at_work[name] >= AT_WORK_EACH or self._connections[name] >= CONNECTIONS_EACH:
            await _send(send, 429)
            return
        self._connections[name] += 1
        connection.is_known(lambda: self._connections.subtract([name]))
        self._at_work[name] += 1
        try:
            await self._answer(scope, receive, send, principal, token)
        finally:
            self._at_work[name] -= 1

    def _authenticate(self, token: str) -> Principal | None:
        with suppress(DpduckError):
            principal = self._service.book.authenticate(token)
            if principal is not None:
                return principal
            self._service.audit.note(None, "turned away", why="no such token")
        return None

    async def _wait(self, connection: Any) -> None:
        """Waits with a wrong token, unless many others do."""
        connection.is_wrong()
        if self._wrong < MOST_WRONG:
            self._wrong += 1
            try:
                await asyncio.sleep(WRONG_TOKEN_SECONDS)
            finally:
                self._wrong -= 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send, principal: Principal, token: str) -> None:
        body = await read_body(receive, self._most)
        if body is None or not is_message(body):
            await _send(send, 400)
            return
        messages, gone = [{"type": "http.request", "body": body, "more_body": False}], threading.Event()

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()

        async def replay() -> MutableMapping[str, Any]:
            if messages:
                return messages.pop()
            await asyncio.wait([watching])
            return {"type": "http.disconnect"}

        async def send_safely(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *_ALWAYS]}
            await send(message)

        watching = asyncio.create_task(watch())
        try:
            known = {PRINCIPAL: (principal.name, token), GONE: gone.is_set}
            await self.manager.handle_request({**scope, **known}, replay, send_safely)
        finally:
            watching.cancel()


def principal_of(service: Service, context: Any) -> Principal:
    """Returns the principal of a call, by the token of its request. Raises PermissionRefusal if it has ended."""
    name, token = context.request.scope[PRINCIPAL]
    principal = service.book.authenticate(token)
    if principal is None or principal.name != name:
        raise PermissionRefusal("this token was revoked, or has ended", accepted="a token that is in force")
    return principal


def token_of(scope: Mapping[str, Any], hosts: PageHosts) -> str | None:
    """Returns the token of a request, or None if the request is not one for agents at this address."""
    headers: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name, []).append(value)
    host, kinds = headers.get(b"host", []), headers.get(b"content-type", [])
    names = [value.decode("latin-1").lower() for value in host]
    origins = [value.decode("latin-1").lower() for value in headers.get(b"origin", [])]
    tokens = [_TOKEN.fullmatch(value) for value in headers.get(b"authorization", [])]
    fits = (
        sum(len(name) + len(value) for name, value in scope["headers"]) <= HEAD_BYTES
        and scope["method"] == "POST"
        and scope["http_version"] in ("1.1", "1.0")
        and scope["raw_path"] == PATH.encode()
        and not scope["query_string"]
        and len(names) == 1
        and names[0] in hosts.hosts
        and origins in ([], [hosts.origin(names[0])])
        and len(kinds) == 1
        and kinds[0].partition(b";")[0].strip().lower() == b"application/json"
        and b"cookie" not in headers
        and b"transfer-encoding" not in headers
        and len(tokens) == 1
    )
    return tokens[0][1].decode("ascii") if fits and tokens[0] is not None else None


async def read_body(receive: Receive, most: int) -> bytes | None:
    """Returns the body of a request, or None if it is too large, comes too slowly, or is cut off."""
    body = bytearray()
    try:
        async with asyncio.timeout(READ_SECONDS):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                body += message.get("body", b"")
                if len(body) > most:
                    return None
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        return None


def is_message(body: bytes) -> bool:
    """Tells whether a body is one JSON object. Several in a list are none, and neither is deep nesting.

    >>> is_message(b'{"jsonrpc": "2.0"}'), is_message(b"[" * 100_000), is_message(b"[{}]")
    (True, False, False)
    """
    try:
        return isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        return False


_ALWAYS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"), (b"connection", b"close"))
_SAID = {
    400: b"This is no request for agents.",
    401: b"No such token.",
    405: b"POST alone.",
    429: b"Too many requests at once.",
}


async def _send(send: Send, status: int) -> None:
    """Sends one of the fixed answers."""
    body = _SAID[status]
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode()), *_ALWAYS]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 405:
        headers.append((b"allow", b"POST"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def agent_address(address: str, tls: Tls | None, origin: str | None) -> tuple[str, int]:
    """Returns the host and port of an address. Refuses an address at which no agent may be served, as of the page."""
    written = address if re.search(r":[0-9]+$", address) else f"{address}:{PORT}"
    return page_address(written, tls, origin)


class _Strangers:
    """Connections of strangers: of whoever has shown no token that is in force.

    If there are too many, those with a wrong token end first, then the oldest ones that have sent no request.
    """

    def __init__(self, door: _Door) -> None:
        """door: the socket that the connections come from."""
        self._door = door
        self._open: OrderedDict[int, Any] = OrderedDict()

    def enter(self, connection: Any) -> None:
        """Takes a connection, and ends another one if there are too many."""
        self._door.let_in(connection.transport)
        if len(self._open) >= MOST_STRANGERS:
            self._open.popitem(last=False)[1].transport.abort()
        self._open[id(connection)] = connection

    def move(self, connection: Any, *, last: bool) -> None:
        """Lets a connection end after all others, or before them."""
        if id(connection) in self._open:
            self._open.move_to_end(id(connection), last=last)

    def leave(self, connection: Any) -> None:
        """Gives a connection up, which has ended or is no stranger's any more."""
        self._open.pop(id(connection), None)


def _patient_protocol(door: _Door) -> Any:
    """Returns uvicorn's protocol with deadlines, and with a limited number of connections of strangers."""
    from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: PLC0415

    strangers = _Strangers(door)

    class PatientProtocol(H11Protocol):
        """Connection with one request, which must begin in time. Its answer must be read in time."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._left: Callable[[], None] | None = None
            self._examining: asyncio.Task[Any] | None = None
            self.app_state = {**self.app_state, CONNECTION: self}
            strangers.enter(self)
            self._deadline = self.loop.call_later(READ_SECONDS, self._end)

        def asks(self) -> None:
            """Records that a request has arrived, which this task examines. It ends with the connection."""
            self._examining = asyncio.current_task()
            strangers.move(self, last=True)

        def is_wrong(self) -> None:
            """Records that the token is wrong."""
            strangers.move(self, last=False)

        def is_known(self, left: Callable[[], None]) -> None:
            """Records that the token is in force. left: called when the connection ends."""
            strangers.leave(self)
            self._examining, self._left = None, left

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._deadline = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            self._deadline.cancel()
            strangers.leave(self)
            super().connection_lost(exc)
            if self._examining is not None:
                self._examining.cancel()
            if self._left is not None:
                self._left()

        def _end(self) -> None:
            if self.cycle is None:
                self.transport.abort()

    return PatientProtocol


class _Door(socket.socket):
    """Listening socket. With TLS, connections before the end of their handshake have places here, as strangers have.

    asyncio makes a protocol only after the handshake, so nothing else counts them. Of too many, the oldest one ends.
    """

    def __init__(self, family: int) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._waiting: OrderedDict[int, socket.socket] = OrderedDict()

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        self._waiting.pop(connection.fileno(), None)  # of a connection that has ended
        if len(self._waiting) >= MOST_STRANGERS:
            with suppress(OSError):
                self._waiting.popitem(last=False)[1].shutdown(socket.SHUT_RDWR)
        self._waiting[connection.fileno()] = connection
        return connection, address

    def let_in(self, transport: Any) -> None:
        """Gives up the place of a connection that has its protocol now."""
        self._waiting.pop(transport.get_extra_info("socket").fileno(), None)


def _listen(host: str, port: int) -> _Door:
    """Returns a socket that takes connections, as soon as the server accepts them."""
    listening = _Door(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), port))
        listening.listen(MOST_CONNECTIONS)
    except OSError:
        listening.close()
        raise
    return listening


class AgentListener:
    """Listener of agents, in a thread that it starts."""

    def __init__(
        self, address: str, service: Service, limits: Limits, tls: Tls | None = None, origin: str | None = None
    ) -> None:
        """origin: the origin that clients see, if a proxy with TLS stands before it."""
        require_sdk()
        import uvicorn  # noqa: PLC0415

        host, port = agent_address(address, tls, origin)
        try:
            self._socket = _listen(host, port)
            port = self._socket.getsockname()[1]
            gateway = AgentGateway(service, limits, place_of(host, port, tls is not None, origin))
            config = uvicorn.Config(
                gateway, http=_patient_protocol(self._socket), ws="none", lifespan="off", log_config=None,
                access_log=False, limit_concurrency=MOST_CONNECTIONS, timeout_keep_alive=int(READ_SECONDS),
                server_header=False, date_header=False, proxy_headers=False, h11_max_incomplete_event_size=HEAD_BYTES,
                ssl_certfile=None if tls is None else str(tls.certificate),
                ssl_keyfile=None if tls is None else str(tls.key),
                timeout_graceful_shutdown=1,
            )  # fmt: skip
            config.load()
        except OSError:
            raise StoreError(
                f"{address} cannot be listened on; accepted: a free port, and files in PEM for TLS"
            ) from None
        self._server, self._gateway = uvicorn.Server(config), gateway
        seen = origin or f"{'http' if tls is None else 'https'}://{host}:{port}"
        self.address = f"{seen}{PATH}"
        self.warning = "" if tls is not None or host in LOOPBACK else _OPEN.format(f"{host}:{port}")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        async def run() -> None:
            async with self._gateway.manager.run():
                await self._server.serve(sockets=[self._socket])

        asyncio.run(run())

    def close(self) -> None:
        """Stops listening. Running work goes on until it is done, or until the process ends."""
        self._server.should_exit = True
        self._thread.join()
