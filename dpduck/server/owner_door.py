"""Owner's access to a running vault: a socket beside the store that only the owner's account can open.

The vault's process listens, not the public one, since dpduck's commands may do all that the owner may.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from dpduck.database.macros import UNEXPECTED
from dpduck.server.runner_process import Message, create_table, pack, unpack
from dpduck.server.vault import ReleasedRows
from dpduck.server.vault_messages import create_view_table, rows_from, rows_message
from dpduck.values.errors import DpduckError, StoreError
from dpduck.values.quoting import quote_identifier

if TYPE_CHECKING:
    from dpduck.server.local_vault import LocalVault

_AT_ONCE, _LONGEST_QUESTION = 8, 2**24
GONE = "the server ended meanwhile; dp_ledger() shows what stays charged; accepted: the same again"


class ServerGone(StoreError):
    """Error of a server that ended while the owner asked it."""


class OwnerDoor:
    """Listener for the owner's commands. It may be closed at any time."""

    def __init__(self, vault: LocalVault, path: Path) -> None:
        self._vault, self._path = vault, path
        self._places = threading.BoundedSemaphore(_AT_ONCE)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # a killed server left it, since only this server has the store open
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            self._listener.bind(str(path))
        finally:
            os.umask(before)
        self._listener.listen()
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not _same_account(client) or not self._places.acquire(blocking=False):
                client.close()
                continue
            threading.Thread(target=self._serve, args=(Connection(client.detach()),), daemon=True).start()

    def _serve(self, pipe: Connection) -> None:
        try:
            with suppress(EOFError, OSError, ValueError), pipe:
                while True:
                    message, _ = unpack(pipe.recv_bytes(_LONGEST_QUESTION))
                    pipe.send_bytes(self._answer(message))
        finally:
            self._places.release()

    def _answer(self, message: Message) -> bytes:
        operations: dict[str, Callable[..., Any]] = {
            "call": self._vault.owner,
            "verify": self._vault.verify,
            "views": self._vault.views,
            "view": self._vault.view_with_entry,
            "releases": self._vault.view_records,
            "certificates": self._vault.certificates,
        }
        try:
            result = operations[message["do"]](*message["with"])
        except DpduckError as error:
            return pack({"error": str(error)})
        except Exception:  # its text could quote data
            return pack({"error": UNEXPECTED})
        if isinstance(result, ReleasedRows):
            return pack(rows_message(result), result.table)
        return pack({"value": result})


def _same_account(client: socket.socket) -> bool:
    """Tells whether the client is the same user, or root. True if the system cannot tell, since the file is private."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return user in (os.getuid(), 0)


class Owner:
    """Owner's end of a connection to a running vault."""

    def __init__(self, client: socket.socket) -> None:
        self._pipe = Connection(client.detach())

    def close(self) -> None:
        self._pipe.close()

    def call(self, action: str, argument: str | None) -> ReleasedRows:
        return rows_from(*self._ask("call", action, argument))

    def write_table(self, connection: duckdb.DuckDBPyConnection, name: str, action: str, argument: str | None) -> None:
        rows = self.call(action, argument)
        create_table(connection, name, list(rows.columns), rows.table)

    def verify(self) -> int:
        return int(self._ask("verify")[0]["value"])

    def certificates(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Returns the verified ledger's entries, and the certificates of their releases."""
        entries, certificates = self._ask("certificates")[0]["value"]
        return entries, certificates

    def views(self) -> dict[str, str]:
        """Returns the mark of each private view. A mark changes with the rows."""
        return dict(self._ask("views")[0]["value"])

    def view(self, name: str) -> ReleasedRows:
        """Returns a private view with its comments. name: as views() has it."""
        return rows_from(*self._ask("view", name))

    def store(self) -> duckdb.DuckDBPyConnection:
        """Returns a connection to a database `store` in memory, with copies of the private views and their records."""
        connection = duckdb.connect(":memory:")
        connection.execute("ATTACH ':memory:' AS store")
        connection.execute("CREATE SCHEMA store.dpduck")
        records = rows_from(*self._ask("releases"))
        create_table(connection, "store.dpduck.releases", list(records.columns), records.table)
        for name in self.views():
            create_view_table(connection, f"store.main.{quote_identifier(name)}", self.view(name))
        return connection

    def _ask(self, operation: str, *given: Any) -> tuple[Message, Any]:
        try:
            self._pipe.send_bytes(pack({"do": operation, "with": given}))
            message, table = unpack(self._pipe.recv_bytes())
        except (EOFError, OSError):
            raise ServerGone(GONE) from None
        if "error" in message:
            raise StoreError(str(message["error"]))
        return message, table
