"""Averages, variances and quantiles: intervals cover, errors are as predicted, biases are as stated."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.ranges.buckets import Buckets, buckets_for, tree_workload
from dpduck.strategies.ranges.sets import plan_range_sets
from dpduck.strategies.recovery.curved import (
    LEVELS,
    Curved,
    Noisy,
    average,
    average_about,
    deviation_of,
    rescale,
    variance_about,
    variance_of,
)
from dpduck.strategies.recovery.quantiles import quantile
from dpduck.strategies.recovery.recover import recover
from dpduck.values.arrays import FloatArray

RUNS = 20_000
USUAL = LEVELS.index(Fraction(95, 100))


def skewed(generator: np.random.Generator, rows: int) -> FloatArray:
    """Values between 0 and 1, mostly small, some at the upper bound."""
    return np.minimum(generator.lognormal(-2.5, 1.2, rows), 1.0)


def noise_of(generator: np.random.Generator, kind: NoiseKind, scale: float, shape: tuple[int, ...]) -> FloatArray:
    """Integers of the law with this parameter: differences of geometric variables, or rounded normal ones."""
    if kind is NoiseKind.GAUSSIAN:
        return np.rint(generator.normal(0, scale, shape))
    stop = 1 - np.exp(-1 / scale)
    return (generator.geometric(stop, shape) - generator.geometric(stop, shape)).astype(np.float64)


def moments(values: FloatArray, degree: int) -> FloatArray:
    """Exact sums of the Bernstein basis."""
    if degree == 1:
        return np.array([(1 - values).sum(), values.sum()])
    return np.array([((1 - values) ** 2).sum(), (2 * values * (1 - values)).sum(), (values**2).sum()])


def runs(kind: NoiseKind, values: FloatArray, degree: int, scale: float) -> tuple[list[FloatArray], FloatArray, float]:
    """Noisy tables of many runs, their variance, and the value of one integer. Scale is in rows."""
    generator, whole = np.random.default_rng(7), 10_000.0
    drawn = noise_of(generator, kind, scale * whole, (degree + 1, RUNS)) / whole
    variance = (2 if kind is NoiseKind.LAPLACE else 1) * scale**2
    return list(moments(values, degree)[:, None] + drawn), np.full(RUNS, variance), 1 / whole


def coverage(found: Curved, exact: float) -> float:
    return float(((found.lows[USUAL] <= exact) & (exact <= found.highs[USUAL])).mean())


KINDS = pytest.mark.parametrize("kind", list(NoiseKind))
SIZES = pytest.mark.parametrize(("rows", "scale"), [(5000, 4.0), (400, 8.0), (60, 3.0)])


@KINDS
@SIZES
def test_intervals_of_averages_cover(kind: NoiseKind, rows: int, scale: float) -> None:
    """Of 20,000 runs on skewed data, 94 % to 99 % of the 95 % intervals hold the average. The draws are fixed."""
    values = skewed(np.random.default_rng(1), rows)
    for degree in (1, 2):
        tables, variance, step = runs(kind, values, degree, scale)
        assert 0.94 <= coverage(average(tables, variance, kind, step), values.mean()) <= 0.99


@KINDS
def test_an_average_of_hardly_any_rows_says_so(kind: NoiseKind) -> None:
    """Where noise hides the number of rows, intervals still cover, and NULL stands for nothing to average."""
    values = skewed(np.random.default_rng(1), 6)
    tables, variance, step = runs(kind, values, 1, 10.0)
    found = average(tables, variance, kind, step)
    assert coverage(found, values.mean()) >= 0.94
    assert np.isnan(found.estimates).mean() > 0.1
    assert found.highs[USUAL][np.isnan(found.estimates)].min() == 1


@KINDS
@pytest.mark.parametrize(("rows", "scale"), [(5000, 4.0), (2000, 8.0)])
@pytest.mark.parametrize("sample", [False, True])
def test_intervals_of_variances_cover(kind: NoiseKind, rows: int, scale: float, sample: bool) -> None:
    """Of 20,000 runs, intervals of variances and standard deviations cover, too, by the delta method."""
    values = skewed(np.random.default_rng(1), rows)
    tables, variance, _ = runs(kind, values, 2, scale)
    exact = float(values.var(ddof=int(sample)))
    found = variance_of(tables, variance, kind, sample=sample)
    assert 0.94 <= coverage(found, exact) <= 0.99
    assert 0.94 <= coverage(deviation_of(found), exact**0.5) <= 0.99


VALUES = {
    "anywhere": lambda generator, rows: generator.random(rows),
    "skewed": skewed,
    "at one end": lambda generator, rows: 0.002 + 0.004 * generator.random(rows),
    "at the other": lambda generator, rows: 1 - 0.002 - 0.004 * generator.random(rows),
    "in the middle": lambda generator, rows: 0.5 + 0.02 * generator.random(rows),
    "at both ends": lambda generator, rows: np.arange(rows) % 2,
    "one far off": lambda generator, rows: np.arange(rows) == 0,
}


@pytest.mark.sampled
@KINDS
@pytest.mark.parametrize("scale", [0.4, 2.0, 10.0])
@pytest.mark.parametrize("placed", VALUES)
def test_variances_of_small_groups_cover(kind: NoiseKind, scale: float, placed: str) -> None:
    """Groups of 1 to 300 rows, with the noise of three prices: no 95 % interval covers less than 94 % of 20,000 runs.

    Half of the values at either bound is the largest variance there is, and a sample's is more: n / (4 (n - 1)).
    """
    for rows in (1, 2, 3, 8, 15, 60, 100, 300):
        values = np.asarray(VALUES[placed](np.random.default_rng(rows), rows), np.float64)
        tables, variance, step = runs(kind, values, 2, scale)
        for sample in (False, True)[: min(rows, 2)]:
            found = variance_of(tables, variance, kind, step, sample=sample)
            exact = float(values.var(ddof=int(sample))) * (1 - 1e-12)  # a variance of 0 is 1e-16 in floats
            assert coverage(found, exact) >= 0.94, (rows, sample)
            assert coverage(deviation_of(found), exact**0.5) >= 0.94, (rows, sample)
            answered = ~np.isnan(found.estimates)
            assert found.estimates[answered].max(initial=0) <= (0.5 if sample else 0.25)


@KINDS
def test_errors_and_biases_are_as_stated(kind: NoiseKind) -> None:
    """The standard error is the runs' deviation, and the bias of a ratio is of second order: below a fifth."""
    values = skewed(np.random.default_rng(1), 2000)
    tables, variance, step = runs(kind, values, 2, 4.0)
    for found, exact in (
        (average(tables, variance, kind, step), values.mean()),
        (variance_of(tables, variance, kind, sample=False), values.var()),
    ):
        deviation = found.estimates.std()
        assert np.median(found.stderrs) == pytest.approx(deviation, rel=0.1)
        assert abs(found.estimates.mean() - exact) < 0.2 * deviation


