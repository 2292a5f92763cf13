"""What is shown of a budget to people: readable, and never on the wrong side."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpduck.trusted.budget_rules import shown


@given(st.fractions(0, 10**12, max_denominator=10**15))
def test_what_is_left_is_shown_from_below_and_what_is_asked_from_above(amount: Fraction) -> None:
    """A statement that asks for what it was told is left is not refused."""
    low, high = Fraction(shown(amount, up=False)), Fraction(shown(amount, up=True))
    assert low <= amount <= high
    assert high - low <= amount / 10**5


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Fraction(0), "0"),
        (Fraction(10), "10"),
        (Fraction(12345), "12345"),
        (Fraction(1, 10), "0.1"),
        (Fraction(1, 1000), "0.001"),
        (Fraction(1, 10**6), "0.000001"),
        (Fraction(1, 10**7), "1e-7"),
        (Fraction(10**12), "1e+12"),
    ],
)
def test_round_amounts_are_shown_as_people_write_them(amount: Fraction, text: str) -> None:
    assert shown(amount, up=False) == shown(amount, up=True) == text
