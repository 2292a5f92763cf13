"""Joins, chains and UNION ALL of private tables: neighbours differ only by one unit's rows, at most m."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, product
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import dpduck
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.relations import Source, Stored
from dpduck.language.rows.compiled import raw_program
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.cubes.plan import plan_cube
from dpduck.mechanisms.jobs import counting_job
from tests.kernel.test_bounding import assert_bounded
from tests.language.facts import request_of

TABLES = (
    "CREATE TABLE people (id INTEGER, sex VARCHAR)",
    "CREATE TABLE trips (trip_id INTEGER PRIMARY KEY, who BIGINT, kind VARCHAR)",
    "CREATE TABLE legs (trip INTEGER, mode VARCHAR, km INTEGER)",
    "CREATE TABLE kinds AS FROM (VALUES ('a', 'one'), ('a', 'two'), ('b', 'one')) AS k(kind, colour)",
)
POLICIES = (
    "DECLARE PUBLIC TABLE kinds",
    "CREATE PRIVACY POLICY ON people (PRIVACY UNIT id MAX ROWS 1, BUDGET (epsilon = 1), DOMAIN sex IN ('F', 'M'))",
    "CREATE PRIVACY POLICY ON trips (PRIVACY UNIT who REFERENCES people.id MAX ROWS 2, DOMAIN kind IN ('a', 'b'))",
    "CREATE PRIVACY POLICY ON legs (PRIVACY UNIT trip REFERENCES trips.trip_id MAX ROWS 3, "
    "DOMAIN mode IN ('bus', 'tram'))",
)
SOURCES = {
    "chain": ("mode", "legs"),
    "inner": ("sex, kind", "people JOIN trips ON id = who"),
    "left": ("kind, mode", "trips LEFT JOIN legs ON trip = trip_id AND km > 1"),
    "right": ("kind, mode", "(SELECT * FROM legs WHERE km / km = 1) AS l RIGHT JOIN trips ON trip = trip_id"),
    "full": ("kind", "people FULL JOIN trips ON id = who"),
    "semi": ("kind", "trips SEMI JOIN (SELECT trip FROM legs WHERE mode = 'bus') AS l ON trip = trip_id"),
    "anti": ("sex", "people ANTI JOIN (SELECT who FROM trips WHERE kind = 'a') AS t ON who = id"),
    "three": ("sex, mode", "people JOIN trips ON who = id JOIN legs ON trip = trip_id WHERE km > 0"),
    "siblings": ("a.mode", "legs AS a JOIN legs AS b ON a.trip = b.trip AND a.km >= b.km"),
    "itself": ("b.kind", "trips AS a JOIN trips AS b ON a.who = b.who"),
    "public": ("colour, mode", "trips JOIN kinds USING (kind) JOIN legs ON trip = trip_id"),
    "nested": ("sex", "people LEFT JOIN (SELECT who FROM trips JOIN legs ON trip = trip_id) AS t ON who = id"),
    "per unit": (
        "n",
        "(SELECT who, count(mode) AS n FROM trips LEFT JOIN legs ON trip = trip_id AND km > 0 GROUP BY who) AS c",
    ),
    "features": (
        "first, big",
        "(SELECT id, first(kind ORDER BY km + 1 DESC) AS first, bool_or(km / km > 0) AS big, max(km) AS most "
        "FROM people JOIN trips ON id = who JOIN legs ON trip = trip_id GROUP BY id) AS f WHERE most > -9",
    ),
    "windows": (
        "kind, before",
        "(SELECT kind, lag(kind) OVER (PARTITION BY id ORDER BY trip_id * 2) AS before, row_number() OVER (PARTITION "
        "BY id ORDER BY kind) AS place FROM people JOIN trips ON id = who) AS w WHERE place < 3",
    ),
    "windows joined": (
        "kind, mode",
        "(SELECT trip_id, kind FROM people JOIN trips ON id = who QUALIFY row_number() OVER (PARTITION BY id ORDER BY "
        "kind) < 3) AS w JOIN legs ON trip = trip_id",
    ),
    "union": ("label", "(SELECT sex AS label FROM people UNION ALL SELECT mode FROM legs WHERE km > 1)"),
    "union joined": (
        "sex, mode",
        "(SELECT who, mode FROM trips JOIN legs ON trip = trip_id UNION ALL SELECT who, kind FROM trips) AS u "
        "JOIN people ON id = who",
    ),
}


@dataclass(frozen=True)
class Rows:
    """All private rows: people (id, sex), trips (number, who, kind), legs (trip, mode, km)."""

    people: tuple[tuple[int | None, str | None], ...] = ()
    trips: tuple[tuple[int, int | None, str | None], ...] = ()
    legs: tuple[tuple[int | None, str | None, int | None], ...] = ()

    def without(self, unit: int) -> Rows:
        """The neighbour: every row of one unit removed, along the references."""
        gone = {number for number, who, _ in self.trips if who == unit}
        return Rows(
            tuple(row for row in self.people if row[0] != unit),
            tuple(row for row in self.trips if row[1] != unit),
            tuple(row for row in self.legs if row[0] not in gone),
        )


def literal(value: int | str | None) -> str:
    """The value in SQL."""
    return "NULL" if value is None else repr(value)


class Trips:
    """A database with changing private rows, and the request of each source."""

    def __init__(self) -> None:
        self.connection = dpduck.connect(config={"threads": 1})
        for statement in TABLES:
            self.connection.execute(statement)
        for statement in POLICIES:
            self.connection.execute("FROM dp(?)", [statement])
        self.requests = {name: self._request(*source) for name, source in SOURCES.items()}

    def _request(self, keys: str, source: str) -> SelectRequest:
        clause = "WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1)"
        counted = "count(*), count(*) FILTER (WHERE 1 / 0 > 0)"
        return request_of(self.connection, f"SELECT {clause} {keys}, {counted} FROM {source} GROUP BY {keys}")

    def put(self, rows: Rows) -> None:
        for table, listed in (("people", rows.people), ("trips", rows.trips), ("legs", rows.legs)):
            values = ", ".join(f"({', '.join(map(literal, row))})" for row in listed)
            self.connection.execute(
                f"DELETE FROM {table}" + (f"; INSERT INTO {table} VALUES {values}" if values else "")
            )

    def table(self, request: SelectRequest) -> NDArray[np.int64]:
        """The exact bounded table of every aggregate."""
        with self.connection.cursor() as cursor:
            counts = count_exactly(
                cursor,
                counting_job(
                    request, [Contribution(raw_program(one.condition)) for one in request.question.aggregates]
                ),
                b"key",
            )
        table = np.zeros((len(request.question.aggregates), *counts._sizes), dtype=np.int64)
        for number in range(len(request.question.aggregates)):
            np.add.at(table[number], counts._exact_coordinates, counts._exact_counts[number])
        return table

    def require_bounded(self, name: str, rows: Rows, unit: int, max_rows: int | None = None) -> int:
        """Compares with the neighbour without a unit. Returns by how many rows they differ."""
        request = self.requests[name]
        request = request if max_rows is None else bounded_to(request, max_rows)
        self.put(rows)
        table = self.table(request)
        self.put(rows.without(unit))
        smaller = self.table(request)
        assert_bounded(table, smaller, request.rows.unit_bound)
        return int((table - smaller)[0].sum())


@pytest.fixture(scope="module")
def trips() -> Iterator[Trips]:
    made = Trips()
    yield made
    made.connection.close()


UNITS = st.one_of(st.none(), st.integers(0, 2))
PEOPLE = st.lists(st.tuples(UNITS, st.sampled_from(["F", "M", "x", None])), max_size=6)
JOURNEYS = st.lists(st.tuples(UNITS, st.sampled_from(["a", "b", None])), max_size=7)
LEGS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 8)),
        st.sampled_from(["bus", "tram", "a", None]),
        st.sampled_from([None, 0, 1, 2, 2**31 - 1]),
    ),
    max_size=10,
)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(SOURCES)),
    people=PEOPLE,
    journeys=JOURNEYS,
    legs=LEGS,
    unit=st.integers(0, 2),
    max_rows=st.one_of(st.none(), st.integers(1, 6)),
)
def test_random_neighbours(
    trips: Trips,
    name: str,
    people: list[tuple[int | None, str | None]],
    journeys: list[tuple[int | None, str | None]],
    legs: list[tuple[int | None, str | None, int | None]],
    unit: int,
    max_rows: int | None,
) -> None:
    """The claimed sensitivity, through every join: units that are NULL, rows without a parent, doubled units."""
    numbered = tuple((number, *journey) for number, journey in enumerate(journeys))
    differ = trips.require_bounded(name, Rows(tuple(people), numbered, tuple(legs)), unit, max_rows)
    assert 0 <= differ <= (trips.requests[name].rows.unit_bound if max_rows is None else max_rows)


OTHERS = Rows(((2, "F"), (3, "M")), ((10, 2, "a"), (11, 3, "b")), ((10, "bus", 2), (11, "tram", 1), (99, "bus", 2)))


def small_units() -> Iterator[Rows]:
    """Every shape of unit 1: one person's row or none, up to two trips and up to two legs of each."""
    legs = [(0, "bus", 2), (0, "tram", 0), (1, "bus", 2)]
    for people, kinds in product(((), ((1, "F"),)), ([], ["a", "a"], ["a", "b"])):
        known = [leg for leg in legs if leg[0] < len(kinds)]
        for count in range(3):
            for chosen in combinations_with_replacement(known, count):
                yield Rows(people, tuple((number, 1, kind) for number, kind in enumerate(kinds)), chosen)


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(SOURCES))
def test_exhaustive_neighbours(trips: Trips, name: str) -> None:
    """Every small unit beside two others changes at most m rows, and some unit changes m."""
    request = trips.requests[name]
    trips.put(OTHERS)
    smaller = trips.table(request)
    most = 0
    for unit in small_units():
        trips.put(Rows(OTHERS.people + unit.people, OTHERS.trips + unit.trips, OTHERS.legs + unit.legs))
        table = trips.table(request)
        assert_bounded(table, smaller, request.rows.unit_bound)
        most = max(most, int((table - smaller)[0].sum()))
    assert most >= min(request.rows.unit_bound, 1 if name in ("anti", "per unit") else 2)


