"""Sentences of the documents: the protected unit, the privacy loss in words, and the parts that are left out.

A figure is rounded up in its last digit, so that no loss looks smaller than it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from math import ceil

from dpduck.documents.facts import DocumentedView, DocumentFacts
from dpduck.documents.statements import has_own_bounds
from dpduck.language.rows.facts import Policy
from dpduck.values.accounting import epsilon_of
from dpduck.values.domain import Domain, RangeDomain
from dpduck.values.odds import guesses_at, odds_text
from dpduck.values.periods import word_of
from dpduck.values.privacy import Budget, Charge

TO_FILL_IN = "TODO: "
"""First word of a text that the store cannot know. Its owner writes it."""

USUAL_DELTA = Fraction(1, 10**6)
"""The delta at which a rho is also stated as an epsilon, if the budget has no delta."""

_DIGITS = 6
_QUERIES = {
    "Choice": "choices by the exponential mechanism",
    "Quantiles": "quantiles by the exponential mechanism",
    "SparseVector": "comparisons by the sparse vector technique",
    "Threshold": "a threshold for groups: a group is shown if its noisy count is above it",
    "Within": "rounds that are chosen while the release runs, within a limit on their price together",
}


def figure(amount: Fraction) -> str:
    """Returns an amount in six digits, rounded up.

    >>> figure(Fraction(1, 2)), figure(Fraction(2, 3)), figure(Fraction(1, 10**6)), figure(Fraction(300))
    ('0.5', '0.666667', '1e-06', '300')
    """
    up = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    return f"{float(up.divide(Decimal(amount.numerator), Decimal(amount.denominator))):.{_DIGITS}g}"


def unit_name(facts: DocumentFacts) -> str:
    """Returns the protected unit, as in "one patient". A column's ending _id is left out."""
    if facts.protects_rows:
        return "one row"
    whole = facts.key.removesuffix(f" PER {word_of(facts.key)}")
    named = [policy.unit.own_columns for policy in facts.policies] or [(whole.rpartition(".")[2],)]
    telling = [columns for columns in named if columns != ("id",)]
    if not telling:
        return f"one id of {whole.split('.')[-2]}"
    return f"one {names_text([*map(_noun, telling[0])])}"


def _noun(column: str) -> str:
    return (column[:-3] if column.lower().endswith("_id") and len(column) > len("_id") else column).replace("_", " ")


def period_word(facts: DocumentFacts) -> str:
    """Returns the word of the unit's periods, as in "month". Returns "" for a unit without periods."""
    return (word_of(facts.key) or "").lower()


def unit_text(facts: DocumentFacts) -> str:
    """Returns the protected unit as a phrase, as in "all rows of one patient in one month"."""
    unit, word = unit_name(facts), period_word(facts)
    if facts.protects_rows:
        return unit
    return f"all rows of {unit} in one {word}" if word else f"all rows of {unit}"


def rows_counted(facts: DocumentFacts) -> list[str]:
    """Says for each table how many rows of one unit are counted. Tables with the same bound share a sentence."""
    said, unit, word = [], unit_name(facts), period_word(facts)
    bounds: dict[int, dict[str, None]] = {}
    for policy in facts.policies:
        if policy.unit.own_columns:
            bounds.setdefault(policy.unit.max_rows, {})[policy.table.table] = None
    for most, tables in sorted(bounds.items()):
        rows = f"At most {most} row{'' if most == 1 else 's'} of {unit}{f' in one {word}' if word else ''}"
        said.append(f"{rows} {'is' if most == 1 else 'are'} counted in {names_text([*tables])}.")
    said += ["Further rows are left out."] if said else []
    named = [policy.table for policy in facts.policies]
    for table in dict.fromkeys(table for table in named if named.count(table) > 1):
        said.append(f"The policy of {table.table} was changed between these releases: each bound is of some of them.")
    own = [view.view.name for view in facts.views if has_own_bounds(view.statement)]
    return [*said, f"Statements of {names_text(own)} have bounds of their own, which hold there."] if own else said


