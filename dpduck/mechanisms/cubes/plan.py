"""Plans of requests, at their price or at the smallest price that reaches their target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import prod, sqrt

import numpy as np

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.algebra.ranges import identity, intervals
from dpduck.kernel.contributions import FULL
from dpduck.kernel.noise.law import NoiseKind
from dpduck.language.select.request import CHOICE, TREE, Question, SelectRequest, Target, Treatment
from dpduck.mechanisms.cubes.measures import (
    APART,
    Counts,
    Measure,
    Measures,
    Use,
    choose_measures,
    matrix_of,
    measure_rows,
)
from dpduck.mechanisms.cubes.quantiles import QuantileRule
from dpduck.mechanisms.cubes.weighed import measures_with_norm
from dpduck.mechanisms.released_rows import range_workload
from dpduck.strategies.budgets import kind_and_amount
from dpduck.strategies.choose import plan_workload
from dpduck.strategies.marginals.planners import plan_distinct
from dpduck.strategies.plan import Plan
from dpduck.strategies.ranges.buckets import (
    MOST_BUCKETS,
    MOST_CHOICES,
    BucketChoice,
    Buckets,
    bucket_choices,
    buckets_for,
    tree_workload,
)
from dpduck.strategies.ranges.sets import plan_own_matrix, plan_range_sets
from dpduck.strategies.recovery.options import apply_options
from dpduck.strategies.recovery.recover import recover
from dpduck.strategies.target import FINE, even_weights, price_for, raise_price
from dpduck.values.arrays import FloatArray, IntegerArray
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Charge

Plans = tuple[Plan, ...]
PlanAt = Callable[[SelectRequest], "CubePlan"]
FEW_SETS = 50

MOST_MERGED = 1 << 14
"""Most key values that a list puts into groups, if units are weighed by these groups."""

SMALLEST_PRICE = Fraction(1, 10**9)


@dataclass(frozen=True)
class UnitBounds:
    """The most that one unit adds: to all cells, to one cell, and to the sum of the squares over all cells."""

    all_cells: int
    one_cell: int
    squared: int

    @property
    def are_plain(self) -> bool:
        """Tells whether a unit may add everything to one cell."""
        return self == plain_bounds(self.all_cells)


def plain_bounds(unit_bound: int) -> UnitBounds:
    """Returns the bounds of a unit that may add everything to one cell."""
    return UnitBounds(unit_bound, unit_bound, unit_bound * unit_bound)


@dataclass(frozen=True)
class MeasurePlan:
    """Measure with its candidate plans, the chosen plan first. bounds: the most that one unit adds to the tables.

    choices: draws by the exponential mechanism for a quantile and its interval's ends. They need no tables.
    """

    measure: Measure
    bounds: UnitBounds
    plans: Plans
    choices: tuple[BucketChoice, ...] = ()

    @property
    def unit_bound(self) -> int:
        return self.bounds.all_cells

    @property
    def plan(self) -> Plan:
        return self.plans[0]


@dataclass(frozen=True)
class CubePlan:
    """Request at its price, its measures with their plans, and their use by every aggregate."""

    request: SelectRequest
    measures: tuple[MeasurePlan, ...]
    uses: tuple[Use, ...]

    @property
    def noise(self) -> NoiseKind:
        return self.measures[0].plan.noise

    @property
    def worst_stderr(self) -> float:
        """Returns the largest standard error of an answer, if all aggregates are counts."""
        if not any(measured.measure.strategy for measured in self.measures):
            return self.measures[0].plan.worst_stderr
        return max(sqrt(use.size) * self.measures[use.measure].plan.worst_stderr for use in self.uses)

    @property
    def chance(self) -> str:
        """Returns the source of randomness, for the ledger."""
        if all(measured.choices for measured in self.measures):
            return "exponential mechanism"
        return self.noise.value

    @property
    def strategy(self) -> str:
        return ", ".join(dict.fromkeys(measured.plan.strategy for measured in self.measures))


def plan_cube(request: SelectRequest) -> CubePlan:
    """Plans every measure of a request, at its price or at the smallest price that reaches its target."""
    if request.price.target is not None:
        return _plan_for_target(request, request.price.target)
    noise, amount = noise_of(request), amount_of(request)
    if request.question.treatment.evenly:
        even, _ = _even_weights(request, lambda candidate: plans_at(candidate, noise, amount))
        return _restore_weights(request, plans_at(even, noise, amount))
    return plans_at(request, noise, amount)


def with_rivals(cube: CubePlan) -> CubePlan:
    """Returns the plan with all candidates. Planning for a release leaves out candidates that must lose."""
    alone = len(set(cube.request.question.grouping_sets)) == 1
    return plans_at(cube.request, cube.noise, amount_of(cube.request), rivals=True) if alone else cube


def amount_of(request: SelectRequest) -> Fraction:
    """Returns the price: epsilon, or rho if there is no epsilon."""
    return kind_and_amount(request.price.charge)[1]


def noise_of(request: SelectRequest) -> NoiseKind:
    """Returns Gaussian noise for a price in rho, Laplace noise for a price in epsilon."""
    return kind_and_amount(request.price.charge)[0]


def measures_of(
    question: Question, noise: NoiseKind, rows: int = 1, cell_rows: int = 1, evenly: bool = False
) -> Measures:
    """Chooses the measures of a question. rows, cell_rows: the most rows of one unit, in all and in one cell."""
    if question.intervals:
        return Measures((measure_rows(""),), (Use(0, (Fraction(1),)),) * len(question.aggregates))
    treatment, unit = question.treatment, (rows, cell_rows, partial(_cells_of, question))
    if treatment.norm is not None:
        return measures_with_norm(question.aggregates, treatment)
    counts = _counts_of(question, evenly) if question.together else APART
    return choose_measures(question.aggregates, treatment.aggregate_weights, noise, rule_of(question), unit, counts)


def _counts_of(question: Question, evenly: bool) -> Counts:
    """Returns the ways in which counts of a question may be planned together.

    Options that change each answer by itself need each count measured by itself. A better strategy is searched for only
    if there is one grouping set and no range.
    """
    treatment = question.treatment
    plain = treatment.moves or treatment.integer or treatment.consistency != "l2"
    searched = len(question.grouping_sets) == 1 and not question.has_ranges
    return Counts(question.together, evenly or treatment.evenly, plain, searched)


def rule_of(question: Question) -> QuantileRule:
    """Returns the rule that decides which mechanism answers each quantile of a question."""
    treatment = question.treatment
    return QuantileRule(treatment.quantiles, treatment.quantile_intervals, sum(question.cells))


def plans_at(
    request: SelectRequest,
    noise: NoiseKind,
    amount: Fraction,
    *,
    rivals: bool = False,
    measures: Measures | None = None,
) -> CubePlan:
    """Plans every measure at an epsilon or rho for all together. rivals: also computes plans that must lose.

    With a target error or `evenly`, the first plan of each measure is the plan with the least error of its worst cell.
    """
    question = request.question
    rows, evenly = request.rows.unit_bound, request.price.target is not None
    cell_rows = request.cell_rows if request.rows.cell_key else rows
    all_measures = measures or measures_of(question, noise, rows, cell_rows, evenly)
    prices = [
        (
            measure,
            amount * measure.share / (1 if measure.strategy is None else measure.strategy.norm),
            unit_bounds(request, measure, _cells_of(question, measure)),
        )
        for measure in all_measures.measures
    ]
    different = len({(price, bound) for measure, price, bound in prices if measure.is_sum})
    seconds = float(question.treatment.planning_seconds) / max(1, different)
    plans_by_key: dict[tuple[Fraction, UnitBounds, int, str, int], Plans] = {}
    planned_measures = []
    for measure, price, bounds in prices:
        if measure.key == CHOICE:
            planned_measures.append(_plan_choice(question, measure, noise, price, bounds.all_cells))
            continue
        buckets = tree_buckets(question, measure).count if measure.key == TREE else 0
        row_bound = measure.contribution.bound if measure.strategy is None else measure.strategy.row_bound
        alike = (price, bounds, row_bound, "" if measure.is_sum else measure.key, buckets)
        if alike not in plans_by_key:
            plans_by_key[alike] = (
                _candidates(question, noise, price, bounds, row_bound, seconds, rivals)
                if measure.is_sum
                else _alone(question, measure, noise, price, bounds)
            )
        plans = plans_by_key[alike]
        if request.price.target is not None or question.treatment.evenly:
            plans = tuple(sorted(plans, key=lambda plan: plan.worst_stderr))
        planned_measures.append(MeasurePlan(measure, bounds, plans))
    return CubePlan(request, tuple(planned_measures), all_measures.uses)


def unit_bounds(request: SelectRequest, measure: Measure, cells: int) -> UnitBounds:
    """Returns the most that one unit adds to the tables of a measure over `cells` cells."""
    rows = request.rows.unit_bound
    bound = measure.unit_bound(rows, cells)
    if measure.distinct is not None:
        most = min(bound, measure.unit_bound(rows, 1))
        return UnitBounds(bound, most, bound * most)
    by_group = measure.operand is not None and bool(measure.operand.per_group)
    cell_rows = request.cell_rows if request.rows.cell_key else rows
    if not measure.is_sum or not (by_group or measure.contribution.norm or cell_rows < rows):
        return plain_bounds(bound)
    if measure.kinds is not None:  # several values of a key are one kind, in which a unit may have all its rows
        return plain_bounds(bound)
    apart = request.question.tells_keys_apart
    if measure.contribution.norm and not apart and sum(len(key.codes) for key in request.question.keys) > MOST_MERGED:
        raise Refusal(
            f"max_norm_contributed is of groups, and keys put more than {MOST_MERGED} values into them",
            accepted="GROUP BY columns that have a DOMAIN, or the statement without max_norm_contributed",
        )
    if not (apart or measure.contribution.norm):
        return plain_bounds(bound)
    one_cell = min(bound, measure.unit_bound(cell_rows, 1))
    return UnitBounds(bound, one_cell, measure.contribution.squared_bound(rows, cells, cell_rows))


def _cells_of(question: Question, measure: Measure) -> int:
    """Returns the most cells that one unit's rows fall into. Each grouping set measures distinct values by itself."""
    if measure.distinct is not None:
        return max(question.cells)
    if measure.contribution.norm and not question.tells_keys_apart:
        return prod(question.sizes)
    cells, groups = prod(source.domain.size for source in question.sources), question.treatment.groups
    return min(cells, groups) if groups else cells