def bounded_to(request: SelectRequest, max_rows: int) -> SelectRequest:
    return replace(request, rows=replace(request.rows, max_rows=max_rows, unit_bound=max_rows))


def instead(source: Source | None) -> Source:
    """The rows with another table in the place of trips."""
    assert source is not None
    first = source.first
    if isinstance(first, Stored):
        first = replace(first, table=first.table.replace('"trips"', '"loose"'))
    joins = tuple(replace(join, right=instead(join.right)) for join in source.joins)
    return replace(source, first=first, joins=joins)


def test_a_key_that_is_shared_would_break_the_claim(trips: Trips) -> None:
    """Why a parent's column must be a key: two units that claim one trip make each other's rows appear."""
    request = trips.requests["semi"]
    shared = replace(request, rows=replace(request.rows, source=instead(request.rows.source)))
    both: Sequence[tuple[int, int, str]] = [(0, 1, "a"), (0, 2, "b")]
    found = []
    for rows in (both, both[1:]):
        trips.put(Rows(legs=((0, "bus", 2),) if len(rows) == 2 else ()))  # the leg goes with unit 1, who claims it too
        trips.connection.execute("CREATE OR REPLACE TABLE loose (trip_id INTEGER, who BIGINT, kind VARCHAR)")
        trips.connection.executemany("INSERT INTO loose VALUES (?, ?, ?)", rows)
        found.append(trips.table(shared))
    assert found[0][0].tolist() == [1, 1]
    assert found[1][0].tolist() == [0, 0]


