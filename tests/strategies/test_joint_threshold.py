"""Thresholded keys released alone: the joint formula against the design's table, brute force and dp-accounting."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from math import exp, expm1, log1p, sqrt

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from benchmarks.papers.joint_threshold import calibrate_apart, calibrate_jointly, curve, joint_delta, within
from dpduck.values.arrays import FloatArray

ONE, MILLIONTH = Fraction(1), Fraction(1, 10**6)
TABLE = {1: (4.229, 20.10), 8: (11.96, 61.69), 100: (42.29, 237.3)}
APART = {1: (4.365, 21.35), 8: (12.35, 65.26), 100: (43.65, 250.2)}
THREE_DIGITS = 1.5e-3


def continuous_delta(epsilon: float, sigma: float, tau: float, groups: int) -> float:
    """The formula with normal noise, written down on its own."""

    def gaussian(epsilon: float, counts: int) -> float:
        if counts == 0:
            return max(0.0, -expm1(epsilon))
        mu = sqrt(counts) / sigma
        return float(ndtr(mu / 2 - epsilon / mu) - exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))

    stays = float(ndtr(tau / sigma))
    found = [1 - stays**groups]
    for existing in range(groups + 1):
        gamma = (groups - existing) * log1p(stays - 1)
        new = -expm1(gamma)
        found += [new + (1 - new) * gaussian(epsilon - gamma, existing), gaussian(epsilon + gamma, existing)]
    return max(found)


def law(variance: float, reach: int) -> tuple[FloatArray, FloatArray]:
    """Places and probabilities of the discrete Gaussian, normalised over a far wider range than is kept."""
    wide = np.arange(-3 * reach, 3 * reach + 1)
    weights = np.exp(-wide * wide / (2 * variance))
    return wide[2 * reach : -2 * reach].astype(float), (weights / weights.sum())[2 * reach : -2 * reach]


def brute_delta(
    epsilon: float, variance: float, excess: int, existing: list[int], new: int, rows: int = 1
) -> tuple[float, float]:
    """Both one-sided deltas of whole releases, by summing over every outcome.

    existing: counts of groups without the unit. An outcome is, group by group, a noisy count or that it is hidden.
    """
    threshold, reach = rows + excess, int(9 * sqrt(variance)) + 8
    places, weights = law(variance, reach)

    def outcomes(count: int) -> dict[int | None, float]:
        found: dict[int | None, float] = {}
        for place, weight in zip(places, weights, strict=True):
            value = int(place) + count
            shown = value if value > threshold else None
            found[shown] = found.get(shown, 0.0) + float(weight)
        return found

    pairs = [(outcomes(count), outcomes(count + rows)) for count in existing]
    pairs += [({None: 1.0}, outcomes(rows))] * new
    joint = []
    for before, after in pairs:
        keys = list({**before, **after})
        joint.append(np.array([[before.get(key, 0.0), after.get(key, 0.0)] for key in keys]))
    without = reduce(np.multiply.outer, [pair[:, 0] for pair in joint]).ravel()
    with_unit = reduce(np.multiply.outer, [pair[:, 1] for pair in joint]).ravel()
    return (
        float(np.maximum(with_unit - exp(epsilon) * without, 0).sum()),
        float(np.maximum(without - exp(epsilon) * with_unit, 0).sum()),
    )


@pytest.mark.parametrize("groups", TABLE)
def test_the_table_of_the_design(groups: int) -> None:
    """The design's sigma and tau to three digits, by the formula with normal noise. Ours never has more noise."""
    ratio = float(-ndtri(-np.expm1(np.log1p(-1e-6) / groups)))
    sigma = float(
        brentq(lambda s: continuous_delta(1, s, ratio * s, groups) - 1.0000001e-6, sqrt(groups), 9 * sqrt(groups))
    )
    wanted_sigma, wanted_tau = TABLE[groups]
    assert sigma == pytest.approx(wanted_sigma, rel=THREE_DIGITS)
    assert ratio * sigma == pytest.approx(wanted_tau, rel=THREE_DIGITS)
    ours = calibrate_jointly(ONE, MILLIONTH, groups)
    assert sqrt(ours.variance) == pytest.approx(wanted_sigma, rel=THREE_DIGITS)
    assert abs(ours.excess - wanted_tau) < 1
    apart = calibrate_apart(ONE, MILLIONTH, groups)
    assert sqrt(apart.variance) == pytest.approx(APART[groups][0], rel=3e-3)
    assert abs(apart.excess - APART[groups][1]) < 1


