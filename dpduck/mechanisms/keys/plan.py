"""How the keys of a release are selected by a noisy threshold, what is measured for them, and with which noise.

A group is published if it has at least n privacy units and its noisy count is above n - 1 + k + tau, where one unit
changes the count by at most k and P(noise > tau) is so small that none of C new groups is published but with
probability delta. The noise costs rho or epsilon like any other; delta comes on top.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import exp, expm1, log1p, pi, sqrt

import numpy as np
from scipy.special import log_ndtr

from dpduck.planning.recovery.intervals import survivals
from dpduck.trusted.noise.law import Noise, NoiseKind
from dpduck.trusted.private.key_delta import GroupBounds
from dpduck.values.accounting import sigma2_of


@dataclass(frozen=True)
class KeyPlan:
    """One release of selected keys.

    least: n. excess: tau. reused: the aggregates that the selecting count answers.
    other: whether what was suppressed is counted too. selection, answers: the noise of the selecting counts, and of
    every other query.
    """

    bounds: GroupBounds
    least: int
    delta: Fraction
    selection: Noise
    answers: Noise
    excess: int
    aggregates: int
    reused: tuple[int, ...]
    other: bool

    @property
    def threshold(self) -> int:
        """Published is what has a noisy count above it."""
        return self.least - 1 + self.bounds.per_group + self.excess

    @property
    def strategy(self) -> str:
        """Returns the name of the strategy."""
        return f"{self.selection.kind.name.lower()}_threshold"

    def noise_of(self, aggregate: int) -> Noise:
        """Returns the noise of an aggregate's answers, before it is known which groups are published."""
        return self.selection if aggregate in self.reused else self.answers

    def published(self, units: int) -> float:
        """Returns the probability that a group of so many units, in as many rows, is published."""
        if units < self.least:
            return 0.0
        return float(survivals(self.selection, np.array([self.threshold - units + 1]))[0])


def queries(aggregates: int, reused: tuple[int, ...], other: bool) -> int:
    """Tells how many queries share the price: the selection, and the aggregates that it does not answer.

    The row for all others is answered at the price of its aggregate's published groups, or at one where those are
    reused: both are parts of one partition of the rows.
    """
    return 1 + (aggregates if other else aggregates - len(reused))


def plan_keys(
    kind: NoiseKind,
    amount: Fraction,
    delta: Fraction,
    bounds: GroupBounds,
    *,
    least: int,
    aggregates: int,
    reused: tuple[int, ...],
    other: bool,
) -> KeyPlan:
    """Returns the plan at a price: epsilon under Laplace, rho under Gaussian noise, shared evenly; delta for new
    groups.
    """
    share = amount / queries(aggregates, reused, other)
    if kind is NoiseKind.LAPLACE:
        selection, answers = Noise(kind, bounds.l1 / share), Noise(kind, bounds.rows / share)
    else:
        selection = Noise(kind, sigma2_of(share, Fraction(bounds.l2_squared)))
        answers = Noise(kind, sigma2_of(share, Fraction(bounds.rows**2)))
    excess = smallest_excess(selection, each_of(bounds.groups, delta))
    return KeyPlan(bounds, least, delta, selection, answers, excess, aggregates, reused, other)


# Tails of the discrete noises, never below the truth: what the delta of thresholded keys is made of.
#
# Sums of positive terms in double precision have a relative error far below MARGIN, which is added on the safe side.


MARGIN = 1e-9
"""Relative; a thousand times the error of the computations below."""

SUMMED = 3000.0
"""Up to this sigma the tail of a discrete Gaussian is summed; above, it differs from an integral by less than 1e-6."""

SMALLEST = 1e-300
"""Added to an upper bound: above anything that underflows."""

REACH_SQUARED = 80.0
"""Terms are summed until they are exp(-REACH_SQUARED / 2) of the first: the rest is nothing in double precision."""

SMALLEST_SHARE = 1e-100
"""The least probability that a threshold is looked for with."""


def tail(noise: Noise, start: int) -> float:
    """Returns an upper bound of P(X >= start), start from 1, with a relative error of at most 1e-5.

    Laplace of scale b, a = exp(-1/b): a^start / (1 + a). Gaussian: see gaussian_tails.
    """
    if noise.kind is NoiseKind.LAPLACE:
        scale = float(noise.parameter)
        return exp(-start / scale - log1p(exp(-1 / scale))) * (1 + MARGIN) + SMALLEST
    return gaussian_tails(float(noise.parameter), start)[1]


def gaussian_tails(variance: float, start: int) -> tuple[float, float]:
    """Returns a lower and an upper bound of P(X >= start) for P(x) proportional to exp(-x^2 / (2 variance)).

    Large sigma: the sum of f(n) = exp(-n^2 / (2 variance)) from n = start on against the integral from start - 1/2 on.
    Each term differs from the integral over its cell by |f''|/24 <= f (z^2 + 1) / (24 variance) with z = n / sigma, and
    terms beyond 12 sigma weigh nothing; the normaliser is sqrt(2 pi variance) to within exp(-2 pi^2 variance).
    """
    if start <= 0:
        low, high = gaussian_tails(variance, 1 - start)
        return 1.0 - high - MARGIN, 1.0 - low + MARGIN
    sigma = sqrt(variance)
    if sigma <= SUMMED:
        terms = np.arange(start, int(sqrt(start * start + REACH_SQUARED * variance)) + 3, dtype=np.float64)
        share = float(np.exp(-terms * terms / (2 * variance)).sum()) / normaliser(variance)
        return share * (1 - MARGIN), share * (1 + MARGIN) + SMALLEST
    place = (start - 0.5) / sigma
    share = exp(log_ndtr(-place))
    loose = MARGIN + (max(place, 12.0) ** 2 + 1) / (12 * variance)
    return share * (1 - loose), share * (1 + loose) + SMALLEST


def normaliser(variance: float) -> float:
    """Returns the sum of exp(-n^2 / (2 variance)) over all integers; sqrt(2 pi variance) from Poisson's formula."""
    if variance >= 4:
        return sqrt(2 * pi * variance) * (1 + 2 * exp(-2 * pi * pi * variance))
    terms = np.arange(1, 82, dtype=np.float64)
    return 1 + 2 * float(np.exp(-terms * terms / (2 * variance)).sum())


def each_of(groups: int, any_one: Fraction) -> float:
    """Returns the inverse, rounded down: what each group may have so that all together have any_one."""
    return -expm1(log1p(-float(any_one)) / groups) * (1 - 2 * MARGIN)


def smallest_excess(noise: Noise, each: float) -> int:
    """tau: the smallest whole number from 0 with P(noise > tau) <= each."""
    if not SMALLEST_SHARE <= each < 0.5:
        raise ValueError("the probability that a group is published must lie between 1e-100 and 1/2")
    low, high = -1, 1
    while tail(noise, high + 1) > each:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if tail(noise, middle + 1) <= each else (middle, high)
    return high
