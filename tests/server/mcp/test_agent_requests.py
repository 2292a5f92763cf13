"""Requests that no client of an SDK sends: JSON-RPC, headers, tokens, hosts, and slow strangers."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction

import pytest

from dpduck.server import Tls
from dpduck.server.limits import Limits
from dpduck.server.mcp import listener
from dpduck.server.mcp.listener import AgentListener, agent_address
from dpduck.values.errors import Refusal, StoreError
from tests.server.mcp.client import VERSION, Agent, raw, serving_agents
from tests.server.served import Served, certificate
from tests.server.test_days import book_of
from tests.support.ports import free_port

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
NO_REQUEST = "This is no request for agents."
CLAUSE = "SELECT WITH DIFFERENTIAL_PRIVACY"

MESSAGES: tuple[object, ...] = (
    {}, [], [LIST], [LIST] * 1000, "tools/list", 1, None, True, {"jsonrpc": "2.0"}, {**LIST, "id": {}},
    {**LIST, "jsonrpc": "3.0"}, {**LIST, "method": 7}, {**LIST, "method": None}, {**LIST, "id": [1]},
    {**LIST, "id": {"a": 1}}, {**LIST, "params": "x"}, {**LIST, "params": [1, 2]}, {**LIST, "params": 5},
    {**LIST, "method": "tools/call"}, {**LIST, "method": "tools/call", "params": {}},
    {**LIST, "method": "tools/call", "params": {"name": "ask"}},
    {**LIST, "method": "tools/call", "params": {"name": 5, "arguments": {}}},
    {**LIST, "method": "tools/call", "params": {"name": ["ask"], "arguments": {}}},
    {**LIST, "method": "tools/call", "params": {"name": "ask", "arguments": []}},
    {**LIST, "method": "tools/call", "params": {"name": "ask", "arguments": "sql"}},
    {**LIST, "method": "tools/call", "params": {"arguments": {"sql": "SELECT 1"}}},
    {**LIST, "method": "tools/call", "params": {"name": "ask", "arguments": {"sql": {"sql": "SELECT 1"}}}},
    {**LIST, "method": "tools/call", "params": {"name": "__class__", "arguments": {}}},
    {**LIST, "method": "tools/call", "params": {"name": "../ask", "arguments": {}}},
    {**LIST, "method": "tools/call", "params": {"name": "ask\u0000", "arguments": {"sql": "SELECT 1"}}},
    {**LIST, "method": "tools/call", "params": {"name": "x" * 100_000, "arguments": {}}},
    {**LIST, "method": "tools/call", "params": {"name": "columns", "arguments": {"table": "x" * 100_000}}},
    {**LIST, "method": "tools/call", "params": {"name": "tables", "arguments": {"x" * 50_000: 1}}},
    {**LIST, "method": "tools/call", "params": {"name": "tables", "arguments": {str(n): n for n in range(5000)}}},
    {**LIST, "method": "rpc.discover"}, {**LIST, "method": "tools/create"}, {**LIST, "method": "ping/../tools/call"},
    {**LIST, "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 9}},
    {**LIST, "method": "elicitation/create", "params": {"message": "x", "requestedSchema": {}}},
    {**LIST, "method": "resources/read", "params": {"uri": "file:///etc/passwd"}},
    {**LIST, "method": "completion/complete", "params": {"ref": {"type": "ref/prompt", "name": "x"}}},
    {**LIST, "method": "roots/list"}, {**LIST, "method": "tasks/get", "params": {"taskId": "1"}},
    {**LIST, "method": "logging/setLevel", "params": {"level": "debug"}},
    {"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
    {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error", "data": "x"}},
    {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "ask", "arguments": {"sql": "SELECT 1"}}},
)  # fmt: skip
"""Messages that ask for nothing that there is, or that are no messages."""

BODIES = (
    b"", b"{", b"}", b"null", b"\xff\xfe", b"\x00" * 100, b'{"a": NaN}', b"[" * 200_000, b'{"a":' * 100_000 + b"1",
    b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}{}', b'{"jsonrpc": "2.0", "id": 1, "id": 2}',
    b"\xef\xbb\xbf{}", b'{"jsonrpc":"2.0","id":1e999,"method":"tools/list"}', b"<xml/>", b"sql=SELECT+1",
    b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001,
)  # fmt: skip


def test_no_message_charges_or_ends_the_server(alice: Agent, served: Served) -> None:
    """Malformed messages, other methods, wrong types and huge names have an error or nothing for an answer."""
    before = served.spent()
    for message in MESSAGES:
        reply = alice.send(json.dumps(message).encode())
        assert reply.status < 500, (message, reply)
        assert "Traceback" not in reply.body and len(reply.body) < 5_000, str(message)[:100]
        if reply.status == 200 and '"result"' in reply.body:
            assert reply.message["result"]["isError"], str(message)[:200]
    for body in BODIES:
        for version in ("2025-11-25", "2026-07-28", ""):
            reply = alice.send(body, MCP_Protocol_Version=version)
            assert reply.status in (200, 202, 400) and '"result"' not in reply.body, (body[:60], reply)
    assert served.spent() == before and alice.call("tables").result


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"}, {"Host": "evil.example:{port}"}, {"Host": "127.0.0.1"}, {"Host": "127.0.0.2:{port}"},
        {"Host": "127.0.0.1:{port}.evil.example"}, {"Host": "localhost.evil.example:{port}"}, {"Host": ""},
        {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:1"},
        {"Origin": "https://127.0.0.1:{port}"}, {"Origin": "http://localhost:{port}"},
        {"Authorization": ""}, {"Authorization": "{token}"}, {"Authorization": "Basic {token}"},
        {"Authorization": "Bearer "}, {"Authorization": "Bearer {token} {token}"}, {"Authorization": "Bearer\t{token}"},
        {"Authorization": "Bearer {token}\u00e9"}, {"Cookie": "dpduck=1"}, {"Content_Type": "text/plain"},
        {"Content_Type": ""}, {"Content_Type": "application/x-www-form-urlencoded"}, {"Content_Type": "text/json"},
    ],
)  # fmt: skip
def test_other_headers_have_one_answer(alice: Agent, served: Served, headers: dict[str, str]) -> None:
    """Other hosts (DNS rebinding), origins, kinds of tokens and of bodies: one fixed answer, and nothing is asked."""
    given = {name: value.format(port=alice.port, token=alice.token) for name, value in headers.items()}
    before = len(served.audited())
    reply = alice.rpc("tools/call", {"name": "tables", "arguments": {}}, **given)
    assert reply.status == 400 and reply.body in (NO_REQUEST, "Invalid HTTP request received.")
    assert len(served.audited()) == before


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/mcp"), ("DELETE", "/mcp"), ("PUT", "/mcp"), ("OPTIONS", "/mcp"), ("HEAD", "/mcp"), ("TRACE", "/mcp"),
        ("POST", "/"), ("POST", "/mcp/"), ("POST", "//mcp"), ("POST", "/MCP"), ("POST", "/mcp/../mcp"),
        ("POST", "/%6dcp"), ("POST", "/mcp?token={token}"), ("POST", "/mcp?"), ("POST", "/mcp?access_token={token}"),
        ("POST", "/sse"),
        ("POST", "http://127.0.0.1:{port}/mcp"), ("POST", "/mcp#x"), ("GET", "/.well-known/oauth-protected-resource"),
    ],
)  # fmt: skip
def test_other_addresses_have_one_answer(alice: Agent, method: str, path: str) -> None:
    """A token never comes in an address. There is one path, and one method."""
    named = path.format(token=alice.token, port=alice.port)
    reply = alice.send(json.dumps(LIST).encode(), named, method)
    fits = named in ("/mcp?", f"http://127.0.0.1:{alice.port}/mcp")  # an empty query is none
    fixed = {400: ("", NO_REQUEST, "Invalid HTTP request received."), 405: ("POST alone.",)}
    assert fits or reply.body in fixed[reply.status]
    assert (reply.status == 405) == ((method, path) in (("GET", "/mcp"), ("DELETE", "/mcp")))
    bare = Agent(alice.port, "").send(json.dumps(LIST).encode(), named, method)
    assert bare.status in fixed and "tools" not in bare.body


def test_two_of_a_header_have_one_answer(alice: Agent) -> None:
    """Two tokens, hosts, origins or kinds of a body: which one would count?"""
    body = json.dumps(LIST).encode()
    head = [
        "POST /mcp HTTP/1.1", f"Host: 127.0.0.1:{alice.port}", f"Authorization: Bearer {alice.token}",
        "Content-Type: application/json", f"Content-Length: {len(body)}", "Accept: application/json, text/event-stream",
        "Connection: close",
    ]  # fmt: skip
    assert b'"tools"' in raw(alice.port, head, body)
    own = f"http://127.0.0.1:{alice.port}"
    for more in (
        [head[1]], [head[2]], [head[3]], ["Authorization: Bearer x"], ["Host: evil.example"], [f"Origin: {own}"] * 2,
    ):  # fmt: skip
        answer = raw(alice.port, [*head, *more], body)
        assert b'"tools"' not in answer and answer.startswith(b"HTTP/1.1 400"), more
    for lines in (
        [*head, "Transfer-Encoding: chunked"], [*head, "Content-Length: 3"], [*head, "X: a\x00b"], [*head, "X (y): a"],
        [head[0].replace("1.1", "9.9"), *head[1:]], ["\x16\x03\x01"], [*head, f"X: {'y' * 100_000}"],
    ):  # fmt: skip
        answer = raw_or_reset(alice.port, lines, body)
        assert b'"tools"' not in answer, lines[-1][:60]
    assert alice.call("tables").result


def raw_or_reset(port: int, lines: list[str], body: bytes) -> bytes:
    """Returns what comes back, or nothing if the connection is reset meanwhile."""
    try:
        return raw(port, lines, body)
    except OSError:
        return b""


def test_a_wrong_token_waits_and_is_noted(alice: Agent, served: Served) -> None:
    """It has a fixed answer after a second, and no part of the request is in the log."""
    for token in ("dpduck_wrong", alice.token[:-1]):
        start = time.monotonic()
        reply = Agent(alice.port, token).call("tables")
        assert (reply.status, reply.body) == (401, "No such token.") and time.monotonic() - start >= 1
        assert served.audited()[-1]["event"] == "turned away"
    assert alice.token not in served.log.read_text(encoding="utf-8") and "dpduck_wrong" not in str(served.audited())


def test_a_revoked_token_ends_at_once(served: Served, agent_port: int) -> None:
    """Between two calls of one connection, and if the name was given to another token since."""
    book = book_of(served.database)
    agent = Agent(agent_port, book.add("fleeting", a_day=Fraction(1, 50)))
    assert agent.call("tables").result
    book.revoke("fleeting")
    before = served.spent()
    assert agent.call("ask", sql=f"{CLAUSE} OPTIONS (epsilon = 0.01) count(*) FROM visits").status == 401
    newer = Agent(agent_port, book.add("fleeting"))
    assert agent.call("tables").status == 401 and newer.call("tables").result
    assert served.spent() == before


@pytest.mark.parametrize("session", ["1", "../x", "a" * 32, "0" * 5000, "\u00e9"])
def test_ids_of_sessions_mean_nothing(alice: Agent, bob: Agent, session: str) -> None:
    """No session exists, so nobody's can be taken over: whatever id comes, the token says who asks."""
    mine = alice.rpc("tools/call", {"name": "tables", "arguments": {}}, Mcp_Session_Id=session)
    theirs = bob.rpc("tools/call", {"name": "tables", "arguments": {}}, Mcp_Session_Id=session)
    assert "mcp-session-id" not in {name.lower() for name in mine.headers}
    assert mine.result == alice.call("tables").result and theirs.result == bob.call("tables").result
    assert mine.result != theirs.result, "they have different shares"
    begun = alice.rpc("initialize", {"protocolVersion": "1999-01-01", "capabilities": {"sampling": {}, "roots": {}},
                                     "clientInfo": {"name": "x", "version": "1"}})  # fmt: skip
    assert "mcp-session-id" not in {name.lower() for name in begun.headers}


