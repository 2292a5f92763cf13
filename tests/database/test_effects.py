"""A change of a policy says beforehand which paid answers it takes away, and the list is what is charged afterwards."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

import dpduck
from dpduck.commands.command_line import main
from dpduck.database.functions import answer, database_of
from dpduck.database.progress import Progress
from dpduck.database.registered import find_database
from dpduck.store.cursors import Caller
from tests.database.pinned_statements import POLICY, STATEMENTS
from tests.mechanisms.streams.streams import POLICY as STREAM_POLICY
from tests.mechanisms.streams.streams import STREAM, options
from tests.support.clinics import Clinic, by, one_line

ALTER = "ALTER PRIVACY POLICY ON visits"
LISTED = "SELECT kind, name, afterwards, epsilon, rho, delta, fits, note FROM dp_explain(?)"
CHANGES = {
    "a domain": "SET DOMAIN sex IN (0, 1, 2)",
    "a clamp": "SET CLAMP age BETWEEN 0 AND 90 STEP 5",
    "MAX ROWS": "SET PRIVACY UNIT patient MAX ROWS 6",
    "no domain": "DROP DOMAIN sex",
    "an epoch": "NEW EPOCH",
}


@pytest.fixture
def clinic() -> Iterator[Clinic]:
    """A clinic with a paid answer, a view of it, and a budget for more."""
    with dpduck.connect() as connection:
        one = Clinic(connection)
        one.fill()
        one.protect(POLICY)
        one.dp(by("sex"))
        one.dp(by("ward", "2"))
        one.dp("CREATE PRIVATE VIEW sexes OPTIONS (epsilon = 1) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex")
        yield one


def effects(clinic: Clinic, change: str) -> list[tuple[Any, ...]]:
    return clinic.con.execute(LISTED, [f"{ALTER} {change}"]).fetchall()


def everything(connection: duckdb.DuckDBPyConnection) -> list[list[tuple[Any, ...]]]:
    """Returns all rows of the store's own tables, and the names of all its tables."""
    tables = connection.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'private' ORDER BY ALL"
    ).fetchall()
    return [tables, *(connection.execute(f'FROM private."{s}"."{t}"').fetchall() for s, t in tables)]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_dry_run_changes_nothing(clinic: Clinic, change: str) -> None:
    """A dry run leaves every row of the store as it was, and all answers free."""
    before = everything(clinic.con)
    assert effects(clinic, change)
    assert everything(clinic.con) == before
    clinic.dp(by("sex"))
    assert everything(clinic.con) == before


def test_what_it_lists(clinic: Clinic) -> None:
    """A row for each answer with its price, a view with its answer, and a sum for the unit."""
    rows = effects(clinic, CHANGES["a domain"])
    assert [(kind, afterwards) for kind, _, afterwards, *_ in rows] == [
        ("answer", "charged again"), ("answer", "charged again"), ("view", "free with another"),
        ("in all", "charged again"),
    ]  # fmt: skip
    assert [row[3] for row in rows] == [2.0, 1.0, None, 3.0]
    assert rows[-1][4] == pytest.approx(rows[0][4] + rows[1][4])
    assert [row[6] for row in rows] == [True, True, None, True]


def test_answers_that_stay_free(clinic: Clinic) -> None:
    """A change that changes no answer lists none, and neither does a change to the terms in force."""
    stays = [("in all", None, "all stay free", None, None, None, None, "nothing was changed")]
    for change in ("SET EXPECT ROWS 7", "SET MAX EPSILON 1", "SET DOMAIN sex IN (0, 1)"):
        assert effects(clinic, change) == stays


def test_a_change_back(clinic: Clinic) -> None:
    """Going back takes away only what was paid in between: earlier answers were taken away by the first change."""
    clinic.dp(f"{ALTER} {CHANGES['a domain']}")
    back = "SET DOMAIN sex IN (0, 1)"
    assert effects(clinic, back)[0][2] == "all stay free"
    clinic.dp(by("sex", "3"))
    assert [row[3] for row in effects(clinic, back)[:-1]] == [3.0]


def test_a_refused_change(clinic: Clinic) -> None:
    """A dry run is refused exactly if the change is, and only the owner may ask for one."""
    for change in (
        "SET BUDGET (epsilon = 1)",
        "DROP DOMAIN nothing",
        "SET DOMAIN nothing IN (1)",
        "SET CLAMP ward BETWEEN 0 AND 1",
    ):
        with pytest.raises(duckdb.Error) as dry:
            effects(clinic, change)
        assert clinic.refused(f"{ALTER} {change}") == one_line(dry.value)
    started = find_database(clinic.con)
    assert started is not None
    said = answer(started, Caller("alice", owner=False), "explain", f"{ALTER} NEW EPOCH")
    assert "only statements with a price are explained" in said


