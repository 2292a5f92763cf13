"""The measures of a statement with max_norm_contributed: each is of units that are weighed down to a norm.

A count has a norm in rows. A sum has one in the units of its column, or in rows at its bound. An average is a count of
values and the sum of their distances from a centre. A variance has the squares of the distances, too. Each has a
norm, and a unit has one weight for all: the same rows are missing in each. Sums, counts and averages of the
same column come from these measures.

Answers are in parts of 1/FULL. Shares of the price go by `aggregate_weights` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import floor

from dpduck.kernel.contributions import FULL
from dpduck.language.select.request import VARIANCES, Aggregate, Operand, Treatment
from dpduck.mechanisms.cubes.measures import Measure, Measures, Use, linear_weights, own_measure, shares_of
from dpduck.values.errors import Refusal

COUNT_SHARE = Fraction(1, 4)
"""Of the price of an average: the part of its count. The rest is for the sum about its centre."""

ADDED = dict.fromkeys(("avg", "sum", "count"), (COUNT_SHARE, 1 - COUNT_SHARE)) | dict.fromkeys(
    VARIANCES, (Fraction(1, 6), Fraction(1, 6), Fraction(2, 3))
)
"""Parts of an aggregate's price: of the count of values, of their sum about a centre, and of its squares."""

MOST_SQUARED_STEPS = 1 << 12
"""Noise for squares of more would not fit its samplers where units have many rows (measures.MOST_SQUARED_STEPS)."""

SPREAD = 4
"""A unit with B rows and a norm S of sums has squares of S^2 / B where all distances are alike. So many times as much
leaves room for values that are far."""

Column = tuple[str, Operand]
"""A condition and what is summed of the rows that meet it."""


def bounds(least: Fraction, largest: float, most: Fraction) -> list[Fraction]:
    """Returns the numbers 1, 2 and 5 times powers of ten, from the least on, up to one that nobody exceeds, and most.

    >>> [int(one) for one in bounds(Fraction(1), 11.5, Fraction(300))]
    [1, 2, 5, 10, 20, 300]
    """
    found = list[Fraction]()
    power = Fraction(1)
    while power > least:
        power /= 10
    while power < most:
        for bound in (power, 2 * power, 5 * power):
            if least <= bound < most and not (found and found[-1] >= largest):
                found.append(bound)
        power *= 10
    return [*found, most]


def weighed_measures(
    aggregates: Sequence[Aggregate], treatment: Treatment, known: Mapping[Operand, Fraction] | None = None
) -> Measures:
    """Returns the measures of a statement with a norm, and each aggregate's use. known: centres that were found."""
    operands = list(dict.fromkeys(one.operand for one in aggregates if one.operand is not None and one.operand.sql))
    norms, centres = _of_each(treatment.sum_norms, operands), _of_each(treatment.centers, operands)
    centres |= known or {}
    norm, weights = treatment.norm or Fraction(1), treatment.aggregate_weights or (Fraction(1),) * len(aggregates)
    together = _measured_together(aggregates)
    demands: dict[Measure, Fraction] = {}
    taken: list[tuple[Measure, ...]] = []
    for one, weight in zip(aggregates, weights, strict=True):
        stated = None if one.operand is None else norms.get(one.operand)
        column = None if one.operand is None else _column_of(one, one.operand)
        if column is not None and column in together and one.function in ADDED:
            centre = centres.get(column[1], None if one.operand is None else centres.get(one.operand))
            measures, parts = (
                _about_a_centre(column, norm, stated, centre, squared=together[column]),
                ADDED[one.function],
            )
            demands |= {measure: Fraction(0) for measure in measures if measure not in demands}
            for measure, part in zip(measures, parts, strict=False):
                demands[measure] += weight * part
            taken.append(measures[: 1 if one.function == "count" else len(parts)])
        else:
            measure = _alone(one, norm, stated)
            demands[measure] = demands.get(measure, Fraction(0)) + weight
            taken.append((measure,))
    places = {measure: number for number, measure in enumerate(demands)}
    uses = [_use(one, places, measures) for one, measures in zip(aggregates, taken, strict=True)]
    shares = shares_of([float(demand) for demand in demands.values()])
    shared = (replace(measure, share=share) for measure, share in zip(demands, shares, strict=True))
    return Measures(tuple(shared), tuple(uses))


