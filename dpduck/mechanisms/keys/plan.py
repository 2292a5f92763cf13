"""Release of counts by selected keys: groups are published by a noisy threshold, then answered and explained.

A group is published if it has at least n privacy units and its noisy count is above n - 1 + k + tau. One unit changes
the count by at most k, in at most C groups. The tail P(noise > tau) is so small that any of C groups that exist by one
unit alone is published with probability at most delta.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from fractions import Fraction
from math import expm1, log1p, sqrt

import numpy as np
import pyarrow as pa

from dpduck.kernel.contributions import FULL, Contribution
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask, AskScan
from dpduck.kernel.queries.keys import Beside, GroupBounds, PublishedKeys, Threshold, key_delta
from dpduck.language.rows.compiled import raw_program, text_of
from dpduck.language.select.private_keys import counts_units
from dpduck.language.select.request import KeySelection, SelectRequest
from dpduck.language.text.names import (
    GROUPING_ID,
    GROUPING_SET,
    answer_column,
    highs_column,
    lows_column,
    stderr_column,
)
from dpduck.mechanisms.cubes.measures import Use
from dpduck.mechanisms.cubes.recover import ROUNDING, sum_with_weights
from dpduck.mechanisms.jobs import counting_job
from dpduck.mechanisms.keys.measures import KeyMeasures, key_measures_with_norm, measures_of_keys, norms_of_keys
from dpduck.mechanisms.mechanism import Columns, OneAsk, Tools
from dpduck.mechanisms.release import ReleasedTable, ReleaseHeader
from dpduck.mechanisms.released_rows import interval_lists, label_array, release_columns
from dpduck.store.sandbox import sandbox
from dpduck.strategies.budgets import noise_for
from dpduck.strategies.recovery.curved import LEVELS, Noisy, average_about
from dpduck.strategies.recovery.intervals import ErrorLaw, lows_after_selection
from dpduck.strategies.recovery.tails import discrete_gaussian_tail, discrete_laplace_tail, survivals
from dpduck.values.arrays import FloatArray, IntegerArray
from dpduck.values.errors import InternalError, Refusal


@dataclass(frozen=True)
class KeyPlan:
    """Plan of one release of selected keys.

    least, excess: the fewest units of a published group, and tau, which noise rarely exceeds.
    selection, answers: the noise of the count that selects groups, and of other counts.
    reused: the aggregates that the selecting count answers.
    other: whether the suppressed groups are counted, too.
    measured, beside: all measures, with the noise and norms of each, if any aggregate is not a count of rows.
    """

    bounds: GroupBounds
    least: int
    delta: Fraction
    selection: Noise
    answers: Noise
    excess: int
    aggregates: int
    reused: tuple[int, ...]
    other: bool
    measured: KeyMeasures | None = None
    beside: tuple[Beside, ...] = ()

    @property
    def threshold(self) -> int:
        return self.least - 1 + self.bounds.per_group + self.excess

    @property
    def strategy(self) -> str:
        return f"{self.selection.kind.name.lower()}_threshold"

    def use_of(self, aggregate: int) -> Use:
        return Use(aggregate, (Fraction(1),)) if self.measured is None else self.measured.uses[aggregate]

    @property
    def selecting(self) -> tuple[int, ...]:
        return self.reused if self.measured is None else self.measured.reused

    def noise_of(self, table: int, others: bool = False) -> Noise:
        """Returns the noise of a table before the selection of groups. others: for the row of unpublished groups."""
        if table in self.selecting and not others:
            return self.selection
        return self.beside[table].noise if self.beside else self.answers

    def part_of(self, table: int) -> float:
        """Returns the worth of one integer of a count: 1, or 1/FULL for weighed units."""
        return 1 / FULL if self.measured is not None and self.measured.measures[table].contribution.norm else 1.0

    def is_rounded(self, use: Use) -> bool:
        """Tells whether the answer is a count of weighed units, which is shown as a whole number."""
        if self.measured is None or use.measure in self.selecting:
            return False
        measure = self.measured.measures[use.measure]
        counts = measure.operand is None or not measure.operand.sql
        return bool(measure.contribution.norm) and counts and use.also is None

    @property
    def queries(self) -> int:
        if self.measured is None:
            return queries(self.aggregates, self.reused, self.other)
        return 1 + sum(share > 0 for share in self.measured.shares)

    def publication_chance(self, units: int) -> float:
        if units < self.least:
            return 0.0
        return float(survivals(self.selection, np.array([self.threshold - units + 1]))[0])


def queries(aggregates: int, reused: tuple[int, ...], other: bool) -> int:
    """Returns the number of queries that share the price: the selection, and the aggregates that it does not answer.

    The row for all other groups shares its price with the published groups, since groups partition the rows. If the
    published groups' answers are reused, the row costs one query.
    """
    return 1 + (aggregates if other else aggregates - len(reused))


def plan_keys(
    kind: NoiseKind,
    amount: Fraction,
    delta: Fraction,
    bounds: GroupBounds,
    *,
    least: int,
    aggregates: int,
    reused: tuple[int, ...],
    other: bool,
    measured: KeyMeasures | None = None,
) -> KeyPlan:
    """Plans keys at a price: epsilon for Laplace noise, rho for Gaussian noise. delta: for groups of one unit alone."""
    share = amount / queries(aggregates, reused, other) if measured is None else amount * measured.selection
    selection, answers = noise_for(kind, share, bounds.l1, bounds.l2_squared), noise_for(kind, share, bounds.rows)
    excess = smallest_excess(selection, bounds.groups, delta)
    beside = () if measured is None else _beside(kind, amount, bounds, measured, other)
    return KeyPlan(bounds, least, delta, selection, answers, excess, aggregates, reused, other, measured, beside)


def _beside(
    kind: NoiseKind, amount: Fraction, bounds: GroupBounds, measured: KeyMeasures, other: bool
) -> tuple[Beside, ...]:
    """Returns the noise and the norms of each measure. A measure without a share gets the selection's share."""
    noises: dict[Noise, Noise] = {}
    results = []
    for measure, share in zip(measured.measures, measured.shares, strict=True):
        l1, l2_squared, most = norms_of_keys(measure, bounds, other)
        noise = noise_for(kind, amount * (share or measured.selection), l1, l2_squared)
        results.append(Beside(noises.setdefault(noise, noise), (l1, l2_squared, most)))
    return tuple(results)


