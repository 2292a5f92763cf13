"""Ports for servers that tests start."""

from __future__ import annotations

import os
import secrets
import socket

FIRST, LAST = 10_000, 16_000  # below what systems give to outgoing connections, so that no client takes one meanwhile
WORKERS = 32


def free_port() -> int:
    """A port that nobody listens on now, and that no other worker of this run of tests is given."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    mine = range(FIRST + worker, LAST, WORKERS)
    begin = secrets.randbelow(len(mine))
    for step in range(len(mine)):
        port = mine[(begin + step) % len(mine)]
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("every port is taken")
