"""The gate, without a protocol: its output for each input, and who gets which message."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from dpduck.kernel.ledger.secrets import SecretsFile
from dpduck.server.gate import open_service
from dpduck.server.limits import GivenUp, Limits
from dpduck.server.principals import PrincipalBook
from dpduck.values.errors import DpduckError, PermissionRefusal
from tests.server.served import CANARY, CUBE, NoAudit, Served, ask, catalog, count, open_served
from tests.support.clinics import by


def test_a_private_view_is_read_as_it_is(served: Served) -> None:
    """A scan of one table streams: the client's text runs, with names in full, and nothing is copied or charged."""
    before = served.spent()
    text = "SELECT #1, #2, #3 FROM ward_cube -- as it is"
    assert served.sql("alice", text) == text.replace("ward_cube", "memory.main.ward_cube")
    assert len(served.rows("carol", "FROM private.ward_cube")) == 21
    assert served.rows("bob", "SELECT count(*) FROM main.ages") == [(10,)]
    assert served.spent() == before


def test_a_question_is_answered_and_charged_once(served: Served) -> None:
    """The answer is the released one, for every spelling of the statement and for others who may ask."""
    before = len(served.spent())
    first = served.rows("alice", count("ward", "0.05"))
    assert len(first) == 6
    assert served.rows("alice", count("ward", "0.05")) == first
    assert served.rows("bob", f"SELECT * FROM dp('{by('ward', '0.05')}') AS d WHERE d.n IS NOT NULL") == first
    assert len(served.spent()) == before + 1
    assert served.spent()[-1][1] == "alice"


def test_dp_functions_are_tables_among_others(served: Served) -> None:
    """They can be joined, aggregated, aliased and put in subqueries. Defaults and named arguments work."""
    statement = by("sex", "0.05")
    joined = f"SELECT count(*) FROM dp('{statement}') AS d JOIN ward_cube AS w ON d.sex = w.sex WHERE w.ward IS NULL"
    assert served.rows("alice", joined) == [(2,)]
    nested = f"WITH d AS (FROM dp('{statement}')) SELECT (SELECT count(*) FROM d), (SELECT max(n) > 0 FROM ages)"
    assert served.rows("alice", nested) == [(2, True)]
    twice = f"SELECT count(*) FROM dp('{statement}') AS a JOIN dp('{statement}') AS b ON a.sex = b.sex"
    assert served.rows("alice", twice) == [(2,)]
    weighted = "FROM dp_stderr_of('ward_cube', '1', confidence := 0.9)"
    assert len(served.rows("carol", weighted)[0]) == 4
    assert served.rows("carol", "SELECT name FROM dp_releases() WHERE name = 'ages'") == [("ages",)]


@pytest.mark.parametrize("name", ["visits", "VISITS", "wards"])
def test_no_principal_names_a_view_as_a_declared_table(served: Served, name: str) -> None:
    """Otherwise a view would answer plain SQL over the table's name with made up numbers, whoever asks.

    A table without a policy is no such name: a refusal would tell that it is there.
    """
    answer = "AS SELECT ward, count(*) AS n FROM visits GROUP BY ward"
    told = served.refused("bob", ask(f"CREATE PRIVATE VIEW {name} OPTIONS (epsilon = 0.01) {answer}"))
    assert told == f"the name '{name}' is that of a declared table; accepted: another name"
    drawn = served.refused("bob", ask(f"CREATE PRIVATE TABLE {name} AS SAMPLE 10 FROM ward_cube"))
    assert "is that of a declared table" in drawn


CHAINS = {
    "casts": "SELECT 1" + "::INT" * 900,
    "collations": "SELECT ward" + " COLLATE nocase" * 900 + " FROM ward_cube",
    "sums": "SELECT 1" + " + 1" * 900,
    "weights": "FROM dp_stderr_of('ward_cube', '1" + " + 1" * 900 + "')",
}


@pytest.mark.parametrize("chain", CHAINS)
def test_long_chains_are_refused_as_such(served: Served, chain: str) -> None:
    """As nested too deeply, not as a failure that should be reported."""
    assert "nested too deeply; accepted: " in served.refused("alice", CHAINS[chain])


def test_blanks_of_unicode_are_blanks(served: Served) -> None:
    """DuckDB counts each as one byte, and says where a name begins by that."""
    for blank in ("\u200b", "\u2003", " \u00a0  ", "\u3000\u3000"):
        assert served.rows("alice", f"FROM{blank}ages") == served.rows("alice", "FROM ages")


def test_everyone_sees_their_own_ledger_rows(served: Served) -> None:
    """Another's charges, and statements, are not shown."""
    served.rows("alice", count("age", "0.01"))
    assert {row[2] for row in served.rows("alice", "FROM dp_ledger()")} == {"alice"}
    assert served.rows("carol", "FROM dp_ledger()") == []


