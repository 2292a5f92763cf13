"""Answers of aggregates from recovered tables, with standard errors and stored intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import lcm

import numpy as np

from dpduck.kernel.contributions import FULL
from dpduck.language.select.request import Aggregate
from dpduck.mechanisms.cubes.measures import Use, is_coarse
from dpduck.mechanisms.cubes.plan import CubePlan, MeasurePlan, tree_buckets
from dpduck.mechanisms.released_rows import AnswerColumn
from dpduck.strategies.marginals.planners import DISTINCT
from dpduck.strategies.plan import Plan
from dpduck.strategies.recovery.covariances import TableCovariances, covariances, covariances_to_text
from dpduck.strategies.recovery.curved import (
    FEWEST_ROWS,
    Curved,
    Noisy,
    average,
    average_about,
    deviation_of,
    of_rounded,
    rescale,
    variance_about,
    variance_of,
)
from dpduck.strategies.recovery.intervals import ErrorLaw
from dpduck.strategies.recovery.quantiles import in_order, quantile, read_choices
from dpduck.strategies.recovery.recover import solves_program
from dpduck.strategies.variance import least_squares_variances
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import InternalError

Tables = Sequence[Sequence[FloatArray]]
"""Tables of one measure: for each table, an array per grouping set."""

ROUNDING = 1 / 12

MOST_COVARIANCES = 20_000
"""Covariances of more sets of columns are not stored with a release."""


def answers_of(cube: CubePlan, tables: Sequence[Tables], raw: Sequence[Tables] | None = None) -> list[AnswerColumn]:
    """Computes the answers of every aggregate from the recovered tables of every measure.

    raw: the tables before options changed them, if any did. Ratios and quantiles are answered from these.
    """
    if raw is not None:
        return [
            _add_move_error(shown, measured) if use.weights else measured
            for use, shown, measured in zip(cube.uses, answers_of(cube, tables), answers_of(cube, raw), strict=True)
        ]
    if cube.request.question.intervals:
        return _intervals(cube, tables[0][0][0])
    aggregates = cube.request.question.aggregates
    counts = {
        aggregate.condition: [
            sum_with_weights(use.weights, of_set) for of_set in zip(*tables_of_use(use, tables), strict=True)
        ]
        for aggregate, use in zip(aggregates, cube.uses, strict=True)
        if aggregate.function == "count" and aggregate.operand is None
    }
    answers = [
        _answer(cube, aggregate, use, tables, counts.get(aggregate.condition))
        for aggregate, use in zip(aggregates, cube.uses, strict=True)
    ]
    return _order_quantiles(aggregates, answers)


def _order_quantiles(aggregates: Sequence[Aggregate], answers: Sequence[AnswerColumn]) -> list[AnswerColumn]:
    """Sorts the quantiles of one column in each cell, so that no quantile is above one with a higher fraction."""
    moved = list(answers)
    quantiles = [number for number, aggregate in enumerate(aggregates) if aggregate.is_quantile]
    for key in dict.fromkeys((aggregates[number].condition, aggregates[number].operand) for number in quantiles):
        alike = [number for number in quantiles if (aggregates[number].condition, aggregates[number].operand) == key]
        alike.sort(key=lambda number: aggregates[number].fraction or 0)
        if len(alike) > 1:
            columns = in_order([_quantile_column(answers[number]) for number in alike])
            for number, column in zip(alike, columns, strict=True):
                moved[number] = _of_sets([column])
    return moved


def _quantile_column(answer: AnswerColumn) -> Curved:
    if answer.lows is None or answer.highs is None:
        raise InternalError("a quantile without an interval")
    return Curved(answer.estimates, answer.stderrs, answer.lows, answer.highs)


def _of_no_rows(table: FloatArray, rows: FloatArray) -> FloatArray:
    """Returns a table with 0 in the cells where `rows`, the noisy count(*), is below one."""
    cells = table.reshape(len(rows), -1)
    emptied: FloatArray = np.where(rows[:, None] < FEWEST_ROWS, 0.0, cells).reshape(table.shape)
    return emptied


def _add_move_error(shown: AnswerColumn, measured: AnswerColumn) -> AnswerColumn:
    """Adds to an answer's error the change that an option made to the answer.

    In a sparse table, the change is the same bias in all occupied cells, as large as the noise of empty cells.
    """
    stderrs = np.hypot(measured.stderrs, shown.estimates - measured.estimates)
    return AnswerColumn(shown.estimates, stderrs, raw=measured.estimates)


def _intervals(cube: CubePlan, answers: FloatArray) -> list[AnswerColumn]:
    errors = np.sqrt(cell_variances(cube.measures[0].plan)[0])
    return [
        AnswerColumn(answers[number : number + 1], errors[number : number + 1])
        for number in range(len(cube.request.question.aggregates))
    ]


def _answer(
    cube: CubePlan, aggregate: Aggregate, use: Use, every: Sequence[Tables], counts: Sequence[FloatArray] | None
) -> AnswerColumn:
    """Returns the answers of one aggregate. counts: count(*) of the same rows by grouping set, if it is released."""
    tables = tables_of_use(use, every)
    measured = cube.measures[use.measure]
    variances = cell_variances(measured.plan)
    if use.also is not None:
        return _of_several(cube, aggregate, use, every)
    if use.weights:
        estimates = np.concatenate([sum_with_weights(use.weights, of_set) for of_set in zip(*tables, strict=True)])
        errors = np.concatenate(variances) * use.size
        if _is_rounded(cube, use):
            return AnswerColumn(np.rint(estimates), np.sqrt(errors + ROUNDING))
        return AnswerColumn(estimates, np.sqrt(errors))
    if counts is not None and not measured.choices:
        by_set = zip(*tables, strict=True)
        emptied = [[_of_no_rows(table, rows) for table in of_set] for of_set, rows in zip(by_set, counts, strict=True)]
        tables = list(zip(*emptied, strict=True))
    parts = [
        nonlinear_answers(cube, aggregate, measured, [table.ravel() for table in of_set], variance)
        for of_set, variance in zip(zip(*tables, strict=True), variances, strict=True)
    ]
    return _of_sets(parts)


def _of_sets(parts: Sequence[Curved]) -> AnswerColumn:
    return AnswerColumn(
        np.concatenate([part.estimates for part in parts]),
        np.concatenate([part.stderrs for part in parts]),
        np.concatenate([part.lows for part in parts], axis=1),
        np.concatenate([part.highs for part in parts], axis=1),
    )


def tables_of_use(use: Use, every: Sequence[Tables]) -> Tables:
    """Returns the tables of a measure that an aggregate uses."""
    return [every[use.measure][table] for table in use.tables] if use.tables else every[use.measure]


def _of_several(cube: CubePlan, aggregate: Aggregate, use: Use, every: Sequence[Tables]) -> AnswerColumn:
    """Returns a sum, an average or a variance from counts, sums about a centre and, for a variance, their squares."""
    by_set = list(_by_set(cube, use, every))
    if use.weights and use.also is not None:
        ours, other = use.weights[0], use.also.weights[0]
        sums = [float(ours) * counts + float(other) * sums for (counts, sums), _ in by_set]
        errors = [float(ours) ** 2 * first + float(other) ** 2 * second for _, (first, second) in by_set]
        return AnswerColumn(np.concatenate(sums), np.sqrt(np.concatenate(errors)))
    return _of_sets([of_centre(cube, aggregate, use, *of_set) for of_set in by_set])


def _by_set(
    cube: CubePlan, use: Use, every: Sequence[Tables]
) -> Iterator[tuple[tuple[FloatArray, ...], tuple[FloatArray, ...]]]:
    places = [part.measure for part in use.parts]
    tables = [[table.ravel() for table in every[place][0]] for place in places]
    variances = [cell_variances(cube.measures[place].plan) for place in places]
    yield from zip(zip(*tables, strict=True), zip(*variances, strict=True), strict=True)


def of_centre(
    cube: CubePlan, aggregate: Aggregate, use: Use, tables: Sequence[FloatArray], variances: Sequence[FloatArray]
) -> Curved:
    """Returns averages or variances of cells. tables: noisy counts, sums about a centre, and squares for a variance."""
    if use.also is None or aggregate.operand is None:
        raise InternalError("an average of no count and no sum")
    measure, noise = cube.measures[use.also.measure].measure, cube.measures[use.measure].plan.noise
    steps = [1 / FULL, *(float(part.weights[0]) for part in use.parts[1:])]
    noisy = [
        Noisy(table * step, np.sqrt(variance) * step, step)
        for table, variance, step in zip(tables, variances, steps, strict=True)
    ]
    bounds = float(aggregate.operand.low), float(aggregate.operand.high)
    if len(noisy) == 2:
        return average_about(float(measure.contribution.centre), bounds, noisy[0], noisy[1], noise)
    sample, width = aggregate.function.endswith("samp"), bounds[1] - bounds[0]
    spread = variance_about(width, noisy[0], noisy[1], noisy[2], noise, sample=sample)
    step = float(measure.contribution.unit) / width
    if measure.operand is not None and measure.operand.step > aggregate.operand.step:
        spread = of_rounded(spread, step=step, sample=sample)
    if aggregate.function.startswith("stddev"):
        return rescale(deviation_of(spread), 0.0, width, 1)
    return rescale(spread, 0.0, width, 2)


def sum_with_weights(weights: Sequence[Fraction], tables: Sequence[FloatArray]) -> FloatArray:
    """Returns the weighted sum of tables. A single division at the end avoids results such as 7712.020000000001."""
    whole = lcm(*(weight.denominator for weight in weights))
    parts = [float(weight * whole) * table.ravel() for weight, table in zip(weights, tables, strict=True)]
    summed: FloatArray = np.sum(parts, axis=0) / float(whole)
    return summed


def nonlinear_answers(
    cube: CubePlan, aggregate: Aggregate, measured: MeasurePlan, tables: Sequence[FloatArray], variance: FloatArray
) -> Curved:
    """Returns an average, a variance or a quantile of every cell, from its tables and the variance of their noise."""
    added, operand, noise = measured.measure.contribution, aggregate.operand, measured.plan.noise
    if operand is None:
        raise InternalError("a curved aggregate without an operand")
    if aggregate.function == "quantile":
        buckets = tree_buckets(cube.request.question, measured.measure)
        if measured.choices:
            return read_choices(tables, buckets)
        queries = 2 * buckets.count - 1
        shaped = tables[0].reshape(-1, queries)
        return quantile(shaped, variance.reshape(-1, queries), float(aggregate.fraction or 0), buckets, noise)
    whole = float(added.bound)
    moments = [table / whole for table in tables[: added.degree + 1]]
    scaled, step = variance / whole**2, 1 / whole
    low, width = float(operand.low), float(operand.high - operand.low)
    if aggregate.function == "avg":
        return rescale(average(moments, scaled, noise, step), low, width)
    sample = aggregate.function.endswith("samp")
    spread = variance_of(moments, scaled, noise, step, sample=sample)
    if is_coarse(operand):
        spread = of_rounded(spread, step=1 / added.steps, sample=sample)
    if aggregate.function.startswith("stddev"):
        return rescale(deviation_of(spread), 0.0, width, 1)
    return rescale(spread, 0.0, width, 2)


def cell_variances(plan: Plan) -> list[FloatArray]:
    """Returns the noise variance of every cell of a measure's tables, an array per grouping set."""
    if solves_program(plan):
        plan = replace(plan, variances=least_squares_variances(plan))
    return [variances.ravel() for variances in plan.cell_variances]


