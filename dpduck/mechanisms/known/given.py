"""Plans of marginals for a statement beside earlier releases: each marginal is as precise as the answer still needs.

Suppose that a statement's conditions are dropped, and their columns become columns of the marginals. If no cells are
added up, the price is the same, and the marginals answer other questions, too. Plans depend on public noise and
shapes of releases, and on no estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from math import prod

import numpy as np

from dpduck.kernel.noise.law import NoiseKind
from dpduck.language.rows.facts import SourceColumn
from dpduck.language.select.conditions import CodeCondition
from dpduck.language.select.keys import KeyBuilder
from dpduck.language.select.known import KnownQuestion
from dpduck.language.select.request import Key, Question, SelectRequest, Treatment
from dpduck.language.statements.parse import parse_expression
from dpduck.mechanisms.cubes.measure import blank_measured, propose_cube
from dpduck.mechanisms.cubes.plan import noise_of
from dpduck.mechanisms.known.answer import KnownReleases, axes_over, estimator_of
from dpduck.mechanisms.known.axes import Axes, CellQuery, cell_query
from dpduck.mechanisms.known.chosen_tables import is_cellwise
from dpduck.mechanisms.known.tables import PLANNED, Match, Usable, match, needs_of
from dpduck.store.measured import MeasuredTable
from dpduck.strategies.marginals.given import MOST_AXES, Gap, best_precisions, even_out, least_amount, shares_of
from dpduck.strategies.marginals.planners import SHARES
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Charge

MOST_CELLS = 1 << 18
"""Most cells that are measured in place of a statement's own cells."""


@dataclass(frozen=True, eq=False)
class MarginalGap:
    """Precision that a statement's answer lacks after earlier releases, and a request for marginals in its place.

    whole: the request for all columns in one marginal.
    gap: the lacking precision, in units of a row's largest contribution, which is 1 for counts.
    finer: whether the request also measures rows that the statement's conditions leave out.
    """

    whole: SelectRequest
    gap: Gap
    finer: bool

    @property
    def noise(self) -> NoiseKind:
        return noise_of(self.whole)

    def at(self, amount: Fraction) -> SelectRequest | None:
        """Returns the request for the best marginals at a price. None if they have more than MOST_CELLS cells."""
        bound = self.whole.rows.unit_bound
        given = float(amount) / (bound if self.noise is NoiseKind.LAPLACE else bound * bound)
        shares = shares_of(best_precisions(self.gap, self.noise, given), self.noise)
        chosen = [number for number in np.argsort(-shares, kind="stable").tolist() if shares[number]]
        sets = [self.gap.members(number) for number in chosen]
        if sum(prod(self.gap.sizes[i] for i in members) for members in sets) > MOST_CELLS:
            return None
        weights = tuple(Fraction(round(float(shares[number]) * 10**6), 10**6) for number in chosen)
        treatment = Treatment(strategy="marginals", budgets=SHARES, weights=weights)
        question = replace(self.whole.question, grouping_sets=tuple(sets), treatment=treatment)
        request = replace(self.whole, question=question)
        return request if request.price.target is None else _without_target(request, amount)

    def least(self, target: float, most: Fraction) -> Fraction | None:
        """Returns the least price at which the answer has this standard error. None if it is above `most`."""
        amount = least_amount(self.gap, self.noise, target, float(most) / self._factor)
        return None if amount is None else Fraction(amount) * self._factor

    def balance_errors(self, target: float, most: Fraction) -> MarginalGap:
        """Returns the gap with weights by which plans lower the largest standard error, not the sum of variances."""
        return replace(self, gap=even_out(self.gap, self.noise, target, float(most) / self._factor))

    @property
    def _factor(self) -> int:
        return self.whole.rows.unit_bound ** (1 if self.noise is NoiseKind.LAPLACE else 2)


def request_at_price(request: SelectRequest, amount: Fraction) -> SelectRequest:
    """Returns a request with this price in place of its target. Its plan is for the worst cell, as with the target."""
    question = request.question
    if request.price.target is not None and (question.has_ranges or len(question.grouping_sets) > 1):
        request = replace(request, question=replace(question, treatment=replace(question.treatment, evenly=True)))
    return _without_target(request, amount)


def _without_target(request: SelectRequest, amount: Fraction) -> SelectRequest:
    price = replace(request.price, target=None, charge=Charge.zcdp(amount))
    if request.price.target is not None and request.price.target.pure:
        price = replace(price, charge=Charge.pure(amount), stated_epsilon=amount)
    return replace(request, price=price)


def given_known(
    question: KnownQuestion,
    request: SelectRequest,
    releases: KnownReleases,
    amount: Fraction,
) -> MarginalGap | None:
    """Returns the precision that earlier releases do not give. amount: the price if there is a target error.

    Returns None unless counts are asked for, or sums or averages of one clamped column, by declared columns.
    """
    whole = _whole(question, request)
    if whole is None or len(whole.question.keys) > MOST_AXES:
        return None
    if prod(len(key.labels) for key in whole.question.keys) > MOST_CELLS:
        return None
    blank = blank_measured(propose_cube(request_at_price(whole, amount) if whole.price.target is not None else whole))
    if blank is None:
        return None
    tables = releases.with_planned(blank).tables(question, PLANNED)
    gaps, scale = list[Gap](), 1.0
    for aggregate in request.question.aggregates:
        need = needs_of(aggregate, request.rows.filters)
        for quantity in need.quantities if need else ():
            matches = [same for same in tables if same.quantity == quantity]
            how = match(question, matches[0], need.conditions) if need and len(matches) == 1 else None
            gap = None if how is None else _gap(question, whole, how, tables[matches[0]], releases)
            if gap is None:
                return None
            gaps.append(gap)
            (own,) = (use for use in tables[matches[0]] if use.kept.name == PLANNED)
            scale = _scale(blank.tables[own.table], own.weights)
    if not gaps:
        return None
    finer = len(whole.rows.filters) < len(request.rows.filters) or any(
        entry.condition for entry in request.question.aggregates
    )
    least = np.min([entry.known for entry in gaps], axis=0)  # an average's two sums are measured alike
    asked_of_all = np.concatenate([entry.asked for entry in gaps])
    return MarginalGap(whole, Gap(gaps[0].sizes, least * scale**2, asked_of_all), finer)


