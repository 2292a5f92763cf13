"""Strategies of a stream over time and over its other keys, with their noise, from public facts alone.

A stream measures a table by Kronecker products: one matrix over time, the same for all tables, times the queries of a
cube over the other keys (strategies/choose.py). The norm of a product's column is the product of the norms. So a cube
is planned at the price divided by the norm of the matrix over time. The least-squares estimator of a product is the
product of the estimators, and variances multiply. An answer about some periods has weights w over time. The variance
of its cells is |w|^2 times the variance in the cube.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import isqrt, prod

import numpy as np

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask
from dpduck.kernel.queries.operators import CentredFactor, Factor, HadamardFactor, IdentityFactor, KroneckerQuery
from dpduck.kernel.queries.streams import StreamAsk
from dpduck.kernel.queries.tables import Table
from dpduck.mechanisms.cubes.measure import scan_of
from dpduck.mechanisms.cubes.measures import Measure, Measures, choose_measures
from dpduck.mechanisms.cubes.plan import CubePlan, MeasurePlan, UnitBounds, amount_of, noise_of, unit_bounds
from dpduck.mechanisms.cubes.recover import is_whole
from dpduck.mechanisms.forecast import Forecast
from dpduck.mechanisms.jobs import counting_job
from dpduck.mechanisms.streams.plan import StreamRequest
from dpduck.strategies.budgets import noise_for
from dpduck.strategies.choose import plan_workload
from dpduck.strategies.measurements import Measurement
from dpduck.strategies.plan import Plan, marginal_query
from dpduck.strategies.time_axis import BRANCHINGS, PERIODS, STRATEGIES, TREE, TimeAxis, time_axis
from dpduck.strategies.time_questions import TimeQuestion, variances
from dpduck.strategies.variance import least_squares_variances
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import InternalError, StoreError
from dpduck.values.records import as_array, read_record

CELLS = "I"
"""Strategy over other keys for one grouping set: it measures every cell."""
PLANNING_SECONDS = 0.5
HEAVY = 1 << 8
"""Least row bound in plans of queries over other keys. Multiplied by the matrix over time, these queries then have
weights that trusted code accepts (kernel/queries/tables.py, require_weights)."""
_SHOWN = (1, 12, 36)
_FACTORS: dict[str, type[IdentityFactor | CentredFactor | HadamardFactor]] = {
    "I": IdentityFactor, "R": CentredFactor, "F": HadamardFactor,
}  # fmt: skip
Asked = tuple[tuple[int, ...] | None, str, Fraction]


@dataclass(frozen=True)
class Part:
    """Queries of one measure (cubes/measures.py) at each row of the strategy over time.

    form: the form of the measure. strategy: over the other keys. asked: for each query its keys, a letter for the
    factor along each key, and the parameter of its noise. Keys are numbered without the periods. None in place of keys
    means every cell of all other keys.
    """

    form: str
    strategy: str
    asked: tuple[Asked, ...]


@dataclass(frozen=True)
class AnswerNoise:
    """Error of a published answer. variance: for a cell of one measured period, 0 if it depends on the answer or on the
    grouping set. step: the largest change of a cell when one integer of noise changes by one.
    """

    name: str
    variance: float
    step: float


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """Strategy over time, with the queries of each measure. told: the answers' errors, empty for a plain count."""

    axis: TimeAxis
    kind: NoiseKind
    parts: tuple[Part, ...]
    told: tuple[AnswerNoise, ...] = ()

    @property
    def noise(self) -> Noise:
        """Returns the noise of the first query."""
        return Noise(self.kind, self.parts[0].asked[0][2])

    @property
    def name(self) -> str:
        """Returns the name of the strategy for people."""
        time = f"{TREE}_{self.axis.branching}" if self.axis.branching else self.axis.name
        others = dict.fromkeys(part.strategy for part in self.parts if part.asked[0][0] is not None)
        return f"{time} x {', '.join(others)}" if others else time

    @cached_property
    def matrix_digest(self) -> str:
        """Returns a digest of the matrix over time."""
        return hashlib.sha256(np.ascontiguousarray(self.axis.matrix).tobytes()).hexdigest()

    def to_facts(self) -> str:
        """Writes the plan for the store. A plain count needs no parts, only its noise."""
        axis = self.axis
        facts = [axis.name, axis.periods, axis.branching, self.kind, self.noise.parameter, self.matrix_digest]
        return json.dumps([*facts, self.parts, self.told] if self.told else facts, default=as_array)