def about(scales: tuple[float, float], values: FloatArray, centre: float, times: float = 1.0) -> Curved:
    """20,000 averages about a centre, from counts and sums with separate Gaussian noise. times: stated variances."""
    generator = np.random.default_rng(2)
    counts = len(values) + noise_of(generator, NoiseKind.GAUSSIAN, scales[0], (RUNS,))
    sums = (values - centre).sum() + noise_of(generator, NoiseKind.GAUSSIAN, 100 * scales[1], (RUNS,)) / 100
    rows, distances = (
        Noisy(answers, np.full(RUNS, scale * times**0.5), step)
        for answers, scale, step in ((counts, scales[0], 1.0), (sums, scales[1], 0.01))
    )
    return average_about(centre, (0.0, 1.0), rows, distances, NoiseKind.GAUSSIAN)


@pytest.mark.parametrize("centre", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("rows", "scales"), [(5000, (4.0, 40.0)), (400, (20.0, 3.0)), (60, (3.0, 1.0))])
def test_intervals_of_averages_about_a_centre_cover(rows: int, scales: tuple[float, float], centre: float) -> None:
    """Intervals of averages cover if count and sum have noises of different sizes. The draws are fixed."""
    values = skewed(np.random.default_rng(1), rows)
    found = about(scales, values, centre)
    assert 0.94 <= coverage(found, values.mean()) <= 0.995
    answered = ~np.isnan(found.estimates)
    assert np.median(found.stderrs[answered]) == pytest.approx(found.estimates[answered].std(), rel=0.1)
    assert coverage(about(scales, values, centre, 4 / 9), values.mean()) < 0.94


