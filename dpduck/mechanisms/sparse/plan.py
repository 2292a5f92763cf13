"""Plans of sessions, from error bounds that follow from public figures alone.

With c updates, k questions, and noise scales b1 and b2:

* alpha = threshold + b1 ln(8 c / beta): an answer that did not fire is off by alpha at most.
* threshold = gap + b2 ln(8 k / beta): a question with a smaller gap does not fire.
* gap = 2 a, a = the error of a measurement: every update is progress.

Each holds for all questions except with probability beta/4. The number of rows takes the last quarter.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, log, sqrt

from dpduck.kernel.noise.law import NoiseKind
from dpduck.kernel.queries.sessions import UNITS, GateLaw
from dpduck.mechanisms.sparse.hypothesis import gap_for, slots_for
from dpduck.mechanisms.sparse.projection import USUAL_ROWS_OF_TABLE
from dpduck.mechanisms.sparse.request import SparseRequest
from dpduck.strategies.budgets import kind_and_amount, uniform_parameter
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Charge

TOTAL_SHARE = Fraction(1, 100)
SHARES = [share / 20 for share in range(4, 20)]
ABOVE = 1 + 1e-9  # noise scales are rounded up by more than a double's error


@dataclass(frozen=True)
class SessionPlan:
    """Plan of a session. alpha, measured: error bounds of the hypothesis's and of measured answers, in rows.

    slots: the most keys with a weight of their own.
    total: an upper bound on the number of rows of the hypothesis.
    """

    law: GateLaw
    alpha: float
    measured: float
    slots: int
    total: float

    @property
    def warning(self) -> str:
        """Returns a warning if the answer "half of all rows" to every question is off by alpha at most, else ''."""
        if self.alpha < self.total / 2:
            return ""
        return f"hopeless: alpha = {self.alpha:.6g} is no less than half of the {self.total:.6g} rows there may be"


@dataclass(frozen=True)
class SparseWorkload:
    """Declared figures of the questions (see request.SparseOptions)."""

    sparsity: int
    queries: int
    beta: float
    updates: int | None
    alpha: float | None


def total_parameter(charge: Charge, unit_bound: int) -> Fraction:
    """Returns the variance or scale of the noise in the number of rows, a session's first measurement."""
    noise, amount = kind_and_amount(charge)
    return uniform_parameter(noise, 1, amount * TOTAL_SHARE, unit_bound)


def total_margin(charge: Charge, unit_bound: int, beta: float) -> float:
    """Returns the margin by which the true number of rows exceeds the noisy one with chance beta/4 at most."""
    parameter, chances = float(total_parameter(charge, unit_bound)), log(4 / beta)
    return sqrt(2 * parameter * chances) if charge.epsilon is None else parameter * chances


def plan_session(charge: Charge, unit_bound: int, declared: SparseWorkload, total: float) -> SessionPlan:
    """Returns the plan with the smallest alpha. If only alpha is given, returns the plan with the most updates."""
    total = max(total, 1.0)
    if declared.updates is not None:
        plan = _with_updates(charge, unit_bound, declared, total, declared.updates)
        return plan if declared.alpha is None else _widen(plan, declared.alpha)
    if declared.alpha is not None:
        return _widen(_most_updates(charge, unit_bound, declared, total, declared.alpha), declared.alpha)
    counts = sorted({min(declared.queries, ceil(1.25**power)) for power in range(62)})
    plans = [_with_updates(charge, unit_bound, declared, total, updates, lasting=True) for updates in counts]
    return min(plans, key=lambda plan: plan.alpha)


def _most_updates(charge: Charge, unit_bound: int, declared: SparseWorkload, total: float, alpha: float) -> SessionPlan:
    """Finds the most updates within `alpha` by bisection: alpha grows with the number of updates."""
    low, high = 1, min(declared.queries, 10**6)
    best = _with_updates(charge, unit_bound, declared, total, 1)
    if best.alpha > alpha:
        raise Refusal(
            f"at this price no session answers within alpha = {alpha:g}", accepted=f"alpha of at least {best.alpha:.6g}"
        )
    while low <= high:
        middle = (low + high) // 2
        plan = _with_updates(charge, unit_bound, declared, total, middle)
        if plan.alpha <= alpha:
            best, low = plan, middle + 1
        else:
            high = middle - 1
    return best