def names_made(statement: str) -> str | None:
    """Returns DROP of the object that a statement makes, None for a SELECT."""
    words = statement.split()
    return f"DROP PRIVATE {words[2]} {words[3]}" if words[:2] == ["CREATE", "PRIVATE"] else None


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("kind", STATEMENTS)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_list_is_what_is_charged(kind: str, change: str) -> None:
    """Each kind of release, repeated after the change, is charged the listed price, and nothing else is charged."""
    policy, statements = STATEMENTS[kind]
    with dpduck.connect() as connection:
        clinic = Clinic(connection)
        clinic.fill()
        clinic.protect(policy)
        for statement in statements:
            clinic.dp(statement)
        listed = connection.execute(
            "SELECT r.statement, e.afterwards, e.epsilon, e.rho, e.delta FROM dp_explain(?) e "
            "JOIN dp_releases() r USING (name, kind) WHERE e.afterwards <> 'free with another'",
            [f"{ALTER} {change}"],
        ).fetchall()
        expected = {row[0]: row[2:] for row in listed if row[1] == "charged again"}
        refused = {row[0] for row in listed if row[1] == "refused"}
        assert expected.keys() | refused == set(statements)
        clinic.dp(f"{ALTER} {change}")
        last = clinic.value("SELECT max(id) FROM dp_ledger()")
        for statement in statements:
            if (drop := names_made(statement)) is not None:
                clinic.dp(drop)
            if statement in refused:
                clinic.refused(statement)
            else:
                clinic.dp(statement)
        charged = connection.execute(
            "SELECT statement, epsilon, rho, delta FROM dp_ledger() WHERE id > ? AND rho > 0", [last]
        ).fetchall()
        assert {row[0]: row[1:] for row in charged} == expected


def test_streams() -> None:
    """A stream that a change stops is listed with its price, and is charged that when it is made again."""
    with dpduck.connect() as connection:
        clinic = Clinic(connection)
        connection.execute("CREATE TABLE visits (person VARCHAR, came DATE, ward VARCHAR, number INTEGER)")
        clinic.dp(STREAM_POLICY.format(most=3, budget="epsilon = 100"))
        text = STREAM.format(options=options(), source="visits")
        clinic.dp(text)
        assert effects(clinic, "SET CLAMP number BETWEEN 0 AND 1")[0][2] == "all stay free", "it sums no number"
        change = "SET DOMAIN ward IN ('a', 'b', 'c') WITH NULL"
        (row, total) = effects(clinic, change)
        assert row[:4] == ("stream", "by_month", "charged again", 1.0) and total[3] == 1.0
        clinic.dp(f"{ALTER} {change}")
        assert "what 'by_month' rests on changed" in clinic.refused("REFRESH PRIVATE STREAM by_month")
        clinic.dp("DROP PRIVATE STREAM by_month")
        clinic.dp(text)
        charged = "SELECT epsilon, rho, delta FROM dp_ledger() WHERE rho > 0 ORDER BY id DESC LIMIT 1"
        assert clinic.rows(charged) == [row[3:6]]


def test_answers_of_principals_and_with_reuse(clinic: Clinic) -> None:
    """An answer of a principal and one with reuse are listed once each, with the price of a repetition."""
    started = find_database(clinic.con)
    assert started is not None
    clinic.con.execute(answer(started, Caller("alice", owner=False), "run", by("age", "4"))).fetchall()
    clinic.dp(f"{ALTER} PREPARE")
    clinic.dp(by("sex", "5", "reuse = true"))
    rows = effects(clinic, CHANGES["a domain"])
    charged = [row[3] for row in rows if row[2] == "charged again" and row[0] == "answer"]
    assert sorted(charged) == [1.0, 2.0, 4.0, 5.0]
    clinic.dp(f"{ALTER} {CHANGES['a domain']}")
    last = clinic.value("SELECT max(id) FROM dp_ledger()")
    clinic.dp(by("sex", "5", "reuse = true"))
    assert clinic.value(f"SELECT list(epsilon) FROM dp_ledger() WHERE id > {last} AND rho > 0") == [5.0]


def test_a_person_is_told_before_a_change(clinic: Clinic) -> None:
    """The line at a terminal says what an ALTER takes away, before it is done, and nothing if it takes nothing."""
    database = database_of(clinic.con)
    assert database is not None
    stream = io.StringIO()
    database.progress = Progress(stream)
    clinic.dp(f"{ALTER} SET EXPECT ROWS 9")
    assert stream.getvalue() == ""
    clinic.dp(f"{ALTER} {CHANGES['a domain']}")
    said = stream.getvalue()
    assert said.count("this change takes away 2 answers and 1 view that you paid for") == 1
    assert "asking for them again is charged" in said


def test_the_command(tmp_path: Path) -> None:
    """`dpduck sql .. --dry-run` lists what an ALTER takes away, and says what a question would cost."""
    path = tmp_path / "clinic.duckdb"
    with dpduck.connect(path) as connection:
        one = Clinic(connection)
        one.fill()
        one.protect()
        one.dp(by("sex"))
    runner = CliRunner()
    said = runner.invoke(main, ["sql", str(path), f"{ALTER} NEW EPOCH", "--dry-run"])
    assert said.exit_code == 0, said.output
    assert "charged again" in said.output and "10 %" in said.output
    asked = runner.invoke(main, ["sql", str(path), by("ward"), "--dry-run"])
    assert "cost: 10 % of your budget" in asked.output
    with dpduck.connect(path) as connection:
        assert Clinic(connection).charges() == 1
        assert connection.execute("SELECT epoch FROM dp_policies()").fetchall() == [(0,)]
