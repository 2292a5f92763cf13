"""What a private draft asks, as ordinary statements of dp(), and what it suggests from their noisy answers.

Nothing here sees a row, computes a price or draws noise: every fact is a statement that goes through the door as an
analyst's would, quantiles and keys by a threshold. What is suggested follows from answers that were paid for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor, log10

from dpduck.frontend.rows.facts import Column, Policy
from dpduck.frontend.text.names import quote_identifier, quote_text
from dpduck.owner.domains import FLOATS, INTEGERS, TEMPORAL, decimal_text
from dpduck.owner.draft import Suggested
from dpduck.owner.policy_text import Home, budget_text, domain_text, name_text, table_text, unit_text
from dpduck.values.accounting import rho_of, rho_of_pure
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Budget

TAILS = (0.01, 0.05, 0.1, 0.25)
"""Parts of the units that a bound may leave out at one end: the smallest one that stands out of the noise is taken."""

STANDS_OUT = 2
"""Standard errors of a rank."""

DIGITS = (1, 2, 5)
DECADES = 9
SMALLEST = -1
"""Public grid of numbers: 0, and these digits times powers of ten, from 0.1 (of whole numbers from 1) on."""

YEARS = range(1970, 2041)
MOST_OF_UNIT = 255
"""Rows of one unit are counted up to it."""

DROPPED = Fraction(1, 100)
"""Part of the rows that MAX ROWS may leave out."""

MOST_BINS = 25
MOST_COLUMNS = 80
MOST_KEYS = 300
PART_OF_KEYS = 10
"""Of the budget's delta for keys, so many times less is used in one draft."""


@dataclass(frozen=True)
class PrivateQuestion:
    """One statement. column: what it is about; None for the rows of a unit. grid: its public numbers, increasing."""

    kind: str
    column: Column | None
    sql: str
    grid: tuple[Fraction, ...] = ()


def questions(policy: Policy, columns: Sequence[Column], epsilon: Fraction, home: Home) -> list[PrivateQuestion]:
    """Returns the statements of a draft, which together cost epsilon: a part a column, two for the rows of a unit."""
    asked = [one for one in columns if _kind(one, policy) and not _kept(policy, one)][:MOST_COLUMNS]
    part = _parts(policy.budget, epsilon, len(asked) + 2)
    texts = sum(_kind(one, policy) == "text" for one in asked)
    found = [PrivateQuestion("unit", None, _of_unit(policy, part(2), home))]
    for column in asked:
        kind = _kind(column, policy)
        if kind == "text":
            delta = policy.budget.delta_keys / PART_OF_KEYS / texts
            found.append(PrivateQuestion(kind, column, _of_keys(policy, column, part(1), delta, home)))
        else:
            grid = grid_of(column.type_name)
            found.append(PrivateQuestion(kind, column, _of_values(policy, column, grid, part(1), home), grid))
    return found


def _kind(column: Column, policy: Policy) -> str:
    """Returns what can be asked of a column: 'number', 'date', 'text', or "" for nothing."""
    if column.type_name == "VARCHAR":
        return "text" if policy.budget.delta_keys and not policy.budget.pure else ""
    if column.type_name in TEMPORAL:
        return "date"
    numbers = column.type_name in INTEGERS | FLOATS or column.type_name.startswith("DECIMAL")
    return "number" if numbers else ""


def _parts(budget: Budget, epsilon: Fraction, number: int) -> Callable[[int], str]:
    """Returns options for so many parts of the price: of epsilon, or of the rho that it is with the budget's delta."""
    if budget.pure:
        return lambda parts: f"epsilon = {_down(epsilon * parts / number)}"
    delta = budget.delta - budget.delta_keys
    rho = rho_of(epsilon, delta) if budget.epsilon is not None else rho_of_pure(epsilon)
    return lambda parts: f"rho = {_down(rho * parts / number)}"


def _down(amount: Fraction) -> str:
    """Returns four significant digits, never more than the amount."""
    scale = Fraction(10) ** (3 - floor(log10(float(amount))))
    return decimal_text(Fraction(floor(amount * scale)) / scale)


