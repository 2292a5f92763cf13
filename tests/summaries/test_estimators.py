"""Weights are unbiased and say how far off they are (issue 5)."""

from __future__ import annotations

from fractions import Fraction
from math import exp, sqrt

import numpy as np
import pytest

from dpduck.frontend.summary import Summary
from dpduck.summaries.estimators import noise_of_kept
from dpduck.summaries.moments import empty_moments, noise_variance, occupied_moments
from tests.summaries.drawn import subset_sums

RUNS = 3_000
CELLS, SUBSET = 2_000, 600
OCCUPIED = {7 * place: 60 + place for place in range(100)}  # 86 of them in the subset
SCALE = Fraction(5)


@pytest.mark.parametrize(
    ("method", "size"),
    [
        ("threshold", 250),
        ("priority", 250),
        ("priority", 90),
        ("filter_priority", 110),
        ("filter", 60),
        ("geometric", 1),
    ],
)
def test_sums_are_unbiased_and_know_their_error(method: str, size: int) -> None:
    """Mean of 3,000 runs within 6.2 of its standard errors (1e-9); reported error within 10 % of the empirical one.

    A filter is unbiased here because every occupied cell is far above it (a count of 60 falls below with 1e-4).
    The empirical error is itself off by 1.3 %, so that 10 % are more than 6.2 of its standard errors.
    """
    truth = sum(count for place, count in OCCUPIED.items() if place < SUBSET)
    sums, variances = subset_sums(Summary(method, size), CELLS, OCCUPIED, SCALE, SUBSET, RUNS)
    assert abs(sums.mean() - truth) < 6.2 * sums.std() / sqrt(RUNS) + 0.5 * method.startswith("filter")
    assert sqrt(variances.mean()) == pytest.approx(sums.std(), rel=0.1)


def test_a_biased_weight_is_found() -> None:
    """The test above tells something: noisy counts in place of weights are far off."""
    truth = sum(count for place, count in OCCUPIED.items() if place < SUBSET)
    sums, _ = subset_sums(Summary("threshold", 250), CELLS, OCCUPIED, SCALE, SUBSET, 50)
    raw = sums * 0.9
    assert abs(raw.mean() - truth) > 2 * raw.std() / sqrt(50)


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
    grid = occupied_moments(0.0, scale, theta, tau)
    assert (grid.kept, grid.square) == pytest.approx((found.kept, found.square), rel=1e-3)


@pytest.mark.parametrize("theta", [1, 3, 20])
def test_noise_of_unseen_cells_is_counted(theta: int) -> None:
    """An empty cell adds on average the variance that it has, though most of them are in no row; far cells add s^2."""
    scale, k = 4.0, np.arange(theta, 400)
    a = exp(-1 / scale)
    law = 2 * (1 - a) / (1 + a) * a ** k.astype(float)
    assert law @ noise_of_kept(k.astype(float), scale, theta, 2) == pytest.approx(law @ k.astype(float) ** 2)
    assert noise_of_kept(np.array([400.0]), scale, theta, 2)[0] == pytest.approx(noise_variance(scale))
