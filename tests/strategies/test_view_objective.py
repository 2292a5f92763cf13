"""The closed-form error of views agrees with dense least squares, and budgets only get better."""

from __future__ import annotations

from itertools import combinations, pairwise, product

import numpy as np
import pytest
from numpy.typing import NDArray

from dpduck.algebra.lattice import close_downward
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.strategies.views.effort import HashCounter, WorkLimit
from dpduck.strategies.views.incidence import lattice_incidence, sparse_incidence
from dpduck.strategies.views.objective import ViewObjective
from dpduck.values.arrays import FloatArray


def dense_marginal(sizes: tuple[int, ...], members: tuple[int, ...]) -> FloatArray:
    """The 0/1 matrix of a marginal over every cell of the domain."""
    cells = list(product(*(range(size) for size in sizes)))
    rows = list(product(*(range(sizes[member]) for member in members)))
    return np.array([[float(tuple(cell[i] for i in members) == row) for cell in cells] for row in rows])


def dense_error(workload: MarginalWorkload, views: list[tuple[int, ...]], budgets: FloatArray) -> float:
    """Weighted total variance of W (S' V^-1 S)^+ W' with noise variance 2/eta^2."""
    blocks = [dense_marginal(workload.sizes, view) * eta / np.sqrt(2) for view, eta in zip(views, budgets, strict=True)]
    strategy = np.concatenate(blocks)
    inverse = np.linalg.pinv(strategy.T @ strategy, rcond=1e-11, hermitian=True)
    total = 0.0
    for marginal, weight in zip(workload.marginals, workload.weights, strict=True):
        asked = dense_marginal(workload.sizes, marginal)
        total += weight * float(np.trace(asked @ inverse @ asked.T))
    return total


def random_problem(seed: int) -> tuple[MarginalWorkload, list[tuple[int, ...]], FloatArray]:
    """A few marginals of a small domain, and views that contain each marginal."""
    source = HashCounter(f"problem {seed}")
    sizes = tuple(1 + source.below(4) for _ in range(4))
    every = [members for order in range(4) for members in combinations(range(4), order)]
    asked = tuple({every[source.below(len(every))] for _ in range(4)})
    workload = MarginalWorkload(sizes, asked, tuple(0.5 + source.uniform() for _ in asked))
    used = sorted(set().union(*asked))
    extra = [tuple(i for i in used if source.uniform() < 0.6) for _ in range(3)]
    views = [tuple(sorted({*marginal, *(i for i in used if source.uniform() < 0.3)})) for marginal in asked] + extra
    return workload, views, np.array([0.2 + source.uniform() for _ in views])


def objective_and_views(
    workload: MarginalWorkload, sets: list[tuple[int, ...]]
) -> tuple[ViewObjective, NDArray[np.bool_]]:
    lattice = close_downward(workload.marginals, workload.sizes)
    views = np.array([[attribute in members for attribute in lattice.attributes] for members in sets], dtype=np.bool_)
    return ViewObjective.of(workload, lattice), views.reshape(len(sets), len(lattice.attributes))


@pytest.mark.parametrize("seed", range(25))
def test_error_is_that_of_dense_least_squares(seed: int) -> None:
    """Requirement: the objective = the pseudo-inverse's total variance to 1e-9, attributes of one value included."""
    workload, sets, budgets = random_problem(seed)
    objective, views = objective_and_views(workload, sets)
    value = objective.value(objective.incidence(views), objective.cells(views), budgets) / budgets.sum() ** 2
    assert value == pytest.approx(dense_error(workload, sets, budgets), rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_sparse_incidence_is_the_dense_one(seed: int) -> None:
    """Requirement: large workloads, evaluated sparsely, have the same error."""
    workload, sets, _ = random_problem(seed)
    objective, views = objective_and_views(workload, sets)
    built = sparse_incidence(objective.lattice, objective.nonempty, views)
    assert (built.toarray() == objective.incidence(views)).all()


@pytest.mark.parametrize("seed", range(10))
def test_transforms_over_the_lattice_are_the_dense_incidence(seed: int) -> None:
    """Requirement: transforms over the lattice give the products of the dense incidence, without building it."""
    objective, _ = objective_and_views(random_problem(seed)[0], [()])
    views = objective.lattice.membership[::2]
    operator = lattice_incidence(objective.lattice, objective.nonempty, views)
    assert operator is not None
    dense = objective.incidence(views)
    budgets, weights = np.arange(1.0, len(views) + 1), np.arange(1.0, dense.shape[1] + 1)
    assert operator.T @ budgets == pytest.approx(dense.T @ budgets)
    assert operator @ weights == pytest.approx(dense @ weights)
    every_second = np.arange(len(views)) % 2 == 0
    assert operator[every_second] @ weights == pytest.approx(dense[every_second] @ weights)


@pytest.mark.parametrize("seed", range(10))
def test_gradient_is_the_difference_quotient(seed: int) -> None:
    """Requirement: the gradient is the objective's own."""
    workload, sets, budgets = random_problem(seed)
    objective, views = objective_and_views(workload, sets)
    incidence, cells = objective.incidence(views), objective.cells(views)

    def total(shares: FloatArray) -> float:
        return objective.value(incidence, cells, shares) / float(shares.sum()) ** 2

    slope = objective.gradient(incidence, cells, budgets)
    for view in range(len(budgets)):
        step = np.zeros(len(budgets))
        step[view] = 1e-6
        quotient = (total(budgets + step) - total(budgets - step)) / 2e-6
        assert slope[view] == pytest.approx(quotient, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_every_round_of_budgets_lowers_the_error(seed: int) -> None:
    """Requirement: alternating recovery and budgets is monotone, and at its end the gradient is level."""
    workload, sets, budgets = random_problem(seed)
    objective, views = objective_and_views(workload, sets)
    incidence, cells = objective.incidence(views), objective.cells(views)
    errors = [objective.improve(incidence, cells, budgets, rounds)[1] for rounds in range(12)]
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in pairwise(errors))
    left, shares, value = objective.converge(views, budgets, 1e-13, WorkLimit(10))
    slope = objective.gradient(objective.incidence(left), objective.cells(left), shares)
    assert value <= errors[-1] * (1 + 1e-12)
    assert slope @ shares == pytest.approx(-2 * value, rel=1e-9)  # homogeneous of degree -2
    assert (slope * shares <= -2 * value * shares * (1 - 1e-3) + 1e-3 * value).all()


def test_what_no_view_contains_has_no_finite_error() -> None:
    """Requirement: views that leave an asked marginal out are never taken for an answer."""
    workload = MarginalWorkload((3, 4), ((0,), (1,)), (1.0, 1.0))
    objective, views = objective_and_views(workload, [(0,)])
    assert objective.value(objective.incidence(views), objective.cells(views), np.ones(1)) == float("inf")
