"""Strategies for the time axis of a stream: integer matrices over T periods, and estimates from their noisy answers.

A stream measures z = S x + noise, with x_k the count of period k. Rows of the integer matrix S are in the order of the
last period that they read, and are measured when that period closes (Denisov et al. 2022: lower triangular). One data
row of a privacy unit moves S x by one column, and m data rows move it by at most m times the largest column norm.

* periods: S = I, each period alone.
* tree: all complete blocks of b^l periods (Dwork, Naor, Pitassi and Rothblum 2010), with least squares from the
  measurements so far (Honaker 2015, estimation from below).
* factorisation: the square root of the matrix of running totals, a Toeplitz matrix with the entries
  `c_k = binomial(2k, k) / 4^k` (Fichtenberger, Henzinger and Upadhyay 2023). Each column is brought to norm 1
  (Henzinger, Kalinin and Upadhyay 2025) and rounded, all in integers, so that every machine has the same matrix.

A question f has a weight for each of the first k counts. With the rows S_k that were measured by then, the answer is
w' z for `w = S_k (S_k' S_k)^-1 f`, with |w|^2 times the variance of a draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isqrt

import numpy as np
import scipy

from dpduck.kernel.queries.operators import MatrixFactor
from dpduck.values.arrays import FloatArray, IntegerArray

PERIODS, TREE, FACTORISATION = "periods", "tree", "factorisation"
STRATEGIES = (PERIODS, TREE, FACTORISATION)
BRANCHINGS = (2, 3, 4, 6, 8, 12, 16)
"""Branching factors of trees. The best factor for a question is chosen."""

DENOMINATOR = 1024
"""Entries of the factorisation are multiples of 1 / DENOMINATOR: up to 1,024 periods that costs 0.1 % of an error."""

MOST_PERIODS = 2048
_FIXED = 1 << 80  # the entries c_k before they are rounded, in fixed point


@dataclass(frozen=True, eq=False)
class TimeAxis:
    """Strategy over T periods. matrix: S, shape (measurements, T). branching: branching factor of a tree, else 0."""

    name: str
    matrix: IntegerArray
    branching: int = 0

    @property
    def periods(self) -> int:
        return int(self.matrix.shape[1])

    @cached_property
    def factor(self) -> MatrixFactor:
        return MatrixFactor(self.matrix)

    @cached_property
    def last(self) -> IntegerArray:
        positions: IntegerArray = (self.periods - 1 - np.argmax(self.matrix[:, ::-1] != 0, axis=1)).astype(np.int64)
        return positions

    def rows_measured(self, closed: int) -> int:
        """Returns the number of rows of the matrix that are measured once `closed` periods have closed."""
        return int(np.searchsorted(self.last, closed))

    def weights(self, closed: int, questions: FloatArray) -> FloatArray:
        """Returns each measured row's weight in each question's answer. questions: shape (questions, closed)."""
        seen = self.matrix[: self.rows_measured(closed), :closed].astype(np.float64)
        if len(seen) == closed:
            solved: FloatArray = scipy.linalg.solve_triangular(seen, questions.T, trans="T", lower=True).T
            return solved
        factored = scipy.linalg.cho_factor(seen.T @ seen)
        solution: FloatArray = scipy.linalg.cho_solve(factored, questions.T).T @ seen.T
        return solution


def time_axis(name: str, periods: int, branching: int = 2) -> TimeAxis:
    """Returns the strategy with a name from STRATEGIES.

    >>> time_axis("tree", 3).matrix.tolist()
    [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    if name == TREE:
        return TimeAxis(TREE, _tree(periods, branching), branching)
    return TimeAxis(name, np.eye(periods, dtype=np.int64) if name == PERIODS else _factorisation(periods))


def _tree(periods: int, branching: int) -> IntegerArray:
    rows = []
    for end in range(1, periods + 1):
        size = 1
        while size <= end and end % size == 0:
            rows.append((end - size, end))
            size *= branching
    matrix = np.zeros((len(rows), periods), np.int64)
    for number, (start, end) in enumerate(rows):
        matrix[number, start:end] = 1
    return matrix


def _factorisation(periods: int) -> IntegerArray:
    entries = [_FIXED]
    for k in range(1, periods):
        entries.append(entries[-1] * (2 * k - 1) // (2 * k))
    matrix, squares = np.zeros((periods, periods), np.int64), 0
    for below in range(periods):  # number of entries of a column below the diagonal
        squares += entries[below] ** 2
        norm, column = isqrt(squares), periods - 1 - below
        matrix[column:, column] = [
            (2 * DENOMINATOR * entry + norm) // (2 * norm) for entry in entries[: below + 1]
        ]  # rounded to the nearest
    return matrix