def _scale(table: MeasuredTable, weights: Sequence[float]) -> float:
    """Returns the most that a row adds to a table, in units of the quantity: the weighted sum of the table's parts."""
    whole = float(table.steps**table.degree)
    if table.form == "sum":
        whole = float(max(abs(table.low), abs(table.high)) / table.step)
    return whole * float(np.linalg.norm(weights))


def _whole(question: KnownQuestion, request: SelectRequest) -> SelectRequest | None:
    """Returns the statement's aggregate by all columns that it names, without its conditions on these columns.

    With MAX ROWS or periods, WHERE stays. They bound the rows after WHERE: without it, other rows would be counted.
    """
    asked_of = request.question
    kinds = {(entry.function, entry.operand) for entry in asked_of.aggregates}
    if len(kinds) > 1 or not kinds <= {("count", None)} | {
        (name, entry) for name in ("sum", "avg") for _, entry in kinds
    }:
        return None
    left, conditions = list(request.rows.filters), list[CodeCondition]()
    for written in request.rows.filters if request.rows.unit_sql is None and request.rows.periods is None else ():
        read = [question.condition(text) for text in question.conjuncts(written)]
        if None not in read:
            left.remove(written)
            conditions += [entry for entry in read if entry is not None]
    for text in (text for entry in asked_of.aggregates for text in question.conjuncts(entry.condition)):
        condition = question.condition(text)
        if condition is None:
            return None
        conditions.append(condition)
    grouped = [question.analysis.request.question.sources[place].sql for key in asked_of.keys for place in key.sources]
    if asked_of.intervals:
        grouped = [source.sql for source in asked_of.sources]
    columns = list(dict.fromkeys([*grouped, *chain.from_iterable(entry.columns for entry in conditions)]))
    built = _keys(question, columns)
    if built is None:
        return None
    keys, sources = built
    everything = tuple(range(len(keys)))
    all_rows = replace(asked_of.aggregates[0], condition="")
    counted = Question(sources, keys, (everything,), (all_rows,), Treatment())
    return replace(request, rows=replace(request.rows, filters=tuple(left)), question=counted)


def _keys(question: KnownQuestion, columns: Sequence[str]) -> tuple[tuple[Key, ...], tuple[SourceColumn, ...]] | None:
    builder = KeyBuilder(question.source, question.facts)
    try:
        keys = tuple(builder.build(sql, parse_expression(sql)) for sql in columns)
    except Refusal:
        return None
    return keys, builder.sources


def _gap(
    question: KnownQuestion, whole: SelectRequest, how: Match, uses: Sequence[Usable], releases: KnownReleases
) -> Gap | None:
    """Returns the missing precision of the columns' components. None if several columns share an axis."""
    uses = [use for use in uses if not use.joins]
    axes = axes_over(question, how, uses)
    names = [source.sql for source in whole.question.sources]
    places = [axes.of(name) for name in names]
    if any(len(axes.columns[place]) > 1 for place in places):
        return None
    sizes = tuple(axes.lengths[place] for place in places)
    request = question.analysis.request.question
    rows = [_lengths(cell_query(axes, request, members, how.seen), places, sizes) for members in request.grouping_sets]
    asked_rows = [row for row in rows if row is not None]
    if len(asked_rows) < len(rows):
        return None
    return Gap(sizes, _component_precisions(axes, places, uses, releases), np.array(asked_rows))


def _component_precisions(
    axes: Axes, places: Sequence[int], uses: Sequence[Usable], releases: KnownReleases
) -> FloatArray:
    """Returns the precision of each component from tables that were measured cell by cell. Other tables are ignored."""
    precisions = np.zeros(1 << len(places))
    plain = [use for use in uses if use.kept.name != PLANNED and is_cellwise(use)]
    if plain:
        estimator, _ = estimator_of(axes, plain, releases.remembered)
        rest = prod(float(length) for place, length in enumerate(axes.lengths) if place not in places)
        for number in range(len(precisions)):
            inside = tuple(sorted(place for i, place in enumerate(places) if number >> i & 1))
            precisions[number] = 1 / estimator.component_variance(inside) / rest
    return precisions


def _lengths(of_set: CellQuery, places: Sequence[int], sizes: Sequence[int]) -> FloatArray | None:
    """Returns the squared L2 norm of a query's longest row in each component. None if the query needs other axes."""
    if not set(of_set.along) <= set(places):
        return None
    lengths = np.ones(1)
    for place, size in zip(places, sizes, strict=True):
        whole, inside = float(size), 0.0
        if place in of_set.along:
            rows = of_set.along[place]
            squares = np.asarray(rows.power(2).sum(axis=1)).ravel()
            longest = int(squares.argmax())
            whole = float(rows.sum(axis=1)[longest]) ** 2 / size
            inside = max(float(squares[longest]) - whole, 0.0)
        lengths = np.concatenate([lengths * whole, lengths * inside])
    return lengths
