"""Plans for ranges over one ordered attribute, and products of plans, with exact parameters and predicted errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from itertools import product
from math import prod

import numpy as np

from dpduck.algebra.ranges import RangeWorkload
from dpduck.kernel.noise.law import NoiseKind, noise_variance
from dpduck.kernel.queries.operators import KroneckerQuery
from dpduck.strategies.budgets import safe_parameters
from dpduck.strategies.plan import Measurement
from dpduck.strategies.ranges.strategy import RangeStrategy
from dpduck.values.arrays import FloatArray

TIE = 1e-6
"""Predicted errors this close are equal, and the simpler candidate wins."""


@dataclass(frozen=True, eq=False)
class RangePlan:
    """Measurements for one range workload, and the predicted variance of every query after recovery.

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
        """Returns one noise variance per measurement, in the integer units of its query."""
        return tuple(noise_variance(self.noise, measurement.parameter) for measurement in self.measurements)

    @property
    def total_variance(self) -> float:
        """Returns the weighted sum of the variances of all queries."""
        return float(self.workload.weights @ self.variances)

    @property
    def worst_stderr(self) -> float:
        """Returns the largest predicted standard error of a query."""
        return float(self.variances.max() ** 0.5)


def norm_of(noise: NoiseKind) -> int:
    """Returns the norm that the noise is calibrated to."""
    return 1 if noise is NoiseKind.LAPLACE else 2


def plan_strategy(groups: RangeStrategy, noise: NoiseKind, amount: Fraction, unit_bound: int) -> RangePlan:
    """Returns the plan with exact parameters that cost at most `amount`, and its predicted errors."""
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


# Products of range workloads over several attributes. Kronecker products of one-dimensional strategies answer them.
#
# Every combination of groups, one per attribute, is one measurement. Its unit parameter is the product of the
# attributes' unit parameters, so that privacy costs multiply to 1. Covariances multiply as well: Var(q_1 x .. x q_d) =
# prod Var(q_i).


LARGEST_NORM_BITS = 21
"""Most bits of the column norms of a product. The norms multiply, and must leave room for 2^40 rows in 64 bits."""


@dataclass(frozen=True, eq=False)
class ProductPlan:
    """One strategy per attribute, and the measurements of their Kronecker product.

    measurements: in the order of `choices`. scale: factor for the product of the unit variances. The scaled product is
    an upper bound of the discrete noise's variance, for recovery weights and predictions.
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
        """Returns, for each attribute, one factor of the noise variance per group."""
        return tuple(_unit_variances(strategy, self.noise) for strategy in self.strategies)

    @cached_property
    def attribute_variances(self) -> tuple[FloatArray, ...]:
        """Returns each attribute's query variances at unit variances. An answer has their product times `scale`."""
        pairs = zip(self.strategies, self.unit_variances, strict=True)
        return tuple(strategy.variances(units) for strategy, units in pairs)

    def variances(self) -> FloatArray:
        """Predicts the variance of every answer, one axis per attribute."""
        return self.scale * reduce(np.multiply.outer, self.attribute_variances, np.ones(()))

    @property
    def total_variance(self) -> float:
        """Returns the sum of the variances of all answers, weighted by the product of the attributes' weights."""
        pairs = zip(self.strategies, self.attribute_variances, strict=True)
        return self.scale * prod(float(strategy.workload.weights @ variances) for strategy, variances in pairs)

    @property
    def worst_stderr(self) -> float:
        """Returns the largest predicted standard error of an answer."""
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
    """Returns the squares of the unit parameters for Laplace noise, the unit parameters for Gaussian noise."""
    parameters = strategy.unit_parameters(norm_of(noise))
    squared: FloatArray = parameters**2 if noise is NoiseKind.LAPLACE else parameters
    return squared
