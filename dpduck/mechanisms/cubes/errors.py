"""How far every aggregate of a statement will be off, one by one, and what would help most: from public figures alone.

Errors of averages, variances and quantiles depend on the answer. They are those of a table that the policy lets one
expect: EXPECT ROWS, spread evenly over the cells of a grouping set, with values spread evenly between their bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isfinite, sqrt

import numpy as np

from dpduck.frontend.select.request import Aggregate, Key, Request
from dpduck.mechanisms.cubes.measure import CubeProposal, cube_asks
from dpduck.mechanisms.cubes.measures import CHOICE, Use
from dpduck.mechanisms.cubes.plan import CubePlan, MeasurePlan, plans_at, tree_buckets
from dpduck.mechanisms.cubes.recover import cell_variances, curved
from dpduck.mechanisms.prices import AggregateError
from dpduck.trusted.noise.law import NoiseKind
from dpduck.trusted.private.door import charged
from dpduck.values.arrays import FloatArray
from dpduck.values.domain import RangeDomain
from dpduck.values.errors import Refusal
from dpduck.values.privacy import Budget

TWO_SIDED_95 = 1.96
MOST_SECONDS = 2.0
"""What looking for help may take, as planning the statement itself took."""

MOST_HELPS = 3
FEWEST_BINS = 4
FEWEST_ROWS = 10
"""Of a cell, to be written without decimals."""

WORTHWHILE = 1.2
"""How many times less an error must be to be called a help."""


def foreseen(proposal: CubeProposal, expect_rows: int | None) -> list[AggregateError]:
    """Returns one line an aggregate, in the order in which they are written."""
    return _lines(proposal.found, expect_rows)


def _lines(found: CubePlan, expect_rows: int | None) -> list[AggregateError]:
    if found.request.question.intervals:  # one aggregate each, measured together
        plan = found.measures[0].plan
        worst = plan.worst_stderr
        return [AggregateError(one.text, 1, None, worst, worst) for one in found.request.question.aggregates]
    pairs = zip(found.request.question.aggregates, found.uses, strict=True)
    return [_foreseen(found, one, use, expect_rows) for one, use in pairs]


def _foreseen(found: CubePlan, one: Aggregate, use: Use, expect_rows: int | None) -> AggregateError:
    measured = found.measures[use.measure]
    variances = cell_variances(found.request, measured.plan)
    tree = measured.measure.form == "tree"
    rank = sqrt(max(float(table.max()) for table in variances)) if tree else None
    queries = 2 * tree_buckets(found.request.question, measured.measure).count - 1 if tree else 1
    sizes = [table.size // queries for table in variances]
    rows = None if expect_rows is None else float(round(expect_rows / max(sizes), 1))
    if use.weights:
        size = float(sum(weight * weight for weight in use.weights))
        parts = [size * table for table in variances]
    elif expect_rows is None:
        return AggregateError(one.text, sum(sizes), None, None, None, rank)
    else:
        parts = [
            np.full(size, _curved_error(found, one, measured, table, expect_rows / size) ** 2)
            for size, table in zip(sizes, variances, strict=True)
        ]
    together = np.concatenate(parts)
    typical, worst = sqrt(float(together.mean())), sqrt(float(together.max()))
    return AggregateError(one.text, sum(sizes), rows, typical, worst, rank)


def _curved_error(found: CubePlan, one: Aggregate, measured: MeasurePlan, table: FloatArray, rows: float) -> float:
    """Returns the standard error of an average, a variance or a quantile of so many rows, at most what is possible at
    all.
    """
    measure, operand = measured.measure, one.operand
    if operand is None:
        return 0.0
    width = float(operand.high - operand.low)
    if measured.choices:
        far = measured.choices[0].far / max(rows, 1.0)
        return max(min(1.0, far / TWO_SIDED_95) * width, float(operand.step) / sqrt(12))
    if one.function == "quantile":
        count = tree_buckets(found.request.question, measure).count
        below = rows * np.arange(1, count) / count
        answers = [np.concatenate([below, rows - below, [rows]])[None, :]]
        noise = table.reshape(-1, 2 * count - 1).max(axis=0)
    else:
        whole = float(measure.steps**measure.degree)
        answers = [np.array([rows * whole / (measure.degree + 1)])] * (measure.degree + 1)
        noise = np.array([table.max()])
    answer = curved(found, one, measured, answers, noise)
    possible = float(answer.highs[-1, 0] - answer.lows[-1, 0])
    told = float(answer.stderrs[0])
    return min(told, possible) if isfinite(told) else possible


# What would make the finest table's error least, relative to the rows of a cell.


@dataclass(frozen=True)
class Help:
    """A change of statement or policy, and how many times less a typical cell then errs relative to its rows."""

    change: str
    times: float


def helps(found: CubePlan, same_cost: Fraction | None) -> list[Help]:
    """Returns what helps most, best first: fewer cells, coarser bins, MAX ROWS, the noise of a delta.

    same_cost: the rho that the statement is charged, where the budget adds up rho.
    """
    base = _relative(found)
    if not base:
        return []
    offers = [Help(change, base / error) for change, error in _changed(found, same_cost) if error > 0]
    rows = found.request.rows
    if rows.unit_sql is not None and rows.max_rows > 1:
        fewer = rows.max_rows // 2
        offers.append(Help(f"MAX ROWS {fewer} in the policy, which leaves rows out,", rows.max_rows / fewer))
    worth = sorted((one for one in offers if one.times >= WORTHWHILE), key=lambda one: -one.times)
    return worth[:MOST_HELPS]


def _relative(found: CubePlan) -> float:
    """Returns the largest error of a table times its cells; 0 where no table has an error of its own."""
    measured = next((one for one in found.measures if one.measure.form != CHOICE), None)
    if measured is None:
        return 0.0
    parts = cell_variances(found.request, measured.plan)
    return max(sqrt(float(table.mean())) * table.size for table in parts)


def _changed(found: CubePlan, same_cost: Fraction | None) -> Iterator[tuple[str, float]]:
    """Changes of the statement with the relative error that each leads to, as long as planning them is quick."""
    offers = [*_offers(found.request)]
    took = sum(one.plan.planning_seconds for one in found.measures)
    if took * (len(offers) + 1) > MOST_SECONDS:
        offers = []
    charge = found.request.price.charge
    amount = charge.rho if charge.epsilon is None else charge.epsilon
    for change, request in offers:
        with suppress(Refusal):
            yield change, _relative(plans_at(request, found.noise, amount))
    if charge.epsilon is not None and same_cost is not None and took < MOST_SECONDS / 2:
        with suppress(Refusal):
            gaussian = _relative(plans_at(found.request, NoiseKind.GAUSSIAN, same_cost))
            yield f"OPTIONS (rho = {float(same_cost):.4g}), at the same cost,", gaussian


def _offers(request: Request) -> Iterator[tuple[str, Request]]:
    """Yields the request without one of its keys, and with bins twice as wide."""
    question = request.question
    if question.has_ranges:
        return
    for place, key in enumerate(question.keys):
        if len(key.labels) < 2:
            continue
        kept = tuple(one for number, one in enumerate(question.keys) if number != place)
        sets = (_without(one, place) for one in question.grouping_sets)
        treatment = replace(question.treatment, weights=())
        fewer = replace(question, keys=kept, grouping_sets=tuple(dict.fromkeys(sets)), treatment=treatment)
        yield f"no {key.name} ({len(key.labels)} values)", replace(request, question=fewer)
        binned = any(isinstance(question.sources[source].domain, RangeDomain) for source in key.sources)
        if binned and len(key.labels) >= FEWEST_BINS:
            keys = tuple(_coarser(one) if one is key else one for one in question.keys)
            yield f"bins of {key.name} twice as wide", replace(request, question=replace(question, keys=keys))


def _without(grouping_set: tuple[int, ...], place: int) -> tuple[int, ...]:
    return tuple(number - (number > place) for number in grouping_set if number != place)


def _coarser(key: Key) -> Key:
    return replace(key, labels=key.labels[::2])


def advice(proposal: CubeProposal, budget: Budget | None, expect_rows: int | None) -> str:
    """Tells whose the worst error is, and what helps most, with figures: per cents of a cell's rows by EXPECT ROWS."""
    found = proposal.found
    price = found.request.price
    in_rho = budget is not None and not budget.pure
    same_cost = charged(price.charge, cube_asks(proposal), price.least_rho).rho if in_rho else None
    parts = (_whose(found), _unknown(found, expect_rows), _helping(found, same_cost, expect_rows))
    return "; ".join(part for part in parts if part)


