"""Histograms and sessions as releases: one charge, a secret that stays in the vault, and public facts as a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import Any

import duckdb
import pyarrow as pa

from dpduck.mechanisms.release import Product, Steps, Terms
from dpduck.mechanisms.sparse.projection import key_scan
from dpduck.mechanisms.sparse.projection_plan import USUAL_ROWS_OF_TABLE
from dpduck.mechanisms.sparse.request import SparseRequest
from dpduck.mechanisms.sparse.session_plan import Declared, SessionPlan, plan_session, total_margin
from dpduck.trusted.ask import Ask, EveryKey, Gate, Within
from dpduck.trusted.ledger.secrets import Secrets
from dpduck.trusted.noise.law import Noise, NoiseKind
from dpduck.trusted.private.door import Door
from dpduck.trusted.private.sessions import GateLaw
from dpduck.values.accounting import sigma2_of

Recheck = Callable[[duckdb.DuckDBPyConnection], None]
FACTS = (("facts", "VARCHAR"),)
COMPUTATIONAL = "computational: as strong as HMAC-SHA256 for keys without rows"


@dataclass(frozen=True)
class HistogramLaw:
    """The noise of every key's count."""

    noise: NoiseKind
    spread: Fraction

    @property
    def law(self) -> Noise:
        """The noise to be drawn; refused where it cannot be."""
        return Noise(self.noise, self.spread)

    @property
    def stderr(self) -> float:
        """Standard error of one key's count, from above."""
        return sqrt(float(self.spread)) if self.noise is NoiseKind.GAUSSIAN else sqrt(2.0) * float(self.spread)


def secret_name(digest: str) -> str:
    """Where the secrets file holds a histogram's or session's secret."""
    return f"sparse {digest}"


def histogram_law(sparse: SparseRequest) -> HistogramLaw:
    """The noise that the price buys for every key at once."""
    charge, bound = sparse.request.charge, sparse.request.unit_bound
    if charge.epsilon is None:
        return HistogramLaw(NoiseKind.GAUSSIAN, sigma2_of(charge.rho, Fraction(bound**2)))
    return HistogramLaw(NoiseKind.LAPLACE, Fraction(bound) / charge.epsilon)


def session_plan(sparse: SparseRequest, total: float | None = None) -> SessionPlan:
    """The plan of a session; before it is made, with the public guess of the number of rows."""
    options = sparse.options
    alpha = None if options.alpha is None else float(options.alpha)
    declared = Declared(options.sparsity, options.queries, float(options.beta), options.updates, alpha)
    rows = total if total is not None else float(sparse.expect_rows or USUAL_ROWS_OF_TABLE)
    return plan_session(sparse.request.charge, sparse.request.unit_bound, declared, rows)


def _terms(sparse: SparseRequest, mechanism: str) -> Terms:
    request = sparse.request
    return Terms(
        request.unit_key, str(request.table), request.charge, mechanism, sparse.kind,
        shapes=request.shapes, least_rho=request.least_rho,
    )  # fmt: skip


def _facts(values: dict[str, object]) -> Product:
    text = json.dumps(values, default=str)
    return Product(FACTS, pa.table({"facts": pa.array([text], pa.string())}))


class HistogramRecipe:
    """A histogram over an unbounded universe (see release.Recipe)."""

    def __init__(self, sparse: SparseRequest, recheck: Recheck, secrets: Secrets) -> None:
        self._sparse, self._recheck, self._secrets = sparse, recheck, secrets
        self._law = histogram_law(sparse)
        self._ask = Ask(key_scan(sparse), EveryKey(), self._law.law)
        self.terms = _terms(sparse, f"{self._law.noise.value}, lazy histogram; {COMPUTATIONAL}")

    def asks(self) -> Sequence[Ask[Any]]:
        """The noisy counts of all keys."""
        return [self._ask]

    def recheck(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Facts as analysed."""
        self._recheck(cursor)

    def produce(self, door: Door, steps: Steps) -> Product:
        """Noise of the keys that have rows, a fresh secret for all others."""
        self._secrets.put(secret_name(self._sparse.digest()), door.answer(self._ask))
        steps("after the secret")
        return _facts({"noise": self._law.noise.name, "spread": self._law.spread})


class SessionRecipe:
    """A session of adaptive questions (see release.Recipe)."""

    def __init__(self, sparse: SparseRequest, recheck: Recheck, secrets: Secrets) -> None:
        self._sparse, self._recheck, self._secrets = sparse, recheck, secrets
        self._plan = session_plan(sparse)
        law, scan = self._plan.law, key_scan(sparse)
        law.gate_ask(scan)  # refused here where its noise cannot be drawn: after the total, that would tell of it
        self._total = law.total_ask(scan)
        self._gates = gates_within(sparse, self._total)
        noise = law.noise.value
        self.terms = _terms(sparse, f"{noise}, session: sparse vector and multiplicative weights")

    def asks(self) -> Sequence[Ask[Any]]:
        """The noisy number of rows, and a gate that is planned for it, within what is left of the price."""
        return [self._total, self._gates]

    def recheck(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Facts as analysed."""
        self._recheck(cursor)

    def produce(self, door: Door, steps: Steps) -> Product:
        """The noisy number of rows, the plan for it, the noise of all thresholds."""
        request, beta = self._sparse.request, float(self._sparse.options.beta)
        noisy = door.answer(self._total)
        plan = session_plan(self._sparse, max(1.0, noisy + total_margin(request.charge, request.unit_bound, beta)))
        gate = plan.law.gate_ask(self._total.scan)
        door.admit(gate, self._gates)
        self._secrets.put(secret_name(self._sparse.digest()), door.answer(gate))
        steps("after the secret")
        return _facts(plan_to_facts(plan, noisy))


def gates_within(sparse: SparseRequest, total: Ask[int]) -> Ask[None]:
    """A gate that costs what the noisy number of rows leaves of the price."""
    charge, paid = sparse.request.charge, total.cost
    if charge.epsilon is None or paid.epsilon is None:
        return Ask(total.scan, Within(charge.rho - paid.rho, pure=False, kinds=(Gate,)))
    return Ask(total.scan, Within(charge.epsilon - paid.epsilon, pure=True, kinds=(Gate,)))


def plan_to_facts(plan: SessionPlan, noisy_total: int) -> dict[str, object]:
    """Everything public about a session, for its released table."""
    law = plan.law
    return {
        "noisy_total": noisy_total, "alpha": plan.alpha, "measured": plan.measured, "slots": plan.slots,
        "total": plan.total, "updates": law.updates, "unit_bound": law.unit_bound, "threshold": law.threshold,
        "threshold_scale": law.threshold_scale, "question_scale": law.question_scale, "noise": law.noise.name,
        "spread": law.spread, "total_spread": law.total_spread,
    }  # fmt: skip


def plan_from_facts(text: str) -> SessionPlan:
    """What plan_to_facts described."""
    facts = json.loads(text)
    law = GateLaw(
        facts["updates"], facts["unit_bound"], facts["threshold"], Fraction(facts["threshold_scale"]),
        Fraction(facts["question_scale"]), NoiseKind[facts["noise"]], Fraction(facts["spread"]),
        Fraction(facts["total_spread"]),
    )  # fmt: skip
    return SessionPlan(law, facts["alpha"], facts["measured"], facts["slots"], facts["total"])


def histogram_from_facts(text: str) -> HistogramLaw:
    """The noise of a released histogram."""
    facts = json.loads(text)
    return HistogramLaw(NoiseKind[facts["noise"]], Fraction(facts["spread"]))
