"""The search of `dpduck audit`, with a fresh seed in every run of the suite. `.ci/run` searches for two minutes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import pytest

from dpduck.auditor.audit import Settings, audit
from tests.auditor.planted import COUNT, shop
from tests.support.alone import fresh_seed

SECONDS = float(os.environ.get("DPDUCK_SEARCH_SECONDS", "10"))


@pytest.mark.slow
def test_a_search_with_a_fresh_seed_finds_nothing(
    capfd: pytest.CaptureFixture[str], record_property: Callable[[str, object], None]
) -> None:
    """Random statements reveal no more than they are charged for. False alarm: 1e-9 each.

    DPDUCK_SEARCH_SEED repeats a search by its printed seed: the same statements, while time lasts.
    """
    seed = fresh_seed(record_property, "DPDUCK_SEARCH_SEED")
    settings = Settings(seconds=0.1, search=SECONDS, seed=seed, clock=time.process_time)  # whatever else is at work
    with shop() as source:
        found = list(audit(source, [COUNT], settings))
    searched = [one for one in found if one.mechanism == "search"]
    answered = [one for one in searched if not one.refused]
    with capfd.disabled():  # whatever pytest makes of its output
        told = f"{len(searched)} statements, {len(answered)} answered"
        sys.stderr.write(f"search of {SECONDS:g} s of a processor, seed {seed}: {told}\n")
    assert [one for one in found if one.broken] == [], seed
    assert answered