CASES = [
    (Fraction(1), Fraction(1, 100), 1, 1),
    (Fraction(1), Fraction(1, 100), 2, 1),
    (Fraction(2), Fraction(1, 1000), 2, 1),
    (Fraction(3), Fraction(1, 1000), 3, 1),
    (Fraction(2), Fraction(1, 100), 2, 2),
    (Fraction(5), Fraction(1, 10**6), 3, 1),
]


@pytest.mark.parametrize(("epsilon", "delta", "groups", "rows"), CASES, ids=str)
def test_every_neighbour_stays_within_delta(epsilon: Fraction, delta: Fraction, groups: int, rows: int) -> None:
    """Brute force over all outcomes, a unit in C groups of which S exist, few or many units in them: the total delta is
    at most the claim, and its largest value at most 3 % below."""
    ours = calibrate_jointly(epsilon, delta, groups, rows)
    variance, worst = float(ours.variance), 0.0
    for existing in range(groups + 1):
        for count in (1, ours.excess // 2 + 1, 40 * (ours.excess + 2)):
            counts = [count] * existing
            worst = max(worst, *brute_delta(float(epsilon), variance, ours.excess, counts, groups - existing, rows))
    assert 0.97 * float(delta) <= worst <= float(delta)
    assert ours.delta == pytest.approx(worst, rel=0.03)


@pytest.mark.parametrize(("epsilon", "delta", "groups", "rows"), CASES, ids=str)
def test_a_wrong_calibration_is_seen(epsilon: Fraction, delta: Fraction, groups: int, rows: int) -> None:
    """The same brute force finds more than delta with a threshold one lower, and with two thirds of sigma."""
    ours = calibrate_jointly(epsilon, delta, groups, rows)
    variance, many = float(ours.variance), [40 * (ours.excess + 2)] * groups
    assert max(brute_delta(float(epsilon), variance, ours.excess - 1, [], groups, rows)) > float(delta)
    assert max(brute_delta(float(epsilon), variance * 4 / 9, ours.excess, many, 0, rows)) > float(delta)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-12])
@pytest.mark.parametrize("groups", [1, 3, 40])
def test_all_existing_groups_are_within_the_formula(epsilon: float, delta: float, groups: int) -> None:
    """A calibration accepted by runs of S is within delta at every S. It is never worse than adding two deltas.

    At epsilon = 20 sigma is below 1/2 and the curve has steps, so that less noise can serve as well.
    """
    ours = calibrate_jointly(Fraction(str(epsilon)), Fraction(str(delta)), groups)
    assert within(epsilon, delta, ours.variance, ours.excess, groups)
    assert joint_delta(epsilon, ours.variance, ours.excess, groups) <= delta
    assert epsilon > 10 or not within(epsilon, delta, ours.variance * Fraction(4, 9), ours.excess, groups)
    apart = calibrate_apart(Fraction(str(epsilon)), Fraction(str(delta)), groups)
    assert ours.excess <= apart.excess and ours.variance <= apart.variance


@pytest.mark.parametrize(("sigma", "counts"), [(30.0, 1), (60.0, 4), (4000.0, 9)])
def test_the_curve_of_existing_groups(sigma: float, counts: int) -> None:
    """delta_S agrees with dp-accounting's Gaussian mechanism where the noise is wide, from above its own steps."""
    peer = from_gaussian_mechanism(sigma / sqrt(counts), use_connect_dots=True, value_discretization_interval=1e-4)
    for epsilon in (0.01, 0.05, 0.1):
        wanted = peer.get_delta_for_epsilon(epsilon)
        if wanted > 1e-12:
            assert curve(epsilon, sigma * sigma, counts, 1) == pytest.approx(wanted, rel=0.02)


def test_deltas_that_are_too_small_are_refused() -> None:
    """Below 1e-30 the tails of the convolved laws end, so nothing is claimed there."""
    with pytest.raises(ValueError, match="at least 1e-30"):
        calibrate_jointly(ONE, Fraction(1, 10**31), 1)
