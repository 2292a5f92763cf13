"""A small client of MCP over HTTP, and requests that no client of an SDK would send."""

from __future__ import annotations

import http.client
import itertools
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dpduck.server.gate import Service
from dpduck.server.limits import Limits
from dpduck.server.mcp.listener import AgentListener
from tests.support.ports import free_port

VERSION = "2025-11-25"


@dataclass(frozen=True)
class Reply:
    """Answer of the server. body: as text."""

    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def message(self) -> dict[str, Any]:
        found = json.loads(self.body)
        assert isinstance(found, dict)
        return found

    @property
    def refused(self) -> str:
        """The one line of a refused call, or ''."""
        result = self.message.get("result", {})
        if not result.get("isError"):
            return ""
        assert "structuredContent" not in result
        (content,) = result["content"]
        assert "\n" not in content["text"]
        return str(content["text"])

    @property
    def result(self) -> dict[str, Any]:
        """The structured result, which the text says, too."""
        given = self.message["result"]
        assert not given.get("isError"), given
        (content,) = given["content"]
        assert json.loads(content["text"]) == given["structuredContent"] and content["text"].isascii()
        found = given["structuredContent"]
        assert isinstance(found, dict)
        return found


@dataclass
class Agent:
    """Calls tools with one token."""

    port: int
    token: str
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def call(self, tool: str, **arguments: Any) -> Reply:
        return self.rpc("tools/call", {"name": tool, "arguments": arguments})

    def rpc(self, method: str, params: object = None, **headers: str) -> Reply:
        message = {"jsonrpc": "2.0", "id": next(self.numbers), "method": method}
        return self.send(json.dumps(message | ({} if params is None else {"params": params})).encode(), **headers)

    def send(self, body: bytes, path: str = "/mcp", method: str = "POST", **headers: str) -> Reply:
        """Sends a body. headers: further headers, with '_' for '-'. An empty text takes one out."""
        given = {
            "Host": f"127.0.0.1:{self.port}",
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
        } | {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in given.items():
                if value:
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            return Reply(response.status, dict(response.getheaders()), response.read().decode())
        finally:
            connection.close()


def raw(port: int, lines: Sequence[str], body: bytes = b"") -> bytes:
    """Sends bytes as they are, and returns all that comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        found = b""
        while piece := client.recv(65536):
            found += piece
        return found


@contextmanager
def serving_agents(service: Service, limits: Limits | None = None) -> Iterator[int]:
    """The port of a listener, as long as the block lasts."""
    port = free_port()
    listener = AgentListener(f"127.0.0.1:{port}", service, limits or Limits(seconds=600.0, rows=100_000))
    try:
        yield port
    finally:
        listener.close()
