"""Exact counts of dyadic intervals and Haar coefficients over ordered attributes, from the occupied cells alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.dyadic import Axis
from dpduck.trusted.private.cells import MixedRadix, merged
from dpduck.trusted.private.hidden import ExactCounts
from dpduck.trusted.private.summaries import SparseCounts
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError


def sparse_counts(counts: ExactCounts, axes: Sequence[Axis | None], radix: MixedRadix) -> SparseCounts:
    """The first aggregate by position. axes: for each attribute the nodes that take its place, None for none.

    radix: over the attributes, or over the nodes that take their place.
    """
    sizes = tuple(size if axis is None else axis.nodes for size, axis in zip(counts._sizes, axes, strict=True))
    if sizes != radix.sizes or any(axis and axis.size != size for size, axis in zip(counts._sizes, axes, strict=True)):
        raise InternalError("the summary and the counts disagree about the domain")
    coordinates, values = counts._exact_coordinates, counts._exact_counts[0]
    positions = radix.pack(coordinates, len(values)) if not any(axes) else None
    if positions is not None:
        return SparseCounts(radix, positions, values)
    found, sums = np.empty((len(radix.bases), 0), dtype=np.int64), np.empty(0, dtype=np.int64)
    for steps in product(*(range(1 if axis is None else axis.per_row) for axis in axes)):
        nodes, signed = _nodes(coordinates, values, axes, steps)
        level = merged(radix.pack(nodes, len(signed)), signed)
        found, sums = np.concatenate([found, level[0]], axis=1), np.concatenate([sums, level[1]])
    return SparseCounts(radix, found, sums)


def _nodes(
    coordinates: Sequence[NDArray[np.integer]],
    values: IntegerArray,
    axes: Sequence[Axis | None],
    steps: Sequence[int],
) -> tuple[list[NDArray[np.integer]], IntegerArray]:
    """The node of each cell at one level of each axis, and the cell's count with its sign there."""
    nodes: list[NDArray[np.integer]] = []
    for codes, axis, step in zip(coordinates, axes, steps, strict=True):
        if axis is None:
            nodes.append(codes)
            continue
        numbers, signs = axis.of_code(codes, step)
        nodes.append(numbers)
        values = values if signs is None else values * signs
    return nodes, values
