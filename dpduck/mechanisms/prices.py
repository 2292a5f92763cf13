"""Prices in words: as parts of a budget, in epsilon and in rho, and cheaper alternatives. Nothing here is charged."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from dpduck.kernel.door import Bill
from dpduck.kernel.ledger.budgets import for_person, format_amount, share_of
from dpduck.kernel.ledger.entries import LedgerEntry
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.language.select.request import SelectRequest
from dpduck.store.tables import SMALLEST_RHO
from dpduck.values.accounting import epsilon_of, rho_of, rho_of_pure
from dpduck.values.errors import BudgetRefusal
from dpduck.values.periods import word_of
from dpduck.values.privacy import ZERO, Budget, Charge

FAR_CHEAPER = 2
"""Factor from which a lower price is worth a word."""

SAFE = 1 - Fraction(1, 10**9)
"""Factor that lowers the remaining budget in a message, so that a statement may ask for the shown amount."""


def in_per_cent(part: Fraction, *, up: bool = True) -> str:
    """Writes a fraction in per cent with two digits. Prices are rounded up, amounts that are left down (up=False).

    >>> in_per_cent(Fraction(1, 30)), in_per_cent(Fraction(1, 30), up=False), in_per_cent(Fraction(3, 2))
    ('3.4 %', '3.3 %', '150 %')
    """
    context = Context(prec=2, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    return f"{float(context.divide(Decimal(100 * part.numerator), Decimal(part.denominator))):.15g} %"


def price_in_words(request: SelectRequest, charge: Charge, budget: Budget | None, share: Fraction | None) -> str:
    """Describes a statement's price as a part of a budget. If another form is far cheaper, names it and its part.

    share: the caller's part of the budget, None for all.
    """
    in_epsilon = charge.epsilon is not None and (budget is None or budget.pure)
    amount = f"epsilon = {float(charge.epsilon or 0):g}" if in_epsilon else f"rho = {float(charge.rho):.4g}"
    if charge.delta:
        amount += f", and delta = {float(charge.delta):g} for keys"
    mine = budget if budget is None or share is None else share_of(budget, share)
    if mine is None or not _adds(mine, in_epsilon):
        return amount
    word, run = word_of(request.rows.unit_key), request.rows.periods
    parts = [f"{in_per_cent(_adds(charge, in_epsilon) / _adds(mine, in_epsilon))} of your budget"]
    if word:
        parts[0] += f" of each {word.lower()}"
    if mine.lifetime is not None and _adds(mine.lifetime, in_epsilon) and run is not None and not run.periods.every:
        person = for_person(charge, run.periods.count)
        parts.append(f"{in_per_cent(_adds(person, in_epsilon) / _adds(mine.lifetime, in_epsilon))} of LIFETIME")
    if charge.delta and mine.delta_keys:
        parts.append(f"{in_per_cent(charge.delta / mine.delta_keys)} of its delta for keys")
    said = f"{' and '.join(parts)} ({amount})"
    cheaper = _cheaper(request, charge, budget)
    if cheaper is None:
        return said
    options, rho = cheaper
    part = in_per_cent(rho / _adds(mine, in_epsilon=False))
    return f"{said}; with {options} it would be {part}, usually with larger errors"


def _adds(amounts: Budget | Charge, in_epsilon: bool) -> Fraction:
    """Returns the epsilon or the rho of a budget or a charge, 0 if it has none."""
    return (amounts.epsilon if in_epsilon else amounts.rho) or ZERO


def describe_entry(entry: LedgerEntry) -> str:
    """Describes an entry of the ledger by its number and price."""
    price = f"epsilon = {float(entry.epsilon):g}" if entry.epsilon is not None else f"rho = {float(entry.rho):.4g}"
    return f"ledger entry {entry.id}, {price}{f', delta = {float(entry.delta):g}' if entry.delta else ''},"


def _cheaper(request: SelectRequest, charge: Charge, budget: Budget | None) -> tuple[str, Fraction] | None:
    """Returns options with the same epsilon and the budget's delta, and their rho. None if that is not far cheaper."""
    delta = _delta(budget)
    summary = request.question.summary
    filtered = summary is not None and summary.method != "sketch"  # geometric noise alone
    if charge.epsilon is None or charge.delta or not delta or filtered:
        return None
    try:
        approximate = rho_of(charge.epsilon, delta)
    except ValueError:
        return None
    if approximate * FAR_CHEAPER > charge.rho:
        return None
    return f"OPTIONS (epsilon = {float(charge.epsilon):g}, delta = {float(delta):g})", approximate


def in_both_forms(refused: BudgetRefusal, ledger: Ledger, bill: Bill) -> BudgetRefusal:
    """Returns the refusal of a price above a budget in rho. Adds the amounts in epsilon, as statements state prices."""
    unit_key, charge, share = bill.unit_key, bill.charge, bill.allotment
    budget, delta = ledger.budget(unit_key), _delta(ledger.budget(unit_key))
    if budget is None or budget.rho is None:
        return refused
    left = budget.rho - ledger.spent(unit_key, within=bill.periods).rho
    if share is not None:
        left = min(left, budget.rho * share - ledger.spent(unit_key, bill.principal, bill.periods).rho)
    if charge.rho <= left:  # the budget lacks delta for keys
        return refused
    forms = []
    if left > SMALLEST_RHO and delta:
        forms.append(
            f"epsilon = {format_amount(epsilon_of(left, delta) * SAFE, up=False)} with delta = {float(delta):g}"
        )
    if left > SMALLEST_RHO:
        forms.append(
            f"epsilon = {format_amount(pure_epsilon_of(left), up=False)} without a delta (some statements: more)"
        )
    asked = "the statement"
    if charge.epsilon is not None:
        forms.reverse()
        asked = f"the statement, epsilon = {float(charge.epsilon):g} without a delta,"
    elif delta:
        asked = f"the statement, as epsilon = {float(epsilon_of(charge.rho, delta)):.4g} with delta = {float(delta):g},"
    accepted = [refused.accepted, " or ".join(forms)] if forms else [refused.accepted]
    whole = budget.rho * (Fraction(1) if share is None else share)
    parts = f"{in_per_cent(charge.rho / whole)}, and {in_per_cent(max(left, ZERO) / whole, up=False)} is left"
    return BudgetRefusal(
        f"{refused.what.replace('the statement', asked, 1)}: it takes {parts}", accepted=": ".join(accepted)
    )


def pure_epsilon_of(rho: Fraction) -> Fraction:
    """Returns the largest epsilon, up to rounding, that costs at most this rho for any measurement."""
    low, high = Fraction(0), rho + 2  # epsilon tanh(epsilon/2) is above epsilon - 1
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rho_of_pure(middle) <= rho else (low, middle)
    return low


def _delta(budget: Budget | None) -> Fraction:
    """Returns the delta that a budget has for statements, 0 if it has none."""
    return Fraction(0) if budget is None or budget.epsilon is None else budget.delta - budget.delta_keys
