"""Forecast of a statement's errors and price before any charge, from policies, budgets and plans alone."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from dpduck.database.progress import Progress
from dpduck.kernel.door import compute_charge
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.language.select.request import SelectRequest
from dpduck.language.select.usual_norms import could_find_norms
from dpduck.mechanisms.forecast import Forecast, charge_price, errors_sql, noise_warning, times_as_large, worst_of
from dpduck.mechanisms.mechanism import Mechanism
from dpduck.mechanisms.other_prices import other_prices, times_left
from dpduck.mechanisms.registry import explain_question
from dpduck.mechanisms.release import Steps
from dpduck.store.cursors import Caller
from dpduck.store.policies import PolicyStore
from dpduck.store.spending import warn_of_budget
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Charge

MOST_SECONDS = 2.0
"""Longest expected time of an answer for which a cheaper form is planned, too. It is told without its errors above."""


@dataclass(frozen=True)
class Foresight:
    """Answers to dp_explain and dp_errors. progress: the progress line in a person's terminal or notebook, if any."""

    policies: PolicyStore
    ledger: Ledger
    steps: Steps
    progress: Progress | None

    def forecasts(self, question: Any, caller: Caller) -> list[Forecast]:
        """Returns the ways to answer a question, with prices for the caller."""
        explanation = explain_question(question)
        request = explanation.request
        if request is None:
            return list(explanation.forecasts)
        budget, expected = self.ledger.budget(request.rows.unit_key), self._expect_rows(request)
        lines, ways = explanation.errors(expected), list[Forecast]()
        worst = worst_of(lines)
        for way in explanation.forecasts:
            stderr = worst if way.stderr is None and way.chosen else way.stderr
            warning = noise_warning(request, stderr, expected) if isinstance(question, SelectRequest) else ""
            advice = explanation.advice(budget, expected) if way.chosen else ""
            ways.append(replace(way, stderr=stderr).with_notes(warning, advice))
        seconds = next((way.seconds for way in ways if way.chosen), None)

        def times(other: SelectRequest) -> float | None:
            if not lines or seconds is None or seconds > MOST_SECONDS or could_find_norms(other):
                return None
            with suppress(Refusal):
                return times_as_large(lines, explain_question(other).errors(expected))
            return None

        priced = charge_price(ways, request, explanation.asks, budget, caller.share, times)
        charge = compute_charge(request.price.charge, explanation.asks, request.price.least_rho)
        left = times_left(request, charge, self.ledger, caller)
        quick = isinstance(question, SelectRequest) and (seconds or 0) <= MOST_SECONDS
        said = self.other_prices(request, charge, quick, caller)
        return [replace(way, times_left=left, other_prices=said) if way.chosen else way for way in priced]

    def other_prices(self, request: SelectRequest, charge: Charge, quick: bool, caller: Caller) -> str | None:
        """Returns half to four times a price in words. quick: whether other prices of the request may be planned."""
        budget = self.ledger.budget(request.rows.unit_key)

        def charge_of(other: SelectRequest) -> Charge | None:
            price = other.price
            if price.charge.epsilon is None or (budget is not None and budget.pure):
                return price.charge  # the budget adds up what the statement says
            if not quick:
                return None
            with suppress(Refusal):
                details = explain_question(other)
                return compute_charge(price.charge, details.asks, price.least_rho)
            return None

        policy = self.policies.now().policies.get(request.rows.table.sql)
        return other_prices(request, charge, charge_of, policy, self.ledger, caller)

    def errors(self, question: Any) -> str:
        explanation = explain_question(question)
        lines = [] if explanation.request is None else explanation.errors(self._expect_rows(explanation.request))
        if not lines:
            raise Refusal("this statement has no errors by aggregate", accepted="dp_explain of it")
        return errors_sql(lines)

    def rank_error(self, question: Any) -> float | None:
        """Returns the standard error of the rank of a statement's first quantile, None without a quantile."""
        ranks = [line.rank for line in explain_question(question).errors(None) if line.rank is not None]
        return ranks[0] if ranks else None

    def expect(self, seconds: float | None, *, counted: bool = True) -> None:
        if self.progress is not None:
            self.progress.expect(seconds, counted=counted)

    def say(self, mechanism: Mechanism[Any, Any, Any], plan: Any) -> None:
        """Announces the expected time before a charge, and warns, for example if the noise would hide the answers."""
        self.expect(None if mechanism.seconds is None else mechanism.seconds(plan), counted=False)
        expected = self._expect_rows(plan.request)
        words = ["" if mechanism.warn is None else mechanism.warn(plan, expected)]
        if mechanism.errors is not None and expected is not None:
            words.append(noise_warning(plan.request, worst_of(mechanism.errors(plan, expected)), expected))
        charge = compute_charge(plan.request.price.charge, mechanism.asks(plan), plan.request.price.least_rho)
        rows = plan.request.rows
        run = None if rows.periods is None else rows.periods.periods
        words.append(warn_of_budget(self.ledger, rows.unit_key, run, charge))
        for word in filter(None, words):
            if self.progress is not None:
                self.progress.say(word)
            self.steps(word)

    def _expect_rows(self, request: SelectRequest) -> int | None:
        policy = self.policies.now().policies.get(request.rows.table.sql)
        return None if policy is None else policy.expect_rows
