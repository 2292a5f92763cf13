"""max_groups_contributed with public groups: a unit counts in so many groups, and noise goes by these."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import duckdb
import pytest

import dpduck
from dpduck.mechanisms.cubes.measure import scans_of
from tests.mechanisms.cubes.aggregate_clinic import open_stays, plan_of
from tests.mechanisms.cubes.test_aggregate_sensitivity import moves_beyond_norms
from tests.support.clinics import Clinic

MOST, GROUPS = 40, 3
POLICY = (
    f"CREATE PRIVACY POLICY ON trips (PRIVACY UNIT person MAX ROWS {MOST}, BUDGET (rho = 1000000), "
    "DOMAIN month IN (7, 1, 3, 2, 11, 5), DOMAIN town IN ('c', 'a', 'b') WITH NULL, DOMAIN day RANGE 0 TO 60 STEP 5, "
    "CLAMP price BETWEEN -10 AND 90 STEP 1)"
)
ROWS = (
    "CREATE TABLE trips AS SELECT CASE WHEN range % 97 = 0 THEN NULL ELSE 1000003 * ((range * range) % 151) END AS "
    "person, CAST(range * 31 % 13 AS INTEGER) AS month, ['a', 'b', 'c', NULL, 'x'][range * 7 % 5 + 1] AS town, "
    "CAST(range * 11 % 60 AS INTEGER) AS day, range * 13 % 120 - 15 AS price FROM range(4000)"
)
CLAUSE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = {}, max_groups_contributed = {}{}) "
EXACT = 100
"""A rho at which noise of 6 rows has a standard error of 0.42."""


@pytest.fixture(scope="module")
def trips() -> Iterator[Clinic]:
    """76 people with trips in most months and towns, rows of nobody, and values outside of the domains."""
    with dpduck.connect() as connection:
        made = Clinic(connection)
        made.con.execute(ROWS)
        made.dp(POLICY)
        yield made


def ask(
    clinic: Clinic, select: str, rho: float = EXACT, groups: int = GROUPS, more: str = ""
) -> list[tuple[object, ...]]:
    return clinic.dp(CLAUSE.format(rho, groups, more) + select)


@pytest.mark.parametrize("strategy", ["auto", "R", "F"])
@pytest.mark.parametrize(
    "aggregates",
    ["count(*), count(DISTINCT who)", "count(*, contribution_bounds_per_group => (1, 5))",
     "avg(dec, contribution_bounds_per_group => (0, 8))", "sum(big)"],
)  # fmt: skip
def test_no_unit_moves_an_answer_by_more_than_is_priced(aggregates: str, strategy: str) -> None:
    """Each ask's exact answers move by no more than its norms, for one group and for two, whatever is measured."""
    option = "" if strategy == "auto" else f", strategy = '{strategy}'"
    with open_stays("who MAX ROWS 4", budget="rho = 1000000") as connection:
        for groups in (1, 2):
            clause = CLAUSE.format(1, groups, option)
            compared, beyond = moves_beyond_norms(connection, f"{clause}{aggregates} FROM stays GROUP BY sex, ward")
            assert compared >= 3
            assert beyond == []


def test_the_norms_are_those_of_the_groups(trips: Clinic) -> None:
    """Persons in C groups are C in L1 and in squares, and numbers of rows up to hi are C hi and C hi^2."""
    asked = {
        "count(DISTINCT person)": (3, 1, 3),
        "count(*, contribution_bounds_per_group => (0, 4))": (12, 4, 48),
        "count(*)": (MOST, MOST, MOST**2),
    }
    for aggregate, expected in asked.items():
        (measured,) = plan_of(
            trips.con, f"{CLAUSE.format(1, 3, '')}{aggregate} FROM trips GROUP BY month, town"
        ).measures
        bounds = measured.bounds
        assert (bounds.all_cells, bounds.one_cell, bounds.squared) == expected


def test_persons_err_by_the_root_of_their_groups(trips: Clinic) -> None:
    """At one price the standard error of persons by 24 groups is that of 3 groups, not of 24."""
    select = "month, town, count(DISTINCT person) AS n, dp_stderr(n) AS e FROM trips GROUP BY month, town"
    wide = trips.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 0.5) {select}")[0][-1]
    narrow = ask(trips, select, rho=0.5)[0][-1]
    assert isinstance(wide, float) and isinstance(narrow, float)
    assert wide / narrow == pytest.approx(sqrt(24 / GROUPS), rel=1e-3)


def test_prepared_rows_have_the_same_groups(trips: Clinic) -> None:
    """Exact answers of prepared tables are those of live ones, at a price where noise is rounded away.

    Keys are listed in no order, and have NULL. A condition and a filter are a worker's. The difference of two answers
    has a standard error of 0.6 at most, and is above 5 with a chance below 1e-15.
    """
    few = ", max_rows_contributed = 6"
    asked = (
        ("month, town, count(*) AS n FROM trips GROUP BY month, town", few),
        ("town, count(DISTINCT person) AS n FROM trips WHERE price * 2 < 150 GROUP BY town", few),
        ("day, count(*) FILTER (WHERE month * 1 > 2) AS n FROM trips GROUP BY day", few),
        ("month, town, count(DISTINCT person) AS n FROM trips GROUP BY month, town", ""),
        ("day, count(DISTINCT person) AS n FROM trips WHERE month < 6 GROUP BY day", ""),
    )

    def answers(name: str) -> list[dict[object, object]]:
        found = [ask(trips, select, more=f"{more}, refresh = '{name}'") for select, more in asked]
        return [{row[:-1]: row[-1] for row in rows} for rows in found]

    live = answers("live")
    trips.dp("ALTER PRIVACY POLICY ON trips PREPARE")
    prepared = answers("prepared")
    trips.dp("ALTER PRIVACY POLICY ON trips UNPREPARE")
    for first, second in zip(live, prepared, strict=True):
        assert first.keys() == second.keys()
        for cell, number in first.items():
            other = second[cell]
            assert isinstance(number, int | float) and isinstance(other, int | float)
            assert abs(number - other) <= 5


