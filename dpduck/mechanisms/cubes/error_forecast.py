"""Predicted errors of a cube's aggregates for dp_explain and dp_errors, from public figures alone.

Errors of averages, variances and quantiles depend on the answer. They are predicted for EXPECT ROWS, spread evenly over
the cells of a grouping set, with values spread evenly between their bounds.
"""

from __future__ import annotations

from math import hypot, inf, isfinite, sqrt

import numpy as np

from dpduck.kernel.contributions import FULL
from dpduck.language.select.request import TREE, Aggregate
from dpduck.mechanisms.cubes.measures import Use
from dpduck.mechanisms.cubes.plan import CubePlan, MeasurePlan, tree_buckets
from dpduck.mechanisms.cubes.recover import cell_variances, nonlinear_answers, of_centre
from dpduck.mechanisms.forecast import AggregateError
from dpduck.strategies.recovery.quantiles import bounds_of, rank_deviations
from dpduck.values.arrays import FloatArray

MANY_ROWS, ONE_FIGURE = 1e7, 0.02
"""Number of rows at which a cell has hardly any noise, and the relative difference of figures that count as equal."""


def foreseen(cube: CubePlan, expect_rows: int | None) -> list[AggregateError]:
    """Returns the predicted error of each aggregate, in the order of the statement."""
    if cube.request.question.intervals:  # one aggregate each, measured together
        plan = cube.measures[0].plan
        worst = plan.worst_stderr
        return [AggregateError(aggregate.text, 1, None, worst, worst) for aggregate in cube.request.question.aggregates]
    pairs = zip(cube.request.question.aggregates, cube.uses, strict=True)
    return [_foreseen(cube, aggregate, use, expect_rows) for aggregate, use in pairs]


def _foreseen(cube: CubePlan, aggregate: Aggregate, use: Use, expect_rows: int | None) -> AggregateError:
    measured = cube.measures[use.measure]
    variances = cell_variances(measured.plan)
    tree = measured.measure.form == TREE
    rank = sqrt(max(float(table.max()) for table in variances)) if tree else None
    queries = 2 * tree_buckets(cube.request.question, measured.measure).count - 1 if tree else 1
    sizes = [table.size // queries for table in variances]
    rows = None if expect_rows is None else float(round(expect_rows / max(sizes), 1))
    if use.weights:
        parts = [use.size * table for table in variances]
        if use.also is not None:
            others = cell_variances(cube.measures[use.also.measure].plan)
            step = float(use.also.weights[0])
            parts = [part + step**2 * table for part, table in zip(parts, others, strict=True)]
    elif expect_rows is None:
        most = max(_by_rows(cube, aggregate, use, table) or inf for table in variances)
        return AggregateError(aggregate.text, sum(sizes), None, None, None, rank, most if isfinite(most) else None)
    else:
        parts = [
            np.full(size, _nonlinear_error(cube, aggregate, use, table, expect_rows / size) ** 2)
            for size, table in zip(sizes, variances, strict=True)
        ]
    together = np.concatenate(parts)
    typical, worst = sqrt(float(together.mean())), sqrt(float(together.max()))
    if use.weights or sum(sizes) == 1:
        return AggregateError(aggregate.text, sum(sizes), rows, typical, worst, rank)
    times = _by_rows(cube, aggregate, use, max(variances, key=len))
    return AggregateError(aggregate.text, sum(sizes), rows, typical, None, rank, times)


def _nonlinear_error(cube: CubePlan, one: Aggregate, use: Use, table: FloatArray, rows: float) -> float:
    """Returns the standard error of an average, a variance or a quantile of `rows` rows, at most their range."""
    measured, operand = cube.measures[use.measure], one.operand
    if operand is None:
        return 0.0
    if one.is_quantile:
        return _quantile_error(cube, one, measured, table, rows)
    if use.also is not None:
        every = (cell_variances(cube.measures[part.measure].plan) for part in use.parts)
        largest = [np.array([max(float(one.max()) for one in variances)]) for variances in every]
        tables = [np.array([rows * FULL]), *_spread_evenly(cube, one, use, rows)]
        answer = of_centre(cube, one, use, tables, [np.array([table.max()]), *largest[1:]])
    else:
        added = measured.measure.contribution
        answers = [np.array([rows * float(added.bound) / (added.degree + 1)])] * (added.degree + 1)
        answer = nonlinear_answers(cube, one, measured, answers, np.array([table.max()]))
    possible = float(answer.highs[-1, 0] - answer.lows[-1, 0])
    error = float(answer.stderrs[0])
    return min(error, possible) if isfinite(error) else possible


def _spread_evenly(cube: CubePlan, call: Aggregate, use: Use, rows: float) -> list[FloatArray]:
    sums = [np.zeros(1)]
    if len(use.parts) > 2 and call.operand is not None:
        width, squares = call.operand.high - call.operand.low, cube.measures[use.parts[2].measure].measure.contribution
        sums.append(np.array([rows * FULL * float(width**2 / squares.unit) / 12]))
    return sums


def _quantile_error(
    cube: CubePlan, aggregate: Aggregate, measured: MeasurePlan, table: FloatArray, rows: float
) -> float:
    """Returns the standard error of a quantile, at least the error of an unknown place within its bucket.

    For a minimum or maximum, it adds the distance to the value that stands for it.
    """
    buckets = tree_buckets(cube.request.question, measured.measure)
    width, least = float(buckets.width * buckets.count), float(buckets.width) / sqrt(12)
    gap = width / max(rows, 1.0) / sqrt(3)
    if measured.choices:
        return min(max(hypot(measured.choices[0].deviation(rows) * width, gap), least), width)
    below = rows * np.arange(1, buckets.count) / buckets.count
    answers = np.concatenate([below, rows - below, [rows]])[None, :]
    noise = table.reshape(-1, answers.size).max(axis=0)
    answer = nonlinear_answers(cube, aggregate, measured, [answers], noise)
    if not isfinite(float(answer.estimates[0])):
        return width / sqrt(12)
    if isfinite(float(answer.stderrs[0])):
        return min(max(hypot(float(answer.stderrs[0]), gap), least), width)
    lowest, highest = bounds_of(buckets)
    inward = abs(float(answer.estimates[0]) - (highest if aggregate.fraction else lowest))
    ranks = rank_deviations(noise[None, :], float(aggregate.fraction or 0), buckets.count - 1)[0]
    place = min(int(inward / float(buckets.width)), buckets.count - 2)
    rank = float(ranks[-1 - place if aggregate.fraction else place])
    return max(min(hypot(inward, rank / rows * width), width), least)


def _by_rows(cube: CubePlan, aggregate: Aggregate, use: Use, table: FloatArray) -> float | None:
    """Returns the standard error of a cell times its rows, None if it differs between cells of many rows."""
    some, more = (rows * _nonlinear_error(cube, aggregate, use, table, rows) for rows in (MANY_ROWS, 4 * MANY_ROWS))
    return more if abs(more - some) <= ONE_FIGURE * more else None
