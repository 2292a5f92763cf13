"""Private views are ordinary tables with a written guarantee, which those with the right create and drop."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from dpduck.database import functions
from dpduck.database.database import Database
from dpduck.store.cursors import Caller
from dpduck.values.errors import PermissionRefusal, Refusal
from tests.support.clinics import POLICY, Clinic

OpenClinic = Callable[..., Clinic]
VIEW = "CREATE PRIVATE VIEW by_ward OPTIONS (epsilon = 1) AS SELECT ward, count(*) AS n FROM visits GROUP BY ward"
ALICE, BOB = Caller("alice", owner=False), Caller("bob", owner=False)


def database_of(clinic: Clinic) -> Database:
    found = functions.database_of(clinic.con)
    assert found is not None
    return found


def test_a_view_is_an_ordinary_table(clinic: Clinic) -> None:
    """A view is read by any statement and by any number of readers, at no further cost, with the SELECT's columns."""
    assert clinic.dp(VIEW) == [("private.by_ward is ready",)]
    columns = [("ward", "VARCHAR"), ("n", "BIGINT"), ("n_stderr", "DOUBLE")]
    assert [row[:2] for row in clinic.rows("DESCRIBE private.by_ward")] == columns
    first = clinic.rows("FROM private.by_ward ORDER BY ward")
    with ThreadPoolExecutor(4) as pool:
        cursors = [clinic.con.cursor() for _ in range(4)]
        read = pool.map(lambda cursor: cursor.execute("FROM private.by_ward ORDER BY ward").fetchall(), cursors)
        assert all(rows == first for rows in read)
    assert clinic.rows("SELECT region, sum(n) FROM private.by_ward JOIN wards ON ward = name GROUP BY region")
    assert clinic.charges() == 1


def test_a_view_has_its_standard_errors(clinic: Clinic) -> None:
    """Each answer that is shown as it is has a standard error, in a column after the SELECT's. Taken names stay."""
    made = "CREATE PRIVATE VIEW {} OPTIONS (epsilon = 1) AS SELECT {} FROM visits GROUP BY ward"
    for name, items, columns in (
        ("plain", "ward, count(*) AS n, count(*) + 1 AS more", ["ward", "n", "more", "n_stderr"]),
        ("asked", "ward, count(*) AS n, dp_stderr(n) AS se", ["ward", "n", "se"]),
        ("beside", "count(*) AS n, 5 AS N_stderr, ward", ["n", "N_stderr", "ward"]),
        ("nothing", "ward, count(*) // 10 AS tens", ["ward", "tens"]),
        ("twice", "count(*) AS n, count(*) AS m", ["n", "m", "n_stderr", "m_stderr"]),
    ):
        clinic.dp(made.format(name, items))
        assert [row[0] for row in clinic.rows(f"DESCRIBE private.{name}")] == columns, name
    [stated] = set(clinic.rows("SELECT n_stderr FROM private.plain"))
    assert stated == clinic.rows("SELECT DISTINCT se FROM private.asked")[0]
    assert clinic.charges() == 1


def test_a_view_and_the_same_question_are_one_release(clinic: Clinic) -> None:
    """A release is free under any name, asked as a view or as a question."""
    clinic.dp(VIEW)
    question = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) ward, count(*) AS n, dp_stderr(n) FROM visits "
        "GROUP BY ward ORDER BY ward"
    )
    assert clinic.dp(question) == clinic.rows("FROM private.by_ward ORDER BY ward")
    clinic.dp(VIEW.replace("by_ward", "again"))
    assert clinic.rows("FROM private.again ORDER BY ward") == clinic.dp(question)
    assert clinic.charges() == 1


def test_the_guarantee_is_written_on_the_table(clinic: Clinic) -> None:
    """COMMENT ON table and columns hold the guarantee. dp_releases has statement, price, strategy and time."""
    clinic.dp(VIEW)
    table = clinic.value("SELECT comment FROM duckdb_tables() WHERE table_name = 'by_ward'")
    assert "differentially private, epsilon = 1 (pure)" in table
    assert "ledger entry 2" in table
    columns = clinic.rows("SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'by_ward'")
    assert columns == [
        ("ward", "a key, whose values are public; one of a list"),
        ("n", "differentially private, epsilon = 1 (pure); an answer; standard error of n 5.642"),
        (
            "n_stderr",
            "computed from answers that are differentially private, epsilon = 1 (pure); the standard error of n",
        ),
    ]
    listed = clinic.rows(
        "SELECT statement, strategy, epsilon, delta, rho, rows, released_at IS NOT NULL FROM dp_releases() "
        "WHERE name = 'by_ward'"
    )
    assert listed == [(VIEW, "I", 1.0, 0.0, pytest.approx(0.3744163320937902), 6, True)]