def test_prices_are_parts_of_ones_own_share(served: Served) -> None:
    """The ledger and the plan of a principal name parts of their share. A view's comment names no share."""
    served.rows("alice", count("age", "0.02"))
    view = "CREATE PRIVATE VIEW parts OPTIONS (epsilon = 0.01) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex"
    assert served.rows("alice", f"FROM dp('{view}')")
    assert served.rows("alice", "SELECT price FROM dp_ledger() ORDER BY id DESC LIMIT 2") == [
        ("0.2 % of your budget (epsilon = 0.01)",),
        ("0.4 % of your budget (epsilon = 0.02)",),
    ], "her share is half of epsilon = 10"
    planned = served.rows("alice", f"SELECT price FROM dp_plan('{by('ward', '0.04')}') WHERE number = 1")
    assert planned == [("0.8 % of your budget (epsilon = 0.04)",)]
    comments = "SELECT comment FROM duckdb_tables() WHERE table_name = 'parts'"
    for reader in ("alice", "bob"):
        ((comment,),) = served.rows(reader, comments)
        assert comment.startswith("differentially private, epsilon = 0.01 (pure), 0.1 % of the budget then; ")
    served.rows("alice", ask("DROP PRIVATE VIEW parts"))


def test_a_view_that_is_made_is_there_at_once(served: Served) -> None:
    """CREATE and DROP PRIVATE VIEW change the served views at once. The name of another's view is taken."""
    made = "CREATE PRIVATE VIEW mine OPTIONS (epsilon = 0.01) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex"
    assert served.rows("alice", ask(made)) == [("private.mine is ready",)]
    assert len(served.rows("bob", "FROM mine")) == 2
    comments = served.rows("bob", "SELECT comment FROM duckdb_tables() WHERE table_name = 'mine'")
    assert "epsilon = 0.01 (pure)" in comments[0][0]
    columns = "SELECT strategy IS NOT NULL, epsilon, rho, statement, released_at, ledger_id FROM dp_releases()"
    price = "dp_releases() shows of another's view what its comment says"
    assert served.rows("bob", f"{columns} WHERE name = 'mine'") == [
        (True, 0.01, pytest.approx(4.984411e-05), None, None, None)
    ], price
    assert "belongs to somebody else" in served.refused("bob", ask("DROP PRIVATE VIEW mine"))
    assert "belongs to somebody else" in served.refused(
        "bob", ask(made.replace("CREATE", "CREATE OR REPLACE").replace("sex", "ward"))
    )
    served.rows("alice", ask("DROP PRIVATE VIEW mine"))
    assert "no private view" in served.refused("bob", "FROM mine")


def test_tables_and_shares_are_kept(served: Served) -> None:
    """A principal's tables, and share of the budget, hold at the gate as they do inside dp()."""
    assert "carol may not ask about 'visits'" in served.refused("carol", count("sex", "0.05"))
    assert "share of alice" in served.refused("alice", count("sex", "6"))
    served.rows("bob", count("sex", "1.5"))


def test_owner_statements_are_refused(served: Served) -> None:
    """Whatever belongs to the owner is refused by role, over the gate too."""
    for statement in (
        "ALTER PRIVACY POLICY ON visits NEW EPOCH",
        "DROP PRIVACY POLICY ON visits",
        "DECLARE PUBLIC TABLE secret",
        "CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 100))",
    ):
        for who in served.tokens:
            assert "the data owner's" in served.refused(who, ask(statement))
    for argument in ("'visits'", "'visits', $$ " + count("sex", "0.02") + " $$", "'secret', 'no statement'"):
        assert "the data owner's" in served.refused("alice", f"FROM dp_check({argument})")
    for argument in ("'SELECT 1'", f"$$ {count('sex', '0.02')} $$, runs := 2", "$$ SELECT 1 $$, epsilon := [1, 2]"):
        for who in served.tokens:
            assert "the data owner's" in served.refused(who, f"FROM dp_trial({argument})")


def test_listings_show_no_answers_of_others(served: Served) -> None:
    """Answers of others are in the public database for a while, but never in the catalog that clients see."""
    served.rows("alice", count("sex", "0.02"))
    views, asked = {"ward_cube", "ages"}, {"visits", "wards"}
    for text, names in (
        ("SELECT table_name FROM duckdb_tables()", views),
        ("SELECT table_name FROM information_schema.tables", views | asked),
        ("SELECT DISTINCT table_name FROM duckdb_columns()", views),
        ("SELECT DISTINCT table_name FROM information_schema.columns", views | asked),
        ("FROM duckdb_views()", set()),
    ):
        listed = {row[0] for row in served.rows("bob", text)}
        assert listed == names, text
    assert served.rows("bob", "SELECT schema_name FROM information_schema.schemata") == [("main",)]


def test_the_log_says_who_and_what_and_never_an_answer(served: Served) -> None:
    """Charged, answered or refused and why, and the ledger's entry. No released value, no private one, no token."""
    served.rows("alice", count("ward", "0.03"))
    answer = served.rows("alice", count("ward", "0.03"))
    served.refused("carol", count("ward", "0.03"))
    charged, answered, refused = [line for line in served.audited() if line["event"] != "asked"][-3:]
    assert [line["event"] for line in (charged, answered, refused)] == ["charged", "answered", "refused"]
    assert charged["principal"] == "alice" and charged["ledger_id"] == str(served.spent()[-1][0])
    assert "may not ask" in refused["why"] and "0.03" in refused["statement"]
    log = served.log.read_text(encoding="utf-8")
    assert CANARY not in log and not any(token in log for token in served.tokens.values())
    assert not any(f": {row[1]}" in line for row in answer for line in log.splitlines()[-6:])
    assert served.log.stat().st_mode & 0o077 == 0


