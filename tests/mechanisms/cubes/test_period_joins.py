"""Joins of private tables by periods, through SQL: rows that go with one person's month are of that month alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import dpduck
from dpduck.kernel.columns.expressions import RelationColumn
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.relations import Source, Stored
from dpduck.kernel.units import SamePeriod
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.jobs import counting_job
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.periods import Periods
from tests.language.facts import request_of

MOST = 3
KEYED = "bills.visit = visits.id AND bills.person = visits.person"
SAME = "date_trunc('month', billed) = date_trunc('month', came)"
STATEMENTS = {
    "bills first": f"bills JOIN visits ON {KEYED} AND {SAME}",
    "visits first": f"visits JOIN bills ON {KEYED} AND {SAME}",
    "two months": f"bills JOIN visits ON {KEYED} AND {SAME} WHERE billed >= '2024-02-01' AND billed < '2024-04-01'",
    "worker": f"bills JOIN visits ON {KEYED} AND {SAME} AND 7 / number >= 1 WHERE billed >= '2024-02-01'",
    "same day": f"bills JOIN visits ON {KEYED} AND CAST(billed AS DATE) = came WHERE year(billed) = 2024",
    "with wards": f"bills JOIN visits ON {KEYED} AND {SAME} JOIN wards ON ward = name",
}
REFUSED = {
    f"bills JOIN visits ON {KEYED}": "not within one month",
    f"bills JOIN visits ON {KEYED} AND date_trunc('quarter', billed) = date_trunc('quarter', came)": "not within one",
    f"bills JOIN visits ON {KEYED} AND date_trunc('month', billed) = date_trunc('month', billed)": "not within one",
    f"bills JOIN visits ON {KEYED} AND date_trunc('month', billed) >= date_trunc('month', came)": "not within one",
    f"bills JOIN visits ON {KEYED} AND ({SAME} OR number > 0)": "not within one",
    f"bills JOIN visits ON bills.visit = visits.id AND {SAME}": "must join on the privacy unit",
}
MOMENTS = (
    "2024-01-31", "2024-02-01", "2024-02-14", "2024-03-01", "2024-03-31", "2023-12-31", "2024-04-01", "infinity",
    "-infinity", "0044-03-15 (BC)", "9999-01-01", None,
)  # fmt: skip
NO_MONTH = MOMENTS[-5:]
Visit = tuple[str | None, str | None, str | None]
Bill = tuple[int, str | None, str | None, int | None]


class Clinic:
    """Visits and bills by month, and the request of each statement."""

    def __init__(self) -> None:
        self.con = dpduck.connect(config={"threads": 1})
        self.con.execute("CREATE TABLE visits (id INTEGER PRIMARY KEY, person VARCHAR, came DATE, ward VARCHAR)")
        self.con.execute("CREATE TABLE bills (visit INTEGER, person VARCHAR, billed TIMESTAMP, number INTEGER)")
        self.con.execute("CREATE TABLE wards AS FROM (VALUES ('a', 'one'), ('a', 'two')) AS w(name, colour)")
        for statement in (
            "DECLARE PUBLIC TABLE wards",
            f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT person PER MONTH OF came MAX ROWS {MOST}, "
            "BUDGET (epsilon = 1) PER MONTH, DOMAIN ward IN ('a', 'b') WITH NULL)",
            f"CREATE PRIVACY POLICY ON bills (PRIVACY UNIT person REFERENCES visits.person PER MONTH OF billed "
            f"MAX ROWS {MOST})",
        ):
            self.con.execute("FROM dp(?)", [statement])
        self.requests = {name: self.request(source) for name, source in STATEMENTS.items()}

    def request(self, source: str) -> SelectRequest:
        clause = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1)"
        return request_of(self.con, f"{clause} ward, count(*) FROM {source} GROUP BY ward")

    def put(
        self, visits: Sequence[Visit], bills: Sequence[Bill], without: Sequence[tuple[str | None, str | None]] = ()
    ) -> None:
        """Fills both tables, except rows of these persons' months."""
        self.con.execute("DELETE FROM bills")
        self.con.execute("DELETE FROM visits")
        for number, (person, came, ward) in enumerate(visits):
            if (person, month(came)) not in without:
                self.con.execute("INSERT INTO visits VALUES (?, ?, CAST(? AS DATE), ?)", [number, person, came, ward])
        for visit, person, billed, value in bills:
            if (person, month(billed)) not in without:
                self.con.execute(
                    "INSERT INTO bills VALUES (?, ?, CAST(? AS TIMESTAMP), ?)", [visit, person, billed, value]
                )

    def table(self, request: SelectRequest) -> NDArray[np.int64]:
        """The exact bounded counts."""
        with self.con.cursor() as cursor:
            counts = count_exactly(cursor, counting_job(request, [Contribution()]), b"key")
        table = np.zeros(counts._sizes, dtype=np.int64)
        np.add.at(table, counts._exact_coordinates, counts._exact_counts[0])
        return table


def month(moment: str | None) -> str | None:
    """Returns the month of a moment. None stays None."""
    return None if moment is None or moment in NO_MONTH else moment[:7]


