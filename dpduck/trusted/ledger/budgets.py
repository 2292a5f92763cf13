"""What a budget has room for, and which changes of a budget are accepted; every number in a message is public."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from dpduck.values.accounting import epsilon_of, rho_of
from dpduck.values.errors import BudgetRefusal, InternalError, Refusal
from dpduck.values.privacy import ZERO, Budget, Charge


def require_charge(charge: Charge) -> None:
    """Refuse a charge that costs nothing, is not exact, or claims more for its epsilon than zCDP gives."""
    amounts = [charge.rho, charge.delta, *([] if charge.epsilon is None else [charge.epsilon])]
    if not all(isinstance(amount, Fraction) for amount in amounts):
        raise InternalError("a charge must be made of exact rationals")
    if charge.rho <= 0 or charge.delta < 0 or (charge.epsilon is not None and charge.epsilon <= 0):
        raise InternalError("a charge must cost something")
    if charge.epsilon is not None and charge.rho > charge.epsilon * charge.epsilon / 2:
        raise InternalError("a pure charge must cost at most epsilon^2/2 of rho")


def require_budget(budget: Budget) -> None:
    """Refuse a budget that does not hold together: a rho beyond its epsilon and delta, or no amount at all."""
    amounts = [budget.delta, budget.delta_keys, *(x for x in (budget.epsilon, budget.rho) if x is not None)]
    if not all(isinstance(amount, Fraction) for amount in amounts):
        raise InternalError("a budget must be made of exact rationals")
    if budget.delta < 0 or not 0 <= budget.delta_keys <= budget.delta or budget.delta >= 1:
        raise InternalError("a budget's delta must be smaller than 1, and at least what it keeps for keys")
    if budget.lifetime is not None:
        require_budget(budget.lifetime)
        if budget.lifetime.pure != budget.pure or budget.lifetime.lifetime is not None:
            raise InternalError("a lifetime must add up what its budget does")
    if budget.rho is None:
        if budget.epsilon is None or budget.epsilon <= 0 or budget.delta != 0:
            raise InternalError("a pure budget must have a positive epsilon and no delta")
        return
    if budget.rho <= 0:
        raise InternalError("a budget must have a positive rho")
    if budget.epsilon is not None and budget.rho > _rho_allowed(budget.epsilon, budget.delta - budget.delta_keys):
        raise InternalError("a budget's rho must not exceed what its epsilon and delta allow")


def _rho_allowed(epsilon: Fraction, delta: Fraction) -> Fraction:
    try:
        return rho_of(epsilon, delta)
    except ValueError:
        return ZERO


def require_room(owner: str, budget: Budget | None, spent: Charge, charge: Charge) -> None:
    """Refuse what is more than is left: pure budgets add epsilon, the others rho and the delta of selected keys.

    owner: whose budget or share it is, for the message.
    """
    if budget is None:
        raise BudgetRefusal(f"there is no {owner}", accepted="CREATE PRIVACY POLICY with a BUDGET by the owner")
    if budget.rho is not None:
        _require_sum("rho", owner, budget.rho, spent.rho, charge.rho)
        _require_sum("delta for keys", owner, budget.delta_keys, spent.delta, charge.delta)
        return
    if charge.epsilon is None or charge.delta != 0 or spent.epsilon is None:
        raise BudgetRefusal(
            f"the {owner} is pure and cannot pay for, or after, a release with rho or delta",
            accepted="OPTIONS (epsilon = ...) alone, or a policy with BUDGET (epsilon = ..., delta = ...)",
        )
    if budget.epsilon is None:
        raise InternalError("a pure budget must have an epsilon")
    _require_sum("epsilon", owner, budget.epsilon, spent.epsilon, charge.epsilon)


def share_of(budget: Budget | None, allotment: Fraction) -> Budget | None:
    """Returns the part of a budget that one principal may spend."""
    if not isinstance(allotment, Fraction) or not 0 < allotment <= 1:
        raise InternalError("an allotment must be an exact share above 0 and up to 1")
    if budget is None:
        return None
    return Budget(
        epsilon=None if budget.epsilon is None else budget.epsilon * allotment,
        delta=budget.delta * allotment,
        delta_keys=budget.delta_keys * allotment,
        rho=None if budget.rho is None else budget.rho * allotment,
        lifetime=share_of(budget.lifetime, allotment),
    )


def require_change(unit_key: str, new: Budget, spent: Charge) -> None:
    """Refuse a budget below what its unit has spent already, in the measure of the new budget."""
    if new.rho is not None:
        _require_at_least("rho", unit_key, new.rho, spent.rho, _as_epsilon(new, spent.rho))
        _require_at_least("delta for keys", unit_key, new.delta_keys, spent.delta)
        return
    if spent.epsilon is None or spent.delta != 0:
        raise Refusal(
            f"the budget of {unit_key} cannot become pure: rho or delta was spent from it",
            accepted="BUDGET (epsilon = ..., delta = ...) or (rho = ...)",
        )
    if new.epsilon is not None:
        _require_at_least("epsilon", unit_key, new.epsilon, spent.epsilon)


def name_of_change(old: Budget | None, new: Budget) -> str:
    """Returns the ledger's word for the declaration of a budget."""
    if old is None:
        return "budget declared"
    if old == new:
        return "budget restated"
    before, after = _amounts(old), _amounts(new)
    if (old.lifetime is None) != (new.lifetime is None):
        return "budget changed"
    if old.lifetime is not None and new.lifetime is not None:
        before, after = (*before, *_amounts(old.lifetime)), (*after, *_amounts(new.lifetime))
    grows = any(x < y for x, y in zip(before, after, strict=True))
    shrinks = any(x > y for x, y in zip(before, after, strict=True))
    if old.pure != new.pure or grows == shrinks:
        return "budget changed"
    return "budget widened" if grows else "budget narrowed"


