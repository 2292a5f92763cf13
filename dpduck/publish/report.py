"""dpduck report: one page with pictures of the private views, which fetches nothing and runs no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb

from dpduck.publish.page_file import frame_page, replace_page, require_place
from dpduck.publish.pictures import Rows
from dpduck.publish.published_views import PublishedView, metadata_sql, read_views
from dpduck.publish.table_html import moment_html, scroll_box, table_html
from dpduck.publish.view_section import caption_of, view_html
from dpduck.publish.words import ABOUT, HOW_TO_READ, Cost, costs, percent, spent_sentences
from dpduck.values.errors import Refusal

_MADE = "dpduck report"
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
    """Writes the page and returns the number of views on it. about: a sentence below the title.

    connection: has the views attached as `store`. with_ledger: whether the page names principals, with their
    statements.
    """
    require_pictures()
    require_place(target, _MADE)
    selection = read_views(connection, with_ledger=with_ledger, wanted=views)
    described = connection.sql(metadata_sql(with_ledger=False, wanted=views)).to_arrow_table().to_pylist()
    metadata = {row["name"]: row for row in described}
    sections = "".join(view_html(connection, view, metadata[view.name]) for view in selection)
    newest = max((row["released_at"] for row in described if row["released_at"] is not None), default=None)
    page = _page(Front(title, about, datetime.now(UTC), newest), sections, facts, with_ledger, selection)
    replace_page(target, page, 0o644)
    return len(selection)


def require_pictures() -> None:
    """Refuses if no package can draw pictures."""
    if find_spec("vl_convert") is None:
        raise Refusal("pictures need vl-convert", accepted="pip install '.[report]' in dpduck's folder")


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
    shown = scroll_box(f"<table><tbody>{bars}</tbody></table>", "Budgets")
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
    rows = [[moment_html(row[name]) if name == "charged_at" else row[name] for name in shown] for row in ledger]
    return (
        "<section><h2>The ledger</h2><p>Every charge, in order; the store keeps it as a chain that "
        f"<code>dpduck verify</code> checks.</p>{table_html(shown, rows, 'Charges')}</section>"
    )
