"""Exact nonzero counts of cells, or of dyadic intervals and Haar coefficients over ordered attributes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.dyadic import DyadicAxis
from dpduck.kernel.counting.hidden import ExactCounts, Hidden
from dpduck.kernel.queries.cells import MixedRadix, Positions, merge_cells
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError


class SparseCounts(Hidden):
    """Exact nonzero counts, sorted by position. They are hidden, because even their number is private."""

    __slots__ = ("_occupied_counts", "_occupied_positions", "radix")

    def __init__(self, radix: MixedRadix, positions: Positions, counts: IntegerArray) -> None:
        self.radix = radix
        self._occupied_positions, self._occupied_counts = merge_cells(positions, counts)


def sparse_counts(counts: ExactCounts, axes: Sequence[DyadicAxis | None], radix: MixedRadix) -> SparseCounts:
    """Returns the first aggregate's counts by position in `radix`. axes: None keeps an attribute's values."""
    sizes = tuple(size if axis is None else axis.nodes for size, axis in zip(counts._sizes, axes, strict=True))
    if sizes != radix.sizes or any(axis and axis.size != size for size, axis in zip(counts._sizes, axes, strict=True)):
        raise InternalError("the summary and the counts disagree about the domain")
    coordinates, values = counts._exact_coordinates, counts._exact_counts[0]
    if not any(axes):
        return SparseCounts(radix, radix.pack(coordinates, len(values)), values)
    positions, sums = np.empty((len(radix.bases), 0), dtype=np.int64), np.empty(0, dtype=np.int64)
    for steps in product(*(range(1 if axis is None else axis.per_row) for axis in axes)):
        nodes, signed = _nodes(coordinates, values, axes, steps)
        level = merge_cells(radix.pack(nodes, len(signed)), signed)
        positions, sums = np.concatenate([positions, level[0]], axis=1), np.concatenate([sums, level[1]])
    return SparseCounts(radix, positions, sums)


def _nodes(
    coordinates: Sequence[NDArray[np.integer]],
    values: IntegerArray,
    axes: Sequence[DyadicAxis | None],
    steps: Sequence[int],
) -> tuple[list[NDArray[np.integer]], IntegerArray]:
    """Returns the node of each cell at one level of each axis, and the cell's count with its sign at that node."""
    nodes: list[NDArray[np.integer]] = []
    for codes, axis, step in zip(coordinates, axes, steps, strict=True):
        if axis is None:
            nodes.append(codes)
            continue
        numbers, signs = axis.of_code(codes, step)
        nodes.append(numbers)
        values = values if signs is None else values * signs
    return nodes, values
