"""dpduck report: one page for the recipients of the numbers, with pictures of the private views.

The page is one file that fetches nothing and runs no script. It includes its pictures, drawn by Vega-Lite. It shows
the published facts (publish/publish.py), the guarantees of policies, and the spent budgets. Principals' names and
their statements are on it only if the owner says so.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb

from dpduck.publish.pictures import TOTAL, Rows, Shape, charts, shape_of, svg
from dpduck.publish.published_views import PublishedView, metadata_sql, read_views
from dpduck.publish.words import ABOUT, HOW_TO_READ, Cost, costs, number_text, percent, spent_sentences
from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_identifier

PAGES = (".html", ".htm")
MOST_ROWS = 300
"""Most rows of a view on the page. The published files have all rows."""

MOST_COSTS = 4
"""Most budgets that the first screen describes in words. The list at the end has all budgets."""


@dataclass(frozen=True)
class ReportFacts:
    """Facts of the page besides the views: rows of dp_policies, dp_budget and dp_ledger, as an owner gets them."""

    policies: Rows
    budgets: Rows
    ledger: Rows


def write_report(
    connection: duckdb.DuckDBPyConnection,
    facts: ReportFacts,
    target: Path,
    *,
    title: str,
    about: str = "",
    with_ledger: bool = False,
    views: Sequence[str] = (),
) -> int:
    """Writes the page and returns the number of views on it.

    connection: has the views attached as `store` (publish/published_views.py). with_ledger: whether the page names
    principals, with their statements. about: a sentence below the title.
    """
    require_pictures()
    require_place(target, _MADE)
    selection = read_views(connection, with_ledger=with_ledger, wanted=views)
    described = connection.sql(metadata_sql(with_ledger=False, wanted=views)).to_arrow_table().to_pylist()
    metadata = {row["name"]: row for row in described}
    sections = "".join(_view_html(connection, view, metadata[view.name]) for view in selection)
    newest = max((row["released_at"] for row in described if row["released_at"] is not None), default=None)
    page = _page(Front(title, about, datetime.now(UTC), newest), sections, facts, with_ledger, selection)
    replace_page(target, page, 0o644)
    return len(selection)


def require_pictures() -> None:
    """Refuses if no package can draw pictures."""
    if find_spec("vl_convert") is None:
        raise Refusal("pictures need vl-convert", accepted="pip install '.[report]' in dpduck's folder")


def require_place(target: Path, maker: str) -> None:
    """Refuses an existing file that `maker` did not make, and a name without .html or .htm."""
    if target.suffix.lower() not in PAGES:
        raise Refusal(f"{target.name} would be a page of HTML", accepted=str(target.with_suffix(".html")))
    if target.exists() and not (target.is_file() and generator(maker).encode() in target.read_bytes()[:2000]):
        raise Refusal(
            f"{target.name} is in the way", accepted=f"a new file, or one that {maker.rsplit(maxsplit=1)[-1]} made"
        )


def generator(maker: str) -> str:
    """Returns the line of HTML that marks a page as made by `maker`."""
    return f'<meta name="generator" content="{maker}">'


def replace_page(target: Path, page: str, mode: int) -> None:
    """Writes a page to a file that readers see as a whole or not at all. mode: file mode, for who may read it."""
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
        f"<details><summary>What it is: {escape(view.name)}, released {_moment(released['released_at'])}</summary>"
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
        lines += [] if value is None else [f"{shape.title_of(name)}: {_as_text(value)}{about}"]
    return lines


def in_key_order(shape: Shape, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Returns rows in the order of their keys. In each key, the group without a value is after others, totals last."""
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


class NullWord(str):
    """A word for a NULL in a key. No value has this class."""


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


def _moment(value: object) -> str:
    return value.strftime("%Y-%m-%d %H:%M") if isinstance(value, datetime) else escape(str(value))


