"""Thresholds inside the ledger: tails never too small, thresholds never too low, prices that add up."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.papers.joint_threshold import any_of, gaussian_tails, joint_delta
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.queries.keys import GroupBounds, key_delta
from dpduck.mechanisms.keys.plan import plan_keys, queries, smallest_excess
from dpduck.strategies.recovery.tails import discrete_gaussian_tail, discrete_laplace_tail, survivals
from dpduck.values.accounting import rho_of

GAUSSIAN, LAPLACE = NoiseKind.GAUSSIAN, NoiseKind.LAPLACE
UNITS = GroupBounds(8, 1, 8, 20)


def exact_tail(noise: NoiseKind, parameter: Fraction, start: int) -> Decimal:
    """P(X >= start) with 50 digits, by summing terms until they vanish."""
    with localcontext(prec=50):
        scale = Decimal(parameter.numerator) / Decimal(parameter.denominator)

        def weight(place: int) -> Decimal:
            return (-(abs(place) / scale if noise is LAPLACE else Decimal(place * place) / (2 * scale))).exp()

        last = start
        while weight(last) > weight(start) * Decimal("1e-30"):
            last += 1
        far = 1
        while weight(far) > Decimal("1e-40"):
            far += 1
        whole = 1 + 2 * sum((weight(place) for place in range(1, far)), Decimal(0))
        return sum((weight(place) for place in range(start, last)), Decimal(0)) / whole


@pytest.mark.parametrize("noise", NoiseKind, ids=lambda noise: str(noise.value))
@pytest.mark.parametrize("parameter", [Fraction(1, 7), Fraction(1), Fraction(10, 3), Fraction(60)])
@pytest.mark.parametrize("start", [1, 2, 9])
def test_tails_are_never_too_small(noise: NoiseKind, parameter: Fraction, start: int) -> None:
    """The cost of a group is at least the exact sum of its terms and hardly more. The noise mirrors its other half."""
    exact = float(exact_tail(noise, parameter, start))
    assert exact <= key_delta(Noise(noise, parameter), start - 1, 1) <= exact * (1 + 1e-8) + 2e-290
    assert survivals(Noise(noise, parameter), np.array([1 - start])) == pytest.approx(1 - exact, rel=1e-8)


@pytest.mark.parametrize("sigma", [0.3, 2.0, 130.0, 2999.0, 3001.0, 1e6, 1e12])
def test_tails_agree_with_those_of_error_bars(sigma: float) -> None:
    """Three implementations of the same tails agree, at every size of noise, and the bounds enclose them."""
    variance = Fraction(sigma) ** 2
    for place in (1.5, 3.0, 6.0):
        start = int(place * sigma) + 1
        low, high = gaussian_tails(float(variance), start)
        assert low <= high <= low * (1 + 1e-5) + 2e-300
        charged = float(key_delta(Noise(GAUSSIAN, variance), start - 1, 1))
        assert low <= charged and discrete_gaussian_tail(variance, start - 1) / 2 == pytest.approx(charged, rel=1e-3)
        scale = Fraction(sigma)
        assert discrete_laplace_tail(scale, start - 1) / 2 == pytest.approx(
            float(key_delta(Noise(LAPLACE, scale), start - 1, 1)), rel=1e-6
        )


@pytest.mark.parametrize("noise", NoiseKind, ids=lambda noise: str(noise.value))
@pytest.mark.parametrize("delta", [Fraction(1, 100), Fraction(1, 10**6), Fraction(1, 10**30)])
@pytest.mark.parametrize("groups", [1, 7, 10**6])
@pytest.mark.parametrize("parameter", [Fraction(1, 5), Fraction(37, 3), Fraction(10**4), Fraction(10**9)])
def test_the_excess_is_the_smallest(noise: NoiseKind, parameter: Fraction, groups: int, delta: Fraction) -> None:
    """With tau no group in C passes but with delta, as it is charged. With tau - 1 one does."""
    law = Noise(noise, parameter)
    excess = smallest_excess(law, groups, delta)
    assert key_delta(law, excess, groups) <= delta
    assert excess == 0 or key_delta(law, excess - 1, groups) > delta
    assert any_of(groups, float(survivals(law, np.array([excess + 1]))[0])) <= float(delta) * (1 + 1e-5)


def test_the_price_is_shared_evenly_and_adds_up() -> None:
    """Selection, answers and the other row's queries cost rho or epsilon together, whatever a unit changes in each."""
    for noise, amount in ((GAUSSIAN, Fraction(1, 7)), (LAPLACE, Fraction(3, 7))):
        for reused, other in (((), False), ((0,), True), ((), True), ((0, 2), False)):
            plan = plan_keys(
                noise, amount, Fraction(1, 10**6), UNITS, least=5, aggregates=3, reused=reused, other=other
            )
            parts = queries(3, reused, other)
            assert parts == (4 if other else 4 - len(reused)), "published groups and the other row are one count"
            if noise is GAUSSIAN:
                paid = 8 / (2 * plan.selection.parameter) + (parts - 1) * 400 / (2 * plan.answers.parameter)
            else:
                paid = 8 / plan.selection.parameter + (parts - 1) * 20 / plan.answers.parameter
            assert paid == amount
            assert plan.threshold == 5 + plan.excess
            assert (
                plan.publication_chance(4)
                == 0
                < plan.publication_chance(5)
                <= 1e-6
                < plan.publication_chance(10**5)
                <= 1
            )


def test_what_one_unit_changes() -> None:
    """C groups by one each, or rows that joins repeat. The total of the latter bounds both norms."""
    assert (UNITS.l1, UNITS.l2_squared) == (8, 8)
    repeated = GroupBounds(3, 3, 3, 3)
    assert (repeated.l1, repeated.l2_squared) == (3, 9)


@pytest.mark.parametrize("groups", [1, 5, 60])
def test_rho_and_a_delta_are_at_least_the_joint_guarantee(groups: int) -> None:
    """A selection charged as rho and delta_key keeps the original epsilon and delta, by the joint formula, which does
    not use zCDP."""
    epsilon, delta = Fraction(1), Fraction(1, 10**6)
    rho = rho_of(epsilon, delta / 2)
    bounds = GroupBounds(groups, 1, groups, groups)
    plan = plan_keys(GAUSSIAN, rho, delta / 2, bounds, least=1, aggregates=1, reused=(0,), other=False)
    assert joint_delta(1.0, plan.selection.parameter, plan.excess, groups) <= 0.6e-6
