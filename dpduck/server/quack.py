"""Quack listener: DuckDB's own protocol, for the stock shell and every DuckDB client.

Quack calls one function for every connection and one for every statement. The second returns the SQL that runs in place
of the statement. For a refusal, this SQL raises an error.
"""

from __future__ import annotations

import http.client
import re
import secrets
import threading
from contextlib import closing, suppress
from queue import SimpleQueue

import duckdb
from duckdb.func import SPECIAL
from duckdb.sqltypes import BOOLEAN, VARCHAR

from dpduck.database.macros import raising_sql
from dpduck.publish.extensions import CORE_ALONE, load_extension
from dpduck.server import LOOPBACK, Tls, is_taken
from dpduck.server.audit import Audit
from dpduck.server.gate import UNEXPECTED, Gate
from dpduck.server.limits import Limits
from dpduck.server.principals import PrincipalBook
from dpduck.server.public_database import PublicDatabase
from dpduck.server.sessions import Sessions
from dpduck.store.attaching import copying
from dpduck.values.errors import DpduckError, Refusal, StoreError
from dpduck.values.quoting import quote_text

AUTHENTICATE, AUTHORIZE = "dpduck_authenticate", "dpduck_authorize"
EXTENSIONS = ("httpfs", "quack")
OF_1_5 = duckdb.__version__.startswith("1.")
"""Whether Quack is that of DuckDB 1.5, which serves without TLS alone, and has a protocol of its own."""

PORT = 9494
_PATIENCE = 60.0
_BINARY = "application/octet-stream"
_ADDRESS = re.compile(r"quack:(?P<host>\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+)(?::(?P<port>[0-9]{1,5}))?")


_HEAD, _TAIL = b"\x01\x00\x0b\x02\x00\x20", b"\x03\x00" + b"\xff" * 9 + b"\x01" + b"\xff" * 4
"""Bytes around a connection's name in Quack's message that ends it, as DuckDB 1.5.5 clients send it on DETACH."""


def installing(version: str) -> str:
    """Returns how to get Quack for this version of DuckDB. Version 2.0 makes files that 1.5 cannot read."""
    is_old = version.startswith("1.")
    text = (
        f"python -c \"import duckdb; duckdb.execute('INSTALL httpfs; INSTALL quack{' FROM core_nightly' * is_old}')\", "
        "which downloads them, or pip install '.[server]' in dpduck's folder, which puts DuckDB 1.5.5 in the place of "
        "this one"
    )
    return text if is_old else f"{text}; that reads no file that {version} wrote: first {copying('clinic.duckdb')}"


class QuackListener:
    """Listener of one public database over Quack. `prepare` is called before its settings are locked, `open` after."""

    def __init__(
        self, address: str, audit: Audit, limits: Limits, in_the_clear: bool = False, tls: Tls | None = None
    ) -> None:
        """in_the_clear: whether clients on other machines may send tokens without TLS.

        tls: for clients on other machines, where DuckDB can serve it, which is 2.0 or newer.
        """
        parts = _ADDRESS.fullmatch(address)
        if parts is None:
            raise Refusal(f"{address[:200]!r} is no address", accepted="quack:localhost:9494")
        self.address = address
        self._at = parts["host"].strip("[]"), int(parts["port"] or PORT)
        self._local = parts["host"].lower() in LOOPBACK
        self._tls = None if self._local or OF_1_5 else tls
        self.source = ""
        if not self._local and not in_the_clear and self._tls is None:
            raise Refusal(
                "tokens would travel in the clear: Quack listens without TLS",
                accepted="quack:localhost:PORT behind a proxy that speaks TLS (docs/shell.md), or --in-the-clear",
            )
        self._audit = audit
        self._limits = limits
        self._sessions: Sessions | None = None
        self._forgotten: SimpleQueue[str | None] = SimpleQueue()
        self._gate: Gate | None = None
        self._public: PublicDatabase | None = None

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Loads the extension, and makes Quack call the gate for every connection and every statement.

        Sets `source`, a line that says which extension it is.
        """
        connection.execute(CORE_ALONE)
        places = {name: load_extension(connection, name, installing(duckdb.__version__)) for name in EXTENSIONS}
        self.source = f"Quack of DuckDB {duckdb.__version__}, from {places['quack']}"
        for name, function, arguments, result in (
            (AUTHENTICATE, self._authenticate, 3, BOOLEAN),
            (AUTHORIZE, self._authorize, 2, VARCHAR),
        ):
            connection.create_function(
                name, function, [VARCHAR] * arguments, result, side_effects=True, null_handling=SPECIAL
            )
        # names of three parts, since a client's macro, if one passed the gate, could take a name of two parts
        connection.execute(f"SET GLOBAL quack_authentication_function = 'system.main.{AUTHENTICATE}'")
        connection.execute(f"SET GLOBAL quack_authorization_function = 'system.main.{AUTHORIZE}'")

    def open(self, public: PublicDatabase, gate: Gate, book: PrincipalBook) -> str:
        """Listens, and returns the address. Quack's own token is random and forgotten, so that nobody can use it."""
        self._sessions = Sessions(book, self._limits, forgotten=self._forgotten.put)
        self._gate, self._public = gate, public
        if is_taken(*self._at):
            raise StoreError(f"{self.address} is listened on already; accepted: a free port of this machine")
        options = serving_options(self._local, self._tls)
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

    def sessions(self) -> int:
        """Counts the connections of clients."""
        return 0 if self._sessions is None else self._sessions.count()

    def close(self) -> None:
        self._forgotten.put(None)
        if self._public is not None:
            with self._public.cursor() as cursor:
                cursor.execute(f"CALL quack_stop({quote_text(self.address)})").fetchall()

    def _end_forgotten(self) -> None:
        """Ends forgotten connections with the message that clients send, since Quack has no function for this.

        Quack of DuckDB 2.0 has another message, so there they stay open. Their statements are refused.
        """
        while (session := self._forgotten.get()) is not None:
            if not OF_1_5:
                continue
            with suppress(OSError, http.client.HTTPException, ValueError):
                server = http.client.HTTPConnection(*self._at, timeout=_PATIENCE)
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
        """Returns SQL that runs in place of the statement, or None, which Quack takes as a refusal."""
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


def serving_options(is_local: bool, tls: Tls | None) -> str:
    """Returns the arguments of quack_serve that follow the address and the token.

    DuckDB 2.0 would make itself a certificate that no client can check, unless it gets one or is told to do without.
    """
    if is_local:
        return ""
    if tls is None:
        return ", allow_other_hostname := true, disable_ssl := true"
    files = f"ssl_cert_file := {quote_text(str(tls.certificate))}, ssl_key_file := {quote_text(str(tls.key))}"
    return f", allow_other_hostname := true, {files}"


def _stands_for_rows(text: str) -> bool:
    """Tells whether Quack wrote this text for a client that sends rows instead of a statement."""
    return text.startswith("INSERT INTO ") and text.endswith(" VALUES (NULL)")