def wholes(cube: CubePlan) -> list[bool]:
    """Tells for each aggregate whether its answers are whole numbers."""
    return [is_whole(cube, number) for number in range(len(cube.uses))]


def is_whole(cube: CubePlan, number: int) -> bool:
    """Tells from public facts whether all answers of an aggregate are rounded, or sums of integer measurements."""
    request, use = cube.request, cube.uses[number]
    if request.question.treatment.integer:
        return True
    if any(total.aggregate == number for total in request.question.totals):
        return False
    measured = cube.measures[use.measure]
    plan = measured.plan
    counts = measured.measure.operand is None or not measured.measure.operand.sql or measured.measure.form == "count"
    if _is_rounded(cube, use):
        return True
    single = use.weights == (Fraction(1),)
    if measured.measure.strategy is not None:  # sums of whole numbers are whole
        counted = request.question.aggregates[number].function == "count"
        single = counted and all(weight.denominator == 1 for weight in use.weights)
    if not single or not counts or request.question.treatment.nonnegative:
        return False
    return all(
        single_parameter(plan, set_number) is not None for set_number in range(len(request.question.grouping_sets))
    )


def _is_rounded(cube: CubePlan, use: Use) -> bool:
    """Tells whether an answer is a count of weighed units, in parts of 1/FULL, which is shown as a whole number."""
    measure = cube.measures[use.measure].measure
    counts = measure.operand is None or not measure.operand.sql or measure.form in ("count", "valued")
    plain = bool(use.weights) and use.also is None
    return measure.contribution.norm > 0 and counts and plain and not cube.request.question.treatment.nonnegative


