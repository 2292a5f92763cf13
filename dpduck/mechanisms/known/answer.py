"""Known answers: the best estimate of each aggregate from released tables, its error, and the releases behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial

import numpy as np

from dpduck.kernel.noise.law import NoiseKind
from dpduck.language.select.known import KnownQuestion
from dpduck.language.select.request import Aggregate
from dpduck.mechanisms.known.axes import LARGEST_JOINT, Axes, CellQuery, axes_of, cell_query, seen_by
from dpduck.mechanisms.known.chosen_tables import alone, selections
from dpduck.mechanisms.known.tables import PLANNED, Match, Same, Usable, Wanted, match, needs_of, row_needs_of, usable
from dpduck.store.cursors import SandboxAnswers
from dpduck.store.measured import Measured, MeasurementRecord
from dpduck.strategies.recovery.curved import LEVELS, Curved, average, margins, rescale
from dpduck.strategies.recovery.estimator import Estimator
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import InternalError

MOST_JOINED = 8
"""Most joint tables that are tried for one sum. A joint table counts kinds of rows over several columns."""


@dataclass(frozen=True, eq=False)
class KnownAnswer:
    """Answer to one aggregate over the cells of all grouping sets, in order.

    alone: the time of the first release if its rows may have changed since, else "".
    left_out: columns with a domain. The answer leaves out rows outside of these domains.
    bounded: how MAX ROWS was applied if otherwise than in the question, else "".
    ends: the ends of the intervals for every level of LEVELS, with shape (levels, cells).
    spread: the total variance of all sums that the answer is computed from. It depends on no estimate.
    same: the properties that all tables behind the answer share.
    """

    estimates: FloatArray
    stderrs: FloatArray
    low: FloatArray
    high: FloatArray
    releases: tuple[str, ...]
    alone: str
    left_out: frozenset[str]
    bounded: str
    ends: Callable[[], tuple[FloatArray, FloatArray]]
    spread: float
    same: Same


@dataclass(frozen=True, eq=False)
class _Sum:
    """Sum over rows, by cell. smallest: the measurements' least ratio of standard deviation to largest weight."""

    estimates: FloatArray
    variances: FloatArray
    smallest: float
    noise: NoiseKind
    uses: tuple[Usable, ...]


@dataclass(frozen=True, eq=False)
class KnownReleases:
    """Releases that a reader may read, which answer questions about their rows. moment: that of current rows."""

    records: Sequence[MeasurementRecord]
    moment: str
    remembered: SandboxAnswers = field(default_factory=partial(SandboxAnswers, 4))

    def with_planned(self, blank: Measured) -> KnownReleases:
        """Returns these releases and a planned one, which has no values yet. Its results are not cached."""
        return KnownReleases([*self.records, MeasurementRecord(PLANNED, "", self.moment, blank)], self.moment)

    def tables(self, question: KnownQuestion, about: str = "") -> dict[Same, list[Usable]]:
        """Returns the tables about the question's rows. Tables under one key may be combined.

        about: a release. Only tables that may be combined with it are returned, its own first.
        """
        tables = usable(question, self.records)
        if not about:
            return tables
        own = {same: uses for same, uses in tables.items() if any(use.kept.name == about for use in uses)}
        return {same: sorted(uses, key=lambda use: use.kept.name != about) for same, uses in own.items()}

    def answers(self, question: KnownQuestion, about: str = "", same: Same | None = None) -> list[KnownAnswer | None]:
        """Returns the answer to each aggregate, None if no tables determine every cell.

        about: a release. same: the properties of an answer. With either, only tables about the same rows are used.
        """
        request, tables = question.analysis.request, self.tables(question, about)
        if same is not None:
            tables = {item: uses for item, uses in tables.items() if replace(same, quantity=item.quantity) == item}
        answers = []
        for aggregate in request.question.aggregates:
            needs = (needs_of(aggregate, request.rows.filters), row_needs_of(aggregate, request.rows.filters))
            tried = (self._best(question, aggregate, item, tables, about) for item in needs if item is not None)
            answers.append(next((item for item in tried if item is not None), None))
        return answers

    def _best(
        self, question: KnownQuestion, aggregate: Aggregate, need: Wanted, tables: dict[Same, list[Usable]], about: str
    ) -> KnownAnswer | None:
        """Returns the best answer from tables that may be combined.

        It prefers tables about the current rows, then MAX ROWS as in the question, then fewer columns with rows left
        out. The error comes last, since the other criteria decide which quantity is answered.
        """
        best: tuple[tuple[bool, bool, int, float], KnownAnswer] | None = None
        for same in [same for same in tables if same.quantity == need.quantities[0]]:
            how = match(question, same, need.conditions)
            others = [replace(same, quantity=quantity) for quantity in need.quantities]
            if how is None or not all(other in tables for other in others):
                continue
            linear = len(others) == 1  # an average's error depends on estimates, so its sums need them
            estimator = _SumEstimator(question, how, self.remembered, bool(about), linear)
            sums = [estimator.best(tables[other]) for other in others]
            parts = [part for part in sums if part is not None]
            if len(parts) < len(sums):
                continue
            total = sum(float(part.variances.sum()) for part in parts)
            error = float(f"{total:.9e}")  # errors that agree to nine digits count as equal
            rank = (same.moment != self.moment, how.bounded != "", len(how.left_out), error)
            if best is None or rank < best[0]:
                best = rank, _answer_from(question, aggregate, parts, how, same, same.moment == self.moment)
        return None if best is None else best[1]


