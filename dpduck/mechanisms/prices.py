"""Prices in both forms, epsilon and rho, and cheaper alternatives. Nothing here is charged."""

from __future__ import annotations

from fractions import Fraction

from dpduck.kernel.door import Bill
from dpduck.kernel.ledger.budgets import format_amount
from dpduck.kernel.ledger.entries import LedgerEntry
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.language.select.request import SelectRequest
from dpduck.store.tables import SMALLEST_RHO
from dpduck.values.accounting import epsilon_of, rho_of, rho_of_pure
from dpduck.values.errors import BudgetRefusal
from dpduck.values.privacy import Budget, Charge

FAR_CHEAPER = 2
"""Factor from which a lower price is worth a note."""

SAFE = 1 - Fraction(1, 10**9)
"""Factor that lowers the remaining budget in a message, so that a statement may ask for the shown amount."""


def price_in_words(request: SelectRequest, charge: Charge, budget: Budget | None) -> str:
    """Returns a statement's price in both forms, and a form that would be far cheaper."""
    return "; ".join(filter(None, (both_forms(charge, budget), cheaper(request, charge, budget))))


def both_forms(charge: Charge, budget: Budget | None) -> str:
    """Returns a price as the budget adds it up, and as an epsilon.

    >>> both_forms(Charge.pure(Fraction(1)), Budget(Fraction(3), Fraction(0), Fraction(0), None))
    'epsilon = 1'
    """
    if charge.epsilon is not None and (budget is None or budget.pure):
        return f"epsilon = {float(charge.epsilon):g}"
    said = f"rho = {float(charge.rho):.4g}"
    delta = _delta(budget)
    if delta and charge.rho > SMALLEST_RHO:
        said += f", as epsilon = {float(epsilon_of(charge.rho, delta)):.4g} with delta = {float(delta):g} costs"
    if charge.delta:
        said += f", and delta = {float(charge.delta):g} for keys"
    return said


def describe_entry(entry: LedgerEntry) -> str:
    """Describes an entry of the ledger by its number and price."""
    price = f"epsilon = {float(entry.epsilon):g}" if entry.epsilon is not None else f"rho = {float(entry.rho):.4g}"
    return f"ledger entry {entry.id}, {price}{f', delta = {float(entry.delta):g}' if entry.delta else ''},"


def cheaper(request: SelectRequest, charge: Charge, budget: Budget | None) -> str:
    """Returns a note if the statement's epsilon would cost far less with the budget's delta, else an empty text."""
    delta = _delta(budget)
    summary = request.question.summary
    filtered = summary is not None and summary.method != "sketch"  # geometric noise alone
    if charge.epsilon is None or charge.delta or not delta or filtered:
        return ""
    try:
        approximate = rho_of(charge.epsilon, delta)
    except ValueError:
        return ""
    if approximate * FAR_CHEAPER > charge.rho:
        return ""
    return (
        f"OPTIONS (epsilon = {float(charge.epsilon):g}, delta = {float(delta):g}) would cost rho = "
        f"{float(approximate):.4g}, {float(charge.rho / approximate):.2g} times less, and have larger noise; "
        f"OPTIONS (rho = {float(charge.rho):.4g}) costs the same and has Gaussian noise"
    )


def in_both_forms(refused: BudgetRefusal, ledger: Ledger, bill: Bill) -> BudgetRefusal:
    """Adds epsilon to the refusal of a price that exceeds a budget of rho: the statement may be written in epsilon."""
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
    return BudgetRefusal(refused.what.replace("the statement", asked, 1), accepted=": ".join(accepted))


def pure_epsilon_of(rho: Fraction) -> Fraction:
    """Returns an epsilon that costs at most this rho for any measurement, and hardly less than it."""
    low, high = Fraction(0), rho + 2  # epsilon tanh(epsilon/2) is above epsilon - 1
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rho_of_pure(middle) <= rho else (low, middle)
    return low


def _delta(budget: Budget | None) -> Fraction:
    """Returns the delta that a budget has for statements, 0 if it has none."""
    return Fraction(0) if budget is None or budget.epsilon is None else budget.delta - budget.delta_keys
