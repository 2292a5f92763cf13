"""Many runs of one summary of a small domain, as sums over a subset of its cells."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dpduck.frontend.summary import Summary
from dpduck.summaries.design import SummaryDesign, designed
from dpduck.summaries.estimators import EstimatedSummary, estimated, with_priorities
from dpduck.trusted.entropy import operating_system_entropy
from dpduck.trusted.mixed_radix import MixedRadix
from dpduck.trusted.summary_sampler import SparseCounts, draw_summary


def drawn(design: SummaryDesign, occupied: dict[int, int]) -> EstimatedSummary:
    """One run, from the design to the estimates."""
    counts = SparseCounts(
        MixedRadix((design.cells,)), np.array([list(occupied)], np.int64), np.array(list(occupied.values()), np.int64)
    )
    noisy = draw_summary(counts, design.plan, operating_system_entropy())
    kept, tau = with_priorities(noisy, design.keep, float(design.tau))
    theta = min(design.plan.layers[noisy.layers - 1].theta, design.theta)
    return estimated(kept, design.scale, theta, tau, sides=design.sides, whole=design.plan.whole)


def subset_sums(
    summary: Summary, cells: int, occupied: dict[int, int], scale: Fraction, subset: int, runs: int
) -> tuple[np.ndarray, np.ndarray]:
    """Estimated sums over the first `subset` cells, and their estimated variances, one of each for each run."""
    sums, variances = np.empty(runs), np.empty(runs)
    design = designed(summary, cells, scale)
    for run in range(runs):
        found = drawn(design, occupied)
        inside = found.positions[0] < subset
        sums[run], variances[run] = found.weights[inside].sum(), found.variances[inside].sum()
    return sums, variances
