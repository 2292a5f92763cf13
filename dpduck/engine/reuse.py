"""Statements with reuse = TRUE: what they measure is combined with what is known, and the answer is stored.

The release is that of the same statement without the option, at the same price. Beside it lies the answer of each who
asks: it rests on what they may read, and never changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import pyarrow as pa

from dpduck.database.cursors import Caller, SandboxAnswers
from dpduck.database.measured import Kept
from dpduck.database.releases import StoredRelease
from dpduck.database.sandbox import Sandbox
from dpduck.frontend.rows.facts import Column
from dpduck.frontend.select.known import KnownQuestion
from dpduck.frontend.select.request import Request, Target
from dpduck.frontend.text.names import highs_column, lows_column, quote_text
from dpduck.mechanisms.answers_sql import empty_release_sql
from dpduck.mechanisms.cubes.measure import blank_measured, propose_cube
from dpduck.mechanisms.cubes.plan import planned
from dpduck.mechanisms.known.answer import Answer, answers_of
from dpduck.mechanisms.released_rows import AnswerColumn, released_columns, released_rows
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Charge

PLANNED = "planned"
STEPS = 1024
"""Of the price of a target alone: how finely the price of what is missing is looked for."""

NOT_KEPT = "what this statement measures is not kept, or cannot be combined"
WITHOUT = "the same statement without reuse"


@dataclass(frozen=True, eq=False)
class Reuse:
    """A question with what its reader knows already. moment: of the rows of now."""

    question: KnownQuestion
    kept: Sequence[Kept]
    moment: str

    def require_one_moment(self) -> None:
        """Refuses rows that may change between two releases: nothing is combined then."""
        if not self.moment:
            raise Refusal(
                "reuse combines releases of rows that cannot change meanwhile",
                accepted=f"ALTER PRIVACY POLICY .. PREPARE, a database that is opened for reading, or {WITHOUT}",
            )

    def predicted(self, request: Request) -> tuple[float, float]:
        """Returns the largest standard error of a request's answers by itself, and together with what is known."""
        blank = blank_measured(propose_cube(request))
        if blank is None:
            raise Refusal(NOT_KEPT, accepted=WITHOUT)
        own = Kept(PLANNED, "", self.moment, blank)
        return self._worst([own]), self._worst([*self.kept, own])

    def _worst(self, kept: Sequence[Kept]) -> float:
        answers = answers_of(self.question, kept, SandboxAnswers(4), self.moment, PLANNED)
        found = [float(one.stderrs.max()) for one in answers if one is not None]
        if len(found) < len(answers):
            raise Refusal(NOT_KEPT, accepted=WITHOUT)
        return max(found)

    def at_target(self, request: Request) -> Request:
        """Returns the request at the smallest price that reaches its target together with what is known."""
        target = request.price.target
        if target is None:
            return request
        alone = planned(request).request.price.charge
        whole = alone.rho if alone.epsilon is None else alone.epsilon
        if self._reaches(request, target, whole * Fraction(1, STEPS)):
            raise Refusal(
                f"a standard error of {float(target.stderr):g} is known already, or nearly",
                accepted=f"FROM dp_known('SELECT ..'), which is free, or {WITHOUT}",
            )
        low, high = 1, STEPS
        while high - low > 1:
            middle = (low + high) // 2
            if self._reaches(request, target, whole * Fraction(middle, STEPS)):
                high = middle
            else:
                low = middle
        return _at(request, target, max(target.least, whole * Fraction(high, STEPS)))

    def _reaches(self, request: Request, target: Target, amount: Fraction) -> bool:
        return self.predicted(_at(request, target, amount))[1] <= float(target.stderr)


def _at(request: Request, target: Target, amount: Fraction) -> Request:
    """Returns a request at a price in place of its target."""
    price = replace(request.price, target=None, charge=Charge.concentrated(amount))
    if target.pure:
        price = replace(price, charge=Charge.pure(amount), stated_epsilon=amount)
    return replace(request, price=price)


def reuse_digest(request: Request, caller: Caller) -> str:
    """Names the answer of one who asks."""
    facts = ["reuse", request.digest(), caller.owner, caller.name]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def reuse_columns(request: Request) -> tuple[tuple[str, str], ...]:
    """Returns the columns of the stored answer: those of a release, with the ends of all intervals."""
    plain = [one for one in released_columns(request, [False] * len(request.question.aggregates)) if "[]" not in one[1]]
    for number in range(len(request.question.aggregates)):
        plain += [(lows_column(number), "DOUBLE[]"), (highs_column(number), "DOUBLE[]")]
    return tuple(plain)


def nothing_sql(question: KnownQuestion) -> str:
    """Returns the whole statement over an answer without rows."""
    request = question.analysis.request
    columns = [Column(name, type_name) for name, type_name in reuse_columns(request)]
    return empty_release_sql(columns, ((),) * len(request.question.aggregates), question.analysis)


def reused(
    reuse: Reuse, release: StoredRelease, own: Kept | None, box: Sandbox
) -> tuple[list[Answer], tuple[tuple[str, str], ...], pa.Table]:
    """Returns the answers about the rows that a release counted, from all that is known, as columns and rows to be
    stored.
    """
    kept = [*(one for one in reuse.kept if one.name != release.name), *([] if own is None else [own])]
    found = answers_of(reuse.question, kept, SandboxAnswers(4), reuse.moment, release.name)
    answers = [one for one in found if one is not None]
    if own is None or len(answers) < len(found):
        raise Refusal(NOT_KEPT, accepted=f"{WITHOUT}, which is free by now")
    request = reuse.question.analysis.request
    shown = [AnswerColumn(one.estimates, one.stderrs, *one.ends()) for one in answers]
    columns = reuse_columns(request)
    rows = released_rows(request, shown, [False] * len(shown), box)
    return answers, columns, rows.select([name for name, _ in columns])


def explained_sql(sql: str, alone: float, together: float) -> str:
    """dp_explain with the largest standard errors of the chosen plan's answers, without what is known and with it."""
    shown = [
        f"CASE WHEN chosen THEN CAST({quote_text(repr(error))} AS DOUBLE) END AS {name}"
        for name, error in (("stderr_alone", alone), ("stderr_with_known", together))
    ]
    return f"SELECT *, {', '.join(shown)} FROM ({sql}) AS reusing"
