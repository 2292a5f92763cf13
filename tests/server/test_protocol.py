"""Abuses of the protocol itself: replays, other people's connections, damaged messages, idle and slow clients."""

from __future__ import annotations

import random
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb
import pytest

from dpduck.publish.extensions import load_extension
from tests.server.served import CANARY, add_principals, count, make_clinic
from tests.server.shell import EXTENSIONS, attach, needs_quack, serving, shell

pytestmark = needs_quack
ID = re.compile(rb"[0-9A-F]{32}")
ANSWERS = 600  # seconds that an answer may take, whatever else the machine does


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
        with suppress(OSError), client, socket.create_connection(("localhost", self._server)) as server:
            while request := read_message(client):
                self.requests.append(request)
                server.sendall(request)
                answer = read_message(server)
                if not answer:  # the server is gone, and a client that is not told waits for ever
                    return
                client.sendall(answer)


def read_message(source: socket.socket) -> bytes:
    """One HTTP message with its body. Empty where the other end is done."""
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


def sent(port: int, request: bytes, *, unfinished: bool = False, patience: float = 2) -> bytes:
    """Returns the server's answer to these bytes, empty where it hangs up or waits for more.

    The client goes on listening, unless its message is unfinished: the server sends nothing to a client that is gone.
    """
    with socket.create_connection(("localhost", port), timeout=patience) as connection:
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


@pytest.mark.slow
def test_abuses_of_the_protocol_reach_nothing(tmp_path: Path, own_state: Path) -> None:
    """Replayed, misdirected and damaged messages are refused, the server lives, and nothing is charged."""
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
        told = sent(port, asked, patience=ANSWERS)
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


def drawn_ids(listener: Recorder, token: str, times: int) -> list[bytes]:
    """The numbers of as many connections, from what their clients sent."""
    script = "".join(
        f"ATTACH 'quack:localhost:{listener.port}' AS c{number} (TOKEN '{token}');\nFROM c{number}.query('SELECT 1');\n"
        for number in range(times)
    )
    _, err = shell(attach(f"quack:localhost:{listener.port}", token) + script)
    assert err == ""
    return list(dict.fromkeys(found for request in listener.requests for found in ID.findall(request)))


@pytest.mark.slow
def test_no_other_number_opens_a_connection(tmp_path: Path, own_state: Path) -> None:
    """A connection's number is drawn by OpenSSL for its client alone: nobody else's request comes near it.

    A live number that was stolen is the credential itself, as a token is (SECURITY.md). Here alice's connection is
    open, and bob sends what he can make up: her number with one digit changed, in small letters, cut, doubled, none.
    Each bit of the numbers falls both ways: false alarm 128 * 2^-40 = 1.2e-10 for 41 connections.
    """
    database = make_clinic(tmp_path)
    tokens = add_principals(database)
    log = tmp_path / "audit.jsonl"
    with serving(database, "--audit", str(log)) as server:
        port = int(server.address.rpartition(":")[2])
        with recorded(port) as recorder:
            numbers = drawn_ids(recorder, tokens["bob"], 40)
            asked = next(request for request in recorder.requests if b"SELECT 1" in request)
        assert len(numbers) == 41
        bits = [int(number, 16) for number in numbers]
        assert all(0 < sum(value >> bit & 1 for value in bits) < len(bits) for bit in range(128))
        with recorded(port) as recorder, duckdb.connect() as alice:
            for name in EXTENSIONS:
                load_extension(alice, name, "")
            alice.execute(f"ATTACH 'quack:localhost:{recorder.port}' AS clinic (TOKEN '{tokens['alice']}')")
            secret = ID.findall(b"".join(recorder.requests))[0]
            other = b"0" if secret[-1:] != b"0" else b"1"
            bobs = ID.findall(asked)[0]
            made = {secret[:-1] + other, secret.lower(), b"0" * 32, b"' OR true --".ljust(32), numbers[0]} - {secret}
            for made_up in sorted(made):  # a number without letters is its own in small ones: one in 3 million
                told = sent(port, asked.replace(bobs, made_up), patience=ANSWERS)
                assert b"Invalid connection id" in told
            assert alice.execute("FROM clinic.query('SELECT 1 AS one')").fetchall() == [(1,)]
        written = log.read_bytes()
        assert b"alice" in written
        assert not any(number in written or number.lower() in written for number in (*numbers, secret))
