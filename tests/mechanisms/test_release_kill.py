"""SIGKILL at every step of a release: after a restart nothing is lost, nothing is free, and nothing is half there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kills import account

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


@pytest.mark.slow
def test_a_kill_at_any_step(tmp_path: Path) -> None:
    """The next process finds every charge with possibly published noise, and only whole releases."""
    found = account(HARNESS, tmp_path, "steps", 19)
    assert set(found) - {"answered"} == STEPS


@pytest.mark.slow
def test_a_kill_at_any_moment(tmp_path: Path) -> None:
    """Kills at random moments, also inside DuckDB's and SQLite's own writing, leave whole releases and all charges."""
    assert account(HARNESS, tmp_path, "moments", 5)["answered"] >= 2


@pytest.mark.audit
@pytest.mark.parametrize("number", range(20))
@pytest.mark.parametrize("mode", ["steps", "moments"])
def test_thousands_of_kills(tmp_path: Path, mode: str, number: int) -> None:
    """Thousands of kills at all steps. Each hundred and fifty are on a store of their own."""
    found = account(HARNESS, tmp_path, mode, 150)
    assert found["answered"] > 0
    if mode == "steps":
        assert set(found) - {"answered"} == STEPS
