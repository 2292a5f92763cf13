"""Plans ranges over one ordered attribute, and products of such plans: budgets, exact parameters, predicted errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.ranges import RangeWorkload
from dpduck.planning.budgets import safe_parameters
from dpduck.planning.plan import Measurement
from dpduck.planning.ranges.hierarchy import LARGEST_DENSE, one_thread
from dpduck.planning.ranges.strategy import RangeStrategy
from dpduck.trusted.noise.law import NoiseKind, noise_variance
from dpduck.trusted.operators import KroneckerQuery, MatrixFactor
from dpduck.values.arrays import FloatArray, IntegerArray
from dpduck.values.errors import Refusal

# A user's own integer matrix as a strategy for ranges: grouped greedily, refused where it cannot answer a query.


NULL = 1e-10
"""Singular values below this part of the largest count as 0."""

MISSED = 1e-7
"""A query whose part outside the row space is shorter than this is answered."""

MOST_GROUPS = 64


def matrix_strategy(workload: RangeWorkload, entries: IntegerArray, norm: int) -> RangeStrategy:
    """Returns least squares from the rows of `entries`, shape (rows, n), with the better of equal and grouped budgets.

    norm: 1 for Laplace, 2 for Gaussian noise. Refuses a matrix that leaves queries undetermined, and names them.
    """
    if entries.ndim != 2 or entries.shape[1] != workload.size or not entries.any():
        raise Refusal(f"the strategy's matrix must have {workload.size} columns and an entry that is not 0")
    if workload.size > LARGEST_DENSE:
        raise Refusal(
            f"a strategy's matrix may have at most {LARGEST_DENSE} columns", accepted="strategy = 'hierarchy'"
        )
    missed = unanswerable(workload, entries)
    if len(missed):
        named = ", ".join(f"[{workload.starts[q]}, {workload.stops[q]})" for q in missed[:3])
        dots = ", .." if len(missed) > 3 else ""
        raise Refusal(
            f"the strategy's rows do not determine {len(missed)} of the {workload.queries} intervals: {named}{dots}",
            accepted="a matrix whose rows span every interval asked",
        )
    found = [_with_groups(workload, [entries], np.ones(1))]
    groups = greedy_groups(entries)
    if 1 < len(groups) <= MOST_GROUPS:
        blocks = [entries[list(group.rows)] for group in groups]
        norms = np.array([group.norm**norm for group in groups], dtype=np.float64)
        found.append(_with_groups(workload, blocks, _shares(workload, blocks, norms, norm)))
    return min(found, key=lambda strategy: strategy.unit_total(norm))


def unanswerable(workload: RangeWorkload, entries: IntegerArray) -> NDArray[np.intp]:
    """Returns the queries outside the row space of the matrix."""
    _, singular, rows = np.linalg.svd(entries.astype(np.float64), full_matrices=True)
    rank = int((singular > NULL * singular.max()).sum())
    outside = workload.answers(rows[rank:].T)
    missed: NDArray[np.intp] = np.flatnonzero((outside**2).sum(axis=1) > MISSED**2)
    return missed


def _with_groups(workload: RangeWorkload, blocks: list[IntegerArray], shares: FloatArray) -> RangeStrategy:
    boundaries = np.arange(workload.size + 1)
    factors = tuple(MatrixFactor(np.ascontiguousarray(block)) for block in blocks)
    groups = tuple(range(len(blocks)))
    return RangeStrategy("matrix", workload, workload, boundaries, factors, shares, None, groups)


def _shares(workload: RangeWorkload, blocks: list[IntegerArray], norms: FloatArray, norm: int) -> FloatArray:
    """Returns closed-form shares for the recovery weights of unweighted least squares.

    norms: C_r or C_r^2. Laplace: eta proportional to (s/C)^(1/3), share C eta; Gaussian: share C^2 eta^2 = C s^(1/2).
    """
    inverse = np.linalg.pinv(np.vstack(blocks).astype(np.float64), rcond=NULL)
    recovery = (inverse * workload.times_gram(inverse.T).T).sum(axis=0)
    edges = np.cumsum([0, *(len(block) for block in blocks)])
    weights = np.maximum(np.add.reduceat(recovery, edges[:-1]), 1e-9 * recovery.sum())
    raised = norms ** (2 / 3) * weights ** (1 / 3) if norm == 1 else np.sqrt(norms * weights)
    shares: FloatArray = raised / raised.sum()
    return shares


# Groups of rows of an arbitrary strategy matrix (Cormode et al., Definition 3.1 and the greedy grouping after
# it).


@dataclass(frozen=True)
class Group:
    """Rows with disjoint supports. norm: C_r, their largest absolute entry.

    exact: every column has an entry of absolute value C_r in some row, as Definition 3.1 wants.
    """

    rows: tuple[int, ...]
    norm: int
    exact: bool


def greedy_groups(matrix: IntegerArray) -> tuple[Group, ...]:
    """Returns each row joins the first group of its absolute value whose rows' supports it does not meet.

    With all groups exact the closed-form budgets are optimal; else they are safe (the norm of every group is paid in
    full in every column) and the convex program may do better. Rows of zeros ask nothing and join no group.

    >>> [group.rows for group in greedy_groups(np.array([[1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]]))]
    [(0,), (1, 2, 3)]
    """
    magnitudes = np.abs(matrix)
    supports = magnitudes > 0
    largest = magnitudes.max(axis=1, initial=0)
    rows: list[list[int]] = []
    norms: list[int] = []
    covered: list[NDArray[np.bool_]] = []
    for row in np.flatnonzero(largest > 0).tolist():
        norm = int(largest[row])
        fitting = (
            number
            for number, taken in enumerate(covered)
            if norms[number] == norm and not (taken & supports[row]).any()
        )
        joined = next(fitting, None)
        if joined is None:
            rows.append([row])
            norms.append(norm)
            covered.append(supports[row])
        else:
            rows[joined].append(row)
            covered[joined] = covered[joined] | supports[row]
    return tuple(
        Group(tuple(members), norm, bool((magnitudes[members].max(axis=0) == norm).all()))
        for members, norm in zip(rows, norms, strict=True)
    )


TIE = 1e-6
"""Predicted errors this close are equal: the simpler candidate wins."""


@dataclass(frozen=True, eq=False)
class RangePlan:
    """The measurements for one range workload and the predicted variance of every query after recovery.

    measurements: one for each group of `groups`, in order. variances: shape (queries,), with the true discrete noise.
    """

    groups: RangeStrategy
    noise: NoiseKind
    measurements: tuple[Measurement, ...]
    variances: FloatArray

    @property
    def strategy(self) -> str:
        return self.groups.name

    @property
    def workload(self) -> RangeWorkload:
        return self.groups.workload

    @property
    def note(self) -> str:
        return self.groups.note

    @property
    def noise_variances(self) -> tuple[float, ...]:
        """Returns one per measurement, in the integer units of its query."""
        return tuple(noise_variance(self.noise, measurement.parameter) for measurement in self.measurements)

    @property
    def total_variance(self) -> float:
        """Returns the sum over all queries, by weight."""
        return float(self.workload.weights @ self.variances)

    @property
    def worst_stderr(self) -> float:
        """Returns largest predicted standard error of a query."""
        return float(self.variances.max() ** 0.5)


def plan_matrix(
    workload: RangeWorkload, entries: NDArray[np.int64], noise: NoiseKind, amount: Fraction, unit_bound: int
) -> RangePlan:
    """Returns the plan for a user's own integer strategy, shape (rows, n); refuses one that cannot answer the
    workload.
    """
    with one_thread():
        strategy = matrix_strategy(workload, entries, norm_of(noise))
        return plan_strategy(strategy, noise, Fraction(amount), unit_bound)


def norm_of(noise: NoiseKind) -> int:
    """Returns the norm that the noise is calibrated to."""
    return 1 if noise is NoiseKind.LAPLACE else 2


def plan_strategy(groups: RangeStrategy, noise: NoiseKind, amount: Fraction, unit_bound: int) -> RangePlan:
    """Returns exact parameters that cost at most `amount`, and the errors that they lead to."""
    norm = norm_of(noise)
    wanted = groups.unit_parameters(norm) / float(amount if norm == 1 else 2 * amount)
    parameters = safe_parameters(noise, wanted, groups.norms(norm), amount, unit_bound)
    attributes = (groups.workload.attribute,)
    measurements = tuple(
        Measurement(KroneckerQuery(attributes, (factor,)), parameter)
        for factor, parameter in zip(groups.factors, parameters, strict=True)
    )
    variances = groups.variances([noise_variance(noise, parameter) for parameter in parameters])
    return RangePlan(groups, noise, measurements, variances)


# Products of range workloads over several attributes, answered by Kronecker products of one-dimensional
# strategies.
#
# Every combination of groups, one per attribute, is one measurement; its unit parameter is the product of the
# attributes' unit parameters, so privacy costs multiply to 1, and covariances multiply: Var(q_1 x .. x q_d) =
# prod Var(q_i).


LARGEST_NORM_BITS = 21
"""Norms of a product's columns multiply and must leave room for 2^40 rows in 64 bits."""


