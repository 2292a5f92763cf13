"""Streams through SQL: whatever periods rows fall in, one person moves measurements by at most the charge.

Neighbours are histories: the same inserts, updates and deletions between refreshes, with and without one person's rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.queries import streams
from dpduck.kernel.queries.stream_state import LedgerVersion, StreamShape, StreamState
from dpduck.kernel.queries.streams import StreamAsk
from dpduck.kernel.queries.tables import Table
from dpduck.kernel.rows import reader
from dpduck.kernel.worker.workers import Workers
from dpduck.strategies.time_axis import STRATEGIES, time_axis
from dpduck.values.sqltypes import sql_type
from tests.mechanisms.streams.streams import MOST, PERIODS, Row, Visits, options

SOURCES = {
    "all": "visits",
    "filtered": "visits WHERE number > 0",
    "worker": "visits WHERE 7 / number >= 1",
    "joined": "visits JOIN wards ON ward = name",
    "left": "visits LEFT JOIN wards ON ward = name",
}
ANSWERS = {
    "sums": "came, ward, count(*) AS n, sum(number) AS s, avg(number) AS a FROM visits GROUP BY came, ward",
    "spread": "came, ward, stddev(number) AS a, sum(number) FILTER (ward = 'a') AS s FROM visits GROUP BY came, ward",
    "persons": "came, ward, count(DISTINCT person) AS p FROM visits GROUP BY came, ward",
    "both": "came, ward, count(DISTINCT person) AS p, count(*) AS n FROM visits GROUP BY came, ward",
    "some": "came, ward, count(DISTINCT person) FILTER (WHERE number > 0) AS p FROM visits GROUP BY came, ward",
    "bounded": "came, count(*, contribution_bounds_per_group => (0, 2)) AS n FROM visits GROUP BY came",
    "cube": "came, ward, number, count(*) AS n, sum(number) AS s FROM visits GROUP BY came, CUBE (ward, number)",
}
DAYS = (
    "2024-01-01", "2024-01-31", "2024-02-01", "2024-02-29", "2024-03-15", "2024-04-30", "2024-05-01", "2024-06-30",
    "2024-07-01", "2023-12-31", "infinity", "-infinity", "0044-03-15 (BC)", None,
)  # fmt: skip
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["eve"] * 5 + ["bob", "", None]),
        st.sampled_from(DAYS),
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from([0, 1, 7, None]),
    ),
    max_size=9,
)


@dataclass(frozen=True)
class Turn:
    """Events before a refresh: rows come, old ones change. closed: the number of periods closed by then."""

    rows: Sequence[Row]
    change: str
    closed: int


CHANGES = ("", "DELETE FROM visits WHERE number = 7", "UPDATE visits SET came = came + 31 WHERE isfinite(came)")
HISTORIES = st.lists(st.builds(Turn, ROWS, st.sampled_from(CHANGES), st.integers(1, PERIODS)), min_size=1, max_size=4)


class Histories:
    """A database in which histories are played, with the job of each statement."""

    def __init__(self) -> None:
        self.visits, self.jobs = Visits(config={"threads": 1}), dict[str, CountingJob]()
        self.visits.con.execute("INSERT INTO wards VALUES ('a', 'two')")
        for name, source in SOURCES.items():
            self.visits.create(options(), source)
            stream = self.visits.request()
            assert stream.axis == 0
            job = streams.require_stream(self.visits.asks(), 0)[0]
            self.jobs[name] = job
            self.visits.dp("DROP PRIVATE STREAM by_month")
        self.asks: dict[str, list[StreamAsk]] = {}
        self.visits.dp("ALTER PRIVACY POLICY ON visits SET CLAMP number BETWEEN -3 AND 5 STEP 1")
        self.visits.dp("ALTER PRIVACY POLICY ON visits SET DOMAIN number IN (0, 1, 7) WITH NULL")
        for name, select in ANSWERS.items():
            totals = "" if name in ("persons", "some", "bounded") else ", answers = 'totals'"
            for strategy in STRATEGIES:
                clause = options(strategy=strategy, more=totals)
                self.visits.dp(f"CREATE PRIVATE STREAM by_month OPTIONS ({clause}) AS SELECT {select}")
                self.asks[f"{name} by {strategy}"] = self.visits.asks()
                self.jobs[f"{name} by {strategy}"] = streams.require_stream(self.visits.asks(), 0)[0]
                self.visits.dp("DROP PRIVATE STREAM by_month")
        self.workers = Workers()

    def played(self, name: str, history: Sequence[Turn], without: str | None = None) -> NDArray[np.int64]:
        """The exact counts of all periods and wards after a history, without one person's rows."""
        return self.tables(name, history, without)[0]

    def tables(self, name: str, history: Sequence[Turn], without: str | None = None) -> NDArray[np.int64]:
        """All exact tables after a history, shape (tables, periods, ..)."""
        con, job = self.visits.con, self.jobs[name]
        con.execute("DELETE FROM visits")
        tables = sum(aggregate.tables for aggregate in job.aggregates)
        table, closed = np.zeros((tables, *(attribute.size for attribute in job.attributes)), np.int64), 0
        with duckdb.connect(":memory:") as place:
            place.execute("ATTACH ':memory:' AS held")
            shape = StreamShape("test", sql_type(job.unit_type).kept_unit, len(job.attributes), tables)
            state = StreamState(place, '"held"', shape, b"key")
            state.create()
            state.open(LedgerVersion(0, ""))
            for turn in history:
                self.visits.put([row for row in turn.rows if without is None or row[0] != without])
                if turn.change:
                    con.execute(turn.change)
                if turn.closed > closed:
                    table += self._counted(job, state, place, closed, turn.closed)
                    closed = turn.closed
        return table

    def _counted(
        self, job: CountingJob, state: StreamState, place: duckdb.DuckDBPyConnection, first: int, closed: int
    ) -> NDArray[np.int64]:
        with self.visits.con.cursor() as cursor:
            reader.begin(cursor)
            slots = (first, closed - 1)
            counts = streams._take_rows(
                cursor, place, state, job, 0, slots, self.visits.streams.parts.ledger, self.workers
            )
        state.add(closed, counts, np.empty(0, np.int64))
        table = np.zeros((len(counts._exact_counts), *counts._sizes), np.int64)
        for number, of in enumerate(counts._exact_counts):
            np.add.at(table[number], counts._exact_coordinates, of)
        assert not table[:, :first].any() and not table[:, closed:].any(), "rows of other periods are counted"
        return table


