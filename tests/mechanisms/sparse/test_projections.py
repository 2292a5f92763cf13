"""Projections from SQL: released once, asked for ever in plain SQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pytest

from dpduck.algebra.hashing import evaluate
from dpduck.database.functions import database_of
from dpduck.database.macros import list_macro_names, read_macro_files
from dpduck.mechanisms.release import Releaser
from dpduck.publish.publish import publish
from dpduck.store.cursors import Caller
from dpduck.values.errors import PermissionRefusal
from tests.algebra.sign_oracle import elements_of, signs
from tests.mechanisms.sparse.sparse import PRICE, fill, projection, refused_ask
from tests.support.clinics import Clinic


@pytest.fixture
def visits(open_clinic: Callable[..., Clinic]) -> Clinic:
    made = open_clinic()
    fill(made)
    return made


def answers_in_python(visits: Clinic, keys: list[str]) -> np.ndarray:
    """The estimate of each key, from the released tables alone, by sign_hash."""
    seed = visits.rows("SELECT coefficients FROM private.p_seed ORDER BY word")
    values = np.array(visits.rows('SELECT value FROM private.p ORDER BY "row"'), float)[:, 0]
    words = evaluate(np.array([row[0] for row in seed], np.uint64), elements_of(keys))
    matrix = np.moveaxis(signs(words), 1, 2).reshape(-1, len(keys))[: len(values)]
    return matrix.T.astype(float) @ values / len(values)


def test_sql_and_python_agree(visits: Clinic) -> None:
    """Python and SQL evaluations agree to 1e-9, in any DuckDB that holds the two released tables."""
    projection(visits)
    keys = [f"K{number}" for number in range(40)] + ["absent", "é", "", "x" * 5000]
    expected = answers_in_python(visits, keys)
    plain = duckdb.connect()
    for text in read_macro_files():
        plain.execute(text)
    for table in ("p", "p_seed"):
        held = visits.con.sql(f"FROM private.{table}").to_arrow_table()
        plain.execute(f"CREATE TABLE {table} AS FROM held")
        assert held.num_rows > 0
    for con in (visits.con, plain):
        con.execute(
            "CREATE TABLE q AS SELECT unnest(?::VARCHAR[]) AS key, unnest(range(44)) AS query, 1.0 AS weight", [keys]
        )
        found = con.execute("SELECT answer FROM dp_project_all('p', 'q') ORDER BY query").fetchnumpy()["answer"]
        assert np.abs(found - expected).max() < 1e-9 * max(1.0, np.abs(expected).max())
        one = "WITH one AS (SELECT 'K0' AS key, 1 AS weight UNION ALL SELECT 'K3', 0.5) FROM dp_project('p', 'one')"
        assert con.execute(one).fetchall()[0][0] == pytest.approx(expected[0] + expected[3] / 2, rel=1e-9)


def test_answers_are_close_and_say_how_close(visits: Clinic) -> None:
    """Every answer lies within its margin, and its standard error is of the size of its error.

    False alarm below 1e-9: margins hold for 10^9 questions at 95 %. A miss among 50 has a chance of at most 1e-9.
    """
    projection(visits, options="sparsity = 8, queries = 1e12, beta = 1e-6")
    visits.con.execute("CREATE TABLE q AS SELECT DISTINCT code AS query, code AS key, 1 AS weight FROM visits")
    rows = visits.rows(
        "SELECT answer, n, stderr, margin FROM dp_project_all('p', 'q') JOIN "
        "(SELECT code AS query, count(*) AS n FROM visits GROUP BY code) USING (query)"
    )
    assert len(rows) > 5
    assert all(abs(answer - n) <= margin for answer, n, _, margin in rows)
    assert all(stderr < margin for _, _, stderr, margin in rows)


def test_one_charge_and_an_ordinary_table(visits: Clinic) -> None:
    """One charge covers all questions. The same statement is free. The release is a table like any other."""
    before = visits.charges()
    statement = projection(visits)
    assert statement == [("private.p is ready",)]
    assert projection(visits) == statement
    visits.rows("WITH q AS (SELECT 'K1' AS key, 1 AS weight) FROM dp_project('p', 'q')")
    assert visits.charges() == before + 1
    assert visits.rows('SELECT min("row"), count(*) = max("row") + 1 FROM private.p') == [(0, True)]
    assert visits.rows("SELECT DISTINCT strategy, kind FROM dp_releases() WHERE name LIKE 'p%'") == [
        ("projection", "view")
    ]
    assert visits.dp("DROP PRIVATE PROJECTION p") == [("private.p is dropped; its budget stays spent",)]
    assert visits.rows("FROM dp_releases() WHERE kind = 'view'") == []
    projection(visits)
    assert visits.charges() == before + 1


def test_a_drop_of_nothing_drops_nothing(visits: Clinic) -> None:
    """A view with a name like a seed's stays where no projection has the rest of its name."""
    projection(visits, name="p_seed")
    assert "'p_seed' is a projection; accepted: FROM dp_project('p_seed', 'q')" in refused_ask(
        visits, "p_seed", "['K1']"
    )
    assert "there is no private projection" in visits.refused("DROP PRIVATE PROJECTION p")
    assert visits.dp("DROP PRIVATE PROJECTION IF EXISTS p") == [("there was no such projection",)]
    assert visits.value("SELECT count(*) FROM private.p_seed") > 0


