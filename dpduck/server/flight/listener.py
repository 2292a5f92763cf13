"""Arrow Flight SQL listener, for ADBC and other drivers: the same principals, gate and limits as over Quack.

GetSchema and CreatePreparedStatement never charge. GetFlightInfo and DoGet run a statement, which may charge.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import flight

from dpduck.server import LOOPBACK, Tls, is_taken
from dpduck.server.flight.catalog import catalog_table
from dpduck.server.flight.statements import Message, Statements, read_any, write_any
from dpduck.server.gate import UNEXPECTED, Service
from dpduck.server.limits import Limits
from dpduck.server.principals import Principal
from dpduck.values.errors import DpduckError, PermissionRefusal, Refusal, StoreError

PRINCIPAL = "dpduck"
_ADDRESS = re.compile(r"(?:grpc(?:\+tcp|\+tls)?://)?(?P<host>\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):(?P<port>[0-9]{1,5})")
_NO_TOKEN = "no such token; accepted: user name and token, or the header 'authorization: Bearer TOKEN'"  # noqa: S105
_UPDATES = "CommandStatementUpdate", "CommandPreparedStatementUpdate", "CommandStatementIngest"
_ACTIONS = {
    "CreatePreparedStatement": "the columns of a statement, without running it",
    "ClosePreparedStatement": "forget a statement",
}
Method = TypeVar("Method", bound=Callable[..., Any])


class _Handshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Handshake of drivers that exchange a password for a token. The middleware checks both, this handler neither."""

    def authenticate(self, outgoing: object, incoming: object) -> None: ...

    def is_valid(self, token: object) -> str:
        return ""


class _Caller(flight.ServerMiddleware):  # type: ignore[misc]
    """Caller of a method. After a handshake, the client gets its token back, and sends it with further calls."""

    def __init__(self, principal: Principal, token: str, handshake: bool) -> None:
        self.principal = principal
        self._token = token
        self._handshake = handshake

    def sending_headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._token}"} if self._handshake else {}


