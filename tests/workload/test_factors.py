"""Factors are exact whatever the numbers are."""

from __future__ import annotations

import numpy as np

from dpduck.workload.kronecker import MatrixFactor


def test_a_matrix_is_applied_exactly() -> None:
    """Small numbers go through doubles and large ones do not; both give what whole numbers of any length give."""
    source = np.random.default_rng(5)
    for most in (3, 1 << 20, 1 << 30):
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
