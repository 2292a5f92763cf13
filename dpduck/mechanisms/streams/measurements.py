"""Measurements of a stream: for each measure a cube over the other keys, at each row of the matrix over time.

A measurement is a Kronecker product of the matrix over time and a query of a cube (strategies/choose.py). Norms,
variances and estimators of a product are products, so a cube is planned at the price divided by the norm of the matrix
over time.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import isqrt, prod

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask
from dpduck.kernel.queries.operators import CentredFactor, Factor, HadamardFactor, IdentityFactor, KroneckerQuery
from dpduck.kernel.queries.streams import StreamAsk
from dpduck.kernel.queries.tables import Table
from dpduck.mechanisms.cubes.measure import scan_of
from dpduck.mechanisms.cubes.measures import Measure, Measures, choose_measures
from dpduck.mechanisms.cubes.plan import CubePlan, MeasurePlan, UnitBounds, amount_of, noise_of, unit_bounds
from dpduck.mechanisms.jobs import counting_job
from dpduck.mechanisms.streams.plan import StreamRequest
from dpduck.mechanisms.streams.stream_plan import CELLS, Part, StreamPlan, other_version
from dpduck.strategies.budgets import noise_for
from dpduck.strategies.choose import plan_workload
from dpduck.strategies.measurements import Measurement
from dpduck.strategies.plan import Plan, marginal_query
from dpduck.strategies.time_axis import TimeAxis
from dpduck.strategies.variance import least_squares_variances
from dpduck.values.errors import InternalError

PLANNING_SECONDS = 0.5
HEAVY = 1 << 8
"""Least row bound in plans of queries over other keys. Their products with the matrix over time then have weights that
trusted code accepts (kernel/queries/tables.py, require_weights)."""

_FACTORS: dict[str, type[IdentityFactor | CentredFactor | HadamardFactor]] = {
    "I": IdentityFactor, "R": CentredFactor, "F": HadamardFactor,
}  # fmt: skip


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
    return prod(source.domain.size for source in stream.request.question.sources)


def _bounds(stream: StreamRequest, measure: Measure) -> UnitBounds:
    return unit_bounds(stream.request, measure, _cells(stream))


def _form(measure: Measure) -> str:
    added = measure.contribution
    return f"{added.form} {added.degree} {added.rest} {added.steps}"


def plan_parts(stream: StreamRequest, axis: TimeAxis) -> tuple[Part, ...]:
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
    """Returns a stream's cube over the keys without time. Raises StoreError if other measures were charged."""
    measures, workload = measures_of(stream), workload_of(stream)
    if plan.told and [part.form for part in plan.parts] != [_form(measure) for measure in measures.measures]:
        raise other_version("way to measure the stream's answers")
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


def plan_of(measured: MeasurePlan) -> Plan:
    """Returns the plan of a measure over the other keys. Refuses a plan of ranges."""
    if measured.plan.parts:
        raise InternalError("a stream of ranges")
    return measured.plan
