"""The public database's side of the pipe to the vault's process; starts it, and starts it again where it ended.

Beside it is the owner's door to a vault that serves: a socket in the file system that only the owner's account can
open.

The vault's process listens, not the public one: what comes in here may do everything that the owner may. Clients are
dpduck's own commands, which find the door beside the store and use it instead of the files that the vault has open.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from dpduck.database.attached import StoreFiles
from dpduck.database.cursors import Ceiling
from dpduck.engine.functions import UNEXPECTED
from dpduck.frontend.text.names import quote_identifier, quote_text
from dpduck.server.limits import FLOOR, Quota
from dpduck.server.runner_process import Message, create_table, packed, unpacked
from dpduck.server.vault import SECONDS, LocalVault, ReleasedRows, Reply
from dpduck.trusted.ledger.copies import state_directory
from dpduck.values.errors import DpduckError, Refusal, StoreError

ENDED = "the vault's process ended; accepted: the same statement again, which pays once at most"
_PATIENCE = 60.0
_LAST_RELEASES = 45.0

Answer = tuple[Message, pa.Table | None]


@dataclass(frozen=True)
class Keeping:
    """What the vault's process keeps to. floor: seconds before which no new answer is given. memory: bytes; 0 for all.
    seconds: of a SELECT around released answers. engines: that are attached, as name=address.

    The process may have that much beside what it begins with: the operating system refuses it more.
    """

    quota: Quota = field(default_factory=Quota)
    floor: float = FLOOR
    memory: int = 0
    seconds: float = SECONDS
    engines: tuple[str, ...] = ()


class _Ended(StoreError):
    """The process ended while it was asked."""


class VaultProcess:
    """A vault in a process of its own; safe to use from many threads."""

    def __init__(self, database: Path, store: Path | None = None, keeping: Keeping | None = None) -> None:
        self._arguments = [str(database), "" if store is None else str(store), json.dumps(asdict(keeping or Keeping()))]
        self._lock, self._again = threading.Lock(), threading.Lock()
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[Answer]]
        self._ended: threading.Event
        self._closing = False
        self._pipe, self._process = self._started()

    def ask(
        self, principal: str, action: str, argument: str | None, seconds: float, ceiling: Ceiling | None = None
    ) -> Reply:
        """Asks, and waits so long; the release goes on where that is not enough.

        A question at work in a process that ends is asked once again, which pays once at most. Those are asked one by
        one: the one that ended the process ends it for itself alone.
        """
        given = principal, action, argument, seconds, ceiling
        try:
            try:
                return reply_from(self._call("ask", *given, patience=seconds)[0])
            except _Ended:
                with self._again:
                    return reply_from(self._call("ask", *given, patience=seconds)[0])
        except NotYet:
            raise Refusal(
                f"the release takes longer than {seconds:g} s and goes on", accepted="the same statement again: no cost"
            ) from None

    def rows(self, principal: str, key: str, most: int, most_bytes: int) -> ReleasedRows:
        return rows_from(*self._call("rows", principal, key, most, most_bytes))

    def views(self) -> dict[str, str]:
        return dict(self._call("views")[0]["views"])

    def view(self, name: str) -> ReleasedRows:
        return rows_from(*self._call("view", name))

    @property
    def process_id(self) -> int:
        """Returns the id of the vault's process, for tests that kill it."""
        return self._process.pid

    def close(self) -> None:
        """Ends the process once its releases at work are finished."""
        self._closing = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # closing alone would not wake the thread that reads
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_RELEASES)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._socket.close()

    def _call(self, operation: str, *given: Any, patience: float = _PATIENCE) -> Answer:
        number, future = next(self._numbers), Future[Answer]()
        data = packed({"id": number, "do": operation, "with": given})
        with self._lock:
            if self._closing:
                raise StoreError(ENDED)
            if self._ended.is_set() or self._process.poll() is not None:
                self._process.kill()  # one that hung up may still be on its way out
                self._process.wait()
                self._socket.close()
                self._pipe, self._process = self._started()
            waiting = self._waiting
            waiting[number] = future
            try:
                self._pipe.send_bytes(data)
            except OSError:
                self._ended.set()
                del waiting[number]
                raise _Ended(ENDED) from None
        try:
            message, table = future.result(patience)
        except NotYet:
            if operation == "ask":
                raise
            raise StoreError(ENDED) from None
        finally:
            with self._lock:
                waiting.pop(number, None)
        if "error" in message:
            raise StoreError(str(message["error"]))
        return message, table

    def _started(self) -> tuple[Connection, subprocess.Popen[bytes]]:
        self._socket, theirs = socket.socketpair()
        ours = Connection(os.dup(self._socket.fileno()))
        command = [sys.executable, "-m", "dpduck.server.vault_process", str(theirs.fileno()), *self._arguments]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),))  # noqa: S603
        theirs.close()
        try:
            message, _ = unpacked(ours.recv_bytes())
        except (EOFError, OSError):
            process.wait()
            raise StoreError(
                "the vault's process could not start; accepted: a database that this user can read"
            ) from None
        if "failed" in message:
            process.wait()
            ours.close()
            raise StoreError(str(message["failed"]))
        # Each process has its own: the thread that sees the old one end must not end what the new one was asked.
        self._waiting, self._ended = {}, threading.Event()
        threading.Thread(target=self._listen, args=(ours, self._waiting, self._ended), daemon=True).start()
        return ours, process

    def _listen(self, pipe: Connection, waiting: dict[int, Future[Answer]], ended: threading.Event) -> None:
        """Gives every answer to who waits for it; when the process ends, everybody is told."""
        while True:
            try:
                message, table = unpacked(pipe.recv_bytes())
            except (EOFError, OSError):
                pipe.close()
                break
            with self._lock:
                future = waiting.pop(int(message["id"]), None)
            if future is not None:
                future.set_result((message, table))
        ended.set()
        with self._lock:
            left = list(waiting.values())
            waiting.clear()
        for future in left:
            future.set_exception(_Ended(ENDED))


