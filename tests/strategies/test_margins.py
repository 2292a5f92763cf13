"""Margins as independent observations carry the same information as the measurements, as dense matrices confirm."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pytest

from dpduck.strategies.recovery.margins import Members, close_under_intersection, independent_precisions
from dpduck.values.arrays import FloatArray

SIZES = (3, 2, 4)
EVERY = [tuple(one) for count in range(4) for one in combinations(range(3), count)]


def summing(members: Members) -> FloatArray:
    """The matrix that takes the cells of all axes to a margin."""
    found: FloatArray = np.ones((1, 1))
    for axis, size in enumerate(SIZES):
        found = np.asarray(np.kron(found, np.eye(size) if axis in members else np.ones((1, size))), np.float64)
    return found


def squares(precisions: Mapping[Members, float]) -> FloatArray:
    """The matrix of the sum of squares that margins with these precisions are fitted to."""
    return np.sum([summing(one).T @ summing(one) * precision for one, precision in precisions.items()], axis=0)


def known_variances(information: FloatArray, family: set[Members]) -> dict[Members, float]:
    """The mean variance of the best estimates of each margin, from the sum of squares that was measured."""
    inverse = np.linalg.pinv(information, hermitian=True)
    return {one: float(np.trace(summing(one) @ inverse @ summing(one).T)) / len(summing(one)) for one in family}


@pytest.mark.parametrize("seed", range(12))
def test_measured_margins_are_their_own_observations(seed: int) -> None:
    """Measurements of a few margins return with their variances, and nothing of other margins."""
    draw = np.random.default_rng(seed)
    chosen = [EVERY[place] for place in draw.choice(len(EVERY), 3, replace=False)]
    measured = {one: float(10 ** draw.uniform(-4, 3)) for one in [(0, 1, 2), *chosen]}
    information = squares(measured)
    family = close_under_intersection(measured, 100)
    assert family is not None
    cells = {one: len(summing(one)) for one in family}
    found = independent_precisions(cells, known_variances(information, family))
    for one in family:
        whole = sum(measured[other] * cells[one] / cells[other] for other in measured if set(one) <= set(other))
        assert found[one] == pytest.approx(measured.get(one, 0.0), rel=1e-4, abs=2e-6 * whole), one


def test_components_that_differ_are_averaged() -> None:
    """Margins say of each component what filters say in the mean, or more where they cannot say as little."""
    draw = np.random.default_rng(5)
    rows = np.vstack([summing((0, 1, 2)) * 0.2, (draw.random((3, 24)) < 0.5).astype(float), summing((2,))])
    family = set(EVERY)
    cells = {one: len(summing(one)) for one in family}
    variances = known_variances(rows.T @ rows, family)
    found = independent_precisions(cells, variances)
    assert min(found.values()) >= 0
    again = known_variances(squares(found), family)
    for one in EVERY:
        assert variances[one] / 2 < again[one] < variances[one] * (1 + 1e-9), one


def test_families_are_closed_under_intersection() -> None:
    """Every intersection is in the family, also of three sets. There is no family where it would be too large."""
    assert close_under_intersection([(0, 1), (1, 2), (3,)], 9) == {(0, 1), (1, 2), (3,), (1,), ()}
    assert close_under_intersection([(0, 1, 2), (1, 2, 3), (2, 3, 4)], 9) == {
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (1, 2),
        (2, 3),
        (2,),
    }
    assert close_under_intersection([(0, 1), (1, 2), (3,)], 4) is None