@dataclass(frozen=True, eq=False)
class ProductPlan:
    """One strategy per attribute and the measurements of their Kronecker product.

    measurements: in the order of `choices`. scale: what the unit variances' product is to be multiplied by; an upper
    bound of the discrete noise's variance, which is what recovery weights and predictions use.
    """

    strategies: tuple[RangeStrategy, ...]
    noise: NoiseKind
    measurements: tuple[Measurement, ...]
    scale: float

    @property
    def strategy(self) -> str:
        return " x ".join(strategy.name for strategy in self.strategies)

    @property
    def choices(self) -> tuple[tuple[int, ...], ...]:
        """Returns every combination of groups, one index per attribute."""
        return tuple(product(*(range(len(strategy.factors)) for strategy in self.strategies)))

    @property
    def unit_variances(self) -> tuple[FloatArray, ...]:
        """Per attribute, one factor of the noise variance per group."""
        return tuple(_unit_variances(strategy, self.noise) for strategy in self.strategies)

    @cached_property
    def attribute_variances(self) -> tuple[FloatArray, ...]:
        """Per attribute, the variance of each of its queries for the unit variances; products of these times scale."""
        pairs = zip(self.strategies, self.unit_variances, strict=True)
        return tuple(strategy.variances(units) for strategy, units in pairs)

    def variances(self) -> FloatArray:
        """Predicts the variance of every answer, one axis per attribute."""
        return self.scale * reduce(np.multiply.outer, self.attribute_variances, np.ones(()))

    @property
    def total_variance(self) -> float:
        """Returns the sum over all answers, by the product of the weights."""
        pairs = zip(self.strategies, self.attribute_variances, strict=True)
        return self.scale * prod(float(strategy.workload.weights @ variances) for strategy, variances in pairs)

    @property
    def worst_stderr(self) -> float:
        """Returns largest predicted standard error of an answer."""
        return float((self.scale * prod(float(variances.max()) for variances in self.attribute_variances)) ** 0.5)


