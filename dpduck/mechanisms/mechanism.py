"""The interface of a mechanism: a folder has one value of this kind, and registry.py one line that names it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import duckdb

from dpduck.database.sandbox import Sandbox
from dpduck.frontend.select.request import Request
from dpduck.frontend.text.options import Option
from dpduck.mechanisms.prices import AggregateError
from dpduck.mechanisms.release import Planned, ReleasedTable, ReleaseHeader, Steps
from dpduck.trusted.ask import Ask
from dpduck.trusted.ledger.secrets import Secrets
from dpduck.trusted.private.door import Door
from dpduck.values.privacy import Budget

Columns = Sequence[tuple[str, str]]


class Proposal(Protocol):
    """A plan of any mechanism. request: what is asked of which rows, at the price that planning has found."""

    @property
    def request(self) -> Request: ...


Q = TypeVar("Q")
P = TypeVar("P", bound=Proposal)
N = TypeVar("N")


L = TypeVar("L")


@dataclass(frozen=True)
class OneAsk(Generic[L, N]):
    """A proposal that measures one thing. plan: the mechanism's own figures."""

    request: Request
    plan: L
    ask: Ask[N]


@dataclass(frozen=True)
class Tools:
    """What a release may use beside its door. box: the sandbox of the statement. steps: see release.Releaser."""

    box: Sandbox
    secrets: Secrets
    steps: Steps


@dataclass(frozen=True)
class Mechanism(Generic[Q, P, N]):
    """One way of answering, as functions from a question (Q) to a plan (P), noisy numbers (N) and a released table.

    name: for people. serves: whether a question is this mechanism's.
    plan: from public numbers alone; it may propose any noise, and refuses what it cannot serve. asks: what will leave;
    trusted code prices it. header: what else is public before anything is counted.
    measure: the only step with a door. recover: what follows from the noisy numbers; it costs nothing.
    describe: dp_explain of a question and its plan. unplanned: the same where no plan meets what is asked.
    columns: names and types of the released table, by which SQL around it is bound before the charge.
    seconds: a guess of how long what follows planning takes, from public facts alone.
    errors: how far each aggregate is off, given EXPECT ROWS. advise: what would help most, given the budget as well.
    warn: tells before the charge what an answer will not show, or why a plan may not be worth its price, given EXPECT
    ROWS; it refuses an answer that can have no rows, and says nothing where there is nothing to say.
    options: those that it adds to the clause of a SELECT; Question.own has what a statement says of them.
    """

    name: str
    serves: Callable[[Any], bool]
    plan: Callable[[Q], P]
    asks: Callable[[P], Sequence[Ask[Any]]]
    header: Callable[[P], ReleaseHeader]
    measure: Callable[[P, Door, Tools], N]
    recover: Callable[[P, N, Tools], ReleasedTable]
    describe: Callable[[Q, P], str]
    columns: Callable[[P], Columns]
    unplanned: Callable[[Q], str] | None = None
    seconds: Callable[[P], float | None] | None = None
    errors: Callable[[P, int | None], Sequence[AggregateError]] | None = None
    advise: Callable[[P, Budget | None, int | None], str] | None = None
    warn: Callable[[P, int | None], str] | None = None
    options: tuple[Option, ...] = ()

    def planned(
        self,
        question: Q,
        recheck: Callable[[duckdb.DuckDBPyConnection, P], None],
        tools: Tools,
        foreseen: Callable[[P], None] = lambda plan: None,
    ) -> Planned:
        """Returns the release of a question. recheck: the last look at public facts, in the transaction that will
        count.

        foreseen: is shown the plan, before anything is charged.
        """
        plan = self.plan(question)
        foreseen(plan)
        asks = self.asks(plan)
        return Planned(
            self.header(plan),
            asks,
            lambda cursor: recheck(cursor, plan),
            lambda door: self.recover(plan, self.measure(plan, door, tools), tools),
        )


def answer_of(proposal: OneAsk[Any, N], door: Door, tools: Tools) -> N:
    """Measures a proposal of one ask."""
    return door.answer(proposal.ask)
