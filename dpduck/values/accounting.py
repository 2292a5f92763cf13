"""Conversions between (epsilon, delta), rho and noise. Every result is an exact rational rounded to the safe side.

A rho-zCDP mechanism is (epsilon, delta)-differentially private for every alpha = 1 + t with t > 0 and

    delta = exp(t (alpha rho - epsilon)) / t * (1 - 1/alpha)^alpha

(Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy, 2020, Proposition 12). Solved for rho and
for epsilon, with L(t) = ln delta - t ln t + alpha ln alpha:

    rho(t) = (epsilon + L(t) / t) / alpha          epsilon(t) = alpha rho - L(t) / t

Each single t gives a valid guarantee, so a t that is not quite the best costs a little utility and never privacy. The
best t is searched with 40 decimal digits. The value at that t is computed with 80. A margin far above the error is
added towards the safe side, and the sum is rounded to 18 significant digits in the same direction. Rounding also keeps
denominators small.

Pure releases have a price in rho, too (docs/privacy.md, "What epsilon costs in rho"). Any epsilon-DP mechanism is
epsilon tanh(epsilon/2)-zCDP. Discrete Laplace noise costs less rho than that if its sensitivity is above 1.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import (
    ROUND_CEILING,
    ROUND_FLOOR,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
    Overflow,
    localcontext,
)
from fractions import Fraction
from functools import lru_cache

_TRAPS = [InvalidOperation, DivisionByZero, Overflow]
_SEARCH = Context(prec=40, Emin=-999_999, Emax=999_999, traps=_TRAPS)
_EXACT = Context(prec=80, Emin=-999_999, Emax=999_999, traps=_TRAPS)
_SAFETY = Decimal("1e-50")  # relative to the magnitudes of a sum's terms, whose computed error is below 1e-75
_GOLDEN = Decimal("0.6180339887498948482045868343656381177203")
_WIDTH = Decimal("1e-10")  # of ln t: near the peak its effect is quadratic
_LOWEST, _HIGHEST = Fraction(1, 10**12), Fraction(10**6)
_LONGEST_SHIFT = 1000  # in scales: beyond it, x itself is as good a bound
_SMALL_STEP = Decimal("1e-12")  # below it, s/sinh(s) is computed by a series, without terms below 1e-50
_LOWEST_DELTA = Fraction(1, 10**300)


def rho_of(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Returns nearly the largest rho by the formula above, rounded down. rho-zCDP implies (epsilon, delta)-DP.

    >>> round(float(rho_of(Fraction(1), Fraction(1, 10**6))), 5)
    0.02436
    """
    _require_amount("epsilon", epsilon)
    log_delta, share = _log_of_delta(delta), _decimal(epsilon)
    t = _best_t(lambda t: (share + _log_excess(log_delta, t)[0] / t) / (1 + t))
    with localcontext(_EXACT):
        excess, magnitude = _log_excess(log_delta, t)
        error = _SAFETY * (share + magnitude / t) / (1 + t)
        rho = _round((share + excess / t) / (1 + t) - error, ROUND_FLOOR)
    if rho <= 0:
        raise ValueError("this epsilon and delta are too small to be turned into a rho")
    return rho


def epsilon_of(rho: Fraction, delta: Fraction) -> Fraction:
    """Returns nearly the smallest epsilon by the formula above, rounded up. rho-zCDP implies (epsilon, delta)-DP."""
    _require_amount("rho", rho, lowest=Fraction(1, 10**30))
    log_delta, rate = _log_of_delta(delta), _decimal(rho)
    t = _best_t(lambda t: _log_excess(log_delta, t)[0] / t - (1 + t) * rate)
    with localcontext(_EXACT):
        excess, magnitude = _log_excess(log_delta, t)
        error = _SAFETY * ((1 + t) * rate + magnitude / t)
        return max(Fraction(0), _round((1 + t) * rate - excess / t + error, ROUND_CEILING))


