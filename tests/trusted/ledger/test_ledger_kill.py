"""SIGKILL at every step of a charge: after a restart the ledger holds every charge that could have returned."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).with_name("ledger_kill_harness.py")
STEPS = (
    "charge begins",
    "row not committed",
    "row committed",
    "secrets begun",
    "secrets written",
    "witness written",
    "counters written",
    "charge returns",
)


def run(directory: Path, mode: str, children: int) -> dict[str, int]:
    """The harness's own account: how often a child died at which step, and how many charges returned."""
    result = subprocess.run(
        [sys.executable, str(HARNESS), str(directory), mode, str(children)],
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    pairs = (line.rpartition(": ") for line in result.stdout.splitlines())
    return {name: int(times) for name, _, times in pairs}


def test_a_kill_at_any_step_loses_no_charge(tmp_path: Path) -> None:
    """Each child dies at a step of opening and charging; the one after it finds all that had returned.

    Which step is drawn from a fixed seed, so that every run kills at the same ones.
    """
    account = run(tmp_path, "steps", 100)
    assert set(STEPS) <= set(account)
    assert account["returned"] > 20


def test_a_kill_at_any_moment_loses_no_charge(tmp_path: Path) -> None:
    """Children that charge without end are killed at random moments, also inside DuckDB's and SQLite's own writing."""
    account = run(tmp_path, "moments", 40)
    assert account["returned"] >= 20


@pytest.mark.audit
@pytest.mark.parametrize("mode", ["steps", "moments"])
def test_thousands_of_kills_lose_no_charge(tmp_path: Path, mode: str) -> None:
    """The same, thousands of times over, each two hundred on a store of their own: a long ledger is slow to open."""
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        assert run(tmp_path / str(number), mode, 200)["returned"] > 0