class _Callers(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Authenticates the caller of every call, so that a revocation has effect at once."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> _Caller:
        handshake = info.method == flight.FlightMethod.HANDSHAKE
        try:
            given = headers.get("authorization", [])
            name, token = _credentials(given[0] if len(given) == 1 else "")
            principal = self._service.book.authenticate(token) if token else None
            if principal is not None and name not in ("", "token", principal.name):
                principal = None
            if principal is None or handshake:
                event = "turned away" if principal is None else "connected"
                why = "no such token" if principal is None else ""
                self._service.audit.note(None if principal is None else principal.name, event, why=why)
        except Exception:
            raise flight.FlightInternalError(UNEXPECTED) from None
        if principal is None:
            raise flight.FlightUnauthenticatedError(_NO_TOKEN)
        return _Caller(principal, token, handshake)


def _credentials(header: str) -> tuple[str, str]:
    """Returns the user name and the token of a header. A missing part is empty.

    >>> _credentials("Bearer abc"), _credentials("Basic YWxpY2U6YWJj")
    (('', 'abc'), ('alice', 'abc'))
    """
    kind, _, value = header.partition(" ")
    if kind.lower() == "bearer":
        return "", value.strip()
    if kind.lower() != "basic":
        return "", ""
    try:
        written = value.strip().rstrip("=")  # drivers written in Go leave the padding out
        name, _, token = base64.b64decode(written + "=" * (-len(written) % 4), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return name, token


def _flight_errors(method: Method) -> Method:
    """Turns errors into Flight errors of one line, since pyarrow would send other errors with their traceback."""

    @functools.wraps(method)
    def wrapper(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except DpduckError as error:
            raise as_flight_error(error) from None
        except Exception:  # its text could quote data that is not the caller's
            raise flight.FlightInternalError(UNEXPECTED) from None

    return wrapper  # type: ignore[return-value]


def as_flight_error(error: DpduckError) -> Exception:
    """Returns a Flight error with the same message."""
    kind = flight.FlightUnauthorizedError if isinstance(error, PermissionRefusal) else flight.FlightServerError
    flight_error: Exception = kind(str(error))
    return flight_error


class _FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, service: Service, statements: Statements, location: str, tls: Tls | None) -> None:
        certificates = [] if tls is None else [(tls.certificate.read_bytes(), tls.key.read_bytes())]
        super().__init__(
            location,
            auth_handler=_Handshake(),
            tls_certificates=certificates,
            middleware={PRINCIPAL: _Callers(service)},
        )
        self._service = service
        self._statements = statements

    @_flight_errors
    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        command = _command(descriptor)
        text = self._statements.text_of(command)
        if text is not None:
            handle, schema = self._statements.run(_principal(context), text, context.is_cancelled)
            ticket = write_any("TicketStatementQuery", {1: handle})
        else:
            schema, ticket = self._catalog(_principal(context), command).schema, bytes(descriptor.command)
        return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(ticket, [])], -1, -1)

    @_flight_errors
    def get_schema(self, context: Any, descriptor: Any) -> Any:
        command = _command(descriptor)
        text = self._statements.text_of(command)
        principal = _principal(context)
        if text is None:
            return flight.SchemaResult(self._catalog(principal, command).schema)
        schema = self._statements.columns(principal, text)
        return flight.SchemaResult(schema)

    @_flight_errors
    def do_get(self, context: Any, ticket: Any) -> Any:
        command = read_any(ticket.ticket)
        if command.name == "TicketStatementQuery":
            schema, batches = self._statements.stream(_principal(context), command.raw(1) or b"", context.is_cancelled)
            return flight.GeneratorStream(schema, _careful(batches))
        text = self._statements.text_of(command)
        if text is not None:
            handle, _ = self._statements.run(_principal(context), text, context.is_cancelled)
            schema, batches = self._statements.stream(_principal(context), handle)
            return flight.GeneratorStream(schema, _careful(batches))
        return flight.RecordBatchStream(self._catalog(_principal(context), command))

    @_flight_errors
    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        command = _command(descriptor)
        if command.name in _UPDATES:
            raise PermissionRefusal("writing is refused", accepted="SELECT, and FROM dp('..') as a query")
        raise Refusal("parameters of prepared statements are not taken", accepted="values in the statement's text")

    @_flight_errors
    def do_action(self, context: Any, action: Any) -> Any:
        if action.type not in _ACTIONS:
            raise PermissionRefusal(f"the action {action.type[:80]!r} is refused", accepted=", ".join(_ACTIONS))
        request = read_any(action.body.to_pybytes() if action.body is not None else b"")
        if action.type == "ClosePreparedStatement":
            return iter(())
        text = request.text(1) or ""
        schema = self._statements.columns(_principal(context), text)
        fields = {1: text.encode(), 2: bytes(schema.serialize()), 3: bytes(pa.schema([]).serialize())}
        return iter([flight.Result(write_any("ActionCreatePreparedStatementResult", fields))])

    @_flight_errors
    def list_actions(self, context: Any) -> Any:
        return list(_ACTIONS.items())

    @_flight_errors
    def list_flights(self, context: Any, criteria: Any) -> Any:
        return iter(())

    @_flight_errors
    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        raise PermissionRefusal("DoExchange is refused", accepted="GetFlightInfo and DoGet")

    def _catalog(self, principal: Principal, command: Message) -> pa.Table:
        private = functools.partial(self._statements.private_tables, principal)
        table = catalog_table(command, self._service.public, private)
        if table is None:
            raise Refusal(f"the command {command.name[:80]!r} is not known", accepted="queries and catalog commands")
        return table


def _command(descriptor: Any) -> Message:
    if descriptor.descriptor_type != flight.DescriptorType.CMD:
        raise Refusal("flights have no paths here", accepted="commands of Arrow Flight SQL")
    return read_any(bytes(descriptor.command))


def _principal(context: Any) -> Principal:
    caller = context.get_middleware(PRINCIPAL)
    if caller is None:
        raise PermissionRefusal("there is no token", accepted="a token that is in force")
    principal: Principal = caller.principal
    return principal


def _careful(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except DpduckError as error:
        raise as_flight_error(error) from None
    except Exception:
        raise flight.FlightInternalError(UNEXPECTED) from None


class FlightListener:
    """Listener of one database over Arrow Flight SQL. pyarrow's serve() would take the signals, and is not needed."""

    def __init__(self, address: str, service: Service, limits: Limits, tls: Tls | None = None) -> None:
        parts = _ADDRESS.fullmatch(address)
        if parts is None or not int(parts["port"]) < 65536:
            raise Refusal(f"{address[:200]!r} is no address", accepted="localhost:32010")
        if parts["host"].lower() not in LOOPBACK and tls is None:
            raise Refusal("tokens would travel in the clear", accepted="localhost, or --tls-certificate with --tls-key")
        scheme = "grpc+tcp" if tls is None else "grpc+tls"
        if is_taken(parts["host"], int(parts["port"])):
            raise StoreError(f"{address} is listened on already; accepted: a free port")
        try:
            self._server = _FlightServer(
                service, Statements(service, limits), f"{scheme}://{parts['host']}:{parts['port']}", tls
            )
        except (OSError, pa.ArrowException):
            raise StoreError(
                f"{address} cannot be listened on; accepted: a free port, and files in PEM for TLS"
            ) from None
        self.address = f"{scheme}://{parts['host']}:{self._server.port}"

    def close(self) -> None:
        self._server.shutdown()
