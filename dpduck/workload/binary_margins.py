"""Many marginals of a table of binary attributes at once, by sums over "these attributes are 0" alone.

With z(T) the sum over the cells in which all attributes of T are 0, the cell of marginal A in which exactly the
attributes Z of A are 0 is the sum over T, Z in T in A, of (-1)^|T - Z| z(T). All z(T) up to order k come from one sweep
over the attributes that halves the table at each step: all 3-way marginals of 16 attributes cost about 8 passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpduck.arrays import IntegerArray

Scalar = TypeVar("Scalar", np.int64, np.float64)

WORTH_IT = 8
"""Fewer marginals than these are summed one by one."""


@dataclass(frozen=True, eq=False)
class BinaryMargins:
    """attributes: of the table. order: of the largest marginal.

    blocks: for each order of marginals, where their cells stand in the result, and which z each of them needs.
    """

    attributes: int
    order: int
    length: int
    blocks: tuple[tuple[IntegerArray, IntegerArray], ...]

    def flat(self, table: NDArray[Scalar]) -> NDArray[Scalar]:
        """The cells of all marginals, one marginal after the other; exact for integers."""
        sums = self._zero_sums(table)
        found = np.empty(self.length, table.dtype)
        for places, needed in self.blocks:
            found[places] = sums[needed] @ _signs(needed.shape[1]).astype(table.dtype)
        return found

    def _zero_sums(self, table: NDArray[Scalar]) -> NDArray[Scalar]:
        """z of all sets up to the order, as `_numbers` counts them. Rows of parts[k]: sets of k of the attributes."""
        parts: list[NDArray[Scalar]] = [np.ascontiguousarray(table).reshape(1, -1)]
        for _ in range(self.attributes):
            halves = [part.reshape(len(part), 2, -1) for part in parts]
            after: list[NDArray[Scalar]] = []
            for size in range(min(len(parts), self.order) + 1):
                away = len(parts[size]) if size < len(parts) else 0
                rows = away + (len(parts[size - 1]) if size else 0)
                part = np.empty((rows, halves[0].shape[2]), table.dtype)
                if away:
                    np.add(halves[size][:, 0], halves[size][:, 1], out=part[:away])
                if size:
                    part[away:] = halves[size - 1][:, 0]
                after.append(part)
            parts = after
        return np.concatenate([part[:, 0] for part in parts])


def binary_margins(attributes: int, wanted: Sequence[tuple[int, ...]]) -> BinaryMargins | None:
    """For marginals on these axes, increasing each; None where the sweep would not be worth it."""
    order = max((len(axes) for axes in wanted), default=0)
    cells = [1 << len(axes) for axes in wanted]
    if len(wanted) < WORTH_IT or sum(comb(attributes, size) for size in range(order + 1)) > 2 * sum(cells):
        return None
    starts, blocks = np.cumsum([0, *cells]), []
    for size in range(order + 1):
        chosen = [place for place, axes in enumerate(wanted) if len(axes) == size]
        if chosen:
            places = starts[chosen][:, None] + np.arange(1 << size)
            axes = np.array([wanted[place] for place in chosen], np.int64).reshape(len(chosen), size)
            blocks.append((places, np.stack([_numbers(attributes, axes, mask) for mask in range(1 << size)], axis=1)))
    return BinaryMargins(attributes, order, sum(cells), tuple(blocks))


def _numbers(attributes: int, axes: IntegerArray, mask: int) -> IntegerArray:
    """Where the sweep leaves the sets of those axes whose bit in mask is 0, one set per row of axes.

    The first axis has the highest bit, as in the cells of a marginal. Smaller sets come first; of sets of one size,
    those that lack an attribute come before those that have it, so that a set of t_1 < t_2 < .. is number
    comb(t_1, 1) + comb(t_2, 2) + .. among them.
    """
    size = axes.shape[1]
    kept = [place for place in range(size) if not mask >> (size - 1 - place) & 1]
    found = np.full(len(axes), sum(comb(attributes, smaller) for smaller in range(len(kept))), np.int64)
    for position, place in enumerate(kept, start=1):
        ways = np.array([comb(axis, position) for axis in range(attributes)], np.int64)
        found += ways[axes[:, place]]
    return found


def _signs(cells: int) -> IntegerArray:
    """Entry (mask of T, mask of Z), set bits being attributes that are not in it: (-1)^|T - Z| where Z is in T."""
    sets = np.arange(cells)
    inside = (sets[:, None] & ~sets[None, :]) == 0
    return np.where(inside, 1 - 2 * (np.bitwise_count(sets[None, :] ^ sets[:, None]).astype(np.int64) % 2), 0)