def test_a_key_that_is_lost_meanwhile_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is looked at again in the transaction that counts, and nothing is charged."""
    with dpduck.connect() as connection:
        for statement in TABLES:
            connection.execute(statement)
        for statement in POLICIES:
            connection.execute("FROM dp(?)", [statement])

        def meanwhile(request: SelectRequest) -> Any:
            with connection.cursor() as cursor:
                cursor.execute("CREATE OR REPLACE TABLE trips (trip_id INTEGER, who BIGINT, kind VARCHAR)")
            return plan_cube(request)

        monkeypatch.setattr("dpduck.mechanisms.cubes.measure.plan_cube", meanwhile)
        asked = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) mode, count(*) FROM legs GROUP BY mode"
        with pytest.raises(duckdb.Error, match="a key or a public table changed meanwhile"):
            connection.execute("FROM dp(?)", [asked])
        assert connection.execute("SELECT count(*) FROM dp_ledger() WHERE rho > 0").fetchone() == (0,)


def test_the_owner_sees_rows_per_unit_behind_references(trips: Trips) -> None:
    """dp_check counts the rows of the units that references lead to, and those without a parent."""
    trips.put(OTHERS)
    found = dict(trips.connection.execute("SELECT finding, value FROM dp_check('legs')").fetchall())
    assert (found["rows"], found["privacy units"], found["rows whose unit is NULL"]) == (3, 2, 1)
