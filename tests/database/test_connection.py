"""A release through every way in which a client may bind, prepare, fetch or repeat it: one charge, the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest

import dpduck
from dpduck.database.macros import read_macro_files
from tests.support.clinics import Clinic, by


def test_a_first_release_and_the_same_again(clinic: Clinic) -> None:
    """A release has a row for every declared value. The same statement again is free and gives the same numbers."""
    first = clinic.dp(by("ward"))
    assert sorted(row[0] for row in first) == [f"w{number}" for number in range(6)]
    assert all(isinstance(row[1], int) for row in first)
    assert clinic.dp(by("ward")) == first
    assert clinic.dp(by("ward").lower().replace("w", "w", 1)) == first
    assert clinic.charges() == 1


def test_spelling_is_not_a_new_question(clinic: Clinic) -> None:
    """The key is the canonical request, without blanks, comments, letter case, aliases, ORDER BY and LIMIT."""
    first = dict(clinic.dp(by("sex")))
    again = (
        "select with differential_privacy options (epsilon=1.0)\n  v.SEX as s, count(*) as visits -- by sex\n"
        "from main.visits as v group by 1 order by visits desc limit 1"
    )
    sex, n = clinic.dp(again)[0]
    assert first[sex] == n == max(first.values())
    assert clinic.charges() == 1


@pytest.mark.parametrize(
    "first",
    [
        lambda con, text: con.execute("SELECT * FROM dp(?) LIMIT 0", [text]).fetchall(),
        lambda con, text: con.execute("DESCRIBE FROM dp(?)", [text]).fetchall(),
        lambda con, text: con.execute("EXPLAIN FROM dp(?)", [text]).fetchall(),
        lambda con, text: con.execute("EXPLAIN ANALYZE FROM dp(?)", [text]).fetchall(),
        lambda con, text: con.sql(f"FROM dp($${text}$$)"),
        lambda con, text: con.sql("FROM dp(?)", params=[text]).columns,
        lambda con, text: con.execute(f"PREPARE asked AS FROM dp($${text}$$)"),
        lambda con, text: con.execute(f"SUMMARIZE FROM dp($${text}$$)").fetchall(),
    ],
    ids=["limit 0", "describe", "explain", "explain analyze", "sql", "sql with parameters", "prepare", "summarize"],
)
def test_looking_first_is_charged_at_most_once(
    clinic: Clinic, first: Callable[[duckdb.DuckDBPyConnection, str], object]
) -> None:
    """Binding without fetching may charge, and then the answer itself is free."""
    kept = first(clinic.con, by("sex"))
    assert clinic.charges() <= 1
    answer = clinic.dp(by("sex"))
    assert len(answer) == 2
    assert clinic.charges() == 1
    del kept


def test_all_ways_of_looking_together_are_one_charge(clinic: Clinic) -> None:
    """LIMIT 0, DESCRIBE, EXPLAIN, and a relation fetched or not: one charge for all."""
    text = by("sex")
    clinic.rows(f"SELECT * FROM dp($${text}$$) LIMIT 0")
    clinic.rows(f"DESCRIBE FROM dp($${text}$$)")
    clinic.rows(f"EXPLAIN FROM dp($${text}$$)")
    relation = clinic.con.sql(f"FROM dp($${text}$$)")
    filtered = relation.filter("n > -1000000").order("sex")
    assert filtered.fetchall() == sorted(relation.fetchall())
    assert "n" in repr(relation)
    assert relation.to_arrow_table().num_rows == 2
    assert clinic.charges() == 1


def test_prepared_statements_executed_twice(clinic: Clinic) -> None:
    """A prepared statement, with the text inside or as its parameter, gives the stored answer each time."""
    clinic.rows(f"PREPARE fixed AS FROM dp($${by('sex')}$$)")
    clinic.rows("PREPARE open AS FROM dp($1)")
    first = clinic.rows("EXECUTE fixed")
    assert clinic.rows("EXECUTE fixed") == first
    for _ in range(2):
        assert clinic.rows(f"EXECUTE open($${by('sex')}$$)") == first
    assert clinic.charges() == 1
    clinic.rows(f"EXECUTE open($${by('ward')}$$)")
    assert clinic.charges() == 2


def test_a_view_over_dp(clinic: Clinic) -> None:
    """A view over dp() reads the stored answer, in whatever statement it stands."""
    clinic.rows(f"CREATE VIEW by_sex AS FROM dp($${by('sex')}$$)")
    first = clinic.rows("FROM by_sex ORDER BY sex")
    assert clinic.rows("FROM by_sex ORDER BY sex") == first
    assert clinic.rows("SELECT a.n - b.n FROM by_sex a JOIN by_sex b USING (sex)") == [(0,), (0,)]
    assert clinic.charges() == 1


def test_create_table_as_and_insert(clinic: Clinic) -> None:
    """An answer can be kept in the client's own tables."""
    clinic.rows(f"CREATE TABLE kept AS FROM dp($${by('sex')}$$)")
    clinic.rows(f"INSERT INTO kept FROM dp($${by('sex')}$$)")
    assert clinic.value("SELECT count(*) FROM kept") == 4
    assert clinic.rows("SELECT DISTINCT * FROM kept ORDER BY 1") == sorted(clinic.dp(by("sex")))
    assert clinic.charges() == 1


