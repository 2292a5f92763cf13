"""Preparing keeps to memory_limit, and goes on in temp_directory beyond it (the longer tests: pytest -m audit)."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.store import prepared_files
from dpduck.store.prepared_files import PreparedFiles

GIB = 2**30
ROWS, LIMIT = 1_200_000, "90MB"


@pytest.mark.audit
@pytest.mark.parametrize("spills", [True, False])
def test_preparing_spills_within_memory_limit(tmp_path: Path, spills: bool) -> None:
    """Rows of 150 MB are prepared in 90 MB of memory where there is a temp_directory, and refused without one."""
    with dpduck.connect(tmp_path / "clinic.duckdb") as connection:
        note = " || ".join(f"md5((i + {number})::VARCHAR)" for number in range(4))
        connection.execute(
            f"CREATE TABLE visits AS SELECT i * 7919 % 100000 AS patient, {note} AS note, i % 9 AS ward "
            f"FROM range({ROWS}) AS r(i)"
        )
        connection.execute(
            "FROM dp('CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 10), "
            "DOMAIN ward RANGE 0 TO 9 STEP 1)')"
        )
        connection.execute("CHECKPOINT")
        connection.execute(f"SET memory_limit = '{LIMIT}'")
        connection.execute("SET threads = 2")
        connection.execute(f"SET temp_directory = '{tmp_path / 'spilled' if spills else ''}'")
        if spills:
            connection.execute("FROM dp('ALTER PRIVACY POLICY ON visits PREPARE')").fetchall()
            return
        with pytest.raises(duckdb.Error, match="there is no room for its rows") as refused:
            connection.execute("FROM dp('ALTER PRIVACY POLICY ON visits PREPARE')").fetchall()
        assert "\n" not in str(refused.value).partition("\n\nLINE 1")[0]  # which DuckDB adds


@pytest.mark.parametrize(
    ("held", "share"), [(0, 8 * GIB), (3 * GIB, 5 * GIB), (8 * GIB, 2 * GIB)], ids=["nothing", "some", "all"]
)
def test_a_twin_has_what_the_database_leaves(
    held: int, share: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the shared limit the twin has a quarter at least, and the whole again when the twin is written."""
    monkeypatch.setattr(prepared_files, "_memory", lambda database: (8 * GIB, held))
    limit = "SELECT current_setting('memory_limit')"
    with duckdb.connect(":memory:") as connection:
        twins = PreparedFiles(connection.cursor, tmp_path / "clinic_private.duckdb", lambda: b"key")
        with twins.create("a1", "layout") as (cursor, table):
            cursor.execute(f"CREATE TABLE {table} AS FROM range(10)")
            assert cursor.execute(limit).fetchone() == (f"{share // GIB}.0 GiB",)
        with twins.cursor() as cursor:
            assert cursor.execute(limit).fetchone() == ("8.0 GiB",)


def test_a_database_holds_what_its_files_take(tmp_path: Path) -> None:
    """Blocks of a file count before they are read, and rows in memory by their size, up to the limit."""
    with duckdb.connect(tmp_path / "clinic.duckdb") as connection:
        connection.execute("SET memory_limit = '1GiB'")
        connection.execute("CREATE TABLE visits AS SELECT hash(i) AS h FROM range(2000000) AS r(i)")
        connection.execute("CHECKPOINT")
        limit, held = prepared_files._memory(connection)
        assert limit == GIB and 16e6 < held < 64e6
        connection.execute("SET memory_limit = '-1'")
        assert prepared_files._memory(connection)[0] > 2**60
        connection.execute("SET memory_limit = '12MB'")
        limit, held = prepared_files._memory(connection)
        assert held == limit < 12e6
