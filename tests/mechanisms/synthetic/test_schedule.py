"""Rounds of whole marginals with the paper's update follow from public facts."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import pytest

from dpduck.mechanisms.synthetic.schedule import Schedule, largest_error, queries_rounds, update_error, updates_of

PURE = Schedule(True, Fraction(1), 1, 1, Fraction(1, 2))
ADULT = (9, 7, 6, 5, 2, 2)


def shapes_of(sizes: tuple[int, ...], order: int) -> list[tuple[int, ...]]:
    return list(combinations(sizes, order))


@pytest.mark.parametrize("order", [2, 3])
def test_rounds_of_the_update_grow_with_the_price(order: int) -> None:
    """One round where noise exceeds the records, more the more price there is, and 8 to 16 for Adult at 0.05, where the
    rule for fits has one of three columns.
    """
    few = updates_of(replace(PURE, amount=Fraction(1, 20)), shapes_of((2,) * 6, order), 6, 70, 64)
    numbers = [
        updates_of(replace(PURE, amount=Fraction(price)), shapes_of(ADULT, order), 6, 32_561, 64)
        for price in ("0.0001", "0.05", "0.5", "5")
    ]
    assert few == 1 and numbers[0] == 1
    assert numbers == sorted(numbers) and 8 <= numbers[1] <= 16


def test_rounds_of_the_update_are_a_minimum() -> None:
    """One round less and one more are predicted to be no better, and the limit holds."""
    shapes, schedule = shapes_of(ADULT, 3), replace(PURE, amount=Fraction(1, 10))
    found = updates_of(schedule, shapes, 6, 32_561, 64)
    errors = [update_error(replace(schedule, rounds=found + one), shapes, 6, 32_561) for one in (-1, 0, 1)]
    assert min(errors) == errors[1]
    assert updates_of(schedule, shapes, 6, 32_561, 3) == 3


def test_the_bound_on_the_largest_error() -> None:
    """All parities of two of sixteen bits over 21,574 rows, at epsilon = 1 for the rounds, as many as are best."""
    whole = replace(PURE, amount=Fraction(20, 19))  # a twentieth is for the number of records
    queries = 16 * 15 // 2 + 16 + 1
    schedule = replace(whole, rounds=queries_rounds(PURE, 1 << 16, queries, 21_574, 1000))
    bound, chance = largest_error(schedule, 1 << 16, queries, 21_574)
    assert 18_900 < bound < 19_100 and chance == pytest.approx(2 * schedule.rounds / queries)
    others = [largest_error(replace(whole, rounds=rounds), 1 << 16, queries, 21_574)[0] for rounds in (64, 300)]
    assert bound < min(others)
    assert largest_error(replace(schedule, unit_bound=3), 1 << 16, queries, 21_574)[0] > bound
