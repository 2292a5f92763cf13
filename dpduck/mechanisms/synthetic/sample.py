"""Rows drawn from a distribution: post-processing, so that randomness need only be unpredictable, not exact."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from numpy.typing import NDArray

from dpduck.mechanisms.synthetic.distribution import Distribution
from dpduck.mechanisms.synthetic.junction import tree_axes
from dpduck.values.arrays import FloatArray, IntegerArray

Words = Callable[[int], NDArray[np.uint64]]
GOLDEN = (5**0.5 - 1) / 2


def sample_codes(distribution: Distribution, rows: int, words: Words) -> list[IntegerArray]:
    """Draws rows, and returns their codes for each attribute. words: draws uniform 64-bit integers."""
    codes: dict[int, IntegerArray] = {}
    tree, history = distribution.tree, np.zeros(rows, np.int64)
    for place in tree.order:
        component, given = distribution.components[place], tree.separators[place]
        axes = tree_axes(component.members, given)
        shape = [component.table.shape[axis] for axis in axes]
        shared = [axis for axis in range(component.table.ndim) if axis not in axes]
        weights = component.table.transpose([*shared, *axes]).reshape(-1, prod(shape))
        groups = np.zeros(rows, np.int64)
        for axis in shared:
            groups = groups * component.table.shape[axis] + codes[component.members[axis]]
        order = np.lexsort((words(rows), history, groups))
        groups, cells = groups[order], np.empty(rows, np.int64)
        turns = (np.arange(rows) * GOLDEN) % 1
        cells[order[np.lexsort((turns, groups))]] = _draw_cells(
            weights, groups, float(words(1)[0] >> np.uint64(11)) * 2.0**-53
        )
        for axis, of_member in zip(axes, np.unravel_index(cells, shape), strict=True):
            codes[component.members[axis]] = of_member
        history[np.lexsort((history, cells))] = np.arange(rows)
    return [codes[attribute] for attribute in range(len(distribution.sizes))]


def _draw_cells(weights: FloatArray, groups: IntegerArray, shift: float) -> IntegerArray:
    """Draws a cell for each row, by the weights of its group. groups: increasing, one for each row. shift: 0 to 1."""
    present, counts = np.unique(groups, return_counts=True)
    cumulated = np.cumsum(weights[present], axis=1)
    ended = cumulated >= cumulated[:, -1:]  # rounding gives no row to cells without weight at the end
    cumulated *= (counts / np.maximum(cumulated[:, -1], 1e-300))[:, None]
    cumulated = np.where(ended, counts[:, None], cumulated)
    cumulated += ((shift + np.arange(len(present)) * GOLDEN) % 1)[:, None]
    ends = np.floor(cumulated).astype(np.int64)
    ends[:, 1:] -= ends[:, :-1].copy()
    drawn: IntegerArray = np.repeat(np.arange(ends.size), ends.reshape(-1)) % weights.shape[1]
    return drawn
