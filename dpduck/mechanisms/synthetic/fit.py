"""The distribution that fits all noisy answers: entropic mirror descent with a line search, weights by variance.

Minimises over distributions p on a dense table

    F(p) = sum over observations |n q(p) - y|^2 / (2 variance) + strength KL(p | prior)

by steps log p <- log p - step gradient F. Steps are Barzilai and Borwein's in the geometry of KL, accepted when F falls
enough below the largest of the last values (Grippo, Lampariello and Lucidi 1986).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.margin_tree import MarginTree, margin_tree
from dpduck.trusted.operators import Family
from dpduck.values.arrays import FloatArray, IntegerArray

MEMORY = 5  # values of F that the line search looks back at
ENOUGH = 1e-4  # of the decrease that the gradient promises
TOLERANCE = 1e-4  # relative; a fit ends where so many steps together gain less:
PATIENCE = 5
SMALLEST = 1e-300
PRIOR = 1 / 12
"""Weight per record of a prior that knows the 1-way marginals: the best on tables that no gate looks at, as is the
next one (benchmarks/papers/prior_weight.py)."""

FLAT_PRIOR = 3 / 4
"""Weight per measured value of a prior that knows nothing, the uniform distribution."""


@dataclass(frozen=True, eq=False)
class Point:
    """A distribution with its logarithm, its value F, the misfit in it, and the centred gradient."""

    table: FloatArray
    logarithm: FloatArray
    value: float
    misfit: float
    residuals: tuple[FloatArray, ...]


@dataclass(frozen=True, eq=False)
class FitProblem:
    """What is fitted. records: n. prior: logarithm of the prior, used where strength is above 0."""

    tree: MarginTree
    observations: tuple[Observation, ...]
    records: float
    prior: FloatArray
    strength: float

    def point(self, table: FloatArray, logarithm: FloatArray) -> Point:
        """The value of F at a distribution."""
        marginals = self.tree.margins(table)
        residuals, misfit = [], 0.0
        for observation in self.observations:
            residual = self.records * observation.predicted(marginals[observation.attributes]) - observation.value
            misfit += float(np.vdot(residual, residual)) / (2 * observation.variance)
            residuals.append(residual / observation.variance)
        divergence = float(np.vdot(table, logarithm) - np.vdot(table, self.prior)) if self.strength else 0.0
        return Point(table, logarithm, misfit + self.strength * divergence, misfit, tuple(residuals))

    def gradient(self, point: Point) -> FloatArray:
        """The gradient of F, its mean under the distribution taken away."""
        tables: dict[tuple[int, ...], FloatArray] = {}
        for observation, residual in zip(self.observations, point.residuals, strict=True):
            part = self.records * observation.parameter(residual)
            before = tables.get(observation.attributes)
            tables[observation.attributes] = part if before is None else before + part
        slope = self.tree.lifted(tables)
        pull = point.logarithm - self.prior if self.strength else np.zeros_like(slope)
        pull *= self.strength
        pull += slope
        slope = pull
        slope -= float(np.vdot(point.table, slope))
        return slope


def normalised(logarithm: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The distribution with this logarithm up to a constant, and its logarithm, in the place of the argument."""
    shifted = logarithm
    shifted -= shifted.max()
    table = np.exp(shifted)
    total = float(table.sum())
    table /= total
    shifted -= np.log(total)
    return table, shifted


def fit(
    members: tuple[int, ...],
    start: FloatArray,
    observations: Sequence[Observation],
    records: float,
    *,
    steps: int,
    prior: FloatArray | None = None,
    strength: float = 0.0,
    tolerance: float = TOLERANCE,
) -> tuple[FloatArray, float]:
    """The fitted table, and its misfit (F without the prior). members: attributes of the table's axes.

    Steps may raise F for a while: what counts, for the end and for the answer, is the lowest F so far.
    """
    tree = margin_tree(members, start.shape, [observation.attributes for observation in observations])
    base = np.log(np.maximum(start if prior is None else prior, SMALLEST))
    problem = FitProblem(tree, tuple(observations), records, base, strength)
    table, logarithm = normalised(np.log(np.maximum(start, SMALLEST)))
    point = best = problem.point(table, logarithm)
    slope = problem.gradient(point)
    largest = float(np.abs(slope).max())
    values, step, idle, mark = [point.value], 1 / max(largest, SMALLEST), 0, point.value
    for _ in range(steps):
        if largest <= SMALLEST:
            break
        found = _line_search(problem, point, slope, step, max(values[-MEMORY:]))
        if found is None:
            break
        after, step = found
        next_slope = problem.gradient(after)
        # <slope, old table> and <next_slope, new table> are 0: gradients are centred
        along = float(np.vdot(slope, after.table))
        travelled = -step * along
        curvature = -float(np.vdot(next_slope, point.table)) - along
        point, slope = after, next_slope
        best = min(best, after, key=lambda one: one.value)
        idle = 0 if best.value < mark - tolerance * abs(mark) else idle + 1
        mark = best.value if idle == 0 else mark
        values.append(after.value)
        step = travelled / curvature if travelled > 0 and curvature > 0 else 2 * step
        if idle >= PATIENCE:
            break
    return best.table, best.misfit


def _line_search(
    problem: FitProblem, point: Point, slope: FloatArray, step: float, reference: float
) -> tuple[Point, float] | None:
    """The first of step, step/2, step/4, .. that lowers F enough, None where none does."""
    for _ in range(60):
        moved = slope * -step
        moved += point.logarithm
        table, logarithm = normalised(moved)
        after = problem.point(table, logarithm)
        promised = -float(np.vdot(table, slope))  # <slope, old table> is 0
        if after.value <= reference - ENOUGH * promised:
            return after, step
        step /= 2
    return None


# Noisy answers as the fit sees them: public values with the variance of their noise.

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

    def parameter(self, weights: FloatArray) -> FloatArray:
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
