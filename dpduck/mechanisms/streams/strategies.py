"""Which strategy a stream takes over time and over its other keys, at which noise; from public facts alone.

What is measured of a table is a Kronecker product: one matrix over time, the same for all, times what a cube of the
other keys measures (strategies/choose.py). A column of a product has the product of the norms, so that a cube is
planned at the price divided by the norm of the matrix over time. Least squares of a product are the product of least
squares, and variances multiply: an answer about some periods has the weights w over time, each cell then |w|^2 times
the variance that the cube has by itself.
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

from dpduck.algebra.lattice import MarginalWorkload
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask
from dpduck.kernel.queries.operators import CentredFactor, Factor, HadamardFactor, IdentityFactor, KroneckerQuery
from dpduck.kernel.queries.streams import StreamAsk
from dpduck.kernel.queries.tables import Table
from dpduck.mechanisms.cubes.measure import scan_of
from dpduck.mechanisms.cubes.measures import Measure, Measures, choose_measures, contribution_of
from dpduck.mechanisms.cubes.plan import CubePlan, MeasurePlan, UnitBounds, amount_of, noise_of, unit_bounds
from dpduck.mechanisms.cubes.recover import is_whole
from dpduck.mechanisms.jobs import counting_job
from dpduck.mechanisms.streams.plan import StreamRequest
from dpduck.store.tables import EXPLAINED, Value, rows_sql
from dpduck.strategies.budgets import noise_for
from dpduck.strategies.choose import plan_workload
from dpduck.strategies.plan import Measurement, Plan, marginal_query
from dpduck.strategies.time_axis import (
    BRANCHINGS,
    PERIODS,
    STRATEGIES,
    TREE,
    TimeAxis,
    TimeQuestion,
    time_axis,
    variances,
)
from dpduck.strategies.variance import least_squares_variances
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import InternalError, StoreError

COLUMNS = (*EXPLAINED, ("stderr_by_period", "DOUBLE[]"), ("privacy_unit", "VARCHAR"))
CELLS = "I"
"""The strategy over other keys that measures every cell of them, where there is one grouping set."""
PLANNING_SECONDS = 0.5
HEAVY = 1 << 8
"""Queries over other keys are planned as if a row added so much at least: times the matrix over time they then have the
weights that trusted code accepts (kernel/queries/marginals.py, require_weights)."""
_SHOWN = (1, 12, 36)
_FACTORS: dict[str, type[IdentityFactor | CentredFactor | HadamardFactor]] = {
    "I": IdentityFactor, "R": CentredFactor, "F": HadamardFactor,
}  # fmt: skip
Asked = tuple[tuple[int, ...] | None, str, Fraction]


@dataclass(frozen=True)
class Part:
    """What is measured of one measure (cubes/measures.py) at each row of the strategy over time.

    form: of the measure. strategy: over the other keys. asked: for each query its keys, as they are numbered without
    the periods, a letter for what is asked along each of them, and the parameter of its noise. No keys, None: every
    cell of all other keys.
    """

    form: str
    strategy: str
    asked: tuple[Asked, ...]


@dataclass(frozen=True)
class Told:
    """An answer as it is published. variance: of a cell of one measured period; 0 where it depends on the answer, or
    on the grouping set. step: the most that a cell changes when one integer of noise changes by one.
    """

    name: str
    variance: float
    step: float


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """A strategy over time, and what is measured of each measure. told: none where a plain count is all there is."""

    axis: TimeAxis
    kind: NoiseKind
    parts: tuple[Part, ...]
    told: tuple[Told, ...] = ()

    @property
    def noise(self) -> Noise:
        """Returns the noise of what is measured first."""
        return Noise(self.kind, self.parts[0].asked[0][2])

    @property
    def name(self) -> str:
        """Returns the strategy for people."""
        time = f"{TREE}_{self.axis.branching}" if self.axis.branching else self.axis.name
        others = dict.fromkeys(part.strategy for part in self.parts if part.asked[0][0] is not None)
        return f"{time} x {', '.join(others)}" if others else time

    @cached_property
    def matrix_digest(self) -> str:
        """Returns a digest of the integers that are measured over time."""
        return hashlib.sha256(np.ascontiguousarray(self.axis.matrix).tobytes()).hexdigest()

    def to_facts(self) -> str:
        """Writes the plan for the store; of a plain count no more than its noise."""
        axis = self.axis
        facts = [axis.name, axis.periods, axis.branching, self.kind.name, str(self.noise.parameter), self.matrix_digest]
        if not self.told:
            return json.dumps(facts)
        parts = [
            [part.form, part.strategy, [[keys, letters, str(parameter)] for keys, letters, parameter in part.asked]]
            for part in self.parts
        ]
        return json.dumps([*facts, parts, [[one.name, one.variance, one.step] for one in self.told]])


def plan_from_facts(text: str) -> StreamPlan:
    """Reads the plan that a stream was made with."""
    name, periods, branching, kind, parameter, digest, *more = json.loads(text)
    axis = time_axis(name, periods, branching)
    plan = StreamPlan(axis, NoiseKind[kind], (Part("", CELLS, ((None, "", Fraction(parameter)),)),))
    if more:
        parts = tuple(
            Part(
                form,
                strategy,
                tuple((None if keys is None else tuple(keys), of, Fraction(at)) for keys, of, at in asked),
            )
            for form, strategy, asked in more[0]
        )
        plan = replace(plan, parts=parts, told=tuple(Told(*one) for one in more[1]))
    if plan.matrix_digest != digest:
        raise _another("matrix of the stream's strategy")
    return plan


def _another(what: str) -> StoreError:
    return StoreError(f"this dpduck has another {what}; accepted: the version that made it")


# What is measured: every measure by a cube of the other keys.


def others_of(stream: StreamRequest) -> list[int]:
    """Returns the keys but for the periods."""
    return [key for key in range(len(stream.request.question.keys)) if key != stream.axis]


def workload_of(stream: StreamRequest) -> MarginalWorkload:
    """Returns the grouping sets of the other keys, in order."""
    others, question = others_of(stream), stream.request.question
    sets = tuple(tuple(others.index(key) for key in of if key != stream.axis) for of in question.grouping_sets)
    return MarginalWorkload(tuple(question.sizes[key] for key in others), sets, (1.0,) * len(sets))


def measures_of(stream: StreamRequest, rows: int = 1) -> Measures:
    """Returns the measures of a stream's aggregates, with their shares of the price. rows: of one unit."""
    unit = (rows, rows, lambda measure: _cells(stream))
    return choose_measures(stream.request.question.aggregates, (), noise_of(stream.request), unit=unit)


