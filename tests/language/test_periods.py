"""Public facts decide which periods a statement may read, and every row that it counts lies in one of these."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpduck
from dpduck.language.select.request import SelectRequest
from dpduck.values.errors import Refusal
from dpduck.values.periods import WORDS, Periods, every, number_of
from tests.language.facts import request_of

DAYS = [date(2023, 12, 1) + timedelta(days=3 * step) for step in range(200)]


@pytest.fixture(scope="module", params=["DATE", "TIMESTAMP"])
def visits(request: pytest.FixtureRequest) -> Iterator[duckdb.DuckDBPyConnection]:
    """Visits with units by month, and a public table of days."""
    with dpduck.connect(config={"threads": 1}) as connection:
        connection.execute(f"CREATE TABLE visits (person VARCHAR, came {request.param}, left_at DATE, ward VARCHAR)")
        connection.execute("CREATE TABLE days AS SELECT DATE '2024-01-01' AS day, 'monday' AS name")
        connection.execute("FROM dp('DECLARE PUBLIC TABLE days')")
        connection.execute(
            "FROM dp($$ CREATE PRIVACY POLICY ON visits (PRIVACY UNIT person PER MONTH OF came MAX ROWS 2, "
            "BUDGET (epsilon = 1) PER MONTH, DOMAIN ward IN ('a', 'b'), DOMAIN left_at IN ('2024-01-01'), "
            "DOMAIN came RANGE 2024-01-01 TO 2024-04-01 STEP DAY) $$)"
        )
        connection.execute(f"CREATE TEMP TABLE moments AS SELECT unnest($1::DATE[])::{request.param} AS came", [DAYS])
        if request.param == "TIMESTAMP":
            connection.execute("INSERT INTO moments SELECT came + to_microseconds(86399999999) FROM moments")
        yield connection


def asked(connection: duckdb.DuckDBPyConnection, rest: str, key: str = "ward") -> SelectRequest:
    return request_of(
        connection,
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) {key}, count(*) FROM visits {rest} GROUP BY {key}",
    )


def run(connection: duckdb.DuckDBPyConnection, rest: str, key: str = "ward") -> str:
    """Returns the periods that a statement is charged to, as the ledger writes them."""
    column = asked(connection, rest, key).rows.periods
    assert column is not None
    return str(column.periods)


JANUARY, QUARTER = "FROM 2024-01-01 TO 2024-02-01", "FROM 2024-01-01 TO 2024-04-01"
DECIDED = {
    "WHERE came >= '2024-01-01' AND came < '2024-02-01'": JANUARY,
    "WHERE came >= DATE '2024-01-01' AND DATE '2024-02-01' > came": JANUARY,
    "WHERE came BETWEEN TIMESTAMP '2024-01-01 00:00:00' AND TIMESTAMP '2024-01-31 23:59:59'": JANUARY,
    "WHERE came = DATE '2024-01-15'": JANUARY,
    "WHERE came IN (DATE '2024-01-15', DATE '2024-03-01')": QUARTER,
    "WHERE date_trunc('month', came) = DATE '2024-01-01'": JANUARY,
    "WHERE date_trunc('quarter', came) = DATE '2024-01-01'": QUARTER,
    "WHERE date_trunc('month', came) >= '2024-01-01' AND date_trunc('month', came) < '2024-04-01'": QUARTER,
    "WHERE date_trunc('month', came) > '2023-12-01' AND date_trunc('month', came) <= '2024-03-01'": QUARTER,
    "WHERE year(came) = 2024 AND came < '2024-04-01'": QUARTER,
    "WHERE year(came) > 2023 AND year(came) <= 2024": "FROM 2024-01-01 TO 2025-01-01",
    "WHERE CAST(came AS DATE) = DATE '2024-01-31'": JANUARY,
    "WHERE (came < '2024-01-09' OR came < '2024-02-01') AND came >= '2024-01-02'": JANUARY,
    "WHERE came >= '2024-01-01' AND came < '2024-02-01' AND came <> '2024-01-03' AND ward LIKE 'a%'": JANUARY,
    "WHERE came >= '2024-01-01'": "FROM 2024-01-01 TO 9999-01-01",
    "WHERE came < '2024-01-01'": "FROM 0001-01-01 TO 2024-01-01",
}
UNDECIDED = (
    "", "WHERE ward = 'a'", "WHERE came >= '2024-01-01' OR ward = 'a'", "WHERE NOT came < '2024-01-01'",
    "WHERE month(came) = 3", "WHERE came >= left_at", "WHERE came = left_at", "WHERE left_at = DATE '2024-01-01'",
    "WHERE came > DATE '2024-01-01' - INTERVAL 3 DAY", "WHERE came + INTERVAL 1 DAY < DATE '2024-01-01'",
    "WHERE CASE WHEN ward = 'a' THEN came < '2024-01-01' ELSE true END", "WHERE strftime(came, '%Y') = '2024'",
    "WHERE came <> '2024-01-01'", "WHERE came IS NOT NULL", "WHERE coalesce(came, DATE '2024-01-01') = '2024-01-01'",
    "JOIN days ON day = CAST(came AS DATE)", "WHERE came NOT BETWEEN '2024-01-01' AND '2024-02-01'",
)  # fmt: skip


def test_conditions_that_are_decided(visits: duckdb.DuckDBPyConnection) -> None:
    """The periods are named by comparisons of the column, or its truncation, with dates, AND, OR, BETWEEN and IN."""
    for rest, expected in DECIDED.items():
        assert (rest, run(visits, rest)) == (rest, expected)


def test_conditions_that_public_facts_do_not_decide(visits: duckdb.DuckDBPyConnection) -> None:
    """Any other condition in WHERE, or in a join, is charged to every period."""
    assert [rest for rest in UNDECIDED if run(visits, rest) != "EVERY"] == []


def test_the_domain_decides_where_the_column_is_grouped_by(visits: duckdb.DuckDBPyConnection) -> None:
    """Rows outside of a key's domain are in no cell: they are not read, and their periods are not charged."""
    assert run(visits, "", "came") == QUARTER
    assert run(visits, "", "date_trunc('month', came)") == QUARTER
    assert run(visits, "WHERE came >= '2024-03-05'", "came") == "FROM 2024-03-01 TO 2024-04-01"
    assert run(visits, "", "ward, left_at") == "EVERY"


