"""Intervals cover the exact value with at least their confidence: computed exactly, or tried with independent noise."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.strategies.choose import plan_workload
from dpduck.strategies.plan import noisy_queries
from dpduck.strategies.recovery.intervals import (
    ErrorLaw,
    lows_after_selection,
    margin,
    margin_after_rounding,
    sum_margin,
)
from dpduck.strategies.recovery.recover import recover
from tests.kernel.doors import measure

CONFIDENCES = [Fraction(text) for text in ("0.5", "0.6", "0.7", "0.8", "0.85", "0.9", "0.95", "0.98", "0.99", "0.999")]
PARAMETERS = (0.05, 0.1, 0.2, 0.3, 0.33, 0.4, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20)
WEIGHTS = [  # of the noises that a cell sums, as whole numbers over a denominator
    ((1, 1), 1), ((1, 1, 1), 1), ((1,) * 5, 1), ((1,) * 10, 1), ((1,) * 40, 1), ((2, 1, 1), 3), ((3, 1), 4),
    ((2, 2, 1), 3), ((5, 1, 1, 1), 6), ((1, 1), 2), ((1,) * 4, 4), ((3, 1, 1, 1, 1, 1, 1), 4),
]  # fmt: skip


def noise_law(noise: NoiseKind, parameter: float) -> np.ndarray:
    """Probabilities of the discrete noise. All farther values together are below 1e-17."""
    deviation = 1.5 * parameter if noise is NoiseKind.LAPLACE else sqrt(parameter)
    reach = int(max(8, 40 * deviation + 3 if noise is NoiseKind.LAPLACE else 12 * deviation + 5))
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-np.abs(values) / parameter if noise is NoiseKind.LAPLACE else -values * values / (2 * parameter))
    return weights / weights.sum()


def sum_law(law: np.ndarray, weights: tuple[int, ...]) -> np.ndarray:
    """Probabilities of the weighted sum of independent noises."""
    total = np.ones(1)
    for weight in weights:
        stretched = np.zeros((len(law) - 1) * weight + 1)
        stretched[::weight] = law
        total = np.convolve(total, stretched)
    return total


@pytest.mark.slow
@pytest.mark.parametrize("noise", list(NoiseKind))
@pytest.mark.parametrize(("weights", "denominator"), WEIGHTS)
def test_sums_of_noise_are_covered_exactly(noise: NoiseKind, weights: tuple[int, ...], denominator: int) -> None:
    """For noise from almost none to large, sums of two to forty: the probability inside is at least the confidence."""
    for parameter in PARAMETERS:
        law = noise_law(noise, parameter)
        reach = len(law) // 2
        variance = float((law * np.arange(-reach, reach + 1) ** 2).sum()) * sum(w * w for w in weights) / denominator**2
        total = sum_law(law, weights)
        values = np.abs(np.arange(-(len(total) // 2), len(total) // 2 + 1)) / denominator
        for confidence in CONFIDENCES:
            half = margin(ErrorLaw(noise, None, variance), confidence)
            assert total[values <= half + 1e-12].sum() >= float(confidence) - 1e-9, (parameter, confidence)


@pytest.mark.parametrize("noise", list(NoiseKind))
def test_one_measurement_is_covered_exactly_and_tightly(noise: NoiseKind) -> None:
    """A cell that is one measurement has the smallest whole margin that covers it."""
    for parameter in PARAMETERS:
        law = noise_law(noise, parameter)
        values = np.abs(np.arange(len(law)) - len(law) // 2)
        for confidence in CONFIDENCES:
            half = margin(ErrorLaw(noise, Fraction(str(parameter)), 1.0), confidence)
            assert half == int(half)
            assert law[values <= half].sum() >= float(confidence) - 1e-12
            assert half == 0 or law[values <= half - 1].sum() < float(confidence) + 1e-9


def test_margins_are_not_wasteful() -> None:
    """Of large noise the margin is the normal or Laplace one, and half a count."""
    assert margin(ErrorLaw(NoiseKind.GAUSSIAN, None, 1e6), Fraction("0.95")) == pytest.approx(1959.964 + 0.5, abs=0.01)
    assert margin(ErrorLaw(NoiseKind.LAPLACE, None, 1e6), Fraction("0.95")) == pytest.approx(2118.303 + 0.5, abs=0.01)
    assert margin(ErrorLaw(NoiseKind.LAPLACE, None, 1e6), Fraction("0.5")) == pytest.approx(674.49 + 0.5, abs=0.01)


def test_no_noise_has_no_width() -> None:
    """A cell without noise is known."""
    assert margin(ErrorLaw(NoiseKind.LAPLACE, None, 0.0), Fraction("0.95")) == 0


def test_a_step_scales_the_margin() -> None:
    """A sum with weights ten times as large has a margin ten times as wide."""
    for stderr in (0.1, 1.0, 50.0):
        of_sum = sum_margin(NoiseKind.LAPLACE, Fraction("0.95"))
        assert of_sum.of(10 * stderr, 10.0) == pytest.approx(10 * of_sum.of(stderr))


@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_a_rounded_answer_is_covered(confidence: Fraction) -> None:
    """An answer moved to either neighbouring whole number stays within the rounded margin of a whole exact value."""
    law = ErrorLaw(NoiseKind.LAPLACE, None, 3.7)
    half = margin(law, confidence)
    for error in np.linspace(-half, half, 101):
        for rounded in (np.floor(error), np.ceil(error)):
            assert abs(rounded) <= margin_after_rounding(law, confidence)


SETS = ((0,), (1,), (0, 1), ())
PLANS = [
    (NoiseKind.LAPLACE, Fraction(1), "Q+", "l2"),
    (NoiseKind.LAPLACE, Fraction(1), "Q", "none"),
    (NoiseKind.LAPLACE, Fraction(8), "I", "l2"),
    (NoiseKind.LAPLACE, Fraction(8), "Q+", "l2"),
    (NoiseKind.LAPLACE, Fraction(1), "F+", "l2"),
    (NoiseKind.GAUSSIAN, Fraction(1, 8), "R", "l2"),
    (NoiseKind.GAUSSIAN, Fraction(6), "R", "l2"),
    (NoiseKind.GAUSSIAN, Fraction(1, 8), "Q+", "l2"),
]
REPEATS = 2000


@pytest.mark.sampled
@pytest.mark.parametrize(("noise", "amount", "strategy", "consistency"), PLANS)
def test_recovered_cells_are_unbiased_with_the_errors_that_were_predicted(
    noise: NoiseKind, amount: Fraction, strategy: str, consistency: str
) -> None:
    """One cell of every grouping set, over independent releases, has the right mean, deviation and coverage.

    A false alarm is below 1e-9 for each. The mean uses Bernstein's inequality with the noise scale, since small
    discrete noise is mostly 0. The variance may be off by 8 sqrt(5 / n), relatively: no sum exceeds Laplace noise's
    kurtosis of 6. The coverage of 95 %, one-sided, may be off by 7.5 sqrt(0.95 * 0.05 / n).
    """
    workload = MarginalWorkload((3, 2), SETS, (1.0,) * len(SETS))
    plan = plan_workload(workload, noise, amount, 1, strategy=strategy, budgets="optimal", consistency=consistency)[0]
    exact = np.array([[5, 0], [7, 1], [2, 40]])
    coordinates = tuple(axis.reshape(-1) for axis in np.indices(exact.shape))
    counts = ExactCounts(coordinates, exact.reshape(1, -1), exact.shape, (1,))
    truth = [exact[2].sum(), exact[:, 1].sum(), exact[2, 1], exact.sum()]
    entropy = operating_system_entropy()
    found = np.empty((REPEATS, len(SETS)))
    for repeat in range(REPEATS):
        tables = recover(plan, measure(counts, noisy_queries(plan), 0, 1, entropy))
        found[repeat] = [table.reshape(-1)[-1] for table in tables]
    errors = found - truth
    for number, variance in enumerate(plan.variances):
        law = ErrorLaw(noise, None, variance)
        of_set = errors[:, number]
        rare = 22 * max(1.0, law.stderr)  # 2 exp(-22) = 6e-10
        assert abs(of_set.mean()) < (rare + sqrt(rare**2 + 44 * REPEATS * variance)) / REPEATS
        kurtosis = 5 if variance > 1 else 5 + 10 / variance  # small discrete noise is mostly 0: heavier tails
        assert of_set.var() == pytest.approx(variance, rel=8 * sqrt(kurtosis / REPEATS))
        covered = np.abs(of_set) <= margin(law, Fraction("0.95")) + 1e-9
        assert covered.mean() > 0.95 - 7.5 * sqrt(0.95 * 0.05 / REPEATS)


@pytest.mark.parametrize(
    ("noise", "parameter"),
    [(NoiseKind.LAPLACE, 0.4), (NoiseKind.LAPLACE, 6.0), (NoiseKind.GAUSSIAN, 0.3), (NoiseKind.GAUSSIAN, 90.0)],
)
def test_counts_that_are_seen_for_their_noise_are_covered_exactly(noise: NoiseKind, parameter: float) -> None:
    """Whatever the true count is, of the noises that lift it above the threshold 95 % give an interval that holds it.

    Summed over the law from four standard errors below the threshold to eight above. Intervals of the noise alone hold
    as seldom as never. Far above the threshold both are the same.
    """
    pmf, level = noise_law(noise, parameter), Fraction(95, 100)
    reach = len(pmf) // 2
    variance = float((np.arange(-reach, reach + 1) ** 2 * pmf).sum())
    law = ErrorLaw(noise, Fraction(parameter), variance)
    half, least = margin(law, level), 2
    threshold = least + int(30 * law.stderr)
    seen = np.arange(threshold + 1, threshold + 2 * reach)
    (lows,) = lows_after_selection(Noise(noise, Fraction(parameter)), threshold, least, seen, [level])
    lows = np.fmin(lows, seen - half)
    assert np.all(np.diff(lows) >= 0) and lows[0] == least and lows[-1] == seen[-1] - half
    alone = []
    for units in range(threshold - int(4 * law.stderr), threshold + int(8 * law.stderr) + 2):
        chances = np.where(np.abs(seen - units) <= reach, pmf[np.clip(seen - units + reach, 0, 2 * reach)], 0)
        chances /= chances.sum()
        assert chances[(lows <= units) & (units <= seen + half)].sum() >= 0.95 - 1e-4
        alone.append(chances[np.abs(seen - units) <= half].sum())
    assert min(alone) < 0.5
