"""Vectorised exact coin flips: floats decide nearly all of them, integers of growing precision the doubtful ones."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpduck.trusted.entropy import Entropy, LazyUniform, words64
from dpduck.trusted.exact_exponential import Bounds

SLACK = 2.0**-40
"""More than what a caller's float may be off, and a uniform of 53 bits (2**-53)."""


def flips(approximate: NDArray[np.float64], exact: Callable[[int], Fraction], entropy: Entropy) -> NDArray[np.bool_]:
    """True with probability exact(position), for each position; `approximate` is within SLACK / 2 of it."""
    words = words64(entropy, len(approximate))
    uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    outcome: NDArray[np.bool_] = uniform < approximate
    for position in np.flatnonzero(np.abs(uniform - approximate) <= SLACK):
        outcome[position] = _below(LazyUniform(int(words[position]), 64, entropy), exact(int(position)))
    return outcome


def _below(uniform: LazyUniform, probability: Fraction) -> bool:
    while True:
        bound = probability.numerator << uniform.bits
        if (uniform.value + 1) * probability.denominator <= bound:
            return True
        if uniform.value * probability.denominator >= bound:
            return False
        uniform.extend(uniform.bits)


def equal_flips(probability: Callable[[int], Bounds], count: int, entropy: Entropy) -> NDArray[np.bool_]:
    """Independent flips with one probability, given by bounds for each precision in bits."""
    low, high = (float(bound) for bound in probability(128))
    words = words64(entropy, count)
    uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    outcome: NDArray[np.bool_] = uniform < low
    for position in np.flatnonzero((uniform >= low - SLACK) & (uniform <= high + SLACK)):
        lazy = LazyUniform(int(words[position]), 64, entropy)
        while True:
            bounds = probability(lazy.bits + 64)
            if Fraction(lazy.value + 1, 1 << lazy.bits) <= bounds[0]:
                outcome[position] = True
                break
            if Fraction(lazy.value, 1 << lazy.bits) >= bounds[1]:
                outcome[position] = False
                break
            lazy.extend(lazy.bits)
    return outcome
