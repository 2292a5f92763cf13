"""Choice of a summary by public numbers alone: the domain's size m, the noise, the wanted rows, EXPECT ROWS."""

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
from dpduck.mechanisms.summaries.guess import Stratum, guess_table

# Effect of a summary on one cell, in floats: the chance to be kept, mean and square of the estimate.


GRID = 4000  # noise values on either side of 0
REACH = 40.0  # largest noise value, in noise scales


@dataclass(frozen=True)
class Moments:
    """Moments of a cell. kept: its chance to be in the summary. mean, square: of its estimate, 0 if it is not in."""

    kept: float
    mean: float
    square: float


def noise_variance(scale: float) -> float:
    """Returns the variance of geometric noise: 2 a / (1 - a)^2 with a = exp(-1 / scale)."""
    gap = -expm1(-1.0 / scale)
    return 2.0 * (1.0 - gap) / gap**2


def empty_moments(scale: float, theta: int, tau: float, sides: int = 2) -> Moments:
    """Computes the moments of a cell without rows, from sums of k^p a^k over k >= theta, with a = exp(-1 / scale)."""
    a, gap = exp(-1.0 / scale), -expm1(-1.0 / scale)
    front = sides * gap / (1.0 + a)
    last = max(floor(tau), theta - 1)
    tail = [_tail(scale, last + 1, power) for power in range(3)]
    if last < theta:
        chance, mean, square = tail[0], tail[1], tail[2]
    else:
        first = _tail(scale, theta, 1) - tail[1]
        chance = first / tau + tail[0]
        mean = _tail(scale, theta, 1)
        square = tau * first + tail[2]
    return Moments(front * chance, 0.0 if sides == 2 else front * mean, front * square)


def _tail(scale: float, least: int, power: int) -> float:
    """Returns the sum of k^power a^k over k >= least, with a = exp(-1 / scale)."""
    a, gap = exp(-1.0 / scale), -expm1(-1.0 / scale)
    weight = exp(-least / scale) / gap
    if power == 0:
        return weight
    if power == 1:
        return weight * (least + a / gap)
    return weight * (least**2 + 2 * least * a / gap + a * (1 + a) / gap**2)


def moments_at_count(
    count: float, scale: float, theta: int, tau: float, sides: int = 2, *, grid: int = GRID
) -> Moments:
    """Computes the moments of a cell with this exact count, over `grid` noise values on either side of 0."""
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
"""A filter before a sample lets at most size / NOISE_SHARE empty cells pass on average: two thirds of the wanted rows.

A higher filter makes sums of few cells better, and large sums worse, since they lack all dropped counts: up to 3.4
times worse if only a tenth of the rows may be empty cells (benchmarks/papers/sparse_data.py)."""

SUBSETS = (10, 1_000, 100_000)

COARSE, HALVINGS = 200, 24
"""Steps of the noise law, and of the bisection, in the search for an expected threshold."""

ACCURACY = 1 << 10


