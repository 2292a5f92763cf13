"""Ratios and weighted sums of noisy answers: averages and variances from moments, and sums that analysts form.

Tables i = 0 .. d hold noisy sums T_i of the Bernstein basis over a cell's rows, in units of one row, with independent
noise of variance v. Values are t in [0, 1] here. With p_i = i/d, N = sum T_i and sum of t = sum p_i T_i.

Variances of weighted sums of released cells come from the public covariances of a plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import compress, product
from math import inf, prod, sqrt

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.lattice import Lattice, close_downward
from dpduck.kernel.noise.law import NoiseKind, noise_variance
from dpduck.kernel.queries.operators import HadamardFactor, IdentityFactor
from dpduck.strategies.marginals.planners import code_lattice, coefficient_variances
from dpduck.strategies.plan import Plan, factor_kinds
from dpduck.strategies.recovery.intervals import JUMPY, SumMargin, sum_margin
from dpduck.strategies.variance import component_precisions, component_variances, direct_sources
from dpduck.values.arrays import FloatArray

ROUNDED = 1e-6
"""A factor closer to 1 than this is rounding."""

# Covariances between released cells, for standard errors of their sums, differences and ratios.


Members = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ComponentCovariances:
    """Covariances of answers made of uncorrelated components. variances: c_U for every set of the lattice."""

    lattice: Lattice
    variances: FloatArray

    def between(self, first: Members, second: Members) -> FloatArray:
        """Returns the covariance of a cell of each marginal, shape (2,) * common attributes. Index 1: equal codes."""
        sizes = dict(zip(self.lattice.attributes, self.lattice.sizes, strict=True))
        common = tuple(sorted(set(first) & set(second)))
        table = np.zeros((2,) * len(common))
        for flags in product((0, 1), repeat=len(common)):
            table[flags] = self.variances[self.lattice.numbers[tuple(compress(common, flags))]]
        for axis, attribute in enumerate(common):  # rows: agree or not; columns: attribute in U or not
            step = np.array([[1.0, -1.0], [1.0, sizes[attribute] - 1.0]])
            table = np.moveaxis(np.tensordot(step, table, axes=([1], [axis])), 0, axis)
        cells = prod([float(sizes[i]) for i in first]) * prod([float(sizes[i]) for i in second])
        scaled: FloatArray = np.asarray(table / cells)
        return scaled


@dataclass(frozen=True, eq=False)
class TableCovariances:
    """Covariances of answers that each sum one noisy table. sources: each marginal's table and its noise variance."""

    sizes: tuple[int, ...]
    sources: dict[Members, tuple[Members, float]]

    def between(self, first: Members, second: Members) -> FloatArray:
        """Returns the covariance likewise: the noise of table cells in both sums, if the cells agree everywhere."""
        common = set(first) & set(second)
        table = np.zeros((2,) * len(common))
        (measured, variance), (other, _) = self.sources[first], self.sources[second]
        if measured == other:
            shared = [float(self.sizes[i]) for i in measured if i not in {*first, *second}]
            table[(1,) * len(common)] = variance * prod(shared)
        return table


def covariances(plan: Plan) -> ComponentCovariances | TableCovariances:
    """Returns the covariances of all pairs of released cells of a plan over marginals. Build once, ask often.

    With consistency 'l1' or 'linf' there is no closed form: the covariances hold before the linear program, and are not
    kept with a release.
    """
    kinds = factor_kinds(plan)
    tables = kinds <= {IdentityFactor}
    if tables and (plan.consistency != "l2" or len(plan.measurements) == 1):
        sources, _ = direct_sources(plan.workload, plan.measurements, plan.noise)
        measurements = [plan.measurements[source] for source in sources]
        noisy_tables = [(used.query.attributes, noise_variance(plan.noise, used.parameter)) for used in measurements]
        return TableCovariances(plan.workload.sizes, dict(zip(plan.workload.marginals, noisy_tables, strict=True)))
    lattice = close_downward(plan.workload.marginals, plan.workload.sizes)
    if kinds <= {HadamardFactor} and plan.consistency == "none":
        return ComponentCovariances(
            code_lattice(lattice), coefficient_variances(lattice, plan.measurements, plan.noise)
        )
    precisions = component_precisions(lattice, plan.measurements, plan.noise)
    return ComponentCovariances(lattice, component_variances(lattice, precisions))


Covariances = ComponentCovariances | TableCovariances


