"""Prices and answers for agents: free answers come before paid ones, and errors come with every number.

Every statement passes the gate, as for every other client. An agent's own statement is charged at most its shown
price. Statements that are asked here in addition, such as for errors, may charge nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from dpduck.server.bare_statements import QUERIES, first_word, read_bare, without_dp
from dpduck.server.clients.desk import Desk, PageAnswer, PageStatement, Priced, Prices, is_charged
from dpduck.server.mcp.error_bars import plain_select, with_errors
from dpduck.server.mcp.results import IS_DATA, MOST_ROWS, Json, json_value, one_line, records_of, rows_of
from dpduck.values.errors import DpduckError, PermissionRefusal, Refusal
from dpduck.values.quoting import fold, quote_text

ALL, SHARE = "the whole budget", "your share of the budget"
"""Amounts that are 100 % for an agent: its limits and its prices are per cents of one of the two."""

ONLY_QUESTIONS = "SELECT WITH DIFFERENTIAL_PRIVACY .., or a SELECT over private views"
PAID = "price, and then ask, which is charged: "
STORED = "free: this very statement was answered before"
KNOWN = "free: it follows from earlier releases; nothing was charged. For a new answer, ask with anew = true"
READ = "free: it reads nothing but what was released"
CHARGED = "charged; the same statement again is free"
NO_ERRORS = (
    "These numbers were computed from released numbers, and no errors are shown. The errors of a view's column n are "
    "in its column n_stderr."
)
_ERRORS = ("aggregate", "cells", "rows_of_a_cell", "stderr", "worst_stderr", "note")
_PER_CENT = re.compile(r"([0-9][0-9.e+-]*) % of ")
_IN_DP = re.compile(
    r"(.*); accepted: FROM dp\(\$\$ (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS) \([^()]*\)(.*) \$\$\)[^$]*"
)
"""Advice of dp_known, with a price that this agent may not be allowed to pay."""

_SHOWN_ERRORS = re.compile(r"stderr|interval", re.IGNORECASE)


@dataclass(frozen=True)
class PricedQuestion:
    """Statement of an agent with its prices, before anything is charged."""

    asked: PageStatement
    prices: Prices

    @property
    def is_free(self) -> bool:
        """Tells whether nothing is charged: the statement reads released tables, or was answered before."""
        return not any(map(is_charged, self.prices.totals))

    @property
    def per_cent(self) -> float | None:
        """Returns the price as a part of the budget, rounded up. None if it is no part of one."""
        parts = [per_cent_of(row.plan) for row in self.prices.statements]
        return None if None in parts else math.fsum(part for part in parts if part is not None)


def per_cent_of(plan: Mapping[str, Any] | None) -> float | None:
    """Returns the largest part of a budget that a price takes, from its words in dp_plan.

    >>> per_cent_of({"rho": 0.1, "price": "2 % of your budget and 3.5 % of LIFETIME (epsilon = 0.1)"})
    3.5
    """
    if plan is None or not is_charged(plan):
        return 0.0
    parts = [float(part) for part in _PER_CENT.findall(str(plan["price"] or "").split(" (")[0])]
    return max(parts, default=None)


def quote(desk: Desk, sql: str) -> PricedQuestion:
    """Prices a statement. Refuses whatever is no question: an agent makes and drops nothing."""
    asked = desk.read_statement(without_dp(sql))
    if any(action != "run" or first_word(argument) not in QUERIES for action, argument in asked.charging):
        raise PermissionRefusal("an agent asks questions, and makes or drops nothing", accepted=ONLY_QUESTIONS)
    return PricedQuestion(asked, desk.prices(asked))


def price_of(desk: Desk, sql: str) -> Json:
    """Returns the price of a statement, its expected errors, and whether the answer is free."""
    priced = quote(desk, sql)
    if not priced.asked.charging:
        _ask_released(desk, priced.asked, 0)  # raises the refusal of what cannot be read
        return {"charged": False, "free": True, "why": READ, "per_cent": 0.0, "statements": []}
    statements = [_price_of(desk.with_errors(row)) for row in priced.prices.statements]
    known = None if priced.is_free else _answer_from_releases(desk, priced)
    why = STORED if priced.is_free else KNOWN if known is not None else ""
    return {
        "data_note": IS_DATA,
        "charged": False,
        "free": bool(why),
        **({"why": why} if why else {}),
        "fits": priced.prices.fits,
        "per_cent": priced.per_cent,
        "statements": statements,
    }


def free_answer(desk: Desk, sql: str) -> Json:
    """Returns an answer that costs nothing. Refuses a question that nothing released answers."""
    priced = quote(desk, sql)
    if not priced.asked.charging:
        return _answer_of_released(desk, priced.asked)
    if priced.is_free:
        return _answer_again(desk, priced)
    answer = _answer_from_releases(desk, priced)
    if answer is None:
        raise Refusal("nothing that was released answers this", accepted=f"{PAID}the same statement")
    return _answer(answer, KNOWN)


def answer_of(desk: Desk, sql: str, most_percent: float | None, *, anew: bool) -> Json:
    """Returns an answer: a free one if there is one, and otherwise a new one within the ceiling, which is charged.

    anew: whether to ask for a new answer even if earlier releases already give one.
    """
    priced = quote(desk, sql)
    if not priced.asked.charging:
        return _answer_of_released(desk, priced.asked)
    if priced.is_free:
        return _answer_again(desk, priced)
    earlier = None if anew else _answer_from_releases(desk, priced)
    if earlier is not None:
        new = {"per_cent": priced.per_cent, "expected_errors": _predict_errors(desk, priced)}
        return {**_answer(earlier, KNOWN), "a_new_answer": new}
    part = priced.per_cent
    if most_percent is not None and (part is None or part > most_percent):
        costs = "no part of a budget" if part is None else f"{part:g} % of your budget"
        raise Refusal(
            f"the statement costs {costs}, and most_percent is {most_percent:g}",
            accepted="a smaller epsilon, or a larger most_percent if a person agrees",
        )
    entries = list[int]()
    answer = desk.ask(priced.asked.text, MOST_ROWS, priced.prices.ceilings(), typed=True, entries=entries)
    if not entries:  # another call of this principal has paid for it meanwhile
        return _with_bars(desk, priced, answer, STORED)
    shown = {**_with_bars(desk, priced, answer, CHARGED), "charged": True, "per_cent": part}
    return {**shown, "budget": budgets_of(desk, _tables(priced))}


def budgets_of(desk: Desk, tables: Set[str]) -> list[Json]:
    """Returns the rest of some tables' budgets, in per cent, in all and on this day in UTC."""
    return [
        _budget(row)
        for row in desk.ask("FROM dp_budget()", MOST_ROWS).dicts()
        if last_name(row["table_name"]) in tables
    ]


