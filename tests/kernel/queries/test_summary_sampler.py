"""Summaries drawn by the shortcut have the distribution of the laborious ones, and wrong laws are rejected."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import exp, log, sqrt
from unittest.mock import patch

import numpy as np
import pytest

from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.noise import layers as upgraded_counts
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.noise.layers import SummaryLaw
from dpduck.kernel.price import Ask
from dpduck.kernel.queries.cells import MixedRadix
from dpduck.kernel.queries.sparse_counts import SparseCounts
from dpduck.kernel.queries.summaries import Layers, NoisySummary, SummaryPlan, draw_summary
from dpduck.values.errors import InternalError
from tests.kernel.doors import door_over, scan_of
from tests.kernel.queries.summary_oracle import Runs, disagreements, laborious, noisy_table

SEED = 20121
RUNS = 100_000
EXACT = np.array([0, 3, 0, 0, 1, 0])
TWO, ONE = Fraction(2), Fraction(1)
LAWS = {
    "filter": SummaryLaw(TWO, 3),
    "filter of 1": SummaryLaw(ONE, 1),
    "one-sided filter": SummaryLaw(TWO, 2, sides=1),
    "whole tau": SummaryLaw(TWO, 1, Fraction(4)),
    "tau between": SummaryLaw(TWO, 1, Fraction(7, 2)),
    "tau below 1": SummaryLaw(ONE, 1, Fraction(2, 3)),
    "tau far above": SummaryLaw(ONE, 1, Fraction(9)),
    "theta below tau": SummaryLaw(TWO, 2, Fraction(23, 4)),
    "theta far up, tau above": SummaryLaw(TWO, 4, Fraction(6)),
    "theta = tau": SummaryLaw(TWO, 3, Fraction(3)),
    "theta > tau": SummaryLaw(TWO, 4, Fraction(3)),
    "epsilon = 5": SummaryLaw(Fraction(1, 5), 1, Fraction(2)),
    "epsilon = 0.01": SummaryLaw(Fraction(100), 90, Fraction(200)),
}


def shortcut(exact: np.ndarray, plan: SummaryPlan, runs: int) -> Runs:
    """Runs of a small domain, drawn together as blocks of one domain.

    Cells are independent of each other, so that blocks are independent runs.
    """
    occupied = np.flatnonzero(exact)
    places = (np.arange(runs)[:, None] * len(exact) + occupied).reshape(1, -1)
    counts = SparseCounts(MixedRadix((runs, len(exact))), places, np.tile(exact[occupied], runs))
    return as_runs(draw_summary(counts, plan, operating_system_entropy()), runs, len(exact))


def as_runs(summary: NoisySummary, runs: int, cells: int) -> Runs:
    values, kept = np.zeros(runs * cells, dtype=np.int64), np.zeros(runs * cells, dtype=np.bool_)
    values[summary.positions[0]], kept[summary.positions[0]] = summary.counts, True
    return Runs(values.reshape(runs, cells), kept.reshape(runs, cells))


@pytest.mark.parametrize("name", LAWS)
def test_the_shortcut_is_the_laborious_way(name: str) -> None:
    """The shortcut draws the joint law of the laborious way, over 100,000 runs. False alarms below 3e-10 each."""
    law = LAWS[name]
    exact = EXACT * int(law.scale) if law.scale > 2 else EXACT
    dense = laborious(RUNS, exact, law, np.random.default_rng(SEED))
    widest = int(8 * max(law.scale, ONE))
    assert disagreements(shortcut(exact, SummaryPlan((law,)), RUNS), dense, widest) == []


def scores(law: SummaryLaw) -> tuple[float, float]:
    """Standard deviations by which number and mean magnitude of upgraded cells are off, among 5 million empty ones.

    The truth is summed term by term. A right law is beyond 6.3 with a chance below 3e-10 each. A probability that is 1
    % off gives 13 or more, and is missed with a chance below 1e-11.
    """
    cells = 5_000_000
    a, k = exp(-1 / float(law.scale)), np.arange(law.theta, law.theta + 400)
    weights = 2 * (1 - a) / (1 + a) * np.minimum(k / float(law.tau), 1.0) * a**k
    p, mean = weights.sum(), k @ weights / weights.sum()
    deviation = sqrt((k - mean) ** 2 @ weights / p)
    nobody = SparseCounts(MixedRadix((cells,)), np.zeros((1, 0), np.int64), np.zeros(0, np.int64))
    counts = np.abs(draw_summary(nobody, SummaryPlan((law,)), operating_system_entropy()).counts)
    number = (len(counts) - cells * p) / sqrt(cells * p * (1 - p))
    return number, (counts.mean() - mean) / deviation * sqrt(len(counts))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["filter", "whole tau", "theta below tau"])
def test_one_percent_is_found(name: str) -> None:
    """An upgrade probability or an alpha that is off by 1 % either way is rejected. The right ones are not."""
    law, right = LAWS[name], SummaryLaw.given_not_before
    draw = upgraded_counts.draw_counts
    assert max(map(abs, scores(law))) < 6.3
    for factor in (Fraction(99, 100), Fraction(101, 100)):
        with patch.object(
            SummaryLaw, "given_not_before", lambda law, bits, by=factor: tuple(b * by for b in right(law, bits))
        ):
            assert abs(scores(law)[0]) > 6.3
        scale = Fraction(-1 / log(factor * exp(-1 / float(law.scale)))).limit_denominator(10**6)
        with patch(
            "dpduck.kernel.queries.summaries.draw_counts",
            lambda law, count, entropy, by=scale: draw(replace(law, scale=by), count, entropy),
        ):
            assert abs(scores(law)[1]) > 6.3


@pytest.mark.parametrize(
    "layers",
    [
        (
            SummaryLaw(TWO, 1, Fraction(8)),
            SummaryLaw(TWO, 1, Fraction(4), Fraction(8)),
            SummaryLaw(TWO, 1, ONE, TWO * 2),
        ),
        (SummaryLaw(TWO, 2, Fraction(7)), SummaryLaw(TWO, 2, Fraction(7, 3), Fraction(7))),
        (SummaryLaw(TWO, 5), SummaryLaw(TWO, 3, below=5), SummaryLaw(TWO, 2, below=3)),
        (SummaryLaw(TWO, 4, sides=1), SummaryLaw(TWO, 2, below=4, sides=1)),
    ],
    ids=["three thresholds", "filter and thresholds", "filters", "one-sided filters"],
)
def test_layers_are_one_draw(layers: tuple[SummaryLaw, ...]) -> None:
    """Layers of a falling threshold together are exactly the summary of the lowest threshold."""
    last = replace(layers[-1], above=None, below=None)
    dense = laborious(RUNS, EXACT, last, np.random.default_rng(SEED))
    assert disagreements(shortcut(EXACT, SummaryPlan(layers), RUNS), dense) == []


def test_the_whole_table_is_the_geometric_mechanism() -> None:
    """A law without filter and threshold keeps every cell, with the noise of the full mechanism."""
    found = shortcut(EXACT, SummaryPlan((SummaryLaw(TWO),), whole=True), RUNS)
    values = noisy_table(RUNS, EXACT, 2.0, np.random.default_rng(SEED))
    assert found.kept.all()
    assert disagreements(found, Runs(values, np.ones_like(found.kept))) == []


def test_layers_stop_when_there_are_enough() -> None:
    """A further layer is drawn if and only if there are no more cells than the size. False alarm below 1e-30: the noise
    of an empty cell would have to be half of a full one's count, 250 times its scale."""
    layers = (SummaryLaw(TWO, 500), SummaryLaw(TWO, 1, below=500))
    counts = SparseCounts(MixedRadix((10,)), np.arange(3)[None, :], np.full(3, 1000))
    for size, drawn in ((2, 1), (3, 2)):
        plan = SummaryPlan(layers, size)
        assert draw_summary(counts, plan, operating_system_entropy()).layers == drawn


