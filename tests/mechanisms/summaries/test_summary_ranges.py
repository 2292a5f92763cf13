"""Dyadic intervals, Haar coefficients and the consistency check agree with dense matrices."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dpduck.algebra.dyadic import DyadicAxis, node_sensitivity
from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.layers import SummaryLaw
from dpduck.kernel.queries.cells import MixedRadix
from dpduck.kernel.queries.sparse_counts import sparse_counts
from dpduck.kernel.queries.summaries import NoisySummary, SummaryPlan, draw_summary
from dpduck.language.select.request import Summary
from dpduck.mechanisms.summaries.parents import ends_of, parents_of, places_of, with_parents
from dpduck.mechanisms.summaries.plan import candidates

SIZES = (1, 2, 5, 8, 13)


def dense_nodes(axis: DyadicAxis) -> np.ndarray:
    """One row per node, one column per label, and in each entry the label's weight."""
    table = np.zeros((axis.nodes, axis.size), dtype=np.int64)
    for code, step in product(range(axis.size), range(axis.per_row)):
        numbers, signs = axis.of_code(np.array([code]), step)
        table[numbers[0], code] += 1 if signs is None else signs[0]
    return table


@pytest.mark.parametrize(("shape", "size"), list(product(("dyadic", "haar"), SIZES)))
def test_nodes_are_intervals(shape: str, size: int) -> None:
    """A dyadic node holds its interval. A Haar node is left half minus right half. Each label is in h + 1 nodes."""
    axis = DyadicAxis(shape, size)
    table, numbers = dense_nodes(axis), np.arange(axis.nodes)
    first, last = ends_of(axis, numbers)
    levels, _ = places_of(axis, numbers)
    for number in numbers:
        expected = np.zeros(size, dtype=np.int64)
        expected[first[number] : last[number] + 1] = 1
        if shape == "haar" and levels[number]:
            expected[first[number] + (1 << (levels[number] - 1)) : last[number] + 1] = -1
        assert np.array_equal(table[number], expected), number
    assert (np.abs(table).sum(axis=0) == axis.per_row).all()
    if shape == "dyadic":
        parents = parents_of(axis, numbers)
        assert (table[parents[parents >= 0]] >= table[parents >= 0]).all()
        assert (parents < 0).sum() == 1


@pytest.mark.parametrize("shape", ["dyadic", "haar"])
def test_transformed_counts_are_the_dense_transform(shape: str) -> None:
    """Two ordered attributes and a plain one, at a price without noise: every occupied node, and no other."""
    rng = np.random.default_rng(3)
    axes: tuple[DyadicAxis | None, ...] = (DyadicAxis(shape, 5), None, DyadicAxis(shape, 6))
    cells = rng.integers(0, 40, (5, 3, 6)) * (rng.random((5, 3, 6)) < 0.2)
    places = np.nonzero(cells)
    counts = ExactCounts(places, cells[places][None, :], (5, 3, 6), (1,))
    radix = MixedRadix((axes[0].nodes, 3, axes[2].nodes))  # type: ignore[union-attr]
    plan = SummaryPlan((SummaryLaw(Fraction(1, 80), 1),))
    found = draw_summary(sparse_counts(counts, axes, radix), plan, operating_system_entropy())
    table = np.zeros(radix.cells, dtype=np.int64)
    table[found.positions[0]] = found.counts
    dense = np.einsum("ai,ijk,ck->ajc", dense_nodes(DyadicAxis(shape, 5)), cells, dense_nodes(DyadicAxis(shape, 6)))
    assert np.array_equal(table.reshape(dense.shape), dense)
    assert node_sensitivity(axes) == 4 * 4


def test_nodes_without_parents_are_dropped() -> None:
    """Against the plain rule: keep a node if and only if every node above it, along every axis, was drawn."""
    rng = np.random.default_rng(8)
    axes: tuple[DyadicAxis | None, ...] = (DyadicAxis("dyadic", 5), None, DyadicAxis("dyadic", 4))
    radix = MixedRadix((11, 2, 7))
    chosen = np.sort(rng.choice(radix.cells, 120, replace=False))
    summary = NoisySummary(chosen[None, :], np.arange(120), np.zeros(120), 1)
    cells = set(zip(*(codes.tolist() for codes in radix.unpack(summary.positions)), strict=True))

    def consistent(cell: tuple[int, ...]) -> bool:
        above = []
        for number in (0, 2):
            axis = axes[number]
            parent = -1 if axis is None else int(parents_of(axis, np.array([cell[number]]))[0])
            if parent >= 0:
                above.append((*cell[:number], parent, *cell[number + 1 :]))
        return cell in cells and all(consistent(parent) for parent in above)

    kept = with_parents(summary, radix, axes)
    found = set(zip(*(codes.tolist() for codes in radix.unpack(kept.positions)), strict=True))
    assert found == {cell for cell in cells if consistent(cell)}
    assert 0 < len(found) < 120


def test_one_sided_filters_are_of_counts_alone() -> None:
    """Haar coefficients have either sign. Filters that drop negative ones are no candidates, so not for 'auto'."""
    for shape, there in (("dyadic", True), ("haar", False)):
        found = candidates(Summary("auto", 100, shape=shape), 10**6, Fraction(10), checked=False)
        assert ("filter_one_sided" in {design.method for design in found}) is there
