"""Hierarchies, Haar wavelets and their level budgets against dense matrices and numerical optima."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

from dpduck.algebra.ranges import RangeWorkload, all_ranges, identity, intervals, prefixes
from dpduck.strategies.ranges.haar import haar_shares, haar_variances, haar_wavelet
from dpduck.strategies.ranges.hierarchy import build_hierarchy, hierarchy_variances, level_energies
from dpduck.strategies.ranges.level_shares import level_shares, optimal_shares

SHAPES = [(1, 2), (2, 2), (3, 2), (8, 2), (9, 3), (13, 2), (16, 4), (20, 3), (23, 5), (6, 16)]


def some_intervals(size: int) -> RangeWorkload:
    generator = np.random.default_rng(size)
    starts = generator.integers(0, size, 7)
    bounds = [(int(start), int(generator.integers(start + 1, size + 1))) for start in starts]
    return intervals(size, bounds, generator.random(7) + 0.1)


def dense_variances(matrices: list[np.ndarray], precisions: np.ndarray, workload: RangeWorkload) -> np.ndarray:
    normal = sum(w * m.T @ m for w, m in zip(precisions, matrices, strict=True))
    return workload.variances(np.linalg.inv(normal))


@pytest.mark.parametrize(("size", "branching"), SHAPES)
def test_levels_are_nested_partitions(size: int, branching: int) -> None:
    """Every value lies in one node of each level, nodes are cut into at most b + 1 and never joined."""
    tree = build_hierarchy(size, branching)
    for level in range(tree.levels):
        entries = tree.level_entries(level).toarray()
        assert entries.dtype == np.int64
        assert (entries.sum(axis=0) == 1).all()
        assert entries.sum(axis=1).max() - entries.sum(axis=1).min() <= 1
    for above, below in zip(tree.boundaries, tree.boundaries[1:], strict=False):
        assert set(above.tolist()) <= set(below.tolist())
        assert len(below) - 1 <= branching * (len(above) - 1)


@pytest.mark.parametrize(("size", "branching"), SHAPES)
@pytest.mark.parametrize("make", [all_ranges, prefixes, identity, some_intervals])
def test_hierarchy_variances_are_the_dense_ones(size: int, branching: int, make) -> None:
    """The variance of each query after least squares is that of the dense formula, unmeasured levels included."""
    tree, workload = build_hierarchy(size, branching), make(size)
    precisions = np.random.default_rng(size).random(tree.levels) + 0.1
    precisions[1:-1:2] = 0.0
    dense = dense_variances([tree.level_entries(k).toarray() for k in range(tree.levels)], precisions, workload)
    variances = hierarchy_variances(tree, precisions, workload)
    assert variances.shape == dense.shape == (len(workload.weights),)
    np.testing.assert_allclose(variances, dense, rtol=1e-9)


@pytest.mark.parametrize(("size", "branching"), SHAPES)
def test_energies_are_traces_of_projections(size: int, branching: int) -> None:
    """trace(V P_l), by blocks and by queries, equals the dense trace."""
    tree = build_hierarchy(size, branching)
    for workload in (all_ranges(size), some_intervals(size)):
        means = [
            tree.level_entries(k).toarray() / np.diff(tree.boundaries[k])[:, None] ** 0.5 for k in range(tree.levels)
        ]
        traces = [np.trace(mean @ workload.gram @ mean.T) for mean in means]
        energies = level_energies(tree, workload)
        np.testing.assert_allclose(energies, np.diff(traces, prepend=0.0), atol=1e-9)
        assert energies.sum() == pytest.approx(np.trace(workload.gram)), "together the levels tell every value"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 16, 21])
@pytest.mark.parametrize("make", [all_ranges, prefixes, identity, some_intervals])
def test_haar_is_invertible_and_its_variances_are_the_dense_ones(size: int, make) -> None:
    """Rows are integers, square together, of column norm at most 1 per group. Variances equal the dense formula."""
    haar, workload = haar_wavelet(size), make(size)
    matrices = [haar.group_entries(group).toarray() for group in range(haar.groups)]
    assert sum(len(matrix) for matrix in matrices) == size
    assert all(np.abs(matrix).sum(axis=0).max() == 1 for matrix in matrices)
    variances = np.random.default_rng(size).random(haar.groups) + 0.1
    dense = dense_variances(matrices, 1 / variances, workload)
    np.testing.assert_allclose(haar_variances(haar, variances, workload), dense, rtol=1e-9)


@pytest.mark.parametrize("norm", [1, 2])
def test_haar_shares_beat_any_other(norm: int) -> None:
    """The closed form is the numerical optimum of the total variance."""
    haar, workload = haar_wavelet(11), all_ranges(11)
    power = 2 if norm == 1 else 1

    def total(logs: np.ndarray) -> float:
        shares = np.exp(logs) / np.exp(logs).sum()
        return float(haar_variances(haar, shares**-power, workload).sum())

    best = minimize(total, np.zeros(haar.groups), method="BFGS", options={"gtol": 1e-4})
    assert total(np.log(haar_shares(haar, workload, norm))) <= best.fun * (1 + 1e-9)


def exhaustive(energies: np.ndarray, lengths: np.ndarray, norm: int) -> float:
    """The least total over every set of measured levels, each by a general-purpose method."""
    power = 2 if norm == 1 else 1

    def total(logs: np.ndarray, kept: np.ndarray) -> float:
        shares = np.where(kept, np.exp(np.clip(logs, -30, 30)), 0.0)
        shares /= shares.sum()
        return float((energies / (shares**power * lengths)[::-1].cumsum()[::-1]).sum())

    found = []
    for choice in product([False, True], repeat=len(energies) - 1):
        kept = np.array([*choice, True])
        found.append(minimize(total, np.zeros(len(kept)), args=(kept,), method="BFGS", options={"gtol": 1e-3}).fun)
    return min(found)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize(("size", "branching"), [(16, 2), (64, 4), (81, 3), (32, 2)])
@pytest.mark.parametrize("make", [all_ranges, prefixes, some_intervals])
def test_level_shares_are_the_numerical_optimum(norm: int, size: int, branching: int, make) -> None:
    """The search over measured levels reaches the best of all sets of levels, and predicts the true total."""
    tree, workload = build_hierarchy(size, branching), make(size)
    lengths = np.array([size / (len(bounds) - 1) for bounds in tree.boundaries])
    energies = level_energies(tree, workload)
    shares, predicted = optimal_shares(energies, lengths, norm)
    assert shares.sum() == pytest.approx(1)
    precisions = shares ** (2 if norm == 1 else 1)
    total = float(workload.weights @ hierarchy_variances(tree, precisions, workload))
    assert total == pytest.approx(predicted)
    assert total <= exhaustive(energies, lengths, norm) * (1 + 1e-4)


def test_shares_for_unequal_nodes_are_near_their_optimum() -> None:
    """With nodes of unequal lengths the mean length is a model. It costs less than 1 % of variance."""
    tree, workload = build_hierarchy(21, 2), all_ranges(21)
    shares, _ = level_shares(tree, workload, 2)

    def total(logs: np.ndarray) -> float:
        trial = np.exp(logs) / np.exp(logs).sum()
        return float(hierarchy_variances(tree, trial, workload).sum())

    best = minimize(total, np.log(np.maximum(shares, 1e-6)), method="BFGS", options={"gtol": 1e-3})
    assert total(np.log(shares)) <= best.fun * 1.01
