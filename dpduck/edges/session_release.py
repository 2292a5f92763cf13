"""Histograms and sessions as releases: one charge, a secret that stays in the vault, and public facts as a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

import duckdb
import pyarrow as pa

from dpduck.accounting import sigma2_of
from dpduck.edges.projection_release import key_job, require_within
from dpduck.edges.releaser import Product, Steps, Terms
from dpduck.errors import InternalError, Refusal
from dpduck.frontend.sparse_request import SparseRequest
from dpduck.planning.plan import NoiseKind
from dpduck.sparsequeries.projection_plan import USUAL_ROWS_OF_TABLE
from dpduck.sparsequeries.session_plan import Declared, SessionPlan, plan_session, total_margin, total_spread
from dpduck.trusted.discrete_gaussian import LARGEST_VARIANCE
from dpduck.trusted.discrete_laplace import LARGEST_SCALE
from dpduck.trusted.entropy import Entropy
from dpduck.trusted.key_counts import count_keys
from dpduck.trusted.lazy_histogram import histogram_cost, open_histogram
from dpduck.trusted.secrets_file import Secrets
from dpduck.trusted.session_gate import GateLaw, draw_thresholds, gate_cost, measure_total

Recheck = Callable[[duckdb.DuckDBPyConnection], None]
FACTS = (("facts", "VARCHAR"),)
COMPUTATIONAL = "computational: as strong as HMAC-SHA256 for keys without rows"


@dataclass(frozen=True)
class HistogramLaw:
    """The noise of every key's count."""

    noise: NoiseKind
    spread: Fraction

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
    return Terms(request.unit_key, str(request.table), request.charge, mechanism, sparse.kind)


def _facts(values: dict[str, object]) -> Product:
    text = json.dumps(values, default=str)
    return Product(FACTS, pa.table({"facts": pa.array([text], pa.string())}))


class HistogramRecipe:
    """A histogram over an unbounded universe (see releaser.Recipe)."""

    def __init__(self, sparse: SparseRequest, recheck: Recheck, secrets: Secrets) -> None:
        self._sparse, self._recheck, self._secrets = sparse, recheck, secrets
        self._law = histogram_law(sparse)
        self.terms = _terms(sparse, f"{self._law.noise.value}, lazy histogram; {COMPUTATIONAL}")

    def check(self) -> None:
        """Noise that can be drawn; the price from the noise that will be drawn."""
        _require_drawable(self._law.noise, self._law.spread)
        cost = histogram_cost(self._sparse.request.unit_bound, self._law.noise, self._law.spread)
        require_within(cost, self._sparse.request.charge)

    def recheck(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Facts as analysed."""
        self._recheck(cursor)

    def produce(
        self, cursor: duckdb.DuckDBPyConnection, bounding_key: bytes, entropy: Entropy, steps: Steps
    ) -> Product:
        """Exact counts, noise of the keys that have rows, a fresh secret for all others."""
        counts = count_keys(cursor, key_job(self._sparse), bounding_key)
        steps("after the count")
        histogram = open_histogram(counts, self._law.noise, self._law.spread, entropy)
        self._secrets.put(secret_name(self._sparse.digest()), histogram.to_bytes())
        steps("after the secret")
        return _facts({"noise": self._law.noise.name, "spread": self._law.spread})


class SessionRecipe:
    """A session of adaptive questions (see releaser.Recipe)."""

    def __init__(self, sparse: SparseRequest, recheck: Recheck, secrets: Secrets) -> None:
        self._sparse, self._recheck, self._secrets = sparse, recheck, secrets
        self._plan = session_plan(sparse)
        noise = self._plan.law.noise.value
        self.terms = _terms(sparse, f"{noise}, session: sparse vector and multiplicative weights")

    def check(self) -> None:
        """Noise that can be drawn; the price of a plan for the guessed number of rows, as of any other."""
        law = self._plan.law
        _require_gate_drawable(law)
        require_within(gate_cost(law), self._sparse.request.charge)

    def recheck(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Facts as analysed."""
        self._recheck(cursor)

    def produce(
        self, cursor: duckdb.DuckDBPyConnection, bounding_key: bytes, entropy: Entropy, steps: Steps
    ) -> Product:
        """The noisy number of rows, the plan for it, the noise of all thresholds."""
        request, beta = self._sparse.request, float(self._sparse.options.beta)
        counts = count_keys(cursor, key_job(self._sparse), bounding_key)
        steps("after the count")
        if self._plan.law.total_spread != total_spread(request.charge, request.unit_bound):
            raise InternalError("the number of rows is not measured as planned")
        noisy = measure_total(counts, self._plan.law, entropy)
        plan = session_plan(self._sparse, max(1.0, noisy + total_margin(request.charge, request.unit_bound, beta)))
        _require_gate_drawable(plan.law)
        require_within(gate_cost(plan.law), request.charge)
        self._secrets.put(secret_name(self._sparse.digest()), draw_thresholds(plan.law, entropy))
        steps("after the secret")
        return _facts(plan_to_facts(plan, noisy))


def _require_gate_drawable(law: GateLaw) -> None:
    """Everything a session will ever draw: a measured answer that cannot be drawn would tell that it was due."""
    _require_drawable(NoiseKind.LAPLACE, law.threshold_scale, law.question_scale)
    _require_drawable(law.noise, law.spread, law.total_spread)


def _require_drawable(noise: NoiseKind, *spreads: Fraction) -> None:
    if max(spreads) > (LARGEST_SCALE if noise is NoiseKind.LAPLACE else LARGEST_VARIANCE):
        raise Refusal("at this price the noise would not fit 64-bit numbers", accepted="a larger epsilon or rho")


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
