"""Junction trees are exact: margins, sizes, rows and fits equal those of one dense table."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from dpduck.mechanisms.synthetic.cliques import cells_of, cliques_of
from dpduck.mechanisms.synthetic.distribution import Component, Distribution, uniform
from dpduck.mechanisms.synthetic.fit import Parameters, fit
from dpduck.mechanisms.synthetic.junction import JunctionTree, calibrate, eliminate, junction_tree, spread
from dpduck.mechanisms.synthetic.observations import Observation
from dpduck.mechanisms.synthetic.sample import sample_codes

SIZES = (3, 2, 4, 2, 3, 2)
CHAIN = ((0, 1), (1, 2), (1, 3), (2, 3), (4, 5))


def words(count: int) -> np.ndarray:
    return np.random.default_rng(11).integers(0, 1 << 63, count, np.uint64)


def chained(seed: int, scale: float = 1.0) -> tuple[Distribution, np.ndarray, float]:
    """A distribution with random potentials on the cliques of the chain, with its dense table and its total."""
    cliques = cliques_of(SIZES, CHAIN)
    tree, draws = junction_tree(cliques), np.random.default_rng(seed)
    logarithms = [scale * draws.normal(size=[SIZES[one] for one in clique]) for clique in cliques]
    dense = np.zeros(SIZES)
    for clique, logarithm in zip(cliques, logarithms, strict=True):
        dense += logarithm.reshape(spread(tuple(range(6)), clique, SIZES))
    tables, total = calibrate(tree, logarithms)
    parts = tuple(Component(clique, table) for clique, table in zip(cliques, tables, strict=True))
    peak = float(dense.max())
    weights = np.exp(dense - peak)
    return Distribution(SIZES, parts), weights / weights.sum(), total - peak - float(np.log(weights.sum()))


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_messages_are_exact(scale: float) -> None:
    """Every margin of one to four attributes, within cliques, across them and across parts, equals the dense table's,
    however far apart probabilities are. So do the total and the joined table."""
    distribution, dense, difference = chained(1, scale)
    assert abs(difference) < 1e-9 * scale
    assert len(distribution.components) == 3, distribution.tree
    wanted = [(), *(one for order in range(1, 5) for one in combinations(range(6), order))]
    found = distribution.marginals(wanted)
    for one in wanted:
        absent = tuple(axis for axis in range(6) if axis not in one)
        assert np.abs(found[one] - dense.sum(axis=absent)).max() < 1e-12, one
    joined, place = distribution.join(range(6))
    assert np.abs(joined.components[place].table - dense).max() < 1e-12


def test_no_value_of_a_separator_is_lost() -> None:
    """One clique gives back the weight that another takes from a separator's value, although exp(-2000) is 0 in
    floating point. A weight of -1e9 in all is 0 exactly."""
    tree, far = junction_tree(((0, 1), (1, 2))), np.array([0.0, -2000.0, -1e9])
    tables, _ = calibrate(tree, [np.zeros((2, 3)) + far, np.zeros((3, 2)) - np.array([[0.0], [-2000.0], [0.0]])])
    assert np.abs(tables[0] - np.array([0.25, 0.25, 0.0])).max() < 1e-12
    assert np.abs(tables[1] - np.array([[0.25], [0.25], [0.0]])).max() < 1e-12


def path(tree: JunctionTree, number: int) -> list[int]:
    """From a clique to its root."""
    found = [number]
    while tree.parents[found[-1]] >= 0:
        found.append(tree.parents[found[-1]])
    return found


def test_cliques_hold_what_was_asked() -> None:
    """Cliques hold every set. Attributes that two cliques share are in all cliques between. The predicted cells grow
    with a further set exactly if no clique holds the set, and are never fewer than the cliques have."""
    draws = np.random.default_rng(2)
    for _ in range(40):
        sizes = tuple(draws.integers(2, 9, 9).tolist())
        picked = (draws.choice(9, draws.integers(1, 4), replace=False) for _ in range(draws.integers(1, 12)))
        sets = [tuple(sorted(one.tolist())) for one in picked]
        elimination = eliminate(tuple(sizes), frozenset(sets))
        cliques = elimination.cliques()
        assert all(any(set(one) <= set(clique) for clique in cliques) for one in sets)
        tree = junction_tree(cliques)
        for first, second in combinations(range(len(cliques)), 2):
            shared = set(cliques[first]) & set(cliques[second])
            if shared:
                ways = path(tree, first), path(tree, second)
                between = {*ways[0], *ways[1]} - {*ways[0]} & {*ways[1]} | {next(p for p in ways[0] if p in ways[1])}
                assert all(shared <= set(cliques[place]) for place in between)
        for further in combinations(range(9), 3):
            told = elimination.cells_with(further)
            assert told >= elimination.cells
            inside = any(set(further) <= set(clique) for clique in cliques)
            assert (told == elimination.cells) == inside
        assert elimination.cells >= cells_of(sizes, cliques)
    assert cliques_of((2, 2, 2), [(0, 1), (1, 2), (0, 2)]) == ((0, 1, 2),)


def test_rows_follow_the_tree() -> None:
    """Rows have every cell of the first clique rounded up or down, and all pairs and triples, across cliques too, far
    nearer than independent draws of as many would have them."""
    distribution, dense, _ = chained(3)
    rows = 5_000
    codes = sample_codes(distribution, rows, words)
    first = distribution.components[distribution.tree.order[0]]
    drawn = np.zeros(first.table.shape)
    np.add.at(drawn, tuple(codes[one] for one in first.members), 1)
    assert np.abs(drawn - rows * first.table).max() < 1 + 1e-6
    far, near = [], []
    for one in combinations(range(6), 3):
        absent = tuple(axis for axis in range(6) if axis not in one)
        expected, found = dense.sum(axis=absent), np.zeros([SIZES[axis] for axis in one])
        np.add.at(found, tuple(codes[axis] for axis in one), 1 / rows)
        near.append(float(np.abs(found - expected).sum()))
        far.append(float(np.sqrt(2 * expected * (1 - expected) / (np.pi * rows)).sum()))
    assert np.mean(near) < 0.7 * np.mean(far)
    assert [len(of) for of in codes] == [rows] * 6


def test_a_fit_on_cliques_is_the_dense_fit() -> None:
    """The fitted distribution is the same on the cliques of the measured sets and on one dense table, with a prior."""
    draws = np.random.default_rng(4)
    seen = [Observation(one, draws.normal(9, 6, [SIZES[a] for a in one]), 4.0) for one in CHAIN]
    prior: Parameters = {(0,): np.log(np.array([0.2, 0.3, 0.5]))}
    found = []
    for cliques in (cliques_of(SIZES, CHAIN), (tuple(range(6)),)):
        fitted = fit(
            junction_tree(cliques), SIZES, seen, 200.0, steps=2000, start={}, prior=prior, strength=2.0, tolerance=1e-10
        )
        parts = tuple(Component(clique, table) for clique, table in zip(cliques, fitted.tables, strict=True))
        joined, place = Distribution(SIZES, parts).join(range(6))
        found.append(joined.components[place].table)
    assert np.abs(found[0] - found[1]).max() < 1e-5
    joined, place = uniform(SIZES, dense=False).join((0, 2))
    assert joined.components[place].table.size == 12
