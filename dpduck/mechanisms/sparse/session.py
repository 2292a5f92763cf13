"""Histograms and sessions as releases: one charge, a secret that stays in the vault, and public facts as a table.

Error bounds of a session, from public figures alone (c updates, k questions, noise scales b1 and b2):

* alpha = threshold + b1 ln(8 c / beta): an answer that did not fire is off by alpha at most.
* threshold = gap + b2 ln(8 k / beta): a question with a smaller gap does not fire.
* gap = 2 a, a = the error of a measurement: every update is progress.

Each holds for all questions except with probability beta/4 (the number of rows takes the last quarter). If neither
updates nor alpha is given, the gap is also so large that the updates cannot run out (gap_for).
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
from dpduck.language.select.request import SelectRequest
from dpduck.language.statements.kinds import HISTOGRAM, SESSION
from dpduck.mechanisms.mechanism import OneAsk, Tools
from dpduck.mechanisms.release import ReleasedTable, ReleaseHeader
from dpduck.mechanisms.sparse.projection import USUAL_ROWS_OF_TABLE, key_scan
from dpduck.mechanisms.sparse.request import SparseRequest
from dpduck.strategies.budgets import kind_and_amount, noise_for, uniform_parameter
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Charge

TOTAL_SHARE = Fraction(1, 100)
"""Share of the price for the number of rows."""
SHARES = [share / 20 for share in range(4, 20)]
ABOVE = 1 + 1e-9  # noise scales are rounded up by more than a double's error


@dataclass(frozen=True)
class SessionPlan:
    """Plan of a session. alpha: the error bound of a checked answer of the hypothesis, in rows.

    measured: the error bound of an update's answer. slots: the most keys with a weight of their own. total: the number
    of rows of the hypothesis, from above. law: the gate's law, for trusted code.
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
    """Returns a margin. The true number of rows exceeds the noisy number by more with chance beta/4 at most."""
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
    """Returns the plan with its threshold raised to the given alpha."""
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
    """Returns the plan that spends `share` of an update's price on the gate."""
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


# Sparse multiplicative weights over an infinite universe: a session's hypothesis, from public answers alone.
#
# The hypothesis is a distribution of `total` rows over `slots` keys and one remainder. A key gets a slot at its
# first update. The remainder has the mass of all keys without a slot. At first it has half of the mass, and the
# slots share the other half evenly. So the relative entropy to the truth is at most ln(2 slots) at first.
# docs/sparse_queries.md bounds the updates.

STEP = 2 / 3  # of the way to a measurement: no move passes the exact answer then (docs/sparse_queries.md)
NARROW = 1e-12


@dataclass(frozen=True)
class Change:
    """Update of a hypothesis: new raw weights of the question's keys, and the new common factor of all weights."""

    weights: Mapping[int, float]
    scale: float


class Hypothesis:
    """Raw weights by key (its digest as one integer), with a common factor `scale`."""

    def __init__(self, total: float, slots: int, weights: Mapping[int, float], scale: float) -> None:
        self.total = total
        self.slots = slots
        self.scale = scale
        self._weights = dict(weights)
        self._unassigned = total / (2 * slots)

    def answer(self, keys: Sequence[int], weights: Sequence[float]) -> float:
        """Returns the hypothesis's answer. Assigned keys have their own weight, others the weight of an unused slot."""
        get, unused = self._weights.get, self._unassigned
        return self.scale * sum(weight * get(key, unused) for key, weight in zip(keys, weights, strict=True))

    def towards(self, keys: Sequence[int], weights: Sequence[float], measured: float) -> Change:
        """Returns the multiplicative update h_i exp(eta w_i) / Z that moves the answer STEP of the way to `measured`.

        eta solves an increasing equation, by bisection between bounds that contain it.
        """
        masses = [self.scale * self._weights.get(key, self._unassigned) for key in keys]
        rest = max(self.total - sum(masses), NARROW * self.total)
        now = sum(weight * mass for weight, mass in zip(weights, masses, strict=True))
        most = max(weights, default=0.0)
        goal = now + STEP * (measured - now)
        goal = min(max(goal, NARROW * self.total), (1 - 1e-6) * most * self.total)
        low, high = -60.0, 60.0
        for _ in range(200):
            eta = (low + high) / 2
            grown = [mass * exp(eta * weight) for mass, weight in zip(masses, weights, strict=True)]
            whole = rest + sum(grown)
            reached = self.total * sum(w * mass for w, mass in zip(weights, grown, strict=True)) / whole
            low, high = (eta, high) if reached < goal else (low, eta)
        factor = self.total / whole
        return Change({key: mass / self.scale for key, mass in zip(keys, grown, strict=True)}, self.scale * factor)

    def apply(self, change: Change) -> None:
        """Applies an update."""
        self._weights.update(change.weights)
        self.scale = change.scale


