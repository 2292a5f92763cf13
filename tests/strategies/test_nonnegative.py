"""nonnegative and integer: what the options guarantee, and that totals stay."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.choose import plan_workload
from dpduck.strategies.recovery.options import (
    apply_options,
    integer_cube,
    integer_table,
    nonnegative_consistent,
    nonnegative_table,
)
from dpduck.strategies.recovery.recover import recover

TABLES = arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.floats(-1e6, 1e6, width=32))


@given(TABLES)
def test_a_table_keeps_its_total_and_loses_its_negative_cells(table: np.ndarray) -> None:
    """The sum afterwards is max(the sum before, 0). No cell is below zero."""
    projected = nonnegative_table(table)
    assert projected.min() >= 0
    assert projected.sum() == pytest.approx(max(table.sum(), 0), rel=1e-9, abs=1e-6)
    if table.min() >= 0 and table.sum() > 0:
        assert (projected == table).all()


@given(TABLES, st.integers(0, 1000))
def test_no_non_negative_table_of_that_total_is_nearer(table: np.ndarray, seed: int) -> None:
    """The projection is the nearest in squares: random feasible tables are farther."""
    projected = nonnegative_table(table)
    if table.sum() > 0:
        other = np.random.default_rng(seed).dirichlet(np.ones(table.size)).reshape(table.shape) * table.sum()
        assert ((projected - table) ** 2).sum() <= ((other - table) ** 2).sum() * (1 + 1e-9) + 1e-6


@given(TABLES)
def test_rounding_keeps_the_rounded_total_and_moves_cells_by_less_than_one(table: np.ndarray) -> None:
    """Largest remainders: integers, the sum is the rounded sum, non-negative stays non-negative."""
    rounded = integer_table(table)
    assert (rounded == np.rint(rounded)).all()
    assert np.abs(rounded - table).max() <= 1
    assert rounded.sum() == np.rint(table.sum())
    if table.min() >= 0:
        assert rounded.min() >= 0


def noisy_cube(counts: int) -> tuple[MarginalWorkload, tuple[np.ndarray, ...], tuple[float, ...], np.ndarray]:
    generator = np.random.default_rng(37)
    sizes = (4, 3, 5, 2)
    table = generator.multinomial(counts, generator.dirichlet(np.full(120, 0.1))).reshape(sizes)
    marginals = tuple(combinations(range(4), 2))
    workload = MarginalWorkload(sizes, marginals, (1.0,) * len(marginals))
    (plan,) = plan_workload(workload, NoiseKind.LAPLACE, Fraction(1, 2), 1, "Q")
    exact = [table.sum(axis=tuple(i for i in range(4) if i not in marginal)) for marginal in marginals]
    noisy = [
        m + np.rint(generator.laplace(0, float(q.parameter), m.shape)).astype(np.int64)
        for m, q in zip(exact, plan.measurements, strict=True)
    ]
    return workload, recover(plan, noisy), plan.variances, np.concatenate([margin.ravel() for margin in exact])


def test_a_cube_stays_consistent_and_becomes_non_negative() -> None:
    """All shared margins agree to 1e-6, no cell is negative, the total is kept, and the error does not grow."""
    workload, answers, variances, exact = noisy_cube(500)
    assert min(table.min() for table in answers) < 0
    tables = nonnegative_consistent(workload, answers, variances)
    assert min(table.min() for table in tables) >= 0
    for first, one in zip(workload.marginals, tables, strict=True):
        assert one.sum() == pytest.approx(answers[0].sum())
        for second, two in zip(workload.marginals, tables, strict=True):
            left = one.sum(axis=tuple(axis for axis, i in enumerate(first) if i not in second))
            right = two.sum(axis=tuple(axis for axis, i in enumerate(second) if i not in first))
            assert np.abs(left - right).max() < 1e-6
    before = np.concatenate([table.ravel() for table in answers]) - exact
    after = np.concatenate([table.ravel() for table in tables]) - exact
    assert (after**2).sum() < (before**2).sum()


def test_non_negative_cubes_are_left_alone_and_empty_ones_become_zero() -> None:
    """Nothing to do changes nothing. A total at or below zero leaves zeros."""
    workload, answers, variances, _ = noisy_cube(500)
    even = 10_000.0  # the even table added to all marginals keeps them consistent
    raised = tuple(table + even / table.size for table in answers)
    assert min(table.min() for table in raised) >= 0
    for before, after in zip(raised, nonnegative_consistent(workload, raised, variances), strict=True):
        assert after == pytest.approx(before)
    sunk = tuple(table - even / table.size for table in answers)
    assert not any(table.any() for table in nonnegative_consistent(workload, sunk, variances))


CUBES = arrays(np.float64, st.tuples(*[st.integers(1, 4)] * 3), elements=st.floats(-1e4, 1e4, width=32))


@given(CUBES)
def test_cells_of_whole_cubes_move_by_less_than_one(table: np.ndarray) -> None:
    """As largest remainders do, and the sums over the last axes move by less than one, too."""
    rounded = integer_cube(table)
    assert (rounded == np.rint(rounded)).all() and rounded.shape == table.shape
    for axes in ((), (2,), (1, 2)):
        assert np.abs(rounded.sum(axis=axes) - table.sum(axis=axes)).max() < 1 + 1e-6
    assert abs(rounded.sum() - table.sum()) <= 0.5 + 1e-6
    if table.min() >= 0:
        assert rounded.min() >= 0


@pytest.mark.parametrize("strategy", ["I", "Q", "F"])
@pytest.mark.parametrize("sets", [((0, 1, 2), (0,), (1, 2), ()), ((2,), (0, 2), (0, 1, 2))])
def test_whole_cubes_add_up(strategy: str, sets: tuple[tuple[int, ...], ...]) -> None:
    """Non-negative, whole and consistent: each table is the sum of the finest one, and near its first answer."""
    generator = np.random.default_rng(5)
    sizes, table = (4, 3, 5), generator.poisson(1.5, (4, 3, 5))
    (plan,) = plan_workload(
        MarginalWorkload(sizes, sets, (1.0,) * len(sets)), NoiseKind.LAPLACE, Fraction(1), 1, strategy
    )
    exact = [
        measured.query.apply(table.sum(axis=tuple(i for i in range(3) if i not in measured.query.attributes)))
        for measured in plan.measurements
    ]
    answers = recover(plan, [one + generator.integers(-3, 4, one.shape) for one in exact])
    whole = dict(zip(sets, apply_options(plan, answers, nonnegative=True, integer=True), strict=True))
    smooth = dict(zip(sets, apply_options(plan, answers, nonnegative=True, integer=False), strict=True))
    for members, found in whole.items():
        assert (found == np.rint(found)).all() and found.min() >= 0
        gone = tuple(axis for axis in range(3) if axis not in members)
        assert (whole[0, 1, 2].sum(axis=gone) == found).all()
        assert np.abs(found - smooth[members]).max() < 1 + len(gone) * 2