def rho_of_pure(epsilon: Fraction) -> Fraction:
    """Returns an upper bound of epsilon tanh(epsilon/2): every epsilon-DP mechanism is zCDP with this rho.

    >>> round(float(rho_of_pure(Fraction(1))), 5), round(float(rho_of_pure(Fraction(3))), 5)
    (0.46212, 2.71544)
    """
    return rho_of_laplace(1, 1, 1 / Fraction(epsilon)) if epsilon > 0 else Fraction(0)


@lru_cache(maxsize=4096)
def rho_of_laplace(l1: int, most: int, scale: Fraction) -> Fraction:
    """Returns an upper bound of the rho of integers with discrete Laplace noise of this scale.

    l1, most: bounds on a unit's change of all integers together, and of each. A shift by d costs the Kullback-Leibler
    divergence K(d) = x - (1 - exp(-x)) s / sinh(s) with x = d/b, s = 1/b. K is convex, so l1 / most shifts of `most`
    cost most.

    >>> round(float(rho_of_laplace(5000, 1000, Fraction(5000))), 5)  # epsilon = 1 over five disjoint tables
    0.09365
    """
    if l1 < 0 or most < 0 or scale <= 0:
        raise ValueError("norms must not be negative, and a scale must be positive")
    most = min(most, l1)
    if most == 0:
        return Fraction(0)
    shift, least = Fraction(most) / scale, Fraction(l1, most)
    bound = least * min(shift, shift * shift / 2)  # K(d) <= x tanh(x/2) <= both
    if shift > _LONGEST_SHIFT or scale < 1 / _LONGEST_SHIFT:
        return bound
    with localcontext(_EXACT):
        x, s = _decimal(shift), _decimal(1 / scale)
        ratio = 2 * s / (s.exp() - (-s).exp()) if s > _SMALL_STEP else 1 - s * s / 6  # s/sinh(s) is never below that
        divergence = x - (1 - (-x).exp()) * ratio + _SAFETY * x
        return min(bound, _round(_decimal(least) * divergence * (1 + _SAFETY), ROUND_CEILING))


def _require_amount(name: str, amount: Fraction, lowest: Fraction = _LOWEST) -> None:
    if not isinstance(amount, Fraction):
        raise ValueError(f"{name} must be an exact rational")
    if not lowest <= amount <= _HIGHEST:
        raise ValueError(f"{name} must lie between {float(lowest):g} and {float(_HIGHEST):g}")


def _log_of_delta(delta: Fraction) -> Decimal:
    if not isinstance(delta, Fraction):
        raise ValueError("delta must be an exact rational")
    if not _LOWEST_DELTA <= delta < 1:
        raise ValueError("delta must lie between 1e-300 and 1, and be smaller than 1")
    return _EXACT.ln(_decimal(delta))


def _decimal(amount: Fraction) -> Decimal:
    return _EXACT.divide(Decimal(amount.numerator), Decimal(amount.denominator))


def _log_excess(log_delta: Decimal, t: Decimal) -> tuple[Decimal, Decimal]:
    """Returns L(t), and the sum of the magnitudes of its terms, to which its error is relative."""
    small, large = t * t.ln(), (1 + t) * (1 + t).ln()
    return log_delta - small + large, abs(log_delta) + abs(small) + abs(large)


def _best_t(gain: Callable[[Decimal], Decimal]) -> Decimal:
    """Finds t by golden section over ln t: ln delta is convex in alpha, so rho(t) and -epsilon(t) have one peak."""
    with localcontext(_SEARCH):
        low, high = Decimal(-46), Decimal(46)
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        gain_left, gain_right = gain(left.exp()), gain(right.exp())
        while high - low > _WIDTH:
            if gain_left < gain_right:
                low, left, gain_left = left, right, gain_right
                right = low + _GOLDEN * (high - low)
                gain_right = gain(right.exp())
            else:
                high, right, gain_right = right, left, gain_left
                left = high - _GOLDEN * (high - low)
                gain_left = gain(left.exp())
        return left.exp()


def _round(value: Decimal, rounding: str) -> Fraction:
    """Rounds to 18 significant digits towards the safe side."""
    return Fraction(Context(prec=18, rounding=rounding, Emin=-999_999, Emax=999_999, traps=_TRAPS).plus(value))
