"""Summaries of tables that differ in one row are alike within exp(epsilon), and wrong ones are found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import inf
from unittest.mock import patch

import numpy as np
import pytest
from scipy import stats

from dpduck.kernel.noise.layers import SummaryLaw
from dpduck.kernel.queries.summaries import SummaryPlan
from tests.kernel.queries.summary_oracle import Runs
from tests.mechanisms.summaries.blocks import published

RUNS = 60_000
EPSILON = 1.0
ONE = Fraction(1)
FALSE_ALARM = 1e-10
LARGE = 4
"""Magnitudes from here on are another outcome than smaller ones."""

TABLE = np.array([0, 3, 1, 0])
NEIGHBOURS = {
    "a cell gains a row": np.array([0, 4, 1, 0]),
    "an empty cell gains its first row": np.array([1, 3, 1, 0]),
    "a cell loses its last row": np.array([0, 3, 0, 0]),
}
METHODS: dict[str, tuple[SummaryPlan, int | None]] = {
    "filter": (SummaryPlan((SummaryLaw(ONE, 2),)), None),
    "threshold": (SummaryPlan((SummaryLaw(ONE, 1, Fraction(3)),)), None),
    "priority": (
        SummaryPlan((SummaryLaw(ONE, 1, Fraction(3)), SummaryLaw(ONE, 1, ONE, Fraction(3))), 2, priorities=True),
        2,
    ),
    "filter_priority": (
        SummaryPlan((SummaryLaw(ONE, 2, Fraction(5)), SummaryLaw(ONE, 2, ONE * 2, Fraction(5))), 2, priorities=True),
        2,
    ),
}


def outcomes(runs: Runs, thresholds: np.ndarray) -> Iterator[np.ndarray]:
    """Coarse outcomes of each run, one numbering after the other: each cell's class, and all classes jointly.

    A class is absent or published with a sign and a size (5 classes). Joint outcomes know too whether there is a
    threshold, and whether it is large: 3 * 5^4.
    """
    classes = np.where(runs.values > 0, 1, 3) + (np.abs(runs.values) >= LARGE)
    classes = np.where(runs.kept, classes, 0)
    yield from classes.T
    yield classes @ 5 ** np.arange(4) * 3 + (thresholds > 0) + (thresholds >= LARGE)


def worst_excess(first: tuple[Runs, np.ndarray], second: tuple[Runs, np.ndarray]) -> float:
    """The largest log-likelihood ratio of an outcome, either way, that the runs prove, less epsilon.

    The proof uses Clopper and Pearson's bounds on both probabilities. Each is wrong with FALSE_ALARM over twice the
    number of bounds. So the result is above 0 for a private summary with a chance below FALSE_ALARM in all.
    """
    sizes = [5] * 4 + [3 * 5**4]
    wrong = FALSE_ALARM / (4 * sum(sizes))
    worst = -inf
    for size, one, other in zip(sizes, outcomes(*first), outcomes(*second), strict=True):
        counts = [np.bincount(part, minlength=size) for part in (one, other)]
        for mine, theirs in (counts, counts[::-1]):
            often = mine > 0
            low = stats.beta.ppf(wrong, mine[often], RUNS - mine[often] + 1)
            high = stats.beta.ppf(1 - wrong, theirs[often] + 1, RUNS - theirs[often])
            worst = max(worst, float(np.log(low / high).max()))
    return worst - EPSILON


def runs_of(method: str, table: np.ndarray, scale: Fraction = ONE) -> tuple[Runs, np.ndarray]:
    """Publishes a table many times."""
    plan, keep = METHODS[method]
    laws = tuple(replace(law, scale=scale) for law in plan.layers)
    return published(table, replace(plan, layers=laws), RUNS, keep)


@pytest.mark.sampled
@pytest.mark.parametrize("method", METHODS)
def test_neighbours_are_alike(method: str) -> None:
    """No outcome tells two neighbours apart by more than epsilon = 1. False alarms below 3e-10.

    The bounds are sharp: they prove a loss within 0.3 of epsilon. Geometric noise spends all of epsilon.
    """
    first = runs_of(method, TABLE)
    found = [worst_excess(first, runs_of(method, neighbour)) for neighbour in NEIGHBOURS.values()]
    assert max(found) <= 0
    assert max(found) > -0.3


@pytest.mark.parametrize("method", METHODS)
def test_too_little_noise_is_found(method: str) -> None:
    """Noise at two thirds of its scale spends 1.5 epsilon."""
    scale = Fraction(2, 3)
    first, second = (runs_of(method, table, scale) for table in (TABLE, NEIGHBOURS["a cell gains a row"]))
    assert worst_excess(first, second) > 0


@pytest.mark.parametrize("method", METHODS)
def test_a_wrong_chance_of_empty_cells_is_found(method: str) -> None:
    """Empty cells that are upgraded half as often as they should be betray a cell's first row."""
    right = SummaryLaw.given_not_before
    with patch.object(SummaryLaw, "given_not_before", lambda law, bits: tuple(b / 2 for b in right(law, bits))):
        first, second = (runs_of(method, table) for table in (TABLE, NEIGHBOURS["an empty cell gains its first row"]))
    assert worst_excess(first, second) > 0
