"""dp_explain for selected keys: the threshold, the noise, and how likely groups of some sizes are published."""

from __future__ import annotations

from math import sqrt

from dpduck.database.tables import EXPLAINED, Value, rows_sql
from dpduck.frontend.select.request import Request
from dpduck.mechanisms.keys.measure import KeyProposal, planned_keys
from dpduck.mechanisms.keys.plan import KeyPlan, queries
from dpduck.trusted.noise.law import NoiseKind
from dpduck.values.errors import InternalError

SIZES = (1, 10, 50, 100, 500)
"""Privacy units of the groups whose chances are shown."""


def explained_keys(request: Request, proposal: KeyProposal) -> str:
    """The plan and the one with the other noise at the same rho and delta, with the columns of every explanation.

    How many groups there are is private: total_variance and cells are NULL. worst_stderr: of a published group.
    """
    columns = [*EXPLAINED, ("threshold", "BIGINT"), ("selection_stderr", "DOUBLE")]
    columns += [(f"published_{size}", "DOUBLE") for size in SIZES]
    chosen = proposal.plan
    other = NoiseKind.GAUSSIAN if chosen.selection.kind is NoiseKind.LAPLACE else NoiseKind.LAPLACE
    rows = [
        _row(request, chosen, True, _note(request, chosen)),
        _row(request, planned_keys(request, other), False, "at the same rho and delta"),
    ]
    return rows_sql(columns, rows)


def _row(request: Request, plan: KeyPlan, chosen: bool, note: str) -> list[Value]:
    worst, price = max(plan.noise_of(number).variance for number in range(plan.aggregates)), request.price
    return [
        plan.strategy, chosen, None, sqrt(worst), price.stated_epsilon, price.charge.delta, price.charge.rho,
        None, queries(plan.aggregates, plan.reused, plan.other), note, 0.0, plan.threshold,
        sqrt(plan.selection.variance), *(plan.published(size) for size in SIZES),
    ]  # fmt: skip


def _note(request: Request, plan: KeyPlan) -> str:
    if request.question.selection is None:
        raise InternalError("an explanation of keys without a selection")
    unit = "row" if request.rows.unit_sql is None else f"{request.rows.unit_key}, at most {request.rows.max_rows} rows"
    counted = "rows" if request.rows.unit_sql is None else "units"
    left = "; rows of a unit in further groups are left out, and intervals are about the rest"
    return (
        f"{plan.selection.kind.value} noise; privacy unit {unit} in at most {plan.bounds.groups} groups; published are "
        f"groups of more than {plan.threshold} {counted} after noise"
        f"{left if plan.bounds.groups < request.rows.unit_bound else ''}"
    )
