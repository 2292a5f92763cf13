"""Plans grouping sets with interval queries: jointly, or each set apart by a product of strategies.

Let V_r be the total weighted variance of set r at a budget of 1. Under Laplace noise sum V_r / epsilon_r^2 is least for
epsilon_r proportional to V_r^(1/3). Under Gaussian noise sum V_r / rho_r is least for rho_r proportional to V_r^(1/2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import chain
from math import prod
from time import perf_counter

import numpy as np
import scipy
from numpy.typing import NDArray

from dpduck.algebra.cells import CellWorkload
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.algebra.ranges import RangeShape, RangeWorkload
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.plan import Plan, PlanPart, plan_of_parts
from dpduck.strategies.ranges.candidates import BITS, RangeProblem, build_strategies
from dpduck.strategies.ranges.gaussian_optimum import optimise_gaussian
from dpduck.strategies.ranges.normal_matrix import cholesky_factor
from dpduck.strategies.ranges.own import plan_own
from dpduck.strategies.ranges.product import LARGEST_NORM_BITS, TIE, combine, norm_of
from dpduck.strategies.ranges.strategy import RangeStrategy
from dpduck.strategies.ranges.together import (
    FEWEST_BITS,
    ROUNDS,
    Centred,
    centre_rows,
    fits,
    plain,
    plan_product,
    plan_residuals,
)
from dpduck.strategies.threads import one_thread
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import Refusal

Choice = Mapping[int, RangeStrategy]
Found = Mapping[int, Mapping[str, tuple[RangeStrategy, float]]]

SHARES = 1 << 24
"""Parts of the budget are multiples of 1/SHARES."""

SPARE_BITS = 8
"""The bound on one row may have this many bits for free. Sums then leave room for 2^32 rows in place of 2^40."""

MOST_SETS = 1000
"""Most grouping sets with ranges in one statement."""


@dataclass(frozen=True, eq=False)
class RangeSetsProblem:
    """Planning problem of grouping sets with ranges.

    attributes: interval queries of each used attribute, by domain position. seconds: time limit for each strategy that
    is built. bits: most bits of the entries of a strategy. largest_bits: most bits of the entries of a product.
    """

    attributes: Mapping[int, RangeWorkload]
    workload: MarginalWorkload
    noise: NoiseKind
    amount: Fraction
    unit_bound: int
    strategy: str
    budgets: str
    seconds: float
    bits: int
    largest_bits: int

    @property
    def norm(self) -> int:
        return norm_of(self.noise)

    @property
    def range_attributes(self) -> list[int]:
        """Returns the attributes with queries for more than single values."""
        return [key for key, workload in self.attributes.items() if workload.shape is not RangeShape.IDENTITY]

    def problem(self, attribute: int) -> RangeProblem:
        return self.of(self.attributes[attribute])

    def of(self, workload: RangeWorkload) -> RangeProblem:
        """Returns the planning problem of any interval queries over one attribute."""
        return RangeProblem(workload, self.norm, self.seconds, self.bits, self.budgets == "uniform")


def _build_problem(
    attributes: Sequence[RangeWorkload],
    workload: MarginalWorkload,
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    strategy: str,
    budgets: str,
    planning_seconds: float,
    row_bound: int,
) -> RangeSetsProblem:
    used = sorted({attribute for marginal in workload.marginals for attribute in marginal})
    own = {attribute: attributes[attribute].on(attribute) for attribute in used}
    ranged = [attribute for attribute in used if own[attribute].shape is not RangeShape.IDENTITY]
    together = max(sum(attribute in ranged for attribute in marginal) for marginal in workload.marginals)
    largest = max(1, LARGEST_NORM_BITS - max(0, row_bound.bit_length() - SPARE_BITS))
    builds = len(ranged) + (ROUNDS * len(used) + len(ranged) if len(workload.marginals) > 1 else 0)
    seconds, bits = planning_seconds / max(1, builds), min(BITS, largest // max(1, together))
    return RangeSetsProblem(own, workload, noise, amount, unit_bound, strategy, budgets, seconds, bits, largest)


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
    *,
    apart: bool = False,
) -> tuple[Plan, ...]:
    """Returns the plans of all candidates: the chosen plan first, the others by predicted total variance.

    attributes: the queries of every attribute, single values for a plain key. strategy: the strategy of every attribute
    with ranges.
    budgets: shares of the price by set and by tree level, 'optimal' or 'uniform'. row_bound: the most that one row adds
    to a cell. A larger bound leaves fewer bits for weights. apart: whether each set must have separate measurements.
    """
    if len(workload.marginals) > MOST_SETS:
        raise Refusal(
            f"{len(workload.marginals)} grouping sets with PREFIXES or RANGES", accepted=f"at most {MOST_SETS}"
        )
    asked = _build_problem(
        attributes, workload, noise, amount, unit_bound, strategy, budgets, planning_seconds, row_bound
    )
    with one_thread():
        candidates = {
            attribute: _build_by_name(asked.problem(attribute), strategy) for attribute in asked.range_attributes
        }
        plans = [_plan(asked, choice, seconds) for choice, seconds in _choices(candidates, asked.norm)]
        if len(workload.marginals) > 1 and not apart:
            plans += _joint_plans(asked, candidates)
    plans = [plan for plan in plans if np.isfinite(plan.total_variance)] or plans[:1]
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
) -> tuple[Plan, ...]:
    """Returns the only plan for an analyst's rows, in a tuple. entries: shape (rows, cells), in row-major order."""
    begin = perf_counter()
    bits = max(1, LARGEST_NORM_BITS - max(0, row_bound.bit_length() - SPARE_BITS))
    cells = CellWorkload(tuple(attributes), workload.marginals, workload.weights)
    part = plan_own(cells, entries, noise, amount, unit_bound, budgets, planning_seconds, bits)
    return (plan_of_parts("matrix", noise, workload, [part], part.note, perf_counter() - begin),)


