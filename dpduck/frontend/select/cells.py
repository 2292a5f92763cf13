"""Views with one row for each cell of all columns: what BI tools add up, so that every sum is one of the margins."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from sqlglot import exp

from dpduck.frontend.select.answers import AnswerReader
from dpduck.frontend.select.outer import SelectItem
from dpduck.frontend.select.request import Request
from dpduck.frontend.statements.kinds import AskStatement
from dpduck.frontend.text.names import answer_column, fold, stderr_column
from dpduck.frontend.text.positions import refusal

MOST_CELLS = 2_000_000
MOST_COLUMNS = 10
VARIANCES = "_variances"
"""What the name of a column ends with that dp_cells_stderr reads."""


def variances_column(aggregate: int) -> str:
    """Returns the variances of an aggregate's components, as text."""
    return f"variances_{aggregate + 1}"


def cell_columns(
    ask: AskStatement, select: exp.Select, items: Sequence[SelectItem], answers: AnswerReader, request: Request
) -> tuple[tuple[str, str], ...]:
    """Returns the columns of such a view: each by its name, and by that of the released column that it is.

    After the answers come their standard errors, and what errors of sums are computed from.
    """
    question, treatment = request.question, request.question.treatment
    if ask.view is None:
        raise refusal(select, "form is for private views", "CREATE PRIVATE VIEW v OPTIONS (.., form = 'cells') AS ..")
    for part in ("having", "qualify", "order", "limit", "offset"):
        if select.args.get(part):
            raise refusal(select.args[part], f"{part.upper()} would leave cells out", "the view without it")
    if treatment.moves or treatment.integer or question.has_ranges or question.summary is not None:
        raise refusal(
            select,
            "cells add up to what least squares says alone",
            "form = 'cells' without nonnegative, integer, consistency 'l1' and 'linf', summaries, PREFIXES and RANGES",
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
            select,
            "a cell is told by all of its columns",
            "every grouping column, and aggregates as they are",
        )
    curved = [one for one in question.aggregates if one.function not in ("count", "sum") or one.operand_by_group]
    if curved:
        raise refusal(
            select, f"{curved[0].text[:60]} does not add up", "count(*), count(*) FILTER (WHERE ..), sum(column)"
        )
    columns = [(item.name, key or answer_column(number or 0)) for item, number, key in shown]
    taken = {fold(name) for name, _ in columns}
    for item, number, key in shown:
        if key is None and number is not None:
            name = item.name
            more = [
                (f"{name}_stderr", stderr_column(number)),
                (f"{name}{VARIANCES}", variances_column(number)),
            ]
            columns += [pair for pair in more if fold(pair[0]) not in taken]
    return tuple(columns)
