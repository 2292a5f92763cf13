"""Abuses of the protocol itself: replays, other people's connections, damaged messages, idle and slow clients."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server.served import CANARY, add_principals, count, make_clinic
from tests.server.shell import attach, needs_quack, serving, shell

pytestmark = needs_quack


class Recorder:
    """A listener that passes bytes on to a server and remembers what clients sent, a request at a time."""

    def __init__(self, port: int) -> None:
        self.requests: list[bytes] = []
        self._server = port
        self._listener = socket.create_server(("localhost", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client, socket.create_connection(("localhost", self._server)) as server:
            while request := read_message(client):
                self.requests.append(request)
                server.sendall(request)
                client.sendall(read_message(server))


def read_message(source: socket.socket) -> bytes:
    """One HTTP message with its body; empty where the other end is done."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = source.recv(65_536)
        if not part:
            return data
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    length = int(lengths[0].split(b":")[1]) if lengths else 0
    while len(body) < length:
        part = source.recv(65_536)
        if not part:
            break
        body += part
    return head + b"\r\n\r\n" + body


def sent(port: int, request: bytes, *, unfinished: bool = False) -> bytes:
    """What the server says to these bytes; nothing where it hangs up or waits for more.

    The client goes on listening, unless its message is unfinished: to one that is gone the server says nothing.
    """
    with socket.create_connection(("localhost", port), timeout=2) as connection:
        try:
            connection.sendall(request)
            if unfinished:
                connection.shutdown(socket.SHUT_WR)
            return read_message(connection)
        except (TimeoutError, OSError, ValueError):
            return b""


@contextmanager
def recorded(port: int) -> Iterator[Recorder]:
    recorder = Recorder(port)
    try:
        yield recorder
    finally:
        recorder.close()


def test_abuses_of_the_protocol_reach_nothing(tmp_path: Path, state_directory: Path) -> None:
    """Replayed, misdirected and damaged messages are refused, the server lives, none of them makes a charge."""
    database = make_clinic(tmp_path)
    tokens = add_principals(database)
    with serving(database) as server:
        port = int(server.address.rpartition(":")[2])
        question = f"FROM clinic.query($o$ {count('ward', '0.5')} $o$);\n"
        spent = attach(server.address, tokens["bob"]) + "FROM clinic.query('SELECT spent AS s FROM dp_budget()');\n"
        with recorded(port) as recorder:
            out, err = shell(attach(f"quack:localhost:{recorder.port}", tokens["bob"]) + question)
            assert err == "" and "ward,n" in out
        before = shell(spent)[0]
        bodies = [request for request in recorder.requests if b"\r\n\r\n" in request]
        asked = next(request for request in bodies if b"DIFFERENTIAL_PRIVACY" in request)
        told = sent(port, asked)
        assert told and b"w0" not in told, "the connection was closed, its number opens nothing"
        source = random.Random(5)  # noqa: S311
        for request in bodies:
            head, _, body = request.partition(b"\r\n\r\n")
            for _ in range(6):
                damaged = bytearray(body)
                for _ in range(source.randrange(1, 4)):
                    if damaged:
                        damaged[source.randrange(len(damaged))] = source.randrange(256)
                answer = sent(port, head + b"\r\n\r\n" + bytes(damaged))
                assert CANARY.encode() not in answer and b"w0" not in answer
            sent(port, head + b"\r\n\r\n" + body[: len(body) // 2], unfinished=True)
        for garbage in (
            b"\x00" * 100_000,
            b"GET / HTTP/1.1\r\n\r\n",
            b"POST /quack HTTP/1.1\r\nContent-Length: 9\r\n\r\nxxxxxxxxx",
        ):
            assert CANARY.encode() not in sent(port, garbage, unfinished=True)
        idle = [socket.create_connection(("localhost", port)) for _ in range(32)]
        assert shell(spent)[0] == before, "the ledger is as it was, and idle clients hold nobody up"
        for connection in idle:
            connection.close()
        assert server.process.poll() is None
