"""Noisy random projection of counts by key, from which a recovery algorithm estimates the counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpduck.algebra.hashing import PRIME, Words, project, reduce_mod, words_for
from dpduck.kernel.counting.hidden import Hidden
from dpduck.kernel.noise.draw import draw
from dpduck.kernel.noise.entropy import Entropy, uniform_below
from dpduck.kernel.price import Ask, AskScan, Query
from dpduck.kernel.queries.key_counts import keys_of
from dpduck.kernel.queries.operators import Norms
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError

Projected = tuple[Words, IntegerArray]


@dataclass(frozen=True, eq=False)
class Projection(Query[Projected]):
    """Noisy sums of the rows' random signs, and the hash that gives each key a sign. A row moves each sum by 1.

    rows: number of sums. words, independence: shape of the hash's coefficients. The hash reads a digest's higher half.
    """

    rows: int
    words: int
    independence: int

    def __post_init__(self) -> None:
        if self.words != words_for(self.rows):
            raise InternalError("the projection and its coefficients disagree")

    def moves(self, scan: AskScan) -> Norms:
        return scan.norms(self.rows)

    def draw(self, counts: Hidden, ask: Ask[Projected], entropy: Entropy, chosen: object) -> Projected:
        keys, coefficients = keys_of(counts), draw_coefficients(self.words, self.independence, entropy)
        noisy = draw(ask.law, self.rows, entropy)
        noisy += project(coefficients, reduce_mod(keys._exact_high), keys._exact_counts, self.rows)
        return coefficients, noisy


def draw_coefficients(words: int, independence: int, entropy: Entropy) -> Words:
    """Draws uniform public field elements, shape (words, independence), from the same entropy as the noise."""
    return uniform_below(PRIME, words * independence, entropy).astype(np.uint64).reshape(words, independence)
