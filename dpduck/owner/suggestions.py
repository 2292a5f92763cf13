"""Suggestions of a private draft. They depend on noisy answers that were paid for, and on nothing else.

Each suggestion says how much it leaves out, by the estimate and at most. A value that the noise hides becomes a TODO.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor, log10, sqrt

from dpduck.language.rows.facts import CatalogColumn, Policy
from dpduck.owner.domains import decimal_text
from dpduck.owner.draft import TODO, Suggested
from dpduck.owner.noisy_shares import ONE_SIDE, STANDS_OUT, STEP, Beyond, Tail, shares_up_to
from dpduck.owner.policy_text import Home, budget_text, domain_text, name_text, unit_text
from dpduck.owner.private_draft import (
    BLANKS,
    CALENDAR,
    CODES,
    DROPPED,
    FARTHEST,
    MOST_BINS,
    MOST_CODES,
    MOST_DROPPED,
    MOST_KEYS,
    MOST_OTHERS,
    MOST_YEARS,
    NICE,
    PrivateQuestion,
    Rows,
)
from dpduck.values.quoting import quote_text
from dpduck.values.sqltypes import sql_type

ONE_PLACE = 0.8
"""Standard error of the share between two edges, relative to that of the share above an edge."""


@dataclass(frozen=True)
class Answered:
    """A question with the rows of its answer, and the standard error of the rank of its quantiles, if it has any."""

    question: PrivateQuestion
    rows: Rows
    rank: float | None


def _numbers(value: object) -> list[float | None]:
    """Returns the numbers of a list, with None for NULL."""
    listed = value if isinstance(value, (list, tuple)) else []
    return [float(number) if isinstance(number, (int, float)) else None for number in listed]


# Rows of a unit.


@dataclass(frozen=True)
class UnitEstimates:
    """Estimated numbers of units and of rows, and a suggested MAX ROWS with the share of rows that it leaves out.

    - error: the standard error of `units`.
    - most_rows: the suggested MAX ROWS, None if the noise hides it.
    - rows: None if units with very many rows, which the noise hides, may have a third of all rows.
    """

    units: float
    error: float
    most_rows: int | None
    left: Beyond | None
    rows: float | None


def unit_facts(policy: Policy, answer: tuple[object, ...], rank: float | None) -> UnitEstimates:
    """Estimates the numbers of units and rows, and MAX ROWS. rank: standard error of a quantile's rank, in units."""
    *quantiles, number, error = (*answer, 0.0) if policy.unit.column is None else answer
    units, deviation = max(_number(number), 1.0), _number(error)
    if policy.unit.column is None:
        return UnitEstimates(units, deviation, 1, Beyond(0.0, 0.0), units)
    up_to = shares_up_to(_numbers(quantiles[0]), len(NICE))
    shares = (1.0, *(1 - share for share in up_to))
    tail = Tail((1.0, *(most + 1.0 for most in NICE)), shares, (rank or 0.0) / units, whole=True)
    last = tail.last
    end = tail.beyond(last) if 0 <= last < len(NICE) else None
    if end is None:
        return UnitEstimates(units, deviation, None, None, None)
    counted = 1 + tail.within(0, last)
    rows = units * (counted + end.likely) if end.most <= counted / 2 else None
    for place, most in enumerate(NICE):
        left = _share_beyond(tail, place + 1, counted + end.likely)
        if left is not None and left.likely <= DROPPED:
            sure = left.most <= MOST_DROPPED
            return UnitEstimates(units, deviation, most if sure else None, left, rows)
    return UnitEstimates(units, deviation, None, None, rows)


def _share_beyond(tail: Tail, place: int, mean: float) -> Beyond | None:
    """Returns the share of the rows that a bound on a unit's rows leaves out. mean: mean number of rows of a unit."""
    beyond = tail.beyond(place)
    if beyond is None:
        return None
    first = max(tail.at_least[place], 0.0) if place <= tail.last else 0.0
    noise = ONE_SIDE * tail.error
    likely, most = beyond.likely + first, beyond.most + first + noise
    return Beyond(likely / mean, most / (max(mean - beyond.likely, 1.0) + most))


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


# Values of a column.


