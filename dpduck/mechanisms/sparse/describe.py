"""dp_explain of sparse queries: every way to answer the declared queries, at the statement's price."""

from __future__ import annotations

from dataclasses import replace

from dpduck.mechanisms.forecast import Forecast, state_price
from dpduck.mechanisms.sparse.plan import SessionPlan, SparseWorkload, session_plan
from dpduck.mechanisms.sparse.projection import guess_second_moment, projection_plan
from dpduck.mechanisms.sparse.request import SparseRequest
from dpduck.mechanisms.sparse.ways import ways
from dpduck.values.errors import Refusal

SMALLEST = "smallest predicted error"


def explain_sparse(sparse: SparseRequest) -> list[Forecast]:
    """Returns a forecast for each way: the statement's own way first, then by predicted error."""
    request, options = sparse.request, sparse.options
    declared = SparseWorkload(options.sparsity, options.queries, float(options.beta), options.updates, None)
    moment = guess_second_moment(sparse.expect_rows, options.heaviest)
    all_ways = ways(
        request.price.charge, request.rows.unit_bound, declared, moment, projection_plan(sparse), _session(sparse)
    )
    forecasts = [
        Forecast(
            way.name,
            way.name == sparse.kind,
            way.cells,
            1,
            ("" if number else SMALLEST, way.note),
            None if way.stderr is None else way.stderr**2 * options.queries,
            way.stderr,
            further=[("predicted_error", "DOUBLE", way.error)],
        )
        for number, way in enumerate(all_ways)
    ]
    return state_price(sorted(forecasts, key=lambda way: not way.chosen), request.price)


def _session(sparse: SparseRequest) -> SessionPlan | None:
    try:
        return session_plan(sparse)
    except Refusal:
        if sparse.options.alpha is None:
            raise
        return session_plan(replace(sparse, options=replace(sparse.options, alpha=None)))
