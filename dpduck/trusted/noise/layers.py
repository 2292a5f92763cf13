"""Which empty cells a summary keeps, in closed form (Cormode, Procopiuc, Srivastava and Tran 2012, section 4).

An empty cell's noisy count is k with probability (1 - a)/(1 + a) a^|k|, a = exp(-1/scale). A summary keeps it with
probability keep(|k|): 0 below the filter theta, else min(|k|/tau, 1) (threshold and priority sampling). So it is
*upgraded* with probability P = sides (1 - a)/(1 + a) W, W = sum over k >= theta of min(k/tau, 1) a^k, and its count is
then k with probability proportional to min(k/tau, 1) a^k: nothing need be drawn for the cells that stay empty.

A *layer* is what a lower threshold adds to a higher one: W is the difference of the two sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from dpduck.trusted.noise.coins import Bounds, exp_minus

FARTHEST = 4096
"""Powers below exp(-FARTHEST) are only bounded from above."""


@dataclass(frozen=True)
class SummaryLaw:
    """Whether an empty cell is upgraded, and its count if it is.

    scale: of the noise, sensitivity / epsilon. theta: a whole number from 1, the least magnitude that is kept.
    tau: above 0, magnitudes from it on are kept for certain; above: the threshold of the layers before, None for none.
    below: magnitudes from it on belong to the layers before, None for none. sides: 2, or 1 for positive counts alone.
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
        """The chance that a cell with this magnitude is in this layer and in none before it.

        >>> SummaryLaw(Fraction(10), theta=2, tau=Fraction(4), above=Fraction(8)).keep(3)
        Fraction(3, 8)
        """
        if magnitude < self.theta or (self.below is not None and magnitude >= self.below):
            return Fraction(0)
        before = Fraction(0) if self.above is None else min(magnitude / self.above, Fraction(1))
        return min(magnitude / self.tau, Fraction(1)) - before

    def probability(self, precision: int) -> Bounds:
        """Bounds on the probability that an empty cell is in this layer, not given that it is in none before."""
        ratio = _exponential(self.scale, 1, precision)
        weight = _weight(self.scale, self.theta, self.tau, precision)
        if self.above is not None:
            weight = _minus(weight, _weight(self.scale, self.theta, self.above, precision))
        if self.below is not None:
            weight = _minus(weight, _weight(self.scale, self.below, self.tau, precision))
        # W times (1 - a) is what _weight bounds; the rest of P is sides / (1 + a).
        return self.sides * weight[0] / (1 + ratio[1]), self.sides * weight[1] / (1 + ratio[0])

    def before(self, precision: int) -> Bounds:
        """Bounds on the probability that an empty cell is in a layer before this one."""
        if self.above is not None:
            return SummaryLaw(self.scale, self.theta, self.above, sides=self.sides).probability(precision)
        if self.below is not None:
            return SummaryLaw(self.scale, self.below, self.tau, sides=self.sides).probability(precision)
        return Fraction(0), Fraction(0)

    def upgraded(self) -> float:
        """The probability as a float, its relative error below 1e-12."""
        precision = 128
        while True:
            low, high = self.probability(precision)
            if high - low <= high / 10**12 or precision > FARTHEST:
                return float(high)
            precision *= 2

    def given_not_before(self, precision: int) -> Bounds:
        """Bounds on the probability that an empty cell is in this layer, given that it is in none before."""
        return _conditional(self, precision)


@lru_cache(maxsize=256)
def _conditional(law: SummaryLaw, precision: int) -> Bounds:
    low, high = law.probability(precision)
    before = law.before(precision)
    return low / (1 - before[0]), min(high / (1 - before[1]), Fraction(1)) if before[1] < 1 else Fraction(1)


def _weight(scale: Fraction, theta: int, tau: Fraction, precision: int) -> Bounds:
    """Bounds on (1 - a) W = (1/tau) (1 - a) sum_{k=theta}^{floor(tau)} k a^k + a^(floor(tau) + 1), or a^theta.

    With S(l) = (1 - a) sum_{k >= l} k a^k = a^l (l - (l - 1) a) / (1 - a).
    """
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
    """Bounds on a^power = exp(-power/scale), within 2^-precision relatively; below 1 where the power is not 0."""
    bits = precision + 16 + int(1.5 * min(float(power / scale), FARTHEST))
    low, high = exp_minus(power / scale, bits)
    return Fraction(low, 1 << bits), Fraction(high, 1 << bits)
