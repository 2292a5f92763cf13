"""Statements of dp() by which a private draft of a policy learns facts about the rows: quantiles, and frequent keys.

No code here sees a row, computes a price or draws noise. Every statement goes through the door like an analyst's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor, log10

from dpduck.language.rows.facts import CatalogColumn, Policy
from dpduck.owner.domains import decimal_text
from dpduck.owner.noisy_shares import FRACTIONS
from dpduck.owner.policy_text import Home, name_text, table_text
from dpduck.values.accounting import rho_of, rho_of_pure
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Budget
from dpduck.values.quoting import quote_identifier
from dpduck.values.sqltypes import sql_type

DIGITS = (Fraction(1), Fraction(3, 2), Fraction(2), Fraction(3), Fraction(4), Fraction(5), Fraction(6), Fraction(8))
DECADES = 9
SMALLEST = -1
"""Public grid of numbers: 0, and these digits times powers of ten. The powers begin at 0.1, for whole numbers at 1."""

CODES = range(-9, 101)
CALENDAR = range(1950, 2041)
BLANKS = (999, 9_999, 99_999)
"""Whole numbers with a place of their own: codes, ages, hours, then years, then numbers that often mean no answer."""

YEARS = range(1900, 2051)

NICE = tuple(
    sorted(
        {*range(1, 21), 25, *(digit * 10**power for power in (1, 2, 3) for digit in (1, 2, 3, 4, 5, 6, 8, 12, 15, 25))}
    )
)
"""Numbers that may be suggested for MAX ROWS."""

UNIT_WEIGHT = 20
"""The weight of the number of units, relative to one quantile of their rows."""

DROPPED = 0.01
"""Share of the rows that MAX ROWS may leave out, or of the sum that a clamp may leave out, by the noisy estimate."""

MOST_DROPPED = 0.25
"""The share of a sum that a clamp may leave out in the worst case of the noise. Above this share the owner decides."""

FARTHEST = 10
"""Largest suggested bound, as a multiple of the end of the values that stand out."""

MOST_CODES = 25
MOST_OTHERS = 0.1
"""The largest share of the units with a value outside of a list of whole numbers."""

MOST_BINS = 25
MOST_YEARS = 60
MOST_COLUMNS = 80
MOST_KEYS = 300
PART_OF_KEYS = 10
"""One draft uses the budget's delta for keys divided by this number."""


Rows = list[tuple[object, ...]]
AskPrivately = Callable[[Sequence[str]], Sequence[tuple[Rows, float | None]]]
"""Answers all statements or none. Each answer has the standard error of its first quantile's rank."""


@dataclass(frozen=True)
class PrivateQuestion:
    """One statement. column: its subject, None for the rows of a unit. grid: increasing public numbers."""

    kind: str
    column: CatalogColumn | None
    sql: str
    grid: tuple[Fraction, ...] = ()


def questions(policy: Policy, columns: Sequence[CatalogColumn], epsilon: Fraction, home: Home) -> list[PrivateQuestion]:
    """Returns the statements of a draft. They cost epsilon: one part for each column, two for the rows of a unit."""
    asked = [field for field in columns if _kind(field, policy) and not _is_declared(field, policy)][:MOST_COLUMNS]
    part = _parts(policy.budget, epsilon, len(asked) + 2)
    texts = sum(_kind(field, policy) == "text" for field in asked)
    statements = [PrivateQuestion("unit", None, _of_unit(policy, part(2), home))]
    for column in asked:
        kind = _kind(column, policy)
        if kind == "text":
            delta = policy.budget.delta_keys / PART_OF_KEYS / texts
            statements.append(PrivateQuestion(kind, column, _of_keys(policy, column, part(1), delta, home)))
        else:
            grid = grid_of(column.type_name)
            statements.append(PrivateQuestion(kind, column, _of_values(policy, column, grid, part(1), home), grid))
    return statements


def _kind(column: CatalogColumn, policy: Policy) -> str:
    """Returns the kind of question about a column: 'number', 'date', 'text', or "" for none."""
    if column.type_name == "VARCHAR":
        return "text" if policy.budget.delta_keys and not policy.budget.pure else ""
    kind = sql_type(column.type_name)
    return "date" if kind.is_moment else "number" if kind.is_numeric else ""


def _is_declared(column: CatalogColumn, policy: Policy) -> bool:
    """Tells whether the policy in force has an item for a column. Nobody needs to pay for a public fact."""
    return policy.domain(column.name) is not None or policy.clamp(column.name) is not None


def _parts(budget: Budget, epsilon: Fraction, number: int) -> Callable[[int], str]:
    """Returns a function that writes the price option for some of `number` equal parts of epsilon, or of its rho."""
    if budget.pure:
        return lambda parts: f"epsilon = {_down(epsilon * parts / number)}"
    delta = budget.delta - budget.delta_keys
    rho = rho_of(epsilon, delta) if budget.epsilon is not None else rho_of_pure(epsilon)
    return lambda parts: f"rho = {_down(rho * parts / number)}"


def _down(amount: Fraction) -> str:
    scale = Fraction(10) ** (3 - floor(log10(float(amount))))
    return decimal_text(Fraction(floor(amount * scale)) / scale)