@dataclass(frozen=True)
class ColumnShares:
    """Noisy shares of the units that have a value.

    - edges: the grid.
    - below: the share below each edge.
    - error: the standard error of such a share.
    - blank: the share of all units without a value.
    - units: the number of units with a value.
    - whole: whether the values are whole numbers.
    """

    edges: tuple[Fraction, ...]
    below: tuple[float, ...]
    error: float
    blank: float
    units: float
    whole: bool

    @property
    def ends(self) -> tuple[int, int] | None:
        """Returns two edges: the last with only noise below it, and the last with more than noise above it.

        None if no share is larger than the noise, or if such a share lies beyond the grid.
        """
        least = STANDS_OUT * self.error
        low = max((place for place, share in enumerate(self.below) if share <= least), default=-1)
        high = max((place for place, share in enumerate(self.below) if 1 - share > least), default=-1)
        return (low, high) if 0 <= low <= high < len(self.edges) - 1 else None

    def outside(self, low: int, high: int) -> Beyond:
        """Returns the share of the values below one edge, or at or above another."""
        likely = max(self.below[low], 0.0) + max(1 - self.below[high], 0.0)
        return Beyond(likely, min(likely + ONE_SIDE * sqrt(2) * self.error, 1.0))

    def share(self, place: int) -> float:
        """Returns the share of the values from one edge to the next."""
        return self.below[place + 1] - self.below[place]

    def tail(self, *, downwards: bool) -> Tail:
        """Returns the tail of the positive values, or with `downwards` that of the negative values."""
        if downwards:
            places = [place for place in range(len(self.edges) - 1, -1, -1) if self.edges[place] <= 0]
            shares = tuple(self.below[place] for place in places)
            return Tail(tuple(-float(self.edges[place]) for place in places), shares, self.error, self.whole)
        places = [place for place, edge in enumerate(self.edges) if edge >= 0]
        shares = tuple(1 - self.below[place] for place in places)
        return Tail(tuple(float(self.edges[place]) for place in places), shares, self.error, self.whole)

    def without(self, place: int) -> ColumnShares:
        """Returns the shares of the units without a value between this edge and the next."""
        share = self.share(place)
        rest = 1 - share
        below = tuple((old - (share if other > place else 0.0)) / rest for other, old in enumerate(self.below))
        units = self.units * rest
        error = (self.error + STEP / 2) / rest  # one quantile may lie anywhere between these values and the others
        return ColumnShares(self.edges, below, error, self.blank, units, self.whole)


def seen(
    question: PrivateQuestion, answer: tuple[object, ...], units: float, rank: float | None
) -> ColumnShares | None:
    """Returns the shares of a column, or None if too few units have a value."""
    shares = shares_up_to(_numbers(answer[0]), len(question.grid) + 2)
    blank, error = shares[0], (rank or 0.0) / units
    present = 1 - blank
    if question.column is None or present <= 2 * STANDS_OUT * error:
        return None
    below = tuple((share - blank) / present for share in shares[1:-1])
    whole = sql_type(question.column.type_name).is_whole
    return ColumnShares(question.grid, below, error / present, blank, units * present, whole)


def no_answer(shares: ColumnShares) -> int | None:
    """Returns the place of a number such as 999 that seems to mean no answer: many units have it, few a number near."""
    if not shares.whole:
        return None
    for place, edge in enumerate(shares.edges[:-1]):
        share = shares.share(place)
        if edge in BLANKS and share > STANDS_OUT * shares.error and share > 3 * shares.share(place - 1):
            return place
    return None


def codes_of(shares: ColumnShares) -> tuple[tuple[int, ...], Beyond] | None:
    """Returns the few whole numbers that most units have, and the share of the other values.

    They are all numbers from the first to the last, or only those with a share above the noise. None if they are many,
    or if too many units may have others.
    """
    ends = shares.ends
    if ends is None or not shares.whole:
        return None
    places = list(range(ends[0], ends[1] + 1))
    if shares.edges[ends[0]] < CODES.start or shares.edges[ends[1]] >= CODES.stop:
        return None
    if len(places) > MOST_CODES:
        least = max(STANDS_OUT * ONE_PLACE * shares.error, 1.5 * STEP)
        places = [place for place in places if shares.share(place) > least]
    others = max(1 - sum(map(shares.share, places)), 0.0)
    most = min(others + ONE_SIDE * sqrt(2) * shares.error, 1.0)
    if not 2 <= len(places) <= MOST_CODES or most > MOST_OTHERS:
        return None
    return tuple(int(shares.edges[place]) for place in places), Beyond(others, most)


