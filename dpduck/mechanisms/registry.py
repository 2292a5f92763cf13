"""Registry of mechanisms. A new mechanism is a folder beside this file and one line here (see CONTRIBUTING.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dpduck.kernel.price import Ask
from dpduck.language.rows.facts import CatalogColumn
from dpduck.language.select.analyse import Analysis
from dpduck.language.select.request import SelectRequest
from dpduck.language.text.options import Option
from dpduck.mechanisms.answers_sql import empty_release_sql
from dpduck.mechanisms.cubes import CUBES
from dpduck.mechanisms.forecast import AggregateError, Forecast
from dpduck.mechanisms.keys import KEYS
from dpduck.mechanisms.mechanism import Mechanism
from dpduck.mechanisms.norms import NORMS
from dpduck.mechanisms.summaries import SKETCHES, SUMMARIES
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.privacy import Budget

MECHANISMS: tuple[Mechanism[Any, Any, Any], ...] = (SKETCHES, SUMMARIES, KEYS, NORMS, CUBES)
"""Mechanisms of SELECTs. The first that serves a question answers it. CUBES serves every SELECT."""


def of_statements() -> tuple[Mechanism[Any, Any, Any], ...]:
    """Imports the mechanisms with statements of their own. No SELECT needs these."""
    from dpduck.mechanisms.sparse import HISTOGRAMS, PROJECTIONS, SESSIONS  # noqa: PLC0415
    from dpduck.mechanisms.synthetic import SYNTHETIC  # noqa: PLC0415

    return (SYNTHETIC, PROJECTIONS, HISTOGRAMS, SESSIONS)


def own_options() -> tuple[Option, ...]:
    """Lists the options that registered mechanisms add to a SELECT."""
    return tuple(option for mechanism in MECHANISMS for option in mechanism.options)


def mechanism_of(question: object) -> Mechanism[Any, Any, Any]:
    """Returns the mechanism of a request, of a synthetic table or of sparse queries."""
    for mechanism in MECHANISMS if isinstance(question, SelectRequest) else of_statements():
        if mechanism.serves(question):
            given = question.question.own if isinstance(question, SelectRequest) else ()
            for name in dict(given).keys() - {option.name for option in mechanism.options}:
                raise Refusal(f"the option {name} is not for this statement", accepted="the statement without it")
            return mechanism
    raise InternalError("no mechanism serves this question")


def check_sql(analysis: Analysis, mechanism: Mechanism[Any, Any, Any], plan: Any) -> str:
    """Returns the whole statement as SQL over a release without rows. Errors of binding then show before the charge."""
    columns = [CatalogColumn(name, type_name) for name, type_name in mechanism.columns(plan)]
    return empty_release_sql(columns, mechanism.header(plan).laws, analysis)


@dataclass(frozen=True)
class Explained:
    """Explanation of a question: the ways to answer it, the chosen way first. Without a fitting plan, request is None.

    errors: the error of each aggregate, given EXPECT ROWS, empty if the mechanism does not predict errors.
    advice: the changes that would help most, given the budget as well.
    """

    forecasts: Sequence[Forecast]
    request: SelectRequest | None = None
    asks: Sequence[Ask[Any]] = ()
    errors: Callable[[int | None], Sequence[AggregateError]] = lambda expect_rows: ()
    advice: Callable[[Budget | None, int | None], str] = lambda budget, expect_rows: ""


def explain_question(question: object) -> Explained:
    """Explains the answers that a question would have. It spends nothing and opens no private row."""
    mechanism = mechanism_of(question)
    try:
        plan = mechanism.plan(question)
    except Refusal:
        if mechanism.unplanned is None:
            raise
        return Explained(mechanism.unplanned(question))
    explanation = Explained(mechanism.describe(question, plan), plan.request, mechanism.asks(plan))
    if mechanism.errors is not None:
        explanation = replace(explanation, errors=partial(mechanism.errors, plan))
    return explanation if mechanism.advise is None else replace(explanation, advice=partial(mechanism.advise, plan))
