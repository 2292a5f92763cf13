"""dp_explain: every candidate strategy, and of the chosen one what runs over private rows and how it is bounded."""

from __future__ import annotations

from math import prod

from dpduck.database.tables import EXPLAINED, Value, rows_sql
from dpduck.frontend.select.request import Request
from dpduck.mechanisms.cubes.measure import CubeProposal, scans_of
from dpduck.mechanisms.cubes.measures import CHOICE, Measure, is_chosen
from dpduck.mechanisms.cubes.plan import AnyPlan, CubePlan, MeasurePlan, measured_plan, with_rivals
from dpduck.planning.choose import spelled_out
from dpduck.planning.plan import Plan
from dpduck.planning.ranges.sets import RangeSetsPlan
from dpduck.trusted.private.counting import job_sql

_COLUMNS = [*EXPLAINED, ("privacy_unit", "VARCHAR"), ("bounds", "VARCHAR"), ("private_sql", "VARCHAR")]


def candidates(request: Request, proposal: CubeProposal) -> str:
    """Returns a row for every candidate, the chosen one first; it alone has a privacy unit, bounds and the private SQL.

    total_variance and worst_stderr are those of counts and sums, in their own units; errors of averages, variances and
    quantiles depend on the answer: NULL where nothing else is asked. seconds: measured for planning, estimated for
    noise and recovery; counting the rows comes on top.
    """
    found = with_rivals(proposal.found)
    return rows_sql(_COLUMNS, [_row(found, plan, place) for place, plan in enumerate(found.measures[0].plans)])


def _row(found: CubePlan, plan: AnyPlan, place: int) -> list[Value]:
    request, chosen = found.request, place == 0
    plans = [plan if number == 0 else _like(one, plan) for number, one in enumerate(found.measures)]
    sizes = [float(sum(weight * weight for weight in use.weights)) for use in found.uses]
    used = [(plans[use.measure], size) for use, size in zip(found.uses, sizes, strict=True)]
    if request.question.intervals:
        used = used[:1]
    drawn = list(zip(plans, (one.measure.tables for one in found.measures), strict=True))
    notes = (spelled_out(plan.strategy), plan.note, _note(found, plan) if chosen else "")
    return [
        plan.strategy,
        chosen,
        sum(one.total_variance * size for one, size in used) if any(sizes) else None,
        max(one.worst_stderr * size**0.5 for one, size in used) if any(sizes) else None,
        request.price.stated_epsilon,
        request.price.stated_delta,
        request.price.charge.rho,
        sum(_cells(one) for one, _ in used),
        sum(len(measured_plan(one).measurements) * tables for one, tables in drawn),
        "; ".join(note for note in notes if note),
        sum(one.planning_seconds for one in plans) + sum(estimated_seconds(measured_plan(a)) * n for a, n in drawn),
        request.rows.unit_text if chosen else None,
        "; ".join(_bounds(found, number) for number in range(len(found.measures))) if chosen else None,
        ";\n".join(job_sql(scan.job) for scan in scans_of(found)) if chosen else None,
    ]


def _like(measured: MeasurePlan, plan: AnyPlan) -> AnyPlan:
    """Returns the measure's plan of the same strategy, where it has one."""
    return next((one for one in measured.plans if one.strategy == plan.strategy), measured.plan)


def _cells(plan: AnyPlan) -> int:
    """Returns the number of cells that one aggregate releases."""
    return plan.cells if isinstance(plan, RangeSetsPlan) else plan.workload.cells


def _note(found: CubePlan, plan: AnyPlan) -> str:
    request = found.request
    bound = (
        f", one row counts up to {request.rows.unit_bound} times"
        if request.rows.unit_sql is None and request.rows.unit_bound > 1
        else ""
    )
    law = f"{plan.noise.value} noise" if not found.measures[0].choices else "exponential mechanism"
    return f"{law}; privacy unit {request.rows.unit_text}{bound}{_hint(found)}"


def _hint(found: CubePlan) -> str:
    """Hints at quantiles = 'choice' where a quantile needs no tree."""
    aggregates, asked = found.request.question.aggregates, found.request.question.treatment.quantiles
    if asked == CHOICE or not any(is_chosen(one, aggregates) for one in aggregates):
        return ""
    return "; quantiles = 'choice' errs less, and has other intervals"


def _bounds(found: CubePlan, number: int) -> str:
    """Returns a measure in words: whose it is, what rows add, between which bounds, the sensitivity and price that
    follow.
    """
    measured = found.measures[number]
    measure = measured.measure
    pairs = zip(found.request.question.aggregates, found.uses, strict=True)
    served = ", ".join(dict.fromkeys(one.text for one, use in pairs if use.measure == number))
    rows = measure.condition or "all rows"
    said = f"{served}: {_what(measure)} over {rows}; one unit adds at most {measured.unit_bound}"
    if measure.operand is not None and measure.operand.sql:
        operand = measure.operand
        width = (operand.high - operand.low) / measure.steps
        said += (
            f"; {operand.sql} between {float(operand.low):.15g} and {float(operand.high):.15g} "
            f"in steps of {float(width):.15g}"
        )
    if measure.operand is not None and measure.operand.per_group:
        said += f"; every unit once in a group, as the {measure.operand.per_group} of its rows"
    return f"{said}; {float(100 * measure.share):.3g} % of the price"


def _what(measure: Measure) -> str:
    if measure.form == "moments":
        return f"{measure.tables} tables of moments up to degree {measure.degree}"
    names = {"count": "a count", "sum": "a sum in steps", "tree": "a tree of counts", "choice": "choices of a value"}
    return names.get(measure.form, "values present")


# How long noise and recovery of a plan would take, from public sizes alone: a guide for dp_explain.

SECONDS_PER_DRAW = 1e-7
"""One exact draw of noise and its addition, measured on one core of 2020's making."""

SECONDS_PER_STEP = 5e-9
"""One cell along one axis in recovery."""

SECONDS_PER_QUERY = 5e-5
"""What every measurement and every grouping set costs whatever its size."""

SAMPLE = 1000
"""Of more measurements than twice this, about so many are looked at, evenly spread."""


def estimated_seconds(plan: Plan) -> float:
    """Returns seconds to draw one aggregate's noise and to recover its answers."""
    stride = max(1, len(plan.measurements) // SAMPLE)
    sampled = plan.measurements[::stride]
    measured = stride * sum(prod(measurement.query.shape) for measurement in sampled)
    axes = 1 + max((len(marginal) for marginal in plan.workload.marginals), default=0)
    fixed = SECONDS_PER_QUERY * (len(plan.measurements) + len(plan.workload.marginals))
    return fixed + SECONDS_PER_DRAW * measured + SECONDS_PER_STEP * axes * (measured + plan.workload.cells)