def _measured_together(aggregates: Sequence[Aggregate]) -> dict[Column, bool]:
    """Returns the columns that are measured about a centre, and whether squares are, too."""
    found: dict[Column, bool] = {}
    for one in aggregates:
        if (
            one.operand is not None
            and not one.operand.per_group
            and (one.function == "avg" or one.function in VARIANCES)
        ):
            column = _column_of(one, one.operand)
            found[column] = found.get(column, False) or one.function in VARIANCES
    return found


def _column_of(one: Aggregate, operand: Operand) -> Column:
    """Returns the column of an aggregate, of a variance in steps that are not too many to be squared."""
    width = operand.high - operand.low
    if one.function in VARIANCES and width / operand.step > MOST_SQUARED_STEPS:
        operand = replace(operand, step=width / MOST_SQUARED_STEPS)
    return one.condition, operand


def _about_a_centre(
    column: Column, norm: Fraction, stated: Fraction | None, centre: Fraction | None, *, squared: bool
) -> tuple[Measure, ...]:
    """Returns the count of values and the sum about a centre, and the squares where they are asked for.

    stated: the norm of the sum.
    """
    condition, operand = column
    counted = Measure("valued", condition, operand, shared=True)
    summed = Measure("sum", condition, operand, centre=_on_a_step(centre, operand), shared=squared)
    found = [_with_norm(counted, norm, None), _with_norm(summed, norm, stated)]
    if squared:
        squares = replace(summed, form="squares", shared=False)
        found.append(_with_norm(squares, norm, None if stated is None else SPREAD * stated**2 / norm))
    return tuple(found)


def _alone(one: Aggregate, norm: Fraction, stated: Fraction | None) -> Measure:
    """Returns the measure of a count or a sum."""
    measure = own_measure(one, chosen=False)
    if one.curved or measure.form not in ("count", "sum"):
        raise Refusal(
            "max_norm_contributed is of counts, sums, averages and variances alone",
            accepted="count(*), count(x), sum(x), avg(x), stddev(x), count(DISTINCT unit); others in another statement",
        )
    return _with_norm(measure, norm, stated if measure.form == "sum" else None)


def _with_norm(measure: Measure, norm: Fraction, stated: Fraction | None) -> Measure:
    """Returns a measure with the norm that was stated for it, or with so many rows at its bound."""
    in_integers = norm * measure.bound if stated is None else stated / measure.operand_step
    return replace(measure, squared_norm=max(1, floor(in_integers**2)))


def _use(one: Aggregate, places: dict[Measure, int], measures: tuple[Measure, ...]) -> Use:
    """Returns an aggregate's use of its count or sum, and of the sum and the squares beside the count."""
    first, *beside = measures
    if not beside:
        weights = (Fraction(1),) if first.form == "valued" else linear_weights(one, first)
        return Use(places[first], tuple(weight / FULL for weight in weights))
    also: Use | None = None
    for measure in reversed(beside):
        also = Use(places[measure], (measure.operand_step / FULL,), also)
    return Use(places[first], (beside[0].centre / FULL,) if one.function == "sum" else (), also)


def _of_each(numbers: Sequence[Fraction], operands: Sequence[Operand]) -> dict[Operand, Fraction]:
    """Returns the number of each summed column. A single number serves all columns."""
    if numbers and len(numbers) not in (1, len(operands)):
        raise Refusal(
            f"{len(numbers)} numbers for {len(operands)} summed columns",
            accepted="one number, or one for each column that is summed or averaged, in the order in which they stand",
        )
    return dict(zip(operands, numbers if len(numbers) > 1 else [*numbers] * len(operands), strict=False))


def _on_a_step(centre: Fraction | None, operand: Operand) -> Fraction:
    """Returns a centre on the grid of values: the middle of the bounds, where none is stated."""
    wanted = (operand.low + operand.high) / 2 if centre is None else min(max(centre, operand.low), operand.high)
    return operand.low + operand.step * round((wanted - operand.low) / operand.step)
