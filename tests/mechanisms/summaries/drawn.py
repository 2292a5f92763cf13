"""Many runs of one summary of a small domain, as sums over a subset of its cells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.queries.cells import MixedRadix
from dpduck.kernel.queries.sparse_counts import SparseCounts
from dpduck.kernel.queries.summaries import NoisySummary, draw_summary
from dpduck.language.select.request import Summary
from dpduck.mechanisms.summaries.plan import SummaryDesign, design_method
from dpduck.mechanisms.summaries.recover import EstimatedSummary, estimate_weights, with_priorities
from tests.mechanisms.summaries.blocks import blocks


def one_by_one(design: SummaryDesign, exact: np.ndarray, runs: int) -> Iterator[NoisySummary]:
    """Runs as releases do them."""
    occupied = np.flatnonzero(exact)
    counts = SparseCounts(MixedRadix((design.cells,)), occupied[None, :], exact[occupied])
    for _ in range(runs):
        yield draw_summary(counts, design.plan, operating_system_entropy())


def at_once(design: SummaryDesign, exact: np.ndarray, runs: int) -> Iterator[NoisySummary]:
    """Runs in one draw of the first layer, which here is always enough."""
    plan = replace(design.plan, layers=design.plan.layers[:1])
    for noisy in blocks(exact, plan, runs):
        assert len(design.plan.layers) == 1 or design.plan.size is None or len(noisy.counts) > design.plan.size
        yield noisy


def as_estimated(design: SummaryDesign, noisy: NoisySummary) -> EstimatedSummary:
    """From the draw to the estimates."""
    kept, tau = with_priorities(noisy, design.keep, float(design.tau))
    theta = min(design.plan.layers[noisy.layers - 1].theta, design.theta)
    return estimate_weights(kept, design.scale, theta, tau, sides=design.sides, whole=design.plan.whole)


def subset_sums(
    summary: Summary, exact: np.ndarray, scale: Fraction, subset: int, runs: int, *, together: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Estimated sums over the first `subset` cells, and their estimated variances, one of each per run."""
    sums, variances = np.empty(runs), np.empty(runs)
    design = design_method(summary, len(exact), scale)
    draws = at_once if together else one_by_one
    for run, noisy in enumerate(draws(design, exact, runs)):
        found = as_estimated(design, noisy)
        inside = found.positions[0] < subset
        sums[run], variances[run] = found.weights[inside].sum(), found.variances[inside].sum()
    return sums, variances
