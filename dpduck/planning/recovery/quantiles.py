"""Quantiles from noisy ranks: where the distribution function crosses, and all places where it could have crossed.

Below an edge there are `below` rows and `above` above it. The quantile q lies above the edge if the excess
(1 - q) below - q above is negative, which is `below` less q times all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpduck.planning.ranges.buckets import Buckets
from dpduck.planning.recovery.curved import FEWEST_ROWS, LEVELS, Curved, margins
from dpduck.trusted.noise.law import NoiseKind
from dpduck.values.arrays import FloatArray

EXTREME = 2.0
"""min and max are where the rank is so many standard errors from its end: nearer, it could be noise alone."""

_USUAL = LEVELS.index(Fraction(95, 100))
_USUAL_WIDTH = 2 * 1.96
_RESOLUTION = 12**-0.5
"""Standard deviation within a bucket, in its width: a quantile is known no better, though its interval be one value."""


def quantile(answers: FloatArray, variances: FloatArray, fraction: float, buckets: Buckets, noise: NoiseKind) -> Curved:
    """The quantile of every cell.

    answers: shape (cells, 2 B - 1): rows below each inner edge, rows above each, and all rows, as tree_workload asks
    them, consistent with each other. variances: of their noise, the same shape. min and max have no standard error:
    how far the last rows lie from the rank that is taken for the end is not known, and their intervals say so.
    """
    inner = buckets.count - 1
    below, above, total = answers[:, :inner], answers[:, inner : 2 * inner], answers[:, 2 * inner]
    excess = (1 - fraction) * below - fraction * above
    deviation = _deviation(variances, fraction, inner)
    toward = {0.0: -EXTREME, 1.0: EXTREME}.get(fraction, 0.0)
    estimates = _crossing(excess + toward * deviation, total, fraction, buckets)
    first, last = _possible(_increasing(excess), margins(noise, deviation, 1.0), fraction)
    start, width = float(buckets.start), float(buckets.width)
    ends = (0.5, 0.5) if buckets.whole else (0.0, 1.0)
    lows, highs = start + width * (first + ends[0]), start + width * (last + ends[1])
    lows, highs = np.minimum(lows, estimates), np.maximum(highs, estimates)
    answered = total >= FEWEST_ROWS
    lowest, highest = bounds_of(buckets)
    return Curved(
        np.where(answered, estimates, np.nan),
        np.where(
            answered & (0 < fraction < 1),
            np.maximum((highs[_USUAL] - lows[_USUAL]) / _USUAL_WIDTH, width * _RESOLUTION),
            np.nan,
        ),
        np.where(answered, lows, lowest),
        np.where(answered, highs, highest),
    )


def chosen(numbers: Sequence[FloatArray], buckets: Buckets) -> Curved:
    """Quantiles that were chosen, and the ends of their intervals: numbers of buckets, or of none.

    Ends are chosen for 95 %: of a higher confidence nothing is said but the public bounds. How far a value errs mostly
    is not known, so that it has no standard error.
    """
    start, width, (lowest, highest) = float(buckets.start), float(buckets.width), bounds_of(buckets)
    inside = (0.5, 0.5, 0.5) if buckets.whole else (0.5, 0.0, 1.0)
    estimates, first, last = (
        np.where(number < buckets.count, start + width * (number + place), np.nan)
        for number, place in zip(numbers, inside, strict=True)
    )
    low, high = np.where(np.isnan(first), lowest, first), np.where(np.isnan(last), highest, last)
    known = np.arange(len(LEVELS))[:, None] <= _USUAL
    return Curved(
        estimates,
        np.full(len(estimates), np.nan),
        np.where(known, np.fmin(np.minimum(low, high), estimates), lowest),
        np.where(known, np.fmax(np.maximum(low, high), estimates), highest),
    )


def bounds_of(buckets: Buckets) -> tuple[float, float]:
    """The least and the largest value that a quantile may have."""
    start, width = float(buckets.start), float(buckets.width)
    if buckets.whole:
        return start + width / 2, start + width * (buckets.count - 0.5)
    return start, start + width * buckets.count


def _deviation(variances: FloatArray, fraction: float, inner: int) -> FloatArray:
    """Standard errors of the excess: Cov(below, above) follows from the variances of both and of their sum."""
    below, above, total = variances[:, :inner], variances[:, inner : 2 * inner], variances[:, 2 * inner :]
    twice = total - below - above
    squares = (1 - fraction) ** 2 * below + fraction**2 * above - fraction * (1 - fraction) * twice
    return np.sqrt(np.maximum(squares, 0))


def _crossing(excess: FloatArray, total: FloatArray, fraction: float, buckets: Buckets) -> FloatArray:
    """Where the excess, made increasing, passes 0; on a line inside a bucket that is a range of values."""
    middle = _increasing(excess)
    chosen = (middle < 0).sum(axis=1)
    start, width = float(buckets.start), float(buckets.width)
    if buckets.whole or fraction in (0.0, 1.0):
        middles: FloatArray = start + width * (chosen + 0.5)
        return middles
    rows = np.maximum(total, 0)[:, None]
    edges = np.concatenate([np.minimum(-fraction * rows, 0), middle, np.maximum((1 - fraction) * rows, 0)], axis=1)
    left = np.minimum(np.take_along_axis(edges, chosen[:, None], 1)[:, 0], 0)
    right = np.maximum(np.take_along_axis(edges, chosen[:, None] + 1, 1)[:, 0], 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = np.where(right > left, -left / (right - left), 0.5)
    crossings: FloatArray = start + width * (chosen + inside)
    return crossings


def _increasing(excess: FloatArray) -> FloatArray:
    """Half way between the least increasing function above and the largest one below, as ranks do increase."""
    rising = np.maximum.accumulate(excess, axis=1)
    falling = np.minimum.accumulate(excess[:, ::-1], axis=1)[:, ::-1]
    middle: FloatArray = (rising + falling) / 2
    return middle


def _possible(excess: FloatArray, wide: FloatArray, fraction: float) -> tuple[FloatArray, FloatArray]:
    """The first and the last bucket that may hold the quantile, shape (levels, cells).

    The bucket that does has no positive excess at its lower edge and no negative one at its upper edge: noise passes
    either margin with half of what the confidence leaves. Of a minimum nothing is known but that it is below its rows.
    """
    cells = excess.shape[0]
    nothing = np.ones((cells, 1), dtype=bool)
    firsts, lasts = [], []
    for margin in wide:
        lower = np.concatenate([nothing, excess <= margin], axis=1)
        upper = np.concatenate([excess >= -margin, nothing], axis=1)
        held = lower & upper
        found = held.any(axis=1)
        first = np.where(found, held.argmax(axis=1), upper.argmax(axis=1))
        last = np.where(found, held.shape[1] - 1 - held[:, ::-1].argmax(axis=1), first)
        firsts.append(np.zeros(cells) if fraction == 0 else first.astype(np.float64))
        lasts.append(np.full(cells, held.shape[1] - 1.0) if fraction == 1 else last.astype(np.float64))
    return np.array(firsts), np.array(lasts)
