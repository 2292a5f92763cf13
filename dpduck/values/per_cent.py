"""Prices in words: as parts of a budget in per cent, with epsilon or rho behind them. Prices are rounded up."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from dpduck.values.periods import word_of
from dpduck.values.privacy import ZERO, Budget, Charge


def in_per_cent(part: Fraction, *, up: bool = True) -> str:
    """Writes a fraction in per cent with two digits. Prices are rounded up, remaining amounts are rounded down.

    >>> in_per_cent(Fraction(1, 30)), in_per_cent(Fraction(1, 30), up=False), in_per_cent(Fraction(3, 2))
    ('3.4 %', '3.3 %', '150 %')
    """
    return f"{_round(100 * part, 2, ROUND_CEILING if up else ROUND_FLOOR):.15g} %"


def describe_amount(charge: Charge, *, in_epsilon: bool) -> str:
    """Writes a price in epsilon or in rho, with its delta for keys, each in four digits and rounded up.

    >>> describe_amount(Charge.zcdp(Fraction(1, 30), Fraction(1, 10**6)), in_epsilon=False)
    'rho = 0.03334, and delta = 1e-06 for keys'
    """
    name, amount = ("epsilon", charge.epsilon or ZERO) if in_epsilon else ("rho", charge.rho)
    keys = f", and delta = {_digits(charge.delta)} for keys" if charge.delta else ""
    return f"{name} = {_digits(amount)}{keys}"


def measured(amounts: Budget | Charge, *, in_epsilon: bool) -> Fraction:
    """Returns the epsilon or the rho of a budget or a charge, 0 if it has none."""
    return (amounts.epsilon if in_epsilon else amounts.rho) or ZERO


def is_in_epsilon(charge: Charge, budget: Budget | None) -> bool:
    """Tells whether the budget adds up the epsilon of this charge. Otherwise it adds up the rho."""
    return charge.epsilon is not None and (budget is None or budget.pure)


def parts_of_budget(
    charge: Charge, budget: Budget | None, unit_key: str, person: Charge | None, whole: str = "your budget"
) -> str:
    """Describes a price as parts of a budget, and of its LIFETIME. Returns '' if the budget adds up other amounts.

    person: the price for a person with rows in each charged period, None without periods. whole: the budget in words.
    """
    in_epsilon = is_in_epsilon(charge, budget)
    if budget is None or not measured(budget, in_epsilon=in_epsilon):
        return ""
    word = word_of(unit_key)
    each = f" of each {word.lower()}" if word else ""
    part = measured(charge, in_epsilon=in_epsilon) / measured(budget, in_epsilon=in_epsilon)
    parts = [f"{in_per_cent(part)} of {whole}{each}"]
    lifetime = ZERO if budget.lifetime is None else measured(budget.lifetime, in_epsilon=in_epsilon)
    if lifetime and person is not None:
        parts.append(f"{in_per_cent(measured(person, in_epsilon=in_epsilon) / lifetime)} of LIFETIME")
    if charge.delta and budget.delta_keys:
        parts.append(f"{in_per_cent(charge.delta / budget.delta_keys)} of its delta for keys")
    return " and ".join(parts)


def describe_price(charge: Charge, budget: Budget | None, unit_key: str, person: Charge | None) -> str:
    """Describes a price as parts of a budget, and adds the amount. The arguments are those of parts_of_budget."""
    parts = parts_of_budget(charge, budget, unit_key, person)
    amount = describe_amount(charge, in_epsilon=is_in_epsilon(charge, budget))
    return f"{parts} ({amount})" if parts else amount


def _digits(amount: Fraction) -> str:
    return f"{_round(amount, 4, ROUND_CEILING):.4g}"


def _round(amount: Fraction, digits: int, rounding: str) -> float:
    return float(Context(digits, rounding).divide(Decimal(amount.numerator), Decimal(amount.denominator)))