def test_every_column_says_what_it_is(open_clinic: OpenClinic) -> None:
    """Keys, answers and computed columns have different comments. The view's has the typed price."""
    clinic = open_clinic()
    clinic.fill()
    clinic.protect(POLICY.replace("epsilon = 10", "epsilon = 10, delta = 1e-5"))
    clinic.dp(
        "CREATE PRIVATE VIEW v OPTIONS (epsilon = 1, delta = 1e-6) AS SELECT ward, count(*) AS n, "
        "dp_interval_low(n) AS low, count(*) * 2 AS twice FROM visits GROUP BY ward"
    )
    columns = dict(clinic.rows("SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'v'"))
    assert columns["ward"].startswith("a key, whose values are public; one of a list")
    assert columns["n"].startswith("differentially private, rho = 0.024") and "standard error" in columns["n"]
    assert columns["low"] == columns["twice"]
    assert columns["low"].startswith("computed from answers that are differentially private, rho = ")
    table = clinic.value("SELECT comment FROM duckdb_tables() WHERE table_name = 'v'")
    assert table.startswith(
        "differentially private, epsilon = 1 with delta = 1e-06 (rho = 0.024356, zCDP), 1.4 % of the budget then; "
        "protects all rows of one privacy unit, "
    )


def test_names_that_are_taken(clinic: Clinic) -> None:
    """An existing view needs OR REPLACE. Names of released tables and of dpduck's own tables are reserved."""
    clinic.dp(VIEW)
    other = VIEW.replace("epsilon = 1", "epsilon = 2")
    assert "exists" in clinic.refused(other)
    assert "exists" in clinic.refused(other.replace("by_ward", "BY_WARD"))
    assert "is reserved" in clinic.refused(other.replace("by_ward", "release_99"))
    assert "is reserved" in clinic.refused(other.replace("by_ward", "Release_2"))
    clinic.rows("CREATE TABLE private.main.mine (i INTEGER)")
    assert "is taken" in clinic.refused(other.replace("by_ward", "mine"))
    assert clinic.charges() == 1


def test_odd_names(clinic: Clinic) -> None:
    """A view's name may be a file's name, so that quotes, dots and commands in it are refused, uncharged."""
    for name in ('a "b"; DROP TABLE visits; --', "../etc", "a.b", "dpduck_x", "1a", "\u2603", "x" * 101, " "):
        quoted = '"' + name.replace('"', '""') + '"'
        refused = clinic.refused(VIEW.replace("by_ward", quoted))
        assert "is reserved" in refused if name == "dpduck_x" else "cannot be the name of a view" in refused
    clinic.dp(VIEW.replace("by_ward", '"Select"'))
    assert clinic.value('SELECT count(*) FROM private."Select"') == 6
    clinic.dp('DROP PRIVATE VIEW "select"')
    assert clinic.rows("FROM dp_releases() WHERE kind = 'view'") == []


def test_replacing_and_dropping(clinic: Clinic) -> None:
    """OR REPLACE puts the new answer in place. A dropped view's budget stays spent, and its answer stays free."""
    clinic.dp(VIEW)
    first = clinic.rows("FROM private.by_ward ORDER BY ward")
    replacing = VIEW.replace("CREATE", "CREATE OR REPLACE").replace("ward, count", "ward, upper(ward) AS up, count")
    clinic.dp(replacing)
    assert [(ward, n, error) for ward, _, n, error in clinic.rows("FROM private.by_ward ORDER BY ward")] == first
    assert clinic.charges() == 1
    clinic.dp("DROP PRIVATE VIEW by_ward")
    assert clinic.rows("FROM dp_releases() WHERE kind = 'view'") == []
    clinic.dp(VIEW)
    assert clinic.rows("FROM private.by_ward ORDER BY ward") == first
    assert clinic.charges() == 1
    clinic.dp("DROP PRIVATE VIEW by_ward")
    clinic.dp(VIEW.replace("by_ward", "other"))
    assert "no private view" in clinic.refused("DROP PRIVATE VIEW nothing")
    assert clinic.dp("DROP PRIVATE VIEW IF EXISTS nothing") == [("there was no such view",)]


def test_a_new_epoch_replaces_with_a_new_answer(clinic: Clinic) -> None:
    """The same OR REPLACE after NEW EPOCH is no repetition: it releases and pays again."""
    replacing = VIEW.replace("CREATE", "CREATE OR REPLACE")
    clinic.dp(replacing)
    clinic.dp(replacing)
    assert clinic.charges() == 1
    clinic.dp("ALTER PRIVACY POLICY ON visits NEW EPOCH")
    clinic.dp(replacing)
    assert clinic.charges() == 2


