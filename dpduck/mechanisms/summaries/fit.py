"""Least squares for the dyadic intervals of a summary, as free post-processing (Hay, Rastogi, Miklau and Suciu 2010).

Halves tell about their interval only if both were released: a half that the filter has dropped is unknown, not 0. On
the way up, an interval becomes the mean of its own count and the sum of its halves, weighted by inverse variance. On
the way down, the halves share their gap to the interval by their variances. Factors are multiples of the noise
variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.dyadic import DyadicAxis
from dpduck.kernel.queries.cells import MixedRadix, first_of_each, ordering
from dpduck.mechanisms.summaries.parents import places_of
from dpduck.mechanisms.summaries.recover import EstimatedSummary
from dpduck.values.arrays import FloatArray, IntegerArray

Places = NDArray[np.intp]


@dataclass(frozen=True)
class _Families:
    """Intervals of one level and their halves, as row numbers. right: -1 if no label lies in the right half."""

    parents: Places
    left: Places
    right: Places

    def sums(self, values: FloatArray) -> FloatArray:
        """Returns the sum over the halves. A half without labels adds nothing."""
        return values[self.left] + np.where(self.right < 0, 0.0, values[self.right])


def fit_intervals(
    summary: EstimatedSummary, radix: MixedRadix, axes: Sequence[DyadicAxis | None], noise: float
) -> EstimatedSummary:
    """Returns the summary with its counts fitted by least squares. noise: the variance of each count.

    Only the noise in a row's variance changes. The rest is about counts that a filter has dropped, and stays.
    """
    ordered = [number for number, axis in enumerate(axes) if axis is not None]
    axis = axes[ordered[0]] if len(ordered) == 1 else None
    if axis is None or axis.shape != "dyadic" or not len(summary.counts):
        return summary
    families = _families(axis, ordered[0], radix.unpack(summary.positions))
    counts, factors = summary.weights.copy(), np.ones_like(summary.weights)
    for family in families:
        below, spread = family.sums(counts), family.sums(factors)
        counts[family.parents] = (counts[family.parents] * spread + below) / (1.0 + spread)
        factors[family.parents] = spread / (1.0 + spread)
    weights, left_over = counts.copy(), factors.copy()
    for family in reversed(families):
        spread = family.sums(factors)
        missing = (weights[family.parents] - family.sums(counts)) / spread
        change = (left_over[family.parents] - spread) / spread**2
        for halves in (family.left, family.right):
            there = halves >= 0
            part = factors[halves[there]]
            weights[halves[there]] = counts[halves[there]] + part * missing[there]
            left_over[halves[there]] = part + part**2 * change[there]
    variances = summary.variances + noise * (left_over - 1.0)
    return replace(summary, weights=weights, variances=variances, sums=variances)


def _families(axis: DyadicAxis, ordered: int, codes: Sequence[NDArray[np.int64]]) -> list[_Families]:
    """Returns released intervals with released halves, level by level from the leaves up. ordered: the axis's key."""
    others = [code for number, code in enumerate(codes) if number != ordered]
    levels, intervals = places_of(axis, codes[ordered])
    names = _groups(others, len(levels)) * axis.nodes + codes[ordered]
    order = np.argsort(names, kind="stable")
    families = []
    for level in range(1, axis.height + 1):
        parents = np.flatnonzero(levels == level)
        first = 2 * intervals[parents]
        start = names[parents] - codes[ordered][parents] + axis.offsets[level - 1]
        left = _places(names, order, start + first)
        absent = (first + 1) << (level - 1) >= axis.size
        right = np.where(absent, -1, _places(names, order, start + first + 1))
        whole = (left >= 0) & ((right >= 0) | absent)
        families.append(_Families(parents[whole], left[whole], right[whole]))
    return families


def _groups(others: Sequence[NDArray[np.int64]], count: int) -> IntegerArray:
    """Returns a number for each row. Rows have the same number if they have the same values of all other keys."""
    numbers: IntegerArray = np.zeros(count, dtype=np.int64)
    if others:
        stacked = np.array(others, dtype=np.int64)
        order = ordering(stacked)
        numbers[order] = np.cumsum(first_of_each(stacked[:, order])) - 1
    return numbers


def _places(names: IntegerArray, order: Places, wanted: IntegerArray) -> Places:
    """Returns the row with each wanted number in `names`, -1 if no row has it. order: the rows sorted by `names`."""
    place = np.minimum(np.searchsorted(names, wanted, sorter=order), len(names) - 1)
    rows = order[place]
    return np.where(names[rows] == wanted, rows, -1)
