"""The macros of a database: looked up by one statement, and written only where they are not those of this version."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.database import registered

POLICY = "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN sex IN (0, 1))"
COUNT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) count(*) AS n FROM visits"


@pytest.fixture
def database(tmp_path: Path, state_directory: Path) -> Path:
    """A database that dpduck was loaded on, and closed again."""
    path = tmp_path / "clinic.duckdb"
    with dpduck.connect(path) as con:
        con.execute("CREATE TABLE visits AS SELECT range % 2 AS sex FROM range(100)")
        con.execute("FROM dp(?)", [POLICY]).fetchall()
    return path


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Notes every time that macros are written."""
    found, install = list[bool](), registered._install_macros

    def noted(connection: duckdb.DuckDBPyConnection) -> None:
        found.append(True)
        install(connection)

    monkeypatch.setattr(registered, "_install_macros", noted)
    return found


def budgets(con: duckdb.DuckDBPyConnection) -> list[tuple[object, ...]]:
    return con.execute("SELECT table_name, budget FROM dp_budget()").fetchall()


def test_a_database_that_has_the_macros_is_not_written(database: Path, written: list[bool]) -> None:
    """To load dpduck again changes no byte of the owner's database: one statement finds every macro there."""
    before = database.read_bytes()
    with dpduck.connect(database) as con:
        assert budgets(con) == [("visits", 1.0)]
        dpduck.load(con.cursor())
    assert (database.read_bytes(), written) == (before, [])


@pytest.mark.parametrize("dropped", ["TABLE dp_budget", "dp_key", "TABLE dp_sketch_point"])
def test_a_macro_that_is_gone_is_made_again(dropped: str, database: Path, written: list[bool]) -> None:
    """Every macro is checked, dpduck's own and those that any DuckDB runs."""
    with duckdb.connect(str(database)) as con:
        con.execute(f"DROP MACRO {dropped}")
    with dpduck.connect(database) as con:
        assert budgets(con) == [("visits", 1.0)]
        con.execute(f"DROP MACRO {dropped}")
    assert written == [True]


@pytest.mark.parametrize("name", ["dp_budget", "dp_check(table_name)"])
def test_a_macro_of_the_users_among_ours_is_refused(name: str, database: Path, written: list[bool]) -> None:
    """A macro in the place of one of dpduck's is the user's: it is not replaced, and the store is let go."""
    call = name if "(" in name else f"{name}()"
    with duckdb.connect(str(database)) as con:
        con.execute(f"CREATE OR REPLACE MACRO {call} AS TABLE SELECT 42 AS mine")
        with pytest.raises(dpduck.Refusal, match=f"has a function {name.partition('(')[0]} of its own"):
            dpduck.load(con)
        assert con.execute("SELECT 1 FROM duckdb_databases() WHERE database_name = 'private'").fetchall() == []
        con.execute(f"DROP MACRO TABLE {name.partition('(')[0]}")
        dpduck.load(con)
        assert budgets(con) == [("visits", 1.0)]
    assert written == [True]


@pytest.mark.parametrize(
    "older",
    [
        "dp_budget() AS TABLE FROM query(dpduck_call('budget', NULL))",
        "dp(statement) AS TABLE FROM query(dpduck_call('run', statement))",
        "dp_known(statement) AS TABLE FROM query(dpduck_call('known', statement))",
    ],
)
def test_macros_of_another_version_are_replaced(older: str, database: Path, written: list[bool]) -> None:
    """A macro without this version's mark is of an earlier version."""
    with dpduck.connect(database) as con:
        con.execute(f"CREATE OR REPLACE MACRO {older}")
    with dpduck.connect(database) as con:
        assert budgets(con) == [("visits", 1.0)]
        assert con.execute("FROM dp(?)", [COUNT]).fetchall()
    with dpduck.connect(database):
        pass
    assert written == [True]


def test_statements_go_on_while_another_thread_puts_macros_there(database: Path) -> None:
    """The function answers NULL to the thread alone that compares macros, which DuckDB binds meanwhile."""
    with dpduck.connect(database) as con:
        (identity,) = [one for one, served in registered._DATABASES.items() if served.connections.any_open()][-1:]
        registered._STARTING[identity] = -1
        try:
            assert budgets(con) == [("visits", 1.0)]
        finally:
            del registered._STARTING[identity]
