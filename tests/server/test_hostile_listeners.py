"""Half a minute of a hostile principal and of strangers, at the page behind a proxy and at the owner's figures."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from dpduck.server.operations.figures import FigureReader
from dpduck.server.operations.metrics import MetricsListener
from tests.server.served import Served
from tests.server.test_metrics import asked, mutated
from tests.server.web.client import Browser, listening, sent
from tests.server.web.test_web_identity import INSIDE, MAIL, proxy_at, told
from tests.support.ports import free_port

PATIENCE = 60.0
"""Seconds in which everything of the other principal is answered, on a busy machine."""


@contextmanager
def hostile(*attempts: Callable[[], None]) -> Iterator[list[int]]:
    """Repeats each attempt in a thread until the block ends. Yields how often each was made."""
    ended, made = threading.Event(), [0] * len(attempts)

    def repeat(place: int) -> None:
        while not ended.is_set():
            with suppress(OSError):
                attempts[place]()
            made[place] += 1

    threads = [threading.Thread(target=repeat, args=(place,)) for place in range(len(attempts))]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        ended.set()
        for thread in threads:
            thread.join(PATIENCE)


def silent(port: int) -> None:
    """Opens connections that never send a whole request."""
    with ExitStack() as stack:
        for _ in range(40):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            client.sendall(b"GET / HTTP/1.1\r\nHost: ")
        time.sleep(0.3)


@pytest.mark.parametrize("seconds", [3.0, pytest.param(30.0, marks=pytest.mark.audit)])
def test_the_other_is_served_behind_the_proxy(served: Served, tmp_path: Path, seconds: float) -> None:
    """Alice, strangers and silent clients do what they can. Bob reads his page and asks, and nobody becomes him."""
    for name, mail in MAIL.items():
        served.service.book.put_identity(name, mail)
    with listening(served.service, proxy=proxy_at(tmp_path, "127.0.0.1/32")) as port:
        bob = Browser(port)
        assert INSIDE in bob.get("/", **told(MAIL["bob"])).words
        alice, stolen, became = Browser(port), bob.cookie, list[str]()
        head = "\r\n".join(["GET / HTTP/1.1", f"Host: 127.0.0.1:{port}", *(": ".join(h) for h in told("x").items())])

        def steal() -> None:
            page = alice.get("/", Cookie=stolen, **told(MAIL["alice"]))
            became.extend([page.words] if " bob " in page.words else [])

        def flood() -> None:
            for path in ("/", "/ask", "/view/ages", "/nowhere"):
                alice.get(path, **told(MAIL["alice"]))

        def damage() -> None:
            answer = sent(port, mutated(np.random.default_rng(), f"{head}\r\n\r\n".encode()))
            became.extend(["damaged"] if b"Set-Cookie" in answer else [])

        with hostile(steal, flood, flood, damage, lambda: silent(port)) as made:
            end, times = time.monotonic() + seconds, 0
            while time.monotonic() < end or times < 2:
                start = time.monotonic()
                own = Browser(port)
                assert INSIDE in own.get("/", **told(MAIL["bob"])).words
                assert "ages" in own.get("/view/ages", **told(MAIL["bob"])).words
                assert time.monotonic() - start < PATIENCE
                times += 1
                time.sleep(0.6)  # Bob may open 120 connections a minute
        assert became == [] and all(made), made


@pytest.mark.parametrize("seconds", [3.0, pytest.param(30.0, marks=pytest.mark.audit)])
def test_figures_are_served_beside_strangers(served: Served, tmp_path: Path, seconds: float) -> None:
    """Strangers of this machine hold connections, guess tokens, send damaged requests. The monitor goes on."""
    token = tmp_path / "metrics_token"
    token.write_text("0123456789abcdef" * 4, encoding="ascii")
    token.chmod(0o600)
    port, learned = free_port(), list[bytes]()
    listener = MetricsListener(f"127.0.0.1:{port}", FigureReader(served.service, served.database, {}), token)

    def guess() -> None:
        answer = asked(port, Authorization=f"Bearer {np.random.default_rng().bytes(32).hex()}")
        learned.extend([answer.encode()] if "dpduck_" in answer else [])

    def damage() -> None:
        request = mutated(np.random.default_rng(), f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        answer = sent(port, request)
        learned.extend([answer] if b"dpduck_" in answer else [])

    try:
        with hostile(guess, guess, damage, lambda: silent(port)) as made:
            end, times = time.monotonic() + seconds, 0
            while time.monotonic() < end or times < 2:
                start = time.monotonic()
                while "ready" not in _health(port):
                    assert time.monotonic() - start < PATIENCE
                times += 1
        assert learned == [] and all(made), made
    finally:
        listener.close()


def _health(port: int) -> str:
    """The answer of /health, '' where the listener turned the connection away."""
    with suppress(OSError):
        return asked(port, "/health")
    return ""
