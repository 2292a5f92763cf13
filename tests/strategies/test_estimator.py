"""Least squares over all measurements, block by block, equals that of the dense strategy matrix."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dpduck.kernel.noise.law import NoiseKind, noise_variance
from dpduck.kernel.queries.operators import CentredFactor, HadamardFactor, IdentityFactor
from dpduck.strategies.recovery.atoms import Along, NoisyTable
from dpduck.strategies.recovery.estimator import Estimator
from dpduck.values.arrays import FloatArray


def dense(along: Along | None, size: int) -> FloatArray:
    """Returns a factor as a matrix. None stands for the row of ones."""
    if along is None:
        return np.ones((1, size))
    if along.plain is None:
        return np.asarray(along.rows.toarray(), np.float64)  # type: ignore[union-attr]
    matrix = along.plain.apply(np.eye(size, dtype=np.int64), 0).astype(np.float64)
    return matrix if along.kept is None else matrix * along.kept


def kron(along: Mapping[int, Along], sizes: list[int]) -> FloatArray:
    """A table's queries as rows over the whole domain."""
    rows: FloatArray = np.ones((1, 1))
    for axis, size in enumerate(sizes):
        rows = np.asarray(np.kron(rows, dense(along.get(axis), size)), np.float64)
    return rows


def random_along(draw: np.random.Generator, size: int) -> Along:
    """Cells, residuals, Fourier rows, a filter, some cells under a filter, or prefixes of an order."""
    kind = draw.integers(6)
    if kind < 3:
        return Along((IdentityFactor(size), CentredFactor(size), HadamardFactor(size))[kind])
    if kind == 3:
        return Along(IdentityFactor(size), draw.random(size) < 0.6)
    if kind == 4:
        return Along(rows=sparse.csr_array((draw.random((1, size)) < 0.5).astype(float)))
    return Along(rows=sparse.csr_array(np.tril(np.ones((size, size)))[draw.permutation(size)[:2]]))


def random_seen(draw: np.random.Generator, sizes: list[int]) -> NoisyTable:
    """A table of random shape with either noise, at a random price."""
    along = {axis: random_along(draw, size) for axis, size in enumerate(sizes) if draw.random() < 0.6}
    kind = NoiseKind.LAPLACE if draw.random() < 0.5 else NoiseKind.GAUSSIAN
    variance = noise_variance(kind, Fraction(int(draw.integers(1, 50))))
    shape = [len(dense(one, sizes[axis])) for axis, one in sorted(along.items())]
    return NoisyTable(along, variance, draw.normal(size=shape) * 10)


def random_weights(draw: np.random.Generator, size: int) -> sparse.csr_array:
    """Every cell, or sums over three random sets of cells."""
    return sparse.csr_array(np.eye(size) if draw.random() < 0.5 else draw.choice([0.0, 1.0], size=(3, size)))


@pytest.mark.parametrize("releases", [2, 5, 20])
def test_variances_are_those_of_dense_least_squares(releases: int) -> None:
    """For random tables, filters, ranges and noises: estimates and variances to 1e-9, and determined cells."""
    draw, compared = np.random.default_rng(releases), 0
    for _ in range(16):
        sizes = [int(size) for size in draw.integers(2, 6, int(draw.integers(1, 4)))]
        seen = [random_seen(draw, sizes) for _ in range(releases)]
        rows = np.vstack([kron(one.along, sizes) for one in seen])
        precisions = np.repeat([1 / one.variance for one in seen], [one.values.size for one in seen])
        noisy = np.concatenate([one.values.ravel() for one in seen])
        asked = {axis: random_weights(draw, size) for axis, size in enumerate(sizes) if draw.random() < 0.6}
        weights = kron({axis: Along(rows=of_axis) for axis, of_axis in asked.items()}, sizes)
        gram = (rows.T * precisions) @ rows
        inverse = np.linalg.pinv(gram, rcond=1e-11)
        determined = np.abs(weights - weights @ inverse @ gram).max(axis=1) < 1e-6
        found = Estimator(sizes, seen).answer(asked)
        assert np.array_equal(found.known.ravel(), determined)
        variances = np.einsum("ij,jk,ik->i", weights, inverse, weights)[determined]
        np.testing.assert_allclose(found.variances.ravel()[determined], variances, rtol=1e-9, atol=1e-12)
        estimates = (weights @ inverse @ (rows.T * precisions) @ noisy)[determined]
        np.testing.assert_allclose(found.estimates.ravel()[determined], estimates, rtol=1e-9, atol=1e-8)
        compared += int(determined.sum())
    assert compared > 40, "something was determined"


def test_more_is_never_worse() -> None:
    """Whatever is measured later, no variance grows and nothing that was determined is lost."""
    draw = np.random.default_rng(7)
    for _ in range(8):
        sizes = [int(size) for size in draw.integers(2, 5, 3)]
        seen = [random_seen(draw, sizes) for _ in range(8)]
        asked: dict[int, Any] = {0: random_weights(draw, sizes[0]), 2: random_weights(draw, sizes[2])}
        before = Estimator(sizes, seen[:1]).answer(asked)
        for count in range(2, len(seen) + 1):
            after = Estimator(sizes, seen[:count]).answer(asked)
            assert (after.known | ~before.known).all()
            assert (after.variances <= before.variances * (1 + 1e-9) + 1e-12)[before.known].all()
            before = after


def test_marginals_of_many_attributes_build_no_table_of_all_cells() -> None:
    """30 attributes of 10 values, 10^30 cells: every block of cells alone is one number."""
    sizes = [10] * 30
    tables = [
        NoisyTable({axis: Along(IdentityFactor(10)) for axis in (first, first + 1)}, 2.0, np.full((10, 10), 5.0))
        for first in range(29)
    ]
    estimator = Estimator(sizes, tables)
    assert all(len(axis.sizes) == 1 for axis in estimator._axes)
    found = estimator.answer({0: sparse.csr_array(np.eye(10)), 1: sparse.csr_array(np.eye(10))})
    assert found.known.all()
    np.testing.assert_allclose(found.estimates, 5.0)
    assert (found.variances < 2.0).all()