def grid_of(type_name: str) -> tuple[Fraction, ...]:
    """Returns the public numbers that a column of this type is compared with.

    >>> [str(one) for one in grid_of("UTINYINT")][:8]
    ['0', '1', '2', '5', '10', '20', '50', '100']
    """
    if type_name in TEMPORAL:
        return tuple(map(Fraction, YEARS))
    whole = type_name in INTEGERS
    first = 0 if whole else SMALLEST
    positive = [digit * Fraction(10) ** power for power in range(first, first + DECADES) for digit in DIGITS]
    largest = {"TINYINT": 200, "UTINYINT": 300, "SMALLINT": 50_000, "USMALLINT": 70_000}.get(type_name)
    positive = [one for one in positive if largest is None or one <= largest]
    negative = [] if type_name.startswith("U") else [-one for one in reversed(positive)]
    return (*negative, Fraction(0), *positive)


def _of_unit(policy: Policy, price: str, home: Home) -> str:
    """Returns rows of a unit: quantiles over units, of which each is one row; and how many units there are."""
    clause, table = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price})", table_text(policy.table, home)
    if policy.unit.column is None:
        return f"{clause} count(*) AS n FROM {table}"
    unit = name_text(policy.unit.column or (policy.unit.reference.column if policy.unit.reference else ""))
    fractions = [f"{1 - tail:g}" for tail in TAILS] + ["0.5", "0.25", "0.1"]
    bounds = f"contribution_bounds_per_row => (0, {MOST_OF_UNIT})"
    listed = ", ".join(f"quantile_cont(k, {one}, {bounds}) AS q{place}" for place, one in enumerate(fractions))
    return f"{clause} {listed}, count(*) AS n FROM (SELECT {unit}, count(*) AS k FROM {table} GROUP BY {unit}) AS units"


def _of_values(policy: Policy, column: Column, grid: Sequence[Fraction], price: str, home: Home) -> str:
    """Asks for quantiles of where one row of each unit lies on the grid."""
    name, kind = quote_identifier(column.name), column.type_name
    ends = [f"{kind} '{edge}-01-01'" if kind in TEMPORAL else decimal_text(edge) for edge in grid]
    cases = " ".join(f"WHEN {name} < {end} THEN {place}" for place, end in enumerate(ends))
    where = f"CASE WHEN {name} IS NULL THEN NULL {cases} ELSE {len(grid)} END"
    fractions = [f"{tail:g}" for tail in TAILS] + [f"{1 - tail:g}" for tail in TAILS]
    listed = ", ".join(f"quantile_cont(place, {one}) AS q{number}" for number, one in enumerate(fractions))
    unit = policy.unit.column or (policy.unit.reference.column if policy.unit.reference else None)
    whose, once = (f"{name_text(unit)}, ", ", max_rows_contributed = 1") if unit else ("", "")
    return (
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}{once}) {listed} "
        f"FROM (SELECT {whose}{where} AS place FROM {table_text(policy.table, home)}) AS placed"
    )


def _of_keys(policy: Policy, column: Column, price: str, delta: Fraction, home: Home) -> str:
    """Returns texts that enough units have."""
    name = quote_identifier(column.name)
    options = f"{price}, delta = {_down(delta)}, max_groups_contributed = 1"
    return (
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({options}, group_selection_strategy = GAUSSIAN_THRESHOLD) "
        f"{name}, count(*) AS n FROM {table_text(policy.table, home)} GROUP BY {name} ORDER BY n DESC"
    )


# What follows from the answers.


Rows = list[tuple[object, ...]]
AskPrivately = Callable[[Sequence[str]], Sequence[tuple[Rows, float | None]]]
"""Answers statements, all of them or none; each with the standard error of its first quantile's rank."""


def numbers(row: tuple[object, ...]) -> list[float | None]:
    """Returns the numbers of a row, None for NULL."""
    return [float(value) if isinstance(value, (int, float)) else None for value in row]


@dataclass(frozen=True)
class UnitFacts:
    """MAX ROWS with the part of the rows that it leaves out, by noisy quantiles; units and rows there may be."""

    most_rows: int
    dropped: float
    units: float
    rows: float


