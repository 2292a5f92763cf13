"""Histograms and sessions as releases: one charge, a secret that stays in the vault, and public facts as a table.

What a session states about its answers, from public figures alone:

alpha = threshold + b1 ln(8 c / beta)         an answer that did not fire is as close as that (c updates, k questions)
threshold = gap + b2 ln(8 k / beta)           no question whose gap is smaller fires
gap = 2 a, a = the error of a measurement     so that every update is progress

Each holds for all questions but with probability beta/4 (the number of rows takes the last quarter). Where neither
updates nor alpha are given, the gap is also so large that the updates cannot run out (gap_for).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, exp, log, sqrt

import pyarrow as pa

from dpduck.kernel.door import Door
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask
from dpduck.kernel.queries.histograms import EveryKey
from dpduck.kernel.queries.later import Within
from dpduck.kernel.queries.sessions import UNITS, GateLaw, SparseVector
from dpduck.language.select.request import Request
from dpduck.language.statements.kinds import HISTOGRAM, SESSION
from dpduck.mechanisms.mechanism import OneAsk, Tools
from dpduck.mechanisms.release import ReleasedTable, ReleaseHeader
from dpduck.mechanisms.sparse.projection import USUAL_ROWS_OF_TABLE, key_scan
from dpduck.mechanisms.sparse.request import SparseRequest
from dpduck.strategies.budgets import kind_and_amount, noise_for, uniform_parameter
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Charge

TOTAL_SHARE = Fraction(1, 100)
"""Of the price, for the number of rows."""
SHARES = [share / 20 for share in range(4, 20)]
ABOVE = 1 + 1e-9  # noise scales are rounded up by more than a double's error


@dataclass(frozen=True)
class SessionPlan:
    """law: for trusted code. alpha: rows that no unmarked answer misses by more. measured: the same of an update's.

    slots: keys that can be assigned. total: rows of the hypothesis, from above.
    """

    law: GateLaw
    alpha: float
    measured: float
    slots: int
    total: float

    @property
    def warning(self) -> str:
        """Returns one line where the answer "half of all rows" to every question would err no more; else empty."""
        if self.alpha < self.total / 2:
            return ""
        return f"hopeless: alpha = {self.alpha:.6g} is no less than half of the {self.total:.6g} rows there may be"


@dataclass(frozen=True)
class Declared:
    """What the statement says of the questions (see frontend.sparse_request.SparseOptions)."""

    sparsity: int
    queries: int
    beta: float
    updates: int | None
    alpha: float | None


def total_parameter(charge: Charge, unit_bound: int) -> Fraction:
    """Returns the variance or scale of the noisy number of rows, the first thing that a session measures."""
    noise, amount = kind_and_amount(charge)
    return uniform_parameter(noise, 1, amount * TOTAL_SHARE, unit_bound)


def total_margin(charge: Charge, unit_bound: int, beta: float) -> float:
    """Returns what is added to the noisy number of rows so that the true one is hardly ever larger."""
    parameter, chances = float(total_parameter(charge, unit_bound)), log(4 / beta)
    return sqrt(2 * parameter * chances) if charge.epsilon is None else parameter * chances


def plan_session(charge: Charge, unit_bound: int, declared: Declared, total: float) -> SessionPlan:
    """Returns the plan with the smallest alpha, or with the most updates for a given one."""
    total = max(total, 1.0)
    if declared.updates is not None:
        plan = _with_updates(charge, unit_bound, declared, total, declared.updates)
        return plan if declared.alpha is None else _widened(plan, declared.alpha)
    if declared.alpha is not None:
        return _widened(_most_updates(charge, unit_bound, declared, total, declared.alpha), declared.alpha)
    counts = sorted({min(declared.queries, ceil(1.25**power)) for power in range(62)})
    plans = [_with_updates(charge, unit_bound, declared, total, updates, lasting=True) for updates in counts]
    return min(plans, key=lambda plan: plan.alpha)


def _most_updates(charge: Charge, unit_bound: int, declared: Declared, total: float, alpha: float) -> SessionPlan:
    """Bisection: alpha grows with the number of updates."""
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


def _widened(plan: SessionPlan, alpha: float) -> SessionPlan:
    """Returns the plan with its threshold raised to a given alpha."""
    slack = alpha - plan.alpha
    if slack < 0:
        raise Refusal(
            f"at this price no session with so many updates answers within alpha = {alpha:g}",
            accepted=f"alpha of at least {plan.alpha:.6g}, or fewer updates",
        )
    return replace(plan, law=replace(plan.law, threshold=plan.law.threshold + int(slack * UNITS)), alpha=alpha)


def _with_updates(
    charge: Charge, unit_bound: int, declared: Declared, total: float, updates: int, lasting: bool = False
) -> SessionPlan:
    plans = [_shared(charge, unit_bound, declared, total, updates, share, lasting) for share in SHARES]
    return min(plans, key=lambda plan: plan.alpha)


def _shared(
    charge: Charge, unit_bound: int, declared: Declared, total: float, updates: int, share: float, lasting: bool
) -> SessionPlan:
    """Returns the plan in which this share of an update's price goes to the gate."""
    (noise, amount), step = kind_and_amount(charge), unit_bound * UNITS
    once = float(amount * (1 - TOTAL_SHARE)) / updates
    near, far = log(8 * updates / declared.beta), log(8 * declared.queries / declared.beta)
    if noise is NoiseKind.GAUSSIAN:
        gate = sqrt(2 * share * once)
        parameter = ceil(step**2 / (2 * (1 - share) * once) * ABOVE)
        measured = sqrt(2 * parameter * near)
    else:
        gate = share * once
        parameter = ceil(step / ((1 - share) * once) * ABOVE)
        measured = parameter * near
    # smallest b1 near + b2 far for a given 1/b1 + 1/b2: b proportional to 1 / sqrt of its factor
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


