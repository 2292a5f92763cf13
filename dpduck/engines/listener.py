"""Check that a server of Spark Connect answers at an engine's address."""

from __future__ import annotations

import os
from socket import create_connection, gaierror
from typing import Any
from urllib.parse import urlsplit

from dpduck.values.errors import Refusal

PORT = 15002
"""Port of Spark Connect, if an address names no other."""

CONNECTS_SECONDS, ANSWERS_SECONDS = 4.0, 5.0
"""Seconds for a connection, and then for the server's first answer: a client alone would try for minutes."""

_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
"""Variables of the environment with a proxy, which knows names that this machine does not."""


def plain_address(address: str) -> str:
    """Returns an address without its parameters, among which a token may be.

    >>> plain_address("sc://host:15002/;token=secret")
    'sc://host:15002'
    """
    return address.partition("/;")[0].rstrip("/").partition(";")[0]


def require_listener(address: str) -> None:
    """Refuses an address where no server listens, and a host that is not known. Lets other failures pass."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port or PORT
    except ValueError:  # no number for a port
        return
    if host is None or any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES):
        return
    try:
        create_connection((host, port), timeout=CONNECTS_SECONDS).close()
    except ConnectionRefusedError:
        raise _silent(address, "nothing listens at") from None
    except gaierror:
        raise _silent(address, "there is no host of") from None
    except (OSError, UnicodeError):  # UnicodeError: the host is no valid name
        return


def require_answer(address: str, channel: Any) -> None:
    """Refuses an address where a server does not begin to speak the protocol in a few seconds."""
    import grpc  # noqa: PLC0415 - the client's own dependency

    answer = grpc.channel_ready_future(channel)
    try:
        answer.result(timeout=ANSWERS_SECONDS)
    except grpc.FutureTimeoutError:
        raise _silent(address, "no server of Spark Connect answers at") from None
    finally:
        answer.cancel()
        channel.close()


def _silent(address: str, what: str) -> Refusal:
    return Refusal(f"{what} {plain_address(address)}", accepted="sc://host:15002 of a server that runs")
