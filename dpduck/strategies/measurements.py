"""Measurements: integer queries with their noise. A family of many measurements builds each at its access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import overload

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.queries.operators import Factor, KroneckerQuery


@dataclass(frozen=True)
class Measurement:
    """One integer query and its noise. The noise of each row is independent and has the same law.

    parameter: exact rational, in the integer units of the query. Laplace: the scale b, P(k) proportional to
    exp(-|k|/b). Gaussian: the parameter sigma^2, P(k) proportional to exp(-k^2 / (2 sigma^2)).
    """

    query: KroneckerQuery
    parameter: Fraction


@dataclass(frozen=True, eq=False)
class Parameters(Sequence[Fraction]):
    """Exact noise parameters. distinct: the different values. which: each measurement's position in `distinct`."""

    distinct: tuple[Fraction, ...]
    which: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.which)

    @overload
    def __getitem__(self, item: int) -> Fraction: ...
    @overload
    def __getitem__(self, item: slice) -> Parameters: ...
    def __getitem__(self, item: int | slice) -> Fraction | Parameters:
        if isinstance(item, slice):
            return Parameters(self.distinct, self.which[item])
        return self.distinct[int(self.which[item])]


@dataclass(frozen=True, eq=False)
class FamilyMeasurements(Sequence[Measurement]):
    """Measurements of many sets of attributes: every query has the factor `factors[i]` along attribute i.

    attribute_sets: increasing domain positions. factors: by domain position. Factors of unused attributes do not count.
    """

    attribute_sets: Sequence[tuple[int, ...]]
    factors: Sequence[Factor]
    parameters: Parameters

    def __len__(self) -> int:
        return len(self.attribute_sets)

    @overload
    def __getitem__(self, item: int) -> Measurement: ...
    @overload
    def __getitem__(self, item: slice) -> Sequence[Measurement]: ...
    def __getitem__(self, item: int | slice) -> Measurement | Sequence[Measurement]:
        if isinstance(item, slice):
            return FamilyMeasurements(self.attribute_sets[item], self.factors, self.parameters[item])
        members = self.attribute_sets[item]
        query = KroneckerQuery(members, tuple(self.factors[attribute] for attribute in members))
        return Measurement(query, self.parameters[item])
