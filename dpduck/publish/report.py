"""dpduck report: one page for whoever receives the numbers, with a picture of every private view.

The page is one file that fetches nothing: pictures are inside of it, drawn by Vega-Lite, and it runs no script.
It holds what publishing gives away (publish/publish.py), what policies promise, and what was spent. Principals' names
and their statements are on it only where the owner says so.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb

from dpduck.frontend.text.names import quote_identifier
from dpduck.publish.postgres import PublishedView, metadata_sql, published_views
from dpduck.values.errors import Refusal

MOST_ROWS = 300
"""Of a view that the page lists; a longer one is in the published files."""

MOST_BARS, MOST_POINTS, MOST_TILES = 60, 5_000, 3_600
ERRORS_SHOWN = 2
"""Bars of error are so many standard errors long to each side: 19 of 20 answers are that near, 94 of 100 or more."""

KEYS = ("a key", "a selected value")
"""How the comment on a column begins that groups are told apart by (mechanisms/answers_sql.py)."""

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Facts:
    """What the page says beside the views: rows of dp_policies, dp_budget and dp_ledger, as an owner gets them."""

    policies: Rows
    budgets: Rows
    ledger: Rows


def write_report(
    connection: duckdb.DuckDBPyConnection,
    facts: Facts,
    target: Path,
    *,
    title: str,
    with_ledger: bool = False,
    views: Sequence[str] = (),
) -> int:
    """Writes the page and returns the number of views on it.

    connection: with the views attached as `store` (publish/postgres.py). with_ledger: tell who asked, and what.
    """
    require_pictures()
    require_place(target, _MADE)
    found = published_views(connection, with_ledger=with_ledger, wanted=views)
    described = connection.sql(metadata_sql(with_ledger=False, wanted=views)).to_arrow_table().to_pylist()
    metadata = {row["name"]: row for row in described}
    sections = "".join(_view_html(connection, view, metadata[view.name]) for view in found)
    page = _page(title, sections, facts, with_ledger, [view.name for view in found])
    replace_page(target, page, 0o644)
    return len(found)


def require_pictures() -> None:
    """Refuses where nothing can draw."""
    if find_spec("vl_convert") is None:
        raise Refusal("pictures need vl-convert", accepted="pip install '.[report]' in dpduck's folder")


def require_place(target: Path, made: str) -> None:
    """Refuses a file that is there already and is no page of this kind."""
    if target.exists() and not (target.is_file() and generator(made).encode() in target.read_bytes()[:2000]):
        raise Refusal(
            f"{target.name} is in the way", accepted=f"a new file, or one that {made.rsplit(maxsplit=1)[-1]} made"
        )


def generator(made: str) -> str:
    """Returns the line by which a page of one kind is known."""
    return f'<meta name="generator" content="{made}">'


def replace_page(target: Path, page: str, mode: int) -> None:
    """Puts a page in its place whole, for whom the mode lets read it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=".dpduck", delete=False, encoding="utf-8") as file:
        file.write(page)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).chmod(mode)
    Path(file.name).replace(target)


# One private view: its picture, its price, its rows.


@dataclass(frozen=True)
class Shape:
    """The columns of a view by what they are: keys, and each answer with its standard error's column, if it has one."""

    keys: tuple[str, ...]
    answers: tuple[tuple[str, str | None], ...]


def shape_of(view: PublishedView) -> Shape:
    """Tells keys from answers by the comments on the columns."""
    names = {column.name for column in view.columns}
    keys = tuple(column.name for column in view.columns if column.comment.startswith(KEYS))
    numbers = [
        column.name
        for column in view.columns
        if column.name not in keys and not column.name.endswith("_stderr") and is_number(column.type_name)
    ]
    return Shape(keys, tuple((name, f"{name}_stderr" if f"{name}_stderr" in names else None) for name in numbers))


def is_number(type_name: str) -> bool:
    """Tells whether a column of this DuckDB type can be drawn."""
    return type_name.endswith("INT") or type_name in ("INTEGER", "DOUBLE", "FLOAT") or type_name.startswith("DECIMAL(")


def _view_html(connection: duckdb.DuckDBPyConnection, view: PublishedView, released: Mapping[str, Any]) -> str:
    shape = shape_of(view)
    columns = [column.name for column in view.columns]
    order = ", ".join(quote_identifier(key) for key in shape.keys) or "ALL"
    rows = connection.execute(f"FROM store.main.{quote_identifier(view.name)} ORDER BY {order}").fetchall()
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    pictures = "".join(
        f"<figure>{svg(spec)}<figcaption>{escape(said)}</figcaption></figure>"
        for answer in shape.answers
        if (drawn := chart(shape.keys, answer, named)) is not None
        for spec, said in [drawn]
    )
    about = escape(view.comment[:1].upper() + view.comment[1:])
    more = f"<p>The first {MOST_ROWS:,} of {len(rows):,} rows.</p>" if len(rows) > MOST_ROWS else ""
    return (
        f'<section><h2 id="{escape(view.name)}">{escape(view.name)}</h2><p>{about}.</p>{pictures}'
        f"<details open><summary>The numbers</summary>{more}"
        f"{table_html(columns, rows[:MOST_ROWS], f'Rows of {view.name}')}</details>"
        f"<details><summary>The statement, released {_moment(released['released_at'])}</summary>"
        f"<pre>{escape(str(released['statement']))}</pre></details></section>"
    )


