"""Least squares under public totals, against dense matrices: the equations hold, and no variance grows."""

from fractions import Fraction
from itertools import combinations, product
from math import prod

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.choose import plan_workload
from dpduck.strategies.plan import Plan
from dpduck.strategies.recovery.covariances import covariances
from dpduck.strategies.recovery.fixed_margins import margins_agree, projection_onto_margins
from dpduck.strategies.recovery.projection import Equations, projection_onto
from dpduck.strategies.recovery.recover import recover

SIZES = (2, 3, 4)
CUBE = tuple(chosen for size in range(4) for chosen in combinations(range(3), size))
FAMILIES = [CUBE, ((0, 1, 2),), ((0, 1), (1, 2)), ((0,), (0, 1)), ((), (2,))]
STRATEGIES = ["I", "Q", "R", "C", "F"]


def plan_of(sets: tuple[tuple[int, ...], ...], strategy: str, noise: NoiseKind = NoiseKind.GAUSSIAN) -> Plan:
    workload = MarginalWorkload(SIZES, sets, (1.0,) * len(sets))
    return plan_workload(workload, noise, Fraction(1, 2), 1, strategy=strategy)[0]


def sums_of_cells(sets: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """Returns the matrix from the table of all keys to the cells of all sets."""
    every = list(product(*map(range, SIZES)))
    rows = []
    for members in sets:
        for labels in product(*(range(SIZES[key]) for key in members)):
            rows.append([float(all(cell[k] == v for k, v in zip(members, labels, strict=True))) for cell in every])
    return np.array(rows)


def dense_covariance(plan: Plan) -> np.ndarray:
    """Returns the covariance of all released cells: the recovery is linear, so unit noises give its matrix."""
    zeros = [np.zeros(measurement.query.shape, np.int64) for measurement in plan.measurements]
    variance, columns = [], []
    for number, measurement in enumerate(plan.measurements):
        for place in range(zeros[number].size):
            noisy = [part.copy() for part in zeros]
            noisy[number].flat[place] = 10**6
            columns.append(np.concatenate([part.ravel() for part in recover(plan, noisy)]) / 1e6)
            variance.append(float(measurement.parameter))
    matrix = np.array(columns).T
    return (matrix * variance) @ matrix.T


def equations(sets: tuple[tuple[int, ...], ...], rows: np.ndarray, truth: np.ndarray) -> Equations:
    return Equations(sets, SIZES, scipy.sparse.csr_array(rows), rows @ truth)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FAMILIES), st.sampled_from(STRATEGIES), st.integers(0, 10**6), st.integers(1, 6))
def test_it_is_the_projection_of_dense_matrices(sets, strategy, seed, count) -> None:
    """Estimates and variances are those of the textbook formula. No variance grows, and every equation holds."""
    random = np.random.default_rng(seed)
    plan, cells = plan_of(sets, strategy), sum(prod(SIZES[key] for key in members) for members in sets)
    rows = random.integers(0, 2, (count, cells)).astype(float)
    rows[-1] = rows[0]  # an equation that repeats another
    truth = sums_of_cells(sets) @ random.integers(0, 50, prod(SIZES)).astype(float)
    asked = equations(sets, rows, truth)
    found = projection_onto(asked, covariances(plan))
    own = dense_covariance(plan)
    gains = own @ rows.T @ np.linalg.pinv(rows @ own @ rows.T, rcond=1e-9)
    after = own - gains @ rows @ own
    scale = own.diagonal().max()
    assert found.variances == pytest.approx(after.diagonal(), abs=1e-6 * scale)
    assert (found.variances <= own.diagonal() * (1 + 1e-9)).all() and (found.variances >= 0).all()
    noisy = truth + scipy.linalg.sqrtm(own + 1e-12 * np.eye(cells)).real @ random.normal(size=cells)
    answers = found.project(noisy)
    assert rows @ answers == pytest.approx(rows @ truth, abs=1e-6 * max(1.0, np.abs(truth).max()))
    assert answers == pytest.approx(noisy - gains @ (rows @ noisy - rows @ truth), abs=1e-4 * scale**0.5)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_known_margin_has_no_error_and_its_cells_have_less(strategy: str) -> None:
    """Totals by the first key: these cells are exact, those by all keys have less noise, in the whole cube."""
    plan = plan_of(CUBE, strategy)
    lifted = sums_of_cells(CUBE)
    first, place = prod(()), 0
    for members in CUBE:
        if members == (0,):
            first = place
        place += prod(SIZES[key] for key in members)
    rows = np.zeros((2, len(lifted)))
    rows[0, first] = rows[1, first + 1] = 1
    found = projection_onto(equations(CUBE, rows, lifted @ np.ones(prod(SIZES))), covariances(plan))
    by_set = dict(zip(CUBE, found.split(found.variances), strict=True))
    assert (by_set[()] == 0).all() and (by_set[0,] == 0).all()
    before = dict(zip(CUBE, plan.variances, strict=True))
    assert 0 < by_set[0, 1, 2].max() < before[0, 1, 2] and 0 < by_set[0, 1].max() < before[0, 1]


