"""Sidebar beside a statement: tables, examples, earlier statements. Clicks show a price, and cost nothing."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpduck.server.limits import remember
from dpduck.server.web.markup import Html, element, hidden

REMEMBERED, LONGEST_REMEMBERED = 15, 2_000
"""The number of earlier statements of one principal, and their largest length. They are lost when the server ends."""

MOST_TABLES, MOST_COLUMNS_SHOWN = 60, 60
_FEW_CELLS, _EXAMPLE_TABLES = 100, 3
_LETTERS = 90
_CLAUSE = re.compile(r"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS \(([^()]*)\) ", re.IGNORECASE)

Written = Callable[[str], str]


class History:
    """Latest statements of each principal. Many threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[str, OrderedDict[str, None]] = {}

    def note(self, principal: str, text: str) -> None:
        if not text.strip() or len(text) > LONGEST_REMEMBERED:
            return
        with self._lock:
            remember(self._of.setdefault(principal, OrderedDict()), text, None, REMEMBERED)

    def of(self, principal: str) -> list[str]:
        with self._lock:
            return list(reversed(self._of.get(principal, ())))


def beside(
    columns: Sequence[Mapping[str, Any]], views: Sequence[str], asked: Sequence[str], form_token: str, written: Written
) -> Html:
    """Renders the sidebar. columns: rows of dp_columns. asked: earlier statements. written: writes names in SQL."""
    parts = [element("h2", "Examples"), _statements(_examples(columns, views, written), form_token)]
    if asked:
        parts += [element("h2", "You asked before"), _statements([(text, text) for text in asked], form_token)]
    parts += [element("h2", "Tables and columns"), _tables(columns, {*views}, written)]
    return element("aside", parts, class_="beside", aria_label="Tables, examples and earlier statements")


def _statements(statements: Sequence[tuple[str, str]], form_token: str) -> Html:
    listed = [
        element("li", element(
            "form", hidden("form_token", form_token), hidden("statement", text), element("button", _brief(said)),
            method="post", action="/ask#result",
        ))
        for said, text in statements
    ]  # fmt: skip
    return element("ul", listed, class_="again")


def _brief(text: str) -> str:
    """Shortens a statement to one line, without its clause WITH DIFFERENTIAL_PRIVACY.

    >>> _brief("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1)\\n  count(*) AS n FROM visits")
    'epsilon = 0.1: count(*) AS n FROM visits'
    """
    line = _CLAUSE.sub(r"\1: ", " ".join(text.split()))
    return line if len(line) <= _LETTERS else f"{line[: _LETTERS - 2]}.."


def _examples(columns: Sequence[Mapping[str, Any]], views: Sequence[str], written: Written) -> list[tuple[str, str]]:
    first: dict[str, str] = {}
    for row in columns:
        if row["domain"] is not None and row["cells"] is not None and row["cells"] <= _FEW_CELLS:
            first.setdefault(str(row["table_name"]), str(row["column_name"]))
    examples = [
        (f"Count {table} by {key}: see the price",
         f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1)\n    {written(key)}, count(*) AS n, dp_stderr(n)\n"
         f"FROM {written(table)} GROUP BY {written(key)}")
        for table, key in list(first.items())[:_EXAMPLE_TABLES]
    ]  # fmt: skip
    examples += [(f"Read {view}: free", f"SELECT * FROM {written(view)} LIMIT 20") for view in views[:1]]
    return [*examples, ("See what is left to you: free", "FROM dp_budget()")]


def _tables(columns: Sequence[Mapping[str, Any]], views: set[str], written: Written) -> Html:
    tables: dict[str, list[Mapping[str, Any]]] = {}
    for row in columns:
        tables.setdefault(str(row["table_name"]), []).append(row)
    private = {name for name, rows in tables.items() if any(row["privacy_unit"] or row["domain"] for row in rows)}
    listed = []
    for name, rows in list(tables.items())[:MOST_TABLES]:
        kind = "private view" if name in views else "private table" if name in private else "public table"
        inside = element("ul", [_column(row, written) for row in rows[:MOST_COLUMNS_SHOWN]])
        head = element("summary", element("code", written(name)), " ", element("span", kind, class_="help"))
        listed.append(element("details", head, inside, open=name in private))
    return element("div", listed, class_="tables") if listed else element("p", "There are none.")


def _column(row: Mapping[str, Any], written: Written) -> Html:
    name = element("code", written(str(row["column_name"])), class_="name")
    about = row["domain"] or (f"CLAMP {row['clamp']}" if row["clamp"] else row["data_type"])
    unit = element("span", "the privacy unit", class_="help") if row["privacy_unit"] else None
    return element("li", name, " ", unit or element("span", _brief(str(about)), class_="help"))
