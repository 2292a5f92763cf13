"""A dbt project over a private table, and the command of dbt in the environment .venv-dbt of the tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpduck

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv-dbt" / "bin"
PACKAGE = ROOT / "dpduck" / "dbt" / "package"
QUIET = {
    "DO_NOT_TRACK": "1",
    "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
    "DBT_USE_COLORS": "false",
    "DBT_VERSION_CHECK": "false",
}
PROFILE = """
clinic:
  target: dev
  outputs:
    dev: {{type: duckdb, path: '{file}', threads: 4, plugins: [{{module: dpduck.dbt{config}}}]}}
"""
PROJECT = 'name: clinic\nversion: "1.0"\nprofile: clinic\nflags: {send_anonymous_usage_stats: false}\n'
SOURCES = """
version: 2
sources:
  - {name: rows, database: clinic, schema: main, tables: [{name: visits}, {name: plain}]}
"""
PLANTED = "Marlowe-4711"
"""A text of one private row. No file that dbt writes beside the database may have it."""
BIGGEST = 918_273
"""A number of one private row."""


@dataclass(frozen=True)
class Said:
    """The end of a command of dbt: its exit code and its output."""

    code: int
    text: str

    def line(self, part: str) -> str:
        """Returns the only line with a part."""
        (found,) = {line.strip() for line in self.text.splitlines() if part in line}
        return found


@dataclass(frozen=True)
class Project:
    """A folder with a project. The database of the owner lies in it."""

    folder: Path

    @property
    def database(self) -> Path:
        return self.folder / "clinic.duckdb"

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text, encoding="utf-8")

    def model(self, name: str, sql: str, config: str = "epsilon=0.5", kind: str = "private_view") -> None:
        """Writes a model. kind: the materialization."""
        self.write(f"models/{name}.sql", f"{{{{ config(materialized='{kind}', {config}) }}}}\n{sql}\n")

    def dbt(self, *words: str, given: Mapping[str, str] = {}) -> Said:
        """Runs dbt in the folder."""
        environment = {**os.environ, **QUIET, **given, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        environment["DPDUCK_STATE_DIR"] = str(self.folder / "state")
        command = [str(BIN / "dbt"), *words, "--profiles-dir", str(self.folder), "--project-dir", str(self.folder)]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        return Said(done.returncode, done.stdout + done.stderr)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Asks the database as its owner, between two commands of dbt."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DPDUCK_STATE_DIR", str(self.folder / "state"))
            with dpduck.connect(self.database) as con:
                return con.execute(sql).fetchall()

    @property
    def spent(self) -> float:
        """The epsilon that was charged."""
        ((spent,),) = self.ask("SELECT spent FROM dp_budget() WHERE table_name = 'visits'")
        return float(spent)

    def results(self) -> dict[str, str]:
        """Returns the status of each node of the last command."""
        results = json.loads((self.folder / "target" / "run_results.json").read_text(encoding="utf-8"))["results"]
        return {str(result["unique_id"]).split(".")[2]: str(result["status"]) for result in results}

    def written(self) -> str:
        """Returns all that dbt wrote beside the database: its logs, compiled SQL and results."""
        files = [path for folder in ("logs", "target") for path in (self.folder / folder).rglob("*") if path.is_file()]
        return "\n".join(path.read_bytes().decode("utf-8", "replace") for path in files)


def has_dbt() -> bool:
    """Tells whether the tree has an environment with dbt and with the DuckDB under test, which reads its files."""
    return any(BIN.parent.glob(f"lib/*/site-packages/duckdb-{duckdb.__version__}.dist-info"))


def require_dbt() -> None:
    """Skips a test where there is no such environment."""
    if not has_dbt():
        pytest.skip(f"no dbt with DuckDB {duckdb.__version__}: make .venv-dbt/dbt.stamp makes its environment")


def make_project(folder: Path, *, budget: str = "epsilon = 10", config: str = "") -> Project:
    """Makes a project over visits of 500 persons with four rows each, with texts and NULLs. config: of the plugin."""
    require_dbt()
    project = Project(folder)
    project.ask(f"""
        CREATE TABLE visits AS SELECT i // 4 AS person, ['A', 'B', NULL][1 + (i // 4) % 3] AS ward,
            CASE WHEN i = 7 THEN '{PLANTED}' ELSE 'name ' || i // 4 END AS name,
            CASE WHEN i = 7 THEN {BIGGEST} ELSE i % 50 END AS bill FROM range(2000) AS r(i);
        CREATE TABLE plain AS SELECT 'A' AS ward, 1 AS n;
        FROM dp($$ CREATE PRIVACY POLICY ON visits (PRIVACY UNIT person MAX ROWS 4, BUDGET ({budget}),
            DOMAIN ward IN ('A', 'B') WITH NULL, CLAMP bill BETWEEN 0 AND 50) $$)""")
    project.write("profiles.yml", PROFILE.format(file=project.database, config=config))
    project.write("dbt_project.yml", PROJECT)
    project.write("packages.yml", packages())
    project.write("models/sources.yml", SOURCES)
    assert project.dbt("deps").code == 0
    return project


def packages() -> str:
    """Returns what `python -m dpduck.dbt` prints."""
    command = [sys.executable, "-m", "dpduck.dbt"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
