"""max_norm_contributed: units that are weighed down to a public norm, from a statement to its answer and price."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import duckdb
import numpy as np
import pytest

import dpduck
from dpduck.kernel.contributions import FULL
from tests.support.clinics import Clinic

NORM, MOST, GROUPS = 4, 100, 12
POLICY = (
    f"CREATE PRIVACY POLICY ON trips (PRIVACY UNIT person MAX ROWS {MOST}, BUDGET (rho = 100000), "
    f"DOMAIN month RANGE 0 TO {GROUPS} STEP 1, DOMAIN town IN ('a', 'b', 'c') WITH NULL, "
    "DOMAIN day RANGE 0 TO 60 STEP 5, CLAMP price BETWEEN -10 AND 90 STEP 1)"
)
ROWS = (
    "CREATE TABLE trips AS SELECT CASE WHEN range % 97 = 0 THEN NULL ELSE (range * range) % 151 END AS person, "
    "CAST(range * 31 % 13 AS INTEGER) AS month, ['a', 'b', 'c', NULL, 'x'][range * 7 % 5 + 1] AS town, "
    "CAST(range * 11 % 60 AS INTEGER) AS day, "
    "CASE WHEN range % 17 = 0 THEN NULL ELSE range * 13 % 120 - 15 END AS price FROM range(6000)"
)
CLAUSE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = {}, max_norm_contributed = {}{}) "


@pytest.fixture(scope="module")
def trips() -> Iterator[Clinic]:
    """76 people with forty or eighty trips each, texts, NULLs, and values beyond all bounds."""
    with dpduck.connect() as connection:
        made = Clinic(connection)
        made.con.execute(ROWS)
        made.dp(POLICY)
        yield made


def ask(clinic: Clinic, select: str, rho: float = 100, norm: float = NORM, more: str = "") -> list[tuple[object, ...]]:
    return clinic.dp(CLAUSE.format(rho, norm, more) + select)


def weighed(clinic: Clinic, value: str, where: str = "TRUE", cap: float = 1.0) -> dict[object, float]:
    """The exact answer by month, by hand: each person's vector times the largest weight that fits."""
    rows = clinic.rows(
        f"SELECT person, month, CAST({value} AS DOUBLE) FROM trips WHERE person IS NOT NULL AND month BETWEEN 0 AND "
        f"{GROUPS - 1} AND ({where}) GROUP BY ALL"
    )
    norms: dict[object, float] = {}
    for person, _, added in rows:
        norms[person] = norms.get(person, 0.0) + added**2
    found: dict[object, float] = {}
    for person, month, added in rows:
        weight = min(1.0, np.floor(FULL * NORM * cap / sqrt(max(norms[person], 1e-9))) / FULL)
        found[month] = found.get(month, 0.0) + weight * added
    return found


CLAMPED = "sum(greatest(least(price, 90), -10)) FILTER (WHERE price IS NOT NULL)"
ASKED = {
    "rows": ("count(*)", "count(*)", "TRUE", 1.0),
    "rows with a filter": ("count(*) FILTER (WHERE day % 2 = 0)", "count(*)", "day % 2 = 0", 1.0),
    "persons": ("count(DISTINCT person)", "1", "TRUE", 1.0),
    "a sum of both signs": ("sum(price)", f"ifnull({CLAMPED}, 0)", "TRUE", 90.0),
}


@pytest.mark.parametrize("name", ASKED)
def test_an_answer_is_that_of_weighed_people(trips: Clinic, name: str) -> None:
    """At a large price the answer is that of exactly weighed people, within eight standard errors of the noise.

    False alarms: below 1e-13 for the twelve groups of each of four cases.
    """
    aggregate, value, where, cap = ASKED[name]
    rows = ask(
        trips, f"month, {aggregate} AS n, dp_stderr(n) AS e FROM trips GROUP BY month", more=f", refresh = '{name}'"
    )
    expected = weighed(trips, value, where, cap)
    assert len(rows) == GROUPS
    for month, answer, error in rows:
        assert isinstance(answer, int | float) and isinstance(error, float)
        assert abs(answer - expected[month]) <= 8 * error + 1e-6
        squared = min((NORM * cap) ** 2, GROUPS) if name == "persons" else (NORM * cap) ** 2
        assert error == pytest.approx(sqrt(squared / 200 + (1 / 12 if isinstance(answer, int) else 0)), rel=0.01)


SUM_NORM, CENTER = 300, 30


