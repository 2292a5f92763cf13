"""Prices in words: as parts of a budget, in epsilon and in rho, and cheaper alternatives. Nothing here is charged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from dpduck.kernel.door import Bill
from dpduck.kernel.ledger.budgets import for_person, format_amount, share_of
from dpduck.kernel.ledger.entries import LedgerEntry
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.language.select.request import Price, SelectRequest
from dpduck.store.releases import StoredRelease
from dpduck.store.tables import SMALLEST_RHO
from dpduck.values.accounting import epsilon_of, rho_of, rho_of_pure
from dpduck.values.errors import BudgetRefusal
from dpduck.values.per_cent import describe_amount, describe_price, in_per_cent, measured, parts_of_budget
from dpduck.values.privacy import ZERO, Budget, Charge

SAME_ERROR = 0.05
"""Relative difference of errors up to which they count as the same."""

FAR_CHEAPER = 2
"""Least factor between two prices at which the lower one is mentioned."""

SAFE = 1 - Fraction(1, 10**9)
"""Factor that lowers the remaining budget in a message, so that a statement may ask for the shown amount."""


Times = Callable[[SelectRequest], float | None]
"""Returns a request's errors as a multiple of those of an explained request. None if public facts do not tell them."""


def price_in_words(
    request: SelectRequest,
    charge: Charge,
    budget: Budget | None,
    share: Fraction | None,
    times: Times = lambda request: None,
) -> str:
    """Describes a statement's price as a part of a budget. Adds part and errors of a far cheaper form.

    share: the caller's part of the budget, None for all.
    """
    mine = share_of(budget, Fraction(1) if share is None else share)
    said = describe_price(charge, mine, request.rows.unit_key, _of_person(charge, request))
    cheaper = _cheaper(request, charge, budget)
    if mine is None or cheaper is None:
        return said
    options, price = cheaper
    part = in_per_cent(max(price.charge.rho, price.least_rho) / measured(mine, in_epsilon=False))
    return f"{said}; with {options} it would be {part}, {_errors_in_words(times(replace(request, price=price)))}"


def _errors_in_words(times: float | None) -> str:
    """Describes errors as a multiple of other errors.

    >>> [_errors_in_words(times) for times in (3.78, 1.01, 0.5, None)][:3]
    ['with about 3.8 times the error', 'with about the same error', 'with an error about 2 times smaller']
    """
    if times is None:
        return "and dp_explain of that form shows its errors"
    if abs(times - 1) < SAME_ERROR:
        return "with about the same error"
    if times < 1:
        return f"with an error about {float(f'{1 / times:.2g}'):g} times smaller"
    return f"with about {float(f'{times:.2g}'):g} times the error"


def price_of_view(release: StoredRelease, request: SelectRequest, budget: Budget | None) -> str:
    """Returns a release's guarantee with its price, as the statement stated it and as a part of the whole budget.

    The text is for the comment on a view. Anybody may read it, so it does not depend on the shares of principals.
    """
    stated, said = request.price, release.guarantee
    if release.epsilon is None and stated.stated_epsilon is not None and request.question.selection is None:
        delta = float(stated.stated_delta or 0)
        said = (
            f"differentially private, epsilon = {float(stated.stated_epsilon):g} with delta = {delta:g} "
            f"(rho = {float(release.rho):g}, zCDP)"
        )
    charge = Charge(release.epsilon, release.rho, release.delta)
    part = parts_of_budget(charge, budget, request.rows.unit_key, _of_person(charge, request), "the budget then")
    behind = release.epsilon is not None and budget is not None and not budget.pure
    rho = f" ({describe_amount(replace(charge, delta=ZERO), in_epsilon=False)})" if part and behind else ""
    return f"{said}, {part}{rho}" if part else said


def _of_person(charge: Charge, request: SelectRequest) -> Charge | None:
    """Returns the price for a person with rows in each charged period. None if the periods are unknown."""
    run = request.rows.periods
    return None if run is None or run.periods.every else for_person(charge, run.periods.count)


def describe_entry(entry: LedgerEntry) -> str:
    """Describes an entry of the ledger by its number and price."""
    price = f"epsilon = {float(entry.epsilon):g}" if entry.epsilon is not None else f"rho = {float(entry.rho):.4g}"
    return f"ledger entry {entry.id}, {price}{f', delta = {float(entry.delta):g}' if entry.delta else ''},"


def _cheaper(request: SelectRequest, charge: Charge, budget: Budget | None) -> tuple[str, Price] | None:
    """Returns options with the same epsilon and the budget's delta, and their price. None if it is not far cheaper."""
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
    price = replace(request.price, charge=Charge.zcdp(approximate), stated_delta=delta, target=None)
    return f"OPTIONS (epsilon = {float(charge.epsilon):g}, delta = {float(delta):g})", price


def in_both_forms(refused: BudgetRefusal, ledger: Ledger, bill: Bill) -> BudgetRefusal:
    """Returns the refusal of a price above a budget in rho. Adds the amounts in epsilon, as statements state prices."""
    unit_key, charge, share = bill.unit_key, bill.charge, bill.allotment
    budget, delta = ledger.budget(unit_key), _delta(ledger.budget(unit_key))
    if budget is None or budget.rho is None:
        return refused
    left = budget.rho - ledger.spent(unit_key, within=bill.periods).rho
    if share is not None:
        left = min(left, budget.rho * share - ledger.spent(unit_key, bill.principal, bill.periods).rho)
    if bill.a_day is not None:
        today = ledger.spent(unit_key, ledger.today(bill.principal), bill.periods).rho
        left = min(left, budget.rho * bill.a_day - today)
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
