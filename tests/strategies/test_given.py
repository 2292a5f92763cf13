"""Marginals and their precisions given the known answers: the least error of both together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.marginals.given import Gap, best_precisions, even_out, least_amount, shares_of

SIZES = (3, 4)


def gap(known: tuple[float, ...], kept: int = 2) -> Gap:
    """A row of 3 x 4 cells that adds up `kept` codes of the second axis, if four components are known."""
    along = [(1 / 3, 2 / 3), (kept**2 / 4, kept - kept**2 / 4)]
    asked = [along[0][number & 1] * along[1][number >> 1] for number in range(4)]
    return Gap(SIZES, np.array(known), np.array([asked]))


def dense_variance(precisions: np.ndarray, kept: int = 2) -> float:
    """The row's variance by dense least squares, from these marginals alone."""
    ones, eyes = [np.ones((1, size)) for size in SIZES], [np.eye(size) for size in SIZES]
    matrix = np.zeros((12, 12))
    for number, precision in enumerate(precisions):
        rows = np.kron((eyes if number & 1 else ones)[0], (eyes if number >> 1 else ones)[1])
        matrix += precision * rows.T @ rows
    row = np.kron([1, 0, 0], [1] * kept + [0] * (4 - kept))
    return float(row @ np.linalg.pinv(matrix) @ row)


def test_variances_are_those_of_least_squares() -> None:
    """The formula equals the dense pseudo-inverse."""
    precisions = np.array([0.3, 1.7, 0.2, 0.9])
    assert gap((0, 0, 0, 0)).variances(precisions)[0] == pytest.approx(dense_variance(precisions), rel=1e-12)


@pytest.mark.parametrize("known", [(0.0, 0, 0, 0), (30.0, 0, 0, 0), (30, 8, 0, 0), (30, 8, 12, 2)])
def test_no_other_precisions_are_better(known: tuple[float, ...]) -> None:
    """A general solver finds nothing better, whatever is known."""
    asked = gap(known)
    found = best_precisions(asked, NoiseKind.GAUSSIAN, 0.5)
    assert found.sum() == pytest.approx(1)
    best = float(asked.variances(found)[0])
    solved = min(
        float(
            minimize(lambda x: float(asked.variances(np.exp(x) / np.exp(x).sum())[0]), start, method="Nelder-Mead").fun
        )
        for start in (np.zeros(4), np.array([0.0, 0, 0, 3]), np.array([0.0, 2, 2, 0]))
    )
    assert best <= solved * (1 + 1e-3)


def test_what_is_known_is_not_measured_again() -> None:
    """One marginal is known exactly: everything goes where something is missing. Nothing known: into the one table."""
    shares = shares_of(best_precisions(gap((0, 0, 0, 0), 1), NoiseKind.GAUSSIAN, 0.5), NoiseKind.GAUSSIAN)
    assert shares[3] == pytest.approx(1), "one table is measured as it is"
    precise = gap((1e9, 1e9, 0, 0), 4)  # of all four codes: the first axis alone, which is known
    assert precise.variances(np.zeros(4))[0] < 1e-6


def test_laplace_noise_is_shared_by_its_own_price() -> None:
    """Shares of epsilon add up to one, and the least price reaches its target and no more."""
    for noise in NoiseKind.LAPLACE, NoiseKind.GAUSSIAN:
        least = least_amount(gap((3, 0, 1, 0)), noise, 0.5, 1000.0)
        assert least is not None
        precisions = best_precisions(gap((3, 0, 1, 0)), noise, least)
        assert shares_of(precisions, noise).sum() == pytest.approx(1)
        assert 0.24 < gap((3, 0, 1, 0)).variances(precisions)[0] <= 0.25
        assert least_amount(gap((3, 0, 1, 0)), noise, 0.5, least / 2) is None


@pytest.mark.parametrize("noise", list(NoiseKind))
@pytest.mark.parametrize("known", [(0.0, 0, 0, 0), (30.0, 8, 0, 0)])
def test_rows_that_err_most_decide_the_price(noise: NoiseKind, known: tuple[float, ...]) -> None:
    """A total, a margin and cells: weights by error reach the target for less than the least sum of variances does."""
    cells = [1 / 12, 2 / 12, 3 / 12, 6 / 12]
    asked = Gap(SIZES, np.array(known), np.array([[12.0, 0, 0, 0], [4 / 3, 8 / 3, 0, 0], *[cells] * 12]))
    even = even_out(asked, noise, 0.5, 1000.0)
    plain, least = least_amount(asked, noise, 0.5, 1000.0), least_amount(even, noise, 0.5, 1000.0)
    assert plain is not None and least is not None and least < 0.93 * plain
    assert asked.variances(best_precisions(even, noise, least)).max() <= 0.25
    alone = gap((3, 0, 1, 0))
    assert even_out(alone, noise, 0.5, 1000.0) is alone
