"""Norms of keys that put several values of a column into one group: a unit's norm is that of its groups."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt

import numpy as np
import pytest

import dpduck
from dpduck.auditor.neighbours import require_database
from dpduck.database.functions import OWNER
from dpduck.kernel.contributions import FULL
from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.cubes.measure import propose_cube
from dpduck.mechanisms.norms import NORMS
from tests.support.clinics import Clinic

NORM = 4
POLICY = (
    "CREATE PRIVACY POLICY ON trips (PRIVACY UNIT person MAX ROWS 100, BUDGET (rho = 100000), "
    "DOMAIN day RANGE 0 TO 60 STEP 1, DOMAIN town IN ('a', 'b', 'c', 'd') WITH NULL, DOMAIN odd IN (3, 7, 90), "
    "CLAMP price BETWEEN 0 AND 90 STEP 1)"
)
ROWS = (
    "CREATE TABLE trips AS SELECT CASE WHEN range % 97 = 0 THEN NULL WHEN range < 900 THEN range % 15 "
    "ELSE 100 + range % 400 END AS person, CAST(range * 31 % 67 AS INTEGER) - 3 AS day, "
    "['a', 'b', 'c', 'd', NULL, 'x'][range * 7 % 6 + 1] AS town, [3, 7, 90, 8][range % 4 + 1] AS odd, "
    "CASE WHEN range % 17 = 0 THEN NULL ELSE range * 13 % 91 END AS price FROM range(4000)"
)
KEYS = {  # as DuckDB computes it, and the rows that are in the domains
    "day // 7": "day BETWEEN 0 AND 59",
    "day // 7, town": "day BETWEEN 0 AND 59 AND (town IS NULL OR town <> 'x')",
    "CASE WHEN town = 'a' THEN 'first' ELSE 'other' END": "town IS NULL OR town <> 'x'",
    "odd // 10, day // 30": "odd <> 8 AND day BETWEEN 0 AND 59",
    "day // 7, day % 2": "day BETWEEN 0 AND 59",
}
ADDED = {"count(*)": "count(*)", "sum(price)": "ifnull(sum(price), 0)"}


@pytest.fixture(scope="module")
def trips() -> Iterator[Clinic]:
    """400 people with a few trips each, and 15 with sixty."""
    with dpduck.connect() as connection:
        made = Clinic(connection)
        made.con.execute(ROWS)
        made.dp(POLICY)
        yield made


def job_of(clinic: Clinic, keys: str, aggregate: str) -> CountingJob:
    text = (
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 1, max_norm_contributed = {NORM}) {keys}, {aggregate} "
        f"FROM trips GROUP BY {keys}"
    )
    question, _ = require_database(clinic.con).question_of(text, OWNER)
    assert isinstance(question, SelectRequest)
    job = propose_cube(question).groups[0].tables[0].scan.job
    assert isinstance(job, CountingJob) and job.merges
    return job


def table(clinic: Clinic, job: CountingJob) -> dict[tuple[int, ...], int]:
    counts = count_exactly(clinic.con.cursor(), job, bytes(32))
    codes = np.array(counts._exact_coordinates).T.tolist()
    return {tuple(cell): int(n) for cell, n in zip(codes, counts._exact_counts[0], strict=True) if n}


@pytest.mark.parametrize("aggregate", ADDED)
@pytest.mark.parametrize("keys", KEYS)
def test_a_unit_has_the_norm_of_its_groups(trips: Clinic, keys: str, aggregate: str) -> None:
    """The exact table is that of people, each times the largest weight that the norm of its groups allows."""
    job = job_of(trips, keys, aggregate)
    listed = ", ".join(f"k{number}" for number, _ in enumerate(keys.split(", ")))
    named = ", ".join(f"{key} AS k{number}" for number, key in enumerate(keys.split(", ")))
    rows = trips.rows(
        f"SELECT person, {listed}, CAST({ADDED[aggregate]} AS BIGINT) FROM (SELECT *, {named} FROM trips) "
        f"WHERE person IS NOT NULL AND ({KEYS[keys]}) GROUP BY ALL"
    )
    squares, expected = dict[object, int](), dict[tuple[object, ...], int]()
    for person, *_, added in rows:
        squares[person] = squares.get(person, 0) + added**2
    (aggregated,) = job.aggregates
    for person, *group, added in rows:
        weight = min(FULL, isqrt(FULL**2 * aggregated.norm // max(1, squares[person])))
        expected[tuple(group)] = expected.get(tuple(group), 0) + weight * added
    assert sorted(table(trips, job).values()) == sorted(one for one in expected.values() if one)


@pytest.mark.parametrize("aggregate", ADDED)
@pytest.mark.parametrize("keys", KEYS)
def test_a_unit_moves_groups_by_no_more_than_is_priced(trips: Clinic, keys: str, aggregate: str) -> None:
    """Without somebody with many rows, or with few: L1, one cell and squares are within the bounds of the job."""
    job = job_of(trips, keys, aggregate)
    before = table(trips, job)
    for person in (3, 150):
        trips.con.execute(f"CREATE OR REPLACE TEMP TABLE kept AS FROM trips WHERE person = {person}")
        trips.con.execute(f"DELETE FROM trips WHERE person = {person}")
        after = table(trips, job)
        trips.con.execute("INSERT INTO trips FROM kept")
        moved = [abs(before.get(cell, 0) - after.get(cell, 0)) for cell in {*before, *after}]
        assert 0 < sum(moved) <= job.unit_bounds[0]
        assert max(moved) <= job.cell_bounds[0]
        assert sum(one * one for one in moved) <= job.squares_bounds[0] <= FULL**2 * job.aggregates[0].norm


def test_prepared_rows_have_the_same_groups() -> None:
    """A prepared table has the weighed counts of live rows, but for noise.

    The error of a difference is 0.6 at this price. More than 4 has a chance below 1e-9 over nine weeks.
    """
    with dpduck.connect() as connection:
        clinic = Clinic(connection)
        clinic.con.execute(ROWS)
        clinic.dp(POLICY)
        ask = (
            "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 100, max_norm_contributed = 4, refresh = '{}') "
            "day // 7 AS week, count(*) AS n FROM trips GROUP BY day // 7"
        )
        live = clinic.dp(ask.format("live"))
        clinic.dp("ALTER PRIVACY POLICY ON trips PREPARE")
        prepared = clinic.dp(ask.format("prepared"))
        assert len(live) == 9 and all(abs(a[1] - b[1]) <= 4 for a, b in zip(live, prepared, strict=True))


def test_the_default_serves_computed_keys(trips: Clinic) -> None:
    """GROUP BY an expression gets norms, too, and dp_explain says so."""
    clause = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 1)"
    text = f"{clause} day // 2 AS pair, count(*) AS n FROM trips GROUP BY day // 2"
    question, _ = require_database(trips.con).question_of(text, OWNER)
    assert isinstance(question, SelectRequest) and NORMS.serves(question) and question.question.treatment.usual
    rows = trips.dp(text)
    assert len(rows) == 30
