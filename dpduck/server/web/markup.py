"""HTML of the page. All text in an element is escaped, unless it is an element itself."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from hashlib import sha256
from html import escape
from typing import Any

from dpduck.publish.pictures import ERRORS_SHOWN, Drawn, Shape, charts
from dpduck.publish.table_html import NullWord, table_html
from dpduck.publish.view_section import MOST_ROWS, in_key_order, with_null_words
from dpduck.publish.words import Cost, guesses, number_text, percent, promise_sentences
from dpduck.server.clients.desk import MOST_LETTERS, PageAnswer, Priced
from dpduck.server.web.drawing import OF_A_PAGE, Artist
from dpduck.values.odds import BLIND, times_of_100

MOST_PICTURES = 6
"""The largest number of pictures on one page. Further answers are only in the table."""

MOST_LABEL = 60
_WIDTH, _LETTERS, _BAR = 340, 13, 26
"""Sizes of a picture: its width, its letters and its bars. Letters stay legible at a phone's width."""


class Html(str):
    """HTML that needs no escaping, since this file or the page of reports wrote it."""


def element(tag: str, *inside: object, **attributes: object) -> Html:
    """Renders an element. Its content is escaped unless it is Html. Attributes are always escaped.

    >>> element("p", "<b>", element("br"), class_="x", aria_label='"')
    '<p class="x" aria-label="&quot;">&lt;b&gt;<br></p>'
    """
    named = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    given = "".join(
        f" {name}" if value is True else f' {name}="{escape(str(value))}"'
        for name, value in named.items()
        if value is not None and value is not False
    )
    if tag in ("input", "meta", "link", "br"):
        return Html(f"<{tag}{given}>")
    return Html(f"<{tag}{given}>{join_parts(inside)}</{tag}>")


def join_parts(parts: Sequence[object]) -> Html:
    """Joins parts. None is left out, and a list stands for its parts."""
    return Html("".join(_text(part) for part in parts))


def _text(part: object) -> str:
    if part is None:
        return ""
    if isinstance(part, (list, tuple)):
        return join_parts(part)
    return part if isinstance(part, Html) else escape(str(part))