def _candidates(
    question: Question,
    noise: NoiseKind,
    amount: Fraction,
    bounds: UnitBounds,
    row_bound: int,
    seconds: float,
    rivals: bool,
) -> Plans:
    """Plans a measure that adds up rows, so that marginals are sums of cells."""
    treatment, workload, unit_bound = question.treatment, _workload(question), bounds.all_cells
    if not question.has_ranges:
        return plan_workload(
            workload,
            noise,
            amount,
            unit_bound,
            strategy=treatment.strategy,
            budgets=treatment.budgets,
            consistency=treatment.consistency,
            planning_seconds=seconds,
            row_bound=row_bound,
            rivals=rivals,
            squared_bound=bounds.squared,
        )
    _require_plain(treatment)
    attributes = [range_workload(key) for key in question.keys]
    if question.matrix:
        own = partial(plan_own_matrix, attributes, workload, matrix_of(question), noise, amount, unit_bound)
        return own(budgets=treatment.budgets, planning_seconds=seconds, row_bound=row_bound)
    if question.intervals:
        attributes = [intervals(question.sources[0].domain.size, question.intervals)]
        workload = MarginalWorkload((attributes[0].size,), ((0,),), (1.0,))
    return plan_range_sets(
        attributes,
        workload,
        noise,
        amount,
        unit_bound,
        strategy=treatment.strategy,
        budgets=treatment.budgets,
        planning_seconds=seconds,
        row_bound=row_bound,
    )