def single_parameter(plan: Plan, number: int) -> Fraction | None:
    """Returns the noise parameter if each cell of a grouping set is one integer measurement, else None."""
    if plan.strategy == DISTINCT:
        return plan.measurements[number].parameter
    if plan.parts or len(plan.measurements) != 1:
        return None
    query = plan.measurements[0].query
    alike = query.attributes == plan.workload.marginals[number]
    return plan.measurements[0].parameter if alike and query.is_identity else None


def error_laws(cube: CubePlan) -> tuple[tuple[ErrorLaw, ...], ...]:
    """Returns, for each aggregate, the law of each grouping set's noise, or () if its errors depend on answers."""
    return tuple(_laws_of(cube, use) for use in cube.uses)


def _laws_of(cube: CubePlan, use: Use) -> tuple[ErrorLaw, ...]:
    more = ROUNDING if _is_rounded(cube, use) else 0.0
    laws = _laws(cube.measures[use.measure].plan, use.weights, more)
    if use.also is None or not use.weights:
        return laws
    others = _laws(cube.measures[use.also.measure].plan, use.also.weights)
    return tuple(
        ErrorLaw(law.noise, None, law.variance + other.variance, max(law.step, other.step))
        for law, other in zip(laws, others, strict=True)
    )


def _laws(plan: Plan, weights: Sequence[Fraction], more: float = 0.0) -> tuple[ErrorLaw, ...]:
    """Returns the law of each grouping set's noise. With ranges, it is the worst cell's law. more: added variance."""
    if not weights:
        return ()
    if solves_program(plan):
        plan = replace(plan, variances=least_squares_variances(plan))
    size, step = float(sum(weight * weight for weight in weights)), float(max(map(abs, weights)))
    alone = len(weights) == 1 and not more
    return tuple(
        ErrorLaw(plan.noise, single_parameter(plan, number) if alone else None, size * variance + more, step)
        for number, variance in enumerate(plan.variances)
    )


def covariances_text(cube: CubePlan) -> str | None:
    """Writes the covariances of released cells. Returns None if no formula holds, or if they would be very long.

    Counts that are planned together, and one count of weighed units, have the covariances of one table up to a factor.
    """
    request, plans = cube.request, [measured.plan for measured in cube.measures]
    treatment, plan = request.question.treatment, plans[0]
    programs = any(solves_program(candidate) for candidate in plans)
    if treatment.integer or treatment.nonnegative or programs or len(request.question.grouping_sets) > MOST_COVARIANCES:
        return None
    if request.question.totals:
        return None
    single = len(plans) == 1 and cube.measures[0].measure.strategy is not None
    weighed = len(cube.uses) == 1 and _is_rounded(cube, cube.uses[0]) and not treatment.widens
    whole = all(candidate is plan for candidate in plans) and all(use.weights == (Fraction(1),) for use in cube.uses)
    alike = single or weighed or whole
    if plan.parts or not alike or not cube.measures[0].measure.is_sum:
        return None
    values = covariances(plan)
    sets = len(values.sources) if isinstance(values, TableCovariances) else len(values.variances)
    return covariances_to_text(values) if sets <= MOST_COVARIANCES else None