# Sparse multiplicative weights over an infinite universe: what a session believes, from public answers alone.
#
# The hypothesis is a distribution of `total` rows over `slots` keys, assigned when they are first updated,
# and one place for the mass of all keys that never are. It begins with half of the mass there and the rest
# even over the slots, so that its relative entropy to the truth is at most ln(2 slots) at first.
# docs/sparse_queries.md bounds the updates.

STEP = 2 / 3  # of the way to a measurement: then it never passes the exact answer, see updates_needed
NARROW = 1e-12


@dataclass(frozen=True)
class Change:
    """An update: new raw weights of the question's keys, and the factor that all weights share from now on."""

    weights: Mapping[int, float]
    scale: float


class Hypothesis:
    """Raw weights by key (its digest as one integer), all to be multiplied by `scale`."""

    def __init__(self, total: float, slots: int, weights: Mapping[int, float], scale: float) -> None:
        self.total = total
        self.slots = slots
        self.scale = scale
        self._weights = dict(weights)
        self._unassigned = total / (2 * slots)

    def answer(self, keys: Sequence[int], weights: Sequence[float]) -> float:
        """Returns the hypothesis's answer: assigned keys by their weight, others by that of an unused slot."""
        get, unused = self._weights.get, self._unassigned
        return self.scale * sum(weight * get(key, unused) for key, weight in zip(keys, weights, strict=True))

    def towards(self, keys: Sequence[int], weights: Sequence[float], measured: float) -> Change:
        """Returns the multiplicative update h_i exp(eta w_i) / Z with which the answer moves STEP of the way to
        `measured`.

        eta solves one increasing equation, by bisection between bounds that hold it.
        """
        held = [self.scale * self._weights.get(key, self._unassigned) for key in keys]
        rest = max(self.total - sum(held), NARROW * self.total)
        now = sum(weight * mass for weight, mass in zip(weights, held, strict=True))
        most = max(weights, default=0.0)
        goal = now + STEP * (measured - now)
        goal = min(max(goal, NARROW * self.total), (1 - 1e-6) * most * self.total)
        low, high = -60.0, 60.0
        for _ in range(200):
            eta = (low + high) / 2
            grown = [mass * exp(eta * weight) for mass, weight in zip(held, weights, strict=True)]
            whole = rest + sum(grown)
            reached = self.total * sum(w * mass for w, mass in zip(weights, grown, strict=True)) / whole
            low, high = (eta, high) if reached < goal else (low, eta)
        factor = self.total / whole
        return Change({key: mass / self.scale for key, mass in zip(keys, grown, strict=True)}, self.scale * factor)

    def apply(self, change: Change) -> None:
        """Takes an update over."""
        self._weights.update(change.weights)
        self.scale = change.scale


def slots_for(total: float, updates: int, sparsity: int, alpha: float) -> int:
    """Counts slots: for every key that updates can touch, and so many that no question begins above alpha / 20."""
    return max(updates * sparsity, ceil(10 * sparsity * total / alpha))


def gap_for(total: float, updates: int, sparsity: int) -> float:
    """Returns a gap with which so many updates always suffice: twice the fixed point's step, as alpha is no less."""
    first = total * sqrt(0.9 * log(2 * updates * sparsity) / updates)
    return total * sqrt(0.9 * log(2 * slots_for(total, updates, sparsity, first)) / updates)


Opened = tuple[SessionPlan, int]
FACTS = (("facts", "VARCHAR"),)
COMPUTATIONAL = "computational: as strong as HMAC-SHA256 for keys without rows"


def secret_name(digest: str) -> str:
    """Names the secret of a histogram or session in the secrets file."""
    return f"sparse {digest}"


