"""Dyadic intervals and Haar coefficients of an ordered attribute, numbered without building either.

Level l has intervals of 2^l labels, interval i from i 2^l on; the root level h is the first with one interval. A node
has one number: level by level from the leaves, offsets[l] + i. A Haar axis has at level l >= 1 the coefficient
(sum of the left half - sum of the right half) of each interval, and at number 0 the total.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from dpduck.values.arrays import IntegerArray


@dataclass(frozen=True)
class Axis:
    """shape: 'dyadic' or 'haar'. size: labels.

    >>> Axis("dyadic", 5).nodes, Axis("haar", 5).nodes, Axis("haar", 5).height
    (11, 7, 3)
    """

    shape: str
    size: int

    @property
    def height(self) -> int:
        """h: the level of the root."""
        return (self.size - 1).bit_length()

    @property
    def first_level(self) -> int:
        """Returns the lowest level that has nodes."""
        return 1 if self.shape == "haar" else 0

    @property
    def per_row(self) -> int:
        """Tells how many nodes one row is in: each has coefficient 1 or -1 there."""
        return self.height + 1

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Returns the number of the first node of each level from first_level to h, and last the number of nodes."""
        numbers = [0 if self.shape == "dyadic" else 1]
        for level in range(self.first_level, self.height + 1):
            numbers.append(numbers[-1] + -(-self.size >> level))
        return tuple(numbers)

    @property
    def nodes(self) -> int:
        """Tells how many nodes there are: less than 2 size + h."""
        return self.offsets[-1]

    def of_code(self, codes: NDArray[np.integer], step: int) -> tuple[IntegerArray, IntegerArray | None]:
        """Returns the number of the step-th node that holds each code, and its signs where they are not all 1."""
        wide = codes.astype(np.int64)
        if self.shape == "haar" and step == self.height:
            return np.zeros(len(wide), dtype=np.int64), None
        level = step + self.first_level
        numbers = (wide >> level) + self.offsets[step]
        return numbers, 1 - 2 * ((wide >> (level - 1)) & 1) if self.shape == "haar" else None


def node_sensitivity(axes: Iterable[Axis | None]) -> int:
    """Returns the L1 sensitivity of one row, which is 1 or -1 in so many nodes; None for an attribute without nodes."""
    return prod(1 if axis is None else axis.per_row for axis in axes)
