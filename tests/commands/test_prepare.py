"""dpduck prepare: every table with a policy, or those that are named. With progress where somebody looks."""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
import pytest

import dpduck
from tests.support.commands import run

POLICY = "CREATE PRIVACY POLICY ON {} (PRIVACY UNIT patient MAX ROWS 2, BUDGET (epsilon = 1), DOMAIN sex IN ('F', 'M'))"
TABLES = ("visits", '"the ""2nd"""')


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    path = tmp_path / "clinic.duckdb"
    with dpduck.connect(path) as connection:
        for table in TABLES:
            connection.execute(f"CREATE TABLE {table} AS SELECT i % 50 AS patient, 'F' AS sex FROM range(100) AS r(i)")
            connection.execute("FROM dp(?)", [POLICY.format(table)]).fetchall()
    return path


def prepared(path: Path) -> list[bool]:
    with dpduck.connect(path) as connection:
        rows = connection.execute("SELECT prepared_at IS NOT NULL FROM dp_policies() ORDER BY table_name").fetchall()
    return [row[0] for row in rows]


def test_every_table_is_prepared(clinic: Path) -> None:
    """Whatever their names are. A second time there is nothing to do."""
    done = run("prepare", clinic)
    assert done.exit_code == 0, done.output
    assert "are prepared: new questions are about their rows of 20" in done.output
    assert prepared(clinic) == [True, True]
    again = run("prepare", clinic)
    assert again.exit_code == 0 and again.output == done.output


def test_what_can_be_prepared_is(clinic: Path) -> None:
    """If one table cannot be prepared, the others still are. It is named, and the command fails."""
    with dpduck.connect(clinic) as connection:
        connection.execute("ALTER TABLE visits ADD COLUMN many INTEGER[]")
    done = run("prepare", clinic)
    assert done.exit_code == 1 and prepared(clinic) == [True, False]
    assert "not prepared: " in done.output and "visits.many is INTEGER" in done.output
    assert (
        "Error: 1 of 2 tables were not prepared" in done.output and "UNPREPARE" not in done.output.split("not prep")[1]
    )


def test_a_database_without_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command says so."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    duckdb.connect(str(tmp_path / "empty.duckdb")).close()
    assert "no table has a privacy policy" in run("prepare", tmp_path / "empty.duckdb").output


def test_what_was_done_is_said_however_often_it_is_bound(clinic: Path) -> None:
    """DuckDB binds a relation again when it is shown. The statement then has the same output."""
    for word, said in (("PREPARE", "visits is prepared: new questions"), ("UNPREPARE", "visits is not prepared: new")):
        assert said in run("sql", clinic, f"ALTER PRIVACY POLICY ON visits {word}", "--format", "csv").output
        assert prepared(clinic) == [False, word == "PREPARE"]
        with dpduck.connect(clinic) as connection:
            relation = connection.sql(f"FROM dp('ALTER PRIVACY POLICY ON visits {word}')")
            assert said in str(relation.fetchall()) and said in str(relation.fetchall())


def test_named_tables_are_prepared(clinic: Path) -> None:
    """Those and no others. A name that has no policy, or is none, is refused in one line."""
    assert run("prepare", clinic, '"the ""2nd"""').exit_code == 0
    assert prepared(clinic) == [True, False]
    for name in ("nothing", "visits; DROP TABLE visits"):
        refused = run("prepare", clinic, name)
        assert refused.exit_code == 1
        assert refused.output.count("\n") == 1 and "accepted: " in refused.output
    with duckdb.connect(str(clinic)) as connection:
        assert connection.execute("SELECT count(*) FROM visits").fetchone() == (100,)


def test_progress_is_shown_to_whoever_looks(clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, the present step and the expected time. Nothing in a file."""
    assert "%" not in run("prepare", clinic, "visits").stderr
    with dpduck.connect(clinic) as connection:
        connection.execute("FROM dp('ALTER PRIVACY POLICY ON visits UNPREPARE')").fetchall()
    monkeypatch.setattr("dpduck.commands.preparing.sys", Terminal())
    told = run("prepare", clinic, "visits").stderr
    for step in ("reading rows", "numbering units", "sorting rows", "counting again", "closing the file"):
        assert f"table 1: {step} .. " in told
    assert "s left" in told


class Terminal:
    """A stand-in for sys with a terminal as its output."""

    def __getattr__(self, name: str) -> object:
        return getattr(sys, name)

    @property
    def stderr(self) -> object:
        return Tty()


class Tty:
    def isatty(self) -> bool:
        return True