def test_every_answer_is_not_kept(alice: Agent) -> None:
    """No answer is stored by a browser or a proxy, or shown as anything else."""
    for reply in (alice.call("tables"), alice.send(b"{"), Agent(alice.port, "x").call("tables")):
        names = {name.lower(): value for name, value in reply.headers.items()}
        assert names["cache-control"] == "no-store" and names["x-content-type-options"] == "nosniff"
        assert "server" not in names and "access-control-allow-origin" not in names


def test_large_and_slow_bodies_end(served: Served, alice: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body beyond the limit, one that never comes, and one that is cut off are no requests."""
    with serving_agents(served.service, Limits(characters=1_000)) as port:
        assert Agent(port, alice.token).send(b" " * 200_000 + b"{}").body == NO_REQUEST
        assert Agent(port, alice.token).call("tables").result
    monkeypatch.setattr(listener, "READ_SECONDS", 0.5)
    head = [
        "POST /mcp HTTP/1.1", f"Host: 127.0.0.1:{alice.port}", f"Authorization: Bearer {alice.token}",
        "Content-Type: application/json", "Content-Length: 100", "Accept: application/json, text/event-stream",
    ]  # fmt: skip
    with socket.create_connection(("127.0.0.1", alice.port), timeout=60) as client:
        client.sendall("\r\n".join([*head, "", "{"]).encode())
        assert client.recv(1000).startswith(b"HTTP/1.1 400")


def ended(connection: socket.socket) -> bool:
    """Tells whether the other side has closed a connection."""
    try:
        return connection.recv(10) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_silent_strangers_make_room(served: Served, alice: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """More connections than there are places, each sending nothing: whoever asks is answered at once."""
    monkeypatch.setattr(listener, "MOST_STRANGERS", 8)
    with serving_agents(served.service) as port:
        silent = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(40)]
        for connection in silent:
            connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: x")
        assert Agent(port, alice.token).call("tables").result
        assert [ended(connection) for connection in silent[:20]] == [True] * 20, "the oldest went first"
        for connection in silent:
            connection.close()


def test_strangers_make_room_before_their_handshake(
    served: Served, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over TLS, connections that never greet have few places, too. The oldest ones end, and others are answered."""
    monkeypatch.setattr(listener, "MOST_STRANGERS", 8)
    public, private = certificate(tmp_path_factory.mktemp("tls"))
    made = AgentListener(f"127.0.0.1:{free_port()}", served.service, Limits(), Tls(public, private))
    try:
        port = int(made.address.split(":")[2].split("/")[0])
        silent = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(40)]
        context = ssl.create_default_context(cafile=str(public))
        for _ in range(3):
            plain = socket.create_connection(("127.0.0.1", port), timeout=60)
            with context.wrap_socket(plain, server_hostname="localhost") as greeted:
                greeted.sendall(b"GET /mcp HTTP/1.1\r\nHost: x\r\n\r\n")
                assert greeted.recv(100).startswith(b"HTTP/1.1 405")
        assert all(ended(connection) for connection in silent[:32])
        for connection in silent:
            connection.close()
    finally:
        made.close()


