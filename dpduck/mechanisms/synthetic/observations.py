"""Noisy answers as input of the fit: public values with the variance of their noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.queries.operators import Family
from dpduck.values.arrays import FloatArray, IntegerArray

MOST_RECORDS = float(1 << 40)


@dataclass(frozen=True, eq=False)
class Observation:
    """A measured marginal, or one measured query. value: in the marginal's shape, or of shape () for a query.

    variance: the noise variance of each value.
    coefficients: the query's weights on cells, None for the whole marginal.
    """

    attributes: tuple[int, ...]
    value: FloatArray
    variance: float
    coefficients: FloatArray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape if self.coefficients is None else self.coefficients.shape

    def predict(self, marginal: FloatArray) -> FloatArray:
        if self.coefficients is None:
            return marginal
        return np.asarray((self.coefficients * marginal).sum())

    def parameter(self, weights: FloatArray) -> FloatArray:
        """Spreads weights of values over the marginal's cells. As a linear map, this is the adjoint of `predicted`."""
        return weights if self.coefficients is None else weights * self.coefficients


def query_observation(family: Family, row: int, value: float, variance: float) -> Observation:
    """Returns the observation of one query of a family."""
    coefficients = coefficients_of(family, row).astype(np.float64)
    return Observation(family.attributes, np.array(value), variance, coefficients)


def marginal_observation(family: Family, values: NDArray[np.int64], variance: float) -> Observation:
    """Returns the observation of a whole marginal, with noise on each cell."""
    return Observation(family.attributes, values.reshape(family.shape).astype(np.float64), variance)


def total_of(observations: Sequence[Observation], first: float, variance: float, expected: int | None) -> float:
    """Returns the number of records, at least 1: a mean of noisy totals, weighted by precision.

    expected: a public guess. The estimate moves towards it until it is within a factor of 2, but by at most one
        standard error, since a larger distance shows that the guess is wrong.
    """
    estimates, precisions = [first], [1 / variance]
    for observation in observations:
        if observation.coefficients is None:
            estimates.append(float(observation.value.sum()))
            precisions.append(1 / (observation.variance * observation.value.size))
    estimate, error = float(np.average(estimates, weights=precisions)), sum(precisions) ** -0.5
    if expected is not None:
        estimate = max(estimate, min(expected / 2, estimate + error))
        estimate = min(estimate, max(2.0 * expected, estimate - error))
    return min(max(1.0, estimate), MOST_RECORDS)


def records_for_plan(first: float, variance: float, expected: int | None) -> int:
    """Returns the number of records to plan with: the guess if it is within a factor of 2, else the estimate."""
    records = total_of([], first, variance, expected)
    return expected if expected is not None and expected <= 2 * records <= 4 * expected else round(records)


def coefficients_of(family: Family, row: int) -> IntegerArray:
    """Returns one query's coefficients over its family's marginal."""
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
