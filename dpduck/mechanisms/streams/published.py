"""Published rows of a stream: from all measurements so far to the rows of closed periods.

An answer about some periods is a weighted sum of measurements over time. Answers by cells are recovered from such sums
as in any cube.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np
import pyarrow as pa

from dpduck.language.select.request import Aggregate
from dpduck.language.text.names import GROUPING_ID, GROUPING_SET, answer_column, stderr_column
from dpduck.mechanisms.cubes.measures import Use
from dpduck.mechanisms.cubes.plan import CubePlan
from dpduck.mechanisms.cubes.recover import nonlinear_answers, sum_with_weights
from dpduck.mechanisms.released_rows import label_array
from dpduck.mechanisms.streams.measurements import cube_of, others_of, plan_of, workload_of
from dpduck.mechanisms.streams.plan import StreamRequest, ends_of, hole, totals
from dpduck.mechanisms.streams.strategies import wholes
from dpduck.mechanisms.streams.stream_plan import StreamPlan
from dpduck.store.sandbox import Sandbox
from dpduck.strategies.plan import Plan
from dpduck.strategies.recovery.curved import LEVELS
from dpduck.strategies.recovery.recover import recover
from dpduck.strategies.time_questions import TimeQuestion
from dpduck.values.arrays import FloatArray, IntegerArray
from dpduck.values.quoting import quote_identifier

SHOWN_LEVEL = LEVELS.index(Fraction(95, 100))

Tables = list[list[FloatArray]]
"""Answers of one measure: for each grouping set, an array of each table, shape (periods, cells)."""


def answer_columns(stream: StreamRequest, number: int) -> list[tuple[str, str, TimeQuestion]]:
    """Returns the columns of an aggregate's answer and standard error, with the question over time of each pair."""
    columns = [(answer_column(number), stderr_column(number), TimeQuestion(1))]
    if not stream.request.question.aggregates[number].operand_by_group:
        columns.append((*totals("total", number), TimeQuestion(0)))
        columns += [(*totals("last", number), TimeQuestion(stream.window))] if stream.window else []
    return columns


def column_types(stream: StreamRequest, plan: StreamPlan) -> list[tuple[str, str]]:
    """Returns the columns of released rows, from which the published columns are selected."""
    columns = [(key.name, key.type_name) for key in stream.request.question.keys]
    for number, (whole, call) in enumerate(zip(wholes(stream, plan), stream.request.question.aggregates, strict=True)):
        for answer, stderr, _ in answer_columns(stream, number):
            columns += [(answer, "BIGINT" if whole else "DOUBLE"), (stderr, "DOUBLE")]
            columns += [(end, "DOUBLE") for end in ends_of(answer)] if call.has_curved_error else []
    return [*columns, (GROUPING_ID, "BIGINT"), (GROUPING_SET, "INTEGER")]


def publication_sql(stream: StreamRequest, plan: StreamPlan, rows: str) -> str:
    """Renders the published SELECT over a table of released rows. If `rows` is empty, the SELECT has no rows."""
    types = [(quote_identifier(name), type_name) for name, type_name in column_types(stream, plan)]
    listed = ", ".join(f"CAST({name if rows else 'NULL'} AS {type_name}) AS {name}" for name, type_name in types)
    inner = f"SELECT {listed} FROM {rows}" if rows else f"SELECT {listed} LIMIT 0"
    return stream.select.replace(hole(), f"({inner})")


def recover_rows(stream: StreamRequest, plan: StreamPlan, first: int, closed: int, answers: IntegerArray) -> pa.Table:
    """Computes the released rows of the periods from `first` on, from all measurements so far."""
    cube, aggregates = cube_of(stream, plan), stream.request.question.aggregates
    width = sum(part.width for part in _blocks(cube))
    measured = answers.reshape(-1, width).astype(np.float64)
    columns = _keys(stream, first, closed)
    by_question: dict[TimeQuestion, _About] = {}
    for number, (whole, aggregate) in enumerate(zip(wholes(stream, plan), aggregates, strict=True)):
        for answer, stderr, question in answer_columns(stream, number):
            if question not in by_question:
                by_question[question] = _about(cube, plan, question, first, closed, measured)
            part = _answer(cube, aggregate, cube.uses[number], by_question[question])
            columns[answer] = pa.array(
                np.rint(part.estimates).astype(np.int64) if whole else part.estimates, from_pandas=True
            )
            columns[stderr] = pa.array(part.stderrs, from_pandas=True)
            if part.ends is not None:
                columns |= {name: pa.array(end) for name, end in zip(ends_of(answer), part.ends, strict=True)}
    return pa.table(columns)


@dataclass(frozen=True)
class _Block:
    """Place of one query's answers among all numbers that are measured at one time: a run of numbers for each table."""

    measure: int
    start: int
    shape: tuple[int, ...]
    tables: int

    @property
    def width(self) -> int:
        return prod(self.shape) * self.tables

    def of(self, numbers: FloatArray, table: int) -> FloatArray:
        cells = prod(self.shape)
        return numbers[:, self.start + table * cells : self.start + (table + 1) * cells]


