"""Intervals of bins, from several count(*) FILTER (WHERE age BETWEEN a AND b). They are planned as one workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from dpduck.language.rows.facts import Policy, SourceColumn
from dpduck.language.rows.relation import PRIVATE_ALIAS
from dpduck.language.select.request import SelectRequest
from dpduck.values.domain import RangeDomain
from dpduck.values.sqltypes import sql_type

_STRATEGIES = ("auto", "hierarchy", "haar", "p_identity", "gaussian_optimum")


def with_intervals(request: SelectRequest, policy: Policy, conditions: Mapping[str, exp.Expr]) -> SelectRequest:
    """Returns the request with its aggregates as intervals, if all are intervals. Otherwise returns it unchanged.

    There must be two or more counts without GROUP BY, over one integer column with bins. Each interval must start and
    end at edges: age BETWEEN 10 AND 19, or age >= 10 AND age < 20, with edges at 10 and 20. Options must allow ranges.
    """
    treatment = request.question.treatment
    plain = treatment.consistency == "l2" and not treatment.nonnegative and treatment.strategy in _STRATEGIES
    plain = plain and treatment.norm is None and not treatment.finds_norm and not treatment.public_totals
    if (
        request.question.keys
        or request.question.grouping_sets != ((),)
        or len(request.question.aggregates) < 2
        or not plain
    ):
        return request
    if any(aggregate.function != "count" or aggregate.operand is not None for aggregate in request.question.aggregates):
        return request
    candidates = [_bounds(conditions.get(aggregate.condition)) for aggregate in request.question.aggregates]
    ranges = [bounds for bounds in candidates if bounds is not None]
    if len(ranges) < len(candidates) or len({column.sql() for column, _, _ in ranges}) != 1:
        return request
    column = ranges[0][0]
    domain = policy.domain(column.name) if column.table == PRIVATE_ALIAS else None
    if not isinstance(domain, RangeDomain) or domain.with_edges or not sql_type(domain.type_name).is_integer:
        return request
    edges = {int(edge): number for number, edge in enumerate((*domain.edges, domain.upper))}
    intervals = tuple((edges.get(low, -1), edges.get(high, -1)) for _, low, high in ranges)
    if any(not 0 <= start < stop for start, stop in intervals):
        return request
    sources = (SourceColumn(column.sql(dialect="duckdb"), domain),)
    return replace(request, question=replace(request.question, sources=sources, intervals=intervals))


def _bounds(condition: exp.Expr | None) -> tuple[exp.Column, int, int] | None:
    """Returns the column, a and b of a condition a <= column < b. None for other conditions.

    BETWEEN a AND b is read as >= a AND < b + 1, since the column is an integer.
    """
    node = None if condition is None else condition.unnest()
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
    """Returns the value of a literal whole number of at most 18 digits. None for other expressions."""
    negative = isinstance(node, exp.Neg)
    literal = node.this if negative else node
    if not isinstance(literal, exp.Literal) or not literal.is_int or len(literal.name) > 18:
        return None
    return -int(literal.name) if negative else int(literal.name)
