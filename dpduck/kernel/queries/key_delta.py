"""Names what leaves of groups with private keys, and computes what publishing one that was not there may cost.

That is a tail of the noise, apart from the planner's.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import erfc, exp, expm1, fsum, log1p, sqrt

import pyarrow as pa

from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.values.arrays import IntegerArray

SUMMED = 9e6
"""Up to this sigma^2 a tail is summed term by term."""


@dataclass(frozen=True)
class GroupBounds:
    """What one privacy unit changes at most.

    groups: C, counts that it is in. per_group: k, each of them. total: their sum. rows: of an answer, all in one cell.
    """

    groups: int
    per_group: int
    total: int
    rows: int

    @property
    def l1(self) -> int:
        """Returns the L1 norm of what a unit changes in the counts that keys are selected by."""
        return min(self.groups * self.per_group, self.total)

    @property
    def l2_squared(self) -> int:
        """Returns its squared L2 norm: the total in as few groups as hold it."""
        return min(self.groups * self.per_group**2, self.total * self.per_group)


@dataclass(frozen=True)
class PublishedKeys:
    """What is published. keys: an array per key, codes of public domains before texts, in an order of their own.

    answers: for each aggregate, one noisy integer per group. other: for each, what was suppressed in all, noisy.
    """

    keys: tuple[pa.Array, ...]
    answers: tuple[IntegerArray, ...]
    other: tuple[int, ...] | None


def key_delta(noise: Noise, excess: int, groups: int) -> Fraction:
    """1 - P(noise <= excess)^groups, rounded up: that a group is published which was not there. 1 below 0.

    Gaussian, f(n) = exp(-n^2 / (2 sigma^2)): the sum of f from excess + 1 on over that of all; for large sigma f is
    convex there, so each term is at most the integral over the unit around it, and the sum of all is at least
    sqrt(2 pi) sigma (Poisson's formula has positive terms only).
    """
    first, scale = excess + 1, float(noise.parameter)
    if noise.kind is NoiseKind.LAPLACE:
        one = exp(-first / scale) / (1 + exp(-1 / scale))
    elif scale > SUMMED:
        one = erfc((first - 0.5) / sqrt(2 * scale)) / 2 if (first - 0.5) ** 2 > scale else 1.0
    else:
        last = int(sqrt(first * first + 90 * scale)) + 2
        terms = fsum(exp(-n * n / (2 * scale)) for n in range(first, last))
        one = terms / (1 + 2 * fsum(exp(-n * n / (2 * scale)) for n in range(1, int(9 * sqrt(scale)) + 2)))
    one *= 1 + 1e-10
    share = 1.0 if one >= 0.5 else -expm1(groups * log1p(-one))
    return min(Fraction(share) * (1 + Fraction(1, 10**10)) + Fraction(1, 10**290), Fraction(1))
