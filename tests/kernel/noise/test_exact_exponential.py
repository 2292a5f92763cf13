"""Every bound is a true bound, by 120-digit decimals that share no code with the bounds."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpduck.kernel.noise.exponentials import DiscreteLaw, exp_minus


def scaled_exponential(exponent: Fraction, precision: int) -> Decimal:
    """2**precision exp(-exponent), to about 120 digits."""
    with localcontext(prec=150):
        return (Decimal(2) ** precision) * (-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()


@given(
    exponent=st.fractions(min_value=0, max_value=300, max_denominator=10**12),
    precision=st.sampled_from([64, 128, 193, 320]),
)
def test_exp_minus_encloses(exponent: Fraction, precision: int) -> None:
    """low <= truth <= high, at most 2 units apart."""
    low, high = exp_minus(exponent, precision)
    assert low <= scaled_exponential(exponent, precision) <= high
    assert high - low <= 2


@pytest.mark.parametrize("exponent", [Fraction(1, 10**18), Fraction(1, 2), Fraction(1), Fraction(127), Fraction(128)])
def test_exp_minus_at_its_seams(exponent: Fraction) -> None:
    low, high = exp_minus(exponent, 128)
    assert low <= scaled_exponential(exponent, 128) <= high
    assert high - low <= 2


def test_exp_minus_at_its_ends() -> None:
    """exp(0) is exactly 1, and an enormous exponent costs no time."""
    assert exp_minus(Fraction(0), 128) == (1 << 128, 1 << 128)
    assert exp_minus(Fraction(10**30), 128) == (0, 1)


@pytest.mark.parametrize(
    "law",
    [
        DiscreteLaw(Fraction(1, 1000), Fraction(0)),
        DiscreteLaw(Fraction(0), Fraction(1, 2 * 999_983)),
        DiscreteLaw(Fraction(3, 7), Fraction(0)),
    ],
)
@pytest.mark.parametrize("start", [0, 1, 63])
def test_weights_are_lower_bounds(law: DiscreteLaw, start: int) -> None:
    """Weights are lower bounds, short by at most 4 (q + 1)^2 units."""
    for step, weight in enumerate(islice(law.weights(start, 64, 128), 200)):
        truth = scaled_exponential(law.exponent(start + 64 * step), 128)
        assert weight <= truth <= weight + 4 * (step + 1) ** 2


def test_rise_has_the_claimed_error() -> None:
    """x(far) - x(near) in floats within 6 * 2**-53, also where both are huge."""
    law = DiscreteLaw(Fraction(0), Fraction(1, 2 * 3**60))
    for near in (0, 1, 2**44 + 1):
        for gap in (0, 1, 2**36 - 1):
            exact = law.exponent(near + gap) - law.exponent(near)
            computed = Fraction(float(law.rise(np.array([float(near)]), np.array([float(near + gap)]))[0]))
            assert abs(computed - exact) <= 6 * exact / 2**53
