"""Stream answers beside counts: sums, averages, persons and cubes. Rows as units. Keys from lists."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from numpy.typing import NDArray

import dpduck
from dpduck.strategies.time_axis import STRATEGIES
from tests.mechanisms.streams.streams import Visits, options
from tests.support.clinics import one_line

MONTHS, CLAMP = 6, 100
POLICY = (
    "CREATE PRIVACY POLICY ON stays (PRIVACY UNIT {unit}, BUDGET (rho = 1000000), DOMAIN ward IN ('a', 'b'), "
    "DOMAIN sex IN ('f', 'm') WITH NULL, DOMAIN home FROM towns.name, DOMAIN room RANGE 0 TO 40 STEP 1, "
    f"DOMAIN came RANGE 2024-01-01 TO 2024-07-01 STEP MONTH, CLAMP charge BETWEEN -20 AND {CLAMP} STEP 0.5)"
)
SILENT = "rho = 100"
"""A price at which noise is small beside the counts of 2,000 rows."""


class Stays:
    """A table of 2,000 rows, 10 of each person, all within MAX ROWS, and a stream over the table."""

    def __init__(self, unit: str = "person MAX ROWS 10") -> None:
        self.con = dpduck.connect(":memory:")
        self.con.execute("CREATE TABLE towns AS FROM (VALUES ('hill'), ('lake'), ('sea')) AS t(name)")
        self.con.execute(
            "CREATE TABLE stays AS SELECT i % 200 AS person, DATE '2024-01-01' + CAST(i * 7 % 182 AS INTEGER) AS came, "
            "['a', 'b'][i // 200 % 2 + 1] AS ward, i % 40 AS room, ['f', 'm', NULL][i % 3 + 1] AS sex, "
            "['hill', 'lake', 'elsewhere'][i % 5 // 2 + 1] AS home, "
            "CASE WHEN i % 9 > 0 THEN (i * 37 % 3000) / 20.0 - 25 END AS charge FROM range(2000) AS r(i)"
        )
        self.dp("DECLARE PUBLIC TABLE towns")
        self.dp(POLICY.format(unit=unit))

    def dp(self, statement: str) -> list[tuple[Any, ...]]:
        return self.con.execute("FROM dp(?)", [statement]).fetchall()

    def published(self, select: str, clause: str, months: tuple[int, ...] = (1, 4, MONTHS)) -> None:
        """Makes the stream anew, and refreshes it after so many months each time."""
        self.dp("DROP PRIVATE STREAM IF EXISTS s")
        self.dp(f"CREATE PRIVATE STREAM s OPTIONS ({clause}) AS {select}")
        for month in months:
            self.dp(f"REFRESH PRIVATE STREAM s UNTIL '2024-{month + 1:02}-01'")

    def rows(self, columns: str, where: str = "TRUE") -> NDArray[np.float64]:
        """Published columns, NULL as NaN, in the order of periods and keys."""
        found = self.con.execute(f"SELECT {columns} FROM private.s WHERE {where} ORDER BY ALL").fetchall()
        return np.array(found, float)

    def exact(self, select: str) -> NDArray[np.float64]:
        return np.array(self.con.execute(select).fetchall(), float)


@pytest.fixture(scope="module")
def stays() -> Iterator[Stays]:
    made = Stays()
    yield made
    made.con.close()


CLAMPED = f"CASE WHEN charge < -20 THEN -20 WHEN charge > {CLAMP} THEN {CLAMP} ELSE charge END"
SUMS = f"count(*) AS n, sum({CLAMPED}) AS charges, avg({CLAMPED}) AS mean, stddev_pop({CLAMPED}) AS spread"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_sums_and_averages(stays: Stays, strategy: str) -> None:
    """Of each month, running and of the last two: within their errors of clamped sums and averages, by any strategy."""
    stays.published(
        "SELECT came, ward, count(*) AS n, sum(charge) AS charges, avg(charge) AS mean, stddev_pop(charge) AS spread "
        "FROM stays GROUP BY came, ward",
        options(SILENT, strategy, ", answers = 'totals', window = 2"),
    )
    for suffix, first in (("", "m"), ("_total", "0"), ("_last", "m - 1")):
        exact = stays.exact(
            f"SELECT m, w, {SUMS} FROM range(1, 7) AS r(m), (VALUES ('a'), ('b')) AS v(w), stays WHERE ward = w AND "
            f"month(came) BETWEEN {first} AND m GROUP BY m, w ORDER BY m, w".replace("SELECT m, w,", "SELECT")
        )
        for place, name in enumerate(("n", "charges", "mean", "spread")):
            found = stays.rows(
                f"came, ward = 'b', {name}{suffix}, {name}{suffix}_stderr".replace("came", "month(came)")
            )
            answers, stderrs = found[:, 2], found[:, 3]
            assert (np.abs(answers - exact[:, place]) <= 7 * stderrs + 0.26).all(), (name, suffix)
            assert stderrs.max() < 0.2 * np.abs(exact[:, place]).max(), "noise hides what is tested"
        ends = stays.rows(f"month(came), ward = 'b', mean{suffix}_low, mean{suffix}, mean{suffix}_high")[:, 2:]
        assert (np.diff(ends, axis=1) > 0).all()


def test_the_price_is_shared_out(stays: Stays) -> None:
    """A count and a sum share one charge. Together they are not dearer, and dp_explain says the error of each."""
    text = "CREATE PRIVATE STREAM t OPTIONS (rho = 1) AS SELECT came, count(*) AS n, {more} FROM stays GROUP BY came"
    both = stays.con.execute("FROM dp_explain(?)", [text.format(more="sum(charge) AS charges")]).fetchall()[0]
    assert both[6] == 1 and "n " in both[9] and "charges " in both[9]
    before = stays.con.execute("SELECT spent FROM dp_budget()").fetchall()[0][0]
    stays.published(
        "SELECT came, count(*) AS n, avg(charge) AS mean FROM stays GROUP BY came", options("rho = 1"), (1,)
    )
    assert stays.con.execute("SELECT spent FROM dp_budget()").fetchall()[0][0] == before + 1


def test_intervals_of_averages_cover(stays: Stays) -> None:
    """An average of few rows has the interval of an ordinary statement: 95 % of 240 independent cells are covered.

    12 misses are expected. More than 33 have a chance below 1e-9. Noise of 3/2 of the right scale misses about 46.
    """
    select = "SELECT came, room, avg(charge) AS mean FROM stays GROUP BY came, room"
    stays.published(select, options("rho = 60", "periods"))
    exact = stays.exact(f"SELECT avg({CLAMPED}) FROM stays GROUP BY month(came), room ORDER BY month(came), room")
    ends = stays.rows("month(came), room, mean_low, mean_high")[:, 2:]
    assert ends.shape == (40 * MONTHS, 2) and np.diff(ends).mean() < 60, "intervals are of use"
    assert ((exact[:, 0] < ends[:, 0]) | (exact[:, 0] > ends[:, 1])).sum() <= 33


def test_persons_of_each_period(stays: Stays) -> None:
    """count(DISTINCT person): a person once in each month and ward with rows of theirs, without totals of months."""
    stays.published(
        "SELECT came, ward, count(DISTINCT person) AS persons FROM stays GROUP BY came, ward", options(SILENT)
    )
    exact = stays.exact(
        "SELECT count(DISTINCT person) FROM stays GROUP BY month(came), ward ORDER BY month(came), ward"
    )
    found = stays.rows("month(came), ward = 'b', persons, persons_stderr")
    assert np.abs(found[:, 2] - exact[:, 0]).max() <= 7 * found[0, 3] < 10
    names = [name for name, *_ in stays.con.execute("DESCRIBE private.s").fetchall()]
    assert names == ["came", "ward", "persons", "persons_stderr"]
    comment = stays.con.execute("SELECT comment FROM duckdb_tables() WHERE table_name = 's'").fetchall()[0][0]
    assert "counted in at most 10 groups over the whole horizon" in comment


def test_max_rows_of_persons_are_groups() -> None:
    """Where persons alone are counted, MAX ROWS are the groups that count them, however many rows they have in each."""
    visits = Visits(budget="rho = 1000000")
    visits.put([("eve", f"2024-{month:02}-{day:02}", "a", 1) for month in range(1, 7) for day in (3, 4, 5, 6)])
    select = "SELECT came, ward, count(DISTINCT person) AS n{} FROM visits GROUP BY came, ward"
    visits.dp(f"CREATE PRIVATE STREAM by_month OPTIONS ({options('rho = 1')}) AS {select.format('')}")
    for month in (1, 2, 6):
        visits.refresh(month)
    assert visits.exact()[:, 0].tolist() == [1, 1, 1, 0, 0, 0]
    visits.dp("DROP PRIVATE STREAM by_month")
    more = select.format(", count(*) AS rows")
    visits.dp(f"CREATE PRIVATE STREAM by_month OPTIONS ({options('rho = 1')}) AS {more}")
    visits.refresh(6)
    assert [visits.exact(table)[:, 0].tolist() for table in (0, 1)] == [[1, 0, 0, 0, 0, 0], [3, 0, 0, 0, 0, 0]]
    visits.con.close()


@pytest.mark.slow
def test_rows_that_filter_leaves_out_fill_no_groups_of_persons() -> None:
    """Groups in which FILTER counts nobody use none of the MAX ROWS groups of a person counted later. A group counts
    once, even if two answers count different rows of a person in it."""
    visits = Visits(budget="rho = 1000000")
    visits.put([("eve", f"2024-{month:02}-03", "a", 1 if month < 5 else 7) for month in range(1, 7)])
    visits.put([("eve", "2024-05-04", "a", 1), ("bob", "2024-01-05", "a", 1)])
    persons = "count(DISTINCT person) FILTER (WHERE number {}) AS {}"
    clause = options("rho = 1", more=", max_rows_contributed = 2")
    for answers, counted in (
        ([persons.format("> 5", "n")], [[0, 0, 0, 0, 1, 1]]),
        ([persons.format("> 5", "n"), persons.format("> 6", "m")], [[0, 0, 0, 0, 1, 1]] * 2),
        ([persons.format("> 5", "n"), "count(DISTINCT person) AS m"], [[0, 0, 0, 0, 0, 0], [2, 1, 0, 0, 0, 0]]),
    ):
        select = f"SELECT came, ward, {', '.join(answers)} FROM visits GROUP BY came, ward"
        visits.dp(f"CREATE PRIVATE STREAM by_month OPTIONS ({clause}) AS {select}")
        for month in (1, 4, 6):
            visits.refresh(month)
        assert [visits.exact(table)[:, 0].tolist() for table in range(len(answers))] == counted
        visits.dp("DROP PRIVATE STREAM by_month")
    visits.con.execute("DELETE FROM visits WHERE number = 1 AND day(came) = 3")
    both = (
        f"SELECT came, ward, {persons.format('= 7', 'n')}, {persons.format('= 1', 'm')} FROM visits GROUP BY came, ward"
    )
    visits.dp(f"CREATE PRIVATE STREAM by_month OPTIONS ({clause}) AS {both}")
    visits.refresh(6)
    assert [visits.exact(table)[:, 0].tolist() for table in (0, 1)] == [[0, 0, 0, 0, 1, 1], [1, 0, 0, 0, 1, 0]]
    visits.con.close()


def test_persons_so_far(stays: Stays) -> None:
    """With max_rows_contributed = 1 a running total of rows is the number of persons so far, each counted once."""
    clause = options(SILENT, "factorisation", ", answers = 'totals', max_rows_contributed = 1")
    stays.published("SELECT came, count(*) AS n FROM stays GROUP BY came", clause)
    exact = stays.exact(
        "SELECT (SELECT count(DISTINCT person) FROM stays WHERE month(came) <= m) FROM range(1, 7) AS r(m)"
    )
    found = stays.rows("month(came), n_total, n_total_stderr")
    assert np.abs(found[:, 1] - exact[:, 0]).max() <= 7 * found[:, 2].max() < 5


CUBE = "SELECT came, ward, sex, GROUPING(ward, sex) AS level, count(*) AS n, sum(charge) AS charges FROM stays "


@pytest.mark.sampled
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("grouping", ["CUBE (ward, sex)", "ROLLUP (ward, sex)", "GROUPING SETS ((ward), (sex))"])
def test_cubes_over_time(stays: Stays, strategy: str, grouping: str) -> None:
    """Time as one attribute of a cube: within errors of the counts, and margins that are the sums of their cells."""
    stays.published(f"{CUBE} GROUP BY came, {grouping}", options(SILENT, strategy, ", answers = 'totals', window = 3"))
    columns = "month(came), level, ward, sex, {}"
    for suffix, first in (("", "m"), ("_total", "0"), ("_last", "m - 2")):
        exact = stays.con.execute(
            f"SELECT m, GROUPING(ward, sex) AS level, ward, sex, count(*), sum({CLAMPED}) FROM range(1, 7) AS r(m), "
            f"stays WHERE month(came) BETWEEN {first} AND m GROUP BY m, {grouping} ORDER BY ALL"
        ).fetchall()
        listed = f"n{suffix}, charges{suffix}, n{suffix}_stderr, charges{suffix}_stderr"
        found = stays.con.execute(f"SELECT {columns.format(listed)} FROM private.s ORDER BY ALL").fetchall()
        assert [row[:4] for row in found] == [row[:4] for row in exact]
        for place in (4, 5):
            off = [abs(row[place] - true[place]) / row[place + 2] for row, true in zip(found, exact, strict=True)]
            assert max(off) <= 7
        if grouping.startswith("CUBE"):
            levels = {level: [row[4] for row in found if row[0] == 2 and row[1] == level] for level in range(4)}
            sums = [sum(of) for of in levels.values()]
            assert max(sums) - min(sums) < 1e-6 * max(sums), "margins are not consistent"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_errors_of_a_cube(strategy: str) -> None:
    """Published standard errors are those of the noise, for grouping sets of 300 cells and more, period by period.

    False alarms: 6.2 standard deviations of a mean of 300 squares are 0.5. Noise of 3/2 of the right scale is 2.25.
    """
    stays = Stays()
    stays.con.execute("DELETE FROM stays")
    stays.dp("ALTER PRIVACY POLICY ON stays SET DOMAIN room RANGE 0 TO 300 STEP 1")
    select = "SELECT came, room, sex, GROUPING(room, sex) AS level, count(*) AS n, sum(charge) AS charges FROM stays "
    clause = options("rho = 0.5", strategy, ", answers = 'totals', window = 2")
    stays.published(f"{select} GROUP BY came, CUBE (room, sex)", clause, (3, MONTHS))
    names = ("n", "n_total", "n_last", "charges", "charges_total")
    for level in (0, 1):
        pairs = ", ".join(f"{name} / {name}_stderr" for name in names)
        for month in (1, 4, 6):
            of_month = stays.rows(pairs, f"level = {level} AND month(came) = {month}")
            assert len(of_month) == (900, 300)[level]
            assert np.abs((of_month**2).mean(axis=0) - 1).max() < 0.5
    stays.con.close()


def test_rows_as_units() -> None:
    """PRIVACY UNIT ROW: each row is protected, whatever others there are. All rows count, each in its period."""
    stays = Stays("ROW")
    stays.published(f"{CUBE} GROUP BY came, CUBE (ward, sex)", options(SILENT, "tree"))
    exact = stays.exact("SELECT count(*) FROM stays GROUP BY month(came) ORDER BY month(came)")
    found = stays.rows("month(came), n, n_stderr", "level = 3")
    assert np.abs(found[:, 1] - exact[:, 0]).max() <= 7 * found[:, 2].max() < 2
    before = stays.con.execute("FROM private.s").fetchall()
    stays.con.execute("UPDATE stays SET ward = 'b'")
    assert stays.dp("REFRESH PRIVATE STREAM s")[0][0].endswith("its horizon has ended")
    assert stays.con.execute("FROM private.s").fetchall() == before
    comment = stays.con.execute("SELECT comment FROM duckdb_tables() WHERE table_name = 's'").fetchall()[0][0]
    assert "a unit is one row as it was inserted" in comment
    stays.con.close()


def test_keys_from_lists(stays: Stays) -> None:
    """Keys of a stream come from a list in the policy or from a public table. Other values are in no group."""
    stays.published("SELECT came, home, count(*) AS n FROM stays GROUP BY came, home", options(SILENT))
    shown = stays.con.execute("SELECT DISTINCT home FROM private.s ORDER BY home").fetchall()
    assert shown == [("hill",), ("lake",), ("sea",)]
    exact = stays.exact("SELECT count(*) FILTER (home = h) FROM stays, (FROM towns ORDER BY name) AS t(h) GROUP BY h, "
                        "month(came) ORDER BY month(came), h")  # fmt: skip
    found = stays.rows("month(came), n, n_stderr", "home <> 'sea'")
    assert np.abs(np.sort(found[:, 1]) - np.sort(exact[exact > 0])).max() <= 7 * found[:, 2].max()
    expression = "SELECT came, home IN ('hill', 'sea') AS near, count(*) AS n FROM stays GROUP BY came, near"
    stays.published(expression, options(SILENT))
    assert len(stays.rows("n")) == 2 * MONTHS


def test_what_is_kept_of_a_stream(stays: Stays) -> None:
    """A stream of more than one count records its measurements in its facts, and the errors that differences need."""
    stays.published("SELECT came, ward, sum(charge) AS charges FROM stays GROUP BY came, ward", options("rho = 1"))
    facts = json.loads(json.loads(stays.con.execute("SELECT facts FROM private.dpduck.streams").fetchall()[0][0])[0])
    assert len(facts) == 8 and facts[7][0][0] == "charges"
    ((difference, stderr),) = stays.con.execute(
        "SELECT difference, stderr FROM dp_difference('s', 's', '2024-02-01', '2024-01-01', answer := 'charges_total') "
        "WHERE ward = 'a'"
    ).fetchall()
    ((of_one,),) = stays.con.execute(
        "SELECT charges_stderr FROM private.s WHERE came = '2024-02-01' AND ward = 'a'"
    ).fetchall()
    assert stderr == pytest.approx(of_one), "two running totals differ by the month between them"
    assert isinstance(difference, float)


@pytest.mark.parametrize(
    ("select", "answer"),
    [("avg(charge) AS mean", "mean"), ("count(*) AS n", "n")],
)
def test_differences_that_are_refused(stays: Stays, select: str, answer: str) -> None:
    """Averages and cubes have no one error for a difference of two periods: refused in one line."""
    grouping = "CUBE (ward)" if answer == "n" else "ward"
    stays.published(f"SELECT came, ward, {select} FROM stays GROUP BY came, {grouping}", options("rho = 1"))
    with pytest.raises(duckdb.Error) as caught:
        stays.con.execute(f"FROM dp_difference('s', 's', '2024-02-01', '2024-01-01', answer := '{answer}')")
    assert "errors that differ from answer to answer" in one_line(caught.value)


PINNED = {
    "periods": ("da6f13a6312453d5c7640a42af50c8538f460e4ee0d7c449c39d522f5a72081e", "9/20"),
    "tree": ("e55b07f403fbb8170e17d18ff481c83300eb1d51b56ff2c83229981496d677aa", "9/20"),
    "factorisation": ("08af3e0aa8861c1fa7bf114fa157492f2859c16e0df8b15cbba00cb96a6b44ec", "4721517/10"),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_stream_of_a_count_is_what_it_was(tmp_path: Path, strategy: str) -> None:
    """Later versions refresh streams of earlier versions: digest, facts and file stay the same."""
    with dpduck.connect(tmp_path / "clinic.duckdb") as con:
        con.execute("CREATE TABLE visits (person VARCHAR, came DATE, ward VARCHAR)")
        con.execute(
            "FROM dp($$ CREATE PRIVACY POLICY ON visits (PRIVACY UNIT person MAX ROWS 3, BUDGET (rho = 100), "
            "DOMAIN ward IN ('a','b') WITH NULL, DOMAIN came RANGE 2024-01-01 TO 2025-01-01 STEP MONTH) $$)"
        )
        con.execute(
            f"FROM dp($$CREATE PRIVATE STREAM s_{strategy} OPTIONS (rho = 10, periods = 6, strategy={strategy}, "
            "window=2) AS SELECT came, ward, count(*) AS n FROM visits WHERE ward <> 'b' GROUP BY came, ward$$)"
        )
        ((digest, facts),) = con.execute("SELECT digest, facts FROM private.dpduck.streams").fetchall()
        plan = json.loads(json.loads(facts)[0])
        assert (digest, plan[4], len(plan)) == (*PINNED[strategy], 6)
