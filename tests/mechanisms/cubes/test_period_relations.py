"""UNION ALL, joins of all kinds, GROUP BY and windows by periods: each row goes with one person's month."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import dpduck
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.units import SamePeriod
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.jobs import counting_job
from dpduck.values.errors import Refusal
from tests.language.facts import request_of

FEW, MANY = 2, 1000
"""MAX ROWS: what a unit's rows are cut to, and what leaves them all."""

SAME = "date_trunc('month', v.came) = date_trunc('month', b.billed)"
KEYED, PERSON = f"b.visit = v.id AND b.person = v.person AND {SAME}", f"b.person = v.person AND {SAME}"
MONTH = "date_trunc('month', came)"
FEBRUARY = "came >= '2024-02-01' AND came < '2024-03-01'"
UNITED = "(SELECT person, billed, ward FROM bills UNION ALL SELECT person, called, ward FROM calls)"
BY_MONTH = f"(SELECT person, {MONTH} AS month, count(*) AS k, max(ward) AS ward FROM visits GROUP BY person, {MONTH})"
NUMBERED = f"(SELECT *, row_number() OVER (PARTITION BY person, {MONTH} ORDER BY number, id) AS n FROM visits)"
STATEMENTS = {
    "UNION ALL": f"{UNITED} AS u",
    "UNION ALL of other columns": "(SELECT ward FROM visits UNION ALL SELECT ward FROM bills) AS u",
    "UNION ALL of two months": f"(SELECT ward FROM visits WHERE {FEBRUARY} UNION ALL SELECT ward FROM bills "
    "WHERE year(billed) = 2024 AND billed >= '2024-03-01' AND billed < '2024-04-01') AS u",
    "UNION ALL in one month": f"{UNITED} AS u WHERE date_trunc('month', billed) = DATE '2024-02-01'",
    **{
        f"{kind} by a key": f"visits AS v {kind} bills AS b ON {KEYED}"
        for kind in ("LEFT JOIN", "SEMI JOIN", "ANTI JOIN")
    },
    "RIGHT JOIN by a key": f"(SELECT b.ward FROM visits AS v RIGHT JOIN bills AS b ON {KEYED}) AS r",
    "FULL JOIN by a key": f"visits AS v FULL JOIN bills AS b ON {KEYED} AND b.number > 0",
    **{
        f"{kind} by the person": f"visits AS v {kind} bills AS b ON {PERSON}"
        for kind in ("JOIN", "LEFT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN")
    },
    "LEFT JOIN in February": f"visits AS v LEFT JOIN bills AS b ON {KEYED} WHERE {FEBRUARY}",
    "ANTI JOIN with a condition": f"visits AS v ANTI JOIN (SELECT * FROM bills WHERE 7 / number >= 1) AS b ON {PERSON}",
    "GROUP BY": f"{BY_MONTH} AS g",
    "GROUP BY in one month": f"(SELECT person, count(*) AS k, max(ward) AS ward FROM visits WHERE {FEBRUARY} "
    "GROUP BY person) AS g",
    "PARTITION BY": f"{NUMBERED} AS n WHERE n = 1",
    "QUALIFY": f"(SELECT * FROM visits QUALIFY row_number() OVER (PARTITION BY person, {MONTH} ORDER BY number, id) = 1"
    ") AS q",
    "join of features": f"visits AS v JOIN (SELECT person, month, k FROM {BY_MONTH}) AS g ON g.person = v.person "
    f"AND g.month = {MONTH} WHERE k > 1",
    "LEFT JOIN of features": f"visits AS v LEFT JOIN (SELECT person, month, k FROM {BY_MONTH}) AS g ON "
    f"g.person = v.person AND g.month = {MONTH} AND g.k > 1",
    "join of a UNION ALL": f"visits AS v JOIN (SELECT person, billed FROM {UNITED}) AS b ON {PERSON}",
    "UNION ALL of features": f"(SELECT ward FROM {BY_MONTH} WHERE k > 1 UNION ALL SELECT max(ward) AS ward FROM bills "
    "GROUP BY date_trunc('month', billed), person) AS g",
    "features of a LEFT JOIN": f"(SELECT v.person, max(v.ward) AS ward, count(b.visit) AS k FROM visits AS v LEFT JOIN "
    f"bills AS b ON {KEYED} GROUP BY v.person, {MONTH}) AS g",
    "with wards": f"visits AS v LEFT JOIN bills AS b ON {KEYED} JOIN wards ON v.ward = wards.name",
    "a table beside one that may be absent": f"visits AS v LEFT JOIN bills AS b ON {KEYED} JOIN calls AS c ON "
    "c.person = b.person AND date_trunc('month', c.called) = date_trunc('month', b.billed)",
    "a LEFT JOIN inside of a join": "visits AS v JOIN (SELECT w.person, b.billed FROM visits AS w LEFT JOIN bills AS b "
    f"ON b.person = w.person AND date_trunc('month', b.billed) = date_trunc('month', w.came)) AS b ON {PERSON}",
    "three tables": f"visits AS v LEFT JOIN bills AS b ON {KEYED} LEFT JOIN calls AS c ON c.person = v.person AND "
    "date_trunc('month', c.called) = date_trunc('month', v.came)",
}
REFUSED = {
    f"visits AS v JOIN {UNITED} AS u ON u.person = v.person": "not within one month",
    f"visits AS v JOIN (SELECT person, k FROM {BY_MONTH}) AS g ON g.person = v.person": "not within one month",
    "(SELECT person, count(*) AS k, max(ward) AS ward FROM visits GROUP BY person) AS g": "GROUP BY does not say so",
    "(SELECT ward, row_number() OVER (PARTITION BY person ORDER BY id) AS n FROM visits) AS n": "PARTITION BY does not",
    "(SELECT max(ward) AS ward FROM visits GROUP BY person, date_trunc('quarter', came)) AS g": "GROUP BY does not say",
    "(SELECT max(ward) AS ward FROM visits GROUP BY person, CAST(came AS DATE)) AS g": "GROUP BY does not say so",
    f"(SELECT max(ward) AS ward FROM visits GROUP BY ward, {MONTH}) AS g": "GROUP BY over private rows",
    f"(SELECT max(v.ward) AS ward FROM visits AS v LEFT JOIN bills AS b ON {PERSON} GROUP BY v.person, "
    "date_trunc('month', billed)) AS g": "GROUP BY does not say so",
    "visits AS v LEFT JOIN bills AS b ON b.visit = v.id AND b.person = v.person": "not within one month",
    f"visits AS v LEFT JOIN bills AS b ON b.person = v.person AND ({SAME} OR b.number > 0)": "not within one month",
    "visits AS v SEMI JOIN bills AS b ON b.person = v.person": "not within one month",
    "visits AS v JOIN (SELECT person FROM bills UNION ALL SELECT person FROM calls) AS b USING (person)": "do not "
    "show of which month they are",
    "visits AS v JOIN (SELECT person, count(*) AS k FROM bills GROUP BY person, date_trunc('month', billed)) AS g "
    "ON g.person = v.person": "a row for each unit and month that does not show the month",
    "visits AS v JOIN days ON days.day = v.came JOIN (SELECT v2.person, v2.came AS billed FROM visits AS v2 JOIN bills "
    f"ON bills.visit = v2.id AND bills.person = v2.person) AS b ON {PERSON}": "not within one month",
}
MOMENTS = (
    "2024-01-31", "2024-02-01", "2024-02-14", "2024-02-29", "2024-03-01", "2024-03-31", "2023-12-31", "2024-04-01",
    "infinity", "-infinity", "0044-03-15 (BC)", "9999-01-01", None,
)  # fmt: skip
NO_MONTH = MOMENTS[-5:]
Row = tuple[int, str | None, str | None, str | None, int | None]
"""A visit's number, a person, a moment, a ward, and a number."""