def scale_to_variance(covariances: Covariances, members: Members, variance: float) -> Covariances:
    """Returns covariances scaled by one factor, so that a cell of a grouping set has this variance."""
    own = float(covariances.between(members, members)[(1,) * len(members)])
    times = variance / own
    if abs(times - 1) < ROUNDED:
        return covariances
    if isinstance(covariances, TableCovariances):
        sources = {marginal: (table, times * noise) for marginal, (table, noise) in covariances.sources.items()}
        return TableCovariances(covariances.sizes, sources)
    return ComponentCovariances(covariances.lattice, times * covariances.variances)


def variance_of_sum(covariances: Covariances, weights: Mapping[Members, FloatArray]) -> float:
    """Returns the variance of the sum of weight times cell. weights: a table for each used marginal."""
    if isinstance(covariances, TableCovariances):
        return _from_tables(covariances, weights)
    return _from_components(covariances, weights)


def ratio_weights(
    numerator: Mapping[Members, FloatArray], denominator: Mapping[Members, FloatArray], ratio: float, divisor: float
) -> dict[Members, FloatArray]:
    """Returns the delta method's weights: to first order, N/D deviates like the sum with weights (w_N - R w_D) / D."""
    return {
        marginal: (numerator[marginal] - ratio * denominator[marginal]) / divisor
        for marginal in numerator.keys() | denominator.keys()
    }


def ratio_interval(
    covariances: Covariances,
    numerator: tuple[float, Mapping[Members, FloatArray]],
    denominator: tuple[float, Mapping[Members, FloatArray]],
    margins: SumMargin,
) -> tuple[float, float]:
    """Returns Fieller's interval of a ratio: all t for which N - t D is within the margin of its own noise.

    N - t D is noise alone at the true ratio. So the interval covers the ratio however near to 0 the denominator is. If
    D cannot be told from 0, every ratio is possible. The numerator and the denominator are each a sum and its weights.
    """
    (above, upper), (below, lower) = numerator, denominator
    variances = [variance_of_sum(covariances, weights) for weights in (upper, lower)]
    together = variance_of_sum(covariances, ratio_weights(upper, lower, -1.0, 1.0))
    shared = (together - sum(variances)) / 2

    def stderr(ratio: float) -> float:
        return sqrt(max(variances[0] - 2 * ratio * shared + ratio**2 * variances[1], 0.0))

    def step(ratio: float) -> float:
        return max(float(np.abs(part).max(initial=0.0)) for part in ratio_weights(upper, lower, ratio, 1.0).values())

    middle, largest = above / below, max(float(np.abs(table).max(initial=0.0)) for table in lower.values())
    lows, highs = [], []
    for times, jump in ((margins.farthest, 0.0), (margins.usual, 1.0)):
        room = abs(below) - times * sqrt(variances[1]) - jump * largest
        if room <= 0:
            continue
        farthest = (times * stderr(middle) + jump * step(middle)) / room

        def outside(ratio: float, times: float = times, jump: float = jump) -> float:
            return abs(above - ratio * below) - times * stderr(ratio) - jump * step(ratio)

        ends = [_root(outside, middle, middle + side * farthest * (1 + 1e-9)) for side in (-1, 1)]
        lows.append(ends[0])
        highs.append(ends[1])
    return max(lows, default=-inf), min(highs, default=inf)


def _root(outside: Callable[[float], float], inside: float, beyond: float) -> float:
    """Finds a root, on the wide side. The function is concave from `inside` on, negative there, and not at `beyond`."""
    for _ in range(100):
        middle = (inside + beyond) / 2
        inside, beyond = (middle, beyond) if outside(middle) < 0 else (inside, middle)
    return beyond


def _from_tables(covariances: TableCovariances, weights: Mapping[Members, FloatArray]) -> float:
    """Sums variances over tables: a cell sums cells of one noisy table, and tables are independent."""
    lifted: dict[Members, FloatArray] = {}
    variances: dict[Members, float] = {}
    for marginal, table in weights.items():
        measured, variance = covariances.sources[marginal]
        shape = [covariances.sizes[i] if i in marginal else 1 for i in measured]
        full = np.broadcast_to(table.reshape(shape), [covariances.sizes[i] for i in measured])
        lifted[measured] = lifted[measured] + full if measured in lifted else full.copy()
        variances[measured] = variance
    return float(sum(variances[measured] * np.square(total).sum() for measured, total in lifted.items()))


def _from_components(covariances: ComponentCovariances, weights: Mapping[Members, FloatArray]) -> float:
    """Returns the sum over U of c_U s_U' kron_{i in U} (n_i I - J) s_U. s_U sums the weights / n_A outside U."""
    lattice = covariances.lattice
    sizes = dict(zip(lattice.attributes, lattice.sizes, strict=True))
    total = 0.0
    for number, members in enumerate(lattice.sets):
        summed = _sum_outside(members, weights, sizes)
        if summed is None:
            continue
        centred = summed
        for axis, attribute in enumerate(members):
            centred = sizes[attribute] * centred - centred.sum(axis=axis, keepdims=True)
        total += float(covariances.variances[number]) * float((summed * centred).sum())
    return max(total, 0.0)


