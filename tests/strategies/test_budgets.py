"""Budgets: closed forms equal the convex program, exact rationals never overspend and waste less than 1e-9."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from dpduck.kernel.noise.law import NoiseKind, noise_variance
from dpduck.strategies.budgets import (
    fits,
    noise_for,
    optimal_parameters,
    safe_parameters,
    simplest_between,
    uniform_parameters,
)
from dpduck.strategies.measurements import Parameters
from dpduck.values.errors import InternalError

NOISES = list(NoiseKind)


def solve(columns: np.ndarray, weights: np.ndarray, power: int) -> float:
    """min sum weights eta^-power subject to columns' eta <= 1, by SLSQP in logarithms."""
    start = np.full(len(weights), -np.log(columns.sum(axis=0).max()))
    scale = float((weights * np.exp(-power * start)).sum())

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        terms = weights * np.exp(-power * np.clip(x, -50, 50)) / scale
        return float(terms.sum()), -power * terms

    solved = minimize(
        objective,
        start,
        jac=True,
        method="SLSQP",
        constraints=[
            {
                "type": "ineq",
                "fun": lambda x: 1 - columns.T @ np.exp(x),
                "jac": lambda x: -columns.T * np.exp(x),
            }
        ],
        options={"maxiter": 2000, "ftol": 1e-12},
    )
    assert solved.status in (0, 8)  # 8: no more descent in floating point
    return float(solved.fun) * scale


@pytest.mark.parametrize("noise", NOISES)
def test_the_closed_form_is_the_convex_optimum(noise: NoiseKind) -> None:
    """Budgets by groups equal a general solver's to 1e-6, for both norms."""
    generator = np.random.default_rng(1)
    for _ in range(10):
        count = int(generator.integers(1, 7))
        weights, norms = generator.uniform(0.1, 50, count), generator.integers(1, 9, count).astype(np.float64)
        power = 2 if noise is NoiseKind.LAPLACE else 1
        parameters = optimal_parameters(noise, weights, norms, 1.0 if power == 2 else 0.5)
        assert (weights * parameters**power).sum() == pytest.approx(solve(norms[:, None], weights, power), rel=1e-6)


@given(
    st.sampled_from(NOISES),
    st.lists(st.tuples(st.floats(0.01, 1e9), st.integers(1, 10**6)), min_size=1, max_size=12),
    st.fractions(Fraction(1, 10**6), 10),
    st.integers(1, 50),
)
def test_rounding_falls_on_the_safe_side(
    noise: NoiseKind, pairs: list[tuple[float, int]], amount: Fraction, unit_bound: int
) -> None:
    """sum m C / b <= epsilon and sum m^2 C^2 / sigma^2 <= 2 rho exactly, and both nearly spend their price, to 1e-9."""
    weights, norms = np.array([weight for weight, _ in pairs]), [norm for _, norm in pairs]
    wanted = optimal_parameters(noise, weights, np.array(norms, dtype=np.float64), float(amount))
    parameters = safe_parameters(noise, wanted, norms, amount, unit_bound)
    power = 1 if noise is NoiseKind.LAPLACE else 2
    cost = sum((Fraction(unit_bound**power * norm) / s for norm, s in zip(norms, parameters, strict=True)), Fraction(0))
    assert fits(noise, parameters, norms, amount, unit_bound)
    assert amount * power * (1 - Fraction(1, 10**9)) <= cost <= amount * power


def test_noise_for_a_price_is_exact() -> None:
    """Laplace noise goes by the L1 norm, Gaussian noise by the squared L2 norm, or by the square of the L1 norm."""
    assert noise_for(NoiseKind.GAUSSIAN, Fraction(1, 3), 9, 7).parameter == Fraction(21, 2)
    assert noise_for(NoiseKind.GAUSSIAN, Fraction(1, 3), 3).parameter == Fraction(27, 2)
    assert noise_for(NoiseKind.LAPLACE, Fraction(1, 3), 9, 7).parameter == 27