def last_name(table: object) -> str:
    """Returns the last part of a table's name, in lower case.

    >>> last_name('clinic.main."Visits"')
    'visits'
    """
    return fold(str(table).rpartition(".")[2].strip('"'))


def _tables(priced: PricedQuestion) -> set[str]:
    return {last_name(row.plan["table_name"]) for row in priced.prices.statements if row.plan is not None}


def _budget(row: Mapping[str, Any]) -> Json:
    whole = row["budget"] or 0.0
    shown: Json = {
        "table_name": json_value(row["table_name"]),
        "left_percent": _part(row["remaining"], whole),
        "measure": row["measure"],
        "left": row["remaining"],
    }
    if row["period"] is not None:
        shown["period"] = json_value(row["period"])
    shown["per_cent_of"] = ALL if row["share"] is None else SHARE
    if row["a_day"] is not None:
        daily = min(100.0, _part(row["a_day"], row["share"] or 1.0))
        shown |= {"a_day_percent": daily, "left_today_percent": _part(row["left_today"], whole)}
    if row["epsilon_left"] is not None:
        shown["largest_epsilon"] = row["epsilon_left"]
    return shown


def _part(amount: float | None, whole: float) -> float:
    return float(f"{100 * (amount or 0.0) / whole:.4g}") if whole else 0.0


