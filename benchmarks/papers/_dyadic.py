"""Summaries of the dyadic intervals over a dense table, and sums over ranges of its cells."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.dyadic import DyadicAxis, node_sensitivity
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.queries.cells import MixedRadix
from dpduck.kernel.queries.sparse_counts import SparseCounts, sparse_counts
from dpduck.kernel.queries.summaries import NoisySummary, draw_summary
from dpduck.language.select.request import Summary
from dpduck.mechanisms.summaries.fit import fit_intervals
from dpduck.mechanisms.summaries.measure import CHECKED, FITTED
from dpduck.mechanisms.summaries.parents import with_parents
from dpduck.mechanisms.summaries.plan import SummaryDesign, design_method, noise_variance
from dpduck.mechanisms.summaries.recover import EstimatedSummary, estimate_weights, with_priorities


@dataclass(frozen=True)
class Intervals:
    """The dyadic intervals over the cells of a table. occupied: how many have rows. rows: of the table."""

    axis: DyadicAxis
    counts: SparseCounts
    occupied: int
    rows: int

    @property
    def axes(self) -> tuple[DyadicAxis]:
        return (self.axis,)

    @property
    def radix(self) -> MixedRadix:
        return MixedRadix((self.axis.nodes,))

    def design(self, method: str, size: int, epsilon: Fraction, *, checked: bool = False) -> SummaryDesign:
        """Returns the design of a summary of all intervals, for a public number of rows."""
        nodes = node_sensitivity(self.axes)
        asked = Summary(method, min(size, self.axis.nodes), expect_rows=self.rows * nodes)
        return design_method(asked, self.axis.nodes, nodes / epsilon, checked=checked)

    def draw(self, design: SummaryDesign) -> NoisySummary:
        return draw_summary(self.counts, design.plan, operating_system_entropy())


def intervals_of(table: NDArray[np.int64]) -> Intervals:
    """Counts the occupied intervals of a table, once for all summaries."""
    axis, places = DyadicAxis("dyadic", len(table)), np.flatnonzero(table)
    exact = ExactCounts((places,), table[places][None, :], (len(table),), (1,))
    counts = sparse_counts(exact, (axis,), MixedRadix((axis.nodes,)))
    occupied = sum(len(np.unique(places >> level)) for level in range(axis.height + 1))
    return Intervals(axis, counts, occupied, int(table.sum()))


def summary_of(held: Intervals, design: SummaryDesign, *, consistent: bool) -> EstimatedSummary:
    """Draws one summary. consistent: with the check of parents and least squares, where the product has them."""
    noisy = held.draw(design)
    if consistent and design.method in CHECKED:
        noisy = with_parents(noisy, held.radix, held.axes)
    kept, tau = with_priorities(noisy, design.keep, float(design.tau))
    found = estimate_weights(kept, design.scale, design.theta, tau, sides=design.sides, whole=design.plan.whole)
    if consistent and design.method in FITTED and found.tau == 0:
        return fit_intervals(found, held.radix, held.axes, noise_variance(design.scale))
    return found


def range_sums(
    axis: DyadicAxis, numbers: NDArray[np.int64], values: NDArray[np.float64], starts: NDArray[np.int64], length: int
) -> NDArray[np.float64]:
    """Returns for each range the sum over its maximal intervals. numbers, values: of the intervals that are there."""
    dense, offsets = np.zeros(axis.nodes), axis.offsets
    dense[numbers] = values
    low, high = starts.copy(), starts + length
    sums = np.zeros(len(starts))
    for level in range(axis.height + 1):
        first = (low < high) & (low % 2 == 1)
        sums[first] += dense[offsets[level] + low[first]]
        low = low + first
        last = (low < high) & (high % 2 == 1)
        high = high - last
        sums[last] += dense[offsets[level] + high[last]]
        low, high = low // 2, high // 2
    return sums
