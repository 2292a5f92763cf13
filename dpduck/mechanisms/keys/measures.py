"""The tables that answer aggregates of published groups, and the part of the price of each table.

A count of rows or of persons has a table. So has a sum. An average is a count of values and the sum of their distances
from the middle of their bounds, as where units are weighed (cubes/weighed.py). A sum of the same column comes from
these two. The selection counts as one aggregate, and all aggregates share the price alike. With max_norm_contributed
the measures are those of cubes/weighed.py. A unit is weighed over its groups that are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpduck.kernel.queries.keys import GroupBounds
from dpduck.kernel.queries.operators import Norms
from dpduck.language.select.request import Aggregate, Operand, Treatment
from dpduck.mechanisms.cubes.measures import Measure, Measures, Use, contribution_of, linear_weights, own_measure
from dpduck.mechanisms.cubes.weighed import COUNT_SHARE, weighed_measures
from dpduck.values.errors import Refusal

Taken = tuple[bool, Measure]
"""Whether the selecting count answers a measure, and the measure."""


@dataclass(frozen=True)
class KeyMeasures:
    """The measures of a statement, and what each aggregate takes from them.

    shares: of the price, one for each measure. selection: the part of the selecting count.
    reused: the measures that the selecting count answers.
    """

    measures: tuple[Measure, ...]
    uses: tuple[Use, ...]
    shares: tuple[Fraction, ...]
    selection: Fraction
    reused: tuple[int, ...]


def measures_of_keys(aggregates: Sequence[Aggregate], reused: Sequence[int], other: bool) -> KeyMeasures:
    """Returns the measures. reused: the aggregates that the selecting count answers, free but for the row `other`."""
    averaged = {(one.condition, one.operand) for one in aggregates if one.function == "avg"}
    demands: dict[Taken, Fraction] = {}
    taken: list[tuple[Taken, Taken | None]] = []

    def demand(measure: Measure, part: Fraction, free: bool = False) -> Taken:
        demands[free, measure] = demands.get((free, measure), Fraction(0)) + part
        return free, measure

    for number, one in enumerate(aggregates):
        if number in reused:
            taken.append((demand(Measure("count", one.condition), Fraction(int(other)), True), None))
        elif one.function in ("avg", "sum") and (one.condition, one.operand) in averaged and one.operand is not None:
            valued = Measure("valued", one.condition, one.operand, shared=True)
            summed = Measure("sum", one.condition, one.operand, centre=middle_of(one.operand))
            taken.append((demand(valued, COUNT_SHARE), demand(summed, 1 - COUNT_SHARE)))
        else:
            taken.append((demand(_alone(one), Fraction(1)), None))
    places = {found: number for number, found in enumerate(demands)}
    whole = 1 + sum(demands.values())
    return KeyMeasures(
        tuple(replace(measure, share=part / whole) for (_, measure), part in demands.items()),
        tuple(_use(one, places, *found) for one, found in zip(aggregates, taken, strict=True)),
        tuple(part / whole for part in demands.values()),
        1 / Fraction(whole),
        tuple(places[found] for found in demands if found[0]),
    )


def weighed_measures_of_keys(
    aggregates: Sequence[Aggregate], reused: Sequence[int], treatment: Treatment
) -> KeyMeasures:
    """Returns the measures of units that are weighed. Answers of the selecting count are of all units alike."""
    weighed = [number for number in range(len(aggregates)) if number not in reused]
    for number in weighed:
        if aggregates[number].function not in ("count", "sum", "avg"):
            _alone(aggregates[number])
    whole = Fraction(1 + len(weighed))
    found = weighed_measures([aggregates[number] for number in weighed], treatment) if weighed else Measures((), ())
    uses = dict(zip(weighed, found.uses, strict=True))
    measures = list(found.measures)
    for number in reused:
        uses[number] = Use(len(measures), (Fraction(1),))
        measures.append(Measure("count", aggregates[number].condition, squared_norm=1, share=Fraction(0)))
    shares = [measure.share * len(weighed) / whole for measure in found.measures]
    return KeyMeasures(
        tuple(measures),
        tuple(uses[number] for number in range(len(aggregates))),
        (*shares, *(Fraction(0) for _ in reused)),
        1 / whole,
        tuple(uses[number].measure for number in reused),
    )


def norms_of_keys(measure: Measure, bounds: GroupBounds, merged: bool) -> Norms:
    """Returns how far a unit moves a table by group (L1, squared L2, any one number). merged: see CountingJob."""
    l1 = measure.unit_bound(bounds.rows, bounds.groups)
    most = l1 if merged else measure.unit_bound(bounds.rows, 1)
    if measure.squared_norm and not merged:
        return l1, contribution_of(measure).squared_bound(bounds.rows, bounds.groups, bounds.rows), most
    return l1, l1 * most, most


def middle_of(operand: Operand) -> Fraction:
    """Returns the middle of the bounds, on the grid of values."""
    return operand.low + operand.step * round((operand.high - operand.low) / operand.step / 2)


def _alone(one: Aggregate) -> Measure:
    """Returns the measure of a count or a sum."""
    measure = own_measure(one, chosen=False)
    if one.curved or measure.form not in ("count", "sum"):
        raise Refusal(f"{one.text[:60]} is not of selected keys", accepted="count, sum and avg")
    return measure


def _use(one: Aggregate, places: dict[Taken, int], first: Taken, second: Taken | None) -> Use:
    """Returns an aggregate's use of its count or sum, and of the sum beside the count."""
    if second is None:
        return Use(places[first], linear_weights(one, first[1]))
    also = Use(places[second], (second[1].operand_step,))
    return Use(places[first], (second[1].centre,) if one.function == "sum" else (), also)
