"""Several counts as one workload: which matrix is measured, and how far its answers are off."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.counts import CountStrategy, plan_counts
from dpduck.strategies.ranges.gaussian_optimum import optimise_gaussian

NESTED = np.tril(np.ones((8, 8), np.int64))
TENTHS = np.hstack([np.eye(10, dtype=np.int64), np.zeros((10, 1), np.int64)])
THREE = np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 1]])
FLAGS = np.array(list(product((0, 1), repeat=4)), np.int64).T
DRAWN = (np.random.default_rng(4).random((12, 30)) < 0.5).astype(np.int64)
WORKLOADS = (TENTHS, THREE, NESTED, FLAGS, DRAWN, np.vstack([TENTHS, np.ones((1, 11), np.int64)]))


def strategy_of(
    met: NDArray[np.int64], noise: NoiseKind, *, evenly: bool = False, plain: bool = False, searched: bool = True
) -> CountStrategy:
    rows = tuple(map(tuple, met.tolist()))
    return plan_counts(rows, (1.0,) * len(met), noise, evenly, plain, searched)


def variances(found: CountStrategy, noise: NoiseKind) -> NDArray[np.float64]:
    """The variance of each count, over that of a count alone at the same price."""
    answers = np.array(found.weights, np.float64)
    columns = np.abs(np.array(found.rows)).astype(np.float64)
    laplace = noise is NoiseKind.LAPLACE
    norm = columns.sum(axis=0).max() ** 2 if laplace else np.square(columns).sum(axis=0).max()
    return np.asarray(np.square(answers).sum(axis=1) * norm)


@pytest.mark.parametrize("noise", NoiseKind)
@pytest.mark.parametrize("place", range(len(WORKLOADS)))
def test_answers_are_the_counts(place: int, noise: NoiseKind) -> None:
    """The weights of the measurement give each count without bias, and the norm is that of the largest column."""
    met = WORKLOADS[place]
    for plain, searched in ((False, True), (False, False), (True, True)):
        found = strategy_of(met, noise, plain=plain, searched=searched)
        assert np.allclose(np.array(found.weights, np.float64) @ np.array(found.rows), met, atol=1e-6)
        assert found.norm == found.factor.norms[0 if noise is NoiseKind.LAPLACE else 1]
        assert found.most == met.sum(axis=0).max()
        assert np.sqrt(found.factor.norms[1]) <= max(1, found.row_bound >> 8) <= np.sqrt(found.factor.norms[1]) + 1


@pytest.mark.parametrize("noise", NoiseKind)
def test_exclusive_counts_cost_as_much_as_one(noise: NoiseKind) -> None:
    """Ten counts, with each row in at most one, have GROUP BY's error each: 1, not 100 or 10."""
    found = strategy_of(TENTHS, noise)
    assert found.rows == tuple(map(tuple, TENTHS.tolist())) and found.norm == 1
    assert variances(found, noise) == pytest.approx(np.ones(10))


@pytest.mark.parametrize("place", range(len(WORKLOADS)))
def test_gaussian_counts_are_near_the_optimum(place: int) -> None:
    """The total variance is within 2.5 % of the lower bound of every strategy. By themselves counts cost k times."""
    met = WORKLOADS[place].astype(np.float64)
    asked = met[:, met.any(axis=0)]
    least = optimise_gaussian(asked.T @ asked, 5.0).lower_bound
    found = variances(strategy_of(WORKLOADS[place], NoiseKind.GAUSSIAN), NoiseKind.GAUSSIAN).sum()
    assert least * (1 - 1e-6) <= found <= 1.025 * least < len(met) ** 2


@pytest.mark.parametrize("place", range(len(WORKLOADS)))
def test_counts_together_are_never_worse(place: int) -> None:
    """Under Laplace noise a searched strategy, each kind or each count is no worse than the simplest."""
    met, noise = WORKLOADS[place], NoiseKind.LAPLACE
    each = variances(strategy_of(met, noise, plain=True), noise).sum()
    kinds = float(met.sum())
    assert variances(strategy_of(met, noise), noise).sum() <= 1.021 * min(each, kinds)
    assert each <= len(met) ** 3


def test_equal_counts_are_measured_once() -> None:
    """Conditions that tell the same rows have one row of the matrix, and cost as one."""
    met = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0]])
    found = strategy_of(met, NoiseKind.LAPLACE)
    assert len(found.rows) == 2 and found.norm == 1 and found.weights[0] == found.weights[1]


def test_the_worst_count_decides_for_a_target() -> None:
    """Of a total and its parts, parts are added up for the sum of errors, and the total is asked for the worst one."""
    met = np.vstack([np.eye(12, dtype=np.int64), np.ones((1, 12), np.int64)])
    for noise in NoiseKind:
        even = variances(strategy_of(met, noise, evenly=True), noise).max()
        assert even <= 1.021 * variances(strategy_of(met, noise), noise).max()
        assert even <= 1.021 * variances(strategy_of(met, noise, plain=True), noise).max()