def page(title: str, nonce: str, header: object, *body: object) -> bytes:
    """Renders a page. nonce: the word that lets browsers load the page's own styles and script, and nothing else."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{title} - dpduck"),
        element("link", rel="icon", href="/icon.svg", type="image/svg+xml"),
        element("link", rel="stylesheet", href="/page.css", nonce=nonce),
        element("script", src="/page.js", nonce=nonce, defer=True),
    )
    skip = element("a", "To the content", href="#content", class_="skip")
    whole = element(
        "html", head, element("body", skip, header, element("main", *body, id="content", tabindex="-1")), lang="en"
    )
    return f"<!doctype html>\n{whole}\n".encode("utf-8", "replace")


def header(principal: str, here: str, form_token: str) -> Html:
    """Renders the header of a page for a principal. here: the path of the page."""
    links = [
        element("a", said, href=path, aria_current="page" if path == here else None)
        for path, said in (("/", "Views"), ("/ask", "Ask"))
    ]
    leave = element(
        "form", hidden("form_token", form_token), element("button", "Log out"), method="post", action="/logout"
    )
    return element(
        "header",
        element("span", "dpduck", class_="brand"),
        element("nav", links, aria_label="Pages"),
        element("div", element("span", principal), leave, class_="who"),
    )


def hidden(name: str, value: str) -> Html:
    """Renders a hidden field of a form."""
    return element("input", type="hidden", name=name, value=value)


def refusal(said: str) -> Html:
    """Renders a refusal, with its part after "accepted:" on a line of its own."""
    what, _, accepted = said.partition("; accepted: ")
    remedy = element("p", element("strong", "Accepted: "), accepted) if accepted else None
    return element("div", element("p", what[:1].upper() + what[1:], "."), remedy, class_="refusal", role="alert")


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], about: str, names: Sequence[str] = ()) -> Html:
    """Renders rows as a table that scrolls by itself. about: its name for screen readers. names: as in table_html."""
    return Html(table_html(columns, [[_short(value) for value in row] for row in rows], about, names))


def _short(value: Any) -> Any:
    plain = value is None or isinstance(value, (bool, int, float, Decimal, NullWord))
    return value if plain else str(value)[:MOST_LETTERS]


def pictures(answer: PageAnswer, shape: Shape, artist: Artist, name: str) -> list[Html]:
    """Draws the pictures of an answer. name: the principal that reads it."""
    until = time.monotonic() + OF_A_PAGE
    drawn = [picture for pair in shape.answers[:MOST_PICTURES] for picture in pictures_of(shape, pair, answer)]
    figures = [_picture(picture, artist, name, until) for picture in drawn[:MOST_PICTURES]]
    return [picture for picture in figures if picture is not None]


def in_order(answer: PageAnswer, shape: Shape) -> PageAnswer:
    """Sorts the rows of an answer by their keys, unless rows are missing."""
    if answer.more:
        return answer
    return replace(answer, rows=tuple(map(tuple, in_key_order(shape, answer.columns, answer.rows))))


def render_answer(answer: PageAnswer, shape: Shape, about: str, artist: Artist, name: str) -> list[Html]:
    """Renders an answer as pictures and as a table. name: the principal that reads it."""
    ordered = in_order(answer, shape)
    figures = pictures(ordered, shape, artist, name)
    said = []
    if answer.more or len(answer.rows) > MOST_ROWS:
        total = f"more than {len(answer.rows):,}" if answer.more else f"{len(answer.rows):,}"
        said.append(element("p", f"The first {min(MOST_ROWS, len(answer.rows)):,} of {total} rows."))
    if answer.left_out:
        said.append(element("p", f"{answer.left_out:,} more columns are not shown."))
    if not answer.rows:
        said.append(element("p", "No rows."))
    worded = with_null_words(shape, answer.columns, ordered.rows[:MOST_ROWS])
    rows = table(answer.columns, worded, f"Rows of {about}", shape.names)
    return [*figures, *said, rows]


def pictures_of(shape: Shape, pair: tuple[str, str | None], answer: PageAnswer) -> list[Drawn]:
    """Returns the pictures of an answer. There are none if rows are missing, or if the shape does not fit them."""
    try:
        return [] if answer.more else charts(shape, pair, answer.dicts())
    except (KeyError, TypeError, ValueError, OverflowError):  # odd comments on a view's columns must not break a page
        return []


def _picture(drawn: Drawn, artist: Artist, name: str, until: float) -> Html | None:
    spec, said = drawn
    said = said.partition(";")[0]
    svg = artist.picture(name, cut_labels(_for_phones(spec)), until)
    if svg is None:
        return None
    return element(
        "figure", element("div", Html(svg), role="img", aria_label=said, class_="picture"), element("figcaption", said)
    )


def cut_labels(spec: Any, data: bool = False) -> Any:
    """Cuts every label and title of a picture's specification to MOST_LABEL letters.

    data: whether `spec` is a part of the rows. Labels of rows stay different even if they begin alike.
    """
    if isinstance(spec, Mapping):
        return {name: cut_labels(value, data or name in ("values", "domain")) for name, value in spec.items()}
    if isinstance(spec, (list, tuple)):
        return [cut_labels(value, data) for value in spec]
    if not isinstance(spec, str) or len(spec) <= MOST_LABEL:
        return spec
    last = sha256(spec.encode("utf-8", "surrogatepass")).hexdigest()[:16] if data else ""
    return f"{spec[: MOST_LABEL - 18]}..{last}"


def _for_phones(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    axis = {**spec["config"]["axis"], "labelFontSize": _LETTERS, "titleFontSize": _LETTERS}
    bars = any(layer["mark"] == {"type": "bar"} or layer["mark"] == "rect" for layer in spec["layer"])
    height = {"height": {"step": _BAR}} if bars and "height" not in spec else {}
    return {**spec, "width": _WIDTH, **height, "config": {**spec["config"], "axis": axis}}


def render_price(quote: Priced, several: bool) -> list[Html]:
    """Renders the price and errors of a statement. several: whether prices of other statements are beside it."""
    parts = []
    if quote.plan is not None:
        named = element("code", " ".join(quote.statement.split())) if several else None
        left = "." if several else _remains(quote.plan)
        parts.append(
            element("p", named, " " if several else None, element("strong", price(quote.plan)), left, class_="price")
        )
        if quote.plan["times_left"] is not None:
            parts.append(element("p", _times_left(int(quote.plan["times_left"]))))
        if quote.other_prices:
            rows = [line.split(": ", 1) for line in quote.other_prices.split("; ")]
            parts.append(table(("at", "part of your budget, and how often it fits"), rows, "The same at other prices"))
        worst = quote.plan["worst_stderr"]
        if worst is not None:
            two = ERRORS_SHOWN * float(worst)
            parts.append(
                element("p", f"About 19 of 20 answers will be within {number_text(two)} of the truth, or nearer.")
            )
    if quote.errors is not None and quote.errors.rows:
        heads = ("aggregate", "cells", "rows of a cell, as expected", "typical standard error", "worst")
        parts.append(table(heads, quote.errors.rows, "Errors of each aggregate"))
    if quote.note:
        parts.append(element("p", quote.note[:1].upper() + quote.note[1:], ".", class_="note"))
    return parts


def _times_left(times: int) -> str:
    """Says how often a price can still be paid.

    >>> _times_left(0), _times_left(1), _times_left(1200)
    ('Your budget has no room for it.', 'You can ask this once more.', 'You can ask this 1,200 times more.')
    """
    if not times:
        return "Your budget has no room for it."
    return f"You can ask this {'once' if times == 1 else f'{times:,} times'} more."


def total(row: Mapping[str, Any]) -> Html:
    """Renders the price of all statements together. row: dp_plan's row with the total of one budget."""
    return element("p", "In all ", element("strong", price(row)), _remains(row), class_="price")


