"""Noisy count sketch (Charikar, Chen and Farach-Colton 2002) of the occupied cells, with hashing that SQL can repeat.

Row j adds the signed count of every cell to one of `width` buckets. A cell with the numbers L_1, L_2, .. of its key
labels has the hash (b_0 + b_1 L_1 + b_2 L_2 + ..) mod P, with P = 2^61 - 1. Hashes are pairwise independent. The bucket
is the hash modulo the width, and the sign is the parity of a second such hash. The coefficients are released.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.counting.hidden import ExactCounts, Hidden
from dpduck.kernel.noise.draw import draw
from dpduck.kernel.noise.entropy import Entropy, uniform_below
from dpduck.kernel.price import Ask, AskScan, Query
from dpduck.kernel.queries.marginals import cells_of
from dpduck.kernel.queries.operators import Norms
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError

PRIME = (1 << 61) - 1


@dataclass(frozen=True)
class SketchHashes:
    """Coefficients b_0, b_1, .. of each sketch row, for buckets and for signs."""

    width: int
    buckets: tuple[tuple[int, ...], ...]
    signs: tuple[tuple[int, ...], ...]


Sketched = tuple[SketchHashes, IntegerArray]


@dataclass(frozen=True, eq=False)
class Sketch(Query[Sketched]):
    """Noisy signed buckets, shape (rows, width), and their hashes. A private row moves one bucket per sketch row by 1.

    numbers: for each attribute, the numbers that stand for its labels in hashes, all different.
    """

    rows: int
    width: int
    numbers: tuple[IntegerArray, ...] = field(repr=False)

    def moves(self, scan: AskScan) -> Norms:
        return scan.norms(self.rows)

    def draw(self, counts: Hidden, ask: Ask[Sketched], entropy: Entropy, chosen: object) -> Sketched:
        drawn = uniform_below(PRIME, 2 * self.rows * (len(self.numbers) + 1), entropy).reshape(2, self.rows, -1)
        buckets, signs = (tuple(tuple(row) for row in table) for table in drawn.tolist())
        hashes = SketchHashes(self.width, buckets, signs)
        noisy = draw(ask.law, self.rows * self.width, entropy).reshape(self.rows, self.width)
        noisy += exact_sketch(cells_of(counts, ask.scan), hashes, self.numbers)
        return hashes, noisy


def exact_sketch(counts: ExactCounts, hashes: SketchHashes, numbers: Sequence[IntegerArray]) -> IntegerArray:
    """Returns the exact buckets, shape (rows, width). numbers: for each attribute, the numbers of its labels."""
    if any(len(of_labels) != size for of_labels, size in zip(numbers, counts._sizes, strict=True)):
        raise InternalError("the sketch and the counts disagree about the domain")
    values, table = counts._exact_counts[0], np.zeros((len(hashes.buckets), hashes.width), np.int64)
    for row, of_bucket, of_sign in zip(table, hashes.buckets, hashes.signs, strict=True):
        places = hash_cells(of_bucket, numbers, counts._exact_coordinates) % hashes.width
        signs = 1 - 2 * (hash_cells(of_sign, numbers, counts._exact_coordinates) & 1)
        np.add.at(row, places, values * signs)
    return table


def hash_cells(
    coefficients: Sequence[int], numbers: Sequence[NDArray[np.int64]], codes: Sequence[NDArray[np.integer]]
) -> IntegerArray:
    """Returns (b_0 + b_1 L_1 + ..) mod P for each cell. codes: the codes of the cells."""
    total = np.full(codes[0].shape, coefficients[0], dtype=np.int64)
    for coefficient, of_labels, of_cells in zip(coefficients[1:], numbers, codes, strict=True):
        terms = (of_labels.astype(object) * coefficient % PRIME).astype(np.int64)
        total = (total + terms[of_cells]) % PRIME
    return total
