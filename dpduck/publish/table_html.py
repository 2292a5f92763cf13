"""Tables as HTML: cells, moments, and boxes that scroll."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from decimal import Decimal
from html import escape
from typing import Any

from dpduck.publish.words import number_text

_RIGHT = ' class="number"'


class NullWord(str):
    """A word for a NULL in a key. No value of the data has this class."""


def moment_html(value: object) -> str:
    """Writes a moment to the minute, and any other value as a text of HTML."""
    return value.strftime("%Y-%m-%d %H:%M") if isinstance(value, datetime) else escape(str(value))


def table_html(columns: Sequence[str], rows: Sequence[Sequence[Any]], about: str, names: Collection[str] = ()) -> str:
    """Returns rows as an HTML table. about: its name, for people who cannot see it. names: columns of codes."""
    named = [name in names for name in columns]
    numeric = [any(is_number_value(row[place]) for row in rows) for place in range(len(columns))]
    head = "".join(
        f'<th scope="col"{_RIGHT if right else ""}>{escape(name)}</th>'
        for name, right in zip(columns, numeric, strict=True)
    )
    cells = ("".join(map(cell_html, row, named)) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return scroll_box(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>", about)


def scroll_box(inside: str, about: str) -> str:
    """Returns HTML in a box that scrolls by itself. about: its name, for people who cannot see it."""
    return f'<div class="wide" tabindex="0" role="group" aria-label="{escape(about)}">{inside}</div>'


def is_number_value(value: Any) -> bool:
    """Tells whether a value is a number, which is aligned to the right."""
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def cell_html(value: Any, is_name: bool) -> str:
    """Returns a cell of a table. is_name: whether a number is a name, such as a code or a year."""
    if isinstance(value, NullWord):
        return f'<td class="null">{value}</td>'
    if not is_number_value(value):
        return f"<td>{'' if value is None else escape(str(value))}</td>"
    return f'<td class="number">{value if is_name else value_text(value)}</td>'


def value_text(value: Any) -> str:
    """Writes a number. A whole number gets separators of thousands."""
    return f"{value:,}" if isinstance(value, int) else number_text(float(value))
