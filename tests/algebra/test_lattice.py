"""The downward closure and its transforms equal their definitions, however the sets are coded."""

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpduck.algebra.lattice import close_downward, closure_steps

FAMILIES = st.lists(st.sets(st.integers(0, 6), max_size=4).map(lambda s: tuple(sorted(s))), min_size=1, max_size=6)


def subsets(members: tuple[int, ...]) -> set[tuple[int, ...]]:
    return set(chain.from_iterable(combinations(members, order) for order in range(len(members) + 1)))


@given(FAMILIES)
def test_the_closure_is_all_subsets(family: list[tuple[int, ...]]) -> None:
    """Every subset once, the family found again, every drop and step right."""
    lattice = close_downward(family, (2, 3, 4, 5, 6, 7, 8))
    assert set(lattice.sets) == set().union(*map(subsets, family))
    assert len(lattice.sets) == len(lattice) == len(set(lattice.sets))
    assert [lattice.sets[number] for number in lattice.family] == family
    assert closure_steps(family) >= sum(map(len, lattice.sets))
    for attribute, step in zip(lattice.attributes, lattice.steps, strict=True):
        for whole, less, axis in zip(*(column.tolist() for column in step), strict=True):
            assert lattice.sets[whole][axis] == attribute
            assert set(lattice.sets[less]) == set(lattice.sets[whole]) - {attribute}


@given(FAMILIES, st.integers(0, 2**32 - 1))
def test_the_transforms_are_sums_over_subsets_and_supersets(family: list[tuple[int, ...]], seed: int) -> None:
    """Yates' passes equal the sums of their docstrings."""
    lattice = close_downward(family, (2, 3, 4, 5, 6, 7, 8))
    generator = np.random.default_rng(seed)
    values, ratios = generator.normal(size=len(lattice)), generator.normal(size=len(lattice.attributes))
    ratio = dict(zip(lattice.attributes, ratios, strict=True))

    def gap(outer: tuple[int, ...], inner: tuple[int, ...]) -> float:
        return float(np.prod([ratio[i] for i in set(outer) - set(inner)]))

    for number, here in enumerate(lattice.sets):
        above = sum(v * gap(other, here) for v, other in zip(values, lattice.sets, strict=True) if {*here} <= {*other})
        below = sum(v * gap(here, other) for v, other in zip(values, lattice.sets, strict=True) if {*other} <= {*here})
        assert lattice.sum_over_supersets(values, ratios)[number] == pytest.approx(above)
        assert lattice.sum_over_subsets(values, ratios)[number] == pytest.approx(below)
        assert lattice.within(here)[number]
    assert lattice.products(ratios) == pytest.approx([np.prod([ratio[i] for i in held]) for held in lattice.sets])


@pytest.mark.parametrize("order", [3, 12])
def test_more_attributes_than_bits(order: int) -> None:
    """Beyond 62 attributes sets are coded in mixed radix, and beyond 62 bits of that in integers of any length."""
    family = [tuple(range(70)[:order]), tuple(range(70)[-order:]), *((i,) for i in range(70))]
    lattice = close_downward(family, (2,) * 70)
    assert set(lattice.sets) == set().union(*map(subsets, family))
    assert [lattice.sets[number] for number in lattice.family] == family


def test_exact_products_of_any_length() -> None:
    """Column norms stay exact integers where floating point would round them."""
    lattice = close_downward([(0, 1, 2)], (2, 2, 2))
    assert lattice.integer_products([3**20, 3**21, 3**22])[-1] == 3**63
    assert lattice.integer_products([3, 5, 7])[-1] == 105
