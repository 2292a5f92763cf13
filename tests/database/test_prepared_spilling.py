"""Preparing goes on in temp_directory where memory_limit is reached (pytest -m audit, with this file)."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import dpduck

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