@pytest.fixture(scope="module")
def histories() -> Iterator[Histories]:
    made = Histories()
    yield made
    made.workers.close()
    made.visits.con.close()


def increasing(history: list[Turn]) -> list[Turn]:
    """Periods close in order."""
    return sorted(history, key=lambda turn: turn.closed)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(name=st.sampled_from(sorted(SOURCES)), history=HISTORIES.map(increasing), period=st.integers(2, 9))
def test_any_history(histories: Histories, name: str, history: list[Turn], period: int) -> None:
    """One person moves the counts of all periods by MAX ROWS in all, and each strategy's measurements by its price."""
    table = histories.played(name, history)
    for person in ("eve", "bob"):
        moved = table - histories.played(name, history, person)
        assert np.abs(moved).sum() <= MOST and (moved >= 0).all()
        for strategy in STRATEGIES:
            axis = time_axis(strategy, PERIODS, period)
            measured, (l1, l2_squared, _) = axis.matrix @ moved, axis.factor.norms
            assert np.abs(measured).sum() <= MOST * l1
            assert (measured * measured).sum() <= MOST**2 * l2_squared


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(sorted(f"{name} by {strategy}" for name in ANSWERS for strategy in STRATEGIES)),
    history=HISTORIES.map(increasing),
)
def test_any_history_of_other_answers(histories: Histories, name: str, history: list[Turn]) -> None:
    """One person moves the measurements of sums, averages, persons and cubes by at most the charge. Each ask moves by
    its norms on that person's part, at most its tables' bound. All asks together move by at most epsilon.
    """
    tables, asks = histories.tables(name, history), histories.asks[name]
    for person in ("eve", "bob"):
        moved, lost = tables - histories.tables(name, history, person), 0.0
        for ask in asks:
            assert isinstance(ask.query, Table) and ask.noise is not None
            own = moved[list(ask.scan.tables)]
            assert np.abs(own).sum() <= ask.scan.l1
            others = tuple(axis for axis in range(own.ndim - 1) if axis not in ask.query.query.attributes)
            measured = [ask.query.query.apply(table.sum(axis=others)) for table in own]
            assert sum(np.abs(one).sum() for one in measured) <= ask.scan.l1 * ask.query.query.norms[0]
            lost += sum(float(np.abs(one).sum()) for one in measured) / float(ask.noise.parameter)
        assert lost <= 1 + 1e-9, "epsilon = 1 was charged"


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    name=st.sampled_from(sorted((*SOURCES, *(f"{name} by tree" for name in ANSWERS)))),
    history=HISTORIES.map(increasing),
)
def test_counts_are_sums_of_those_of_each_person_alone(histories: Histories, name: str, history: list[Turn]) -> None:
    """Over all refreshes, the count of all persons is the sum of each person's count, whoever else came."""

    def alone(person: str) -> list[Turn]:
        return [replace(turn, rows=[row for row in turn.rows if row[0] == person]) for turn in history]

    each = [histories.tables(name, alone(person)) for person in ("eve", "bob", "")]
    assert np.array_equal(histories.tables(name, history), sum(each))


