"""Histograms and sessions as releases: one charge, a secret that stays in the vault, and public facts as a table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction

import pyarrow as pa

from dpduck.frontend.select.request import Request
from dpduck.frontend.statements.kinds import HISTOGRAM, SESSION
from dpduck.mechanisms.mechanism import Tools
from dpduck.mechanisms.release import ReleasedTable, ReleaseHeader
from dpduck.mechanisms.sparse.projection import USUAL_ROWS_OF_TABLE, key_scan
from dpduck.mechanisms.sparse.request import SparseRequest
from dpduck.mechanisms.sparse.session_plan import Declared, SessionPlan, plan_session, total_margin
from dpduck.trusted.ask import Ask, EveryKey, SparseVector, Within
from dpduck.trusted.noise.law import Noise, NoiseKind
from dpduck.trusted.private.door import Door
from dpduck.trusted.private.sessions import GateLaw
from dpduck.values.accounting import sigma2_of

Opened = tuple[SessionPlan, int]
FACTS = (("facts", "VARCHAR"),)
COMPUTATIONAL = "computational: as strong as HMAC-SHA256 for keys without rows"


def secret_name(digest: str) -> str:
    """Names the secret of a histogram or session in the secrets file."""
    return f"sparse {digest}"


def histogram_noise(sparse: SparseRequest) -> Noise:
    """Returns the noise that the price buys for every key at once; refused where it cannot be drawn."""
    charge, bound = sparse.request.price.charge, sparse.request.rows.unit_bound
    if charge.epsilon is None:
        return Noise(NoiseKind.GAUSSIAN, sigma2_of(charge.rho, Fraction(bound**2)))
    return Noise(NoiseKind.LAPLACE, Fraction(bound) / charge.epsilon)


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


@dataclass(frozen=True)
class HistogramProposal:
    """A histogram over an unbounded universe, and what will leave."""

    sparse: SparseRequest
    noise: Noise
    ask: Ask[bytes]

    @property
    def request(self) -> Request:
        """Returns the rows and the price."""
        return self.sparse.request


def propose_histogram(sparse: SparseRequest) -> HistogramProposal:
    """Returns the plan of a histogram."""
    noise = histogram_noise(sparse)
    return HistogramProposal(sparse, noise, Ask(key_scan(sparse), EveryKey(), noise))


def histogram_header(proposal: HistogramProposal) -> ReleaseHeader:
    """Describes the release before anything is counted."""
    return ReleaseHeader(proposal.request, f"{proposal.noise.kind.value}, lazy histogram; {COMPUTATIONAL}", HISTOGRAM)


def open_histogram(proposal: HistogramProposal, door: Door, tools: Tools) -> None:
    """Noise of the keys that have rows, a fresh secret for all others."""
    tools.secrets.put(secret_name(proposal.sparse.digest()), door.answer(proposal.ask))
    tools.steps("after the secret")


def histogram_facts(proposal: HistogramProposal, nothing: None, tools: Tools) -> ReleasedTable:
    """Returns its public facts."""
    return _facts({"noise": proposal.noise.kind.name, "spread": proposal.noise.parameter})


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
