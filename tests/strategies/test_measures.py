"""Which measurements a statement's aggregates share, and what part of the price each gets."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpduck.kernel.contributions import Contribution
from dpduck.kernel.noise.law import NoiseKind
from dpduck.language.select.request import Aggregate, Operand
from dpduck.mechanisms.cubes.measures import Measures, choose_measures, linear_weights, shares_of
from tests.support.nodes import own

CHARGE = Operand("charge", Fraction(0), Fraction(1000), Fraction(1, 100))
SIGNED = Operand("balance", Fraction(-50), Fraction(100), Fraction(1))
KINDS = pytest.mark.parametrize("noise", list(NoiseKind))


def of(*functions: str, operand: Operand = CHARGE) -> list[Aggregate]:
    """Returns aggregates by name. 'rows' is count(*)."""
    return [
        Aggregate("", name, "count") if name == "rows" else Aggregate("", name, name, operand) for name in functions
    ]


def forms(found: Measures) -> list[tuple[str, int, bool]]:
    return [(measure.form, measure.contribution.degree, measure.contribution.rest) for measure in found.measures]


@KINDS
def test_what_is_shared(noise: NoiseKind) -> None:
    """A sum alone is one table. With an average, one measurement serves both, their count, and rows without a value."""
    assert forms(choose_measures(of("sum"), (), noise)) == [("sum", 0, False)]
    assert forms(choose_measures(of("avg", "sum", "count"), (), noise)) == [("moments", 1, False)]
    together = of("avg", "var_pop", "stddev_samp", "sum", operand=SIGNED)
    assert forms(choose_measures(together, (), noise)) == [("moments", 2, False)]
    assert len(choose_measures(of("quantile", "quantile", "avg"), (), noise).measures) == 2
    assert forms(choose_measures(of("rows", "avg"), (), NoiseKind.LAPLACE)) == [("moments", 1, True)]


@KINDS
def test_variances_of_fine_steps_are_alone(noise: NoiseKind) -> None:
    """Squares of 100,000 steps are taken of coarser ones: averages and sums have tables of their own then."""
    apart = [("moments", 1, False), ("moments", 2, False)]
    assert forms(choose_measures(of("avg", "var_pop", "stddev_samp", "sum", "count"), (), noise)) == apart
    assert sorted(forms(choose_measures(of("sum", "var_pop"), (), noise)))[-1] == ("sum", 0, False)
    assert forms(choose_measures(of("count", "var_pop"), (), noise)) == [("moments", 2, False)]
    for one in choose_measures(of("avg", "sum"), (), noise).measures:
        assert one.contribution.steps == 100_000


@KINDS
@given(parts=st.lists(st.sampled_from(["rows", "sum", "avg", "count", "var_pop", "quantile"]), min_size=1, max_size=6))
def test_shares_are_the_whole_price_at_most(noise: NoiseKind, parts: list[str]) -> None:
    """Parts are above 0 and add up to at most 1. Equal demands have exactly equal parts."""
    found = choose_measures([*of(*parts), *of("sum", operand=SIGNED)], (), noise)
    shares = [measure.share for measure in found.measures]
    assert min(shares) > 0
    assert Fraction(99, 100) < sum(shares) <= 1
    assert shares_of([2.0, 2.0, 2.0]) == [Fraction(1, 3)] * 3


@KINDS
def test_weights_move_the_price(noise: NoiseKind) -> None:
    """An aggregate of more weight gets more of the price."""
    pair = [*of("rows"), *of("sum", operand=SIGNED)]
    even = choose_measures(pair, (), noise)
    heavy = choose_measures(pair, (Fraction(50), Fraction(1)), noise)
    if len(even.measures) == 2 == len(heavy.measures):
        assert heavy.measures[0].share > even.measures[0].share


@given(st.integers(0, 1000), st.sampled_from(["sum", "count"]), st.sampled_from([1, 2]), st.booleans())
def test_weights_of_tables_give_the_aggregate(steps: int, function: str, degree: int, rest: bool) -> None:
    """The linear combination of a row's tables is its value, or one. The trusted bound equals the planned one."""
    operand = Operand("x", Fraction(-3), Fraction(7), Fraction(1, 100))
    functions = ["sum", "count", "avg" if degree == 1 else "var_pop"] + (["rows"] if rest else [])
    found = choose_measures(of(*functions, operand=operand), (), NoiseKind.LAPLACE)
    measure = found.measures[0]
    own_one = measure.contribution
    contribution = Contribution(
        None, measure.form, own("x"), operand.low, operand.high, own_one.steps, own_one.degree, own_one.rest
    )
    whole = Fraction(steps, 1000)
    added = [1, 1, steps, steps * steps]
    tables = [int(table) for table in contribution.tables_of(*(number for number in added))]  # type: ignore[arg-type]
    weights = linear_weights(Aggregate("", "", function, operand), measure)
    answer = sum(weight * table for weight, table in zip(weights, tables, strict=True))
    assert answer == (operand.low + (operand.high - operand.low) * whole if function == "sum" else 1)
    assert contribution.unit_bound(4, 10) == measure.unit_bound(4, 10)


@KINDS
def test_one_measurement_is_no_worse_than_two(noise: NoiseKind) -> None:
    """From distances to both bounds a sum has the error that it has alone, and its count comes at twice a count's."""
    found = choose_measures(of("sum", "count", "avg"), (), noise)
    weights = [linear_weights(one, found.measures[0]) for one in of("sum", "count")]
    bound = found.measures[0].contribution.bound
    alone = max(abs(CHARGE.low), abs(CHARGE.high))
    assert sum((weight * bound) ** 2 for weight in weights[0]) == alone**2
    assert sum((weight * bound) ** 2 for weight in weights[1]) == 2