def pairs(clinic: Clinic) -> dict[object, tuple[float, float]]:
    """The exact count and sum about the centre of each month, of people with one weight for both."""
    values = clinic.rows(
        f"SELECT person, month, count(price), {CLAMPED.replace('-10)', f'-10) - {CENTER}')} FROM trips "
        f"WHERE person IS NOT NULL AND month BETWEEN 0 AND {GROUPS - 1} GROUP BY ALL"
    )
    counts, sums = dict[object, float](), dict[object, float]()
    for person, _, count, total in values:
        counts[person] = counts.get(person, 0.0) + count**2
        sums[person] = sums.get(person, 0.0) + (total or 0) ** 2
    found: dict[object, tuple[float, float]] = {}
    for person, month, count, total in values:
        norms = (NORM / sqrt(max(counts[person], 1e-9)), SUM_NORM / sqrt(max(sums[person], 1e-9)))
        weight = min(1.0, *(np.floor(FULL * one) / FULL for one in norms))
        before = found.get(month, (0.0, 0.0))
        found[month] = before[0] + weight * count, before[1] + weight * (total or 0)
    return found


def test_an_average_is_that_of_weighed_people(trips: Clinic) -> None:
    """Count and sum of an average share one weight, both about the centre. A sum and a count beside it share it, too.

    False alarms: below 1e-13 for twelve groups of three aggregates, at eight standard errors.
    """
    more = f", max_sum_norm_contributed = {SUM_NORM}, centers = {CENTER}, refresh = 'averages'"
    select = "month, avg(price) AS a, sum(price) AS s, count(price) AS n, dp_stderr(a) AS ea, dp_stderr(s) AS es"
    rows = ask(trips, f"{select}, dp_stderr(n) AS en FROM trips GROUP BY month", more=more)
    expected = pairs(trips)
    assert len(rows) == GROUPS
    for month, average, total, count, *errors in rows:
        rows_here, distances = expected[month]
        wanted = (CENTER + distances / rows_here, CENTER * rows_here + distances, rows_here)
        for answer, exact, error in zip((average, total, count), wanted, errors, strict=True):
            assert isinstance(answer, int | float) and isinstance(error, float)
            assert abs(answer - exact) <= 8 * error


MONTHS = f"month BETWEEN 0 AND {GROUPS - 1}"


def moments(clinic: Clinic, key: str = "month", where: str = MONTHS) -> dict[object, tuple[float, float, float]]:
    """The exact count, sum and sum of squares about the centre of each group, of people with one weight for all."""
    distance = f"greatest(least(price, 90), -10) - {CENTER}"
    values = clinic.rows(
        f"SELECT person, {key}, count(price), ifnull(sum({distance}), 0), ifnull(sum(({distance}) ** 2), 0) FROM "
        f"(SELECT * FROM trips WHERE price IS NOT NULL AND {where}) WHERE person IS NOT NULL GROUP BY ALL"
    )
    norms: dict[object, list[float]] = {}
    for person, _, *numbers in values:
        before = norms.get(person, [0.0, 0.0, 0.0])
        norms[person] = [one + number**2 for one, number in zip(before, numbers, strict=True)]
    limits = NORM, SUM_NORM, 4 * SUM_NORM**2 / NORM
    found: dict[object, tuple[float, float, float]] = {}
    for person, month, *numbers in values:
        parts = [limit / sqrt(max(one, 1e-9)) for limit, one in zip(limits, norms[person], strict=True)]
        weight = min(1.0, *(np.floor(FULL * part) / FULL for part in parts))
        sums = found.get(month, (0.0, 0.0, 0.0))
        one, two, three = (old + weight * number for old, number in zip(sums, numbers, strict=True))
        found[month] = one, two, three
    return found


def test_a_variance_is_that_of_weighed_people(trips: Clinic) -> None:
    """One weight for values, sums and squares about the centre. The average beside them is of the same people.

    False alarms: below 1e-13 for twelve groups of three aggregates, at eight standard errors.
    """
    more = f", max_sum_norm_contributed = {SUM_NORM}, centers = {CENTER}, refresh = 'variances'"
    select = (
        "month, var_pop(price) AS v, stddev_pop(price) AS s, avg(price) AS a, dp_stderr(v) AS ev, dp_stderr(s) AS es"
    )
    rows = ask(trips, f"{select}, dp_stderr(a) AS ea FROM trips GROUP BY month", more=more)
    expected = moments(trips)
    assert len(rows) == GROUPS
    for month, variance, deviation, average, *errors in rows:
        count, total, squares = expected[month]
        mean = total / count
        wanted = (squares / count - mean**2, sqrt(squares / count - mean**2), CENTER + mean)
        for answer, exact, error in zip((variance, deviation, average), wanted, errors, strict=True):
            assert isinstance(answer, int | float) and isinstance(error, float)
            assert abs(answer - exact) <= 8 * error