def test_a_text_with_a_time_is_a_day_for_a_date(visits: duckdb.DuckDBPyConnection) -> None:
    """DuckDB compares a DATE with the day of a text with a time: rows of this day meet both conditions."""
    for rest in ("BETWEEN '2024-03-01 12:00:00' AND '2024-03-01'", "= '2024-03-01 12:00:00' AND came = '2024-03-01'"):
        assert run(visits, f"WHERE came {rest}") == "FROM 2024-03-01 TO 2024-04-01"


def test_conditions_that_no_row_meets_are_refused(visits: duckdb.DuckDBPyConnection) -> None:
    """A condition that no period can meet is refused, since nobody would pay for the answer."""
    for rest, key in (
        ("WHERE came > '2024-02-01' AND came < '2024-01-01'", "ward"),
        ("WHERE came >= '9999-02-01'", "ward"),
        ("WHERE came < '2020-01-01'", "came"),
    ):
        with pytest.raises(Refusal, match="no row could meet the conditions on the column of PER"):
            run(visits, rest, key)


FEATURES = (
    "SELECT person, max(left_at) AS m FROM visits GROUP BY person",
    "SELECT lag(ward) OVER (PARTITION BY person ORDER BY came) AS m FROM visits",
    "SELECT came AS m FROM visits QUALIFY row_number() OVER (PARTITION BY person ORDER BY came) = 1",
)


@pytest.mark.parametrize("inner", FEATURES)
def test_features_of_several_months_are_refused(visits: duckdb.DuckDBPyConnection, inner: str) -> None:
    """Features over several months are refused: the rows of a person are of many units there."""
    clause = "WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1)"
    with pytest.raises(Refusal, match=r"are made of its rows of one month, and \w+ BY does not say so") as refused:
        request_of(visits, f"SELECT {clause} count(*) FROM ({inner}) WHERE m IS NULL")
    assert "BY the privacy unit's column, date_trunc('month', came); or one month in WHERE" in refused.value.accepted


@pytest.mark.parametrize("inner", FEATURES)
def test_features_of_one_month_are_charged_to_it(visits: duckdb.DuckDBPyConnection, inner: str) -> None:
    """A subquery that reads one month, or groups by the month, gives the features of plain SQL."""
    clause = "WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1)"
    for word, where, by in (
        ("one", "WHERE came >= '2024-01-05' AND came < '2024-02-01'", ""),
        ("every", "", ", date_trunc('month', came)"),
    ):
        text = inner.replace("FROM visits", f"FROM visits {where}").replace("BY person", f"BY person{by}")
        column = request_of(visits, f"SELECT {clause} count(*) FROM ({text}) WHERE m IS NULL").rows.periods
        assert column is not None and str(column.periods) == (JANUARY if word == "one" else "EVERY")