def test_rows_are_in_the_order_of_their_positions() -> None:
    """The place of a row does not reveal which layer drew its cell, or whether the cell was occupied.

    Of 500 cells a filter of 1 keeps more than 150, and every occupied one: false alarm below 1e-15.
    """
    law = LAWS["filter of 1"]
    layers = (replace(law, theta=3), replace(law, below=3))
    counts = SparseCounts(MixedRadix((500,)), np.arange(0, 500, 5)[None, :], np.full(100, 40))
    summary = draw_summary(counts, SummaryPlan(layers), operating_system_entropy())
    places = summary.positions[0]
    assert summary.layers == 2 and len(places) > 150
    assert (np.diff(places) > 0).all(), "in order, and no cell twice"
    assert set(range(0, 500, 5)) <= set(places.tolist())


def test_the_price_is_that_of_the_layers() -> None:
    """Layers with different noise, and a filter that would keep cells without any count, have no price."""
    radix = MixedRadix((2,))
    ask = Ask(scan_of(3), Layers((None,), radix), Noise(NoiseKind.LAPLACE, TWO), times=2)
    assert ask.cost.epsilon == 2 * Fraction(3, 2)
    counts = ExactCounts((np.arange(2),), np.ones((1, 2), np.int64), (2,), (3,))
    door = door_over(counts, [ask])
    door.answer(ask, SummaryPlan((SummaryLaw(TWO), SummaryLaw(TWO, 3))))
    with pytest.raises(InternalError, match="other noise than was paid for"):
        door.answer(ask, SummaryPlan((SummaryLaw(TWO), SummaryLaw(ONE))))
    with pytest.raises(ValueError, match="filter from 1 on"):
        SummaryLaw(TWO, 0)
    with pytest.raises(ValueError, match="fall by an eighth"):
        SummaryLaw(TWO, 1, Fraction(10), Fraction(11))
