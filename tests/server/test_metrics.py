"""/metrics and /health: their texts, their readers, and 30 attacks."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from benchmarks.speed.server_start import vault_of
from dpduck.commands.listening import Listening, _require_addresses
from dpduck.server.operations import metrics
from dpduck.server.operations.figures import FigureReader, Figures
from dpduck.server.operations.metrics import MetricsListener, metrics_address, metrics_text
from dpduck.server.web.listener import WebListener
from dpduck.server.web.requests import REFUSED
from dpduck.values.errors import DpduckError
from tests.server.served import CANARY, Served, add_principals, count, make_clinic
from tests.server.shell import attach, eventually, needs_quack, serving, shell
from tests.server.web.client import Browser, listening, received, sent
from tests.support.ports import free_port

TOKEN = "0123456789abcdef" * 4
LINE = re.compile(r'dpduck_[a-z_]+(\{[a-z]+="(?:[^"\\\n]|\\["\\n])*"\})? -?[0-9.e+-]+')


@dataclass
class Site:
    """The figures of a served clinic, for everybody on this machine and for holders of a token."""

    served: Served
    figures: FigureReader
    port: int
    closed: int


@pytest.fixture(scope="module")
def site(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    token = tmp_path_factory.mktemp("token") / "metrics_token"
    token.write_text(TOKEN, encoding="ascii")
    token.chmod(0o600)
    figures = FigureReader(served.service, served.database, {"web": lambda: 3})
    ports = free_port(), free_port()
    listeners = [
        MetricsListener(f"127.0.0.1:{ports[0]}", figures),
        MetricsListener(f"localhost:{ports[1]}", figures, token),
    ]
    yield Site(served, figures, *ports)
    for listener in listeners:
        listener.close()


def asked(port: int, path: str = "/metrics", **headers: str) -> str:
    """The whole answer to a GET."""
    lines = {"Host": f"127.0.0.1:{port}"} | {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return sent(port, f"GET {path} HTTP/1.1\r\n{head}\r\n".encode()).decode()


def values(answer: str) -> dict[str, float]:
    """The figures of an answer, each line of which is as Prometheus has it."""
    head, _, body = answer.partition("\r\n\r\n")
    assert " 200 " in head[:20] and "text/plain; version=0.0.4" in head and body.endswith("\n")
    found = {}
    for line in body.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP dpduck_\w+ .+|TYPE dpduck_\w+ (gauge|counter))", line)
        else:
            assert LINE.fullmatch(line), line
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


def test_figures_follow_what_happens(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A charge raises the spent share, a refusal its count. No name, token, statement or value is anywhere."""
    monkeypatch.setattr("dpduck.server.operations.figures.FRESH", 0.0)
    before = values(asked(site.port))
    site.served.rows("bob", count("ward", "0.0123"))
    for _ in range(3):
        site.served.refused("alice", "SELECT * FROM secret")
    text = asked(site.port)
    after = values(text)
    (unit,) = [name for name in after if "spent_ratio" in name and "visits" in name]
    assert after[unit] > before[unit] > 0
    for event, more in (("charged", 1), ("refused", 3), ("turned away", 0)):
        name = f'dpduck_events_total{{event="{event}"}}'
        assert after[name] == before[name] + more, event
    assert after["dpduck_ready"] == 1 and after["dpduck_vault_restarts_total"] == 0
    assert after['dpduck_sessions{protocol="web"}'] == 3 and after["dpduck_principals"] == 3
    assert after["dpduck_store_free_bytes"] > 0 and after["dpduck_uptime_seconds"] > before["dpduck_uptime_seconds"]
    for word in (CANARY, "alice", "bob", "carol", "SELECT", "0.0123", *site.served.tokens.values()):
        assert word not in text, word