def test_two_new_releases_in_one_statement(clinic: Clinic) -> None:
    """One statement asks for two answers that do not exist yet. Its snapshot is older than both."""
    joined = clinic.rows(
        f"SELECT a.sex, b.age FROM dp($${by('sex')}$$) a CROSS JOIN dp($${by('age')}$$) b "
        f"WHERE a.n > -1000000 AND b.n > -1000000"
    )
    assert len(joined) == 20
    assert clinic.charges() == 2


@pytest.mark.parametrize("read_before", [False, True], ids=["fresh", "after reading private"])
def test_two_new_releases_in_one_transaction(clinic: Clinic, read_before: bool) -> None:
    """New releases are visible in the transaction that asks, even where it has read the store before."""
    clinic.dp("CREATE PRIVATE VIEW before OPTIONS (epsilon = 1) AS SELECT count(*) AS n FROM visits")
    clinic.rows("BEGIN")
    if read_before:
        clinic.rows("FROM private.before")
    answers = [clinic.dp(by("sex")), clinic.dp(by("ward"))]
    assert [len(answer) for answer in answers] == [2, 6]
    assert [clinic.dp(by("sex")), clinic.dp(by("ward"))] == answers
    clinic.rows("COMMIT")
    assert [clinic.dp(by("sex")), clinic.dp(by("ward"))] == answers
    assert clinic.charges() == 3


def test_a_rollback_keeps_the_charge_and_the_answer(clinic: Clinic) -> None:
    """A shown answer stays paid for: the outer transaction has no power over the ledger."""
    clinic.rows("BEGIN")
    clinic.rows("CREATE TABLE forgotten (i INTEGER)")
    answer = clinic.dp(by("sex"))
    clinic.rows("ROLLBACK")
    assert clinic.charges() == 1
    assert clinic.dp(by("sex")) == answer
    assert clinic.charges() == 1


def test_eight_threads_with_one_question(clinic: Clinic) -> None:
    """The same statement from eight threads at once is one release."""
    with ThreadPoolExecutor(8) as pool:
        cursors = [clinic.con.cursor() for _ in range(8)]
        answers = list(pool.map(lambda cursor: cursor.execute("FROM dp(?)", [by("ward")]).fetchall(), cursors))
    assert all(answer == answers[0] for answer in answers)
    assert clinic.charges() == 1


def test_eight_threads_with_eight_questions(clinic: Clinic) -> None:
    """Different statements at once are each released and charged once, and none fails."""
    texts = [f"{by('sex', more=f'refresh = {tag!r}')}" for tag in "abcdefgh"]
    with ThreadPoolExecutor(8) as pool:
        cursors = [clinic.con.cursor() for _ in texts]
        answers = list(
            pool.map(lambda pair: pair[0].execute("FROM dp(?)", [pair[1]]).fetchall(), zip(cursors, texts, strict=True))
        )
    assert clinic.charges() == 8
    assert [clinic.dp(text) for text in texts] == answers
    assert clinic.charges() == 8


def test_cursors_and_threads_share_one_engine(clinic: Clinic) -> None:
    """A cursor answers as its connection does, and sees the same ledger."""
    with clinic.con.cursor() as cursor:
        answer = cursor.execute("FROM dp(?)", [by("sex")]).fetchall()
    assert clinic.dp(by("sex")) == answer
    assert clinic.charges() == 1


