"""dpduck compare: prints or writes the exact distances of a synthetic table from the data, for the owner alone."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import click

from dpduck.commands.answering import answers
from dpduck.commands.errors import one_line_errors
from dpduck.commands.printing import say
from dpduck.publish.page_file import frame_page, replace_page, require_place
from dpduck.publish.pictures import spec_of, svg
from dpduck.publish.report import require_pictures
from dpduck.publish.table_html import table_html
from dpduck.store.check import Distance

MADE = "dpduck compare"
LISTED = 50
"""Largest number of marginals that the page and the terminal list, the most distant first."""

WARNING = (
    "For the owner of the data alone. Every figure here is exact: no noise was added and no budget was charged. "
    "Whoever reads it learns about private rows. It must never be published, mailed, or shown to those who receive "
    "the numbers, and whoever chooses what to publish by it gives away what no budget paid for."
)
"""First words of the page. They are also printed before the figures."""


def print_comparison(database: Path, table: str, store: Path | None, target: Path | None) -> None:
    """Prints the distances of a synthetic table from the data, or writes them to a page."""
    with one_line_errors():
        if target is not None:
            require_pictures()
            require_place(target, MADE)
        with answers(database, store) as ask:
            rows = ask("dp_compare", table).fetchall()
        margins = [Distance(*row) for row in rows]
        if target is not None:
            replace_page(target, page_of(table, margins), 0o600)
            click.echo(f"{len(margins)} exact distances in {target}: for your eyes only, never to be published")
            return
        click.secho(WARNING, fg="yellow", err=True)
        for gap in margins[:LISTED]:
            say(f"{gap.distance:.4f}  {gap.columns}: {gap.value} {gap.in_data:.4f} -> {gap.in_rows:.4f}")


def page_of(table: str, margins: Sequence[Distance]) -> str:
    """Returns the page: the warning, a heat map of columns and pairs, and the most distant marginals."""
    title = f"{table} beside the data: for its owner alone"
    columns = ("columns", "at a time", "distance", "value that differs most", "share in the data", "in the rows")
    listed = [(gap.columns, gap.ways, gap.distance, gap.value, gap.in_data, gap.in_rows) for gap in margins[:LISTED]]
    body = (
        f'<h1>{escape(title)}</h1><p role="note"><strong>{escape(WARNING)}</strong></p>'
        f"<section><h2>Pairs of columns</h2><figure>{svg(heat_map(margins))}<figcaption>Distance of each pair of "
        "columns in total variation: half the sum of absolute differences of shares, 0 where they agree, 1 where they "
        "have nothing in common. On the diagonal, columns by themselves; the farthest come first.</figcaption></figure>"
        f"</section><section><h2>The farthest {len(listed)} of {len(margins)} marginals</h2>"
        f"{table_html(columns, listed, 'Marginals')}</section>"
    )
    return frame_page(title, MADE, body)


def heat_map(margins: Sequence[Distance]) -> dict[str, Any]:
    """Returns a heat map of the distances of columns and pairs, in Vega-Lite."""
    names = [margin.columns for margin in margins if margin.ways == 1]
    pairs = {margin.columns: margin.distance for margin in margins if margin.ways <= 2}
    points = []
    for one in names:
        for two in names:
            distance = pairs.get(one if one == two else f"{one}, {two}", pairs.get(f"{two}, {one}"))
            points += [] if distance is None else [{"one": one, "two": two, "distance": distance}]
    across, down = (
        {"field": field, "type": "nominal", "title": None, "sort": None, "axis": {"labelOverlap": False}}
        for field in ("one", "two")
    )
    scale = {"scheme": "reds", "domainMin": 0}
    shade = {"field": "distance", "type": "quantitative", "title": "distance", "scale": scale}
    tiles = {"mark": "rect", "encoding": {"x": across, "y": down, "color": shade}}
    side = max(160, min(560, 24 * len(names)))
    return {**spec_of(points, [tiles], "distances of pairs of columns"), "width": side, "height": side}
