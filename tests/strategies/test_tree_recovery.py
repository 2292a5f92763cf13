"""Two-pass recovery of trees and the inverse Haar transform against the dense pseudo-inverse."""

from __future__ import annotations

import numpy as np
import pytest

from dpduck.strategies.ranges.haar import haar_wavelet
from dpduck.strategies.ranges.hierarchy import build_hierarchy
from dpduck.strategies.ranges.least_squares import recover_haar, recover_hierarchy


@pytest.mark.parametrize(("size", "branching"), [(1, 2), (2, 2), (5, 2), (16, 4), (27, 3), (22, 5), (6, 16)])
@pytest.mark.parametrize("dropped", [False, True])
def test_two_passes_are_weighted_least_squares(size: int, branching: int, dropped: bool) -> None:
    """The estimate from noisy levels of unequal variances equals the dense weighted pseudo-inverse."""
    generator = np.random.default_rng(size)
    tree = build_hierarchy(size, branching)
    precisions = generator.random(tree.levels) + 0.1
    if dropped:
        precisions[:-1:2] = 0.0
    noisy = {k: generator.integers(-50, 50, (len(tree.boundaries[k]) - 1, 2)) for k in range(tree.levels)}
    measured = [k for k in range(tree.levels) if precisions[k] > 0]
    stacked = np.vstack([tree.level_entries(k).toarray() * precisions[k] ** 0.5 for k in measured])
    answers = np.vstack([noisy[k] * precisions[k] ** 0.5 for k in measured])
    expected = np.linalg.pinv(stacked) @ answers
    found = recover_hierarchy(tree, precisions, {k: noisy[k] for k in measured})
    assert (len(measured) < tree.levels) == (dropped and tree.levels > 1) and found.shape == (size, 2)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    single = recover_hierarchy(tree, precisions, {k: noisy[k][:, 0] for k in measured})
    np.testing.assert_allclose(single, expected[:, 0], atol=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3, 8, 13, 21])
def test_haar_inverts(size: int) -> None:
    """The inverse transform returns the only values with these rows."""
    haar = haar_wavelet(size)
    values = np.random.default_rng(size).normal(size=(size, 2))
    rows = {group: haar.group_entries(group) @ values for group in range(haar.groups)}
    assert sum(len(answers) for answers in rows.values()) == size
    np.testing.assert_allclose(recover_haar(haar, rows), values, atol=1e-12)
