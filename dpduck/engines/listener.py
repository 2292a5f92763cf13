"""Check that a server listens at an engine's address."""

from __future__ import annotations

from socket import create_connection
from urllib.parse import urlsplit

from dpduck.values.errors import Refusal

PORT = 15002
"""Port of Spark Connect, if an address names no other."""

LISTENS_SECONDS = 5.0


def require_listener(address: str) -> None:
    """Refuses an address where no server listens: a client would try it for minutes. Lets other failures pass."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port or PORT
    except ValueError:  # no number for a port
        return
    if host is None:
        return
    try:
        create_connection((host, port), timeout=LISTENS_SECONDS).close()
    except ConnectionRefusedError:
        raise Refusal("nothing listens at the engine's address", accepted=f"sc://{host}:port of a server") from None
    except (OSError, UnicodeError):  # UnicodeError: the host is no valid name
        return
