"""Known tables over a private table's columns, to which rows are fitted: SAMPLE n FROM KNOWN table (columns).

A distribution is fitted to the largest tables that releases determine, and to their margins. This is free of charge.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations

import numpy as np

from dpduck.language.select.known import KnownArguments, KnownQuestion
from dpduck.language.select.request import Key
from dpduck.language.text.names import TableName
from dpduck.mechanisms.known.answer import KnownAnswer, KnownReleases
from dpduck.mechanisms.known.known_table import paying, price_option, resting_on
from dpduck.mechanisms.known.tables import Same
from dpduck.mechanisms.synthetic.observations import Observation
from dpduck.store.measured import MeasurementRecord
from dpduck.store.releases import ReleaseStore, StoredRelease
from dpduck.strategies.recovery.margins import close_under_intersection, independent_precisions
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold, quote_identifier

MOST_COLUMNS, MOST_TRIED = 64, 400
MOST_CELLS = 1 << 22

MOST_MARGINS = 1000
"""Most known tables about the same rows that are fitted with their margins. More are fitted without margins."""

LEAST_VARIANCE = 1 / 12
"""Least variance of a cell. Counts of drawn rows are whole, and a fit to more digits takes many steps."""

Members = tuple[int, ...]
Ask = Callable[[KnownArguments], KnownQuestion]


@dataclass(frozen=True, eq=False)
class KnownMargins:
    """Known margins of a private table's columns. release: all releases behind them as one, under one digest."""

    keys: tuple[Key, ...]
    observations: tuple[Observation, ...]
    release: StoredRelease


@dataclass(frozen=True, eq=False)
class _MarginColumn:
    """A requested column. question: asks for its counts. sql: its name in releases."""

    name: str
    question: KnownQuestion
    sql: str

    @property
    def key(self) -> Key:
        return self.question.analysis.request.question.keys[0]


def known_margins(
    table: TableName,
    names: Sequence[str],
    ask: Ask,
    releases_of: Callable[[KnownQuestion], KnownReleases],
    store: ReleaseStore,
) -> KnownMargins:
    """Returns the largest tables over these columns that releases determine, and their released margins."""
    if len({fold(name) for name in names}) < len(names) or len(names) > MOST_COLUMNS:
        raise Refusal("a column is named twice, or there are too many", accepted=f"at most {MOST_COLUMNS} columns")
    columns = [_column(table, name, ask) for name in names]

    def answer_by(members: Members, same: Same | None = None) -> KnownAnswer | None:
        """Returns the known counts by some columns. same: if given, the counts are about the rows of these tables."""
        chosen = [columns[place] for place in members]
        if np.prod([float(len(column.key.labels)) for column in chosen]) > MOST_CELLS:
            return None
        question = chosen[0].question if len(chosen) == 1 else ask(_counts(table, [column.name for column in chosen]))
        return releases_of(question).answers(question, same=same)[0]

    answers: dict[Members, KnownAnswer] = {}
    candidates = _candidates(columns, releases_of(columns[0].question).records)
    left, tried = set(candidates), set[Members]()
    while left and len(tried) < MOST_TRIED:
        members = max(left, key=lambda subset: (len(subset), [-place for place in subset]))
        left.discard(members)
        if members in tried or any(set(members) <= set(other) for other in answers):
            continue
        tried.add(members)
        answer = answer_by(members)
        if answer is not None:
            answers[members] = answer
        elif len(members) > 1:
            left |= set(combinations(members, len(members) - 1))
    missing = [column.name for place, column in enumerate(columns) if not any(place in subset for subset in answers)]
    if missing:
        counts = f"SELECT {quote_identifier(missing[0])}, count(*) AS n FROM {table.sql} GROUP BY ALL"
        raise Refusal(
            f"no release that you may read determines the counts of {missing[0][:60]!r}",
            accepted=f"a release of them first: "
            f"{paying(counts, price_option(columns[0].question.analysis.request.price))}",
        )

    return _together(columns, _with_margins(answers, candidates, answer_by), store)


