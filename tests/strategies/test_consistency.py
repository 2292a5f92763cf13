"""Consistency for p = 1 and p = infinity: all margins agree, and no consistent answer is nearer."""

from fractions import Fraction
from itertools import combinations
from math import prod

import numpy as np
import pytest
from scipy.optimize import linprog

from dpduck.algebra.lattice import close_downward
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.choose import plan_workload
from dpduck.strategies.recovery.consistent import coordinates, nearest_consistent
from dpduck.strategies.recovery.recover import recover, recover_linearly
from dpduck.values.errors import Refusal


def dense_workload(workload: MarginalWorkload) -> np.ndarray:
    """Rows of every marginal's cells over the whole domain."""
    blocks = []
    for marginal in workload.marginals:
        rows: np.ndarray = np.ones((1, 1))
        for attribute, size in enumerate(workload.sizes):
            rows = np.kron(rows, np.eye(size) if attribute in marginal else np.ones((1, size)))
        blocks.append(rows)
    return np.vstack(blocks)


def dense_distance(rows: np.ndarray, answers: np.ndarray, weights: np.ndarray, norm: str) -> float:
    """The least weighted distance over all tables x of size N, by a dense linear program without a closed form."""
    count, cells = rows.shape
    if norm == "l1":
        bound, cost = -np.diag(1 / weights), np.concatenate([np.zeros(cells), np.ones(count)])
    else:
        bound, cost = -1 / weights[:, None], np.concatenate([np.zeros(cells), np.ones(1)])
    above, below = np.hstack([rows, bound]), np.hstack([-rows, bound])
    solved = linprog(
        cost, A_ub=np.vstack([above, below]), b_ub=np.concatenate([answers, -answers]), bounds=(None, None)
    )
    return float(solved.fun)


def random_workload(generator: np.random.Generator) -> MarginalWorkload:
    sizes = tuple(generator.integers(1, 4, 3).tolist())
    family = [combo for order in range(4) for combo in combinations(range(3), order)]
    chosen = tuple(family[number] for number in generator.choice(len(family) - 1, 4, replace=False))
    return MarginalWorkload(sizes, chosen, (1.0,) * 4)


def shared_margins_differ_by(workload: MarginalWorkload, tables: tuple[np.ndarray, ...]) -> float:
    worst = 0.0
    for first, one in zip(workload.marginals, tables, strict=True):
        for second, two in zip(workload.marginals, tables, strict=True):
            left = one.sum(axis=tuple(axis for axis, i in enumerate(first) if i not in second))
            right = two.sum(axis=tuple(axis for axis, i in enumerate(second) if i not in first))
            worst = max(worst, float(np.abs(left - right).max()))
    return worst


@pytest.mark.parametrize("norm", ["l1", "linf"])
@pytest.mark.parametrize("budgets", ["uniform", "optimal"])
def test_the_answer_is_consistent_and_as_near_as_a_dense_program(norm: str, budgets: str) -> None:
    """Margins to 1e-6 of a count. The weighted distance is the dense optimum's on small domains."""
    generator = np.random.default_rng(23)
    for _ in range(8):
        workload = random_workload(generator)
        (plan,) = plan_workload(workload, NoiseKind.LAPLACE, Fraction(1, 3), 1, "Q", budgets, norm)
        noisy = [generator.integers(-(10**5), 10**5, m.query.shape) for m in plan.measurements]
        answers = recover(plan, noisy)
        assert shared_margins_differ_by(workload, answers) < 1e-6
        deviations = np.sqrt(plan.variances)
        weights = np.repeat(deviations.max() / deviations, [table.size for table in noisy])
        given = np.concatenate([table.ravel() for table in noisy]).astype(np.float64)
        moved = weights * np.abs(np.concatenate([table.ravel() for table in answers]) - given)
        least = dense_distance(dense_workload(workload), given, weights, norm)
        assert (moved.sum() if norm == "l1" else moved.max()) == pytest.approx(least, rel=1e-7, abs=1e-6)


def test_of_all_optima_the_nearest_to_least_squares_is_answered() -> None:
    """200 tables of two cells beside their totals: the worst table decides the least maximum, and the others are
    answered by least squares. A vertex of the program is off three times as far. The draws are fixed."""
    workload = MarginalWorkload((200, 2), ((0, 1), (0,)), (1.0, 1.0))
    (plan,) = plan_workload(workload, NoiseKind.LAPLACE, Fraction(1), 1, "Q", "optimal", "linf")
    generator = np.random.default_rng(37)
    for _ in range(4):
        noisy = [np.rint(generator.laplace(0, float(m.parameter), m.query.shape)) for m in plan.measurements]
        exact = [table.astype(np.int64) for table in noisy]  # of empty tables: answers are errors
        moved = [
            float(np.sqrt(np.mean((one - other) ** 2)))
            for one, other in zip(recover(plan, exact), recover_linearly(plan, exact), strict=True)
        ]
        assert max(moved) < 0.3
        errors = [float(np.sqrt(np.mean(table**2))) for table in recover(plan, exact)]
        assert all(error < 1.1 * variance**0.5 for error, variance in zip(errors, plan.variances, strict=True))


def test_the_variables_are_the_rank_of_the_workload() -> None:
    """There are as many coordinates as the workload has rank, never N, and they span the space of its marginals."""
    generator = np.random.default_rng(29)
    for _ in range(10):
        workload = random_workload(generator)
        design = coordinates(close_downward(workload.marginals, workload.sizes)).toarray()
        rows = dense_workload(workload)
        rank = np.linalg.matrix_rank(rows)
        assert design.shape == (rows.shape[0], rank)
        assert np.linalg.matrix_rank(np.hstack([design, rows])) == rank == np.linalg.matrix_rank(design)


def test_forty_attributes_have_a_small_program() -> None:
    """A domain of 2^40 cells: the program sees the released cells only."""
    workload = MarginalWorkload((2,) * 40, ((0, 20), (20, 39), (0, 39)), (1.0,) * 3)
    for norm in ("l1", "linf"):
        (plan,) = plan_workload(workload, NoiseKind.LAPLACE, Fraction(1), 1, "Q", "optimal", norm)
        noisy = [np.arange(4).reshape(2, 2) * (number + 1) for number in range(3)]
        assert shared_margins_differ_by(workload, recover(plan, noisy)) < 1e-6


def test_consistent_answers_stay_as_they_are() -> None:
    """The nearest consistent tables to consistent tables are themselves."""
    table = np.random.default_rng(31).integers(0, 99, (3, 4, 2)).astype(np.float64)
    workload = MarginalWorkload((3, 4, 2), ((0, 1), (1, 2)), (1.0, 1.0))
    exact = [table.sum(axis=2), table.sum(axis=0)]
    zero = [np.zeros_like(margin) for margin in exact]
    for norm in ("l1", "linf"):
        for found, margin in zip(nearest_consistent(workload, exact, [1.0, 2.0], zero, norm), exact, strict=True):
            assert found == pytest.approx(margin, abs=1e-6)


def test_programs_that_take_minutes_are_refused() -> None:
    """The refusal names the size and the way out, before anything is charged."""
    workload = MarginalWorkload((200, 200), ((0, 1), (0,)), (1.0, 1.0))
    with pytest.raises(Refusal, match=r"over 40200 cells; accepted: at most 25000 cells, or consistency = 'l2'"):
        plan_workload(workload, NoiseKind.LAPLACE, Fraction(1), 1, "Q", "optimal", "l1")
    assert prod(workload.sizes) > 25_000