def _ask_released(desk: Desk, asked: PageStatement, most: int) -> PageAnswer:
    """Returns rows of a statement that charges nothing. Names the form for agents if nothing released answers it."""
    try:
        return desk.ask(asked.text, most, typed=True)
    except DpduckError as refused:
        raise _for_agents(refused) from None


def _for_agents(refused: DpduckError) -> DpduckError:
    """Returns a refusal that names the form of a question that `ask` takes, without a price."""
    advice = _IN_DP.fullmatch(str(refused))
    if advice is None:
        return refused
    return Refusal(advice[1], accepted=f"{PAID}{advice[2]} (epsilon = ..){advice[3]}")


def _answer_of_released(desk: Desk, asked: PageStatement) -> Json:
    answer = _ask_released(desk, asked, MOST_ROWS)
    note = {} if any(map(_SHOWN_ERRORS.search, answer.columns)) else {"errors_note": NO_ERRORS}
    return {**_answer(answer, READ), **note}


def _answer_again(desk: Desk, priced: PricedQuestion) -> Json:
    answer = desk.ask(priced.asked.text, MOST_ROWS, typed=True)
    return _with_bars(desk, priced, answer, STORED)


def _answer_from_releases(desk: Desk, priced: PricedQuestion) -> PageAnswer | None:
    """Returns what earlier releases say, with its errors, or None if they do not determine it."""
    (_, statement), *others = priced.asked.charging
    plain = None if others or not _is_alone(priced.asked) else plain_select(statement)
    if plain is None:
        return None
    try:
        return desk.ask(f"FROM dp_known({quote_text(plain)})", MOST_ROWS)
    except DpduckError:
        return None


def _is_alone(asked: PageStatement) -> bool:
    """Tells whether a statement is a question alone, and no part of a larger query."""
    return read_bare(asked.text) is not None


def _with_bars(desk: Desk, priced: PricedQuestion, answer: PageAnswer, why: str) -> Json:
    """Returns an answer with standard errors: in its rows if it can be, and otherwise as they were expected."""
    (_, statement), *_ = priced.asked.charging
    more = with_errors(statement, answer.columns) if _is_alone(priced.asked) else None
    if more is not None:
        try:
            answer = desk.ask(f"FROM dp({quote_text(more)})", MOST_ROWS)
        except DpduckError:
            more = None
    shown = _answer(answer, why)
    if more is None and not any(map(_SHOWN_ERRORS.search, answer.columns)):
        shown["expected_errors"] = _predict_errors(desk, priced)
    return shown


def _answer(answer: PageAnswer, why: str) -> Json:
    return {"charged": False, "why": why, **rows_of(answer)}


def _predict_errors(desk: Desk, priced: PricedQuestion) -> list[Json]:
    return [line for row in priced.prices.statements for line in _errors(desk.with_errors(row))]


def _errors(priced: Priced) -> list[Json]:
    return [] if priced.errors is None else records_of(priced.errors.dicts(), _ERRORS)


def _price_of(priced: Priced) -> Json:
    plan: Mapping[str, Any] = priced.plan or {}
    names = ("table_name", "price", "epsilon", "rho", "delta", "fits", "times_left", "note")
    described = {name: json_value(plan[name]) for name in names if plan.get(name) is not None}
    texts: Sequence[tuple[str, str]] = (("advice", priced.note), ("other_prices", priced.other_prices))
    return {
        **described,
        "per_cent": per_cent_of(priced.plan),
        "expected_errors": _errors(priced),
        **{name: one_line(text) for name, text in texts if text},
    }
