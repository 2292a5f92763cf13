"""Server of private answers: the vault, the public database, and the gate that stands before both."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Hosts of addresses that only this machine can reach."""


@dataclass(frozen=True)
class Tls:
    """PEM files for TLS: the certificate with its chain, and its private key."""

    certificate: Path
    key: Path


def is_taken(host: str, port: int) -> bool:
    """Tells whether a server already listens on an address of this host.

    gRPC starts if one address of localhost is free. Quack starts even if another server of the same user listens there.
    Clients would then send their tokens sometimes to one server and sometimes to the other.
    """
    names = ("127.0.0.1", "::1") if host.lower() == "localhost" else (host.strip("[]"),)
    for name in names:
        # binding is no test: a port stays taken for a minute while its last connections end, and a killed server
        # restarts sooner. So this asks whether a server answers. The listener itself refuses an invalid address.
        with suppress(OSError, OverflowError, UnicodeError), socket.create_connection((name, port), 1):
            return True
    return False