def test_a_variance_by_texts_with_a_filter(trips: Clinic) -> None:
    """Of texts with NULL, below a WHERE and a FILTER, also over a join with a public table.

    False alarms: below 1e-13 for eight groups, at eight standard errors.
    """
    trips.con.execute("CREATE OR REPLACE TABLE towns AS SELECT unnest(['a', 'b', 'c', 'x']) AS name, 1 AS one")
    trips.dp("DECLARE PUBLIC TABLE towns")
    more = f", max_sum_norm_contributed = {SUM_NORM}, centers = {CENTER}, refresh = "
    answer = "town, var_pop(price) FILTER (WHERE day % 2 = 0) AS v, dp_stderr(v) AS e"
    expected = moments(trips, "town", "day < 30 AND day % 2 = 0 AND (town IN ('a', 'b', 'c') OR town IS NULL)")
    assert {*expected} == {"a", "b", "c", None}
    for rows in ("trips", "trips LEFT JOIN towns ON town = name"):
        found = ask(trips, f"{answer} FROM {rows} WHERE day < 30 GROUP BY town", more=f"{more}'{rows}'")
        assert [row[0] for row in found] == ["a", "b", "c", None]
        for town, variance, error in found:
            count, total, squares = expected[town]
            assert isinstance(variance, float) and isinstance(error, float)
            assert abs(variance - (squares / count - (total / count) ** 2)) <= 8 * error


@pytest.mark.parametrize("rho", [2, 50])
def test_intervals_of_variances_about_a_centre_cover(trips: Clinic, rho: int) -> None:
    """Of weighed people, at a price where noise is large and one where it is not.

    False alarms: below 1e-9 for 480 intervals of 95 per cent, of which less than 86 per cent would have to hold. Ends
    that are half as far hold 67 per cent.
    """
    exact, held = moments(trips), list[bool]()
    bounds = "dp_interval_low(v) AS low, dp_interval_high(v) AS high"
    for number in range(40):
        more = f", max_sum_norm_contributed = {SUM_NORM}, centers = {CENTER}, refresh = '{rho} {number}'"
        rows = ask(trips, f"month, var_samp(price) AS v, {bounds} FROM trips GROUP BY month", rho=rho, more=more)
        for month, _, low, high in rows:
            count, total, squares = exact[month]
            held.append(float(str(low)) <= (squares - total**2 / count) / (count - 1) <= float(str(high)))
    assert np.mean(held) >= 0.86


def test_steps_that_are_too_fine_are_squared_in_coarser_ones(trips: Clinic) -> None:
    """A clamp of a million steps: the variance is of 4,096 steps, beside an average of all steps.

    At this norm nobody is weighed down. False alarms: below 1e-13, at eight standard errors.
    """
    bounds, of = "contribution_bounds_per_row => (0, 16)", "FROM trips WHERE month BETWEEN 0 AND 11"
    select = f"var_pop(price / 7.0, {bounds}) AS v, avg(price / 7.0, {bounds}) AS a, dp_stderr(v) AS e {of}"
    ((variance, average, error),) = ask(trips, select, norm=MOST)
    assert isinstance(variance, float) and isinstance(average, float) and isinstance(error, float)
    ((exact, mean),) = trips.rows(
        f"SELECT var_pop(v), avg(v) FROM (SELECT greatest(price / 7.0, 0) AS v {of} "
        "AND person IS NOT NULL AND price IS NOT NULL)"
    )
    assert abs(variance - exact) <= 8 * error and abs(average - mean) < 5 and 0 < error < 3


def test_an_average_errs_less_by_a_norm(trips: Clinic) -> None:
    """MAX ROWS is 100 and the clamp 100 wide: at norms that leave little out the error is at most a fifth.

    Errors shown follow noisy counts. False alarms: below 1e-12, since at this price the ratio is 5.9 within 0.08.
    """
    select = "month, avg(price) AS a, dp_stderr(a) AS e FROM trips GROUP BY month"
    norms = ask(trips, select, norm=40, more=", max_sum_norm_contributed = 1000, centers = 40")
    usual = trips.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 100) {select}")
    errors = [[float(str(row[2])) for row in rows if row[2] is not None] for rows in (norms, usual)]
    assert np.median(errors[0]) < np.median(errors[1]) / 5


