"""Serving private answers: the vault, the public database, the gate between them and everyone else."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Hosts of addresses that only this machine reaches."""


@dataclass(frozen=True)
class Tls:
    """Files in PEM: the certificate with its chain, and its private key."""

    certificate: Path
    key: Path


def is_taken(host: str, port: int) -> bool:
    """Tells whether a server listens on an address of this host.

    gRPC is content with one of the addresses of localhost, and Quack with an address that another server of the same
    user listens on: clients, with their tokens, would then reach now one of them, now the other.
    """
    names = ("127.0.0.1", "::1") if host.lower() == "localhost" else (host.strip("[]"),)
    for name in names:
        # a port whose last connections are still fading cannot be bound for a minute: a server that was killed is back
        # before, so somebody who answers is looked for; what is no address is refused by whoever listens
        with suppress(OSError, OverflowError, UnicodeError), socket.create_connection((name, port), 1):
            return True
    return False
