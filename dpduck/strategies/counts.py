"""Several counts as one workload: each is the number of rows of some kinds, and a row is of one kind.

The measurement is an integer matrix B over the kinds, the same for every group of a statement: the counts themselves,
each kind, or a strategy that was searched for. With independent noise of one size on every row of B, least squares
answers the counts W by W B^+. A row of a table moves the measurements by a column of B. At a price for columns of norm
1, the variance of a count is a product: the squared norm of its row of W B^+, times the squared norm of the largest
column (L1 for Laplace noise, L2 for Gaussian noise).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from time import monotonic

import numpy as np
import scipy

from dpduck.kernel.noise.law import NoiseKind
from dpduck.kernel.queries.operators import MatrixFactor
from dpduck.strategies.ranges.candidates import quantise_l1, quantise_l2
from dpduck.strategies.ranges.gaussian_optimum import optimise_gaussian
from dpduck.strategies.ranges.p_identity import descend, p_identity_matrix
from dpduck.strategies.ranges.sets import SPARE_BITS
from dpduck.strategies.threads import one_thread
from dpduck.values.arrays import FloatArray, IntegerArray

NEARLY = 1.02
"""A simpler way is taken if its error is at most this multiple of the least."""

BITS = 10
"""Entries of a strategy that was searched for are rounded at 2^-10 of the columns' norm."""

MOST_SEARCHED = 128
"""Largest number of kinds of rows for which a strategy is searched."""

SECONDS = 1.0
"""Time limit of a search."""

STEPS = 2_000
HEIGHTS = (1.0, 0.3)
"""Heights of the counts themselves, above the single kinds, from which the search starts."""

LEAST = 0.01
"""Entries from which the search starts where a count has none."""

ZERO = 1e-9
"""Weights this small are rounding."""

Rows = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class CountStrategy:
    """The measurement of counts that are planned together.

    name: in words. rows: the matrix over the kinds of rows. weights: of the matrix rows, for each count. norm: of the
    largest column, L1 for Laplace and squared L2 for Gaussian noise. most: the largest number of counts of one row.
    """

    name: str
    rows: Rows
    weights: tuple[tuple[Fraction, ...], ...]
    norm: int
    most: int

    @property
    def factor(self) -> MatrixFactor:
        """Returns the matrix as trusted code applies it."""
        return MatrixFactor(np.array(self.rows, np.int64))

    @property
    def row_bound(self) -> int:
        """Returns the bound of one row's contribution to an answer, as planners of groups expect it.

        Planners allow SPARE_BITS of a row's bound for free. Entries of a strategy may not use them, so they are added.
        """
        root = isqrt(self.factor.norms[1] - 1) + 1
        return root << SPARE_BITS if root > 1 else 1

    def times(self, noise: NoiseKind) -> float:
        """Returns the noise variance of each matrix row, relative to a single count's variance at the same price."""
        return float(self.norm) ** (2 if noise is NoiseKind.LAPLACE else 1)


@dataclass(frozen=True, eq=False)
class Predicates:
    """The counts as a workload, over kinds of rows. gram: their Gram matrix, in which some counts weigh more."""

    gram: FloatArray

    @property
    def gram_diagonal(self) -> FloatArray:
        """Returns the weight of the counts that include each kind of rows."""
        diagonal: FloatArray = self.gram.diagonal()
        return diagonal

    def times_gram(self, rows: FloatArray) -> FloatArray:
        """Returns rows times the Gram matrix."""
        product: FloatArray = rows @ self.gram
        return product


@lru_cache(maxsize=256)
def plan_counts(
    met: Rows, weights: tuple[float, ...], noise: NoiseKind, evenly: bool, plain: bool, searched: bool
) -> CountStrategy:
    """Returns the joint measurement of counts with the least error, or a simpler one with hardly more.

    met: for each count the kinds of rows that it counts. weights: of the counts.
    evenly: whether the worst count decides, not the sum. plain: whether only the counts themselves may be measured.
    searched: whether a strategy may be searched for.
    """
    counts = np.array(met, np.int64)
    lines = list(dict.fromkeys(met))
    distinct = np.array(lines, np.int64)
    direct = np.eye(len(lines))[[lines.index(line) for line in met]]
    ways = [("each count", distinct, direct)]
    asked = np.flatnonzero(counts.any(axis=0))
    if not plain and len(asked):
        kinds = np.eye(counts.shape[1], dtype=np.int64)[asked]
        ways.append(("each kind of rows", kinds, counts[:, asked].astype(np.float64)))
        ways.append(("each count, made consistent", distinct, _least_squares_weights(counts, distinct)))
        if searched and 1 < len(asked) <= MOST_SEARCHED:
            own = _search(counts[:, asked].astype(np.float64), np.array(weights), noise)
            strategy = np.zeros((len(own), counts.shape[1]), np.int64)
            strategy[:, asked] = own
            ways.append(("a strategy that was searched for", strategy, _least_squares_weights(counts, strategy)))
    errors = [_error(rows, answers, np.array(weights), noise, evenly) for _, rows, answers in ways]
    name, rows, answers = next(way for way, error in zip(ways, errors, strict=True) if error <= NEARLY * min(errors))
    exact = tuple(tuple(Fraction(w) if abs(w) > ZERO else Fraction(0) for w in line) for line in answers.tolist())
    most = int(counts.sum(axis=0).max())
    return CountStrategy(name, tuple(map(tuple, rows.tolist())), exact, _norm(rows, noise), most)


def _norm(rows: IntegerArray, noise: NoiseKind) -> int:
    return MatrixFactor(np.ascontiguousarray(rows)).norms[0 if noise is NoiseKind.LAPLACE else 1]


def _least_squares_weights(counts: IntegerArray, rows: IntegerArray) -> FloatArray:
    """Returns W B^+, the weights of least squares."""
    inverse: FloatArray = scipy.linalg.pinv(rows.astype(np.float64))
    return np.asarray(counts @ inverse)


def _error(rows: IntegerArray, answers: FloatArray, weights: FloatArray, noise: NoiseKind, evenly: bool) -> float:
    """Returns the sum of the counts' variances, or the largest, relative to the variance of a single count."""
    norm = _norm(rows, noise)
    variances = np.square(answers).sum(axis=1) * (norm * norm if noise is NoiseKind.LAPLACE else norm)
    return float(variances.max() if evenly else weights @ variances)


def _search(counts: FloatArray, weights: FloatArray, noise: NoiseKind) -> IntegerArray:
    """Returns a strategy over the asked kinds: the optimum for Gaussian noise, else HDMM's p-identity."""
    gram = counts.T @ (weights[:, None] * counts)
    if noise is NoiseKind.GAUSSIAN:
        return quantise_l2(optimise_gaussian(gram, SECONDS).matrix, BITS)
    wide, end = np.unique(counts[counts.sum(axis=1) > 1], axis=0), monotonic() + SECONDS
    workload = Predicates(gram)
    best: tuple[float, FloatArray] = (float(gram.trace()), np.zeros((0, counts.shape[1])))
    with one_thread():
        for height in HEIGHTS if len(wide) else ():
            start = np.maximum(height * wide, LEAST)
            best = min(best, descend(start, workload, end, STEPS), key=lambda pair: pair[0])
    return quantise_l1(p_identity_matrix(best[1]), BITS)
