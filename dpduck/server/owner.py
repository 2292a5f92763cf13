"""Finds the socket on which a server of a store listens for the owner. It lies beside the store (see owner_door)."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from dpduck.kernel.ledger.witness import state_directory
from dpduck.store.store_files import SERVED, WHEN_ENDED, StoreFiles
from dpduck.values.errors import Refusal

if TYPE_CHECKING:
    from dpduck.server.owner_door import Owner

LONGEST = 100
"""The largest number of bytes of a socket's name that every system accepts."""


def door_path(files: StoreFiles) -> Path | None:
    """Returns the path of a store's socket: beside the store, or in the state directory if that path is too long."""
    if files.store is None:
        return None
    store = files.store.resolve()
    beside = store.with_name(f"{store.stem}_owner")
    if len(os.fsencode(beside)) <= LONGEST:
        return beside
    state = state_directory(os.environ)
    name = hashlib.sha256(os.fsencode(store)).hexdigest()[:16]
    return None if state is None else state / f"{name}_owner"


def owner_of_server(files: StoreFiles) -> Owner | None:
    """Connects to the server that serves a store, as the owner. Returns None if no server serves it."""
    path = door_path(files)
    if path is None or not path.is_socket():
        return None
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.connect(str(path))
    except OSError:
        client.close()
        return None
    from dpduck.server.owner_door import Owner  # noqa: PLC0415

    return Owner(client)


def require_not_served(files: StoreFiles) -> None:
    """Refuses a store that a server has open."""
    served = owner_of_server(files)
    if served is not None:
        served.close()
        raise Refusal(SERVED, accepted=WHEN_ENDED)
