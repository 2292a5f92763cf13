"""Noisy summary of a sparse table, drawn without the table (Cormode et al. 2012, sections 4 and 5).

The summary depends only on the whole noisy table, with exact geometric noise in every cell, and on further chance. A
layer holds the cells between two thresholds. Thresholds fall until the layers hold enough cells. Each occupied cell
gets noise, and of the empty cells only those in a layer are drawn. Nothing shows which cells are occupied: rows are
sorted by position, and position breaks ties of priorities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.dyadic import DyadicAxis, node_sensitivity
from dpduck.kernel.counting.hidden import Hidden
from dpduck.kernel.noise.binomial import binomial
from dpduck.kernel.noise.coins import flips
from dpduck.kernel.noise.entropy import Entropy, words64
from dpduck.kernel.noise.integers import discrete_laplace
from dpduck.kernel.noise.law import NoiseKind
from dpduck.kernel.noise.layers import SummaryLaw, draw_counts, keep_floats
from dpduck.kernel.noise.zero_cells import empty_cells
from dpduck.kernel.price import Ask, AskScan, Query
from dpduck.kernel.queries.cells import MixedRadix, Positions, ordering
from dpduck.kernel.queries.marginals import cells_of
from dpduck.kernel.queries.operators import Norms
from dpduck.kernel.queries.sparse_counts import SparseCounts, sparse_counts
from dpduck.values.arrays import FloatArray, IntegerArray
from dpduck.values.errors import InternalError


@dataclass(frozen=True)
class SummaryPlan:
    """Public plan of a summary: the layers in order, all with one scale, and the size at which drawing stops.

    size: layers are drawn until there are more cells than this. None: every layer is drawn. priorities: whether cells
    get a priority |count| / r, with r uniform on (0, 1], between the thresholds of their layer. whole: whether the
    summary is the noisy table itself.
    """

    layers: tuple[SummaryLaw, ...]
    size: int | None = None
    priorities: bool = False
    whole: bool = False

    @property
    def scale(self) -> Fraction:
        return self.layers[0].scale


@dataclass(frozen=True)
class NoisySummary:
    """Cells sorted by position, shape (words, rows), with noisy counts and priorities. layers: number of layers."""

    positions: Positions
    counts: IntegerArray
    priorities: FloatArray
    layers: int


@dataclass(frozen=True, eq=False)
class Layers(Query[NoisySummary]):
    """Noisy summary of the cells, or of tree nodes in place of cells. All noise has the same law.

    `chosen` of the draw is a SummaryPlan. Its layers may be chosen after the charge: all layers depend on one noisy
    table and on chance alone. axes: for each attribute the nodes of its tree, or None to keep its values. A row adds 1
    or -1 to as many nodes as node_sensitivity says.
    """

    axes: tuple[DyadicAxis | None, ...]
    radix: MixedRadix = field(repr=False)

    def moves(self, scan: AskScan) -> Norms:
        return scan.norms(node_sensitivity(self.axes))

    def draw(self, counts: Hidden, ask: Ask[NoisySummary], entropy: Entropy, chosen: object) -> NoisySummary:
        if not isinstance(chosen, SummaryPlan) or ask.law.kind is not NoiseKind.LAPLACE:
            raise InternalError("a summary without its layers")
        if {law.scale for law in chosen.layers} != {ask.law.parameter}:
            raise InternalError("the layers of a summary have other noise than was paid for")
        return draw_summary(sparse_counts(cells_of(counts, ask.scan), self.axes, self.radix), chosen, entropy)


def draw_summary(exact: SparseCounts, plan: SummaryPlan, entropy: Entropy) -> NoisySummary:
    """Draws the layers of the noisy table in O(occupied cells + rows) time and memory, whatever the domain's size."""
    if plan.whole:
        return _whole_table(exact, plan.scale, entropy)
    noisy = exact._occupied_counts + discrete_laplace(plan.scale, len(exact._occupied_counts), entropy)
    parts: list[NoisySummary] = []
    rest = np.arange(len(noisy))
    taken = exact._occupied_positions
    rows = 0
    for law in plan.layers:
        chosen = _in_layer(law, noisy[rest], entropy)
        among, rest = rest[chosen], rest[~chosen]
        fresh = binomial(exact.radix.cells - taken.shape[1], law.given_not_before, entropy)
        positions = empty_cells(exact.radix, taken, fresh, entropy)
        counts = np.concatenate([noisy[among], draw_counts(law, fresh, entropy)])
        priorities = _priorities(law, counts, entropy) if plan.priorities else np.zeros(len(counts))
        both = np.concatenate([exact._occupied_positions.take(among, axis=1), positions], axis=1)
        parts.append(NoisySummary(both, counts, priorities, 1))
        rows += len(counts)
        if law is plan.layers[-1] or (plan.size is not None and rows > plan.size):
            break
        taken = np.concatenate([taken, positions], axis=1)
        taken = taken.take(ordering(taken), axis=1)
    return _join_layers(parts)