Rows = dict[str, list[Row]]
TABLES = {"visits": ("id", "came"), "bills": ("visit", "billed"), "calls": ("visit", "called")}


def text(source: str) -> str:
    """A statement by ward without its first words."""
    key = "v.ward" if source.startswith("visits AS v") else "ward"
    return f"{key} AS ward, count(*) AS n FROM {source} GROUP BY {key}"


@dataclass
class Clinic:
    """Three tables by month, the request of each statement under two MAX ROWS, and the tables without dpduck."""

    con: duckdb.DuckDBPyConnection
    plain: duckdb.DuckDBPyConnection
    requests: dict[tuple[str, int], SelectRequest]

    def put(self, rows: Rows, without: Sequence[tuple[str | None, str | None]] = ()) -> None:
        """Fills the tables, except rows of these persons' months."""
        for table, listed in rows.items():
            kept = [row for row in listed if (row[1], month(row[2])) not in without]
            for con in (self.con, self.plain):
                con.execute(f"DELETE FROM {table}")
                if kept:
                    con.executemany(f"INSERT INTO {table} VALUES (?, ?, CAST(? AS TIMESTAMP), ?, ?)", kept)

    def request(self, source: str) -> SelectRequest:
        return request_of(self.con, f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) {text(source)}")

    def table(self, request: SelectRequest) -> NDArray[np.int64]:
        """The exact bounded counts of the wards a, b and NULL."""
        with self.con.cursor() as cursor:
            counts = count_exactly(cursor, counting_job(request, [Contribution()]), b"key")
        table = np.zeros(counts._sizes, dtype=np.int64)
        np.add.at(table, counts._exact_coordinates, counts._exact_counts[0])
        return table

    def by_duckdb(self, name: str) -> list[int]:
        """The counts by DuckDB's own reading of the statement, of rows that are somebody's, in charged months."""
        run = self.requests[name, MANY].rows.periods
        assert run is not None
        start, end = run.periods.start, run.periods.end
        views = ", ".join(
            f"{table} AS (SELECT * FROM main.{table} WHERE person IS NOT NULL AND {moment} >= '{start}' "
            f"AND {moment} < '{end}')"
            for table, (_, moment) in TABLES.items()
        )
        found = dict(self.plain.execute(f"WITH {views} SELECT {text(STATEMENTS[name])}").fetchall())
        return [found.get("a", 0), found.get("b", 0), found.get(None, 0)]


