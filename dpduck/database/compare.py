"""dp_compare: how far a synthetic table's rows are from the data, for the owner, who holds the data anyway.

Exact facts, as those of dp_check: for nobody else, and stored nowhere. Distances are total variations of marginals:
half the sum of absolute differences of shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, prod

import duckdb
import numpy as np

from dpduck.frontend.select.request import Question
from dpduck.frontend.text.names import quote_identifier
from dpduck.trusted.private.jobs import KeyColumn
from dpduck.trusted.rows.binning import code_expression
from dpduck.values.arrays import FloatArray, IntegerArray

MOST_ROWS = 1_000_000
"""Rows of either table that are read; of more, a sample."""

MOST_MARGINS, MOST_CELLS = 1_000, 1 << 22
"""Marginals of three columns that are compared: such as have the pairs that are farthest off; and cells of one."""


@dataclass(frozen=True)
class Distance:
    """One marginal. value: the combination of values whose shares differ most, and the shares."""

    columns: str
    ways: int
    distance: float
    value: str
    in_data: float
    in_rows: float


def coded(cursor: duckdb.DuckDBPyConnection, question: Question, relation: str) -> IntegerArray:
    """Returns the code of each row for each key, of rows that are in all domains; relation: SQL that has the columns
    by the keys' names.
    """
    parts, parameters = [], dict[str, object]()
    for place, key in enumerate(question.keys):
        domain = question.sources[key.sources[0]].domain
        code = code_expression(KeyColumn(quote_identifier(key.name), domain), place)
        parts.append(f"CAST({code.sql} AS INTEGER) AS c{place}")
        parameters |= code.parameters
    sampled = f"SELECT {', '.join(parts)} FROM ({relation}) USING SAMPLE {MOST_ROWS} ROWS"
    found = cursor.sql(sampled, params=parameters).to_arrow_table()
    rows = []
    for place, key in enumerate(question.keys):
        known = found.column(place).combine_chunks().fill_null(len(key.codes)).to_numpy()
        rows.append(np.append(np.array(key.codes, np.int64), -1)[known])
    codes = np.array(rows)
    kept: IntegerArray = codes[:, (codes >= 0).all(axis=0)]
    return kept


def distances(question: Question, data: IntegerArray, rows: IntegerArray) -> list[Distance]:
    """Returns all marginals of one and two columns, and some of three, the farthest first."""
    columns, found = range(len(question.keys)), list[Distance]()
    pairs: dict[tuple[int, ...], float] = {}
    for members in [*combinations(columns, 1), *combinations(columns, 2)]:
        one = _distance(question, data, rows, members)
        if one is not None:
            found.append(one)
            pairs[members] = one.distance
    triples: Iterable[tuple[int, ...]] = combinations(columns, 3)
    if comb(len(question.keys), 3) > MOST_MARGINS:
        triples = sorted(triples, key=lambda triple: -sum(pairs.get(pair, 0.0) for pair in combinations(triple, 2)))
    for members in list(triples)[:MOST_MARGINS]:
        one = _distance(question, data, rows, members)
        found += [] if one is None else [one]
    return sorted(found, key=lambda one: -one.distance)


def _distance(question: Question, data: IntegerArray, rows: IntegerArray, members: Sequence[int]) -> Distance | None:
    """Returns the distance of one marginal; None where it has too many cells."""
    shape = tuple(len(question.keys[member].labels) for member in members)
    if prod(shape) > MOST_CELLS:
        return None
    true, made = (_shares(codes, members, shape) for codes in (data, rows))
    worst = int(np.abs(true - made).argmax())
    places = np.unravel_index(worst, shape)
    values = (question.keys[member].labels[int(place)] for member, place in zip(members, places, strict=True))
    return Distance(
        ", ".join(question.keys[member].name for member in members), len(members),
        float(np.abs(true - made).sum() / 2), ", ".join("NULL" if one is None else one for one in values),
        float(true[worst]), float(made[worst]),
    )  # fmt: skip


def _shares(codes: IntegerArray, members: Sequence[int], shape: tuple[int, ...]) -> FloatArray:
    cells = np.ravel_multi_index([codes[member] for member in members], shape)
    shares: FloatArray = np.bincount(cells, minlength=prod(shape)) / max(codes.shape[1], 1)
    return shares
