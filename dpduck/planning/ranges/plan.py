"""Plans ranges over one ordered attribute, and products of such plans: budgets, exact spreads, predicted errors."""

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
from dpduck.planning.budgets import safe_spreads
from dpduck.planning.plan import Measurement
from dpduck.planning.ranges.candidates import BITS, RangeProblem, build_strategies
from dpduck.planning.ranges.matrix import matrix_strategy
from dpduck.planning.ranges.strategy import RangeStrategy, one_thread
from dpduck.trusted.noise.law import NoiseKind, noise_variance
from dpduck.trusted.operators import KroneckerQuery
from dpduck.values.arrays import FloatArray

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
        """One per measurement, in the integer units of its query."""
        return tuple(noise_variance(self.noise, measurement.spread) for measurement in self.measurements)

    @property
    def total_variance(self) -> float:
        """Sum over all queries, by weight."""
        return float(self.workload.weights @ self.variances)

    @property
    def worst_stderr(self) -> float:
        """Largest predicted standard error of a query."""
        return float(self.variances.max() ** 0.5)


def plan_ranges(
    workload: RangeWorkload,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    strategy: str = "auto",
    planning_seconds: float = 2.0,
) -> tuple[RangePlan, ...]:
    """Every candidate's plan, the chosen one first, then by predicted total variance.

    amount: epsilon for Laplace, rho for Gaussian. unit_bound: rows of one privacy unit that the answers see.
    strategy: 'auto' or the name of one. planning_seconds: about the time that the optimised strategy may take.
    """
    problem = RangeProblem(workload, norm_of(noise), planning_seconds)
    with one_thread():
        plans = [
            plan_strategy(built, noise, Fraction(amount), unit_bound) for built in build_strategies(problem, strategy)
        ]
    least = min(plan.total_variance for plan in plans)
    chosen = next(plan for plan in plans if plan.total_variance <= least * (1 + TIE))
    others = sorted((plan for plan in plans if plan is not chosen), key=lambda plan: plan.total_variance)
    return (chosen, *others)


def plan_matrix(
    workload: RangeWorkload, entries: NDArray[np.int64], noise: NoiseKind, amount: Fraction, unit_bound: int
) -> RangePlan:
    """The plan for a user's own integer strategy, shape (rows, n); refuses one that cannot answer the workload."""
    with one_thread():
        strategy = matrix_strategy(workload, entries, norm_of(noise))
        return plan_strategy(strategy, noise, Fraction(amount), unit_bound)


def norm_of(noise: NoiseKind) -> int:
    """The norm that the noise is calibrated to."""
    return 1 if noise is NoiseKind.LAPLACE else 2


def plan_strategy(groups: RangeStrategy, noise: NoiseKind, amount: Fraction, unit_bound: int) -> RangePlan:
    """Exact spreads that cost at most `amount`, and the errors that they lead to."""
    norm = norm_of(noise)
    wanted = groups.unit_spreads(norm) / float(amount if norm == 1 else 2 * amount)
    spreads = safe_spreads(noise, wanted, groups.norms(norm), amount, unit_bound)
    attributes = (groups.workload.attribute,)
    measurements = tuple(
        Measurement(KroneckerQuery(attributes, (factor,)), spread)
        for factor, spread in zip(groups.factors, spreads, strict=True)
    )
    variances = groups.variances([noise_variance(noise, spread) for spread in spreads])
    return RangePlan(groups, noise, measurements, variances)


# Products of range workloads over several attributes, answered by Kronecker products of one-dimensional
# strategies.
#
# Every combination of groups, one per attribute, is one measurement; its unit spread is the product of the
# attributes' unit spreads, so privacy costs multiply to 1, and covariances multiply: Var(q_1 x .. x q_d) =
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
        """Every combination of groups, one index per attribute."""
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
        """Predicted variance of every answer, one axis per attribute."""
        return self.scale * reduce(np.multiply.outer, self.attribute_variances, np.ones(()))

    @property
    def total_variance(self) -> float:
        """Sum over all answers, by the product of the weights."""
        pairs = zip(self.strategies, self.attribute_variances, strict=True)
        return self.scale * prod(float(strategy.workload.weights @ variances) for strategy, variances in pairs)

    @property
    def worst_stderr(self) -> float:
        """Largest predicted standard error of an answer."""
        return float((self.scale * prod(float(variances.max()) for variances in self.attribute_variances)) ** 0.5)


def plan_product(
    workloads: Sequence[RangeWorkload],
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    strategy: str = "auto",
    planning_seconds: float = 2.0,
) -> ProductPlan:
    """The best strategy for each attribute on its own, combined.

    workloads: one per attribute, their `attribute` increasing. amount, unit_bound, strategy: as for plan_ranges.
    """
    norm = norm_of(noise)
    chosen = []
    bits = min(BITS, LARGEST_NORM_BITS // max(1, sum(workload.reduced()[0].size > 1 for workload in workloads)))
    with one_thread():
        for workload in workloads:
            problem = RangeProblem(workload, norm, planning_seconds / len(workloads), bits)
            built = list(build_strategies(problem, strategy))
            chosen.append(min(built, key=lambda candidate: candidate.unit_total(norm)))
    return combine(chosen, noise, Fraction(amount), unit_bound)


def combine(strategies: Sequence[RangeStrategy], noise: NoiseKind, amount: Fraction, unit_bound: int) -> ProductPlan:
    """The Kronecker product of these strategies within the budget."""
    norm = norm_of(noise)
    attributes = tuple(strategy.workload.attribute for strategy in strategies)
    units = reduce(np.multiply.outer, [strategy.unit_spreads(norm) for strategy in strategies], np.ones(())).ravel()
    queries = [
        KroneckerQuery(attributes, factors) for factors in product(*(strategy.factors for strategy in strategies))
    ]
    norms = [query.norms[norm - 1] for query in queries]
    wanted = units / float(amount if norm == 1 else 2 * amount)
    spreads = safe_spreads(noise, wanted, norms, amount, unit_bound)
    measurements = tuple(Measurement(query, spread) for query, spread in zip(queries, spreads, strict=True))
    # Laplace: 2 b^2, Gaussian: sigma^2, by the largest rounding of a spread
    roundings = [float(spread) / float(unit) for spread, unit in zip(spreads, units, strict=True)]
    scale = 2 * max(roundings) ** 2 if norm == 1 else max(roundings)
    return ProductPlan(tuple(strategies), noise, measurements, scale)


def _unit_variances(strategy: RangeStrategy, noise: NoiseKind) -> FloatArray:
    """Laplace: the square of the unit spread; Gaussian: the unit spread."""
    spreads = strategy.unit_spreads(norm_of(noise))
    squared: FloatArray = spreads**2 if noise is NoiseKind.LAPLACE else spreads
    return squared
