"""Known answers: of each aggregate the best estimate that released tables give, its error, and what it rests on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dpduck.kernel.noise.law import NoiseKind
from dpduck.language.select.known import KnownQuestion
from dpduck.language.select.request import Aggregate
from dpduck.mechanisms.known.axes import LARGEST_JOINT, Asked, Axes, asked, axes_of, seen_by
from dpduck.mechanisms.known.chosen_tables import alone, selections
from dpduck.mechanisms.known.tables import PLANNED, Match, Same, Usable, Wanted, match, usable, wanted, wanted_of_rows
from dpduck.store.cursors import SandboxAnswers
from dpduck.store.measured import Kept
from dpduck.strategies.recovery.curved import LEVELS, Curved, average, rescaled
from dpduck.strategies.recovery.intervals import sum_margin
from dpduck.strategies.recovery.known import Knowledge
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import InternalError

MOST_JOINED = 8
"""Tables of kinds of rows of several columns that are tried for an answer."""


@dataclass(frozen=True, eq=False)
class Answer:
    """One aggregate over the cells of all grouping sets, in order.

    - low, high: the ends of its intervals.
    - releases: the names of the releases that it rests on.
    - alone: the time of the one release, if its rows may have changed since.
    - left_out: columns with a domain. The answer leaves out the rows outside of that domain.
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
    """A sum over rows in all cells. smallest: the least standard deviation of a measurement, in its largest weight."""

    estimates: FloatArray
    variances: FloatArray
    smallest: float
    noise: NoiseKind
    uses: tuple[Usable, ...]


def answers_of(
    question: KnownQuestion,
    kept: Sequence[Kept],
    remembered: SandboxAnswers,
    moment: str,
    about: str = "",
    same: Same | None = None,
) -> list[Answer | None]:
    """Returns the answer of each aggregate. It is None where no release determines every cell.

    - moment: the time of the current rows.
    - about: a release. Only releases that may be combined with it answer, about the very rows that it counted.
    - same: the properties of an answer. Only tables about the rows of that answer count.
    """
    request, tables = question.analysis.request, with_one(usable(question, kept), about)
    if same is not None:
        tables = {one: uses for one, uses in tables.items() if replace(same, quantity=one.quantity) == one}
    found = []
    for aggregate in request.question.aggregates:
        needs = (wanted(aggregate, request.rows.filters), wanted_of_rows(aggregate, request.rows.filters))
        tried = (_best(question, aggregate, one, tables, remembered, moment, about) for one in needs if one is not None)
        found.append(next((one for one in tried if one is not None), None))
    return found


def with_one(tables: dict[Same, list[Usable]], about: str) -> dict[Same, list[Usable]]:
    """Returns what may be combined with one release, itself first; everything where none is named."""
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
) -> Answer | None:
    """Returns the answer from tables that may be combined. The right rows come first, then the least error.

    This is the order of preference:
    - tables about the current rows,
    - tables that MAX ROWS was applied to as in the question,
    - tables about all rows of the question,
    - tables that leave out rows of the fewest columns.

    All other tables are about other quantities, however small their error is. Among tables about the same rows, those
    with the least error answer.
    """
    best: tuple[tuple[bool, bool, int, float], Answer] | None = None
    for same in [same for same in tables if same.quantity == need.quantities[0]]:
        how = match(question, same, need.conditions)
        others = [replace(same, quantity=quantity) for quantity in need.quantities]
        if how is None or not all(other in tables for other in others):
            continue
        alone = len(others) == 1  # an average's error depends on estimates, which are worked out then
        sums = [_summed(question, how, tables[other], remembered, about, alone) for other in others]
        if any(one is None for one in sums):
            continue
        parts = [one for one in sums if one is not None]
        total = sum(float(one.variances.sum()) for one in parts)
        error = float(f"{total:.9e}")  # nine digits: below them errors are equal
        rank = (same.moment != moment, how.bounded != "", len(how.left_out), error)
        if best is None or rank < best[0]:
            best = rank, _answered(question, aggregate, parts, how, same, same.moment == moment)
    return None if best is None else best[1]


def _summed(
    question: KnownQuestion, how: Match, uses: Sequence[Usable], remembered: SandboxAnswers, about: str, linear: bool
) -> _Sum | None:
    """Returns one sum over rows from tables that may be combined, in all cells; None where they do not determine it.

    A table of kinds of rows makes one axis of several columns. It is tried beside all tables that make none, one such
    table at a time, so that none ever makes an answer worse.
    """
    plain = [use for use in uses if not use.joins]
    joined = [use for use in uses if use.joins][:MOST_JOINED]
    tried = [plain, *([use, *plain] if uses[0] is use else [*plain, use] for use in joined)]
    found = [_summed_over(question, how, some, remembered, about, linear) for some in tried if some]
    return min((one for one in found if one is not None), key=lambda one: float(one.variances.sum()), default=None)


def _summed_over(
    question: KnownQuestion, how: Match, uses: Sequence[Usable], remembered: SandboxAnswers, about: str, linear: bool
) -> _Sum | None:
    """Returns the sum from tables that are looked at together, or from a few."""
    axes = axes_over(question, how, uses)
    if max(axes.lengths, default=1) > LARGEST_JOINT and any(len(columns) > 1 for columns in axes.columns):
        return None
    request = question.analysis.request.question
    sets = [asked(axes, request, grouping_set, how.seen) for grouping_set in request.grouping_sets]
    columns = frozenset(source.sql for source in request.sources).union(*(one.columns for one in how.seen))
    tried = selections(axes, uses, columns, bool(about))
    found = [_solved(axes, sets, chosen, remembered, linear) for chosen in tried]
    best = min((one for one in found if one is not None), key=lambda one: float(one.variances.sum()), default=None)
    if best is not None:
        return best
    each = (_solved(axes, sets, chosen, remembered, linear) for chosen in alone(axes, uses, tried))
    return next((one for one in each if one is not None), None)


