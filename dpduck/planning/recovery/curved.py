"""Averages and variances from noisy moments: ratios, whose errors depend on the answer.

Tables i = 0 .. d hold noisy sums T_i of the Bernstein basis over a cell's rows, in units of one row, with independent
noise of variance v. Values are t in [0, 1] here; p_i = i/d, so that N = sum T_i and sum of t = sum p_i T_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpduck.planning.recovery.intervals import JUMPY, sum_margin
from dpduck.trusted.noise.law import NoiseKind
from dpduck.values.arrays import FloatArray

LEVELS = tuple(Fraction(text) for text in ("0.5", "0.8", "0.9", "0.95", "0.99", "0.999", "0.999999"))
"""Confidences whose intervals are stored where they depend on the answer; others get the next higher."""

FEWEST_ROWS = 1.0
"""Below so many noisy rows there is nothing to average: the answer is NULL, its interval everything between bounds."""

MOST_VARIANCE, MOST_SAMPLE_VARIANCE = 0.25, 0.5
"""Of values in [0, 1]: half of them at either end, and of a sample the two values 0 and 1."""


@dataclass(frozen=True)
class Curved:
    """One answer per cell, NaN for NULL. lows, highs: shape (levels, cells)."""

    estimates: FloatArray
    stderrs: FloatArray
    lows: FloatArray
    highs: FloatArray


def margins(noise: NoiseKind, stderrs: FloatArray, step: float | FloatArray) -> FloatArray:
    """Half-widths of intervals for sums of noises with these standard errors, shape (levels, ..), as SumMargin.of."""
    jumps = np.where(stderrs < JUMPY * step, step, step / 2)
    laws = [sum_margin(noise, level) for level in LEVELS]
    return np.array([np.minimum(law.farthest * stderrs, law.usual * stderrs + jumps) for law in laws])


def average(tables: Sequence[FloatArray], variance: FloatArray, noise: NoiseKind, step: float) -> Curved:
    """The average of t with Fieller's interval: all t for which sum (p_i - t) T_i is within its own noise's margin.

    g(t) = sum (p_i - t) T_i has variance v sum (p_i - t)^2 and is the noise alone at the true average, so that the
    interval covers it however few rows there are. Where it is not bounded it is cut at 0 and 1.
    variance: v of every cell. step: what one integer of noise is worth in units of a row.
    """
    places = np.linspace(0, 1, len(tables))
    rows = np.sum(tables, axis=0)
    total = np.sum([place * table for place, table in zip(places, tables, strict=True)], axis=0)
    powers = [float((places**power).sum()) for power in range(3)]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.clip(total / rows, 0, 1)
        spread = powers[2] - 2 * mean * powers[1] + mean**2 * powers[0]
        stderr = np.sqrt(variance * spread) / rows
    wide = margins(noise, np.sqrt(variance), step) ** 2
    square, line, fixed = rows**2 - wide * powers[0], total * rows - wide * powers[1], total**2 - wide * powers[2]
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(np.maximum(line**2 - square * fixed, 0))
        lows, highs = (line - root) / square, (line + root) / square
    unbounded = (square <= 0) | (rows <= 0)
    lows, highs = np.where(unbounded, 0, np.clip(lows, 0, 1)), np.where(unbounded, 1, np.clip(highs, 0, 1))
    return _with_nulls(Curved(mean, stderr, lows, highs), rows >= FEWEST_ROWS, 1.0)


def variance_of(
    tables: Sequence[FloatArray], variance: FloatArray, noise: NoiseKind, step: float = 0.0, *, sample: bool
) -> Curved:
    """E t^2 - (E t)^2 from three tables, with the delta method's error: gradient (s_i - q - 2 m (p_i - m)) / N.

    p = (0, 1/2, 1) and s = (0, 0, 1) give m = E t and q = E t^2. sample: times N/(N - 1), by the same method; its
    interval is that of the variance times all of N/(N - 1) for which N is within its own margin, and at least 2.
    step: what one integer of noise is worth in units of a row.
    """
    least = FEWEST_ROWS + 1 if sample else FEWEST_ROWS
    counted = tables[0] + tables[1] + tables[2]
    answered = counted >= least
    rows = np.maximum(counted, least)  # of fewer nothing is answered
    mean, square = (tables[1] / 2 + tables[2]) / rows, tables[2] / rows
    found = square - mean**2
    places = ((0, 0), (0.5, 0), (1, 1))
    gradients = [(at_one - square - 2 * mean * (place - mean)) / rows for place, at_one in places]
    jump = step * np.max(np.abs(gradients), axis=0)
    wide = margins(noise, np.sqrt(variance * np.sum(np.square(gradients), axis=0)), jump)
    scale, smallest, largest, most = np.ones_like(rows), np.ones_like(wide), np.ones_like(wide), MOST_VARIANCE
    if sample:
        scale, most = rows / (rows - 1), MOST_SAMPLE_VARIANCE
        around = margins(noise, np.sqrt(len(places) * variance), step)
        smallest, largest = (n / (n - 1) for n in (rows + around, np.maximum(rows - around, least)))
        gradients = [gradient * scale - found / (rows - 1) ** 2 for gradient in gradients]
    stderr = np.sqrt(variance * np.sum(np.square(gradients), axis=0))
    lows, highs = np.clip((found - wide) * smallest, 0, most), np.clip((found + wide) * largest, 0, most)
    return _with_nulls(Curved(np.clip(found * scale, 0, most), stderr, lows, highs), answered, MOST_SAMPLE_VARIANCE)


def of_rounded(found: Curved, step: float, *, sample: bool) -> Curved:
    """A variance of values that were rounded to steps, as one of the values themselves.

    A standard deviation is a norm of the values about their mean: those of the values and of the rounded ones differ
    by at most that of the rounding, which is half a step, and of a sample at most sqrt(2) times that.
    """
    off, most = (step / 2**0.5, MOST_SAMPLE_VARIANCE) if sample else (step / 2, MOST_VARIANCE)
    lows = np.maximum(np.sqrt(found.lows) - off, 0) ** 2
    highs = np.maximum(np.minimum((np.sqrt(found.highs) + off) ** 2, most), found.highs)
    usual = step / 12**0.5
    stderrs = np.hypot(found.stderrs, usual * (2 * np.sqrt(found.estimates) + usual))
    return Curved(found.estimates, stderrs, lows, highs)


def deviation_of(found: Curved) -> Curved:
    """The square root of a variance; its error is s / (2 deviation), at most the root of s."""
    root = np.sqrt(found.estimates)
    with np.errstate(divide="ignore", invalid="ignore"):
        stderr = np.minimum(found.stderrs / (2 * root), np.sqrt(found.stderrs))
    return Curved(root, stderr, np.sqrt(found.lows), np.sqrt(found.highs))


def _with_nulls(found: Curved, answered: NDArray[np.bool_], most: float) -> Curved:
    """NULL where too few rows are left, with everything possible as the interval."""
    return Curved(
        np.where(answered, found.estimates, np.nan),
        np.where(answered, found.stderrs, np.nan),
        np.where(answered, found.lows, 0.0),
        np.where(answered, found.highs, most),
    )


def rescaled(found: Curved, low: float, width: float, power: int = 1) -> Curved:
    """From t in [0, 1] to values: low + width t, or width^2 t for a variance."""
    scale, shift = width**power, low if power == 1 else 0.0
    return Curved(
        shift + scale * found.estimates, scale * found.stderrs, shift + scale * found.lows, shift + scale * found.highs
    )
