"""Quantiles from noisy ranks: the place where the distribution function passes q, and all places where it may pass.

An edge between buckets has `below` rows below it and `above` rows above it. The quantile q lies above the edge if the
excess (1 - q) below - q above is negative. The excess equals `below` less q times all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import scipy

from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.ranges.buckets import Buckets
from dpduck.strategies.recovery.curved import FEWEST_ROWS, LEVELS, Curved, margins
from dpduck.values.arrays import FloatArray

EXTREME = 2.0
"""min and max are read where the rows beyond are this many standard errors. Fewer rows could be noise alone."""

_USUAL = LEVELS.index(Fraction(95, 100))
_RESOLUTION, _ROUNDING = 0.5, 12**-0.5
"""Least errors of a quantile, in widths of a bucket: of a range of values, and of values rounded to the middle."""


def quantile(answers: FloatArray, variances: FloatArray, fraction: float, buckets: Buckets, noise: NoiseKind) -> Curved:
    """Returns the quantile of every cell. fraction: q, where 0 is min and 1 is max.

    answers: shape (cells, 2 B - 1) for B buckets: rows below each inner edge, rows above each inner edge, and all rows,
    consistent with each other. variances: of the noise in `answers`. min and max have no standard error, since nothing
    tells how far the last rows lie beyond the estimate. One end of their intervals is a public bound.
    """
    inner = buckets.count - 1
    below, above, total = answers[:, :inner], answers[:, inner : 2 * inner], answers[:, 2 * inner]
    excess = (1 - fraction) * below - fraction * above
    deviation = rank_deviations(variances, fraction, inner)
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
        np.where(answered & (0 < fraction < 1), _spread(excess, deviation, estimates, buckets), np.nan),
        np.where(answered, lows, lowest),
        np.where(answered, highs, highest),
    )


def _spread(excess: FloatArray, deviation: FloatArray, estimates: FloatArray, buckets: Buckets) -> FloatArray:
    """Returns the root mean square distance between the estimate and the possible places of the quantile.

    The chance that the quantile lies below an edge is taken as the chance that noise is smaller than the excess there.
    """
    cells = len(excess)
    with np.errstate(divide="ignore", invalid="ignore"):
        below = scipy.special.ndtr(np.nan_to_num(_increasing(excess) / deviation, nan=0.0))
    edges = np.concatenate([np.zeros((cells, 1)), np.maximum.accumulate(below, axis=1), np.ones((cells, 1))], axis=1)
    start, width = float(buckets.start), float(buckets.width)
    middles = start + width * (np.arange(buckets.count) + 0.5)
    squares = (np.diff(edges, axis=1) * (middles - estimates[:, None]) ** 2).sum(axis=1)
    within = 0.0 if buckets.whole else width * _RESOLUTION
    spread: FloatArray = np.maximum(np.hypot(np.sqrt(squares), within), width * _ROUNDING)
    return spread


def read_choices(numbers: Sequence[FloatArray], buckets: Buckets) -> Curved:
    """Returns quantiles from chosen bucket numbers: those of the value, and perhaps of both ends of its interval.

    Numbers of no bucket stand for NULL. Ends are chosen for 95 %. For a higher confidence or without ends, intervals
    have the public bounds. There is no standard error, since the usual error of a value is not known.
    """
    start, width, (lowest, highest) = float(buckets.start), float(buckets.width), bounds_of(buckets)
    inside = (0.5, 0.5, 0.5) if buckets.whole else (0.5, 0.0, 1.0)
    estimates, *ends = (
        np.where(number < buckets.count, start + width * (number + place), np.nan)
        for number, place in zip(numbers, inside, strict=False)
    )
    nothing = np.full(len(estimates), np.nan)
    first, last = ends if ends else (nothing, nothing)
    low, high = np.where(np.isnan(first), lowest, first), np.where(np.isnan(last), highest, last)
    has_ends = (np.arange(len(LEVELS))[:, None] <= _USUAL) & bool(ends)
    lows = np.where(has_ends, np.fmin(np.minimum(low, high), estimates), lowest)
    highs = np.where(has_ends, np.fmax(np.maximum(low, high), estimates), highest)
    return Curved(estimates, nothing, lows, highs)


def in_order(columns: Sequence[Curved]) -> list[Curved]:
    """Returns quantiles of increasing fractions that do not decrease: the nearest such values, cell by cell.

    The true values are in order, so this moves values nearer to the truth. If a value of a cell moves, the intervals
    widen: to the lowest end of higher fractions, and the highest end of lower fractions. NULL stays.
    """
    estimates = np.array([column.estimates for column in columns])
    apart = (estimates < np.fmax.accumulate(estimates, axis=0)).any(axis=0)
    lows, highs = np.array([curved.lows for curved in columns]), np.array([curved.highs for curved in columns])
    for cell in np.flatnonzero(apart):
        answered = np.flatnonzero(~np.isnan(estimates[:, cell]))
        estimates[answered, cell] = _isotonic(estimates[answered, cell])
        lows[answered, :, cell] = np.minimum.accumulate(lows[answered[::-1], :, cell], axis=0)[::-1]
        highs[answered, :, cell] = np.maximum.accumulate(highs[answered, :, cell], axis=0)
    return [Curved(estimates[place], column.stderrs, lows[place], highs[place]) for place, column in enumerate(columns)]


def _isotonic(values: FloatArray) -> list[float]:
    """Returns the values of least squared distance that do not decrease. Neighbours out of order become their mean.

    >>> _isotonic(np.array([3.0, 1.0, 2.0, 5.0]))
    [2.0, 2.0, 2.0, 5.0]
    """
    blocks: list[tuple[float, int]] = []
    for value in values.tolist():
        total, count = value, 1
        while blocks and blocks[-1][0] * count >= total * blocks[-1][1]:
            total, count = total + blocks[-1][0], count + blocks[-1][1]
            blocks.pop()
        blocks.append((total, count))
    return [total / count for total, count in blocks for _ in range(count)]


def bounds_of(buckets: Buckets) -> tuple[float, float]:
    """Returns the least and the largest value that a quantile may have."""
    start, width = float(buckets.start), float(buckets.width)
    if buckets.whole:
        return start + width / 2, start + width * (buckets.count - 0.5)
    return start, start + width * buckets.count


def rank_deviations(variances: FloatArray, fraction: float, inner: int) -> FloatArray:
    """Returns standard errors of the excess at each edge. variances: of rows below, rows above, and their sum."""
    below, above, total = variances[:, :inner], variances[:, inner : 2 * inner], variances[:, 2 * inner :]
    twice = total - below - above
    squares = (1 - fraction) ** 2 * below + fraction**2 * above - fraction * (1 - fraction) * twice
    return np.sqrt(np.maximum(squares, 0))


def _crossing(excess: FloatArray, total: FloatArray, fraction: float, buckets: Buckets) -> FloatArray:
    """Returns where the excess, made increasing, passes 0, interpolated in a bucket that is a range of values."""
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
    """Returns an increasing function: the mean of the least one above the excess and the largest one below it."""
    rising = np.maximum.accumulate(excess, axis=1)
    falling = np.minimum.accumulate(excess[:, ::-1], axis=1)[:, ::-1]
    return (rising + falling) / 2


def _possible(excess: FloatArray, wide: FloatArray, fraction: float) -> tuple[FloatArray, FloatArray]:
    """Returns the first and the last bucket that may hold the quantile, shape (levels, cells). wide: margins by level.

    The true excess is at most 0 at the lower edge of the true bucket, and at least 0 at its upper edge. Noise exceeds a
    margin on either side with half of the error that the confidence leaves. A minimum may lie in any lower bucket.
    """
    cells = excess.shape[0]
    nothing = np.ones((cells, 1), dtype=bool)
    firsts, lasts = [], []
    for margin in wide:
        lower = np.concatenate([nothing, excess <= margin], axis=1)
        upper = np.concatenate([excess >= -margin, nothing], axis=1)
        possible = lower & upper
        any_bucket = possible.any(axis=1)
        first = np.where(any_bucket, possible.argmax(axis=1), upper.argmax(axis=1))
        last = np.where(any_bucket, possible.shape[1] - 1 - possible[:, ::-1].argmax(axis=1), first)
        firsts.append(np.zeros(cells) if fraction == 0 else first.astype(np.float64))
        lasts.append(np.full(cells, possible.shape[1] - 1.0) if fraction == 1 else last.astype(np.float64))
    return np.array(firsts), np.array(lasts)
