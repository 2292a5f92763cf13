"""Cards of private views: the title, a sentence, the first picture of the view's page without axes, and a day."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from dpduck.publish.pictures import Shape
from dpduck.publish.view_section import TableCaption, caption_of, single_numbers
from dpduck.server.clients.desk import Desk
from dpduck.server.gate import owner_of
from dpduck.server.web.asking import view_shape
from dpduck.server.web.drawing import OF_A_PAGE, Artist
from dpduck.server.web.markup import Html, cut_labels, element, in_order, pictures_of
from dpduck.values.errors import DpduckError
from dpduck.values.quoting import fold, quote_identifier

MOST_THUMBNAILS, ROWS_OF_A_THUMBNAIL = 12, 400
"""The largest numbers of cards with a picture, and of rows of a view for its picture."""

OWNER = "owner"
BY_ANALYST = element("p", "An analyst made this view and wrote its words, not the owner of the data.", class_="day")
_WIDTH, _HEIGHT = 300, 80


@dataclass(frozen=True)
class View:
    """Private view on its card. of_owner: whether the owner of the data made it, and no analyst.

    day: the day of its numbers, empty unless the owner or the reader made it.
    """

    name: str
    caption: TableCaption
    shape: Shape
    day: str
    of_owner: bool = True

    @property
    def title(self) -> str:
        return self.caption.title or self.name

    @property
    def sentence(self) -> str:
        if self.caption.description:
            return self.caption.description
        answers, keys = (_join_names(names) for names in ([name for name, _ in self.shape.answers], self.shape.names))
        said = f"One row: {answers}" if answers else f"Rows of {keys or self.name}"
        return f"{answers} by {keys}." if answers and keys else f"{said}."


def _join_names(names: Sequence[str]) -> str:
    """Joins names for a sentence.

    >>> _join_names(["sex", "ward", "age"]), _join_names(["sex"])
    ('sex, ward and age', 'sex')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def views_of(desk: Desk, marks: Mapping[str, str]) -> list[View]:
    """Lists the private views. marks: the marks of the public database, with the maker and the moment of each view.

    A principal may know the days of the owner's views and of its own views, as dp_known and dp_releases show.
    """
    tables = desk.ask("SELECT table_name, comment FROM duckdb_tables() ORDER BY table_name").rows
    columns: dict[str, list[dict[str, Any]]] = {}
    listing = (  # the first column of each view comes first, so that none is left without columns
        "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() ORDER BY column_index, table_name"
    )
    for row in desk.ask(listing).dicts():
        columns.setdefault(str(row["table_name"]), []).append(row)
    return [
        View(
            str(name),
            caption_of(str(comment or "")),
            view_shape(columns.get(str(name), ())),
            _day(marks.get(fold(str(name)), ""), desk.principal.name),
            owner_of(marks.get(fold(str(name)), "")) == OWNER,
        )
        for name, comment in tables
    ]


def _day(mark: str, reader: str) -> str:
    """Returns the day of a view of the owner or of the reader, from a mark 'principal|entry|moment|digest'."""
    parts = mark.rsplit("|", 3)
    return parts[2][:10] if len(parts) == 4 and owner_of(mark) in (OWNER, reader) else ""


def cards(views: Sequence[View], desk: Desk, artist: Artist) -> Html:
    """Renders the cards of views, the first of them with pictures."""
    until = time.monotonic() + OF_A_PAGE
    items = []
    for place, view in enumerate(views):
        picture = _thumbnail(view, desk, artist, until) if place < MOST_THUMBNAILS else None
        link = element("a", view.title, href=f"/view/{quote(view.name, safe='')}")
        day = element("p", "Numbers of ", element("time", view.day, datetime=view.day), class_="day")
        words = [element("h3", link), picture, element("p", view.sentence)]
        items.append(element("li", words, None if view.of_owner else BY_ANALYST, day if view.day else None))
    return element("ul", items, class_="views")


def _thumbnail(view: View, desk: Desk, artist: Artist, until: float) -> Html | None:
    if desk.rows_of(view.name) > ROWS_OF_A_THUMBNAIL:  # reading it could take long, and counts as the reader's work
        return None
    try:
        answer = desk.ask(f"FROM {quote_identifier(view.name)}", ROWS_OF_A_THUMBNAIL)
    except DpduckError:  # it was dropped meanwhile
        return None
    if not answer.more and (numbers := single_numbers(view.shape, answer.dicts())):
        return element("p", numbers[0], class_="one")
    for pair in view.shape.answers:
        for spec, _ in pictures_of(view.shape, pair, in_order(answer, view.shape))[:1]:
            svg = artist.picture(desk.principal.name, small(spec), until)
            return None if svg is None else element("div", Html(svg), class_="thumbnail", aria_hidden="true")
    return None


def small(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a picture's specification without axes, labels and legends, and with short names."""
    layers = []
    for layer in spec["layer"]:
        bare = {channel: _bare(channel, encoding) for channel, encoding in layer["encoding"].items()}
        mark = {**layer["mark"], "point": False} if isinstance(layer["mark"], Mapping) else layer["mark"]
        layers.append({**layer, "encoding": bare, "mark": mark})
    return dict(cut_labels({**spec, "layer": layers, "width": _WIDTH, "height": _HEIGHT}))


def _bare(channel: str, encoding: Mapping[str, Any]) -> dict[str, Any]:
    nothing = {"x": {"axis": None}, "y": {"axis": None}, "color": {"legend": None}, "strokeDash": {"legend": None}}
    return {**encoding, **nothing.get(channel, {})}