def slots_for(total: float, updates: int, sparsity: int, alpha: float) -> int:
    """Counts slots: one for each key that updates can touch, and enough that no question begins above alpha / 20."""
    return max(updates * sparsity, ceil(10 * sparsity * total / alpha))


def gap_for(total: float, updates: int, sparsity: int) -> float:
    """Returns a gap with which `updates` updates always suffice: two fixed-point steps, since alpha is no smaller."""
    first = total * sqrt(0.9 * log(2 * updates * sparsity) / updates)
    return total * sqrt(0.9 * log(2 * slots_for(total, updates, sparsity, first)) / updates)


Opened = tuple[SessionPlan, int]
FACTS = (("facts", "VARCHAR"),)
COMPUTATIONAL = "computational: as strong as HMAC-SHA256 for keys without rows"


def secret_name(digest: str) -> str:
    """Names the secret of a histogram or session in the secrets file."""
    return f"sparse {digest}"


def session_plan(sparse: SparseRequest, total: float | None = None) -> SessionPlan:
    """Plans a session for `total` rows, by default for the public guess of the number of rows."""
    options = sparse.options
    alpha = None if options.alpha is None else float(options.alpha)
    declared = SparseWorkload(options.sparsity, options.queries, float(options.beta), options.updates, alpha)
    rows = total if total is not None else float(sparse.expect_rows or USUAL_ROWS_OF_TABLE)
    return plan_session(sparse.request.price.charge, sparse.request.rows.unit_bound, declared, rows)


def _facts(values: dict[str, object]) -> ReleasedTable:
    text = json.dumps(values, default=str)
    return ReleasedTable(FACTS, pa.table({"facts": pa.array([text], pa.string())}))


HistogramProposal = OneAsk[SparseRequest, bytes]
"""Proposal of a histogram over an unbounded universe. One price pays for the noise of all keys at once."""


def propose_histogram(sparse: SparseRequest) -> HistogramProposal:
    """Proposes a histogram. Refuses noise that cannot be drawn."""
    noise = noise_for(*kind_and_amount(sparse.request.price.charge), sparse.request.rows.unit_bound)
    return HistogramProposal(sparse.request, sparse, Ask(key_scan(sparse), EveryKey(), noise))


def histogram_header(proposal: HistogramProposal) -> ReleaseHeader:
    """Describes the release before anything is counted."""
    noise = proposal.ask.law.kind.value
    return ReleaseHeader(proposal.request, f"{noise}, lazy histogram; {COMPUTATIONAL}", HISTOGRAM)


def open_histogram(proposal: HistogramProposal, door: Door, tools: Tools) -> None:
    """Stores the secret of a histogram: noisy counts of the keys with rows, and a fresh noise key for all others."""
    tools.secrets.put(secret_name(proposal.plan.digest()), door.answer(proposal.ask))
    tools.steps("after the secret")


def histogram_facts(proposal: HistogramProposal, nothing: None, tools: Tools) -> ReleasedTable:
    """Returns the histogram's public facts."""
    noise = proposal.ask.law
    return _facts({"noise": noise.kind.name, "spread": noise.parameter})


@dataclass(frozen=True)
class SessionProposal:
    """Proposal of a session of adaptive questions: the noisy number of rows, and a gate planned for that number."""

    sparse: SparseRequest
    plan: SessionPlan
    total: Ask[int]
    gates: Ask[None]

    @property
    def request(self) -> SelectRequest:
        """Returns the request with the rows and the price."""
        return self.sparse.request


def propose_session(sparse: SparseRequest) -> SessionProposal:
    """Proposes a session, planned for the public guess of its number of rows."""
    plan, scan = session_plan(sparse), key_scan(sparse)
    plan.law.gate_ask(scan)  # refuses noise that cannot be drawn: a refusal after the total would depend on it
    total = plan.law.total_ask(scan)
    return SessionProposal(sparse, plan, total, gates_within(sparse, total))


def session_header(proposal: SessionProposal) -> ReleaseHeader:
    """Describes the release before anything is counted."""
    noise = proposal.plan.law.noise.value
    return ReleaseHeader(proposal.request, f"{noise}, session: sparse vector and multiplicative weights", SESSION)


def open_session(proposal: SessionProposal, door: Door, tools: Tools) -> Opened:
    """Measures the number of rows, plans the session for it, and stores the noise of all thresholds."""
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
    """Returns the session's public facts."""
    return _facts(plan_to_facts(*opened))


def gates_within(sparse: SparseRequest, total: Ask[int]) -> Ask[None]:
    """Returns the ask of the gate. Its price is the rest after the noisy number of rows."""
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
