"""One private view on a page: its picture, its price, its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import duckdb

from dpduck.publish.pictures import TOTAL, Rows, Shape, charts, shape_of, svg
from dpduck.publish.published_views import PublishedView
from dpduck.publish.table_html import NullWord, moment_html, table_html, value_text
from dpduck.publish.words import number_text
from dpduck.values.quoting import quote_identifier

MOST_ROWS = 300
"""Most rows of a view on the page. The published files have all rows."""


def view_html(connection: duckdb.DuckDBPyConnection, view: PublishedView, released: Mapping[str, Any]) -> str:
    """Returns the section of a view on the page. released: the view's row of metadata."""
    shape = shape_of([(column.name, column.type_name, column.comment) for column in view.columns])
    columns = [column.name for column in view.columns]
    records = connection.execute(f"FROM store.main.{quote_identifier(view.name)} ORDER BY ALL").fetchall()
    rows = in_key_order(shape, columns, records)
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    pictures = "".join(
        f"<figure>{svg(spec)}<figcaption>{escape(said)}</figcaption></figure>"
        for answer in shape.answers
        for spec, said in charts(shape, answer, named)
    )
    numbers = "".join(f'<p class="one">{escape(number)}</p>' for number in single_numbers(shape, named))
    caption = caption_of(view.comment)
    described = f"<p>{escape(caption.description)}</p>" if caption.description else ""
    count = f"The first {MOST_ROWS:,} of {len(rows):,} rows" if len(rows) > MOST_ROWS else f"{len(rows):,} rows"
    worded = with_null_words(shape, columns, rows[:MOST_ROWS])
    title = escape(caption.title or view.name)
    return (
        f'<section><h2 id="{escape(view.name)}">{title}</h2>{described}{numbers}{pictures}'
        f"<details open><summary>The numbers: {count if len(rows) != 1 else '1 row'}</summary>"
        f"{table_html(columns, worded, f'Rows of {view.name}', shape.names)}</details>"
        f"<details><summary>What it is: {escape(view.name)}, released {moment_html(released['released_at'])}</summary>"
        f"<p>{escape(caption.guarantee[:1].upper() + caption.guarantee[1:])}.</p>"
        f"<pre>{escape(str(released['statement']))}</pre></details></section>"
    )


@dataclass(frozen=True)
class TableCaption:
    """The comment on a view, in its parts: the guarantee, and the title and the description that its maker gave it."""

    guarantee: str
    title: str = ""
    description: str = ""


def caption_of(comment: str) -> TableCaption:
    """Splits the comment on a view into its parts.

    >>> caption_of("differentially private, epsilon = 1 (pure)\\nVisits by ward\\nOf 2026.").title
    'Visits by ward'
    """
    guarantee, title, description = (*comment.split("\n", 2), "", "")[:3]
    return TableCaption(guarantee, title, " ".join(description.split()))


def single_numbers(shape: Shape, rows: Rows) -> list[str]:
    """Returns the answers of a view with one row and no keys as texts, each with two standard errors."""
    if len(rows) != 1 or shape.keys:
        return []
    lines = []
    for name, stderr in shape.answers:
        value, error = rows[0][name], rows[0][stderr] if stderr else None
        about = "" if error is None else f" \N{PLUS-MINUS SIGN} {number_text(2 * float(error))}"
        lines += [] if value is None else [f"{shape.title_of(name)}: {value_text(value)}{about}"]
    return lines


def in_key_order(shape: Shape, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Returns rows in the order of their keys. Groups without a value come after other groups, and totals come last."""
    keys = [(key, columns.index(key.name)) for key in shape.keys if key.name in columns]

    def place_of(row: Sequence[Any]) -> list[tuple[int, Any]]:
        named = dict(zip(columns, row, strict=True)) if None in row else {}
        return [
            (0, row[place]) if row[place] is not None else (2 if shape.null_in(key, named) == TOTAL else 1, 0)
            for key, place in keys
        ]

    try:
        return sorted(rows, key=place_of)
    except TypeError:  # values that cannot be compared stay as they came
        return list(rows)


def with_null_words(shape: Shape, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Returns rows with words in place of NULL in keys: a total, a group without a value, or either."""
    keys = {key.name: key for key in shape.keys}
    worded = []
    for row in rows:
        if None not in row:
            worded.append(list(row))
            continue
        named = dict(zip(columns, row, strict=True))
        words = [
            NullWord(shape.null_in(keys[name], named)) if value is None and name in keys else value
            for name, value in zip(columns, row, strict=True)
        ]
        worded.append(words)
    return worded