def plan_from_facts(text: str) -> StreamPlan:
    """Reads the plan of a stream that to_facts wrote."""
    name, periods, branching, kind, parameter, digest, *more = json.loads(text)
    stored = more or [[["", CELLS, [[None, "", parameter]]]], []]
    parts, told = read_record(tuple[tuple[Part, ...], tuple[AnswerNoise, ...]], stored)
    plan = StreamPlan(time_axis(name, periods, branching), NoiseKind[kind], parts, told)
    if plan.matrix_digest != digest:
        raise _another("matrix of the stream's strategy")
    return plan


def _another(what: str) -> StoreError:
    return StoreError(f"this dpduck has another {what}; accepted: the version that made it")


# Measurements: a cube over the other keys for each measure.


def others_of(stream: StreamRequest) -> list[int]:
    """Returns the numbers of all keys but the periods."""
    return [key for key in range(len(stream.request.question.keys)) if key != stream.axis]


def workload_of(stream: StreamRequest) -> MarginalWorkload:
    """Returns the grouping sets of the other keys, in order."""
    others, question = others_of(stream), stream.request.question
    sets = tuple(tuple(others.index(key) for key in of if key != stream.axis) for of in question.grouping_sets)
    return MarginalWorkload(tuple(question.sizes[key] for key in others), sets, (1.0,) * len(sets))


def measures_of(stream: StreamRequest, rows: int = 1) -> Measures:
    """Returns the measures of a stream's aggregates, with their shares of the price. rows: the rows of one unit."""
    unit = (rows, rows, lambda measure: _cells(stream))
    return choose_measures(stream.request.question.aggregates, (), noise_of(stream.request), unit=unit)


def _cells(stream: StreamRequest) -> int:
    """Returns the number of cells of all keys, time included."""
    return prod(source.domain.size for source in stream.request.question.sources)


def _bounds(stream: StreamRequest, measure: Measure) -> UnitBounds:
    """Returns the most that a unit adds to the tables of a measure over all periods."""
    return unit_bounds(stream.request, measure, _cells(stream))


def _form(measure: Measure) -> str:
    added = measure.contribution
    return f"{added.form} {added.degree} {added.rest} {added.steps}"


def _parts(stream: StreamRequest, axis: TimeAxis) -> tuple[Part, ...]:
    """Plans the queries of each measure at the price of the statement."""
    parts, (l1, l2_squared, _) = [], axis.factor.norms
    kind, amount = noise_of(stream.request), amount_of(stream.request)
    for measure in measures_of(stream, stream.request.rows.unit_bound).measures:
        price, bounds = amount * measure.share, _bounds(stream, measure)
        bound = bounds.all_cells
        if len(stream.request.question.grouping_sets) == 1:
            squared = bounds.squared if axis.factor.asks_single_cells else bound * bound
            parameter = noise_for(kind, price, bound * l1, squared * l2_squared).parameter
            parts.append(Part(_form(measure), CELLS, ((None, "", parameter),)))
            continue
        norm, reach = (
            (l2_squared if kind is NoiseKind.GAUSSIAN else l1),
            max(measure.contribution.bound, HEAVY) * (isqrt(l2_squared) + 1),
        )
        plan = plan_workload(
            workload_of(stream), kind, price / norm, bound, planning_seconds=PLANNING_SECONDS, row_bound=reach
        )[0]
        asked = tuple((ask.query.attributes, _letters(ask.query.factors), ask.parameter) for ask in plan.measurements)
        parts.append(Part(_form(measure), plan.strategy, asked))
    return tuple(parts)


