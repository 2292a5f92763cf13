"""Histograms and sessions as releases: one charge, a secret that stays in the vault, and public facts as a table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction

import pyarrow as pa

from dpduck.kernel.door import Door
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask
from dpduck.kernel.queries.histograms import EveryKey
from dpduck.kernel.queries.later import Within
from dpduck.kernel.queries.sessions import SparseVector
from dpduck.language.select.request import SelectRequest
from dpduck.language.statements.kinds import HISTOGRAM, SESSION
from dpduck.mechanisms.mechanism import OneAsk, Tools
from dpduck.mechanisms.release import ReleasedTable, ReleaseHeader
from dpduck.mechanisms.sparse.plan import SessionPlan, plan_to_facts, session_plan, total_margin
from dpduck.mechanisms.sparse.projection import key_scan
from dpduck.mechanisms.sparse.request import SparseRequest, secret_name
from dpduck.strategies.budgets import kind_and_amount, noise_for

Opened = tuple[SessionPlan, int]
FACTS = (("facts", "VARCHAR"),)
COMPUTATIONAL = "computational: as strong as HMAC-SHA256 for keys without rows"


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
    tools.secrets.save(secret_name(proposal.plan.digest()), door.answer(proposal.ask))
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
    tools.secrets.save(secret_name(proposal.sparse.digest()), door.answer(gate))
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


def histogram_from_facts(text: str) -> Noise:
    """Returns the noise of a released histogram."""
    facts = json.loads(text)
    return Noise(NoiseKind[facts["noise"]], Fraction(facts["spread"]))
