"""From a noisy summary to unbiased weights and the variance of sums of them; post-processing, free of charge.

A kept cell's weight is sign(v) max(|v|, tau) (Horvitz and Thompson; Duffield, Lund and Thorup 2007 for priorities, tau
the largest priority that is not kept). What a filter drops is lost: sums are unbiased for
the cells that pass it, and with_loss says by how much others are off.

What a row adds to the variance of a sum has two parts. Sampling: tau max(tau - |v|, 0), unbiased. Noise: h(v) divided
by the chance of being kept, with h(v) = s^2 + B a^(|v| - theta), s^2 the noise variance: B is such that empty cells,
most of which are in no row, contribute on average the variance that they have; cells far above the filter contribute
s^2. In between, up to twice the variance is said (a cell near the filter), never less than it has on average.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, expm1, floor

import numpy as np
from numpy.typing import NDArray

from dpduck.arrays import FloatArray, IntegerArray
from dpduck.summaries.moments import noise_variance
from dpduck.trusted.mixed_radix import Positions
from dpduck.trusted.summary_sampler import NoisySummary


@dataclass(frozen=True)
class EstimatedSummary:
    """Rows of a summary: positions, noisy counts, weights, and what each adds to the variance of a sum.

    tau: the threshold of the weights, 0 for none. chances: see chance_of_nothing. sums: what each adds to the variance
    of a sum where what the filter has lost is counted too, NaN where nobody knows how much that is.
    """

    positions: Positions
    counts: IntegerArray
    weights: FloatArray
    variances: FloatArray
    tau: float
    chances: FloatArray
    sums: FloatArray


def with_priorities(summary: NoisySummary, keep: int | None, tau: float) -> tuple[NoisySummary, float]:
    """The `keep` cells of highest priority, and as threshold the priority that comes next; all where they are fewer."""
    if keep is None or len(summary.counts) <= keep:
        return summary, tau
    order = np.argpartition(-summary.priorities, keep)
    kept = np.zeros(len(order), dtype=np.bool_)
    kept[order[:keep]] = True
    threshold = float(summary.priorities[order[keep]])
    return subset(summary, np.flatnonzero(kept)), threshold


def subset(summary: NoisySummary, chosen: NDArray[np.intp] | NDArray[np.bool_]) -> NoisySummary:
    """Some rows of a summary."""
    return NoisySummary(
        summary.positions[:, chosen], summary.counts[chosen], summary.priorities[chosen], summary.layers
    )


def estimated(
    summary: NoisySummary, scale: float, theta: int, tau: float, *, sides: int = 2, whole: bool = False
) -> EstimatedSummary:
    """Weights and variances. whole: every cell of the domain is there, with the noise's own variance."""
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
    """The chance that a cell without rows that is kept has a count as far from 0: S(|v|) / S(theta).

    S(v) is the sum of a^k min(k, tau) over k >= v, and of a^k without tau. Kept rows of empty cells are noise that has
    passed the filter, so that an interval about their counts alone leaves out 0 much too often.
    """
    a, gap = exp(-1.0 / scale), -expm1(-1.0 / scale)
    last = max(floor(tau), theta - 1)

    def beyond(least: FloatArray) -> FloatArray:
        """The sum of k a^(k - theta) over k >= least."""
        found: FloatArray = np.exp(-(least - theta) / scale) * (least + a / gap) / gap
        return found

    def mass(least: FloatArray) -> FloatArray:
        end = np.full_like(least, last + 1.0)
        flat = max(tau, 1.0) * np.exp(-(np.maximum(least, end) - theta) / scale) / gap
        return flat + np.where(least <= last, beyond(least) - beyond(end), 0.0)

    return mass(magnitudes) / mass(np.array([float(theta)]))


def with_loss(summary: EstimatedSummary, rows: float | None, spread: float, gained: float) -> EstimatedSummary:
    """The summary whose sums say what the filter has lost: L rows, all that are known of less all that are estimated.

    Each row carries L^2 of the variance by its part of all estimates. The sum of everything is then said to be off by
    L, and a sum of a part s by sqrt(s) L, which is at least its share s L.
    rows: in the table, None where nobody knows. spread: the variance of that number. gained: the expected sum of what
    empty cells add, which is not 0 where a filter lets positive counts pass alone; it is an error like what is lost.
    """
    if rows is None:
        return replace(summary, sums=np.full_like(summary.variances, np.nan))
    sizes = np.abs(summary.weights)
    lost = max(rows - float(summary.weights.sum()) + gained, 0.0)
    biases = (lost**2 + gained**2 + spread) * sizes / max(float(sizes.sum()), 1.0)
    return replace(summary, sums=summary.variances + biases)


def noise_of_kept(magnitudes: FloatArray, scale: float, theta: int, sides: int) -> FloatArray:
    """h(v): with G geometric, E h(theta + G) = E (theta + G)^2, so that an empty cell contributes what it has.

    E a^G = 1/(1 + a), E G = a/(1 - a), E G^2 = a (1 + a)/(1 - a)^2.
    """
    a, gap = exp(-1.0 / scale), -expm1(-1.0 / scale)
    square = theta**2 + 2 * theta * a / gap + a * (1 + a) / gap**2
    if sides == 1:  # a positive mean is a bias, no variance
        square -= exp(-theta / scale) / (1 + a) * (theta + a / gap) ** 2
    variance = noise_variance(scale)
    excess: FloatArray = (1 + a) * (square - variance) * np.exp(-np.maximum(magnitudes - theta, 0.0) / scale)
    return np.maximum(variance + excess, 0.0)
