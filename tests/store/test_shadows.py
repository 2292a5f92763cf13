"""Macros over built-in functions are noticed where they can come, and looked for once where they cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.language.text.names import TableName
from dpduck.store import attached
from dpduck.store.attached import Shadows
from dpduck.store.catalog import Catalog
from dpduck.store.policies import PolicyStore
from tests.support.clinics import Clinic, by


@pytest.fixture
def macro_file(tmp_path: Path) -> Path:
    """A database with a macro over upper."""
    path = tmp_path / "macros.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE MACRO upper(x) AS 1")
    return path


def test_a_database_that_can_be_written_is_looked_at_each_time() -> None:
    """A macro that was created, or dropped, a moment ago counts."""
    shadows = Shadows("private")
    with duckdb.connect() as connection:
        assert shadows.names(connection) == frozenset()
        connection.execute("CREATE MACRO Upper(x) AS 1")
        assert shadows.names(connection) == {"upper"}
        connection.execute("DROP MACRO upper")
        assert shadows.names(connection) == frozenset()


def test_a_read_only_database_is_looked_at_once(macro_file: Path) -> None:
    """Where all databases but dpduck's own are read-only, the first look holds until databases come or go."""
    shadows = Shadows("private")
    with duckdb.connect(str(macro_file), read_only=True) as connection:
        assert shadows.names(connection) == {"upper"}
        connection.execute("ATTACH ':memory:' AS private (READ_WRITE)")
        connection.execute("ATTACH ':memory:' AS dpduck_release_7 (READ_WRITE)")
        first = shadows._remembered
        assert first is not None
        assert shadows.names(connection) == {"upper"}
        assert shadows._remembered is first
        connection.execute("ATTACH ':memory:' AS other (READ_WRITE)")
        connection.execute("CREATE MACRO other.main.lower(x) AS 1")
        assert shadows.names(connection) == {"lower", "upper"}
        assert shadows._remembered is None
        connection.execute("DROP MACRO other.main.lower")
        assert shadows.names(connection) == {"upper"}


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves the clock on by two seconds, so that no test waits until a file's time reveals a write."""
    monkeypatch.setattr(attached, "_SETTLED", -(10**9))


def test_a_file_is_looked_at_when_something_was_written(tmp_path: Path, settled: None) -> None:
    """Each commit by any connection is noticed, a macro's and others', in the log or in the file."""
    shadows = Shadows("private")
    with duckdb.connect(str(tmp_path / "written.duckdb")) as connection, connection.cursor() as other:
        assert shadows.names(connection) == frozenset()
        first = shadows._remembered
        assert shadows.names(connection) == frozenset() and shadows._remembered is first is not None
        for change, expected in (
            ("CREATE MACRO upper(x) AS 1", {"upper"}),
            ("CHECKPOINT", {"upper"}),
            ("BEGIN; CREATE MACRO reverse(x) AS 1; COMMIT", {"reverse", "upper"}),
            ("DROP MACRO upper", {"reverse"}),
            ("CREATE TABLE t AS SELECT range AS i FROM range(10)", {"reverse"}),
        ):
            other.execute(change)
            before = shadows._remembered
            assert shadows.names(connection) == expected
            assert shadows._remembered is not before
        other.execute("BEGIN; CREATE MACRO trim(x) AS 1")
        assert shadows.names(connection) == {"reverse"}, "it is not committed"
        other.execute("ROLLBACK")


def test_a_log_of_no_writes_is_not_believed(tmp_path: Path, settled: None) -> None:
    """DuckDB may be set to log nothing of a database that is attached beside another one."""
    shadows = Shadows("private")
    with duckdb.connect(str(tmp_path / "first.duckdb")) as connection:
        connection.execute(f"ATTACH '{tmp_path / 'second.duckdb'}' AS second (RECOVERY_MODE no_wal_writes)")
        assert shadows.names(connection) == frozenset()
        connection.execute("CREATE MACRO second.main.upper(x) AS 1")
        assert shadows.names(connection) == {"upper"}


def test_a_file_that_was_written_a_moment_ago_is_looked_at(tmp_path: Path) -> None:
    """A file that was written a moment ago is looked at again: a second write could leave its size and time."""
    shadows = Shadows("private")
    with duckdb.connect(str(tmp_path / "fresh.duckdb")) as connection:
        assert shadows.databases(connection).quiet is None
    with duckdb.connect(str(tmp_path / "fresh.duckdb"), read_only=True) as connection:
        assert shadows.databases(connection).quiet is not None


def test_another_file_under_the_same_name_is_looked_at(macro_file: Path, tmp_path: Path) -> None:
    """A database that was detached and attached again, or replaced under its name, is a new one."""
    plain = tmp_path / "plain.duckdb"
    duckdb.connect(str(plain)).close()
    shadows = Shadows("private")
    with duckdb.connect(str(plain), read_only=True) as connection:
        for file, expected in (
            (macro_file, {"upper"}),
            (plain.with_name("also.duckdb"), set()),
            (macro_file, {"upper"}),
        ):
            if not file.exists():
                duckdb.connect(str(file)).close()
            connection.execute(f"ATTACH '{file}' AS more (READ_ONLY)")
            assert shadows.names(connection) == expected
            connection.execute("DETACH more")


def test_another_system_is_looked_at_each_time(macro_file: Path) -> None:
    """Other processes may add to an attached database that is no DuckDB file, though it is read-only here."""
    shadows, found = Shadows("private"), []
    listing = "SELECT 'lake' AS database_name, 'lake.db' AS path, 9 AS database_oid, true AS readonly, '{}' AS type"
    with duckdb.connect(str(macro_file), read_only=True) as connection:
        for kind in ("duckdb", "ducklake"):
            rows = f"{listing.format(kind)}, false AS internal"
            connection.execute(f"CREATE OR REPLACE TEMP MACRO duckdb_databases() AS TABLE {rows}")
            shadows.names(connection)
            found.append(shadows._remembered is not None)
    assert found == [True, False]


def test_facts_are_kept_with_the_setting_they_depend_on(tmp_path: Path) -> None:
    """Facts about a table under a default_collation, which merges distinct rows, are not used without the collation."""
    path, table = tmp_path / "public.duckdb", TableName(("public", "main", "t"))
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT * FROM (VALUES ('a', 1), ('A', 1), ('b', 2)) AS r(k, g)")
    with dpduck.connect(path) as connection:
        connection.execute("FROM dp('DECLARE PUBLIC TABLE t')")
    found = []
    with dpduck.connect(path, read_only=True) as connection:
        policies = PolicyStore(connection.cursor, "private", dict)
        for setting in ("SET GLOBAL default_collation = 'nocase'", "RESET GLOBAL default_collation"):
            connection.execute(setting)
            for _ in range(2):
                with connection.cursor() as cursor:
                    found.append(Catalog(cursor, policies).multiplicity(table, ["g"], ["k", "g"]))
    assert found == [1, 1, 2, 2]


def test_a_read_only_clinic_refuses_what_is_hidden(open_clinic: Callable[..., Clinic], clinic_file: Path) -> None:
    """In a read-only database, too, a macro over a built-in refuses every new release, however often it is asked."""
    with duckdb.connect(str(clinic_file)) as connection:
        connection.execute("CREATE MACRO upper(x) AS 1")
    clinic = open_clinic(clinic_file, read_only=True)
    for _ in range(2):
        assert "hides the built-in upper" in clinic.refused(by("ward"))
