"""Blocks of low rank are solved as eigenvectors solve them, in a fraction of the time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import scipy.linalg
from scipy import sparse

from dpduck.kernel.queries.operators import IdentityFactor
from dpduck.strategies.recovery import atoms
from dpduck.strategies.recovery.atoms import Along, LeastSquaresBlock, NoisyTable
from dpduck.strategies.recovery.estimator import Estimator, LeastSquaresAnswers

SIZES = [5, 3, 4, 3]
NEVER = 10**9


def seen_through_filters(seed: int, far: float) -> list[NoisyTable]:
    """A few tables of cells, each with a filter of some codes, so that atoms are many and measurements are few.

    far: how many times as precise the first is.
    """
    draw, found = np.random.default_rng(seed), list[NoisyTable]()
    for number in range(6):
        along = {}
        for axis in draw.choice(4, 3, replace=False).tolist():
            held = draw.random(SIZES[axis]) < 0.6
            held[0] = True
            filtered = sparse.csr_array(held[None, :].astype(np.float64))
            along[axis] = Along(rows=filtered) if draw.random() < 0.5 else Along(IdentityFactor(SIZES[axis]), held)
        shape = [1 if along[axis].plain is None else SIZES[axis] for axis in sorted(along)]
        variance = float(draw.uniform(1, 5)) / (far if number == 0 else 1)
        found.append(NoisyTable(along, variance, draw.normal(size=shape) * 10))
    return found


def answered(seen: list[NoisyTable], asked: dict[int, sparse.csr_array], large: int) -> LeastSquaresAnswers:
    """The known answer. Blocks above a size are first tested for low rank."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atoms, "LARGE", large)
        return Estimator(SIZES, seen).answer(asked)


@pytest.mark.parametrize("far", [1.0, 1e5], ids=["one level", "two levels"])
@pytest.mark.parametrize("seed", range(3))
def test_answers_are_those_of_eigenvectors(seed: int, far: float) -> None:
    """Estimates and errors to 1e-9, and which sums are determined: of the measured sums, and of others."""
    seen, compared = seen_through_filters(seed, far), 0
    questions: list[dict[int, sparse.csr_array]] = [
        {axis: sparse.csr_array(sparse.eye_array(SIZES[axis])) for axis in pair} for pair in ((0, 1), (2, 3))
    ]
    for one in seen:
        questions.append({
            axis: sparse.csr_array(np.diag(of.kept.astype(float)))
            if of.kept is not None
            else sparse.csr_array(of.rows)
            for axis, of in one.along.items()
        })  # fmt: skip
    for asked in questions:
        low, eigen = answered(seen, asked, 1), answered(seen, asked, NEVER)
        np.testing.assert_array_equal(low.known, eigen.known)
        known = eigen.known
        np.testing.assert_allclose(low.variances[known], eigen.variances[known], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(low.estimates[known], eigen.estimates[known], rtol=1e-9, atol=1e-8)
        compared += int((eigen.variances[known] > 0).sum())
    assert compared >= 20
    assert not all(answered(seen, asked, 1).known.all() for asked in questions), "and something is not determined"


def test_no_large_block_of_low_rank_is_factored_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """700 atoms of 70 ranks: their eigenvectors, which take ten times as long, are never asked for."""
    rows = (np.random.default_rng(7).random((70, 700)) < 0.3).astype(np.float64)
    sizes, eigh = list[int](), scipy.linalg.eigh

    def counted(matrix: npt.NDArray[np.float64]) -> object:
        sizes.append(len(matrix))
        return eigh(matrix)

    monkeypatch.setattr(scipy.linalg, "eigh", counted)
    LeastSquaresBlock.of([rows.T @ rows])
    assert not sizes
    monkeypatch.setattr(atoms, "LARGE", NEVER)
    LeastSquaresBlock.of([rows.T @ rows])
    assert sizes == [700]
