"""Tools of agents: their texts, free and charged answers, and the errors beside every number."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from dpduck.server.clients.desk import Desk
from dpduck.server.mcp import questions, tools
from dpduck.server.mcp.error_bars import plain_select, with_errors
from dpduck.server.mcp.questions import ONLY_QUESTIONS, PAID, STORED, PricedQuestion
from dpduck.server.mcp.results import IS_DATA, MOST_BYTES, MOST_LETTERS, MOST_ROWS
from dpduck.server.mcp.tools import TOOLS
from tests.server.mcp.client import Agent
from tests.server.served import WRONG_CASTS, Served
from tests.server.test_days import book_of

CLAUSE = "SELECT WITH DIFFERENTIAL_PRIVACY"
AVERAGE = f"{CLAUSE} OPTIONS (epsilon = {{}}) sex, count(*), avg(age) AS a FROM visits GROUP BY sex"
COUNT = f"{CLAUSE} OPTIONS (epsilon = {{}}) sex, count(*) AS n FROM visits GROUP BY sex"


def names(result: dict[str, Any]) -> list[str]:
    return [column["name"] for column in result["data"]["columns"]]


def test_five_tools_and_nothing_else(alice: Agent) -> None:
    """They are listed with short descriptions, and each says that texts are data. There are no other parts of MCP."""
    begun = alice.rpc("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {
        "name": "test", "version": "1"}}).message["result"]  # fmt: skip
    assert set(begun["capabilities"]) <= {"tools", "experimental"} and "tools" in begun["capabilities"]
    assert IS_DATA in begun["instructions"]
    listed = alice.rpc("tools/list").message["result"]["tools"]
    assert [tool["name"] for tool in listed] == ["tables", "columns", "known", "price", "ask"]
    for tool in listed:
        assert IS_DATA in tool["description"] and len(tool["description"]) < 400
        assert tool["inputSchema"]["additionalProperties"] is False
        assert tool["annotations"]["readOnlyHint"] == (tool["name"] != "ask")
    for method in (
        "resources/list", "prompts/list", "completion/complete", "logging/setLevel", "sampling/createMessage",
        "resources/read", "prompts/get", "roots/list", "tasks/list", "subscriptions/listen",
    ):  # fmt: skip
        assert "error" in alice.rpc(method, {}).message, method


def test_tables_and_columns(alice: Agent, served: Served) -> None:
    """Units, budgets in per cent, and domains, of the tables that a principal may ask about."""
    found = alice.call("tables").result
    (private,) = found["private_tables"]
    assert (private["privacy_unit"], private["max_rows"]) == ("clinic.main.visits.patient", 4)
    assert found["budget"][0]["left_percent"] <= 100 and found["budget"][0]["measure"] == "epsilon"
    assert [view["table_name"] for view in found["released_tables"]] == ["ages", "ward_cube"]
    assert found["public_tables"] == ["wards"]
    columns = {column["column_name"]: column for column in alice.call("columns", table="visits").result["columns"]}
    assert columns["sex"]["domain"] == "IN (0, 1)" and columns["patient"]["privacy_unit"]
    notes = alice.call("columns", table="AGES").result["notes"]
    assert any("standard error" in note["comment"] for note in notes)
    carol = Agent(alice.port, served.tokens["carol"])
    assert carol.call("tables").result["private_tables"] == []


def test_private_tables_beyond_the_list_are_not_called_public(alice: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more policies than the list has room for, the list says that there are more."""
    monkeypatch.setattr(tools, "MOST_TABLES", 0)
    found = alice.call("tables").result
    assert found["more"] and found["private_tables"] == found["public_tables"] == []
    monkeypatch.setattr(tools, "MOST_TABLES", 1)
    assert alice.call("tables").result["public_tables"] == ["wards"]


