"""Agents that race, cancel, guess and flood: nobody overspends, and nothing leaks."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections import Counter
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpduck.kernel.ledger.ledger import Ledger
from dpduck.server.gate import UNEXPECTED
from dpduck.server.limits import TimeGrid, never
from dpduck.server.local_vault import LocalVault
from dpduck.server.mcp import questions
from dpduck.server.mcp.protocol import run_tool
from tests.server.mcp.client import Agent, serving_agents
from tests.server.mcp.test_agent_requests import BODIES, MESSAGES, head_of
from tests.server.served import CANARY, Served, open_served
from tests.server.test_attacks import ATTACKS
from tests.server.test_days import book_of
from tests.support.threads import at_once

CLAUSE = "SELECT WITH DIFFERENTIAL_PRIVACY"
COUNT = f"{CLAUSE} OPTIONS (epsilon = {{}}) sex, count(*) AS n FROM visits GROUP BY sex"


@pytest.mark.slow
def test_two_agents_race_for_one_day(served: Served, agent_port: int) -> None:
    """Eight connections of one token, and four of another: each day's part is spent, and no more."""
    book = book_of(served.database)
    agents = {name: Agent(agent_port, book.add(name, a_day=Fraction(1, 100))) for name in ("race_a", "race_b")}
    answered: Counter[str] = Counter()
    said: list[str] = []

    def run(name: str, place: int) -> None:
        for turn in range(4):
            reply = agents[name].call("ask", sql=COUNT.format(f"0.01{place:02}{turn}"), anew=True)
            if reply.status == 200 and not reply.refused:
                answered[name] += reply.result["charged"]
            else:
                said.append(reply.refused if reply.status == 200 else str(reply.status))

    before = served.spent()
    at_once([partial(run, "race_a", place) for place in range(8)] + [partial(run, "race_b", 10 + n) for n in range(4)])
    new = served.spent()[len(before) :]
    for name in agents:
        spent = [entry[2] for entry in new if entry[1] == name]
        assert Fraction(8, 100) < sum(spent) <= Fraction(1, 10), "a hundredth of 10, up to a price that does not fit"
        assert len(spent) == answered[name]
    assert all("for this day" in line or line == "429" for line in said) and said


@pytest.mark.slow
def test_a_client_that_goes_pays_once(served: Served, agent_port: int) -> None:
    """The connection ends in the middle of a call: the release goes on, and the same statement is free."""
    book = book_of(served.database)
    agent = Agent(agent_port, book.add("hasty"))
    before = len(served.spent())
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "ask", "arguments": {"sql": COUNT.format("0.0451"), "anew": True}}}  # fmt: skip
    body = json.dumps(message).encode()
    for pause in (0.0, 0.01, 0.05, 0.2, 0.0, 0.1):
        with socket.create_connection(("127.0.0.1", agent_port), timeout=60) as client:
            client.sendall(head_of(agent, len(body)).encode() + body)
            time.sleep(pause)
    assert agent.call("ask", sql=COUNT.format("0.0451"), anew=True).result["data"]["rows"]
    assert len(served.spent()) == before + 1, "whatever was cut off"
    deadline = time.monotonic() + 120
    while served.service.gate._running and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not served.service.gate._running, "no call is left"


@pytest.mark.slow
def test_work_for_a_client_that_went_ends(served: Served, alice: Agent) -> None:
    """A statement over released tables that nobody waits for does not go on, whatever time it may take."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "known", "arguments": {"sql": "SELECT sum(hash(a.range)) FROM range(900000000000) a"}}})  # fmt: skip
    with socket.create_connection(("127.0.0.1", alice.port), timeout=60) as client:
        client.sendall(f"{head_of(alice, len(body))}{body}".encode())
        deadline = time.monotonic() + 60
        while not served.service.gate._running["alice"] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert served.service.gate._running["alice"]
    deadline = time.monotonic() + 200
    while served.service.gate._running["alice"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not served.service.gate._running["alice"], "its limit is 600 seconds"


def test_a_token_revoked_in_the_middle(tmp_path: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that ends between the price and the charge pays nothing."""
    opened = open_served(tmp_path)
    book = book_of(opened.database)
    token = book.add("fleeting")
    principal = opened.service.book.authenticate(token)
    assert principal is not None
    priced = questions.quote

    def quote_and_revoke(*given: object) -> object:
        found = priced(*given)  # type: ignore[arg-type]
        book.revoke("fleeting")
        return found

    monkeypatch.setattr(questions, "quote", quote_and_revoke)
    before = opened.spent()
    asked = {"sql": COUNT.format("0.1"), "anew": True}
    result, refused = run_tool(opened.service, lambda _: principal, None, "ask", asked, never)
    assert refused and "revoked" in result["refused"] and opened.spent() == before
    opened.service.close()


