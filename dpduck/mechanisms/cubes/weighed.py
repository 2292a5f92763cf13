"""Measures of a statement with max_norm_contributed: in each measure, units are weighed down to a norm.

A unit has one weight for an average's or variance's count, sum and squares, so the same rows are missing in each.
Answers are in parts of 1/FULL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import floor

from dpduck.kernel.contributions import FULL
from dpduck.language.select.request import VARIANCES, Aggregate, Operand, Treatment
from dpduck.mechanisms.cubes.measures import (
    Column,
    Measure,
    Measures,
    Use,
    linear_weights,
    measure_values,
    own_measure,
    shares_of,
)
from dpduck.values.errors import Refusal

COUNT_SHARE = Fraction(1, 4)
"""Part of an average's price that is for its count. The rest is for the sum about its centre."""

ADDED = dict.fromkeys(("avg", "sum", "count"), (COUNT_SHARE, 1 - COUNT_SHARE)) | dict.fromkeys(
    VARIANCES, (Fraction(1, 6), Fraction(1, 6), Fraction(2, 3))
)
"""Parts of an aggregate's price: for the count of values, for their sum about a centre, and for the squares."""

MOST_SQUARED_STEPS = 1 << 12

SPREAD = 4
"""Room for values far from the centre: a unit with B rows and a norm S of sums may have squares of SPREAD S^2 / B. If
all values are equally far from the centre, squares are S^2 / B."""


def bounds(least: Fraction, largest: float, most: Fraction) -> list[Fraction]:
    """Returns 1, 2 and 5 times powers of ten, from `least` to the first that reaches `largest`, and at last `most`.

    >>> [int(one) for one in bounds(Fraction(1), 11.5, Fraction(300))]
    [1, 2, 5, 10, 20, 300]
    """
    numbers = list[Fraction]()
    power = Fraction(1)
    while power > least:
        power /= 10
    while power < most:
        for bound in (power, 2 * power, 5 * power):
            if least <= bound < most and not (numbers and numbers[-1] >= largest):
                numbers.append(bound)
        power *= 10
    return [*numbers, most]


def measures_with_norm(
    aggregates: Sequence[Aggregate], treatment: Treatment, found_centres: Mapping[Operand, Fraction] | None = None
) -> Measures:
    """Returns the measures of a statement with a norm, and their uses. found_centres: the results of a search."""
    operands = list(
        dict.fromkeys(
            aggregate.operand for aggregate in aggregates if aggregate.operand is not None and aggregate.operand.sql
        )
    )
    norms, centres = _of_each(treatment.sum_norms, operands), _of_each(treatment.centers, operands)
    centres |= found_centres or {}
    norm, weights = treatment.norm or Fraction(1), treatment.aggregate_weights or (Fraction(1),) * len(aggregates)
    together = _centre_columns(aggregates)
    demands: dict[Measure, Fraction] = {}
    taken: list[tuple[Measure, ...]] = []
    for aggregate, weight in zip(aggregates, weights, strict=True):
        stated = None if aggregate.operand is None else norms.get(aggregate.operand)
        column = None if aggregate.operand is None else _column_of(aggregate, aggregate.operand)
        if column is not None and column in together and aggregate.function in ADDED:
            centre = centres.get(column[1], None if aggregate.operand is None else centres.get(aggregate.operand))
            measures, parts = (
                _about_a_centre(column, norm, stated, centre, squared=together[column]),
                ADDED[aggregate.function],
            )
            demands |= {measure: Fraction(0) for measure in measures if measure not in demands}
            for measure, part in zip(measures, parts, strict=False):
                demands[measure] += weight * part
            taken.append(measures[: 1 if aggregate.function == "count" else len(parts)])
        else:
            measure = _alone(aggregate, norm, stated)
            demands[measure] = demands.get(measure, Fraction(0)) + weight
            taken.append((measure,))
    places = {measure: number for number, measure in enumerate(demands)}
    uses = [_use(aggregate, places, measures) for aggregate, measures in zip(aggregates, taken, strict=True)]
    shares = shares_of([float(demand) for demand in demands.values()])
    shared = (replace(measure, share=share) for measure, share in zip(demands, shares, strict=True))
    return Measures(tuple(shared), tuple(uses))