@dataclass(frozen=True)
class Bounds:
    """Bounds of a clamp, with the share of the sum that they leave out. beyond: most units with values outside."""

    low: Fraction
    high: Fraction
    left: Beyond
    beyond: float


def clamp_of(shares: ColumnShares) -> Bounds | None:
    """Returns bounds that leave out about 1 % of the sum at most. None if the noise hides how much they leave out."""
    ends, up, down = shares.ends, shares.tail(downwards=False), shares.tail(downwards=True)
    body = up.body() + down.body()
    if ends is None or body <= 0:
        return None
    high, low = _bound(up, body), _bound(down, body)
    if high is None or low is None:
        return None
    lowest = -Fraction(low[0])
    first = shares.edges[ends[0]]
    unseen = max(shares.below[ends[0]], 0.0) + ONE_SIDE * shares.error
    narrow = 0.0
    if low[0] == 0 and first * 2 >= high[0]:  # far from 0, as weights and years are
        lowest = max(edge for edge in shares.edges if edge <= first and (_is_round(edge) or edge == first))
        narrow = unseen * float(lowest)
    likely, most = high[1].likely + low[1].likely, high[1].most + low[1].most + narrow
    least = max(body - ONE_SIDE * shares.error * high[0] / 2, body / 2)
    left = Beyond(likely / (body + likely), most / (least + most))
    if left.most > MOST_DROPPED:
        return None
    return Bounds(
        lowest, Fraction(str(high[0])), left, shares.units * min(high[2] + low[2] + unseen * (narrow > 0), 1.0)
    )


def _bound(tail: Tail, body: float) -> tuple[float, Beyond, float] | None:
    """Returns a round bound in one direction, the amount beyond it, and the largest share of units beyond it.

    The bound is 0 if no share in this direction is above the noise. body: amount inside, in both directions.
    """
    last = tail.last
    if last < 0:
        share = tail.at_most(0) if tail.edges[-1] > 0 else 0.0
        return 0.0, Beyond(0.0, share * body), share
    if last + 1 >= len(tail.edges):
        return None
    for place in range(last + 1, len(tail.edges)):
        bound = tail.edges[place]
        if not _is_round(Fraction(str(bound))):
            continue
        beyond = tail.beyond(place)
        if beyond is None or bound > FARTHEST * tail.edges[last + 1]:
            return None
        if beyond.likely <= DROPPED * body:
            return bound, beyond, tail.at_most(place)
    return None


def _is_round(number: Fraction) -> bool:
    """Tells whether a number has one digit, or is 12, 15 or 25 times a power of ten."""
    if number == 0:
        return True
    digits = abs(number) / Fraction(10) ** floor(log10(float(abs(number))) + 1e-9)
    return digits.denominator == 1 or digits * 10 in (12, 15, 25)


def range_of(low: Fraction, high: Fraction, whole: bool) -> tuple[Fraction, Fraction, Fraction]:
    """Returns bounds around `low` and `high`, and a round step that divides both, for at most MOST_BINS bins.

    >>> [str(part) for part in range_of(Fraction(17), Fraction(91), True)]
    ['15', '95', '5']
    >>> [str(part) for part in range_of(Fraction(-7), Fraction(30), True)]
    ['-8', '30', '2']
    """
    power = floor(log10(float(high - low) / MOST_BINS))
    offers = [digit * Fraction(10) ** (power + more) for more in (0, 1, 2) for digit in (1, 2, 5)]
    for step in offers:
        if whole and step.denominator > 1:
            continue
        first, last = floor(low / step) * step, ceil(high / step) * step
        if (last - first) / step <= MOST_BINS:
            return first, last, step
    return low, high, high - low


# The draft.


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
    """Returns a remark about units, and the PRIVACY UNIT clause."""
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
    """Returns a remark and items about one column."""
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
    """Returns a remark, and a DOMAIN of the published texts. OTHER stands for all other texts."""
    texts = [str(row[0]) for row in rows if row[0] is not None][:MOST_KEYS]
    if not texts:
        return "no text stands out of the noise at this price.", ()
    share = min(sum(_number(row[1]) for row in rows) / units, 1.0)
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
    """Returns remarks and items about a column of numbers: a DOMAIN and a CLAMP.

    The DOMAIN is IN for a few whole numbers, otherwise a RANGE.
    """
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
    """Returns a share as a text, with its estimate and its upper bound."""
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