def _blocks(cube: CubePlan) -> Iterator[_Block]:
    """Yields the blocks in the order of the asks (strategies.asks_of)."""
    start = 0
    for number, measure_plan in enumerate(cube.measures):
        for measurement in plan_of(measure_plan).measurements:
            block = _Block(number, start, measurement.query.shape, measure_plan.measure.contribution.tables)
            start += block.width
            yield block


@dataclass(frozen=True)
class _About:
    """Recovered tables of all measures for one question. squares: for each period, the squared norm of the weights."""

    tables: list[Tables]
    squares: FloatArray


def _about(
    cube: CubePlan, plan: StreamPlan, question: TimeQuestion, first: int, closed: int, measured: FloatArray
) -> _About:
    questions = np.zeros((closed - first, closed))
    for row, period in enumerate(range(first + 1, closed + 1)):
        questions[row, :period] = question.about(period)
    weights = plan.axis.weights(closed, questions)
    combined, blocks = weights @ measured, list(_blocks(cube))
    tables = []
    for number, planned in enumerate(cube.measures):
        own = [block for block in blocks if block.measure == number]
        count = planned.measure.contribution.tables
        by_table = [_recover_table(plan_of(planned), own, combined, table) for table in range(count)]
        tables.append([list(of_set) for of_set in zip(*by_table, strict=True)])
    return _About(tables, (weights**2).sum(axis=1))


def _recover_table(plan: Plan, blocks: Sequence[_Block], combined: FloatArray, table: int) -> list[FloatArray]:
    """Recovers one table's answers for every grouping set, shape (periods, cells)."""
    numbers = [block.of(combined, table) for block in blocks]
    (query, *more) = [measurement.query for measurement in plan.measurements]
    plain = not more and query.is_identity
    if plain and plan.workload.marginals == (query.attributes,):
        return numbers
    by_period = [
        recover(plan, [values[period].reshape(block.shape) for values, block in zip(numbers, blocks, strict=True)])
        for period in range(len(combined))
    ]
    return [np.stack([answers.ravel() for answers in of_set]) for of_set in zip(*by_period, strict=True)]


@dataclass(frozen=True)
class _Answer:
    """Answers by period, grouping set and cell, in this order. ends: interval ends, None if these are not stored."""

    estimates: FloatArray
    stderrs: FloatArray
    ends: tuple[FloatArray, FloatArray] | None = None


def _answer(cube: CubePlan, aggregate: Aggregate, use: Use, about: _About) -> _Answer:
    measured, parts = cube.measures[use.measure], []
    for tables, variance in zip(about.tables[use.measure], plan_of(measured).variances, strict=True):
        spread = np.repeat(about.squares[:, None] * variance, tables[0].shape[1], axis=1)
        if use.weights:
            parts.append([sum_with_weights(use.weights, tables).reshape(spread.shape), np.sqrt(spread * use.size)])
            continue
        result = nonlinear_answers(cube, aggregate, measured, [table.ravel() for table in tables], spread.ravel())
        listed = (result.estimates, result.stderrs, result.lows[SHOWN_LEVEL], result.highs[SHOWN_LEVEL])
        parts.append([part.reshape(spread.shape) for part in listed])
    estimates, stderrs, *ends = [np.concatenate(part, axis=1).ravel() for part in zip(*parts, strict=True)]
    return _Answer(estimates, stderrs, (ends[0], ends[1]) if ends else None)


def _keys(stream: StreamRequest, first: int, closed: int) -> dict[str, pa.Array]:
    """Returns the key columns of every period, grouping set and cell. Rolled-up keys are NULL."""
    keys, workload, others = stream.request.question.keys, workload_of(stream), others_of(stream)
    shapes = [tuple(workload.sizes[key] for key in members) for members in workload.marginals]
    cells = [prod(shape) for shape in shapes]
    columns: dict[str, pa.Array] = {}
    with Sandbox() as box, box.cursor() as connection:
        for number, key in enumerate(keys):
            labels = label_array(connection, key.labels, key.type_name)
            if number == stream.axis:
                columns[key.name] = labels.take(pa.array(np.repeat(np.arange(first, closed), sum(cells))))
                continue
            place, codes = others.index(number), []
            for members, shape in zip(workload.marginals, shapes, strict=True):
                indices = np.indices(shape).reshape(len(shape), -1) if place in members else None
                codes.append(np.full(prod(shape), -1) if indices is None else indices[members.index(place)])
            code = np.tile(np.concatenate(codes), closed - first)
            columns[key.name] = labels.take(pa.array(code, mask=code < 0))
    rolled = [sum(1 << others[key] for key in range(len(others)) if key not in item) for item in workload.marginals]
    periods = closed - first
    columns[GROUPING_ID] = pa.array(np.tile(np.repeat(np.array(rolled, np.int64), cells), periods))
    columns[GROUPING_SET] = pa.array(np.tile(np.repeat(np.arange(len(cells), dtype=np.int32), cells), periods))
    return columns
