"""Sessions from SQL: adaptive questions from one charge, each answer durable, stated and marked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from dpduck.database.functions import database_of
from dpduck.store.cursors import Caller
from dpduck.values.errors import PermissionRefusal
from tests.mechanisms.sparse.sparse import PRICE, ask, fill, refused_ask, session
from tests.support.clinics import Clinic

ANSWER, MARGIN, SOURCE, UPDATED, LEFT, NOTE = 1, 2, 3, 4, 5, 6
FINE = "sparsity = 8, queries = 100, updates = 2, beta = 1e-9"


@pytest.fixture
def visits(open_clinic: Callable[..., Clinic]) -> Clinic:
    """A clinic with budget for prices that tell large counts from nothing."""
    made = open_clinic()
    fill(made)
    made.dp("ALTER PRIVACY POLICY ON visits SET BUDGET (epsilon = 200, delta = 1e-5)")
    return made


def dear(visits: Clinic, name: str = "s", options: str = FINE) -> None:
    visits.dp(f"CREATE PRIVATE SESSION {name} OPTIONS (epsilon = 50, delta = 1e-6, {options}) ON visits (code)")


def test_answers_keep_their_statement_and_updates_are_counted(visits: Clinic) -> None:
    """Each answer has its margin, says whether it cost an update and how many are left. Then the hypothesis is marked.

    False alarm below 1e-9: beta is 1e-9.
    """
    dear(visits)
    exact = dict(visits.rows("SELECT code, count(*) FROM visits GROUP BY code"))
    charges, used = visits.charges(), 0
    for key in ("K0", "absent", "K1", "K2", "K3"):
        row = ask(visits, "s", f"['{key}']")
        used += row[UPDATED]
        assert row[LEFT] == 2 - used
        if row[SOURCE] == "hypothesis, unchecked":
            assert (row[MARGIN], row[UPDATED], used) == (None, False, 2)
            assert "no updates are left" in row[NOTE]
        else:
            assert abs(row[ANSWER] - exact.get(key, 0)) <= row[MARGIN]
            assert (row[SOURCE] == "measured") == row[UPDATED]
    assert used == 2
    assert ask(visits, "s", "['K5']")[SOURCE] == "hypothesis, unchecked"
    assert visits.charges() == charges
    assert visits.rows("SELECT answered, updates, updates_left FROM dp_sessions()") == [(6, 2, 0)]


def test_the_same_question_has_the_same_answer(visits: Clinic) -> None:
    """Stored answers are returned, also in another order of keys, while the session moves on."""
    dear(visits)
    first = ask(visits, "s", "['K3', 'absent']")
    for key in ("K0", "K1", "K2"):
        ask(visits, "s", f"['{key}']")
    assert ask(visits, "s", "['absent', 'K3']") == first
    assert ask(visits, "s", "['absent', 'K3']", ", weights := [1, 1]") == first


def test_a_session_survives_restarts(open_clinic: Callable[..., Clinic], tmp_path: Path) -> None:
    """State, answers and the rest of the updates are there after a restart, and the hypothesis answers alike."""
    path = tmp_path / "clinic.duckdb"
    made = open_clinic(path)
    fill(made)
    session(made, options=FINE)
    rows = [ask(made, "s", f"['{key}']") for key in ("K0", "K1", "K2", "K9", "x")]
    listed = made.rows("FROM dp_sessions()")
    made.con.close()
    made = open_clinic(path)
    assert made.rows("FROM dp_sessions()") == listed
    assert [ask(made, "s", f"['{key}']") for key in ("K0", "K1", "K2", "K9", "x")] == rows
    ask(made, "s", "['new']")
    assert made.value("SELECT answered FROM dp_sessions()") == 6
    assert session(made, options=FINE) == [("s is ready",)]


def test_an_older_copy_of_the_store_is_refused(open_clinic: Callable[..., Clinic], tmp_path: Path) -> None:
    """Rounds that were run are not run again with the thresholds that they have shown."""
    path, store = tmp_path / "clinic.duckdb", tmp_path / "clinic_private.duckdb"
    made = open_clinic(path)
    fill(made)
    session(made)
    made.con.close()
    older = store.read_bytes()
    made = open_clinic(path)
    ask(made, "s", "['K0']")
    made.con.close()
    store.write_bytes(older)
    assert "older than a session" in refused_ask(open_clinic(path), "s", "['K1']")


def test_a_changed_policy_ends_new_questions(visits: Clinic) -> None:
    """After a new epoch stored answers are repeated, new questions are refused until a new charge."""
    dear(visits)
    first = ask(visits, "s", "['K0']")
    visits.dp("ALTER PRIVACY POLICY ON visits NEW EPOCH")
    database = database_of(visits.con)
    assert database is not None
    database.sparse._sessions._open.clear()
    assert ask(visits, "s", "['K0']") == first
    assert "changed since" in refused_ask(visits, "s", "['K2']")


def test_callers_come_one_after_the_other(visits: Clinic) -> None:
    """Eight threads ask at once: every question is answered once, numbered without gaps, updates within bounds."""
    dear(visits, options="sparsity = 8, queries = 100, updates = 20")
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with visits.con.cursor() as cursor:
                for key in range(6):
                    cursor.execute(f"FROM dp_ask('s', ['K{(key + number) % 8}'])").fetchall()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    numbers = visits.rows("SELECT number FROM private.dpduck.session_answers ORDER BY number")
    assert [number for (number,) in numbers] == list(range(1, 9))
    measured = visits.value("SELECT count(*) FROM private.dpduck.session_answers WHERE source = 'measured'")
    assert visits.value("SELECT updates - updates_left FROM dp_sessions()") == measured


def test_who_may_ask(visits: Clinic) -> None:
    """Every principal who may ask about the table may ask the owner's sessions. A principal's own is theirs alone."""
    database = database_of(visits.con)
    assert database is not None
    dear(visits)
    alice, bob = (Caller(name, owner=False) for name in ("alice", "bob"))
    outsider = Caller("carol", owner=False, tables=("others",))
    database.run(f"CREATE PRIVATE SESSION mine OPTIONS ({PRICE}, queries = 100, updates = 2) ON visits (code)", alice)
    database.sparse.ask('["s", ["K0"], null]', bob)
    database.sparse.ask('["mine", ["K0"], null]', alice)
    for caller, question in ((bob, "mine"), (outsider, "s")):
        with pytest.raises(PermissionRefusal):
            database.sparse.ask(f'["{question}", ["K1"], null]', caller)
    with pytest.raises(PermissionRefusal):
        database.run("DROP PRIVATE SESSION mine", bob)
    assert "mine" not in database.sparse.list_sessions(bob)
    assert "mine" in database.sparse.list_sessions(alice)
    assert database.run("DROP PRIVATE SESSION mine", alice) == database.run("DROP PRIVATE SESSION mine", alice)


def test_many_questions_from_a_table(visits: Clinic) -> None:
    """A public table of questions is answered at once, as one by one. Too many keys are refused."""
    dear(visits)
    visits.con.execute("CREATE TABLE asked AS SELECT i AS question, 'K' || (i % 3) AS key FROM range(6) AS r(i)")
    visits.dp("DECLARE PUBLIC TABLE asked")
    rows = visits.rows("FROM dp_ask('s', 'asked')")
    assert [row[0] for row in rows] == ["0", "1", "2", "3", "4", "5"]
    assert [row[1:] for row in rows[:3]] == [row[1:] for row in rows[3:]]
    assert visits.value("SELECT answered FROM dp_sessions()") == 3
    assert "at most 8 keys" in refused_ask(visits, "s", "list_transform(range(9), lambda i: 'K' || i)")
    assert visits.dp("DROP PRIVATE SESSION s") == [("s is dropped; its budget stays spent",)]
    assert "there is no private" in visits.refused("DROP PRIVATE SESSION other")
    assert visits.dp("DROP PRIVATE SESSION IF EXISTS other") == [("there was no such session",)]


def test_an_alpha_that_cannot_be_is_refused_free_of_charge(visits: Clinic) -> None:
    """An alpha beyond the price is refused before the charge, with the alpha that the price would buy."""
    visits.dp("ALTER PRIVACY POLICY ON visits SET BUDGET (rho = 1000)")
    text = f"CREATE PRIVATE SESSION t OPTIONS ({PRICE}, queries = 100, alpha = 1) ON visits (code)"
    assert "alpha of at least" in visits.refused(text)
    pure = "CREATE PRIVATE SESSION p OPTIONS (epsilon = 20, queries = 100, updates = 3) ON visits (code)"
    assert visits.dp(pure) == [("p is ready",)]
    assert ask(visits, "p", "['K0']")[MARGIN] > 0


def test_conjunctions_in_a_session(visits: Clinic) -> None:
    """A conjunction with one free column is a question of two keys. False alarm below 1e-9."""
    options = "epsilon = 50, delta = 1e-6, sparsity = 2, queries = 10, updates = 2, beta = 1e-9"
    visits.dp(f"CREATE PRIVATE SESSION flags OPTIONS ({options}) ON visits (smoker, senior)")
    row = ask(visits, "flags", "dp_conjunction([NULL, true])")
    assert abs(row[ANSWER] - visits.value("SELECT count(*) FROM visits WHERE senior")) <= row[MARGIN]
    assert row == ask(visits, "flags", "[(true, true), (false, true)]")
    with pytest.raises(duckdb.Error, match="more than 20 free columns"):
        visits.rows("SELECT dp_conjunction(list_transform(range(21), lambda i: CAST(NULL AS BOOLEAN)))")


def test_a_key_counts_once_in_a_question(visits: Clinic) -> None:
    """Questions named '' and NULL are one question: a key in both would weigh 2, which no charge covers."""
    dear(visits)
    visits.rows(
        "CREATE TABLE asked AS FROM (VALUES ('', 'K0', 1.0), ('', 'K1', 1.0), (NULL, 'K0', 1.0), (NULL, 'K1', 1.0)) "
        "AS t(question, key, weight)"
    )
    visits.dp("DECLARE PUBLIC TABLE asked")
    assert "a key has two weights in one question" in refused_ask(visits, "s", "'asked'")


def test_a_session_that_is_opened_again_looks_at_public_facts_again(
    open_clinic: Callable[..., Clinic], tmp_path: Path
) -> None:
    """Its private rows are counted under the conditions of a new release: a default collation would merge units."""
    path = tmp_path / "clinic.duckdb"
    first = open_clinic(path)
    fill(first)
    session(first, options=FINE)
    first.con.close()
    again = open_clinic(path)
    again.con.execute("SET GLOBAL default_collation = 'nocase'")
    assert "collation" in refused_ask(again, "s", "['K0']")
