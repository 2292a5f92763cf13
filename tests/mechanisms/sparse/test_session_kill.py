"""SIGKILL at every step of a session's answers: no update is lost or repeated, and given answers stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kills import account

HARNESS = Path(__file__).with_name("session_kill_harness.py")
STEPS = {"answers computed", "answers committed", "answers fenced"}


@pytest.mark.slow
def test_a_kill_at_any_step_of_an_answer(tmp_path: Path) -> None:
    """Kill -9 neither loses nor repeats an update, and the ledger never moves."""
    found = account(HARNESS, tmp_path, 14)
    assert set(found) - {"told"} <= STEPS
    assert found["told"] > 0


@pytest.mark.audit
def test_hundreds_of_kills_of_answers(tmp_path: Path) -> None:
    """Kills hundreds of times, at all steps."""
    found = account(HARNESS, tmp_path, 300)
    assert set(found) - {"told"} == STEPS
