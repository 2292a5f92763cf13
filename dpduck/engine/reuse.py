"""Statements with reuse = TRUE: what they measure is combined with what is known, and the answer is stored.

The release is that of the same statement without the option, at the same price. Beside it lies the answer of each who
asks: it rests on what they may read, and never changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import ceil

import pyarrow as pa

from dpduck.language.rows.facts import Column
from dpduck.language.select.known import KnownQuestion
from dpduck.language.select.request import Request, Target
from dpduck.language.text.names import highs_column, lows_column
from dpduck.mechanisms.answers_sql import empty_release_sql
from dpduck.mechanisms.cubes.measure import blank_measured, propose_cube
from dpduck.mechanisms.cubes.plan import amount_of, planned, require_within
from dpduck.mechanisms.known.answer import Answer, answers_of
from dpduck.mechanisms.known.given import Given, given_known, priced_at
from dpduck.mechanisms.known.tables import PLANNED
from dpduck.mechanisms.released_rows import AnswerColumn, released_columns, released_rows
from dpduck.store.cursors import Caller, SandboxAnswers
from dpduck.store.measured import Kept
from dpduck.store.releases import StoredRelease
from dpduck.store.sandbox import Sandbox
from dpduck.strategies.budgets import raised, rounded_up
from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_text

STEPS = 1024
"""Of the price of a target alone: how finely the price of what is missing is looked for."""

ALIKE = Fraction(1, 1000)
"""Plans this close, relative to the price or the variance, are alike."""

RAISED = 4
"""How often a price by formula is raised until the combination reaches its target."""

UNLIMITED = 10**6
"""Times the most that a statement may cost: what is known may bring a price down to it."""

NOT_KEPT = "what this statement measures is not kept, or cannot be combined"
WITHOUT = "the same statement without reuse"

At = Callable[[Fraction], Request | None]
"""Requests that differ in their price."""


@dataclass(frozen=True)
class Foreseen:
    """The errors of a combination: largest standard error, summed variance (Answer.spread); and which rows the answers
    are about.
    """

    worst: float
    total: float
    about: tuple[object, ...]


@dataclass(frozen=True)
class Chosen:
    """What will be measured, and the statement as it is written at the same price.

    alone, together: largest standard errors of the statement's answers by itself, and of what is measured with all that
    is known.
    """

    request: Request
    written: Request
    alone: float
    together: float


@dataclass(frozen=True, eq=False)
class Reuse:
    """A question with what its reader knows already. moment: of the rows of now.

    common: what everybody who may ask knows, too. What a price buys is planned by it, so that one statement is one
    release, whoever asks.
    """

    question: KnownQuestion
    kept: Sequence[Kept]
    moment: str
    common: Sequence[Kept]

    def require_one_moment(self) -> None:
        """Refuses rows that may change between two releases: nothing is combined then."""
        if not self.moment:
            raise Refusal(
                "reuse combines releases of rows that cannot change meanwhile",
                accepted=f"ALTER PRIVACY POLICY .. PREPARE, a database that is opened for reading, or {WITHOUT}",
            )

    def chosen(self, request: Request) -> Chosen:
        """Returns what to measure given what is known: at a price what leaves the least error, for a target what
        costs least. Whatever could fail after the charge fails here.
        """
        target = request.price.target
        written, measured = self._at_price(request) if target is None else self._at_target(request, target)
        alone, together = self._foreseen(written, ()), self._foreseen(measured, self.kept)
        if alone is None or together is None:
            raise Refusal(NOT_KEPT, accepted=WITHOUT)
        return Chosen(measured, written, alone.worst, together.worst)

    def _foreseen(self, request: Request, kept: Sequence[Kept]) -> Foreseen | None:
        """Returns the errors of a request's measurements together with others; None where they do not determine the
        answer.
        """
        blank = blank_measured(propose_cube(request))
        if blank is None:
            return None
        return self._errors([*kept, Kept(PLANNED, "", self.moment, blank)], PLANNED)

    def _errors(self, kept: Sequence[Kept], about: str = "") -> Foreseen | None:
        answers = answers_of(self.question, kept, SandboxAnswers(4), self.moment, about)
        found = [one for one in answers if one is not None]
        if len(found) < len(answers):
            return None
        worst = max(float(one.stderrs.max()) for one in found)
        total = sum(one.spread for one in found)
        return Foreseen(worst, total, tuple((one.left_out, one.bounded, one.alone) for one in found))

    def _at_price(self, request: Request) -> tuple[Request, Request]:
        """Returns the request, and what to measure: something else where that helps more."""
        written = self._foreseen(request, self.common)
        if written is None:
            raise Refusal(NOT_KEPT, accepted=WITHOUT)
        amount = amount_of(request)
        given = self._given(request, amount, self.common)
        other = None if given is None else given.at(amount)
        found = None if other is None else self._foreseen(other, self.common)
        if given is None or other is None or found is None or found.about != written.about:
            return request, request
        most = written.total * float(1 + ALIKE if given.finer else 1 - ALIKE)
        return request, other if found.total <= most else request

    def _at_target(self, request: Request, target: Target) -> tuple[Request, Request]:
        """Returns the request at the least price that reaches its target, and what to measure."""
        unlimited = replace(request.price, target=replace(target, limit=target.limit * UNLIMITED))
        whole = amount_of(planned(replace(request, price=unlimited)).request)
        written = partial(priced_at, request)
        first = self._foreseen(written(whole / STEPS), self.kept)
        if first is None:
            raise Refusal(NOT_KEPT, accepted=WITHOUT)
        if first.worst <= float(target.stderr):
            known = self._errors(self.kept)
            if known is not None and known.about == first.about and known.worst <= float(target.stderr):
                raise Refusal(
                    f"a standard error of {float(target.stderr):g} is known already",
                    accepted=f"FROM dp_known('SELECT ..'), which is free, or {WITHOUT}",
                )
            least = written(max(target.least, whole / STEPS))  # nearly
            return least, least
        if (ahead := self._ahead(request, target, whole, first.about)) is not None:
            return written(ahead[1]), ahead[0]
        given, amount = self._by_formula(request, target, whole, first.about)
        steps = STEPS if given is None else int(amount / whole * STEPS * (1 - ALIKE))
        wanted = float(target.stderr) ** -2
        if given is None or (steps > 1 and self._precision(written, whole * steps / STEPS) >= wanted):
            given, amount = None, whole * self._least_step(written, whole, wanted, first.worst**-2, steps) / STEPS
        amount = max(target.least, amount)
        require_within(amount, target)
        other = None if given is None else given.at(amount)
        return written(amount), written(amount) if other is None else other

    def _ahead(
        self, request: Request, target: Target, whole: Fraction, about: tuple[object, ...]
    ) -> tuple[Request, Fraction] | None:
        """Returns marginals that leave the answer's variance smaller by as many times as may be paid ahead, and their
        price; None where nothing is paid ahead, or not enough for that.
        """
        times = self.question.analysis.ahead
        finer = replace(target, stderr=target.stderr / Fraction(float(times) ** 0.5))
        given, amount = self._by_formula(request, finer, whole * times, about) if times > 1 else (None, whole)
        chosen = None if given is None or amount > target.limit else given.at(amount)
        return None if chosen is None else (chosen, amount)

    def _given(self, request: Request, amount: Fraction, kept: Sequence[Kept]) -> Given | None:
        return given_known(self.question, request, kept, SandboxAnswers(4), self.moment, amount)

    def _by_formula(
        self, request: Request, target: Target, whole: Fraction, about: tuple[object, ...]
    ) -> tuple[Given | None, Fraction]:
        """Returns what to measure in place of the request where that costs no more than the price, and its price."""
        given = self._given(request, whole, self.kept)
        if given is None:
            return None, whole
        most = whole * (1 + ALIKE if given.finer else 1 - ALIKE)
        given = given.evened(float(target.stderr), most)
        least = given.least(float(target.stderr), most)
        amount = most if least is None else rounded_up(least)
        for _ in range(RAISED if least is not None else 0):
            other = given.at(amount)
            found = None if other is None else self._foreseen(other, self.kept)
            if found is None or found.about != about or amount > most:
                break
            if found.worst <= float(target.stderr):
                return given, amount
            amount = raised(amount, found.worst / float(target.stderr), given.noise)
        return None, whole

    def _precision(self, at: At, amount: Fraction) -> float:
        """Returns that of the answer's worst cell, 0 where it is not determined."""
        request = at(amount)
        found = None if request is None else self._foreseen(request, self.kept)
        return 0.0 if found is None else found.worst**-2

    def _least_step(self, at: At, whole: Fraction, wanted: float, below: float, high: int) -> int:
        """Returns the least number of steps at which a precision is reached, as it is at `high`. below: that of one.

        Precisions grow nearly in proportion to what is paid, so that the next guess is on the line between two.
        """
        low, above = 1, self._precision(at, whole * high / STEPS)
        while high - low > 1 and above > below:
            guess = low + ceil((wanted - below) / (above - below) * (high - low))
            guess = min(max(guess, low + 1), high - 1)
            found = self._precision(at, whole * guess / STEPS)
            if found < wanted:
                low, below = guess, found
                continue
            high, above = guess, found
            if guess - 1 > low and (found := self._precision(at, whole * (guess - 1) / STEPS)) < wanted:
                return guess
        return high


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


def explained_sql(chosen: Chosen, explained: Callable[[Request], str]) -> str:
    """dp_explain with the largest standard errors of the answers, without what is known and with it.

    Where something else is measured than the statement says, a row for it comes first.
    """
    sql = explained(chosen.written)
    if chosen.request is not chosen.written:
        own = f"SELECT * REPLACE (concat('given what is known; ', note) AS note) FROM ({explained(chosen.request)})"
        rest = f"SELECT * REPLACE (false AS chosen, NULL AS price) FROM ({sql})"
        sql = f"{own} WHERE chosen UNION ALL BY NAME {rest}"
    shown = [
        f"CASE WHEN chosen THEN CAST({quote_text(repr(error))} AS DOUBLE) END AS {name}"
        for name, error in (("stderr_alone", chosen.alone), ("stderr_with_known", chosen.together))
    ]
    return f"SELECT *, {', '.join(shown)} FROM ({sql}) AS reusing"
