"""Odds of a guess about one privacy unit: from a privacy loss to a chance, and to a sentence for readers.

Somebody guesses whether the rows of one unit are in the data. Beforehand both answers are equally likely. The best
guess is right with a chance of (1 + d) / 2, where d is the total variation distance between the answers to two
neighbouring tables.

* (epsilon, delta)-differential privacy: the chance is at most (e^epsilon + delta) / (e^epsilon + 1), and randomised
  response reaches it [Kairouz, Oh, Viswanath: The composition theorem for differential privacy, 2015, theorem 2.1].
* rho-zCDP: an event has the chances p and q in two neighbouring tables. Both Kullback-Leibler divergences between p and
  q are at most rho, so that their sum (p - q) (logit p - logit q) is at most 2 rho. For a given d = p - q the sum is
  least at p = 1 - q = (1 + d) / 2, where it is 2 d log((1 + d) / (1 - d)). So d log((1 + d) / (1 - d)) <= rho. With
  d = tanh(e / 2) this is e tanh(e / 2) <= rho. Randomised response with epsilon = e is rho-zCDP for that rho
  (values/accounting.py, rho_of_pure), and reaches the bound.
* A delta for selected keys beside a rho: all else holds but for a chance of delta, so that d grows by delta at most.
"""

from __future__ import annotations

from math import ceil, exp, tanh

BLIND = 50
"""Right guesses of 100 whether somebody is in the data, if the guess uses no numbers."""

_LARGEST = 700.0
"""An epsilon at which every guess is right, as far as floats can say."""

_ROUNDING = 1e-12
"""Guesses of 100 by which computed chances may be too large through rounding."""


def best_guess(epsilon: float, delta: float = 0.0) -> float:
    """Returns the largest chance of a right guess under (epsilon, delta)-differential privacy.

    >>> best_guess(0.0), round(best_guess(1.0), 4)
    (0.5, 0.7311)
    """
    below = exp(-min(epsilon, _LARGEST))
    return min(1.0, (1 + delta * below) / (1 + below))


def best_guess_rho(rho: float, delta: float = 0.0) -> float:
    """Returns the largest chance of a right guess under rho-zCDP. delta: the delta of selected keys.

    >>> best_guess_rho(0.0), round(best_guess_rho(0.5), 4), best_guess_rho(1000.0)
    (0.5, 0.7395, 1.0)
    """
    return min(1.0, best_guess(epsilon_of_same_guess(rho)) + delta / 2)


def epsilon_of_same_guess(rho: float) -> float:
    """Returns the epsilon with epsilon tanh(epsilon / 2) = rho, rounded up. Its best guess is as good as under rho.

    >>> round(epsilon_of_same_guess(0.5), 4), epsilon_of_same_guess(0.0)
    (1.0436, 0.0)
    """
    if rho <= 0:
        return 0.0
    low, high = 0.0, rho + 1  # epsilon - epsilon tanh(epsilon / 2) is below 0.56
    for _ in range(200):
        middle = (low + high) / 2
        if middle * tanh(middle / 2) < rho:
            low = middle
        else:
            high = middle
    return high


def guesses_of_100(chance: float) -> int:
    """Returns the number of right guesses of 100 at a chance, rounded up.

    >>> guesses_of_100(0.5), guesses_of_100(0.7311), guesses_of_100(1.0)
    (50, 74, 100)
    """
    return min(100, ceil(100 * chance - _ROUNDING))


def guesses_at(epsilon: float | None, rho: float, delta: float = 0.0) -> int:
    """Returns the most right guesses of 100 at a loss. epsilon: None for a loss in rho. delta: that of selected keys.

    >>> guesses_at(1.0, 0.46), guesses_at(None, 0.5), guesses_at(None, 0.0)
    (74, 74, 50)
    """
    return guesses_of_100(best_guess_rho(rho, delta) if epsilon is None else best_guess(epsilon, delta))


def times_of_100(right: int) -> str:
    """Returns the words for a number of right guesses of 100.

    >>> times_of_100(74), times_of_100(100)
    ('at most 74 of 100 times', 'up to 100 of 100 times')
    """
    return f"at most {right} of 100 times" if right < 100 else "up to 100 of 100 times"


def odds_text(right: int, unit: str = "one privacy unit") -> str:
    """Returns two sentences about the most right guesses of 100.

    >>> odds_text(74, "one patient")
    'Whoever guesses whether one patient is in the data is right at most 74 of 100 times. Without any numbers it is 50.'
    """
    said = f"Whoever guesses whether {unit} is in the data is right {times_of_100(right)}."
    return f"{said} Without any numbers it is {BLIND}."
