"""Units by periods through SQL: whatever the moments of rows are, one person's period moves answers by MAX ROWS alone.

Neighbours differ by all rows of one person in one period. A statement charged to this period differs at most by the
sensitivity of its noise. Any other statement does not differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import dpduck
from dpduck.kernel.columns.periods import number_sql
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.exact import count_exactly
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.jobs import counting_job
from dpduck.values.periods import WORDS, last_number, number_of, start_of
from tests.kernel.test_bounding import assert_bounded
from tests.language.facts import request_of

MOST = 2
"""MAX ROWS."""

Row = tuple[str | None, str | None, str | None, int | None]  # person, moment, ward, number

STATEMENTS = {
    "all": ("ward", "visits"),
    "half": ("ward", "visits WHERE came >= {type} '2024-01-01' AND came < {type} '2024-03-01'"),
    "worker": ("ward", "visits WHERE came BETWEEN {type} '2024-02-01' AND {type} '2024-02-20' AND 7 / number >= 1"),
    "joined": ("colour", "visits JOIN wards ON ward = name WHERE date_trunc('month', came) = DATE '2024-02-01'"),
    "left": ("ward", "visits LEFT JOIN wards ON ward = name WHERE year(came) = 2024"),
    "by moment": ("came", "visits"),
    "nested": ("ward", "(SELECT * FROM visits WHERE came > {type} '2024-01-31') AS v WHERE came < {type} '2024-04-02'"),
}
MOMENTS = (
    "2024-01-31", "2024-02-01", "2024-02-14", "2024-02-29", "2024-03-01", "2024-03-31", "2023-12-31", "2024-12-30",
    "2025-01-01", "0001-01-01", "9998-12-31", "9999-01-01", "5000-06-06", "0044-03-15 (BC)", "infinity", "-infinity",
    "290000-01-01", None,
)  # fmt: skip
OUTSIDE = ("9999-01-01", "0044-03-15 (BC)", "infinity", "-infinity", "290000-01-01", None)
"""Moments of no period, by any word but WEEK, whose last one ends on the third of January 9999."""


def number(word: str, moment: str | None) -> int | None:
    """Returns the period of a moment, by Python's calendar. None stays None."""
    if moment is None or moment in OUTSIDE:
        return None if moment != "9999-01-01" or word != "WEEK" else last_number(word)
    return number_of(word, date.fromisoformat(moment))


class Visits:
    """A database with changing rows, and the request of each statement by the word of its periods."""

    def __init__(self, type_name: str) -> None:
        self.con = dpduck.connect(config={"threads": 1})
        self.con.execute(f"CREATE TABLE visits (person VARCHAR, came {type_name}, ward VARCHAR, number INTEGER)")
        self.con.execute(
            "CREATE TABLE wards AS FROM (VALUES ('a', 'one'), ('a', 'two'), ('b', 'one')) AS w(name, colour)"
        )
        self.con.execute("FROM dp('DECLARE PUBLIC TABLE wards')")
        self.requests: dict[tuple[str, str], SelectRequest] = {}
        for word in WORDS:
            self.con.execute(
                f"FROM dp($$ CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT person PER {word} OF came "
                f"MAX ROWS {MOST}, BUDGET (epsilon = 1) PER {word}, DOMAIN ward IN ('a', 'b') WITH NULL, "
                "DOMAIN came RANGE 2024-01-01 TO 2024-04-01 STEP MONTH) $$)"
            )
            for name, (key, source) in STATEMENTS.items():
                clause = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1)"
                text = f"{clause} {key}, count(*) FROM {source} GROUP BY {key}"
                self.requests[word, name] = request_of(self.con, text.replace("{type}", type_name))

    def put(self, rows: Sequence[Row]) -> None:
        self.con.execute("DELETE FROM visits")
        for row in rows:
            self.con.execute("INSERT INTO visits VALUES (?, CAST(? AS TIMESTAMP), ?, ?)", list(row))

    def table(self, request: SelectRequest) -> NDArray[np.int64]:
        """The exact bounded counts."""
        with self.con.cursor() as cursor:
            counts = count_exactly(cursor, counting_job(request, [Contribution()]), b"key")
        table = np.zeros((1, *counts._sizes), dtype=np.int64)
        np.add.at(table[0], counts._exact_coordinates, counts._exact_counts[0])
        return table


