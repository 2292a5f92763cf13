"""The page about odds: every figure of docs/odds.md is computed, and its statements run."""

from __future__ import annotations

import re
from math import log
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq

import dpduck
from benchmarks import odds

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "odds.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())


def test_every_table_is_computed() -> None:
    """Each table of the page equals the one that benchmarks/odds.py computes, and there is no other."""
    tables = odds.pure_table(), odds.rho_table(), odds.delta_table(), odds.deployment_table()
    assert all("\n".join(table) in PAGE for table in tables)
    assert sum(line.startswith("|") for line in PAGE.splitlines()) == sum(map(len, tables))


def test_figures_between_the_tables_are_computed() -> None:
    """Sentences of the page state what the functions return."""
    pure = odds.bound_epsilon(1.0)
    assert f"Without 10, with {odds.of_hundred(pure(0.1))}." in WORDS
    assert f"Right guesses {odds.of_hundred(odds.best_guess(pure))}." in WORDS
    assert f"After any answer they give at most {odds.of_hundred(odds.believed(1.0, 0.5))}." in WORDS
    assert f"who gave 10 gives at most {odds.of_hundred(odds.believed(1.0, 0.1))}." in WORDS
    for rho, words in ((0.5, "in {} of 100 cases, beside {}."), (2.0, "it is {}, beside {}.")):
        figures = odds.guess_of_whole_numbers(rho), odds.best_guess(odds.bound_gaussian(rho))
        assert words.format(*map(odds.of_hundred, figures)) in WORDS, rho
    assert odds.of_hundred(1e-6) == "0.0001" and "0.0001 of 100 at 1e-6" in WORDS


def test_the_statements_run_and_have_the_odds_of_the_page() -> None:
    """The policy of the page has the budget that the page states, and its odds."""
    (block,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    with dpduck.connect() as con:
        *before, guarantee, budget = re.split(r";\s*\n", block)
        for statement in before:
            con.execute(statement)
        assert con.execute(guarantee).fetchall() == [
            ("all rows of one patient: epsilon = 3, delta = 1e-06, over all statements",)
        ]
        ((measure, most, spent),) = con.execute(budget).fetchall()
        ((exact_most, exact_spent),) = con.execute("SELECT budget, spent FROM dp_budget()").fetchall()
    assert f"Here the measure is {measure}, the budget is {most} and {spent} is spent." in WORDS
    all_of_it, so_far = (odds.of_hundred(odds.best_guess(odds.bound_rho(rho))) for rho in (exact_most, exact_spent))
    assert f"right in at most {all_of_it} of 100 cases. So far it is {so_far}." in WORDS


@pytest.mark.parametrize("epsilon", odds.EPSILONS)
def test_the_best_guess_of_pure_epsilon_is_randomised_response(epsilon: float) -> None:
    """Randomised response reaches the bound: e^epsilon / (1 + e^epsilon)."""
    assert odds.best_guess(odds.bound_epsilon(epsilon)) == pytest.approx(odds.believed(epsilon, 0.5), abs=1e-6)


@pytest.mark.parametrize("rho", odds.RHOS)
def test_the_bound_of_rho_is_reached_and_never_below_the_noise(rho: float) -> None:
    """One bit of randomised response with epsilon tanh(epsilon / 2) = rho reaches the bound of any noise.

    Gaussian noise, and noise of whole numbers, stay below it.
    """
    guess = odds.best_guess(odds.bound_rho(rho))
    epsilon = brentq(lambda one: one * np.tanh(one / 2) - rho, 1e-9, 100)
    assert guess == pytest.approx(odds.believed(epsilon, 0.5), abs=1e-3)
    assert guess >= odds.believed(epsilon, 0.5) - 1e-9
    assert odds.best_guess(odds.bound_gaussian(rho)) <= odds.guess_of_whole_numbers(rho) <= guess
    for without in odds.WITHOUT:
        assert without < odds.bound_gaussian(rho)(without) < odds.bound_rho(rho)(without) < 1


def test_a_bound_of_rho_keeps_every_divergence() -> None:
    """At the bound the largest Rényi divergence of the event, for its order, is rho."""
    present, absent = odds.bound_rho(0.5)(0.1), 0.1
    found = [
        log(one**order * other ** (1 - order) + (1 - one) ** order * (1 - other) ** (1 - order)) / (order - 1) / order
        for order in 1 + np.geomspace(1e-3, 50, 200)
        for one, other in ((present, absent), (absent, present))
    ]
    assert max(found) == pytest.approx(0.5, rel=1e-3)


def test_deployments_name_their_source() -> None:
    """The parameters of others come from a registry, at a stated commit. Each has parameters of one kind."""
    assert "opendp/deployments-registry-data" in WORDS and "`3e9c812`" in WORDS
    for one in odds.DEPLOYMENTS:
        assert (one.rho is None) != (one.epsilon is None), one.who
