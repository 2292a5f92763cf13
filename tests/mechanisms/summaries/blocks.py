"""Many runs of a small domain drawn at once, as blocks of a domain that holds them one after the other.

Cells are independent of each other, so that blocks are independent runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.queries.cells import MixedRadix
from dpduck.kernel.queries.sparse_counts import SparseCounts
from dpduck.kernel.queries.summaries import NoisySummary, SummaryPlan, draw_summary
from dpduck.mechanisms.summaries.recover import with_priorities
from tests.kernel.queries.summary_oracle import Runs


def all_at_once(exact: np.ndarray, plan: SummaryPlan, runs: int) -> NoisySummary:
    """Every run in one summary. Every layer of the plan is drawn: where to stop is of one run, not of all."""
    cells, occupied = len(exact), np.flatnonzero(exact)
    places = (np.arange(runs)[:, None] * cells + occupied).reshape(1, -1)
    counts = SparseCounts(MixedRadix((runs * cells,)), places, np.tile(exact[occupied], runs))
    return draw_summary(counts, replace(plan, size=None), operating_system_entropy())


def blocks(exact: np.ndarray, plan: SummaryPlan, runs: int) -> Iterator[NoisySummary]:
    """The summary of each run."""
    noisy, cells = all_at_once(exact, plan, runs), len(exact)
    edges = np.searchsorted(noisy.positions[0], np.arange(runs + 1) * cells)
    for run, (first, last) in enumerate(pairwise(edges.tolist())):
        rows = slice(first, last)
        positions = noisy.positions[:, rows] - run * cells
        yield NoisySummary(positions, noisy.counts[rows], noisy.priorities[rows], noisy.layers)


def published(exact: np.ndarray, plan: SummaryPlan, runs: int, keep: int | None) -> tuple[Runs, np.ndarray]:
    """Returns each run's published rows, and its threshold (0 for none)."""
    values, kept = np.zeros((runs, len(exact)), np.int64), np.zeros((runs, len(exact)), np.bool_)
    thresholds = np.zeros(runs)
    if keep is None:  # all that is drawn
        noisy = all_at_once(exact, plan, runs)
        values.reshape(-1)[noisy.positions[0]], kept.reshape(-1)[noisy.positions[0]] = noisy.counts, True
        return Runs(values, kept), thresholds
    for run, noisy in enumerate(blocks(exact, plan, runs)):
        chosen, thresholds[run] = with_priorities(noisy, keep, 0.0)
        places = chosen.positions[0]
        values[run, places], kept[run, places] = chosen.counts, True
    return Runs(values, kept), thresholds