@pytest.mark.slow
def test_the_bounds_of_other_answers_are_reached(histories: Histories) -> None:
    """No bound is larger than it has to be: somebody with MAX ROWS dear rows, or groups, reaches it."""
    dear = [Turn([("eve", f"2024-{month:02}-01", "a", 7) for month in (1, 2, 3, 4)], "", 6)]
    for name, bound in (("sums", MOST * 8), ("persons", MOST), ("both", MOST), ("bounded", MOST), ("cube", MOST * 8)):
        moved = histories.tables(f"{name} by tree", dear) - histories.tables(f"{name} by tree", dear, "eve")
        asks = histories.asks[f"{name} by tree"]
        sizes = [int(np.abs(moved[list(ask.scan.tables)]).sum()) for ask in asks]
        assert max(sizes) == bound, name
        assert all(size == ask.scan.l1 for size, ask in zip(sizes, asks, strict=True)), name


def test_the_bound_is_reached(histories: Histories) -> None:
    """A person with MAX ROWS rows in one ward and the dearest period moves the measurements by the whole price."""
    history = [Turn([("eve", "2024-01-01", "a", 1)] * (MOST + 2), "", 1), Turn([("eve", "2024-05-01", "a", 1)], "", 5)]
    moved = histories.played("all", history) - histories.played("all", history, "eve")
    assert moved.sum() == moved[0, 0] == MOST, "no row is counted after the first MAX ROWS"
    for strategy in STRATEGIES:
        axis = time_axis(strategy, PERIODS, 2)
        measured = axis.matrix @ moved
        assert (measured * measured).sum() >= 0.99 * MOST**2 * axis.factor.norms[1]


def test_the_earliest_are_kept(histories: Histories) -> None:
    """Several periods that close together are cut in the order of time, as if each had been refreshed by itself."""
    rows = [("eve", f"2024-{month:02}-03", "ab"[month % 2], 1) for month in (6, 5, 4, 3, 2)]
    together = histories.played("all", [Turn(rows, "", PERIODS)])
    apart = histories.played("all", [Turn(rows if month == 1 else [], "", month) for month in range(1, PERIODS + 1)])
    assert np.array_equal(together, apart)
    assert together.sum(axis=1).tolist() == [0, 1, 1, 1, 0, 0]


def test_rows_that_are_moved_or_late(histories: Histories) -> None:
    """A row that comes after its period closed is in no period. A row moved to a later period counts once more."""
    late = [Turn([("eve", "2024-01-05", "a", 1)], "", 2), Turn([("eve", "2024-01-06", "a", 1)], "", 3)]
    assert histories.played("all", late).sum(axis=1).tolist() == [1, 0, 0, 0, 0, 0]
    moved = [Turn([("eve", "2024-01-05", "a", 1)], "", 1), Turn([], CHANGES[2], 2), Turn([], CHANGES[2], 4)]
    assert histories.played("all", moved).sum(axis=1).tolist() == [1, 1, 1, 0, 0, 0]