def _sum_outside(
    members: Members, weights: Mapping[Members, FloatArray], sizes: Mapping[int, int]
) -> FloatArray | None:
    total: FloatArray | None = None
    for marginal, table in weights.items():
        if not set(members) <= set(marginal):
            continue
        outside = tuple(axis for axis, attribute in enumerate(marginal) if attribute not in members)
        part = table.sum(axis=outside) / prod(float(sizes[attribute]) for attribute in marginal)
        total = part if total is None else total + part
    return total


def covariances_to_text(covariances: Covariances) -> str:
    """Returns public covariances as JSON, for a store."""
    if isinstance(covariances, TableCovariances):
        sources = [[list(members), list(table), variance] for members, (table, variance) in covariances.sources.items()]
        return json.dumps({"sizes": list(covariances.sizes), "sources": sources})
    lattice = covariances.lattice
    components = [[list(members), float(covariances.variances[number])] for number, members in enumerate(lattice.sets)]
    return json.dumps({"attributes": list(lattice.attributes), "sizes": list(lattice.sizes), "components": components})


def covariances_from_text(text: str) -> Covariances:
    """Reads the text of covariances_to_text."""
    fields = json.loads(text)
    if "sources" in fields:
        sources = {tuple(marginal): (tuple(table), variance) for marginal, table, variance in fields["sources"]}
        return TableCovariances(tuple(fields["sizes"]), sources)
    components = {tuple(members): variance for members, variance in fields["components"]}
    sizes = [1] * (max(fields["attributes"], default=-1) + 1)
    for attribute, size in zip(fields["attributes"], fields["sizes"], strict=True):
        sizes[attribute] = size
    lattice = close_downward(tuple(components), tuple(sizes))
    return ComponentCovariances(lattice, np.array([components[members] for members in lattice.sets], np.float64))


LEVELS = tuple(Fraction(text) for text in ("0.5", "0.8", "0.9", "0.95", "0.99", "0.999", "0.999999"))
"""Confidences with stored intervals, if intervals depend on the answer. Others get the next higher confidence."""

USUAL = LEVELS.index(Fraction("0.95"))

FEWEST_ROWS = 1.0
"""Fewest noisy rows of an average. With fewer, the answer is NULL, and its interval is the whole range of values."""

POSSIBLE = 0.7
"""Part of the margins of an average. A variance's interval counts averages this far from the noisy one as possible.

The square of such a distance is twice its mean at 95 per cent. In simulations, intervals reach every level of
confidence with parts from 0.6 on (tests/strategies/test_curved.py)."""

MOST_VARIANCE, MOST_SAMPLE_VARIANCE = 0.25, 0.5
"""Largest variances of values in [0, 1]: half of the values at either end, and for a sample the two values 0 and 1."""


@dataclass(frozen=True)
class Curved:
    """One answer per cell, NaN for NULL. lows, highs: shape (levels, cells)."""

    estimates: FloatArray
    stderrs: FloatArray
    lows: FloatArray
    highs: FloatArray


def margins(
    noise: NoiseKind, stderrs: FloatArray, step: float | FloatArray, levels: Sequence[Fraction] = LEVELS
) -> FloatArray:
    """Computes half-widths like SumMargin.of, shape (levels, ..), for sums of noises with these standard errors."""
    jumps = np.where(stderrs < JUMPY * step, step, step / 2)
    laws = [sum_margin(noise, level) for level in levels]
    return np.array([np.minimum(law.farthest * stderrs, law.usual * stderrs + jumps) for law in laws])


def average(tables: Sequence[FloatArray], variance: FloatArray, noise: NoiseKind, step: float) -> Curved:
    """Returns the average of t with Fieller's interval, cut at 0 and 1.

    variance: v of every cell. step: the worth of one integer of noise, in units of a row.
    """
    rows = np.sum(tables, axis=0)
    wide = margins(noise, np.sqrt(variance), step)
    result = _of_each_row(tables, list(np.linspace(0, 1, len(tables))), rows, variance, wide)
    return _with_nulls(result, rows >= FEWEST_ROWS, 1.0)


@dataclass(frozen=True)
class Noisy:
    """Noisy numbers, one per cell. stderrs: of the noise. step: the worth of one integer of noise."""

    answers: FloatArray
    stderrs: FloatArray
    step: float