@dataclass(frozen=True)
class SummaryDesign:
    """Design of a summary: its plan, its expected rows and its predicted errors. cells: those of the domain.

    keep: the number of rows that priorities choose, None for all. tau: the public threshold of the weights, else 0.
    predicted: root mean squared errors of sums over SUBSETS cells, by the guess of guess_table.
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
        return float(self.plan.scale)


@dataclass(frozen=True)
class SketchDesign:
    """Design of a count sketch: `rows` rows of `width` buckets. noise: of a bucket. predicted: see SummaryDesign."""

    rows: int
    width: int
    noise: Noise
    predicted: tuple[float, ...]


def design_sketch(summary: Summary, cells: int, row_noise: Noise) -> SketchDesign:
    """Designs a count sketch. row_noise: the noise of a sketch with one row. With more rows, buckets have more noise.

    A point query is a mean over the rows. The variance of a row is that of the noise, plus the sum of squares of other
    cells' counts divided by the width.
    """
    rows, width = summary.sketch_rows, max(summary.size // summary.sketch_rows, 1)
    noise = Noise(row_noise.kind, row_noise.parameter * rows)  # L1 and squared L2 norms are `rows` times as large
    squares = sum(stratum.cells * stratum.rows**2 for stratum in guess_table(summary.expect_rows, cells))
    error = (noise.variance + squares / width) / rows
    predicted = tuple(sqrt(min(subset, cells) * error) for subset in SUBSETS)
    return SketchDesign(rows, width, noise, predicted)


def design_method(summary: Summary, cells: int, scale: Fraction, *, checked: bool = False) -> SummaryDesign:
    """Designs a summary with the method that it names. checked: nodes without parents are dropped later."""
    makers: dict[str, Callable[[Summary, int, Fraction], SummaryDesign]] = {
        "geometric": _geometric,
        "filter": _filter,
        "filter_one_sided": _filter,
        "threshold": _threshold,
        "filter_threshold": _threshold,
        "priority": _priority,
        "filter_priority": _whole_filter if checked else _priority,
    }
    return makers[summary.method](summary, cells, scale)


def _geometric(summary: Summary, cells: int, scale: Fraction) -> SummaryDesign:
    plan = SummaryPlan((SummaryLaw(scale),), whole=True)
    error = noise_variance(float(scale))
    predicted = tuple(sqrt(min(subset, cells) * error) for subset in SUBSETS)
    return SummaryDesign("geometric", cells, plan, 1, Fraction(0), None, 2, float(cells), predicted)


def _filter(summary: Summary, cells: int, scale: Fraction) -> SummaryDesign:
    """Designs a filter and lower layers. At its theta, at most `size` empty cells pass on average."""
    sides = 1 if summary.method == "filter_one_sided" else 2
    theta = summary.theta or filter_for(cells, scale, summary.size, sides)
    layers = [SummaryLaw(scale, theta, sides=sides)]
    if summary.theta is None:
        step = max(1, int(scale / 8))
        while layers[-1].theta > 1:
            lower = max(1, layers[-1].theta - step)
            layers.append(SummaryLaw(scale, lower, below=layers[-1].theta, sides=sides))
    plan = SummaryPlan(tuple(layers), None if summary.theta else summary.size - 1)
    return _predict_design(summary, cells, plan, theta, Fraction(0), None, sides)


def _threshold(summary: Summary, cells: int, scale: Fraction) -> SummaryDesign:
    """Designs a threshold summary. At tau, `size` rows are expected: empty cells that pass, and the total over tau."""
    theta = _theta(summary, cells, scale)
    tau = summary.tau or _threshold_for(cells, scale, theta, summary.size, summary.expect_rows or 0)
    plan = SummaryPlan((SummaryLaw(scale, theta, tau),))
    return _predict_design(summary, cells, plan, theta, tau if tau > theta else Fraction(0), None)


def _priority(summary: Summary, cells: int, scale: Fraction) -> SummaryDesign:
    """Designs layers for priorities. Each has half the threshold of the one before. Nearly always, one is enough."""
    theta = _theta(summary, cells, scale)
    tau = _threshold_for(cells, scale, theta, summary.size + 8 * sqrt(summary.size) + 8, 0)
    layers = [SummaryLaw(scale, theta, tau)]
    while layers[-1].tau > theta:
        above = layers[-1].tau
        layers.append(SummaryLaw(scale, theta, _truncate(above / 2), above))
    plan = SummaryPlan(tuple(layers), summary.size, priorities=True)
    return _predict_design(summary, cells, plan, theta, Fraction(0), summary.size)


def _whole_filter(summary: Summary, cells: int, scale: Fraction) -> SummaryDesign:
    """Designs a filter without threshold. Priorities choose among its rows after the check of parents."""
    theta = _theta(summary, cells, scale)
    plan = SummaryPlan((SummaryLaw(scale, theta),), priorities=True)
    return _predict_design(summary, cells, plan, theta, Fraction(0), summary.size)


def _theta(summary: Summary, cells: int, scale: Fraction) -> int:
    if not summary.method.startswith("filter"):
        return 1
    return summary.theta or filter_for(cells, scale, max(summary.size / NOISE_SHARE, 1.0), 2)


def filter_for(cells: int, scale: Fraction, rows: float, sides: int) -> int:
    """Returns the least theta >= 1 at which at most `rows` empty cells pass on average. sides: as in SummaryLaw."""
    start = float(scale) * log(sides * cells / rows / (1.0 + exp(-1.0 / float(scale))))
    theta = max(1, ceil(start) - 2)
    while cells * SummaryLaw(scale, theta, sides=sides).float_probability() > rows:
        theta += 1
    return theta


def _threshold_for(cells: int, scale: Fraction, theta: int, rows: float, total: float) -> Fraction:
    """Returns the threshold tau with `rows` expected rows, or theta if larger. total: the guessed sum of all counts."""

    def mean_rows(tau: Fraction) -> float:
        return cells * SummaryLaw(scale, theta, tau).float_probability() + total / max(float(tau), theta)

    low, high = Fraction(theta), Fraction(2 * theta)
    if mean_rows(low) <= rows:
        return low
    while mean_rows(high) > rows:
        low, high = high, high * 2
    while high - low > max(high / 1000, Fraction(1, ACCURACY)):
        middle = _truncate((low + high) / 2)
        low, high = (middle, high) if mean_rows(middle) > rows else (low, middle)
    return high


def _truncate(value: Fraction) -> Fraction:
    return Fraction(int(value * ACCURACY), ACCURACY)


def _predict_design(
    summary: Summary, cells: int, plan: SummaryPlan, theta: int, tau: Fraction, keep: int | None, sides: int = 2
) -> SummaryDesign:
    scale = float(plan.scale)
    table = guess_table(summary.expect_rows, cells)
    vacant = cells - sum(stratum.cells for stratum in table)

    def rows_at(tau: float) -> float:
        held = (moments_at_count(part.rows, scale, theta, tau, sides, grid=COARSE).kept * part.cells for part in table)
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
    held = [moments_at_count(part.rows, scale, theta, expected_tau, sides) for part in table]
    rows = min(rows_at(expected_tau), inf if keep is None else keep)
    predicted = tuple(_error(min(subset, cells), cells, vacant, empty, table, held) for subset in SUBSETS)
    return SummaryDesign(summary.method, cells, plan, theta, tau, keep, sides, rows, predicted)


def _error(
    subset: int, cells: int, vacant: float, empty: Moments, table: Sequence[Stratum], occupied: Sequence[Moments]
) -> float:
    """Returns the root mean squared error of a sum over `subset` random cells. occupied: moments by stratum."""
    variance = vacant * (empty.square - empty.mean**2)
    bias = vacant * empty.mean
    for stratum, moments in zip(table, occupied, strict=True):
        variance += stratum.cells * (moments.square - moments.mean**2)
        bias += stratum.cells * (moments.mean - stratum.rows)
    return sqrt(max(subset * variance / cells, 0.0) + (subset * bias / cells) ** 2)


def candidates(
    summary: Summary, cells: int, scale: Fraction, *, checked: bool, signed: bool = False
) -> list[SummaryDesign]:
    """Designs a summary by every method, the chosen one first. signed: sums may be below 0.

    Without EXPECT ROWS, 'auto' is filter_priority. Otherwise 'auto' has the least predicted error of a sum over 1,000
    cells, among designs with at most 1.5 times the size.
    """
    methods = ["filter_priority", "filter_threshold", "priority", "threshold", "filter"]
    if summary.shape != "haar" and not signed:  # Haar coefficients may be below 0
        methods.append("filter_one_sided")
    sized = replace(summary, size=min(summary.size, cells))
    designs = []
    for method in methods:
        same = method == summary.method
        asked = replace(sized, method=method, theta=summary.theta if same else None, tau=summary.tau if same else None)
        designs.append(design_method(asked, cells, scale, checked=checked))
    if cells <= LARGEST_SIZE:
        designs.append(design_method(replace(sized, method="geometric"), cells, scale))
    if summary.method != "auto":
        return sorted(designs, key=lambda design: design.method != summary.method)
    if summary.expect_rows is None:  # errors over empty cells alone say nothing about a method's loss
        return designs
    return sorted(designs, key=lambda design: (design.rows > 1.5 * summary.size, design.predicted[1]))
