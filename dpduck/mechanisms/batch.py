"""dp_plan: the prices of several statements, one after the other. Nothing is charged, and nothing private is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

from dpduck.kernel.door import compute_charge
from dpduck.kernel.ledger.budgets import Payer, PeriodSums, for_person, share_of
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.price import Ask
from dpduck.language.select.request import SelectRequest
from dpduck.language.text.dialect import MAX_CHARACTERS, PrivateDuckDB
from dpduck.mechanisms.forecast import ANSWERED, Forecast
from dpduck.mechanisms.other_prices import times_left
from dpduck.mechanisms.registry import explain_question
from dpduck.store.cursors import Caller
from dpduck.store.releases import ReleaseStore
from dpduck.store.tables import Value, rows_sql
from dpduck.values.errors import Refusal
from dpduck.values.per_cent import describe_amount, describe_price, is_in_epsilon
from dpduck.values.periods import Periods, word_of
from dpduck.values.privacy import NOTHING, ZERO, Budget, Charge, add_charges

MOST_STATEMENTS = 100
MOST_SHOWN = 120
MOST_BESIDE = 10
"""Most statements of a batch for which other prices are planned. With more, only prices without a plan are shown."""

COLUMNS = (
    ("number", "INTEGER"), ("statement", "VARCHAR"), ("table_name", "VARCHAR"), ("epsilon", "DOUBLE"),
    ("rho", "DOUBLE"), ("delta", "DOUBLE"), ("worst_stderr", "DOUBLE"), ("cells", "BIGINT"), ("measure", "VARCHAR"),
    ("remaining", "DOUBLE"), ("fits", "BOOLEAN"), ("note", "VARCHAR"), ("remaining_percent", "DOUBLE"),
    ("price", "VARCHAR"), ("times_left", "BIGINT"), ("other_prices", "VARCHAR"),
)  # fmt: skip


Planned = tuple[tuple[Periods | None, Charge], ...]
"""Prices of earlier statements, with the periods that they would be charged to."""

Beside = Callable[[SelectRequest, Charge, bool], str | None]
"""Describes half to four times the charge of a request. The last argument says whether other prices may be planned."""

Remainder = tuple[str, Fraction, Fraction]
"""The measure that a budget adds up, the amount that is left, and the whole budget."""


@dataclass(frozen=True)
class BatchStep:
    """Statement of a batch. known: whether it is answered already, and so is free."""

    text: str
    request: SelectRequest
    asks: Sequence[Ask[Any]]
    known: bool
    digest: str
    chosen: Forecast


@contextmanager
def numbered(number: int) -> Iterator[None]:
    """Puts the number of a statement before the message of a refusal."""
    try:
        yield
    except Refusal as error:
        where = "" if error.position is None else f"{error.position}: "
        raise type(error)(f"statement {number}: {where}{error.what}", accepted=error.accepted) from None


def split_statements(text: str, accepted: str = "dp_plan($$ SELECT WITH DIFFERENTIAL_PRIVACY ..; .. $$)") -> list[str]:
    """Splits a text into its statements at the semicolons. accepted: a text that has statements, for a refusal.

    >>> split_statements("SELECT 1; SELECT ';' ;")
    ['SELECT 1', "SELECT ';'"]
    """
    if len(text) > MAX_CHARACTERS:
        raise Refusal(f"the statements have {len(text)} characters", accepted=f"at most {MAX_CHARACTERS}")
    try:
        tokens = PrivateDuckDB().tokenize(text)
    except SqlglotError:
        raise Refusal("a quote or a comment that never closes", accepted="closed quotes and comments") from None
    parts, start = [], 0
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            parts.append(text[start : token.start])
            start = token.end + 1
    parts.append(text[start : tokens[-1].end + 1] if tokens else "")
    statements = [part.strip() for part in parts if part.strip()]
    if not statements:
        raise Refusal("there is no statement", accepted=accepted)
    if len(statements) > MOST_STATEMENTS:
        raise Refusal(f"{len(statements)} statements are too many", accepted=f"at most {MOST_STATEMENTS}")
    return statements


def plan_batch(
    text: str,
    question_of: Callable[[str], tuple[Any, SelectRequest]],
    beside: Beside,
    releases: ReleaseStore,
    ledger: Ledger,
    caller: Caller,
) -> str:
    """Returns SQL with the price of each statement in a text.

    question_of: reads a statement's question and request. beside: describes a statement at other prices.
    """
    steps = []
    for number, statement in enumerate(split_statements(text), 1):
        with numbered(number):
            question, _ = question_of(statement)
            details = explain_question(question)
            if details.request is None:
                raise Refusal("no price meets this target", accepted="a larger target_stderr")
        is_answered = releases.answers(question.digest(), caller)
        chosen = next(way for way in details.forecasts if way.chosen)
        steps.append(BatchStep(statement, details.request, details.asks, is_answered, question.digest(), chosen))
    return rows_sql(COLUMNS, _price_steps(steps, beside, ledger, caller))


def _price_steps(steps: Sequence[BatchStep], beside: Beside, ledger: Ledger, caller: Caller) -> list[list[Value]]:
    """Returns a row for each statement, with the budget that would be left, and a total row for each unit."""
    rows: list[list[Value]] = []
    together: dict[str, tuple[Planned, Planned]] = {}
    seen: set[str] = set()
    for number, step in enumerate(steps, 1):
        unit, table = step.request.rows.unit_key, step.request.rows.table.table
        free = step.known or step.digest in seen
        price = compute_charge(step.request.price.charge, step.asks, step.request.price.least_rho)
        periods = step.request.rows.periods
        run = None if periods is None else periods.periods
        granted, asked = together.get(unit, ((), ()))
        wanted = () if free else ((run, price),)
        measure, left, whole = amount_left(unit, (*granted, *wanted), run, ledger, caller)
        fits = free or left >= 0
        if fits:
            granted = (*granted, *wanted)
            seen.add(step.digest)
        else:
            measure, left, whole = amount_left(unit, granted, run, ledger, caller)
        together[unit] = granted, (*asked, *wanted)
        cost = Charge(ZERO, ZERO) if free else price
        note = ANSWERED if step.known else "as a statement above: free" if free else None
        short = " ".join(step.text.split())
        rows.append([
            number, short[:MOST_SHOWN] + (" .." if len(short) > MOST_SHOWN else ""), table, cost.epsilon, cost.rho,
            cost.delta, step.chosen.stderr, step.chosen.cells, measure, max(left, ZERO), fits, note,
            _per_cent(left, whole), None if free else price_words(price, unit, run, ledger, caller),
            None if free else times_left(step.request, price, ledger, caller),
            None if free else beside(step.request, price, len(steps) <= MOST_BESIDE),
        ])  # fmt: skip
    for unit, (granted, asked) in together.items():
        measure, left, whole = amount_left(unit, granted, None, ledger, caller)
        fits, total = granted == asked, reduce(add_charges, (price for _, price in asked), NOTHING)
        note = "nothing was charged" if fits else "not all of it fits: what does not is refused, and costs nothing"
        rows.append([
            None, "in all", unit, total.epsilon, total.rho, total.delta, None, None, measure, max(left, ZERO), fits,
            note, _per_cent(left, whole), price_together(asked, unit, ledger, caller)[1], None,
            None,
        ])  # fmt: skip
    return rows


def price_words(charge: Charge, unit: str, run: Periods | None, ledger: Ledger, caller: Caller) -> str:
    """Describes a price as a part of the caller's budget."""
    budget = share_of(ledger.budget(unit), Fraction(1) if caller.share is None else caller.share)
    person = None if run is None or run.every else for_person(charge, run.count)
    return describe_price(charge, budget, unit, person)


