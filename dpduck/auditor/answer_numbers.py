"""Numbers of each kind of answer, for the comparison of runs.

They are read before the recovery, which only computes from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpduck.algebra.hashing import Words, project, reduce_mod
from dpduck.auditor.audit_plan import AuditPlan
from dpduck.auditor.few_units import policies_of
from dpduck.auditor.neighbours import UNIQUE_TEXT, WHOSE, catalog_columns
from dpduck.kernel.ledger.secrets import require_secret
from dpduck.kernel.queries.histograms import LazyHistogram
from dpduck.kernel.queries.key_counts import KeyDigests
from dpduck.kernel.queries.keys import PublishedKeys
from dpduck.kernel.queries.sketches import Sketch, SketchHashes, hash_cells
from dpduck.kernel.queries.summaries import NoisySummary
from dpduck.mechanisms.mechanism import Tools
from dpduck.mechanisms.sparse.questions import read_key_list
from dpduck.mechanisms.sparse.request import SparseRequest, secret_name
from dpduck.mechanisms.sparse.session import HistogramProposal
from dpduck.mechanisms.summaries.measure import SketchProposal
from dpduck.mechanisms.synthetic.measure import Model
from dpduck.owner.policy_text import key_sql
from dpduck.store.sandbox import Sandbox
from dpduck.values.arrays import IntegerArray
from dpduck.values.quoting import quote_identifier

Seen = tuple[list[float], dict[object, float]]
"""Output of one run: the numbers that every run has, and by name those that only some runs have."""

NumberReader = Callable[[Any, Any, Tools], Seen]


def number_reader(query: AuditPlan) -> NumberReader:
    """Returns a function that reads a mechanism's numbers, or counts through its hashes if the numbers are hashed."""
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
    column, table = sparse.keys[0].name, ".".join(map(quote_identifier, sparse.table.parts))
    text = UNIQUE_TEXT
    if policies_of(query.connection)[sparse.table].domain(column) is not None:
        name = quote_identifier(column)
        text = query.connection.execute(f"SELECT CAST(min({name}) AS VARCHAR) FROM {table}").fetchall()[0][0]
    with Sandbox() as box, box.cursor() as cursor:
        return read_key_list(cursor, sparse.keys[:1], [text], None).digests


def _others(query: AuditPlan, sparse: SparseRequest) -> tuple[Words, IntegerArray]:
    """Counts the rows of all other units for each key of a text column. An attacker may know these counts."""
    unit_column = policies_of(query.connection)[sparse.table].unit.column
    table = ".".join(map(quote_identifier, sparse.table.parts))
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
    state = LazyHistogram.from_bytes(require_secret(tools.secrets, secret_name(plan.plan.digest())))
    return [float(state.values(key, plan.ask.law)[0])], {}
