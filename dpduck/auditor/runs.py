"""Runs of a release over one database, through the door. One plan, one charge and one count serve many runs.

Every ask of the plan is declared as often as it will be answered. The ledger of the made-up database is charged for all
these answers. So an audit uses kernel/ only as a release does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np

from dpduck.algebra.hashing import Words, project, reduce_mod
from dpduck.auditor.bounds import Claim
from dpduck.auditor.neighbours import UNIQUE_TEXT, WHOSE, catalog_columns, require_engine
from dpduck.engine.functions import OWNER
from dpduck.kernel.door import Bill, compute_charge, open_door
from dpduck.kernel.ledger.secrets import no_step, require_secret
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.price import Ask, price
from dpduck.kernel.queries.histograms import LazyHistogram
from dpduck.kernel.queries.key_counts import KeyDigests
from dpduck.kernel.queries.keys import PublishedKeys
from dpduck.kernel.queries.later import Within
from dpduck.kernel.queries.sketches import Sketch, SketchHashes, hash_cells
from dpduck.kernel.queries.summaries import NoisySummary
from dpduck.kernel.worker.workers import Workers
from dpduck.mechanisms.mechanism import Mechanism, Tools
from dpduck.mechanisms.registry import mechanism_of
from dpduck.mechanisms.sparse.questions import read_key_list
from dpduck.mechanisms.sparse.request import SparseRequest
from dpduck.mechanisms.sparse.session import HistogramProposal, secret_name
from dpduck.mechanisms.summaries.measure import SketchProposal
from dpduck.mechanisms.synthetic.measure import Model
from dpduck.owner.policy_text import key_sql
from dpduck.store.sandbox import Sandbox
from dpduck.values.arrays import FloatArray, IntegerArray
from dpduck.values.privacy import Charge
from dpduck.values.quoting import quote_identifier

Seen = tuple[list[float], dict[object, float]]
"""Output of one run: the numbers that every run has, and by name those that only some runs have."""

MOST_COLUMNS = 160
BATCH = 250
FAILED = "failed"


@dataclass(frozen=True)
class AuditPlan:
    """A statement with its plan on one database. claim: the charge for one release."""

    connection: duckdb.DuckDBPyConnection
    mechanism: Mechanism[Any, Any, Any]
    plan: Any
    asks: Sequence[Ask[Any]]
    question: object
    text: str
    claim: Claim


def plan_statement(connection: duckdb.DuckDBPyConnection, text: str) -> AuditPlan:
    """Plans a statement in the same way as dp()."""
    question, _ = require_engine(connection).question_of(text.replace("{tag}", "planned"), OWNER)
    mechanism = mechanism_of(question)
    plan = mechanism.plan(question)
    asks, cost = mechanism.asks(plan), plan.request.price
    charge = compute_charge(cost.charge, asks, cost.least_rho)
    epsilon = None if charge.epsilon is None else float(charge.epsilon)
    return AuditPlan(
        connection, mechanism, plan, asks, question, text, Claim(epsilon, float(charge.rho), float(charge.delta))
    )


def measure_runs(query: AuditPlan, workers: Workers) -> Iterator[Seen]:
    """Yields the output of each run, forever."""
    engine, seeing = require_engine(query.connection), _seeing(query)
    tools = Tools(Sandbox(), engine.ledger.secrets, no_step)
    adaptive = any(isinstance(ask.query, Within) for ask in query.asks) or query.mechanism.name == "synthetic table"
    times = 1 if adaptive else BATCH
    plan = query.plan if adaptive else repeat_asks(query.plan, times, {})
    asks = query.mechanism.asks(plan)
    rows, cost = plan.request.rows, price(asks)
    periods = None if rows.periods is None else rows.periods.periods
    charge = Charge(cost.epsilon, cost.rho, cost.delta)
    bill = Bill(rows.unit_key, str(rows.table), charge, OWNER.name, query.text, query.mechanism.name, None, periods)
    while True:
        with open_door(
            asks, bill, engine.ledger, engine.connections.cursor, lambda cursor: None, operating_system_entropy(),
            no_step, workers,
        ) as door:  # fmt: skip
            for _ in range(times):
                yield seeing(plan, query.mechanism.measure(plan, door, tools), tools)


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
    """Returns the values of rows as numbers. A number is named by row and column, another value also by its text."""
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

    If there are very many columns, it keeps those that differ most on the first half of the runs.
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


# The numbers of each kind of answer. They are read before the recovery, which is post-processing.

Seeing = Callable[[Any, Any, Tools], Seen]


def _seeing(query: AuditPlan) -> Seeing:
    """Returns a function that reads a mechanism's numbers. If these are hashed, it reads counts through the hashes."""
    if query.mechanism.name == "sketch":
        return _read_sketch
    if query.mechanism.name == "projection" and isinstance(query.question, SparseRequest):
        key, others = _digest(query, query.question), _others(query, query.question)
        return lambda plan, noisy, tools: _read_projection(noisy, key, others)
    if query.mechanism.name == "histogram" and isinstance(query.question, SparseRequest):
        key = _digest(query, query.question)
        return lambda plan, noisy, tools: _read_histogram(plan, key, tools)
    return lambda plan, noisy, tools: flat(noisy)