def grid_of(type_name: str) -> tuple[Fraction, ...]:
    """Returns the public numbers to compare a column of this type with.

    >>> [str(edge) for edge in grid_of("UTINYINT")][98:104]
    ['98', '99', '100', '101', '150', '200']
    >>> [str(edge) for edge in grid_of("DOUBLE")][72:76]
    ['0', '1/10', '3/20', '1/5']
    """
    kind = sql_type(type_name)
    if kind.is_moment:
        return tuple(map(Fraction, YEARS))
    first = 0 if kind.is_whole else SMALLEST
    positive = {digit * Fraction(10) ** power for power in range(first, first + DECADES) for digit in DIGITS}
    if not kind.is_whole:
        return tuple(sorted({-edge for edge in positive} | {Fraction(0)} | positive))
    coarse = {-Fraction(digit * 10**power) for power in range(1, first + DECADES) for digit in (1, 2, 5)}
    single = {*CODES, *CALENDAR, *range(1900, CALENDAR.start, 10), *BLANKS, *(blank + 1 for blank in BLANKS)}
    edges = coarse | set(map(Fraction, single)) | {edge for edge in positive if edge.denominator == 1}
    edges.add(Fraction(CODES.stop))
    largest = min(kind.most, 10**DECADES)
    lowest = -largest if kind.is_signed else 0
    return tuple(sorted(edge for edge in edges if lowest <= edge <= largest))


def _quantile_list(value: str) -> str:
    return f"quantile_cont({value}, [{', '.join(f'{part:g}' for part in FRACTIONS)}]) AS q"


def _of_unit(policy: Policy, price: str, home: Home) -> str:
    """Returns the statement about the number of rows of a unit: its quantiles over units, and the number of units."""
    table = table_text(policy.table, home)
    if policy.unit.column is None:
        return f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}) count(*) AS n FROM {table}"
    unit = name_text(policy.unit.column or (policy.unit.reference.column if policy.unit.reference else ""))
    cases = " ".join(f"WHEN count(*) <= {most} THEN {place}" for place, most in enumerate(NICE))
    weights = ", ".join(["1"] * len(FRACTIONS) + [str(UNIT_WEIGHT)])
    return (
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}, aggregate_weights = ({weights})) "
        f"{_quantile_list('place')}, count(*) AS n, dp_stderr(n) AS error "
        f"FROM (SELECT {unit}, CASE {cases} ELSE {len(NICE)} END AS place FROM {table} GROUP BY {unit}) AS units"
    )


def place_sql(column: CatalogColumn, grid: Sequence[Fraction]) -> str:
    """Returns SQL of the place of a value: 0 for NULL, 1 below the grid, and then 1 more at each number of the grid.

    Consecutive whole numbers or years share one CASE branch, which keeps the text short.
    """
    name, kind = quote_identifier(column.name), sql_type(column.type_name)
    temporal = kind.is_moment

    def end(edge: Fraction) -> str:
        return f"{column.type_name} '{edge}-01-01'" if temporal else decimal_text(edge)

    value, cases, place = f"year({name})" if temporal else name, [f"WHEN {name} IS NULL THEN 0"], 0
    while place < len(grid):
        cases.append(f"WHEN {name} < {end(grid[place])} THEN {place + 1}")
        last = place
        while (temporal or kind.is_whole) and last + 1 < len(grid) and grid[last + 1] == grid[last] + 1:
            last += 1
        if last > place + 1:
            inside = f"floor(least(greatest({value}, {grid[place]}), {grid[last] - 1}))"
            cases.append(f"WHEN {name} < {end(grid[last])} THEN {inside} + ({place + 2 - grid[place]})")
        place = last if last > place + 1 else place + 1
    return f"CASE {' '.join(cases)} ELSE {len(grid) + 1} END"


def _of_values(policy: Policy, column: CatalogColumn, grid: Sequence[Fraction], price: str, home: Home) -> str:
    """Returns the statement about a column's values: quantiles of the grid places of one row of each unit."""
    unit = policy.unit.column or (policy.unit.reference.column if policy.unit.reference else None)
    unit_column, one_row = (f"{name_text(unit)}, ", ", max_rows_contributed = 1") if unit else ("", "")
    return (
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}{one_row}) {_quantile_list('place')} "
        f"FROM (SELECT {unit_column}{place_sql(column, grid)} AS place FROM {table_text(policy.table, home)}) AS placed"
    )


def _of_keys(policy: Policy, column: CatalogColumn, price: str, delta: Fraction, home: Home) -> str:
    """Returns the statement about a column's texts: the texts that enough units have."""
    name = quote_identifier(column.name)
    options = f"{price}, delta = {_down(delta)}, max_groups_contributed = 1"
    return (
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({options}, group_selection_strategy = GAUSSIAN_THRESHOLD) "
        f"{name}, count(*) AS n FROM {table_text(policy.table, home)} GROUP BY {name} ORDER BY n DESC"
    )


def read_price(text: object) -> Fraction:
    """Returns the epsilon that an owner typed for a private draft. Refuses a text that is no number or out of range."""
    try:
        epsilon = Fraction(str(text))
    except ValueError:
        epsilon = Fraction(0)
    if not 0 < epsilon <= 10:
        raise Refusal("the epsilon of a private draft is out of range", accepted="privately := 0.05, from 0 to 10")
    return epsilon
