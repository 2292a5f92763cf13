"""Prints the tables of an attacker's odds, those of docs/odds.md: `python -m benchmarks.odds`.

All figures are exact bounds on a test between two tables, one with a person's rows and one without. `without` is the
chance that the attacker points at the person although the rows are absent. A bound returns the largest chance that the
attacker points at the person where the rows are there.

* Pure epsilon, and epsilon with delta: Wasserman and Zhou 2010, Theorem 2.4, and Dong, Roth and Su 2022, Proposition 3.
* Gaussian noise: Dong, Roth and Su 2022, Definition 6, with mu = sqrt(2 rho).
* Rho with any noise: every event keeps its Rényi divergence of order a below a rho, in both directions (Bun and
  Steinke 2016, Definition 1.1). An event is itself a mechanism with one bit, so that each bound is reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import exp, log, log10, sqrt

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import logsumexp, ndtr, ndtri

from dpduck.values.accounting import rho_of

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 10.0)
RHOS = (0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 2.0, 5.0)
WITHOUT = (0.01, 0.1, 0.5)
DELTA = 1e-6
DELTA_EPSILONS = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
ORDERS = 1 + np.geomspace(1e-3, 1e4, 400)
"""Orders of Rényi divergences. A bound over fewer orders is larger, so that it is never too small."""

Test = Callable[[float], float]


@dataclass(frozen=True)
class Deployment:
    """A release of somebody else, as the registry of deployments has it. unit: the unit that its parameters protect."""

    who: str
    unit: str
    epsilon: float | None = None
    delta: float = 0.0
    rho: float | None = None

    @property
    def price(self) -> str:
        """Its parameters, as text."""
        if self.rho is not None:
            return f"rho = {self.rho:g}"
        return f"epsilon = {self.epsilon:g}" + (f", delta = {self.delta:g}" if self.delta else "")

    @property
    def test(self) -> Test:
        """The bound on a test."""
        return bound_rho(self.rho) if self.rho is not None else bound_epsilon(self.epsilon or 0.0, self.delta)


DEPLOYMENTS = (
    Deployment("Wikimedia, current page views", "a device on one day", rho=0.015),
    Deployment("Meta, shares of web addresses", "a user", rho=0.0728),
    Deployment("Microsoft, broadband coverage", "a user", 0.2),
    Deployment("Wikimedia, historical page views", "30 or 300 page views of one day", 1.0),
    Deployment("Google, searches about symptoms", "a user on one day", 1.68),
    Deployment("Google, searches about vaccines", "a user", 2.19, 1e-5),
    Deployment("Google, mobility in the pandemic", "a user on one day", 2.64),
    Deployment("U.S. census 2020, redistricting, persons", "a person", rho=2.56),
    Deployment("U.S. census 2020, demography, persons", "a person", rho=4.96),
    Deployment("Israel, live births of 2014", "a birth", 9.98),
    Deployment("Spectus, mobility in a hurricane", "a user", 10.0),
    Deployment("LinkedIn, audience engagement", "a user in one month", 34.9, 7e-9),
)
"""From opendp/deployments-registry-data, commit 3e9c812 of 15 July 2026; central releases with stated parameters."""


def bound_epsilon(epsilon: float, delta: float = 0.0) -> Test:
    """The bound of (epsilon, delta)-differential privacy.

    >>> round(bound_epsilon(1.0)(0.1), 4), round(bound_epsilon(1.0)(0.5), 4)
    (0.2718, 0.8161)
    """
    return lambda without: min(1.0, exp(epsilon) * without + delta, 1 - exp(-epsilon) * (1 - delta - without))


def bound_gaussian(rho: float) -> Test:
    """The bound of Gaussian noise at the price rho.

    >>> round(bound_gaussian(0.5)(0.5), 4)
    0.8413
    """
    return lambda without: float(ndtr(ndtri(without) + sqrt(2 * rho)))


def bound_rho(rho: float) -> Test:
    """The bound of rho-zCDP, whatever the noise is.

    >>> bound_gaussian(0.5)(0.1) < bound_rho(0.5)(0.1) < bound_epsilon(2.0)(0.1)
    True
    """

    def test(without: float) -> float:
        absent = np.log([without, 1 - without])

        def excess(logit: float) -> float:
            present = -np.logaddexp(0, [-logit, logit])
            both = ((present, absent), (absent, present))
            found = [
                logsumexp(ORDERS[:, None] * one + (1 - ORDERS[:, None]) * other, axis=1) / (ORDERS - 1)
                for one, other in both
            ]
            return float(np.max(np.array(found) - rho * ORDERS))

        lowest = log(without / (1 - without))
        return 1 / (1 + exp(-brentq(excess, lowest, lowest + 100 * (rho + 1), xtol=1e-12)))

    return test


def best_guess(test: Test) -> float:
    """The share of right guesses of an attacker for whom both tables are equally likely.

    >>> round(best_guess(bound_epsilon(1.0)), 6) == round(exp(1) / (1 + exp(1)), 6)
    True
    """
    # The gain is concave in `without`. A best attacker points at an absent person half of the time at most.
    found = minimize_scalar(
        lambda logit: -_gain(test, logit), bounds=(-40, 0), method="bounded", options={"xatol": 1e-9}
    )
    return max((1 + _gain(test, float(found.x))) / 2, (1 + _gain(test, 0.0)) / 2)


def _gain(test: Test, logit: float) -> float:
    """The gain of an attacker over blind guessing. logit: of the chance to point at an absent person."""
    without = 1 / (1 + exp(-logit))
    return test(without) - without


def believed(epsilon: float, before: float) -> float:
    """The most that an attacker believes after any answer, by Bayes' rule. before: the belief without the answer.

    >>> round(believed(1.0, 0.5), 4)
    0.7311
    """
    return exp(epsilon) * before / (exp(epsilon) * before + 1 - before)


def guess_of_whole_numbers(rho: float) -> float:
    """The best guess from one count with discrete Gaussian noise, of which a person is one row."""
    weights = np.exp(-rho * np.arange(-2000, 2001, dtype=np.float64) ** 2)
    return (1 + 1 / float(weights.sum())) / 2


def of_hundred(share: float) -> str:
    """A chance as a number of 100, with one decimal, and more where it is nearly 0 or 100.

    >>> of_hundred(0.2718), of_hundred(0.5), of_hundred(0.99995), of_hundred(1 - 1e-15)
    ('27.2', '50', '99.995', 'above 99.9999')
    """
    if share > 1 - 1e-6:
        return "above 99.9999"
    rest = min(share, 1 - share) * 100
    digits = 1 if rest >= 1 else 1 - int(np.floor(log10(rest)))
    text = f"{100 * share:.{digits}f}"
    return text.rstrip("0").rstrip(".")


def _lines(heads: list[str], rows: list[list[str]], texts: int = 1) -> list[str]:
    marks = [*["---"] * texts, *["---:"] * (len(heads) - texts)]
    return [f"| {' | '.join(row)} |" for row in (heads, marks, *rows)]


def pure_table() -> list[str]:
    """Lines of Markdown: epsilons against chances."""
    heads = ["epsilon", *(f"without {of_hundred(one)}, with" for one in WITHOUT), "right guesses"]
    tests = [(f"{epsilon:g}", bound_epsilon(epsilon)) for epsilon in EPSILONS]
    return _lines(heads, [[name, *_chances(test)] for name, test in tests])


def _chances(test: Test) -> list[str]:
    return [*(of_hundred(test(one)) for one in WITHOUT), of_hundred(best_guess(test))]


def rho_table() -> list[str]:
    """Lines of Markdown: rhos against chances, whatever the noise, and guesses from Gaussian noise."""
    heads = [
        "rho", *(f"without {of_hundred(one)}, with" for one in WITHOUT), "right guesses",
        "the same, Gaussian noise",
    ]  # fmt: skip
    rows = [[f"{rho:g}", *_chances(bound_rho(rho)), of_hundred(best_guess(bound_gaussian(rho)))] for rho in RHOS]
    return _lines(heads, rows)


def delta_table() -> list[str]:
    """Lines of Markdown: the promise of epsilon with a delta by itself, and as a budget here, which is held in rho."""
    heads = ["epsilon", "right guesses, by definition", "held here as rho", "right guesses", "the same, Gaussian noise"]
    rows = []
    for epsilon in DELTA_EPSILONS:
        rho = float(rho_of(Fraction(str(epsilon)), Fraction(str(DELTA))))
        tests = bound_epsilon(epsilon, DELTA), bound_rho(rho), bound_gaussian(rho)
        by_definition, here, gaussian = (of_hundred(best_guess(test)) for test in tests)
        rows.append([f"{epsilon:g}", by_definition, f"{rho:.3g}", here, gaussian])
    return _lines(heads, rows)


def deployment_table() -> list[str]:
    """Lines of Markdown: releases of others, with the odds that follow from their parameters."""
    heads = ["who", "protected", "parameters", "without 10, with", "right guesses"]
    rows = [
        [one.who, one.unit, one.price, of_hundred(one.test(0.1)), of_hundred(best_guess(one.test))]
        for one in DEPLOYMENTS
    ]
    return _lines(heads, rows, 3)


def main() -> None:
    for table in (pure_table(), rho_table(), delta_table(), deployment_table()):
        print("\n".join([*table, ""]))


if __name__ == "__main__":
    main()