def test_health_is_one_word(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 and ready, or 503 and not ready, also while figures are being read, and after the gate has ended."""
    assert asked(site.port, "/health").endswith("\r\n\r\nready\n")
    with site.figures._lock:  # somebody else waits for figures
        assert asked(site.port, "/health").endswith("\r\n\r\nready\n")
    monkeypatch.setattr(site.served.service.gate, "_ending", True)
    answer = asked(site.port, "/health")
    assert " 503 " in answer[:20] and answer.endswith("\r\n\r\nnot ready\n")
    assert values(asked(site.port))["dpduck_ready"] == 0


def test_figures_are_kept_for_a_while(site: Site) -> None:
    """Asking for them a thousand times a second reads the ledger once in five."""
    now = [0.0]
    reader = FigureReader(site.served.service, None, {}, clock=lambda: now[0])
    first = reader.collect()
    now[0] = 4.9
    assert reader.collect() is first and first.free_bytes is None
    now[0] = 5.1
    assert reader.collect() is not first


def test_a_token_for_figures(site: Site) -> None:
    """Without it, or with something like it, /metrics says 401 and nothing else. /health needs none."""
    assert values(asked(site.closed, Authorization=f"Bearer {TOKEN}"))["dpduck_ready"] == 1
    assert asked(site.closed, "/health").endswith("ready\n")
    head = f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{site.closed}\r\n"
    right = f"Authorization: Bearer {TOKEN}\r\n"
    wrong = ("", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}0", f"bearer {TOKEN}", f"Basic {TOKEN}", TOKEN, "Bearer ",
             f"Bearer {TOKEN.upper()}", f"Bearer {TOKEN}, Bearer x", "Bearer é", f"Bearer  {TOKEN}")  # fmt: skip
    answers = [asked(site.closed, Authorization=given) for given in wrong]
    answers += [asked(site.closed), sent(site.closed, f"{head}{right}{right}\r\n".encode()).decode()]
    for answer in answers:
        assert " 401 " in answer[:20] and answer.endswith("\r\n\r\n") and TOKEN not in answer
    for word in ("?token=" + TOKEN, "/" + TOKEN):
        assert asked(site.closed, f"/metrics{word}").endswith(REFUSED.body.decode())


@pytest.mark.parametrize(
    "request_text",
    [
        "GET /metrics HTTP/1.1\r\nHost: evil.example:{port}\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "GET /metrics HTTP/1.1\r\n\r\n", "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1.evil.example:{port}\r\n\r\n",
        "POST /metrics HTTP/1.1\r\n{host}Content-Length: 0\r\n\r\n", "PUT /metrics HTTP/1.1\r\n{host}\r\n",
        "DELETE /health HTTP/1.1\r\n{host}\r\n", "OPTIONS * HTTP/1.1\r\n{host}\r\n",
        "TRACE /metrics HTTP/1.1\r\n{host}\r\n",
        "HEAD /metrics HTTP/1.1\r\n{host}\r\n", "CONNECT 127.0.0.1:22 HTTP/1.1\r\n{host}\r\n",
        "GET http://127.0.0.1:{port}/metrics HTTP/1.1\r\n{host}\r\n", "GET /metrics HTTP/9.9\r\n{host}\r\n",
        "GET /metrics\r\n\r\n", "GET /metrics/ HTTP/1.1\r\n{host}\r\n",
        "GET /../metrics HTTP/1.1\r\n{host}\r\n", "GET /metrics?x=1 HTTP/1.1\r\n{host}\r\n",
        "GET /METRICS HTTP/1.1\r\n{host}\r\n",
        "GET /%6detrics HTTP/1.1\r\n{host}\r\n", "GET / HTTP/1.1\r\n{host}\r\n", "GET /ask HTTP/1.1\r\n{host}\r\n",
        "GET /metrics HTTP/1.1\r\n{host}Origin: http://127.0.0.1:{port}\r\n\r\n",
        "GET /metrics HTTP/1.1\r\n{host}Sec-Fetch-Site: cross-site\r\n\r\n",
        "GET /metrics HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET /metrics HTTP/1.1\r\n{host}Transfer-Encoding : chunked\r\n\r\n",
        "GET /metrics HTTP/1.1\r\n{host}X: a\r\n folded : b\r\nnocolon\r\n\r\n", "\x16\x03\x01\r\n\r\n",
        "GET /health\0 HTTP/1.1\r\n{host}\r\n",
    ],
)  # fmt: skip
def test_everything_else_has_one_answer(site: Site, request_text: str) -> None:
    """Other names of the host, methods, paths, versions, bodies and pages of browsers: the same 404, and no figure."""
    text = request_text.format(port=site.port, host=f"Host: 127.0.0.1:{site.port}\r\n")
    answer = sent(site.port, text.encode("latin-1"))
    assert answer.endswith(REFUSED.body) and b"dpduck" not in answer and b" 404 " in answer[:20]


def test_long_lines_and_slow_clients(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers without end are cut off. Whoever sends nothing loses the place to whoever asks."""
    with suppress(OSError):
        assert sent(site.port, b"GET /metrics HTTP/1.1\r\nX: " + b"y" * 200_000) == b""
    with suppress(OSError):
        assert sent(site.port, b"GET /" + b"y" * 70_000 + b" HTTP/1.1\r\n\r\n") in (b"", REFUSED.body)
    with ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", site.port), timeout=30))
            for _ in range(3 * metrics.MOST_CONNECTIONS)
        ]
        for one in slow:
            with suppress(OSError):
                one.sendall(b"GET /metrics HTTP/1.1\r\n")
        start = time.monotonic()
        assert asked(site.port, "/health").endswith("ready\n") and time.monotonic() - start < 20
        assert received(slow[0]) == b""


