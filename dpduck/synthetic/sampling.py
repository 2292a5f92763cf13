"""Rows drawn from a distribution: post-processing, so that randomness need only be unpredictable, not exact.

Systematic sampling: with one uniform u, cell i gets floor(F_i + u) - floor(F_(i-1) + u) rows, F the cumulated expected
numbers. Every cell gets its expected number rounded up or down, so that margins of the rows are close to the
distribution's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpduck.arrays import IntegerArray
from dpduck.synthetic.distribution import Distribution

Words = Callable[[int], NDArray[np.uint64]]


def sampled_codes(distribution: Distribution, rows: int, words: Words) -> list[IntegerArray]:
    """The code of every row for each attribute, in a random order. words: so many uniform 64-bit integers."""
    codes: dict[int, IntegerArray] = {}
    for component in distribution.components:
        weights = component.table.reshape(-1)
        cumulated = np.cumsum(weights)
        cumulated *= rows / cumulated[-1]
        cumulated[-1] = rows
        shift = float(words(1)[0] >> np.uint64(11)) * 2.0**-53
        ends = np.floor(cumulated + shift).astype(np.int64)
        cells = np.repeat(np.arange(len(weights)), np.diff(ends, prepend=0))
        cells = cells[np.argsort(words(rows))]
        for member, of_member in zip(component.members, np.unravel_index(cells, component.table.shape), strict=True):
            codes[member] = of_member
    return [codes[attribute] for attribute in range(len(distribution.sizes))]
