"""SIGKILL at every step of a release: after a restart nothing is lost, nothing is free, and nothing is half there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).with_name("release_kill_harness.py")
STEPS = {
    "before the charge",
    "charge begins",
    "row not committed",
    "row committed",
    "secrets begun",
    "secrets written",
    "witness written",
    "counters written",
    "charge returns",
    "after the charge",
    "after the count",
    "after the noise",
    "before it is stored",
    "charge ended",
    "after the release",
}


def run(directory: Path, mode: str, children: int) -> dict[str, int]:
    """The harness's own account: how often a child died at which step, and how many questions were answered."""
    result = subprocess.run(
        [sys.executable, str(HARNESS), str(directory), mode, str(children)],
        capture_output=True,
        text=True,
        timeout=7200,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    pairs = (line.rpartition(": ") for line in result.stdout.splitlines())
    return {name: int(times) for name, _, times in pairs}


def test_a_kill_at_any_step(tmp_path: Path) -> None:
    """Whoever comes after the killed process finds every charge whose noise could have left, and whole releases."""
    account = run(tmp_path, "steps", 38)
    assert set(account) - {"answered"} == STEPS


def test_a_kill_at_any_moment(tmp_path: Path) -> None:
    """The same at random moments, also inside DuckDB's and SQLite's own writing."""
    assert run(tmp_path, "moments", 8)["answered"] >= 4


@pytest.mark.audit
@pytest.mark.parametrize("mode", ["steps", "moments"])
def test_thousands_of_kills(tmp_path: Path, mode: str) -> None:
    """The same, thousands of times over, at all steps."""
    account = run(tmp_path, mode, 3000)
    assert account["answered"] > 0
    if mode == "steps":
        assert set(account) - {"answered"} == STEPS