def combine(strategies: Sequence[RangeStrategy], noise: NoiseKind, amount: Fraction, unit_bound: int) -> ProductPlan:
    """Returns the Kronecker product of these strategies within the budget."""
    norm = norm_of(noise)
    attributes = tuple(strategy.workload.attribute for strategy in strategies)
    units = reduce(np.multiply.outer, [strategy.unit_parameters(norm) for strategy in strategies], np.ones(())).ravel()
    queries = [
        KroneckerQuery(attributes, factors) for factors in product(*(strategy.factors for strategy in strategies))
    ]
    norms = [query.norms[norm - 1] for query in queries]
    wanted = units / float(amount if norm == 1 else 2 * amount)
    parameters = safe_parameters(noise, wanted, norms, amount, unit_bound)
    measurements = tuple(Measurement(query, parameter) for query, parameter in zip(queries, parameters, strict=True))
    # Laplace: 2 b^2, Gaussian: sigma^2, by the largest rounding of a parameter
    roundings = [float(parameter) / float(unit) for parameter, unit in zip(parameters, units, strict=True)]
    scale = 2 * max(roundings) ** 2 if norm == 1 else max(roundings)
    return ProductPlan(tuple(strategies), noise, measurements, scale)


def _unit_variances(strategy: RangeStrategy, noise: NoiseKind) -> FloatArray:
    """Laplace: the square of the unit parameter; Gaussian: the unit parameter."""
    parameters = strategy.unit_parameters(norm_of(noise))
    squared: FloatArray = parameters**2 if noise is NoiseKind.LAPLACE else parameters
    return squared