def _moment(value: object) -> str:
    return value.strftime("%Y-%m-%d %H:%M") if isinstance(value, datetime) else escape(str(value))


def table_html(columns: Sequence[str], rows: Sequence[Sequence[Any]], about: str) -> str:
    """Returns rows as a table that scrolls by itself. about: its name, for who cannot see it."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "".join("<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in rows)
    return f"{_scrolling(about)}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _scrolling(about: str) -> str:
    return f'<div class="wide" tabindex="0" role="group" aria-label="{escape(about)}">'


def _cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"<td>{'' if value is None else escape(str(value))}</td>"
    return f'<td class="number">{value:,.6g}</td>' if isinstance(value, float) else f'<td class="number">{value:,}</td>'


# Pictures, as Vega-Lite writes them.

Drawn = tuple[Mapping[str, Any], str]


def chart(keys: Sequence[str], answer: tuple[str, str | None], rows: Rows) -> Drawn | None:
    """Returns a picture of one answer, in Vega-Lite, and what it shows in words; None where no picture would help.

    Of a cube, the cells of all keys together. One key: bars, or a line where its values are numbers or days. Two:
    tiles.
    """
    name, stderr = answer
    cells = [row for row in rows if all(row[key] is not None for key in keys)]
    cells = [row for row in cells if row[name] is not None] if keys else []
    several = [key for key in keys if len({row[key] for row in cells}) > 1]
    if len(several) == 1:
        return _along(several[0], name, stderr, cells)
    if len(several) == 2 and len(cells) <= MOST_TILES:
        return _tiles(several, name, cells)
    return None


def _along(key: str, name: str, stderr: str | None, cells: Rows) -> Drawn | None:
    ordered = all(isinstance(row[key], (int, float, date)) and not isinstance(row[key], bool) for row in cells)
    if len(cells) > (MOST_POINTS if ordered else MOST_BARS):
        return None
    days = ordered and isinstance(cells[0][key], date)
    points = [_point(row, key, name, stderr, days) for row in cells]
    low, high = ({"field": end, "type": "quantitative"} for end in ("low", "high"))
    value = {"field": "value", "type": "quantitative", "title": name}
    place: dict[str, Any]
    if ordered:
        place = {"field": "key", "type": "temporal" if days else "quantitative", "title": key}
        band = {"x": place, "y": low | {"title": name}, "y2": high}
        marks: list[dict[str, Any]] = [
            {"mark": {"type": "area", "opacity": 0.25}, "encoding": band},
            {"mark": {"type": "line", "point": len(points) <= MOST_BARS}, "encoding": {"x": place, "y": value}},
        ]
    else:
        place = {"field": "key", "type": "nominal", "title": key, "sort": None}
        marks = [
            {"mark": {"type": "bar"}, "encoding": {"y": place, "x": value}},
            {
                "mark": {"type": "rule", "color": "currentColor", "size": 2},
                "encoding": {"y": place, "x": low, "x2": high},
            },
        ]
    said = f"{name} by {key}"
    if stderr is None:
        without = marks[-1:] if ordered else marks[:1]
        return spec_of(points, without, said), f"{said}; the view has no standard errors of it"
    return spec_of(points, marks, said), f"{said}, and {ERRORS_SHOWN} standard errors to each side"


def _point(row: Mapping[str, Any], key: str, name: str, stderr: str | None, days: bool) -> dict[str, Any]:
    value, error = float(row[name]), ERRORS_SHOWN * float((row[stderr] if stderr else None) or 0)
    place = row[key].isoformat() if days else row[key] if isinstance(row[key], (int, float)) else str(row[key])
    return {"key": place, "value": value, "low": value - error, "high": value + error}


def _tiles(keys: Sequence[str], name: str, cells: Rows) -> Drawn:
    first, second = keys
    points = [{"one": str(row[first]), "two": str(row[second]), "value": float(row[name])} for row in cells]
    across = {"field": "two", "type": "nominal", "title": second, "sort": None}
    down = {"field": "one", "type": "nominal", "title": first, "sort": None}
    shade = {"field": "value", "type": "quantitative", "title": name, "scale": {"scheme": "blues"}}
    said = f"{name} by {first} and {second}"
    return spec_of(points, [{"mark": "rect", "encoding": {"x": across, "y": down, "color": shade}}], said), said


def spec_of(points: Sequence[Mapping[str, Any]], layer: Sequence[Mapping[str, Any]], said: str) -> Mapping[str, Any]:
    """Returns a picture of these marks, in Vega-Lite. said: what it shows, for who cannot see it."""
    ink = {"labelColor": "currentColor", "titleColor": "currentColor", "labelLimit": 160}
    ink |= {"labelFontSize": 12, "titleFontSize": 12}
    lines: dict[str, Any] = {f"{part}Color": "currentColor" for part in ("grid", "domain", "tick")}
    lines |= {"gridOpacity": 0.15, "titlePadding": 16, "labelOverlap": True, "tickCount": 6}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "description": said,
        "width": 380,  # drawn as on a phone, and scaled up elsewhere: labels that shrink cannot be read
        "background": None,
        "data": {"values": list(points)},
        "layer": list(layer),
        "config": {"axis": ink | lines, "legend": ink, "view": {"stroke": None}, "font": "sans-serif"},
    }


def svg(spec: Mapping[str, Any]) -> str:
    """Draws a picture."""
    import vl_convert  # noqa: PLC0415 - 30 MB that only pictures need

    return str(vl_convert.vegalite_to_svg(json.dumps(spec)))


# The page around them.

_MADE = "dpduck report"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
html { background: Canvas; color: CanvasText; } a { color: LinkText; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 3rem; }
figure { margin: 1.5rem 0; } figure svg { width: 100%; max-width: 38rem; height: auto; }
figcaption { font-size: .9rem; }
table { border-collapse: collapse; font-size: .9rem; } th, td { padding: .2rem .6rem; text-align: left; }
th { border-bottom: 2px solid; } td { border-bottom: 1px solid #8886; } td.number { text-align: right; }
td.number { font-variant-numeric: tabular-nums; }
.wide { overflow: auto; max-height: 26rem; width: fit-content; max-width: 100%; }
pre { overflow-x: auto; padding: .6rem; border: 1px solid #8886; } summary { cursor: pointer; }
meter { width: 12rem; height: 1.2rem; }
thead th { position: sticky; top: 0; background: Canvas; }
@media print { .wide { max-height: none; }
  details > *, details { display: block; } section { break-inside: avoid-page; } }
"""


