"""Joint plans of all grouping sets with ranges: one least-squares fit answers all sets, so that they agree.

A product has one strategy for each attribute and serves whole cubes. Residuals are the part of a set's marginal that
smaller sets do not determine (Xiao, He, Wang, Zhang, Kifer, ResidualPlanner+, 2023). They serve small sets of many
attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, reduce
from math import log2, prod

import numpy as np
import scipy

from dpduck.algebra.lattice import close_downward
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.algebra.ranges import RangeShape, RangeWorkload
from dpduck.kernel.noise.law import NoiseKind, noise_variance
from dpduck.kernel.queries.operators import CentredFactor, Factor, KroneckerQuery, MatrixFactor
from dpduck.strategies.budgets import safe_parameters
from dpduck.strategies.measurements import Measurement
from dpduck.strategies.ranges.hierarchy import LARGEST_DENSE
from dpduck.strategies.ranges.product import LARGEST_NORM_BITS, RangeProduct, combine, norm_of
from dpduck.strategies.ranges.strategy import RangeStrategy
from dpduck.values.arrays import FloatArray, IntegerArray

ROUNDS = 2
"""Each attribute's strategy is planned this many times, for the last strategies of the other attributes."""

MOST_ANSWERS = 1_000_000
"""Most answers of a product if no grouping set has all its attributes."""

MOST_SUBSETS = 2000
"""Residuals are planned if all grouping sets together have at most this many subsets."""

FEWEST_BITS = 6
"""Fewest bits of the entries of a residual matrix."""

SHORTER = 1 - 1 / 32
"""Columns are scaled to this part of the largest allowed length, because rounding may lengthen them."""

LEAST_SHARE = 1e-9
LEAST_WEIGHT = 1e-6
"""Least weight of queries relative to a total, and of a total relative to queries. Both must always be answered."""

Builds = Callable[[RangeWorkload], RangeStrategy]


def plan_product(
    builds: Mapping[int, Builds],
    attributes: Mapping[int, RangeWorkload],
    workload: MarginalWorkload,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
) -> RangeProduct | None:
    """Returns a product that answers all sets. Returns None if there is no attribute, or if the product is too large.

    builds: functions that build an attribute's strategy, for the attribute's queries and for its total, which other
    sets ask for. Variances multiply over attributes. So the strategies of other attributes decide the weights of the
    queries and of the total.
    """
    used = tuple(sorted(attributes))
    if not used:
        return None
    few = prod(ranges.queries + 1 for ranges in attributes.values()) <= MOST_ANSWERS
    if not (few or used in workload.marginals) or max(ranges.size for ranges in attributes.values()) > LARGEST_DENSE:
        return None
    norm = norm_of(noise)
    totals = {attribute: (float(attributes[attribute].queries), 1.0) for attribute in used}
    strategies: dict[int, RangeStrategy] = {}
    for _ in range(ROUNDS):
        for attribute in used:
            weighted = with_total(attributes[attribute], *_weights(attribute, totals, workload))
            strategy = strategies[attribute] = builds[attribute](weighted)
            parameters = strategy.unit_parameters(norm)
            variances = strategy.variances(parameters**2 if norm == 1 else parameters)
            totals[attribute] = float(variances[:-1].sum()), float(variances[-1])
    places = [
        tuple(slice(0, -1) if attribute in marginal else -1 for attribute in used) for marginal in workload.marginals
    ]
    return combine([strategies[attribute] for attribute in used], noise, amount, unit_bound, places)


def fits(measurements: Sequence[Measurement], largest_bits: int) -> bool:
    """Tells whether all queries leave room for rows in 64 bits, as kernel/queries/tables.py requires."""
    return all(
        prod(factor.norms[1] for factor in measurement.query.factors) <= 1 << 2 * largest_bits
        for measurement in measurements
    )


def with_total(workload: RangeWorkload, own: float, total: float) -> RangeWorkload:
    """Returns an attribute's queries with the weight `own`, and last the sum of all values with the weight `total`.

    >>> from dpduck.algebra.ranges import identity
    >>> with_total(identity(2), 1.0, 3.0).matrix().tolist()
    [[1, 0], [0, 1], [1, 1]]
    """
    starts, stops = np.append(workload.starts, 0), np.append(workload.stops, workload.size)
    largest = max(own, total)
    own, total = (weight / largest if 0 < largest < np.inf else 1.0 for weight in (own, total))
    weights = np.append(workload.weights * max(own, LEAST_WEIGHT), max(total, LEAST_WEIGHT))
    return replace(workload, starts=starts, stops=stops, weights=weights, shape=RangeShape.LIST)


