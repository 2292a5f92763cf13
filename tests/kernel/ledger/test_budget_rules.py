"""Which budgets there are, and how amounts are shown to people: readable, and never on the wrong side."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpduck.kernel.ledger.budgets import format_amount
from dpduck.values.errors import InternalError
from dpduck.values.privacy import ZERO, Budget
from tests.kernel.ledger.test_ledger import in_memory, message


@given(st.fractions(0, 10**12, max_denominator=10**15))
def test_what_is_left_is_shown_from_below_and_what_is_asked_from_above(amount: Fraction) -> None:
    """The amount left is rounded down, and the amount asked is rounded up, so that asking for the shown rest passes."""
    low, high = Fraction(format_amount(amount, up=False)), Fraction(format_amount(amount, up=True))
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
        (Fraction(1, 10**6), "1e-6"),
        (Fraction(1, 10**7), "1e-7"),
        (Fraction(10**12), "1e+12"),
    ],
)
def test_round_amounts_are_shown_as_people_write_them(amount: Fraction, text: str) -> None:
    assert format_amount(amount, up=False) == format_amount(amount, up=True) == text


NO_EPSILON = "a pure budget must have a positive epsilon and no delta"
NO_RHO = "a budget must have a positive rho"
BAD_DELTA = "a budget's delta must be smaller than 1, and at least what it keeps for keys"
TOO_MUCH_RHO = "a budget's rho must not exceed what its epsilon and delta allow"


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(None, ZERO, ZERO, None), NO_EPSILON),
        (Budget(ZERO, ZERO, ZERO, None), NO_EPSILON),
        (Budget(Fraction(1), Fraction(1, 10), ZERO, None), NO_EPSILON),
        (Budget(None, ZERO, ZERO, ZERO), NO_RHO),
        (Budget(None, Fraction(1, 10), Fraction(1, 5), Fraction(1)), BAD_DELTA),
        (Budget(None, Fraction(1), ZERO, Fraction(1)), BAD_DELTA),
        (Budget(None, Fraction(-1, 10), Fraction(-1, 10), Fraction(1)), BAD_DELTA),
        (Budget(Fraction(1), Fraction(1, 10**6), ZERO, Fraction(25, 1000)), TOO_MUCH_RHO),
        (Budget(Fraction(1), Fraction(1, 10**6), Fraction(1, 10**6), Fraction(1, 10**9)), TOO_MUCH_RHO),
        (Budget(1.5, ZERO, ZERO, None), "a budget must be made of exact rationals"),  # type: ignore[arg-type]
    ],
)
def test_a_budget_that_does_not_hold_together_is_an_internal_error(budget: Budget, reason: str) -> None:
    """Budgets with fields that contradict each other are refused. The ledger converts epsilon and delta itself."""
    assert message(InternalError, lambda: in_memory(budget)) == reason
