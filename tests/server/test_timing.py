"""Times of statements tell a principal nothing visible about a predicate over one named row."""

from __future__ import annotations

import os
import random
import time
from math import comb
from pathlib import Path

import pytest

import dpduck
from tests.server.served import add_principals
from tests.server.shell import needs_quack, serving
from tests.server.test_hostile import Working

GUESSES = int(os.environ.get("DPDUCK_TIMING_GUESSES", "1000"))
CHANCE = 0.01
LONG = "ab" * 400
SELECT = (
    "FROM dp($$SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.0005, refresh = '{number}') count(*) AS n FROM "
    "(SELECT CASE WHEN id = 28 AND {predicate} THEN '{long}' ELSE 'b' END AS t FROM visits) "
    "WHERE length(replace(replace(replace(t, 'ab', 'abababab'), 'ba', 'b'), 'bb', 'abba')) > 20$$)"
)
"""Her row alone makes texts grow; longer literals and patterns with several wildcards are refused."""


def clinic(folder: Path) -> Path:
    path = folder / "clinic.duckdb"
    with dpduck.connect(path) as connection:
        connection.execute("CREATE TABLE visits AS SELECT range AS id, 20 + range % 60 AS age FROM range(40000)")
        connection.execute("FROM dp('CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 5))')")
        connection.execute("CHECKPOINT")
    return path


def best_cut(known: list[tuple[float, bool]]) -> float:
    """Returns the time above which 'true' is guessed: the best of all cuts for the known times."""
    cuts = sorted(took for took, _ in known)
    return max(cuts, key=lambda cut: sum((took > cut) == truth for took, truth in known))


def by_chance(trials: int) -> int:
    """Returns how many of so many coins can be guessed by chance, but for one run in a hundred."""
    tail, right = 0.0, trials
    while tail + comb(trials, right) / 2**trials < CHANCE:
        tail += comb(trials, right) / 2**trials
        right -= 1
    return right


def test_a_cut_that_tells_would_be_found() -> None:
    """Half a second of difference is seen by the test below."""
    known = [(0.5 + 0.5 * (number % 2) + number / 1e4, number % 2 == 1) for number in range(100)]
    cut = best_cut(known)
    assert sum((took > cut) == truth for took, truth in known) == 100 > by_chance(100)


@pytest.mark.audit
@needs_quack
def test_a_thousand_statements_guess_no_better_than_chance(tmp_path: Path, state_directory: Path) -> None:
    """Half of the statements, in random order, are true of her row. A cut learned from one half is tried on the other.

    One run in a hundred fails by chance, as the claim is made at 99 %.
    """
    database = clinic(tmp_path)
    token = add_principals(database)["alice"]
    truths = [True, False] * (GUESSES // 2)
    random.Random(28).shuffle(truths)  # noqa: S311
    seen = []
    with serving(database, "--releases", str(GUESSES + 10)) as server:
        alice = Working(server, token)
        for number, truth in enumerate(truths):
            predicate = "age >= 0" if truth else "age >= 200"
            start = time.monotonic()
            rows = alice.rows(SELECT.format(number=number, predicate=predicate, long=LONG))
            seen.append((time.monotonic() - start, truth))
            assert len(rows) == 1
        assert server.stop() == 0
    cut = best_cut(seen[: GUESSES // 2])
    rest = seen[GUESSES // 2 :]
    right = sum((took > cut) == truth for took, truth in rest)
    times = {truth: sorted(took for took, which in seen if which is truth) for truth in (True, False)}
    told = {truth: (took[0], took[len(took) // 2], took[-1]) for truth, took in times.items()}
    assert right <= by_chance(len(rest)), (right, len(rest), told)