def test_many_different_parameters_fit_too() -> None:
    """Beyond 2,000 different parameters the fractions are 31-bit numbers over powers of two."""
    generator = np.random.default_rng(4)
    weights, norms = generator.uniform(1, 2, 5000), generator.integers(1, 9, 5000).tolist()
    for noise in NOISES:
        wanted = optimal_parameters(noise, weights, np.array(norms, dtype=np.float64), 0.25)
        parameters = safe_parameters(noise, wanted, norms, Fraction(1, 4), 1)
        assert max(parameter.denominator & (parameter.denominator - 1) for parameter in parameters) == 0
        assert (
            max(parameter.numerator.bit_length() - (parameter.denominator == 1) * 50 for parameter in parameters) <= 32
        )
        assert (np.array([float(parameter) for parameter in parameters]) / wanted).max() < 1 + 1e-9


def test_a_budget_that_does_not_fit_is_seen() -> None:
    """The proof in integers notices an excess of one part in 10^30."""
    parameters = uniform_parameters(NoiseKind.LAPLACE, [1, 1], Fraction(1), 1)
    assert fits(NoiseKind.LAPLACE, parameters, [1, 1], Fraction(1), 1)
    less = Fraction(1) - Fraction(1, 10**30)
    two = Parameters((Fraction(2), Fraction(2) * less), np.array([0, 1]))
    assert not fits(NoiseKind.LAPLACE, two, [1, 1], Fraction(1), 1)
    assert not fits(NoiseKind.LAPLACE, parameters, [1, 1], less, 1)


def test_a_measurement_without_weight_gets_finite_noise() -> None:
    """Weight 0 asks for no accuracy, yet the answer is released: its noise is large, not infinite."""
    for noise in NOISES:
        parameters = optimal_parameters(noise, np.array([0.0, 4.0]), np.ones(2), 1.0)
        assert np.isfinite(parameters).all()
        assert parameters[0] > 100 * parameters[1]
        assert np.isfinite(optimal_parameters(noise, np.zeros(2), np.ones(2), 1.0)).all()


@given(st.fractions(Fraction(1, 1000), 1000), st.fractions(0, 1))
def test_the_simplest_fraction_lies_between(low: Fraction, width: Fraction) -> None:
    """No fraction in the interval has a smaller denominator."""
    found = simplest_between(low, low + width)
    assert low <= found <= low + width
    if found.denominator < 500:
        for denominator in range(1, found.denominator):
            assert -(-low.numerator * denominator // low.denominator) > (low + width) * denominator


@pytest.mark.parametrize("parameter", [Fraction(1, 10), Fraction(1), Fraction(7, 2), Fraction(40)])
def test_predicted_noise_is_the_true_discrete_variance(parameter: Fraction) -> None:
    """Against the sum over the distribution itself. Never above the continuous variance."""
    reach = np.arange(-4000, 4001, dtype=np.float64)
    laplace = np.exp(-np.abs(reach) / float(parameter))
    assert noise_variance(NoiseKind.LAPLACE, parameter) == pytest.approx((laplace * reach**2).sum() / laplace.sum())
    gaussian = np.exp(-(reach**2) / (2 * float(parameter)))
    assert noise_variance(NoiseKind.GAUSSIAN, parameter) == pytest.approx((gaussian * reach**2).sum() / gaussian.sum())
    assert noise_variance(NoiseKind.LAPLACE, parameter) <= 2 * parameter**2
    assert noise_variance(NoiseKind.GAUSSIAN, parameter) <= parameter


@pytest.mark.parametrize("noise", NOISES)
def test_parameters_that_were_rounded_down_are_a_defect(noise: NoiseKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact cost is looked at again after rounding: fractions below the optimum release nothing."""
    wanted, norms = np.array([10.0, 20.0]), [1, 1]
    amount = Fraction(3, 20) if noise is NoiseKind.LAPLACE else Fraction(3, 40)
    assert fits(noise, safe_parameters(noise, wanted, norms, amount, 2), norms, amount, 2)
    monkeypatch.setattr("dpduck.strategies.budgets.simplest_between", lambda low, high: low * Fraction(999, 1000))
    with pytest.raises(InternalError, match="rounded noise scales cost more than the budget; nothing was released"):
        safe_parameters(noise, wanted, norms, amount, 2)