def _build_by_name(problem: RangeProblem, strategy: str) -> dict[str, tuple[RangeStrategy, float]]:
    """Returns the strategies for a name or 'auto', by their own names, each with its building time."""
    built, begin = {}, perf_counter()
    for candidate in build_strategies(problem, strategy):
        built[candidate.name] = (candidate, perf_counter() - begin)
        begin = perf_counter()
    return built


def _choices(candidates: Found, norm: int) -> list[tuple[dict[int, RangeStrategy], float]]:
    """Lists choices of one strategy per attribute, with building times: one name for all, and last the best of each."""
    if not candidates:
        return [({}, 0.0)]
    first = next(iter(candidates.values()))
    choices = [
        (
            {attribute: built[name][0] for attribute, built in candidates.items()},
            sum(built[name][1] for built in candidates.values()),
        )
        for name in first
        if all(name in built for built in candidates.values())
    ]
    best = {
        attribute: min((strategy for strategy, _ in built.values()), key=lambda strategy: strategy.unit_total(norm))
        for attribute, built in candidates.items()
    }
    if len({strategy.name for strategy in best.values()}) > 1:
        choices.append((best, sum(seconds for built in candidates.values() for _, seconds in built.values())))
    return choices


def _plan(asked: RangeSetsProblem, choice: Choice, seconds: float) -> Plan:
    """Returns the plan that measures each grouping set apart. seconds: time that building the strategies took."""
    begin, workload, noise = perf_counter(), asked.workload, asked.noise
    plain = {key: own for key, own in asked.attributes.items() if key not in choice}
    chosen = {**{key: next(build_strategies(asked.of(own), "identity")) for key, own in plain.items()}, **choice}
    shares = _shares(chosen, workload, noise, asked.budgets)
    parts = [
        combine([chosen[attribute] for attribute in marginal], noise, asked.amount * share, asked.unit_bound)
        for marginal, share in zip(workload.marginals, shares, strict=True)
    ]
    names = [choice[attribute].name for attribute in asked.range_attributes]
    notes = [choice[attribute].note for attribute in asked.range_attributes if choice[attribute].note]
    set_notes = ["every grouping set is measured by itself"] if len(parts) > 1 else []
    name = names[0] if len(set(names)) == 1 else " x ".join(names) or "identity"
    note = "; ".join([*set_notes, *notes])
    return plan_of_parts(name, noise, workload, parts, note, seconds + perf_counter() - begin)