def price_together(
    asked: Sequence[tuple[Periods | None, Charge]], unit: str, ledger: Ledger, caller: Caller
) -> tuple[Charge, str | None]:
    """Returns the sum of several prices, and the sum in words, None if there are no prices.

    Statements about different periods are charged to different budgets, so their sum is no part of one budget.
    """
    total = reduce(add_charges, (price for _, price in asked), NOTHING)
    if not asked:
        return total, None
    runs = {run for run, _ in asked}
    if len(runs) > 1 or (len(asked) > 1 and runs != {None}):
        return total, describe_amount(total, in_epsilon=is_in_epsilon(total, ledger.budget(unit)))
    return total, price_words(total, unit, next(iter(runs)), ledger, caller)


def amount_left(
    unit: str, plan: Sequence[tuple[Periods | None, Charge]], within: Periods | None, ledger: Ledger, caller: Caller
) -> Remainder:
    """Returns the amount of a unit's budget that a plan would leave. It is below 0 if the budget does not suffice.

    If the budget is for each period, the result is the least of any period in `within`, or of LIFETIME if that is less.
    """
    budget = ledger.budget(unit)
    if budget is None:
        return "epsilon", Fraction(-1), ZERO
    share = Fraction(1) if caller.share is None else caller.share
    own = None if caller.share is None else caller.name
    parts: list[tuple[Payer, Fraction]] = [(None, Fraction(1)), (own, share)]
    if caller.project is not None:
        project = ledger.project(caller.project)
        parts.append(((*project.members,), project.share))
    if caller.a_day is not None:
        parts.append((ledger.today(caller.name), caller.a_day))
    amounts = []
    for who, part in parts:
        spent = _after(unit, plan, within, ledger, who)
        if who is None:
            spent = add_charges(spent, ledger.kept_for_others(unit, caller.name))
        amounts.append(_of(budget, spent, 1 - part))
    if budget.lifetime is not None:
        for who, part in parts:
            person = (for_person(price, run.count) for run, price in plan if run is not None)
            spent = reduce(add_charges, person, ledger.spent_of_person(unit, who))
            amounts.append(_of(budget.lifetime, spent, 1 - part))
    return min(amounts, key=lambda amount: (amount[0] != "delta" or amount[1] >= 0, amount[1]))


def _after(
    unit: str,
    plan: Sequence[tuple[Periods | None, Charge]],
    within: Periods | None,
    ledger: Ledger,
    payer: Payer,
) -> Charge:
    if word_of(unit) is None:
        return reduce(add_charges, (price for _, price in plan), ledger.spent(unit, payer))
    sums = PeriodSums(dict(ledger.spent_by_run(unit, payer)))
    for run, price in plan:
        if run is not None:
            sums.add(run, price)
    return sums.most(within)


def _of(budget: Budget, spent: Charge, others: Fraction) -> Remainder:
    """Returns the amount left of a budget after spending. others: the part of the budget for other principals."""
    amount, keys = budget.epsilon if budget.pure else budget.rho, budget.delta_keys * (1 - others)
    whole = (amount or ZERO) * (1 - others)
    if budget.pure:
        return "epsilon", Fraction(-1) if spent.epsilon is None else whole - spent.epsilon, whole
    if spent.delta > keys:
        return "delta", keys - spent.delta, keys
    return "rho", whole - spent.rho, whole


def _per_cent(left: Fraction, whole: Fraction) -> float | None:
    return float(100 * max(left, ZERO) / whole) if whole else None
