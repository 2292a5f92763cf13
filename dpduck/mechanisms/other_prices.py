"""How often a price still fits into a budget, and one statement at four prices side by side. Nothing is charged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from dpduck.kernel.ledger.budgets import share_of
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.language.rows.facts import Policy
from dpduck.language.select.options import least_rho, most_rho
from dpduck.language.select.request import Price, SelectRequest
from dpduck.store.cursors import Caller
from dpduck.values.accounting import rho_of
from dpduck.values.per_cent import in_per_cent, is_in_epsilon, measured
from dpduck.values.privacy import Charge

FACTORS = (Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))
"""Prices side by side, as multiples of the price that was asked for."""

MOST_TIMES = 1_000_000
"""The largest number of times that is said exactly."""

Planned = Callable[[SelectRequest], Charge | None]
"""Returns the charge of a request, None if it is not planned."""


def times_left(request: SelectRequest, charge: Charge, ledger: Ledger, caller: Caller) -> int | None:
    """Returns how often a charge for the rows of a request still fits. None if its price is not known yet."""
    if charge.rho <= 0:
        return None
    periods = None if request.rows.periods is None else request.rows.periods.periods
    unit = request.rows.unit_key
    return ledger.times_left(
        unit, charge, caller.name, allotment=caller.share, project=caller.project, a_day=caller.a_day, periods=periods
    )


def price_at(price: Price, factor: Fraction) -> Price | None:
    """Returns a multiple of a price: of its epsilon if it has one, and else of its rho. None if there is none.

    A delta stays as it is, and so does its part for selected keys.
    """
    charge, stated = price.charge, price.stated_epsilon
    if price.target is not None:
        return None
    if charge.epsilon is not None:
        other = replace(Charge.pure(charge.epsilon * factor), delta=charge.delta)
    elif stated is not None and price.stated_delta is not None:
        try:
            other = Charge.zcdp(rho_of(stated * factor, price.stated_delta - charge.delta), charge.delta)
        except ValueError:
            return None
    else:
        other = Charge.zcdp(charge.rho * factor, charge.delta)
    return replace(price, charge=other, stated_epsilon=None if stated is None else stated * factor)


def other_prices(
    request: SelectRequest, charge: Charge, planned: Planned, policy: Policy | None, ledger: Ledger, caller: Caller
) -> str | None:
    """Describes half, once, twice and four times a price: its part of the caller's budget, and how often it fits.

    charge: the charge of the request itself. planned: gives the charges of others. None if a price is not known.
    """
    mine = share_of(ledger.budget(request.rows.unit_key), Fraction(1) if caller.share is None else caller.share)
    if mine is None or request.price.target is not None:
        return None
    lines = []
    for factor in FACTORS:
        price = price_at(request.price, factor)
        if price is None:
            return None
        refused = "" if factor == 1 or policy is None else _limit_text(price, policy)
        if refused:
            lines.append(f"{_price_text(price)}: {refused}")
            continue
        cost = charge if factor == 1 else planned(replace(request, price=price))
        whole = measured(mine, in_epsilon=is_in_epsilon(charge, mine))
        if cost is None or not whole:
            return None
        part = in_per_cent(measured(cost, in_epsilon=is_in_epsilon(charge, mine)) / whole)
        lines.append(f"{_price_text(price)}: {part}, {_times(times_left(request, cost, ledger, caller))}")
    return "; ".join(lines)


def _price_text(price: Price) -> str:
    """Writes a price as a statement would: its epsilon, or its rho."""
    if price.stated_epsilon is not None:
        return f"epsilon = {float(price.stated_epsilon):g}"
    return f"rho = {float(price.charge.rho):.4g}"


def _limit_text(price: Price, policy: Policy) -> str:
    """Says which limit of a policy refuses a price. '' for none."""
    most, epsilon, rho = most_rho(policy), price.stated_epsilon, price.charge.rho
    above = policy.max_epsilon is not None and (epsilon or 0) > policy.max_epsilon
    if above or (price.charge.epsilon is None and most is not None and rho > most):
        return "above MAX EPSILON"
    least = policy.min_epsilon
    if least is not None and (rho < least_rho(least) if epsilon is None else epsilon < least):
        return "below MIN EPSILON"
    return ""


def _times(times: int | None) -> str:
    """Writes how often a price fits.

    >>> _times(0), _times(1), _times(29), _times(10**9)
    ('too dear', 'once', '29 times', 'more than 1,000,000 times')
    """
    if times is None or times > MOST_TIMES:
        return f"more than {MOST_TIMES:,} times"
    return {0: "too dear", 1: "once"}.get(times, f"{times:,} times")