@pytest.fixture(scope="module", params=["DATE", "TIMESTAMP"])
def visits(request: pytest.FixtureRequest) -> Iterator[Visits]:
    made = Visits(request.param)
    yield made
    made.con.close()


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["eve", "eve", "bob", "", None]),
        st.sampled_from(MOMENTS),
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from([0, 1, 7, None]),
    ),
    max_size=14,
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(word=st.sampled_from(WORDS), name=st.sampled_from(sorted(STATEMENTS)), rows=ROWS)
def test_any_assignment_of_rows_to_periods(visits: Visits, word: str, name: str, rows: list[Row]) -> None:
    """Removing one person's rows of one period moves a count by MAX ROWS if the period is charged, else by nothing."""
    request = visits.requests[word, name]
    assert request.rows.periods is not None
    charged = request.rows.periods.periods
    visits.put(rows)
    table, most = visits.table(request), 0
    for person, period in {(row[0], number(word, row[1])) for row in rows}:
        visits.put([row for row in rows if (row[0], number(word, row[1])) != (person, period)])
        smaller = visits.table(request)
        if period is None or person is None or not charged.first <= period <= charged.last:
            assert np.array_equal(smaller, table), "rows of no charged unit are read"
        assert_bounded(table, smaller, request.rows.unit_bound)
        most = max(most, int(np.abs(table - smaller).sum()))
    assert most <= MOST
    for person in {row[0] for row in rows}:
        periods = {number(word, row[1]) for row in rows if row[0] == person}
        k = sum(period is not None and charged.first <= period <= charged.last for period in periods)
        visits.put([row for row in rows if row[0] != person])
        assert np.abs(table - visits.table(request)).sum() <= k * MOST, "a whole person is k units"


@pytest.mark.slow
def test_what_is_kept_is_kept_of_each_period(visits: Visits) -> None:
    """MAX ROWS is per period: of somebody with four rows in each of three months two of each month are counted."""
    days = [date(2024, month, 2) + timedelta(days=day) for month in (1, 2, 3) for day in range(4)]
    visits.put([("eve", day.isoformat(), "a", 1) for day in days])
    assert visits.table(visits.requests["MONTH", "all"]).sum() == 3 * MOST
    assert visits.table(visits.requests["QUARTER", "all"]).sum() == MOST
    assert visits.table(visits.requests["DAY", "all"]).sum() == 12
    assert visits.table(visits.requests["MONTH", "by moment"]).tolist() == [[2, 2, 2]]


def test_the_conditions_are_not_what_keeps_other_periods_out(visits: Visits) -> None:
    """With its WHERE taken away, or always true, a statement still reads rows of its charged periods alone."""
    request = visits.requests["MONTH", "half"]
    without = replace(request, rows=replace(request.rows, filters=("TRUE",)))
    visits.put([("eve", moment, "a", 1) for moment in MOMENTS] + [("bob", "2024-02-02", "b", 1)])
    assert visits.table(without).sum() == visits.table(request).sum() == 4


def test_the_periods_of_python_and_of_duckdb_are_the_same(visits: Visits) -> None:
    """A row's period is what its date says by the calendar: around each first day, for each word, over 10,000 years."""
    for word in WORDS:
        numbers = [*range(60), *range(0, last_number(word), max(1, last_number(word) // 200)), last_number(word)]
        days = [
            start_of(word, one) + timedelta(days=more) for one in numbers for more in (-1, 0, 1) if one or more >= 0
        ]
        sql = number_sql('"t"."day"', word)
        found = duckdb.execute(f"SELECT {sql} FROM (SELECT unnest($1::DATE[]) AS day) AS t", [days]).fetchall()
        assert [row[0] for row in found] == [number_of(word, day) for day in days]
