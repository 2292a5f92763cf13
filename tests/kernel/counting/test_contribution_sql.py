"""Values in steps: inside 0 .. K whatever a row holds, and the nearest step for a value between the bounds."""

from __future__ import annotations

import math
from fractions import Fraction

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpduck.kernel.contributions import LARGEST_BOUND, MOST_STEPS, Contribution
from dpduck.kernel.counting.contribution_sql import steps_sql
from tests.support.nodes import adds

SLACK = Fraction(1, 32)
"""A double keeps 2^-8 of a step at 2^45 steps from 0; low, the difference and the quotient are rounded too."""

STEPS = st.one_of(
    st.fractions(Fraction(1, 10**6), 10**6).filter(lambda step: step > 0), st.sampled_from([Fraction(1), Fraction(3)])
)


@st.composite
def contributions(draw: st.DrawFn) -> Contribution:
    """Contributions of any number of steps, with bounds as far from 0 as is allowed."""
    step, steps = draw(STEPS), draw(st.one_of(st.integers(1, 100), st.integers(1, MOST_STEPS)))
    most = LARGEST_BOUND - steps
    first = draw(st.one_of(st.just(0), st.integers(-most, most), st.sampled_from([-most, most])))
    return adds("", "moments", "x", first * step, (first + steps) * step, steps, 1)


def values_near(aggregate: Contribution) -> list[float | None]:
    """Bounds, their neighbours, halves of steps, and values that are no number."""
    low, high, step = aggregate.low, aggregate.high, aggregate.step
    exact = [low, high, low + step / 2, high - step / 2, (low + high) / 2, low - step, high + step]
    near = [math.nextafter(float(value), side) for value in exact for side in (-math.inf, math.inf)]
    return [*map(float, exact), *near, 0.0, -0.0, 1e308, -1e308, math.inf, -math.inf, math.nan, None]


def in_steps(
    connection: duckdb.DuckDBPyConnection, aggregate: Contribution, values: list[float | None]
) -> list[object]:
    """Returns the step k of each value."""
    rows = "SELECT unnest($values) AS dpduck_value_0, unnest(range(len($values))) AS place"
    sql = f"SELECT dpduck_value_0 FROM ({steps_sql([aggregate], rows, ['place'])}) ORDER BY place"
    return [k for (k,) in connection.execute(sql, {"values": values}).fetchall()]


@settings(max_examples=60)
@given(contributions())
def test_steps_stay_inside(aggregate: Contribution) -> None:
    """A row adds 0 .. K whatever its value is. The step is the nearest one, up to the rounding of doubles."""
    values = values_near(aggregate)
    with duckdb.connect(config={"threads": 1}) as connection:
        found = in_steps(connection, aggregate, values)
    for value, k in zip(values, found, strict=True):
        if value is None or not math.isfinite(value):
            assert k is None
            continue
        assert isinstance(k, int) and 0 <= k <= aggregate.steps
        clamped = min(max(Fraction(value), aggregate.low), aggregate.high)
        assert abs(k - (clamped - aggregate.low) / aggregate.step) <= Fraction(1, 2) + SLACK


@pytest.mark.parametrize("step", [Fraction(1), Fraction(1, 3), Fraction(10**6)])
def test_values_of_units_stay_inside(step: Fraction) -> None:
    """A number that a unit sums up before it is clamped is no farther from 0 than LARGEST_BOUND steps."""
    aggregate = adds("", "sum", "x", -2 * step, 5 * step, 7, per_group="sum")
    values = [0.0, float(step), -float(step) * 1.5, 1e308, -1e308, float(LARGEST_BOUND * step) * 2, math.nan, None]
    with duckdb.connect() as connection:
        found = in_steps(connection, aggregate, values)
    most = LARGEST_BOUND
    assert found == [0, 1, -2, most, -most, most, None, None]
