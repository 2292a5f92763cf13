"""Views of all cells, and summaries: two kinds of statements that add columns to the select list.

A view of all cells has one row for each combination of all keys. BI tools add up its rows: each sum is a margin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from sqlglot import exp

from dpduck.language.select.answers import AnswerReader, alias_item, column_of_release, has_aggregate
from dpduck.language.select.outer import SelectItem
from dpduck.language.select.request import LARGEST_DOMAIN, LARGEST_SIZE, Aggregate, Key, SelectRequest, Summary
from dpduck.language.statements.kinds import AskStatement
from dpduck.language.text.names import answer_column, raw_column, stderr_column, variance_column
from dpduck.language.text.positions import refusal
from dpduck.values.quoting import fold


def add_summary(request: SelectRequest, summary: Summary, expect_rows: int | None, place: exp.Expr) -> SelectRequest:
    """Adds the summary to the request. Refuses a request that no summary can answer."""
    if request.question.selection is not None:
        raise refusal(place, "a summary is over public domains", "group_selection_strategy = PUBLIC_GROUPS")
    if request.price.charge.epsilon is None and summary.method != "sketch":
        raise refusal(place, "a summary has geometric noise", "epsilon = .. without delta and rho")
    for aggregate in request.question.aggregates:
        _require_added(aggregate, summary, place)
    if len(request.question.aggregates) != 1:
        raise refusal(
            place, f"{len(request.question.aggregates)} aggregates in a summary", "one count or sum in each statement"
        )
    if len(request.question.grouping_sets) != 1 or not request.question.keys:
        raise refusal(place, "a summary has one list of columns", "GROUP BY a, b, ..")
    prefixes = [key for key in request.question.keys if key.shape == "prefixes"]
    if prefixes:
        raise refusal(place, "a summary has no PREFIXES", f"RANGES({prefixes[0].name})")
    if summary.ranged and not any(key.shape for key in request.question.keys):
        raise refusal(place, "range_summary is for ranges, and no column has RANGES", "RANGES(column) in GROUP BY")
    if summary.total_epsilon is not None and summary.total_epsilon >= (request.price.charge.epsilon or 0):
        raise refusal(place, "total_epsilon leaves nothing for the summary", "less than epsilon, for example a tenth")
    cells = prod(summary_key_size(key, summary.shape) for key in request.question.keys)
    _require_cells(summary, cells, place)
    return replace(request, question=replace(request.question, summary=replace(summary, expect_rows=expect_rows)))


def summary_key_size(key: Key, shape: str) -> int:
    """Returns the number of values of a key in a summary: its labels, or the nodes of a tree (algebra.dyadic)."""
    size = len(key.labels)
    if not key.shape:
        return size
    levels = range(1 if shape == "haar" else 0, (size - 1).bit_length() + 1)
    return sum(-(-size >> level) for level in levels) + (shape == "haar")


def _require_added(aggregate: Aggregate, summary: Summary, place: exp.Expr) -> None:
    """Refuses every aggregate other than a plain count or a sum of a column with bounds."""
    operand = aggregate.operand
    if aggregate.function == "count" and operand is None:
        return
    summed = aggregate.function == "sum" and operand is not None and not operand.per_group and not operand.is_open
    if not summed or operand is None:
        accepted = "count(*), count(*) FILTER (WHERE ..), sum(column) of a column with a CLAMP"
        raise refusal(place, f"a summary does not answer {aggregate.text}", accepted)
    if summary.method == "sketch":
        raise refusal(place, "a sketch counts rows", "count(*), or another summary")
    if operand.low < 0 and summary.method == "filter_one_sided":
        raise refusal(place, "a filter on one side drops negative sums", "summary = 'filter'")


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
    """Appends the columns of a summary to its SELECT: the noisy count, its variance and the nodes of ranges."""
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
            select.append("expressions", alias_item(column_of_release(column), name))
    return select


def node_columns(key: Key) -> tuple[str, str]:
    """Names the columns that show a node's level and its number on that level, in a summary of RANGES(column)."""
    return f"{key.name}_level", f"{key.name}_node"


MOST_CELLS = 2_000_000
MOST_COLUMNS = 10
VARIANCES = "_variances"  # the suffix of the columns that dp_cells_stderr reads


def variances_column(aggregate: int) -> str:
    """Names the column with the variances of an aggregate's components, as text."""
    return f"variances_{aggregate + 1}"


def cell_columns(
    ask: AskStatement, select: exp.Select, items: Sequence[SelectItem], answers: AnswerReader, request: SelectRequest
) -> tuple[tuple[str, str], ...]:
    """Returns the columns of a view of all cells: each output name, with the name of its released column.

    After the answers come their standard errors, and the variances from which the errors of sums are computed.
    """
    question, treatment = request.question, request.question.treatment
    if ask.view is None:
        raise refusal(select, "form is for private views", "CREATE PRIVATE VIEW v OPTIONS (.., form = 'cells') AS ..")
    for part in ("having", "qualify", "order", "limit", "offset"):
        if select.args.get(part):
            raise refusal(select.args[part], f"{part.upper()} would leave cells out", "the view without it")
    moved = treatment.moves or treatment.integer or treatment.public_totals
    if moved or question.has_ranges or question.summary is not None:
        raise refusal(
            select,
            "form = 'cells' works with least squares alone",
            "form = 'cells' without nonnegative, integer, public_totals, consistency 'l1' and 'linf', summaries, "
            "PREFIXES and RANGES",
        )
    if prod(question.sizes) > MOST_CELLS or not 1 <= len(question.keys) <= MOST_COLUMNS:
        raise refusal(
            select,
            f"{prod(question.sizes)} cells of {len(question.keys)} columns",
            f"1 to {MOST_COLUMNS} columns of at most {MOST_CELLS} cells in all",
        )
    shown = [(item, answers.number_of(item.expression), answers.key_of(item.expression)) for item in items]
    missing = {key.name for key in question.keys} - {key for _, _, key in shown if key}
    if missing or any(number is None and key is None for _, number, key in shown):
        raise refusal(
            select, "form = 'cells' needs all grouping columns", "every grouping column, and aggregates as they are"
        )
    curved = [agg for agg in question.aggregates if agg.function not in ("count", "sum") or agg.operand_by_group]
    if curved:
        raise refusal(
            select, f"{curved[0].text[:60]} does not add up", "count(*), count(*) FILTER (WHERE ..), sum(column)"
        )
    columns = [(item.name, key or answer_column(number or 0)) for item, number, key in shown]
    taken = {fold(name) for name, _ in columns}
    for item, number, key in shown:
        if key is None and number is not None:
            name = item.name
            more = [(f"{name}_stderr", stderr_column(number)), (f"{name}{VARIANCES}", variances_column(number))]
            columns += [pair for pair in more if fold(pair[0]) not in taken]
    return tuple(columns)
