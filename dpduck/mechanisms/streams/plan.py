"""Which strategy a stream takes, at which noise, and what error to expect in each period; public figures alone."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod, sqrt

import numpy as np

from dpduck.database.tables import EXPLAINED, Value, rows_sql
from dpduck.frontend.select.request import Request
from dpduck.mechanisms.jobs import counting_job
from dpduck.mechanisms.streams.request import StreamRequest
from dpduck.planning.time_axis import (
    BRANCHINGS,
    PERIODS,
    STRATEGIES,
    TREE,
    TimeAxis,
    TimeQuestion,
    time_axis,
    variances,
)
from dpduck.trusted.ask import Ask, Scan, Table
from dpduck.trusted.noise.law import Noise, NoiseKind
from dpduck.trusted.operators import Factor, IdentityFactor, KroneckerQuery
from dpduck.trusted.private.contributions import Contribution
from dpduck.trusted.private.streams import StreamAsk
from dpduck.values.accounting import sigma2_of
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import StoreError

COLUMNS = (*EXPLAINED, ("stderr_by_period", "DOUBLE[]"), ("privacy_unit", "VARCHAR"))
_SHOWN = (1, 12, 36)


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """A strategy with the noise that the price buys for it."""

    axis: TimeAxis
    noise: Noise

    def stderrs(self, question: TimeQuestion) -> FloatArray:
        """Returns the standard error of each period's answer when it closes."""
        found: FloatArray = np.sqrt(self.noise.variance * variances(self.axis, question))
        return found

    @property
    def name(self) -> str:
        """Returns the strategy for people."""
        return f"{TREE}_{self.axis.branching}" if self.axis.branching else self.axis.name

    @cached_property
    def matrix_digest(self) -> str:
        """Returns a digest of the integers that are measured."""
        return hashlib.sha256(np.ascontiguousarray(self.axis.matrix).tobytes()).hexdigest()

    def to_facts(self) -> str:
        """Writes the plan for the store."""
        axis, noise = self.axis, self.noise
        return json.dumps([
            axis.name, axis.periods, axis.branching, noise.kind.name, str(noise.parameter), self.matrix_digest
        ])  # fmt: skip


def plan_from_facts(text: str) -> StreamPlan:
    """Reads the plan that a stream was made with."""
    name, periods, branching, kind, parameter, digest = json.loads(text)
    plan = StreamPlan(time_axis(name, periods, branching), Noise(NoiseKind[kind], Fraction(parameter)))
    if plan.matrix_digest != digest:
        raise StoreError("this dpduck has another matrix of the stream's strategy; accepted: the version that made it")
    return plan


def noise_for(request: Request, axis: TimeAxis) -> Noise:
    """Returns the noise of every row of a strategy, at the price of the statement."""
    charge, bound, (l1, l2_squared, _) = request.price.charge, request.rows.unit_bound, axis.factor.norms
    if charge.epsilon is None:
        return Noise(NoiseKind.GAUSSIAN, sigma2_of(charge.rho, Fraction(bound * bound * l2_squared)))
    return Noise(NoiseKind.LAPLACE, Fraction(bound * l1) / charge.epsilon)


def plans(stream: StreamRequest) -> list[StreamPlan]:
    """Returns a plan for each strategy, of trees the best one, the chosen first: by its error over all periods."""

    def error(plan: StreamPlan) -> float:
        return float((plan.stderrs(stream.question) ** 2).sum())

    found = []
    for name in STRATEGIES:
        axes = [time_axis(name, stream.periods, branching) for branching in (BRANCHINGS if name == TREE else (2,))]
        found.append(min((StreamPlan(axis, noise_for(stream.request, axis)) for axis in axes), key=error))
    return sorted(found, key=lambda plan: (plan.axis.name != stream.strategy, error(plan)))


def ask_of(stream: StreamRequest, plan: StreamPlan) -> StreamAsk:
    """Returns the one ask of a stream: the matrix of its strategy over time, every value of its other keys."""
    request = stream.request
    scan = Scan(
        counting_job(request, [Contribution(request.question.aggregates[0].condition)]), request.rows.unit_bound
    )
    factors: list[Factor] = [IdentityFactor(size) for size in request.question.sizes]
    factors[stream.axis] = plan.axis.factor
    return Ask(scan, Table(KroneckerQuery(tuple(range(len(factors))), tuple(factors))), plan.noise)


def explained(stream: StreamRequest) -> str:
    """Returns dp_explain of a stream: every strategy, the chosen one first, with the error of each period."""
    return rows_sql(COLUMNS, [_row(stream, plan, number == 0) for number, plan in enumerate(plans(stream))])


def _row(stream: StreamRequest, plan: StreamPlan, chosen: bool) -> list[Value]:
    request, stderrs = stream.request, plan.stderrs(stream.question)
    others = prod(size for number, size in enumerate(request.question.sizes) if number != stream.axis)
    price, at = request.price, [period for period in _SHOWN if period <= stream.periods]
    errors = ", ".join(f"{stderrs[period - 1]:.3g}" for period in at)
    note = (
        f"{plan.noise.kind.value} noise; for {stream.question.text}: {errors} after {', '.join(map(str, at))} periods"
    )
    return [
        plan.name, chosen, float((stderrs**2).sum()) * others, float(stderrs.max()), price.stated_epsilon,
        price.stated_delta, price.charge.rho, stream.periods * others, plan.axis.factor.rows, note, 0.0,
        str([round(float(one), 6) for one in stderrs]),
        f"{request.rows.unit_text} over all periods" if chosen else None,
    ]  # fmt: skip


def whole(plan: StreamPlan) -> bool:
    """Tells whether all answers are whole numbers."""
    return plan.axis.name == PERIODS


def weights_of(plan: StreamPlan, closed: int, questions: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns the weights of what was measured in answers to these questions, and their standard errors."""
    weights = plan.axis.weights(closed, questions)
    return weights, np.array([sqrt(plan.noise.variance * float((one**2).sum())) for one in weights])