def test_a_variance_errs_less_by_a_norm(trips: Clinic) -> None:
    """A norm at least halves the error of variances, for values as wide as the clamp.

    False alarms: below 1e-9, since the ratio is 2.5 within 0.1.
    """
    select = "month, var_pop(price) AS v, dp_stderr(v) AS e FROM trips GROUP BY month"
    norms = ask(trips, select, norm=40, more=", max_sum_norm_contributed = 1000, centers = 40")
    usual = trips.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 100) {select}")
    errors = [[float(str(row[2])) for row in rows if row[2] is not None] for rows in (norms, usual)]
    assert np.median(errors[0]) < np.median(errors[1]) / 2


def test_noise_goes_by_the_norm_and_not_by_the_rows(trips: Clinic) -> None:
    """MAX ROWS is 100, the norm 4: a count's error is a 25th."""
    (told,) = trips.dp(CLAUSE.format(0.5, NORM, "") + "dp_stderr(count(*)) FROM trips")
    (usual,) = trips.dp("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 0.5) dp_stderr(count(*)) FROM trips")
    assert usual[0] == pytest.approx(MOST, rel=0.01)
    assert told[0] == pytest.approx(sqrt(NORM**2 + 1 / 12), rel=0.01)


def test_margins_of_a_cube_are_sums_of_its_cells(trips: Clinic) -> None:
    """All cells of all keys are measured, of people with one weight, whatever else would err less."""
    rows = ask(trips, "month, town, count(*) AS n FROM trips GROUP BY CUBE (month, town)", more=", integer = FALSE")
    cells = [row for row in rows if row[0] is not None]
    assert len(rows) == (GROUPS + 1) * 5 and cells


def test_a_target_is_met_by_the_norm(trips: Clinic) -> None:
    """target_stderr = 2 at norm 4 costs 4^2 / (2 2^2) of rho, but for the rounding of answers."""
    options = f"target_stderr = 2, max_norm_contributed = {NORM}"
    trips.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({options}) month, count(*) FROM trips GROUP BY month")
    rho = trips.value("SELECT last(rho ORDER BY id) FROM dp_ledger()")
    assert rho == pytest.approx(NORM**2 / 8, rel=0.05)


def test_a_statement_with_a_norm_is_another_one(trips: Clinic) -> None:
    """Another norm is another release. The same one is free."""
    select, before = "town, count(*) FROM trips GROUP BY town", trips.charges()
    first = ask(trips, select, rho=0.25)
    assert ask(trips, select, rho=0.25) == first and trips.charges() == before + 1
    ask(trips, select, rho=0.25, norm=5)
    trips.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 0.25) {select}")
    assert trips.charges() == before + 3


def test_known_answers_leave_weighed_people_out(trips: Clinic) -> None:
    """Two releases with different weights are about different rows, so that nothing combines them."""
    ask(trips, "day, count(*) FROM trips GROUP BY day", rho=0.75)
    with pytest.raises(duckdb.Error, match=r"no release that you may read|nothing was measured of this table"):
        trips.rows("FROM dp_known('SELECT day, count(*) AS n FROM trips GROUP BY day')")


def test_sums_and_ratios_of_weighed_counts_have_errors(trips: Clinic) -> None:
    """k cells of one level together err by the root of k times the error of one. Totals that answers move have none."""
    for norm in (str(NORM), "'private'"):
        for more in ("", ", left_out = TRUE", ", total = TRUE"):
            trips.dp(
                f"CREATE OR REPLACE PRIVATE VIEW weighed OPTIONS (rho = 0.5, max_norm_contributed = {norm}{more}) AS "
                "SELECT town, month, count(*) AS n FROM trips GROUP BY CUBE (town, month)"
            )
            total = "FROM dp_stderr_of('weighed', 'CASE WHEN month < 3 THEN 1 ELSE 0 END')"
            if more:
                with pytest.raises(duckdb.Error, match=r"with a norm, of one count, without left_out and total"):
                    trips.rows(total)
                continue
            months = "FROM private.weighed WHERE grouping_level = 'month' AND month < 3"
            ((estimate, stderr, low, high),) = trips.rows(total)
            ((exact, error),) = trips.rows(f"SELECT sum(n), sqrt(sum(n_stderr ^ 2)) {months}")
            assert estimate == exact and stderr == pytest.approx(error, rel=0.01) and low < estimate < high
            ((ratio, _, low, high),) = trips.rows(
                "FROM dp_ratio_of('weighed', 'CASE WHEN month < 3 THEN 1 ELSE 0 END', 'month - month + 1')"
            )
            assert low < ratio < high


