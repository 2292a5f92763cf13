"""Statements of dpduck's language without dp(..) around them: each is one call of dp, or is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from dpduck.server import bare_statements
from dpduck.server.bare_statements import first_word, has_clause, read_bare, without_dp
from dpduck.server.clients.desk import Desk
from dpduck.values.errors import DpduckError
from tests.server.served import CANARY, Served, ask

SELECT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.01)"
CLAUSE = f"{SELECT} sex, count(*) AS n FROM visits GROUP BY sex"
OWNERS = (
    "CREATE PRIVACY POLICY ON secret (PRIVACY UNIT ROW, BUDGET (epsilon = 1))",
    "CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1000))",
    "ALTER PRIVACY POLICY ON visits SET BUDGET (epsilon = 1000)",
    "ALTER PRIVACY POLICY ON visits NEW EPOCH",
    "ALTER PRIVACY POLICY ON visits RESERVE 20 % FOR alice",
    "DROP PRIVACY POLICY ON visits",
    "DROP PRIVACY POLICY IF EXISTS ON visits",
    "DECLARE PUBLIC TABLE secret",
    "UNDECLARE PUBLIC TABLE wards",
)
"""Statements of the data owner alone."""

SPELLINGS = (
    "{}",
    "{};",
    " \n\t{} ;; \n;",
    "-- SELECT 1\n{} -- the end",
    "/* a /* b */ c */ {} /* ; */ ; -- ;",
    "\u00a0{}\u3000;",
)
"""What may be around a bare statement."""


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_bare_statement_is_the_call_of_dp(served: Served, spelling: str) -> None:
    """It has the answer of dp(..), is charged once, and is in the log as it was typed."""
    before = served.rows("alice", ask(CLAUSE)), len(served.spent())
    text = spelling.format(CLAUSE)
    assert (served.rows("alice", text), len(served.spent())) == before
    assert served.audited()[-1]["statement"] == text
    inspected = served.service.gate.inspect(text)
    assert [(call.function, call.action, inspected.views) for call in inspected.calls] == [("dp", "run", ())]


def test_other_forms_of_a_question(served: Served) -> None:
    """A common table, brackets, FROM first, and plain SQL around an annotated SELECT, as dp() reads them."""
    flat = served.rows("bob", CLAUSE)
    for text in (
        f"WITH v AS (FROM visits) {SELECT} sex, count(*) AS n FROM v GROUP BY sex",
        f"({CLAUSE})",
        f"FROM ({CLAUSE})",
        f"WITH x AS ({CLAUSE}) FROM x",
        f"FROM visits {SELECT} sex, count(*) AS n GROUP BY sex",
    ):
        assert len(served.rows("bob", text)) == len(flat), text
    assert served.rows("bob", f"SELECT count(*) FROM ({CLAUSE}) WHERE n IS NOT NULL") == [(2,)]


def test_private_views_are_made_and_dropped(served: Served) -> None:
    """CREATE, CREATE OR REPLACE and DROP, as bare statements. The views are there for all at once."""
    made = "PRIVATE VIEW bare_view OPTIONS (epsilon = 0.01) AS SELECT ward, count(*) AS n FROM visits GROUP BY ward"
    assert served.rows("alice", f"CREATE {made};") != []
    assert len(served.rows("carol", "FROM bare_view")) == 6
    assert served.rows("alice", f"/* again */ create or replace {made}") != []
    assert served.rows("alice", "-- no longer\nDROP PRIVATE VIEW bare_view;") != []
    assert "there is no private view 'bare_view'" in served.refused("carol", "SELECT n + n FROM bare_view")
    assert served.rows("alice", "DROP PRIVATE VIEW IF EXISTS bare_view") != []


def test_explain_is_dp_explain(served: Served) -> None:
    """EXPLAIN is free and has the rows of dp_explain. Places in refusals are those of the typed text."""
    before = served.spent()
    statement = f"{SELECT} ward, sex, count(*) AS n FROM visits GROUP BY CUBE (ward, sex)"
    explained, called = (
        served.rows("alice", text) for text in (f"EXPLAIN {statement};", f"FROM dp_explain('{statement}')")
    )
    assert [row[:4] for row in explained] == [row[:4] for row in called] != []
    assert served.spent() == before
    wrong = served.refused("alice", f"-- a remark\nEXPLAIN {SELECT} count(*) AS n FROM vists")
    assert wrong.startswith(f"line 2, column {len(f'EXPLAIN {SELECT} count(*) AS n FROM ') + 1}: ")


@pytest.mark.parametrize("before", ["", "EXPLAIN ", "/* x */ explain\n"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_statements_of_the_owner_stay_the_owners(served: Served, spelling: str, before: str) -> None:
    """At the gate itself, before the vault is asked."""
    for statement in OWNERS:
        for text in (statement, statement.lower()):
            told = served.refused("alice", before + spelling.format(text))
            assert told == "this statement is the data owner's; accepted: SELECT WITH DIFFERENTIAL_PRIVACY .."


def test_words_in_texts_and_comments_are_no_statement(served: Served) -> None:
    """A SELECT over released tables stays one, whatever its texts and comments say."""
    for text in (
        f"SELECT '{CLAUSE}' AS said FROM ages",
        f"SELECT $a$ {CLAUSE} $a$ FROM ages -- {CLAUSE}",
        f"/* {CLAUSE} */ FROM ages",
        'SELECT n AS "SELECT WITH DIFFERENTIAL_PRIVACY" FROM ages',
        "SELECT n AS differential_privacy FROM ages",
        f"SELECT E'\\' {CLAUSE}' FROM ages",
        "-- DROP PRIVATE VIEW ages\nFROM ages",
        "SELECT 'ALTER PRIVACY POLICY ON visits NEW EPOCH' FROM ages",
    ):
        assert read_bare(text) is None, text
        assert len(served.rows("carol", text)) == 10, text


def test_a_part_of_another_statement_is_refused_with_what_to_write(served: Served) -> None:
    """COPY, INSERT, PREPARE and their kin are nothing for clients. The refusal says how the clause is written."""
    for text in (
        f"COPY ({CLAUSE}) TO '/tmp/x.csv'",
        f"CREATE TABLE x AS {CLAUSE}",
        f"PREPARE p AS {CLAUSE}",
        f"EXPLAIN ANALYZE {CLAUSE}",
        f"DESCRIBE {CLAUSE}",
        f"PIVOT ({CLAUSE}) ON sex USING sum(n)",
    ):
        told = served.refused("alice", text)
        assert told.startswith("SELECT WITH DIFFERENTIAL_PRIVACY is a part of another statement; accepted: "), text
        assert "FROM dp($q$ SELECT WITH DIFFERENTIAL_PRIVACY .. $q$)" in told


def test_two_statements_in_one_text_are_refused(served: Served) -> None:
    """No statement runs, whichever comes first."""
    view = "DROP PRIVATE VIEW ages"
    for first, second in ((CLAUSE, view), (view, CLAUSE), (view, "FROM ages"), ("FROM ages", CLAUSE), (view, view)):
        for between in (";", " ; ", "; -- \n", ";;", "/**/;/**/"):
            assert served.refused("alice", f"{first}{between}{second}"), (first, between, second)
    assert len(served.rows("alice", "FROM ages")) == 10
    assert CANARY not in repr(served.audited())


def test_the_page_shows_the_price_of_a_bare_statement(served: Served) -> None:
    """Every spelling has one call that may charge, with its price. Without that price nothing is charged."""
    principal = served.service.book.authenticate(served.tokens["alice"])
    assert principal is not None
    desk = Desk(served.service, principal)
    question = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = {}) sex, count(*) AS n FROM {} GROUP BY sex"
    for place, spelling in enumerate((*SPELLINGS, "WITH v AS (FROM visits) {}", "({})")):
        epsilon = f"0.0{31 + place}"
        text = spelling.format(question.format(epsilon, "v" if "v AS" in spelling else "visits"))
        asked = desk.read_statement(text)
        assert [action for action, _ in asked.charging] == ["run"]
        before = served.spent()
        with pytest.raises(DpduckError):
            desk.ask(text, ceilings={}, typed=True)
        prices = desk.prices(asked)
        (priced,) = prices.statements
        assert priced.plan is not None and float(priced.plan["epsilon"]) == float(epsilon)
        assert desk.with_errors(priced).errors is not None
        assert served.spent() == before
        assert len(desk.ask(text, ceilings=prices.ceilings(), typed=True).rows) == 2
        assert len(served.spent()) == len(before) + 1
    assert desk.read_statement(f"EXPLAIN {CLAUSE}").charging == ()
    with pytest.raises(DpduckError, match="the data owner's"):
        desk.read_statement(f"/* free */ {OWNERS[0]}")


def test_looking_at_columns_charges_nothing(served: Served) -> None:
    """The gate's probe of a bare statement has the columns and no rows."""
    principal = served.service.book.authenticate(served.tokens["alice"])
    assert principal is not None
    before = served.spent()
    text = f"{SELECT} age, count(*) AS probed, dp_stderr(probed) AS e FROM visits GROUP BY age"
    made = "CREATE PRIVATE VIEW probed OPTIONS (epsilon = 0.01) AS SELECT age, count(*) AS n FROM visits GROUP BY age"
    for statement, columns in ((f"{text};", ["age", "probed", "e"]), (made, ["status"]), (f"EXPLAIN {text}", [])):
        sql = served.service.gate.probe(principal, statement)
        with served.service.public.cursor() as cursor:
            relation = cursor.sql(sql)
            assert relation.columns[: len(columns)] == columns and relation.fetchall() == []
    assert served.spent() == before
    with pytest.raises(DpduckError, match="the data owner's"):
        served.service.gate.probe(principal, OWNERS[2])


