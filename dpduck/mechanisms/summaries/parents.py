"""Consistency check of dyadic summaries: a node without its parent is dropped (the paper's section 6)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.dyadic import DyadicAxis
from dpduck.kernel.queries.cells import MixedRadix, at_most
from dpduck.kernel.queries.summaries import NoisySummary
from dpduck.values.arrays import IntegerArray


def subset(summary: NoisySummary, chosen: NDArray[np.intp] | NDArray[np.bool_]) -> NoisySummary:
    """Selects rows of a summary."""
    return NoisySummary(
        summary.positions[:, chosen], summary.counts[chosen], summary.priorities[chosen], summary.layers
    )


def with_parents(summary: NoisySummary, radix: MixedRadix, axes: Sequence[DyadicAxis | None]) -> NoisySummary:
    """Drops the nodes that lack an ancestor, level by level from the root down."""
    codes = radix.unpack(summary.positions)
    depth = np.zeros(len(summary.counts), dtype=np.int64)
    for axis, code in zip(axes, codes, strict=True):
        if axis is not None:
            depth += axis.height - places_of(axis, code)[0]
    passed = np.ones(len(summary.counts), dtype=np.bool_)
    for level in range(1, int(depth.max(initial=0)) + 1):
        places = np.flatnonzero(depth == level)
        for number, axis in enumerate(axes):
            if axis is not None and places.size:
                passed[places] &= _parent_kept(summary, radix, codes, passed, places, number, axis)
    return subset(summary, passed)


def _parent_kept(
    summary: NoisySummary,
    radix: MixedRadix,
    codes: Sequence[IntegerArray],
    passed: NDArray[np.bool_],
    places: NDArray[np.intp],
    number: int,
    axis: DyadicAxis,
) -> NDArray[np.bool_]:
    """Tells for each node in `places` whether its parent along an axis is in the summary and passed. True for roots."""
    parents = parents_of(axis, codes[number][places])
    chosen = [code[places] for code in codes]
    chosen[number] = np.maximum(parents, 0)
    wanted = radix.pack(chosen, len(places))
    rows = at_most(summary.positions, wanted) - 1
    before = np.maximum(rows, 0)
    present = (rows >= 0) & (summary.positions[:, before] == wanted).all(axis=0)
    answer: NDArray[np.bool_] = (parents < 0) | (present & passed[before])
    return answer


def places_of(axis: DyadicAxis, numbers: NDArray[np.integer]) -> tuple[IntegerArray, IntegerArray]:
    """Returns each node's level, and its interval's number in the level. The total of a Haar axis has 0 for both."""
    starts = np.array(axis.offsets[:-1] or (1,), dtype=np.int64)
    step = np.searchsorted(starts, numbers, side="right") - 1
    total = step < 0
    intervals = np.where(total, 0, numbers - starts[np.maximum(step, 0)])
    levels = np.where(total, 0, step + axis.first_level)
    return levels.astype(np.int64), intervals.astype(np.int64)


def parents_of(axis: DyadicAxis, numbers: IntegerArray) -> IntegerArray:
    """Returns the number of each dyadic node's parent, -1 for the root."""
    levels, intervals = places_of(axis, numbers)
    starts = np.array([*axis.offsets[1:-1], 0], dtype=np.int64)
    return np.where(levels == axis.height, -1, starts[levels] + (intervals >> 1))


def ends_of(axis: DyadicAxis, numbers: NDArray[np.integer]) -> tuple[IntegerArray, IntegerArray]:
    """Returns the first and the last code of each node."""
    levels, intervals = places_of(axis, numbers)
    width = np.where(levels < axis.first_level, axis.height, levels)
    first = intervals << width
    return first, np.minimum(first + (np.int64(1) << width), axis.size) - 1
