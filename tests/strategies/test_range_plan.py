"""Plans for ranges: exact charges, predicted variances, the known figures, products, user matrices, refusals."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest

from benchmarks.papers._range_plans import plan_product, plan_ranges, total_variance
from dpduck.algebra.ranges import RangeWorkload, all_ranges, identity, intervals, prefixes, total
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.measurements import Measurement
from dpduck.strategies.ranges.product import RangeProduct
from dpduck.strategies.ranges.strategy import matrix_of
from dpduck.values.errors import Refusal

LAPLACE, GAUSSIAN = NoiseKind.LAPLACE, NoiseKind.GAUSSIAN
SMALL = Fraction(1, 1000)


def some_intervals(size: int) -> RangeWorkload:
    generator = np.random.default_rng(size)
    starts = generator.integers(0, size, 8)
    bounds = [(int(start), int(generator.integers(start + 1, size + 1))) for start in starts]
    return intervals(size, bounds, generator.random(8) + 0.1)


def exact_cost(measurements: tuple[Measurement, ...], noise: NoiseKind, unit_bound: int) -> Fraction:
    """The charge, from dense columns in unbounded integers."""
    charge = Fraction(0)
    for measurement in measurements:
        dense = np.ones((1, 1), dtype=object)
        for factor in measurement.query.factors:
            dense = np.kron(dense, matrix_of(factor).astype(object))
        if noise is LAPLACE:
            charge += Fraction(unit_bound * int(np.abs(dense).sum(axis=0).max())) / measurement.parameter
        else:
            charge += Fraction(unit_bound**2 * int((dense * dense).sum(axis=0).max())) / (2 * measurement.parameter)
    return charge


def dense_variances(plan: RangeProduct) -> np.ndarray:
    """diag(W (A'V^-1 A)^+ W') over the whole domain, by pseudo-inverse."""
    pairs = zip(plan.measurements, plan.unit_variances[0], strict=True)
    stacked = np.vstack([matrix_of(m.query.factors[0]) / v**0.5 for m, v in pairs])
    queries = plan.strategies[0].workload.matrix() @ np.linalg.pinv(stacked)
    return (queries**2).sum(axis=1)


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN])
@pytest.mark.parametrize("size", [1, 2, 7, 16, 45])
@pytest.mark.parametrize("make", [all_ranges, prefixes, identity, total, some_intervals])
def test_every_plan_costs_its_budget_and_predicts_its_errors(noise: NoiseKind, size: int, make) -> None:
    """Integer columns cost at most the budget and nearly all of it. Variances are the dense ones. Best plan first."""
    amount = Fraction(1, 3)
    plans = plan_ranges(make(size), noise, amount, 2, planning_seconds=0.5)
    totals = [total_variance(plan) for plan in plans]
    assert totals[1:] == sorted(totals[1:]) and totals[0] <= min(totals) * (1 + 1e-5)
    for plan in plans:
        cost = exact_cost(plan.measurements, noise, 2)
        assert amount * Fraction(9999, 10000) < cost <= amount
        np.testing.assert_allclose(plan.variances[0], dense_variances(plan), rtol=1e-6)
        weights = plan.strategies[0].workload.weights
        assert total_variance(plan) == pytest.approx(float(weights @ plan.variances[0]))


def figure(workload: RangeWorkload, noise: NoiseKind, strategy: str) -> float:
    """Root mean squared error per query at epsilon = 1 in the continuous limit, or at sigma = 1."""
    amount = SMALL if noise is LAPLACE else Fraction(1, 2 * 10**6)
    plan = plan_ranges(workload, noise, amount, 1, strategy, planning_seconds=30)[0]
    return sqrt(total_variance(plan) / workload.queries) * 1e-3


@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize(
    ("make", "noise", "strategy", "known", "tolerance"),
    [
        (all_ranges, LAPLACE, "identity", 13.12, 5e-4),
        (prefixes, LAPLACE, "identity", 16.03, 5e-4),
        (all_ranges, LAPLACE, "haar", 14.47, 5e-4),
        (prefixes, LAPLACE, "haar", 12.50, 5e-4),
        (all_ranges, LAPLACE, "hierarchy_4", 8.89, 1e-3),
        (prefixes, LAPLACE, "hierarchy_4", 8.49, 1e-3),
        (all_ranges, GAUSSIAN, "haar", 3.436, 5e-4),
        (prefixes, GAUSSIAN, "haar", 2.977, 5e-4),
        (all_ranges, GAUSSIAN, "hierarchy_2", 3.436, 5e-4),
        (prefixes, GAUSSIAN, "hierarchy_2", 2.977, 5e-4),
        (all_ranges, GAUSSIAN, "gaussian_optimum", 2.901, 1e-3),
        (prefixes, GAUSSIAN, "gaussian_optimum", 2.524, 1e-3),
    ],
)
def test_known_figures_are_reproduced(make, noise: NoiseKind, strategy: str, known: float, tolerance: float) -> None:
    """The best known figures, ranges and prefixes of 256 values."""
    assert figure(make(256), noise, strategy) == pytest.approx(known, rel=tolerance)


@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize(("make", "known"), [(all_ranges, 8.08), (prefixes, 7.41)])
def test_p_identity_is_at_most_the_best_known(make, known: float) -> None:
    """Pure epsilon, 256 values."""
    assert figure(make(256), LAPLACE, "auto") < known


def test_large_domains_are_planned_without_their_square() -> None:
    """200,000 prefixes: trees and wavelets, closed forms alone."""
    plans = plan_ranges(prefixes(200_000), LAPLACE, Fraction(1, 10), 1, planning_seconds=1.0)
    assert {plan.strategies[0].name for plan in plans} == {"hierarchy", "haar", "identity"}
    assert plans[0].strategies[0].name == "hierarchy"


def test_values_that_no_query_tells_apart_are_counted_together() -> None:
    """Two intervals of a million values need three counts at most."""
    plan = plan_ranges(intervals(10**6, [(5, 70), (60, 999_999)]), LAPLACE, Fraction(1), 1)[0]
    assert sum(measurement.query.factors[0].rows for measurement in plan.measurements) <= 3


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN])
@pytest.mark.parametrize("strategy", ["auto", "hierarchy", "haar", "identity"])
def test_products_cost_their_budget_and_predict_their_errors(noise: NoiseKind, strategy: str) -> None:
    """Kronecker products of 1-D strategies: exact cost, dense variances."""
    workloads = (prefixes(5), total(3).on(1), some_intervals(6).on(2))
    plan = plan_product(workloads, noise, Fraction(1, 7), 3, strategy, planning_seconds=0.6)
    cost = exact_cost(plan.measurements, noise, 3)
    assert Fraction(1, 7) * Fraction(999, 1000) < cost <= Fraction(1, 7)
    parameters = [float(m.parameter) for m in plan.measurements]
    stacked = []
    for measurement, parameter in zip(plan.measurements, parameters, strict=True):
        variance = 2 * parameter**2 if noise is LAPLACE else parameter
        first, second, third = (matrix_of(factor) for factor in measurement.query.factors)
        stacked.append(np.kron(np.kron(first, second), third) / variance**0.5)
    first, second, third = (workload.matrix() for workload in workloads)
    queries = np.kron(np.kron(first, second), third) @ np.linalg.pinv(np.vstack(stacked))
    np.testing.assert_allclose(plan.variances[0].ravel(), (queries**2).sum(axis=1), rtol=1e-6)
    weights = np.kron(np.kron(workloads[0].weights, workloads[1].weights), workloads[2].weights)
    assert total_variance(plan) == pytest.approx(float(weights @ (queries**2).sum(axis=1)), rel=1e-6)


@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN])
@pytest.mark.parametrize("attributes", [2, 3])
def test_products_of_optimised_strategies_fit_into_64_bits(noise: NoiseKind, attributes: int) -> None:
    """Column norms multiply. The product of all attributes leaves room for 2^40 rows, with little loss by rounding."""
    workloads = [prefixes(60).on(attribute) for attribute in range(attributes)]
    plan = plan_product(workloads, noise, Fraction(1), 1, planning_seconds=1.0)
    assert all(m.query.norms[1] * 2**80 < 2**124 for m in plan.measurements)
    if attributes == 2:
        alone = plan_ranges(prefixes(60), noise, SMALL if noise is LAPLACE else Fraction(1, 10**6), 1)[0]
        unit = total_variance(alone) * (SMALL**2 / 2 if noise is LAPLACE else Fraction(2, 10**6))
        squared = unit**2 * (2 if noise is LAPLACE else Fraction(1, 2))
        assert total_variance(plan) < 1.01 * squared
    else:
        assert {strategy.name for strategy in plan.strategies} <= {"hierarchy", "haar"}


@pytest.mark.parametrize(
    ("noise", "strategy"),
    [(LAPLACE, "gaussian_optimum"), (GAUSSIAN, "p_identity"), (LAPLACE, "hierarchy_1"), (LAPLACE, "x")],
)
def test_unknown_strategies_are_refused(noise: NoiseKind, strategy: str) -> None:
    """The refusal lists what would be accepted."""
    with pytest.raises(Refusal, match=r"cannot serve these ranges; accepted: one of auto, identity, hierarchy, haar"):
        plan_ranges(all_ranges(5), noise, Fraction(1), 1, strategy)
