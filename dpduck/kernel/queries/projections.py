"""A noisy projection of counts by key: sums of the rows' signs, which a recovery takes apart again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpduck.algebra.hashing import PRIME, Words, project, reduced, words_for
from dpduck.kernel.counting.hidden import Hidden
from dpduck.kernel.noise.draw import draw
from dpduck.kernel.noise.entropy import Entropy, words64
from dpduck.kernel.noise.law import Noise
from dpduck.kernel.price import Ask, Query, Scan
from dpduck.kernel.queries.key_counts import KeyCounts, keys_of
from dpduck.kernel.queries.operators import Norms
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError


@dataclass(frozen=True, eq=False)
class Projection(Query[tuple[Words, IntegerArray]]):
    """Sums of the rows' signs, with their fresh hashes. A row moves each of `rows` sums by 1.

    words, independence: shape of the coefficients.
    """

    rows: int
    words: int
    independence: int

    def moves(self, scan: Scan) -> Norms:
        return scan.norms(self.rows)

    def draw(
        self, counts: Hidden, ask: Ask[tuple[Words, IntegerArray]], entropy: Entropy, chosen: object
    ) -> tuple[Words, IntegerArray]:
        coefficients = draw_coefficients(self.words, self.independence, entropy)
        return coefficients, measure_projection(keys_of(counts), coefficients, self.rows, ask.law, entropy)


def draw_coefficients(words: int, independence: int, entropy: Entropy) -> Words:
    """Returns uniform field elements, shape (words, independence): public, but drawn like everything that is random."""
    drawn = np.empty(words * independence, dtype=np.uint64)
    open_places = np.arange(len(drawn))
    while open_places.size:
        fresh = words64(entropy, open_places.size) >> np.uint64(3)
        drawn[open_places] = fresh
        open_places = open_places[fresh == PRIME]  # 61 bits, all of them ones, are no element
    return drawn.reshape(words, independence)


def measure_projection(
    counts: KeyCounts, coefficients: Words, rows: int, noise: Noise, entropy: Entropy
) -> IntegerArray:
    """Returns a x + noise in integers, shape (rows,); keys are field elements by the higher half of their digests."""
    if len(coefficients) != words_for(rows):
        raise InternalError("the projection and its coefficients disagree")
    noisy = draw(noise, rows, entropy)
    noisy += project(coefficients, reduced(counts._exact_high), counts._exact_counts, rows)
    return noisy
