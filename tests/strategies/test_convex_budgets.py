"""The convex program (1)-(3) of the datacubes paper, against a general solver."""

import numpy as np
import pytest

from dpduck.strategies.convex_budgets import convex_budgets
from tests.strategies.test_budgets import solve


@pytest.mark.parametrize("power", [1, 2])
def test_the_program_is_optimal_without_groups(power: int) -> None:
    """On matrices without groups the objective is a general solver's to 1e-6, and no column costs too much."""
    generator = np.random.default_rng(2)
    for _ in range(10):
        drawn = generator.integers(0, 3, (int(generator.integers(2, 10)), int(generator.integers(2, 8))))
        costs = drawn[drawn.any(axis=1)].astype(np.float64)
        weights = generator.uniform(0.1, 2, len(costs))
        eta = convex_budgets(costs, weights, power)
        assert (costs.T @ eta).max() <= 1 + 1e-12
        assert (weights * eta**-power).sum() == pytest.approx(solve(costs, weights, power), rel=1e-6)


@pytest.mark.parametrize("power", [1, 2])
def test_budgets_fit_however_early_the_search_ends(power: int) -> None:
    """With no step after the solver every row has a budget, and every column costs at most 1."""
    costs = np.random.default_rng(3).integers(1, 9, (12, 7)).astype(np.float64)
    for steps in (0, 1):
        eta = convex_budgets(costs, np.ones(12), power, polishes=steps)
        assert eta.min() > 0 and (costs.T @ eta).max() <= 1 + 1e-12