def names_text(names: Sequence[str], most: int = 12) -> str:
    """Returns names for a sentence, at most `most` of them by name.

    >>> names_text(["a"]), names_text(["a", "b", "c"]), names_text(["a", "b", "c", "d"], 2)
    ('a', 'a, b and c', 'a, b and 2 others')
    """
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} others"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def left_out(facts: DocumentFacts) -> list[str]:
    """Says which rows and which parts of values are not counted, by the policies at the time of the releases."""
    said = rows_counted(facts)
    if any(policy.domains for policy in facts.policies):
        said.append("Rows with a value outside of the declared lists and ranges are in no group, except where noted.")
    clamps = [f"{clamp.column} ({clamp.low} to {clamp.high})" for policy in facts.policies for clamp in policy.clamps]
    if clamps:
        said.append(f"Values outside of their bounds count as the nearest bound: {names_text(clamps)}.")
    if any(view.price.delta for view in facts.views):
        said.append("Groups that were not declared are shown only if their noisy count is above a threshold.")
    hidden = [view.view.name for view in facts.views if view.hides_groups]
    if hidden:
        said.append(f"Some groups of {names_text(hidden)} are not shown, because of their noisy numbers.")
    if any(view.stream is not None for view in facts.views):
        said.append("Rows that arrive after their period was published are never counted.")
    return said


def columns_text(policy: Policy) -> str:
    """Returns the declared columns of a table, each with its domain in a few words."""
    return ", ".join(f"{column} ({domain_words(domain)})" for column, domain in policy.domains) or "no declared column"


def domain_words(domain: Domain) -> str:
    """Returns a domain in a few words, without its values.

    >>> domain_words(RangeDomain("INTEGER", ("0", "10"), "20", "10", "", 1, with_null=True))
    '2 bins from 0 to 20, or NULL'
    """
    null = ", or NULL" if domain.with_null else ""
    if isinstance(domain, RangeDomain):
        return f"{len(domain.edges)} bins from {domain.edges[0]} to {domain.upper}{null}"
    other = ", or any other" if domain.other is not None else ""
    return f"{len(domain.values)} values{null}{other}"


def loss_text(charge: Charge, budget: Budget) -> str:
    """Returns a privacy loss in the measure of its budget, as in "epsilon = 1" or "rho = 0.5"."""
    if budget.pure:
        return f"epsilon = {figure(charge.epsilon or Fraction(0))}"
    keys = f", and delta = {figure(charge.delta)} for selected groups" if charge.delta else ""
    if charge.delta >= 1:
        keys = ", without a bound for selected groups"
    return f"rho = {figure(charge.rho)}{keys}"


def epsilon_text(charge: Charge, budget: Budget) -> str:
    """Returns the epsilon that a loss in rho implies, with its delta. Returns "" for a pure loss, or for none."""
    if budget.pure or not charge.rho:
        return ""
    epsilon, delta = epsilon_amounts(charge, budget)
    return f"epsilon = {figure(epsilon)} with delta = {figure(delta)}"


def epsilon_amounts(charge: Charge, budget: Budget) -> tuple[Fraction, Fraction]:
    """Returns the epsilon that a loss in rho implies, and its delta with the delta of selected groups."""
    delta = budget.delta - budget.delta_keys or USUAL_DELTA
    return epsilon_of(charge.rho, delta), delta + charge.delta


def budget_text(budget: Budget) -> str:
    """Returns a budget as its owner declared it."""
    if budget.epsilon is None:
        return f"rho = {figure(budget.rho or Fraction(0))}"
    parts = (("epsilon", budget.epsilon), ("delta", budget.delta))
    declared = ", ".join(f"{name} = {figure(amount)}" for name, amount in parts if amount)
    return declared if budget.pure else f"{declared} (held as rho = {figure(budget.rho or Fraction(0))})"