@pytest.mark.parametrize(
    "text",
    [
        "$a" * 50_000,
        "'" * 99_999,
        "/*" * 50_000,
        "E'\\" * 30_000,
        "".join(f"$a{number}$" for number in range(15_000)),
        '"' * 99_999,
        "SELECT " * 14_000,
        "(" * 90_000,
        "/* */" * 20_000,
        "-" * 90_000,
    ],
    ids=lambda text: text[:8],
)
def test_no_text_takes_long_to_read(text: str) -> None:
    """The scanner takes linear time: a quadratic one would take minutes for some of these."""
    start = time.process_time()
    assert read_bare(f"SELECT differential_privacy {text}") is None
    assert not has_clause(f" differential_privacy {text}")
    assert len(first_word(text)) < 10
    assert time.process_time() - start < 20


def test_a_dollar_quote_in_a_statement_ends_nothing(served: Served) -> None:
    """A label with a dollar quote is refused as a label. What stands behind it is no second source of rows."""
    for mark in ("$q$", "$$", "$ask$", "''", "$q$$q$"):
        text = f"{SELECT} count(*) AS n FROM visits WHERE ward = 'w1{mark}) UNION ALL FROM dp_ledger() --' GROUP BY ()"
        inspected = served.service.gate.inspect(text)
        assert [call.argument for call in inspected.calls] == [text] and inspected.views == ()


def test_a_long_text_is_refused_before_it_is_read(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scanner sees no text beyond the server's limit, and of others no more than it needs."""
    read = list[int]()
    parts = bare_statements.parts_of

    def counted(text: str) -> Iterator[tuple[str, int, int]]:
        for part in parts(text):
            read.append(len(text))
            yield part

    monkeypatch.setattr(bare_statements, "parts_of", counted)
    long = f"{CLAUSE} {'(' * 5_000_000}"
    assert "characters; accepted: at most" in served.refused("alice", long) and not read
    assert without_dp(long) == long and len(read) < 20