@pytest.fixture(scope="module")
def clinic() -> Iterator[Clinic]:
    made = Clinic()
    yield made
    made.con.close()


PERSONS = st.sampled_from(["eve", "eve", "eve", "bob", None])
VISITS = st.lists(
    st.tuples(PERSONS, st.sampled_from(MOMENTS), st.sampled_from(["a", "b", None])), min_size=3, max_size=8
)
BILLS = st.lists(
    st.tuples(st.integers(0, 7), PERSONS, st.sampled_from(MOMENTS), st.sampled_from([0, 1, 7, None])),
    min_size=5,
    max_size=14,
)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(name=st.sampled_from(sorted(STATEMENTS)), visits=VISITS, bills=BILLS, matched=st.booleans())
def test_any_rows_of_two_tables(
    clinic: Clinic, name: str, visits: list[Visit], bills: list[Bill], matched: bool
) -> None:
    """Without a person's month counts differ by MAX ROWS if it is charged, else by nothing. k months count k times."""
    if matched:  # bills of a visit's own person and month, which random ones seldom are
        bills = [(one % len(visits), *visits[one % len(visits)][:2], number) for one, _, _, number in bills]
    request = clinic.requests[name]
    assert request.rows.periods is not None
    charged = request.rows.periods.periods
    clinic.put(visits, bills)
    table = clinic.table(request)
    persons = {person for person, _, _ in visits} | {person for _, person, _, _ in bills}
    months = {month(moment) for moment in MOMENTS} - {None}
    inside = {one for one in months if one and charged.start <= date.fromisoformat(f"{one}-01") < charged.end}
    for person in persons - {None}:
        found = 0
        for one in months:
            clinic.put(visits, bills, [(person, one)])
            moved = int(np.abs(table - clinic.table(request)).sum())
            assert moved <= (MOST if one in inside else 0)
            found += moved
        clinic.put(visits, bills, [(person, one) for one in months])
        assert np.abs(table - clinic.table(request)).sum() <= len(inside) * MOST
        assert np.abs(table - clinic.table(request)).sum() == found, "rows of two months were joined"


def test_what_is_joined(clinic: Clinic) -> None:
    """A bill counts with its visit where both are of one month. Of more than MAX ROWS rows of a month MAX ROWS stay."""
    visits = [("eve", "2024-02-01", "a"), ("eve", "2024-02-14", "b"), ("bob", "2024-03-01", "a")]
    bills = [
        (0, "eve", "2024-02-14", 1),
        (0, "eve", "2024-03-01", 1),
        (1, "eve", "2024-02-14", 1),
        (2, "bob", "2024-03-31", 1),
        (2, "eve", "2024-03-31", 1),
    ]
    clinic.put(visits, bills)
    for name in ("bills first", "visits first", "two months"):
        assert clinic.table(clinic.requests[name]).tolist() == [2, 1, 0]
    assert clinic.table(clinic.requests["same day"]).tolist() == [0, 1, 0]
    clinic.put(visits, [(0, "eve", "2024-02-14", number) for number in range(MOST + 2)])
    assert clinic.table(clinic.requests["bills first"]).tolist() == [MOST, 0, 0]


def test_the_condition_is_not_what_keeps_months_apart(clinic: Clinic) -> None:
    """A condition on months in the statement selects no rows: the kernel compares the stored dates itself."""
    request = clinic.requests["bills first"]
    source = request.rows.source
    assert isinstance(source, Source)
    (join,) = source.joins
    assert len(join.on) == 3 and [one for one in join.on if isinstance(one, SamePeriod)] == [join.on[2]]
    clinic.put(
        [("eve", "2024-02-01", "a"), ("eve", "infinity", "a")],
        [(0, "eve", "2024-02-14", 1), (0, "eve", "2024-03-14", 1), (1, "eve", "infinity", 1)],
    )
    assert clinic.table(request).tolist() == [1, 0, 0]


def test_tables_are_read_in_charged_months_alone(clinic: Clinic) -> None:
    """A job without periods, or with another date column, is an internal error. Only charged months are read."""
    request = clinic.requests["bills first"]
    source, periods = request.rows.source, request.rows.periods
    assert isinstance(source, Source) and isinstance(source.first, Stored) and periods is not None
    with pytest.raises(InternalError):
        clinic.table(replace(request, rows=replace(request.rows, periods=None)))
    first = replace(source.first, moment=RelationColumn("visits", "came", "DATE"))
    with pytest.raises(InternalError):
        clinic.table(replace(request, rows=replace(request.rows, source=replace(source, first=first))))
    early = replace(periods, periods=Periods("MONTH", 0, 12 * 2000))
    clinic.put([("eve", "2024-02-01", "a")], [(0, "eve", "2024-02-14", 1)])
    assert clinic.table(replace(request, rows=replace(request.rows, periods=early))).sum() == 0


@pytest.mark.parametrize("source", REFUSED)
def test_joins_that_are_refused(clinic: Clinic, source: str) -> None:
    """A source that could join rows of two months, or choose rows by those of others, is refused by name."""
    with pytest.raises(Refusal, match=REFUSED[source]):
        clinic.request(source)
