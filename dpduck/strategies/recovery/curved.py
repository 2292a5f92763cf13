"""Ratios and weighted sums of noisy answers: averages and variances from moments, and what analysts add up.

Tables i = 0 .. d hold noisy sums T_i of the Bernstein basis over a cell's rows, in units of one row, with independent
noise of variance v. Values are t in [0, 1] here; p_i = i/d, so that N = sum T_i and sum of t = sum p_i T_i.

Variances of weighted sums of released cells, from the public covariances of a plan.
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
from dpduck.strategies.marginals.planners import coefficient_variances, padded_lattice
from dpduck.strategies.plan import Plan, measured_kinds
from dpduck.strategies.recovery.intervals import JUMPY, SumMargin, sum_margin
from dpduck.strategies.variance import component_precisions, component_variances, direct_sources
from dpduck.values.arrays import FloatArray

ROUNDED = 1e-6
"""Factors this close to 1 are rounding."""

# Covariances between released cells, for standard errors of their sums, differences and ratios.


Members = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ComponentCovariances:
    """Answers made of uncorrelated components. variances: c_U for every set of the lattice."""

    lattice: Lattice
    variances: FloatArray

    def between(self, first: Members, second: Members) -> FloatArray:
        """Returns the covariance of a cell of each, shape (2,) * common attributes: index 1 where the cells agree."""
        sizes = dict(zip(self.lattice.attributes, self.lattice.sizes, strict=True))
        common = tuple(sorted(set(first) & set(second)))
        table = np.zeros((2,) * len(common))
        for held in product((0, 1), repeat=len(common)):
            table[held] = self.variances[self.lattice.numbers[tuple(compress(common, held))]]
        for axis, attribute in enumerate(common):  # rows: agree or not; columns: attribute in U or not
            step = np.array([[1.0, -1.0], [1.0, sizes[attribute] - 1.0]])
            table = np.moveaxis(np.tensordot(step, table, axes=([1], [axis])), 0, axis)
        cells = prod([float(sizes[i]) for i in first]) * prod([float(sizes[i]) for i in second])
        scaled: FloatArray = np.asarray(table / cells)
        return scaled


@dataclass(frozen=True, eq=False)
class TableCovariances:
    """Answers that are sums of one noisy table each. sources: for each marginal the table and its noise variance."""

    sizes: tuple[int, ...]
    sources: dict[Members, tuple[Members, float]]

    def between(self, first: Members, second: Members) -> FloatArray:
        """Returns the same: the noise of the table's cells that lie in both, when the cells agree everywhere."""
        common = set(first) & set(second)
        table = np.zeros((2,) * len(common))
        (measured, variance), (other, _) = self.sources[first], self.sources[second]
        if measured == other:
            shared = [float(self.sizes[i]) for i in measured if i not in {*first, *second}]
            table[(1,) * len(common)] = variance * prod(shared)
        return table


def covariances(plan: Plan) -> ComponentCovariances | TableCovariances:
    """Returns the covariance of any two released cells of a plan over marginals; build once, ask often.

    With consistency 'l1' or 'linf' there is no closed form: the covariances are those before the linear program, and
    are not kept with a release.
    """
    kinds = measured_kinds(plan)
    tables = kinds <= {IdentityFactor}
    if tables and (plan.consistency != "l2" or len(plan.measurements) == 1):
        sources, _ = direct_sources(plan.workload, plan.measurements, plan.noise)
        found = [plan.measurements[source] for source in sources]
        held = [(used.query.attributes, noise_variance(plan.noise, used.parameter)) for used in found]
        return TableCovariances(plan.workload.sizes, dict(zip(plan.workload.marginals, held, strict=True)))
    lattice = close_downward(plan.workload.marginals, plan.workload.sizes)
    if kinds <= {HadamardFactor} and plan.consistency == "none":
        return ComponentCovariances(
            padded_lattice(lattice), coefficient_variances(lattice, plan.measurements, plan.noise)
        )
    precisions = component_precisions(lattice, plan.measurements, plan.noise)
    return ComponentCovariances(lattice, component_variances(lattice, precisions))


Covariances = ComponentCovariances | TableCovariances


def scaled_to(covariances: Covariances, members: Members, variance: float) -> Covariances:
    """Returns covariances that are all so many times larger that a cell of a grouping set has this variance."""
    own = float(covariances.between(members, members)[(1,) * len(members)])
    times = variance / own
    if abs(times - 1) < ROUNDED:
        return covariances
    if isinstance(covariances, TableCovariances):
        sources = {one: (held, times * noise) for one, (held, noise) in covariances.sources.items()}
        return TableCovariances(covariances.sizes, sources)
    return ComponentCovariances(covariances.lattice, times * covariances.variances)


def variance_of_sum(covariances: Covariances, weights: Mapping[Members, FloatArray]) -> float:
    """Returns the variance of the sum of weight times cell. weights: a table for each marginal that is used."""
    if isinstance(covariances, TableCovariances):
        return _from_tables(covariances, weights)
    return _from_components(covariances, weights)


def ratio_weights(
    numerator: Mapping[Members, FloatArray], denominator: Mapping[Members, FloatArray], ratio: float, divisor: float
) -> dict[Members, FloatArray]:
    """Returns the delta method: N/D deviates like the sum with weights (w_N - R w_D) / D, to first order."""
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

    N - t D is the noise alone at the true ratio, so that the interval covers it however near to 0 the denominator is;
    where that cannot be told from 0 every ratio is possible. A sum and its weights are given for each.
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
    """Finds the root of a function that is concave from `inside` on and negative there, not at `beyond`; wide side."""
    for _ in range(100):
        middle = (inside + beyond) / 2
        inside, beyond = (middle, beyond) if outside(middle) < 0 else (inside, middle)
    return beyond