SMALLEST_SHARE = 1e-100

FARTHEST = 250
"""Standard deviations beyond which noise has less than the probability SMALLEST_SHARE."""


def smallest_excess(noise: Noise, groups: int, delta: Fraction) -> int:
    """Returns tau, the least integer from 0 at which `groups` groups of one unit cost at most delta.

    A binary search over approximate tails comes near tau. Steps by the exact cost (key_delta) do the rest.
    """
    each = -expm1(log1p(-float(delta)) / groups)
    if not SMALLEST_SHARE <= each < 0.5:
        raise ValueError("the probability that a group is published must lie between 1e-100 and 1/2")
    tail = discrete_laplace_tail if noise.kind is NoiseKind.LAPLACE else discrete_gaussian_tail
    bounds = range(int(FARTHEST * sqrt(noise.variance)) + 2)
    excess = bisect_left(bounds, True, key=lambda bound: tail(noise.parameter, bound) <= 2 * each)
    while key_delta(noise, excess, groups) > delta:
        excess += 1
    while excess and key_delta(noise, excess - 1, groups) <= delta:
        excess -= 1
    return excess


OTHER_SET = 1
"""Grouping set of the row for all unpublished groups. Its keys are NULL, and its GROUPING(..) is 1."""


KeyProposal = OneAsk[KeyPlan, PublishedKeys]


def propose_keys(request: SelectRequest) -> KeyProposal:
    """Returns the plan of a request that selects its keys."""
    plan = plan_request(request)
    return KeyProposal(request, plan, key_ask(request, plan))


def key_header(proposal: KeyProposal) -> ReleaseHeader:
    """Describes the release before anything is counted."""
    plan = proposal.plan
    return ReleaseHeader(
        proposal.request, f"{plan.selection.kind.value}, {plan.strategy}", plan.strategy, key_laws(plan)
    )


def key_columns(proposal: KeyProposal) -> Columns:
    """Returns the columns of the released table. Answers that select keys have a column for lower interval ends."""
    lows = tuple((lows_column(number), "DOUBLE[]") for number in proposal.plan.reused)
    whole = [aggregate.function == "count" for aggregate in proposal.request.question.aggregates]
    return (*release_columns(proposal.request, whole), *lows)


def key_table(proposal: KeyProposal, published: PublishedKeys, tools: Tools) -> ReleasedTable:
    """Returns the published groups with their answers. The table has no rows if no group is published."""
    columns = key_columns(proposal)
    rows = _rows(proposal.request, proposal.plan, published)
    return ReleasedTable(columns, rows.select([name for name, _ in columns]))


LOWER_THRESHOLD = "a larger epsilon or delta, or a smaller max_groups_contributed"


