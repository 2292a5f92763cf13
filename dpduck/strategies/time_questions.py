"""Questions that a stream answers in every period, and the variances of the answers under a strategy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from dpduck.strategies.time_axis import TREE, TimeAxis
from dpduck.values.arrays import FloatArray


@dataclass(frozen=True)
class TimeQuestion:
    """Question that is answered after each period. window: how many of the last periods are added up, 0 for all.

    >>> TimeQuestion(2).about(3).tolist()
    [0.0, 1.0, 1.0]
    """

    window: int = 1

    def about(self, closed: int) -> FloatArray:
        """Returns the question after `closed` periods, as one weight per period."""
        asked = np.zeros(closed)
        asked[max(0, closed - self.window) if self.window else 0 :] = 1.0
        return asked

    @property
    def text(self) -> str:
        return {0: "running totals", 1: "single periods"}.get(self.window, f"the last {self.window} periods")


def variances(axis: TimeAxis, question: TimeQuestion) -> FloatArray:
    """Returns the variance of the answer after each period, as a multiple of one noise draw's, shape (periods,)."""
    if axis.name == TREE:
        return _of_tree(axis, question)
    periods = axis.periods
    inverse = scipy.linalg.solve_triangular(axis.matrix.astype(np.float64), np.eye(periods), lower=True)
    totals = np.cumsum(inverse, axis=0)
    if question.window:
        totals[question.window :] -= totals[: -question.window].copy()
    result: FloatArray = (totals**2).sum(axis=1)
    return result


def _of_tree(axis: TimeAxis, question: TimeQuestion) -> FloatArray:
    """Returns the variances for a tree: each block that closes updates the covariance of all periods so far.

    The update is Sherman and Morrison's. A block's row reads no periods outside the block, where estimates are
    independent. So only covariances within the block change.
    """
    covariance, result = np.zeros((axis.periods, axis.periods)), np.zeros(axis.periods)
    measured = 0
    for closed in range(1, axis.periods + 1):
        covariance[closed - 1, closed - 1] = 1.0  # the row of this period alone, which comes first
        for row in range(measured + 1, axis.rows_measured(closed)):
            start = int(np.argmax(axis.matrix[row] != 0))
            block = covariance[start:closed, start:closed]
            total = block.sum(axis=1)
            block -= np.outer(total, total) / (1.0 + total.sum())
        measured = axis.rows_measured(closed)
        first = closed - min(closed, question.window or closed)
        result[closed - 1] = covariance[first:closed, first:closed].sum()
    return result
