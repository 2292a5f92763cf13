"""Serving private answers: the vault, the public database, the gate between them and everyone else."""

from __future__ import annotations

import errno
import socket

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Hosts of addresses that only this machine reaches."""


def is_taken(host: str, port: int) -> bool:
    """Tells whether a server listens on an address of this host.

    gRPC is content with one of the addresses of localhost, and Quack with an address that another server of the same
    user listens on: clients, with their tokens, would then reach now one of them, now the other.
    """
    names = ("127.0.0.1", "::1") if host.lower() == "localhost" else (host.strip("[]"),)
    for name in names:
        try:
            found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except OSError:
            continue  # whoever listens says so itself
        for family, kind, protocol, _, address in found:
            try:
                with socket.socket(family, kind, protocol) as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(address)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return True
    return False