def test_beginnings_fill_no_disk(served: Served, agent_port: int) -> None:
    """Whoever begins again and again has one line in the audit log, or two if a minute ends meanwhile."""
    agent = Agent(agent_port, book_of(served.database).add("restless"))
    for _ in range(50):
        agent.rpc(
            "initialize", {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        )
    lines = [line for line in served.audited() if line["principal"] == "restless" and line["event"] == "connected"]
    assert 1 <= len(lines) <= 2


def head_of(agent: Agent, length: int) -> str:
    """Returns the first line and the headers of a call."""
    lines = [
        "POST /mcp HTTP/1.1", f"Host: 127.0.0.1:{agent.port}", f"Authorization: Bearer {agent.token}",
        "Content-Type: application/json", "Accept: application/json, text/event-stream",
        f"MCP-Protocol-Version: {VERSION}", f"Content-Length: {length}", "", "",
    ]  # fmt: skip
    return "\r\n".join(lines)


@contextmanager
def begun(agent: Agent, body: bytes) -> Iterator[socket.socket]:
    """Sends a call, and leaves its answer unread. Its connection ends with the block."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_000)
        client.settimeout(60)
        client.connect(("127.0.0.1", agent.port))
        client.sendall(head_of(agent, len(body)).encode() + body)
        yield client


def status_of(connection: socket.socket) -> int:
    """Returns the status of an answer, whatever follows."""
    return int(connection.recv(1000).split(b" ", 2)[1])


def test_a_connection_has_one_request(served: Served, bob: Agent) -> None:
    """So connections that were answered keep no places. A second request in the same connection is not answered."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    answer = raw(bob.port, head_of(bob, len(body)).split("\r\n")[:-2], body + head_of(bob, len(body)).encode() + body)
    assert answer.startswith(b"HTTP/1.1 200") and answer.count(b"HTTP/1.1") == 1 == answer.count(b"connection: close")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few places, and sockets that keep little of an answer."""
    made = listener._listen

    def listen(host: str, port: int) -> socket.socket:
        listening = made(host, port)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2_000)
        return listening

    monkeypatch.setattr(listener, "_listen", listen)
    monkeypatch.setattr(listener, "MOST_CONNECTIONS", 24)
    monkeypatch.setattr(listener, "MOST_STRANGERS", 8)
    monkeypatch.setattr(listener, "CONNECTIONS_EACH", 2)


SELECT = f"SELECT '{'x' * 290}' AS t, '{'y' * 290}' AS u FROM range(500)"
LARGE = {**LIST, "method": "tools/call", "params": {"name": "known", "arguments": {"sql": SELECT}}}


@pytest.mark.usefixtures("few")
def test_slow_readers_keep_few_places(served: Served) -> None:
    """A principal that reads no answer has two connections, and another one is answered meanwhile."""
    body = json.dumps(LARGE).encode()
    with serving_agents(served.service) as port, ExitStack() as opened:
        bob, alice = Agent(port, served.tokens["bob"]), Agent(port, served.tokens["alice"])
        for place in range(30):
            assert status_of(opened.enter_context(begun(bob, body))) == (200 if place < 2 else 429)
            assert alice.call("tables").status == 200


@pytest.mark.usefixtures("few")
def test_slow_readers_lose_their_places(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that nobody reads ends, so the principal is answered again."""
    monkeypatch.setattr(listener, "WRITE_SECONDS", 0.2)
    with serving_agents(served.service) as port, ExitStack() as opened:
        bob = Agent(port, served.tokens["bob"])
        assert bob.send(json.dumps(LARGE).encode()).result["data"]["more"]
        for _ in range(2):
            assert status_of(opened.enter_context(begun(bob, json.dumps(LARGE).encode()))) == 200
        deadline = time.monotonic() + 60
        while (status := bob.rpc("tools/list").status) == 429 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert status == 200


def waits(connection: socket.socket) -> bool:
    """Tells whether nothing is answered for a second."""
    connection.settimeout(1)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    return False


@pytest.mark.usefixtures("few")
def test_wrong_tokens_keep_no_places(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two requests wait, and the rest are answered at once. A connection that its client left keeps nothing."""
    monkeypatch.setattr(listener, "MOST_WRONG", 2)
    monkeypatch.setattr(listener, "WRONG_TOKEN_SECONDS", 500.0)
    body = json.dumps(LIST).encode()
    with serving_agents(served.service) as port, ExitStack() as opened:
        alice, wrong = Agent(port, served.tokens["alice"]), Agent(port, "dpduck_wrong")
        for _ in range(2):
            assert waits(opened.enter_context(begun(wrong, body)))
        for _ in range(30):
            assert wrong.rpc("tools/list").status == 401
            assert alice.call("tables").status == 200
        opened.close()
        for _ in range(100):
            with begun(wrong, body):
                pass
        assert alice.call("tables").status == 200
        deadline = time.monotonic() + 60
        while not (free := waits(opened.enter_context(begun(wrong, body)))) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert free, "both that waited have gone"


def test_one_principal_has_so_many_requests(served: Served, alice: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for more at once is refused."""
    monkeypatch.setattr(listener, "AT_WORK_EACH", 0)
    assert alice.call("tables").status == 429
    monkeypatch.setattr(listener, "AT_WORK_EACH", 1)
    assert alice.call("tables").result


@pytest.mark.parametrize("address", ["0.0.0.0", "192.0.2.1:8090", "clinic.example.org", "[::]:1"])  # noqa: S104
def test_beyond_this_machine_needs_tls_or_a_proxy(served: Served, address: str) -> None:
    """As for the page, tokens never travel in the clear unless the owner names the proxy in front."""
    with pytest.raises(Refusal, match=r"in the clear; accepted: 127.0.0.1, --tls-certificate"):
        AgentListener(address, served.service, Limits())
    with pytest.raises(Refusal, match="no address"):
        agent_address("127.0.0.1:99999", None, None)


def test_a_taken_port_is_one_line(served: Served, agent_port: int) -> None:
    """It is refused, and nothing else happens."""
    with pytest.raises(StoreError, match="cannot be listened on"):
        AgentListener(f"127.0.0.1:{agent_port}", served.service, Limits())


@pytest.mark.slow
def test_over_tls(served: Served, tmp_path_factory: pytest.TempPathFactory) -> None:
    """With a certificate, a client of the SDK's library asks over TLS, and one in the clear is not answered."""
    httpx = pytest.importorskip("httpx2")
    public, private = certificate(tmp_path_factory.mktemp("tls"))
    port = free_port()
    made = AgentListener(f"127.0.0.1:{port}", served.service, Limits(), Tls(public, private))
    try:
        assert made.address == f"https://127.0.0.1:{port}/mcp" and not made.warning
        headers = {"Authorization": f"Bearer {served.tokens['alice']}", "Accept": "application/json, text/event-stream"}
        context = ssl.create_default_context(cafile=str(public))
        reply = httpx.post(made.address, json=LIST, headers=headers, verify=context)
        assert reply.status_code == 200 and len(reply.json()["result"]["tools"]) == 5
        assert raw_or_reset(port, ["POST /mcp HTTP/1.1", f"Host: 127.0.0.1:{port}"], b"") == b""
    finally:
        made.close()
