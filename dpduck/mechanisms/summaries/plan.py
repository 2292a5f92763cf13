"""A summary chosen by public numbers alone: the domain's size m, the noise, the wanted rows, the guess EXPECT ROWS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, exp, expm1, floor, inf, log, sqrt

import numpy as np

from dpduck.kernel.noise.law import Noise
from dpduck.kernel.noise.layers import SummaryLaw
from dpduck.kernel.queries.summaries import SummaryPlan
from dpduck.language.select.request import LARGEST_SIZE, Summary

# What a summary does to one cell, in floats: how likely it is kept, mean and square of its estimate.


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
    """Computes the moments of an empty cell, in closed form: sums of k^p a^k from theta to floor(tau) and beyond."""
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
    """Returns the sum of k^power a^k over k >= least."""
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
    """Computes the moments of a cell with this exact count, on a grid of so many noise values on either side."""
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
        float(weights @ chance), float(weights @ (chance * estimates)), float(weights @ (chance * estimates**2))
    )


NOISE_SHARE = 1.5
"""A filter before a sample lets pass, of empty cells, at most one in NOISE_SHARE of the wanted rows, two thirds.

A higher filter is better for sums of few cells and worse for large ones, whose bias is all that it loses: at a tenth of
the rows, sums of 100,000 cells are up to 3.4 times worse than with all the noise (benchmarks/papers/sparse_data.py).
"""

SUBSETS = (10, 1_000, 100_000)
"""Cells of the subset sums whose errors are predicted."""

COARSE, HALVINGS = 200, 24
"""Steps of the noise law, and of the bisection, while an expected threshold is looked for."""

ACCURACY = 1 << 10
"""Thresholds are multiples of 1/ACCURACY."""


@dataclass(frozen=True)
class SummaryDesign:
    """What is drawn and what to expect of it.

    cells: m. keep: rows that priorities choose, None for all that are drawn. tau: of the estimator where it is public,
    0 for none. rows: expected. predicted: root mean squared errors of sums over SUBSETS cells, by the public guess.
    """

    method: str
    cells: int
    plan: SummaryPlan
    theta: int
    tau: Fraction
    keep: int | None
    sides: int
    rows: float
    predicted: tuple[float, ...]

    @property
    def scale(self) -> float:
        """Returns the scale of the noise."""
        return float(self.plan.scale)


@dataclass(frozen=True)
class SketchDesign:
    """A count sketch: rows of `width` buckets. noise: of a bucket. predicted: as of a SummaryDesign."""

    rows: int
    width: int
    noise: Noise
    predicted: tuple[float, ...]


def designed_sketch(summary: Summary, cells: int, once: Noise) -> SketchDesign:
    """Returns the noise grows with the rows. once: what a sketch of one row would have.

    A sum of c point queries, each the mean of its rows, has c times their variance: noise and, in each row, the squares
    of other cells' counts over the width.
    """
    rows, width = summary.sketch_rows, max(summary.size // summary.sketch_rows, 1)
    noise = Noise(once.kind, once.parameter * rows)  # L1 and squared L2 norms are `rows` times those of one row
    squares = sum(stratum.cells * stratum.rows**2 for stratum in guessed_table(summary.expect_rows, cells))
    error = (noise.variance + squares / width) / rows
    predicted = tuple(sqrt(min(subset, cells) * error) for subset in SUBSETS)
    return SketchDesign(rows, width, noise, predicted)


def designed(summary: Summary, cells: int, scale: Fraction, *, checked: bool = False) -> SummaryDesign:
    """Returns the design of one method. checked: nodes without parents are dropped, so the whole filter is drawn."""
    makers: dict[str, Callable[[Summary, int, Fraction], SummaryDesign]] = {
        "geometric": _geometric,
        "filter": _filter,
        "filter_one_sided": _filter,
        "threshold": _threshold,
        "filter_threshold": _threshold,
        "priority": _priority,
        "filter_priority": _filtered_whole if checked else _priority,
    }
    return makers[summary.method](summary, cells, scale)


def _geometric(summary: Summary, cells: int, scale: Fraction) -> SummaryDesign:
    plan = SummaryPlan((SummaryLaw(scale),), whole=True)
    error = noise_variance(float(scale))
    predicted = tuple(sqrt(min(subset, cells) * error) for subset in SUBSETS)
    return SummaryDesign("geometric", cells, plan, 1, Fraction(0), None, 2, float(cells), predicted)


def _filter(summary: Summary, cells: int, scale: Fraction) -> SummaryDesign:
    """Returns the least theta that lets at most `size` empty cells pass, on average; layers below it where that is too
    few.
    """
    sides = 1 if summary.method == "filter_one_sided" else 2
    theta = summary.theta or filter_for(cells, scale, summary.size, sides)
    layers = [SummaryLaw(scale, theta, sides=sides)]
    if summary.theta is None:
        step = max(1, int(scale / 8))
        while layers[-1].theta > 1:
            lower = max(1, layers[-1].theta - step)
            layers.append(SummaryLaw(scale, lower, below=layers[-1].theta, sides=sides))
    plan = SummaryPlan(tuple(layers), None if summary.theta else summary.size - 1)
    return _described(summary, cells, plan, theta, Fraction(0), None, sides)


def _threshold(summary: Summary, cells: int, scale: Fraction) -> SummaryDesign:
    """Returns a threshold for the expected number of rows: empty cells, and the guessed total over tau."""
    theta = _theta(summary, cells, scale)
    tau = summary.tau or _threshold_for(cells, scale, theta, summary.size, summary.expect_rows or 0)
    plan = SummaryPlan((SummaryLaw(scale, theta, tau),))
    return _described(summary, cells, plan, theta, tau if tau > theta else Fraction(0), None)


def _priority(summary: Summary, cells: int, scale: Fraction) -> SummaryDesign:
    """Returns layers that halve the threshold until there are enough; the first is nearly always enough."""
    theta = _theta(summary, cells, scale)
    tau = _threshold_for(cells, scale, theta, summary.size + 8 * sqrt(summary.size) + 8, 0)
    layers = [SummaryLaw(scale, theta, tau)]
    while layers[-1].tau > theta:
        above = layers[-1].tau
        layers.append(SummaryLaw(scale, theta, _rounded(above / 2), above))
    plan = SummaryPlan(tuple(layers), summary.size, priorities=True)
    return _described(summary, cells, plan, theta, Fraction(0), summary.size)


def _filtered_whole(summary: Summary, cells: int, scale: Fraction) -> SummaryDesign:
    """Returns a filter without threshold, of which priorities choose after the check of parents."""
    theta = _theta(summary, cells, scale)
    plan = SummaryPlan((SummaryLaw(scale, theta),), priorities=True)
    return _described(summary, cells, plan, theta, Fraction(0), summary.size)


def _theta(summary: Summary, cells: int, scale: Fraction) -> int:
    if not summary.method.startswith("filter"):
        return 1
    return summary.theta or filter_for(cells, scale, max(summary.size / NOISE_SHARE, 1.0), 2)


def filter_for(cells: int, scale: Fraction, rows: float, sides: int) -> int:
    """Returns the least theta >= 1 at which on average at most `rows` empty cells pass: a^theta / (1 + a) m <= rows."""
    start = float(scale) * log(sides * cells / rows / (1.0 + exp(-1.0 / float(scale))))
    theta = max(1, ceil(start) - 2)
    while cells * SummaryLaw(scale, theta, sides=sides).upgraded() > rows:
        theta += 1
    return theta


def _threshold_for(cells: int, scale: Fraction, theta: int, rows: float, total: float) -> Fraction:
    """Returns the threshold with `rows` expected, by bisection on its logarithm; theta where all that pass are few."""

    def expected(tau: Fraction) -> float:
        return cells * SummaryLaw(scale, theta, tau).upgraded() + total / max(float(tau), theta)

    low, high = Fraction(theta), Fraction(2 * theta)
    if expected(low) <= rows:
        return low
    while expected(high) > rows:
        low, high = high, high * 2
    while high - low > max(high / 1000, Fraction(1, ACCURACY)):
        middle = _rounded((low + high) / 2)
        low, high = (middle, high) if expected(middle) > rows else (low, middle)
    return high


def _rounded(value: Fraction) -> Fraction:
    return Fraction(int(value * ACCURACY), ACCURACY)


def _described(
    summary: Summary, cells: int, plan: SummaryPlan, theta: int, tau: Fraction, keep: int | None, sides: int = 2
) -> SummaryDesign:
    """Returns the design with its predictions."""
    scale = float(plan.scale)
    table = guessed_table(summary.expect_rows, cells)
    vacant = cells - sum(stratum.cells for stratum in table)

    def rows_at(tau: float) -> float:
        held = (occupied_moments(part.rows, scale, theta, tau, sides, grid=COARSE).kept * part.cells for part in table)
        return vacant * empty_moments(scale, theta, tau, sides).kept + sum(held)

    expected_tau = float(tau)
    if keep is not None and rows_at(0.0) > keep:
        low, high = log(theta), log(theta) + 1
        while rows_at(exp(high)) > keep:
            high += 1
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if rows_at(exp(middle)) > keep else (low, middle)
        expected_tau = exp(high)
    empty = empty_moments(scale, theta, expected_tau, sides)
    held = [occupied_moments(part.rows, scale, theta, expected_tau, sides) for part in table]
    rows = min(rows_at(expected_tau), inf if keep is None else keep)
    predicted = tuple(_error(min(subset, cells), cells, vacant, empty, table, held) for subset in SUBSETS)
    return SummaryDesign(summary.method, cells, plan, theta, tau, keep, sides, rows, predicted)


def _error(
    subset: int, cells: int, vacant: float, empty: Moments, table: Sequence[Stratum], held: Sequence[Moments]
) -> float:
    """Returns root mean squared error of the sum over `subset` random cells: variances add up, and so do biases."""
    variance = vacant * (empty.square - empty.mean**2)
    bias = vacant * empty.mean
    for part, moments in zip(table, held, strict=True):
        variance += part.cells * (moments.square - moments.mean**2)
        bias += part.cells * (moments.mean - part.rows)
    return sqrt(max(subset * variance / cells, 0.0) + (subset * bias / cells) ** 2)


def candidates(
    summary: Summary, cells: int, scale: Fraction, *, checked: bool, signed: bool = False
) -> list[SummaryDesign]:
    """Returns every method with this size, the chosen one first. signed: sums may be below 0.

    The statement names it. For 'auto' it has the least predicted error of a sum over 1,000 cells, among those that keep
    to the size. It is filter_priority where nothing is guessed about the table.
    """
    methods = ["filter_priority", "filter_threshold", "priority", "threshold", "filter"]
    if summary.shape != "haar" and not signed:  # coefficients have either sign
        methods.append("filter_one_sided")
    sized = replace(summary, size=min(summary.size, cells))
    found = []
    for method in methods:
        same = method == summary.method
        asked = replace(sized, method=method, theta=summary.theta if same else None, tau=summary.tau if same else None)
        found.append(designed(asked, cells, scale, checked=checked))
    if cells <= LARGEST_SIZE:
        found.append(designed(replace(sized, method="geometric"), cells, scale))
    if summary.method != "auto":
        return sorted(found, key=lambda design: design.method != summary.method)
    if summary.expect_rows is None:  # errors over empty cells alone say nothing about what a method loses
        return found
    return sorted(found, key=lambda design: (design.rows > 1.5 * summary.size, design.predicted[1]))


# What public facts say about an unknown sparse table: how many rows (EXPECT ROWS), and how many cells there
# could be.
#
# How many cells are occupied is private, and nobody has said it. Rows are spread by Zipf's law, which favours
# no size of cell: as many rows are in cells of about one row as in cells of about four, sixteen, .., up to
# the largest. Methods that drop small cells, and methods that sample large ones, are both judged by what they
# do to such a table.

STEP = 4
"""From one stratum to the next cells hold STEP times the rows, and there are 1/STEP as many of them."""


@dataclass(frozen=True)
class Stratum:
    """So many cells with so many rows each."""

    cells: float
    rows: float


def guessed_table(expect_rows: int | None, cells: int) -> tuple[Stratum, ...]:
    """Returns the occupied cells: strata of equally many rows, as many of them as leave a whole cell in the last.

    None without EXPECT ROWS. Where there are too few cells for so many small ones, each holds more.

    >>> [(round(stratum.cells), round(stratum.rows)) for stratum in guessed_table(3_000, 10**9)]
    [(600, 1), (150, 4), (38, 16), (9, 64), (2, 256)]
    """
    if not expect_rows:
        return ()
    strata = 1
    while _smallest_cells(expect_rows, cells, strata + 1) >= STEP**strata:
        strata += 1
    first = _smallest_cells(expect_rows, cells, strata)
    rows = expect_rows / strata / first
    return tuple(Stratum(first / STEP**level, rows * STEP**level) for level in range(strata))


def _smallest_cells(expect_rows: int, cells: int, strata: int) -> float:
    """Tells how many cells are in the first stratum of so many: one row in each, or all cells in all of them."""
    of_first = (1 - STEP**-strata) / (1 - 1 / STEP)
    return float(min(expect_rows / strata, cells / of_first))