def _cells(stream: StreamRequest) -> int:
    """Returns the cells of all keys, that of time included."""
    return prod(source.domain.size for source in stream.request.question.sources)


def _bounds(stream: StreamRequest, measure: Measure) -> UnitBounds:
    """Returns the most that a unit adds to the tables of a measure over all periods."""
    return unit_bounds(stream.request, measure, _cells(stream))


def _form(measure: Measure) -> str:
    return f"{measure.form} {measure.degree} {measure.rest} {measure.steps}"


def _parts(stream: StreamRequest, axis: TimeAxis) -> tuple[Part, ...]:
    """Returns what is measured of each measure at the price of the statement."""
    found, (l1, l2_squared, _) = [], axis.factor.norms
    kind, amount = noise_of(stream.request), amount_of(stream.request)
    for measure in measures_of(stream, stream.request.rows.unit_bound).measures:
        price, bounds = amount * measure.share, _bounds(stream, measure)
        bound = bounds.all_cells
        if len(stream.request.question.grouping_sets) == 1:
            squared = bounds.squared if axis.factor.asks_single_cells else bound * bound
            parameter = noise_for(kind, price, bound * l1, squared * l2_squared).parameter
            found.append(Part(_form(measure), CELLS, ((None, "", parameter),)))
            continue
        norm, reach = (
            (l2_squared if kind is NoiseKind.GAUSSIAN else l1),
            max(measure.bound, HEAVY) * (isqrt(l2_squared) + 1),
        )
        plan = plan_workload(
            workload_of(stream), kind, price / norm, bound, planning_seconds=PLANNING_SECONDS, row_bound=reach
        )[0]
        asked = tuple((one.query.attributes, _letters(one.query.factors), one.parameter) for one in plan.measurements)
        found.append(Part(_form(measure), plan.strategy, asked))
    return tuple(found)


def _letters(factors: tuple[Factor, ...]) -> str:
    names: dict[type[Factor], str] = {of: letter for letter, of in _FACTORS.items()}
    return "".join(names[type(factor)] for factor in factors)


def cube_of(stream: StreamRequest, plan: StreamPlan) -> CubePlan:
    """Returns each measure with what is measured of it, and what each aggregate takes, at one row over time.

    Its plans are over the other keys alone. StoreError where the measures are not those that were charged for.
    """
    measures, workload = measures_of(stream), workload_of(stream)
    if plan.told and [part.form for part in plan.parts] != [_form(measure) for measure in measures.measures]:
        raise _another("way to measure the stream's answers")
    found = [
        MeasurePlan(measure, _bounds(stream, measure), (_cube(part, plan.kind, workload),))
        for part, measure in zip(plan.parts, measures.measures, strict=True)
    ]
    return CubePlan(stream.request, tuple(found), measures.uses)


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
    job = counting_job(stream.request, [contribution_of(one.measure) for one in cube.measures])
    found: list[StreamAsk] = []
    for one in cube.measures:
        scan = scan_of(one, job, first)
        noises: dict[Fraction, Noise] = {}
        for measurement in plan_of(one).measurements:
            factors: dict[int, Factor] = {stream.axis: plan.axis.factor}
            pairs = zip(measurement.query.attributes, measurement.query.factors, strict=True)
            factors |= {others[key]: factor for key, factor in pairs}
            query = KroneckerQuery(tuple(sorted(factors)), tuple(factors[key] for key in sorted(factors)))
            noise = noises.setdefault(measurement.parameter, Noise(plan.kind, measurement.parameter))
            found.append(Ask(scan, Table(query), noise))
        first += one.measure.tables
    return found