def _from_tables(covariances: TableCovariances, weights: Mapping[Members, FloatArray]) -> float:
    """Sums over tables: a cell sums cells of one noisy table, and tables are independent."""
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
    """Returns the sum over U of c_U s_U' kron_{i in U} (n_i I - J) s_U, s_U the weights over n_A summed outside."""
    lattice = covariances.lattice
    sizes = dict(zip(lattice.attributes, lattice.sizes, strict=True))
    total = 0.0
    for number, members in enumerate(lattice.sets):
        summed = _summed(members, weights, sizes)
        if summed is None:
            continue
        centred = summed
        for axis, attribute in enumerate(members):
            centred = sizes[attribute] * centred - centred.sum(axis=axis, keepdims=True)
        total += float(covariances.variances[number]) * float((summed * centred).sum())
    return max(total, 0.0)


def _summed(members: Members, weights: Mapping[Members, FloatArray], sizes: Mapping[int, int]) -> FloatArray | None:
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
        sources = [[list(asked), list(table), variance] for asked, (table, variance) in covariances.sources.items()]
        return json.dumps({"sizes": list(covariances.sizes), "sources": sources})
    lattice = covariances.lattice
    known = [[list(members), float(covariances.variances[number])] for number, members in enumerate(lattice.sets)]
    return json.dumps({"attributes": list(lattice.attributes), "sizes": list(lattice.sizes), "components": known})


def covariances_from_text(text: str) -> Covariances:
    """Reads what covariances_to_text wrote."""
    fields = json.loads(text)
    if "sources" in fields:
        sources = {tuple(asked): (tuple(table), variance) for asked, table, variance in fields["sources"]}
        return TableCovariances(tuple(fields["sizes"]), sources)
    known = {tuple(members): variance for members, variance in fields["components"]}
    sizes = [1] * (max(fields["attributes"], default=-1) + 1)
    for attribute, size in zip(fields["attributes"], fields["sizes"], strict=True):
        sizes[attribute] = size
    lattice = close_downward(tuple(known), tuple(sizes))
    return ComponentCovariances(lattice, np.array([known[members] for members in lattice.sets], np.float64))


LEVELS = tuple(Fraction(text) for text in ("0.5", "0.8", "0.9", "0.95", "0.99", "0.999", "0.999999"))
"""Confidences whose intervals are stored where they depend on the answer; others get the next higher."""

USUAL = LEVELS.index(Fraction("0.95"))

FEWEST_ROWS = 1.0
"""Below so many noisy rows there is nothing to average: the answer is NULL, its interval everything between bounds."""

POSSIBLE = 0.7
"""Of the margins of an average: averages that are so far from the noisy one are possible in a variance's interval.

The square of such a distance is twice its mean at 95 per cent. In simulations intervals hold what they say at every
level from 0.6 on (tests/strategies/test_curved.py)."""

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
    """Computes half-widths for sums of noises of these standard errors, shape (levels, ..), as SumMargin.of does."""
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


@dataclass(frozen=True)
class Noisy:
    """Noisy numbers, a cell each. stderrs: of the noise. step: the worth of one integer of noise."""

    answers: FloatArray
    stderrs: FloatArray
    step: float


def average_about(centre: float, bounds: tuple[float, float], rows: Noisy, sums: Noisy, noise: NoiseKind) -> Curved:
    """Returns averages from counts N and sums S of distances from a centre c, whose noises are independent.

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
    """Returns standard errors, where anything is possible at the usual confidence at least that of anything possible.

    A count that may be 0 makes a ratio of any size, however little noise is in the sum that it divides.
    """
    everything = highs[USUAL] - lows[USUAL] >= width * (1 - 1e-9)
    return np.where(everything, np.maximum(stderrs, width / 12**0.5), stderrs)


def _ratios(
    counts: FloatArray, total: FloatArray, wide: FloatArray, above: FloatArray, bounds: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """Returns the least and the largest r for which a total less r counts is within its margin, cut at bounds.

    wide, above: margins of the counts and of the total. Where counts are within theirs, every ratio is possible.
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

    T(m) = Q - 2 m S + m^2 N is the sum of squared distances from m. The answer has it from the noisy average m = S/N,
    where it is least. The interval has all r for which T(m) is within the margin of its own noise from r N, at some
    average m that is possible. That margin is of variance v_Q + 4 m^2 v_S + (m^2 - r)^2 v_N. The noisy average alone
    would not do: its error and that of T come from the same noise of a small count. sample: r is of N - 1.
    """
    least, most = (FEWEST_ROWS + 1, MOST_SAMPLE_VARIANCE) if sample else (FEWEST_ROWS, MOST_VARIANCE)
    counts, distances, squared = np.maximum(rows.answers, least), sums.answers / width, squares.answers / width**2
    several = ((rows, 1.0), (sums, width), (squares, width**2))
    wide = [margins(noise, one.stderrs / unit, one.step / unit) for one, unit in several]
    mean = np.clip(distances / counts, -1, 1)
    first, last = _ratios(counts, distances, POSSIBLE * wide[0], POSSIBLE * wide[1], (-1, 1))
    total, below, above = (squared - 2 * one * distances + one**2 * counts for one in (mean, first, last))
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
    """Answers NULL where too few rows are left, with everything possible as the interval."""
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
