"""What a summary does to one cell, in floats: how likely it is kept, mean and square of its estimate.

Notation: a = exp(-1/scale); noisy count v = x + noise; the estimate is sign(v) max(|v|, tau) with probability
min(|v|/tau, 1) where |v| >= theta, else 0. tau = 0: every cell that passes the filter is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, floor

import numpy as np

GRID = 4000  # steps on either side of the noise law
REACH = 40.0  # of the noise law, in scales


@dataclass(frozen=True)
class Moments:
    """kept: the chance of being in the summary. mean, square: of the estimate."""

    kept: float
    mean: float
    square: float


def noise_variance(scale: float) -> float:
    """2 a / (1 - a)^2."""
    gap = -expm1(-1.0 / scale)
    return 2.0 * (1.0 - gap) / gap**2


def empty_moments(scale: float, theta: int, tau: float, sides: int = 2) -> Moments:
    """Of an empty cell, in closed form: sums of k^p a^k from theta to floor(tau) and beyond."""
    a, gap = exp(-1.0 / scale), -expm1(-1.0 / scale)
    front = sides * gap / (1.0 + a)
    last = max(floor(tau), theta - 1)
    tail = [_tail(scale, last + 1, power) for power in range(3)]
    if last < theta:
        kept, mean, square = tail[0], tail[1], tail[2]
    else:
        first = _tail(scale, theta, 1) - tail[1]
        kept = first / tau + tail[0]
        mean = _tail(scale, theta, 1)
        square = tau * first + tail[2]
    return Moments(front * kept, 0.0 if sides == 2 else front * mean, front * square)


def _tail(scale: float, least: int, power: int) -> float:
    """The sum of k^power a^k over k >= least."""
    a, gap = exp(-1.0 / scale), -expm1(-1.0 / scale)
    weight = exp(-least / scale) / gap
    if power == 0:
        return weight
    if power == 1:
        return weight * (least + a / gap)
    return weight * (least**2 + 2 * least * a / gap + a * (1 + a) / gap**2)


def occupied_moments(
    count: float, scale: float, theta: int, tau: float, sides: int = 2, *, grid: int = GRID
) -> Moments:
    """Of a cell with this exact count, on a grid of so many noise values on either side."""
    step = max(1.0, REACH * scale / grid)
    noise = np.arange(-grid, grid + 1) * step
    weights = np.exp(-np.abs(noise) / scale)
    weights /= weights.sum()
    noisy = count + noise
    magnitudes = np.abs(noisy)
    chance = np.minimum(magnitudes / tau, 1.0) if tau > 0 else np.ones_like(magnitudes)
    chance = np.where((magnitudes >= theta) & ((sides == 2) | (noisy > 0)), chance, 0.0)
    estimates = np.sign(noisy) * np.maximum(magnitudes, tau)
    return Moments(
        float(weights @ chance),
        float(weights @ (chance * estimates)),
        float(weights @ (chance * estimates**2)),
    )
