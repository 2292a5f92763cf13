"""Unbiased weights from a noisy summary, and the variance of their sums: post-processing, free of charge.

A kept cell of noisy count v has the weight sign(v) max(|v|, tau) (Horvitz and Thompson). For priorities, tau is the
largest priority that is not kept (Duffield, Lund and Thorup 2007).

A row's variance is tau max(tau - |v|, 0) for sampling, and h(v) divided by the chance of being kept for noise. h(v) =
s^2 + B a^(|v| - theta), with s^2 the noise variance. B is such that empty cells contribute their variance on average.
So the stated variance is on average never below the true one, and near the filter up to twice the true one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, expm1, floor

import numpy as np

from dpduck.kernel.queries.cells import Positions
from dpduck.kernel.queries.summaries import NoisySummary
from dpduck.mechanisms.summaries.parents import subset
from dpduck.mechanisms.summaries.plan import noise_variance
from dpduck.values.arrays import FloatArray, IntegerArray


@dataclass(frozen=True)
class EstimatedSummary:
    """Rows of a summary: positions, noisy counts and weights. variances: each row's part of a sum's variance.

    tau, chances: the weights' threshold, 0 for none, and each row's chance_of_nothing.
    sums: the variances with each row's part of the filter's squared error (with_loss), NaN if unknown.
    """

    positions: Positions
    counts: IntegerArray
    weights: FloatArray
    variances: FloatArray
    tau: float
    chances: FloatArray
    sums: FloatArray


def with_priorities(summary: NoisySummary, keep: int | None, tau: float) -> tuple[NoisySummary, float]:
    """Keeps the `keep` cells of highest priority. The next priority becomes the threshold, or tau if there is none."""
    if keep is None or len(summary.counts) <= keep:
        return summary, tau
    order = np.argpartition(-summary.priorities, keep)
    mask = np.zeros(len(order), dtype=np.bool_)
    mask[order[:keep]] = True
    threshold = float(summary.priorities[order[keep]])
    return subset(summary, np.flatnonzero(mask)), threshold


def estimate_weights(
    summary: NoisySummary, scale: float, theta: int, tau: float, *, sides: int = 2, whole: bool = False
) -> EstimatedSummary:
    """Returns the cells with weights and variances. whole: all the domain's cells are there, with noise alone."""
    magnitudes = np.abs(summary.counts).astype(np.float64)
    weights = np.sign(summary.counts) * np.maximum(magnitudes, tau)
    chances = np.ones_like(magnitudes)
    if whole:
        variances = np.full(len(weights), noise_variance(scale))
    else:
        chances = chance_of_nothing(magnitudes, scale, theta, tau)
        chance = np.minimum(magnitudes / tau, 1.0) if tau > 0 else np.ones_like(magnitudes)
        noise = noise_of_kept(magnitudes, scale, theta, sides)
        variances = tau * np.maximum(tau - magnitudes, 0.0) + noise / chance
    return EstimatedSummary(summary.positions, summary.counts, weights, variances, tau, chances, variances)


def chance_of_nothing(magnitudes: FloatArray, scale: float, theta: int, tau: float) -> FloatArray:
    """Returns the chance that a kept cell without rows has a count at least as far from 0: S(|v|) / S(theta).

    S(v) is the sum of a^k min(k, tau) over k >= v, or of a^k if there is no tau. The count of a kept cell without rows
    is noise that passed the filter. So an interval around this count leaves out 0 much too often.
    """
    a, gap = exp(-1.0 / scale), -expm1(-1.0 / scale)
    last = max(floor(tau), theta - 1)

    def beyond(least: FloatArray) -> FloatArray:
        total: FloatArray = np.exp(-(least - theta) / scale) * (least + a / gap) / gap
        return total

    def mass(least: FloatArray) -> FloatArray:
        end = np.full_like(least, last + 1.0)
        flat = max(tau, 1.0) * np.exp(-(np.maximum(least, end) - theta) / scale) / gap
        return flat + np.where(least <= last, beyond(least) - beyond(end), 0.0)

    return mass(magnitudes) / mass(np.array([float(theta)]))


def with_loss(summary: EstimatedSummary, rows: float | None, spread: float, gained: float) -> EstimatedSummary:
    """Returns the summary with the error E of the filter in `sums`. E^2 is L^2 + gained^2 + spread.

    L, the rows in dropped cells, is `rows` - sum of the estimates + `gained`, at least 0. E^2 is added to the variances
    of the rows, in proportion to estimates. A share s of the estimates has an error of sqrt(s) E, at least s E.

    gained: the expected sum of the estimates of cells without rows, not 0 if a filter passes positive counts alone.
    """
    if rows is None:
        return replace(summary, sums=np.full_like(summary.variances, np.nan))
    sizes = np.abs(summary.weights)
    lost = max(rows - float(summary.weights.sum()) + gained, 0.0)
    biases = (lost**2 + gained**2 + spread) * sizes / max(float(sizes.sum()), 1.0)
    return replace(summary, sums=summary.variances + biases)


def noise_of_kept(magnitudes: FloatArray, scale: float, theta: int, sides: int) -> FloatArray:
    """Returns h(v), the noise's part of a kept row's variance. For empty cells, it is right on average.

    With G geometric, E h(theta + G) = E (theta + G)^2. E a^G = 1/(1 + a), E G = a/(1 - a), E G^2 = a (1 + a)/(1 - a)^2.
    """
    a, gap = exp(-1.0 / scale), -expm1(-1.0 / scale)
    square = theta**2 + 2 * theta * a / gap + a * (1 + a) / gap**2
    if sides == 1:  # a positive mean is a bias, not a variance
        square -= exp(-theta / scale) / (1 + a) * (theta + a / gap) ** 2
    variance = noise_variance(scale)
    excess: FloatArray = (1 + a) * (square - variance) * np.exp(-np.maximum(magnitudes - theta, 0.0) / scale)
    return np.maximum(variance + excess, 0.0)
