"""Errors and prices of statements, told before anything is charged: from policies, budgets and plans alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpduck.engine.progress import Progress
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.language.select.request import Request
from dpduck.mechanisms.mechanism import Mechanism
from dpduck.mechanisms.prices import drowned, errors_listing, priced, worst_of
from dpduck.mechanisms.registry import explained
from dpduck.mechanisms.release import Steps
from dpduck.store.policies import PolicyStore
from dpduck.values.errors import Refusal


@dataclass(frozen=True)
class Foresight:
    """Answers dp_explain and dp_errors. progress: where whoever sits at a terminal or notebook is told."""

    policies: PolicyStore
    ledger: Ledger
    steps: Steps
    progress: Progress | None

    def explained(self, question: Any) -> str:
        """Returns SQL with the comparison of strategies, what the chosen one costs and what would help."""
        told = explained(question)
        if told.request is None:
            return told.sql
        budget, expected = self.ledger.budget(told.request.rows.unit_key), self._expected(told.request)
        worst = worst_of(told.errors(expected))
        words = (drowned(_counted(told.request), worst, expected), told.advice(budget, expected))
        own = expected if worst is None and isinstance(question, Request) and _counted(question) else None
        return priced(told.sql, told.request, told.asks, budget, worst, words, own)

    def errors(self, question: Any) -> str:
        """Returns SQL with one line an aggregate."""
        told = explained(question)
        lines = [] if told.request is None else told.errors(self._expected(told.request))
        if not lines:
            raise Refusal("this statement has no errors by aggregate", accepted="dp_explain of it")
        return errors_listing(lines)

    def rank_error(self, question: Any) -> float | None:
        """Returns the standard error of the rank of a statement's first quantile; None where it has none."""
        ranks = [line.rank for line in explained(question).errors(None) if line.rank is not None]
        return ranks[0] if ranks else None

    def expect(self, seconds: float | None, *, counted: bool = True) -> None:
        """Tells whoever sits there how long what is at work will go on. counted: see Progress.expect."""
        if self.progress is not None:
            self.progress.expect(seconds, counted=counted)

    def say(self, mechanism: Mechanism[Any, Any, Any], plan: Any) -> None:
        """Says before a charge how long it will take, and where its noise will drown what it buys."""
        self.expect(None if mechanism.seconds is None else mechanism.seconds(plan), counted=False)
        expected = self._expected(plan.request)
        words = ["" if mechanism.warn is None else mechanism.warn(plan, expected)]
        if mechanism.errors is not None and expected is not None and _counted(plan.request):
            words.append(drowned(True, worst_of(mechanism.errors(plan, expected)), expected))
        for word in filter(None, words):
            if self.progress is not None:
                self.progress.say(word)
            self.steps(word)

    def _expected(self, request: Request) -> int | None:
        """EXPECT ROWS of the policy."""
        policy = self.policies.now().policies.get(request.rows.table.sql)
        return None if policy is None else policy.expect_rows


def _counted(request: Request) -> bool:
    """Tells whether nothing but counts is asked."""
    return all(one.function == "count" for one in request.question.aggregates)
