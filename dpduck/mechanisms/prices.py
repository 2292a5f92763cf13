"""Says a price in both forms, epsilon and rho, and what would be cheaper; nothing here is charged."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from dpduck.database.tables import EXPLAINED, SMALLEST_RHO
from dpduck.frontend.select.request import Request
from dpduck.frontend.text.names import quote_text
from dpduck.trusted.ask import Ask
from dpduck.trusted.ledger.budgets import shown
from dpduck.trusted.ledger.entries import LedgerEntry
from dpduck.trusted.ledger.ledger import Ledger
from dpduck.trusted.private.door import Bill, charged
from dpduck.values.accounting import epsilon_of, rho_of, rho_of_pure
from dpduck.values.errors import BudgetRefusal
from dpduck.values.privacy import Budget, Charge

FAR_CHEAPER = 2
"""How many times less is worth a word."""

EARLY = tuple(name for name, _ in EXPLAINED)[:10]
"""The columns of every explanation, up to its note."""

SAFE = 1 - Fraction(1, 10**9)
"""So that what is said to be left may be asked for as it is shown."""


def priced(
    sql: str, request: Request, asks: Iterable[Ask[Any]], budget: Budget | None, expect_rows: int | None = None
) -> str:
    """dp_explain with what the chosen row's asks cost as its rho, and a column `price` that says it in both forms.

    The price comes right after the columns that programs may rely on.

    Of the other rows rho is an upper bound: what the epsilon costs whatever is measured. expect_rows: of the policy,
    where all aggregates are counts, which may be nothing but noise beside it.
    """
    charge = charged(request.price.charge, asks, request.price.least_rho)
    most = charge.rho if charge.epsilon is None else min(request.price.charge.rho, rho_of_pure(charge.epsilon))
    rho = f"CASE WHEN chosen THEN CAST({quote_text(repr(float(charge.rho)))} AS DOUBLE) "
    rho += f"ELSE least(rho, CAST({quote_text(repr(float(most)))} AS DOUBLE)) END AS rho"
    said = "; ".join(part for part in (both_forms(charge, budget), cheaper(request, charge, budget)) if part)
    first = ", ".join(EARLY)
    price = f"CASE WHEN chosen THEN {quote_text(said)} END AS price"
    rho += "" if expect_rows is None else f", {_drowned(expect_rows)} AS note"
    rest = f"SELECT * REPLACE ({rho}), {price} FROM ({sql}) AS explained"
    return f"SELECT {first}, price, * EXCLUDE ({first}, price) FROM ({rest}) AS priced"


def _drowned(expect_rows: int) -> str:
    """The note, with a word where a count has more noise than the table is expected to have rows."""
    word = (
        f"; the noise of a count is larger than EXPECT ROWS {expect_rows}: an answer would be noise alone; "
        "a higher epsilon, fewer cells or a smaller MAX ROWS help"
    )
    return f"CASE WHEN worst_stderr > {expect_rows} THEN concat(note, {quote_text(word)}) ELSE note END"


def both_forms(charge: Charge, budget: Budget | None) -> str:
    """A price as the budget adds it up, and as an epsilon.

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


def priced_entry(entry: LedgerEntry) -> str:
    """An entry of the ledger by its number and price."""
    price = f"epsilon = {float(entry.epsilon):g}" if entry.epsilon is not None else f"rho = {float(entry.rho):.4g}"
    return f"ledger entry {entry.id}, {price}{f', delta = {float(entry.delta):g}' if entry.delta else ''},"


def cheaper(request: Request, charge: Charge, budget: Budget | None) -> str:
    """A line where the statement's epsilon would cost far less with the delta that the budget has; else nothing."""
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
    """The refusal of a price that a budget of rho has no room for, also in epsilon, as the statement may have been."""
    unit_key, charge, share = bill.unit_key, bill.charge, bill.allotment
    budget, delta = ledger.budget(unit_key), _delta(ledger.budget(unit_key))
    if budget is None or budget.rho is None:
        return refused
    left = budget.rho - ledger.spent(unit_key, within=bill.periods).rho
    if share is not None:
        left = min(left, budget.rho * share - ledger.spent(unit_key, bill.principal, bill.periods).rho)
    if charge.rho <= left:  # what is missing is delta for keys
        return refused
    forms = []
    if left > SMALLEST_RHO and delta:
        forms.append(f"epsilon = {shown(epsilon_of(left, delta) * SAFE, up=False)} with delta = {float(delta):g}")
    if left > SMALLEST_RHO:
        forms.append(f"epsilon = {shown(pure_epsilon_of(left), up=False)} without a delta (some statements: more)")
    asked = "the statement"
    if charge.epsilon is not None:
        forms.reverse()
        asked = f"the statement, epsilon = {float(charge.epsilon):g} without a delta,"
    elif delta:
        asked = f"the statement, as epsilon = {float(epsilon_of(charge.rho, delta)):.4g} with delta = {float(delta):g},"
    accepted = [refused.accepted, " or ".join(forms)] if forms else [refused.accepted]
    return BudgetRefusal(refused.what.replace("the statement", asked, 1), accepted=": ".join(accepted))


def pure_epsilon_of(rho: Fraction) -> Fraction:
    """An epsilon that costs no more than this rho, whatever is measured, and hardly less."""
    low, high = Fraction(0), rho + 2  # epsilon tanh(epsilon/2) is above epsilon - 1
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rho_of_pure(middle) <= rho else (low, middle)
    return low


def _delta(budget: Budget | None) -> Fraction:
    """The delta that a budget has for statements; 0 where it has none."""
    return Fraction(0) if budget is None or budget.epsilon is None else budget.delta - budget.delta_keys
