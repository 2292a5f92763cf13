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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import exp, expm1, floor

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpduck.algebra.dyadic import Axis
from dpduck.kernel.queries.cells import MixedRadix, Positions, at_most
from dpduck.kernel.queries.summaries import NoisySummary
from dpduck.language.select.cells import node_columns
from dpduck.language.select.request import Request
from dpduck.language.text.names import (
    GROUPING_ID,
    GROUPING_SET,
    answer_column,
    chance_column,
    raw_column,
    stderr_column,
    variance_column,
)
from dpduck.mechanisms.released_rows import label_array
from dpduck.mechanisms.summaries.plan import noise_variance
from dpduck.store.sandbox import sandbox
from dpduck.values.arrays import FloatArray, IntegerArray


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
    """Returns the `keep` cells of highest priority, and as threshold the priority that comes next; all where they are
    fewer.
    """
    if keep is None or len(summary.counts) <= keep:
        return summary, tau
    order = np.argpartition(-summary.priorities, keep)
    kept = np.zeros(len(order), dtype=np.bool_)
    kept[order[:keep]] = True
    threshold = float(summary.priorities[order[keep]])
    return subset(summary, np.flatnonzero(kept)), threshold


def subset(summary: NoisySummary, chosen: NDArray[np.intp] | NDArray[np.bool_]) -> NoisySummary:
    """Returns some rows of a summary."""
    return NoisySummary(
        summary.positions[:, chosen], summary.counts[chosen], summary.priorities[chosen], summary.layers
    )


def estimated(
    summary: NoisySummary, scale: float, theta: int, tau: float, *, sides: int = 2, whole: bool = False
) -> EstimatedSummary:
    """Returns weights and variances. whole: every cell of the domain is there, with the noise's own variance."""
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
    """Returns the chance that a cell without rows that is kept has a count as far from 0: S(|v|) / S(theta).

    S(v) is the sum of a^k min(k, tau) over k >= v, and of a^k without tau. Kept rows of empty cells are noise that has
    passed the filter, so that an interval about their counts alone leaves out 0 much too often.
    """
    a, gap = exp(-1.0 / scale), -expm1(-1.0 / scale)
    last = max(floor(tau), theta - 1)

    def beyond(least: FloatArray) -> FloatArray:
        """Returns the sum of k a^(k - theta) over k >= least."""
        found: FloatArray = np.exp(-(least - theta) / scale) * (least + a / gap) / gap
        return found

    def mass(least: FloatArray) -> FloatArray:
        end = np.full_like(least, last + 1.0)
        flat = max(tau, 1.0) * np.exp(-(np.maximum(least, end) - theta) / scale) / gap
        return flat + np.where(least <= last, beyond(least) - beyond(end), 0.0)

    return mass(magnitudes) / mass(np.array([float(theta)]))


def with_loss(summary: EstimatedSummary, rows: float | None, spread: float, gained: float) -> EstimatedSummary:
    """Returns the summary whose sums say what the filter has lost: L rows, all that are known of less all that are
    estimated.

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


# The consistency check of dyadic summaries: a node is dropped where a parent is absent (the paper's section
# 6).
#
# Exact counts grow towards the root, so a node above the filter whose parent is below it is nearly always
# noise. With several ordered attributes a node has one parent in each direction, and all of them must be
# there.


def with_parents(summary: NoisySummary, radix: MixedRadix, axes: Sequence[Axis | None]) -> NoisySummary:
    """Returns the summary without nodes that lack an ancestor: checked from the root down, a level at a time."""
    codes = radix.unpack(summary.positions)
    depth = np.zeros(len(summary.counts), dtype=np.int64)
    for axis, code in zip(axes, codes, strict=True):
        if axis is not None:
            depth += axis.height - places_of(axis, code)[0]
    kept = np.ones(len(summary.counts), dtype=np.bool_)
    for level in range(1, int(depth.max(initial=0)) + 1):
        places = np.flatnonzero(depth == level)
        for number, axis in enumerate(axes):
            if axis is not None and places.size:
                kept[places] &= _parent_kept(summary, radix, codes, kept, places, number, axis)
    return subset(summary, kept)


def _parent_kept(
    summary: NoisySummary,
    radix: MixedRadix,
    codes: Sequence[IntegerArray],
    kept: NDArray[np.bool_],
    places: NDArray[np.intp],
    number: int,
    axis: Axis,
) -> NDArray[np.bool_]:
    """Tells whether the parent along one axis is in the summary and was itself kept; true of roots."""
    parents = parents_of(axis, codes[number][places])
    chosen = [code[places] for code in codes]
    chosen[number] = np.maximum(parents, 0)
    wanted = radix.pack(chosen, len(places))
    found = at_most(summary.positions, wanted) - 1
    before = np.maximum(found, 0)
    present = (found >= 0) & (summary.positions[:, before] == wanted).all(axis=0)
    answer: NDArray[np.bool_] = (parents < 0) | (present & kept[before])
    return answer


def places_of(axis: Axis, numbers: NDArray[np.integer]) -> tuple[IntegerArray, IntegerArray]:
    """Returns level and interval of nodes; the total of a Haar axis has level 0, interval 0."""
    starts = np.array(axis.offsets[:-1] or (1,), dtype=np.int64)
    step = np.searchsorted(starts, numbers, side="right") - 1
    total = step < 0
    intervals = np.where(total, 0, numbers - starts[np.maximum(step, 0)])
    levels = np.where(total, 0, step + axis.first_level)
    return levels.astype(np.int64), intervals.astype(np.int64)


def parents_of(axis: Axis, numbers: IntegerArray) -> IntegerArray:
    """Returns the number of each dyadic node's parent, -1 for the root."""
    levels, intervals = places_of(axis, numbers)
    starts = np.array([*axis.offsets[1:-1], 0], dtype=np.int64)
    return np.where(levels == axis.height, -1, starts[levels] + (intervals >> 1))