def test_an_average_about_a_centre_of_hardly_any_rows_says_so() -> None:
    """Where noise hides the number of rows, intervals still cover, and NULL stands for nothing to average."""
    values = skewed(np.random.default_rng(1), 6)
    found = about((10.0, 5.0), values, 0.5)
    assert coverage(found, values.mean()) >= 0.94
    assert np.isnan(found.estimates).mean() > 0.1
    assert found.highs[USUAL][np.isnan(found.estimates)].min() == 1


def spread(rows: float, moments: tuple[float, float], scales: tuple[float, float, float], *, sample: bool) -> Curved:
    """20,000 variances about a centre. moments: the mean distance and the variance. scales: of the three noises."""
    generator, (mean, variance) = np.random.default_rng(3), moments
    exact = rows, rows * mean, rows * (variance + mean**2)
    noisy = [
        Noisy(one + scale * generator.standard_normal(RUNS), np.full(RUNS, scale), 1e-9)
        for one, scale in zip(exact, scales, strict=True)
    ]
    return variance_about(1.0, noisy[0], noisy[1], noisy[2], NoiseKind.GAUSSIAN, sample=sample)


@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize("errors", [1.5, 3.0, 8.0, 30.0])
@pytest.mark.parametrize("scales", [(0.5, 0.25), (0.05, 0.0125), (0.5, 0.0625), (0.5, 0.025)])
def test_intervals_of_variances_about_a_centre_cover(
    scales: tuple[float, float], errors: float, sample: bool
) -> None:  # fmt: skip
    """Counts of 1.5 to 30 standard errors, means near the centre and far from it, variances that are 0 or the largest.

    scales: of the sum and the squares, as parts of the count's. The draws are fixed.
    """
    rows = 3.0
    for mean, part in product((0.0, 0.1, 0.5, 0.9), (0.0, 1.0)):
        low, high = (-0.5, 0.5) if mean <= 0.5 else (0.0, 1.0)
        variance, scale = part * (mean - low) * (high - mean), rows / errors
        found = spread(rows, (mean, variance), (scale, scale * scales[0], scale * scales[1]), sample=sample)
        assert coverage(found, variance * rows / (rows - sample)) >= 0.94


def test_errors_of_variances_about_a_centre_are_as_said() -> None:
    """Where counts are large: answers deviate as the standard error says, within a tenth."""
    for mean, sample in product((0.0, 0.1, 0.4), (False, True)):
        found = spread(1000.0, (mean, 0.04), (10.0, 5.0, 2.5), sample=sample)
        assert np.median(found.stderrs) == pytest.approx(found.estimates.std(), rel=0.1)


def test_narrower_intervals_are_noticed() -> None:
    """The test of coverage rejects margins of two thirds."""
    values = skewed(np.random.default_rng(1), 400)
    tables, variance, step = runs(NoiseKind.LAPLACE, values, 1, 8.0)
    assert coverage(average(tables, variance * 4 / 9, NoiseKind.LAPLACE, step), values.mean()) < 0.94


@pytest.mark.parametrize("whole", [True, False])
def test_a_quantile_is_never_without_error(whole: bool) -> None:
    """Where noise is almost nothing and the interval is one value, the error is that of rounding to a bucket."""
    buckets = Buckets(Fraction(0), Fraction(2), 5, whole)
    below = np.array([0.0, 0.0, 1e6, 1e6])
    answers = np.concatenate([below, 1e6 - below, [1e6]])[None, :]
    found = quantile(answers, np.full((1, 9), 1e-6), 0.5, buckets, NoiseKind.GAUSSIAN)
    assert found.stderrs[0] >= 2 / 12**0.5 * (1 - 1e-12)
    assert found.lows[USUAL][0] <= found.estimates[0] <= found.highs[USUAL][0]


def test_scaling_keeps_order() -> None:
    """From [0, 1] to values between the bounds, and to squares for variances."""
    one = Curved(np.array([0.5]), np.array([0.1]), np.array([[0.25]]), np.array([[0.75]]))
    assert rescale(one, -10, 20).lows[0, 0] == -5
    assert rescale(one, -10, 20, 2).highs[0, 0] == 300


