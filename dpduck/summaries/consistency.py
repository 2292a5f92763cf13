"""The consistency check of dyadic summaries: a node is dropped where a parent is absent (the paper's section 6).

Exact counts grow towards the root, so a node above the filter whose parent is below it is nearly always noise. With
several ordered attributes a node has one parent in each direction, and all of them must be there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpduck.arrays import IntegerArray
from dpduck.summaries.estimators import subset
from dpduck.trusted.mixed_radix import MixedRadix, at_most
from dpduck.trusted.summary_sampler import NoisySummary
from dpduck.workload.dyadic import Axis


def with_parents(summary: NoisySummary, radix: MixedRadix, axes: Sequence[Axis | None]) -> NoisySummary:
    """The summary without nodes that lack an ancestor: checked from the root down, a level at a time."""
    codes = radix.unpack(summary.positions)
    depth = np.zeros(len(summary.counts), dtype=np.int64)
    for axis, code in zip(axes, codes, strict=True):
        if axis is not None:
            depth += axis.height - places_of(axis, code)[0]
    kept = np.ones(len(summary.counts), dtype=np.bool_)
    for level in range(1, int(depth.max(initial=0)) + 1):
        places = np.flatnonzero(depth == level)
        for number, axis in enumerate(axes):
            if axis is not None and places.size:
                kept[places] &= _parent_kept(summary, radix, codes, kept, places, number, axis)
    return subset(summary, kept)


def _parent_kept(
    summary: NoisySummary,
    radix: MixedRadix,
    codes: Sequence[IntegerArray],
    kept: NDArray[np.bool_],
    places: NDArray[np.intp],
    number: int,
    axis: Axis,
) -> NDArray[np.bool_]:
    """Whether the parent along one axis is in the summary and was itself kept; true of roots."""
    parents = parents_of(axis, codes[number][places])
    chosen = [code[places] for code in codes]
    chosen[number] = np.maximum(parents, 0)
    wanted = radix.pack(chosen, len(places))
    found = at_most(summary.positions, wanted) - 1
    before = np.maximum(found, 0)
    present = (found >= 0) & (summary.positions[:, before] == wanted).all(axis=0)
    answer: NDArray[np.bool_] = (parents < 0) | (present & kept[before])
    return answer


def places_of(axis: Axis, numbers: NDArray[np.integer]) -> tuple[IntegerArray, IntegerArray]:
    """Level and interval of nodes; the total of a Haar axis has level 0, interval 0."""
    starts = np.array(axis.offsets[:-1] or (1,), dtype=np.int64)
    step = np.searchsorted(starts, numbers, side="right") - 1
    total = step < 0
    intervals = np.where(total, 0, numbers - starts[np.maximum(step, 0)])
    levels = np.where(total, 0, step + axis.first_level)
    return levels.astype(np.int64), intervals.astype(np.int64)


def parents_of(axis: Axis, numbers: IntegerArray) -> IntegerArray:
    """The number of each dyadic node's parent, -1 for the root."""
    levels, intervals = places_of(axis, numbers)
    starts = np.array([*axis.offsets[1:-1], 0], dtype=np.int64)
    return np.where(levels == axis.height, -1, starts[levels] + (intervals >> 1))


def ends_of(axis: Axis, numbers: NDArray[np.integer]) -> tuple[IntegerArray, IntegerArray]:
    """First and last code of each node."""
    levels, intervals = places_of(axis, numbers)
    width = np.where(levels < axis.first_level, axis.height, levels)
    first = intervals << width
    return first, np.minimum(first + (np.int64(1) << width), axis.size) - 1
