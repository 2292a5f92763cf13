"""Choice of further marginals to measure, and of their precisions, if some precisions are known already.

For a set B of axes let D_B be the known precision of its component (as in strategies/recovery/estimator.py). Let n_i be
the sizes, and c_B the squared length of an asked row's part in the component. A row is a vector of weights over the
cells. If every marginal A is also measured, with precision p_A, the row's variance is

    sum over B of c_B / (D_B + sum over A containing B of p_A prod_{i not in A} n_i).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.target import even_weights
from dpduck.values.arrays import BoolArray, FloatArray

MOST_AXES = 7
"""Largest number of axes. More axes have too many sets."""

STEPS, SETTLED = 400, 1e-7
"""Most steps of the search for shares, and the largest change of a share at which it ends."""

CLOSE = 1e-3

LEAST_SHARE = 1e-2
"""Least share of the price. A marginal with a smaller share is not measured."""

NEVER = 1e-9
"""Parts of a row that are this small, relative to the whole row, are rounding errors."""


@dataclass(frozen=True, eq=False)
class Gap:
    """Known precisions and asked rows, over all sets of some axes. Bit i of a set's number is 1 if the set has axis i.

    known: D, the precision of each component. asked: c, the squared length of each asked row's part in each component.
    """

    sizes: tuple[int, ...]
    known: FloatArray
    asked: FloatArray
    weights: FloatArray | float = 1.0

    def members(self, number: int) -> tuple[int, ...]:
        return tuple(i for i in range(len(self.sizes)) if number >> i & 1)

    def variances(self, precisions: FloatArray) -> FloatArray:
        parts = self._row_parts / self._total(precisions)
        variances: FloatArray = parts.sum(axis=1)
        return variances

    @property
    def inside(self) -> BoolArray:
        numbers = np.arange(1 << len(self.sizes))
        contains: BoolArray = (numbers[None, :] & ~numbers[:, None]) == 0
        return contains

    @property
    def lift(self) -> FloatArray:
        """Returns the product of sizes outside each marginal: the factor on its precision in a component."""
        whole = range(len(self.sizes))
        return np.array(
            [prod(float(self.sizes[i]) for i in whole if not number >> i & 1) for number in range(1 << len(whole))]
        )

    @property
    def _row_parts(self) -> FloatArray:
        whole = self.asked.sum(axis=1, keepdims=True)
        return np.where(self.asked > NEVER * whole, self.asked, 0.0)

    def _total(self, precisions: FloatArray) -> FloatArray:
        total: FloatArray = self.known + (precisions * self.lift) @ self.inside
        return np.maximum(total, 1e-300)


def best_precisions(gap: Gap, noise: NoiseKind, amount: float) -> FloatArray:
    """Returns the precision of each marginal for the least weighted sum of the asked rows' variances.

    amount: rho (half the sum of precisions) or epsilon (the sum of roots of twice the precisions), for one data row.
    The steps are those of optimal design: a share grows if its derivative is above the average (Silvey, Titterington
    and Torsney 1978). Under Gaussian noise they end in the optimum, under Laplace noise in a local optimum.
    """
    gaussian = noise is NoiseKind.GAUSSIAN
    inside, lifted = gap.inside.astype(np.float64), gap.lift
    asked = (gap._row_parts * np.reshape(gap.weights, (-1, 1))).sum(axis=0)
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
    """Returns each marginal's share of the price, from the precisions of all marginals."""
    costs = precisions if noise is NoiseKind.GAUSSIAN else np.sqrt(precisions)
    shares: FloatArray = costs / costs.sum()
    return shares


def least_amount(gap: Gap, noise: NoiseKind, target: float, most: float) -> float | None:
    """Returns the least price at which no asked row exceeds the standard error `target`, None if above `most`."""

    def reaches_target(amount: float) -> bool:
        return bool(gap.variances(best_precisions(gap, noise, amount)).max() <= target**2)

    if not reaches_target(most):
        return None
    low, high = 0.0, most
    while high - low > CLOSE * high and high > NEVER * most:
        middle = (low + high) / 2 if low else high / 4
        low, high = (low, middle) if reaches_target(middle) else (middle, high)
    return high


def even_out(gap: Gap, noise: NoiseKind, target: float, most: float) -> Gap:
    """Tries row weights. Returns the gap with the weights at which all rows reach `target` most cheaply."""
    if len(np.unique(np.round(gap.asked, 9), axis=0)) == 1:
        return gap
    best, tried, least = gap, gap, None

    def amount() -> float:
        return most if least is None else least

    def variances() -> FloatArray:
        return gap.variances(best_precisions(tried, noise, amount()))

    for weights in even_weights(np.ones(len(gap.asked)), variances):
        tried = replace(gap, weights=weights)
        price = least_amount(tried, noise, target, amount())
        if price is not None and (least is None or price < least):
            best, least = tried, price
    return best