def tree_runs(
    kind: NoiseKind, values: FloatArray, buckets: Buckets, amount: Fraction, count: int
) -> tuple[FloatArray, FloatArray]:
    """Recovered ranks of many runs, and their variances."""
    workload = MarginalWorkload((buckets.count,), ((0,),), (1.0,))
    (plan,) = plan_range_sets([tree_workload(buckets.count)], workload, kind, amount, 1, strategy="hierarchy")
    edges = np.array([float(edge) for edge in buckets.edges])
    placed = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, buckets.count - 1)
    exact = np.bincount(placed, minlength=buckets.count)
    generator, answers = np.random.default_rng(3), []
    truth = [measurement.query.apply(exact) for measurement in plan.measurements]
    scales = [float(one.parameter) ** (1 if kind is NoiseKind.LAPLACE else 0.5) for one in plan.measurements]
    for _ in range(count):
        noisy = [
            table + noise_of(generator, kind, scale, table.shape).astype(np.int64)
            for table, scale in zip(truth, scales, strict=True)
        ]
        answers.append(recover(plan, noisy)[0])
    return np.array(answers), np.broadcast_to(plan.cell_variances[0], (count, len(answers[0])))


@KINDS
def test_intervals_of_quantiles_cover(kind: NoiseKind) -> None:
    """Of 2,000 runs on skewed data, 94 % to 99 % of the 95 % intervals hold the quantile."""
    values = np.sort(skewed(np.random.default_rng(1), 3000))
    buckets = buckets_for(Fraction(0), Fraction(1), Fraction(1, 10**6), 1)
    amount = Fraction(1, 2) if kind is NoiseKind.LAPLACE else Fraction(1, 40)
    answers, variances = tree_runs(kind, values, buckets, amount, 2000)
    for fraction in (0.1, 0.5, 0.9):
        found = quantile(answers, variances, fraction, buckets, kind)
        exact = float(np.quantile(values, fraction))
        assert 0.94 <= coverage(found, exact) <= 0.99
        assert np.abs(found.estimates - exact).mean() < 3 * np.median(found.stderrs)


@KINDS
def test_extremes_are_inside_and_covered(kind: NoiseKind) -> None:
    """min and max lie inside of the data's by the stated two standard errors of rank. Intervals hold the true ones."""
    values = skewed(np.random.default_rng(1), 3000)
    buckets = buckets_for(Fraction(0), Fraction(1), Fraction(1, 10**6), 1)
    answers, variances = tree_runs(kind, values, buckets, Fraction(1), 200)
    for fraction, exact in ((0.0, values.min()), (1.0, values.max())):
        found = quantile(answers, variances, fraction, buckets, kind)
        assert coverage(found, float(exact)) >= 0.94
    found = quantile(answers, variances, 0.0, buckets, kind)
    assert (found.estimates > values.min()).mean() > 0.9


def test_buckets_of_whole_values() -> None:
    """Few steps get a bucket each, and the answer is the value. Many cells get fewer buckets."""
    buckets = buckets_for(Fraction(0), Fraction(4), Fraction(1), 1)
    answers, variances = tree_runs(NoiseKind.LAPLACE, np.array([1.0] * 50 + [3.0] * 50), buckets, Fraction(20), 5)
    for fraction, value in ((0.25, 1), (0.75, 3), (0.0, 1), (1.0, 3)):
        assert quantile(answers, variances, fraction, buckets, NoiseKind.LAPLACE).estimates.tolist() == [value] * 5
    assert buckets_for(Fraction(0), Fraction(1), Fraction(1, 10**6), 1 << 16).count == 64


def test_a_count_that_may_be_nothing_says_so() -> None:
    """Of few rows the interval has all that is possible, and the standard error is as large. Of many it is small.

    Sums have little noise here: alone it would make an error of a hundredth.
    """
    counts, exact = np.array([2.0, 2000.0]), np.zeros(2)
    rows, sums = Noisy(counts, np.full(2, 15.0), 1.0), Noisy(exact, np.full(2, 0.01), 0.01)
    averages = average_about(40.0, (0.0, 120.0), rows, sums, NoiseKind.GAUSSIAN)
    variances = variance_about(
        120.0, rows, sums, Noisy(exact, np.full(2, 0.01), 0.01), NoiseKind.GAUSSIAN, sample=False
    )
    for found, width in ((averages, 120.0), (variances, 0.25)):
        assert found.highs[USUAL, 0] - found.lows[USUAL, 0] == pytest.approx(width)
        assert found.stderrs[0] >= width / 12**0.5 and found.stderrs[1] < width / 1000
