"""Several counts as one workload: each counts the rows of some kinds, and a row is of one kind.

Two rows of data are of one kind if the same counts include both. Every group of a statement is measured by one integer
matrix B over the kinds: the counts, each kind, or a matrix from a search. With equal independent noise on every row of
B, least squares answers the counts W by W B^+. A row of data moves the measurements by a column of B.
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
"""A simpler matrix is taken if its error is at most this multiple of the least error."""

BITS = 10
"""Entries of a matrix from a search are rounded to multiples of 2^-10 of the columns' norm."""

MOST_SEARCHED = 128
"""Largest number of kinds of rows for which a strategy is searched."""

SECONDS = 1.0

STEPS = 2_000
HEIGHTS = (1.0, 0.3)
"""Entries from which the search starts, in the rows of counts. They are relative to the rows of single kinds."""

LEAST = 0.01
"""Entry from which the search starts for a kind that a count does not include."""

ZERO = 1e-9

Rows = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class CountStrategy:
    """Measurement of counts that are planned together. A kind is all data rows that the same counts include.

    name: in words. rows: a matrix with a column per kind. weights: for each count, the weights of the matrix rows.
    norm: largest column norm, L1 for Laplace and squared L2 for Gaussian noise. most: the most counts that include one
    data row.
    """

    name: str
    rows: Rows
    weights: tuple[tuple[Fraction, ...], ...]
    norm: int
    most: int

    @property
    def factor(self) -> MatrixFactor:
        return MatrixFactor(np.array(self.rows, np.int64))

    @property
    def row_bound(self) -> int:
        """Bounds the effect of one data row on an answer. Planners allow SPARE_BITS more bits, which are added."""
        root = isqrt(self.factor.norms[1] - 1) + 1
        return root << SPARE_BITS if root > 1 else 1

    def times(self, noise: NoiseKind) -> float:
        """Returns the noise variance of each matrix row, as a multiple of a lone count's variance at this price."""
        return float(self.norm) ** (2 if noise is NoiseKind.LAPLACE else 1)


@dataclass(frozen=True, eq=False)
class Predicates:
    """The counts as a workload over kinds of data rows. gram: W' diag(weights) W, with W the 0/1 rows of the counts."""

    gram: FloatArray

    @property
    def gram_diagonal(self) -> FloatArray:
        return self.gram.diagonal()

    def times_gram(self, rows: FloatArray) -> FloatArray:
        return rows @ self.gram


@lru_cache(maxsize=256)
def plan_counts(
    met: Rows, weights: tuple[float, ...], noise: NoiseKind, evenly: bool, plain: bool, searched: bool
) -> CountStrategy:
    """Returns the joint measurement of counts with the least error, or a simpler one with hardly more error.

    met: for each count, 1 for each kind of data rows that it includes, else 0. weights: of the counts' variances.
    evenly: whether the largest variance is the error, not the sum. plain: whether to measure the counts and nothing
    else. searched: whether a search for a better matrix is allowed.
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
    inverse: FloatArray = scipy.linalg.pinv(rows.astype(np.float64))
    return np.asarray(counts @ inverse)


def _error(rows: IntegerArray, answers: FloatArray, weights: FloatArray, noise: NoiseKind, evenly: bool) -> float:
    """Returns the weighted sum of the counts' variances, or the largest, in multiples of a lone count's variance."""
    norm = _norm(rows, noise)
    variances = np.square(answers).sum(axis=1) * (norm * norm if noise is NoiseKind.LAPLACE else norm)
    return float(variances.max() if evenly else weights @ variances)


def _search(counts: FloatArray, weights: FloatArray, noise: NoiseKind) -> IntegerArray:
    """Returns a matrix over the kinds that are in a count. It is optimal for Gaussian noise, else HDMM's p-identity."""
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
