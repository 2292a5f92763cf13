"""Closed-form least squares against dense pseudo-inverses, and its predicted errors against formulas and chance."""

from collections.abc import Iterator
from fractions import Fraction
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpduck.algebra.lattice import close_downward
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import NoiseKind, noise_variance
from dpduck.kernel.queries.operators import KroneckerQuery
from dpduck.strategies.choose import plan_workload
from dpduck.strategies.measurements import Measurement
from dpduck.strategies.plan import Plan, marginal_query
from dpduck.strategies.ranges.strategy import matrix_of
from dpduck.strategies.recovery.covariances import covariances
from dpduck.strategies.recovery.recover import recover
from dpduck.strategies.variance import workload_variances

STRATEGIES = ("I", "Q", "Q+", "C+", "F", "F+", "R")


def dense(query: KroneckerQuery, sizes: tuple[int, ...]) -> np.ndarray:
    rows: np.ndarray = np.ones((1, 1))
    factors = dict(zip(query.attributes, query.factors, strict=True))
    for attribute, size in enumerate(sizes):
        held = matrix_of(factors[attribute]) if attribute in factors else np.ones((1, size))
        rows = np.kron(rows, held)
    return rows


def dense_workload(workload: MarginalWorkload) -> np.ndarray:
    return np.vstack(
        [dense(marginal_query(marginal, workload.sizes), workload.sizes) for marginal in workload.marginals]
    )


def random_plan(generator: np.random.Generator, strategy: str, consistency: str) -> Plan:
    sizes = tuple(generator.choice([1, 2, 3, 4, 5], size=generator.integers(1, 4)).tolist())
    marginals = tuple(tuple(np.flatnonzero(generator.random(len(sizes)) < 0.5).tolist()) for _ in range(4))
    workload = MarginalWorkload(sizes, marginals, tuple(generator.uniform(0.2, 3, len(marginals)).tolist()))
    noise = NoiseKind.GAUSSIAN if strategy == "R" else list(NoiseKind)[int(generator.integers(2))]
    budgets = "optimal" if strategy.endswith(("+", "R")) else "uniform"
    return plan_workload(workload, noise, Fraction(2, 5), 2, strategy, budgets, consistency)[0]


def linear_map(plan: Plan) -> np.ndarray:
    """The linear map of `recover` on the stacked measurements: its answers to unit vectors, as columns."""
    shapes = [measurement.query.shape for measurement in plan.measurements]
    columns = []
    for number, shape in enumerate(shapes):
        for cell in range(prod(shape)):
            noisy = [np.zeros(other, dtype=np.int64) for other in shapes]
            noisy[number].reshape(-1)[cell] = 1
            columns.append(np.concatenate([answer.ravel() for answer in recover(plan, noisy)]))
    return np.array(columns).T


def noise_of(plan: Plan) -> np.ndarray:
    """Variance of every stacked measurement."""
    return np.concatenate(
        [
            np.full(prod(measurement.query.shape), noise_variance(plan.noise, measurement.parameter))
            for measurement in plan.measurements
        ]
    )


def plans(consistency: str, number: int) -> Iterator[Plan]:
    generator = np.random.default_rng(7)
    for strategy in STRATEGIES:
        for _ in range(number):
            yield random_plan(generator, strategy, consistency)


def per_cell(plan: Plan) -> np.ndarray:
    cells = [prod(plan.workload.sizes[i] for i in marginal) for marginal in plan.workload.marginals]
    return np.repeat(plan.variances, cells)


def test_recovery_is_the_weighted_pseudo_inverse() -> None:
    """On random small domains and workloads: W (S'S/v)^+ S'/v to 1e-9, rank-deficient designs included."""
    for plan in plans("l2", 8):
        sizes = plan.workload.sizes
        strategy = np.vstack([dense(measurement.query, sizes) for measurement in plan.measurements])
        scaled = strategy / np.sqrt(noise_of(plan))[:, None]
        expected = dense_workload(plan.workload) @ np.linalg.pinv(scaled) / np.sqrt(noise_of(plan))
        assert np.abs(linear_map(plan) - expected).max() < 1e-9, plan.strategy


