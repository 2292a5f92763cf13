"""The closed forms of the paper, against sums term by term."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import exp, expm1

import numpy as np
import pytest

from dpduck.kernel.noise.layers import SummaryLaw

EPSILONS = (Fraction(1, 100), Fraction(1, 10), Fraction(1), Fraction(5))
THRESHOLDS = ((1, 1), (1, Fraction(1, 3)), (1, 4), (1, Fraction(9, 2)), (3, 3), (4, Fraction(7, 2)), (2, 50), (60, 7))


@pytest.mark.parametrize(("epsilon", "pair"), list(product(EPSILONS, THRESHOLDS)))
def test_closed_forms(epsilon: Fraction, pair: tuple[int, Fraction]) -> None:
    """The closed form is the sum for epsilon 0.01 to 5, theta below, at and above tau. theta = 0 is as theta = 1."""
    theta, tau = pair[0], Fraction(pair[1])
    law = SummaryLaw(1 / epsilon, theta, tau)
    k = np.arange(theta, theta + int(60 / epsilon) + 60, dtype=np.float64)
    front = -2 * expm1(-epsilon) / (1 + exp(-epsilon))
    terms = front * np.minimum(k / float(tau), 1.0) * np.exp(-k * float(epsilon))
    assert law.float_probability() == pytest.approx(terms.sum(), rel=1e-9)
    one_sided = SummaryLaw(1 / epsilon, theta, tau, sides=1)
    assert one_sided.float_probability() == pytest.approx(law.float_probability() / 2)
    for magnitude in (1, 3, 10):
        expected = float(min(magnitude / tau, Fraction(1))) if magnitude >= theta else 0.0
        assert float(law.keep(magnitude)) == pytest.approx(expected)


def test_the_papers_own_form() -> None:
    """A whole tau without a filter: 2 a (1 - a^tau) / (tau (1 - a^2)). A filter without tau: 2 a^theta / (1 + a)."""
    a = exp(-0.1)
    law = SummaryLaw(Fraction(10), 1, Fraction(7))
    assert law.float_probability() == pytest.approx(2 * a * (1 - a**7) / (7 * (1 - a**2)), rel=1e-12)
    assert SummaryLaw(Fraction(10), 23).float_probability() == pytest.approx(2 * a**23 / (1 + a), rel=1e-12)


def test_layers_add_up() -> None:
    """The layers of a falling threshold add up to the lowest one. Each layer is conditional on those before."""
    laws = [SummaryLaw(Fraction(4), 2, Fraction(16)), SummaryLaw(Fraction(4), 2, Fraction(8), Fraction(16))]
    total = sum(law.float_probability() for law in laws)
    assert total == pytest.approx(SummaryLaw(Fraction(4), 2, Fraction(8)).float_probability(), rel=1e-12)
    low, high = laws[1].given_not_before(128)
    assert low <= high <= low + Fraction(1, 1 << 100)
    assert float(low) == pytest.approx(laws[1].float_probability() / (1 - laws[0].float_probability()))
    assert laws[0].keep(5) + laws[1].keep(5) == Fraction(5, 8)


def test_bounds_hold_and_tighten() -> None:
    """More bits give bounds inside those of fewer bits, however small the probability."""
    for law in (
        SummaryLaw(Fraction(10), 700),
        SummaryLaw(Fraction(1000), 1, Fraction(10**15)),
        SummaryLaw(Fraction(1, 5), 40),
    ):
        few, many = law.probability(96), law.probability(200)
        assert few[0] <= many[0] <= many[1] <= few[1]
        assert many[1] - many[0] < many[1] / (1 << 100)
