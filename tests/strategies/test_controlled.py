"""Whole and non-negative counts with public totals: every total holds exactly, and cells move little."""

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from dpduck.strategies.recovery.controlled import has_counts, nearest_counts, nest_twice, rounded_counts, with_rest

Sparse = scipy.sparse.csr_array


def two_ways(height: int, width: int) -> np.ndarray:
    """Returns the groups of a table's rows and of its columns."""
    cells = np.arange(height * width).reshape(height, width)
    rows = [np.isin(cells.ravel(), line) for line in cells]
    return np.array([*rows, *(np.isin(cells.ravel(), line) for line in cells.T)], float)


def nested(random: np.random.Generator, cells: int) -> np.ndarray:
    """Returns intervals of cells that are nested or apart, or repeated."""
    groups, pending = [], [(0, cells)]
    while pending:
        low, high = pending.pop()
        groups.append((np.arange(cells) >= low) & (np.arange(cells) < high))
        if high - low > 1:
            middle = int(random.integers(low + 1, high))
            pending += [part for part in ((low, middle), (middle, high)) if random.random() < 0.6]
    return np.array(groups, float)


def families(seed: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    groups = two_ways(*random.integers(1, 6, 2)) if kind == "margins" else nested(random, int(random.integers(2, 25)))
    truth = random.poisson(random.choice([0.3, 4.0, 300.0]), groups.shape[1])
    return groups, truth


KINDS = st.sampled_from(["margins", "nested"])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), KINDS, st.sampled_from([0.1, 3.0, 40.0]))
def test_totals_hold_exactly(seed: int, kind: str, spread: float) -> None:
    """Non-negative answers have the totals to nine digits, whole ones exactly, whatever the noise was."""
    groups, truth = families(seed, kind)
    totals, matrix = groups @ truth, Sparse(groups)
    assert nest_twice(matrix) and has_counts(matrix, totals)
    noisy = truth + np.random.default_rng(seed).normal(0, spread, len(truth))
    real = nearest_counts(matrix, totals, noisy)
    assert real.min() >= 0
    assert matrix @ real == pytest.approx(totals, abs=1e-8 * max(1.0, totals.max()))
    whole = rounded_counts(matrix, totals, real, nonnegative=True)
    assert (whole == np.rint(whole)).all() and whole.min() >= 0
    assert (matrix @ whole == totals).all()
    assert np.abs(whole - real).max() < 1 + 1e-6
    signed = noisy - np.linalg.pinv(groups) @ (groups @ noisy - totals)
    rounded = rounded_counts(matrix, totals, signed, nonnegative=False)
    assert (matrix @ rounded == totals).all() and np.abs(rounded - signed).max() < 1 + 1e-6


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), KINDS)
def test_no_other_table_with_the_totals_is_nearer(seed: int, kind: str) -> None:
    """The projection is the nearest in squares: on the way to the true table the distance only grows."""
    groups, truth = families(seed, kind)
    noisy = truth + np.random.default_rng(seed).normal(0, 5, len(truth))
    real = nearest_counts(Sparse(groups), groups @ truth, noisy)
    inward = (truth - real) @ (noisy - real)
    assert inward <= 1e-6 * max(1.0, np.abs(noisy).max()) ** 2


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), KINDS)
def test_totals_of_a_trillion_hold_exactly(seed: int, kind: str) -> None:
    """Rounding errors of large numbers lose no total, and no part of a whole is mistaken."""
    groups, truth = families(seed, kind)
    truth = truth * 10**9 + np.random.default_rng(seed).integers(0, 9, len(truth))
    totals, matrix = groups @ truth, Sparse(groups)
    assert has_counts(matrix, totals)
    noisy = truth + np.random.default_rng(seed).normal(0, 1e6, len(truth))
    whole = rounded_counts(matrix, totals, nearest_counts(matrix, totals, noisy), nonnegative=True)
    assert (matrix @ whole == totals).all() and whole.min() >= 0


def test_cells_without_a_total_keep_their_sum() -> None:
    """They are one more group. Counts of it are at least 0."""
    groups, totals = with_rest(Sparse([[1.0, 1, 0, 0]]), np.array([5.0]), np.array([1, 2, 3.2, 1.0]), nonnegative=True)
    assert totals.tolist() == [5, 4] and groups.toarray()[1].tolist() == [0, 0, 1, 1]
    _, below = with_rest(Sparse([[1.0, 1, 0, 0]]), np.array([5.0]), np.array([1, 2, -3.2, 1.0]), nonnegative=True)
    assert below.tolist() == [5, 0]
    every = Sparse([[1.0, 1, 1, 1]])
    assert with_rest(every, np.array([5.0]), np.zeros(4), nonnegative=True)[0] is every


def test_impossible_totals_and_three_families_are_found() -> None:
    """A part above its whole has no counts. Margins of three keys are no two families of nested groups."""
    assert not has_counts(Sparse([[1.0, 1, 1], [1, 1, 0]]), np.array([5.0, 6.0]))
    cells = np.arange(8).reshape(2, 2, 2)
    pairs = [cells[i, j, :] for i in (0, 1) for j in (0, 1)] + [cells[i, :, j] for i in (0, 1) for j in (0, 1)]
    pairs += [cells[:, i, j] for i in (0, 1) for j in (0, 1)]
    groups = np.array([np.isin(np.arange(8), pair) for pair in pairs], float)
    assert not nest_twice(Sparse(groups)) and nest_twice(Sparse(groups[:8]))
