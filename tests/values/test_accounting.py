"""Conversions fall on the safe side: at most epsilon and at most delta, never about."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpduck.values.accounting import epsilon_of, rho_of, rho_of_laplace, rho_of_pure

EPSILONS = ["1e-6", "0.001", "0.5", "1", "3", "10", "1e3"]
DELTAS = ["1e-30", "1e-12", "1e-6", "1e-3", "0.5"]


def delta_at(rho: Fraction, epsilon: Fraction, alpha: Fraction) -> Decimal:
    """CKS 2020, Proposition 12 as it is printed, in 120 digits: an independent evaluation at one alpha."""
    with localcontext() as context:
        context.prec = 120
        a, r, e = (Decimal(x.numerator) / Decimal(x.denominator) for x in (alpha, rho, epsilon))
        return ((a - 1) * (a * r - e)).exp() / (a - 1) * (a * (1 - 1 / a).ln()).exp()


def smallest_delta(rho: Fraction, epsilon: Fraction) -> Decimal:
    """The minimum over alpha: bisection of the derivative (2 alpha - 1) rho - epsilon + ln(1 - 1/alpha), as cdp2adp."""
    with localcontext() as context:
        context.prec = 60
        r, e = (Decimal(x.numerator) / Decimal(x.denominator) for x in (rho, epsilon))
        low, high = Decimal(-60), Decimal(60)
        for _ in range(160):
            middle = (low + high) / 2
            t = Decimal(10) ** middle
            slope = (2 * t + 1) * r - e + (t / (1 + t)).ln()
            low, high = (middle, high) if slope < 0 else (low, middle)
        alpha = 1 + Fraction(Decimal(10) ** low)
    return delta_at(rho, epsilon, alpha)


def exact(amount: Fraction) -> Decimal:
    return Decimal(amount.numerator) / Decimal(amount.denominator)


@pytest.mark.parametrize("delta_text", DELTAS)
@pytest.mark.parametrize("epsilon_text", EPSILONS)
def test_rho_is_safe_and_the_largest(epsilon_text: str, delta_text: str) -> None:
    """The rho returned gives at most (epsilon, delta); a billionth more would give more."""
    epsilon, delta = Fraction(epsilon_text), Fraction(delta_text)
    rho = rho_of(epsilon, delta)
    assert smallest_delta(rho, epsilon) <= exact(delta)
    assert smallest_delta(rho * (1 + Fraction(1, 10**9)), epsilon) > exact(delta)


@pytest.mark.parametrize("delta_text", DELTAS)
@pytest.mark.parametrize("rho_text", ["1e-12", "1e-6", "0.02436", "1", "100"])
def test_epsilon_is_safe_and_the_smallest(rho_text: str, delta_text: str) -> None:
    """The epsilon returned holds for rho at delta; a little less would not."""
    rho, delta = Fraction(rho_text), Fraction(delta_text)
    epsilon = epsilon_of(rho, delta)
    if epsilon == 0:
        assert smallest_delta(rho, epsilon) <= exact(delta)
        return
    assert smallest_delta(rho, epsilon) <= exact(delta)
    assert smallest_delta(rho, epsilon * (1 - Fraction(1, 10**6))) > exact(delta)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.fractions(Fraction(1, 10**6), 1000), st.floats(-30, -0.302))
def test_rho_is_safe_at_random(epsilon: Fraction, exponent: float) -> None:
    """At most delta for any epsilon and delta in the supported range, and the way back is about where it began."""
    delta = Fraction(10**exponent)
    rho = rho_of(max(epsilon, Fraction(1, 10**6)), delta)
    assert smallest_delta(rho, epsilon) <= exact(delta)
    assert float(epsilon_of(rho, delta)) == pytest.approx(float(epsilon), rel=1e-4, abs=1e-6)


def test_figures_of_the_design() -> None:
    """rho for (1, 1e-6) is 0.02436 and its Gaussian has sigma 4.531."""
    rho = rho_of(Fraction(1), Fraction(1, 10**6))
    assert f"{float(rho):.5f}" == "0.02436"
    assert f"{math.sqrt(1 / (2 * rho)):.3f}" == "4.531"


def test_agrees_with_dp_accounting() -> None:
    """An independent library's conversion over a fine grid of orders finds no smaller epsilon."""
    peer = pytest.importorskip("dp_accounting.rdp.rdp_privacy_accountant")
    orders = 1 + np.exp(np.linspace(math.log(1e-3), math.log(1e5), 20_000))
    for rho, delta in [(0.02436, 1e-6), (0.5, 1e-9), (1e-4, 1e-6), (3.0, 1e-3)]:
        theirs, _ = peer.compute_epsilon(orders, orders * rho, delta)
        ours = float(epsilon_of(Fraction(rho), Fraction(delta)))
        assert ours <= theirs * (1 + 1e-9)
        assert ours == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize("epsilon_text", EPSILONS)
def test_never_below_the_exact_gaussian_curve(epsilon_text: str) -> None:
    """A Gaussian with the rho granted has, by its own exact curve, at most delta."""
    epsilon, delta = Fraction(epsilon_text), Fraction(1, 10**6)
    sigma = math.sqrt(1 / (2 * rho_of(epsilon, delta)))
    e = float(epsilon)
    near, far = 1 / (2 * sigma) - e * sigma, -1 / (2 * sigma) - e * sigma
    curve = 0.5 * math.erfc(-near / math.sqrt(2)) - math.exp(min(e, 700.0)) * 0.5 * math.erfc(-far / math.sqrt(2))
    assert curve <= float(delta)