def _letters(factors: tuple[Factor, ...]) -> str:
    names: dict[type[Factor], str] = {of: letter for letter, of in _FACTORS.items()}
    return "".join(names[type(factor)] for factor in factors)


def cube_of(stream: StreamRequest, plan: StreamPlan) -> CubePlan:
    """Returns the cube at one row over time: each measure with its queries, and the uses of each aggregate.

    Its plans are over the other keys alone. Raises StoreError if the measures are not the charged measures.
    """
    measures, workload = measures_of(stream), workload_of(stream)
    if plan.told and [part.form for part in plan.parts] != [_form(measure) for measure in measures.measures]:
        raise _another("way to measure the stream's answers")
    measure_plans = [
        MeasurePlan(measure, _bounds(stream, measure), (_cube(part, plan.kind, workload),))
        for part, measure in zip(plan.parts, measures.measures, strict=True)
    ]
    return CubePlan(stream.request, tuple(measure_plans), measures.uses)


def _cube(part: Part, kind: NoiseKind, workload: MarginalWorkload) -> Plan:
    measured = []
    for keys, letters, parameter in part.asked:
        if keys is None:
            query = marginal_query(tuple(range(len(workload.sizes))), workload.sizes)
        else:
            factors = (_FACTORS[letter](workload.sizes[key]) for key, letter in zip(keys, letters, strict=True))
            query = KroneckerQuery(keys, tuple(factors))
        measured.append(Measurement(query, parameter))
    plan = Plan(part.strategy, kind, workload, measured, ())
    return replace(plan, variances=least_squares_variances(plan))


def asks_of(stream: StreamRequest, plan: StreamPlan) -> list[StreamAsk]:
    """Returns the asks of a stream: for each measure the products of the matrix over time and its queries."""
    cube, others, first = cube_of(stream, plan), others_of(stream), 0
    job = counting_job(stream.request, [measure_plan.measure.contribution for measure_plan in cube.measures])
    asks: list[StreamAsk] = []
    for measure_plan in cube.measures:
        scan = scan_of(measure_plan, job, first)
        noises: dict[Fraction, Noise] = {}
        for measurement in plan_of(measure_plan).measurements:
            factors: dict[int, Factor] = {stream.axis: plan.axis.factor}
            pairs = zip(measurement.query.attributes, measurement.query.factors, strict=True)
            factors |= {others[key]: factor for key, factor in pairs}
            query = KroneckerQuery(tuple(sorted(factors)), tuple(factors[key] for key in sorted(factors)))
            noise = noises.setdefault(measurement.parameter, Noise(plan.kind, measurement.parameter))
            asks.append(Ask(scan, Table(query), noise))
        first += measure_plan.measure.contribution.tables
    return asks


# Choice among plans, and their listing.


def plans(stream: StreamRequest) -> list[StreamPlan]:
    """Returns a plan for each strategy over time, for trees the best. The chosen plan is first, the others by error."""
    ranked = []
    for name in STRATEGIES:
        axes = [time_axis(name, stream.periods, branching) for branching in (BRANCHINGS if name == TREE else (2,))]
        gaussian = noise_of(stream.request) is NoiseKind.GAUSSIAN
        axis = min(axes, key=lambda axis: _over_time(axis, stream.question, gaussian))
        plan = _plan_stream(stream, axis)
        error = float(sum(variances(axis, stream.question))) * sum(
            plan_of(entry).total_variance / entry.unit_bound**2 for entry in cube_of(stream, plan).measures
        )
        ranked.append((axis.name != stream.strategy, error, plan))
    return [plan for *_, plan in sorted(ranked, key=lambda entry: entry[:2])]


