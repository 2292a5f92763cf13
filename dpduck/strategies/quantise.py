"""From a real strategy with unit columns to an integer one whose columns have, as nearly as integers can, equal norms.

Privacy is accounted for the integers (DESIGN 4.1): rounding costs a little accuracy and never any privacy.
"""

from __future__ import annotations

import numpy as np

from dpduck.arrays import FloatArray, IntegerArray

BITS = 15
"""Entries are rounded at 2^-15 of the columns' norm: below 0.01 % of variance for strategies of 1,024 values."""


def quantise_l1(strategy: FloatArray, bits: int = BITS) -> IntegerArray:
    """Integers near 2^bits times `strategy`; every column's L1 norm is at most 2^bits, and exactly that if it was 1.

    The largest entry of each column takes up the rounding of the others.

    >>> quantise_l1(np.array([[0.5, 0.1], [-0.5, 0.9]]), 3).tolist()
    [[4, 1], [-4, 7]]
    """
    scaled = np.ldexp(strategy, bits)
    rounded = np.rint(scaled).astype(np.int64)
    target = np.rint(np.abs(scaled).sum(axis=0)).astype(np.int64)
    largest, columns = np.abs(rounded).argmax(axis=0), np.arange(strategy.shape[1])
    others = np.abs(rounded).sum(axis=0) - np.abs(rounded[largest, columns])
    signs = np.where(strategy[largest, columns] < 0, -1, 1)
    rounded[largest, columns] = signs * np.maximum(np.minimum(target, 1 << bits) - others, 0)
    return rounded


def quantise_l2(strategy: FloatArray, bits: int = BITS) -> IntegerArray:
    """The same under L2: every column's squared norm is at most 4^bits, short of it by less than 2^(bits + 1).

    >>> quantise_l2(np.array([[0.6, 1.0], [0.8, 0.0]]), 4).tolist()
    [[10, 16], [12, 0]]
    """
    rounded = np.rint(np.ldexp(strategy, bits)).astype(np.int64)
    target = np.floor(np.minimum((np.ldexp(strategy, bits) ** 2).sum(axis=0) * (1 + 1e-12), 4.0**bits)).astype(np.int64)
    largest, columns = np.abs(rounded).argmax(axis=0), np.arange(strategy.shape[1])
    others = (rounded * rounded).sum(axis=0) - rounded[largest, columns] ** 2
    left = np.maximum(target - others, 0)
    root = np.floor(np.sqrt(left.astype(np.float64))).astype(np.int64)  # exact: far below 2^52
    signs = np.where(strategy[largest, columns] < 0, -1, 1)
    rounded[largest, columns] = signs * root
    return rounded
