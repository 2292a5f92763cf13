"""Words of the report and of the web page: how to read numbers, their cost, and a budget's promise to one person."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from dpduck.values.odds import BLIND, best_guess, best_guess_rho, guesses_of_100, times_of_100

ABOUT = (
    "Noise was added to every number here, on purpose. It hides whether any one of those who are protected is in the "
    "data. The budget says how well."
)
HOW_TO_READ = (
    "A number is near the truth, and is not the truth itself. Its error bar shows how near: about 19 of 20 error bars "
    "hold the true number.",
    "Where error bars overlap, the difference may be noise. Compare the bars before you compare the numbers.",
    "A small count can come out below zero. Read it as few or none.",
    "In a table, “all” is a total, and “NULL” is the group without a value. Parts need not add up to their "
    "total exactly.",
)
_UNIT = re.compile(r"(?:all rows of one (?P<column>\([^)]*\)|[^:]*?)|one row)(?: of one \w+ of [^:]*)?:")


def right_guesses(epsilon: float, delta: float = 0.0) -> int:
    """Returns the most right guesses of 100 about whether somebody is in the data, if both answers are equally likely.

    >>> [right_guesses(epsilon) for epsilon in (0.0, 0.1, 1.0, 3.0)], right_guesses(1.0, 1e-6)
    ([50, 53, 74, 96], 74)
    """
    return guesses_of_100(best_guess(epsilon, delta))


def right_guesses_rho(rho: float, delta: float = 0.0) -> int:
    """Returns the most right guesses of 100 for rho-zCDP. delta: the delta of selected keys.

    >>> right_guesses_rho(0.0), right_guesses_rho(0.005), right_guesses_rho(10.0)
    (50, 53, 100)
    """
    return guesses_of_100(best_guess_rho(rho, delta))


def unit_of(guarantee: str) -> str:
    """Returns the privacy unit as the guarantee of a policy names it, for a sentence.

    >>> unit_of("all rows of one patient: epsilon = 10, over all statements"), unit_of("one row: rho = 1, over ..")
    ('one patient', 'one row')
    """
    match = _UNIT.match(guarantee)
    column = None if match is None else match["column"]
    return "one row" if column is None else f"one {column.strip('()')}"


@dataclass(frozen=True)
class Cost:
    """The cost of all releases about one table, with its budget. spent, budget: amounts by measure, such as epsilon."""

    table: str
    period: str
    unit: str
    spent: Mapping[str, float]
    budget: Mapping[str, float]
    share: float | None = None

    @property
    def part(self) -> float:
        """Returns the spent part of the budget, in the measure with the largest spent part."""
        return max((self.spent[measure] / whole for measure, whole in self.budget.items() if whole), default=0.0)

    @property
    def whole(self) -> dict[str, float]:
        """Returns the whole budget. `budget` may be one principal's share of it."""
        return {measure: amount / (self.share or 1.0) for measure, amount in self.budget.items()}


def guesses(amounts: Mapping[str, Any]) -> int:
    """Returns the most right guesses of 100 about one unit, at these amounts of epsilon, rho and delta."""
    delta = float(amounts.get("delta") or 0.0)
    if amounts.get("epsilon") is None:
        return right_guesses_rho(float(amounts.get("rho") or 0.0), delta)
    return right_guesses(float(amounts["epsilon"]), delta)


def costs(budgets: Sequence[Mapping[str, Any]], policies: Sequence[Mapping[str, Any]]) -> list[Cost]:
    """Returns the cost for each table of dp_budget, with its unit from dp_policies."""
    units = {str(row["table_name"]).rpartition(".")[2]: unit_of(str(row["guarantee"])) for row in policies}
    result: dict[tuple[str, str], Cost] = {}
    for row in budgets:
        if row["budget"] is None or row["spent"] is None:
            continue
        table, period = str(row["table_name"]), str(row.get("period") or "")
        unit = units.get(table.rpartition(".")[2], "one of them")
        cost = result.setdefault((table, period), Cost(table, period, unit, {}, {}, row.get("share")))
        spent, budget = ({**amounts, str(row["measure"]): float(row[column])}
                         for amounts, column in ((cost.spent, "spent"), (cost.budget, "budget")))  # fmt: skip
        result[table, period] = Cost(table, period, unit, spent, budget, row.get("share"))
    return list(result.values())


def spent_sentences(cost: Cost) -> list[str]:
    """Says which part of a budget is spent, and how much all releases together reveal about one unit."""
    now, most = guesses(cost.spent), guesses(cost.budget)
    sentences = [
        f"{percent(cost.part)} of the budget is spent.",
        f"Suppose somebody guesses whether {cost.unit} is in the data. A blind guess is right {BLIND} of 100 times.",
        f"With all numbers that were paid for, a guess is right {times_of_100(now)}.",
    ]
    return (
        sentences if most == now else [*sentences, f"Once the whole budget is spent, it is right {times_of_100(most)}."]
    )


def promise_sentences(cost: Cost) -> list[str]:
    """Says what a whole budget promises to one unit."""
    return [
        f"Suppose somebody guesses whether {cost.unit} is in {cost.table}.",
        f"A blind guess is right {BLIND} of 100 times.",
        f"With everything that the whole budget can buy, a guess is right {times_of_100(guesses(cost.whole))}.",
    ]


def percent(part: float) -> str:
    """Returns a part as a percentage, rounded up, so that no cost looks smaller than it is.

    >>> percent(0.0), percent(0.004), percent(0.2), percent(1.0)
    ('0%', '1%', '20%', '100%')
    """
    return f"{ceil(100 * part - 1e-9)}%"


def number_text(value: float) -> str:
    """Returns a number with three digits, or all digits before the point if there are more.

    >>> [number_text(value) for value in (34.15927, 4.89896, 12_345.6, 0.00123456, -0.5, 3.0)]
    ['34.2', '4.9', '12,346', '0.00123', '-0.5', '3']
    """
    return f"{value:,.0f}" if 100 <= abs(value) < 1e15 else f"{value:,.3g}"