def _column(table: TableName, name: str, ask: Ask) -> _MarginColumn:
    try:
        question = ask(_counts(table, [name]))
    except Refusal as refused:  # without its position, which is in a statement that nobody wrote
        raise type(refused)(refused.what, accepted=refused.accepted) from None
    sources = question.analysis.request.question.sources
    if len(sources) != 1:
        raise Refusal(f"{name[:60]!r} is no declared column", accepted="columns with a DOMAIN")
    return _MarginColumn(name, question, sources[0].sql)


def _counts(table: TableName, names: Sequence[str]) -> KnownArguments:
    listed = ", ".join(quote_identifier(name) for name in names)
    text = f"SELECT {listed}, count(*) AS n FROM {table.sql} GROUP BY {listed}"
    return KnownArguments(text if names else f"SELECT count(*) AS n FROM {table.sql}", Fraction(19, 20), None)


def _candidates(columns: Sequence[_MarginColumn], releases: Sequence[MeasurementRecord]) -> set[Members]:
    """Returns the sets of these columns that queries of releases ask for together, and each column by itself."""
    places = {column.sql: place for place, column in enumerate(columns)}
    return {(place,) for place in places.values()} | {
        members for release in releases for members in _query_columns(release, places) if members
    }


def _query_columns(release: MeasurementRecord, places: dict[str, int]) -> Iterator[Members]:
    measured = release.measured
    for group in measured.queries:
        for query in group:
            named = (measured.columns[place].sql for key in query.keys for place in measured.keys[key].columns)
            yield tuple(sorted({places[sql] for sql in named if sql in places}))


def _with_margins(
    largest: dict[Members, KnownAnswer], asked: set[Members], margin: Callable[[Members, Same], KnownAnswer | None]
) -> list[tuple[Members, KnownAnswer, float]]:
    """Returns the largest tables and their margins, each with the precision that it adds to larger tables.

    A table's margins are about the same rows as the table. Tables that add no precision are left out.
    """
    results: list[tuple[Members, KnownAnswer, float]] = []
    for same in dict.fromkeys(answer.same for answer in largest.values()):
        answers = {members: answer for members, answer in largest.items() if answer.same == same}
        inside = {group for group in asked if any(set(group) < set(members) for members in answers)}
        for members in sorted(close_under_intersection(inside.union(answers), MOST_MARGINS) or ()):
            answer = answers.get(members) or margin(members, same)
            if answer is not None:
                answers[members] = answer
        variances = {group: max(float(np.mean(answer.stderrs**2)), LEAST_VARIANCE) for group, answer in answers.items()}
        cells = {group: len(answer.estimates) for group, answer in answers.items()}
        precisions = independent_precisions(cells, variances)
        results += [(group, answers[group], precision) for group, precision in precisions.items() if precision]
    return results


def _together(
    columns: Sequence[_MarginColumn], tables: Sequence[tuple[Members, KnownAnswer, float]], store: ReleaseStore
) -> KnownMargins:
    """Returns the margins with all releases behind them. Refuses margins about rows of several moments."""
    answers = [answer for _, answer, _ in tables]
    if len({answer.alone for answer in answers}) > 1:
        raise Refusal(
            "what is known of these columns is about rows of several moments",
            accepted="columns of one release, or a prepared table: ALTER PRIVACY POLICY ON .. PREPARE",
        )
    keys = tuple(column.key for column in columns)
    observations = tuple(
        Observation(members, answer.estimates.reshape([len(keys[place].labels) for place in members]), 1 / precision)
        for members, answer, precision in tables
    )
    names = sorted({name for answer in answers for name in answer.releases})
    first = store.find(names[0])
    if first is None:
        raise Refusal("a release went meanwhile", accepted="the same statement again")
    facts = [names, [column.sql for column in columns]]
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    release = replace(resting_on(first, answers, store), digest=digest)
    return KnownMargins(keys, observations, release)