@pytest.mark.slow
def test_a_thousand_connections(site: Site) -> None:
    """One after the other without an end, and the figures are still given. Few threads serve them."""
    with ExitStack() as stack:
        for _ in range(1_000):
            with suppress(OSError):
                stack.enter_context(socket.create_connection(("127.0.0.1", site.port), timeout=30))
        assert eventually(lambda: "ready" in asked(site.port, "/health"), 60)
        assert values(asked(site.port))["dpduck_ready"] == 1


def mutated(rng: np.random.Generator, text: bytes) -> bytes:
    """A request with some bytes changed, cut, doubled or swapped."""
    found = bytearray(text)
    for _ in range(rng.integers(1, 4)):
        at, kind = int(rng.integers(len(found) + 1)), rng.integers(4)
        if kind == 0:
            found[at:at] = rng.bytes(int(rng.integers(1, 5)))
        elif kind == 1:
            del found[at : at + int(rng.integers(1, 9))]
        elif kind == 2:
            found[at : at + 1] = bytes([rng.integers(256)])
        else:
            lines = found.split(b"\r\n")
            lines.insert(int(rng.integers(len(lines))), lines[rng.integers(len(lines))])
            found = bytearray(b"\r\n".join(lines))
    return bytes(found)


@pytest.mark.parametrize("seconds", [2.0, pytest.param(30.0, marks=pytest.mark.audit)])
def test_damaged_requests_learn_nothing(site: Site, seconds: float) -> None:
    """Requests without a whole token get no figure, for some seconds. The listener is there afterwards."""
    rng, end, times = np.random.default_rng(), time.monotonic() + seconds, 0
    head = f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{site.closed}\r\nAuthorization: Bearer {TOKEN[:-1]}\r\n\r\n"
    while time.monotonic() < end:
        request = mutated(rng, head.encode())
        if TOKEN.encode() in request:  # by chance the missing letter came back
            continue
        with suppress(OSError), socket.create_connection(("127.0.0.1", site.closed), timeout=30) as client:
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
            assert b"dpduck_" not in received(client), request
            times += 1
    assert times > 5 and asked(site.closed, "/health").endswith("ready\n")


