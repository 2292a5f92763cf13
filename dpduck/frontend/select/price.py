"""What a statement costs by its options and the policy: refused here, where the budget has no room for its kind."""

from __future__ import annotations

from fractions import Fraction

from sqlglot import exp

from dpduck.frontend.rows.facts import Policy
from dpduck.frontend.select.options import LARGEST_EPSILON, Options, SelectionOptions
from dpduck.frontend.select.request import Target
from dpduck.frontend.text.positions import refusal
from dpduck.values.accounting import rho_of, rho_of_pure
from dpduck.values.privacy import Charge

SMALLEST_DELTA = Fraction(1, 10**30)
WITH_KEYS = "BUDGET (epsilon = .., delta = .., delta_keys = ..)"


def charge_of(options: Options, policy: Policy, place: exp.Expr) -> Charge:
    """What the whole statement costs (DESIGN 5: its epsilon and delta become rho); nothing yet for a target."""
    if options.target_stderr is not None:
        return Charge.pure(Fraction(0)) if policy.budget.pure else Charge.concentrated(Fraction(0))
    if options.selection is not None:
        charge = charge_of_keys(options, options.selection, policy, place)
    elif options.rho is not None:
        charge = Charge.concentrated(options.rho)
    elif options.epsilon is not None and options.delta is not None:
        charge = Charge.concentrated(_rho(options.epsilon, options.delta, place))
    else:
        charge = Charge.pure(options.epsilon or Fraction(0))
    if policy.budget.pure and charge.epsilon is None:
        raise refusal(place, "this table's budget is pure epsilon", "epsilon = .. without delta or rho")
    _require_most(options, policy, charge, place)
    if charge.rho <= 0:
        raise refusal(place, "this epsilon and delta allow no noise scale", "a larger epsilon or delta")
    _require_least(options, policy, charge, place)
    return charge


def least_rho(epsilon: Fraction) -> Fraction:
    """The smallest price in rho under a MIN EPSILON: what that epsilon costs at most, by itself (DESIGN 5)."""
    return epsilon * epsilon / 2


def most_rho(policy: Policy) -> Fraction | None:
    """The largest price in rho under a MAX EPSILON: what that epsilon costs at the budget's delta, or by itself."""
    limit, budget = policy.max_epsilon, policy.budget
    if limit is None or budget.pure:
        return None
    try:
        return rho_of(limit, budget.delta) if budget.delta > 0 else rho_of_pure(limit)
    except ValueError:
        return Fraction(0)


def _require_most(options: Options, policy: Policy, charge: Charge, place: exp.Expr) -> None:
    """Refuses a price above MAX EPSILON, in whichever way it is written."""
    limit, most = policy.max_epsilon, most_rho(policy)
    if limit is None:
        return
    said = f"epsilon of at most {float(limit):g}"
    if most:
        with_delta = f" with delta = {float(policy.budget.delta):g}" if policy.budget.delta else ""
        said = f"{said}{with_delta}, or rho of at most {float(most) * (1 - 1e-6):.6g}"
    if (options.epsilon or 0) > limit or (charge.epsilon is None and most is not None and charge.rho > most):
        raise refusal(place, "the price of one statement is limited", said)


def _require_least(options: Options, policy: Policy, charge: Charge, place: exp.Expr) -> None:
    """Refuses a price so small that a statement that tells one bit would cost next to nothing."""
    least = policy.min_epsilon
    if least is None:
        return
    if options.epsilon is not None and options.epsilon < least:
        raise refusal(place, "one statement has a smallest price", f"epsilon of at least {float(least):g}")
    if options.epsilon is None and charge.rho < least_rho(least):
        raise refusal(place, "one statement has a smallest price", f"rho of at least {float(least_rho(least)):g}")


def target_of(options: Options, policy: Policy, place: exp.Expr) -> Target | None:
    """The standard error that is to be bought, within MIN EPSILON and MAX EPSILON."""
    if options.target_stderr is None:
        return None
    pure, least = policy.budget.pure, policy.min_epsilon or Fraction(0)
    limit = policy.max_epsilon if pure else most_rho(policy)
    return Target(
        options.target_stderr, pure, LARGEST_EPSILON if limit is None else limit, least if pure else least_rho(least)
    )


def charge_of_keys(options: Options, selection: SelectionOptions, policy: Policy, place: exp.Expr) -> Charge:
    """What selected keys cost: rho or epsilon, and from the delta that the budget keeps for keys (DESIGN 5).

    Laplace: the whole delta is for keys. Gaussian: of epsilon and delta, keys get the share of delta that the budget
    keeps for them, so that a statement may be the whole budget; beside a rho, the whole delta is theirs.
    """
    budget = policy.budget
    if budget.pure:
        raise refusal(
            place,
            "selected keys cost a delta, and this table's budget is pure epsilon",
            f"a DOMAIN for the keys, or {WITH_KEYS} in the policy",
        )
    if budget.delta_keys <= 0:
        raise refusal(place, "this table's budget keeps no delta for selected keys", f"{WITH_KEYS} in the policy")
    if options.delta is None:
        raise refusal(place, "selected keys cost a delta", "epsilon = .. and delta = ..")
    if selection.laplace and options.epsilon is None:
        raise refusal(place, "LAPLACE_THRESHOLD is paid with an epsilon", "epsilon = .. and delta = ..")
    delta = options.delta
    if selection.laplace or options.epsilon is None:
        charge = (
            Charge(options.epsilon, options.epsilon**2 / 2, delta)
            if options.epsilon is not None
            else Charge.concentrated(options.rho or Fraction(0), delta)
        )
    else:
        delta = delta * budget.delta_keys / budget.delta
        charge = Charge.concentrated(_rho(options.epsilon, options.delta - delta, place), delta)
    if delta < SMALLEST_DELTA:
        raise refusal(
            place, "this delta is too small for selected keys", f"a delta of at least {float(SMALLEST_DELTA):g}"
        )
    return charge


def _rho(epsilon: Fraction, delta: Fraction, place: exp.Expr) -> Fraction:
    try:
        return rho_of(epsilon, delta)
    except ValueError:
        raise refusal(place, "this epsilon and delta allow no noise scale", "a larger epsilon or delta") from None
