"""Exact coin flips: floats decide nearly all flips, and integers of growing precision the others."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.noise.entropy import Entropy, LazyUniform, words64
from dpduck.kernel.noise.exponentials import Bounds


def is_below(uniform: LazyUniform, probability: Callable[[int], Bounds]) -> bool:
    """Tells whether U is below a probability. Draws bits of U until certain. probability: bounds for any precision."""
    while True:
        low, high = probability(uniform.bits + 64)
        if Fraction(uniform.value + 1, 1 << uniform.bits) <= low:
            return True
        if Fraction(uniform.value, 1 << uniform.bits) >= high:
            return False
        uniform.extend(uniform.bits)


SLACK = 2.0**-40
"""More than the error of a caller's float, plus that of a uniform of 53 bits (2**-53)."""


def flips(approximate: NDArray[np.float64], exact: Callable[[int], Fraction], entropy: Entropy) -> NDArray[np.bool_]:
    """Flips a coin for each position, True with probability exact(position). `approximate` is this within SLACK / 2."""
    return _flips(approximate, lambda position, _: (exact(position), exact(position)), entropy)


def equal_flips(probability: Callable[[int], Bounds], count: int, entropy: Entropy) -> NDArray[np.bool_]:
    """Flips independent coins with one probability. probability: function from bits of precision to bounds on it."""
    near = np.full(count, float(probability(128)[0]))
    return _flips(near, lambda _, precision: probability(precision), entropy)


def _flips(
    approximate: NDArray[np.float64], bounds: Callable[[int, int], Bounds], entropy: Entropy
) -> NDArray[np.bool_]:
    words = words64(entropy, len(approximate))
    uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    outcome: NDArray[np.bool_] = uniform < approximate
    for position in np.flatnonzero(np.abs(uniform - approximate) <= SLACK):
        lazy = LazyUniform(int(words[position]), 64, entropy)
        outcome[position] = is_below(lazy, partial(bounds, int(position)))
    return outcome
