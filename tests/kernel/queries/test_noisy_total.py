"""A noisy number of rows has geometric noise of a declared scale, and a price."""

from __future__ import annotations

from fractions import Fraction
from math import exp

import numpy as np
import pytest

from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.queries.tables import Total
from dpduck.values.errors import InternalError
from tests.kernel.doors import drawn, price_of

DRAWS = 4_000


@pytest.mark.parametrize("values", [(), (3, 40, 7)])
def test_the_total_and_its_noise(values: tuple[int, ...]) -> None:
    """Mean and variance of 4,000 totals are within 6.5 standard errors (1e-10 each). 2/3 of the scale is rejected."""
    places = np.arange(len(values))
    counts = ExactCounts((places,), np.array([values], dtype=np.int64), (100,), (1,))
    noise = Noise(NoiseKind.LAPLACE, Fraction(3))
    off = np.array([drawn(Total(), counts, noise) for _ in range(DRAWS)]) - sum(values)
    variance = 2 * exp(-1 / 3) / (1 - exp(-1 / 3)) ** 2
    assert abs(off.mean()) < 6.5 * (variance / DRAWS) ** 0.5
    assert abs(off.var() / variance - 1) < 6.5 * (5 / DRAWS) ** 0.5 < 1 - (2 / 3) ** 2


def test_the_price_of_a_total() -> None:
    """Epsilon is the rows of a unit over the scale. A total without noise has no price."""
    assert price_of(Total(), Noise(NoiseKind.LAPLACE, Fraction(20)), 2).epsilon == Fraction(1, 10)
    with pytest.raises(InternalError):
        price_of(Total(), Noise(NoiseKind.LAPLACE, Fraction(0)), 2)
