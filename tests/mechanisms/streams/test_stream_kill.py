"""SIGKILL at every step of a refresh: nothing is measured twice, nothing is lost, and no noise is drawn anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mechanisms.streams.stream_kill_harness import STEPS, WHILE_MADE
from tests.support.kills import account

HARNESS = Path(__file__).with_name("stream_kill_harness.py")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["count", "cube"])
def test_a_kill_at_any_step_of_a_refresh(tmp_path: Path, kind: str) -> None:
    """The next refresh publishes the same measurements, with the same noise, and goes on. One charge pays for all."""
    found = account(HARNESS, tmp_path, len(STEPS), kind)
    assert set(found) - {"published"} == set(STEPS)
    assert found["published"] > 0


@pytest.mark.slow
def test_a_kill_at_any_step_of_making_a_stream(tmp_path: Path) -> None:
    """The same statement again makes the paid stream, or pays and makes it: one stream for one charge."""
    assert account(HARNESS, tmp_path, 0, "made") == {**dict.fromkeys(WHILE_MADE, 1), "made": len(WHILE_MADE)}


@pytest.mark.audit
@pytest.mark.parametrize("kind", ["count", "cube"])
def test_hundreds_of_kills(tmp_path: Path, kind: str) -> None:
    """Kills until the horizon has ended."""
    found = account(HARNESS, tmp_path, 126, kind)
    assert found["published"] == 40