def price(row: Mapping[str, Any]) -> str:
    """Returns a price in a few words. Its numbers are rounded up.

    >>> price({"epsilon": 0.12345641, "delta": 1e-6}), price({"epsilon": 0.0, "note": "answered already: free"})
    ('epsilon = 0.123457, delta = 1e-06', 'free: it is paid for already')
    """
    if str(row.get("note") or "").startswith("answered already"):
        return "free: it is paid for already"
    if str(row.get("note") or "").startswith("as a statement above"):
        return "free: it is paid for with the one above"
    if row.get("price"):
        return str(row["price"])
    parts = [f"{name} = {at_least(row[name])}" for name in ("epsilon", "delta") if row.get(name)]
    if not row.get("epsilon") and row.get("rho"):
        parts.insert(0, f"rho = {at_least(row['rho'])}")
    return ", ".join(parts) or "free"


def odds_of_price(row: Mapping[str, Any]) -> str:
    """Returns the odds of a guess about one unit from the answers that a price pays for. Returns "" if it is free.

    >>> odds_of_price({"epsilon": 0.1})[-38:], odds_of_price({"epsilon": None, "rho": 0.0})
    ('right at most 53 of 100 times, not 50.', '')
    """
    if not row.get("epsilon") and not row.get("rho"):
        return ""
    right = times_of_100(guesses(row))
    return f"From this alone, whoever guesses whether one privacy unit is in the data is right {right}, not {BLIND}."


_DIGITS = 6


def at_least(number: float) -> str:
    """Returns a number in six digits, rounded up."""
    return _round_digits(number, ROUND_CEILING)