def _weights(
    attribute: int, totals: Mapping[int, tuple[float, float]], workload: MarginalWorkload
) -> tuple[float, float]:
    """Returns the weights of an attribute's queries and of its total. totals: variances of both, for each attribute."""
    own = total = 0.0
    for marginal, weight in zip(workload.marginals, workload.weights, strict=True):
        others = prod(pair[0 if other in marginal else 1] for other, pair in totals.items() if other != attribute)
        if attribute in marginal:
            own += weight * others
        else:
            total += weight * others
    return own, total


@dataclass(frozen=True, eq=False)
class Centred:
    """Residual matrix of one attribute: each row adds up to 0. The rows determine the values except for the total.

    inverse: from the rows' answers to values with sum 0, shape (n, rows). None: 1/n, the inverse of a CentredFactor.
    variances: of each query on those values, if each row's noise has variance 1.
    """

    workload: RangeWorkload
    factor: Factor
    inverse: FloatArray | None
    variances: FloatArray

    @cached_property
    def means(self) -> FloatArray:
        return self.workload.answers(np.full(self.workload.size, 1 / self.workload.size))

    @cached_property
    def total(self) -> float:
        """Returns the weighted variance of all queries under Gaussian noise at a budget of 1, for comparisons."""
        return float(self.workload.weights @ self.variances) * self.factor.norms[1]


