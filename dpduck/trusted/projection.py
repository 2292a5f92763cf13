"""Exact counts by key in, a noisy projection out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpduck.errors import InternalError
from dpduck.trusted.draw import draw
from dpduck.trusted.entropy import Entropy, words64
from dpduck.trusted.key_counts import KeyCounts
from dpduck.trusted.noise import Noise
from dpduck.workload.sign_hash import PRIME, Words, project, reduced, words_for


def draw_coefficients(words: int, independence: int, entropy: Entropy) -> Words:
    """Uniform field elements, shape (words, independence): public, but drawn like everything that is random."""
    drawn = np.empty(words * independence, dtype=np.uint64)
    open_places = np.arange(len(drawn))
    while open_places.size:
        fresh = words64(entropy, open_places.size) >> np.uint64(3)
        drawn[open_places] = fresh
        open_places = open_places[fresh == PRIME]  # 61 bits, all of them ones, are no element
    return drawn.reshape(words, independence)


def measure_projection(
    counts: KeyCounts, coefficients: Words, rows: int, noise: Noise, entropy: Entropy
) -> NDArray[np.int64]:
    """A x + noise in integers, shape (rows,); keys are elements of the field by the higher half of their digests."""
    if len(coefficients) != words_for(rows):
        raise InternalError("the projection and its coefficients disagree")
    noisy = draw(noise, rows, entropy)
    noisy += project(coefficients, reduced(counts._exact_high), counts._exact_counts, rows)
    return noisy