def warn_of_keys(proposal: KeyProposal, expect_rows: int | None) -> str:
    """Describes the groups that an answer will show. Refuses a plan that would hide even a group of all rows."""
    request, threshold = proposal.request, proposal.plan.threshold
    counted = "rows" if request.rows.unit_sql is None else "privacy units"
    shown = f"a group is shown if it has more than {threshold} {counted} after noise"
    repeated = request.rows.unit_sql is None and request.rows.unit_bound > 1
    if expect_rows is not None and threshold >= expect_rows and not repeated:
        raise Refusal(
            f"{shown}, and EXPECT ROWS is {expect_rows}: an answer would have no rows",
            accepted=f"{LOWER_THRESHOLD}; or a DOMAIN of the key, which needs no threshold",
        )
    return f"{shown}; {LOWER_THRESHOLD} shows smaller groups"


def plan_request(request: SelectRequest, noise: NoiseKind | None = None) -> KeyPlan:
    """Returns the plan of a request that selects its keys. noise: replaces the request's noise, at the same rho."""
    selection, charge = _selection(request), request.price.charge
    kind = noise or (NoiseKind.LAPLACE if selection.laplace else NoiseKind.GAUSSIAN)
    epsilon = charge.epsilon if charge.epsilon is not None else Fraction(sqrt(2 * float(charge.rho)))
    rows, aggregates = request.rows.unit_sql is None or request.rows.max_rows == 1, request.question.aggregates
    units = [counts_units(aggregate, request.rows.unit_sql) for aggregate in aggregates]
    reused = tuple(
        number
        for number, aggregate in enumerate(aggregates)
        if units[number] or (rows and not aggregate.condition and not aggregate.operand)
    )
    plain = all(unit or not call.operand for unit, call in zip(units, aggregates, strict=True))
    return plan_keys(
        kind,
        epsilon if kind is NoiseKind.LAPLACE else charge.rho,
        charge.delta,
        bounds_of_request(request),
        least=selection.least_units,
        aggregates=len(aggregates),
        reused=reused,
        other=selection.other,
        measured=_measures(request, plain, reused),
    )


def _measures(request: SelectRequest, plain: bool, reused: tuple[int, ...]) -> KeyMeasures | None:
    question = request.question
    if question.treatment.norm is not None:
        return key_measures_with_norm(question.aggregates, reused, question.treatment)
    return None if plain else measures_of_keys(question.aggregates, reused, _selection(request).other)


def bounds_of_request(request: SelectRequest) -> GroupBounds:
    """Bounds one unit's changes: 1 in each group's count. Without a unit column, a unit is a row and all its copies."""
    groups = _selection(request).groups
    if request.rows.unit_sql is None:
        return GroupBounds(groups, request.rows.unit_bound, request.rows.unit_bound, request.rows.unit_bound)
    return GroupBounds(groups, 1, groups, request.rows.unit_bound)


def key_job(request: SelectRequest, measured: KeyMeasures | None = None) -> CountingJob:
    """Returns the counting job: contributions to each group, and the number of units by which it is selected."""
    rows, groups = request.rows, _selection(request).groups
    counts = [Contribution(raw_program(aggregate.condition)) for aggregate in request.question.aggregates]
    job = counting_job(request, counts if measured is None else [measure.contribution for measure in measured.measures])
    texts = tuple(text_of(key.row_sql, rows.columns) for key in request.question.keys if key.row_sql)
    return replace(job, selected=True, texts=texts, groups=groups if rows.unit is not None else rows.unit_bound)


def key_ask(request: SelectRequest, plan: KeyPlan) -> Ask[PublishedKeys]:
    """Returns the plan's only noisy query: published groups above a threshold, with their answers."""
    tables = plan.aggregates if plan.measured is None else len(plan.measured.measures)
    query = Threshold(
        plan.bounds, plan.least, plan.excess, plan.answers, tables, plan.selecting, plan.other, plan.beside
    )
    return Ask(AskScan(key_job(request, plan.measured), plan.bounds.l1), query, plan.selection)


def key_laws(plan: KeyPlan) -> tuple[tuple[ErrorLaw, ...], ...]:
    """Returns the laws of the noise before selection: for published groups, and for the row of all other groups."""
    uses = map(plan.use_of, range(plan.aggregates))
    return tuple(tuple(_law(plan, use, others) for others in (False, True)) if use.weights else () for use in uses)


