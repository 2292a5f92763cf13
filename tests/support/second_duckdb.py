"""The environment with the other DuckDB: 1.5 beside 2.0, and 2.0 beside 1.5."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def other_python() -> Path:
    """Returns the Python with the other DuckDB. Skips the test if there is none."""
    environment = Path(sys.prefix)
    other = environment.with_name(".venv" if environment.name == ".venv-duckdb2" else ".venv-duckdb2")
    python = other / "bin" / "python"
    if not python.exists():
        pytest.skip("no second DuckDB: make test-duckdb2 makes its environment")
    return python


def run_python(python: Path, script: str, *words: object) -> str:
    """Runs a script with this checkout's dpduck, and returns its output. Fails with the script's errors."""
    command = [str(python), "-c", script, *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