@pytest.mark.parametrize("consistency", ["l2", "none"])
def test_predicted_variances_and_covariances_are_the_dense_ones(consistency: str) -> None:
    """Every cell's variance and the covariance of every pair of released cells, for each strategy, to 1e-9."""
    for plan in plans(consistency, 5):
        linear = linear_map(plan)
        covariance = (linear * noise_of(plan)) @ linear.T
        assert per_cell(plan) == pytest.approx(np.diag(covariance), rel=1e-9), plan.strategy
        model = covariances(plan)
        marginals, sizes = plan.workload.marginals, plan.workload.sizes
        cells = [(marginal, place) for marginal in marginals for place in np.ndindex(*(sizes[i] for i in marginal))]
        tables = {(first, second): model.between(first, second) for first in marginals for second in marginals}
        for row, (first, here) in enumerate(cells):
            for column, (second, there) in enumerate(cells):
                common = sorted(set(first) & set(second))
                agree = tuple(int(here[first.index(i)] == there[second.index(i)]) for i in common)
                covariance[row, column] -= tables[first, second][agree]
        assert np.abs(covariance).max() < 1e-9 * max(plan.variances), plan.strategy


def test_the_covariance_of_two_cells_by_name() -> None:
    """Var(a - b) of two cells that agree on one attribute, from the same formulas."""
    workload = MarginalWorkload((3, 4), ((0,), (0, 1)), (1.0, 1.0))
    (plan,) = plan_workload(workload, NoiseKind.LAPLACE, Fraction(1), 1, "Q")
    found = covariances(plan)
    variance = float(found.between((0, 1), (0, 1))[1, 1])
    assert variance == pytest.approx(plan.variances[1])
    row = 4 * variance + 12 * float(found.between((0, 1), (0, 1))[1, 0])
    assert row == pytest.approx(plan.variances[0])  # a row's sum is the other marginal's cell
    assert float(found.between((0,), (0, 1))[1]) == pytest.approx(row / 4)


def test_consistent_answers_satisfy_all_their_margins() -> None:
    """p = 2: every shared margin of two released tables agrees to 1e-6 of a count."""
    for plan in plans("l2", 4):
        generator = np.random.default_rng(11)
        noisy = [generator.integers(-(10**6), 10**6, m.query.shape) for m in plan.measurements]
        answers = recover(plan, noisy)
        marginals = plan.workload.marginals
        for first, one in zip(marginals, answers, strict=True):
            for second, two in zip(marginals, answers, strict=True):
                left = one.sum(axis=tuple(axis for axis, i in enumerate(first) if i not in second))
                right = two.sum(axis=tuple(axis for axis, i in enumerate(second) if i not in first))
                assert np.abs(left - right).max(initial=0) < 1e-6


def test_any_measured_marginals_with_any_variances() -> None:
    """Views that are no part of the workload, repeated and nested ones, arbitrary parameters: least squares to 1e-9."""
    generator = np.random.default_rng(13)
    for _ in range(8):
        sizes = tuple(generator.integers(1, 4, 4).tolist())
        workload = MarginalWorkload(sizes, ((0, 1), (1, 2), (2,)), (1.0, 2.0, 3.0))
        views = [(0, 1, 3), (1, 2), (1, 2, 3), (1, 2), (3,)]
        measurements = tuple(
            Measurement(marginal_query(view, sizes), Fraction(int(generator.integers(2, 90)))) for view in views
        )
        lattice = close_downward(workload.marginals, sizes)
        variances = workload_variances(lattice, measurements, NoiseKind.GAUSSIAN)
        plan = Plan("views", NoiseKind.GAUSSIAN, workload, measurements, variances)
        scaled = np.vstack([dense(m.query, sizes) for m in measurements]) / np.sqrt(noise_of(plan))[:, None]
        expected = dense_workload(workload) @ np.linalg.pinv(scaled) / np.sqrt(noise_of(plan))
        linear = linear_map(plan)
        assert np.abs(linear - expected).max() < 1e-9
        assert per_cell(plan) == pytest.approx(np.diag((linear * noise_of(plan)) @ linear.T))


