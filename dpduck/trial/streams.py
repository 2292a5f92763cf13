"""Trials of streams: the measurements of all periods at once, with the noise that their refreshes would have.

A stream keeps the earliest rows of a unit above MAX ROWS, and a trial keeps rows in the order of the ledger's key. Both
keep as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import duckdb
import numpy as np

from dpduck.kernel.door import Door, compute_charge
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.queries.operators import MatrixFactor
from dpduck.kernel.queries.streams import StreamAsk
from dpduck.kernel.queries.tables import operator_of
from dpduck.kernel.queries.trials import open_trial
from dpduck.language.statements.kinds import AskStatement, CreatePrivate
from dpduck.language.text.names import GROUPING_SET, answer_column, high_column, low_column, stderr_column
from dpduck.mechanisms.streams.measurements import asks_of
from dpduck.mechanisms.streams.plan import OWN, StreamRequest
from dpduck.mechanisms.streams.published import recover_rows
from dpduck.mechanisms.streams.strategies import plans
from dpduck.trial.draws import Drawing
from dpduck.trial.figures import CELLS, NOISY, SHOWN
from dpduck.values.arrays import IntegerArray
from dpduck.values.quoting import quote_identifier

NORMAL_95 = 1.959964
"""Half-width of an interval of 95 %, in standard errors."""

_OWN = frozenset(option.name for option in OWN)


def stream_ask(statement: CreatePrivate) -> AskStatement:
    """Returns a stream's SELECT as a private view, which counts the same cells at once."""
    prices = tuple(option for option in statement.options if option.this.name.lower() not in _OWN)
    return AskStatement(statement.query, statement.text, 0, statement.name, False, prices)


def draw_stream(drawing: Drawing, stream: StreamRequest, runs: int, scratch: duckdb.DuckDBPyConnection) -> None:
    """Draws all periods of a stream several times, and writes the cells of each run to the scratch database."""
    plan, request = plans(stream)[0], stream.request
    asks = asks_of(stream, plan)
    charge = compute_charge(request.price.charge, asks, request.price.least_rho)
    parts = [f"CAST({quote_identifier(name)} AS VARCHAR)" for name in (GROUPING_SET, *_keys(stream))]
    ends = [
        f"{answer}, {answer} - {half} AS {low_column(number)}, {answer} + {half} AS {high_column(number)}"
        for number in range(len(request.question.aggregates))
        for answer, half in ((answer_column(number), f"{NORMAL_95} * {stderr_column(number)}"),)
    ]
    with open_trial(
        asks, charge, request.rows.unit_key, drawing.ledger, drawing.open_cursor,
        partial(drawing.unchanged, request.rows), operating_system_entropy(), drawing.workers,
        drawing.place_of(request.rows),
    ) as new_door:  # fmt: skip
        for run in range(runs):
            door = new_door()
            answers = _measure(door, asks, stream.axis)
            door.close()
            scratch.register("stream_rows", recover_rows(stream, plan, 0, stream.periods, answers))
            for kind, cells in (
                (CELLS, f"CAST([{', '.join(parts)}] AS VARCHAR[]) AS cell, {', '.join(ends)}"),
                (SHOWN, "*"),
            ):
                begin = f"CREATE TABLE {NOISY}{kind} AS" if run == 0 else f"INSERT INTO {NOISY}{kind}"
                scratch.execute(f"{begin} SELECT {run} AS dpduck_run, 0 AS dpduck_place, {cells} FROM stream_rows")
            scratch.unregister("stream_rows")


def _keys(stream: StreamRequest) -> list[str]:
    return [key.name for key in stream.request.question.keys]


def _measure(door: Door, asks: Sequence[StreamAsk], axis: int) -> IntegerArray:
    """Returns the noisy answers of all rows of a stream's strategy, in the order in which refreshes write them."""
    parts = []
    for ask in asks:
        query = operator_of(ask)
        place = query.attributes.index(axis)
        factor = query.factors[place]
        rows = factor.rows if isinstance(factor, MatrixFactor) else 0
        parts += [np.moveaxis(table, place, 0).reshape(rows, -1) for table in door.answer(ask)]
    return np.concatenate(parts, axis=1)
