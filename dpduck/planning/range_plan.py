"""Plans for ranges over one ordered attribute: the strategies' budgets, exact spreads and predicted errors."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpduck.arrays import FloatArray
from dpduck.planning.budgets import safe_spreads
from dpduck.planning.plan import Measurement
from dpduck.strategies.matrix_strategy import matrix_strategy
from dpduck.strategies.one_thread import one_thread
from dpduck.strategies.range_candidates import RangeProblem, build_strategies
from dpduck.strategies.range_strategy import RangeStrategy
from dpduck.trusted.noise import NoiseKind, noise_variance
from dpduck.trusted.operators import KroneckerQuery
from dpduck.workload.ranges import RangeWorkload

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
