"""Audit: layers that stop at a size, and dyadic nodes with their check, of tables that differ in one row.

Every run is one release: layers are drawn until there are enough rows, priorities choose, and nodes without parents are
dropped. No outcome may tell two neighbours apart by more than epsilon. Wrong ways to draw are found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from unittest.mock import patch

import numpy as np
import pytest
from scipy import stats

from dpduck.algebra.dyadic import DyadicAxis, node_sensitivity
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.layers import SummaryLaw
from dpduck.kernel.queries.cells import MixedRadix
from dpduck.kernel.queries.sparse_counts import SparseCounts, sparse_counts
from dpduck.kernel.queries.summaries import NoisySummary, SummaryPlan, draw_summary
from dpduck.mechanisms.summaries.parents import with_parents
from dpduck.mechanisms.summaries.recover import with_priorities

pytestmark = pytest.mark.audit

RUNS = 30_000
WRONG_RUNS = 10_000
"""Enough to find what is wrong."""
EPSILON = 1.0
ONE = Fraction(1)
FALSE_ALARM = 1e-10
POSSIBLE = 10_000
"""More than there are outcomes; each has its share of the false alarms."""

TABLE = (0, 3, 1, 0)
MORE, FIRST = (0, 4, 1, 0), (1, 3, 1, 0)
"""An occupied cell gains a row, an empty one its first."""
LAYERED = {
    "filter": (SummaryPlan((SummaryLaw(ONE, 4), SummaryLaw(ONE, 2, below=4), SummaryLaw(ONE, 1, below=2)), 1), None),
    "priority": (
        SummaryPlan((SummaryLaw(ONE, 1, ONE * 6), SummaryLaw(ONE, 1, ONE * 2, ONE * 6)), 1, priorities=True),
        1,
    ),
}
AXIS = DyadicAxis("dyadic", len(TABLE))
RADIX = MixedRadix((AXIS.nodes,))
PATHS = tuple((leaf, 4 + leaf // 2, 6) for leaf in range(4))
"""Each leaf with the nodes above it, which one row changes together."""

Outcomes = Iterator[object]


def cells_of(table: tuple[int, ...]) -> SparseCounts:
    values = np.array(table, dtype=np.int64)
    occupied = np.flatnonzero(values)
    return SparseCounts(MixedRadix((len(table),)), occupied[None, :], values[occupied])


def nodes_of(table: tuple[int, ...]) -> SparseCounts:
    values = np.array(table, dtype=np.int64)
    occupied = np.flatnonzero(values)
    return sparse_counts(ExactCounts((occupied,), values[None, occupied], (len(table),), (1,)), (AXIS,), RADIX)


def cell_outcomes(noisy: NoisySummary, keep: int | None) -> Outcomes:
    """Of each cell, alone and with the layers drawn, and of all: absent, or its sign and whether it is 4 or more."""
    kept, threshold = with_priorities(noisy, keep, 0.0)
    classes = [0] * len(TABLE)
    for place, value in zip(kept.positions[0].tolist(), kept.counts.tolist(), strict=True):
        classes[place] = (1 if value > 0 else 3) + (abs(value) >= 4)
    yield noisy.layers
    for place, found in enumerate(classes):
        yield place, found
        yield place, found, noisy.layers
    yield tuple(classes), noisy.layers, threshold >= 4


def node_outcomes(noisy: NoisySummary) -> Outcomes:
    """Of each path from a leaf to the root: absent, above the exact count of thrice(TABLE), or else present."""
    kept = with_parents(noisy, RADIX, (AXIS,))
    found = dict(zip(kept.positions[0].tolist(), kept.counts.tolist(), strict=True))
    exact = (0, 9, 3, 0, 9, 3, 12)
    classes = [0 if node not in found else 1 + (found[node] > exact[node]) for node in range(AXIS.nodes)]
    for path in PATHS:
        of_path = tuple(classes[node] for node in path)
        yield path, of_path
        yield path, of_path, noisy.layers


@dataclass(frozen=True)
class Runs:
    """How often each outcome came in so many runs."""

    number: int
    found: Counter[object]


def counted(draw: Callable[[], Outcomes], number: int) -> Runs:
    found: Counter[object] = Counter()
    for _ in range(number):
        found.update(draw())
    return Runs(number, found)


def excess(first: Runs, second: Runs) -> float:
    """The largest log-likelihood ratio, either way, that the runs prove, less epsilon.

    The proof uses Clopper and Pearson's bounds, each wrong with a chance of FALSE_ALARM / (4 POSSIBLE). So the result
    is above 0 for a private summary with a chance below FALSE_ALARM in all.
    """
    wrong, worst = FALSE_ALARM / (4 * POSSIBLE), -inf
    assert len(first.found.keys() | second.found.keys()) < POSSIBLE
    for mine, theirs in ((first, second), (second, first)):
        often = np.array(list(mine.found.values()))
        rarely = np.array([theirs.found[outcome] for outcome in mine.found])
        low = stats.beta.ppf(wrong, often, mine.number - often + 1)
        high = np.where(rarely < theirs.number, stats.beta.ppf(1 - wrong, rarely + 1, theirs.number - rarely), 1.0)
        worst = max(worst, float(np.log(low / high).max()))
    return worst - EPSILON


def layered(method: str, table: tuple[int, ...], runs: int = RUNS) -> Runs:
    plan, keep = LAYERED[method]
    exact, entropy = cells_of(table), operating_system_entropy()
    return counted(lambda: cell_outcomes(draw_summary(exact, plan, entropy), keep), runs)


def dyadic(table: tuple[int, ...], scale: int, runs: int = RUNS) -> Runs:
    """Nodes of a table with thrice the rows, so that large nodes pass the filter."""
    laws = SummaryLaw(Fraction(scale), 8), SummaryLaw(Fraction(scale), 3, below=8)
    plan, entropy = SummaryPlan(laws, 3), operating_system_entropy()
    exact = nodes_of(table)
    return counted(lambda: node_outcomes(draw_summary(exact, plan, entropy)), runs)


def thrice(table: tuple[int, ...], extra: int | None = None) -> tuple[int, ...]:
    return tuple(3 * rows + (place == extra) for place, rows in enumerate(table))


@pytest.mark.parametrize("method", LAYERED)
def test_layers_until_there_are_enough(method: str) -> None:
    """Neighbours are alike within epsilon = 1 (false alarm 2e-10), and the bound is nearly reached."""
    first = layered(method, TABLE)
    found = [excess(first, layered(method, neighbour)) for neighbour in (MORE, FIRST)]
    assert max(found) <= 0
    assert max(found) > -0.4


def test_drawing_again_until_there_are_enough_is_found() -> None:
    """Fresh draws of the first layer until they are enough condition noise on the data.

    One cell of 1 or 2 rows, theta = 2: a negative count is e times as likely of 1 row, and acceptance 2.4 times less.
    """
    plan, entropy = SummaryPlan((SummaryLaw(ONE, 2),)), operating_system_entropy()

    def again(exact: SparseCounts) -> Outcomes:
        while True:
            noisy = draw_summary(exact, plan, entropy)
            if len(noisy.counts):
                return cell_outcomes(noisy, None)

    first, second = (cells_of((rows,)) for rows in (1, 2))
    assert excess(counted(lambda: again(first), WRONG_RUNS), counted(lambda: again(second), WRONG_RUNS)) > 0


def test_a_later_layer_without_empty_cells_is_found() -> None:
    """If only the first layer drew empty cells, whoever comes with a later one would have a row."""
    right = SummaryLaw.given_not_before

    def first_alone(law: SummaryLaw, precision: int) -> tuple[Fraction, Fraction]:
        return right(law, precision) if law.below is None else (Fraction(0), Fraction(0))

    with patch.object(SummaryLaw, "given_not_before", first_alone):
        first, second = (layered("filter", table, WRONG_RUNS) for table in (TABLE, FIRST))
    assert excess(first, second) > 0


def test_dyadic_nodes_of_neighbours() -> None:
    """A row changes a leaf and all above it: alike within epsilon = 1 at a scale of h + 1 = 3 (2e-10), nearly so."""
    scale = node_sensitivity((AXIS,))
    first = dyadic(thrice(TABLE), scale)
    found = [excess(first, dyadic(thrice(TABLE, place), scale)) for place in (0, 1)]
    assert max(found) <= 0
    assert max(found) > -0.4


def test_dyadic_nodes_with_the_noise_of_one_are_found() -> None:
    """Noise for one node alone would spend three times epsilon."""
    first, second = (dyadic(table, 1, WRONG_RUNS) for table in (thrice(TABLE), thrice(TABLE, 1)))
    assert excess(first, second) > 0
