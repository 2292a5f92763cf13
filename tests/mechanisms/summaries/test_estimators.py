"""Weights are unbiased and say how far off they are."""

from __future__ import annotations

from fractions import Fraction
from math import exp, sqrt
from unittest.mock import patch

import numpy as np
import pytest

from dpduck.kernel.queries.summaries import NoisySummary
from dpduck.language.select.request import Summary
from dpduck.mechanisms.summaries.plan import empty_moments, moments_at_count, noise_variance
from dpduck.mechanisms.summaries.recover import EstimatedSummary, estimate_weights, noise_of_kept
from tests.mechanisms.summaries.drawn import subset_sums

RUNS = 6_000
CELLS, SUBSET = 2_000, 600
EXACT = np.zeros(CELLS, dtype=np.int64)
EXACT[: 7 * 100 : 7] = 60 + np.arange(100)  # 86 of the cells are in the subset
SCALE = Fraction(5)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "together", [True, pytest.param(False, marks=pytest.mark.audit)], ids=["at once", "one by one"]
)
@pytest.mark.parametrize(
    ("method", "size"),
    [
        ("threshold", 250),
        ("threshold", 40),
        ("priority", 250),
        ("priority", 90),
        ("filter_priority", 110),
        ("filter", 60),
        ("geometric", 1),
    ],
)
def test_sums_are_unbiased_and_know_their_error(method: str, size: int, together: bool) -> None:
    """The mean of 6,000 runs is within 6.2 standard errors (1e-9), and the reported error within 10 % of the empirical.

    A filter is unbiased here because every occupied cell is far above it (a count of 60 falls below with 1e-4).
    The empirical error is itself off by 0.9 %, and the reported one by at most 4 % (a filter), so that 10 % are more
    than 6.2 of its standard errors. The audit draws half as many runs one by one: 1e-7.
    """
    truth, runs = EXACT[:SUBSET].sum(), RUNS if together else RUNS // 2
    sums, variances = subset_sums(Summary(method, size), EXACT, SCALE, SUBSET, runs, together=together)
    assert abs(sums.mean() - truth) < 6.2 * sums.std() / sqrt(runs) + 0.5 * method.startswith("filter")
    assert sqrt(variances.mean()) == pytest.approx(sums.std(), rel=0.1)


def test_wrong_estimates_are_found() -> None:
    """The test above tells something: counts in place of weights are biased, three tenths less variance is seen."""
    sums, variances = subset_sums(Summary("threshold", 40), EXACT, SCALE, SUBSET, RUNS)
    assert sqrt(0.7 * variances.mean()) != pytest.approx(sums.std(), rel=0.1)
    with patch("tests.mechanisms.summaries.drawn.estimate_weights", without_thresholds):
        raw, _ = subset_sums(Summary("threshold", 40), EXACT, SCALE, SUBSET, RUNS)
    assert abs(raw.mean() - EXACT[:SUBSET].sum()) > 20 * raw.std() / sqrt(RUNS)


def test_a_weight_is_at_least_the_threshold() -> None:
    """A cell that was kept with the chance |v| / tau stands for all that were not: it weighs tau, with its sign."""
    kept = NoisySummary(np.arange(3)[None, :], np.array([1, -2, 9]), np.zeros(3), 1)
    assert estimate_weights(kept, 5.0, 1, 4.0).weights.tolist() == [4.0, -4.0, 9.0]


def without_thresholds(
    summary: NoisySummary, scale: float, theta: int, tau: float, *, sides: int, whole: bool
) -> EstimatedSummary:
    """Wrong: weights that do not make up for cells that were not drawn."""
    return estimate_weights(summary, scale, theta, 0.0, sides=sides, whole=whole)


@pytest.mark.parametrize(("theta", "tau"), [(1, 0.0), (1, 7.5), (4, 0.0), (4, 9.0), (6, 2.0)])
@pytest.mark.parametrize("scale", [0.3, 2.0, 30.0])
def test_moments_of_an_empty_cell(theta: int, tau: float, scale: float) -> None:
    """Closed forms against sums term by term."""
    a, k = exp(-1 / scale), np.arange(theta, theta + int(60 * scale) + 60)
    law = 2 * (1 - a) / (1 + a) * a ** k.astype(float)
    chance = np.minimum(k / tau, 1.0) if tau else np.ones(len(k))
    found = empty_moments(scale, theta, tau)
    assert found.kept == pytest.approx(law @ chance, rel=1e-9)
    assert found.square == pytest.approx(law @ (chance * np.maximum(k, tau) ** 2), rel=1e-9)
    grid = moments_at_count(0.0, scale, theta, tau)
    assert (grid.kept, grid.square) == pytest.approx((found.kept, found.square), rel=1e-3)


@pytest.mark.parametrize("theta", [1, 3, 20])
def test_noise_of_unseen_cells_is_counted(theta: int) -> None:
    """An empty cell adds its variance on average, though most empty cells are in no row. Far cells add s^2."""
    scale, k = 4.0, np.arange(theta, 400)
    a = exp(-1 / scale)
    law = 2 * (1 - a) / (1 + a) * a ** k.astype(float)
    assert law @ noise_of_kept(k.astype(float), scale, theta, 2) == pytest.approx(law @ k.astype(float) ** 2)
    assert noise_of_kept(np.array([400.0]), scale, theta, 2)[0] == pytest.approx(noise_variance(scale))