def whole_of(budget: Budget) -> Charge:
    """Returns the loss of a budget that is spent to its end."""
    return Charge(budget.epsilon if budget.pure else None, budget.rho or Fraction(0), budget.delta_keys)


def spent_percent(charge: Charge, budget: Budget) -> int:
    """Returns the spent part of a budget in per cent, rounded up, in the measure with the largest part."""
    whole = whole_of(budget)
    pairs = ((charge.epsilon, whole.epsilon) if budget.pure else (charge.rho, whole.rho), (charge.delta, whole.delta))
    return max(ceil(100 * (spent or 0) / most) for spent, most in pairs if most)


def guesses(charge: Charge, budget: Budget) -> int:
    """Returns the most right guesses of 100 at a loss, in the measure of its budget."""
    epsilon = float(charge.epsilon or 0) if budget.pure else None
    return guesses_at(epsilon, float(charge.rho), float(charge.delta))


def odds_of(facts: DocumentFacts) -> str:
    """Returns the odds of a guess about one unit, from everything that was released so far."""
    unit, word = unit_name(facts), "" if facts.protects_rows else period_word(facts)
    return odds_text(guesses(facts.spent, facts.budget), f"{unit} in one {word}" if word else unit)


def budget_sentences(facts: DocumentFacts) -> list[str]:
    """Says what all releases together may cost, for periods and for a whole person, too."""
    word, unit = period_word(facts), unit_name(facts)
    each = f" for each {word}" if word else ""
    said = [
        f"All releases together may cost {budget_text(facts.budget)}{each}.",
        f"{spent_percent(facts.spent, facts.budget)} % of that is spent{f' for the most used {word}' if word else ''}.",
    ]
    if facts.person is not None:
        lifetime = facts.budget.lifetime
        person = f"Over all {word}s, releases so far cost {unit} at most {loss_text(facts.person, facts.budget)}"
        later = ". Later ones may add to that" if lifetime is None else f", and never more than {budget_text(lifetime)}"
        said.append(f"{person}{later}.")
    return said


def update_sentences(facts: DocumentFacts) -> list[str]:
    """Says how often the numbers may be updated: by periods, by streams, or out of the rest of the budget."""
    word, said = period_word(facts), []
    lifetime = facts.budget.lifetime
    if word:
        end = "for ever" if lifetime is None else f"until all {word}s together have cost {budget_text(lifetime)}"
        said.append(f"Each {word} has a budget of its own. New {word}s can be published {end}.")
    for view in facts.views:
        if view.stream is not None:
            done, most = view.stream
            said.append(f"{view.view.name} is paid for {most} periods, of which {done} are published.")
    rest = 100 - spent_percent(facts.spent, facts.budget)
    left = f"For the most used {word}, {rest} % of the budget is left." if word else f"{rest} % of the budget is left."
    said.append(f"{left} A release that does not fit into the rest is refused.")
    return said


def mechanisms_of(views: Sequence[DocumentedView]) -> list[str]:
    """Lists the mechanisms of the views, from the plans of their releases, each once."""
    found: dict[str, None] = {}
    for part in (part for view in views for part in view.plan or ()):
        laws = [part[name]["law"] for name in ("noise", "answers", "question", "measured") if name in part]
        found |= dict.fromkeys(f"{law} noise" for law in laws)
        if "query" in part:
            query = str(part["query"])
            found |= {_QUERIES.get(query, f"queries of the kind {query}"): None}
    if any(view.plan is None for view in views):
        found["a mechanism of an older version, which noted no plan"] = None
    return list(found)


def makers_of(views: Sequence[DocumentedView]) -> str:
    """Returns the versions of dpduck and DuckDB that made the views."""
    return "; ".join(dict.fromkeys(view.made_by for view in views if view.made_by)) or "an older version of dpduck"


def variant_name(budget: Budget) -> str:
    """Returns the kind of differential privacy in which charges add up."""
    return "pure differential privacy" if budget.pure else "zero-concentrated differential privacy (zCDP)"
