"""Attacks of the other gates, through each tool: nothing leaks, nothing is charged, and nothing changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dpduck.server.gate import UNEXPECTED
from dpduck.server.limits import never
from dpduck.server.mcp.protocol import run_tool
from tests.server.mcp.client import Agent
from tests.server.served import CANARY, Served, catalog
from tests.server.statement_lists import statements
from tests.server.test_attacks import ATTACKS, CLOTHES, DISGUISES, FORBIDDEN, HONEST, INSIDE

TOOLS = ("ask", "known", "price")


@pytest.fixture(autouse=True)
def hurried(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attacks on time end after a second: a slower answer counts as a refusal."""
    monkeypatch.setattr(served.service.public, "_limits", replace(served.service.public._limits, seconds=1.0))


def called(served: Served, who: str, tool: str, **arguments: Any) -> tuple[dict[str, Any], bool]:
    """Returns the result of a tool, and whether it is refused. Whatever it says, no value of a private row is in it."""
    principal = served.service.book.authenticate(served.tokens[who])
    assert principal is not None
    result, refused = run_tool(served.service, lambda _: principal, None, tool, arguments, never)
    text = json.dumps(result)
    assert CANARY not in text and str(served.database.parent) not in text, (tool, arguments)
    assert not refused or ("\n" not in result["refused"] and UNEXPECTED not in result["refused"]), (tool, arguments)
    return result, refused


def refused_by_all(served: Served, who: str, texts: Iterator[str]) -> None:
    """Each of three tools refuses each text in one line, and nothing is charged."""
    before = served.spent()
    for text in texts:
        for tool in TOOLS:
            result, refused = called(served, who, tool, sql=text)
            assert refused and "accepted: " in result["refused"], (tool, text, result)
    assert served.spent() == before


@pytest.mark.slow
def test_every_attack_is_refused_by_every_tool(served: Served) -> None:
    """All lines of the list of attacks, as they are."""
    with served.service.public.cursor() as cursor:
        before = catalog(cursor)
        refused_by_all(served, "alice", iter(ATTACKS))
        assert {name for name in catalog(cursor) - before if name[0] != "answers"} == set()


def test_some_attacks_are_refused_over_http(served: Served, alice: Agent) -> None:
    """A twentieth of the list, through the whole way, in the clothes of a client."""
    before = served.spent()
    for number, text in enumerate(ATTACKS[::20]):
        dressed = text if "'" in text or '"' in text else CLOTHES[number % 3](text)
        reply = alice.call(TOOLS[number % 3], sql=dressed)
        assert "accepted: " in reply.refused and CANARY not in reply.body, text
    assert served.spent() == before


@pytest.mark.slow
def test_no_attack_is_a_name_of_a_table(served: Served) -> None:
    """The tool columns takes a name: an attack in its place is refused, or is the name of nothing."""
    before = served.spent()
    for text in (*ATTACKS[::3], *FORBIDDEN):
        result, refused = called(served, "alice", "columns", table=text)
        assert refused or text.strip('"').lower().split(".")[-1] in ("visits", "wards", "ages"), (text, result)
    assert served.spent() == before


@pytest.mark.slow
def test_honest_statements_charge_what_they_say(served: Served) -> None:
    """Each entry of the ledger belongs to one result of ask that says so. The other tools charge nothing."""
    for text in HONEST:
        before = len(served.spent())
        for tool in ("price", "known"):
            called(served, "bob", tool, sql=text)
        assert len(served.spent()) == before, text
        result, refused = called(served, "bob", "ask", sql=text, anew=True)
        charged = not refused and result["charged"]
        assert len(served.spent()) == before + charged, text


@pytest.mark.slow
def test_no_disguise_reaches_a_forbidden_thing(served: Served) -> None:
    """Each form around a fortieth of the things."""
    before = served.spent()
    for number, thing in enumerate(FORBIDDEN):
        for place, form in enumerate(DISGUISES):
            if (number + place) % 40 == 0:
                result, refused = called(served, "bob", TOOLS[place % 3], sql=form.replace("THING", thing))
                assert refused, (form, thing, result)
    assert served.spent() == before


def test_no_question_reaches_a_table_of_others(served: Served) -> None:
    """carol may ask about wards alone, and alice about tables with a policy."""
    clause = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.001)"
    before = served.spent()
    for number, inside in enumerate(INSIDE):
        who, name = (("carol", "visits"), ("alice", "secret"), ("carol", "VISITS"))[number % 3]
        result, refused = called(served, who, "ask", sql=f"{clause} {inside.replace('THING', name)}", anew=True)
        assert refused, (inside, result)
    assert served.spent() == before


def test_no_file_is_read_or_written(served: Served) -> None:
    """What would reach private rows from inside a DuckDB is refused by every tool. A refusal may say the path again."""
    place = served.database.with_name("copy.duckdb")
    principal = served.service.book.find("alice")
    before = sorted(served.database.parent.iterdir())
    for text in statements("public_reads.sql"):
        sql = text.format(file=place, folder=f"{place.parent}/.")
        for tool in TOOLS:
            result, refused = run_tool(served.service, lambda _: principal, None, tool, {"sql": sql}, never)
            assert refused and CANARY not in str(result) and UNEXPECTED not in str(result), (tool, sql, result)
    assert sorted(served.database.parent.iterdir()) == before


OWNERS = (
    "CREATE PRIVACY POLICY ON secret (PRIVACY UNIT word MAX ROWS 1, BUDGET (epsilon = 9))",
    "CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 1, BUDGET (epsilon = 99))",
    "ALTER PRIVACY POLICY ON visits SET BUDGET (epsilon = 99)",
    "ALTER PRIVACY POLICY ON visits NEW EPOCH",
    "ALTER PRIVACY POLICY ON visits RESERVE 50 % FOR alice",
    "ALTER PRIVACY POLICY ON visits PREPARE",
    "DROP PRIVACY POLICY ON visits",
    "DECLARE PUBLIC TABLE secret",
    "UNDECLARE PUBLIC TABLE wards",
    "CREATE PRIVATE STREAM s OPTIONS (epsilon = 1) AS SELECT count(*) AS n FROM visits",
    "REFRESH PRIVATE STREAM s",
    "FROM dp_check('visits')",
    "FROM dp_draft('visits')",
    "FROM dp_trial('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits')",
    "FROM dp_compare('visits')",
    "/* a */ DROP /* b */ PRIVACY POLICY ON visits;",
    "EXPLAIN ALTER PRIVACY POLICY ON visits SET BUDGET (epsilon = 99)",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) count(*) FROM visits; DROP PRIVACY POLICY ON visits",
    "FROM dp('SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01) count(*) FROM visits; DROP PRIVATE VIEW ages')",
)


@pytest.mark.parametrize("text", OWNERS)
def test_owners_statements_are_refused(served: Served, text: str) -> None:
    """Bare, and inside dp(..). The policies and views are as before."""
    policies = "SELECT table_name, revision, epoch FROM dp_policies() ORDER BY ALL"
    before, views = served.rows("alice", policies), served.rows("alice", "SHOW TABLES")
    refused_by_all(served, "alice", iter((text, f"FROM dp($own$ {text} $own$)")))
    assert before and served.rows("alice", policies) == before
    assert served.rows("alice", "SHOW TABLES") == views
