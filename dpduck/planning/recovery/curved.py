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
    """Returns the average of t with Fieller's interval, cut at 0 and 1.

    variance: v of every cell. step: what one integer of noise is worth in units of a row.
    """
    rows = np.sum(tables, axis=0)
    wide = margins(noise, np.sqrt(variance), step)
    found = _of_each_row(tables, list(np.linspace(0, 1, len(tables))), rows, variance, wide)
    return _with_nulls(found, rows >= FEWEST_ROWS, 1.0)


def variance_of(
    tables: Sequence[FloatArray], variance: FloatArray, noise: NoiseKind, step: float = 0.0, *, sample: bool
) -> Curved:
    """S/N with S the sum of (t - m)^2, by Fieller as an average is; sample: S/(N - 1).

    From three tables S = sum c_i T_i, where c = (m^2, m^2 - m, (1 - m)^2) at the average m = sum p_i T_i / N. S is
    least at m: another average makes it larger by N times its squared distance, so that the S of the noisy average is
    too small by v sum (p_i - m)^2 / N on average. Where that counts, c has errors as well: twice it is added above.
    step: what one integer of noise is worth in units of a row.
    """
    least, most = (FEWEST_ROWS + 1, MOST_SAMPLE_VARIANCE) if sample else (FEWEST_ROWS, MOST_VARIANCE)
    counted = np.sum(tables, axis=0)
    rows = np.maximum(counted, least)  # of fewer nothing is answered
    mean = np.clip((tables[1] / 2 + tables[2]) / rows, 0, 1)
    weights = [mean**2, mean**2 - mean, (1 - mean) ** 2]
    missed = variance * (mean**2 + (0.5 - mean) ** 2 + (1 - mean) ** 2) / rows
    wide = margins(noise, np.sqrt(variance), step)
    found = _of_each_row(tables, weights, rows - int(sample), variance, wide, most, 2 * missed)
    return _with_nulls(found, counted >= least, MOST_SAMPLE_VARIANCE)


def _of_each_row(
    tables: Sequence[FloatArray],
    weights: Sequence[FloatArray | float],
    rows: FloatArray,
    variance: FloatArray,
    wide: FloatArray,
    most: float = 1.0,
    missed: FloatArray | float = 0.0,
) -> Curved:
    """sum w_i T_i / rows, with all r between 0 and `most` for which sum (w_i - r) T_i is within its own noise's margin.

    At the true ratio that sum is noise alone, of variance v sum (w_i - r)^2, so that the interval covers it however few
    rows there are. wide: margins of one table. missed: what the sum above may be too small by.
    """
    total = np.sum([weight * table for weight, table in zip(weights, tables, strict=True)], axis=0)
    powers = [np.sum([weight**power * np.ones_like(rows) for weight in weights], axis=0) for power in range(3)]
    square = rows**2 - wide**2 * powers[0]

    def ends(above: FloatArray) -> tuple[FloatArray, FloatArray]:
        line, fixed = above * rows - wide**2 * powers[1], above**2 - wide**2 * powers[2]
        root = np.sqrt(np.maximum(line**2 - square * fixed, 0))
        return (line - root) / square, (line + root) / square

    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.clip(total / rows, 0, most)
        lows, highs = ends(total)[0], ends(total + missed)[1]
        stderrs = np.sqrt(variance * (powers[2] - 2 * ratio * powers[1] + ratio**2 * powers[0])) / rows
    unbounded = (square <= 0) | (rows <= 0)
    lows, highs = np.where(unbounded, 0, np.clip(lows, 0, most)), np.where(unbounded, most, np.clip(highs, 0, most))
    return Curved(ratio, stderrs, lows, highs)


def of_rounded(found: Curved, step: float, *, sample: bool) -> Curved:
    """Returns a variance of values that were rounded to steps, as one of the values themselves.

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
    """Returns the square root of a variance; its error is s / (2 deviation), at most the root of s."""
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
    """Maps t in [0, 1] to values: low + width t, or width^2 t for a variance."""
    scale, shift = width**power, low if power == 1 else 0.0
    return Curved(
        shift + scale * found.estimates, scale * found.stderrs, shift + scale * found.lows, shift + scale * found.highs
    )