@dataclass(frozen=True, eq=False)
class _SumEstimator:
    """Estimator of a question's sums over rows, by cell, from tables that may be combined.

    new: whether the first table was just measured, or is planned. linear: whether no error depends on an estimate.
    """

    question: KnownQuestion
    how: Match
    remembered: SandboxAnswers
    new: bool
    linear: bool

    def best(self, uses: Sequence[Usable]) -> _Sum | None:
        """Computes one sum over rows in all cells, None if the tables do not determine it.

        Each joint table is tried alone with all plain tables, so that it never makes an answer worse.
        """
        plain = [use for use in uses if not use.joins]
        joined = [use for use in uses if use.joins][:MOST_JOINED]
        tried = [plain, *([use, *plain] if uses[0] is use else [*plain, use] for use in joined)]
        return _least(self._of_tables(some) for some in tried if some)

    def _of_tables(self, uses: Sequence[Usable]) -> _Sum | None:
        """Computes the sum from the best selection of tables, else from the first table that determines it alone."""
        axes = axes_over(self.question, self.how, uses)
        if max(axes.lengths, default=1) > LARGEST_JOINT and any(len(columns) > 1 for columns in axes.columns):
            return None
        request = self.question.analysis.request.question
        sets = [cell_query(axes, request, grouping_set, self.how.seen) for grouping_set in request.grouping_sets]
        columns = frozenset(source.sql for source in request.sources).union(*(part.columns for part in self.how.seen))
        tried = selections(axes, uses, columns, self.new)
        best = _least(self._solve(axes, sets, chosen) for chosen in tried)
        if best is not None:
            return best
        each = (self._solve(axes, sets, chosen) for chosen in alone(axes, uses, tried))
        return next((part for part in each if part is not None), None)

    def _solve(self, axes: Axes, sets: Sequence[CellQuery], chosen: Sequence[Usable]) -> _Sum | None:
        if not chosen:
            return None
        estimator, smallest = estimator_of(axes, chosen, self.remembered)
        planned = self.linear and any(use.kept.name == PLANNED for use in chosen)
        estimates, variances = [], []
        for of_set in sets:
            answer = estimator.answer(of_set.along, errors_alone=planned)
            if not answer.known.all():
                return None
            estimates.append(of_set.cells(answer.estimates))
            variances.append(of_set.cells(answer.variances))
        laplace = any(use.kept.measured.noise is NoiseKind.LAPLACE for use in chosen)
        noise = NoiseKind.LAPLACE if laplace else NoiseKind.GAUSSIAN
        return _Sum(np.concatenate(estimates), np.concatenate(variances), smallest, noise, tuple(chosen))


