"""Runs of a release over one database, through the door. One plan, one charge and one count serve many runs.

Every ask is declared, and charged to the made-up database, as often as it will be answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np

from dpduck.auditor.answer_numbers import Seen, number_reader
from dpduck.auditor.audit_plan import AuditPlan
from dpduck.auditor.neighbours import require_database
from dpduck.kernel.ledger.secrets import no_step
from dpduck.kernel.price import Ask
from dpduck.kernel.queries.later import Within
from dpduck.kernel.worker.workers import Workers
from dpduck.mechanisms.mechanism import Tools
from dpduck.store.sandbox import Sandbox
from dpduck.values.arrays import FloatArray

MOST_COLUMNS = 160
BATCH = 250
FAILED = "failed"


def measure_runs(query: AuditPlan, workers: Workers) -> Iterator[Seen]:
    """Yields the output of each run, forever."""
    reader, tools = number_reader(query), Tools(Sandbox(), require_database(query.connection).ledger.secrets, no_step)
    adaptive = any(isinstance(ask.query, Within) for ask in query.asks) or query.mechanism.name == "synthetic table"
    times = 1 if adaptive else BATCH
    plan = query.plan if adaptive else repeat_asks(query.plan, times, {})
    asks = query.mechanism.asks(plan)
    while True:
        with query.open_door(asks, workers) as door:
            for _ in range(times):
                yield reader(plan, query.mechanism.measure(plan, door, tools), tools)


def query_releases(query: AuditPlan, before: str, then: str, word: str) -> Iterator[Seen]:
    """Yields the rows of a query after each release by dp(), forever. word: the start of each release's tag."""
    number = 0
    while True:
        number += 1
        tag = f"{word}{number}"
        try:
            if before:
                query.connection.execute("FROM dp($1)", [before]).fetchall()
            query.connection.execute("FROM dp($1)", [query.text.replace("{tag}", tag)]).fetchall()
            yield _rows(query.connection.execute(then.replace("{tag}", tag)).fetchall())
        except duckdb.Error:
            yield [], {FAILED: 1.0}


def _rows(rows: Sequence[tuple[object, ...]]) -> Seen:
    """Returns the values of rows as numbers. A number is named by row and column, any other value also by its text."""
    named: dict[object, float] = {}
    for place, row in enumerate(rows):
        for column, value in enumerate(row):
            if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
                named[place, column] = float(value)
            else:
                named[place, column, str(value)] = 1.0
    return [], named


def repeat_asks(part: Any, times: int, memo: dict[int, Any]) -> Any:
    """Returns a plan in which each ask is declared `times` as often. Parts without asks stay the same objects."""
    if id(part) in memo:
        return memo[id(part)]
    result = part
    if isinstance(part, Ask):
        result = replace(part, times=part.times * times)
    elif isinstance(part, tuple | list):
        inner = [repeat_asks(item, times, memo) for item in part]
        if any(new is not old for new, old in zip(inner, part, strict=True)):
            result = type(part)(inner)
    elif is_dataclass(part) and not isinstance(part, type):
        old = {item.name: getattr(part, item.name) for item in fields(part) if item.init}
        new = {name: repeat_asks(value, times, memo) for name, value in old.items()}
        if any(new[name] is not old[name] for name in old):
            result = replace(part, **new)
    memo[id(part)] = result
    return result


def table_of(runs: tuple[Sequence[Seen], Sequence[Seen]]) -> tuple[FloatArray, FloatArray]:
    """Makes a matrix of the runs over each database: a row for a run, and a column for a number or its presence.

    If there are very many columns, it keeps the columns that differ most on the first half of the runs.
    """
    half = min(len(side) for side in runs) // 2
    often: dict[object, int] = {}
    for side in runs:
        for _, named in side[:half]:
            for name in named:
                often[name] = often.get(name, 0) + 1
    names = sorted(often, key=lambda name: (-often[name], str(name)))[:MOST_COLUMNS]
    width = min(len(numbers) for side in runs for numbers, _ in side)
    both = []
    for side in runs:
        fixed = np.array([numbers[:width] for numbers, _ in side], dtype=np.float64).reshape(len(side), width)
        present = np.array([[name in named for name in names] for _, named in side], dtype=np.float64)
        value = np.array([[named.get(name, 0.0) for name in names] for _, named in side], dtype=np.float64)
        size = np.array([[float(len(named))] for _, named in side])
        both.append(np.hstack([fixed, present.reshape(len(side), -1), value.reshape(len(side), -1), size]))
    without, having = (np.nan_to_num(side, posinf=1e18, neginf=-1e18) for side in both)
    moved = np.abs(having[:half].mean(axis=0) - without[:half].mean(axis=0))
    spread = np.sqrt(having[:half].var(axis=0) + without[:half].var(axis=0)) + 1e-9
    columns = np.argsort(-moved / spread)[:MOST_COLUMNS]
    return without[:, columns], having[:, columns]
