"""Statements with reuse = TRUE: their measurements are combined with earlier releases, and the answer is stored.

Such a statement has the release of the statement without the option, unless marginals help more. Each principal who
asks gets an answer from the releases that they may read. It never changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import ceil

import pyarrow as pa

from dpduck.language.rows.facts import CatalogColumn
from dpduck.language.select.known import KnownQuestion
from dpduck.language.select.request import SelectRequest, Target
from dpduck.language.text.names import highs_column, lows_column
from dpduck.mechanisms.answers_sql import empty_release_sql
from dpduck.mechanisms.cubes.measure import blank_measured, propose_cube
from dpduck.mechanisms.cubes.plan import amount_of, plan_cube, require_within
from dpduck.mechanisms.forecast import Forecast
from dpduck.mechanisms.known.answer import KnownAnswer, KnownReleases
from dpduck.mechanisms.known.given import MarginalGap, given_known, request_at_price
from dpduck.mechanisms.known.tables import PLANNED
from dpduck.mechanisms.released_rows import AnswerColumn, release_columns, release_rows
from dpduck.store.cursors import Caller
from dpduck.store.measured import MeasurementRecord
from dpduck.store.releases import StoredRelease
from dpduck.store.sandbox import Sandbox
from dpduck.strategies.target import raise_price, round_up
from dpduck.values.errors import Refusal

STEPS = 1024
"""Number of steps into which a search divides the price that a target would have without earlier releases."""

ALIKE = Fraction(1, 1000)
"""Largest difference between plans that count as equal, relative to the price or the variance."""

RAISED = 4
"""Most times that a price by formula is raised until the combination reaches its target."""

UNLIMITED = 10**6
"""Factor on the limit of a statement's price in planning: earlier releases may bring the price below the limit."""

NOT_KEPT = "what this statement measures is not kept, or cannot be combined"
WITHOUT = "the same statement without reuse"

At = Callable[[Fraction], SelectRequest | None]


@dataclass(frozen=True)
class Foreseen:
    """Errors of a combination. worst: the largest standard error. total: the summed variance (KnownAnswer.spread).

    about: left_out, bounded and alone of each answer, which identify the rows of the answer.
    """

    worst: float
    total: float
    about: tuple[object, ...]


@dataclass(frozen=True)
class Chosen:
    """Request that will be measured, and the statement as it is written at the same price.

    alone, together: the largest standard errors of the written statement, and of the request with all earlier releases.
    """

    request: SelectRequest
    written: SelectRequest
    alone: float
    together: float


@dataclass(frozen=True, eq=False)
class Reuse:
    """A question with the releases that its reader may read. common: the releases that everybody who may ask knows.

    A release at a price is planned from common ones, so that one statement is one release for all principals.
    """

    question: KnownQuestion
    kept: KnownReleases
    common: KnownReleases

    def require_one_moment(self) -> None:
        """Refuses rows that may change between two releases, since such releases are not combined."""
        if not self.kept.moment:
            raise Refusal(
                "reuse combines releases of rows that cannot change meanwhile",
                accepted=f"ALTER PRIVACY POLICY .. PREPARE, a database that is opened for reading, or {WITHOUT}",
            )

    def choose(self, request: SelectRequest) -> Chosen:
        """Chooses the request with the least error at a price, or with the least price for a target.

        Everything that could fail after the charge fails here.
        """
        target = request.price.target
        written, measured = self._at_price(request) if target is None else self._at_target(request, target)
        alone = self._foreseen(written, replace(self.kept, records=()))
        together = self._foreseen(measured, self.kept)
        if alone is None or together is None:
            raise Refusal(NOT_KEPT, accepted=WITHOUT)
        return Chosen(measured, written, alone.worst, together.worst)

    def _foreseen(self, request: SelectRequest, releases: KnownReleases) -> Foreseen | None:
        """Returns the errors of a request's measurements with other releases, None if the answer is not determined."""
        blank = blank_measured(propose_cube(request))
        return None if blank is None else self._errors(releases.with_planned(blank), PLANNED)

    def _errors(self, releases: KnownReleases, about: str = "") -> Foreseen | None:
        answers = releases.answers(self.question, about)
        results = [answer for answer in answers if answer is not None]
        if len(results) < len(answers):
            return None
        worst = max(float(answer.stderrs.max()) for answer in results)
        total = sum(answer.spread for answer in results)
        return Foreseen(worst, total, tuple((answer.left_out, answer.bounded, answer.alone) for answer in results))

    def _at_price(self, request: SelectRequest) -> tuple[SelectRequest, SelectRequest]:
        """Returns the request, and the request to measure: marginals in its place if they help more."""
        written = self._foreseen(request, self.common)
        if written is None:
            raise Refusal(NOT_KEPT, accepted=WITHOUT)
        amount = amount_of(request)
        given = given_known(self.question, request, self.common, amount)
        other = None if given is None else given.at(amount)
        errors = None if other is None else self._foreseen(other, self.common)
        if given is None or other is None or errors is None or errors.about != written.about:
            return request, request
        most = written.total * float(1 + ALIKE if given.finer else 1 - ALIKE)
        return request, other if errors.total <= most else request

    def _at_target(self, request: SelectRequest, target: Target) -> tuple[SelectRequest, SelectRequest]:
        """Returns the request at the least price that reaches its target, and the request to measure."""
        unlimited = replace(request.price, target=replace(target, limit=target.limit * UNLIMITED))
        whole = amount_of(plan_cube(replace(request, price=unlimited)).request)
        written = partial(request_at_price, request)
        first = self._foreseen(written(whole / STEPS), self.kept)
        if first is None:
            raise Refusal(NOT_KEPT, accepted=WITHOUT)
        if first.worst <= float(target.stderr):
            errors = self._errors(self.kept)
            if errors is not None and errors.about == first.about and errors.worst <= float(target.stderr):
                raise Refusal(
                    f"a standard error of {float(target.stderr):g} is known already",
                    accepted=f"FROM dp_known('SELECT ..'), which is free, or {WITHOUT}",
                )
            least = written(max(target.least, whole / STEPS))  # nearly the least
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
        self, request: SelectRequest, target: Target, whole: Fraction, about: tuple[object, ...]
    ) -> tuple[SelectRequest, Fraction] | None:
        """Returns marginals with 1 / `ahead` of the target's variance, and their price, if the limit allows it."""
        times = self.question.analysis.ahead
        finer = replace(target, stderr=target.stderr / Fraction(float(times) ** 0.5))
        given, amount = self._by_formula(request, finer, whole * times, about) if times > 1 else (None, whole)
        chosen = None if given is None or amount > target.limit else given.at(amount)
        return None if chosen is None else (chosen, amount)

    def _by_formula(
        self, request: SelectRequest, target: Target, whole: Fraction, about: tuple[object, ...]
    ) -> tuple[MarginalGap | None, Fraction]:
        """Returns marginals in place of the request, and their price. None and the whole price if they cost more."""
        given = given_known(self.question, request, self.kept, whole)
        if given is None:
            return None, whole
        most = whole * (1 + ALIKE if given.finer else 1 - ALIKE)
        given = given.balance_errors(float(target.stderr), most)
        least = given.least(float(target.stderr), most)
        amount = most if least is None else round_up(least)
        for _ in range(RAISED if least is not None else 0):
            other = given.at(amount)
            errors = None if other is None else self._foreseen(other, self.kept)
            if errors is None or errors.about != about or amount > most:
                break
            if errors.worst <= float(target.stderr):
                return given, amount
            amount = raise_price(amount, errors.worst / float(target.stderr), given.noise)
        return None, whole

    def _precision(self, at: At, amount: Fraction) -> float:
        """Returns the precision of the answer's worst cell. It is 0 if the answer is not determined."""
        request = at(amount)
        errors = None if request is None else self._foreseen(request, self.kept)
        return 0.0 if errors is None else errors.worst**-2

    def _least_step(self, at: At, whole: Fraction, wanted: float, below: float, high: int) -> int:
        """Returns the least number of price steps, up to `high`, for a precision. below: the precision at one step."""
        low, above = 1, self._precision(at, whole * high / STEPS)
        while high - low > 1 and above > below:
            guess = low + ceil((wanted - below) / (above - below) * (high - low))
            guess = min(max(guess, low + 1), high - 1)
            precision = self._precision(at, whole * guess / STEPS)
            if precision < wanted:
                low, below = guess, precision
                continue
            high, above = guess, precision
            if guess - 1 > low and (precision := self._precision(at, whole * (guess - 1) / STEPS)) < wanted:
                return guess
        return high