def test_one_of_two_same_calls_is_charged(alice: Agent, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever finds that another call has paid meanwhile is told that nothing was charged."""
    sql, read = COUNT.format("0.013"), questions.quote

    def quote(desk: Desk, text: str) -> PricedQuestion:
        priced = read(desk, text)
        served.rows("alice", f"FROM dp($$ {sql} $$)")
        return priced

    monkeypatch.setattr(questions, "quote", quote)
    told = alice.call("ask", sql=sql, anew=True).result
    assert told["charged"] is False and told["why"] == STORED and "per_cent" not in told


def test_what_is_left_of_a_day(served: Served, agent_port: int) -> None:
    """A person's ceiling holds for the agent's day, and the tools tell the rest."""
    book = book_of(served.database)
    served.tokens["daily"] = book.add("daily", a_day=Fraction(1, 100))
    agent = Agent(agent_port, served.tokens["daily"])
    (budget,) = agent.call("tables").result["budget"]
    assert (budget["a_day_percent"], budget["left_today_percent"]) == (1.0, 1.0)
    asked = agent.call("ask", sql=AVERAGE.format("0.07"), most_percent=1).result
    assert asked["charged"] and asked["per_cent"] == 0.7
    assert asked["budget"][0]["left_today_percent"] == pytest.approx(0.3)
    before = served.spent()
    said = agent.call("ask", sql=AVERAGE.format("0.031"), anew=True).refused
    assert "part of daily for this day" in said and served.spent() == before


def test_all_per_cents_have_one_base(served: Served, agent_port: int) -> None:
    """A day's ceiling, the rest, and prices are parts of the agent's share, and the tools say so."""
    token = book_of(served.database).add("half", share=Fraction(1, 2), a_day=Fraction(1, 50))
    agent = Agent(agent_port, token)
    (budget,) = agent.call("tables").result["budget"]
    assert budget["per_cent_of"] == "your share of the budget" and budget["left_percent"] == 100
    assert (budget["a_day_percent"], budget["left_today_percent"]) == (4.0, 4.0)
    assert agent.call("price", sql=AVERAGE.format("0.2")).result["per_cent"] == 4.0
    book_of(served.database).limit_day("half", Fraction(1))
    (budget,) = agent.call("tables").result["budget"]
    assert (budget["a_day_percent"], budget["left_today_percent"]) == (100.0, 100.0)


def test_refusals_name_the_form_for_agents(alice: Agent, served: Served) -> None:
    """A plain SELECT that nothing answers is told as a question, without a price that a ceiling may refuse."""
    before = served.spent()
    plain = "SELECT ward, sum(age) AS s FROM visits GROUP BY ward"
    form = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = ..) ward, sum(age) AS s FROM visits GROUP BY ward"
    for tool in ("known", "ask", "price"):
        for sql in (plain, f"FROM dp_known($$ {plain} $$)"):
            assert alice.call(tool, sql=sql).refused.endswith(f"accepted: {PAID}{form}"), (tool, sql)
    assert served.spent() == before


def test_a_question_in_dp_is_the_question(alice: Agent, served: Served) -> None:
    """FROM dp($$ .. $$) alone has standard errors in its rows, and is free if it was answered before."""
    question = f"{CLAUSE} OPTIONS (epsilon = 0.018) ward, avg(age) AS a FROM visits WHERE ward <> 'w0' GROUP BY ward"
    paid = alice.call("ask", sql=f"FROM dp($$ {question} $$)").result
    assert paid["charged"] and names(paid) == ["ward", "a", "a_stderr"]
    before = served.spent()
    quoted = question.replace("'", "''")
    for sql in (question, f"from DP('{quoted}');", f"FROM dp($q${question}$q$) -- again"):
        again = alice.call("ask", sql=sql).result
        assert not again["charged"] and again["data"] == paid["data"]
    assert served.spent() == before


def test_free_before_charged(alice: Agent, served: Served) -> None:
    """Known from earlier releases, answered before, read from views: none of these charges, and each says so."""
    before = served.spent()
    known = alice.call("ask", sql=COUNT.format("0.1")).result
    assert not known["charged"] and "earlier releases" in known["why"] and "stderr" in names(known)
    assert known["a_new_answer"]["expected_errors"][0]["stderr"] > 0
    read = alice.call("ask", sql="SELECT * FROM ages ORDER BY age").result
    assert not read["charged"] and names(read) == ["age", "n", "n_stderr"] and "errors_note" not in read
    assert "errors_note" in alice.call("known", sql="SELECT sum(n) FROM ages").result
    assert "stderr" in names(alice.call("known", sql="SELECT sex, count(*) FROM visits GROUP BY sex").result)
    assert alice.call("price", sql=COUNT.format("0.1")).result["free"]
    priced = alice.call("price", sql=AVERAGE.format("0.1")).result
    assert not priced["free"] and priced["per_cent"] == 2.0 and priced["statements"][0]["times_left"] > 1
    assert "nothing that was released" in alice.call("known", sql=AVERAGE.format("0.1")).refused
    assert served.spent() == before
    paid = alice.call("ask", sql=AVERAGE.format("0.1")).result
    assert paid["charged"] and len(served.spent()) == len(before) + 1
    for tool in ("ask", "known"):
        again = alice.call(tool, sql=AVERAGE.format("0.1")).result
        assert not again["charged"] and again["data"] == paid["data"]
    assert len(served.spent()) == len(before) + 1
    anew = alice.call("ask", sql=COUNT.format("0.012"), anew=True).result
    assert anew["charged"] and names(anew) == ["sex", "n", "n_stderr"]


def test_errors_beside_every_number(alice: Agent) -> None:
    """Standard errors come in the rows, without being asked for, or as they were expected."""
    asked = alice.call("ask", sql=AVERAGE.format("0.5"), anew=True).result
    assert names(asked) == ["sex", "count_star()", "a", "count_star()_stderr", "a_stderr"]
    assert all(row[3] > 0 and row[4] > 0 for row in asked["data"]["rows"])
    own = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.014) count(*) AS n, dp_stderr(n) AS e FROM visits"
    assert names(alice.call("ask", sql=own, anew=True).result) == ["n", "e"]
    inside = f"SELECT a FROM dp($$ {AVERAGE.format('0.015')} $$)"
    assert [line["aggregate"] for line in alice.call("ask", sql=inside).result["expected_errors"]] == [
        "count(*)", 'avg("age")',
    ]  # fmt: skip
    twice = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.016) 2 * count(*) AS n FROM visits"
    assert alice.call("ask", sql=twice, anew=True).result["expected_errors"]


def test_most_percent(alice: Agent, served: Served) -> None:
    """A call costs nothing above its own ceiling."""
    before = served.spent()
    for most in (0, 0.39, 0.1):
        said = alice.call("ask", sql=AVERAGE.format("0.02"), most_percent=most, anew=True).refused
        assert f"costs 0.4 % of your budget, and most_percent is {most:g}" in said
    assert served.spent() == before
    assert alice.call("ask", sql=AVERAGE.format("0.02"), most_percent=0.4, anew=True).result["charged"]
    assert not alice.call("ask", sql=AVERAGE.format("0.02"), most_percent=0).result["charged"], "it was answered before"


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE PRIVATE VIEW v OPTIONS (epsilon = 0.1) AS SELECT count(*) AS n FROM visits",
        "CREATE OR REPLACE PRIVATE VIEW ages OPTIONS (epsilon = 0.1) AS SELECT count(*) AS n FROM visits",
        "CREATE PRIVATE SESSION s OPTIONS (epsilon = 0.1) ON visits (sex)",
        "CREATE PRIVATE TABLE t OPTIONS (epsilon = 0.1) AS SELECT sex FROM visits",
        "DROP PRIVATE VIEW ages",
        "FROM dp('DROP PRIVATE VIEW ages')",
        "FROM dp($$ CREATE PRIVATE VIEW v OPTIONS (epsilon = 0.1) AS SELECT count(*) AS n FROM visits $$)",
        "FROM dp_ask('s', [1])",
    ],
)
def test_an_agent_makes_and_drops_nothing(alice: Agent, served: Served, sql: str) -> None:
    """Private views and sessions are for people, through any tool."""
    before = served.spent()
    for tool in ("ask", "known", "price"):
        assert alice.call(tool, sql=sql).refused.endswith(f"accepted: {ONLY_QUESTIONS}")
    assert served.spent() == before and len(alice.call("tables").result["released_tables"]) == 2


def test_results_are_bounded(alice: Agent) -> None:
    """Rows, bytes, columns and letters have limits, and a cut result says so."""
    rows = alice.call("known", sql="SELECT range AS i FROM range(20000)").result["data"]
    assert len(rows["rows"]) == MOST_ROWS and rows["more"]
    wide = alice.call("known", sql=f"SELECT {', '.join(f'{n} AS c{n}' for n in range(200))}").result["data"]
    assert len(wide["columns"]) == 60 and wide["columns_left_out"] == 140
    text = "abc" * 5000
    cut = alice.call("known", sql=f"SELECT '{text}' AS t, '{text}' AS u, * FROM range(2000)").result["data"]
    assert len(cut["rows"][0][0]) == MOST_LETTERS + 3 and len(str(cut["rows"])) < 2 * MOST_BYTES and cut["more"]


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("SELECT 'nan'::DOUBLE", "nan"), ("SELECT 'inf'::DOUBLE", "inf"), ("SELECT 2::BIGINT ** 60", 2.0**60),
        ("SELECT 1152921504606846977::BIGINT", "1152921504606846977"), ("SELECT NULL", None), ("SELECT true", True),
        ("SELECT DATE '2026-01-02'", "2026-01-02"), ("SELECT 'a\u202eb'", "a\\u202eb"),
        ("SELECT 'a' || chr(7) || 'b'", "a\\u0007b"), ("SELECT 'a\u3164b'", "a\\u3164b"),
    ],
)  # fmt: skip
def test_values_are_json(alice: Agent, sql: str, shown: object) -> None:
    """Every type has a form that JSON has."""
    assert alice.call("known", sql=sql).result["data"]["rows"] == [[shown]]


@pytest.mark.parametrize("sql", WRONG_CASTS)
def test_wrong_casts_are_refused_in_one_line(alice: Agent, sql: str) -> None:
    """DuckDB's own texts have several lines, and would mark a place in the statement."""
    for tool in ("known", "price", "ask"):
        said = alice.call(tool, sql=sql).refused if tool != "price" else str(alice.call(tool, sql=sql).message)
        assert said.isprintable() and "LINE 1" not in said and "^" not in said, said


def test_arguments_are_checked(alice: Agent, served: Served) -> None:
    """Unknown tools and arguments, missing ones, and those of another type are refused in one line."""
    before = served.spent()
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("nothing", {}, "there is no tool"), ("", {}, "there is no tool"), ("Ask", {}, "there is no tool"),
        ("ask", {}, "needs sql"), ("ask", {"sql": None}, "needs sql"), ("ask", {"sql": 1}, "is no string"),
        ("ask", {"sql": ["SELECT 1"]}, "is no string"), ("ask", {"sql": {}}, "is no string"),
        ("ask", {"sql": "SELECT 1", "owner": True}, "has no argument"),
        ("ask", {"sql": "SELECT 1", "SQL": "x"}, "has no argument"),
        ("ask", {"sql": "SELECT 1", "most_percent": "9"}, "is no number"),
        ("ask", {"sql": "SELECT 1", "most_percent": True}, "is no number"),
        ("ask", {"sql": "SELECT 1", "most_percent": -1}, "out of range"),
        ("ask", {"sql": "SELECT 1", "most_percent": 10**400}, "out of range"),
        ("ask", {"sql": "SELECT 1", "anew": 1}, "is no boolean"), ("ask", {"sql": "SELECT 1", "anew": "x"}, "boolean"),
        ("known", {"sql": "SELECT 1", "most_percent": 1}, "has no argument"), ("tables", {"x": 1}, "has no argument"),
        ("columns", {"table": 7}, "is no string"), ("columns", {}, "needs table"),
        ("columns", {"table": "no_such_table"}, "no_such_table"), ("columns", {"table": "x'; DROP"}, "accepted"),
        ("ask", {"sql": ""}, "accepted"), ("ask", {"sql": "x" * 100_001}, "at most 100000"),
        ("ask", {"sql": "SELECT '\x00'"}, "NUL"),
    ]  # fmt: skip
    for tool, arguments, part in wrong:
        assert part in alice.call(tool, **arguments).refused, (tool, arguments)
    assert served.spent() == before


