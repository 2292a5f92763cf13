"""dpduck report: one page for whoever receives the numbers, with a picture of every private view.

The page is one file that fetches nothing: pictures are inside of it, drawn by Vega-Lite, and it runs no script.
It holds what publishing gives away (publish/publish.py), what policies promise, and what was spent. Principals' names
and their statements are on it only where the owner says so.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb

from dpduck.frontend.text.names import quote_identifier
from dpduck.publish.pictures import Rows, chart, shape_of, svg
from dpduck.publish.postgres import PublishedView, metadata_sql, published_views
from dpduck.values.errors import Refusal

PAGES = (".html", ".htm")
MOST_ROWS = 300
"""Of a view that the page lists; a longer one is in the published files."""


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
    """Refuses a file that is there already and is no page of this kind, and a name that is not a page's."""
    if target.suffix.lower() not in PAGES:
        raise Refusal(f"{target.name} would be a page of HTML", accepted=str(target.with_suffix(".html")))
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


def _view_html(connection: duckdb.DuckDBPyConnection, view: PublishedView, released: Mapping[str, Any]) -> str:
    shape = shape_of([(column.name, column.type_name, column.comment) for column in view.columns])
    columns = [column.name for column in view.columns]
    order = ", ".join(quote_identifier(key) for key in shape.names) or "ALL"
    rows = connection.execute(f"FROM store.main.{quote_identifier(view.name)} ORDER BY {order}").fetchall()
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    pictures = "".join(
        f"<figure>{svg(spec)}<figcaption>{escape(said)}</figcaption></figure>"
        for answer in shape.answers
        if (drawn := chart(shape, answer, named)) is not None
        for spec, said in [drawn]
    )
    about = escape(view.comment[:1].upper() + view.comment[1:])
    more = f"<p>The first {MOST_ROWS:,} of {len(rows):,} rows.</p>" if len(rows) > MOST_ROWS else ""
    return (
        f'<section><h2 id="{escape(view.name)}">{escape(view.name)}</h2><p>{about}.</p>{pictures}'
        f"<details open><summary>The numbers</summary>{more}"
        f"{table_html(columns, rows[:MOST_ROWS], f'Rows of {view.name}', shape.names)}</details>"
        f"<details><summary>The statement, released {_moment(released['released_at'])}</summary>"
        f"<pre>{escape(str(released['statement']))}</pre></details></section>"
    )


def _moment(value: object) -> str:
    return value.strftime("%Y-%m-%d %H:%M") if isinstance(value, datetime) else escape(str(value))


def table_html(columns: Sequence[str], rows: Sequence[Sequence[Any]], about: str, names: Collection[str] = ()) -> str:
    """Returns rows as a table that scrolls by itself. about: its name, for who cannot see it.

    names: of columns with numbers that are names, such as codes and years.
    """
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    named = [name in names for name in columns]
    cells = ("".join(map(_cell, row, named)) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"{_scrolling(about)}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _scrolling(about: str) -> str:
    return f'<div class="wide" tabindex="0" role="group" aria-label="{escape(about)}">'


def _cell(value: Any, is_name: bool) -> str:
    if is_name and isinstance(value, (int, float)) and not isinstance(value, bool):
        return f'<td class="number">{value}</td>'
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"<td>{'' if value is None else escape(str(value))}</td>"
    return f'<td class="number">{value:,.6g}</td>' if isinstance(value, float) else f'<td class="number">{value:,}</td>'


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