def session_plan(sparse: SparseRequest, total: float | None = None) -> SessionPlan:
    """Returns the plan of a session; before it is made, with the public guess of the number of rows."""
    options = sparse.options
    alpha = None if options.alpha is None else float(options.alpha)
    declared = Declared(options.sparsity, options.queries, float(options.beta), options.updates, alpha)
    rows = total if total is not None else float(sparse.expect_rows or USUAL_ROWS_OF_TABLE)
    return plan_session(sparse.request.price.charge, sparse.request.rows.unit_bound, declared, rows)


def _facts(values: dict[str, object]) -> ReleasedTable:
    text = json.dumps(values, default=str)
    return ReleasedTable(FACTS, pa.table({"facts": pa.array([text], pa.string())}))


HistogramProposal = OneAsk[SparseRequest, bytes]
"""A histogram over an unbounded universe. Its noise is what the price buys for every key at once."""


def propose_histogram(sparse: SparseRequest) -> HistogramProposal:
    """Returns the plan of a histogram. Refuses one with noise that cannot be drawn."""
    noise = noise_for(*kind_and_amount(sparse.request.price.charge), sparse.request.rows.unit_bound)
    return HistogramProposal(sparse.request, sparse, Ask(key_scan(sparse), EveryKey(), noise))


def histogram_header(proposal: HistogramProposal) -> ReleaseHeader:
    """Describes the release before anything is counted."""
    noise = proposal.ask.law.kind.value
    return ReleaseHeader(proposal.request, f"{noise}, lazy histogram; {COMPUTATIONAL}", HISTOGRAM)


def open_histogram(proposal: HistogramProposal, door: Door, tools: Tools) -> None:
    """Noise of the keys that have rows, a fresh secret for all others."""
    tools.secrets.put(secret_name(proposal.plan.digest()), door.answer(proposal.ask))
    tools.steps("after the secret")


def histogram_facts(proposal: HistogramProposal, nothing: None, tools: Tools) -> ReleasedTable:
    """Returns its public facts."""
    noise = proposal.ask.law
    return _facts({"noise": noise.kind.name, "spread": noise.parameter})


@dataclass(frozen=True)
class SessionProposal:
    """A session of adaptive questions. total, gates: the noisy number of rows, and a gate that is planned for it."""

    sparse: SparseRequest
    plan: SessionPlan
    total: Ask[int]
    gates: Ask[None]

    @property
    def request(self) -> Request:
        """Returns the rows and the price."""
        return self.sparse.request


def propose_session(sparse: SparseRequest) -> SessionProposal:
    """Returns the plan of a session, for the public guess of its number of rows."""
    plan, scan = session_plan(sparse), key_scan(sparse)
    plan.law.gate_ask(scan)  # refused here where its noise cannot be drawn: after the total, that would tell of it
    total = plan.law.total_ask(scan)
    return SessionProposal(sparse, plan, total, gates_within(sparse, total))


def session_header(proposal: SessionProposal) -> ReleaseHeader:
    """Describes the release before anything is counted."""
    noise = proposal.plan.law.noise.value
    return ReleaseHeader(proposal.request, f"{noise}, session: sparse vector and multiplicative weights", SESSION)


def open_session(proposal: SessionProposal, door: Door, tools: Tools) -> Opened:
    """Returns the noisy number of rows, the plan for it, the noise of all thresholds."""
    request, beta = proposal.request, float(proposal.sparse.options.beta)
    noisy = door.answer(proposal.total)
    plan = session_plan(
        proposal.sparse, max(1.0, noisy + total_margin(request.price.charge, request.rows.unit_bound, beta))
    )
    gate = plan.law.gate_ask(proposal.total.scan)
    door.admit(gate, proposal.gates)
    tools.secrets.put(secret_name(proposal.sparse.digest()), door.answer(gate))
    tools.steps("after the secret")
    return plan, noisy


def session_facts(proposal: SessionProposal, opened: Opened, tools: Tools) -> ReleasedTable:
    """Returns its public facts."""
    return _facts(plan_to_facts(*opened))


def gates_within(sparse: SparseRequest, total: Ask[int]) -> Ask[None]:
    """Returns a gate that costs what the noisy number of rows leaves of the price."""
    charge, paid = sparse.request.price.charge, total.cost
    if charge.epsilon is None or paid.epsilon is None:
        return Ask(total.scan, Within(charge.rho - paid.rho, pure=False, kinds=(SparseVector,)))
    return Ask(total.scan, Within(charge.epsilon - paid.epsilon, pure=True, kinds=(SparseVector,)))


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


def histogram_from_facts(text: str) -> Noise:
    """Returns the noise of a released histogram."""
    facts = json.loads(text)
    return Noise(NoiseKind[facts["noise"]], Fraction(facts["spread"]))
