"""Operators are exact whatever the numbers are, and only those that trusted code applies are accepted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import sparse

from dpduck.kernel.queries.operators import Family, IdentityFactor, KroneckerQuery, MatrixFactor
from dpduck.values.arrays import IntegerArray


def test_a_matrix_is_applied_exactly() -> None:
    """Small numbers go through doubles and large ones do not. Both give the exact result of whole numbers."""
    source = np.random.default_rng(5)
    for most in (3, 1 << 20, 1 << 29):
        for largest in (1, 1 << 12, 1 << 30):
            entries = source.integers(-most, most + 1, (7, 5))
            tensor = source.integers(-largest, largest + 1, (4, 5, 3))
            expected = np.moveaxis(np.tensordot(entries.astype(object), tensor.astype(object), axes=([1], [1])), 0, 1)
            assert (MatrixFactor(entries).apply(tensor, 1).astype(object) == expected).all()


def test_an_exact_answer_that_no_double_holds() -> None:
    """2^53 + 1 is not a double: an implementation by doubles alone would be one off."""
    entries = np.array([[1, 1]], dtype=np.int64)
    tensor = np.array([1 << 53, 1], dtype=np.int64)
    assert MatrixFactor(entries).apply(tensor, 0).tolist() == [(1 << 53) + 1]


def test_sparse_entries_are_the_dense_ones() -> None:
    """Compressed rows give the answers and the norms of the dense matrix with the same entries."""
    generator = np.random.default_rng(1)
    entries = generator.integers(-2, 3, (4, 5)).astype(np.int64)
    thin, full = MatrixFactor(sparse.csr_array(entries)), MatrixFactor(entries)
    tensor = generator.integers(0, 9, (3, 5, 2)).astype(np.int64)
    np.testing.assert_array_equal(thin.apply(tensor, 1), full.apply(tensor, 1))
    assert (thin.size, thin.rows, thin.norms) == (full.size, full.rows, full.norms)
    sizes = np.abs(entries)
    assert full.norms == (int(sizes.sum(axis=0).max()), int((entries**2).sum(axis=0).max()), int(sizes.max()))


def test_no_other_factor_is_taken() -> None:
    """Factors other than the four known ones are refused, also where a factor inherits from a known one."""

    class Liar(IdentityFactor):
        def apply(self, tensor: np.ndarray, axis: int) -> np.ndarray:
            return 1000 * tensor

    with pytest.raises(ValueError, match="one factor for each attribute"):
        KroneckerQuery((0,), (Liar(3),))


@pytest.mark.parametrize("entries", [[[1 << 31]], [[1 << 30]] * 4, [[-(1 << 63)]]])
def test_a_matrix_whose_norms_would_wrap_is_refused(entries: list[list[int]]) -> None:
    """A squared norm beyond 64 bits would wrap, and could then be a small price."""
    with pytest.raises(TypeError, match="64 bits"):
        MatrixFactor(np.array(entries, dtype=np.int64))


def test_queries_have_coefficients_0_1_and_minus_1() -> None:
    """A row moves the answer of a query by 1 at most, as the price assumes."""
    for given in ({"matrices": (np.array([[2, 0]]),)}, {"masks": np.array([[-2, 1]])}):
        with pytest.raises(ValueError, match="0, 1 or -1"):
            Family((0,), (2,), **given)
    assert Family((0,), (2,), masks=np.array([[-1, 1]])).rows == 1


@pytest.mark.parametrize("stored", [np.array, sparse.csr_array], ids=["dense", "compressed"])
@pytest.mark.parametrize(
    ("entries", "norms"),
    [([[1, 1, 1], [0, 0, -1]], (2, 2, 1)), ([[3], [-4], [0]], (7, 25, 4)), ([[2, 0, -5]], (5, 25, 5))],
    ids=["wide", "tall", "one row"],
)
def test_norms_of_a_matrix_are_those_of_its_columns(
    entries: list[list[int]], norms: tuple[int, int, int], stored: Callable[[IntegerArray], IntegerArray]
) -> None:
    """A row of data is one column of the matrix. Sums along rows would price a tall matrix too low."""
    assert MatrixFactor(stored(np.array(entries, dtype=np.int64))).norms == norms