def test_loading_twice_changes_nothing(clinic: Clinic) -> None:
    """load() may be called again on a connection, a cursor, or another connection of the same database."""
    answer = clinic.dp(by("sex"))
    with clinic.con.cursor() as cursor:
        for connection in (clinic.con, cursor):
            assert dpduck.load(connection) is connection
            assert connection.execute("FROM dp(?)", [by("sex")]).fetchall() == answer
    assert clinic.charges() == 1


@pytest.mark.parametrize(("few", "databases"), [(0, 2), (256, 0)])
def test_more_releases_than_there_are_copies(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch, few: int, databases: int
) -> None:
    """Copies of old releases are given up, and the answers are read from the store. Few values need no database."""
    monkeypatch.setattr("dpduck.store.cursors.MOST_COPIES", 2)
    monkeypatch.setattr("dpduck.store.cursors.MOST_WRITTEN", 2)
    monkeypatch.setattr("dpduck.store.releases.FEW", few)
    texts = [by("sex", epsilon="0.1", more=f"refresh = {tag!r}") for tag in "abcde"]
    answers = [clinic.dp(text) for text in texts]
    names = clinic.rows("SELECT database_name FROM duckdb_databases() WHERE database_name LIKE 'dpduck_release%'")
    assert len(names) == databases
    assert [clinic.dp(text) for text in texts] == answers
    assert clinic.charges() == 5


def test_owner_statements_bound_twice(clinic: Clinic) -> None:
    """A relation binds its text when it is made and again when it is fetched: a change is made once."""
    epoch, revision = "SELECT epoch FROM dp_policies()", "SELECT revision FROM dp_policies()"
    clinic.con.sql("FROM dp('ALTER PRIVACY POLICY ON visits NEW EPOCH')").fetchall()
    assert clinic.value(epoch) == 1
    clinic.con.sql("FROM dp('DROP PRIVACY POLICY ON visits')").fetchall()
    made = clinic.con.sql(
        "FROM dp('CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 10), "
        "DOMAIN sex IN (0, 1))')"
    )
    assert "is in force" in made.fetchall()[0][0]
    before = clinic.value(revision)
    assert "is in force" in made.fetchall()[0][0]
    assert clinic.value(revision) == before
    view = clinic.con.sql("FROM dp('CREATE PRIVATE VIEW v OPTIONS (epsilon = 1) AS SELECT count(*) AS n FROM visits')")
    assert view.fetchall() == [("private.v is ready",)] == view.fetchall()
    dropped = clinic.con.sql("FROM dp('DROP PRIVATE VIEW v')").fetchall()
    assert dropped == [("private.v is dropped; its budget stays spent",)]
    assert clinic.charges() == 1


def test_a_policy_stated_again_reads_its_public_tables_again(clinic: Clinic) -> None:
    """The same CREATE OR REPLACE after a public table grew takes the new snapshot. Mere repetition does nothing."""
    text = (
        "CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 10), "
        "DOMAIN ward FROM wards.name)"
    )
    clinic.dp(text)
    revision = clinic.value("SELECT revision FROM dp_policies()")
    clinic.dp(text)
    assert clinic.value("SELECT revision FROM dp_policies()") == revision
    clinic.rows("INSERT INTO wards VALUES ('w6', 'south')")
    clinic.dp(text)
    assert clinic.value("SELECT revision FROM dp_policies()") == revision + 1
    assert len(clinic.dp(by("ward"))) == 7


@pytest.mark.parametrize("name", ["dp", "dp_key"])
def test_a_macro_of_the_users_is_not_replaced(name: str) -> None:
    """A database with a macro of its own under one of our names is refused, and the store is not left attached."""
    with duckdb.connect() as con:
        con.execute(f"CREATE MACRO {name}(x) AS x + 1")
        with pytest.raises(dpduck.Refusal, match=f"has a function {name} of its own"):
            dpduck.load(con)
        assert con.execute(f"SELECT {name}(1)").fetchall() == [(2,)]
        assert con.execute("SELECT 1 FROM duckdb_databases() WHERE database_name = 'private'").fetchall() == []


def test_shipped_macros_that_are_there_are_no_obstacle() -> None:
    """dpduck's macros, from an earlier load or read by hand, stay as they were."""
    with duckdb.connect() as con:
        for text in read_macro_files():
            con.execute(text)
        before = con.execute("SELECT dp_key(['a'])").fetchall()
        for _ in range(2):
            assert dpduck.load(con).execute("SELECT dp_key(['a'])").fetchall() == before
