"""A client of the SDK, over HTTP and over a process's input and output, against processes of the command line."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import dpduck
from dpduck.commands.command_line import main
from dpduck.server.mcp.protocol import require_sdk
from dpduck.values.errors import StoreError
from tests.server.served import add_principals, make_clinic, serving_flight
from tests.server.test_days import book_of
from tests.support.ports import free_port

CLAUSE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.02)"
STATEMENTS = (
    f"{CLAUSE} count(*) AS n FROM visits", f"{CLAUSE} sex, count(*) AS n FROM visits GROUP BY sex",
    f"{CLAUSE} sex, ward, count(*) AS n FROM visits GROUP BY CUBE (sex, ward)", f"{CLAUSE} avg(age) AS a FROM visits",
    f"{CLAUSE} sum(age) AS s FROM visits WHERE ward = 'w1'", f"{CLAUSE} median(age) AS m FROM visits",
    f"WITH v AS (SELECT sex FROM visits) {CLAUSE} count(*) AS n FROM v;",
    f"FROM dp($$ {CLAUSE} age, count(*) AS n FROM visits GROUP BY age $$) ORDER BY n DESC LIMIT 3",
    "SELECT * FROM ages WHERE age >= 50 ORDER BY age", "FROM ward_cube WHERE grouping_level = 'ward'",
    "SELECT ward, count(*) FROM visits GROUP BY ward", "SHOW TABLES", "FROM dp_budget()",
    f"EXPLAIN {CLAUSE} count(*) AS n FROM visits",
)  # fmt: skip
"""What an agent types, bare: questions, released tables, known answers and listings."""


@pytest.fixture
def database(tmp_path: Path, own_state: Path) -> Path:
    path = make_clinic(tmp_path)
    add_principals(path)
    book_of(path).add("agent", a_day=Fraction(1, 20))
    return path


@asynccontextmanager
async def over_http(address: str, token: str, mode: str) -> AsyncIterator[Any]:
    httpx = pytest.importorskip("httpx2")
    client_module, transport = (
        pytest.importorskip("mcp.client.client"),
        pytest.importorskip("mcp.client.streamable_http"),
    )
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=600) as library:
        streams = transport.streamable_http_client(address, http_client=library)
        async with client_module.Client(streams, mode=mode) as client:
            yield client


@asynccontextmanager
async def over_stdio(database: Path, principal: str, mode: str) -> AsyncIterator[Any]:
    client_module, transport = pytest.importorskip("mcp.client.client"), pytest.importorskip("mcp.client.stdio")
    words = ["-m", "dpduck.commands.command_line", "mcp", str(database), "--principal", principal]
    started = transport.StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
    async with client_module.Client(started, mode=mode) as client:
        yield client


async def type_all(client: Any) -> list[bool]:
    """Asks every statement. Returns which were charged."""
    listed = await client.list_tools()
    assert [tool.name for tool in listed.tools] == ["tables", "columns", "known", "price", "ask"]
    tables = (await client.call_tool("tables", {})).structured_content
    assert tables["private_tables"][0]["table_name"] == "clinic.main.visits"
    charged = []
    for sql in STATEMENTS:
        priced = await client.call_tool("price", {"sql": sql})
        asked = await client.call_tool("ask", {"sql": sql, "most_percent": 1})
        assert not priced.is_error and not asked.is_error, (sql, priced.content, asked.content)
        found = asked.structured_content
        assert found["data"]["rows"] and json.loads(asked.content[0].text) == found
        charged.append(found["charged"])
        if sql.startswith(("SELECT WITH", "WITH v")):
            names = " ".join(column["name"] for column in found["data"]["columns"])
            assert "stderr" in names or found["expected_errors"], sql
    refused = await client.call_tool("ask", {"sql": "DROP PRIVACY POLICY ON visits"})
    assert refused.is_error and "accepted: " in refused.content[0].text
    return charged


def spent(database: Path, principal: str) -> list[float]:
    with dpduck.connect(database) as owner:
        found = owner.execute("SELECT epsilon FROM dp_ledger() WHERE principal = ?", [principal]).fetchall()
    return [epsilon for (epsilon,) in found]


@pytest.mark.slow
def test_over_http(database: Path) -> None:
    """The first client pays, and the second one, of a later protocol, is answered for free."""
    token = book_of(database).add("ada")
    port = free_port()

    async def ask(mode: str) -> list[bool]:
        async with over_http(f"http://127.0.0.1:{port}/mcp", token, mode) as client:
            return await type_all(client)

    with serving_flight(database, "--mcp", f"127.0.0.1:{port}") as address:
        assert address == f"http://127.0.0.1:{port}/mcp"
        first, second = asyncio.run(ask("legacy")), asyncio.run(ask("auto"))
    assert any(first) and not any(second)
    assert len(spent(database, "ada")) == sum(first)


@pytest.mark.slow
def test_over_input_and_output(database: Path) -> None:
    """The command serves its store itself, and nothing but the protocol is on its output."""

    async def ask(mode: str) -> list[bool]:
        async with over_stdio(database, "agent", mode) as client:
            found = await type_all(client)
            second = CliRunner().invoke(main, ["mcp", str(database), "--principal", "agent"])
            assert second.exit_code == 1 and "accepted: dpduck serve .. --mcp" in second.output
            return found

    first, second = asyncio.run(ask("legacy")), asyncio.run(ask("auto"))
    assert any(first) and not any(second) and len(spent(database, "agent")) == sum(first)


@pytest.mark.slow
def test_a_cancelled_call_pays_once(database: Path) -> None:
    """The client gives a call up again and again, and then waits: one charge."""
    anyio = pytest.importorskip("anyio", reason="the extra mcp is not installed")

    async def ask() -> Any:
        async with over_stdio(database, "agent", "legacy") as client:
            for seconds in (0.05, 0.2, 0.4):
                with anyio.move_on_after(seconds):
                    await client.call_tool("ask", {"sql": STATEMENTS[3], "anew": True})
            return (await client.call_tool("ask", {"sql": STATEMENTS[3], "anew": True})).structured_content

    assert asyncio.run(ask())["data"]["rows"]
    assert spent(database, "agent") == [0.02]


@pytest.mark.slow
def test_lines_that_are_no_messages(database: Path) -> None:
    """Malformed lines have errors for answers or none. A signal ends the process, with status 0."""
    command = [sys.executable, "-m", "dpduck.commands.command_line", "mcp", str(database), "--principal", "agent"]
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}  # fmt: skip
    last = {"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": {"name": "tables", "arguments": {}}}
    lines = [
        b"", b"{", b"null", b"\xff\xfe\x00", b"[" * 100_000, b'{"a":' * 50_000, b"[]", json.dumps([begin]).encode(),
        b'{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "ask", "arguments": 7}}',
        b'{"jsonrpc": "2.0", "id": 6, "method": "resources/list"}', json.dumps(last).encode(),
    ]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        watch = threading.Timer(300, process.kill)
        watch.start()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(begin).encode() + b"\n")
        process.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n' + b"\n".join(lines) + b"\n")
        process.stdin.flush()
        said: list[dict[str, Any]] = []
        while not said or said[-1].get("id") != 99:
            said.append(json.loads(process.stdout.readline()))
        assert said[-1]["result"]["structuredContent"]["budget"]
        assert all("error" in message for message in said if message.get("id") in (5, 6))
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
        watch.cancel()


BROKEN = (
    "from dpduck.server.mcp import protocol\n"
    "def fail(*_): raise ValueError('canary_42')\n"
    "protocol.serve_streams = fail\n"
    "from dpduck.commands.command_line import run; run()"
)


@pytest.mark.slow
def test_a_failure_is_one_line(database: Path) -> None:
    """The line has the kind of the failure, and none of its words. The status is 1, and the store can be opened."""
    command = [sys.executable, "-c", BROKEN, "mcp", str(database), "--principal", "agent"]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and ended.stdout == ""
    assert ended.stderr.startswith("Error: the connection of the agent failed: ValueError at "), ended.stderr
    assert ended.stderr.count("\n") == 1 and "canary" not in ended.stderr
    assert spent(database, "agent") == []


NOBODY = "there is no principal 'nobody'; accepted: agent, alice, bob"
"""The owner reads it, so that it may name the principals."""


@pytest.mark.slow
def test_a_name_that_is_none(database: Path) -> None:
    """A principal that there is not, and a command without one, end with one line."""
    command = [sys.executable, "-m", "dpduck.commands.command_line", "mcp", str(database)]
    for words, part in (["--principal", "nobody"], NOBODY), ([], "Missing option '--principal'"):
        ended = subprocess.run(
            [*command, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        assert ended.returncode in (1, 2) and part in ended.stderr and ended.stdout == ""


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, database: Path) -> None:
    """One line says what to install."""
    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel.server", None)
    with pytest.raises(StoreError, match=r"accepted: pip install '\.\[mcp\]'"):
        require_sdk()
