"""Known answers: the best estimate of each aggregate from released tables, its error, and the releases behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dpduck.kernel.noise.law import NoiseKind
from dpduck.language.select.known import KnownQuestion
from dpduck.language.select.request import Aggregate
from dpduck.mechanisms.known.axes import LARGEST_JOINT, Axes, CellQuery, axes_of, cell_query, seen_by
from dpduck.mechanisms.known.chosen_tables import alone, selections
from dpduck.mechanisms.known.tables import PLANNED, Match, Same, Usable, Wanted, match, needs_of, row_needs_of, usable
from dpduck.store.cursors import SandboxAnswers
from dpduck.store.measured import MeasurementRecord
from dpduck.strategies.recovery.curved import LEVELS, Curved, average, rescale
from dpduck.strategies.recovery.estimator import Estimator
from dpduck.strategies.recovery.intervals import sum_margin
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import InternalError

MOST_JOINED = 8
"""The most joint tables that are tried for one sum. A joint table counts kinds of rows over several columns."""


@dataclass(frozen=True, eq=False)
class KnownAnswer:
    """Answer to one aggregate over the cells of all grouping sets, in order.

    - low, high: the ends of its intervals.
    - releases: the names of the releases behind it.
    - alone: the time of the first release, if its rows may have changed since. Otherwise "".
    - left_out: columns with a domain. The answer leaves out rows outside of these domains.
    - bounded: see Match.
    - ends: the ends of the intervals for every level of LEVELS, with shape (levels, cells).
    - spread: the total variance of all sums that the answer is computed from. It depends on no estimate.
    - same: the properties that all tables behind the answer share.
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
    """Sum over rows, by cell. smallest: the least ratio of a measurement's standard deviation to its largest weight."""

    estimates: FloatArray
    variances: FloatArray
    smallest: float
    noise: NoiseKind
    uses: tuple[Usable, ...]


def answers_of(
    question: KnownQuestion,
    releases: Sequence[MeasurementRecord],
    remembered: SandboxAnswers,
    moment: str,
    about: str = "",
    same: Same | None = None,
) -> list[KnownAnswer | None]:
    """Returns the answer to each aggregate. It is None if no tables determine every cell.

    - moment: the moment of the current rows.
    - about: the name of a release. Only tables that may be combined with it are used: they are about its rows.
    - same: the properties of an answer. Only tables about the rows of that answer are used.
    """
    request, tables = question.analysis.request, with_one(usable(question, releases), about)
    if same is not None:
        tables = {item: uses for item, uses in tables.items() if replace(same, quantity=item.quantity) == item}
    answers = []
    for aggregate in request.question.aggregates:
        needs = (needs_of(aggregate, request.rows.filters), row_needs_of(aggregate, request.rows.filters))
        tried = (
            _best(question, aggregate, item, tables, remembered, moment, about) for item in needs if item is not None
        )
        answers.append(next((item for item in tried if item is not None), None))
    return answers


def with_one(tables: dict[Same, list[Usable]], about: str) -> dict[Same, list[Usable]]:
    """Returns the tables that may be combined with one release, its own first. Without a name, returns all tables."""
    if not about:
        return tables
    own = {same for same, uses in tables.items() if any(use.kept.name == about for use in uses)}
    return {same: sorted(tables[same], key=lambda use: use.kept.name != about) for same in own}


def _best(
    question: KnownQuestion,
    aggregate: Aggregate,
    need: Wanted,
    tables: dict[Same, list[Usable]],
    remembered: SandboxAnswers,
    moment: str,
    about: str,
) -> KnownAnswer | None:
    """Returns the best answer from tables that may be combined. The order of preference is:

    - tables about the current rows,
    - tables that MAX ROWS was applied to as in the question,
    - tables about all rows of the question,
    - tables that leave out rows of the fewest columns.

    Tables further down are about other quantities, however small their error is. Among equals, the least error wins.
    """
    best: tuple[tuple[bool, bool, int, float], KnownAnswer] | None = None
    for same in [same for same in tables if same.quantity == need.quantities[0]]:
        how = match(question, same, need.conditions)
        others = [replace(same, quantity=quantity) for quantity in need.quantities]
        if how is None or not all(other in tables for other in others):
            continue
        alone = len(others) == 1  # an average's error depends on estimates, so its sums need them
        sums = [_best_sum(question, how, tables[other], remembered, about, alone) for other in others]
        if any(part is None for part in sums):
            continue
        parts = [part for part in sums if part is not None]
        total = sum(float(part.variances.sum()) for part in parts)
        error = float(f"{total:.9e}")  # errors that agree to nine digits count as equal
        rank = (same.moment != moment, how.bounded != "", len(how.left_out), error)
        if best is None or rank < best[0]:
            best = rank, _answer_from(question, aggregate, parts, how, same, same.moment == moment)
    return None if best is None else best[1]


def _best_sum(
    question: KnownQuestion, how: Match, uses: Sequence[Usable], remembered: SandboxAnswers, about: str, linear: bool
) -> _Sum | None:
    """Computes one sum over rows in all cells from tables that may be combined. None if they do not determine it.

    A joint table makes one axis of several columns. Each joint table is tried separately, beside all plain tables, so
    that it never makes an answer worse.
    """
    plain = [use for use in uses if not use.joins]
    joined = [use for use in uses if use.joins][:MOST_JOINED]
    tried = [plain, *([use, *plain] if uses[0] is use else [*plain, use] for use in joined)]
    sums = [_sum_over(question, how, some, remembered, about, linear) for some in tried if some]
    return min((part for part in sums if part is not None), key=lambda part: float(part.variances.sum()), default=None)