def shown(amount: Fraction, *, up: bool) -> str:
    """Returns an amount for people, in six digits and never on the wrong side.

    >>> shown(Fraction(1, 3), up=False), shown(Fraction(1, 3), up=True), shown(Fraction(10), up=True)
    ('0.333333', '0.333334', '10')
    >>> shown(Fraction(1, 10**6), up=False), shown(Fraction(1, 10**7), up=False)
    ('1e-6', '1e-7')
    """
    context = Context(prec=6, rounding=ROUND_CEILING if up else ROUND_FLOOR, Emin=-999_999, Emax=999_999)
    value = context.divide(Decimal(amount.numerator), Decimal(amount.denominator)).normalize(context)
    place = value.adjusted()
    return f"{value:{'f' if 0 <= place <= 9 else 'e' if place < -3 else 'g'}}"


def _amounts(budget: Budget) -> tuple[Fraction, ...]:
    adds = budget.epsilon if budget.rho is None else budget.rho
    return (ZERO if adds is None else adds), budget.delta_keys


def _require_sum(measure: str, owner: str, budget: Fraction, spent: Fraction, asked: Fraction) -> None:
    if spent + asked <= budget:
        return
    left = max(ZERO, budget - spent)
    accepted = f"{measure} of at most {shown(left, up=False)}" if left else "a budget widened by the owner"
    if measure == "delta for keys":  # LAPLACE_THRESHOLD spends its whole delta on them
        accepted += "; GAUSSIAN_THRESHOLD, which takes a part of its delta" if left else ""
        accepted += "; for the owner ALTER PRIVACY POLICY ON .. SET BUDGET (epsilon = .., delta = .., delta_keys = ..)"
    raise BudgetRefusal(
        f"the statement asks for {measure} = {shown(asked, up=True)} "
        f"but the {owner} has {shown(left, up=False)} of {shown(budget, up=False)} left",
        accepted=accepted,
    )


def _as_epsilon(budget: Budget, rho: Fraction) -> str:
    """Converts what was spent to the epsilon that a budget with this delta would need."""
    delta = budget.delta - budget.delta_keys
    if budget.epsilon is None or delta <= 0 or rho <= 0:
        return ""
    least = epsilon_of(rho, delta) * (1 + Fraction(1, 10**9))
    return f": epsilon of at least {shown(least, up=True)} with delta = {float(budget.delta):g}"


def _require_at_least(measure: str, unit_key: str, new: Fraction, spent: Fraction, also: str = "") -> None:
    if new < spent:
        raise Refusal(
            f"the budget of {unit_key} cannot be {measure} = {shown(new, up=False)}: "
            f"{shown(spent, up=True)} is already spent",
            accepted=f"{measure} of at least {shown(spent, up=True)}{also}",
        )
