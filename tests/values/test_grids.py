"""Grids of public numbers: their bounds are on steps, and steps are few enough to be added up in 64 bits."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dpduck.values.grids import LARGEST_INTEGER, Grid, union


@given(st.fractions(-1000, 1000, max_denominator=7), st.fractions(0, 1000, max_denominator=7), st.fractions(0, 1))
def test_settled_grids_are_whole(low: Fraction, width: Fraction, step: Fraction) -> None:
    """Bounds are multiples of the step, hold the old ones, and stay within what adds up in 64 bits."""
    settled = Grid(low, low + width, step).align()
    assert settled.low <= low <= low + width <= settled.high
    assert settled.low % settled.step == 0 == settled.high % settled.step
    assert max(abs(settled.low), abs(settled.high)) / settled.step <= LARGEST_INTEGER + 1


def test_coarser_steps() -> None:
    """A declared range of more than 2^24 steps is coarsened, a union takes the common step."""
    settled = Grid(Fraction(0), Fraction(10**9), Fraction(1, 1000)).align()
    assert settled.high / settled.step <= LARGEST_INTEGER + 1
    joined = union([Grid(Fraction(0), Fraction(1), Fraction(1, 2)), Grid(Fraction(3), Fraction(3), Fraction(0))])
    assert joined == Grid(Fraction(0), Fraction(3), Fraction(1, 2))