def at_most(number: float) -> str:
    """Returns a number in six digits, rounded down.

    >>> at_most(4.87655199), at_least(4.87655111)
    ('4.87655', '4.87656')
    """
    return _round_digits(number, ROUND_FLOOR)


def _round_digits(number: float, how: str, digits: int = _DIGITS) -> str:
    return f"{float(Context(digits, how).plus(Decimal(repr(float(number))))):.{_DIGITS}g}"


def _remains(row: Mapping[str, Any]) -> str:
    if row.get("fits") is False:
        return f" is more than is left to you of the budget of {row['table_name']}."
    if row.get("remaining_percent") is None:
        return "."
    return f", and {_round_digits(row['remaining_percent'], ROUND_FLOOR, 2)} % of your budget will remain."


def budgets(rows: Sequence[Mapping[str, Any]]) -> Html:
    """Renders the spent part of each budget in words, as a bar and in numbers."""
    listed = []
    for row in rows:
        if row["budget"] is None or row["spent"] is None:
            continue
        budget, spent = float(row["budget"]), float(row["spent"])
        name = str(row["table_name"]) + (f", {row['period']}" if row.get("period") else "")
        share = f", your share of {float(row['share']):.0%}" if row.get("share") is not None else ""
        said = f"{row['measure']}: {at_least(spent)} of {at_most(budget)} spent{share}"
        bar = element("meter", min="0", max=budget, value=spent, aria_label=f"spent of {name}")
        whose = "your share" if row.get("share") is not None else "the budget"
        words = element("span", f"{percent(spent / budget if budget else 0.0)} of {whose} is spent")
        until = (
            f"; at the rate of the last 30 days it lasts until {row['lasts_until']}" if row.get("lasts_until") else ""
        )
        warning = element("strong", "Nearly spent.", class_="warning") if row.get("warning") else None
        parts = (element("strong", name), warning, words, bar, element("span", said + until, class_="help"))
        listed.append(element("li", [part for fragment in parts for part in (fragment, " ")]))
    return element("ul", listed, class_="budgets") if listed else element("p", "No table has a budget for you.")


def promises(costs: Sequence[Cost]) -> list[Html]:
    """Renders what each budget promises to one person."""
    return [element("p", " ".join(promise_sentences(cost))) for cost in costs]


def ledger(rows: Sequence[Mapping[str, Any]]) -> Html:
    """Renders charges as a list, which fits the screen of a phone."""
    listed = [
        element(
            "li",
            element("p", element("strong", price(row)), f" for {row['table_name']}, ", element("time", row["moment"])),
            element("pre", str(row["statement"])[:MOST_LETTERS], tabindex="0"),
        )
        for row in rows
    ]
    return element("ul", listed, class_="ledger")


def welcome(title: str) -> list[Html]:
    """Renders a welcome for readers who have not logged in. title: the owner's title, or ""."""
    return [
        element("h1", title or "Private statistics"),
        element("p", "Here you read statistics about people, and ask for new ones. Noise is added to every number, to "
                     "hide what it says about any one person. Each new answer uses up a part of a fixed "
                     "budget, and you see its price before you pay."),
    ]  # fmt: skip


def login_form() -> Html:
    """Renders the form that takes a token."""
    return element(
        "form", element("h2", "Log in"), element("label", "Your token", for_="token"),
        element("input", id="token", name="token", type="password", required=True, autocomplete="current-password",
                maxlength="200", spellcheck="false", autofocus=True, aria_describedby="help"),
        element("p", "The owner of the data gave it to you: dpduck principal add prints it once.", id="help",
                class_="help"),
        element("button", "Log in"), method="post", action="/login", class_="login",
    )  # fmt: skip


def more(summary: str, inside: Html) -> Html:
    """Renders content that is shown after a click on its summary."""
    return element("details", element("summary", summary), inside)