def test_the_run_of_a_union_covers_its_tables(visits: duckdb.DuckDBPyConnection) -> None:
    """The run of a union is the smallest that covers the periods of every SELECT, cut by the conditions around."""
    january, march = (f"came >= '2024-0{month}-05' AND came < '2024-0{month}-09'" for month in (1, 3))
    both = f"(SELECT came, ward FROM visits WHERE {january} UNION ALL SELECT came, ward FROM visits WHERE {march})"
    for rest, expected in (
        (f"{both} AS u", QUARTER),
        (f"{both} AS u WHERE came < '2024-02-01'", JANUARY),
        (both.replace("came, ", "") + " AS u", QUARTER),
        (both.replace(f" WHERE {march}", "") + " AS u", "EVERY"),
        (f"(SELECT * FROM {both} WHERE came >= '2024-02-09') AS u", "FROM 2024-02-01 TO 2024-04-01"),
    ):
        column = request_of(
            visits, f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) ward, count(*) FROM {rest} GROUP BY ward"
        ).rows.periods
        assert column is not None and (rest, str(column.periods)) == (rest, expected)


def test_the_run_of_a_join_is_that_of_the_rows_that_are_kept(visits: duckdb.DuckDBPyConnection) -> None:
    """A condition on one table's date limits the other's month. A side that an outer join keeps has its own months."""
    within = "ON v.person = w.person AND date_trunc('month', v.came) = date_trunc('month', w.came)"
    inside = f"(SELECT * FROM visits WHERE came >= '2024-01-05' AND came < '2024-01-09') AS w {within}"
    for rest, expected in (
        (f"LEFT JOIN visits AS w {within} WHERE v.came = '2024-01-05'", JANUARY),
        (f"RIGHT JOIN visits AS w {within} WHERE w.came = '2024-01-05'", JANUARY),
        (f"JOIN visits AS w {within} WHERE w.came = '2024-01-05' AND v.came = '2024-01-25'", JANUARY),
        (f"SEMI JOIN {inside}", "EVERY"),
        (f"LEFT JOIN {inside}", "EVERY"),
    ):
        column = request_of(
            visits, f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits AS v {rest}"
        ).rows.periods
        assert column is not None and (rest, str(column.periods)) == (rest, expected)


LITERALS = st.sampled_from(DAYS).map(lambda day: f"DATE '{day.isoformat()}'")
SIGNS = st.sampled_from(["=", "<", "<=", ">", ">=", "<>"])
VALUES = st.sampled_from(
    ["came", *(f"date_trunc('{word.lower()}', came)" for word in WORDS), "CAST(came AS DATE)", "came + INTERVAL 9 DAY"]
)
SIMPLE = st.one_of(
    st.tuples(VALUES, SIGNS, LITERALS).map(" ".join),
    st.tuples(LITERALS, SIGNS, VALUES).map(" ".join),
    st.tuples(VALUES, LITERALS, LITERALS).map(lambda parts: f"{parts[0]} BETWEEN {parts[1]} AND {parts[2]}"),
    st.tuples(VALUES, LITERALS, LITERALS).map(lambda parts: f"{parts[0]} IN ({parts[1]}, {parts[2]})"),
    st.tuples(SIGNS, st.sampled_from(["2023", "2024", "2025"])).map(lambda parts: f"year(came) {' '.join(parts)}"),
    st.just("month(came) = 3"),
)
CONDITIONS = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda parts: f"({parts[0]} AND {parts[1]})"),
        st.tuples(inner, inner).map(lambda parts: f"({parts[0]} OR {parts[1]})"),
        inner.map(lambda part: f"(NOT {part})"),
    ),
    max_leaves=4,
)


@settings(max_examples=25, deadline=None)
@given(condition=CONDITIONS)
def test_no_row_that_meets_a_condition_is_left_out(visits: duckdb.DuckDBPyConnection, condition: str) -> None:
    """Every moment that meets a random condition, by DuckDB, is in a period that is charged, and so is read."""
    met = [row[0] for row in visits.execute(f"SELECT came FROM moments WHERE {condition}").fetchall()]
    try:
        column = asked(visits, f"WHERE {condition}").rows.periods
    except Refusal as refused:
        assert "no row could meet" in refused.what and met == []
        return
    assert column is not None
    numbers = {number_of("MONTH", moment if type(moment) is date else moment.date()) for moment in met}
    assert all(column.periods.first <= number <= column.periods.last for number in numbers)


def test_runs_of_periods() -> None:
    """A run has a first and a last period of one word, and none outside of the calendar."""
    for first, last in ((1, 0), (-1, 3), (0, every("DAY").last + 1)):
        with pytest.raises(ValueError, match="no run of periods"):
            Periods("DAY", first, last)
