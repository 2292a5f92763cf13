"""DuckLake and Delta need no engine: DuckDB's own extensions attach them, and their tables are tables."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.publish.extensions import load_extension
from tests.support.clinics import Clinic

POLICY = "CREATE PRIVACY POLICY ON {} (PRIVACY UNIT patient MAX ROWS 2, BUDGET (epsilon = 100), DOMAIN sex IN (0, 1))"
ASK = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 50) sex, count(*) AS n FROM {} GROUP BY sex"


def needs(name: str) -> pytest.MarkDecorator:
    missing = find_spec(f"duckdb_extension_{name}") is None or not duckdb.__version__.startswith("1.")
    reason = f"DuckDB's extension {name} is not installed (pip install duckdb-extension-{name}==1.5.5)"
    return pytest.mark.skipif(missing, reason=reason)


def near(rows: list[tuple[object, ...]]) -> bool:
    return all(isinstance(n, int) and abs(n - 100) < 10 for _, n in rows) and len(rows) == 2


@needs("ducklake")
def test_ducklake(tmp_path: Path) -> None:
    """A table of a DuckLake has a policy and answers. A view in it has none."""
    with dpduck.connect() as con:
        load_extension(con, "ducklake", "")
        con.execute(f"ATTACH 'ducklake:{tmp_path}/lake.ducklake' AS lake (DATA_PATH '{tmp_path}/files')")
        con.execute("CREATE TABLE lake.main.visits AS SELECT range // 2 AS patient, range % 2 AS sex FROM range(200)")
        con.execute("CREATE VIEW lake.main.seen AS SELECT * FROM lake.main.visits")
        clinic = Clinic(con)
        assert "is a view" in clinic.refused(POLICY.format("lake.main.seen"))
        clinic.dp(POLICY.format("lake.main.visits"))
        assert near(clinic.dp(ASK.format("lake.main.visits")))
        assert clinic.value("SELECT spent FROM dp_budget()") == 50


@needs("delta")
def test_delta(tmp_path: Path) -> None:
    """An attached Delta table is refused: a text may be invalid UTF-8, and one such row ends every reading."""
    with dpduck.connect() as con:
        load_extension(con, "delta", "")
        place = tmp_path / "visits"
        (place / "_delta_log").mkdir(parents=True)
        con.execute(f"COPY (SELECT range // 2 AS patient, range % 2 AS sex FROM range(200)) TO '{place}/a.parquet'")
        fields: list[dict[str, object]] = [
            {"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("patient", "sex")
        ]
        actions = [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {"metaData": {"id": "5f8d2a3e-0000-4000-8000-000000000000", "configuration": {},
                          "format": {"provider": "parquet", "options": {}},
                          "schemaString": json.dumps({"type": "struct", "fields": fields}), "partitionColumns": [],
                          "createdTime": 0}},
            {"add": {"path": "a.parquet", "partitionValues": {}, "size": (place / "a.parquet").stat().st_size,
                     "modificationTime": 0, "dataChange": True}},
        ]  # fmt: skip
        (place / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
        con.execute(f"ATTACH '{place}' AS lake (TYPE delta)")
        ((table,),) = con.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake'").fetchall()
        clinic = Clinic(con)
        assert "of kind 'delta'; accepted: a table" in clinic.refused(POLICY.format(f"lake.main.{table}"))
        con.execute(f"CREATE TABLE copied AS FROM lake.main.{table}")
        clinic.dp(POLICY.format("copied"))
        assert near(clinic.dp(ASK.format("copied")))
