"""Grouping sets with keys over ranges: each set is a product of range workloads with its own part of the budget.

With V_r the total weighted variance of set r at a budget of 1, sum V_r / epsilon_r^2 is least for epsilon_r
proportional to V_r^(1/3) (Laplace), and sum V_r / rho_r for rho_r proportional to V_r^(1/2) (Gaussian).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.cells import CellWorkload
from dpduck.algebra.lattice import MarginalWorkload
from dpduck.algebra.ranges import RangeShape, RangeWorkload
from dpduck.planning.plan import Measurement, Plan
from dpduck.planning.ranges.candidates import BITS, RangeProblem, build_strategies
from dpduck.planning.ranges.hierarchy import one_thread
from dpduck.planning.ranges.own import OwnPlan, plan_own
from dpduck.planning.ranges.plan import (
    LARGEST_NORM_BITS,
    TIE,
    ProductPlan,
    RangePlan,
    combine,
    norm_of,
    plan_strategy,
)
from dpduck.planning.ranges.strategy import RangeStrategy
from dpduck.trusted.noise.law import NoiseKind
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import Refusal

RangePart = RangePlan | ProductPlan | OwnPlan
Choice = Mapping[int, RangeStrategy]

SHARES = 1 << 24
"""Parts of the budget are multiples of one over this."""

SPARE_BITS = 8
"""Of the bits that 2^40 rows take: sums leave room for 2^32."""

MOST_SETS = 1000
"""More grouping sets with ranges in one statement are refused."""


@dataclass(frozen=True, eq=False)
class RangeSetsPlan:
    """measured: the measurements of all parts, in order, as trusted.measure takes them.

    parts: one per grouping set, or one of all sets for a strategy of one's own.
    """

    measured: Plan
    parts: tuple[RangePart, ...]

    @property
    def strategy(self) -> str:
        return self.measured.strategy

    @property
    def noise(self) -> NoiseKind:
        return self.measured.noise

    @property
    def note(self) -> str:
        return self.measured.note

    @property
    def planning_seconds(self) -> float:
        return self.measured.planning_seconds

    @property
    def measurements(self) -> Sequence[Measurement]:
        return self.measured.measurements

    @cached_property
    def variances(self) -> tuple[FloatArray, ...]:
        """Returns the variance of every released cell, one array per grouping set, one axis per attribute."""
        return tuple(variances for part in self.parts for variances in _variances(part))

    @property
    def cells(self) -> int:
        """Returns the number of released cells."""
        return sum(variances.size for variances in self.variances)

    @property
    def total_variance(self) -> float:
        """Returns the sum over all released cells, by the weights of the sets."""
        pairs = zip(self.measured.workload.weights, self.variances, strict=True)
        return float(sum(weight * float(variances.sum()) for weight, variances in pairs))

    @property
    def worst_stderr(self) -> float:
        """Returns largest predicted standard error of a released cell."""
        return float(max(float(variances.max()) for variances in self.variances) ** 0.5)


def _variances(part: RangePart) -> tuple[FloatArray, ...]:
    if isinstance(part, OwnPlan):
        return part.variances
    return (part.variances if isinstance(part, RangePlan) else part.variances(),)


def plan_range_sets(
    attributes: Sequence[RangeWorkload],
    workload: MarginalWorkload,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    strategy: str = "auto",
    budgets: str = "optimal",
    planning_seconds: float = 2.0,
    row_bound: int = 1,
) -> tuple[RangeSetsPlan, ...]:
    """Returns every candidate's plan, the chosen one first, then by predicted total variance.

    attributes: what is asked of every attribute, identity for a plain key. strategy: that of every attribute with
    ranges. budgets: how sets share the price, 'optimal' or 'uniform'. row_bound: the most that one row adds to
    a cell, which leaves fewer bits for weights. amount: epsilon for Laplace, rho for Gaussian.
    """
    if len(workload.marginals) > MOST_SETS:
        raise Refusal(
            f"{len(workload.marginals)} grouping sets with PREFIXES or RANGES", accepted=f"at most {MOST_SETS}"
        )
    used = sorted({attribute for marginal in workload.marginals for attribute in marginal})
    ranged = [attribute for attribute in used if attributes[attribute].shape is not RangeShape.IDENTITY]
    together = max(sum(attribute in ranged for attribute in marginal) for marginal in workload.marginals)
    bits = min(BITS, max(1, LARGEST_NORM_BITS - max(0, row_bound.bit_length() - SPARE_BITS)) // max(1, together))
    seconds = planning_seconds / max(1, len(ranged))
    plans = []
    with one_thread():
        plain: dict[int, RangeStrategy] = {}
        found: dict[int, dict[str, tuple[RangeStrategy, float]]] = {}
        for attribute in used:
            problem = RangeProblem(attributes[attribute].on(attribute), norm_of(noise), seconds, bits)
            if attribute in ranged:
                found[attribute] = _built(problem, strategy)
            else:
                plain[attribute] = next(build_strategies(problem, "identity"))
        for choice, took in _choices(found, norm_of(noise)):
            plans.append(_plan({**plain, **choice}, ranged, workload, noise, amount, unit_bound, budgets, took))
    least = min(plan.total_variance for plan in plans)
    chosen = next(plan for plan in plans if plan.total_variance <= least * (1 + TIE))
    others = sorted((plan for plan in plans if plan is not chosen), key=lambda plan: plan.total_variance)
    return (chosen, *others)


def plan_own_matrix(
    attributes: Sequence[RangeWorkload],
    workload: MarginalWorkload,
    entries: NDArray[np.int64],
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    budgets: str = "optimal",
    planning_seconds: float = 2.0,
    row_bound: int = 1,
) -> tuple[RangeSetsPlan, ...]:
    """Returns the only plan for an analyst's own strategy, shape (rows, cells), the first attribute varying slowest.

    The cells are one measured attribute. The rest is as for plan_range_sets.
    """
    begin = perf_counter()
    bits = max(1, LARGEST_NORM_BITS - max(0, row_bound.bit_length() - SPARE_BITS))
    cells = CellWorkload(tuple(attributes), workload.marginals, workload.weights)
    part = plan_own(cells, entries, noise, amount, unit_bound, budgets, planning_seconds, bits)
    measured = Plan(
        "matrix", noise, workload, part.measurements, (), note=part.note, planning_seconds=perf_counter() - begin
    )
    return (RangeSetsPlan(measured, (part,)),)


def _built(problem: RangeProblem, strategy: str) -> dict[str, tuple[RangeStrategy, float]]:
    """Returns strategies by name, and how long each took."""
    built, begin = {}, perf_counter()
    for candidate in build_strategies(problem, strategy):
        built[candidate.name] = (candidate, perf_counter() - begin)
        begin = perf_counter()
    return built


def _choices(
    found: Mapping[int, Mapping[str, tuple[RangeStrategy, float]]], norm: int
) -> list[tuple[dict[int, RangeStrategy], float]]:
    """Returns one name for all attributes, for every name that can; and the best of each attribute, where names
    differ.
    """
    if not found:
        return [({}, 0.0)]
    first = next(iter(found.values()))
    choices = [
        (
            {attribute: built[name][0] for attribute, built in found.items()},
            sum(built[name][1] for built in found.values()),
        )
        for name in first
        if all(name in built for built in found.values())
    ]
    best = {
        attribute: min((strategy for strategy, _ in built.values()), key=lambda strategy: strategy.unit_total(norm))
        for attribute, built in found.items()
    }
    if len({strategy.name for strategy in best.values()}) > 1:
        choices.append((best, sum(seconds for built in found.values() for _, seconds in built.values())))
    return choices


def _plan(
    choice: Choice,
    ranged: Sequence[int],
    workload: MarginalWorkload,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    budgets: str,
    took: float,
) -> RangeSetsPlan:
    begin = perf_counter()
    parts: list[RangePart] = []
    for marginal, share in zip(workload.marginals, _shares(choice, workload, noise, budgets), strict=True):
        strategies = [choice[attribute] for attribute in marginal]
        if len(strategies) == 1:
            parts.append(plan_strategy(strategies[0], noise, amount * share, unit_bound))
        else:
            parts.append(combine(strategies, noise, amount * share, unit_bound))
    names = [choice[attribute].name for attribute in ranged]
    notes = [choice[attribute].note for attribute in ranged if choice[attribute].note]
    several = ["every grouping set is measured by itself"] if len(parts) > 1 else []
    measurements = tuple(measurement for part in parts for measurement in part.measurements)
    measured = Plan(
        names[0] if len(set(names)) == 1 else " x ".join(names) or "identity",
        noise,
        workload,
        measurements,
        (),
        note="; ".join([*several, *notes]),
        planning_seconds=took + perf_counter() - begin,
    )
    return RangeSetsPlan(measured, tuple(parts))


def _shares(choice: Choice, workload: MarginalWorkload, noise: NoiseKind, budgets: str) -> list[Fraction]:
    """Returns parts of the budget that add up to at most 1."""
    count = len(workload.marginals)
    if count == 1 or budgets == "uniform":
        return [Fraction(1, count)] * count
    norm = norm_of(noise)
    totals = {attribute: strategy.unit_total(norm) for attribute, strategy in choice.items()}
    units = np.array(
        [
            weight * prod(totals[attribute] for attribute in marginal)
            for marginal, weight in zip(workload.marginals, workload.weights, strict=True)
        ]
    )
    wanted = units ** (1 / 3 if norm == 1 else 1 / 2)
    parts = np.maximum(1, np.floor(wanted / wanted.sum() * (SHARES - count)))
    return [Fraction(int(part), SHARES) for part in parts]
