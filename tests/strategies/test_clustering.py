"""Greedy clustering: right unions, never dearer than no clustering, and fast where the paper took hours."""

from itertools import combinations
from math import prod
from time import process_time

import numpy as np
import pytest

from dpduck.strategies.marginals.clustering import cluster


def cost(sizes: tuple[int, ...], clusters: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...], power: int) -> float:
    total = sum(len(members) * prod(sizes[i] for i in union) for union, members in clusters)
    return float(len(clusters) ** power * total)


def naive(sizes: tuple[int, ...], marginals: list[tuple[int, ...]], power: int) -> float:
    """The greedy search with every pair tried at every step."""
    clusters: list[tuple[frozenset[int], tuple[int, ...]]] = [
        (frozenset(marginal), (position,)) for position, marginal in enumerate(marginals)
    ]
    best = float("inf")
    while True:
        known = tuple((tuple(sorted(union)), members) for union, members in clusters)
        best = min(best, cost(sizes, known, power))
        if len(clusters) == 1:
            return best

        def growth(pair: tuple[int, int], found: list[tuple[frozenset[int], tuple[int, ...]]]) -> float:
            (left, some), (right, more) = found[pair[0]], found[pair[1]]
            cells = [prod(sizes[i] for i in union) for union in (left | right, left, right)]
            return (len(some) + len(more)) * cells[0] - len(some) * cells[1] - len(more) * cells[2]

        one, two = min(combinations(range(len(clusters)), 2), key=lambda pair: growth(pair, clusters))
        merged = (clusters[one][0] | clusters[two][0], clusters[one][1] + clusters[two][1])
        clusters = [merged, *(held for number, held in enumerate(clusters) if number not in (one, two))]


@pytest.mark.parametrize("power", [1, 2])
def test_the_fast_search_is_the_greedy_search(power: int) -> None:
    """Every marginal in one cluster, which contains it. The cost is that of trying all pairs (ties aside)."""
    generator = np.random.default_rng(5)
    for _ in range(20):
        sizes = tuple(generator.permutation([2, 3, 5, 7, 11, 13]).tolist())  # distinct sizes: ties are rare
        family = [combo for order in (1, 2, 3) for combo in combinations(range(6), order)]
        marginals = [family[number] for number in generator.choice(len(family), 9, replace=False)]
        clusters = cluster(sizes, marginals, np.ones(9), power)
        assert sorted(position for _, members in clusters for position in members) == list(range(9))
        for union, members in clusters:
            assert set(union) == set().union(*(marginals[position] for position in members))
        assert cost(sizes, clusters, power) <= naive(sizes, marginals, power) * (1 + 1e-9)


def test_clustering_of_400_marginals_takes_a_moment() -> None:
    """The paper's slowest workload: Q2* of NLTCS, all pairs and half the triples of 16 binary attributes.

    It takes no longer than 10 comparisons of every pair of marginals; it takes one. Seconds are gated by make papers.
    """
    marginals = [*combinations(range(16), 2), *list(combinations(range(16), 3))[::2]]
    started = process_time()
    clusters = cluster((2,) * 16, marginals, np.ones(len(marginals)), 2)
    taken, started = process_time() - started, process_time()
    for _ in range(10):
        sum(not set(one).isdisjoint(other) for one in marginals for other in marginals)
    assert taken < process_time() - started
    singles = tuple((marginal, (position,)) for position, marginal in enumerate(marginals))
    assert cost((2,) * 16, clusters, 2) < cost((2,) * 16, singles, 2)
