"""Nodes of an ordered attribute: dyadic intervals, or Haar coefficients. They have numbers, and no list holds them.

Level l has intervals of 2^l labels. Interval i begins at label i 2^l. The root level h is the first with one interval.
Nodes are numbered level by level from the leaves: node i of level l is offsets[l - first_level] + i. A Haar axis has a
coefficient for each interval of level l >= 1: the left half's sum minus the right half's. Number 0 is the total.
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
class DyadicAxis:
    """Nodes of one ordered attribute.

    >>> DyadicAxis("dyadic", 5).nodes, DyadicAxis("haar", 5).nodes, DyadicAxis("haar", 5).height
    (11, 7, 3)
    """

    shape: str  # 'dyadic' for intervals, or 'haar'
    size: int  # the number of labels

    @property
    def height(self) -> int:
        """Returns h, the level of the root."""
        return (self.size - 1).bit_length()

    @property
    def first_level(self) -> int:
        return 1 if self.shape == "haar" else 0

    @property
    def per_row(self) -> int:
        """Returns the number of nodes to which one row adds 1 or -1."""
        return self.height + 1

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Returns the number of each level's first node, from first_level to h, then the count of all nodes."""
        numbers = [0 if self.shape == "dyadic" else 1]
        for level in range(self.first_level, self.height + 1):
            numbers.append(numbers[-1] + -(-self.size >> level))
        return tuple(numbers)

    @property
    def nodes(self) -> int:
        """Returns the count of all nodes, which is less than 2 size + h."""
        return self.offsets[-1]

    def of_code(self, codes: NDArray[np.integer], step: int) -> tuple[IntegerArray, IntegerArray | None]:
        """Returns for each code its node at step 0 .. per_row - 1, and its sign there. None stands for signs of 1."""
        wide = codes.astype(np.int64)
        if self.shape == "haar" and step == self.height:
            return np.zeros(len(wide), dtype=np.int64), None
        level = step + self.first_level
        numbers = (wide >> level) + self.offsets[step]
        return numbers, 1 - 2 * ((wide >> (level - 1)) & 1) if self.shape == "haar" else None


def node_sensitivity(axes: Iterable[DyadicAxis | None]) -> int:
    """Returns the L1 sensitivity: how many nodes one row changes by 1 or -1. None stands for an axis without nodes."""
    return prod(1 if axis is None else axis.per_row for axis in axes)
