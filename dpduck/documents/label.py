"""A privacy label: one page of HTML for everybody who is in the data, or who reads the numbers.

Experts ask a label for the unit, the parameters and their meaning, who is trusted, the mechanism, and the updates
[Dibia, Lu, Bhattacharjee, Near, Feng: "We Need a Standard": Toward an Expert-Informed Privacy Label for Differential
Privacy, 2025]. The page fetches nothing and runs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dpduck.documents.facts import DocumentFacts
from dpduck.documents.sentences import (
    TO_FILL_IN,
    budget_sentences,
    epsilon_text,
    guesses,
    left_out,
    loss_text,
    makers_of,
    mechanisms_of,
    names_text,
    period_word,
    unit_name,
    unit_text,
    update_sentences,
    variant_name,
    whole_of,
)
from dpduck.publish.page_file import frame_page
from dpduck.publish.table_html import scroll_box
from dpduck.values.odds import BLIND, times_of_100

MADE = "dpduck document label"
NOTHING, NO_POLICY = (
    "No row is left out.",
    "The policy is no longer in force. Its statement in the ledger has the bounds.",
)
_PRINTED = """@page { size: A4; margin: 12mm; }
@media print { html, body { font-size: 11px; } .first { grid-template-columns: 1fr 1fr; } h2 { margin-top: 1rem; } }
"""
"""CSS that prints the label on one page."""


def label_page(facts: DocumentFacts, title: str, contact: str = "") -> str:
    """Returns the label as a page of HTML. contact: where readers may ask."""
    panels = (
        _panel("What is protected", _unit_sentences(facts)),
        _panel("From whom", _from_whom(facts)),
        _panel("How strongly", _strength(facts)),
        _panel("What is left out", left_out(facts) or [NOTHING if facts.policies else NO_POLICY]),
        _panel("How often it may be updated", update_sentences(facts)),
        _panel("Who to ask", [contact or f"{TO_FILL_IN}a name and an address."]),
    )
    body = (
        f'<h1>{escape(title)}</h1><p class="lead">Privacy label: how the people in these data are protected.</p>'
        f'<div class="first">{"".join(panels)}</div><section><h2>Figures</h2>{_figures(facts)}</section>'
    )
    return frame_page(f"{title}: privacy label", MADE, body, _PRINTED)


def _panel(head: str, sentences: Sequence[str]) -> str:
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    return f"<section><h2>{escape(head)}</h2>{said}</section>"


def _unit_sentences(facts: DocumentFacts) -> list[str]:
    unit, word = unit_name(facts), period_word(facts)
    text = unit_text(facts)
    said = [f"{text[:1].upper()}{text[1:]}: whether they are in the data, and what they say."]
    if unit == "one row":
        said = [f"{text[:1].upper()}{text[1:]}: whether it is in the data, and what it says.",
                "Somebody with k rows is protected k times less."]  # fmt: skip
    if word and not facts.protects_rows:
        times = "k times" if facts.budget.pure else "k times, or up to k times k times"
        said.append(f"Of somebody with rows in k {word}s, {times} as much may be learned.")
    return [*said, "What is true of a whole group is not hidden: that is what the numbers are for."]


def _from_whom(facts: DocumentFacts) -> list[str]:
    said = ["From everybody who sees the numbers. They may know all other rows, and compute as they like."]
    if facts.asked_by_others:
        said.append("Also from those who asked questions of their own, even if they work together.")
    return [*said, "Not from the owner of the data, who has the rows and adds the noise."]


def _strength(facts: DocumentFacts) -> list[str]:
    unit, word, budget = unit_name(facts), period_word(facts), facts.budget
    said = [
        f"Suppose somebody guesses whether {unit} is in the data{f' of one {word}' if word else ''}.",
        f"Without any numbers, a guess is right {BLIND} of 100 times.",
        f"With all that was released so far, it is right {times_of_100(guesses(facts.spent, budget))}.",
        f"Once the whole budget is spent, it is right {times_of_100(guesses(whole_of(budget), budget))}.",
    ]
    return [*said, *([] if facts.person is None else budget_sentences(facts)[-1:])]


def _figures(facts: DocumentFacts) -> str:
    implied = epsilon_text(facts.spent, facts.budget)
    pairs = [
        ("kind", variant_name(facts.budget)),
        ("unit", unit_text(facts)),
        ("spent so far", loss_text(facts.spent, facts.budget) + (f", which implies {implied}" if implied else "")),
        ("budget", " ".join(budget_sentences(facts)[:2])),
        ("model", "central: the owner's process adds the noise before anything leaves it"),
        ("mechanisms", "; ".join(mechanisms_of(facts.views)) or "discrete Laplace or Gaussian noise"),
        ("tables", names_text([view.view.name for view in facts.views])),
        ("newest numbers", max(view.released_at for view in facts.views).date().isoformat()),
        ("made by", makers_of(facts.views)),
        ("certificates", f"{facts.entries} entries, last link {facts.link}"),
    ]
    rows = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{escape(told)}</td></tr>' for name, told in pairs)
    return scroll_box(f"<table><tbody>{rows}</tbody></table>", "Figures")