def test_totals_that_no_table_has_are_found() -> None:
    """Two sets have one sum of all cells, also if neither set is a part of the other."""
    sets = ((0,), (1,))
    rows = np.array([[1.0, 1, 0, 0, 0], [0, 0, 1, 1, 1]])
    assert Equations(sets, SIZES, scipy.sparse.csr_array(rows), np.array([7.0, 7.0])).agree()
    assert not Equations(sets, SIZES, scipy.sparse.csr_array(rows), np.array([7.0, 8.0])).agree()
    twice = np.vstack([rows[0], rows[0]])
    assert not Equations(sets, SIZES, scipy.sparse.csr_array(twice), np.array([1e6, 1e6 + 1])).agree()
    assert Equations(sets, SIZES, scipy.sparse.csr_array(rows[:1]), np.array([-5.0])).agree()


MARGINS = [((0,),), ((),), ((0,), (1,)), ((0, 1), (2,)), ((0, 1), (1, 2), (0, 2)), ((0, 1, 2),)]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("margins", MARGINS)
def test_whole_margins_are_the_same_projection(margins: tuple[tuple[int, ...], ...], strategy: str) -> None:
    """In closed form, margins that are known in full lead to the estimates and variances of all their equations."""
    random, plan = np.random.default_rng(5), plan_of(CUBE, strategy)
    table = random.integers(0, 90, SIZES).astype(float)
    known = {members: table.sum(axis=tuple(k for k in range(3) if k not in members)) for members in margins}
    assert margins_agree(known)
    lifted, starts = sums_of_cells(CUBE), np.cumsum([0, *(prod(SIZES[key] for key in members) for members in CUBE)])
    places = [place for members in margins for place in range(*starts[[CUBE.index(members), CUBE.index(members) + 1]])]
    wanted = projection_onto(equations(CUBE, np.eye(len(lifted))[places], lifted @ table.ravel()), covariances(plan))
    found = projection_onto_margins(CUBE, SIZES, known, covariances(plan))
    assert found.variances == pytest.approx(wanted.variances, rel=1e-6, abs=1e-9)
    assert (found.variances == 0).tolist() == (wanted.variances == 0).tolist()
    noisy = np.concatenate([part.ravel() for part in recover(plan, noisy_of(plan, random))])
    assert found.project(noisy) == pytest.approx(wanted.project(noisy), abs=1e-6)
    if len(margins) > 1:
        assert not margins_agree({**known, margins[0]: known[margins[0]] + 0.5})


def noisy_of(plan: Plan, random: np.random.Generator) -> list[np.ndarray]:
    return [random.integers(-99, 99, measurement.query.shape) for measurement in plan.measurements]
