"""Empty cells that a sparse summary keeps (Cormode, Procopiuc, Srivastava and Tran 2012, section 4).

An empty cell's noisy count is k with probability (1 - a)/(1 + a) a^|k|, a = exp(-1/scale). A summary keeps it with
probability keep(|k|): 0 below the filter theta, else min(|k|/tau, 1) (threshold and priority sampling). So it is
*upgraded* with probability P = sides (1 - a)/(1 + a) W. W is the sum over k >= theta of min(k/tau, 1) a^k. Its count is
then k with probability proportional to min(k/tau, 1) a^k. Nothing is drawn for the cells that stay empty.

A *layer* holds the cells that a lower threshold keeps and a higher one does not: W is the difference of two sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.noise.coins import equal_flips, flips
from dpduck.kernel.noise.entropy import Entropy, words64
from dpduck.kernel.noise.exponentials import Bounds, exp_bounds
from dpduck.kernel.noise.integers import discrete_laplace
from dpduck.values.arrays import FloatArray, IntegerArray

FARTHEST = 4096
"""Powers below exp(-FARTHEST) may get the lower bound 0."""


@dataclass(frozen=True)
class SummaryLaw:
    """Law of an empty cell in a layer: the probability that the layer keeps it, and then its count.

    scale: scale of the noise, sensitivity / epsilon. theta: the least magnitude that is kept, a whole number from 1.
    tau: above 0. Magnitudes from tau on are kept for certain. above: tau of earlier layers, None if there are none.
    below: theta of earlier layers, None if there are none. sides: 2, or 1 if only positive counts are kept.
    """

    scale: Fraction
    theta: int = 1
    tau: Fraction = Fraction(1)
    above: Fraction | None = None
    below: int | None = None
    sides: int = 2

    def __post_init__(self) -> None:
        if self.scale <= 0 or self.theta < 1 or self.tau <= 0 or self.sides not in (1, 2):
            raise ValueError("a summary needs noise, a filter from 1 on and a positive threshold")
        if self.above is not None and self.above < self.tau * Fraction(9, 8):
            raise ValueError("the thresholds of layers fall by an eighth or more: floats tell them apart")

    def keep(self, magnitude: int) -> Fraction:
        """Returns the probability that a cell with this magnitude is in this layer, and in no earlier one.

        >>> SummaryLaw(Fraction(10), theta=2, tau=Fraction(4), above=Fraction(8)).keep(3)
        Fraction(3, 8)
        """
        if magnitude < self.theta or (self.below is not None and magnitude >= self.below):
            return Fraction(0)
        before = Fraction(0) if self.above is None else min(magnitude / self.above, Fraction(1))
        return min(magnitude / self.tau, Fraction(1)) - before

    def probability(self, precision: int) -> Bounds:
        """Bounds the probability that an empty cell is in this layer, and in no earlier one."""
        ratio = _exponential(self.scale, 1, precision)
        weight = _weight(self.scale, self.theta, self.tau, precision)
        if self.above is not None:
            weight = _minus(weight, _weight(self.scale, self.theta, self.above, precision))
        if self.below is not None:
            weight = _minus(weight, _weight(self.scale, self.below, self.tau, precision))
        # _weight bounds W times (1 - a); the rest of P is sides / (1 + a).
        return self.sides * weight[0] / (1 + ratio[1]), self.sides * weight[1] / (1 + ratio[0])

    def before(self, precision: int) -> Bounds:
        if self.above is not None:
            return SummaryLaw(self.scale, self.theta, self.above, sides=self.sides).probability(precision)
        if self.below is not None:
            return SummaryLaw(self.scale, self.below, self.tau, sides=self.sides).probability(precision)
        return Fraction(0), Fraction(0)

    def float_probability(self) -> float:
        """Returns the probability as a float: relative error below 1e-12, or an upper bound past FARTHEST bits."""
        precision = 128
        while True:
            low, high = self.probability(precision)
            if high - low <= high / 10**12 or precision > FARTHEST:
                return float(high)
            precision *= 2

    def given_not_before(self, precision: int) -> Bounds:
        return _conditional(self, precision)


@lru_cache(maxsize=256)
def _conditional(law: SummaryLaw, precision: int) -> Bounds:
    low, high = law.probability(precision)
    before = law.before(precision)
    return low / (1 - before[0]), min(high / (1 - before[1]), Fraction(1)) if before[1] < 1 else Fraction(1)


def _weight(scale: Fraction, theta: int, tau: Fraction, precision: int) -> Bounds:
    """Bounds (1 - a) W: a^theta if theta >= tau, else (S(theta) - S(m)) / tau + a^m with m = floor(tau) + 1."""
    # here S(l) is (1 - a) sum_{k >= l} k a^k = a^l (l - (l - 1) a) / (1 - a)
    last = tau.numerator // tau.denominator
    if theta >= tau:
        return _exponential(scale, theta, precision)
    ratio = _exponential(scale, 1, precision)
    rest = _exponential(scale, last + 1, precision)
    sums = _minus(_moment(scale, theta, ratio, precision), _moment(scale, last + 1, ratio, precision))
    return sums[0] / tau + rest[0], sums[1] / tau + rest[1]


def _moment(scale: Fraction, least: int, ratio: Bounds, precision: int) -> Bounds:
    power = _exponential(scale, least, precision)
    low = power[0] * (least - (least - 1) * ratio[1]) / (1 - ratio[0])
    return low, power[1] * (least - (least - 1) * ratio[0]) / (1 - ratio[1])


def _minus(first: Bounds, second: Bounds) -> Bounds:
    return max(first[0] - second[1], Fraction(0)), max(first[1] - second[0], Fraction(0))


@lru_cache(maxsize=256)
def _exponential(scale: Fraction, power: int, precision: int) -> Bounds:
    """Bounds a^power = exp(-power/scale), within 2^-precision relatively, below 1 if the power is not 0."""
    return exp_bounds(power / scale, precision + 16 + int(1.5 * min(float(power / scale), FARTHEST)))


def geometric(scale: Fraction, count: int, entropy: Entropy) -> IntegerArray:
    """Draws independent j with P(j) = (1 - a) a^j: j and -j - 1 of Laplace noise together weigh a^j (1 + a)."""
    draws = discrete_laplace(scale, count, entropy)
    return np.where(draws < 0, ~draws, draws)


def draw_counts(law: SummaryLaw, count: int, entropy: Entropy) -> IntegerArray:
    """Draws counts of `count` empty cells of this layer, shape (count,), by rejection from geometric laws.

    They have either sign if law.sides is 2. Let G have the geometric law P(G = j) = (1 - a) a^j. For weights near a^k
    the proposal is theta + G. For weights near k a^k it is the law of k >= theta proportional to k a^k, a mixture of
    theta + G and theta + G + G. Public numbers alone choose the better proposal.
    """
    if law.below is not None:
        magnitudes = _draw_between_filters(law, count, entropy)
    elif law.tau <= law.theta and law.above is None:
        magnitudes = geometric(law.scale, count, entropy) + law.theta
    else:
        magnitudes = _draw_by_rejection(law, count, entropy)
    return magnitudes if law.sides == 1 else draw_signs(magnitudes, entropy)


def draw_signs(magnitudes: IntegerArray, entropy: Entropy) -> IntegerArray:
    """Gives each magnitude a fair sign."""
    bits = np.unpackbits(words64(entropy, -(-len(magnitudes) // 64)).view(np.uint8))[: len(magnitudes)]
    return np.where(bits == 1, -magnitudes, magnitudes)


def _draw_between_filters(law: SummaryLaw, count: int, entropy: Entropy) -> IntegerArray:
    """Draws magnitudes from theta to below - 1. A geometric number modulo n has the geometric law truncated at n."""
    if law.below is None or law.tau > law.theta:
        raise ValueError("a layer between two filters has no threshold")
    return geometric(law.scale, count, entropy) % (law.below - law.theta) + law.theta


def _draw_by_rejection(law: SummaryLaw, count: int, entropy: Entropy) -> IntegerArray:
    ratio = float(exp_bounds(1 / law.scale, 64)[1])
    # Summed weights of the proposals k a^k / tau and a^k from theta on, up to the same factor.
    linear = (law.theta - (law.theta - 1) * ratio) / (1 - ratio) / float(law.tau) < 1
    magnitudes = np.empty(count, dtype=np.int64)
    open_places = np.arange(count)
    while open_places.size:
        proposed = geometric(law.scale, open_places.size, entropy) + law.theta
        if linear:
            proposed += _second(law, open_places.size, entropy)
        accepted = _accept(law, proposed, linear, entropy)
        magnitudes[open_places[accepted]] = proposed[accepted]
        open_places = open_places[~accepted]
    return magnitudes


def _second(law: SummaryLaw, count: int, entropy: Entropy) -> IntegerArray:
    """Draws the second summand of the proposal for weights k a^k: a geometric number, or 0."""
    # k = theta + j: a^theta ((theta - 1) a^j + (j + 1) a^j), with the sums (theta - 1)/(1 - a), 1/(1 - a)^2
    second = geometric(law.scale, count, entropy)
    if law.theta == 1:
        return second

    def both(precision: int) -> Bounds:
        low, high = exp_bounds(1 / law.scale, precision)
        return 1 / (1 + (law.theta - 1) * (1 - low)), 1 / (1 + (law.theta - 1) * (1 - high))

    return np.where(equal_flips(both, count, entropy), second, 0)


def _accept(law: SummaryLaw, magnitudes: IntegerArray, linear: bool, entropy: Entropy) -> NDArray[np.bool_]:
    """Accepts magnitudes k with probability keep(k), or keep(k) tau / k if proposed by k a^k. Both are at most 1."""
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
    """Returns law.keep in floats, within 2**-50, for magnitudes that pass the filter theta."""
    chance = np.minimum(magnitudes / float(law.tau), 1.0)
    if law.above is not None:
        chance -= np.minimum(magnitudes / float(law.above), 1.0)
    return chance
