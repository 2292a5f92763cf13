"""Suggestions of a private draft, from noisy answers alone. Each has an estimate and a bound of what it leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from dpduck.language.rows.facts import CatalogColumn, Policy
from dpduck.owner.column_values import ColumnShares, clamp_of, codes_of, no_answer, range_of, seen
from dpduck.owner.domains import decimal_text
from dpduck.owner.draft_open_items import Suggested
from dpduck.owner.draft_remarks import TODO
from dpduck.owner.noisy_shares import STANDS_OUT, Beyond
from dpduck.owner.policy_text import Home, budget_text, domain_text, name_text, unit_text
from dpduck.owner.private_draft import CALENDAR, MOST_KEYS, MOST_YEARS, PrivateQuestion, Rows
from dpduck.owner.unit_rows import UnitEstimates, number_of, unit_facts
from dpduck.values.quoting import quote_text
from dpduck.values.sqltypes import sql_type


@dataclass(frozen=True)
class Answered:
    """A question with the rows of its answer. rank: the standard error of the rank of its quantiles, if it has any."""

    question: PrivateQuestion
    rows: Rows
    rank: float | None


def suggest(
    policy: Policy, answers: Sequence[Answered], left: Sequence[tuple[CatalogColumn, str]], price: str, home: Home
) -> Suggested:
    """Drafts a policy from noisy answers. The first answer is about units. left: result of draft.open_columns."""
    facts = unit_facts(policy, answers[0].rows[0], answers[0].rank)
    about = {answer.question.column: answer for answer in answers}
    columns = {
        column.name: _about(about[column], facts.units, null)
        if column in about
        else _describe_without_answer(policy, column)
        for column, null in left
    }
    why, unit = _of_units(policy, facts, home)
    return Suggested(
        f"A draft from noisy facts, which cost {price} in all and are in the ledger. All that it says may be "
        "known. Ends of ranges lie on a public grid. Figures are of one row of each unit; `at most` holds in 19 of 20 "
        "drafts. Values outside of a range or clamp count as the nearest bound, texts that are not listed as OTHER.",
        why,
        unit,
        policy.unit.column or "",
        budget_text(policy),
        columns,
        None if facts.rows is None else _round(facts.rows) or None,
    )


def _of_units(policy: Policy, facts: UnitEstimates, home: Home) -> tuple[str, str]:
    if policy.unit.column is None:
        return "as it was declared; no person may have two rows.", unit_text(policy, home)
    intro = f"as it was declared. There are about {_round(facts.units)} units, give or take {_round(2 * facts.error)}."
    if facts.most_rows is None or facts.left is None:
        text = unit_text(replace(policy, unit=replace(policy.unit, max_rows=1)), home)
        return (
            f"{intro} {TODO}: noise hides how many rows the units with most rows have. dp_check tells the owner what "
            f"several MAX ROWS would drop.{_of_norms(policy)}",
            f"{text.removesuffix('1')}{TODO}",
        )
    why = (
        f"{intro} MAX ROWS {facts.most_rows} leaves out {_left_text(facts.left)} of the rows: totals are too small by "
        f"as much.{_of_norms(policy)}"
    )
    return why, unit_text(replace(policy, unit=replace(policy.unit, max_rows=facts.most_rows)), home)


def _of_norms(policy: Policy) -> str:
    """Returns the advice that MAX ROWS may be large, if the budget allows max_norm_contributed."""
    if policy.budget.pure:
        return ""
    return (
        " It may be generous, as 100 or 1000 are: where a statement has max_norm_contributed, the norm bounds its "
        "noise, not MAX ROWS. dp_check with the statement shows what norms leave out."
    )


def _policy_items(policy: Policy, column: CatalogColumn) -> list[str]:
    """Returns the items of the policy in force for a column. They are public, so no statement asks about them."""
    domain, clamp, name = policy.domain(column.name), policy.clamp(column.name), name_text(column.name)
    lines = [] if domain is None else [f"DOMAIN {name} {domain_text(domain)},"]
    return lines + ([] if clamp is None else [f"CLAMP {name} BETWEEN {clamp.low} AND {clamp.high} STEP {clamp.step},"])


def _describe_without_answer(policy: Policy, column: CatalogColumn) -> tuple[str, Sequence[str]]:
    items = _policy_items(policy, column)
    if items:
        return "as it was declared.", items
    keys = "texts are found by a threshold, which needs a budget with delta_keys"
    return (f"{keys}." if column.type_name == "VARCHAR" else "not asked about."), ()


def _about(answer: Answered, units: float, null: str) -> tuple[str, Sequence[str]]:
    column = answer.question.column
    if column is None:
        return "", ()
    if answer.question.kind == "text":
        return _of_texts(column, answer.rows, units, null)
    shares = seen(answer.question, answer.rows[0], units, answer.rank)
    ends = None if shares is None else shares.ends
    if shares is None or ends is None:
        return "its bounds do not stand out of the noise at this price, or lie beyond the grid.", ()
    if sql_type(column.type_name).is_moment:
        return _of_dates(column, shares, ends, null)
    remarks, place = [], no_answer(shares)
    if place is not None:
        number = shares.edges[place]
        remarks.append(f"about {_percent(shares.share(place))} are {number}, which may stand for no answer.")
        shares = shares.without(place)
        ends = shares.ends
        if ends is None:
            return _sentences([*remarks, "the others do not stand out of the noise at this price."]), ()
    if shares.blank > STANDS_OUT * shares.error:
        remarks.append(f"about {_percent(shares.blank)} have no value.")
    more, items = of_numbers(column, shares, ends, null)
    return _sentences([*remarks, *more]), items


def _of_texts(column: CatalogColumn, rows: Rows, units: float, null: str) -> tuple[str, Sequence[str]]:
    texts = [str(row[0]) for row in rows if row[0] is not None][:MOST_KEYS]
    if not texts:
        return "no text stands out of the noise at this price.", ()
    share = min(sum(number_of(row[1]) for row in rows) / units, 1.0)
    listed = ", ".join(map(quote_text, sorted(texts)))
    other = "" if "OTHER" not in {text.upper() for text in texts} else " 'any other'"
    return (
        f"these texts hold about {100 * share:.0f} % of the units; rarer ones are OTHER.",
        [f"DOMAIN {name_text(column.name)} IN ({listed}){null} WITH OTHER{other},"],
    )


def _of_dates(
    column: CatalogColumn, shares: ColumnShares, ends: tuple[int, int], null: str
) -> tuple[str, Sequence[str]]:
    low, high = int(shares.edges[ends[0]]), int(shares.edges[ends[1] + 1])
    step = "MONTH" if high - low <= 2 else "YEAR"
    outside = _left_text(shares.outside(ends[0], ends[1] + 1))
    domain = f"DOMAIN {name_text(column.name)} RANGE {low}-01-01 TO {high}-01-01 STEP {step}{null} WITH EDGES,"
    return f"{outside} of the units lie outside of the range.", [domain]


def of_numbers(
    column: CatalogColumn, shares: ColumnShares, ends: tuple[int, int], null: str
) -> tuple[list[str], list[str]]:
    """Returns remarks, a DOMAIN and a CLAMP for a column of numbers. A few whole numbers get IN, all others a RANGE."""
    name, few = name_text(column.name), codes_of(shares)
    low, high = shares.edges[ends[0]], shares.edges[ends[1] + 1]
    if few is not None:
        codes, others = few
        remark = f"{_left_text(others)} of the units have another value, and are in no group."
        return ["few whole numbers.", remark, "CLAMP is for sums and averages: take the -- off."], [
            f"DOMAIN {name} IN ({', '.join(map(str, codes))}){null},",
            f"-- CLAMP {name} BETWEEN {codes[0]} AND {codes[-1]},",
        ]
    outside = shares.outside(ends[0], ends[1] + 1)
    if ends[0] == ends[1]:
        remark = f"{_left_text(outside)} of the units have no value from {decimal_text(low)} to {decimal_text(high)}."
        return [remark, "What they have does not stand out of the noise at this price."], []
    remark = f"{_left_text(outside)} of the units lie outside of the range."
    if shares.whole and low >= CALENDAR.start and high <= CALENDAR.stop and high - low <= MOST_YEARS:
        clamp = f"-- CLAMP {name} BETWEEN {low} AND {high},"
        return ["years, it seems.", remark], [f"DOMAIN {name} RANGE {low} TO {high} STEP 1{null} WITH EDGES,", clamp]
    first, last, step = map(decimal_text, range_of(low, high, shares.whole))
    domain, bounds = f"DOMAIN {name} RANGE {first} TO {last} STEP {step}{null} WITH EDGES,", clamp_of(shares)
    if bounds is None:
        why = "the noise hides how much of the sum the largest values hold."
        return [remark, f"{TODO}: a clamp.", why], [domain, f"-- CLAMP {name} BETWEEN {TODO} AND {TODO},"]
    clamp = f"CLAMP {name} BETWEEN {decimal_text(bounds.low)} AND {decimal_text(bounds.high)},"
    left = (
        f"the clamp leaves out {_left_text(bounds.left)} of the sum, if values thin out beyond it as they do below: up "
        f"to {_round(bounds.beyond)} units may lie there."
    )
    return [remark, left], [domain, clamp]


def _left_text(left: Beyond) -> str:
    return f"about {_percent(left.likely)}, at most {_percent(left.most)}"


def _sentences(parts: Sequence[str]) -> str:
    """Joins sentences to one text, for use after a column's name. All but the first begin with a capital.

    >>> _sentences(["few whole numbers.", "about half are 2."])
    'few whole numbers. About half are 2.'
    """
    return " ".join([*parts[:1], *(part[0].upper() + part[1:] for part in parts[1:])])


def _percent(share: float) -> str:
    """Returns a share as a percentage, with two digits at most.

    >>> _percent(0.00012), _percent(0.0123), _percent(0.256), _percent(1.0)
    ('0.1 %', '1.2 %', '26 %', '100 %')
    """
    percent = 100 * share
    return f"{ceil(10 * percent - 1e-9) / 10:.1f} %" if percent < 1 else f"{float(f'{percent:.2g}'):g} %"


def _round(number: float) -> int:
    """Rounds a number to two significant digits.

    >>> _round(12345.0), _round(7.0)
    (12000, 7)
    """
    return int(float(f"{max(number, 0):.2g}"))