# What messages between the public database and the vault say; how they are written: see runner_process. None is ever
# run.


def rows_message(rows: ReleasedRows) -> Message:
    """Returns all of released rows but its table."""
    return {"columns": rows.columns, "comment": rows.comment, "comments": rows.comments}


def rows_from(message: Message, table: pa.Table | None) -> ReleasedRows:
    """Reads rows from what rows_message and its table were."""
    columns = tuple((str(name), str(kind)) for name, kind in message["columns"])
    return ReleasedRows(columns, table, message["comment"], tuple(message["comments"]))


def reply_from(message: Message) -> Reply:
    """Returns a Reply from its fields."""
    return Reply(message["key"], message["charged"], message["refused"])


LONGEST = 100
"""Bytes that the name of a socket may have, on every system."""

_AT_ONCE, _LONGEST_QUESTION = 8, 2**24


def door_path(files: StoreFiles) -> Path | None:
    """Returns the path of a store's door: beside it, or in the state directory (long names); None in memory."""
    if files.store is None:
        return None
    store = files.store.resolve()
    beside = store.with_name(f"{store.stem}_owner")
    if len(os.fsencode(beside)) <= LONGEST:
        return beside
    state = state_directory(os.environ)
    name = hashlib.sha256(os.fsencode(store)).hexdigest()[:16]
    return None if state is None else state / f"{name}_owner"


class OwnerDoor:
    """Listens for the owner; safe to close at any time."""

    def __init__(self, vault: LocalVault, path: Path) -> None:
        self._vault, self._path = vault, path
        self._places = threading.BoundedSemaphore(_AT_ONCE)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # of a server that was killed: this one has the store
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            self._listener.bind(str(path))
        finally:
            os.umask(before)
        self._listener.listen()
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        """Listens no longer."""
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
                    message, _ = unpacked(pipe.recv_bytes(_LONGEST_QUESTION))
                    pipe.send_bytes(self._answered(message))
        finally:
            self._places.release()

    def _answered(self, message: Message) -> bytes:
        operations: dict[str, Callable[..., Any]] = {
            "call": self._vault.owner,
            "verify": self._vault.verify,
            "views": self._vault.views,
            "view": self._vault.view_with_entry,
            "releases": self._vault.view_records,
        }
        try:
            found = operations[message["do"]](*message["with"])
        except DpduckError as error:
            return packed({"error": str(error)})
        except Exception:  # whatever it says could quote data
            return packed({"error": UNEXPECTED})
        if isinstance(found, ReleasedRows):
            return packed(rows_message(found), found.table)
        return packed({"value": found})


def _same_account(client: socket.socket) -> bool:
    """Tells whether the other end is the same user of this machine, or root; the file's mode decides where nobody can
    say.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    found = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", found)
    return user in (os.getuid(), 0)


class Owner:
    """What the owner asks of a vault that serves."""

    def __init__(self, client: socket.socket) -> None:
        self._pipe = Connection(client.detach())

    def close(self) -> None:
        self._pipe.close()

    def call(self, action: str, argument: str | None) -> ReleasedRows:
        """Returns the answer to a dp function, as the owner."""
        return rows_from(*self._asked("call", action, argument))

    def verify(self) -> int:
        """Reads the whole ledger again; how many entries it has."""
        return int(self._asked("verify")[0]["value"])

    def store(self) -> duckdb.DuckDBPyConnection:
        """Returns a connection with a copy of the private views, and of what is known about them, attached as
        `store`.
        """
        connection = duckdb.connect(":memory:")
        connection.execute("ATTACH ':memory:' AS store")
        connection.execute("CREATE SCHEMA store.dpduck")
        records = rows_from(*self._asked("releases"))
        create_table(connection, "store.dpduck.releases", list(records.columns), records.table)
        for name in self._asked("views")[0]["value"]:
            _copy(connection, name, rows_from(*self._asked("view", name)))
        return connection

    def _asked(self, operation: str, *given: Any) -> tuple[Message, Any]:
        try:
            self._pipe.send_bytes(packed({"do": operation, "with": given}))
            message, table = unpacked(self._pipe.recv_bytes())
        except (EOFError, OSError):
            raise StoreError("the server ended meanwhile; accepted: the same command again") from None
        if "error" in message:
            raise StoreError(str(message["error"]))
        return message, table


def owner_of_server(files: StoreFiles) -> Owner | None:
    """Returns the door of the server that serves a store; None where nobody serves it."""
    path = door_path(files)
    if path is None or not path.is_socket():
        return None
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.connect(str(path))
    except OSError:
        client.close()
        return None
    return Owner(client)


def _copy(connection: duckdb.DuckDBPyConnection, name: str, rows: ReleasedRows) -> None:
    table = f"store.main.{quote_identifier(name)}"
    create_table(connection, table, list(rows.columns), rows.table)
    if rows.comment:
        connection.execute(f"COMMENT ON TABLE {table} IS {quote_text(rows.comment)}")
    for (column, _), comment in zip(rows.columns, rows.comments, strict=False):
        if comment:
            connection.execute(f"COMMENT ON COLUMN {table}.{quote_identifier(column)} IS {quote_text(comment)}")
