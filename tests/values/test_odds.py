"""Odds of a guess about one unit: compared with a bound over all Rényi orders, and with mechanisms that reach it."""

from __future__ import annotations

from math import exp, tanh

import numpy as np
import pytest
from scipy.special import ndtr

from benchmarks.odds import best_guess as best_of_a_test
from benchmarks.odds import bound_epsilon, bound_rho
from dpduck.values.odds import (
    best_guess,
    best_guess_rho,
    epsilon_of_same_guess,
    guesses_at,
    guesses_of_100,
    odds_text,
    times_of_100,
)

RHOS = (0.0001, 0.001, 0.02, 0.1, 0.5, 1.0, 2.0, 5.0)


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.5, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.01])
def test_the_guess_at_an_epsilon_is_that_of_the_best_test(epsilon: float, delta: float) -> None:
    """The largest gain over all tests of Wasserman and Zhou is computed by another program, benchmarks/odds.py."""
    assert best_guess(epsilon, delta) == pytest.approx(best_of_a_test(bound_epsilon(epsilon, delta)), abs=1e-7)


@pytest.mark.parametrize("rho", RHOS)
def test_the_guess_at_a_rho_is_that_of_all_renyi_orders(rho: float) -> None:
    """A bound over 400 orders in both directions comes down to this one, and never below it."""
    ours, other = best_guess_rho(rho), best_of_a_test(bound_rho(rho))
    assert ours <= other + 1e-12 and other - ours < 2e-4


@pytest.mark.parametrize("rho", RHOS)
def test_randomised_response_reaches_the_bound_of_a_rho(rho: float) -> None:
    """One bit of randomised response keeps every divergence below order times rho, and is guessed as well."""
    epsilon = epsilon_of_same_guess(rho)
    assert epsilon * tanh(epsilon / 2) == pytest.approx(rho, rel=1e-12) and epsilon * tanh(epsilon / 2) >= rho * (
        1 - 1e-15
    )
    right = 1 / (1 + exp(-epsilon))
    assert best_guess_rho(rho) == pytest.approx(right, rel=1e-12)
    orders = 1 + np.geomspace(1e-4, 1e3, 300)
    logs = np.log([right, 1 - right])
    sums = np.logaddexp(orders * logs[0] + (1 - orders) * logs[1], orders * logs[1] + (1 - orders) * logs[0])
    assert np.all(sums / (orders - 1) <= orders * rho * (1 + 1e-9) + 1e-9)


@pytest.mark.parametrize("rho", RHOS)
def test_noise_of_dpduck_is_guessed_less_well(rho: float) -> None:
    """Gaussian noise at the price rho, continuous or of whole numbers, is below the bound."""
    assert float(ndtr((rho / 2) ** 0.5)) <= best_guess_rho(rho)
    weights = np.exp(-rho * np.arange(-2000, 2001, dtype=np.float64) ** 2)
    assert (1 + 1 / float(weights.sum())) / 2 <= best_guess_rho(rho) + 1e-12


def test_a_wrong_bound_is_found() -> None:
    """Half of the epsilon, or the bound of Gaussian noise for all noise, is below what some mechanism reaches."""
    assert best_guess(0.5) < best_of_a_test(bound_epsilon(1.0)) - 0.05
    assert float(ndtr(0.5)) < best_guess_rho(0.5) - 0.02


def test_guesses_are_rounded_up() -> None:
    """No chance looks smaller than it is. Nothing spent is a blind guess."""
    assert guesses_of_100(0.5) == guesses_at(0.0, 0.0) == guesses_at(None, 0.0) == 50
    assert guesses_of_100(0.5000001) == guesses_at(1e-8, 1e-16) == 51
    assert guesses_at(None, 1e6) == guesses_at(5000.0, 1.0) == 100 and times_of_100(100) == "up to 100 of 100 times"
    assert (
        guesses_at(None, 0.5, 0.01) >= guesses_at(None, 0.5) and best_guess_rho(0.5, 0.01) - best_guess_rho(0.5) < 0.006
    )


def test_the_text_names_both_chances() -> None:
    """The guess after the numbers, and the blind one, each in a sentence of less than 25 words."""
    said = odds_text(74, "one patient")
    assert "one patient" in said and "at most 74 of 100 times" in said and said.endswith("it is 50.")
    assert all(len(sentence.split()) < 25 for sentence in said.split(". "))