@pytest.mark.parametrize(
    "address", ["0.0.0.0:9464", "[::]:9464", "192.0.2.1:9464", "clinic.example.org", "127.0.0.2:9464", "127.0.0.1:0",
                "127.0.0.1:65536", "127.0.0.1:x", "", ":9464", "127.0.0.1:9464/metrics"],
)  # fmt: skip
def test_only_this_machine_may_ask(address: str) -> None:
    """Every other address is refused, before anything starts, in one line with the accepted ones."""
    with pytest.raises(DpduckError, match=r"accepted: 127\.0\.0\.1:9464") as refused:
        metrics_address(address)
    assert "\n" not in str(refused.value)
    with pytest.raises(DpduckError):
        _require_addresses(Listening("quack:localhost:1", None, None, None, False, None, metrics=address))


def test_addresses_of_this_machine() -> None:
    """Its three names, with a port or the usual one. A token without figures is refused."""
    found = [metrics_address(one) for one in ("127.0.0.1", "LOCALHOST:1", "[::1]:9")]
    assert found == [("127.0.0.1", 9464), ("localhost", 1), ("[::1]", 9)]
    with pytest.raises(DpduckError, match="accepted: --metrics"):
        _require_addresses(Listening("quack:localhost:1", None, None, None, False, None, metrics_token=Path("token")))


def test_the_page_of_analysts_has_no_figures(served: Served) -> None:
    """Neither before nor after a log-in."""
    with listening(served.service) as port:
        browser = Browser(port)
        for _ in range(2):
            for path in ("/metrics", "/health"):
                assert browser.get(path).body == REFUSED.body.decode()
            browser.login(served.tokens["alice"])


def test_names_are_labels_whatever_is_in_them() -> None:
    """Quotes, line ends and backslashes of a table's name do not make another line."""
    evil = 'a"} 1\ndpduck_ready 0\n\\x\r'
    text = metrics_text(Figures(True, 1.0, {evil: 0.5}, {evil: 2}, sessions={evil: 1}), '0"3')
    found = values(f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n{text}")
    assert found["dpduck_ready"] == 1 and sum(value in (0.5, 2) for value in found.values()) == 2


def test_sessions_are_counted(served: Served) -> None:
    """As browsers log in and out."""
    port = free_port()
    page = WebListener(f"127.0.0.1:{port}", served.service, served.service.gate._limits)
    browser = Browser(port)
    assert page.sessions() == 0
    browser.login(served.tokens["bob"])
    assert page.sessions() == 1
    browser.post("/logout", browser.form(browser.get("/")))
    assert page.sessions() == 0
    page.close()


@pytest.mark.slow
@needs_quack
def test_health_while_the_vault_starts_again(tmp_path: Path, own_state: Path) -> None:
    """503 after its death, 200 once it is back. The restart is counted, and there is one alert."""
    database = make_clinic(tmp_path)
    token, port = add_principals(database)["bob"], free_port()
    with serving(database, "--metrics", f"127.0.0.1:{port}") as server:
        assert eventually(lambda: " 200 " in answers(port)[:20], 60)
        os.kill(vault_of(server.process.pid), signal.SIGKILL)
        assert eventually(lambda: " 503 " in answers(port)[:20], 60)
        assert eventually(lambda: " 200 " in answers(port)[:20], 120)
        assert eventually(lambda: values(asked(port))["dpduck_vault_restarts_total"] >= 1, 60)
        answered, err = shell(attach(server.address, token) + f"FROM clinic.query($o$ {count('ward', '0.05')} $o$);\n")
        assert err == "" and "ward,n" in answered
        log = database.with_name("clinic_private_audit.jsonl")
        assert eventually(lambda: '"alert"' in log.read_text(), 60)
        assert server.stop() == 0
        assert server.process.stderr is not None
        alerts = [line for line in server.process.stderr.read().splitlines() if '"alert": "vault"' in line]
    assert len(alerts) == log.read_text().count("vault: the vault was restarted") == 1


def answers(port: int) -> str:
    try:
        return asked(port, "/health")
    except OSError:
        return ""