def table_html(columns: Sequence[str], rows: Sequence[Sequence[Any]], about: str, names: Collection[str] = ()) -> str:
    """Returns rows as an HTML table that scrolls by itself. about: its name, for people who cannot see it.

    names: the columns with numbers that are names, such as codes and years.
    """
    named = [name in names for name in columns]
    numeric = [any(is_number_value(row[place]) for row in rows) for place in range(len(columns))]
    head = "".join(
        f'<th scope="col"{_RIGHT if right else ""}>{escape(name)}</th>'
        for name, right in zip(columns, numeric, strict=True)
    )
    cells = ("".join(map(cell_html, row, named)) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"{_scrolling(about)}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _scrolling(about: str) -> str:
    return f'<div class="wide" tabindex="0" role="group" aria-label="{escape(about)}">'


_RIGHT = ' class="number"'


def is_number_value(value: Any) -> bool:
    """Tells whether a value is a number, which is aligned to the right."""
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def cell_html(value: Any, is_name: bool) -> str:
    """Returns a cell of a table. is_name: whether a number is a name, such as a code or a year."""
    if isinstance(value, NullWord):
        return f'<td class="null">{value}</td>'
    if not is_number_value(value):
        return f"<td>{'' if value is None else escape(str(value))}</td>"
    return f'<td class="number">{value if is_name else _as_text(value)}</td>'


def _as_text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else number_text(float(value))


# The page around the views.

_MADE = "dpduck report"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
html { background: Canvas; color: CanvasText; } a { color: LinkText; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 3rem; }
figure { margin: 1.5rem 0; } figure svg { width: 100%; max-width: 38rem; height: auto; }
figcaption { font-size: .9rem; }
h3 { margin: .8rem 0 .2rem; font-size: 1rem; }
h1 { font-size: 2.2rem; margin: .5rem 0; } .lead { font-size: 1.15rem; max-width: 46rem; margin: .4rem 0; }
.date { opacity: .8; margin: .2rem 0 1rem; } .one { font-size: 1.6rem; font-weight: 600; margin: .4rem 0; }
.first { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
.first section { border: 1px solid #8886; border-radius: .5rem; padding: 0 1.2rem .6rem; }
.first p { margin: .3rem 0; }
.first h2 { margin: 1rem 0 .4rem; font-size: 1.2rem; } .first ul { padding-left: 1.1rem; margin: .3rem 0; }
nav ul { columns: 16rem; }
table { border-collapse: collapse; font-size: .9rem; } th, td { padding: .2rem .6rem; text-align: left; }
th { border-bottom: 2px solid; } td { border-bottom: 1px solid #8886; } td.number { text-align: right; }
td.number { font-variant-numeric: tabular-nums; } th.number { text-align: right; }
td.null { font-style: italic; opacity: .8; }
.wide { overflow: auto; max-height: 26rem; width: fit-content; max-width: 100%; }
pre { overflow-x: auto; padding: .6rem; border: 1px solid #8886; } summary { cursor: pointer; }
meter { width: 12rem; height: 1.2rem; }
thead th { position: sticky; top: 0; background: Canvas; }
@media print { .wide { max-height: none; }
  details > *, details { display: block; } section { break-inside: avoid-page; } }
"""


@dataclass(frozen=True)
class Front:
    """The first lines of the page. newest: the moment of the newest numbers, in UTC."""

    title: str
    about: str
    written: datetime
    newest: datetime | None


def _page(front: Front, sections: str, facts: ReportFacts, with_ledger: bool, views: Sequence[PublishedView]) -> str:
    named = ((view.name, caption_of(view.comment).title or view.name) for view in views)
    listed = "".join(f'<li><a href="#{escape(name)}">{escape(title)}</a></li>' for name, title in named)
    about = f'<p class="lead">{escape(front.about)}</p>' if front.about else ""
    newest = "" if front.newest is None else f", with numbers up to {_day(front.newest)}"
    body = (
        f'<h1>{escape(front.title)}</h1>{about}<p class="lead">{escape(ABOUT)}</p>'
        f'<p class="date">Written on {_day(front.written)}{newest}.</p>'
        f'<div class="first">{_how_to_read()}{_cost(costs(facts.budgets, facts.policies))}</div>'
        f'<nav aria-label="Tables"><h2>What is here</h2><ul>{listed}</ul></nav>'
        f"{sections}{_promises(facts.policies)}{_budgets(facts.budgets)}{_ledger(facts.ledger, with_ledger)}"
    )
    return frame_page(front.title, _MADE, body)


def _day(moment: datetime) -> str:
    return f"{moment.day} {moment:%B %Y}"


def _how_to_read() -> str:
    listed = "".join(f"<li>{escape(sentence)}</li>" for sentence in HOW_TO_READ)
    return f"<section><h2>How to read this</h2><ul>{listed}</ul></section>"


def _cost(entries: Sequence[Cost]) -> str:
    paragraphs = "".join(
        f"<h3>{escape(f'{cost.table}, {cost.period}' if cost.period else cost.table)}</h3>"
        f"<p>{escape(' '.join(spent_sentences(cost)))}</p>"
        for cost in entries[:MOST_COSTS]
    )
    return f"<section><h2>What it cost in privacy</h2>{paragraphs}</section>"


def frame_page(title: str, maker: str, body: str) -> str:
    """Returns an HTML page that fetches nothing and runs no script. maker: see `generator`."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{generator(maker)}'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def _promises(policies: Rows) -> str:
    columns = ("table", "what is promised", "rows counted")
    rows = [(row["table_name"], row["guarantee"], row["max_rows"]) for row in policies]
    return (
        "<section><h2>What is protected</h2><p>At most this many rows of each person or other protected unit are "
        "counted. Further rows are left out.</p>"
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
    whole = "the delta for keys" if row["measure"] == "delta" else escape(str(row["declared"]))
    said = f"{percent(spent / budget if budget else 0.0)} of {whole} is spent"
    return f"<tr><td>{name}</td><td>{bar}</td><td>{said}</td></tr>"


def _ledger(ledger: Rows, with_ledger: bool) -> str:
    columns = ("id", "charged_at", "table_name", "mechanism", "epsilon", "rho", "delta")
    shown = (*columns, "principal", "statement") if with_ledger else columns
    rows = [[_moment(row[name]) if name == "charged_at" else row[name] for name in shown] for row in ledger]
    return (
        "<section><h2>The ledger</h2><p>Every charge, in order; the store keeps it as a chain that "
        f"<code>dpduck verify</code> checks.</p>{table_html(shown, rows, 'Charges')}</section>"
    )