def month(moment: str | None) -> str | None:
    """The month of a moment, None for none."""
    return None if moment is None or moment in NO_MONTH else moment[:7]


@pytest.fixture(scope="module")
def clinic() -> Iterator[Clinic]:
    con, plain = dpduck.connect(config={"threads": 1}), duckdb.connect(config={"threads": 1})
    for each in (con, plain):
        each.execute(
            "CREATE TABLE visits (id INTEGER PRIMARY KEY, person VARCHAR, came DATE, ward VARCHAR, number INT)"
        )
        each.execute("CREATE TABLE bills (visit INTEGER, person VARCHAR, billed TIMESTAMP, ward VARCHAR, number INT)")
        each.execute("CREATE TABLE calls (visit INTEGER, person VARCHAR, called TIMESTAMP, ward VARCHAR, number INT)")
        each.execute("CREATE TABLE wards AS FROM (VALUES ('a', 'one'), ('a', 'two')) AS w(name, colour)")
        each.execute("CREATE TABLE days AS SELECT DATE '2024-02-14' AS day")
    for name in ("wards", "days"):
        con.execute("FROM dp(?)", [f"DECLARE PUBLIC TABLE {name}"])
    made = Clinic(con, plain, {})
    for most in (FEW, MANY):
        for table, (_, moment) in TABLES.items():
            references, budget = " REFERENCES visits.person", ""
            if table == "visits":
                references, budget = "", "BUDGET (epsilon = 1) PER MONTH, "
            con.execute(
                "FROM dp(?)",
                [f"CREATE OR REPLACE PRIVACY POLICY ON {table} (PRIVACY UNIT person{references} PER MONTH OF {moment} "
                 f"MAX ROWS {most}, {budget}DOMAIN ward IN ('a', 'b') WITH NULL)"],
            )  # fmt: skip
        made.requests |= {(name, most): made.request(source) for name, source in STATEMENTS.items()}
    yield made
    con.close()
    plain.close()


PERSONS = st.sampled_from(["eve", "eve", "eve", "bob", None])
VALUES = (PERSONS, st.sampled_from(MOMENTS), st.sampled_from(["a", "b", None]), st.sampled_from([0, 1, 7, None]))
OTHER = st.tuples(st.integers(0, 7), *VALUES)
OTHERS = st.lists(OTHER, max_size=9)


def filled(visits: list[Row], bills: list[Row], calls: list[Row], matched: bool) -> Rows:
    """Rows of three tables. matched: whether bills are of their visit's person and month, which few random ones are."""
    listed = [(number, *row[1:]) for number, row in enumerate(visits)]
    if matched:
        bills = [(row[0] % len(visits), *visits[row[0] % len(visits)][1:3], *row[3:]) for row in bills]
    return {"visits": listed, "bills": bills, "calls": calls}


ROWS = st.builds(filled, st.lists(OTHER, min_size=3, max_size=8), OTHERS, OTHERS, st.booleans())


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(name=st.sampled_from(sorted(STATEMENTS)), rows=ROWS)
def test_any_rows_of_three_tables(clinic: Clinic, name: str, rows: Rows) -> None:
    """Counts are DuckDB's own. They are the sum over units alone, and a unit that is not charged has no part."""
    units = {(row[1], month(row[2])) for listed in rows.values() for row in listed}
    for most in (MANY, FEW):
        request = clinic.requests[name, most]
        assert request.rows.periods is not None
        charged = request.rows.periods.periods
        clinic.put(rows)
        whole, alone = clinic.table(request), np.zeros(3, np.int64)
        if most == MANY:
            assert whole.tolist() == clinic.by_duckdb(name)
        for unit in units:
            clinic.put(rows, [other for other in units if other != unit])
            own = clinic.table(request)
            alone += own
            counted = unit[0] is not None and unit[1] is not None
            inside = counted and charged.start <= date.fromisoformat(f"{unit[1]}-01") < charged.end
            assert own.sum() <= (request.rows.max_rows if inside else 0)
            clinic.put(rows, [unit])
            assert (whole - clinic.table(request)).tolist() == own.tolist(), "rows of another unit moved"
        assert whole.tolist() == alone.tolist()


