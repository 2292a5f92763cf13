"""The secrets file beside the store: keys and state that must never be attached, served or published.

It is a small SQLite file. Only its owner can read it, from the moment it exists. Every change is synchronised to disk.
It holds the store's identity, the ledger's position, the key of the ledger's hash chain, and the key of the hash that
orders a unit's rows. Other modules put secret values of their own into it by name (tokens, sessions). Each call opens
its own connection and closes it, so any thread may call.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol

from dpduck.values.errors import StoreError

STORE_ID, CHAIN_KEY, BOUNDING_KEY = "store_id", "chain_key", "bounding_key"
Steps = Callable[[str], None]


def no_step(_name: str) -> None:
    """Does nothing. It is the default hook, which tests replace by a crash."""


class Secrets(Protocol):
    """Named secret values."""

    def get(self, name: str) -> bytes | None: ...

    def save(self, name: str, value: bytes) -> None: ...

    def replace(self, name: str, expected: bytes | None, value: bytes) -> bool:
        """Stores the value on disk if the present value is `expected` (None: absent). Returns whether it was stored."""
        ...


def first_values() -> dict[str, bytes]:
    """Draws the secrets of a new store from the operating system's entropy."""
    return {
        STORE_ID: secrets.token_hex(16).encode(),
        CHAIN_KEY: secrets.token_bytes(32),
        BOUNDING_KEY: secrets.token_bytes(32),
    }


def require_secret(secrets: Secrets, name: str) -> bytes:
    """Returns a value that every store has. Raises StoreError if it is missing."""
    value = secrets.get(name)
    if value is None:
        raise StoreError("the secrets file is not complete; accepted: the file that was made with the store")
    return value


_WHY = {
    "SQLITE_FULL": "the disk is full",
    "SQLITE_IOERR_WRITE": "the disk does not take what is written",
    "SQLITE_READONLY": "it is read-only",
    "SQLITE_READONLY_DIRECTORY": "its directory is read-only",
    "SQLITE_CANTOPEN": "it, or its journal beside it, cannot be opened for writing",
    "SQLITE_NOTADB": "it is no secrets file",
    "SQLITE_BUSY": "another process holds it",
}
"""Reasons for a message, by SQLite's names of errors. No reason quotes the content of the file."""


class SecretsInMemory:
    """The secrets of a store in memory. They end with the process, as the store does."""

    def __init__(self) -> None:
        self._values = first_values()
        self._lock = threading.Lock()

    def get(self, name: str) -> bytes | None:
        return self._values.get(name)

    def save(self, name: str, value: bytes) -> None:
        with self._lock:
            self._values[name] = value

    def replace(self, name: str, expected: bytes | None, value: bytes) -> bool:
        with self._lock:
            if self._values.get(name) != expected:
                return False
            self._values[name] = value
            return True


class SecretsFile:
    """The secrets of a store on disk."""

    def __init__(self, path: Path, *, steps: Steps = no_step) -> None:
        self._path = path
        self._steps = steps

    @classmethod
    def open(cls, path: Path, *, create: bool, steps: Steps = no_step) -> SecretsFile:
        """Opens the file. create: whether to make it, or to finish one that a crash left half-made."""
        if create:
            _create_private(path)
        elif not path.exists():
            raise StoreError(
                "the secrets file of this store is missing; accepted: the file <name>_secrets beside the store"
            )
        if path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
            raise StoreError("the secrets file can be read or written by others; accepted: chmod 600")
        file = cls(path, steps=steps)
        if create:
            file._fill()
        return file

    def get(self, name: str) -> bytes | None:
        with self._connection() as connection:
            row = connection.execute("SELECT value FROM secrets WHERE name = ?", [name]).fetchone()
        return None if row is None else bytes(row[0])

    def save(self, name: str, value: bytes) -> None:
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO secrets VALUES (?, ?)", [name, value])

    def replace(self, name: str, expected: bytes | None, value: bytes) -> bool:
        with self._transaction() as connection:
            row = connection.execute("SELECT value FROM secrets WHERE name = ?", [name]).fetchone()
            if (None if row is None else bytes(row[0])) != expected:
                return False
            self._steps("secrets begun")
            connection.execute("INSERT OR REPLACE INTO secrets VALUES (?, ?)", [name, value])
            self._steps("secrets written")
            return True

    def _fill(self) -> None:
        with self._transaction() as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
            )
            connection.executemany("INSERT OR IGNORE INTO secrets VALUES (?, ?)", first_values().items())

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Yields a connection. A commit returns when file and directory are on disk (synchronous = EXTRA)."""
        try:
            uri = f"{self._path.absolute().as_uri()}?mode=rw"  # never creates: creation sets the permissions
            with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=300)) as connection:
                connection.execute("PRAGMA synchronous = EXTRA")
                yield connection
        except sqlite3.Error as error:
            why = _WHY.get(getattr(error, "sqlite_errorname", ""), type(error).__name__)
            raise StoreError(
                f"the secrets file could not be used ({why}); nothing is answered; "
                "accepted: the file as it was last written, writable by this user, on a disk with room"
            ) from None


def _create_private(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    except FileExistsError:
        return
    except OSError as error:
        raise StoreError(
            f"the secrets file could not be made beside the store ({type(error).__name__}); "
            "accepted: a directory that this user can write to"
        ) from None
    os.close(descriptor)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Writes a directory's own entries to disk, so that a new or renamed file in it survives a crash."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