def _joint_plans(asked: RangeSetsProblem, candidates: Found) -> Iterator[Plan]:
    """Yields plans with joint measurements for all sets. Residuals never win under L1, so Laplace plans have none."""

    def of_all_sets(name: str, part: PlanPart, note: str) -> Plan:
        note += " all grouping sets, so that they agree"
        return plan_of_parts(name, asked.noise, asked.workload, [part], note, perf_counter() - begin)

    begin = perf_counter()
    builds = {key: partial(_best, asked, _names(asked, candidates.get(key))) for key in asked.attributes}
    problem = asked.attributes, asked.workload, asked.noise, asked.amount, asked.unit_bound
    product = plan_product(builds, *problem)
    if product is not None and fits(product.measurements, asked.largest_bits):
        ranged = dict.fromkeys(strategy.name for strategy in product.strategies if strategy.name != "identity")
        name, note = " x ".join([*(ranged or ["identity"]), "totals"]), "one product of strategies answers"
        yield of_all_sets(name, product, note)
    begin = perf_counter()
    if asked.norm == 1:
        return
    residuals = plan_residuals(partial(_best_residuals, asked, candidates), *problem, asked.budgets, asked.largest_bits)
    if residuals is not None and fits(residuals.measurements, asked.largest_bits):
        yield of_all_sets("residuals", residuals, f"the residuals of {len(residuals.subsets)} subsets answer")


def _names(asked: RangeSetsProblem, built: Mapping[str, tuple[RangeStrategy, float]] | None) -> Sequence[str]:
    if built is None:
        return ("auto",)
    if asked.strategy != "auto":
        return (asked.strategy,)
    return list(dict.fromkeys(["identity", min(built, key=lambda name: built[name][0].unit_total(asked.norm))]))


def _best(asked: RangeSetsProblem, names: Sequence[str], workload: RangeWorkload) -> RangeStrategy:
    """Returns the best strategy with one of these names that determines every value, else the identity."""
    bits = min(BITS, asked.largest_bits // len(asked.attributes))
    problem = replace(asked.of(workload), bits=bits, least_bits=FEWEST_BITS)
    built = chain.from_iterable(_strategies_of(problem, name) for name in names)
    return min(filter(_tells_all, built), key=lambda option: option.unit_total(asked.norm), default=_singles(problem))


def _strategies_of(problem: RangeProblem, name: str) -> Iterator[RangeStrategy]:
    """Yields the strategies with a name. Real entries need enough bits: otherwise such strategies are left out."""
    if name in ("auto", "identity", "hierarchy", "haar") or name.startswith("hierarchy_") or problem.dense:
        yield from build_strategies(problem, name)


def _singles(problem: RangeProblem) -> RangeStrategy:
    return next(build_strategies(problem, "identity"))


def _tells_all(strategy: RangeStrategy) -> bool:
    """Tells whether a strategy's rows determine every value. Rounding may have lost rows of little weight."""
    if strategy.structure is not None:
        return True
    dense = [_dense(matrix) for matrix in strategy.bucket_matrices]
    return cholesky_factor(sum((matrix.T @ matrix for matrix in dense[1:]), dense[0].T @ dense[0])) is not None


def _best_residuals(asked: RangeSetsProblem, candidates: Found, attribute: int, bits: int) -> Centred | None:
    """Returns an attribute's best residual matrix, made from its strategies or from the optimum for centred queries."""
    workload = asked.attributes[attribute]
    if workload.size == 1:
        return plain(workload)
    rows = [_rows(strategy) for strategy, _ in candidates[attribute].values()]
    if asked.strategy in ("auto", "gaussian_optimum"):
        centring = np.eye(workload.size) - 1 / workload.size
        gram = centring @ workload.gram @ centring
        rows.append(optimise_gaussian(gram + np.trace(gram) / workload.size**2, asked.seconds).matrix)
    choices = [
        residuals for residuals in (centre_rows(workload, matrix, bits) for matrix in rows) if residuals is not None
    ]
    return min(choices, key=lambda residuals: residuals.total, default=None)


def _rows(strategy: RangeStrategy) -> FloatArray:
    """Returns a strategy's rows over its buckets, weighted by their budgets, shape (rows, buckets)."""
    weights = np.sqrt(strategy.shares / np.array(strategy.norms(2), dtype=np.float64))
    pairs = zip(strategy.bucket_matrices, weights.tolist(), strict=True)
    return np.concatenate([_dense(matrix) * weight for matrix, weight in pairs])


def _dense(matrix: FloatArray | scipy.sparse.csr_array) -> FloatArray:
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()


def _shares(choice: Choice, workload: MarginalWorkload, noise: NoiseKind, budgets: str) -> list[Fraction]:
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
