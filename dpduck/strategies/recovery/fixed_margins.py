"""Answers whose margins are known in full, such as a public total for each county: the projection in closed form.

Answers are made of one ANOVA component for each set of keys, and these are uncorrelated. A known margin determines the
components of all subsets of its keys, and no other one. So the projection replaces these, and no matrix is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

import numpy as np

from dpduck.strategies.recovery.covariances import Covariances, TableCovariances
from dpduck.values.arrays import FloatArray

UNEQUAL = 1e-11
"""Sums of totals that differ by more than this part of the largest total contradict each other."""

Members = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class MarginProjection:
    """Projection onto known margins. variances: of each cell afterwards, 0 if it is known exactly."""

    sets: tuple[Members, ...]
    sizes: tuple[int, ...]
    margins: Mapping[Members, FloatArray]
    variances: FloatArray

    def project(self, answers: FloatArray) -> FloatArray:
        """Returns answers with the known margins: what is missing is spread evenly over the other keys."""
        tables = [
            part.reshape([self.sizes[key] for key in members]).copy()
            for part, members in zip(self.split(answers), self.sets, strict=True)
        ]
        for margin, known in self.margins.items():
            place = min(_holding(self.sets, margin), key=lambda number: tables[number].size)
            missing = known - _sum_onto(tables[place], self.sets[place], margin)
            for number, members in enumerate(self.sets):
                common = tuple(key for key in members if key in margin)
                share = prod(self.sizes[key] for key in members if key not in margin)
                shape = [self.sizes[key] if key in margin else 1 for key in members]
                tables[number] += _sum_onto(missing, margin, common).reshape(shape) / share
        return np.concatenate([table.ravel() for table in tables])

    def split(self, cells: FloatArray) -> list[FloatArray]:
        """Returns the cells of each grouping set."""
        return np.split(cells, np.cumsum(cells_of(self.sets, self.sizes))[:-1])


def cells_of(sets: Sequence[Members], sizes: Sequence[int]) -> list[int]:
    """Returns the number of cells of each grouping set."""
    return [prod(sizes[key] for key in members) for members in sets]


def margins_agree(margins: Mapping[Members, FloatArray]) -> bool:
    """Tells whether any two margins agree: they have the same sums by the keys that both have."""
    for first, second in combinations(margins, 2):
        common = tuple(key for key in first if key in second)
        sums = [_sum_onto(margins[margin], margin, common) for margin in (first, second)]
        if np.abs(sums[0] - sums[1]).max() > UNEQUAL * max(1.0, float(np.abs(sums).max())):
            return False
    return True


def projection_onto_margins(
    sets: tuple[Members, ...], sizes: tuple[int, ...], margins: Mapping[Members, FloatArray], covariances: Covariances
) -> MarginProjection:
    """Returns the projection of answers with these covariances. Each margin must be a part of some set."""
    variances = []
    for members, cells in zip(sets, cells_of(sets, sizes), strict=True):
        left = sum(
            _component_variance(covariances, inside) * prod(sizes[key] - 1 for key in inside)
            for count in range(len(members) + 1)
            for inside in combinations(members, count)
            if not any(set(inside) <= set(margin) for margin in margins)
        )
        variances.append(np.full(cells, left / cells**2))
    return MarginProjection(sets, sizes, margins, np.concatenate(variances))


def _component_variance(covariances: Covariances, inside: Members) -> float:
    """Returns c_U of a set of keys. Sums of one noisy table have the same in every set."""
    if not isinstance(covariances, TableCovariances):
        return float(covariances.variances[covariances.lattice.numbers[inside]])
    measured, variance = next(iter(covariances.sources.values()))
    return variance * prod(float(covariances.sizes[key]) for key in measured)


def _holding(sets: Sequence[Members], margin: Members) -> list[int]:
    return [number for number, members in enumerate(sets) if set(margin) <= set(members)]


def _sum_onto(table: FloatArray, members: Members, wanted: Members) -> FloatArray:
    outside = tuple(axis for axis, key in enumerate(members) if key not in wanted)
    return np.asarray(table.sum(axis=outside))