def _whole_table(exact: SparseCounts, scale: Fraction, entropy: Entropy) -> NoisySummary:
    """Draws the noisy table of all cells, for a domain with positions of one word."""
    if len(exact.radix.bases) != 1:
        raise InternalError("a domain of several words has no noisy table")
    counts = discrete_laplace(scale, exact.radix.cells, entropy)
    counts[exact._occupied_positions[0]] += exact._occupied_counts
    return NoisySummary(np.arange(len(counts), dtype=np.int64)[None, :], counts, np.zeros(len(counts)), 1)


def _in_layer(law: SummaryLaw, noisy: IntegerArray, entropy: Entropy) -> NDArray[np.bool_]:
    """Draws which cells are in this layer, among cells that are in no earlier layer."""
    magnitudes = np.abs(noisy) if law.sides == 2 else noisy
    chosen = magnitudes >= law.theta
    if law.below is not None:
        chosen &= magnitudes < law.below
    if law.tau <= law.theta and law.above is None:
        return chosen
    among = np.flatnonzero(chosen)
    values = magnitudes[among].astype(np.float64)
    before = np.zeros(1) if law.above is None else np.minimum(values / float(law.above), 1.0)
    surely = magnitudes[among] >= ceil(law.tau)
    chance = np.where(surely, 1.0, keep_floats(law, values) / np.where(surely, 1.0, 1.0 - before))

    def exactly(place: int) -> Fraction:
        magnitude = int(magnitudes[among[place]])
        before = Fraction(0) if law.above is None else magnitude / law.above
        return law.keep(magnitude) / (1 - before)

    chosen[among] = flips(chance, exactly, entropy)
    return chosen


def _priorities(law: SummaryLaw, counts: IntegerArray, entropy: Entropy) -> FloatArray:
    """Returns priorities |count| / r, with r uniform over the range for which the cell is in this layer."""
    # floats of noisy counts and fresh chance: rounding makes a summary a little less accurate, never less private
    magnitudes = np.abs(counts).astype(np.float64)
    uniform = ((words64(entropy, len(counts)) >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53
    if law.above is None and law.tau <= law.theta:  # anywhere above the only threshold
        return np.asarray(magnitudes / uniform)
    low = np.zeros(1) if law.above is None else np.minimum(magnitudes / float(law.above), 1.0)
    high = np.minimum(magnitudes / float(law.tau), 1.0)
    return np.maximum(magnitudes / (low + uniform * (high - low)), float(law.tau))


def _join_layers(parts: Sequence[NoisySummary]) -> NoisySummary:
    positions = np.concatenate([part.positions for part in parts], axis=1)
    order = ordering(positions)
    counts = np.concatenate([part.counts for part in parts])[order]
    priorities = np.concatenate([part.priorities for part in parts])[order]
    return NoisySummary(positions.take(order, axis=1), counts, priorities, len(parts))
