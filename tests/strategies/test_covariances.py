"""Standard errors of sums, differences and ratios of released cells."""

from collections.abc import Collection
from fractions import Fraction
from itertools import combinations
from math import inf

import numpy as np
import pytest
from numpy.typing import NDArray

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.choose import plan_workload
from dpduck.strategies.plan import Plan
from dpduck.strategies.recovery.covariances import (
    covariances,
    covariances_from_text,
    covariances_to_text,
    ratio_interval,
    ratio_weights,
    variance_of_sum,
)
from dpduck.strategies.recovery.intervals import sum_margin

Weights = dict[tuple[int, ...], NDArray[np.float64]]
SIZES = (2, 3, 4)
SETS = tuple(chosen for order in range(3) for chosen in combinations(range(3), order))


def cell_covariance(
    plan: Plan, marginal_a: tuple[int, ...], marginal_b: tuple[int, ...], same_on: Collection[int]
) -> float:
    """Covariance of a cell of one marginal with a cell of another that agrees on the attributes `same_on`."""
    common = sorted(set(marginal_a) & set(marginal_b))
    return float(covariances(plan).between(marginal_a, marginal_b)[tuple(int(i in same_on) for i in common)])


def plan(strategy: str, noise: NoiseKind, consistency: str = "l2") -> Plan:
    workload = MarginalWorkload(SIZES, SETS, (1.0,) * len(SETS))
    return plan_workload(workload, noise, Fraction(1, 10), 1, strategy=strategy, consistency=consistency)[0]


def dense_variance(of: Plan, weights: Weights) -> float:
    """Cell by cell, from the covariance of every pair."""
    cells = [(marginal, place, value) for marginal, table in weights.items() for place, value in np.ndenumerate(table)]
    total = 0.0
    for first, here, one in cells:
        for second, there, other in cells:
            same = [i for i in first if i in second and here[first.index(i)] == there[second.index(i)]]
            total += one * other * cell_covariance(of, first, second, same)
    return total


@pytest.mark.parametrize("consistency", ["l2", "none"])
@pytest.mark.parametrize(
    ("strategy", "noise"),
    [("identity", NoiseKind.LAPLACE), ("marginals", NoiseKind.LAPLACE), ("residual", NoiseKind.GAUSSIAN)],
)
def test_equals_the_sum_over_pairs_of_cells(strategy: str, noise: NoiseKind, consistency: str) -> None:
    """The quadratic form in components is the double sum over cells."""
    if strategy == "residual" and consistency == "none":
        consistency = "l2"
    generator = np.random.default_rng(5)
    used = plan(strategy, noise, consistency)
    weights: Weights = {
        marginal: generator.normal(size=[SIZES[i] for i in marginal]) for marginal in ((0, 1), (1,), (1, 2), ())
    }
    found = variance_of_sum(covariances(used), weights)
    assert found == pytest.approx(dense_variance(used, weights), rel=1e-9)


def test_a_single_cell_has_its_predicted_variance() -> None:
    """Weight 1 on one cell."""
    used = plan("marginals", NoiseKind.LAPLACE)
    table = np.zeros((2, 3))
    table[1, 2] = 1.0
    found = variance_of_sum(covariances(used), {(0, 1): table})
    assert found == pytest.approx(used.variances[SETS.index((0, 1))], rel=1e-9)


def test_consistent_cells_cancel() -> None:
    """A margin minus the sum of its cells has no error under least squares."""
    used = plan("marginals", NoiseKind.LAPLACE)
    found = variance_of_sum(covariances(used), {(0, 1): np.ones((2, 3)), (): np.array(-1.0)})
    assert found == pytest.approx(0.0, abs=1e-9 * used.variances[0])


@pytest.mark.parametrize("strategy", ["identity", "marginals"])
def test_text_round_trip(strategy: str) -> None:
    """A plan read from the store's text answers as the plan itself."""
    known = covariances(plan(strategy, NoiseKind.LAPLACE))
    weights: Weights = {(0, 2): np.arange(8.0).reshape(2, 4)}
    again = covariances_from_text(covariances_to_text(known))
    assert variance_of_sum(again, weights) == pytest.approx(variance_of_sum(known, weights), rel=1e-12)


def noise_like(kind: NoiseKind, parameter: Fraction, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Integers of the law itself, by its probabilities. The draws are fixed."""
    values = np.arange(-400, 401)
    weights = -np.abs(values) / float(parameter) if kind is NoiseKind.LAPLACE else -(values**2) / (2 * float(parameter))
    return np.random.default_rng(41).choice(values, shape, p=np.exp(weights) / np.exp(weights).sum()).astype(np.float64)


LEAST = {400: 349, 2000: 1837}
"""Of so many intervals that hold with 95 %, fewer hold with a chance below 1e-9."""
RUNS = pytest.mark.parametrize("runs", [400, pytest.param(2000, marks=pytest.mark.audit)])


@pytest.mark.sampled
@pytest.mark.parametrize("noise", list(NoiseKind))
@pytest.mark.parametrize("price", [Fraction(1, 5), Fraction(1), Fraction(5)])
@pytest.mark.parametrize(("rows", "share"), [(5, 1.0), (20, 1.0), (20, 0.25), (2000, 0.5)])
@RUNS
def test_intervals_of_ratios_cover(runs: int, noise: NoiseKind, price: Fraction, rows: int, share: float) -> None:
    """The numerator is 25 of the 51 cells that are the denominator. If intervals cover, fewer than LEAST of 2,000 (or
    of 400) at 95 % hold the ratio with a chance below 1e-9. If the denominator may be 0, they hold every ratio."""
    used = plan_workload(MarginalWorkload((51,), ((0,),), (1.0,)), noise, price, 1, strategy="identity")[0]
    exact = np.zeros(51)
    exact[[0, 50]] = rows * share, rows * (1 - share)
    upper: Weights = {(0,): (np.arange(51) < 25).astype(np.float64)}
    lower: Weights = {(0,): np.ones(51)}
    known, margins = covariances(used), sum_margin(noise, Fraction(95, 100))
    found = [
        ratio_interval(known, (table[:25].sum(), upper), (table.sum(), lower), margins) if table.sum() else (-inf, inf)
        for table in exact + noise_like(noise, used.measurements[0].parameter, (runs, 51))
    ]
    assert sum(low <= share <= high for low, high in found) >= LEAST[runs]
    unbounded = sum(high == inf for _, high in found)
    assert (unbounded == 0) == (rows == 2000 or (rows == 20 and price == 5))
    assert all((low == -inf) == (high == inf) for low, high in found)
    if rows == 2000:  # and then the delta method's width, but for the jump of integers
        width = float(np.median([high - low for low, high in found]))
        deviation = variance_of_sum(known, ratio_weights(upper, lower, share, rows)) ** 0.5
        assert 3.8 * deviation < width < 4.3 * deviation + 0.003