def test_a_seed_goes_with_its_projection(visits: Clinic) -> None:
    """Neither DROP PRIVATE VIEW nor a view that replaces a projection leaves the seed's name behind."""
    views = "SELECT name FROM dp_releases() WHERE kind = 'view' ORDER BY name"
    projection(visits)
    assert visits.rows(views) == [("p",), ("p_seed",)]
    other = "CREATE PRIVATE PROJECTION p OPTIONS (epsilon = 0.5) ON visits (code)"
    assert visits.refused(other).startswith("the name 'p' is taken; accepted: DROP PRIVATE PROJECTION")
    visits.dp("DROP PRIVATE VIEW p")
    assert visits.rows(views) == []
    projection(visits)
    view = "PRIVATE VIEW p OPTIONS (epsilon = 0.1) AS SELECT count(*) AS n FROM visits"
    visits.dp(f"CREATE OR REPLACE {view}")
    assert visits.rows(views) == [("p",)]
    assert visits.refused(other).startswith("the name 'p' is taken; accepted: DROP PRIVATE VIEW")


def test_a_projection_is_put_with_its_seed_or_not_at_all(visits: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that somebody else takes while the projection is measured is refused, and no seed is left."""
    database = database_of(visits.con)
    assert database is not None
    view = "CREATE PRIVATE VIEW p OPTIONS (epsilon = 0.1) AS SELECT count(*) AS n FROM visits"
    release = Releaser.release

    def overtaken(self: Releaser, *arguments: object) -> object:
        made = release(self, *arguments)  # type: ignore[arg-type]
        monkeypatch.undo()
        database.run(view, Caller("owner", owner=True))
        return made

    monkeypatch.setattr(Releaser, "release", overtaken)
    with pytest.raises(duckdb.Error, match="the private view 'p' exists"):
        projection(visits)
    assert visits.rows("SELECT name FROM dp_releases() WHERE kind = 'view'") == [("p",)]


def test_a_question_without_its_columns(visits: Clinic) -> None:
    """If a table lacks key, weight or query, the message names the column, in any DuckDB."""
    projection(visits)
    for question, macro, column in (
        ("SELECT 'K1' AS k, 1 AS weight", "dp_project", "key"),
        ("SELECT 'K1' AS key", "dp_project", "weight"),
        ("SELECT 'K1' AS key, 1 AS weight", "dp_project_all", "query"),
    ):
        with pytest.raises(duckdb.Error, match=f'"your_question" does not have a column named "{column}"'):
            visits.rows(f"WITH q AS ({question}) FROM {macro}('p', 'q')")


@pytest.mark.parametrize("macro", ["dp_project", "dp_project_all"])
def test_a_missing_projection_is_named(visits: Clinic, macro: str) -> None:
    """A missing projection, or table of questions, is named as given (not as its seed), with the nearest name."""
    projection(visits)
    question = "WITH q AS (SELECT 'K1' AS key, 1 AS weight, 1 AS query)"
    for projected, asked, named in (("pp", "q", "pp"), ("p", "r", "r")):
        with pytest.raises(duckdb.Error, match=rf"Table with name {named} does not exist"):
            visits.rows(f"{question} FROM {macro}('{projected}', '{asked}')")


def test_conjunctions_are_keys(visits: Clinic) -> None:
    """A conjunction on d - k of d boolean columns is a question of 2^k keys."""
    projection(visits, key="smoker, senior")
    exact = visits.value("SELECT count(*) FROM visits WHERE senior")
    sql = "WITH q AS (SELECT unnest(dp_conjunction([NULL, true])) AS key, 1 AS weight) FROM dp_project('p', 'q')"
    answer, _, margin = visits.rows(sql)[0]
    assert abs(answer - exact) <= 2 * margin


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("AS SELECT code, count(*) FROM visits GROUP BY code", "GROUP in a projection"),
        ("AS SELECT code || 'x' FROM visits", "a key is made of columns"),
        ("AS SELECT * FROM visits", "a key is made of columns"),
        ("AS SELECT random() FROM visits", "a key is made of columns"),
        ("AS SELECT weight FROM visits", "which has no canonical text"),
        ("AS SELECT name FROM visits", "has a collation"),
        ("AS SELECT code FROM secrets", "there is no table"),
        ("AS SELECT nothing FROM visits", "there is no column"),
        ("ON visits (code) LIMIT 3", "WHERE .. or the end"),
        ("ON visits", "ends too early"),
    ],
)
def test_refusals_cost_nothing(visits: Clinic, statement: str, message: str) -> None:
    """Every refusal is decided from public facts before the charge."""
    visits.con.execute("ALTER TABLE visits ADD COLUMN weight DOUBLE")
    visits.con.execute("ALTER TABLE visits ADD COLUMN name VARCHAR COLLATE NOCASE")
    assert message in visits.refused(f"CREATE PRIVATE PROJECTION p OPTIONS ({PRICE}) {statement}")


def test_options_are_checked(visits: Clinic) -> None:
    """Unknown, repeated and senseless options are refused with what is accepted."""
    for options, message in (
        (f"{PRICE}, colour = 3", "unknown"),
        (f"{PRICE}, rows = 0", "out of range"),
        (f"{PRICE}, rows = 2.5", "out of range"),
        (f"{PRICE}, beta = 'x'", "not a positive number"),
        (f"{PRICE}, rows = 5, rows = 6", "given twice"),
        ("rows = 5", "the price is missing"),
        (f"{PRICE}, updates = 5", "unknown"),
    ):
        assert message in visits.refused(f"CREATE PRIVATE PROJECTION p OPTIONS ({options}) ON visits (code)")


def test_names_and_permission(visits: Clinic, tmp_path: Path) -> None:
    """Another's projection is not dropped, a view is no projection, and tables outside the grant are refused."""
    projection(visits)
    visits.con.execute("CREATE TABLE others AS SELECT 1 AS x")
    database = database_of(visits.con)
    assert database is not None
    alice = Caller("alice", owner=False, tables=("others",))
    with pytest.raises(PermissionRefusal):
        database.run("DROP PRIVATE PROJECTION p", alice)
    with pytest.raises(PermissionRefusal):
        database.run(f"CREATE PRIVATE PROJECTION mine OPTIONS ({PRICE}) ON visits (code)", alice)
    assert "taken" in visits.refused(f"CREATE PRIVATE PROJECTION p OPTIONS ({PRICE}) ON visits (number)")
    assert {"dp_project", "dp_project_all", "dp_key", "dp_conjunction"} <= set(list_macro_names())


def test_a_published_file_answers_by_itself(open_clinic: Callable[..., Clinic], tmp_path: Path) -> None:
    """A published projection has its seed and its macros with it: a plain DuckDB gives the same answers."""
    made = open_clinic(tmp_path / "clinic.duckdb")
    fill(made)
    projection(made)
    sql = "WITH q AS (SELECT 'K0' AS key, 1 AS weight) FROM dp_project('p', 'q')"
    expected = made.rows(sql)
    made.con.close()
    publish(tmp_path / "clinic_private.duckdb", tmp_path / "open.duckdb")
    with duckdb.connect(tmp_path / "open.duckdb", read_only=True) as plain:
        assert plain.execute(sql).fetchall() == expected