def _solved(
    axes: Axes, sets: Sequence[Asked], chosen: Sequence[Usable], remembered: SandboxAnswers, linear: bool
) -> _Sum | None:
    """Returns all cells from some tables; None where they do not determine them."""
    if not chosen:
        return None
    knowledge, smallest = knowledge_of(axes, chosen, remembered)
    planned = linear and any(use.kept.name == PLANNED for use in chosen)
    found = [_cells(knowledge, one, planned) for one in sets]
    parts = [one for one in found if one is not None]
    if len(parts) < len(found):
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
    """Returns an axis for each column that a table or the question tells apart."""
    sources = question.analysis.request.question.sources
    sizes = {source.sql: source.domain.size for source in sources}
    together = [[sources[place].sql for place in key.sources] for key in question.analysis.request.question.keys]
    conditions = [*how.seen, *(one for use in uses for one in use.seen)]
    for one in conditions:
        sizes |= dict(zip(one.columns, one.met.shape, strict=True))
        together.append(list(one.columns))
    for measured, keys in {(id(use.kept.measured), use.keys): (use.kept.measured, use.keys) for use in uses}.values():
        named = [[measured.columns[place] for place in measured.keys[key].columns] for key in keys]
        sizes |= {column.sql: column.size for columns in named for column in columns}
        together += [[column.sql for column in columns] for columns in named]
    return axes_of(sizes, [columns for columns in together if len(columns) > 1])


def knowledge_of(axes: Axes, uses: Sequence[Usable], remembered: SandboxAnswers) -> tuple[Knowledge, float]:
    """Returns everything that these tables measured, and the least standard deviation of their noises."""
    names = tuple((use.kept.name, use.table, use.weights) for use in uses)
    known: tuple[Knowledge, float] | None = remembered.get((axes, names))
    if known is None:
        found = [(one, max(map(abs, use.weights))) for use in uses for one in seen_by(axes, use)]
        smallest = float(min(one.variance**0.5 / weight for one, weight in found))
        known = Knowledge(axes.lengths, [one for one, _ in found]), smallest
        remembered.put((axes, names), known)
    return known


def _cells(knowledge: Knowledge, of_set: Asked, planned: bool) -> tuple[FloatArray, FloatArray] | None:
    found = knowledge.answer(of_set.along, errors_alone=planned)
    if not found.known.all():
        return None
    return of_set.cells(found.estimates), of_set.cells(found.variances)


def _answered(
    question: KnownQuestion, aggregate: Aggregate, sums: Sequence[_Sum], how: Match, same: Same, now: bool
) -> Answer:
    names = tuple(dict.fromkeys(use.kept.name for one in sums for use in one.uses))
    moments = [use.kept.released_at for one in sums for use in one.uses]
    alone = "" if now else moments[0]
    confidence, spread = question.analysis.confidence, sum(float(one.variances.sum()) for one in sums)
    if len(sums) == 1:
        stderrs = np.sqrt(sums[0].variances)
        margins = sum_margin(sums[0].noise, confidence)
        half = np.array([margins.of(stderr, stderr / sums[0].smallest) for stderr in stderrs.tolist()])
        estimates = sums[0].estimates
        ends = partial(_ends, sums[0])
        found = estimates, stderrs, estimates - half, estimates + half
        return Answer(*found, names, alone, how.left_out, how.bounded, ends, spread, same)
    curved = _average(aggregate, sums)
    level = next((place for place, one in enumerate(LEVELS) if one >= confidence), len(LEVELS) - 1)
    low, high = curved.lows[level], curved.highs[level]
    found = curved.estimates, curved.stderrs, low, high
    bounds = curved.lows, curved.highs
    return Answer(*found, names, alone, how.left_out, how.bounded, lambda: bounds, spread, same)


def _ends(one: _Sum) -> tuple[FloatArray, FloatArray]:
    """Ends of the intervals of a sum for every level."""
    stderrs = np.sqrt(one.variances)
    distinct, which = np.unique(stderrs, return_inverse=True)
    halves = []
    for level in LEVELS:
        margins = sum_margin(one.noise, level)
        halves.append(np.array([margins.of(stderr, stderr / one.smallest) for stderr in distinct.tolist()])[which])
    half = np.array(halves)
    return one.estimates - half, one.estimates + half


def _average(aggregate: Aggregate, sums: Sequence[_Sum]) -> Curved:
    """Returns the average from the two sums of distances from the bounds, which were measured alike."""
    operand = aggregate.operand
    if operand is None:
        raise InternalError("an average of nothing")
    width = float(operand.high - operand.low)
    steps = float((operand.high - operand.low) / operand.step)
    moments = [one.estimates / steps for one in sums]
    largest = float(np.sqrt(sums[0].variances).max() / sums[0].smallest) / steps
    found = average(moments, sums[0].variances / steps**2, sums[0].noise, largest)
    return rescaled(found, float(operand.low), width)