def test_eight_threads_make_one_view(clinic: Clinic) -> None:
    """The same CREATE from eight threads is one view and one charge, and no thread fails."""
    with ThreadPoolExecutor(8) as pool:
        cursors = [clinic.con.cursor() for _ in range(8)]
        done = list(pool.map(lambda cursor: cursor.execute("FROM dp(?)", [VIEW]).fetchall(), cursors))
    assert done == [[("private.by_ward is ready",)]] * 8
    assert clinic.charges() == 1


def test_anothers_view(clinic: Clinic) -> None:
    """Only the owner replaces and drops any view. Others replace and drop their own views."""
    database = database_of(clinic)
    database.run(VIEW, ALICE)
    replacing = VIEW.replace("CREATE", "CREATE OR REPLACE").replace("epsilon = 1", "epsilon = 2")
    with pytest.raises(PermissionRefusal, match="belongs to somebody else"):
        database.run(replacing, BOB)
    with pytest.raises(PermissionRefusal, match="belongs to somebody else"):
        database.run("DROP PRIVATE VIEW by_ward", BOB)
    with pytest.raises(Refusal, match="exists"):
        database.run(VIEW, BOB)
    assert clinic.charges() == 1
    database.run(replacing, ALICE)
    database.run("DROP PRIVATE VIEW by_ward", functions.OWNER)
    assert clinic.rows("SELECT principal FROM dp_ledger() WHERE rho > 0") == [("alice",), ("alice",)]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 100), DOMAIN sex IN (0, 1))",
        "ALTER PRIVACY POLICY ON visits NEW EPOCH",
        "ALTER PRIVACY POLICY ON visits SET BUDGET (epsilon = 1000)",
        "DROP PRIVACY POLICY ON visits",
        "DECLARE PUBLIC TABLE visits",
        "UNDECLARE PUBLIC TABLE wards",
    ],
)
def test_owner_statements_are_the_owners(clinic: Clinic, statement: str) -> None:
    """Policies, budgets, epochs and public declarations are refused to others inside dp(), and change nothing."""
    before = clinic.rows("FROM dp_policies()"), clinic.rows("FROM dp_ledger()")
    with pytest.raises(PermissionRefusal, match="the data owner's"):
        database_of(clinic).run(statement, ALICE)
    assert (clinic.rows("FROM dp_policies()"), clinic.rows("FROM dp_ledger()")) == before


def test_what_others_may_see(clinic: Clinic) -> None:
    """dp_check is for the owner, and others see only their own rows of the ledger."""
    database = database_of(clinic)
    database.run(VIEW, ALICE)
    database.run(VIEW.replace("by_ward", "mine").replace("epsilon = 1", "epsilon = 2"), BOB)
    with pytest.raises(PermissionRefusal):
        database.about.check("visits", ALICE)
    assert [row[2] for row in clinic.rows(database.listings.ledger_entries(ALICE))] == ["alice"]
    entries = clinic.rows(database.listings.ledger_entries(functions.OWNER))
    assert [row[2] for row in entries] == ["owner", "alice", "bob"]


def test_a_view_that_fails_over_its_answer(clinic: Clinic) -> None:
    """An expression that fails on the noisy numbers gives one line. The release is stored, and free."""
    statement = VIEW.replace("count(*) AS n", "(count(*) - 1000000)::UTINYINT AS n")
    for _ in range(2):
        with pytest.raises(Exception, match="which are kept: asking for them again is free"):
            clinic.dp(statement)
    assert clinic.charges() == 1
    clinic.dp(VIEW)
    assert clinic.charges() == 1


def test_a_table_that_the_owner_dropped(clinic: Clinic) -> None:
    """After DuckDB's DROP TABLE a view is restored from its release, free. No release is silently paid again."""
    clinic.dp(VIEW)
    before = clinic.rows("FROM private.by_ward ORDER BY ward")
    clinic.con.execute("DROP TABLE private.by_ward")
    assert clinic.dp(VIEW) == [("private.by_ward is ready",)]
    assert clinic.rows("FROM private.by_ward ORDER BY ward") == before
    assert clinic.rows("SELECT count(*) FROM dp_releases() WHERE name = 'by_ward'") == [(1,)]
    ((released,),) = clinic.rows("SELECT name FROM dp_releases() WHERE kind = 'answer'")
    clinic.con.execute(f"DROP TABLE private.{released}")
    question = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1{}) ward, count(*) AS n FROM visits GROUP BY ward"
    line = (
        f"the answer was released as {released}, and that table is no longer in the store; "
        r"accepted: OPTIONS \(refresh = '..'\) for a new release, which is charged for"
    )
    with pytest.raises(Exception, match=line):
        clinic.dp(question.format(""))
    assert clinic.charges() == 1
    assert len(clinic.dp(question.format(", refresh = 'again'"))) == len(before)
    assert clinic.charges() == 2