def _widen(plan: SessionPlan, alpha: float) -> SessionPlan:
    slack = alpha - plan.alpha
    if slack < 0:
        raise Refusal(
            f"at this price no session of {plan.law.updates} updates answers within alpha = {alpha:g}",
            accepted=f"alpha of at least {plan.alpha:.6g}, or fewer updates",
        )
    return replace(plan, law=replace(plan.law, threshold=plan.law.threshold + int(slack * UNITS)), alpha=alpha)


def _with_updates(
    charge: Charge, unit_bound: int, declared: SparseWorkload, total: float, updates: int, lasting: bool = False
) -> SessionPlan:
    plans = [_plan_with_share(charge, unit_bound, declared, total, updates, share, lasting) for share in SHARES]
    return min(plans, key=lambda plan: plan.alpha)


def _plan_with_share(
    charge: Charge, unit_bound: int, declared: SparseWorkload, total: float, updates: int, share: float, lasting: bool
) -> SessionPlan:
    (noise, amount), step = kind_and_amount(charge), unit_bound * UNITS
    per_update = float(amount * (1 - TOTAL_SHARE)) / updates
    near, far = log(8 * updates / declared.beta), log(8 * declared.queries / declared.beta)
    if noise is NoiseKind.GAUSSIAN:
        gate = sqrt(2 * share * per_update)
        parameter = ceil(step**2 / (2 * (1 - share) * per_update) * ABOVE)
        measured = sqrt(2 * parameter * near)
    else:
        gate = share * per_update
        parameter = ceil(step / ((1 - share) * per_update) * ABOVE)
        measured = parameter * near
    # minimises b1 near + b2 far for a given 1/b1 + 1/b2: each b is proportional to 1 / sqrt of its factor
    both = sqrt(near) + sqrt(far)
    threshold_scale, question_scale = (ceil(step * both / (gate * sqrt(chances)) * ABOVE) for chances in (near, far))
    gap = 2 * measured
    if lasting and updates < declared.queries:
        gap = max(gap, gap_for(total, updates, declared.sparsity) * UNITS)
    threshold = ceil(gap + question_scale * far)
    law = GateLaw(
        updates, unit_bound, threshold, Fraction(threshold_scale), Fraction(question_scale), noise, Fraction(parameter),
        total_parameter(charge, unit_bound),
    )  # fmt: skip
    alpha = (threshold + threshold_scale * near + 1) / UNITS
    slots = slots_for(total, updates, declared.sparsity, alpha)
    return SessionPlan(law, alpha, measured / UNITS, slots, total)


def session_plan(sparse: SparseRequest, total: float | None = None) -> SessionPlan:
    """Plans a session for `total` rows, by default for the public guess of the number of rows."""
    options = sparse.options
    alpha = None if options.alpha is None else float(options.alpha)
    declared = SparseWorkload(options.sparsity, options.queries, float(options.beta), options.updates, alpha)
    rows = total if total is not None else float(sparse.expect_rows or USUAL_ROWS_OF_TABLE)
    return plan_session(sparse.request.price.charge, sparse.request.rows.unit_bound, declared, rows)


def plan_to_facts(plan: SessionPlan, noisy_total: int) -> dict[str, object]:
    """Writes a session's public facts, for its released table."""
    law = plan.law
    return {
        "noisy_total": noisy_total, "alpha": plan.alpha, "measured": plan.measured, "slots": plan.slots,
        "total": plan.total, "updates": law.updates, "unit_bound": law.unit_bound, "threshold": law.threshold,
        "threshold_scale": law.threshold_scale, "question_scale": law.question_scale, "noise": law.noise.name,
        "spread": law.parameter, "total_spread": law.total_parameter,
    }  # fmt: skip


def plan_from_facts(text: str) -> SessionPlan:
    """Reads the plan that plan_to_facts wrote."""
    facts = json.loads(text)
    law = GateLaw(
        facts["updates"], facts["unit_bound"], facts["threshold"], Fraction(facts["threshold_scale"]),
        Fraction(facts["question_scale"]), NoiseKind[facts["noise"]], Fraction(facts["spread"]),
        Fraction(facts["total_spread"]),
    )  # fmt: skip
    return SessionPlan(law, facts["alpha"], facts["measured"], facts["slots"], facts["total"])