def test_more_of_anything_gives_more() -> None:
    """rho grows with epsilon and with delta."""
    rhos = [rho_of(Fraction(text), Fraction(1, 10**6)) for text in EPSILONS]
    assert rhos == sorted(rhos)
    rhos = [rho_of(Fraction(1), Fraction(text)) for text in DELTAS]
    assert rhos == sorted(rhos)


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1), Fraction(-1, 2), Fraction(3, 2), Fraction(1, 10**400)])
def test_delta_outside_is_refused(delta: Fraction) -> None:
    with pytest.raises(ValueError, match="delta must lie between"):
        rho_of(Fraction(1), delta)
    with pytest.raises(ValueError, match="delta must lie between"):
        epsilon_of(Fraction(1), delta)


@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(-1), Fraction(10**7), Fraction(1, 10**13)])
def test_epsilon_outside_is_refused(epsilon: Fraction) -> None:
    with pytest.raises(ValueError, match="epsilon must lie between"):
        rho_of(epsilon, Fraction(1, 10**6))


@pytest.mark.parametrize("amount", [1.0, 1, "1", None, float("nan")])
def test_only_exact_rationals_are_taken(amount: object) -> None:
    """A float that slips in is an error, not an approximation."""
    with pytest.raises(ValueError, match="exact rational"):
        rho_of(amount, Fraction(1, 10**6))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="exact rational"):
        rho_of(Fraction(1), amount)  # type: ignore[arg-type]


def test_the_callers_decimal_context_is_irrelevant() -> None:
    """A thread with three digits of precision gets the same rho."""
    expected = rho_of(Fraction(1), Fraction(1, 10**6))
    with localcontext() as context:
        context.prec = 3
        assert getcontext().prec == 3
        assert rho_of(Fraction(1), Fraction(1, 10**6)) == expected


ORDERS = (1.0001, 1.01, 1.1, 1.5, 2.0, 4.0, 16.0, 100.0, 1e4)


def renyi(p: np.ndarray, q: np.ndarray, order: float) -> float:
    """The Renyi divergence of two laws, given as logarithms of probabilities, as it is defined."""
    terms = order * p + (1 - order) * q
    return float((terms.max() + np.log(np.exp(terms - terms.max()).sum())) / (order - 1))


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 3.0, 20.0])
def test_no_pure_mechanism_costs_more(epsilon: float) -> None:
    """Randomised response, from which every epsilon-DP mechanism can be made, is within the bound, and reaches it."""
    chances = np.array([epsilon, 0.0]) - np.logaddexp(0, epsilon)
    worst = max(renyi(chances, chances[::-1], order) / order for order in ORDERS)
    bound = float(rho_of_pure(Fraction(epsilon)))
    assert worst <= bound * (1 + 1e-7)
    assert worst > bound * (1 - 3e-4), "at orders near 1 the bound is reached"
    assert bound == pytest.approx(epsilon * math.tanh(epsilon / 2), rel=1e-12) and bound <= epsilon**2 / 2


@pytest.mark.parametrize("shift", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(5, 2), Fraction(20)])
def test_no_shift_of_discrete_laplace_noise_costs_more(scale: Fraction, shift: int) -> None:
    """The divergences of every order, summed over all integers that matter, are within the bound and reach it."""
    numbers = np.arange(-4000, 4001 + shift)
    here, moved = (-np.abs(numbers - by) / float(scale) for by in (0, shift))
    constant = np.logaddexp.reduce(here)
    worst = max(renyi(here - constant, moved - constant, order) / order for order in ORDERS)
    bound = float(rho_of_laplace(shift, shift, scale))
    assert worst <= bound * (1 + 1e-7)
    assert worst > bound * (1 - 3e-3)
    assert bound <= float(rho_of_pure(shift / scale)) * (1 + 1e-15)


def test_disjoint_tables_are_paid_once_each() -> None:
    """g moves of at most M cost g times the price of one, and a norm that says less of M costs no less than it must."""
    once = rho_of_laplace(3, 3, Fraction(30))
    assert float(rho_of_laplace(30, 3, Fraction(30))) == pytest.approx(10 * float(once), rel=1e-15)
    assert rho_of_laplace(30, 3, Fraction(30)) < rho_of_laplace(30, 30, Fraction(30)) < rho_of_pure(Fraction(1))
    assert rho_of_laplace(3, 50, Fraction(30)) == once
    assert rho_of_laplace(0, 0, Fraction(1)) == 0
    for arguments in ((-1, 1, Fraction(1)), (1, -1, Fraction(1)), (1, 1, Fraction(0))):
        with pytest.raises(ValueError, match="negative"):
            rho_of_laplace(*arguments)


@given(st.integers(1, 10**9), st.integers(1, 10**9), st.fractions(Fraction(1, 10**9), 10**12))
def test_laplace_prices_are_safe_at_every_size(l1: int, most: int, scale: Fraction) -> None:
    """From 1e-21 to 1e18 scales: above the exact figure of 120 digits, and no more than a hair."""
    most = min(l1, most)
    with localcontext() as context:
        context.prec, context.Emin, context.Emax = 120, -999_999, 999_999
        x, s = exact(most / scale), exact(1 / scale)
        kept = Decimal(0) if s > 2000 else 2 * s / (s.exp() - (-s).exp())
        rho = exact(Fraction(l1, most)) * (x - (1 - (-x).exp()) * kept)
        bound = exact(rho_of_laplace(l1, most, scale))
        assert rho <= bound * (1 + Decimal("1e-100"))
        assert x > 1000 or s > 1000 or bound <= rho * (1 + Decimal("1e-15"))
