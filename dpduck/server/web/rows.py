"""Rows of a private view on its page: sorted, filtered, in pieces, and as files. No text of a URL gets into any SQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from dpduck.publish.pictures import Shape
from dpduck.publish.table_html import cell_html, is_number_value
from dpduck.publish.view_section import with_null_words
from dpduck.server.clients.desk import MOST_LETTERS, PageAnswer
from dpduck.server.web.markup import Html, element, hidden

OF_A_PIECE = 100
"""Rows of a view that a page shows at once."""

LONGEST_FILTER = 200
FILE_BYTES = 8 * 2**20
"""Most bytes of a file's rows in memory. A text file is two or three times as large, and waits for a slow reader."""

FILES = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
_WHOLE = re.compile(r"[0-9]{1,7}")
_NAMES = frozenset(("sort", "down", "filter", "page", "row"))
FORMULA = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
"""Beginnings of texts that a spreadsheet takes for formulas. Some also take the wide forms of =, +, - and @."""


@dataclass(frozen=True)
class Wish:
    """Rows that a URL asks for. sort: a column, "" for key order. down: whether it descends. page, row: from 1."""

    sort: str = ""
    down: bool = False
    filter: str = ""
    page: int = 1
    row: int = 0

    def address(self) -> str:
        given = {
            "sort": self.sort, "down": "1" if self.down else "", "filter": self.filter,
            "page": str(self.page) if self.page > 1 else "", "row": str(self.row) if self.row else "",
        }  # fmt: skip
        said = urlencode({name: value for name, value in given.items() if value})
        return f"?{said}" if said else "?"


def wish_of(query: Mapping[str, str], columns: Sequence[str]) -> Wish | None:
    """Returns the rows that a query asks for, or None if the page writes no such query. Empty fields are ignored."""
    given = {name: value for name, value in query.items() if value}
    if not given.keys() <= _NAMES or given.get("down", "1") != "1" or len(given.get("filter", "")) > LONGEST_FILTER:
        return None
    numbers = [given.get(name, least) for name, least in (("page", "1"), ("row", "0"))]
    if not all(map(_WHOLE.fullmatch, numbers)) or given.get("sort", "") not in ("", *columns):
        return None
    page, row = map(int, numbers)
    return Wish(given.get("sort", ""), "down" in given, given.get("filter", ""), max(1, page), row)


def render_rows(answer: PageAnswer, shape: Shape, wish: Wish, name: str) -> list[Html]:
    """Renders the rows that a wish asks for, with a form and links for other rows. answer: sorted by its keys."""
    worded = with_null_words(shape, answer.columns, answer.rows)
    rows = _sort_rows([row for row in worded if _contains(row, wish.filter)], answer.columns, wish)
    pages = max(1, -(-len(rows) // OF_A_PIECE))
    page = min(pages, (wish.row - 1) // OF_A_PIECE + 1 if wish.row else wish.page)
    first = (page - 1) * OF_A_PIECE
    shown = rows[first : first + OF_A_PIECE]
    count = f"{len(rows):,} row{'' if len(rows) == 1 else 's'}"
    said = count if pages == 1 else f"Rows {first + 1:,} to {first + len(shown):,} of {len(rows):,}"
    notes = [] if not answer.left_out else [element("p", f"{answer.left_out:,} more columns are not shown.")]
    if answer.more:
        notice = f"Only the first {len(answer.rows):,} rows are sorted and filtered here. The files have all of them."
        notes.append(element("p", notice))
    turns = [] if pages == 1 else [_turns(wish, page, pages)]
    return [_form(wish, said), *notes, _table(answer, shape, shown, first, wish, name), *turns, _files(name)]


def _form(wish: Wish, said: str) -> Html:
    keep = [hidden("sort", wish.sort) if wish.sort else None, hidden("down", "1") if wish.down else None]
    return element(
        "form", keep, element("label", "Rows that contain", for_="filter"),
        element("input", id="filter", name="filter", value=wish.filter, maxlength=LONGEST_FILTER, autocomplete="off",
                spellcheck="false"),
        element("button", "Filter"), " ",
        element("a", "All rows", href="?") if wish.filter else None,
        element("span", said, class_="help", role="status"), method="get", class_="filter",
    )  # fmt: skip


def _table(answer: PageAnswer, shape: Shape, rows: Sequence[Sequence[Any]], first: int, wish: Wish, name: str) -> Html:
    heads = [element("th", "row", scope="col", class_="number")]
    for place, column in enumerate(answer.columns):
        down = wish.sort == column and not wish.down
        order = None if wish.sort != column else "descending" if wish.down else "ascending"
        to = replace(wish, sort=column, down=down, page=1, row=0).address()
        right = any(is_number_value(row[place]) for row in rows)
        link = element("a", column, href=to)
        heads.append(element("th", link, scope="col", aria_sort=order, class_="number" if right else None))
    body = []
    for number, row in enumerate(rows, first + 1):
        to = f"{replace(wish, page=1, row=number).address()}#row-{number}"
        link = element("td", element("a", f"{number:,}", href=to, aria_label=f"link to row {number}"), class_="number")
        cells = [
            Html(cell_html(_short(cell), title in shape.names)) for title, cell in zip(answer.columns, row, strict=True)
        ]
        body.append(element("tr", link, cells, id=f"row-{number}"))
    head = element("thead", element("tr", heads))
    inside = element("table", head, element("tbody", body))
    return element("div", inside, class_="wide", tabindex="0", role="group", aria_label=f"Rows of {name}")


def _short(value: Any) -> Any:
    return value[:MOST_LETTERS] if type(value) is str else value


def _turns(wish: Wish, page: int, pages: int) -> Html:
    turns = [("Earlier rows", page - 1), ("Later rows", page + 1)]
    links = [
        element("a", said, href=replace(wish, page=to, row=0).address(), rel="prev" if to < page else "next")
        for said, to in turns
        if 1 <= to <= pages
    ]
    return element("nav", element("span", f"Page {page:,} of {pages:,}"), links, class_="turns", aria_label="Rows")


def _files(name: str) -> Html:
    links = [element("a", said, href=f"/view/{name}.{kind}", download=True) for kind, said in
             (("csv", "CSV"), ("parquet", "Parquet"))]  # fmt: skip
    return element("p", "All rows as a file: ", links[0], " ", links[1], class_="files")


def _contains(row: Sequence[Any], text: str) -> bool:
    wanted = text.casefold()
    return not wanted or any(wanted in str(value).casefold() for value in row if value is not None)


def _sort_rows(rows: list[list[Any]], columns: Sequence[str], wish: Wish) -> list[list[Any]]:
    """Sorts rows by the wish's column, numbers before texts. Rows without a value are always last."""
    if not wish.sort:
        return rows
    place = columns.index(wish.sort)
    empty = [row for row in rows if row[place] is None]
    rest = [row for row in rows if row[place] is not None]
    by: Callable[[list[Any]], Any] = lambda row: row[place]  # noqa: E731 - one of two sort keys
    try:
        rest.sort(key=by, reverse=wish.down)
    except TypeError:
        rest.sort(key=lambda row: _either(row[place]), reverse=wish.down)
    return rest + empty


def _either(value: Any) -> tuple[bool, float, str]:
    number = isinstance(value, (int, float, Decimal))
    return (not number, float(value) if number else 0.0, "" if number else str(value))
