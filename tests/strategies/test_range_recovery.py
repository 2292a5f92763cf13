"""Recovery of ranges: dense pseudo-inverse, all structures, singular strategies, products, empirical variance."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from benchmarks.papers._range_plans import plan_product, plan_ranges
from dpduck.algebra.ranges import all_ranges, intervals, prefixes, total
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.measurements import Measurement
from dpduck.strategies.ranges.least_squares import solve_least_squares, solve_sparse
from dpduck.strategies.ranges.strategy import matrix_of

LAPLACE, GAUSSIAN = NoiseKind.LAPLACE, NoiseKind.GAUSSIAN
PLAIN = {"identity", "hierarchy", "haar"}
"""Strategies that every plan is compared with, beside the optimised one."""


def noisy_answers(
    measurements: tuple[Measurement, ...], table: np.ndarray, seed: int, size: int = 40
) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [
        measurement.query.apply(table) + generator.integers(-size, size + 1, measurement.query.shape)
        for measurement in measurements
    ]


def pseudo_inverse(
    measurements: tuple[Measurement, ...], variances: list[float], noisy: list[np.ndarray]
) -> np.ndarray:
    rows, answers = [], []
    for measurement, variance, noise in zip(measurements, variances, noisy, strict=True):
        dense: np.ndarray = np.ones((1, 1))
        for factor in measurement.query.factors:
            dense = np.kron(dense, matrix_of(factor))
        rows.append(dense / variance**0.5)
        answers.append(noise.ravel() / variance**0.5)
    estimate: np.ndarray = np.linalg.pinv(np.vstack(rows)) @ np.concatenate(answers)
    return estimate


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN])
@pytest.mark.parametrize("size", [1, 6, 16, 29])
def test_recovery_is_the_pseudo_inverse(noise: NoiseKind, size: int) -> None:
    """Every strategy's answers equal weighted least squares by pseudo-inverse, to 1e-9 of the counts."""
    table = np.random.default_rng(size).integers(0, 100, size)
    lists = intervals(size, [(0, size), (size // 2, size), (size // 3, size // 2 + 1)])
    for workload in (all_ranges(size), prefixes(size), lists):
        plans = plan_ranges(workload, noise, Fraction(1), 1, planning_seconds=0.4)
        assert {plan.strategies[0].name for plan in plans} >= PLAIN
        for plan in plans:
            noisy = noisy_answers(plan.measurements, table, size)
            estimate = pseudo_inverse(plan.measurements, list(plan.unit_variances[0]), noisy)
            expected = workload.matrix() @ estimate
            np.testing.assert_allclose(plan.recover(noisy)[0], expected, rtol=1e-9, atol=1e-7)


def test_without_noise_the_counts_come_back() -> None:
    """Exact answers are recovered exactly by every strategy, on a size that is no power."""
    table = np.random.default_rng(0).integers(0, 1000, 37)
    workload = all_ranges(37)
    for noise in (LAPLACE, GAUSSIAN):
        plans = plan_ranges(workload, noise, Fraction(1), 1, planning_seconds=0.4)
        assert {plan.strategies[0].name for plan in plans} >= PLAIN
        for plan in plans:
            exact = [measurement.query.apply(table) for measurement in plan.measurements]
            recovered = plan.recover(exact)[0]
            np.testing.assert_allclose(recovered, workload.matrix() @ table, atol=1e-6)
            assert np.rint(recovered).max() == table.sum(), "the range of everything is among them"


@pytest.mark.parametrize("rank_deficient", [False, True])
def test_sparse_least_squares_is_the_pseudo_inverse(rank_deficient: bool) -> None:
    """LSMR and Cholesky agree with the dense solution of least norm, several right-hand sides at once."""
    generator = np.random.default_rng(4)
    matrices = [generator.integers(-2, 3, (rows, 8)).astype(np.int64) for rows in (6, 9)]
    if rank_deficient:
        for matrix in matrices:
            matrix[:, 3] = matrix[:, 5]
    variances = [2.0, 0.5]
    noisy = [generator.normal(size=(len(matrix), 3)) * 100 for matrix in matrices]
    stacked = np.vstack([m / v**0.5 for m, v in zip(matrices, variances, strict=True)])
    answers = np.vstack([z / v**0.5 for z, v in zip(noisy, variances, strict=True)])
    assert np.linalg.matrix_rank(stacked) == (7 if rank_deficient else 8)
    expected = np.linalg.pinv(stacked) @ answers
    np.testing.assert_allclose(solve_least_squares(matrices, variances, noisy), expected, atol=1e-8)
    thin = [sparse.csr_array(matrix) for matrix in matrices]
    np.testing.assert_allclose(solve_sparse(thin, variances, noisy), expected, atol=1e-8)


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN])
@pytest.mark.parametrize("strategy", ["auto", "hierarchy", "haar"])
def test_products_are_recovered(noise: NoiseKind, strategy: str) -> None:
    """Axis by axis equals least squares on the Kronecker product."""
    workloads = (prefixes(4), total(3).on(1), all_ranges(5).on(2))
    plan = plan_product(workloads, noise, Fraction(1), 1, strategy, planning_seconds=0.6)
    table = np.random.default_rng(1).integers(0, 50, (4, 3, 5))
    noisy = noisy_answers(plan.measurements, table, 2)
    variances = [float(m.parameter) ** (2 if noise is LAPLACE else 1) for m in plan.measurements]
    estimate = pseudo_inverse(plan.measurements, variances, noisy)
    first, second, third = (workload.matrix() for workload in workloads)
    expected = np.kron(np.kron(first, second), third) @ estimate
    assert expected.shape == (4 * 1 * 15,)
    np.testing.assert_allclose(plan.recover(noisy)[0].ravel(), expected, rtol=1e-7, atol=1e-6)


def test_predicted_variance_is_the_empirical_one() -> None:
    """20,000 recoveries at once: the squared errors' mean is within its own error of the prediction."""
    runs, workload = 20_000, prefixes(12)
    generator = np.random.default_rng(7)
    plans = plan_ranges(workload, GAUSSIAN, Fraction(1, 50), 1, planning_seconds=0.4)
    assert {plan.strategies[0].name for plan in plans} >= PLAIN
    for plan in plans:
        noises = [
            np.rint(generator.normal(scale=variance**0.5, size=(*m.query.shape, runs)))
            for m, variance in zip(plan.measurements, plan.unit_variances[0], strict=True)
        ]
        errors = plan.recover([noise.astype(np.int64) for noise in noises])[0]
        np.testing.assert_allclose((errors**2).mean(axis=1), plan.variances[0], rtol=6 * (2 / runs) ** 0.5)
