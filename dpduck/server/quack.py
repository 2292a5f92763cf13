"""The Quack listener: DuckDB's own protocol, for the stock shell and every DuckDB client.

Quack asks one function for every connection and one for every statement. The second may answer with a
text, which runs in place of the statement: that is how the gate's SQL reaches the client, and its refusals too. Where
a client sends rows, not a statement, any text would be a permission: there the answer is NULL.
"""

from __future__ import annotations

import http.client
import re
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import closing, suppress
from queue import SimpleQueue

import duckdb
from duckdb.func import SPECIAL
from duckdb.sqltypes import BOOLEAN, VARCHAR

from dpduck.engine.functions import raising_sql
from dpduck.frontend.text.names import quote_text
from dpduck.publish.postgres import load_extension
from dpduck.server.gate import UNEXPECTED, Gate
from dpduck.server.limits import Limits
from dpduck.server.principals import Audit, Principal, PrincipalBook
from dpduck.server.public_database import PublicDatabase
from dpduck.values.errors import DpduckError, PermissionRefusal, Refusal, StoreError

AUTHENTICATE, AUTHORIZE = "dpduck_authenticate", "dpduck_authorize"
EXTENSIONS = ("httpfs", "quack")
INSTALL = (
    "pip install '.[server]' in dpduck's folder, which puts DuckDB 1.5.5 in the place of this one: "
    "what a newer one wrote is then not read"
)
PORT = 9494
LOCAL = ("localhost", "127.0.0.1", "[::1]", "::1")
_MINUTE = 60.0
_BINARY = "application/octet-stream"
_ADDRESS = re.compile(r"quack:(?P<host>\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+)(?::(?P<port>[0-9]{1,5}))?")


_HEAD, _TAIL = b"\x01\x00\x0b\x02\x00\x20", b"\x03\x00" + b"\xff" * 9 + b"\x01" + b"\xff" * 4
"""Around a connection's name in Quack's message that ends it, as clients of DuckDB 1.5.5 send it on DETACH."""


class QuackSessions:
    """Whose connection is whose; of too many a principal's own go first, the longest unused before others.

    Quack keeps a connection until its client ends it, which one that is killed never does: so those that are forgotten
    here are ended, and each principal may open so many in a minute.
    """

    def __init__(
        self,
        book: PrincipalBook,
        limits: Limits,
        *,
        clock: Callable[[], float] = time.monotonic,
        forgotten: Callable[[str], None] = lambda session: None,
    ) -> None:
        """forgotten: told of every connection that is not known any longer."""
        self._book, self._limits, self._clock, self._forgotten = book, limits, clock, forgotten
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._own: dict[str, OrderedDict[str, None]] = {}
        self._opened: dict[str, deque[float]] = {}

    def begin(self, session: str, token: str) -> Principal | None:
        """Notes a connection if the token is somebody's; Refusal where that principal opens too many."""
        principal = self._book.authenticate(token)
        if principal is None:
            return None
        with self._lock:
            self._require_few(principal.name)
            own = self._own.setdefault(principal.name, OrderedDict())
            self._known[session] = (principal.name, principal.token_hash)
            own[session] = None
            while len(own) > self._limits.sessions_each:
                oldest, _ = own.popitem(last=False)
                self._known.pop(oldest, None)
                self._forgotten(oldest)
            while len(self._known) > self._limits.sessions:
                oldest, (name, _) = self._known.popitem(last=False)
                self._own[name].pop(oldest, None)
                self._forgotten(oldest)
        return principal

    def _require_few(self, name: str) -> None:
        now, opened = self._clock(), self._opened.setdefault(name, deque())
        while opened and now - opened[0] >= _MINUTE:
            opened.popleft()
        if len(opened) >= self._limits.connections:
            raise Refusal(f"{name} opens too many connections", accepted=f"{self._limits.connections} in a minute")
        opened.append(now)

    def principal(self, session: str) -> Principal:
        """Finds the principal of a connection, as long as its token is in force."""
        with self._lock:
            known = self._known.get(session)
            if known is not None:
                self._known.move_to_end(session)
                self._own[known[0]].move_to_end(session)
        if known is None:
            raise PermissionRefusal("this connection is not known any longer", accepted="ATTACH again")
        principal = self._book.named(known[0])
        if principal.token_hash != known[1]:
            raise PermissionRefusal("this token was revoked", accepted="a token that is in force")
        return principal