def _sum_over(
    question: KnownQuestion, how: Match, uses: Sequence[Usable], remembered: SandboxAnswers, about: str, linear: bool
) -> _Sum | None:
    """Computes the sum from the best selection of the tables, else from the first table that determines it alone."""
    axes = axes_over(question, how, uses)
    if max(axes.lengths, default=1) > LARGEST_JOINT and any(len(columns) > 1 for columns in axes.columns):
        return None
    request = question.analysis.request.question
    sets = [cell_query(axes, request, grouping_set, how.seen) for grouping_set in request.grouping_sets]
    columns = frozenset(source.sql for source in request.sources).union(*(part.columns for part in how.seen))
    tried = selections(axes, uses, columns, bool(about))
    sums = [_solve(axes, sets, chosen, remembered, linear) for chosen in tried]
    best = min((part for part in sums if part is not None), key=lambda part: float(part.variances.sum()), default=None)
    if best is not None:
        return best
    each = (_solve(axes, sets, chosen, remembered, linear) for chosen in alone(axes, uses, tried))
    return next((part for part in each if part is not None), None)


def _solve(
    axes: Axes, sets: Sequence[CellQuery], chosen: Sequence[Usable], remembered: SandboxAnswers, linear: bool
) -> _Sum | None:
    """Solves all cells from the chosen tables. None if they do not determine every cell."""
    if not chosen:
        return None
    estimator, smallest = estimator_of(axes, chosen, remembered)
    planned = linear and any(use.kept.name == PLANNED for use in chosen)
    cells = [_cells(estimator, cell_set, planned) for cell_set in sets]
    parts = [cell_set for cell_set in cells if cell_set is not None]
    if len(parts) < len(cells):
        return None
    laplace = any(use.kept.measured.noise is NoiseKind.LAPLACE for use in chosen)
    return _Sum(
        np.concatenate([estimates for estimates, _ in parts]),
        np.concatenate([variances for _, variances in parts]),
        smallest,
        NoiseKind.LAPLACE if laplace else NoiseKind.GAUSSIAN,
        tuple(chosen),
    )


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
    """Returns the measurements along the axes, and the least ratio of a standard deviation to the largest weight."""
    names = tuple((use.kept.name, use.table, use.weights) for use in uses)
    cached: tuple[Estimator, float] | None = remembered.get((axes, names))
    if cached is None:
        measurements = [(measurement, max(map(abs, use.weights))) for use in uses for measurement in seen_by(axes, use)]
        smallest = float(min(measurement.variance**0.5 / weight for measurement, weight in measurements))
        cached = Estimator(axes.lengths, [measurement for measurement, _ in measurements]), smallest
        remembered.put((axes, names), cached)
    return cached


def _cells(estimator: Estimator, of_set: CellQuery, planned: bool) -> tuple[FloatArray, FloatArray] | None:
    answer = estimator.answer(of_set.along, errors_alone=planned)
    if not answer.known.all():
        return None
    return of_set.cells(answer.estimates), of_set.cells(answer.variances)


def _answer_from(
    question: KnownQuestion, aggregate: Aggregate, sums: Sequence[_Sum], how: Match, same: Same, now: bool
) -> KnownAnswer:
    names = tuple(dict.fromkeys(use.kept.name for entry in sums for use in entry.uses))
    moments = [use.kept.released_at for entry in sums for use in entry.uses]
    alone = "" if now else moments[0]
    confidence, spread = question.analysis.confidence, sum(float(entry.variances.sum()) for entry in sums)
    if len(sums) == 1:
        stderrs = np.sqrt(sums[0].variances)
        margins = sum_margin(sums[0].noise, confidence)
        half = np.array([margins.of(stderr, stderr / sums[0].smallest) for stderr in stderrs.tolist()])
        estimates = sums[0].estimates
        ends = partial(_ends, sums[0])
        columns = estimates, stderrs, estimates - half, estimates + half
        return KnownAnswer(*columns, names, alone, how.left_out, how.bounded, ends, spread, same)
    curved = _average(aggregate, sums)
    level = next((place for place, entry in enumerate(LEVELS) if entry >= confidence), len(LEVELS) - 1)
    low, high = curved.lows[level], curved.highs[level]
    columns = curved.estimates, curved.stderrs, low, high
    bounds = curved.lows, curved.highs
    return KnownAnswer(*columns, names, alone, how.left_out, how.bounded, lambda: bounds, spread, same)


def _ends(total: _Sum) -> tuple[FloatArray, FloatArray]:
    """Returns the ends of a sum's intervals for every level."""
    stderrs = np.sqrt(total.variances)
    distinct, which = np.unique(stderrs, return_inverse=True)
    halves = []
    for level in LEVELS:
        margins = sum_margin(total.noise, level)
        halves.append(np.array([margins.of(stderr, stderr / total.smallest) for stderr in distinct.tolist()])[which])
    half = np.array(halves)
    return total.estimates - half, total.estimates + half


def _average(aggregate: Aggregate, sums: Sequence[_Sum]) -> Curved:
    """Computes the average from its two sums of distances from the bounds. Both were measured alike."""
    operand = aggregate.operand
    if operand is None:
        raise InternalError("an average of nothing")
    width = float(operand.high - operand.low)
    steps = float((operand.high - operand.low) / operand.step)
    moments = [part.estimates / steps for part in sums]
    largest = float(np.sqrt(sums[0].variances).max() / sums[0].smallest) / steps
    curved = average(moments, sums[0].variances / steps**2, sums[0].noise, largest)
    return rescale(curved, float(operand.low), width)
