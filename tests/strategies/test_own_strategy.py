"""A strategy of one's own: charges, predicted errors, the program's optimum and the joint one, several columns."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.papers.own_strategies import Case, cases, program_optimum, total_of
from dpduck.algebra.cells import CellWorkload
from dpduck.algebra.ranges import RangeWorkload, identity, intervals, prefixes
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.ranges.groups import greedy_groups
from dpduck.strategies.ranges.own import OwnStrategy, plan_own
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import Refusal

LAPLACE, GAUSSIAN = NoiseKind.LAPLACE, NoiseKind.GAUSSIAN
NOISES = [LAPLACE, GAUSSIAN]
CASES = list(cases())
FINE = {LAPLACE: Fraction(1, 1000), GAUSSIAN: Fraction(1, 2 * 10**6)}
"""Prices at which a total variance is that of a price of 1, or of sigma = 1, times a million."""


def over(*attributes: RangeWorkload) -> CellWorkload:
    """Asks one grouping set of all attributes."""
    return CellWorkload(attributes, (tuple(range(len(attributes))),), (1.0,))


def exact_cost(plan: OwnStrategy, unit_bound: int) -> Fraction:
    """The charge, from dense columns in unbounded integers."""
    power = 1 if plan.noise is LAPLACE else 2
    charge = Fraction(0)
    for block, measurement in zip(plan.blocks, plan.measurements, strict=True):
        largest = max(sum(abs(int(entry)) ** power for entry in column) for column in block.T)
        charge += Fraction(unit_bound**power * largest, power) / measurement.parameter
    return charge


def dense_variances(plan: OwnStrategy) -> FloatArray:
    """The variance of every answer, by pseudo-inverse of the whitened rows."""
    pairs = list(zip(plan.blocks, plan.noise_variances, strict=True))
    inverse = np.linalg.pinv(np.vstack([block / variance**0.5 for block, variance in pairs]))
    return np.concatenate([(answers**2).sum(axis=-1).ravel() for answers in plan.workload.answers(inverse)])


@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.shape}, {case.name}")
def test_total_variance_is_within_the_programs_optimum(noise: NoiseKind, case: Case) -> None:
    """Twelve cases: at most 1.05 of the program's budgets with least squares, with exact charges and dense
    variances.
    """
    plan = plan_own(over(case.asked), case.entries, noise, FINE[noise], 1)
    assert plan.total_variance / 10**6 <= 1.05 * program_optimum(case.asked.gram, case.entries, noise)
    assert exact_cost(plan, 1) <= FINE[noise]
    np.testing.assert_allclose(np.concatenate([one.ravel() for one in plan.variances]), dense_variances(plan))
    if case is CASES[0] and noise is LAPLACE:
        assert plan.total_variance / 10**6 < 95, "where budgets by groups had 205"


def test_gaussian_budgets_are_the_joint_optimum() -> None:
    """A perturbed budget is never better: the variance is convex in the budgets of Gaussian noise."""
    generator = np.random.default_rng(5)
    for case in CASES:
        found = plan_own(over(case.asked), case.entries, GAUSSIAN, FINE[GAUSSIAN], 1).total_variance / 10**6
        for _ in range(200):
            budgets = np.exp(generator.normal(size=len(case.entries)))
            budgets /= ((case.entries**2).T @ budgets).max()
            assert found <= 1.01 * total_of(case.asked.gram, case.entries, budgets, GAUSSIAN)


@pytest.mark.parametrize("noise", NOISES)
def test_every_answer_of_several_columns(noise: NoiseKind) -> None:
    """Two columns, three sets with weights: charges fit, variances are dense ones, exact answers come back."""
    workload = CellWorkload((identity(3), prefixes(4)), ((0, 1), (1,), ()), (1.0, 2.0, 5.0))
    generator = np.random.default_rng(6)
    entries = np.vstack([np.eye(12, dtype=np.int64), generator.integers(-2, 3, (4, 12))])
    plan = plan_own(workload, entries, noise, Fraction(1, 3), 2, seconds=1.0)
    assert [one.shape for one in plan.variances] == [(3, 4), (4,), ()]
    assert exact_cost(plan, 2) <= Fraction(1, 3)
    np.testing.assert_allclose(np.concatenate([one.ravel() for one in plan.variances]), dense_variances(plan))
    table = generator.integers(0, 100, (3, 4))
    exact = [block @ table.ravel() for block in plan.blocks]
    cells, sums, total = plan.recover(exact)
    np.testing.assert_allclose(cells, table.cumsum(axis=1), atol=1e-8)
    np.testing.assert_allclose(sums, table.sum(axis=0).cumsum(), atol=1e-8)
    assert total == pytest.approx(table.sum())


@pytest.mark.parametrize("noise", NOISES)
def test_uniform_budgets_and_what_they_cost(noise: NoiseKind) -> None:
    """'uniform' is one noise on the rows as written, and with optimal budgets the plan names the gain."""
    entries = np.vstack([np.ones((1, 9)), np.eye(9)]).astype(np.int64)
    uniform = plan_own(over(prefixes(9)), entries, noise, Fraction(1), 1, "uniform")
    assert len(uniform.measurements) == 1 and not uniform.note
    best = plan_own(over(prefixes(9)), entries, noise, Fraction(1), 1)
    assert best.total_variance < uniform.total_variance
    assert best.note == f"{best.total_variance / uniform.total_variance:.3g} of the variance of equal budgets"


@pytest.mark.usefixtures("stopped_clock")
def test_few_bits_still_fit() -> None:
    """Integers of at most 4 bits a column: a larger error, no larger charge."""
    workload, entries = over(CASES[1].asked), CASES[1].entries
    fine = plan_own(workload, entries, LAPLACE, FINE[LAPLACE], 1)
    coarse = plan_own(workload, entries, LAPLACE, FINE[LAPLACE], 1, bits=4)
    assert exact_cost(coarse, 1) <= FINE[LAPLACE] and fine.total_variance <= coarse.total_variance * (1 + 1e-6)


def test_a_singular_matrix_says_what_it_cannot_answer() -> None:
    """The refusal counts and names the intervals. A singular matrix that answers the workload is accepted."""
    pairs = np.kron(np.eye(3), np.ones((1, 2))).astype(np.int64)
    with pytest.raises(Refusal, match=r"do not determine 3 of the 6 intervals: \[0, 1\), \[0, 3\), \[0, 5\);"):
        plan_own(over(prefixes(6)), pairs, LAPLACE, Fraction(1), 1)
    with pytest.raises(Refusal, match=r"do not determine 4 of the 4 intervals: \[0, 1\) x \[0, 1\), .*, \.\.;"):
        plan_own(over(identity(2), identity(2)), np.ones((1, 4), np.int64), LAPLACE, Fraction(1), 1)
    plan = plan_own(over(intervals(6, [(0, 2), (0, 4), (2, 6)])), pairs, LAPLACE, Fraction(1), 1)
    np.testing.assert_allclose(plan.variances[0], dense_variances(plan), rtol=1e-9)
    table = np.arange(6.0)
    recovered = plan.recover([block @ table.astype(np.int64) for block in plan.blocks])
    np.testing.assert_allclose(recovered[0], plan.workload.answers(table)[0], atol=1e-7)


def test_groups_of_the_known_strategies() -> None:
    """Identity: one group. Marginals: one each. Haar: one per level. Hadamard: one per row."""
    identity = np.eye(4, dtype=np.int64)
    assert [(group.norm, group.exact) for group in greedy_groups(identity)] == [(1, True)]
    margins = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]])
    assert [group.rows for group in greedy_groups(margins)] == [(0, 1), (2, 3)]
    haar = np.array([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 0, 0], [0, 0, 1, -1]])
    assert [group.rows for group in greedy_groups(haar)] == [(0,), (1,), (2, 3)]
    hadamard = np.array([[1, 1], [1, -1]])
    assert all(group.exact and len(group.rows) == 1 for group in greedy_groups(hadamard))


def test_rows_of_different_sizes_do_not_share_a_group() -> None:
    """|2| and |1| differ, zeros ask nothing, and a group that leaves a column out is not exact."""
    groups = greedy_groups(np.array([[2, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]))
    assert [(group.rows, group.norm, group.exact) for group in groups] == [((0,), 2, False), ((1, 2), 1, False)]