def _workload(question: Question) -> MarginalWorkload:
    weights = tuple(float(weight) for weight in question.treatment.weights) or (1.0,) * len(question.grouping_sets)
    return MarginalWorkload(question.sizes, question.grouping_sets, weights)


def _alone(question: Question, measure: Measure, noise: NoiseKind, amount: Fraction, bounds: UnitBounds) -> Plans:
    """Plans a measure of each grouping set by itself: distinct values, or a tree of buckets in each cell."""
    workload = _workload(question)
    if measure.key == "distinct":
        return (plan_distinct(workload, noise, amount, bounds.all_cells, bounds.squared),)
    buckets, last = tree_buckets(question, measure), len(question.keys)
    sets = tuple((*grouping_set, last) for grouping_set in workload.marginals)
    attributes = [*(identity(size) for size in question.sizes), tree_workload(buckets.count)]
    asked = MarginalWorkload((*question.sizes, buckets.count), sets, workload.weights)
    return plan_range_sets(attributes, asked, noise, amount, bounds.all_cells, strategy="hierarchy", apart=True)


def _plan_choice(
    question: Question, measure: Measure, noise: NoiseKind, amount: Fraction, unit_bound: int
) -> MeasurePlan:
    """Plans a quantile by the exponential mechanism. The price also covers its interval's ends if it has any."""
    workload, buckets = _workload(question), tree_buckets(question, measure).count
    fraction, sets = measure.fraction or Fraction(1, 2), len(workload.marginals)
    choices = bucket_choices(fraction, buckets, noise, amount, unit_bound, sets, rule_of(question).parts)
    note = f"in 19 of 20 groups the value's rank is within {choices[0].far:.3g} rows of the quantile's"
    if len(choices) > 1:
        note += f"; the ends of its interval are looked for {choices[1].lead:.3g} rows before and after"
    plan = Plan(CHOICE, noise, workload, (), (0.0,) * len(workload.marginals), "none", note)
    return MeasurePlan(measure, plain_bounds(unit_bound), (plan,), choices)