def test_a_view_with_a_norm_says_so(trips: Clinic) -> None:
    """The comment of a view says that units count in part, but not where the norm is no smaller than MAX ROWS."""
    for norm, told in ((NORM, True), (MOST, False)):
        trips.dp(
            f"CREATE PRIVATE VIEW norm_{norm} OPTIONS (rho = 0.25, max_norm_contributed = {norm}) AS "
            "SELECT town, count(*) AS n FROM trips GROUP BY town"
        )
        comment = trips.value(f"SELECT comment FROM duckdb_tables() WHERE table_name = 'norm_{norm}'")
        assert ("a unit above a norm counts in part, so counts are too low" in comment) == told


def test_intervals_with_a_norm_are_counts_of_their_own(trips: Clinic) -> None:
    """Several intervals of one column are measured together without a norm alone. False alarms: below 1e-13."""
    for norm in (str(MOST), "'private'"):
        clause = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 50, max_norm_contributed = {norm}) "
        asked = [f"count(*) FILTER (WHERE day BETWEEN {low} AND {high})" for low, high in ((0, 9), (5, 29))]
        (row,) = trips.dp(clause + ", ".join([*asked, *(f"dp_stderr({one})" for one in asked)]) + " FROM trips")
        exact = trips.rows(f"SELECT {', '.join(asked)} FROM trips WHERE person IS NOT NULL")[0]
        for answer, truth, error in zip(row[:2], exact, row[2:], strict=True):
            assert norm == "'private'" or abs(answer - truth) <= 8 * error
            assert answer + 8 * error >= 0 and answer <= truth + 8 * error


REFUSED = {
    "(epsilon = 1, max_norm_contributed = 4)": "a price with a delta or in rho",
    "(rho = 1, max_norm_contributed = 101)": "at most 100",
    "(rho = 1, max_norm_contributed = 0.5)": "max_norm_contributed = 30",
    "(rho = 1, max_norm_contributed = 4, strategy = 'R')": "strategy = 'identity' or none",
    "(rho = 1, max_norm_contributed = 4, nonnegative = TRUE)": "greatest(n, 0)",
    "(rho = 1, max_norm_contributed = 4, integer = TRUE)": "round(s) in the select list",
    "(rho = 1, max_norm_contributed = 4, reuse = TRUE)": "the statement without them",
    "(rho = 1, centers = 4)": "or 'private' beside them",
    "(rho = 1, max_norm_contributed = 4, centers = (1, 2))": "one number, or one for each column",
    "(rho = 1, max_norm_contributed = 4, centers = 'x')": "between its bounds",
    "(rho = 1, max_norm_contributed = 4, summary = 'filter')": "max_norm_contributed does not apply to a summary",
}


@pytest.mark.parametrize("options", REFUSED)
def test_what_a_norm_does_not_go_with(trips: Clinic, options: str) -> None:
    """Each refusal says what would be accepted, before anything is charged."""
    before = trips.charges()
    said = trips.refused(
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS {options} month, count(*) FROM trips GROUP BY month"
    )
    assert REFUSED[options] in said and "accepted: " in said
    assert trips.charges() == before


@pytest.mark.parametrize("select", ["median(price)", "count(DISTINCT town)", "max(price)"])
def test_other_aggregates_are_refused(trips: Clinic, select: str) -> None:
    """Quantiles and values present are measured in another way."""
    said = trips.refused(CLAUSE.format(1, NORM, "") + f"month, {select} FROM trips GROUP BY month")
    assert "max_norm_contributed is of counts, sums, averages and variances alone" in said


def test_keys_that_join_very_many_values_are_refused(trips: Clinic) -> None:
    """Values are put into groups by a list, which has an end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpduck.mechanisms.cubes.plan.MOST_MERGED", 11)
        said = trips.refused(CLAUSE.format(1, NORM, "") + "month >= 6 AS late, count(*) FROM trips GROUP BY late")
    assert "keys put more than 11 values into them" in said


def test_prepared_rows_have_the_same_weights(trips: Clinic) -> None:
    """Exact answers of prepared tables are those of live ones, at a price where noise is rounded away.

    The noise has a standard error of 0.3 at most: two whole answers differ by more than 4 with a chance below 1e-15.
    """
    select = "month, town, count(*) AS n FROM trips WHERE day < 30 GROUP BY month, town"
    live = {row[:2]: row[2] for row in ask(trips, select, more=", refresh = 'live'")}
    trips.dp("ALTER PRIVACY POLICY ON trips PREPARE")
    prepared = {row[:2]: row[2] for row in ask(trips, select, more=", refresh = 'prepared'")}
    assert live.keys() == prepared.keys()
    for cell, answer in live.items():
        other = prepared[cell]
        assert isinstance(answer, int) and isinstance(other, int)
        assert abs(answer - other) <= 5
