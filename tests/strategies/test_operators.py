"""Implicit operators equal their dense matrices, and the norms that privacy rests on equal the dense ones."""

from collections.abc import Iterator
from fractions import Fraction
from math import prod

import numpy as np
import pytest

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import NoiseKind
from dpduck.kernel.queries.operators import CentredFactor, Factor, HadamardFactor, IdentityFactor, KroneckerQuery
from dpduck.strategies.choose import CANDIDATES
from dpduck.strategies.marginals.weights import code_count
from dpduck.strategies.plan import PlanningProblem
from dpduck.strategies.ranges.strategy import matrix_of
from dpduck.strategies.variance import adjoint, gram

SIZES = (1, 2, 3, 4, 5, 8, 9)
KINDS = (IdentityFactor, CentredFactor, HadamardFactor)


def dense(query: KroneckerQuery, sizes: tuple[int, ...]) -> np.ndarray:
    """The query as a matrix over the whole domain: ones along the attributes it sums."""
    rows = np.ones((1, 1), dtype=np.int64)
    factors = dict(zip(query.attributes, query.factors, strict=True))
    for attribute, size in enumerate(sizes):
        held = matrix_of(factors[attribute]) if attribute in factors else np.ones((1, size), dtype=np.int64)
        rows = np.kron(rows, held)
    return rows


def random_workload(generator: np.random.Generator) -> MarginalWorkload:
    sizes = tuple(generator.choice(SIZES[:5], size=generator.integers(1, 5)).tolist())
    marginals = [tuple(np.flatnonzero(generator.random(len(sizes)) < 0.5).tolist()) for _ in range(4)]
    return MarginalWorkload(sizes, tuple(marginals), tuple(generator.uniform(0.2, 3, len(marginals)).tolist()))


def problems() -> Iterator[PlanningProblem]:
    generator = np.random.default_rng(20)
    for number in range(12):
        noise = list(NoiseKind)[number % 2]
        yield PlanningProblem(random_workload(generator), noise, Fraction(3, 7), int(generator.integers(1, 4)), "l2")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_factor_is_its_matrix(kind: type[Factor], size: int) -> None:
    """apply, the norms, the Gram coefficients and the adjoint agree with the dense matrix."""
    factor = kind(size)
    matrix = matrix_of(factor)
    generator = np.random.default_rng(size)
    for axis in range(3):
        tensor = np.moveaxis(generator.integers(-9, 9, (size, 2, 3)), 0, axis)
        expected = np.moveaxis(np.tensordot(matrix, tensor, axes=([1], [axis])), 0, axis)
        assert (factor.apply(tensor, axis) == expected).all()
        back = adjoint(factor, expected.astype(np.float64), axis)
        assert back == pytest.approx(np.moveaxis(np.tensordot(matrix.T, expected, axes=([1], [axis])), 0, axis))
    assert matrix.shape == (factor.rows, size)
    assert factor.norms[0] == np.abs(matrix).sum(axis=0).max(initial=0)
    assert factor.norms[1] == (matrix**2).sum(axis=0).max(initial=0)
    alpha, beta = gram(factor) or (0, 0)
    assert (matrix.T @ matrix == alpha * np.eye(size, dtype=np.int64) + beta).all()


def test_hadamard_rows_are_signs_on_valid_codes_only() -> None:
    """Nine values have sixteen codes. The other seven are no columns."""
    matrix = matrix_of(HadamardFactor(9))
    assert matrix.shape == (15, 9)
    assert set(np.unique(matrix)) == {-1, 1}
    assert code_count(9) == 16


def test_every_candidate_measures_what_it_says_and_fits_its_budget() -> None:
    """On random small domains: each query is its dense matrix, its norms are right, the exact cost is at most E."""
    for problem in problems():
        sizes = problem.workload.sizes
        table = np.random.default_rng(1).integers(0, 50, sizes)
        for candidate in CANDIDATES:
            if not candidate.applies(problem):
                continue
            plan = candidate.plan(problem, "optimal")
            columns = 0 * Fraction(1)
            for measurement in plan.measurements:
                query = measurement.query
                rows = dense(query, sizes)
                others = tuple(i for i in range(len(sizes)) if i not in query.attributes)
                answers = query.apply(table.sum(axis=others))
                assert answers.shape == query.shape
                assert (answers.ravel() == rows @ table.ravel()).all()
                assert query.norms[0] == np.abs(rows).sum(axis=0).max()
                assert query.norms[1] == (rows**2).sum(axis=0).max()
                laplace = problem.noise is NoiseKind.LAPLACE
                norm = query.norms[0] if laplace else query.norms[1]
                columns += problem.unit_bound ** (1 if laplace else 2) * norm / measurement.parameter
            budget = problem.amount if problem.noise is NoiseKind.LAPLACE else 2 * problem.amount
            assert columns <= budget, plan.strategy
            assert columns >= budget * (1 - Fraction(1, 10**9)), plan.strategy


def test_sizes_of_the_plan_are_those_of_the_domain() -> None:
    """A binary domain's Fourier strategy has as many coefficients as the workload's rank."""
    problem = PlanningProblem(
        MarginalWorkload((2, 2, 2), ((0, 1), (1, 2)), (1.0, 1.0)), NoiseKind.LAPLACE, Fraction(1), 1, "l2"
    )
    fourier = next(candidate for candidate in CANDIDATES if "F" in candidate.names)
    assert sum(prod(m.query.shape) for m in fourier.plan(problem, "optimal").measurements) == 6