class QuackListener:
    """Serves one public database over Quack. prepare is called before it is locked, open afterwards."""

    def __init__(self, address: str, audit: Audit, limits: Limits, in_the_clear: bool = False) -> None:
        """in_the_clear: whether tokens may travel beyond this machine without TLS."""
        parts = _ADDRESS.fullmatch(address)
        if parts is None:
            raise Refusal(f"{address[:200]!r} is no address", accepted="quack:localhost:9494")
        self.address = address
        self._at = parts["host"].strip("[]"), int(parts["port"] or PORT)
        self._local = parts["host"].lower() in LOCAL
        if not self._local and not in_the_clear:
            raise Refusal(
                "tokens would travel in the clear: Quack listens without TLS",
                accepted="quack:localhost:PORT behind a proxy that speaks TLS (docs/shell.md), or --in-the-clear",
            )
        self._audit = audit
        self._limits = limits
        self._sessions: QuackSessions | None = None
        self._forgotten: SimpleQueue[str | None] = SimpleQueue()
        self._gate: Gate | None = None
        self._public: PublicDatabase | None = None

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Loads the extension and puts the gate before every connection and every statement."""
        for name in EXTENSIONS:
            load_extension(connection, name, INSTALL)
        for name, function, arguments, result in (
            (AUTHENTICATE, self._authenticate, 3, BOOLEAN),
            (AUTHORIZE, self._authorize, 2, VARCHAR),
        ):
            connection.create_function(
                name, function, [VARCHAR] * arguments, result, side_effects=True, null_handling=SPECIAL
            )
        # in full: a name of two parts could be shadowed by a macro of a client that got past the gate
        connection.execute(f"SET GLOBAL quack_authentication_function = 'system.main.{AUTHENTICATE}'")
        connection.execute(f"SET GLOBAL quack_authorization_function = 'system.main.{AUTHORIZE}'")

    def open(self, public: PublicDatabase, gate: Gate, book: PrincipalBook) -> str:
        """Listens; returns the address. The server's own token is drawn and forgotten: nobody may use it."""
        self._sessions = QuackSessions(book, self._limits, forgotten=self._forgotten.put)
        self._gate, self._public = gate, public
        options = "" if self._local else ", allow_other_hostname := true, disable_ssl := true"
        with public.cursor() as cursor:
            token = quote_text(secrets.token_hex(32))
            try:
                cursor.execute(f"CALL quack_serve({quote_text(self.address)}, token := {token}{options})").fetchall()
            except duckdb.Error:
                raise StoreError(
                    f"{self.address} cannot be listened on; accepted: a free port of this machine"
                ) from None
        threading.Thread(target=self._end_forgotten, daemon=True).start()
        return self.address

    def close(self) -> None:
        """Listens no longer; statements at work are finished."""
        self._forgotten.put(None)
        if self._public is not None:
            with self._public.cursor() as cursor:
                cursor.execute(f"CALL quack_stop({quote_text(self.address)})").fetchall()

    def _end_forgotten(self) -> None:
        """Ends connections by the message of their clients: Quack has no function for it."""
        while (session := self._forgotten.get()) is not None:
            with suppress(OSError, http.client.HTTPException, ValueError):
                server = http.client.HTTPConnection(*self._at, timeout=_MINUTE)
                with closing(server):
                    server.request("POST", "/quack", _HEAD + session.encode("ascii") + _TAIL, {"Content-Type": _BINARY})
                    server.getresponse().read()

    def _authenticate(self, session: str | None, token: str | None, _server: str | None) -> bool:
        try:
            if session is None or token is None or self._sessions is None:
                return False
            try:
                principal = self._sessions.begin(session, token)
            except Refusal as refusal:
                self._audit.note(None, "turned away", why=str(refusal))
                return False
            if principal is None:
                self._audit.note(None, "turned away", why="no such token")
                return False
            self._audit.note(principal.name, "connected")
        except Exception:
            return False
        return True

    def _authorize(self, session: str | None, text: str | None) -> str | None:
        """Returns SQL that runs in the statement's place; NULL, which Quack takes for a no, where nothing may run."""
        try:
            if session is None or text is None or self._sessions is None or self._gate is None:
                return None
            if _stands_for_rows(text):
                self._audit.note(None, "refused", text, why="rows are not taken")
                return None
            return self._gate.admit(self._sessions.principal(session), text)
        except DpduckError as error:
            return raising_sql(str(error))
        except Exception:
            return raising_sql(UNEXPECTED)


def _stands_for_rows(text: str) -> bool:
    """Recognises what Quack writes in place of the rows that a client wants to insert, whatever the table is called."""
    return text.startswith("INSERT INTO ") and text.endswith(" VALUES (NULL)")