def _page(title: str, sections: str, facts: Facts, with_ledger: bool, names: Sequence[str]) -> str:
    listed = "".join(f'<li><a href="#{escape(name)}">{escape(name)}</a></li>' for name in names)
    body = (
        f"<h1>{escape(title)}</h1>"
        "<p>These numbers are differentially private: noise was added to each, so that nobody can tell from all of "
        "them together whether any one of those who are protected is in the data at all.</p>"
        f"<ul>{listed}</ul>{sections}{_promises(facts.policies)}{_budgets(facts.budgets)}"
        f"{_ledger(facts.ledger, with_ledger)}"
    )
    return framed(title, _MADE, body)


def framed(title: str, made: str, body: str) -> str:
    """Returns a page that fetches nothing and runs nothing."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{generator(made)}'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def _promises(policies: Rows) -> str:
    columns = ("table", "what is promised", "rows counted")
    rows = [(row["table_name"], row["guarantee"], row["max_rows"]) for row in policies]
    return (
        "<section><h2>What is protected</h2><p>Of each who is protected so many rows are counted at most; what they "
        f"did beyond that is in no number.</p>"
        f"{table_html(columns, rows, 'Policies')}</section>"
    )


def _budgets(budgets: Rows) -> str:
    bars = "".join(_budget(row) for row in budgets if row["budget"] is not None)
    shown = f"{_scrolling('Budgets')}<table><tbody>{bars}</tbody></table></div>"
    return f"<section><h2>Budgets</h2>{shown}</section>"


def _budget(row: Mapping[str, Any]) -> str:
    name = escape(str(row["table_name"]) + (f", {row['period']}" if row["period"] else ""))
    budget, spent = float(row["budget"]), float(row["spent"])
    bar = f'<meter min="0" max="{budget}" value="{spent}" aria-label="spent of {name}"></meter>'
    said = f"{escape(str(row['measure']))}: {spent:.4g} of {budget:.4g} spent"
    return f"<tr><td>{name}</td><td>{bar}</td><td>{said}</td></tr>"


def _ledger(ledger: Rows, with_ledger: bool) -> str:
    columns = ("id", "charged_at", "table_name", "mechanism", "epsilon", "rho", "delta")
    shown = (*columns, "principal", "statement") if with_ledger else columns
    rows = [[_moment(row[name]) if name == "charged_at" else row[name] for name in shown] for row in ledger]
    return (
        "<section><h2>The ledger</h2><p>Every charge, in order; the store keeps it as a chain that "
        f"<code>dpduck verify</code> checks.</p>{table_html(shown, rows, 'Charges')}</section>"
    )
