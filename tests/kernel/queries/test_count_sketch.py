"""Count sketches: how far one row moves them, the price of that, and noise of the scale that was paid for."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.queries.sketches import Sketch, SketchHashes, exact_sketch
from dpduck.values.errors import InternalError
from tests.kernel.doors import drawn, price_of

ONE = Noise(NoiseKind.LAPLACE, Fraction(1))
SIZES = (3, 4)
NUMBERS = (np.array([11, 2**60, 5], dtype=np.int64), np.array([0, 1, 2, 3], dtype=np.int64))
WITHOUT_NOISE = Fraction(1, 1000)  # a draw other than 0 has a probability below exp(-999)


def counts_of(cells: list[tuple[int, int]]) -> ExactCounts:
    """Returns counts where each cell counts once for every time it is listed."""
    first, second = (np.array([cell[place] for cell in cells], dtype=np.int64) for place in (0, 1))
    return ExactCounts((first, second), np.ones((1, len(cells)), dtype=np.int64), SIZES, (1,))


def sketch(rows: int, width: int, cells: list[tuple[int, int]], scale: Fraction) -> tuple[SketchHashes, np.ndarray]:
    return drawn(Sketch(rows, width, NUMBERS), counts_of(cells), Noise(NoiseKind.LAPLACE, scale))


@given(
    cells=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=12),
    more=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=4),
    rows=st.integers(1, 6),
    width=st.integers(1, 9),
)
def test_a_unit_moves_each_row_by_its_rows(
    cells: list[tuple[int, int]], more: list[tuple[int, int]], rows: int, width: int
) -> None:
    """The L1 sensitivity is rows * m, as the price assumes. A row alone moves one bucket of every sketch row by 1."""
    hashes, before = sketch(rows, width, cells, WITHOUT_NOISE)
    moved = np.abs(exact_sketch(counts_of(cells + more), hashes, NUMBERS) - before).sum()
    assert moved <= rows * len(more) == price_of_sketch(Fraction(1), rows, len(more))
    alone = np.abs(exact_sketch(counts_of([*cells, more[0]]), hashes, NUMBERS) - before)
    assert alone.sum(axis=1).tolist() == [1] * rows and alone.max() == 1


def price_of_sketch(scale: Fraction, rows: int, unit_bound: int) -> Fraction | None:
    return price_of(Sketch(rows, 9, ()), Noise(NoiseKind.LAPLACE, scale), unit_bound).epsilon


def test_the_price_of_a_sketch() -> None:
    """A sketch costs rows * m / scale of epsilon, and is refused without noise."""
    assert price_of_sketch(Fraction(30), 5, 3) == Fraction(1, 2)
    for scale, rows, unit_bound in ((Fraction(0), 5, 3), (Fraction(1), 0, 3), (Fraction(1), 5, 0)):
        with pytest.raises(InternalError, match=r"without noise|no privacy unit|nobody knows the price"):
            price_of_sketch(scale, rows, unit_bound)


def test_every_bucket_has_noise() -> None:
    """Of 40,000 empty buckets at scale 20, the mean |noise| is 20 within 6.5 standard errors: false alarm 1e-10.

    A scale of 13.3 or 30 would be 67 and 100 standard errors off.
    """
    sizes = np.abs(sketch(4, 10_000, [], Fraction(20))[1])
    assert sizes.shape == (4, 10_000)
    assert abs(sizes.mean() - 20) < 6.5 * 20 / 200


def test_a_domain_of_another_size_is_a_defect() -> None:
    """A number of labels other than the domain's is refused, since it would put cells into wrong buckets."""
    with pytest.raises(InternalError, match="the sketch and the counts disagree about the domain"):
        drawn(Sketch(2, 5, (NUMBERS[0], NUMBERS[0])), counts_of([(0, 0)]), ONE)
