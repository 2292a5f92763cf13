"""Interface of a mechanism. A folder has a value of this class, and registry.py has one line that names it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import duckdb

from dpduck.kernel.door import Door
from dpduck.kernel.ledger.secrets import Secrets
from dpduck.kernel.price import Ask
from dpduck.language.select.request import SelectRequest
from dpduck.language.text.options import Option
from dpduck.mechanisms.forecast import AggregateError, Forecast
from dpduck.mechanisms.release import ReleasedTable, ReleaseHeader, ReleasePlan, Steps
from dpduck.store.sandbox import Sandbox
from dpduck.values.privacy import Budget

Columns = Sequence[tuple[str, str]]


class Proposal(Protocol):
    """Plan of any mechanism. request: the question and its rows, at the price that planning has set."""

    @property
    def request(self) -> SelectRequest: ...


Q = TypeVar("Q")
P = TypeVar("P", bound=Proposal)
N = TypeVar("N")


L = TypeVar("L")


@dataclass(frozen=True)
class OneAsk(Generic[L, N]):
    """Proposal with a single ask. plan: the mechanism's own figures."""

    request: SelectRequest
    plan: L
    ask: Ask[N]


@dataclass(frozen=True)
class Tools:
    """Tools of a release beside its door. box: the sandbox of the statement. steps: see release.Releaser."""

    box: Sandbox
    secrets: Secrets
    steps: Steps


@dataclass(frozen=True)
class Mechanism(Generic[Q, P, N]):
    """One way to answer a question (Q): functions that lead to a plan (P), noisy numbers (N) and a released table.

    plan: uses public numbers alone. It may propose any noise, and refuses a question that it cannot serve.
    asks: all queries that will have noisy answers. Trusted code computes their price.
    header: the other facts that are public before anything is counted.
    measure: gets the noisy numbers through the door. No other step has a door.
    recover: the results that follow from the noisy numbers. This step costs nothing.
    describe: the ways to answer a question, the plan's way first.
    unplanned: the ways that dp_explain lists if no plan meets the request.
    columns: names and types of the released table. SQL around the table is bound to these before the charge.
    seconds: an estimate of the time that all steps after planning take, from public facts alone.
    errors, advise: the error of each aggregate, and the changes that would help most, given EXPECT ROWS.
    warn: a warning before the charge, given EXPECT ROWS, or "". It refuses an answer that can have no rows.
    options: the options that it adds to the clause of a SELECT. Question.own has their values in a statement.
    """

    name: str
    serves: Callable[[Any], bool]
    plan: Callable[[Q], P]
    asks: Callable[[P], Sequence[Ask[Any]]]
    header: Callable[[P], ReleaseHeader]
    measure: Callable[[P, Door, Tools], N]
    recover: Callable[[P, N, Tools], ReleasedTable]
    describe: Callable[[Q, P], Sequence[Forecast]]
    columns: Callable[[P], Columns]
    unplanned: Callable[[Q], Sequence[Forecast]] | None = None
    seconds: Callable[[P], float | None] | None = None
    errors: Callable[[P, int | None], Sequence[AggregateError]] | None = None
    advise: Callable[[P, Budget | None, int | None], str] | None = None
    warn: Callable[[P, int | None], str] | None = None
    options: tuple[Option, ...] = ()

    def plan_release(
        self,
        question: Q,
        recheck: Callable[[duckdb.DuckDBPyConnection, P], None],
        tools: Tools,
        foreseen: Callable[[P], None] = lambda plan: None,
    ) -> ReleasePlan:
        """Plans the release of a question. recheck: checks public facts once more, just before the count."""
        plan = self.plan(question)
        foreseen(plan)
        asks = self.asks(plan)
        return ReleasePlan(
            self.header(plan),
            asks,
            lambda cursor: recheck(cursor, plan),
            lambda door: self.recover(plan, self.measure(plan, door, tools), tools),
        )


def answer_of(proposal: OneAsk[Any, N], door: Door, tools: Tools) -> N:
    """Returns the noisy answer to a proposal's only ask."""
    return door.answer(proposal.ask)