def flat(noisy: object) -> Seen:
    """Returns the numbers of an answer of any kind, by the rules of Seen."""
    numbers: list[float] = []
    named: dict[object, float] = {}
    if isinstance(noisy, np.ndarray):
        numbers += noisy.ravel().astype(np.float64).tolist()
    elif isinstance(noisy, int | float):
        numbers.append(float(noisy))
    elif isinstance(noisy, PublishedKeys):
        groups = list(zip(*(key.to_pylist() for key in noisy.keys), strict=True))
        for place, answers in enumerate(noisy.answers):
            named.update({(place, *group): float(value) for group, value in zip(groups, answers.tolist(), strict=True)})
        numbers += [float(value) for value in noisy.other or ()]
    elif isinstance(noisy, NoisySummary):
        cells = map(tuple, noisy.positions.T.tolist())
        named.update(zip(cells, noisy.counts.astype(np.float64).tolist(), strict=True))
        numbers.append(float(noisy.layers))
    elif isinstance(noisy, Model):
        numbers.append(noisy.records)
        for component in noisy.distribution.components:
            for cell, share in enumerate((component.table * noisy.records).ravel().tolist()):
                named[component.members, cell] = share
    elif isinstance(noisy, tuple | list):
        for part in noisy:
            more, others = flat(part)
            numbers += more
            named.update({(len(named), name): value for name, value in others.items()} if named else others)
    return numbers, named


def _read_sketch(plan: SketchProposal, noisy: tuple[SketchHashes, Any], tools: Tools) -> Seen:
    """Reads the counts of the first 64 cells from each row of a sketch."""
    hashes, table = noisy
    query = plan.ask.query
    numbers = query.numbers if isinstance(query, Sketch) else ()
    sizes = [len(of_labels) for of_labels in numbers]
    codes = np.unravel_index(np.arange(min(int(np.prod(sizes)), 64)), sizes)
    estimates: list[float] = []
    for row, of_bucket, of_sign in zip(table, hashes.buckets, hashes.signs, strict=True):
        places = hash_cells(of_bucket, numbers, codes) % hashes.width
        signs = 1 - 2 * (hash_cells(of_sign, numbers, codes) & 1)
        estimates += (row[places] * signs).astype(np.float64).tolist()
    return estimates, {}


def _digest(query: AuditPlan, sparse: SparseRequest) -> KeyDigests:
    """Returns the digest of the added unit's key in the first column (see neighbours)."""
    policies = {policy.table: policy for policy in require_engine(query.connection).about.policies.policies()}
    column, table = sparse.keys[0].name, ".".join(map(quote_identifier, sparse.table.parts))
    text = UNIQUE_TEXT
    if policies[sparse.table].domain(column) is not None:
        name = quote_identifier(column)
        text = query.connection.execute(f"SELECT CAST(min({name}) AS VARCHAR) FROM {table}").fetchall()[0][0]
    with Sandbox() as box, box.cursor() as cursor:
        return read_key_list(cursor, sparse.keys[:1], [text], None).digests


def _others(query: AuditPlan, sparse: SparseRequest) -> tuple[Words, IntegerArray]:
    """Counts the rows of all other units for each key of a text column. An attacker may know these counts."""
    policies = {policy.table: policy for policy in require_engine(query.connection).about.policies.policies()}
    unit_column, table = policies[sparse.table].unit.column, ".".join(map(quote_identifier, sparse.table.parts))
    columns = {column.name: column.type_name for column in catalog_columns(query.connection, sparse.table)}
    if not unit_column or sparse.keys[0].type_name != "VARCHAR":
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    rows = query.connection.execute(
        f"SELECT CAST(md5_number({quote_identifier(sparse.keys[0].name)}) >> 64 AS UBIGINT) AS high, count(*) AS n "
        f"FROM {table} WHERE {quote_identifier(unit_column)} <> {key_sql(str(WHOSE), columns[unit_column])} GROUP BY 1"
    ).fetchnumpy()
    return np.asarray(rows["high"], np.uint64), np.asarray(rows["n"], np.int64)


def _read_projection(noisy: tuple[Words, IntegerArray], key: KeyDigests, others: tuple[Words, IntegerArray]) -> Seen:
    """Reads the key's count from a projection, after the counts of all other units are subtracted."""
    coefficients, table = noisy
    rest = table - project(coefficients, reduce_mod(others[0]), others[1], len(table))
    signs = project(coefficients, reduce_mod(key.high), np.ones(1, np.int64), len(table))
    return [float(signs @ rest) / len(table), float(np.abs(rest).sum())], {}


def _read_histogram(plan: HistogramProposal, key: KeyDigests, tools: Tools) -> Seen:
    """Reads the noisy count of the key from a histogram."""
    state = LazyHistogram.from_bytes(require_secret(tools.secrets, secret_name(plan.plan.digest())))
    return [float(state.values(key, plan.ask.law)[0])], {}
