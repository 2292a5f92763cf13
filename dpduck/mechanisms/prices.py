"""Prices in both forms, epsilon and rho, and cheaper alternatives. Nothing here is charged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpduck.kernel.door import Bill, compute_charge
from dpduck.kernel.ledger.budgets import format_amount
from dpduck.kernel.ledger.entries import LedgerEntry
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.price import Ask
from dpduck.language.select.request import SelectRequest
from dpduck.store.tables import EXPLAINED, SMALLEST_RHO, Value, rows_sql
from dpduck.values.accounting import epsilon_of, rho_of, rho_of_pure
from dpduck.values.errors import BudgetRefusal
from dpduck.values.privacy import Budget, Charge
from dpduck.values.quoting import quote_text

FAR_CHEAPER = 2
"""Factor from which a lower price is worth a note."""

EARLY = tuple(name for name, _ in EXPLAINED)[:10]
"""The columns of every explanation, up to its note."""

SAFE = 1 - Fraction(1, 10**9)
"""Factor that lowers the remaining budget in a message, so that a statement may ask for the shown amount."""


def add_price(
    sql: str,
    request: SelectRequest,
    asks: Iterable[Ask[Any]],
    budget: Budget | None,
    worst: float | None = None,
    words: Sequence[str] = (),
    expect_rows: int | None = None,
) -> str:
    """Returns dp_explain with the price of the chosen row's asks as its rho, and a column `price` with both forms.

    The price comes right after the columns that programs may rely on.

    The rho of other rows is an upper bound: the price of their epsilon, whatever is measured. worst: the chosen row's
    worst_stderr if it has none of its own. words: further parts of its note. expect_rows: the number to compare with
    each row's own worst_stderr, given only if that error is about counts alone.
    """
    charge = compute_charge(request.price.charge, asks, request.price.least_rho)
    most = charge.rho if charge.epsilon is None else min(request.price.charge.rho, rho_of_pure(charge.epsilon))
    rho = f"CASE WHEN chosen THEN CAST({quote_text(repr(float(charge.rho)))} AS DOUBLE) "
    rho += f"ELSE least(rho, CAST({quote_text(repr(float(most)))} AS DOUBLE)) END AS rho"
    said = "; ".join(part for part in (both_forms(charge, budget), cheaper(request, charge, budget)) if part)
    first = ", ".join(EARLY)
    price = f"CASE WHEN chosen THEN {quote_text(said)} END AS price"
    rho += (
        ""
        if worst is None
        else f", CASE WHEN chosen THEN coalesce(worst_stderr, {worst!r}) ELSE worst_stderr END AS worst_stderr"
    )
    more = quote_text("".join(f"; {part}" for part in words if part))
    own = "NULL"
    if expect_rows is not None:
        own = f"CASE WHEN worst_stderr > {expect_rows} THEN {quote_text(f'; {noise_alone(expect_rows)}')} END"
    rho += f", concat(note, CASE WHEN chosen THEN {more} END, {own}) AS note"
    rest = f"SELECT * REPLACE ({rho}), {price} FROM ({sql}) AS explained"
    return f"SELECT {first}, price, * EXCLUDE ({first}, price) FROM ({rest}) AS priced"


@dataclass(frozen=True)
class AggregateError:
    """Predicted error of one aggregate. A figure that no public fact tells is None.

    - rows: the rows of a cell in the finest table.
    - typical, worst: standard errors. For averages, variances and quantiles, no public fact tells the error of the
      smallest cell.
    - rank: the standard error of the rank of a tree's quantile, in rows.
    - by_rows: the standard error times the rows of a cell, if these rows are not known.
    """

    text: str
    cells: int | None
    rows: float | None
    typical: float | None
    worst: float | None
    rank: float | None = None
    by_rows: float | None = None


ERRORS = (
    ("aggregate", "VARCHAR"), ("cells", "BIGINT"), ("rows_of_a_cell", "DOUBLE"), ("stderr", "DOUBLE"),
    ("worst_stderr", "DOUBLE"), ("note", "VARCHAR"),
)  # fmt: skip


def errors_listing(lines: Sequence[AggregateError]) -> str:
    """Returns dp_errors with four significant digits. A predicted error is accurate to fewer."""
    rows: list[list[Value]] = []
    for line in lines:
        rows.append([line.text, line.cells, line.rows, *map(_short, (line.typical, line.worst)), _note(line)])
    return rows_sql(ERRORS, rows)


def _note(error: AggregateError) -> str | None:
    """Describes an error by a cell's rows n if a figure is missing: in words, or as a number divided by n."""
    if error.worst is not None:
        return None
    if error.typical is None:
        said = by_rows(error.by_rows)
        return said if error.cells is None else f"{said}; EXPECT ROWS of the policy puts figures here"
    return None if error.by_rows is None else f"{float(f'{error.by_rows:.3g}'):.15g}/n"


def by_rows(times: float | None) -> str:
    """Describes an error that depends on the rows of a cell."""
    if times is None:
        return "the less, the more rows a cell has"
    return f"about {float(f'{times:.3g}'):,g} divided by the rows of a cell"


def _short(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.4g}")


