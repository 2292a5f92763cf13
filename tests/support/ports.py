"""Ports for servers that tests start."""

from __future__ import annotations

import os
import secrets
import socket
from itertools import count

FIRST, LAST = 10_000, 16_000  # below the ports of outgoing connections, so that no client takes one meanwhile
WORKERS = 32


_turn = count(secrets.randbelow(LAST - FIRST))


def free_port() -> int:
    """Returns a port that nobody listens on. No other worker of this run gets it, and this one not soon again."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    mine = range(FIRST + worker, LAST, WORKERS)
    for _ in mine:
        port = mine[next(_turn) % len(mine)]
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("every port is taken")