def test_a_statement_with_groups_is_another_one(trips: Clinic) -> None:
    """Another number of groups is another release, and the same one is free. It states the rows left out."""
    select, before = "town, count(*) FROM trips GROUP BY town", trips.charges()
    first = ask(trips, select, rho=0.25)
    assert ask(trips, select, rho=0.25) == first and trips.charges() == before + 1
    ask(trips, select, rho=0.25, groups=2)
    trips.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 0.25) {select}")
    assert trips.charges() == before + 3
    said = str(trips.rows(f"FROM dp_explain($${CLAUSE.format(0.25, 2, '')}{select}$$)")[0])
    assert "in at most 2 groups: rows of a unit in further groups are left out" in said


def test_as_many_groups_as_there_are_bound_nothing(trips: Clinic) -> None:
    """A unit is in no more groups than there are: no bound is searched, and no message speaks of rows left out."""
    for groups, told in ((4, False), (3, True)):
        select = f"{CLAUSE.format(0.25, groups, '')}town, count(DISTINCT person) FROM trips GROUP BY town"
        (scan,) = scans_of(plan_of(trips.con, select))
        assert (scan.job.groups, scan.job.unit_bounds) == (groups if told else 0, (groups,))
        assert ("further groups" in str(trips.rows(f"FROM dp_explain($${select}$$)"))) == told


def test_known_answers_leave_such_releases_out(trips: Clinic) -> None:
    """Two releases with different groups are about different rows, so that nothing combines them."""
    ask(trips, "day, count(*) FROM trips GROUP BY day", rho=0.75)
    with pytest.raises(duckdb.Error, match=r"no release that you may read|nothing was measured of this table"):
        trips.rows("FROM dp_known('SELECT day, count(*) AS n FROM trips GROUP BY day')")


REFUSED = {
    "count(*) FROM trips": "GROUP BY of columns",
    "month >= 6 AS late, count(*) FROM trips GROUP BY late": "puts several values into one",
    "day, count(*) FROM trips GROUP BY PREFIXES(day)": "without PREFIXES, RANGES",
    "month, median(price) FROM trips GROUP BY month": "quantiles and count(DISTINCT column)",
    "month, count(DISTINCT town) FROM trips GROUP BY month": "quantiles and count(DISTINCT column)",
}
BESIDE = {
    "max_norm_contributed = 4": "do not go with max_groups_contributed", "reuse = TRUE": "do not go with",
    "summary = 'filter'": "max_groups_contributed does not apply to a summary",
    "strategy_table = 'x'": "without PREFIXES, RANGES and strategy tables",
}  # fmt: skip


@pytest.mark.parametrize("select", REFUSED)
def test_what_has_no_such_groups(trips: Clinic, select: str) -> None:
    """Each refusal names an accepted statement, before anything is charged."""
    before, said = trips.charges(), trips.refused(CLAUSE.format(1, 2, "") + select)
    assert REFUSED[select] in said and "accepted: " in said
    assert trips.charges() == before


@pytest.mark.parametrize("option", BESIDE)
def test_what_groups_do_not_go_with(trips: Clinic, option: str) -> None:
    """Other bounds of a unit, combined answers and summaries have rules of their own."""
    said = trips.refused(f"{CLAUSE.format(1, 2, f', {option}')}month, count(*) FROM trips GROUP BY month")
    assert BESIDE[option] in said


def test_other_statements_refuse_the_option(trips: Clinic) -> None:
    """Views by cells, streams, synthetic data and single rows have no such bound, and say so."""
    view = (
        "OPTIONS (rho = 1, max_groups_contributed = 2{}) AS SELECT month, town, count(*) AS n FROM trips GROUP BY ALL"
    )
    cells = trips.refused(f"CREATE PRIVATE VIEW v {view.format(', form = ' + repr('cells'))}")
    assert "do not go with max_groups_contributed" in cells
    made = "OPTIONS (rho = 1, max_groups_contributed = 2, mechanism = 'mwem', rows = 10) AS SELECT month FROM trips"
    assert "max_groups_contributed" in trips.refused(f"CREATE PRIVATE TABLE t {made} WORKLOAD MARGINALS (1)")
    assert "max_groups_contributed" in trips.refused(f"CREATE PRIVATE STREAM s {view.format('')}")
    trips.con.execute("CREATE OR REPLACE TABLE alone AS FROM trips LIMIT 9")
    trips.dp("CREATE PRIVACY POLICY ON alone (PRIVACY UNIT ROW, BUDGET (rho = 9), DOMAIN month IN (1, 2))")
    said = trips.refused(f"{CLAUSE.format(1, 2, '')}month, count(*) FROM alone GROUP BY month")
    assert "max_groups_contributed bounds the groups of a unit with several rows" in said
