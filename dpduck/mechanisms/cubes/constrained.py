"""Answers that are brought to public totals, with their errors. This is post-processing, and costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from dpduck.language.select.request import Question
from dpduck.mechanisms.cubes.nested_keys import fold_cells
from dpduck.mechanisms.cubes.plan import CubePlan
from dpduck.mechanisms.cubes.public_totals import equations_of, finest_groups, sides_of, whole_margins
from dpduck.mechanisms.forecast import AggregateError
from dpduck.mechanisms.released_rows import AnswerColumn
from dpduck.strategies.recovery.controlled import nearest_counts, rounded_counts, with_rest
from dpduck.strategies.recovery.covariances import covariances
from dpduck.strategies.recovery.fixed_margins import MarginProjection, projection_onto_margins
from dpduck.strategies.recovery.intervals import ErrorLaw
from dpduck.strategies.recovery.projection import TotalsProjection, projection_onto
from dpduck.strategies.recovery.recover import solves_program
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import InternalError, Refusal

Laws = tuple[tuple[ErrorLaw, ...], ...]


@dataclass(frozen=True, eq=False)
class Constrained:
    """Aggregate with public totals. size: the variance of its answers, if a table's cell has variance 1."""

    aggregate: int
    projection: TotalsProjection | MarginProjection
    size: float


def constrained_aggregates(cube: CubePlan) -> tuple[Constrained, ...]:
    """Returns the aggregates of a plan that have public totals. Refuses plans other than plain tables."""
    question = cube.request.question
    found = []
    for number in dict.fromkeys(total.aggregate for total in question.totals):
        use = cube.uses[number]
        measured = cube.measures[use.measure]
        plain = bool(use.weights) and use.also is None and measured.measure.is_sum and not measured.plan.parts
        if not plain or measured.measure.contribution.norm or solves_program(measured.plan):
            raise Refusal(
                f"{question.aggregates[number].text[:60]} is not planned as a plain table, so it has no public totals",
                accepted="the statement without public_totals",
            )
        margins, errors = whole_margins(question, number), covariances(measured.plan)
        projection: TotalsProjection | MarginProjection
        if margins is None:
            projection = projection_onto(equations_of(question, number), errors)
        else:
            projection = projection_onto_margins(question.grouping_sets, question.sizes, margins, errors)
        found.append(Constrained(number, projection, use.size))
    return tuple(found)


def with_laws(laws: Laws, known: Sequence[Constrained]) -> Laws:
    """Returns the laws of all aggregates. With totals, a set's law has the largest variance of its cells."""
    changed = list(laws)
    for one in known:
        largest = [one.size * float(part.max()) for part in one.projection.split(one.projection.variances)]
        pairs = zip(laws[one.aggregate], largest, strict=True)
        changed[one.aggregate] = tuple(replace(law, parameter=None, variance=variance) for law, variance in pairs)
    return tuple(changed)


def with_errors(errors: Sequence[AggregateError], known: Sequence[Constrained]) -> list[AggregateError]:
    """Returns the predicted errors of all aggregates. With totals, these are the errors of the projection."""
    changed = list(errors)
    for one in known:
        variances = one.size * one.projection.variances
        typical, worst = sqrt(float(variances.mean())), sqrt(float(variances.max()))
        changed[one.aggregate] = replace(changed[one.aggregate], typical=typical, worst=worst)
    return changed


def with_public_totals(
    answers: Sequence[AnswerColumn], linear: Sequence[AnswerColumn], known: Sequence[Constrained], question: Question
) -> list[AnswerColumn]:
    """Returns the answers of all aggregates. linear: the answers before options changed them."""
    changed = list(answers)
    for one in known:
        changed[one.aggregate] = _answer(one, linear[one.aggregate].estimates, question)
    return changed


def _answer(one: Constrained, measured: FloatArray, question: Question) -> AnswerColumn:
    projected = one.projection.project(measured)
    exact = one.projection.variances == 0
    if question.aggregates[one.aggregate].function == "count":
        projected = np.where(exact, np.rint(projected), projected)
    stderrs = sqrt(one.size) * np.sqrt(one.projection.variances)
    treatment = question.treatment
    if not (treatment.nonnegative or treatment.integer):
        return AnswerColumn(projected, stderrs)
    shown = np.where(exact, projected, _counts(one, projected, question))
    if not treatment.moves:
        return AnswerColumn(shown, stderrs)
    return AnswerColumn(shown, np.hypot(stderrs, shown - projected), raw=projected)


def _counts(one: Constrained, projected: FloatArray, question: Question) -> FloatArray:
    """Returns non-negative or whole counts in the finest table, and their sums in all other tables."""
    finest, treatment = finest_groups(question, one.aggregate), question.treatment
    if finest is None:
        raise InternalError("no finest table, which was checked before")
    cells = one.projection.split(projected)[finest.place]
    groups, totals = with_rest(
        finest.matrix, sides_of(question, one.aggregate), cells, nonnegative=treatment.nonnegative
    )
    if treatment.nonnegative:
        cells = nearest_counts(groups, totals, cells)
    if treatment.integer:
        cells = rounded_counts(groups, totals, cells, nonnegative=treatment.nonnegative)
    members = question.grouping_sets[finest.place]
    sums = []
    for others, size in zip(question.grouping_sets, question.cells, strict=True):
        folded = fold_cells(question, members, others)
        if folded is None:
            raise InternalError("a set that is no sum of the finest table")
        sums.append(np.bincount(folded, weights=cells, minlength=size))
    return np.concatenate(sums)