@pytest.mark.parametrize(
    ("statement", "columns", "expected"),
    [
        ("SELECT count(*) FROM t", ["n"], None),
        (f"{CLAUSE} count(*) n FROM t", ["n"], 'count(*) n, dp_stderr(count(*)) AS "n_stderr" F'),
        (f"{CLAUSE} OPTIONS (a = ')') \"from\", sum(x) FROM t", ["a", "s"], 'sum(x)) AS "s_'),
        (f"{CLAUSE} a, extract(year FROM d) FROM t", ["a", "d"], "dp_stderr(extract(year FROM d)"),
        (f"{CLAUSE} count(*) FROM t", ["a", "b"], None),
        (f"{CLAUSE} OPTIONS (a = 1 count(*) FROM t", ["a"], None),
        (f"{CLAUSE} count(*), dp_stderr(count(*)) FROM t", ["a", "b"], None),
        (CLAUSE, [], None),
        (f"WITH c AS (SELECT 1 FROM t) {CLAUSE} avg(x) AS a FROM c", ["a"], "dp_stderr(avg(x)) AS"),
    ],
)  # fmt: skip
def test_forms_of_a_question(statement: str, columns: list[str], expected: str | None) -> None:
    """A question with its errors has them at the end of its list. Without its clause it is a plain SELECT."""
    more = with_errors(statement, columns)
    assert (more is None) == (expected is None) and (expected or "") in (more or "")
    plain = plain_select(statement)
    assert plain is None or "DIFFERENTIAL_PRIVACY" not in plain


def test_the_log_names_the_principal_and_the_protocol(alice: Agent, served: Served) -> None:
    """A beginning of a client is a line, and so is each statement, never an answer."""
    new = Agent(alice.port, book_of(served.database).add("noted"))
    new.rpc("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {
        "name": "test", "version": "1"}})  # fmt: skip
    assert {"principal": "noted", "event": "connected", "why": "MCP"}.items() <= served.audited()[-1].items()
    alice.call("ask", sql=AVERAGE.format("0.017"), anew=True)
    lines = [line for line in served.audited() if AVERAGE.format("0.017") == line.get("statement")]
    assert [line["event"] for line in lines if not line.get("page")] == ["asked", "charged"]
    alice.call("ask", sql="INSTALL httpfs")
    assert served.audited()[-1]["event"] == "refused"


def test_only_one_tool_charges() -> None:
    """The only tool that may charge is ask."""
    assert [tool.name for tool in TOOLS if not tool.free] == ["ask"]
