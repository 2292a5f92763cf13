"""SIGKILL at every step of a session's answers: no update is lost or repeated, and what was said stays said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).with_name("session_kill_harness.py")
STEPS = {"answers computed", "answers committed", "answers fenced"}


def run(directory: Path, children: int) -> dict[str, int]:
    result = subprocess.run(
        [sys.executable, str(HARNESS), str(directory), str(children)],
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    pairs = (line.rpartition(": ") for line in result.stdout.splitlines())
    return {name: int(times) for name, _, times in pairs}


def test_a_kill_at_any_step_of_an_answer(tmp_path: Path) -> None:
    """Issue 8: kill -9 neither loses nor repeats an update, and the ledger never moves."""
    account = run(tmp_path, 14)
    assert set(account) - {"told"} <= STEPS
    assert account["told"] > 0


@pytest.mark.audit
def test_hundreds_of_kills_of_answers(tmp_path: Path) -> None:
    """The same, hundreds of times over, at all steps."""
    account = run(tmp_path, 300)
    assert set(account) - {"told"} == STEPS