def test_a_revoked_principal_asks_no_more(tmp_path: Path, own_state: Path) -> None:
    """Inside the vault too: it looks up the principal, whatever the public database says."""
    opened = open_served(tmp_path)
    try:
        alice = opened.service.book.authenticate(opened.tokens["alice"])
        assert alice is not None
        PrincipalBook(SecretsFile.open(tmp_path / "clinic_private_secrets", create=False)).revoke("alice")
        assert opened.service.book.authenticate(opened.tokens["alice"]) is None
        with pytest.raises(DpduckError, match="revoked"):
            opened.service.gate.admit(alice, count())
        with pytest.raises(PermissionRefusal):
            opened.service.book.find("alice")
    finally:
        opened.service.close()


def test_the_public_database_holds_released_tables_alone(served: Served) -> None:
    """Its whole catalog: private views, answers, listings. No private table, and none can be attached."""
    with served.service.public.cursor() as cursor:
        held = catalog(cursor)
        assert {name for database, name in held if database == "memory"} == {"ward_cube", "ages"}
        assert {database for database, _ in held} <= {"memory", "answers", "listing"}
        with pytest.raises(duckdb.PermissionException):
            cursor.execute(f"ATTACH '{served.database}' AS vault (READ_ONLY)")


@pytest.mark.slow
def test_limits_are_kept(tmp_path: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Length, depth, time, rows and statements at once: each is refused in one line, and the server goes on."""
    limits = Limits(characters=2_000, seconds=600, rows=15, running=3, running_each=2)
    opened = open_served(tmp_path, limits)
    try:
        assert "at most 2000" in opened.refused("alice", f"SELECT {'1,' * 2_000} 1")
        assert "nested too deeply" in opened.refused("alice", f"SELECT {'(' * 70}1{')' * 70}")
        assert "too many rows" in opened.refused("alice", "FROM range(100)")
        assert "too many rows" in opened.refused("alice", "FROM ward_cube")
        assert len(opened.rows("alice", "FROM ward_cube LIMIT 5")) == 5
        assert "too many rows" in opened.refused("alice", f"FROM dp('{CUBE_QUESTION}')")
        full = f"too many statements at once; accepted: {limits.running_each} at a time, 3 of all principals"
        assert refused_beside(opened, ("alice", "alice", "bob"), monkeypatch) == {
            "alice": full,
            "bob": full,
            "carol": full,
        }
        assert refused_beside(opened, ("alice", "alice"), monkeypatch) == {"alice": full}, "others have a place left"
        monkeypatch.setattr(opened.service.public, "_limits", replace(limits, seconds=0.5))
        forever = "SELECT count(*) FROM range(10000000) AS a, range(10000000) AS b WHERE a.range + b.range = 3"
        assert "takes too long" in opened.refused("alice", forever)
        monkeypatch.setattr(opened.service.public, "_limits", limits)
        assert opened.rows("alice", COUNT_AGES) == [(10,)]
    finally:
        opened.service.close()


COUNT_AGES = "SELECT count(*) FROM (SELECT a.age FROM ages AS a JOIN ages AS b ON a.age = b.age)"
CUBE_QUESTION = CUBE.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1)", 1)


def refused_beside(opened: Served, working: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Returns each caller's message while such a statement is at work. Callers without a message are let in."""
    entered, go_on, run = threading.Semaphore(0), threading.Event(), opened.service.public.run
    told: dict[str, str] = {}
    before = opened.spent()

    def held(
        principal: str, sql: str, tables: Sequence[tuple[str, str]], given_up: GivenUp, letters: int | None
    ) -> str:
        entered.release()
        assert go_on.wait(600)
        return run(principal, sql, tables, given_up, letters)

    with monkeypatch.context() as patch, ThreadPoolExecutor(len(working)) as pool:
        patch.setattr(opened.service.public, "run", held)
        try:
            at_work = [pool.submit(opened.rows, name, COUNT_AGES) for name in working]
            assert all(entered.acquire(timeout=600) for _ in working)
            for name in ("alice", "bob", "carol"):
                try:
                    assert opened.rows(name, "SELECT 1") == [(1,)]
                except DpduckError as error:
                    told[name] = str(error)
        finally:
            go_on.set()
        assert [each.result() for each in at_work] == [[(10,)]] * len(working)
    assert opened.spent() == before
    return told


def test_there_is_nothing_to_serve_without_a_store(tmp_path: Path, state_directory: Path) -> None:
    """One line names the missing store. Nothing is made."""
    with duckdb.connect(str(tmp_path / "plain.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS x")
    with pytest.raises(DpduckError, match="has no store"):
        open_service(tmp_path / "plain.duckdb", None, NoAudit(), Limits())
    assert not (tmp_path / "plain_private_secrets").exists()
