"""Every family of designs has its stated counts and block size, and covers every set of points."""

from __future__ import annotations

from itertools import combinations, islice

import numpy as np
import pytest

from benchmarks.papers.covering_designs import all_families, built, field, prime_power
from dpduck.strategies.views.designs import MOST_POINTS, DesignFamily, families

FAMILIES = [family for family in families(1, 8, 700) if family.kind != "subsets" or family.points < 7]


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_family_builds_what_it_says(family: DesignFamily) -> None:
    """Requirement: the numbers a design is chosen by are the numbers it has."""
    blocks = family.build()
    assert blocks.shape == (family.blocks, family.points)
    assert (blocks.sum(axis=1) == family.block_size).all()
    assert len(np.unique(blocks, axis=0)) == family.blocks
    for points in islice(combinations(range(family.points), family.strength), 5000):
        assert blocks[:, list(points)].all(axis=1).any()


def test_the_file_is_what_the_algebra_gives() -> None:
    """Requirement: designs.npz has every family of flats and circles, and those of few points are built alike."""
    stored = [family for family in families(1, MOST_POINTS, 50_000) if family.kind != "subsets"]
    assert stored == all_families()
    assert all((family.build() == built(family)).all() for family in stored if family.points <= 40)


def test_lines_and_circles_waste_nothing() -> None:
    """Requirement: two points lie on one line, three on one circle or one plane over GF(2): lambda = 1."""
    for family in FAMILIES:
        blocks = family.build().astype(int)
        if str(family).startswith("lines"):
            together = blocks.T @ blocks
            assert (together[~np.eye(family.points, dtype=bool)] == 1).all()
        if family.kind == "circles" or str(family) in {"planes of AG(3,2)", "planes of AG(4,2)"}:
            threes = [list(points) for points in combinations(range(family.points), 3)]
            assert all(int(blocks[:, points].all(axis=1).sum()) == 1 for points in threes)


@pytest.mark.parametrize("order", [2, 3, 4, 5, 7, 8, 9, 16, 25, 49, 64])
def test_fields_are_fields(order: int) -> None:
    """Requirement: the tables satisfy the axioms of GF(q)."""
    sums, times = field(order).sum, field(order).times
    everything = np.arange(order)
    assert (sums == sums.T).all() and (times == times.T).all()
    assert (sums[0] == everything).all() and (times[1] == everything).all() and (times[0] == 0).all()
    assert (np.sort(sums, axis=1) == everything).all()
    assert (np.sort(times[1:], axis=1) == everything).all()
    a, b, c = np.meshgrid(everything[:9], everything, everything[-9:], indexing="ij")
    assert (times[a, sums[b, c]] == sums[times[a, b], times[a, c]]).all()
    assert (times[a, times[b, c]] == times[times[a, b], c]).all()
    assert (sums[a, sums[b, c]] == sums[sums[a, b], c]).all()


def test_what_is_no_field_is_refused() -> None:
    """Requirement: no tables of nonsense for an order that is not a prime power."""
    assert prime_power(6) is None
    with pytest.raises(ValueError, match="not the power of a prime"):
        field(6)
