"""Integer contributions of rows: their tables, their claimed bounds, and sums that no row can make raise."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpduck.kernel.contributions import Contribution, common_divisor
from dpduck.values.errors import InternalError
from tests.support.nodes import adds


def one_row(aggregate: Contribution, steps: int | None) -> list[int]:
    """Returns the amounts that a row with this value in steps adds to each table."""
    values = [1, 0 if steps is None else 1, steps or 0, (steps or 0) ** 2]
    tables = aggregate.tables_of(*(np.array([value], dtype=np.int64) for value in values))
    return [int(table[0]) for table in tables]


def contributions() -> st.SearchStrategy[Contribution]:
    numbers = st.fractions(-50, 50, max_denominator=8)
    forms = st.sampled_from([("count", 0, False), ("sum", 0, False), *product(["moments"], [1, 2], [False, True])])
    pairs = st.tuples(numbers, numbers).filter(lambda pair: pair[0] != pair[1]).map(sorted)
    return st.builds(
        lambda form, pair, steps: adds("", form[0], "x", pair[0], pair[1], steps, form[1], form[2]),
        forms,
        pairs,
        st.integers(1, 40),
    )


@given(contributions())
def test_one_row_adds_at_most_the_bound(aggregate: Contribution) -> None:
    """The claimed bound holds for a row at every step and for a row without a value, and is reached."""
    sizes = [sum(map(abs, one_row(aggregate, steps))) for steps in (None, *range(aggregate.steps + 1))]
    assert max(sizes) == aggregate.bound
    assert len(one_row(aggregate, 0)) == aggregate.tables


@given(contributions())
def test_tables_give_back_rows_sums_and_squares(aggregate: Contribution) -> None:
    """A sum counts whole units of the value. Members of the basis are not negative, and add up to K^d."""
    for steps in range(aggregate.steps + 1):
        added = one_row(aggregate, steps)
        value = aggregate.low + steps * aggregate.step
        if aggregate.form == "sum":
            assert added[0] * aggregate.unit == value
        elif aggregate.form == "moments":
            degree, share = aggregate.degree, Fraction(steps, aggregate.steps)
            basis = [comb(degree, i) * share**i * (1 - share) ** (degree - i) for i in range(degree + 1)]
            assert [number * aggregate.unit for number in added] == [*basis, *([0] if aggregate.rest else [])]


@pytest.mark.parametrize(
    "wrong",
    [
        {"low": Fraction(1), "high": Fraction(1)},
        {"steps": 0},
        {"steps": 1 << 41},
        {"form": "moments", "degree": 2, "steps": 1 << 16},
        {"form": "moments", "degree": 0},
        {"form": "moments", "degree": 3},
        {"form": "sum", "degree": 1},
        {"form": "other"},
        {"form": "count", "per_group": "sum"},
        {"form": "sum", "per_group": "sum", "low": Fraction(1, 3), "high": Fraction(1)},
        {"form": "moments", "degree": 1, "rest": True, "per_group": "sum"},
        {"form": "sum", "low": Fraction(10**20), "high": Fraction(10**20 + 1)},
        {"form": "sum", "low": Fraction(0), "high": Fraction(6, 1 << 1074), "steps": 5},
    ],
)
def test_what_has_no_finite_bound_is_a_defect(wrong: dict[str, object]) -> None:
    """A contribution that could overflow, or has an unknown form, is refused by its constructor."""
    with pytest.raises(InternalError):
        adds("", **{"form": "sum", "value": "x", **wrong})  # type: ignore[arg-type]


def test_bounds_of_units() -> None:
    """By row a unit adds rows times the bound, and by group the bound in each cell, or its rows if it sums rows."""
    by_row = adds("", "sum", "x", Fraction(-3), Fraction(2), 5)
    assert by_row.unit_bound(4, 10) == 12
    by_group = adds("", "sum", "x", Fraction(-3), Fraction(2), 5, per_group="sum")
    assert [by_group.unit_bound(rows, cells) for rows, cells in ((4, 10), (4, 2), (1, 9))] == [12, 6, 3]
    counted = adds("", "sum", "", Fraction(0), Fraction(5), 5, per_group="sum")
    assert [counted.unit_bound(rows, cells) for rows, cells in ((4, 10), (9, 1), (100, 2))] == [4, 5, 10]


def test_the_largest_common_unit() -> None:
    """Bounds that are no multiple of the step still give whole numbers."""
    assert common_divisor(Fraction(1, 2), Fraction(3)) == Fraction(1, 2)
    assert common_divisor(Fraction(0), Fraction(1, 100)) == Fraction(1, 100)
    assert common_divisor(Fraction(-7, 4), Fraction(1, 6)) == Fraction(1, 12)