@given(st.integers(-(2**52), 2**52), st.integers(1, 4), st.integers(1, 4))
def test_one_marginal_by_identity_is_its_noisy_integers(value: int, rows: int, columns: int) -> None:
    """No floating point touches the answer of a single table."""
    workload = MarginalWorkload((rows, columns), ((0, 1),), (1.0,))
    plan = plan_workload(workload, NoiseKind.LAPLACE, Fraction(1), 1)[0]
    noisy = np.full((rows, columns), value, dtype=np.int64)
    (answer,) = recover(plan, [noisy])
    assert answer.dtype == np.float64
    assert (answer.astype(np.int64) == noisy).all()


def test_structural_zeros_are_not_released() -> None:
    """Answers have the shape of the valid domain, whatever the encoding pads."""
    workload = MarginalWorkload((9, 3), ((0, 1), (0,)), (1.0, 1.0))
    for consistency in ("l2", "none"):
        (plan,) = plan_workload(workload, NoiseKind.LAPLACE, Fraction(1), 1, "F", "optimal", consistency)
        noisy = [np.zeros(measurement.query.shape, dtype=np.int64) for measurement in plan.measurements]
        assert [answer.shape for answer in recover(plan, noisy)] == [(9, 3), (9,)]


def drawn(plan: Plan, runs: int, generator: np.random.Generator) -> np.ndarray:
    """Discrete noise for every stacked measurement: differences of geometrics, or inversion of the Gaussian's table."""
    blocks = []
    for measurement in plan.measurements:
        shape = (runs, prod(measurement.query.shape))
        parameter = float(measurement.parameter)
        if plan.noise is NoiseKind.LAPLACE:
            rate = -np.expm1(-1 / parameter)
            blocks.append(generator.geometric(rate, shape) - generator.geometric(rate, shape))
        else:
            reach = np.arange(-int(12 * parameter**0.5) - 2, int(12 * parameter**0.5) + 3)
            weights = np.exp(-(reach**2) / (2 * parameter))
            blocks.append(generator.choice(reach, shape, p=weights / weights.sum()))
    return np.concatenate(blocks, axis=1)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_predicted_variance_is_the_variance_of_20000_runs(strategy: str) -> None:
    """Each cell within 5 standard errors of its own empirical variance: a false alarm in 20,000 draws of the seed.

    300 cells at most over all strategies, each with probability 6e-7 under normality. The seed is fixed.
    """
    generator = np.random.default_rng(17)
    workload = MarginalWorkload((3, 2, 4), ((0, 1), (1, 2), (0,), ()), (1.0, 1.0, 2.0, 1.0))
    for noise in NoiseKind:
        if strategy == "R" and noise is NoiseKind.LAPLACE:
            continue
        (plan,) = plan_workload(workload, noise, Fraction(2), 1, strategy)
        errors = drawn(plan, 20_000, generator) @ linear_map(plan).T
        squares = errors**2
        deviation = squares.std(axis=0) / len(squares) ** 0.5
        assert (np.abs(squares.mean(axis=0) - per_cell(plan)) < 5 * deviation).all(), (strategy, noise)


def test_the_way_from_counts_to_answers() -> None:
    """Without noise every strategy returns the exact marginals."""
    table = np.random.default_rng(19).integers(0, 100, (3, 4, 2, 5))
    workload = MarginalWorkload((3, 4, 2, 5), ((0, 1), (1, 2, 3), (), (3,), (0, 1)), (1.0,) * 5)

    def margin(attributes: tuple[int, ...]) -> np.ndarray:
        return np.asarray(table.sum(axis=tuple(i for i in range(4) if i not in attributes)))

    for strategy in STRATEGIES:
        for consistency in ("l2", "none"):
            (plan,) = plan_workload(workload, NoiseKind.GAUSSIAN, Fraction(1), 1, strategy, "optimal", consistency)
            noisy = [measurement.query.apply(margin(measurement.query.attributes)) for measurement in plan.measurements]
            answers = recover(plan, noisy)
            for marginal, answer in zip(workload.marginals, answers, strict=True):
                assert answer == pytest.approx(margin(marginal), abs=1e-9), (strategy, consistency)
            answers[0][...] = 0  # answers are arrays of their own
            assert answers[4].any()
