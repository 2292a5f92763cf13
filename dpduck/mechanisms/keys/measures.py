"""Tables that answer aggregates of published groups, and the part of the price for each table.

An average is a count of values and the sum of their distances from the middle of their bounds, as in cubes/weighed.py.
The selection counts as one aggregate, and all aggregates have equal parts of the price.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpduck.kernel.queries.keys import GroupBounds
from dpduck.kernel.queries.operators import Norms
from dpduck.language.select.request import Aggregate, Operand, Treatment
from dpduck.mechanisms.cubes.measures import (
    Measure,
    Measures,
    Use,
    linear_weights,
    measure_rows,
    measure_values,
    own_measure,
)
from dpduck.mechanisms.cubes.weighed import COUNT_SHARE, measures_with_norm
from dpduck.values.errors import Refusal

Taken = tuple[bool, Measure]
"""Whether the count that selects groups gives the answer, and the answer's measure."""


@dataclass(frozen=True)
class KeyMeasures:
    """Measures of a statement, and their use by each aggregate. shares: each measure's part of the price.

    selection: the share of the count that selects groups. reused: the measures that this count answers.
    """

    measures: tuple[Measure, ...]
    uses: tuple[Use, ...]
    shares: tuple[Fraction, ...]
    selection: Fraction
    reused: tuple[int, ...]


def measures_of_keys(aggregates: Sequence[Aggregate], reused: Sequence[int], other: bool) -> KeyMeasures:
    """Returns the measures. reused: aggregates of the selecting count. These cost only in the row of `other` groups."""
    means = {(call.condition, call.operand) for call in aggregates if call.function == "avg"}
    demands: dict[Taken, Fraction] = {}
    pairs: list[tuple[Taken, Taken | None]] = []

    def demand(measure: Measure, part: Fraction, free: bool = False) -> Taken:
        demands[free, measure] = demands.get((free, measure), Fraction(0)) + part
        return free, measure

    for number, call in enumerate(aggregates):
        if number in reused:
            pairs.append((demand(measure_rows(call.condition), Fraction(int(other)), True), None))
        elif call.function in ("avg", "sum") and (call.condition, call.operand) in means and call.operand is not None:
            valued = measure_values("valued", call.condition, call.operand, shared=True)
            summed = measure_values("sum", call.condition, call.operand, centre=middle_of(call.operand))
            pairs.append((demand(valued, COUNT_SHARE), demand(summed, 1 - COUNT_SHARE)))
        else:
            pairs.append((demand(_alone(call), Fraction(1)), None))
    places = {entry: number for number, entry in enumerate(demands)}
    whole = 1 + sum(demands.values())
    return KeyMeasures(
        tuple(replace(measure, share=part / whole) for (_, measure), part in demands.items()),
        tuple(_use(call, places, *entry) for call, entry in zip(aggregates, pairs, strict=True)),
        tuple(part / whole for part in demands.values()),
        1 / Fraction(whole),
        tuple(places[entry] for entry in demands if entry[0]),
    )


def key_measures_with_norm(aggregates: Sequence[Aggregate], reused: Sequence[int], treatment: Treatment) -> KeyMeasures:
    """Returns the measures if units are weighed down to a norm. The selecting count and its answers have no weights."""
    weighed = [number for number in range(len(aggregates)) if number not in reused]
    for number in weighed:
        if aggregates[number].function not in ("count", "sum", "avg"):
            _alone(aggregates[number])
    whole = Fraction(1 + len(weighed))
    base = measures_with_norm([aggregates[number] for number in weighed], treatment) if weighed else Measures((), ())
    uses = dict(zip(weighed, base.uses, strict=True))
    measures = list(base.measures)
    for number in reused:
        uses[number] = Use(len(measures), (Fraction(1),))
        measures.append(replace(measure_rows(aggregates[number].condition).with_norm(1), share=Fraction(0)))
    shares = [measure.share * len(weighed) / whole for measure in base.measures]
    return KeyMeasures(
        tuple(measures),
        tuple(uses[number] for number in range(len(aggregates))),
        (*shares, *(Fraction(0) for _ in reused)),
        1 / whole,
        tuple(uses[number].measure for number in reused),
    )


def norms_of_keys(measure: Measure, bounds: GroupBounds, merged: bool) -> Norms:
    """Bounds a unit's change: L1 norm, squared L2 norm, change of one number. merged: one row sums all other groups."""
    l1 = measure.unit_bound(bounds.rows, bounds.groups)
    most = l1 if merged else measure.unit_bound(bounds.rows, 1)
    if measure.contribution.norm and not merged:
        return l1, measure.contribution.squared_bound(bounds.rows, bounds.groups, bounds.rows), most
    return l1, l1 * most, most


def middle_of(operand: Operand) -> Fraction:
    """Returns the middle of the bounds, on the grid of values."""
    return operand.low + operand.step * round((operand.high - operand.low) / operand.step / 2)


def _alone(aggregate: Aggregate) -> Measure:
    """Returns the measure of a count or a sum. Refuses other aggregates."""
    measure = own_measure(aggregate, chosen=False)
    if aggregate.has_curved_error or measure.form not in ("count", "sum"):
        raise Refusal(f"with selected keys there is no {aggregate.text[:60]}", accepted="count, sum and avg")
    return measure


def _use(aggregate: Aggregate, places: dict[Taken, int], first: Taken, second: Taken | None) -> Use:
    if second is None:
        return Use(places[first], linear_weights(aggregate, first[1]))
    also = Use(places[second], (second[1].contribution.unit,))
    return Use(places[first], (second[1].contribution.centre,) if aggregate.function == "sum" else (), also)
