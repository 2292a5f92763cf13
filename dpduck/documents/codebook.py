"""A codebook: the columns of each private view with their types, values, units and errors, and how to add them up.

It is made from the released rows and from the comments on their columns. It comes as Markdown, as HTML, or as CSV with
a line for each column.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from io import StringIO

import duckdb

from dpduck.documents.facts import DocumentedView, DocumentFacts
from dpduck.documents.sentences import left_out, odds_of, unit_text
from dpduck.documents.statements import adding_answers
from dpduck.publish.page_file import frame_page
from dpduck.publish.pictures import Shape, shape_of
from dpduck.publish.table_html import table_html
from dpduck.publish.view_section import caption_of
from dpduck.publish.words import number_text
from dpduck.values.column_notes import FROM_ANSWERS, IS_ANSWER, KEYS, Values
from dpduck.values.domain import RangeDomain
from dpduck.values.quoting import fold, quote_identifier, quote_text

MADE = "dpduck document codebook"
MOST_VALUES = 20
"""Largest number of values of a key that the codebook lists. Of more values it names the first and the last one."""

MADE_UP = "made up"

_SELECTED = KEYS[1]

HEADS = ("column", "type", "meaning", "values", "unit", "standard error")


@dataclass(frozen=True)
class CodebookColumn:
    """A column of a view as the codebook describes it. All fields but the name may be empty."""

    name: str
    type_name: str
    meaning: str
    values: str = ""
    unit: str = ""
    error: str = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """Returns the fields in the order of HEADS."""
        return (self.name, self.type_name, self.meaning, self.values, self.unit, self.error)


@dataclass(frozen=True)
class CodebookView:
    """A view as the codebook describes it."""

    view: DocumentedView
    title: str
    description: str
    promise: str
    columns: tuple[CodebookColumn, ...]
    advice: tuple[str, ...]


def describe_views(connection: duckdb.DuckDBPyConnection, facts: DocumentFacts) -> list[CodebookView]:
    """Returns the description of each view, from its released rows and its comments."""
    described = []
    for view in facts.views:
        caption = caption_of(view.view.comment)
        shape = shape_of([(column.name, column.type_name, column.comment) for column in view.view.columns])
        columns = tuple(_with_bin_ends(column, shape, facts) for column in _columns(connection, view, shape))
        title = caption.title or view.view.name
        promise = f"{caption.guarantee[:1].upper()}{caption.guarantee[1:]}."
        described.append(CodebookView(view, title, caption.description, promise, columns, tuple(_advice(view, shape))))
    return described


def _columns(connection: duckdb.DuckDBPyConnection, view: DocumentedView, shape: Shape) -> list[CodebookColumn]:
    errors, keys = dict(shape.answers), set(shape.names)
    answers = {} if view.is_synthetic else errors
    of_error = {error: name for name, error in errors.items() if error is not None}
    columns = []
    for column in view.view.columns:
        name, type_name, comment = column.name, column.type_name, column.comment
        if view.is_synthetic:
            columns.append(CodebookColumn(name, type_name, MADE_UP, _values(connection, view, name)))
        elif name in answers:
            error = answers[name]
            told = "" if error is None else _error_range(connection, view, error)
            meaning = "an answer with noise" if error is not None or IS_ANSWER in comment else FROM_ANSWERS
            columns.append(CodebookColumn(name, type_name, meaning, "", _unit(name, view, shape), told))
        elif name in of_error:
            columns.append(CodebookColumn(name, type_name, f"the standard error of {of_error[name]}"))
        else:
            values = _values(connection, view, name) if name in keys or name == shape.named else ""
            columns.append(CodebookColumn(name, type_name, _meaning(comment), values))
    return columns


def _unit(answer: str, view: DocumentedView, shape: Shape) -> str:
    """Returns the unit of an answer. Sums over the periods of a stream have the unit of the answer that is summed."""
    summed = answer.removesuffix("_total").removesuffix("_last") if view.stream is not None else answer
    return shape.units.get(answer) or shape.units.get(summed, "")


def _meaning(comment: str) -> str:
    """Returns a comment without the guarantee, which stands above the table.

    >>> _meaning("a selected value, differentially private, rho = 1 (zCDP); above a threshold; NULL is one of them")
    'a selected value; above a threshold; NULL is one of them'
    """
    first, *rest = comment.split("; ")
    name = next((words for words in (FROM_ANSWERS, _SELECTED) if first.startswith(words)), first)
    return name if name == FROM_ANSWERS else "; ".join((name, *rest))


def _with_bin_ends(column: CodebookColumn, shape: Shape, facts: DocumentFacts) -> CodebookColumn:
    """Adds the ends of the bins to a key that shows the lower edges of a declared range under its own name.

    A made-up column has them if it shows nothing but lower edges, all of which are listed.
    """
    listed = set(column.values.split(", ")) - {"NULL"}
    first = column.values.partition(", ")[0].partition(" to ")[0]
    is_bin = any(key.name == column.name and key.values is Values.BIN for key in shape.keys)
    for domain in (policy.domain(column.name) for policy in facts.policies):
        if isinstance(domain, RangeDomain) and is_bin and first in domain.edges:
            step = f"{domain.step_count} {domain.unit}" if domain.unit else domain.step
            return replace(column, values=f"{column.values}; bins of {step} each, {_ends(domain)}")
        if isinstance(domain, RangeDomain) and column.meaning == MADE_UP and listed and listed <= set(domain.edges):
            return replace(column, values=f"{column.values}; lower edges of bins, {_ends(domain)}")
    return column


def _ends(domain: RangeDomain) -> str:
    beyond = ", with all values beyond the first and the last bin" if domain.with_edges else ""
    return f"up to {domain.upper}{beyond}"


def _values(connection: duckdb.DuckDBPyConnection, view: DocumentedView, column: str) -> str:
    """Returns the values of a released column: all values if they are few, or the first, the last and their number.

    Long texts are cut.
    """
    name, table = quote_identifier(column), f"store.main.{quote_identifier(view.view.name)}"
    listed = connection.execute(
        f"SELECT DISTINCT {name} AS value, CAST({name} AS VARCHAR) FROM {table} ORDER BY value NULLS LAST"
    ).fetchall()
    texts = ["NULL" if text is None else str(text)[:60] for _, text in listed]
    named = [text for text in texts if text != "NULL"]
    if len(texts) <= MOST_VALUES or not named:
        return ", ".join(texts)
    return f"{named[0]} to {named[-1]}, {len(named)} values{', and NULL' if len(named) < len(texts) else ''}"


def _error_range(connection: duckdb.DuckDBPyConnection, view: DocumentedView, column: str) -> str:
    name, table = quote_identifier(column), f"store.main.{quote_identifier(view.view.name)}"
    ((low, high),) = connection.execute(
        f"SELECT min({name}), max({name}) FROM {table} WHERE isfinite({name})"
    ).fetchall()
    if low is None:
        return "not stated"
    ends = number_text(float(low)), number_text(float(high))
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _advice(view: DocumentedView, shape: Shape) -> list[str]:
    """Says how to read and add up the rows of a view, and how to combine their errors."""
    name = view.view.name
    if view.is_synthetic:
        return [
            "Each row is made up, and stands for nobody. Shares and counts over many rows are near those of the data.",
            "No error is stated. Ask the owner which combinations of columns were measured.",
        ]
    if not shape.keys and all(error is None for _, error in shape.answers) and len(view.view.columns) > 1:
        return ["This table is a summary. Ask the owner for the query that reads it."]
    adding = adding_answers(view.statement)
    summed = [pair for pair in shape.answers if adding is None or fold(pair[0]) in adding]
    said = ["A negative count is noise around a small count. Keep it when you add up or average."]
    if shape.named is not None:
        first, rest = (", ".join(map(quote_text, names)) for names in (shape.names[:1], shape.names[1:]))
        said.append(f"Rows of different {shape.named} overlap, so add up rows of one level alone.")
        said.append(f"For the rows of one level: FROM dp_margin({quote_text(name)}, [{first}], [{rest}])")
    elif any(key.values is Values.RANGE for key in shape.keys):
        said.append("Ranges overlap. Add up only ranges that have no value in common.")
    elif shape.keys and summed:
        said.append("The rows are groups without overlap: counts of rows and sums of two groups may be added.")
    if view.hides_groups:
        said.append("A group that is missing is not zero: it is left out because of its noisy number.")
    if view.has_public_totals:
        said.append("An answer with an error of 0 follows from totals that were public already.")
    if view.stream is not None:
        said.append("Columns ending in _total or _last are sums over periods already.")
    if len(summed) < len(shape.answers):
        said.append("Averages, quantiles and counts of persons do not add up.")
    if shape.keys and summed and (error := summed[0][1]) is not None:
        names = ", ".join(map(quote_identifier, (summed[0][0], error)))
        said.append(f"For a sum with its error: SELECT unnest(dp_sum_interval({names})) FROM {quote_identifier(name)}")
    if shape.keys and any(error is not None for _, error in shape.answers):
        said.append("About 19 of 20 true numbers are within two standard errors.")
    return [*said, "Rows of different tables have noise of their own, and need not agree."]


def markdown_text(facts: DocumentFacts, views: Sequence[CodebookView]) -> str:
    """Returns the codebook as Markdown."""
    lines = ["# Codebook", "", f"Protected: {unit_text(facts)}. {odds_of(facts)}", ""]
    lines += ["What is left out:", "", *(f"* {sentence}" for sentence in left_out(facts)), ""]
    for described in views:
        released = described.view.released_at.date().isoformat()
        lines += [f"## {_cell(described.title)}", ""]
        lines += [_cell(described.description), ""] if described.description else []
        lines += [f"Table `{described.view.view.name}`, {described.view.rows:,} rows, released {released}.", ""]
        lines += [_cell(described.promise), "", f"| {' | '.join(HEADS)} |", f"|{' --- |' * len(HEADS)}"]
        lines += [f"| {' | '.join(map(_cell, column.fields))} |" for column in described.columns]
        lines += ["", *(f"* {_cell(sentence)}" for sentence in described.advice), "", *_statement_block(described), ""]
    return "\n".join(lines)


def _statement_block(described: CodebookView) -> list[str]:
    """Returns the statement of a view as a block of code. Its fence is longer than any in the statement."""
    fence = "`" * 3
    while fence in described.view.statement:
        fence += "`"
    return [f"{fence}sql", described.view.statement, fence]


def _cell(text: str) -> str:
    """Returns a text for one line of Markdown, with its special characters escaped."""
    escaped = "".join(f"\\{letter}" if letter in "\\|`*_<[" else letter for letter in text)
    return " ".join(escaped.split())


def csv_text(views: Sequence[CodebookView]) -> str:
    """Returns the codebook as CSV, with a line for each column of each view."""
    target = StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(("view", *HEADS))
    for described in views:
        writer.writerows((described.view.view.name, *column.fields) for column in described.columns)
    return target.getvalue()


def codebook_page(facts: DocumentFacts, views: Sequence[CodebookView], title: str) -> str:
    """Returns the codebook as a page of HTML."""
    left = "".join(f"<li>{escape(sentence)}</li>" for sentence in left_out(facts))
    body = (
        f'<h1>{escape(title)}</h1><p class="lead">Protected: {escape(unit_text(facts))}. '
        f"{escape(odds_of(facts))}</p><section><h2>What is left out</h2><ul>{left}</ul></section>"
        f"{''.join(map(_section, views))}"
    )
    return frame_page(f"{title}: codebook", MADE, body)


def _section(described: CodebookView) -> str:
    view = described.view
    about = f"<p>{escape(described.description)}</p>" if described.description else ""
    advice = "".join(f"<li>{escape(sentence)}</li>" for sentence in described.advice)
    return (
        f"<section><h2>{escape(described.title)}</h2>{about}<p>Table <code>{escape(view.view.name)}</code>, "
        f"{view.rows:,} rows, released {view.released_at.date().isoformat()}.</p><p>{escape(described.promise)}</p>"
        f"{table_html(HEADS, [column.fields for column in described.columns], f'Columns of {view.view.name}')}"
        f"<ul>{advice}</ul><details><summary>The statement</summary><pre>{escape(view.statement)}</pre></details>"
        "</section>"
    )
