"""Public facts that spare noise: cells that WHERE rules out, values that a domain lists, ranges that bound a value."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dpduck
from tests.support.clinics import Clinic

POLICY = """CREATE PRIVACY POLICY ON trips (PRIVACY UNIT who MAX ROWS 100, BUDGET (epsilon = 100000),
    DOMAIN month RANGE 1 TO 13 STEP 1, DOMAIN age RANGE 0 TO 100 STEP 10,
    DOMAIN day RANGE '2013-01-01' TO '2014-01-01' STEP INTERVAL 1 MONTH, DOMAIN late BOOLEAN,
    DOMAIN zone IN (0, 1, 2),
    DOMAIN origin IN ('EWR', 'JFK', 'LGA') WITH NULL WITH OTHER 'else',
    DOMAIN fare RANGE 0 TO 50 STEP 5 WITH EDGES, DOMAIN price RANGE 0 TO 10 STEP 2.5)"""


def opened() -> Clinic:
    """Six thousand trips of sixty people, a hundred each."""
    clinic = Clinic(dpduck.connect())
    clinic.rows("""CREATE TABLE trips AS SELECT range // 100 AS who, range % 12 + 1 AS month, range % 100 AS age,
        range % 3 = 0 AS late, range % 3 AS zone, DATE '2013-01-01' + CAST(range % 365 AS INTEGER) AS day,
        ['EWR', 'JFK', 'LGA', 'BOS', NULL][range % 5 + 1] AS origin, range % 70 AS fare,
        CAST(range % 40 AS DOUBLE) / 4 AS price FROM range(6000)""")
    clinic.dp(POLICY)
    return clinic


@pytest.fixture(scope="module")
def trips() -> Iterator[Clinic]:
    """One table for all tests that only ask."""
    clinic = opened()
    yield clinic
    clinic.con.close()


@pytest.fixture
def own_trips() -> Iterator[Clinic]:
    """A table to change."""
    clinic = opened()
    yield clinic
    clinic.con.close()


def test_what_domains_leave_out_is_asked_privately(own_trips: Clinic) -> None:
    """The count without GROUP BY, less the cells, is the count of rows outside the domains, with a view's errors."""
    own_trips.rows("UPDATE trips SET month = 14 WHERE who % 2 = 0 AND month < 4")
    own_trips.rows("UPDATE trips SET month = NULL WHERE who % 3 = 0 AND month < 4")
    own_trips.dp("CREATE PRIVATE VIEW whole OPTIONS (epsilon = 50) AS SELECT count(*) AS n FROM trips")
    own_trips.dp(
        "CREATE PRIVATE VIEW cells OPTIONS (epsilon = 50) AS SELECT month, count(*) AS n FROM trips GROUP BY month"
    )
    [(left, error)] = own_trips.rows(
        "SELECT any_value(w.n) - sum(c.n), sqrt(any_value(w.n_stderr) ^ 2 + sum(c.n_stderr ^ 2)) "
        "FROM private.whole AS w, private.cells AS c"
    )
    exact = own_trips.value("SELECT count(*) FROM trips WHERE month IS NULL OR month = 14")
    assert exact > 40 * error and abs(left - exact) < 20 * error  # Laplace noises: false alarms below 1e-9


def keys(clinic: Clinic, key: str, where: str, grouping: str = "") -> list[object]:
    select = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) {key}, count(*) FROM trips WHERE {where}"
    return [
        row[0] if len(row) == 2 else row[:-1] for row in clinic.dp(f"{select} GROUP BY {grouping or key} ORDER BY ALL")
    ]


@pytest.mark.parametrize(
    ("key", "where", "left"),
    [
        ("month", "month = 3", [3]),
        ("month", "month = 3 OR month > 11", [3, 12]),
        ("month", "3 >= month AND month <> 2", [1, 3]),
        ("month", "month IN (1, 5) AND age < 50", [1, 5]),
        ("month", "month = 13", []),
        ("age", "age BETWEEN 22 AND 40", [20, 30, 40]),
        ("age", "age < 20", [0, 10]),
        ("age", "age <= 20", [0, 10, 20]),
        ("age", "age > 89", [80, 90]),
        ("age", "age <> 3", list(range(0, 100, 10))),
        ("CAST(day AS VARCHAR)", "true", 12),
        ("monthname(day)", "day >= '2013-06-15'", 12),
        ("day", "day >= '2013-06-15'", 7),
        ("day", "day < DATE '2013-03-01'", 2),
        ("day", "day >= '2013-06-15 12:00:00'", 12),
        ("late", "late", [True]),
        ("late", "NOT late", [False]),
        ("origin", "origin = 'EWR'", ["EWR"]),
        ("origin", "origin <> 'EWR'", ["JFK", "LGA", "else"]),
        ("origin", "origin IN ('JFK', 'BOS')", ["JFK", "else"]),
        ("origin", "origin > 'EWR'", ["EWR", "JFK", "LGA", "else"]),
        ("origin", "length(origin) = 3", ["EWR", "JFK", "LGA", "else", None]),
        ("fare", "fare > 30", [0, 30, 35, 40, 45]),
        ("price", "price >= 5", [0.0, 2.5, 5.0, 7.5]),
        ("month", "late", list(range(1, 13))),
    ],
)  # fmt: skip
def test_cells_that_where_rules_out_are_left_out(trips: Clinic, key: str, where: str, left: object) -> None:
    """Comparisons of a key with literals exclude cells of its domain, since no row can be there. Other conditions, and
    columns with inexact comparisons, exclude none."""
    found = keys(trips, key, where)
    assert (len(found) if isinstance(left, int) else found) == left


