"""Noisy counts of empty cells, given that they are in a layer of a summary: exact, by rejection from geometric laws.

With G the geometric law P(G = j) = (1 - a) a^j, two proposals: theta + G, for weights near a^k, and for weights near
k a^k the law of magnitude k >= theta proportional to k a^k, a mixture of theta + G and theta + G + G. The better one
is chosen by public numbers alone.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpduck.trusted.noise.coins import Bounds, equal_flips, exp_minus, flips
from dpduck.trusted.noise.entropy import Entropy, words64
from dpduck.trusted.noise.integers import discrete_laplace
from dpduck.trusted.noise.layers import SummaryLaw
from dpduck.values.arrays import FloatArray, IntegerArray


def geometric(scale: Fraction, count: int, entropy: Entropy) -> IntegerArray:
    """Independent draws with P(j) = (1 - a) a^j: j and -j - 1 of the discrete Laplace law have weights a^j (1 + a)."""
    draws = discrete_laplace(scale, count, entropy)
    return np.where(draws < 0, ~draws, draws)


def upgraded_counts(law: SummaryLaw, count: int, entropy: Entropy) -> IntegerArray:
    """Counts of `count` empty cells of this layer, shape (count,); of either sign where law.sides is 2."""
    if law.below is not None:
        magnitudes = _filtered_layer(law, count, entropy)
    elif law.tau <= law.theta and law.above is None:
        magnitudes = geometric(law.scale, count, entropy) + law.theta
    else:
        magnitudes = _sampled_layer(law, count, entropy)
    return magnitudes if law.sides == 1 else signed(magnitudes, entropy)


def signed(magnitudes: IntegerArray, entropy: Entropy) -> IntegerArray:
    """Each with a fair sign."""
    bits = np.unpackbits(words64(entropy, -(-len(magnitudes) // 64)).view(np.uint8))[: len(magnitudes)]
    return np.where(bits == 1, -magnitudes, magnitudes)


def _filtered_layer(law: SummaryLaw, count: int, entropy: Entropy) -> IntegerArray:
    """Magnitudes from theta to below - 1: a geometric law has no memory, so its remainder is the truncated one."""
    if law.below is None or law.tau > law.theta:
        raise ValueError("a layer between two filters has no threshold")
    return geometric(law.scale, count, entropy) % (law.below - law.theta) + law.theta


def _sampled_layer(law: SummaryLaw, count: int, entropy: Entropy) -> IntegerArray:
    ratio = float(exp_minus(1 / law.scale, 64)[1]) / 2**64
    # Summed weights of the proposals k a^k / tau and a^k from theta on, up to the same factor.
    linear = (law.theta - (law.theta - 1) * ratio) / (1 - ratio) / float(law.tau) < 1
    found = np.empty(count, dtype=np.int64)
    open_places = np.arange(count)
    while open_places.size:
        proposed = geometric(law.scale, open_places.size, entropy) + law.theta
        if linear:
            proposed += _second(law, open_places.size, entropy)
        accepted = _accepted(law, proposed, linear, entropy)
        found[open_places[accepted]] = proposed[accepted]
        open_places = open_places[~accepted]
    return found


def _second(law: SummaryLaw, count: int, entropy: Entropy) -> IntegerArray:
    """The second geometric summand, or 0.

    k a^k with k = theta + j is a^theta ((theta - 1) a^j + (j + 1) a^j), of weights (theta - 1)/(1 - a) and 1/(1 - a)^2.
    """
    second = geometric(law.scale, count, entropy)
    if law.theta == 1:
        return second

    def both(precision: int) -> Bounds:
        low, high = (Fraction(bound, 1 << precision) for bound in exp_minus(1 / law.scale, precision))
        return 1 / (1 + (law.theta - 1) * (1 - low)), 1 / (1 + (law.theta - 1) * (1 - high))

    return np.where(equal_flips(both, count, entropy), second, 0)


def _accepted(law: SummaryLaw, magnitudes: IntegerArray, linear: bool, entropy: Entropy) -> NDArray[np.bool_]:
    """keep(k), or for the linear proposal keep(k) tau / k: at most 1."""
    values = magnitudes.astype(np.float64)
    chance = keep_floats(law, values)
    if not linear:
        return flips(chance, lambda place: law.keep(int(magnitudes[place])), entropy)
    return flips(
        chance * float(law.tau) / values,
        lambda place: law.keep(int(magnitudes[place])) * law.tau / int(magnitudes[place]),
        entropy,
    )


def keep_floats(law: SummaryLaw, magnitudes: FloatArray) -> FloatArray:
    """law.keep without its filter, in floats: within 2**-50."""
    chance = np.minimum(magnitudes / float(law.tau), 1.0)
    if law.above is not None:
        chance -= np.minimum(magnitudes / float(law.above), 1.0)
    return chance
