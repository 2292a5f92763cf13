"""Noisy answers as the fit sees them: public values with the variance of their noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpduck.arrays import FloatArray, IntegerArray
from dpduck.workload.families import Family

MOST_RECORDS = float(1 << 40)


@dataclass(frozen=True, eq=False)
class Observation:
    """A measured marginal, or one measured query.

    attributes: of the marginal. value: shape of the marginal, or () for a query. variance: of each value.
    coefficients: of the query over the marginal; None for the marginal itself.
    """

    attributes: tuple[int, ...]
    value: FloatArray
    variance: float
    coefficients: FloatArray | None = None

    def predicted(self, marginal: FloatArray) -> FloatArray:
        """What the distribution says, given its marginal."""
        if self.coefficients is None:
            return marginal
        return np.asarray((self.coefficients * marginal).sum())

    def spread(self, weights: FloatArray) -> FloatArray:
        """The adjoint: weights of the values as a table over the marginal."""
        return weights if self.coefficients is None else weights * self.coefficients


def observed_query(family: Family, row: int, value: float, variance: float) -> Observation:
    """One query of a family with its noisy answer."""
    coefficients = coefficients_of(family, row).astype(np.float64)
    return Observation(family.attributes, np.array(value), variance, coefficients)


def observed_marginal(family: Family, values: NDArray[np.int64], variance: float) -> Observation:
    """A whole marginal with noise on each cell."""
    return Observation(family.attributes, values.reshape(family.shape).astype(np.float64), variance)


def total_of(observations: list[Observation], first: float, variance: float, expected: int | None) -> float:
    """The number of records: a noisy total and the sums of noisy marginals, weighted by variance; at least 1.

    expected: a public guess, which the estimate stays within a factor of 2 of.
    """
    estimates, precisions = [first], [1 / variance]
    for observation in observations:
        if observation.coefficients is None:
            estimates.append(float(observation.value.sum()))
            precisions.append(1 / (observation.variance * observation.value.size))
    estimate = float(np.average(estimates, weights=precisions))
    low, high = (1.0, MOST_RECORDS) if expected is None else (expected / 2, 2.0 * expected)
    return min(max(low, estimate), high)


def coefficients_of(family: Family, row: int) -> IntegerArray:
    """One query's coefficients over its family's marginal."""
    if family.masks is not None:
        chosen_mask: IntegerArray = family.masks[row]
        return chosen_mask
    if not family.matrices:
        cell = np.zeros(family.shape, np.int64)
        cell.reshape(-1)[row] = 1
        return cell
    chosen = np.unravel_index(row, tuple(len(matrix) for matrix in family.matrices))
    table = np.ones((), np.int64)
    for matrix, position in zip(family.matrices, chosen, strict=True):
        table = np.multiply.outer(table, matrix[position])
    return table
