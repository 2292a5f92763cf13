"""Forecasts: a row of dp_explain for each way to answer a statement, a row of dp_errors for each aggregate.

They follow from policies, budgets and plans. Nothing here is charged, and nothing private is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dpduck.kernel.door import compute_charge
from dpduck.kernel.price import Ask
from dpduck.language.select.request import Price, SelectRequest
from dpduck.mechanisms.prices import Times, price_in_words
from dpduck.store.tables import Value, rows_sql
from dpduck.values.accounting import rho_of_pure
from dpduck.values.privacy import Budget

EXPLAINED = (
    ("strategy", "VARCHAR"), ("chosen", "BOOLEAN"), ("total_variance", "DOUBLE"), ("worst_stderr", "DOUBLE"),
    ("epsilon", "DOUBLE"), ("delta", "DOUBLE"), ("rho", "DOUBLE"), ("cells", "BIGINT"), ("groups", "BIGINT"),
    ("note", "VARCHAR"), ("price", "VARCHAR"), ("seconds", "DOUBLE"), ("times_left", "BIGINT"),
    ("other_prices", "VARCHAR"),
)  # fmt: skip
"""Columns of every dp_explain. The columns of a mechanism follow them."""


@dataclass(frozen=True)
class Forecast:
    """One way to answer a statement, as dp_explain shows it before any charge.

    - chosen: whether the statement is answered in this way.
    - cells: the cells that one aggregate releases. None if their number is private.
    - groups: the number of queries that share the price.
    - notes: the parts of the note. Empty parts are left out.
    - total_variance, stderr: of all cells, and of the worst cell. None if they depend on the answer.
    - seconds: the expected time of all steps but the counting.
    - further: columns of this mechanism alone, each with a name, a type and a value.
    - epsilon, delta, rho, price: the price in numbers and in words. Mechanisms leave these to charge_price.
    - times_left, other_prices: how often the price still fits, and half to four times the price, in words.
    """

    strategy: str
    chosen: bool
    cells: int | None
    groups: int
    notes: Sequence[str] = ()
    total_variance: float | None = None
    stderr: float | None = None
    seconds: float | None = None
    further: Sequence[tuple[str, str, Value]] = ()
    epsilon: Fraction | None = None
    delta: Fraction | None = None
    rho: Fraction | None = None
    price: str | None = None
    times_left: int | None = None
    other_prices: str | None = None

    def with_notes(self, *notes: str) -> Forecast:
        """Returns the forecast with more notes at its end."""
        return replace(self, notes=(*self.notes, *notes))


ANSWERED = "answered already: free"
"""Note of a statement that its caller may ask again for nothing."""


def state_price(forecasts: Iterable[Forecast], price: Price) -> list[Forecast]:
    """Returns the forecasts with the epsilon, delta and rho that their statement asks for."""
    epsilon = price.charge.epsilon if price.stated_epsilon is None else price.stated_epsilon
    delta = price.charge.delta or price.stated_delta
    return [replace(forecast, epsilon=epsilon, delta=delta, rho=price.charge.rho) for forecast in forecasts]


def charge_price(
    forecasts: Iterable[Forecast],
    request: SelectRequest,
    asks: Iterable[Ask[Any]],
    budget: Budget | None,
    share: Fraction | None,
    times: Times = lambda request: None,
) -> list[Forecast]:
    """Returns the forecasts with prices. The chosen way has the exact rho of its asks, other ways have a bound.

    The bound is the rho that an epsilon costs for any measurement. share: the caller's part of the budget.
    times: function that compares the errors of another form with those of the chosen way.
    """
    charge = compute_charge(request.price.charge, asks, request.price.least_rho)
    most = charge.rho if charge.epsilon is None else rho_of_pure(charge.epsilon)
    others, words = min(request.price.charge.rho, most), price_in_words(request, charge, budget, share, times)
    return [
        replace(forecast, rho=charge.rho, price=words) if forecast.chosen else replace(forecast, rho=others)
        for forecast in state_price(forecasts, request.price)
    ]


def explain_sql(forecasts: Sequence[Forecast]) -> str:
    """Returns SQL of dp_explain. A forecast has NULL in the columns that only other mechanisms have."""
    further = {name: type_name for forecast in forecasts for name, type_name, _ in forecast.further}
    rows: list[list[Value]] = []
    for way in forecasts:
        own = {name: value for name, _, value in way.further}
        note = "; ".join(filter(None, way.notes))
        rows.append([
            way.strategy, way.chosen, way.total_variance, way.stderr, way.epsilon, way.delta, way.rho, way.cells,
            way.groups, note, way.price, way.seconds, way.times_left, way.other_prices, *map(own.get, further),
        ])  # fmt: skip
    return rows_sql((*EXPLAINED, *further.items()), rows)


@dataclass(frozen=True)
class AggregateError:
    """Predicted error of one aggregate. A figure is None if it does not follow from public facts.

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


def errors_sql(lines: Sequence[AggregateError]) -> str:
    """Returns SQL of dp_errors with four significant digits. A predicted error is accurate to fewer digits."""
    rows: list[list[Value]] = []
    for line in lines:
        rows.append([line.text, line.cells, line.rows, *map(_short, (line.typical, line.worst)), _note(line)])
    return rows_sql(ERRORS, rows)


def _note(error: AggregateError) -> str | None:
    """Describes an error that depends on a cell's rows n, in words or as a number over n. Other errors have no note."""
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


def times_as_large(lines: Sequence[AggregateError], others: Sequence[AggregateError]) -> float | None:
    """Returns the largest factor by which `others` exceed errors of the same aggregates. None without figures."""
    factors = []
    for line, other in zip(lines, others, strict=True):
        pairs = ((line.worst, other.worst), (line.typical, other.typical), (line.by_rows, other.by_rows))
        factor = next((after / before for before, after in pairs if before and after), None)
        if factor is None:
            return None
        factors.append(factor)
    return max(factors, default=None)


def noise_warning(request: SelectRequest, worst: float | None, expect_rows: int | None) -> str:
    """Warns if a count has more noise than the table's expected rows, and names the remedies. Else returns ''."""
    has_only_counts = all(aggregate.function == "count" for aggregate in request.question.aggregates)
    if not has_only_counts or worst is None or expect_rows is None or worst <= expect_rows:
        return ""
    return (
        f"the noise of a count is larger than EXPECT ROWS {expect_rows}: an answer would be noise alone; "
        "a higher epsilon, fewer cells or a smaller MAX ROWS help"
    )