WHERE = (
    "age BETWEEN 22 AND 40 AND origin <> 'EWR'",
    "month > 3 AND day < '2013-02-03'",
    "fare < 12",
    "NOT late",
)


@pytest.mark.parametrize("where", WHERE)
def test_no_row_is_lost(trips: Clinic, where: str) -> None:
    """Cells that are left out have no rows: the others add up to all rows, but for noise of scale 1 in each cell."""
    for key in ("month", "age", "day", "late", "origin", "fare"):
        shown = trips.dp(
            f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) {key}, count(*) FROM trips "
            f"WHERE {where} GROUP BY {key}"
        )
        exact = trips.value(f"SELECT count(*) FROM trips WHERE {where}")
        assert abs(sum(count for _, count in shown) - exact) < 50 < exact


def test_margins_are_as_they_were(trips: Clinic) -> None:
    """Rolled-up rows stay. A release has one name whatever is left out of its answer."""
    before = trips.charges()
    rows = keys(trips, "month, late", "month = 3 AND late", "CUBE (month, late)")
    assert rows == [(3, True), (3, None), (None, True), (None, None)]
    assert trips.charges() == before + 1


def test_distinct_values_are_bounded_by_what_is_listed(trips: Clinic) -> None:
    """With 100 rows of a unit three values change by three at most, four listed columns by their product. Ranges of
    integers by ones are listed values too."""
    asked = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1)"
    error, found = trips.dp(f"{asked} dp_stderr(count(DISTINCT zone)), count(DISTINCT zone) FROM trips")[0]
    assert error == pytest.approx(3 * 2**0.5, rel=0.02)
    assert abs(found - 3) < 70
    by_month = trips.dp(f"{asked} month, dp_stderr(count(DISTINCT zone)) FROM trips GROUP BY month")
    assert by_month[0][1] == pytest.approx(36 * 2**0.5, rel=0.02)
    months = trips.dp("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) count(DISTINCT month) FROM trips")
    assert abs(months[0][0] - 12) <= 5


def test_declared_ranges_bound_values(trips: Clinic) -> None:
    """median, avg and sum of a column with a RANGE and no CLAMP. Values outside count as its bounds. Noise of a sum is
    a few hundred, of an average a tenth. The test allows more than 20 scales."""
    middle, average, added, twice, highest, priced = trips.dp(
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) median(age), avg(age), sum(fare), avg(age * 2), "
        "max(month), avg(price) FROM trips"
    )[0]
    exact = trips.rows("SELECT avg(age), sum(least(fare, 49)), avg(price) FROM trips")[0]
    assert abs(middle - 49.5) < 10 and abs(average - exact[0]) < 4 and abs(added - exact[1]) < 15_000
    assert abs(twice - 2 * exact[0]) < 8 and highest <= 12 and abs(priced - exact[2]) < 0.5


CASTS = (
    "CAST({} AS INTEGER)", "{}::INT", "TRY_CAST({} AS BIGINT)", "{}::DOUBLE", "coalesce({}, false)::INTEGER",
    "coalesce({}::INTEGER, 0)", "2 * {}::INTEGER - {}::INTEGER",
)  # fmt: skip


@pytest.mark.parametrize("column", ["late", "LATE", "t.late"])
def test_boolean_columns_are_zero_or_one(trips: Clinic, column: str) -> None:
    """A BOOLEAN column that is cast to a number lies between 0 and 1, as a condition does. Noise over 6,000 rows has
    scale 1 in sums and 0.0004 in averages. The test allows more than 25 scales."""
    items = ", ".join(f"sum({cast.replace('{}', column)})" for cast in CASTS)
    asked = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100)"
    [sums] = trips.dp(f"{asked} {items} FROM trips AS t")
    assert [abs(one - 2000) < 1000 for one in sums] == [True] * len(CASTS)
    [(average, summed)] = trips.dp(f"{asked} avg({column}::INT), sum({column}::INT) FROM trips AS t")
    assert abs(average - 1 / 3) < 0.01 and abs(summed - 2000) < 50


@pytest.mark.parametrize(
    ("item", "accepted"),
    [
        ("sum(who::INTEGER)", "sum(x, contribution_bounds_per_row => (low, high)), or CLAMP x BETWEEN low AND high"),
        ("avg(origin::INTEGER)", "avg(x, contribution_bounds_per_row => (low, high)), or CLAMP x BETWEEN low AND high"),
        ("avg(late)", "a numeric column; or CAST(late AS INTEGER)"),
        ("avg(origin)", "a numeric column; or TRY_CAST(origin AS DOUBLE), contribution_bounds_per_row => (low, high)"),
    ],
)
def test_what_bounds_a_value_is_said(trips: Clinic, item: str, accepted: str) -> None:
    """The refusal names bounds of every row first: with them NULL adds nothing, as greatest and least would have it."""
    message = trips.refused(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) {item} FROM trips")
    assert message.partition("; accepted: ")[2].startswith(accepted) and "least(" not in message