def reuse_digest(request: SelectRequest, caller: Caller) -> str:
    """Names the stored answer to a request by one caller."""
    facts = ["reuse", request.digest(), caller.owner, caller.name]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def reuse_columns(request: SelectRequest) -> tuple[tuple[str, str], ...]:
    """Returns the columns of the stored answer: the columns of a release, and the ends of all intervals."""
    plain = [col for col in release_columns(request, [False] * len(request.question.aggregates)) if "[]" not in col[1]]
    for number in range(len(request.question.aggregates)):
        plain += [(lows_column(number), "DOUBLE[]"), (highs_column(number), "DOUBLE[]")]
    return tuple(plain)


def nothing_sql(question: KnownQuestion) -> str:
    """Writes the SQL of the whole statement over an answer without rows."""
    request = question.analysis.request
    columns = [CatalogColumn(name, type_name) for name, type_name in reuse_columns(request)]
    return empty_release_sql(columns, ((),) * len(request.question.aggregates), question.analysis)


def combine_answers(
    reuse: Reuse, release: StoredRelease, own: MeasurementRecord | None, box: Sandbox
) -> tuple[list[KnownAnswer], tuple[tuple[str, str], ...], pa.Table]:
    """Computes the answers about a release's rows from all known releases, and the columns and rows to be stored."""
    records = [*(item for item in reuse.kept.records if item.name != release.name), *([] if own is None else [own])]
    candidates = KnownReleases(records, reuse.kept.moment).answers(reuse.question, release.name)
    answers = [item for item in candidates if item is not None]
    if own is None or len(answers) < len(candidates):
        raise Refusal(NOT_KEPT, accepted=f"{WITHOUT}, which is free by now")
    request = reuse.question.analysis.request
    shown = [AnswerColumn(item.estimates, item.stderrs, *item.ends()) for item in answers]
    columns = reuse_columns(request)
    rows = release_rows(request, shown, [False] * len(shown), box)
    return answers, columns, rows.select([name for name, _ in columns])


def forecast_reuse(chosen: Chosen, forecast: Callable[[SelectRequest], list[Forecast]]) -> list[Forecast]:
    """Adds standard errors without and with earlier releases. If other marginals are measured, they come first."""
    ways = forecast(chosen.written)
    if chosen.request is not chosen.written:
        own = next(way for way in forecast(chosen.request) if way.chosen)
        others = [replace(way, chosen=False, price=None) for way in ways]
        ways = [replace(own, notes=("given what is known", *own.notes)), *others]
    errors = [("stderr_alone", "DOUBLE", chosen.alone), ("stderr_with_known", "DOUBLE", chosen.together)]
    return [replace(way, further=[*way.further, *errors]) if way.chosen else way for way in ways]
