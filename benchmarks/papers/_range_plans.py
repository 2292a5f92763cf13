"""Plans ranges and products of ranges by themselves, as papers compare them; statements plan sets of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dpduck.algebra.ranges import RangeWorkload
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.ranges.candidates import BITS, RangeProblem, build_strategies
from dpduck.strategies.ranges.hierarchy import one_thread
from dpduck.strategies.ranges.plan import (
    LARGEST_NORM_BITS,
    TIE,
    ProductPlan,
    RangePlan,
    combine,
    norm_of,
    plan_strategy,
)


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
    bits = min(BITS, LARGEST_NORM_BITS // max(1, sum(workload.merge_values()[0].size > 1 for workload in workloads)))
    with one_thread():
        for workload in workloads:
            problem = RangeProblem(workload, norm, planning_seconds / len(workloads), bits)
            built = list(build_strategies(problem, strategy))
            chosen.append(min(built, key=lambda candidate: candidate.unit_total(norm)))
    return combine(chosen, noise, Fraction(amount), unit_bound)