def unit_facts(policy: Policy, answer: tuple[object, ...], rank: float | None) -> UnitFacts:
    """Tells how many rows units have. rank: the standard error of a quantile's rank, in units."""
    found = numbers(answer)
    units = max(found[-1] or 0.0, 1.0)
    if policy.unit.column is None:
        return UnitFacts(1, 0.0, units, units)
    tails = [tail for tail in TAILS if tail * units >= STANDS_OUT * (rank or 0.0)] or [TAILS[-1]]
    top = TAILS.index(tails[0])
    parts = [0.0, 0.1, 0.25, 0.5, *(1 - tail for tail in reversed(TAILS[top:])), 1.0]
    high, (half, quarter, tenth) = found[top : len(TAILS)], found[len(TAILS) : len(TAILS) + 3]
    values = [tenth, tenth, quarter, half, *reversed(high), high[0]]
    stairs = [max(1.0, value or 1.0) for value in values]
    for place in range(1, len(stairs)):
        stairs[place] = max(stairs[place], stairs[place - 1])
    steps = [(parts[place + 1] - parts[place], stairs[place], stairs[place + 1]) for place in range(len(parts) - 1)]
    mean = sum(wide * (low + high) / 2 for wide, low, high in steps)

    def dropped(most: int) -> float:
        return sum(wide * (max(low - most, 0) + max(high - most, 0)) / 2 for wide, low, high in steps) / mean

    most_rows = next((one for one in NICE if dropped(one) <= DROPPED), NICE[-1])
    return UnitFacts(most_rows, dropped(most_rows), units, units * mean)


NICE = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 200, 250)
"""What MAX ROWS may be suggested as."""


@dataclass(frozen=True)
class Bounds:
    """Where values lie, and about how many do not at each end."""

    low: Fraction
    high: Fraction
    tail: float


def bounds_of(question: PrivateQuestion, answer: tuple[object, ...], units: float, rank: float | None) -> Bounds | None:
    """Returns the bounds of a column; None where its values do not stand out of the noise, or leave the grid."""
    found, grid = numbers(answer), question.grid
    for place, tail in enumerate(TAILS):
        low, high = found[place], found[len(TAILS) + place]
        if low is None or high is None or tail * units < STANDS_OUT * (rank or 0.0):
            continue
        first, last = max(floor(low + 0.5), 0), min(ceil(high - 0.5), len(grid))
        if first == 0 or last == len(grid) or first > last:
            return None
        return Bounds(grid[first - 1], grid[last], tail)
    return None


def bound_lines(column: Column, bounds: Bounds, null: str) -> list[str]:
    """Returns DOMAIN and CLAMP of a column of numbers, or DOMAIN of one of moments."""
    name = name_text(column.name)
    if column.type_name in TEMPORAL:
        low, high = int(bounds.low), int(bounds.high)
        step = "MONTH" if high - low <= 2 else "YEAR"
        return [f"DOMAIN {name} RANGE {low}-01-01 TO {high}-01-01 STEP {step}{null} WITH EDGES,"]
    low_text, high_text = decimal_text(bounds.low), decimal_text(bounds.high)
    step_text = decimal_text(_step(bounds.low, bounds.high, column.type_name in INTEGERS))
    return [
        f"DOMAIN {name} RANGE {low_text} TO {high_text} STEP {step_text}{null} WITH EDGES,",
        f"CLAMP {name} BETWEEN {low_text} AND {high_text},",
    ]


def _step(low: Fraction, high: Fraction, whole: bool) -> Fraction:
    """Returns a round step that divides both bounds, of about MOST_BINS bins.

    >>> str(_step(Fraction(0), Fraction(70), True)), str(_step(Fraction(-7), Fraction(30), True))
    ('5', '1')
    """
    wide = (high - low) / MOST_BINS
    wide = max(wide, Fraction(1)) if whole else wide
    power = floor(log10(float(wide)))
    offers = [digit * Fraction(10) ** (power + more) for more in (0, 1) for digit in (1, 2, 5)]
    fitting = [one for one in offers if one >= wide and low % one == 0 and high % one == 0]
    if fitting:
        return fitting[0]
    while low % Fraction(10) ** power or high % Fraction(10) ** power:
        power -= 1
    return Fraction(10) ** power