def _least(sums: Iterable[_Sum | None]) -> _Sum | None:
    return min((part for part in sums if part is not None), key=lambda part: float(part.variances.sum()), default=None)


def axes_over(question: KnownQuestion, how: Match, uses: Sequence[Usable]) -> Axes:
    """Returns the axes of all columns that a table or the question distinguishes."""
    sources = question.analysis.request.question.sources
    sizes = {source.sql: source.domain.size for source in sources}
    together = [[sources[place].sql for place in key.sources] for key in question.analysis.request.question.keys]
    conditions = [*how.seen, *(condition for use in uses for condition in use.seen)]
    for condition in conditions:
        sizes |= dict(zip(condition.columns, condition.met.shape, strict=True))
        together.append(list(condition.columns))
    for measured, keys in {(id(use.kept.measured), use.keys): (use.kept.measured, use.keys) for use in uses}.values():
        named = [[measured.columns[place] for place in measured.keys[key].columns] for key in keys]
        sizes |= {column.sql: column.size for columns in named for column in columns}
        together += [[column.sql for column in columns] for columns in named]
    return axes_of(sizes, [columns for columns in together if len(columns) > 1])


def estimator_of(axes: Axes, uses: Sequence[Usable], remembered: SandboxAnswers) -> tuple[Estimator, float]:
    """Returns an estimator over the axes, and the least ratio of a measurement's deviation to its largest weight."""
    names = tuple((use.kept.name, use.table, use.weights) for use in uses)
    cached: tuple[Estimator, float] | None = remembered.get((axes, names))
    if cached is None:
        measurements = [(measurement, max(map(abs, use.weights))) for use in uses for measurement in seen_by(axes, use)]
        smallest = float(min(measurement.variance**0.5 / weight for measurement, weight in measurements))
        cached = Estimator(axes.lengths, [measurement for measurement, _ in measurements]), smallest
        remembered.save((axes, names), cached)
    return cached


def _answer_from(
    question: KnownQuestion, aggregate: Aggregate, sums: Sequence[_Sum], how: Match, same: Same, now: bool
) -> KnownAnswer:
    uses = [use for entry in sums for use in entry.uses]
    names, alone = tuple(dict.fromkeys(use.kept.name for use in uses)), "" if now else uses[0].kept.released_at
    confidence, spread = question.analysis.confidence, sum(float(entry.variances.sum()) for entry in sums)
    if len(sums) == 1:
        (low,), (high,) = _ends(sums[0], (confidence,))
        columns, ends = (sums[0].estimates, np.sqrt(sums[0].variances), low, high), partial(_ends, sums[0], LEVELS)
        return KnownAnswer(*columns, names, alone, how.left_out, how.bounded, ends, spread, same)
    curved = _average(aggregate, sums)
    level = next((place for place, entry in enumerate(LEVELS) if entry >= confidence), len(LEVELS) - 1)
    bounds = curved.lows, curved.highs
    columns = curved.estimates, curved.stderrs, curved.lows[level], curved.highs[level]
    return KnownAnswer(*columns, names, alone, how.left_out, how.bounded, lambda: bounds, spread, same)


def _ends(total: _Sum, levels: Sequence[Fraction]) -> tuple[FloatArray, FloatArray]:
    stderrs = np.sqrt(total.variances)
    half = margins(total.noise, stderrs, stderrs / total.smallest, levels)
    return total.estimates - half, total.estimates + half


def _average(aggregate: Aggregate, sums: Sequence[_Sum]) -> Curved:
    """Computes the average from its two sums of distances from the bounds. Both have equal noise."""
    operand = aggregate.operand
    if operand is None:
        raise InternalError("an average of nothing")
    width = float(operand.high - operand.low)
    steps = float((operand.high - operand.low) / operand.step)
    moments = [part.estimates / steps for part in sums]
    largest = float(np.sqrt(sums[0].variances).max() / sums[0].smallest) / steps
    curved = average(moments, sums[0].variances / steps**2, sums[0].noise, largest)
    return rescale(curved, float(operand.low), width)