def test_every_statement_counts_rows(clinic: Clinic) -> None:
    """Each statement has counts that are DuckDB's own over rows of many persons, months and NULLs."""
    rows: Rows = {table: [] for table in TABLES}
    for number in range(60):
        person, moment = ("eve", "bob", "ann", None)[number % 4], MOMENTS[number * 7 % len(MOMENTS)]
        rows["visits"].append((number, person, moment, ("a", "b", None)[number % 3], number % 5))
        for table in ("bills", "calls") if person != "ann" else ():
            own = person if number % 5 else "eve"
            later = moment if number % 3 else MOMENTS[number * 5 % len(MOMENTS)]
            rows[table] += [(number, own, later, ("b", "a", None)[number % 3], number % 4)] * (1 + number % 2)
    clinic.put(rows)
    found = {name: clinic.table(clinic.requests[name, MANY]).tolist() for name in STATEMENTS}
    assert found == {name: clinic.by_duckdb(name) for name in STATEMENTS}
    assert [name for name, counts in found.items() if not sum(counts)] == []


def test_the_statement_is_not_what_keeps_months_apart(clinic: Clinic) -> None:
    """The kernel compares periods itself: no condition over dates is left in ON, and none is asked of a worker."""
    clinic.put({
        "visits": [(0, "eve", "2024-02-01", "a", 1), (1, "eve", "infinity", "a", 1), (2, "eve", None, "a", 1)],
        "bills": [(0, "eve", "2024-02-29", "a", 1), (0, "eve", "2024-03-01", "a", 1), (1, "eve", "infinity", "a", 1),
                  (2, "eve", None, "a", 1)],
        "calls": [],
    })  # fmt: skip
    for name, counts in (
        ("JOIN by the person", [1, 0, 0]), ("LEFT JOIN by a key", [1, 0, 0]), ("FULL JOIN by the person", [1, 0, 1]),
        ("SEMI JOIN by the person", [1, 0, 0]), ("ANTI JOIN by a key", [0, 0, 0]),
    ):  # fmt: skip
        request = clinic.requests[name, MANY]
        assert request.rows.source is not None
        (join,) = request.rows.source.joins
        assert [type(one) for one in join.on].count(SamePeriod) == 1
        assert [one.sql for one in join.on if "date_trunc" in one.sql] == []
        assert clinic.table(request).tolist() == counts
        without = tuple(one for one in join.on if not isinstance(one, SamePeriod))
        source = replace(request.rows.source, joins=(replace(join, on=without),))
        if name.startswith("JOIN"):
            assert clinic.table(replace(request, rows=replace(request.rows, source=source))).tolist() == [2, 0, 0]


def test_rows_that_are_units_are_of_charged_months(clinic: Clinic) -> None:
    """PRIVACY UNIT ROW PER MONTH: rows of other months, and of none, are not read, whatever WHERE says."""
    clinic.con.execute("CREATE TABLE rides (came DATE, ward VARCHAR)")
    clinic.con.execute("INSERT INTO rides SELECT CAST(unnest($1) AS DATE), 'a'", [list(MOMENTS)])
    clinic.con.execute(
        "FROM dp(?)",
        ["CREATE PRIVACY POLICY ON rides (PRIVACY UNIT ROW PER MONTH OF came, BUDGET (epsilon = 1) PER MONTH, "
         "DOMAIN ward IN ('a', 'b') WITH NULL)"],
    )  # fmt: skip
    request = clinic.request(f"rides WHERE {FEBRUARY}")
    for filters in (request.rows.filters, ("TRUE",)):
        rows = replace(request.rows, filters=filters)
        assert clinic.table(replace(request, rows=rows)).tolist() == [3, 0, 0]


@pytest.mark.parametrize("source", REFUSED)
def test_what_does_not_say_the_month_is_refused(clinic: Clinic, source: str) -> None:
    """An answer has the meaning of plain SQL. A statement over rows of several months is refused by name."""
    with pytest.raises(Refusal, match=REFUSED[source]) as refused:
        clinic.request(source)
    assert refused.value.accepted