def _centre_columns(aggregates: Sequence[Aggregate]) -> dict[Column, bool]:
    """Returns the columns that are measured about a centre, each with a flag: whether squares are measured, too."""
    columns: dict[Column, bool] = {}
    for aggregate in aggregates:
        if (
            aggregate.operand is not None
            and not aggregate.operand.per_group
            and (aggregate.function == "avg" or aggregate.function in VARIANCES)
        ):
            column = _column_of(aggregate, aggregate.operand)
            columns[column] = columns.get(column, False) or aggregate.function in VARIANCES
    return columns


def _column_of(aggregate: Aggregate, operand: Operand) -> Column:
    """Returns the column of an aggregate. For a variance it has at most as many steps as can be squared."""
    width = operand.high - operand.low
    if aggregate.function in VARIANCES and width / operand.step > MOST_SQUARED_STEPS:
        operand = replace(operand, step=width / MOST_SQUARED_STEPS)
    return aggregate.condition, operand


def _about_a_centre(
    column: Column, norm: Fraction, stated: Fraction | None, centre: Fraction | None, *, squared: bool
) -> tuple[Measure, ...]:
    """Returns measures for the count of values, the sum about a centre (norm `stated`) and the squares if `squared`."""
    condition, operand = column
    about = _on_a_step(centre, operand)
    counted = measure_values("valued", condition, operand, shared=True)
    summed = measure_values("sum", condition, operand, centre=about, shared=squared)
    measures = [_with_norm(counted, norm, None), _with_norm(summed, norm, stated)]
    if squared:
        squares = measure_values("squares", condition, operand, centre=about)
        measures.append(_with_norm(squares, norm, None if stated is None else SPREAD * stated**2 / norm))
    return tuple(measures)


def _alone(aggregate: Aggregate, norm: Fraction, stated: Fraction | None) -> Measure:
    measure = own_measure(aggregate, chosen=False)
    if aggregate.has_curved_error or measure.form not in ("count", "sum"):
        raise Refusal(
            "max_norm_contributed is of counts, sums, averages and variances alone",
            accepted="count(*), count(x), sum(x), avg(x), stddev(x), count(DISTINCT unit); others in another statement",
        )
    return _with_norm(measure, norm, stated if measure.form == "sum" else None)


def _with_norm(measure: Measure, norm: Fraction, stated: Fraction | None) -> Measure:
    """Returns a measure with the norm `stated`, by default that of `norm` rows with the largest value."""
    in_integers = norm * measure.contribution.bound if stated is None else stated / measure.contribution.unit
    return measure.with_norm(max(1, floor(in_integers**2)))


def _use(aggregate: Aggregate, places: dict[Measure, int], measures: tuple[Measure, ...]) -> Use:
    """Returns an aggregate's use of its measures: one count or sum, or a count with a sum and perhaps squares."""
    first, *beside = measures
    if not beside:
        weights = (Fraction(1),) if first.form == "valued" else linear_weights(aggregate, first)
        return Use(places[first], tuple(weight / FULL for weight in weights))
    also: Use | None = None
    for measure in reversed(beside):
        also = Use(places[measure], (measure.contribution.unit / FULL,), also)
    return Use(places[first], (beside[0].contribution.centre / FULL,) if aggregate.function == "sum" else (), also)


def _of_each(numbers: Sequence[Fraction], operands: Sequence[Operand]) -> dict[Operand, Fraction]:
    """Assigns an option's numbers to the summed columns, in order. A single number is for all columns."""
    if numbers and len(numbers) not in (1, len(operands)):
        raise Refusal(
            f"{len(numbers)} numbers for {len(operands)} summed columns",
            accepted="one number, or one for each column that is summed or averaged, in the order in which they stand",
        )
    return dict(zip(operands, numbers if len(numbers) > 1 else [*numbers] * len(operands), strict=False))


def _on_a_step(centre: Fraction | None, operand: Operand) -> Fraction:
    wanted = (operand.low + operand.high) / 2 if centre is None else min(max(centre, operand.low), operand.high)
    return operand.low + operand.step * round((wanted - operand.low) / operand.step)
