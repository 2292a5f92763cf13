"""Many measurements of one family, built when asked: planning 166,751 marginals makes no object for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import overload

import numpy as np
from numpy.typing import NDArray

from dpduck.planning.plan import Measurement, Plan
from dpduck.trusted.operators import Factor, KroneckerQuery


@dataclass(frozen=True, eq=False)
class Spreads(Sequence[Fraction]):
    """One exact spread per measurement; equal ones are held once.

    distinct: the different values. which: for each measurement, the position of its value in `distinct`.
    """

    distinct: tuple[Fraction, ...]
    which: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.which)

    @overload
    def __getitem__(self, item: int) -> Fraction: ...
    @overload
    def __getitem__(self, item: slice) -> Spreads: ...
    def __getitem__(self, item: int | slice) -> Fraction | Spreads:
        if isinstance(item, slice):
            return Spreads(self.distinct, self.which[item])
        return self.distinct[int(self.which[item])]


@dataclass(frozen=True, eq=False)
class FamilyMeasurements(Sequence[Measurement]):
    """Asks the same kind of question of every set: along attribute i the factor `factors[i]`, shared by all.

    attribute_sets: increasing domain positions. factors: by domain position; only those that occur need be right.
    """

    attribute_sets: Sequence[tuple[int, ...]]
    factors: Sequence[Factor]
    spreads: Spreads

    def __len__(self) -> int:
        return len(self.attribute_sets)

    @overload
    def __getitem__(self, item: int) -> Measurement: ...
    @overload
    def __getitem__(self, item: slice) -> Sequence[Measurement]: ...
    def __getitem__(self, item: int | slice) -> Measurement | Sequence[Measurement]:
        if isinstance(item, slice):
            return FamilyMeasurements(self.attribute_sets[item], self.factors, self.spreads[item])
        members = self.attribute_sets[item]
        query = KroneckerQuery(members, tuple(self.factors[attribute] for attribute in members))
        return Measurement(query, self.spreads[item])


def measured_kinds(plan: Plan) -> set[type[Factor]]:
    """The kinds of factors that a plan measures with."""
    if isinstance(plan.measurements, FamilyMeasurements):
        return {type(factor) for factor in plan.measurements.factors}
    return {type(factor) for measurement in plan.measurements for factor in measurement.query.factors}
