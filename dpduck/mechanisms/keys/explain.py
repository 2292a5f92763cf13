"""dp_explain for selected keys: the threshold, the noise, and the chances that groups of some sizes are published."""

from __future__ import annotations

from math import sqrt

from dpduck.kernel.noise.law import NoiseKind
from dpduck.kernel.queries.keys import Beside
from dpduck.language.select.private_keys import FURTHER
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.cubes.measures import Measure
from dpduck.mechanisms.forecast import AggregateError, Forecast
from dpduck.mechanisms.keys.plan import LOWER_THRESHOLD, KeyPlan, KeyProposal, key_laws, plan_request

SIZES = (1, 10, 50, 100, 500)


def explain_keys(request: SelectRequest, proposal: KeyProposal) -> list[Forecast]:
    """Returns forecasts of the plan, and of a plan with the other kind of noise at the same rho and delta.

    The number of groups is private, so there is no total variance. The error is that of a published group.
    """
    chosen = proposal.plan
    other = NoiseKind.GAUSSIAN if chosen.selection.kind is NoiseKind.LAPLACE else NoiseKind.LAPLACE
    return [
        _forecast(chosen, True, _note(request, chosen)),
        _forecast(plan_request(request, other), False, "at the same rho and delta"),
    ]


def _forecast(plan: KeyPlan, chosen: bool, note: str) -> Forecast:
    worst = max((law[0].stderr for law in key_laws(plan) if law), default=None)
    further = [
        ("threshold", "BIGINT", plan.threshold),
        ("selection_stderr", "DOUBLE", sqrt(plan.selection.variance)),
        *((f"published_{size}", "DOUBLE", plan.publication_chance(size)) for size in SIZES),
    ]
    return Forecast(plan.strategy, chosen, None, plan.queries, (note,), stderr=worst, seconds=0.0, further=further)


def _note(request: SelectRequest, plan: KeyPlan) -> str:
    unit = request.rows.unit_text
    counted = "rows" if request.rows.unit_sql is None else "units"
    left = f"; {FURTHER}, and intervals are about the rest"
    return (
        f"{plan.selection.kind.value} noise; privacy unit {unit} in at most {plan.bounds.groups} groups; published are "
        f"groups of more than {plan.threshold} {counted} after noise; {LOWER_THRESHOLD} shows smaller groups"
        f"{left if plan.bounds.groups < request.rows.unit_bound else ''}{_sums(plan)}"
    )


def _sums(plan: KeyPlan) -> str:
    """Describes how much a unit adds to each table. Returns '' if all aggregates are counts of rows."""
    if plan.measured is None:
        return ""
    words = {"count": "a count", "valued": "a count of values", "sum": "a sum in steps"}
    parts = zip(plan.measured.measures, plan.measured.shares, plan.beside, strict=True)
    texts = [
        f"{words[measure.form]} over {measure.condition or 'all rows'}"
        f"{_about(measure)}, {_describe_sensitivity(measure, part)}: {float(100 * share):.3g} % of the price"
        for measure, share, part in parts
        if share
    ]
    return "".join(f"; {part}" for part in texts)


def _describe_sensitivity(measure: Measure, beside: Beside) -> str:
    """Describes the most that one unit adds, or its largest norm if units are weighed."""
    if measure.contribution.norm:
        norm = sqrt(measure.contribution.norm) * float(measure.contribution.unit)
        return f"of which one unit has at most a norm of {norm:.6g}, and a unit above it counts for a part of itself"
    return f"of which one unit adds at most {beside.norms[0]}, {beside.norms[2]} to one group"


def _about(measure: Measure) -> str:
    operand = measure.operand
    if operand is None or not operand.sql:
        return ""
    middle = measure.contribution.centre
    centre = f" about {float(middle):.15g}" if middle else ""
    return f" of {operand.sql} between {float(operand.low):.15g} and {float(operand.high):.15g}{centre}"


def foreseen_of_keys(proposal: KeyProposal, expect_rows: int | None) -> list[AggregateError]:
    """Returns the predicted error of each aggregate of a published group, if there are sums.

    The rows of a group are private, so an average's error, a mean over all averages, is stated times these rows.
    """
    plan, errors = proposal.plan, list[AggregateError]()
    if plan.measured is None:
        return []
    for number, (aggregate, law) in enumerate(zip(proposal.request.question.aggregates, key_laws(plan), strict=True)):
        use = plan.use_of(number)
        if law:
            errors.append(AggregateError(aggregate.text, None, None, law[0].stderr, law[0].stderr))
        elif use.also is not None and aggregate.operand is not None:
            step, half = float(use.also.weights[0]), float(aggregate.operand.high - aggregate.operand.low) / 2
            first, second = (plan.noise_of(table).variance for table in (use.measure, use.also.measure))
            by_row = sqrt(step * step * second + half * half / 3 * first * plan.part_of(use.measure) ** 2)
            errors.append(AggregateError(aggregate.text, None, None, None, None, by_rows=by_row))
    return errors
