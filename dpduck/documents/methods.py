"""A paragraph on methods, in Markdown, to paste into a paper, with its references."""

from __future__ import annotations

from dpduck.documents.facts import DocumentFacts
from dpduck.documents.sentences import (
    TO_FILL_IN,
    budget_text,
    epsilon_text,
    guesses,
    loss_text,
    makers_of,
    mechanisms_of,
    names_text,
    period_word,
    rows_counted,
    spent_percent,
    unit_name,
    unit_text,
    variant_name,
)
from dpduck.values.odds import BLIND, times_of_100

REFERENCES = {
    "pure": "C. Dwork, F. McSherry, K. Nissim, A. Smith. Calibrating Noise to Sensitivity in Private Data Analysis. "
    "TCC 2006.",
    "zcdp": "M. Bun, T. Steinke. Concentrated Differential Privacy: Simplifications, Extensions, and Lower Bounds. "
    "TCC 2016.",
    "gaussian": "C. Canonne, G. Kamath, T. Steinke. The Discrete Gaussian for Differential Privacy. NeurIPS 2020.",
    "laplace": "A. Ghosh, T. Roughgarden, M. Sundararajan. Universally Utility-Maximizing Privacy Mechanisms. "
    "STOC 2009.",
}


def methods_text(facts: DocumentFacts) -> str:
    """Returns the paragraph on methods, with its references."""
    unit, word, budget = unit_name(facts), period_word(facts), facts.budget
    names = names_text([f"`{view.view.name}`" for view in facts.views])
    mechanisms = mechanisms_of(facts.views)
    implied = epsilon_text(facts.spent, budget)
    tables = f"table{'' if len(facts.views) == 1 else 's'} {names}"
    said = [
        f"The numbers in the {tables} were released with {variant_name(budget)} [1] by {makers_of(facts.views)}.",
        f"The privacy unit is {unit_text(facts)}: two databases are neighbours if they differ in one such unit, "
        "which is added or removed.",
        *rows_counted(facts),
        f"Mechanisms: {'; '.join(mechanisms)}{_citation(mechanisms)}." if mechanisms else "",
        f"All {facts.charges} releases about these units{f' of any one {word}' if word else ''} together cost at most "
        f"{loss_text(facts.spent, budget)}{f', which implies {implied}' if implied else ''}."
        if facts.charges != 1
        else f"The release cost {loss_text(facts.spent, budget)}{f', which implies {implied}' if implied else ''}.",
        f"This is {spent_percent(facts.spent, budget)} % of a budget of {budget_text(budget)}"
        f"{f' for each {word}' if word else ''}.",
        f"An attacker who guesses whether {unit} is in the data{f' of one {word}' if word else ''}, at even odds, is "
        f"right {times_of_100(guesses(facts.spent, budget))} with all answers, and {BLIND} of 100 times without them.",
        "Standard errors are of the noise alone."
        if not any(view.is_synthetic for view in facts.views)
        else "Synthetic rows were drawn from a model that was fitted to noisy counts.",
        f"{TO_FILL_IN}how the unit, the budget and the bounds were chosen, and whether this was done after a look at "
        "the rows.",
    ]
    listed = [f"[{number}] {text}" for number, text in enumerate(_references(facts), start=1)]
    return "\n".join([" ".join(sentence for sentence in said if sentence), "", *listed, ""])


def _references(facts: DocumentFacts) -> list[str]:
    mechanisms = mechanisms_of(facts.views)
    names = ["pure" if facts.budget.pure else "zcdp"]
    names += [name for name in ("laplace", "gaussian") if f"discrete {name.title()} noise" in mechanisms]
    return [REFERENCES[name] for name in names]


def _citation(mechanisms: list[str]) -> str:
    laws = sum(f"discrete {name} noise" in mechanisms for name in ("Laplace", "Gaussian"))
    return " " + ", ".join(f"[{2 + number}]" for number in range(laws)) if laws else ""
