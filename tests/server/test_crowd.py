"""Many statements at once, readers that do not read, and connections with an owner who is gone or is another."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import duckdb
import pytest

from dpduck.kernel.ledger.secrets import SecretsFile
from dpduck.server.limits import Limits
from dpduck.server.principals import PrincipalBook
from dpduck.values.errors import DpduckError
from tests.server.served import add_principals, count, make_clinic, open_served
from tests.server.shell import attach, needs_quack, serving
from tests.server.test_protocol import ANSWERS, read_message, recorded
from tests.support.threads import at_once

CROWD = 1_000
TOO_MANY = "too many statements at once"
READ = "SELECT count(*) FROM ages"
Client = tuple[duckdb.DuckDBPyConnection, list[bytes]]


@pytest.mark.slow
def test_a_thousand_statements_at_once(tmp_path: Path, own_state: Path) -> None:
    """Each is answered or told that they are too many. Each question is charged once. The gate works afterwards."""
    opened = open_served(tmp_path, Limits(running=16, running_each=8))
    questions = [count("sex", f"0.0{number}") for number in (1, 2, 3)]
    texts = [READ, *questions]
    start, told, answered = threading.Barrier(CROWD), list[str](), list[str]()

    def ask(number: int) -> None:
        start.wait()
        try:
            opened.sql(("alice", "bob")[number % 2], texts[number % len(texts)])
            answered.append(texts[number % len(texts)])
        except DpduckError as error:
            told.append(str(error))

    try:
        before = len(opened.spent())
        at_once([partial(ask, number) for number in range(CROWD)])
        assert len(answered) + len(told) == CROWD
        assert all(line.startswith(TOO_MANY) for line in told)
        charged = [entry[2] for entry in opened.spent()[before:]]
        assert len(set(charged)) == len(charged) == len(set(answered) & set(questions))
        for text in questions:
            assert len(opened.rows("bob", text)) == 2
        assert len(opened.spent()) == before + len(questions)
        assert opened.rows("bob", READ) == [(10,)]
    finally:
        opened.service.close()


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory, state_directory: Path) -> Iterator[tuple[Path, int]]:
    """A served clinic: its file and its port."""
    database = make_clinic(tmp_path_factory.mktemp("crowd"))
    with serving(database) as server:
        yield database, int(server.address.rpartition(":")[2])


@pytest.mark.audit
@needs_quack
def test_a_thousand_messages_at_once(crowded: tuple[Path, int]) -> None:
    """Over the protocol, one question in all messages: answers and refusals, nothing else, and one charge."""
    database, port = crowded
    with client(port, add_principals(database)["bob"]) as (connection, requests):
        rows(connection, count("ward", "0.07"))
        message = asking(requests, "DIFFERENTIAL_PRIVACY")
        with ThreadPoolExecutor(CROWD) as pool:
            said = list(pool.map(lambda _: answer(port, message), range(CROWD)))
        assert all(b"w0" in one or TOO_MANY.encode() in one for one in said)
        assert any(b"w0" in one for one in said)
        assert rows(connection, "SELECT count(*) FROM dp_ledger()") == [(1,)]
        revoke(database)


@pytest.mark.slow
@needs_quack
def test_readers_that_do_not_read_hold_nobody_up(crowded: tuple[Path, int]) -> None:
    """Clients that ask for many rows and never read a byte: others are answered all the same."""
    with alice_and_bob(crowded) as ((asks, requests), (connection, _)):
        assert len(rows(asks, "SELECT a.range AS many FROM range(200000) AS a")) == 200_000
        message = asking(requests, "range(200000)")
        slow = [socket.create_connection(("localhost", crowded[1])) for _ in range(12)]
        for one in slow:
            one.sendall(message)
        cursor = connection.cursor().execute("FROM clinic.query('FROM range(300000)')")
        assert cursor.fetchmany(3) == [(0,), (1,), (2,)]
        assert rows(connection, READ) == [(10,)]
        for one in slow:
            one.close()


@pytest.mark.slow
@needs_quack
def test_a_connection_belongs_to_who_opened_it(crowded: tuple[Path, int]) -> None:
    """Its number is drawn at random and names its principal: next to it is nobody, and nothing shows another's."""
    _, port = crowded
    with alice_and_bob(crowded) as ((_, of_alice), (connection, requests)):
        assert rows(connection, READ) == [(10,)]
        message = asking(requests, READ)
        mine, others = connection_number(message), connection_number(of_alice[-1])
        assert b"count_star" in answer(port, message)
        assert mine != others and len(mine) == len(others) == 32
        for near in (others[::-1], others[:-1] + (b"0" if others[-1:] != b"0" else b"1"), b"0" * 32, mine.lower()):
            if near not in (mine, others):
                assert b"count_star" not in answer(port, message.replace(mine, near))
        with pytest.raises(duckdb.Error, match="'quack_active_connections' is not on the list; accepted: "):
            rows(connection, "FROM quack_active_connections()")


@needs_quack
def test_an_open_connection_ends_with_its_token(crowded: tuple[Path, int]) -> None:
    """Revoked while it is open, or given a new token under the same name: the next statement is refused."""
    database, port = crowded
    with client(port, add_principals(database)["bob"]) as (connection, _):
        assert rows(connection, READ) == [(10,)]
        revoke(database)
        for text in (READ, count("sex", "0.01")):
            with pytest.raises(duckdb.Error, match="revoked"):
                rows(connection, text)
        add_principals(database)
        with pytest.raises(duckdb.Error, match="revoked"):
            connection.execute("FROM clinic.ages").fetchall()
        revoke(database)


@contextmanager
def client(port: int, token: str) -> Iterator[Client]:
    """An attached client, and its messages."""
    with recorded(port) as recorder, closing(duckdb.connect()) as connection:
        connection.execute(attach(f"quack:localhost:{recorder.port}", token))
        rows(connection, "SELECT 1")
        yield connection, recorder.requests
        connection.execute("DETACH clinic")


@contextmanager
def alice_and_bob(crowded: tuple[Path, int]) -> Iterator[tuple[Client, Client]]:
    """Both attached at the same time. Their tokens end with the connections."""
    database, port = crowded
    tokens = add_principals(database)
    with client(port, tokens["alice"]) as alice, client(port, tokens["bob"]) as bob:
        yield alice, bob
        revoke(database)


def asking(requests: list[bytes], text: str) -> bytes:
    """The message of a client in which it asked this."""
    return next(request for request in requests if text.encode() in request)


def rows(connection: duckdb.DuckDBPyConnection, text: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        return cursor.execute(f"FROM clinic.query($outer$ {text} $outer$)").fetchall()


def answer(port: int, message: bytes) -> bytes:
    """Returns the server's answer to a message of a client that goes on listening."""
    with socket.create_connection(("localhost", port), timeout=ANSWERS) as connection:
        connection.sendall(message)
        return read_message(connection)


def connection_number(message: bytes) -> bytes:
    """Of the connection that a message is for: the text of 32 digits in its head."""
    return message.partition(b"\r\n\r\n")[2][6:38]


def revoke(database: Path) -> None:
    """Takes every token back."""
    book = PrincipalBook(SecretsFile.open(database.with_name("clinic_private_secrets"), create=False))
    for principal in book.all():
        book.revoke(principal.name)
