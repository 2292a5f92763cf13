"""Default for units with many rows: noise scales with norms that the statement itself measures, not with MAX ROWS.

Public facts alone decide: the statement, the policy and the number of cells. A statement that sets any option on
bounds, on its measurement or on its answers keeps its own options.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod

from dpduck.language.rows.tree import RowSource
from dpduck.language.select.options import Options, can_widen
from dpduck.language.select.request import VARIANCES, Aggregate, Key, SelectRequest, Treatment

MANY_ROWS, MANY_CELLS = 50, 20
"""Fewest rows of a unit and fewest cells for norms by default. Below, norms cost more than they gain (choosing.md)."""

MOST_CODES = 10_000  # the most values of all keys together, if a key puts several values into a group
MOST_CELLS, MOST_SUMMED = 1_000_000, 5_000
"""Most cells of all keys, without margins and with margins. A margin adds up the noise of its cells."""

MOST_VARIANCE, OF_ALL_ROWS = 1 << 80, Fraction(1, 20)
"""Largest variance of noise, and the part of a price for a sum of all rows. A test compares both with originals."""


def may_find_norms(options: Options, source: RowSource, keys: Sequence[Key]) -> bool:
    """Tells whether a statement gets norms by default, before `with_norms` checks its aggregates."""
    rho = options.rho is not None or (options.epsilon is not None and options.delta is not None)
    several = source.first.policy.unit.column is not None and source.usual_rows >= MANY_ROWS
    written = options.max_rows_contributed is not None or options.selection is not None or bool(options.own)
    written = written or options.summary is not None or options.form != "sets" or options.reuse
    if not (rho and several) or written or options.treatment != Treatment():
        return False
    plain = all(not key.shape and not key.row_sql and min(key.codes) >= 0 for key in keys)
    apart = all(len(set(key.codes)) == len(key.codes) for key in keys)
    few = apart or sum(len(key.codes) for key in keys) <= MOST_CODES
    return plain and few and MANY_CELLS <= prod(len(key.labels) for key in keys) <= MOST_CELLS


def could_find_norms(request: SelectRequest) -> bool:
    """Tells whether a statement with a delta could get norms by default, if its options allow norms."""
    rows = max(request.rows.max_rows, request.rows.unit_bound)
    return rows >= MANY_ROWS and prod(request.question.sizes) >= MANY_CELLS


def with_norms(request: SelectRequest) -> SelectRequest:
    """Returns the request with norms, if each of its aggregates has a norm and an interval that holds the truth."""
    question = request.question
    if question.intervals or question.matrix or not all(map(_has_norm, question.aggregates)):
        return request
    finest = tuple(range(len(question.keys)))
    if question.grouping_sets != (finest,) and (
        finest not in question.grouping_sets or prod(question.sizes) > MOST_SUMMED
    ):
        return request
    totals = can_widen(question)
    if totals and not _has_room(request):
        return request
    if not totals and any(aggregate.function not in ("avg", *VARIANCES) for aggregate in question.aggregates):
        return request
    treatment = replace(question.treatment, finds_norm=True, total=totals, left_out=totals, usual=True)
    return replace(request, question=replace(question, treatment=treatment))


def _has_room(request: SelectRequest) -> bool:
    """Tells whether the variance of noise for sums of all rows is at most MOST_VARIANCE.

    These sums get a small part of the price, and their noise grows with MAX ROWS.
    """
    aggregates = request.question.aggregates
    most = max((int(agg.operand.high / agg.operand.step) for agg in aggregates if agg.operand is not None), default=1)
    price = request.price.charge.rho * OF_ALL_ROWS / len(aggregates)
    return (request.rows.unit_bound * most) ** 2 <= 2 * price * MOST_VARIANCE


def _has_norm(aggregate: Aggregate) -> bool:
    """Tells whether an aggregate counts units, or is a count, sum, average or variance that is not clamped by group."""
    if aggregate.function not in ("count", "sum", "avg", *VARIANCES):
        return False
    operand = aggregate.operand
    persons = operand is not None and not operand.sql and operand.low == 0 and operand.high == 1
    return operand is None or not operand.per_group or persons