def worst_of(lines: Sequence[AggregateError]) -> float | None:
    """Returns the largest predicted error, or None. An aggregate without a worst error counts with its typical one."""
    foreseen = [line.typical if line.worst is None else line.worst for line in lines]
    return max((error for error in foreseen if error is not None), default=None)


def noise_warning(counts: bool, worst: float | None, expect_rows: int | None) -> str:
    """Returns a note if a count has more noise than the table's expected rows, else an empty text."""
    if not counts or worst is None or expect_rows is None or worst <= expect_rows:
        return ""
    return noise_alone(expect_rows)


def noise_alone(expect_rows: int) -> str:
    """Warns that a count will be noise alone, and names the remedies."""
    return (
        f"the noise of a count is larger than EXPECT ROWS {expect_rows}: an answer would be noise alone; "
        "a higher epsilon, fewer cells or a smaller MAX ROWS help"
    )


def both_forms(charge: Charge, budget: Budget | None) -> str:
    """Returns a price as the budget adds it up, and as an epsilon.

    >>> both_forms(Charge.pure(Fraction(1)), Budget(Fraction(3), Fraction(0), Fraction(0), None))
    'epsilon = 1'
    """
    if charge.epsilon is not None and (budget is None or budget.pure):
        return f"epsilon = {float(charge.epsilon):g}"
    said = f"rho = {float(charge.rho):.4g}"
    delta = _delta(budget)
    if delta and charge.rho > SMALLEST_RHO:
        said += f", as epsilon = {float(epsilon_of(charge.rho, delta)):.4g} with delta = {float(delta):g} costs"
    if charge.delta:
        said += f", and delta = {float(charge.delta):g} for keys"
    return said


def describe_entry(entry: LedgerEntry) -> str:
    """Describes an entry of the ledger by its number and price."""
    price = f"epsilon = {float(entry.epsilon):g}" if entry.epsilon is not None else f"rho = {float(entry.rho):.4g}"
    return f"ledger entry {entry.id}, {price}{f', delta = {float(entry.delta):g}' if entry.delta else ''},"


def cheaper(request: SelectRequest, charge: Charge, budget: Budget | None) -> str:
    """Returns a note if the statement's epsilon would cost far less with the budget's delta, else an empty text."""
    delta = _delta(budget)
    summary = request.question.summary
    filtered = summary is not None and summary.method != "sketch"  # geometric noise alone
    if charge.epsilon is None or charge.delta or not delta or filtered:
        return ""
    try:
        approximate = rho_of(charge.epsilon, delta)
    except ValueError:
        return ""
    if approximate * FAR_CHEAPER > charge.rho:
        return ""
    return (
        f"OPTIONS (epsilon = {float(charge.epsilon):g}, delta = {float(delta):g}) would cost rho = "
        f"{float(approximate):.4g}, {float(charge.rho / approximate):.2g} times less, and have larger noise; "
        f"OPTIONS (rho = {float(charge.rho):.4g}) costs the same and has Gaussian noise"
    )


def in_both_forms(refused: BudgetRefusal, ledger: Ledger, bill: Bill) -> BudgetRefusal:
    """Adds epsilon to the refusal of a price that exceeds a budget of rho: the statement may be written in epsilon."""
    unit_key, charge, share = bill.unit_key, bill.charge, bill.allotment
    budget, delta = ledger.budget(unit_key), _delta(ledger.budget(unit_key))
    if budget is None or budget.rho is None:
        return refused
    left = budget.rho - ledger.spent(unit_key, within=bill.periods).rho
    if share is not None:
        left = min(left, budget.rho * share - ledger.spent(unit_key, bill.principal, bill.periods).rho)
    if charge.rho <= left:  # the budget lacks delta for keys
        return refused
    forms = []
    if left > SMALLEST_RHO and delta:
        forms.append(
            f"epsilon = {format_amount(epsilon_of(left, delta) * SAFE, up=False)} with delta = {float(delta):g}"
        )
    if left > SMALLEST_RHO:
        forms.append(
            f"epsilon = {format_amount(pure_epsilon_of(left), up=False)} without a delta (some statements: more)"
        )
    asked = "the statement"
    if charge.epsilon is not None:
        forms.reverse()
        asked = f"the statement, epsilon = {float(charge.epsilon):g} without a delta,"
    elif delta:
        asked = f"the statement, as epsilon = {float(epsilon_of(charge.rho, delta)):.4g} with delta = {float(delta):g},"
    accepted = [refused.accepted, " or ".join(forms)] if forms else [refused.accepted]
    return BudgetRefusal(refused.what.replace("the statement", asked, 1), accepted=": ".join(accepted))


def pure_epsilon_of(rho: Fraction) -> Fraction:
    """Returns an epsilon that costs at most this rho for any measurement, and hardly less than it."""
    low, high = Fraction(0), rho + 2  # epsilon tanh(epsilon/2) is above epsilon - 1
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rho_of_pure(middle) <= rho else (low, middle)
    return low


def _delta(budget: Budget | None) -> Fraction:
    """Returns the delta that a budget has for statements, 0 if it has none."""
    return Fraction(0) if budget is None or budget.epsilon is None else budget.delta - budget.delta_keys