def tree_buckets(question: Question, measure: Measure) -> Buckets:
    """Returns the buckets of a quantile's tree, or of its exponential mechanism. With many cells, buckets are fewer."""
    if measure.operand is None:
        raise Refusal("a quantile needs a column", accepted="quantile_cont(column, 0.5)")
    cells = sum(question.cells)
    most = MOST_CHOICES if measure.key == CHOICE else MOST_BUCKETS
    return buckets_for(measure.operand.low, measure.operand.high, measure.operand.step, cells, most)


def _require_plain(treatment: Treatment) -> None:
    if treatment.consistency != "l2" or treatment.nonnegative:
        raise Refusal(
            "PREFIXES, RANGES and strategy tables are recovered by least squares alone",
            accepted="consistency = 'l2' without nonnegative (greatest(n, 0) in the select list)",
        )


def _plan_for_target(request: SelectRequest, target: Target) -> CubePlan:
    noise = noise_of(request)
    measures = measures_of(request.question, noise, evenly=True).measures
    joint = any(measure.strategy for measure in measures)
    wanted, parts = float(target.stderr), 1 if joint else len(measures)
    if request.question.treatment.norm is not None:
        wanted *= FULL  # measured in parts of a row

    def plan_of(candidate: SelectRequest, price: Fraction = FINE) -> CubePlan:
        return plans_at(candidate, noise, price * parts)

    even, fine = _even_weights(request, plan_of)

    def plan_at(price: Fraction) -> CubePlan:
        return fine if price == FINE else plan_of(even, price)

    amount = price_for(wanted, noise, plan_at, _is_search(request))
    amount = max(amount, SMALLEST_PRICE, target.least / parts)
    while True:
        require_within(amount * parts, target)
        cube = plans_at(even, noise, amount * parts)
        worst = cube.worst_stderr
        if worst <= wanted:
            break
        amount = raise_price(amount, worst / wanted, noise)
    total = amount * parts
    price = replace(request.price, charge=Charge.zcdp(total))
    if target.pure:
        price = replace(request.price, charge=Charge.pure(total), stated_epsilon=total)
    return _restore_weights(replace(request, price=price), cube)


def _is_search(request: SelectRequest) -> bool:
    """Tells whether planning is a search that takes seconds, and so is not repeated."""
    few = 1 if noise_of(request) is NoiseKind.LAPLACE else FEW_SETS
    return request.question.has_ranges or len(request.question.grouping_sets) > few


def _even_weights(request: SelectRequest, plan_at: PlanAt) -> tuple[SelectRequest, CubePlan]:
    """Returns the request with weights of grouping sets that minimise the worst cell's error, and its plan."""
    question = request.question
    if question.treatment.weights or len(question.grouping_sets) == 1:
        return request, plan_at(request)
    cells = np.array(question.cells, dtype=np.float64)
    trials = list[tuple[SelectRequest, CubePlan]]()

    def variances() -> FloatArray:
        return np.array([np.max(table) for table in trials[-1][1].measures[0].plan.variances])

    for weights in even_weights(1 / cells, variances, power=2, cells=cells):
        treatment = replace(question.treatment, weights=tuple(map(Fraction, weights.tolist())))
        weighted = replace(request, question=replace(question, treatment=treatment))
        trials.append((weighted, plan_at(weighted)))
        if _is_search(request):
            break
    return min(trials, key=lambda pair: pair[1].worst_stderr)


def _restore_weights(request: SelectRequest, cube: CubePlan) -> CubePlan:
    """Returns the plans with the request's own weights of grouping sets, for their total variance."""
    weights = _workload(request.question).weights

    def reweight(plan: Plan) -> Plan:
        return replace(plan, workload=replace(plan.workload, weights=weights))

    measures = [replace(measure, plans=tuple(map(reweight, measure.plans))) for measure in cube.measures]
    return CubePlan(request, tuple(measures), cube.uses)


def require_within(price: Fraction, target: Target) -> None:
    """Refuses a price above the most that a statement may cost."""
    if price > target.limit:
        measure = "epsilon" if target.pure else "rho"
        raise Refusal(
            f"target_stderr = {float(target.stderr):g} would cost {measure} = {float(price):g}",
            accepted=f"a larger target_stderr: one statement may cost {measure} = {float(target.limit):g}",
        )


def recover_table(plan: Plan, noisy: Sequence[IntegerArray], treatment: Treatment) -> Sequence[FloatArray]:
    """Recovers one table's answers, an array per grouping set."""
    return apply_options(plan, recover(plan, noisy), nonnegative=treatment.nonnegative, integer=treatment.integer)
