"""Priority sampling by the shortcut is that of the whole noisy table, and wrong selections are found."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest

from dpduck.kernel.noise.entropy import Entropy, operating_system_entropy, words64
from dpduck.kernel.noise.layers import SummaryLaw
from dpduck.kernel.queries.cells import MixedRadix
from dpduck.kernel.queries.sparse_counts import SparseCounts
from dpduck.kernel.queries.summaries import NoisySummary, SummaryPlan, draw_summary
from dpduck.mechanisms.summaries.recover import with_priorities
from tests.kernel.queries.summary_oracle import FALSE_ALARM, Runs, disagreements, laborious_priorities, same_joint
from tests.mechanisms.summaries.blocks import published

SEED = 20122
RUNS = 100_000
SIZE = 2
EXACT = np.array([0, 3, 0, 1, 0])
TWO = Fraction(2)


def layered(theta: int, *taus: int) -> SummaryPlan:
    """A falling threshold, the last one as low as the filter, so that all that passes it is in some layer."""
    laws = [SummaryLaw(TWO, theta, Fraction(taus[0]))]
    laws += [SummaryLaw(TWO, theta, Fraction(low), Fraction(high)) for high, low in pairwise(taus)]
    return SummaryPlan(tuple(laws), SIZE, priorities=True)


PLANS = {
    "priority": layered(1, 8, 4, 2, 1),
    "priority, one threshold": layered(1, 1),
    "priority that stops early": layered(1, 3, 1),
    "filter_priority": layered(3, 12, 6, 3),
    "filter_priority, one threshold": layered(3, 3),
}


def told_apart(found: tuple[Runs, np.ndarray], dense: tuple[Runs, np.ndarray], widest: int = 8) -> list[str]:
    """Joint outcomes, numbers and sizes, and, jointly, which cells are there and the tenth of the threshold."""
    tenths = np.quantile(dense[1], np.arange(0.1, 1, 0.1))
    sets = [
        runs.kept @ (1 << np.arange(runs.kept.shape[1])) * 16 + np.searchsorted(tenths, thresholds)
        for runs, thresholds in (found, dense)
    ]
    wrong = disagreements(found[0], dense[0], widest)
    return [*wrong, "threshold"] if same_joint(sets[0], sets[1]) < FALSE_ALARM else wrong


def whole(plan: SummaryPlan, runs: int = RUNS) -> tuple[Runs, np.ndarray]:
    """The laborious way."""
    law = plan.layers[0]
    return laborious_priorities(runs, EXACT, float(law.scale), law.theta, SIZE, np.random.default_rng(SEED))


@pytest.mark.sampled
@pytest.mark.parametrize("name", PLANS)
def test_the_highest_priorities_are_those_of_the_whole_table(name: str) -> None:
    """Which cells, how many, which values and which threshold, over 100,000 runs. False alarms below 4e-10."""
    assert told_apart(published(EXACT, PLANS[name], RUNS, SIZE), whole(PLANS[name])) == []


def one_by_one(plan: SummaryPlan, runs: int) -> tuple[Runs, np.ndarray]:
    """Runs that stop at the first layer with enough cells, as releases do."""
    values, kept = np.zeros((runs, len(EXACT)), np.int64), np.zeros((runs, len(EXACT)), np.bool_)
    thresholds, occupied = np.zeros(runs), np.flatnonzero(EXACT)
    counts = SparseCounts(MixedRadix((len(EXACT),)), occupied[None, :], EXACT[occupied])
    for run in range(runs):
        noisy = draw_summary(counts, plan, operating_system_entropy())
        chosen, thresholds[run] = with_priorities(noisy, plan.size, 0.0)
        values[run, chosen.positions[0]], kept[run, chosen.positions[0]] = chosen.counts, True
    return Runs(values, kept), thresholds


@pytest.mark.parametrize("runs", [1_000, pytest.param(RUNS, marks=pytest.mark.audit)])
def test_runs_that_stop_early_choose_the_same(runs: int) -> None:
    """No later layer could have given one of the highest priorities. False alarms below 4e-10."""
    plan = PLANS["priority"]
    assert told_apart(one_by_one(plan, runs), whole(plan, runs), widest=1 if runs < RUNS else 8) == []


def test_runs_that_stop_too_early_are_found() -> None:
    """A thousand runs are enough to notice layers that are missing."""
    plan = PLANS["priority"]
    short = replace(plan, layers=plan.layers[:1])
    assert "joint" in told_apart(one_by_one(short, 1_000), whole(plan, 1_000), widest=1)


def unlayered(law: SummaryLaw, counts: np.ndarray, entropy: Entropy) -> np.ndarray:
    """A wrong selection: priorities that ignore a cell's layer."""
    uniform = ((words64(entropy, len(counts)) >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53
    return np.asarray(np.abs(counts) / uniform)


def largest(law: SummaryLaw, counts: np.ndarray, entropy: Entropy) -> np.ndarray:
    """Wrong: the largest counts in place of the highest priorities, ties broken by chance."""
    return np.asarray(np.abs(counts) + words64(entropy, len(counts)).astype(np.float64) * 2.0**-65)


def lowest_kept(summary: NoisySummary, keep: int | None, tau: float) -> tuple[NoisySummary, float]:
    """A wrong selection: the lowest kept priority as the threshold in place of the next one."""
    chosen, threshold = with_priorities(summary, keep, tau)
    return chosen, float(chosen.priorities.min()) if threshold else threshold


def lowest_in_layer() -> bool:
    """Tells whether in 300 runs no priority is below the threshold of the last drawn layer."""
    plan, occupied = PLANS["priority"], np.flatnonzero(EXACT)
    counts = SparseCounts(MixedRadix((len(EXACT),)), occupied[None, :], EXACT[occupied])
    drawn = [draw_summary(counts, plan, operating_system_entropy()) for _ in range(300)]
    return all((noisy.priorities >= float(plan.layers[noisy.layers - 1].tau)).all() for noisy in drawn)


def test_priorities_lie_in_their_layer() -> None:
    """A later layer never overtakes an earlier one. Priorities drawn afresh do, in nearly every run."""
    assert lowest_in_layer()
    with patch("dpduck.kernel.queries.summaries._priorities", unlayered):
        assert not lowest_in_layer()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "wrong"),
    [
        ("dpduck.kernel.queries.summaries._priorities", largest),
        ("tests.mechanisms.summaries.blocks.with_priorities", lowest_kept),
    ],
    ids=["largest counts", "wrong threshold"],
)
def test_wrong_selections_are_found(what: str, wrong: object) -> None:
    """The comparison above tells something: plausible mistakes are rejected."""
    with patch(what, wrong):
        assert told_apart(published(EXACT, PLANS["priority"], RUNS, SIZE), whole(PLANS["priority"])) != []


def test_a_wrong_chance_of_empty_cells_is_found() -> None:
    """An upgrade probability that is off by 10 % in every layer is rejected by the same comparison.

    By 1 %: tests/kernel/queries/test_summary_sampler.py, over four million cells.
    """
    right = SummaryLaw.given_not_before
    with patch.object(
        SummaryLaw, "given_not_before", lambda law, bits: tuple(b * Fraction(9, 10) for b in right(law, bits))
    ):
        assert told_apart(published(EXACT, PLANS["priority"], RUNS, SIZE), whole(PLANS["priority"])) != []
