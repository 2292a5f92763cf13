"""Quantiles in order, and the standard errors of a tree's, beside oracles."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.ranges.buckets import buckets_for
from dpduck.strategies.recovery.curved import LEVELS, Curved
from dpduck.strategies.recovery.quantiles import in_order, quantile
from dpduck.values.arrays import FloatArray
from tests.strategies.test_curved import tree_runs


def columns_of(estimates: FloatArray) -> list[Curved]:
    """Answers with intervals about each, shape (quantiles, cells)."""
    wide = np.arange(1.0, len(LEVELS) + 1)[:, None]
    return [Curved(row.copy(), np.ones(len(row)), row - wide, row + wide) for row in estimates]


def test_values_move_to_the_nearest_in_order() -> None:
    """Values move as in scipy's isotonic regression, NULL aside. Values in order stay, with their intervals."""
    random = np.random.default_rng(3)
    estimates = random.normal(size=(5, 300)) + np.arange(5)[:, None] / 2
    estimates[random.random((5, 300)) < 0.1] = np.nan
    given = columns_of(estimates)
    moved = np.array([one.estimates for one in in_order(given)])
    for cell in range(300):
        told = ~np.isnan(estimates[:, cell])
        assert np.isnan(moved[~told, cell]).all()
        assert moved[told, cell] == pytest.approx(isotonic_regression(estimates[told, cell]).x)
    still = (np.nan_to_num(moved) == np.nan_to_num(estimates)).all(axis=0)
    assert 10 < still.sum() < 290
    for before, after in zip(given, in_order(given), strict=True):
        told = ~np.isnan(before.estimates)
        assert np.array_equal(before.lows[:, still & told], after.lows[:, still & told])
        assert (after.lows[:, told] <= before.lows[:, told]).all()
        assert (after.highs[:, told] >= before.highs[:, told]).all()
        assert (after.lows[:, told] <= after.estimates[told]).all()
        assert (after.highs[:, told] >= after.estimates[told]).all()


@pytest.mark.parametrize("kind", list(NoiseKind))
@pytest.mark.parametrize("shape", ["even", "skewed", "heaped"])
def test_a_standard_error_is_the_error(kind: NoiseKind, shape: str) -> None:
    """Over 600 runs, the root mean square error is at most 1.15 times that of the standard errors, and at least half.

    Were they alike, 600 squares would differ by that with a chance below 1e-9 under a normal law. Heaped values lie at
    the lower ends of their buckets: a quarter of the 95 % interval, and a bucket's width / sqrt(12), were 1.7 times too
    small. Where noise is less than a bucket, the place inside the bucket is unknown, and only the first holds.
    """
    places = (np.arange(3000) + 0.5) / 3000
    values = {"even": places, "skewed": places**4, "heaped": np.round(places * 32) / 32}[shape]
    buckets = buckets_for(Fraction(0), Fraction(1), Fraction(1, 10**6), 1)
    amount = Fraction(1) if kind is NoiseKind.LAPLACE else Fraction(1, 8)
    answers, variances = tree_runs(kind, np.sort(values), buckets, amount, 600)
    for fraction in (0.25, 0.5, 0.9):
        found = quantile(answers, variances, fraction, buckets, kind)
        error = np.sqrt(np.mean((found.estimates - np.quantile(values, fraction)) ** 2))
        ratio = error / np.sqrt(np.mean(found.stderrs**2))
        assert ratio < 1.15
        assert ratio > 0.5 or error < 2 * float(buckets.width)
