"""Plans ranges and products of ranges one at a time, as papers compare them. Statements plan several together."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

from dpduck.algebra.ranges import RangeWorkload
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.ranges.candidates import BITS, RangeProblem, build_strategies
from dpduck.strategies.ranges.product import LARGEST_NORM_BITS, TIE, RangeProduct, combine, norm_of
from dpduck.strategies.threads import one_thread


def plan_ranges(
    workload: RangeWorkload,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    strategy: str = "auto",
    planning_seconds: float = 2.0,
) -> tuple[RangeProduct, ...]:
    """Returns every candidate's plan, the chosen one first, then by predicted total variance.

    amount: epsilon for Laplace, rho for Gaussian. unit_bound: rows of one privacy unit that the answers see.
    strategy: 'auto' or the name of a strategy. planning_seconds: about the time that the optimised strategy may take.
    """
    problem = RangeProblem(workload, norm_of(noise), planning_seconds)
    with one_thread():
        plans = [combine([built], noise, Fraction(amount), unit_bound) for built in build_strategies(problem, strategy)]
    least = min(map(total_variance, plans))
    chosen = next(plan for plan in plans if total_variance(plan) <= least * (1 + TIE))
    others = sorted((plan for plan in plans if plan is not chosen), key=total_variance)
    return (chosen, *others)


def total_variance(plan: RangeProduct) -> float:
    """The sum of the variances of all answers, weighted by the product of the attributes' weights."""
    pairs = zip(plan.strategies, plan.attribute_variances, strict=True)
    return plan.scale * prod(float(strategy.workload.weights @ variances) for strategy, variances in pairs)


def plan_product(
    workloads: Sequence[RangeWorkload],
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    strategy: str = "auto",
    planning_seconds: float = 2.0,
) -> RangeProduct:
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
