"""If variances differ by hundreds of digits, least squares in doubles equals that of exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from dpduck.kernel.noise.law import NoiseKind, noise_variance
from dpduck.strategies.recovery.atoms import Along, NoisyTable
from dpduck.strategies.recovery.estimator import LEAST_VARIANCE, Estimator
from dpduck.values.arrays import FloatArray
from tests.strategies.test_estimator import kron, random_along, random_weights

Rows = list[list[Fraction]]


def solved(gram: Rows, wanted: list[Fraction]) -> list[Fraction] | None:
    """Returns any y with gram y = wanted, by elimination without rounding. None if there is none."""
    size, table = len(gram), [[*row, value] for row, value in zip(gram, wanted, strict=True)]
    pivots: list[int] = []
    for column in range(size):
        row = next((row for row in range(len(pivots), size) if table[row][column]), None)
        if row is None:
            continue
        place = len(pivots)
        table[place], table[row] = table[row], table[place]
        table[place] = [value / table[place][column] for value in table[place]]
        for other in range(size):
            if other != place and table[other][column]:
                factor = table[other][column]
                table[other] = [a - factor * b for a, b in zip(table[other], table[place], strict=True)]
        pivots.append(column)
    if any(row[size] for row in table[len(pivots) :]):
        return None
    found = [Fraction(0)] * size
    for place, column in enumerate(pivots):
        found[column] = table[place][size]
    return found


def exact(seen: list[NoisyTable], sizes: list[int], weights: FloatArray) -> list[tuple[float, float, float] | None]:
    """For each row of weights: the best estimate, its variance, and the reach of its terms. None: not determined."""
    cells = int(np.prod(sizes))
    gram, data = [[Fraction(0)] * cells for _ in range(cells)], [Fraction(0)] * cells
    for one in seen:
        precision = 1 / Fraction(max(one.variance, LEAST_VARIANCE))
        for row, value in zip(kron(one.along, sizes).astype(int).tolist(), one.values.ravel().tolist(), strict=True):
            held = [place for place, entry in enumerate(row) if entry]
            for i in held:
                data[i] += precision * row[i] * Fraction(value)
                for j in held:
                    gram[i][j] += precision * row[i] * row[j]
    found = list[tuple[float, float, float] | None]()
    for line in weights.astype(int).tolist():
        solution = solved(gram, list(map(Fraction, line)))
        if solution is None:
            found.append(None)
            continue
        variance = sum((a * b for a, b in zip(solution, line, strict=True)), Fraction(0))
        estimate = sum((a * b for a, b in zip(solution, data, strict=True)), Fraction(0))
        found.append((float(estimate), float(variance), float(sum(abs(one) for one in line))))
    return found


PRICES = {
    "1 and 60": (1.0, 60.0),
    "60 and 1": (60.0, 1.0),
    "in steps": (0.01, 0.3, 3.0, 10.0, 25.0),
    "without noise": (0.5, 5000.0, 40.0),
    "nearly": (1.0, 1.1, 6.0),
}


@pytest.mark.sampled
@pytest.mark.parametrize("prices", PRICES.values(), ids=PRICES)
def test_prices_far_apart_are_those_of_fractions(prices: tuple[float, ...]) -> None:
    """Estimates and errors to 1e-9, and which rows are determined, whatever the order and distance of prices."""
    draw, compared = np.random.default_rng(len(prices) + int(prices[0])), 0
    for _ in range(12):
        sizes = [int(size) for size in draw.integers(2, 5, int(draw.integers(1, 3)))]
        truth, seen = draw.integers(0, 1000, sizes), []
        for price in prices * 2:
            along = {axis: random_along(draw, size) for axis, size in enumerate(sizes) if draw.random() < 0.7}
            variance = noise_variance(NoiseKind.LAPLACE, Fraction(1) / Fraction(price))
            answers = np.rint(kron(along, sizes) @ truth.ravel() + draw.normal(size=len(kron(along, sizes)))
                              * variance**0.5)  # fmt: skip
            shape = [len(kron({0: one}, [sizes[axis]])) for axis, one in sorted(along.items())]
            seen.append(NoisyTable(along, variance, answers.reshape(shape)))
        asked = {axis: random_weights(draw, size) for axis, size in enumerate(sizes) if draw.random() < 0.7}
        weights = kron({axis: Along(rows=of_axis) for axis, of_axis in asked.items()}, sizes)
        found = Estimator(sizes, seen).answer(asked)
        largest = max(one.variance for one in seen)
        for place, right in enumerate(exact(seen, sizes, weights)):
            assert bool(found.known.ravel()[place]) == (right is not None)
            if right is not None:
                estimate, variance, terms = right
                rounding = 1e-26 * largest * (1 + terms**2)
                assert found.variances.ravel()[place] == pytest.approx(variance, rel=1e-9, abs=rounding)
                assert found.estimates.ravel()[place] == pytest.approx(estimate, rel=1e-9, abs=1e-8)
                compared += 1
    assert compared > 25, "something was determined"


def test_a_precise_total_and_vague_cells() -> None:
    """Sums of 300 cells at epsilon 60 beside the cells at epsilon 1: normal equations lose all digits of the cells."""
    size, draw = 300, np.random.default_rng(3)
    truth = draw.integers(0, 100, size)
    halves = sparse.csr_array(np.repeat(np.eye(2), size // 2, axis=1))
    vague, precise = (noise_variance(NoiseKind.LAPLACE, Fraction(1, price)) for price in (1, 60))
    noisy = truth + np.rint(draw.normal(size=size) * vague**0.5)
    cells = Along(rows=sparse.csr_array(np.eye(size)[draw.permutation(size)]))
    order = np.asarray(cells.rows.argmax(axis=1)).ravel()  # type: ignore[union-attr]
    seen = [NoisyTable({0: cells}, vague, noisy[order]), NoisyTable({0: Along(rows=halves)}, precise, halves @ truth)]
    found = Estimator([size], seen).answer({0: sparse.csr_array(sparse.vstack([sparse.eye_array(size), halves]))})
    half = size // 2
    np.testing.assert_allclose(found.variances[:size], vague * (1 - 1 / half), rtol=1e-9)
    shares = (halves @ truth - halves @ noisy) / half
    np.testing.assert_allclose(found.estimates[:size], noisy + halves.T @ shares, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.estimates[size:], halves @ truth, rtol=1e-12)
    assert (found.variances[size:] <= vague * 1e-20).all() and found.known.all()