def ends_of(axis: Axis, numbers: NDArray[np.integer]) -> tuple[IntegerArray, IntegerArray]:
    """Returns first and last code of each node."""
    levels, intervals = places_of(axis, numbers)
    width = np.where(levels < axis.first_level, axis.height, levels)
    first = intervals << width
    return first, np.minimum(first + (np.int64(1) << width), axis.size) - 1


# A noisy summary as a released table: its keys, weights, noisy counts, variances and, for ranges, levels and
# nodes.


def summary_columns(request: Request) -> tuple[tuple[str, str], ...]:
    """Returns names and DuckDB types of the released table."""
    keys = [(key.name, key.type_name) for key in request.question.keys]
    ranges = [key for key in request.question.keys if key.shape]
    keys += [(key.end_name, key.type_name) for key in ranges]
    for key in ranges:
        level, node = node_columns(key)
        keys += [(level, "INTEGER"), (node, "BIGINT")]
    numbers = ((answer_column(0), "DOUBLE"), (stderr_column(0), "DOUBLE"))
    raw = "BIGINT" if request.question.aggregates[0].operand is None else "DOUBLE"
    more = ((raw_column(0), raw), (variance_column(0), "DOUBLE"), (chance_column(0), "DOUBLE"))
    return (*keys, (GROUPING_ID, "BIGINT"), (GROUPING_SET, "INTEGER"), *numbers, *more)


def summary_rows(
    request: Request, summary: EstimatedSummary, radix: MixedRadix, axes: Sequence[Axis | None], worth: Fraction
) -> pa.Table:
    """Returns the rows of a release, in the order of the columns above. worth: of one integer of the counts."""
    codes = radix.unpack(summary.positions)
    firsts: dict[str, pa.Array] = {}
    ends: dict[str, pa.Array] = {}
    places: dict[str, pa.Array] = {}
    with sandbox() as connection:
        for key, axis, code in zip(request.question.keys, axes, codes, strict=True):
            labels = label_array(connection, key.labels, key.type_name)
            if axis is None:
                firsts[key.name] = labels.take(pa.array(code))
                continue
            first, last = ends_of(axis, code)
            firsts[key.name] = labels.take(pa.array(first))
            ends[key.end_name] = label_array(connection, key.ends, key.type_name).take(pa.array(last))
            level, node = node_columns(key)
            levels, nodes = places_of(axis, code)
            places |= {level: pa.array(levels.astype(np.int32)), node: pa.array(nodes)}
    count, unit = len(summary.counts), float(worth)
    plain = request.question.aggregates[0].operand is None
    counts = summary.counts if plain else summary.counts * worth.numerator / worth.denominator
    return pa.table(
        firsts
        | ends
        | places
        | {
            GROUPING_ID: pa.array(np.zeros(count, np.int64)),
            GROUPING_SET: pa.array(np.zeros(count, np.int32)),
            answer_column(0): pa.array(summary.weights * worth.numerator / worth.denominator),
            stderr_column(0): pa.array(np.sqrt(summary.variances) * unit),
            raw_column(0): pa.array(counts),
            variance_column(0): pa.array(summary.sums * unit**2, from_pandas=True),
            chance_column(0): pa.array(summary.chances),
        }
    )