def _over_time(axis: TimeAxis, question: TimeQuestion, gaussian: bool) -> float:
    """Returns the error of a strategy over time at one price, up to a factor."""
    l1, l2_squared, _ = axis.factor.norms
    return float(variances(axis, question).sum()) * (l2_squared if gaussian else l1 * l1)


def _plan_stream(stream: StreamRequest, axis: TimeAxis) -> StreamPlan:
    plan = StreamPlan(axis, noise_of(stream.request), _parts(stream, axis))
    question, cube = stream.request.question, cube_of(stream, plan)
    plain = (
        len(question.aggregates) == 1
        and question.aggregates[0].operand is None
        and not question.aggregates[0].has_curved_error
    )
    if plain and len(question.grouping_sets) == 1:
        return plan
    answers = []
    for name, number in stream.shown:
        use, over_keys = cube.uses[number], plan_of(cube.measures[cube.uses[number].measure])
        size = use.size if len(question.grouping_sets) == 1 else 0.0
        answers.append(AnswerNoise(name, size * over_keys.variances[0], float(max(map(abs, use.weights), default=0))))
    return replace(plan, told=tuple(answers))


def explain_stream(stream: StreamRequest, ranked: Sequence[StreamPlan]) -> list[Forecast]:
    """Returns a forecast for each plan of a stream, the chosen plan first, with the error of each period."""
    return [_forecast(stream, plan, number == 0) for number, plan in enumerate(ranked)]


def _forecast(stream: StreamRequest, plan: StreamPlan, chosen: bool) -> Forecast:
    """Returns a strategy's forecast, with the errors of the first answer that has any, in its worst grouping set."""
    request, cube, over_time = stream.request, cube_of(stream, plan), variances(plan.axis, stream.question)
    cells = [prod(of) for of in _shapes(workload_of(stream))]
    total, errors = 0.0, dict[str, FloatArray]()
    for name, number in stream.shown:
        use, over_keys = cube.uses[number], plan_of(cube.measures[cube.uses[number].measure])
        total += use.size * float(over_time.sum()) * float(np.dot(over_keys.variances, cells))
        if use.weights:
            errors[name] = np.sqrt(use.size * max(over_keys.variances) * over_time)
    at = [period for period in _SHOWN if period <= stream.periods]
    first = next(iter(errors.values()), np.sqrt(plan.noise.variance * over_time))
    said = [", ".join(f"{of[period - 1]:.3g}" for period in at) for of in errors.values() or [first]]
    named = [f"{name} {text}" for name, text in zip(errors, said, strict=True)] if len(stream.shown) > 1 else said
    note = (
        f"{plan.noise.kind.value} noise; for {stream.question.text}: {'; '.join(named)} after "
        f"{', '.join(map(str, at))} periods"
    )
    measured = sum(len(x.asked) for x in plan.parts) if plan.told else 1
    further = [
        ("stderr_by_period", "DOUBLE[]", str([round(float(x), 6) for x in first])),
        ("privacy_unit", "VARCHAR", f"{request.rows.unit_text} over all periods" if chosen else None),
    ]
    groups, worst = plan.axis.factor.rows * measured, float(first.max())
    return Forecast(plan.name, chosen, stream.periods * sum(cells), groups, (note,), total, worst, 0.0, further)


def _shapes(workload: MarginalWorkload) -> list[tuple[int, ...]]:
    return [tuple(workload.sizes[key] for key in of) for of in workload.marginals]


def plan_of(measured: MeasurePlan) -> Plan:
    """Returns the plan of a measure over the other keys. Refuses a plan of ranges."""
    if measured.plan.parts:
        raise InternalError("a stream of ranges")
    return measured.plan


def wholes(stream: StreamRequest, plan: StreamPlan) -> list[bool]:
    """Tells for each aggregate whether all of its answers are whole numbers."""
    cube = cube_of(stream, plan)
    return [plan.axis.name == PERIODS and is_whole(cube, number) for number in range(len(cube.uses))]