@dataclass(frozen=True, eq=False)
class Residuals:
    """Measurements of the residuals of every subset of the grouping sets, each with a separate noise variance."""

    workload: MarginalWorkload
    attributes: Mapping[int, Centred]
    subsets: tuple[tuple[int, ...], ...]
    measurements: tuple[Measurement, ...]
    noise_variances: tuple[float, ...]

    @cached_property
    def variances(self) -> tuple[FloatArray, ...]:
        return tuple(self._variances(marginal) for marginal in self.workload.marginals)

    def _variances(self, marginal: tuple[int, ...]) -> FloatArray:
        set_variances = np.zeros(tuple(self.attributes[attribute].workload.queries for attribute in marginal))
        for subset, variance in zip(self.subsets, self.noise_variances, strict=True):
            if set(subset) <= set(marginal):
                parts = [
                    self.attributes[attribute].variances
                    if attribute in subset
                    else self.attributes[attribute].means ** 2
                    for attribute in marginal
                ]
                set_variances += variance * reduce(np.multiply.outer, parts, np.ones(()))
        return set_variances

    def recover(self, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
        estimates = {
            subset: self._estimate_residuals(subset, np.asarray(rows, dtype=np.float64))
            for subset, rows in zip(self.subsets, noisy, strict=True)
        }
        return tuple(self._answers(marginal, estimates) for marginal in self.workload.marginals)

    def _estimate_residuals(self, subset: Sequence[int], rows: FloatArray) -> FloatArray:
        """Returns the residual of each cell of a subset's marginal. rows: noisy answers of the residual matrices."""
        for axis, attribute in enumerate(subset):
            matrix = self.attributes[attribute]
            if matrix.inverse is None:
                rows = (rows - rows.mean(axis=axis, keepdims=True)) / matrix.workload.size
            else:
                rows = np.moveaxis(np.tensordot(matrix.inverse, rows, axes=(1, axis)), 0, axis)
        return rows

    def _answers(self, marginal: tuple[int, ...], estimates: Mapping[tuple[int, ...], FloatArray]) -> FloatArray:
        sizes = {attribute: self.attributes[attribute].workload.size for attribute in marginal}
        table = np.zeros(tuple(sizes.values()))
        for subset, residuals in estimates.items():
            if set(subset) <= set(marginal):
                shape = [size if attribute in subset else 1 for attribute, size in sizes.items()]
                spread = prod(size for attribute, size in sizes.items() if attribute not in subset)
                table += residuals.reshape(shape) / spread
        for axis, attribute in enumerate(marginal):
            answers = self.attributes[attribute].workload.answers(np.moveaxis(table, axis, 0))
            table = np.moveaxis(answers, 0, axis)
        return table


def plan_residuals(
    matrices: Callable[[int, int], Centred | None],
    attributes: Mapping[int, RangeWorkload],
    workload: MarginalWorkload,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    budgets: str = "optimal",
    largest_bits: int = LARGEST_NORM_BITS,
) -> Residuals | None:
    """Returns residuals under Gaussian noise, or None if they are too large or a residual matrix is missing."""
    if sum(2 ** len(marginal) for marginal in workload.marginals) > MOST_SUBSETS:
        return None
    ranged = {attribute for attribute, axis in attributes.items() if axis.shape is not RangeShape.IDENTITY}
    bits = min(_bits(marginal, ranged, attributes, largest_bits) for marginal in workload.marginals)
    if bits < FEWEST_BITS or max((attributes[axis].size for axis in ranged), default=1) > LARGEST_DENSE:
        return None
    residuals: dict[int, Centred] = {}
    for attribute, axis in attributes.items():
        centred = matrices(attribute, bits) if attribute in ranged else plain(axis)
        if centred is None:
            return None
        residuals[attribute] = centred
    subsets = tuple(
        subset
        for subset in close_downward(workload.marginals, workload.sizes).sets
        if all(attributes[attribute].size > 1 for attribute in subset)
    )
    queries = [KroneckerQuery(subset, tuple(residuals[attribute].factor for attribute in subset)) for subset in subsets]
    norms = [query.norms[1] for query in queries]
    wanted = np.array(norms, dtype=np.float64) / _shares(residuals, workload, subsets, budgets) / float(2 * amount)
    parameters = safe_parameters(noise, wanted, norms, amount, unit_bound)
    measurements = tuple(Measurement(query, parameter) for query, parameter in zip(queries, parameters, strict=True))
    variances = tuple(noise_variance(noise, parameter) for parameter in parameters)
    return Residuals(workload, residuals, subsets, measurements, variances)


def _bits(marginal: Sequence[int], ranged: set[int], attributes: Mapping[int, RangeWorkload], largest: int) -> int:
    """Returns the bits of entries in a set's residual matrices, so that products of entries have `largest` bits."""
    own = [attribute for attribute in marginal if attribute in ranged]
    left = largest - sum(log2(attributes[attribute].size) for attribute in marginal if attribute not in ranged)
    return int(left // len(own)) if own else (largest if left >= 0 else 0)


def _shares(
    matrices: Mapping[int, Centred],
    workload: MarginalWorkload,
    subsets: Sequence[tuple[int, ...]],
    budgets: str,
) -> FloatArray:
    """Returns each subset's share of the budget: equal, or by the root of its part in the weighted variance."""
    if budgets == "uniform":
        return np.full(len(subsets), 1 / len(subsets))
    worth = np.zeros(len(subsets))
    own = {attribute: axis.total for attribute, axis in matrices.items()}
    spread = {attribute: float(axis.workload.weights @ axis.means**2) for attribute, axis in matrices.items()}
    for number, subset in enumerate(subsets):
        for marginal, weight in zip(workload.marginals, workload.weights, strict=True):
            if set(subset) <= set(marginal):
                parts = [own[axis] if axis in subset else spread[axis] for axis in marginal]
                worth[number] += weight * prod(parts)
    raised = np.sqrt(worth)
    raised = np.maximum(raised / raised.sum(), LEAST_SHARE)
    shares: FloatArray = raised / raised.sum()
    return shares


def plain(workload: RangeWorkload) -> Centred:
    """Returns the residual matrix n I - 11' for queries of single values."""
    size = workload.size
    variances = np.full(workload.queries, (1 - 1 / size) / size**2)
    return Centred(workload, CentredFactor(size), None, variances)


def centre_rows(workload: RangeWorkload, rows: FloatArray, bits: int) -> Centred | None:
    """Returns an integer residual matrix from a strategy's rows, or None if these do not determine all values."""
    size = workload.size
    wanted = rows - rows.mean(axis=1, keepdims=True)
    longest = np.sqrt((wanted * wanted).sum(axis=0).max())
    entries = whole_residuals(wanted / longest * SHORTER, bits)
    entries = entries[np.any(entries != 0, axis=1)]
    square = entries.T.astype(np.float64) @ entries
    level = float(np.trace(square)) / size
    try:
        factor = scipy.linalg.cho_factor(square + level / size)
    except scipy.linalg.LinAlgError:
        return None
    if np.abs(np.diag(factor[0])).min() ** 2 < 1e-9 * level:
        return None
    covariance = scipy.linalg.cho_solve(factor, np.eye(size)) - 1 / (level * size)
    inverse: FloatArray = covariance @ entries.T
    return Centred(workload, MatrixFactor(entries), inverse, workload.variances(covariance))


def whole_residuals(rows: FloatArray, bits: int) -> IntegerArray:
    """Rounds 2^bits times the rows to integers, so that each row adds up to 0.

    >>> whole_residuals(np.array([[0.7, -0.35, -0.35]]), 1).tolist()
    [[2, -1, -1]]
    """
    scaled = np.ldexp(rows, bits)
    entries = np.floor(scaled).astype(np.int64)
    order = np.argsort(entries - scaled, axis=1, kind="stable")
    missing = -entries.sum(axis=1)
    raised = np.arange(rows.shape[1]) < missing[:, None]
    np.put_along_axis(entries, order, np.take_along_axis(entries, order, axis=1) + raised, axis=1)
    return entries