# Which one is chosen, and what is said of it.


def plans(stream: StreamRequest) -> list[StreamPlan]:
    """Returns a plan for each strategy over time, of trees the best one, the chosen first: by error over all."""
    ranked = []
    for name in STRATEGIES:
        axes = [time_axis(name, stream.periods, branching) for branching in (BRANCHINGS if name == TREE else (2,))]
        gaussian = noise_of(stream.request) is NoiseKind.GAUSSIAN
        axis = min(axes, key=lambda axis: _over_time(axis, stream.question, gaussian))
        plan = _planned(stream, axis)
        error = float(sum(variances(axis, stream.question))) * sum(
            plan_of(one).total_variance / one.unit_bound**2 for one in cube_of(stream, plan).measures
        )
        ranked.append((axis.name != stream.strategy, error, plan))
    return [plan for *_, plan in sorted(ranked, key=lambda one: one[:2])]


def _over_time(axis: TimeAxis, question: TimeQuestion, gaussian: bool) -> float:
    """Returns the error of a strategy over time at one price, but for a factor."""
    l1, l2_squared, _ = axis.factor.norms
    return float(variances(axis, question).sum()) * (l2_squared if gaussian else l1 * l1)


def _planned(stream: StreamRequest, axis: TimeAxis) -> StreamPlan:
    plan = StreamPlan(axis, noise_of(stream.request), _parts(stream, axis))
    question, cube = stream.request.question, cube_of(stream, plan)
    plain = (
        len(question.aggregates) == 1 and question.aggregates[0].operand is None and not question.aggregates[0].curved
    )
    if plain and len(question.grouping_sets) == 1:
        return plan
    told = []
    for name, number in stream.shown:
        use, found = cube.uses[number], plan_of(cube.measures[cube.uses[number].measure])
        size = use.size if len(question.grouping_sets) == 1 else 0.0
        told.append(Told(name, size * found.variances[0], float(max(map(abs, use.weights), default=0))))
    return replace(plan, told=tuple(told))


def explained(stream: StreamRequest, found: Sequence[StreamPlan]) -> str:
    """Returns dp_explain of a stream: its plans, the chosen one first, with the error of each period."""
    return rows_sql(COLUMNS, [_row(stream, plan, number == 0) for number, plan in enumerate(found)])


def _row(stream: StreamRequest, plan: StreamPlan, chosen: bool) -> list[Value]:
    """Returns a strategy's row: the errors are those of the first answer that has one, in its widest grouping set."""
    request, cube, over_time = stream.request, cube_of(stream, plan), variances(plan.axis, stream.question)
    cells = [prod(of) for of in _shapes(workload_of(stream))]
    total, errors = 0.0, dict[str, FloatArray]()
    for name, number in stream.shown:
        use, found = cube.uses[number], plan_of(cube.measures[cube.uses[number].measure])
        total += use.size * float(over_time.sum()) * float(np.dot(found.variances, cells))
        if use.weights:
            errors[name] = np.sqrt(use.size * max(found.variances) * over_time)
    price, at = request.price, [period for period in _SHOWN if period <= stream.periods]
    first = next(iter(errors.values()), np.sqrt(plan.noise.variance * over_time))
    said = [", ".join(f"{of[period - 1]:.3g}" for period in at) for of in errors.values() or [first]]
    named = [f"{name} {text}" for name, text in zip(errors, said, strict=True)] if len(stream.shown) > 1 else said
    note = (
        f"{plan.noise.kind.value} noise; for {stream.question.text}: {'; '.join(named)} after "
        f"{', '.join(map(str, at))} periods"
    )
    measured = sum(len(one.asked) for one in plan.parts) if plan.told else 1
    return [
        plan.name, chosen, total, float(first.max()), price.stated_epsilon, price.stated_delta, price.charge.rho,
        stream.periods * sum(cells), plan.axis.factor.rows * measured, note, 0.0,
        str([round(float(one), 6) for one in first]), f"{request.rows.unit_text} over all periods" if chosen else None,
    ]  # fmt: skip


def _shapes(workload: MarginalWorkload) -> list[tuple[int, ...]]:
    return [tuple(workload.sizes[key] for key in of) for of in workload.marginals]


def plan_of(measured: MeasurePlan) -> Plan:
    """Returns the plan of a measure over the other keys, which is one of margins."""
    if not isinstance(measured.plan, Plan):
        raise InternalError("a stream of ranges")
    return measured.plan


def wholes(stream: StreamRequest, plan: StreamPlan) -> list[bool]:
    """Tells for each aggregate whether all of its answers are whole numbers."""
    cube = cube_of(stream, plan)
    return [plan.axis.name == PERIODS and is_whole(cube, number) for number in range(len(cube.uses))]
