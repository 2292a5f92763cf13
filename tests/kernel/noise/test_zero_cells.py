"""Empty cells are a uniformly random set, and are selected by rank, in one word or in several."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy import stats

from dpduck.kernel.noise.entropy import operating_system_entropy, uniform_below
from dpduck.kernel.noise.zero_cells import empty_cells, random_subset
from dpduck.kernel.queries.cells import MixedRadix, at_most, merge_cells, ordering

DRAWS = 6_000
WIDE = MixedRadix((10**9, 10**9, 10**9, 1000))  # 10^30 cells, two words


@pytest.mark.parametrize(("cells", "occupied", "count"), [(7, (0, 3), 3), (30, (2, 3, 29), 2), (6, (), 5)])
def test_every_set_is_as_likely(cells: int, occupied: tuple[int, ...], count: int) -> None:
    """Each set of `count` empty cells is as likely, dense or sparse, and none is occupied (chi-square test, 1e-10)."""
    entropy, radix = operating_system_entropy(), MixedRadix((cells,))
    places = np.array([occupied], dtype=np.int64)
    found = [tuple(empty_cells(radix, places, count, entropy)[0].tolist()) for _ in range(DRAWS)]
    sets = list(combinations([cell for cell in range(cells) if cell not in occupied], count))
    assert set(found) <= set(sets)
    observed = np.array([found.count(one) for one in sets])
    assert len(sets) == comb(cells - len(occupied), count)
    assert stats.chisquare(observed).pvalue > 1e-10


def test_ranks_skip_occupied_cells() -> None:
    """A draw of as many cells as are empty is the set of all empty cells."""
    entropy = operating_system_entropy()
    occupied = np.array([[0, 1, 5, 9]], dtype=np.int64)
    assert empty_cells(MixedRadix((10,)), occupied, 6, entropy)[0].tolist() == [2, 3, 4, 6, 7, 8]


def test_several_words() -> None:
    """Carrying, borrowing and comparing in mixed radix agree with Python's integers."""
    rng = np.random.default_rng(5)
    values = [int(high) * 10**18 + int(low) for high, low in rng.integers(0, (10**12, 3), (500, 2))]
    values = sorted({*values, *range(40), 10**30 - 1, *(high * 10**3 for high in range(1, 30))})
    words = np.array([[value // WIDE.bases[1] for value in values], [value % WIDE.bases[1] for value in values]])

    def numbers(positions: np.ndarray) -> list[int]:
        return [int(high) * WIDE.bases[1] + int(low) for high, low in positions.T]

    assert WIDE.cells == 10**30
    assert numbers(words) == values
    steps = list(range(len(values)))
    amounts = np.array(steps)
    assert numbers(WIDE.plus(words, -amounts)) == [value - amount for value, amount in zip(values, steps, strict=True)]
    lowered = WIDE.plus(words, -amounts)
    assert numbers(WIDE.plus(lowered, amounts)) == values
    shuffled = words[:, rng.permutation(len(values))]
    assert numbers(shuffled[:, ordering(shuffled)]) == values
    probes = words[:, ::3]
    assert at_most(words, probes).tolist() == list(range(1, len(values) + 1, 3))
    assert np.array_equal(WIDE.pack(WIDE.unpack(words), len(values)), words)


def test_a_huge_domain() -> None:
    """Sets of empty cells among 10^30 are sorted, distinct, and uniform in every attribute (1e-10)."""
    entropy = operating_system_entropy()
    occupied = random_subset(WIDE, 0, 500, entropy)
    cells = empty_cells(WIDE, occupied, 20_000, entropy)
    both = np.concatenate([cells, occupied], axis=1)
    assert merge_cells(both, np.ones(both.shape[1], dtype=np.int64))[0].shape[1] == 20_500
    assert np.array_equal(ordering(cells), np.arange(20_000))
    for codes, size in zip(WIDE.unpack(cells), WIDE.sizes, strict=True):
        assert stats.chisquare(np.bincount(codes * 50 // size, minlength=50)).pvalue > 1e-10


def test_uniform_integers() -> None:
    """Every integer below the limit is as likely (1e-10)."""
    for limit in (1, 2, 7, 48):
        draws = uniform_below(limit, 20_000, operating_system_entropy())
        assert draws.max() < limit
        assert limit == 1 or stats.chisquare(np.bincount(draws, minlength=limit)).pvalue > 1e-10


def test_equal_cells_are_one() -> None:
    """Counts of a cell that comes twice are added up, and a cell with sum 0 is empty."""
    positions, counts = merge_cells(np.array([[4, 1, 4, 7, 7]]), np.array([1, 2, 3, 5, -5]))
    assert (positions.tolist(), counts.tolist()) == ([[1, 4]], [2, 4])
