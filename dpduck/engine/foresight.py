"""Forecast of a statement's errors and price before any charge, from policies, budgets and plans alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpduck.engine.progress import Progress
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.mechanism import Mechanism
from dpduck.mechanisms.prices import add_price, errors_listing, noise_warning, worst_of
from dpduck.mechanisms.registry import explain_question
from dpduck.mechanisms.release import Steps
from dpduck.store.policies import PolicyStore
from dpduck.values.errors import Refusal


@dataclass(frozen=True)
class Foresight:
    """Answers to dp_explain and dp_errors. progress: the line that a person at a terminal or notebook sees."""

    policies: PolicyStore
    ledger: Ledger
    steps: Steps
    progress: Progress | None

    def explained(self, question: Any) -> str:
        """Returns SQL with the comparison of strategies, the price of the chosen strategy, and advice."""
        explanation = explain_question(question)
        if explanation.request is None:
            return explanation.sql
        budget, expected = self.ledger.budget(explanation.request.rows.unit_key), self._expect_rows(explanation.request)
        worst = worst_of(explanation.errors(expected))
        words = (
            noise_warning(_has_only_counts(explanation.request), worst, expected),
            explanation.advice(budget, expected),
        )
        own = expected if worst is None and isinstance(question, SelectRequest) and _has_only_counts(question) else None
        return add_price(explanation.sql, explanation.request, explanation.asks, budget, worst, words, own)

    def errors(self, question: Any) -> str:
        """Returns SQL with a row of errors for each aggregate."""
        explanation = explain_question(question)
        lines = [] if explanation.request is None else explanation.errors(self._expect_rows(explanation.request))
        if not lines:
            raise Refusal("this statement has no errors by aggregate", accepted="dp_explain of it")
        return errors_listing(lines)

    def rank_error(self, question: Any) -> float | None:
        """Returns the standard error of the rank of a statement's first quantile. None if it has no quantile."""
        ranks = [line.rank for line in explain_question(question).errors(None) if line.rank is not None]
        return ranks[0] if ranks else None

    def expect(self, seconds: float | None, *, counted: bool = True) -> None:
        """Sets the expected time of the present work on the progress line. counted: see Progress.expect."""
        if self.progress is not None:
            self.progress.expect(seconds, counted=counted)

    def say(self, mechanism: Mechanism[Any, Any, Any], plan: Any) -> None:
        """Announces the expected time before a charge, and warns, for example of answers that the noise will drown."""
        self.expect(None if mechanism.seconds is None else mechanism.seconds(plan), counted=False)
        expected = self._expect_rows(plan.request)
        words = ["" if mechanism.warn is None else mechanism.warn(plan, expected)]
        if mechanism.errors is not None and expected is not None and _has_only_counts(plan.request):
            words.append(noise_warning(True, worst_of(mechanism.errors(plan, expected)), expected))
        for word in filter(None, words):
            if self.progress is not None:
                self.progress.say(word)
            self.steps(word)

    def _expect_rows(self, request: SelectRequest) -> int | None:
        """Returns EXPECT ROWS of the policy, if there is one."""
        policy = self.policies.now().policies.get(request.rows.table.sql)
        return None if policy is None else policy.expect_rows


def _has_only_counts(request: SelectRequest) -> bool:
    """Tells whether all aggregates are counts."""
    return all(aggregate.function == "count" for aggregate in request.question.aggregates)
