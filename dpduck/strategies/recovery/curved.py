"""Ratios of noisy sums: averages and variances from moments, with their errors and intervals.

Values t are in [0, 1]. Table i of 0 .. d holds a noisy sum T_i of the i-th Bernstein polynomial of t over a cell's
rows, with independent noise of variance v. With p_i = i/d, the count is N = sum T_i, and the sum of t is sum p_i T_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.recovery.intervals import JUMPY, sum_margin
from dpduck.values.arrays import FloatArray

LEVELS = tuple(Fraction(text) for text in ("0.5", "0.8", "0.9", "0.95", "0.99", "0.999", "0.999999"))
"""Confidences with stored intervals, if intervals depend on the answer. Other confidences get the next higher one."""

USUAL = LEVELS.index(Fraction("0.95"))

FEWEST_ROWS = 1.0
"""Least noisy number of rows for an average. With fewer rows, the answer is NULL and the interval has all values."""

POSSIBLE = 0.7
"""In a variance's interval, an average counts as possible within this part of the average's margin.

In simulations, intervals reach every level of confidence with parts of at least 0.6 (tests/strategies/test_curved.py).
"""

MOST_VARIANCE, MOST_SAMPLE_VARIANCE = 0.25, 0.5
"""Largest variances of values in [0, 1]: with half of them at either end, or for a sample, with two values 0 and 1."""


@dataclass(frozen=True)
class Curved:
    """One answer per cell, NaN for NULL. lows, highs: ends of the interval at each of LEVELS, shape (levels, cells)."""

    estimates: FloatArray
    stderrs: FloatArray
    lows: FloatArray
    highs: FloatArray


def margins(
    noise: NoiseKind, stderrs: FloatArray, step: float | FloatArray, levels: Sequence[Fraction] = LEVELS
) -> FloatArray:
    """Computes SumMargin.of (half an interval's width) for an array of standard errors, shape (levels, ..)."""
    jumps = np.where(stderrs < JUMPY * step, step, step / 2)
    laws = [sum_margin(noise, level) for level in levels]
    return np.array([np.minimum(law.farthest * stderrs, law.usual * stderrs + jumps) for law in laws])


def average(tables: Sequence[FloatArray], variance: FloatArray, noise: NoiseKind, step: float) -> Curved:
    """Returns the average of values t in [0, 1] from tables of Bernstein sums, with Fieller's interval within [0, 1].

    variance: of each table's noise, per cell. step: the number of rows that one integer of noise stands for.
    """
    rows = np.sum(tables, axis=0)
    wide = margins(noise, np.sqrt(variance), step)
    result = _of_each_row(tables, list(np.linspace(0, 1, len(tables))), rows, variance, wide)
    return _with_nulls(result, rows >= FEWEST_ROWS, 1.0)


@dataclass(frozen=True)
class Noisy:
    """One noisy number per cell. step: the change of the number by one integer of noise."""

    answers: FloatArray
    stderrs: FloatArray
    step: float


def average_about(centre: float, bounds: tuple[float, float], rows: Noisy, sums: Noisy, noise: NoiseKind) -> Curved:
    """Returns averages c + S/N from noisy counts N and noisy sums S of distances from a centre c.

    The noises are independent. The interval has all r for which S - r N is within the margin of its noise, of variance
    v_S + r^2 v_N. So it covers the average however few rows there are. It is cut at the bounds of the values.
    """
    low, high = (end - centre for end in bounds)
    counts, total = rows.answers, sums.answers
    wide, above = margins(noise, rows.stderrs, rows.step), margins(noise, sums.stderrs, sums.step)
    lows, highs = _ratios(counts, total, wide, above, (low, high))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.clip(total / counts, low, high)
        stderrs = np.sqrt(sums.stderrs**2 + ratio**2 * rows.stderrs**2) / counts
    stderrs = _or_anywhere(stderrs, lows, highs, high - low)
    answered = counts >= FEWEST_ROWS
    return Curved(
        np.where(answered, ratio + centre, np.nan),
        np.where(answered, stderrs, np.nan),
        np.where(answered, lows, low) + centre,
        np.where(answered, highs, high) + centre,
    )


def _or_anywhere(stderrs: FloatArray, lows: FloatArray, highs: FloatArray, width: float) -> FloatArray:
    """Raises standard errors to that of a uniform law if the 95 % interval has all values: the count may be 0."""
    everything = highs[USUAL] - lows[USUAL] >= width * (1 - 1e-9)
    return np.where(everything, np.maximum(stderrs, width / 12**0.5), stderrs)


def _ratios(
    counts: FloatArray, total: FloatArray, count_margin: FloatArray, margin: FloatArray, bounds: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """Returns the least and the largest r with total - r * counts within its margin. Near a 0 count, all r fit."""
    low, high = bounds
    square, line = counts**2 - count_margin**2, counts * total
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(np.maximum(line**2 - square * (total**2 - margin**2), 0))
        lows, highs = (line - root) / square, (line + root) / square
    unbounded = (square <= 0) | (counts <= 0)
    return (
        np.where(unbounded, low, np.clip(lows, low, high)),
        np.where(unbounded, high, np.clip(highs, low, high)),
    )


def variance_about(width: float, rows: Noisy, sums: Noisy, squares: Noisy, noise: NoiseKind, *, sample: bool) -> Curved:
    """Returns variances, in units of width^2, from counts N, sums S of distances from a centre, and sums Q of squares.

    T(m) = Q - 2 m S + m^2 N is the sum of squared distances from m. The answer is T/N at the noisy average m = S/N,
    where T is least. The interval has all r for which T(m) - r N is within the margin of its noise, at some possible
    average m. That noise has variance v_Q + 4 m^2 v_S + (m^2 - r)^2 v_N. The noisy average alone would not do, because
    the noise of a small count moves both m and T. sample: whether the divisor is N - 1 in place of N.
    """
    least, most = (FEWEST_ROWS + 1, MOST_SAMPLE_VARIANCE) if sample else (FEWEST_ROWS, MOST_VARIANCE)
    counts, distances, squared = np.maximum(rows.answers, least), sums.answers / width, squares.answers / width**2
    moments = ((rows, 1.0), (sums, width), (squares, width**2))
    wide = [margins(noise, number.stderrs / unit, number.step / unit) for number, unit in moments]
    mean = np.clip(distances / counts, -1, 1)
    first, last = _ratios(counts, distances, POSSIBLE * wide[0], POSSIBLE * wide[1], (-1, 1))
    total, below, above = (squared - 2 * number * distances + number**2 * counts for number in (mean, first, last))
    farthest = np.maximum(first**2, last**2)
    nearest = np.where(first * last > 0, np.minimum(first**2, last**2), 0)
    divided = counts - int(sample)
    square = divided**2 - wide[0] ** 2

    def ends(total: FloatArray, mean: FloatArray) -> tuple[FloatArray, FloatArray]:
        line = total * divided - mean * wide[0] ** 2
        fixed = total**2 - wide[2] ** 2 - 4 * farthest * wide[1] ** 2 - mean**2 * wide[0] ** 2
        root = np.sqrt(np.maximum(line**2 - square * fixed, 0))
        return (line - root) / square, (line + root) / square

    with np.errstate(divide="ignore", invalid="ignore"):
        ratio, largest = np.clip(total / divided, 0, most), np.maximum(below, above)
        lows = np.minimum(ends(total, nearest)[0], ends(total, farthest)[0])
        highs = np.maximum(ends(largest, nearest)[1], ends(largest, farthest)[1])
        spread = (squares.stderrs / width**2) ** 2 + (2 * mean * sums.stderrs / width) ** 2
        stderrs = np.sqrt(spread + ((mean**2 - ratio) * rows.stderrs) ** 2) / divided
    unbounded = (square <= 0) | (divided <= 0)
    lows, highs = np.where(unbounded, 0, np.clip(lows, 0, most)), np.where(unbounded, most, np.clip(highs, 0, most))
    stderrs = _or_anywhere(stderrs, lows, highs, most)
    return _with_nulls(Curved(ratio, stderrs, lows, highs), rows.answers >= least, MOST_SAMPLE_VARIANCE)


def variance_of(
    tables: Sequence[FloatArray], variance: FloatArray, noise: NoiseKind, step: float = 0.0, *, sample: bool
) -> Curved:
    """Returns the variance S/N of values t, with S the sum of (t - m)^2, and Fieller's interval. sample: S/(N - 1).

    Three tables T_i (see above) give S = sum c_i T_i at the average m = sum p_i T_i / N, with c = (m^2, m^2 - m, (1 -
    m)^2). The noisy average fits the noise, so its S is too small by v sum (p_i - m)^2 / N on average. The upper end
    gets twice that amount, as c has errors too. step: the number of rows that one integer of noise stands for.
    """
    least, most = (FEWEST_ROWS + 1, MOST_SAMPLE_VARIANCE) if sample else (FEWEST_ROWS, MOST_VARIANCE)
    counted = np.sum(tables, axis=0)
    rows = np.maximum(counted, least)  # fewer rows have no answer
    mean = np.clip((tables[1] / 2 + tables[2]) / rows, 0, 1)
    weights = [mean**2, mean**2 - mean, (1 - mean) ** 2]
    missed = variance * (mean**2 + (0.5 - mean) ** 2 + (1 - mean) ** 2) / rows
    wide = margins(noise, np.sqrt(variance), step)
    result = _of_each_row(tables, weights, rows - int(sample), variance, wide, most, 2 * missed)
    return _with_nulls(result, counted >= least, MOST_SAMPLE_VARIANCE)


def _of_each_row(
    tables: Sequence[FloatArray],
    weights: Sequence[FloatArray | float],
    rows: FloatArray,
    variance: FloatArray,
    wide: FloatArray,
    most: float = 1.0,
    missed: FloatArray | float = 0.0,
) -> Curved:
    """Computes sum w_i T_i / rows, and all r in 0 .. `most` with sum (w_i - r) T_i within the margin of its noise.

    At the true ratio, that sum is noise alone, of variance v sum (w_i - r)^2. So the interval covers the ratio however
    few rows there are. wide: margins of one table. missed: amount by which sum w_i T_i may be too small.
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


def of_rounded(variance: Curved, step: float, *, sample: bool) -> Curved:
    """Returns the variance of the exact values, from the variance of values that were rounded to multiples of `step`.

    A standard deviation is a norm. So rounding changes it by at most the standard deviation of the rounding errors:
    half a step, or half a step times sqrt(2) for a sample.
    """
    off, most = (step / 2**0.5, MOST_SAMPLE_VARIANCE) if sample else (step / 2, MOST_VARIANCE)
    lows = np.maximum(np.sqrt(variance.lows) - off, 0) ** 2
    highs = np.maximum(np.minimum((np.sqrt(variance.highs) + off) ** 2, most), variance.highs)
    usual = step / 12**0.5
    stderrs = np.hypot(variance.stderrs, usual * (2 * np.sqrt(variance.estimates) + usual))
    return Curved(variance.estimates, stderrs, lows, highs)


def deviation_of(variance: Curved) -> Curved:
    """Returns standard deviations. A variance's error s becomes s / (2 deviation), at most the root of s."""
    root = np.sqrt(variance.estimates)
    with np.errstate(divide="ignore", invalid="ignore"):
        stderr = np.minimum(variance.stderrs / (2 * root), np.sqrt(variance.stderrs))
    return Curved(root, stderr, np.sqrt(variance.lows), np.sqrt(variance.highs))


def _with_nulls(curved: Curved, answered: NDArray[np.bool_], most: float) -> Curved:
    """Replaces answers that are not `answered` by NULL, with intervals from 0 to `most`."""
    return Curved(
        np.where(answered, curved.estimates, np.nan),
        np.where(answered, curved.stderrs, np.nan),
        np.where(answered, curved.lows, 0.0),
        np.where(answered, curved.highs, most),
    )


def rescale(unit: Curved, low: float, width: float, power: int = 1) -> Curved:
    """Maps answers about t in [0, 1] to the values low + width t, or to width^2 t for a variance (power 2)."""
    scale, shift = width**power, low if power == 1 else 0.0
    return Curved(
        shift + scale * unit.estimates, scale * unit.stderrs, shift + scale * unit.lows, shift + scale * unit.highs
    )
