"""A request for a summary, checked, and the SQL over it: it has columns of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from sqlglot import exp

from dpduck.frontend.select.answers import has_aggregate
from dpduck.frontend.select.outer import SelectItem
from dpduck.frontend.select.request import Key, Request
from dpduck.frontend.select.summary import LARGEST_DOMAIN, LARGEST_SIZE, Summary
from dpduck.frontend.text.names import RELEASED, fold, raw_column, variance_column
from dpduck.frontend.text.positions import refusal


def summarised(request: Request, summary: Summary, expect_rows: int | None, place: exp.Expr) -> Request:
    """Returns the request with its summary, or a refusal of what no summary holds."""
    if request.question.selection is not None:
        raise refusal(place, "a summary is over public domains", "group_selection_strategy = PUBLIC_GROUPS")
    if request.price.charge.epsilon is None and summary.method != "sketch":
        raise refusal(place, "a summary has geometric noise", "epsilon = .. without delta and rho")
    for aggregate in request.question.aggregates:
        if aggregate.function != "count" or aggregate.operand is not None:
            raise refusal(place, f"{aggregate.text} is not of a summary", "count(*), count(*) FILTER (WHERE ..)")
    if len(request.question.aggregates) != 1:
        raise refusal(
            place, f"{len(request.question.aggregates)} aggregates in a summary", "one count in each statement"
        )
    if len(request.question.grouping_sets) != 1 or not request.question.keys:
        raise refusal(place, "a summary has one list of columns", "GROUP BY a, b, ..")
    prefixes = [key for key in request.question.keys if key.shape == "prefixes"]
    if prefixes:
        raise refusal(place, "PREFIXES is not of a summary", f"RANGES({prefixes[0].name})")
    if summary.ranged and not any(key.shape for key in request.question.keys):
        raise refusal(place, "range_summary is of ranges, and no column has them", "RANGES(column) in GROUP BY")
    if summary.total_epsilon is not None and summary.total_epsilon >= (request.price.charge.epsilon or 0):
        raise refusal(place, "total_epsilon leaves nothing for the summary", "less than epsilon, for example a tenth")
    cells = prod(summarised_size(key, summary.shape) for key in request.question.keys)
    _require_cells(summary, cells, place)
    return replace(request, question=replace(request.question, summary=replace(summary, expect_rows=expect_rows)))


def summarised_size(key: Key, shape: str) -> int:
    """Tells how many values a key has in a summary: its labels, or the nodes over them (workload.dyadic)."""
    size = len(key.labels)
    if not key.shape:
        return size
    levels = range(1 if shape == "haar" else 0, (size - 1).bit_length() + 1)
    return sum(-(-size >> level) for level in levels) + (shape == "haar")


def _require_cells(summary: Summary, cells: int, place: exp.Expr) -> None:
    if cells > LARGEST_DOMAIN:
        limit = f"at most {LARGEST_DOMAIN:.0e} in a summary: fewer columns, larger steps"
        raise refusal(place, f"the domain has {float(cells):.3g} cells", limit)
    if summary.method == "geometric":
        if cells > LARGEST_SIZE:
            raise refusal(place, f"the noisy table would have {cells} cells", f"at most {LARGEST_SIZE}, or a summary")
    elif summary.size > cells and summary.stated:
        raise refusal(place, f"summary_size = {summary.size} is more than the domain's cells", f"at most {cells}")


def with_summary_columns(
    select: exp.Select, items: Sequence[SelectItem], keys: Sequence[Key], summary: Summary
) -> exp.Select:
    """Returns the SELECT over a summary: the noisy count, its variance and the nodes of ranges follow what was
    written.
    """
    if summary.method == "sketch":
        for part in ("where", "qualify", "order", "limit", "offset"):
            if select.args.get(part):
                raise refusal(select, "a sketch is released whole", "without HAVING, QUALIFY, ORDER BY and LIMIT")
        select.set("expressions", [exp.Star()])
        return select
    count = next((item.name for item in items if has_aggregate(item.expression)), "count")
    added = {f"{count}_raw": raw_column(0), f"{count}_variance": variance_column(0)}
    added |= {name: name for key in keys if key.shape for name in node_columns(key)}
    taken = {fold(item.name) for item in items}
    for name, column in added.items():
        if fold(name) not in taken:
            source = exp.column(exp.to_identifier(column, quoted=True), table=exp.to_identifier(RELEASED, quoted=True))
            select.append("expressions", exp.alias_(source, exp.to_identifier(name, quoted=True)))
    return select


def node_columns(key: Key) -> tuple[str, str]:
    """Names the columns in which a summary of RANGES(column) shows a node's level and its number within it."""
    return f"{key.name}_level", f"{key.name}_node"
