"""What is known of a private table's columns, for rows that are fitted to it: SAMPLE n FROM KNOWN table (columns).

The largest tables over these columns that releases determine are worked out as dp_known would, and a distribution is
fitted to all of them at once, each with the error that it has. Nothing is charged: only released tables are read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations

import numpy as np

from dpduck.database.measured import Kept
from dpduck.database.releases import ReleaseStore
from dpduck.engine.known import paying, priced, resting_on
from dpduck.frontend.select.known import KnownArguments, KnownQuestion
from dpduck.frontend.text.names import TableName, fold, quote_identifier
from dpduck.mechanisms.known.answer import Answer
from dpduck.mechanisms.synthetic.fit import Observation
from dpduck.mechanisms.synthetic.recover import KnownMargins
from dpduck.values.errors import Refusal

MOST_COLUMNS, MOST_TRIED = 64, 400
MOST_CELLS = 1 << 22
"""Cells of one known table that rows are fitted to."""

Ask = Callable[[KnownArguments], KnownQuestion]
AnswersOf = Callable[[KnownQuestion], Sequence[Answer | None]]


@dataclass(frozen=True, eq=False)
class _Column:
    """A column that is asked for. question: its own counts. sql: as releases name it."""

    name: str
    question: KnownQuestion
    sql: str


def known_margins(
    table: TableName,
    names: Sequence[str],
    measured: Callable[[KnownQuestion], Sequence[Kept]],
    ask: Ask,
    answers_of: AnswersOf,
    store: ReleaseStore,
) -> KnownMargins:
    """Returns the largest known tables over some columns.

    measured: releases about the table of a question. ask: reads a plain SELECT. answers_of: what is known of it.
    """
    if len({fold(name) for name in names}) < len(names) or len(names) > MOST_COLUMNS:
        raise Refusal("a column is named twice, or there are too many", accepted=f"at most {MOST_COLUMNS} columns")
    columns = [_column(table, name, ask) for name in names]
    found: dict[tuple[int, ...], Answer] = {}
    left = _candidates(columns, measured(columns[0].question))
    tried: set[tuple[int, ...]] = set()
    while left and len(tried) < MOST_TRIED:
        members = max(left, key=lambda one: (len(one), [-place for place in one]))
        left.discard(members)
        if members in tried or any(set(members) <= set(other) for other in found):
            continue
        tried.add(members)
        answer = _answer(table, [columns[place] for place in members], ask, answers_of)
        if answer is not None:
            found[members] = answer
        elif len(members) > 1:
            left |= set(combinations(members, len(members) - 1))
    missing = [column.name for place, column in enumerate(columns) if not any(place in one for one in found)]
    if missing:
        counts = f"SELECT {quote_identifier(missing[0])}, count(*) AS n FROM {table.sql} GROUP BY ALL"
        raise Refusal(
            f"no release that you may read determines the counts of {missing[0][:60]!r}",
            accepted=f"a release of them first: {paying(counts, priced(columns[0].question.analysis.request.price))}",
        )
    return _together(columns, found, store)


def _column(table: TableName, name: str, ask: Ask) -> _Column:
    try:
        question = ask(_counts(table, [name]))
    except Refusal as refused:  # without its place, which is in a statement that nobody wrote
        raise type(refused)(refused.what, accepted=refused.accepted) from None
    sources = question.analysis.request.question.sources
    if len(sources) != 1:
        raise Refusal(f"{name[:60]!r} is no declared column", accepted="columns with a DOMAIN")
    return _Column(name, question, sources[0].sql)


def _counts(table: TableName, names: Sequence[str]) -> KnownArguments:
    listed = ", ".join(quote_identifier(name) for name in names)
    return KnownArguments(f"SELECT {listed}, count(*) AS n FROM {table.sql} GROUP BY {listed}", Fraction(19, 20), None)


def _candidates(columns: Sequence[_Column], kept: Sequence[Kept]) -> set[tuple[int, ...]]:
    """Returns what queries of releases ask of these columns together, and each column by itself."""
    places = {column.sql: place for place, column in enumerate(columns)}
    return {(place,) for place in places.values()} | {
        members for one in kept for members in _asked(one, places) if members
    }


def _asked(one: Kept, places: dict[str, int]) -> Iterator[tuple[int, ...]]:
    measured = one.measured
    for group in measured.queries:
        for query in group:
            named = (measured.columns[place].sql for key in query.keys for place in measured.keys[key].columns)
            yield tuple(sorted({places[sql] for sql in named if sql in places}))


def _answer(table: TableName, columns: Sequence[_Column], ask: Ask, answers_of: AnswersOf) -> Answer | None:
    cells = np.prod([float(len(column.question.analysis.request.question.keys[0].labels)) for column in columns])
    if cells > MOST_CELLS:
        return None
    question = columns[0].question if len(columns) == 1 else ask(_counts(table, [column.name for column in columns]))
    return answers_of(question)[0]


def _together(columns: Sequence[_Column], found: dict[tuple[int, ...], Answer], store: ReleaseStore) -> KnownMargins:
    """Returns the margins with all that they rest on; Refusal where they are about rows of several moments."""
    moments = {answer.alone for answer in found.values()}
    if len(moments) > 1:
        raise Refusal(
            "what is known of these columns is about rows of several moments",
            accepted="columns of one release, or a prepared table: ALTER PRIVACY POLICY ON .. PREPARE",
        )
    keys = tuple(column.question.analysis.request.question.keys[0] for column in columns)
    observations = tuple(
        Observation(
            members,
            answer.estimates.reshape([len(keys[place].labels) for place in members]),
            max(float(np.mean(answer.stderrs**2)), 1e-9),
        )
        for members, answer in found.items()
    )
    names = sorted({name for answer in found.values() for name in answer.releases})
    first = store.named(names[0])
    if first is None:
        raise Refusal("a release went meanwhile", accepted="the same statement again")
    facts = [names, [column.sql for column in columns]]
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    release = replace(resting_on(first, list(found.values()), store), digest=digest)
    return KnownMargins(keys, observations, release)
