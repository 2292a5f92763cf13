"""Which marginals to measure, and how precisely, given what is known: the least error of both together.

For a set B of axes let D_B be what is known of its component (precision, as in strategies/recovery/known.py), n_i the
sizes, and c_B the squared length of an asked row's part in it. A marginal A that is measured with precision p_A adds
p_A prod_{i not in A} n_i to D_B of every B inside of A, so that the row's variance is

    sum over B of c_B / (D_B + sum over A containing B of p_A prod_{i not in A} n_i).

It is convex in p. At a fixed sum of p, which is what Gaussian noise costs, the multiplicative steps of optimal design
find the least: p_A grows where its derivative is above the average (Silvey, Titterington and Torsney 1978; their
power 1/2 never makes a sum of variances worse). Laplace noise costs the square root of precision: the same steps over
these roots end in a local optimum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from dpduck.kernel.noise.law import NoiseKind
from dpduck.values.arrays import BoolArray, FloatArray

MOST_AXES = 7
"""Sets of more axes are too many to be planned for."""

STEPS, SETTLED = 400, 1e-7
"""Steps of the search for shares, and the largest change of a share at which they end."""

CLOSE = 1e-3
"""How close to the least price is close enough."""

EVENINGS = 4
"""So many weightings of rows are tried."""

LEAST_SHARE = 1e-2
"""Of the price: what gets less is not measured."""

NEVER = 1e-9
"""Parts of a row that are this small, relative to the whole, are rounding."""


@dataclass(frozen=True, eq=False)
class Gap:
    """What is known and what is asked, over all sets of some axes: bit i of a set's number tells whether axis i is in.

    known: D of each set. asked: shape (rows, sets), c of each asked row. weights: of the rows in the sum that is least.
    """

    sizes: tuple[int, ...]
    known: FloatArray
    asked: FloatArray
    weights: FloatArray | float = 1.0

    def members(self, number: int) -> tuple[int, ...]:
        """Returns the axes of a set."""
        return tuple(i for i in range(len(self.sizes)) if number >> i & 1)

    def variances(self, precisions: FloatArray) -> FloatArray:
        """Returns the variance of each asked row, with these precisions of marginals beside what is known."""
        parts = self._asked / self._total(precisions)
        variances: FloatArray = parts.sum(axis=1)
        return variances

    @property
    def inside(self) -> BoolArray:
        """Tells of each marginal which components it has, shape (marginals, components)."""
        numbers = np.arange(1 << len(self.sizes))
        found: BoolArray = (numbers[None, :] & ~numbers[:, None]) == 0
        return found

    @property
    def lifted(self) -> FloatArray:
        """Returns what a precision of 1 of each marginal adds to a component: the product of the sizes it sums over."""
        whole = range(len(self.sizes))
        return np.array(
            [prod(float(self.sizes[i]) for i in whole if not number >> i & 1) for number in range(1 << len(whole))]
        )

    @property
    def _asked(self) -> FloatArray:
        whole = self.asked.sum(axis=1, keepdims=True)
        return np.where(self.asked > NEVER * whole, self.asked, 0.0)

    def _total(self, precisions: FloatArray) -> FloatArray:
        total: FloatArray = self.known + (precisions * self.lifted) @ self.inside
        return np.maximum(total, 1e-300)


def best_precisions(gap: Gap, noise: NoiseKind, amount: float) -> FloatArray:
    """Returns the precision of each marginal that makes the sum of the asked rows' variances least.

    amount: rho for one row (the precisions add up to twice of it), or epsilon (so do the roots of twice of each).
    """
    gaussian = noise is NoiseKind.GAUSSIAN
    inside, lifted = gap.inside.astype(np.float64), gap.lifted
    asked = (gap._asked * np.reshape(gap.weights, (-1, 1))).sum(axis=0)
    shares = np.full(len(lifted), 1 / len(lifted))
    for _ in range(STEPS):
        total = gap._total(_precisions(shares, gaussian, amount))
        gains = lifted * (inside @ (asked / total**2))
        gains = gains if gaussian else gains * shares
        moved = shares * np.sqrt(gains)
        moved /= moved.sum()
        settled = np.abs(moved - shares).max() < SETTLED
        shares = moved
        if settled:
            break
    shares = np.where(shares >= LEAST_SHARE, shares, 0.0)
    return _precisions(shares / shares.sum(), gaussian, amount)


def _precisions(shares: FloatArray, gaussian: bool, amount: float) -> FloatArray:
    return 2 * amount * shares if gaussian else (amount * shares) ** 2 / 2


def shares_of(precisions: FloatArray, noise: NoiseKind) -> FloatArray:
    """Returns the share of the price of each marginal."""
    costs = precisions if noise is NoiseKind.GAUSSIAN else np.sqrt(precisions)
    shares: FloatArray = costs / costs.sum()
    return shares


def least_amount(gap: Gap, noise: NoiseKind, target: float, most: float) -> float | None:
    """Returns the least price at which the answer has this standard error; None if it is above `most`."""

    def reached(amount: float) -> bool:
        return bool(gap.variances(best_precisions(gap, noise, amount)).max() <= target**2)

    if not reached(most):
        return None
    low, high = 0.0, most
    while high - low > CLOSE * high and high > NEVER * most:
        middle = (low + high) / 2 if low else high / 4
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def evened(gap: Gap, noise: NoiseKind, target: float, most: float) -> Gap:
    """Returns the gap with weights of its rows under which they all reach a target for the least price found.

    Rows that err more get more weight, a few times over: at the dual's optimum all rows with a weight err alike.
    """
    if len(np.unique(np.round(gap.asked, 9), axis=0)) == 1:
        return gap
    best, least = gap, least_amount(gap, noise, target, most)
    tried = replace(gap, weights=np.ones(len(gap.asked)))
    amount = most if least is None else least
    for _ in range(EVENINGS):
        variances = gap.variances(best_precisions(tried, noise, amount))
        tried = replace(tried, weights=tried.weights * (variances / variances.max()))
        found = least_amount(tried, noise, target, most if least is None else least)
        if found is not None and (least is None or found < least):
            best, least, amount = tried, found, found
    return best