def key_lines(column: Column, rows: Rows, null: str) -> list[str]:
    """Returns DOMAIN of the texts that were published, all others under one label; [] where none was."""
    texts = [str(row[0]) for row in rows if row[0] is not None][:MOST_KEYS]
    if not texts:
        return []
    listed = ", ".join(map(quote_text, sorted(texts)))
    other = "" if "OTHER" not in {text.upper() for text in texts} else " 'any other'"
    return [f"DOMAIN {name_text(column.name)} IN ({listed}){null} WITH OTHER{other},"]


@dataclass(frozen=True)
class Answered:
    """A question with the rows of its answer, and the standard error of a quantile's rank, where it has one."""

    question: PrivateQuestion
    rows: Rows
    rank: float | None


def suggested(
    policy: Policy, answers: Sequence[Answered], left: Sequence[tuple[Column, str]], price: str, home: Home
) -> Suggested:
    """Returns what the answers suggest; the first is about units. left: columns, with WITH NULL or nothing."""
    facts = unit_facts(policy, answers[0].rows[0], answers[0].rank)
    about = {one.question.column: one for one in answers}
    columns = {
        column.name: _about(about[column], facts.units, null) if column in about else _unasked(policy, column)
        for column, null in left
    }
    why = "as it was declared; no person may have two rows."
    if policy.unit.column is not None:
        why = (
            f"as it was declared. Of about {_round(facts.units)} units, MAX ROWS {facts.most_rows} leaves out about "
            f"{100 * facts.dropped:.1f} % of the rows, by noisy quantiles: totals are too small by as much."
        )
    unit = replace(policy.unit, max_rows=facts.most_rows)
    return Suggested(
        f"A draft from noisy facts, which cost {price} in all and are in the ledger. All that it says may be "
        "known. Ends of ranges lie on a public grid; figures are of one row of each unit. Values outside count as the "
        "nearest bound, texts that are not listed as OTHER: averages and sums are moved by them.",
        why,
        unit_text(replace(policy, unit=unit), home),
        policy.unit.column or "",
        budget_text(policy),
        columns,
        _round(facts.rows) or None,
    )


def _kept(policy: Policy, column: Column) -> list[str]:
    """Returns the items that the policy in force has for a column: nobody needs to pay for what is public."""
    domain, clamp, name = policy.domain(column.name), policy.clamp(column.name), name_text(column.name)
    lines = [] if domain is None else [f"DOMAIN {name} {domain_text(domain)},"]
    return lines + ([] if clamp is None else [f"CLAMP {name} BETWEEN {clamp.low} AND {clamp.high} STEP {clamp.step},"])


def _unasked(policy: Policy, column: Column) -> tuple[str, Sequence[str]]:
    kept = _kept(policy, column)
    if kept:
        return "as it was declared.", kept
    keys = "texts are found by a threshold, which needs a budget with delta_keys"
    return (f"{keys}." if column.type_name == "VARCHAR" else "not asked about."), ()


def _about(one: Answered, units: float, null: str) -> tuple[str, Sequence[str]]:
    """Returns a remark and items about one column."""
    column = one.question.column
    if column is None:
        return "", ()
    if one.question.kind == "text":
        lines = key_lines(column, one.rows, null)
        held = sum(float(str(row[1])) for row in one.rows if row[1] is not None) / units
        if not lines:
            return "no text stands out of the noise at this price.", ()
        return f"these texts hold about {min(100 * held, 100):.0f} % of the units; rarer ones are OTHER.", lines
    bounds = bounds_of(one.question, one.rows[0], units, one.rank)
    if bounds is None:
        return "its bounds do not stand out of the noise at this price, or lie beyond the grid.", ()
    beyond = f"{100 * bounds.tail:g} %"
    return f"up to about {beyond} of the values lie below, and up to {beyond} above.", bound_lines(column, bounds, null)


def _round(number: float) -> int:
    """Returns two significant digits.

    >>> _round(12345.0), _round(7.0)
    (12000, 7)
    """
    return int(float(f"{max(number, 0):.2g}"))


def required_price(text: object) -> Fraction:
    """Returns the epsilon of PRIVATELY, as an owner wrote it."""
    try:
        epsilon = Fraction(str(text))
    except ValueError:
        epsilon = Fraction(0)
    if not 0 < epsilon <= 10:
        raise Refusal("the epsilon of a private draft is out of range", accepted="privately := 0.05, from 0 to 10")
    return epsilon
