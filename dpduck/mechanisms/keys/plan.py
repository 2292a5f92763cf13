"""How the keys of a release are selected by a noisy threshold, what is measured for them, and with which noise.

A group is published if it has at least n privacy units and its noisy count is above n - 1 + k + tau, where one unit
changes the count by at most k and P(noise > tau) is so small that none of C new groups is published but with
probability delta (DESIGN 4.6 and 5). The noise costs rho or epsilon like any other; delta comes on top.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpduck.planning.recovery.intervals import survivals
from dpduck.planning.tails import each_of, smallest_excess
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
        """The name of the strategy."""
        return f"{self.selection.kind.name.lower()}_threshold"

    def noise_of(self, aggregate: int) -> Noise:
        """The noise of an aggregate's answers, before it is known which groups are published."""
        return self.selection if aggregate in self.reused else self.answers

    def published(self, units: int) -> float:
        """The probability that a group of so many units, in as many rows, is published."""
        if units < self.least:
            return 0.0
        return float(survivals(self.selection, np.array([self.threshold - units + 1]))[0])


def queries(aggregates: int, reused: tuple[int, ...], other: bool) -> int:
    """How many queries share the price: the selection, and the aggregates that it does not answer.

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
    """The plan at a price: epsilon under Laplace, rho under Gaussian noise, shared evenly; delta for new groups."""
    share = amount / queries(aggregates, reused, other)
    if kind is NoiseKind.LAPLACE:
        selection, answers = Noise(kind, bounds.l1 / share), Noise(kind, bounds.rows / share)
    else:
        selection = Noise(kind, sigma2_of(share, Fraction(bounds.l2_squared)))
        answers = Noise(kind, sigma2_of(share, Fraction(bounds.rows**2)))
    excess = smallest_excess(selection, each_of(bounds.groups, delta))
    return KeyPlan(bounds, least, delta, selection, answers, excess, aggregates, reused, other)