def _unknown(found: CubePlan, expect_rows: int | None) -> str:
    """Says why the errors of averages, variances and quantiles are not known."""
    if expect_rows is not None or found.request.question.intervals:
        return ""
    curved_ones = [
        one.text for one, use in zip(found.request.question.aggregates, found.uses, strict=True) if not use.weights
    ]
    return f"the error of {', '.join(curved_ones)} is known once the policy has EXPECT ROWS" if curved_ones else ""


def _helping(found: CubePlan, same_cost: Fraction | None, expect_rows: int | None) -> str:
    offers = helps(found, same_cost)
    if not offers:
        return ""
    counted = all(one.function == "count" for one in found.request.question.aggregates)
    if expect_rows is None or not counted:
        less = ", ".join(f"{one.times:.2g} times less with {one.change.rstrip(',')}" for one in offers)
        return f"beside its rows a cell's error would be {less}"
    now = 100 * _relative(found) / expect_rows
    rows = expect_rows / max(found.request.question.cells)
    said = f"a cell of {rows:.{0 if rows >= FEWEST_ROWS else 2}f} rows is off by {now:.2g} %"
    return f"{said}; with " + ", with ".join(f"{one.change} {now / one.times:.2g} %" for one in offers)


def _whose(found: CubePlan) -> str:
    """Says whose worst_stderr is, where there are several aggregates; of none that is a count or a sum, nothing."""
    lines = [line for line in _lines(found, None) if line.worst is not None]
    if len(found.uses) < 2 or not lines or found.request.question.intervals:
        return ""
    worst = max(lines, key=lambda line: line.worst or 0.0)
    return f"worst_stderr is that of {worst.text}: dp_errors() has one line an aggregate"