def _law(plan: KeyPlan, use: Use, others: bool) -> ErrorLaw:
    noise, weight = plan.noise_of(use.measure, others), float(use.weights[0])
    variance, step = weight * weight * noise.variance, abs(weight)
    if use.also is None and plan.is_rounded(use):
        return ErrorLaw(noise.kind, None, variance + ROUNDING, step)
    alone = ErrorLaw(noise.kind, noise.parameter, variance, step)
    if use.also is None:
        return alone
    second = _law(plan, use.also, others)
    return ErrorLaw(noise.kind, None, alone.variance + second.variance, max(alone.step, second.step))


def _selection(request: SelectRequest) -> KeySelection:
    if request.question.selection is None:
        raise InternalError("a release of selected keys without a selection")
    return request.question.selection


def _rows(request: SelectRequest, plan: KeyPlan, published: PublishedKeys) -> pa.Table:
    """Returns one row per published group, then the row for all other groups if the statement wants it."""
    ordered = [key for key in request.question.keys if not key.row_sql] + [
        key for key in request.question.keys if key.row_sql
    ]
    arrays = dict(zip((key.name for key in ordered), published.keys, strict=True))
    others = 0 if published.other is None else 1
    columns: dict[str, pa.ChunkedArray | pa.Array] = {}
    with sandbox() as connection:
        for key in request.question.keys:
            shown = arrays[key.name]
            if key.row_sql:
                values = shown.cast(pa.large_binary()).cast(pa.large_string())
            else:
                values = label_array(connection, key.labels, key.type_name).take(shown)
            columns[key.name] = pa.chunked_array([values, pa.nulls(others, values.type)])
    count = len(published.answers[0])
    columns[GROUPING_ID] = pa.array([0] * count + [(1 << len(request.question.keys)) - 1] * others, pa.int64())
    columns[GROUPING_SET] = pa.array([0] * count + [OTHER_SET] * others, pa.int32())
    for number, law in enumerate(key_laws(plan)):
        if not law:
            columns |= _average(request, plan, published, number)
            continue
        answers = _linear(plan.use_of(number), published)
        whole = answers.dtype == np.int64 or not plan.is_rounded(plan.use_of(number))
        columns[answer_column(number)] = pa.array(answers if whole else np.rint(answers).astype(np.int64))
        columns[stderr_column(number)] = pa.array([sqrt(law[0].variance)] * count + [sqrt(law[1].variance)] * others)
        if number in plan.reused:
            units = published.answers[plan.use_of(number).measure]
            lows = lows_after_selection(plan.selection, plan.threshold, plan.least, units, LEVELS)
            columns[lows_column(number)] = interval_lists(np.pad(lows, ((0, 0), (0, others)), constant_values=np.nan))
    return pa.table(columns)


def _table_numbers(table: int, published: PublishedKeys) -> IntegerArray:
    """Returns the noisy numbers of a table. The number of all other groups is last."""
    rest = np.array([] if published.other is None else [published.other[table]], np.int64)
    return np.concatenate([published.answers[table], rest])


def _linear(use: Use, published: PublishedKeys) -> IntegerArray | FloatArray:
    first = _table_numbers(use.measure, published)
    if use.also is None:
        return first if use.weights == (Fraction(1),) else sum_with_weights(use.weights, [first.astype(np.float64)])
    second = _table_numbers(use.also.measure, published)
    return float(use.weights[0]) * first + float(use.also.weights[0]) * second


def _average(request: SelectRequest, plan: KeyPlan, published: PublishedKeys, number: int) -> dict[str, pa.Array]:
    use, operand = plan.use_of(number), request.question.aggregates[number].operand
    if use.also is None or operand is None or plan.measured is None:
        raise InternalError("an average of no count and no sum")
    counts, sums = (_table_numbers(table, published) for table in (use.measure, use.also.measure))
    groups, step, part = len(published.answers[0]), float(use.also.weights[0]), plan.part_of(use.measure)

    def stderrs(table: int) -> FloatArray:
        each = [sqrt(plan.noise_of(table, others).variance) for others in (False, True)]
        return np.array(each[:1] * groups + each[1:] * (len(counts) - groups))

    result = average_about(
        float(plan.measured.measures[use.also.measure].contribution.centre),
        (float(operand.low), float(operand.high)),
        Noisy(counts.astype(np.float64) * part, stderrs(use.measure) * part, part),
        Noisy(sums.astype(np.float64) * step, stderrs(use.also.measure) * step, step),
        plan.selection.kind,
    )
    return {
        answer_column(number): pa.array(result.estimates, from_pandas=True),
        stderr_column(number): pa.array(result.stderrs, from_pandas=True),
        lows_column(number): interval_lists(result.lows),
        highs_column(number): interval_lists(result.highs),
    }
