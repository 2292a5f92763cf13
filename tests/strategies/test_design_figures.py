"""The figures of the design, sections 4.5 and 4.6, from the planner's predictions."""

from fractions import Fraction
from itertools import combinations
from math import comb, prod

import pytest

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.choose import plan_workload

ADULT8 = (9, 16, 7, 15, 6, 5, 2, 2)
BIN16 = (2,) * 16
TINY = Fraction(1, 1000)  # discrete noise tends to continuous noise for small budgets
ORDERS = ((1,), (2,), (3,), (0, 1, 2, 3))  # "up to 3-way" includes the total: without it Q uniform is 130.1, not 131.5


def ways(sizes: tuple[int, ...], orders: tuple[int, ...]) -> MarginalWorkload:
    marginals = tuple(combo for order in orders for combo in combinations(range(len(sizes)), order))
    return MarginalWorkload(sizes, marginals, (1.0,) * len(marginals))


def error(workload: MarginalWorkload, noise: NoiseKind, strategy: str, budgets: str, consistency: str) -> float:
    """Root mean squared error per released cell at epsilon = 1, or sigma = 1."""
    amount = TINY if noise is NoiseKind.LAPLACE else TINY**2 / 2
    plan = plan_workload(workload, noise, amount, 1, strategy, budgets, consistency)[0]
    return float((plan.total_variance / workload.cells) ** 0.5 * TINY)


TABLE = [
    # sizes, noise, Q uniform, Q+ with least squares, F+ (plain inverse, valid cells), by ORDERS, as printed there
    (ADULT8, NoiseKind.GAUSSIAN, "2.828 5.292 7.483 9.644", "2.474 4.091 5.186 5.613", "2.441 4.000 5.055 5.340"),
    (BIN16, NoiseKind.GAUSSIAN, "4.000 10.95 23.66 26.40", "2.916 5.852 9.334 9.590", "2.5000 4.4028 6.3208 6.2952"),
    (ADULT8, NoiseKind.LAPLACE, "11.31 39.60 79.20 131.5", "9.61 29.07 51.34 66.64", "27.9 238 1147 1171"),
    (BIN16, NoiseKind.LAPLACE, "22.63 169.7 792 986", "16.49 90.66 312.4 353.8", "14.09 68.03 212.9 208.8"),
]


def printed(figure: str) -> object:
    """A printed figure stands for all numbers within one unit of its last digit."""
    return pytest.approx(float(figure), abs=1.01 * 10.0 ** -len(figure.partition(".")[2]))


@pytest.mark.parametrize(("sizes", "noise", "uniform", "least_squares", "fourier"), TABLE)
def test_the_columns_of_the_tables(
    sizes: tuple[int, ...], noise: NoiseKind, uniform: str, least_squares: str, fourier: str
) -> None:
    """Q uniform, Q+ with least squares and F+ on all eight workloads under both noises."""
    for column, strategy, budgets, consistency in (
        (uniform, "Q", "uniform", "none"),
        (least_squares, "Q", "optimal", "l2"),
        (fourier, "F", "optimal", "none"),
    ):
        for orders, figure in zip(ORDERS, column.split(), strict=True):
            assert error(ways(sizes, orders), noise, strategy, budgets, consistency) == printed(figure)


@pytest.mark.parametrize(
    ("sizes", "optima"),
    [(ADULT8, (2.3960, 3.8554, 4.7906, 5.0395)), (BIN16, (2.5000, 4.4028, 6.3208, 6.2952))],
)
def test_the_gaussian_optimum(sizes: tuple[int, ...], optima: tuple[float, ...]) -> None:
    """Within 1e-4 of the optimum on all eight workloads, and auto finds it."""
    for orders, optimum in zip(ORDERS, optima, strict=True):
        workload = ways(sizes, orders)
        assert error(workload, NoiseKind.GAUSSIAN, "R", "optimal", "l2") == pytest.approx(optimum, rel=1e-4)
        assert error(workload, NoiseKind.GAUSSIAN, "auto", "optimal", "l2") == pytest.approx(optimum, rel=1e-4)


@pytest.mark.parametrize(("order", "figure"), [(1, 6352.02), (2, 2221317.27)])
def test_fourier_on_all_marginals_of_binary_attributes(order: int, figure: float) -> None:
    """The closed form of F+, d = 16."""
    total = error(ways(BIN16, (order,)), NoiseKind.LAPLACE, "F", "optimal", "l2") ** 2 * 2**order * comb(16, order)
    closed = sum(comb(16, i) * comb(16 - i, order - i) ** (1 / 3) for i in range(order + 1)) ** 3 / 2 ** (order - 1)
    assert total == pytest.approx(figure, rel=1e-6)
    assert total == pytest.approx(closed, rel=1e-6)


@pytest.mark.parametrize("noise", list(NoiseKind))
def test_knowing_the_structural_zeros_lowers_the_error_of_fourier(noise: NoiseKind) -> None:
    """Least squares over the valid cells is never worse than the plain inverse, and better where codes are padded."""
    for orders in ORDERS:
        workload = ways(ADULT8, orders)
        plain, recovered = (error(workload, noise, "F", "optimal", how) for how in ("none", "l2"))
        assert recovered < plain


@pytest.mark.parametrize("noise", list(NoiseKind))
def test_clusters_with_optimal_budgets_are_below_equal_ones(noise: NoiseKind) -> None:
    """The paper's C+ below C, before and after least squares."""
    triples = list(combinations(range(16), 3))[::2]
    for sizes, extra in ((ADULT8, ()), (BIN16, tuple(triples))):
        base = ways(sizes, (2,)).marginals + extra
        workload = MarginalWorkload(sizes, base, (1.0,) * len(base))
        for consistency in ("none", "l2"):
            better, equal = (error(workload, noise, "C", budgets, consistency) for budgets in ("optimal", "uniform"))
            assert better <= equal * (1 + 1e-9)


def test_auto_is_never_worse_than_any_candidate() -> None:
    """The chosen plan comes first and has the least predicted error."""
    for noise in NoiseKind:
        for orders in ORDERS:
            plans = plan_workload(ways(ADULT8, orders), noise, TINY, 1, planning_seconds=0.1)
            assert plans[0].total_variance <= min(plan.total_variance for plan in plans) * (1 + 1e-8)
            rest = [plan.total_variance for plan in plans[1:]]
            assert rest == sorted(rest)
            assert {"I", "Q", "Q+", "F", "F+", "C", "C+"} <= {plan.strategy for plan in plans}


def test_the_residual_optimum_on_unseen_sizes() -> None:
    """The closed formula for any weights: (sum sqrt(p_A v_A))^2 / c."""
    sizes, weights = (3, 5, 7), (1.0, 4.0, 0.25)
    workload = MarginalWorkload(sizes, ((0,), (0, 1), (1, 2)), weights)
    total = 0.0
    for subset in ((), (0,), (1,), (2,), (0, 1), (1, 2)):
        kept = prod((sizes[i] - 1) / sizes[i] for i in subset)
        above = sum(
            weight * prod(sizes[i] for i in marginal) * prod(sizes[j] ** -2 for j in set(marginal) - set(subset))
            for marginal, weight in zip(workload.marginals, weights, strict=True)
            if set(subset) <= set(marginal)
        )
        total += (kept * kept * above) ** 0.5
    plan = plan_workload(workload, NoiseKind.GAUSSIAN, TINY, 1, "R")[0]
    assert plan.total_variance == pytest.approx(total**2 / float(2 * TINY), rel=1e-8)