def average_about(centre: float, bounds: tuple[float, float], rows: Noisy, sums: Noisy, noise: NoiseKind) -> Curved:
    """Returns averages from counts N and sums S of distances from a centre c, with independent noises.

    The answer is c + S/N. Its interval has all r for which S - r N is within the margin of its own noise, of variance
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
    """Returns standard errors, at least those of a uniform law if anything is possible at the usual confidence.

    If the count may be 0, the ratio may have any size, however little noise its numerator has.
    """
    everything = highs[USUAL] - lows[USUAL] >= width * (1 - 1e-9)
    return np.where(everything, np.maximum(stderrs, width / 12**0.5), stderrs)


def _ratios(
    counts: FloatArray, total: FloatArray, wide: FloatArray, above: FloatArray, bounds: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """Returns the least and the largest r for which total - r counts is within its margin, cut at bounds.

    wide, above: margins of the counts and of the total. If counts are within their margin, every ratio is possible.
    """
    low, high = bounds
    square, line = counts**2 - wide**2, counts * total
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(np.maximum(line**2 - square * (total**2 - above**2), 0))
        lows, highs = (line - root) / square, (line + root) / square
    unbounded = (square <= 0) | (counts <= 0)
    return (
        np.where(unbounded, low, np.clip(lows, low, high)),
        np.where(unbounded, high, np.clip(highs, low, high)),
    )


def variance_about(width: float, rows: Noisy, sums: Noisy, squares: Noisy, noise: NoiseKind, *, sample: bool) -> Curved:
    """Returns variances from counts N, sums S of distances from a centre and Q of their squares, in units of width^2.

    T(m) = Q - 2 m S + m^2 N is the sum of squared distances from m. The answer takes T at the noisy average m = S/N,
    where it is least. The interval has all r for which T(m) - r N is within the margin of its own noise, at some
    possible average m. That noise has variance v_Q + 4 m^2 v_S + (m^2 - r)^2 v_N. The noisy average alone falls short:
    its error and that of T come from the same noise of a small count. sample: N - 1 divides in place of N.
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
    """Returns S/N for the sum S of (t - m)^2, with Fieller's interval as for an average. sample: S/(N - 1).

    Three tables give S = sum c_i T_i at the average m = sum p_i T_i / N. Here c = (m^2, m^2 - m, (1 - m)^2). S is least
    at m. Another average makes S larger by N times its squared distance. So the S of the noisy average is too small by
    v sum (p_i - m)^2 / N on average. If that matters, c has errors, too: the upper end gets twice that amount. step:
    the worth of one integer of noise, in units of a row.
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

    At the true ratio that sum is noise alone, of variance v sum (w_i - r)^2. So the interval covers the ratio however
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
    """Returns the variance of the values themselves, from the variance of values that were rounded to steps.

    A standard deviation is a norm of the values about their mean. The values and the rounded values have deviations
    that differ by at most the deviation of the rounding: half a step, and for a sample at most sqrt(2) times that.
    """
    off, most = (step / 2**0.5, MOST_SAMPLE_VARIANCE) if sample else (step / 2, MOST_VARIANCE)
    lows = np.maximum(np.sqrt(variance.lows) - off, 0) ** 2
    highs = np.maximum(np.minimum((np.sqrt(variance.highs) + off) ** 2, most), variance.highs)
    usual = step / 12**0.5
    stderrs = np.hypot(variance.stderrs, usual * (2 * np.sqrt(variance.estimates) + usual))
    return Curved(variance.estimates, stderrs, lows, highs)


def deviation_of(variance: Curved) -> Curved:
    """Returns the square root of a variance with error s. Its own error is s / (2 deviation), at most the root of s."""
    root = np.sqrt(variance.estimates)
    with np.errstate(divide="ignore", invalid="ignore"):
        stderr = np.minimum(variance.stderrs / (2 * root), np.sqrt(variance.stderrs))
    return Curved(root, stderr, np.sqrt(variance.lows), np.sqrt(variance.highs))


def _with_nulls(curved: Curved, answered: NDArray[np.bool_], most: float) -> Curved:
    """Answers NULL if too few rows are left, with an interval of all possible values."""
    return Curved(
        np.where(answered, curved.estimates, np.nan),
        np.where(answered, curved.stderrs, np.nan),
        np.where(answered, curved.lows, 0.0),
        np.where(answered, curved.highs, most),
    )


def rescale(unit: Curved, low: float, width: float, power: int = 1) -> Curved:
    """Maps t in [0, 1] to values: low + width t, or width^2 t for a variance."""
    scale, shift = width**power, low if power == 1 else 0.0
    return Curved(
        shift + scale * unit.estimates, scale * unit.stderrs, shift + scale * unit.lows, shift + scale * unit.highs
    )
