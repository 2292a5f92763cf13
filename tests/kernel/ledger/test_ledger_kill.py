"""SIGKILL at every step of a charge: after a restart the ledger holds every charge that could have returned."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kills import account

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


@pytest.mark.slow
def test_a_kill_at_any_step_loses_no_charge(tmp_path: Path) -> None:
    """Each child dies at a step of opening and charging. The next one finds all charges that had returned.

    Which step is drawn from a fixed seed, so that every run kills at the same ones.
    """
    found = account(HARNESS, tmp_path, "steps", 60)
    assert set(STEPS) <= set(found)
    assert found["returned"] > 20


@pytest.mark.slow
def test_a_kill_at_any_moment_loses_no_charge(tmp_path: Path) -> None:
    """Children that charge without end are killed at random moments, also inside DuckDB's and SQLite's own writing."""
    found = account(HARNESS, tmp_path, "moments", 20)
    assert found["returned"] >= 20


@pytest.mark.audit
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("mode", ["steps", "moments"])
def test_thousands_of_kills_lose_no_charge(tmp_path: Path, mode: str, seed: int) -> None:
    """Thousands of kills lose no charge, a hundred on each store, since a long ledger is slow to open."""
    assert account(HARNESS, tmp_path, mode, 100, seed)["returned"] > 0