TEXTS = st.one_of(
    st.text(max_size=60),
    st.sampled_from(ATTACKS),
    st.lists(
        st.sampled_from(
            [
                "SELECT",
                "WITH",
                "DIFFERENTIAL_PRIVACY",
                "OPTIONS",
                "(epsilon = 0.0001)",
                "count(*)",
                "AS n",
                "FROM",
                "visits",
                "secret",
                "ages",
                "GROUP BY sex",
                ";",
                "$$",
                "'",
                '"',
                "/*",
                "*/",
                "--",
                "dp(",
                ")",
                "DROP PRIVATE VIEW ages",
                "CREATE PRIVACY POLICY",
                "EXPLAIN",
                "COPY",
                "UNION ALL",
                "dp_stderr(n)",
                ",",
                "*",
                "\u202e",
                "\x00",
            ]
        ),
        max_size=14,
    ).map(" ".join),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    tool=st.one_of(st.sampled_from(["ask", "known", "price", "columns", "tables"]), st.text(max_size=9)),
    given_arguments=st.one_of(
        st.fixed_dictionaries({"sql": TEXTS}, optional={"most_percent": st.floats(0, 100), "anew": st.booleans()}),
        st.dictionaries(
            st.one_of(st.sampled_from(["sql", "table", "most_percent", "anew"]), st.text(max_size=5)), VALUES
        ),
    ),
)
def test_whatever_is_asked_is_answered_or_refused(
    served: Served, tool: str, given_arguments: dict[str, object]
) -> None:
    """200 calls at random: one line or a result, no private value, and a charge only where the result says so."""
    principal = served.service.book.find("bob")
    before = len(served.spent())
    result, refused = run_tool(served.service, lambda _: principal, None, tool, given_arguments, never)
    text = json.dumps(result)
    assert CANARY not in text and UNEXPECTED not in text
    assert not refused or result["refused"].isprintable()
    charged = bool(result.get("charged", False))
    assert len(served.spent()) == before + charged and (not charged or tool == "ask")


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=st.one_of(st.binary(max_size=200), VALUES.map(lambda value: json.dumps(value).encode())))
def test_whatever_is_sent_is_answered(alice: Agent, body: bytes) -> None:
    """150 bodies at random: an error or nothing."""
    reply = alice.send(body)
    assert reply.status in (200, 202, 400) and '"result"' not in reply.body and len(reply.body) < 5_000


@pytest.mark.slow
def test_a_hostile_agent_for_half_a_minute(tmp_path: Path, own_state: Path) -> None:
    """Floods of everything at once, on a day's part of a hundredth. Another principal is answered meanwhile."""
    opened = open_served(tmp_path, grid=TimeGrid(0.05))
    book = book_of(opened.database)
    token = book.add("hostile", a_day=Fraction(1, 100))
    end, tried = time.monotonic() + 30, Counter[str]()
    source = random.Random(5)  # noqa: S311
    seen: list[str] = []

    def flood(kind: str, port: int) -> None:
        agent = Agent(port, token)
        while time.monotonic() < end:
            try:
                if kind == "bodies":
                    reply = agent.send(source.choice(BODIES))
                elif kind == "messages":
                    reply = agent.send(json.dumps(source.choice(MESSAGES)).encode())
                elif kind == "attacks":
                    reply = agent.call(source.choice(("ask", "known", "price")), sql=source.choice(ATTACKS))
                elif kind == "small":
                    reply = agent.call("ask", sql=COUNT.format(f"0.00{source.randrange(1, 10**6):06}"), anew=True)
                else:
                    reply = agent.call("known", sql="SELECT sum(hash(a.range)) FROM range(300000000) AS a")
                seen.append(reply.body)
            except OSError:
                pass
            tried[kind] += 1

    with serving_agents(opened.service) as port:
        kinds = ("bodies", "messages", "attacks", "attacks", "small", "small", "small", "heavy")
        threads = [threading.Thread(target=flood, args=(kind, port)) for kind in kinds]
        for thread in threads:
            thread.start()
        bob, turns = Agent(port, opened.tokens["bob"]), 0
        while time.monotonic() < end:
            assert bob.call("known", sql="SELECT * FROM ages").result["data"]["rows"]
            turns += 1
        for thread in threads:
            thread.join()
        assert bob.call("ask", sql=COUNT.format("0.2"), anew=True).result["charged"] and turns >= 1
    assert set(tried) == set(kinds)
    spent = sum((entry[2] for entry in opened.spent() if entry[1] == "hostile"), Fraction(0))
    assert 0 < spent <= Fraction(1, 10)
    assert not [body for body in seen if CANARY in body or UNEXPECTED in body or "Traceback" in body]
    vault = opened.service.vault
    assert isinstance(vault, LocalVault) and isinstance(vault._database.ledger, Ledger)
    vault.verify()
    opened.service.close()
