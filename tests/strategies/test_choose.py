"""The planner ranks every candidate by its predicted error, and refuses unknown strategies."""

from fractions import Fraction

import pytest

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.choose import MOST_PROGRAM_CELLS, plan_workload
from dpduck.values.errors import Refusal

PAPER = MarginalWorkload((2, 2, 2), ((0,), (0, 1)), (1.0, 1.0))
EPSILON = Fraction(1, 1000)


@pytest.mark.parametrize(
    ("budgets", "consistency", "expected"),
    [("uniform", "none", 48.0), ("optimal", "none", 46.1679), ("uniform", "l2", 32.0), ("optimal", "l2", 29.9534)],
)
def test_figure_1_of_the_paper(budgets: str, consistency: str, expected: float) -> None:
    """Figure 1 under Q and Q+, with and without least squares, times epsilon^2."""
    (plan,) = plan_workload(PAPER, NoiseKind.LAPLACE, EPSILON, 1, "Q", budgets, consistency)
    assert plan.total_variance * 1e-6 == pytest.approx(expected, rel=2e-6)


@pytest.mark.parametrize("noise", list(NoiseKind))
def test_a_single_marginal_is_measured_itself(noise: NoiseKind) -> None:
    """A workload of one marginal is answered by that marginal's own table."""
    workload = MarginalWorkload((2, 2, 2), ((0, 1),), (1.0,))
    plans = plan_workload(workload, noise, EPSILON, 2)
    assert plans[0].strategy == "I"
    assert plans[0].measurements[0].query.attributes == (0, 1)
    assert plans[0].total_variance == min(plan.total_variance for plan in plans)


@pytest.mark.parametrize("noise", list(NoiseKind))
@pytest.mark.parametrize("amount", [Fraction(1, 1000), Fraction(1), Fraction(7), Fraction(40)])
def test_no_rival_of_one_table_is_better(noise: NoiseKind, amount: Fraction) -> None:
    """One marginal is measured as it is, without planning its rivals, and no rival has less variance at any price."""
    for sizes in ((2,), (3, 5), (2, 2, 2, 2), (40, 7)):
        workload = MarginalWorkload(sizes, (tuple(range(len(sizes))),), (1.0,))
        (alone,) = plan_workload(workload, noise, amount, 3, rivals=False)
        plans = plan_workload(workload, noise, amount, 3)
        assert alone == plans[0] and len(plans) > 4
        assert all(plan.total_variance >= alone.total_variance * (1 - 1e-9) for plan in plans)
    several = MarginalWorkload((2, 3), ((0,), (0, 1)), (1.0, 1.0))
    assert len(plan_workload(several, noise, amount, 3, rivals=False)) > 1


def test_figure_1_is_best_answered_by_its_larger_marginal() -> None:
    """The AB marginal alone gives 16, which auto must find."""
    chosen = plan_workload(PAPER, NoiseKind.LAPLACE, EPSILON, 1)[0]
    assert [measurement.query.attributes for measurement in chosen.measurements] == [(0, 1)]
    assert chosen.total_variance * 1e-6 == pytest.approx(16, rel=1e-6)


def test_the_identity_scale_is_the_simple_rational() -> None:
    """One table: b = m / epsilon exactly, sigma^2 = m^2 / (2 rho) exactly."""
    workload = MarginalWorkload((3, 4), ((0, 1), (0,)), (1.0, 1.0))
    assert plan_workload(workload, NoiseKind.LAPLACE, Fraction(3, 7), 4, "I")[0].measurements[0].parameter == Fraction(
        28, 3
    )
    assert plan_workload(workload, NoiseKind.GAUSSIAN, Fraction(3, 7), 4, "I")[0].measurements[0].parameter == Fraction(
        56, 3
    )


@pytest.mark.parametrize("consistency", ["l1", "linf"])
def test_large_linear_programs_are_refused(consistency: str) -> None:
    """Bad input, before anything is planned: how many cells, how many may be, and the way out."""
    size = MOST_PROGRAM_CELLS // 100
    fits, large = (MarginalWorkload((100, one), ((0, 1),), (1.0,)) for one in (size, size + 1))
    with pytest.raises(Refusal) as refused:
        plan_workload(large, NoiseKind.LAPLACE, EPSILON, 1, "I", "uniform", consistency)
    assert str(refused.value) == (
        f"consistency = '{consistency}' solves a linear program over {large.cells} cells; "
        f"accepted: at most {MOST_PROGRAM_CELLS} cells, or consistency = 'l2'"
    )
    assert plan_workload(fits, NoiseKind.LAPLACE, EPSILON, 1, "I", "uniform", consistency)[0].strategy == "I"
    assert plan_workload(large, NoiseKind.LAPLACE, EPSILON, 1, "I", "uniform", "l2")[0].strategy == "I"


@pytest.mark.parametrize(("strategy", "budgets"), [("nonsense", "optimal"), ("Q", "best")])
def test_unknown_names_are_refused_with_the_known_ones(strategy: str, budgets: str) -> None:
    """A refusal lists what would be accepted."""
    with pytest.raises(Refusal, match="accepted: "):
        plan_workload(PAPER, NoiseKind.LAPLACE, EPSILON, 1, strategy, budgets)


def test_residual_queries_that_would_leave_64_bits_are_no_candidates() -> None:
    """Centred queries multiply counts by every size: beyond 2^22 the other strategies serve."""
    big = MarginalWorkload((3000, 3000), ((0, 1), (0,)), (1.0, 1.0))
    names = {plan.strategy for plan in plan_workload(big, NoiseKind.GAUSSIAN, EPSILON, 1)}
    assert "R" not in names
    assert "F+" in names
    with pytest.raises(Refusal, match="strategy = 'R' cannot serve this workload; accepted: strategy = 'auto'"):
        plan_workload(big, NoiseKind.GAUSSIAN, EPSILON, 1, "R")


def test_a_workload_that_nothing_can_serve_is_refused() -> None:
    """Too many cells for one table and too many subsets for the rest: one line with the way out."""
    wide = MarginalWorkload((2,) * 30, (tuple(range(29)), tuple(range(1, 30))), (1.0, 1.0))
    with pytest.raises(Refusal, match="no strategy can serve 2 grouping sets with 1073741824 cells; accepted: fewer"):
        plan_workload(wide, NoiseKind.LAPLACE, EPSILON, 1)


def test_noise_smaller_than_doubles_are_is_planned() -> None:
    """A search for a price passes by amounts at which a variance is 0 as a double: errors stay numbers."""
    workload = MarginalWorkload((2, 3), ((), (0,), (1,), (0, 1)), (1.0,) * 4)
    for plan in plan_workload(workload, NoiseKind.GAUSSIAN, Fraction(10**13), 1):
        assert all(0 <= variance < 1e-9 for variance in plan.variances), plan.strategy
