"""Forecast of a statement's errors and price before any charge, from policies, budgets and plans alone."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dpduck.database.progress import Progress
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.language.select.request import SelectRequest
from dpduck.language.select.usual_norms import could_find_norms
from dpduck.mechanisms.forecast import Forecast, charge_price, errors_sql, noise_warning, times_as_large, worst_of
from dpduck.mechanisms.mechanism import Mechanism
from dpduck.mechanisms.registry import explain_question
from dpduck.mechanisms.release import Steps
from dpduck.store.policies import PolicyStore
from dpduck.values.errors import Refusal

MOST_SECONDS = 2.0
"""Longest expected time of an answer for which a cheaper form is planned, too. It is told without its errors above."""


@dataclass(frozen=True)
class Foresight:
    """Answers to dp_explain and dp_errors. progress: the progress line in a person's terminal or notebook, if any."""

    policies: PolicyStore
    ledger: Ledger
    steps: Steps
    progress: Progress | None

    def forecasts(self, question: Any, share: Fraction | None) -> list[Forecast]:
        """Returns the ways to answer a question. share: the caller's part of the budget, None for the whole budget."""
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

        return charge_price(ways, request, explanation.asks, budget, share, times)

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
        for word in filter(None, words):
            if self.progress is not None:
                self.progress.say(word)
            self.steps(word)

    def _expect_rows(self, request: SelectRequest) -> int | None:
        policy = self.policies.now().policies.get(request.rows.table.sql)
        return None if policy is None else policy.expect_rows
