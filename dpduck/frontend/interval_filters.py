"""count(*) FILTER (WHERE age BETWEEN a AND b), several of them: intervals of bins, planned together as one workload."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from dpduck.domain import RangeDomain
from dpduck.errors import Refusal
from dpduck.frontend.parse import parse_expression
from dpduck.frontend.policy import Policy, SourceColumn
from dpduck.frontend.private_relation import PRIVATE_ALIAS
from dpduck.frontend.request import Request

_INTEGERS = frozenset(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"))
_STRATEGIES = ("auto", "hierarchy", "haar", "p_identity", "gaussian_optimum")


def with_intervals(request: Request, policy: Policy) -> Request:
    """The request with its aggregates as intervals, where all of them are; as it is otherwise.

    That takes at least two aggregates without GROUP BY, over one integer column with bins that every BETWEEN meets
    (age BETWEEN 10 AND 19, or age >= 10 AND age < 20, with edges at 10 and 20), and options that ranges can serve.
    """
    treatment = request.treatment
    plain = treatment.consistency == "l2" and not treatment.nonnegative and treatment.strategy in _STRATEGIES
    if request.keys or request.grouping_sets != ((),) or len(request.aggregates) < 2 or not plain:
        return request
    if any(aggregate.function != "count" or aggregate.operand is not None for aggregate in request.aggregates):
        return request
    found = [_bounds(aggregate.condition) for aggregate in request.aggregates]
    known = [bounds for bounds in found if bounds is not None]
    if len(known) < len(found) or len({column.sql() for column, _, _ in known}) != 1:
        return request
    column = known[0][0]
    domain = policy.domain(column.name) if column.table == PRIVATE_ALIAS else None
    if not isinstance(domain, RangeDomain) or domain.with_edges or domain.type_name not in _INTEGERS:
        return request
    edges = {int(edge): number for number, edge in enumerate((*domain.edges, domain.upper))}
    intervals = tuple((edges.get(low, -1), edges.get(high, -1)) for _, low, high in known)
    if any(not 0 <= start < stop for start, stop in intervals):
        return request
    return replace(request, sources=(SourceColumn(column.sql(dialect="duckdb"), domain),), intervals=intervals)


def _bounds(condition: str) -> tuple[exp.Column, int, int] | None:
    """The column, the first value and the first value after, of one BETWEEN or one pair of comparisons."""
    try:
        node = parse_expression(condition).unnest() if condition else None
    except Refusal:
        return None
    if isinstance(node, exp.Between) and not any(node.args.get(part) for part in ("symmetric",)):
        low, high = _whole(node.args["low"]), _whole(node.args["high"])
        column, beyond = node.this, None if high is None else high + 1
    elif isinstance(node, exp.And):
        first, second = node.left.unnest(), node.right.unnest()
        if not isinstance(first, exp.GTE) or not isinstance(second, exp.LT) or first.this != second.this:
            return None
        column, low, beyond = first.this, _whole(first.expression), _whole(second.expression)
    else:
        return None
    if not isinstance(column, exp.Column) or low is None or beyond is None:
        return None
    return column, low, beyond


def _whole(node: exp.Expr) -> int | None:
    """The value of a short whole number."""
    negative = isinstance(node, exp.Neg)
    literal = node.this if negative else node
    if not isinstance(literal, exp.Literal) or not literal.is_int or len(literal.name) > 18:
        return None
    return -int(literal.name) if negative else int(literal.name)
