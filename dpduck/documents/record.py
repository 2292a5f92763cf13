"""A record for the registry of deployments: YAML by the schema of opendp/deployments-registry-data, in three tiers.

The store knows the variant, the unit, the parameters, the accounting and the mechanisms. It cannot know who publishes,
for what purpose and why. Such fields have a text that begins with TODO. If a field takes no free text, it is a comment.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from dpduck.documents.facts import DocumentedView, DocumentFacts
from dpduck.documents.sentences import (
    TO_FILL_IN,
    budget_sentences,
    budget_text,
    columns_text,
    epsilon_amounts,
    epsilon_text,
    left_out,
    loss_text,
    makers_of,
    mechanisms_of,
    names_text,
    odds_of,
    period_word,
    unit_text,
    update_sentences,
)
from dpduck.documents.yaml_text import OpenField, yaml_lines
from dpduck.publish.view_section import caption_of
from dpduck.values.privacy import Charge
from dpduck.values.quoting import fold

Fields = dict[str, object]

MADE = "# Written by dpduck document record. Fill in each TODO: the store cannot know it."
SECTORS = "Technology, Healthcare, Education, Government, Energy, Finance"

_SECOND = frozenset({
    *("variant_name", "privacy_unit", "privacy_parameters", "model_name", "release_type", "data_source_type"),
    "access_type",
})  # fmt: skip
"""Fields of tier 2. Those of basic and administrative are of tier 1, and all others of tier 3."""

_FIRST = ("basic", "administrative")


def record_text(facts: DocumentFacts, title: str | None = None, tier: int = 3, *, tried: Collection[str] = ()) -> str:
    """Returns the record as YAML. title: the name of the data product. tier: 1, 2 or 3, the amount of detail.

    tried: the views, in lower case, that a trial on the true rows decided over.
    """
    deployment = {
        "basic": _basic(facts, title),
        "dp_variant": _variant(facts),
        "privacy_loss": _loss(facts),
        "deployment_model": _model(facts),
        "accounting": _accounting(facts),
        "implementation": _implementation(facts, tried),
        "administrative": _administrative(facts),
    }
    parts = {name: fields if name in _FIRST else _of_tier(fields, tier) for name, fields in deployment.items()}
    record: Fields = {
        "url_slug": _slug(deployment["basic"]),
        "status": "Draft",
        "tier": tier,
        "deployment": {name: fields for name, fields in parts.items() if fields},
    }
    return "\n".join([*yaml_lines(record), MADE, ""])


def _of_tier(fields: Fields, tier: int) -> Fields:
    if tier == 3:
        return fields
    return {name: value for name, value in fields.items() if tier == 2 and name in _SECOND}


def _slug(basic: Fields) -> str:
    """Returns the slug that the registry makes of the name, the curators and the year."""
    curators, date = basic["data_curators"], str(basic["publication_date"])
    listed = "-".join(curators) if isinstance(curators, list) else ""
    parts = (re.sub(r"\W+", "_", text.lower()) for text in (str(basic["name"]), listed, date.split("-", maxsplit=1)[0]))
    return "_".join(parts).replace("_", "-")


def _basic(facts: DocumentFacts, title: str | None) -> Fields:
    captions = [caption_of(view.view.comment) for view in facts.views]
    named = " ".join((title or (captions[0].title if len(captions) == 1 else "")).split())
    kinds = ["Synthetic data" if view.is_synthetic else "Summary statistics" for view in facts.views]
    return {
        "name": named or f"{TO_FILL_IN}the name of the data product",
        "data_curators": [f"{TO_FILL_IN}who publishes it"],
        "intended_use": f"{TO_FILL_IN}what the numbers are for",
        "data_product_type": kinds[0] if len(set(kinds)) == 1 else "Summary statistics",
        "data_product_region": f"{TO_FILL_IN}the region that the data describe, or the laws that apply",
        "description": "\n".join([
            f"{TO_FILL_IN}what the data are about, and how they were collected.",
            *(f"- {_view_line(view)}" for view in facts.views),
        ]),
        "publication_date": min(view.released_at for view in facts.views).date().isoformat(),
        "data_product_sector": OpenField(f"{TO_FILL_IN}one of {SECTORS}"),
    }  # fmt: skip


def _view_line(view: DocumentedView) -> str:
    caption = caption_of(view.view.comment)
    told = ". ".join(text.rstrip(".") for text in (caption.title, caption.description) if text)
    kind = "made-up rows" if view.is_synthetic else "rows of noisy answers"
    return f"{view.view.name}: {view.rows:,} {kind}{f'. {told}' if told else ''}."


def _variant(facts: DocumentFacts) -> Fields:
    tables = [f"- {policy.table.table}: {columns_text(policy)}." for policy in facts.policies]
    exact = [view.view.name for view in facts.views if view.has_public_totals]
    name = "Pure DP" if facts.budget.pure else "Approximate DP" if facts.spent.delta else "Zero-concentrated DP"
    return {
        "variant_name": name,
        "data_domain": "\n".join(["Tables with any number of rows, and these declared columns:", *tables])
        if tables else "Tables with any number of rows.",
        "unprotected_quantities": "\n".join([
            *([f"Totals that were public already have no noise in {names_text(exact)}."] if exact else []),
            f"No {'other ' if exact else ''}statistic is in the tables without noise. These are public, and say "
            "nothing that noise hides:",
            "- the policies: the columns, their lists and ranges of values, and the bounds of rows and values,",
            "- the statements, their prices, their noise, and when they were released.",
            *(f"- the table {name}, which was declared public." for name in facts.public_tables),
        ]),
    }  # fmt: skip


def _loss(facts: DocumentFacts) -> Fields:
    spent, budget = facts.spent, facts.budget
    parameters: Mapping[str, object] = {"epsilon": float(spent.epsilon or 0)}
    if not budget.pure:
        parameters = {"rho": float(spent.rho)}
    if not budget.pure and spent.delta:
        epsilon, delta = epsilon_amounts(spent, budget)
        parameters = {"epsilon": float(epsilon), "delta": float(delta)}
    word = period_word(facts)
    prices = dict[int, tuple[Charge, list[str]]]()  # views of one ledger entry were paid for once
    for view in facts.views:
        prices.setdefault(view.entry, (view.price, []))[1].append(view.view.name)
    return {
        "privacy_unit": unit_text(facts),
        "privacy_unit_details": "\n".join([
            f"- Two sets of tables are adjacent if one is the other without {unit_text(facts)}.",
            "- The distance is the number of such units that are added or removed. Adjacent sets are at most 1 apart.",
            *(f"- {sentence}" for sentence in left_out(facts)),
        ]),
        "privacy_parameters": parameters,
        "privacy_parameters_details": "\n".join([
            f"- The parameters bound everything that was released so far{f' from any one {word}' if word else ''}:"
            f" {facts.charges} charge{'' if facts.charges == 1 else 's'}, {loss_text(spent, budget)}.",
            *([f"- This implies {epsilon_text(spent, budget)}."] if epsilon_text(spent, budget) else []),
            *(f"- {sentence}" for sentence in budget_sentences(facts)),
            f"- {odds_of(facts)}",
            *(f"- {names_text(names)} cost {loss_text(price, budget)}{'' if len(names) == 1 else ' together'}."
              for price, names in prices.values()),
        ]),
    }  # fmt: skip


def _model(facts: DocumentFacts) -> Fields:
    many = facts.charges > 1 or bool(period_word(facts)) or any(view.stream for view in facts.views)
    moving = bool(period_word(facts)) or any(view.stream for view in facts.views)
    asked = "Principals of a server asked statements of their own. Each has a share of the budget at most."
    return {
        "model_name": "Central",
        "model_name_details": "The owner's process sees the rows, and adds the noise. Only noisy answers leave it.",
        "actors": "\n".join([
            f"- The owner of the data, who sees the rows and is trusted: {TO_FILL_IN}who this is.",
            "- Everybody who receives the numbers. They are not trusted. They may know everything about all others, "
            "and may compute as they like.",
            *(["- Principals of a server, who ask for noisy answers. They are not trusted, and may collude."]
              if facts.asked_by_others else []),
        ]),
        "release_type": "Many releases" if many else "One release",
        "release_type_details": "\n".join(f"- {sentence}" for sentence in (
            *budget_sentences(facts), *update_sentences(facts), f"{TO_FILL_IN}whether further releases are planned.",
        )),
        "data_source_type": "Dynamic" if moving else OpenField(f"{TO_FILL_IN}Static, or Dynamic if rows are added"),
        "data_source_type_details": f"{TO_FILL_IN}where the rows come from, and whether they change.",
        "access_type": "Interactive" if facts.asked_by_others else "Non-interactive",
        "access_type_details": asked if facts.asked_by_others else "The tables are published as they are.",
    }  # fmt: skip


def _accounting(facts: DocumentFacts) -> Fields:
    measure = "epsilons" if facts.budget.pure else "rhos of zero-concentrated differential privacy"
    word = period_word(facts)
    made = "Made-up rows are drawn from a model of noisy counts. " if any(v.is_synthetic for v in facts.views) else ""
    return {
        "post_processing": f"{made}Answers are estimates from noisy numbers, in which counts and sums of parts agree "
        "with their totals. Options of a statement may make them whole or not negative. None of it reads a row again.",
        "composition": "\n".join([
            f"- Sequential, and adaptive: the {measure} of all releases about one unit add up in a ledger.",
            *([f"- Parallel over {word}s: a release is charged to the {word}s that it reads."] if word else []),
            f"- A release beyond the budget of {budget_text(facts.budget)} is refused before any row is read.",
            "- Tables that share the unit share the budget. A repeated statement is answered from its first answer.",
        ]),
    }  # fmt: skip


def _looked(facts: DocumentFacts, tried: Collection[str]) -> list[str]:
    """Says which views were tried on the true rows, and leaves the others to the owner.

    A view that cost nothing shares the ledger entry of another view.
    """
    names = {view.view.name: view.entry for view in facts.views if fold(view.view.name) in tried}
    whole = {view.entry for view in facts.views} == {*names.values()}
    untold = f"- {TO_FILL_IN}whether bounds, ranges and prices were chosen after a look at the rows (dp_check, dpduck "
    rest = [] if whole else [f"{untold}trial). No budget pays for that."]
    if not names:
        return rest
    what = "The release was" if whole else f"{names_text([*names])} {'was' if len(names) == 1 else 'were'}"
    paid = "it was" if whole or len(names) == 1 else "they were"
    said = f"- {what} tried on the true rows before {paid} paid (dpduck trial), and had to meet criteria. No "
    return [f"{said}budget pays for this look.", *rest]


def _implementation(facts: DocumentFacts, tried: Collection[str]) -> Fields:
    return {
        "preprocessing_and_hyperparameter_tuning": "\n".join([
            *(f"- {sentence}" for sentence in left_out(facts)),
            *_looked(facts, tried),
        ]),
        "mechanisms": "\n".join([
            *(f"- {mechanism}." for mechanism in mechanisms_of(facts.views)),
            f"- Software: {makers_of(facts.views)}.",
            "- Floating point: noise is of whole numbers, and is added to whole numbers. It is drawn exactly, with "
            "entropy of the operating system. Prices are exact rationals.",
            "- Timing: the time of a release depends on the rows. A server answers on a grid of half a second, one, "
            "two and so on. Whoever only receives the tables sees no time.",
            "- Platform: no row decides whether a statement fails, or its shape, type, price or text. Conditions on "
            "rows are kept from the scans of the database.",
            "- Security: each charge is on disk before a private row is counted. Keyed hashes chain the ledger.",
            f"- {TO_FILL_IN}who can read the database file, and how it is protected.",
        ]),
        "justification": f"{TO_FILL_IN}how the unit, the budget and the bounds were chosen, and by whom.",
    }  # fmt: skip


def _administrative(facts: DocumentFacts) -> Fields:
    return {
        "sources": f"{TO_FILL_IN}links to the tables, their certificates and their documents.",
        "notes": f"The figures are from a ledger of {facts.entries} entries. The last link of its certificates is "
        f"{facts.link}.",
        "registry_authors": [f"{TO_FILL_IN}your name"],
    }
