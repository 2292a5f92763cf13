"""dp_explain of sparse queries: every way of answering what is declared, at the statement's price."""

from __future__ import annotations

from dataclasses import replace

from dpduck.edges.listings import Value, rows_sql
from dpduck.edges.projection_release import projection_plan
from dpduck.edges.session_release import session_plan
from dpduck.errors import Refusal
from dpduck.frontend.sparse_request import SparseRequest
from dpduck.sparsequeries.comparison import ways
from dpduck.sparsequeries.projection_plan import guessed_second_moment
from dpduck.sparsequeries.session_plan import Declared, SessionPlan

COLUMNS = (
    ("strategy", "VARCHAR"), ("chosen", "BOOLEAN"), ("total_variance", "DOUBLE"), ("worst_stderr", "DOUBLE"),
    ("epsilon", "DOUBLE"), ("delta", "DOUBLE"), ("rho", "DOUBLE"), ("cells", "BIGINT"), ("groups", "BIGINT"),
    ("note", "VARCHAR"), ("predicted_error", "DOUBLE"),
)  # fmt: skip
SMALLEST = "smallest predicted error; "


def explained(sparse: SparseRequest) -> str:
    """SQL with one row for each way, the statement's own first, then by predicted error."""
    request, options = sparse.request, sparse.options
    declared = Declared(options.sparsity, options.queries, float(options.beta), options.updates, None)
    moment = guessed_second_moment(sparse.expect_rows, options.heaviest)
    found = ways(request.charge, request.unit_bound, declared, moment, projection_plan(sparse), _session(sparse))
    charge = request.charge
    stated = request.stated_epsilon if charge.epsilon is None else charge.epsilon
    rows: list[list[Value]] = [
        [
            way.name, way.name == sparse.kind, None if way.stderr is None else way.stderr**2 * options.queries,
            way.stderr, stated, request.stated_delta, charge.rho, way.cells, 1,
            (SMALLEST if number == 0 else "") + way.note, way.error,
        ]
        for number, way in enumerate(found)
    ]  # fmt: skip
    return rows_sql(COLUMNS, sorted(rows, key=lambda row: not row[1]))


def _session(sparse: SparseRequest) -> SessionPlan | None:
    """The session that would answer; of other statements, the best one. None where its own alpha cannot be met."""
    try:
        return session_plan(sparse)
    except Refusal:
        if sparse.options.alpha is None:
            raise
        return session_plan(replace(sparse, options=replace(sparse.options, alpha=None)))
