"""dp_check of a statement: what norms and rows leave out, beside brute force and beside the statement's own counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import floor, isqrt, sqrt
from typing import Any

import duckdb
import numpy as np
import pytest

import dpduck
from dpduck.auditor.neighbours import require_database
from dpduck.database.functions import OWNER
from dpduck.kernel.contributions import FULL
from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.counting.unit_facts import facts_of_units
from dpduck.kernel.worker.workers import Workers
from dpduck.language.select.request import SelectRequest
from dpduck.mechanisms.cubes.measure import scans_of
from dpduck.mechanisms.cubes.plan import amount_of, noise_of, plans_at
from dpduck.mechanisms.cubes.weighed import bounds
from dpduck.store.cursors import Caller
from dpduck.values.errors import InternalError, PermissionRefusal
from tests.support.clinics import Clinic, one_line

LOW, HIGH, MOST = -10, 90, 60
POLICY = (
    "CREATE PRIVACY POLICY ON trips (PRIVACY UNIT person MAX ROWS {}, BUDGET (rho = 1000), "
    "DOMAIN month RANGE 0 TO 6 STEP 1, DOMAIN town IN ('a', 'b', 'c') WITH NULL, "
    f"CLAMP price BETWEEN {LOW} AND {HIGH} STEP 1)"
)
CLAUSE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 0.5{}) "
Row = tuple[Any, ...]
TOWNS = {"a": "north", "b": "south", "c": "south"}


def made_rows(seed: int, people: int = 80) -> list[Row]:
    """Trips of people with few or very many, of nobody, and outside of every domain."""
    drawn, rows = np.random.default_rng(seed), list[Row]()
    for person in range(people):
        habit = int(drawn.integers(0, 8))
        for _ in range(int(min(MOST - 5, 1 + drawn.pareto(0.8) * 2))):
            month = habit if drawn.random() < 0.6 else int(drawn.integers(0, 8))
            town = ["a", "b", "c", None, "x"][int(drawn.integers(0, 5))]
            price = None if drawn.random() < 0.15 else int(drawn.integers(-40, 130))
            rows.append((person if drawn.random() < 0.97 else None, month, town, price))
    return rows


def opened(rows: Sequence[Row], most: int = MOST) -> Clinic:
    """A database with these trips and a public table of towns."""
    made = Clinic(dpduck.connect())
    made.con.execute("CREATE TABLE trips (person INTEGER, month INTEGER, town VARCHAR, price INTEGER)")
    made.con.executemany("INSERT INTO trips VALUES (?, ?, ?, ?)", rows)
    made.con.execute(
        "CREATE TABLE towns AS SELECT * FROM (VALUES ('a', 'north'), ('b', 'south'), ('c', 'south')) AS t(name, region)"
    )
    made.dp("DECLARE PUBLIC TABLE towns")
    made.dp(POLICY.format(most))
    return made


@pytest.fixture(scope="module")
def trips() -> Iterator[Clinic]:
    """Some 80 people. None has more trips than MAX ROWS."""
    made = opened(made_rows(1))
    yield made
    made.con.close()


def checked(clinic: Clinic, select: str, options: str = "") -> list[dict[str, Any]]:
    """The findings about a statement, by column."""
    found = clinic.con.execute("FROM dp_check('trips', ?)", [CLAUSE.format(options) + select])
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def at_bounds(found: Sequence[dict[str, Any]], aggregate: str, option: str) -> dict[float, dict[str, Any]]:
    """The findings about each bound of an option."""
    own = [one for one in found if (one["aggregate"], one["option"]) == (aggregate, option)]
    return {one["bound"]: one for one in own if one["bound"] is not None}


def weight(squares: float, norm: float) -> Fraction:
    """The largest weight that a unit may have, in whole-number arithmetic."""
    limit, whole = floor(Fraction(norm) ** 2), round(squares)
    return Fraction(min(FULL, isqrt(FULL * FULL * limit // whole)), FULL) if whole else Fraction(1)


def vectors(rows: Sequence[Row], key: int, value: Any) -> dict[int, dict[Any, float]]:
    """Returns each person's contribution to each cell. value: of a row, None for no contribution."""
    found = defaultdict[int, dict[Any, float]](lambda: defaultdict(float))
    for row in rows:
        added = value(row)
        if row[0] is not None and added is not None:
            found[row[0]][row[key]] += added
    return found


def left_out(whole: dict[int, dict[Any, float]], norm: float) -> float:
    """The part of all that is added which a norm takes away."""
    parts = ((sum(cells.values()), sum(one * one for one in cells.values())) for cells in whole.values())
    return float(sum(total * (1 - weight(squares, norm)) for total, squares in parts))


def clamped(row: Row) -> int | None:
    return None if row[3] is None else min(max(row[3], LOW), HIGH)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_norms_leave_out_what_brute_force_says(seed: int) -> None:
    """Counts, a FILTER and persons by month, under a WHERE: figures for each norm, and the quantiles of norms."""
    rows, clinic = made_rows(seed), opened(made_rows(seed))
    some = "count(*) FILTER (WHERE price > 20)"
    select = (
        f"month, count(*) AS n, {some} AS f, count(DISTINCT person) AS p FROM trips WHERE town <> 'b' GROUP BY month"
    )
    found = checked(clinic, select)
    kept = [row for row in rows if 0 <= row[1] < 6 and row[2] not in ("b", None)]
    wholes = {
        "count(*)": vectors(kept, 1, lambda row: 1),
        some: vectors(kept, 1, lambda row: 1 if row[3] is not None and row[3] > 20 else None),
    }
    names = {one["aggregate"] for one in found if one["option"] == "max_norm_contributed"}
    filtered = next(name for name in names if "FILTER" in name)
    for text, whole in (("count(*)", wholes["count(*)"]), (filtered, wholes[some])):
        figures = at_bounds(found, text, "max_norm_contributed")
        assert set(figures) >= {1, 2, 5, MOST}
        total = sum(sum(cells.values()) for cells in whole.values())
        for bound, one in figures.items():
            assert one["value"] == pytest.approx(left_out(whole, bound)), (text, bound)
            assert one["percent"] == pytest.approx(100 * left_out(whole, bound) / total)
        norms = np.sort([sqrt(sum(one * one for one in cells.values())) for cells in whole.values()])
        told = [one["value"] for one in found if one["aggregate"] == text and one["bound"] is None]
        wanted = [*(norms[-(-int(part * len(norms)) // 100) - 1] for part in (50, 90, 95, 99)), norms[-1]]
        assert told == pytest.approx(wanted)
    persons = {person: dict.fromkeys(cells, 1.0) for person, cells in wholes["count(*)"].items()}
    for bound, one in at_bounds(found, 'count(DISTINCT "person")', "max_norm_contributed").items():
        assert one["value"] == pytest.approx(left_out(persons, bound))
    clinic.con.close()


def test_sums_and_averages_have_norms_in_their_own_units(trips: Clinic) -> None:
    """A sum by town loses the part above the norm of its values. An average's rows have the smaller of two weights."""
    rows = [row for row in made_rows(1) if row[2] != "x" and 0 <= row[1] < 6]
    alone = checked(trips, "town, month, sum(price) AS s FROM trips GROUP BY town, month")
    by_both = vectors([(row[0], (row[1], row[2]), *row[2:]) for row in rows], 1, clamped)
    figures = at_bounds(alone, 'sum("price")', "max_sum_norm_contributed")
    assert len(figures) > 4 and max(figures) == MOST * HIGH
    for bound, one in figures.items():
        assert one["value"] == pytest.approx(left_out(by_both, bound)), bound
    for bound, one in at_bounds(alone, 'sum("price")', "max_norm_contributed").items():
        assert one["value"] == pytest.approx(left_out(by_both, bound * HIGH)), bound
    averaged = checked(
        trips, "month, avg(price) AS a FROM trips GROUP BY month", ", max_norm_contributed = 9, centers = 30"
    )
    inside = [row for row in made_rows(1) if 0 <= row[1] < 6]
    counts = vectors(inside, 1, lambda row: None if row[3] is None else 1)
    distances = vectors(inside, 1, lambda row: None if row[3] is None else (clamped(row) or 0) - 30)
    for bound, one in at_bounds(averaged, 'avg("price")', "max_norm_contributed").items():
        assert one["value"] == pytest.approx(lost_rows(counts, distances, bound, bound * 60)), bound
    figures = at_bounds(averaged, 'avg("price")', "max_sum_norm_contributed")
    for bound, one in figures.items():
        assert one["value"] == pytest.approx(lost_rows(counts, distances, 9, bound)), bound
        assert one["advice"].endswith("beside max_norm_contributed = 9")


def lost_rows(
    counts: dict[int, dict[Any, float]], distances: dict[int, dict[Any, float]], norm: float, of_sum: float
) -> float:
    """The rows that an average loses to two norms."""
    lost = 0.0
    for person, cells in counts.items():
        squares = (sum(one * one for one in vector.values()) for vector in (cells, distances[person]))
        both = min(weight(square, bound) for square, bound in zip(squares, (norm, of_sum), strict=True))
        lost += sum(cells.values()) * float(1 - both)
    return lost


def test_a_join_with_a_public_table(trips: Clinic) -> None:
    """Rows by a column of the other table: those of towns that it has."""
    trips.con.execute("CREATE OR REPLACE TABLE towns AS FROM towns")
    found = checked(
        trips, "month, count(*) AS n FROM trips JOIN towns ON town = name WHERE region = 'south' GROUP BY month"
    )
    kept = [row for row in made_rows(1) if TOWNS.get(row[2]) == "south" and 0 <= row[1] < 6]
    whole = vectors(kept, 1, lambda row: 1)
    assert found[0]["value"] == sum(row[0] is not None for row in kept)
    assert found[1]["value"] == len(whole)
    for bound, one in at_bounds(found, "count(*)", "max_norm_contributed").items():
        assert one["value"] == pytest.approx(left_out(whole, bound))


def test_rows_leave_out_what_brute_force_says(trips: Clinic) -> None:
    """Each person keeps so many rows, and the error is that of dp_explain with as many."""
    select = "month, count(*) AS n FROM trips GROUP BY month"
    numbers = [
        sum(cells.values()) for cells in vectors([r for r in made_rows(1) if 0 <= r[1] < 6], 1, lambda row: 1).values()
    ]
    figures = at_bounds(checked(trips, select), "count(*)", "max_rows_contributed")
    assert set(figures) >= {1, 2, 5, 10, MOST}
    for bound, one in figures.items():
        assert one["value"] == sum(max(0, rows - bound) for rows in numbers)
        asked = CLAUSE.format(f", max_rows_contributed = {bound:g}") + select
        explained = trips.con.execute("SELECT worst_stderr FROM dp_explain(?) WHERE chosen", [asked]).fetchall()
        assert one["stderr"] == pytest.approx(explained[0][0])


@pytest.mark.parametrize(
    "keys", ["month, town FROM trips GROUP BY CUBE (month, town)", "month // 4 AS h FROM trips GROUP BY month // 4"]
)
@pytest.mark.parametrize(("most", "more"), [(7, ""), (MOST, ""), (MOST, ", var_samp(price) AS v")])
def test_figures_are_of_the_very_answers(most: int, more: str, keys: str) -> None:
    """The statement's own weighed counts have the rows that a check says are left, also where MAX ROWS drops rows.

    Counts, sums and averages of a CUBE, and of a key that puts several months into one group. A variance beside them
    lowers the weight of the average. The error is that of dp_explain.
    """
    clinic = opened(made_rows(4), most)
    aggregates = "count(*) AS n, sum(price) AS s, avg(price) AS a, count(*) FILTER (WHERE town = 'a') AS f" + more
    select = keys.replace(" FROM", f", {aggregates} FROM", 1)
    found = checked(clinic, select)
    (total,) = [one["value"] for one in found if one["finding"] == "rows of this statement"]
    for bound in (1, 2, 5):
        options = f", max_norm_contributed = {bound}"
        question, _ = require_database(clinic.con).question_of(CLAUSE.format(options) + select, OWNER)
        assert isinstance(question, SelectRequest)
        plan = plans_at(question, noise_of(question), amount_of(question))
        (scan,) = scans_of(plan)
        ledger = require_database(clinic.con).ledger
        counted = count_exactly(clinic.con.cursor(), scan.job, ledger.bounding_key)._exact_counts.sum(axis=1)
        (first, *_) = [use.measure for use in plan.uses]
        one = at_bounds(found, "count(*)", "max_norm_contributed")[bound]
        assert total - one["value"] == pytest.approx(counted[first] / FULL)
        errors = clinic.con.execute("SELECT * FROM dp_errors(?)", [CLAUSE.format(options) + select]).fetchall()
        assert {row[0]: row[4] for row in errors}["count(*)"] == pytest.approx(one["stderr"], rel=1e-3)
        average = at_bounds(found, 'avg("price")', "max_norm_contributed")[bound]
        rows = 100 * average["value"] / average["percent"]
        assert rows - average["value"] == pytest.approx(counted[plan.uses[2].measure] / FULL)
    clinic.con.close()


def test_prepared_rows_give_the_same_figures(trips: Clinic) -> None:
    """Prepared rows are the rows that answers are about: the findings are equal."""
    select = "month, count(*) AS n, avg(price) AS a FROM trips WHERE town = 'a' GROUP BY month"
    before = checked(trips, select)
    trips.dp("ALTER PRIVACY POLICY ON trips PREPARE")
    after = checked(trips, select)
    trips.dp("ALTER PRIVACY POLICY ON trips UNPREPARE")
    assert [one["finding"] for one in after] == [one["finding"] for one in before]
    for name in ("value", "percent", "stderr"):
        assert [one[name] for one in after] == pytest.approx([one[name] for one in before]), name


def test_an_analysts_function_is_computed_by_a_worker(trips: Clinic) -> None:
    """A condition that DuckDB does not read itself has the same figures as an equal condition that it reads."""
    select = "month, count(*) AS n FROM trips WHERE {} GROUP BY month"
    plain = checked(trips, select.format("town = 'a'"))
    assert checked(trips, select.format("upper(town) = 'A'")) == plain


def test_nothing_is_charged_or_stored(trips: Clinic) -> None:
    """A check writes no ledger entry and no release, whatever it is about, and needs no budget that is left."""
    before = trips.rows("FROM dp_ledger()"), trips.rows("FROM dp_releases()"), trips.rows("FROM dp_budget()")
    for options in (
        "",
        ", max_norm_contributed = 3",
        ", max_norm_contributed = 'private'",
        ", max_rows_contributed = 9",
    ):
        found = checked(trips, "month, count(*) AS n FROM trips GROUP BY month", options)
        most = max(at_bounds(found, "count(*)", "max_norm_contributed"))
        assert most == (9 if "rows" in options else MOST)
        assert (3 in at_bounds(found, "count(*)", "max_norm_contributed")) == ("= 3" in options)
    after = trips.rows("FROM dp_ledger()"), trips.rows("FROM dp_releases()"), trips.rows("FROM dp_budget()")
    assert after == before


def test_a_statement_that_was_answered_under_another_budget() -> None:
    """A paid statement is read under its own terms again, and is checked under the policy in force."""
    clinic, select = opened(made_rows(1)), "month, count(*) AS n FROM trips GROUP BY month"
    before = checked(clinic, select)
    clinic.dp(CLAUSE.format("") + select)
    clinic.dp("ALTER PRIVACY POLICY ON trips SET BUDGET (rho = 2000)")
    assert checked(clinic, select) == before
    clinic.con.close()


def test_a_target_is_a_price(trips: Clinic) -> None:
    """A statement with a target costs what reaches it without a norm, and errors are those at this price."""
    asked = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (target_stderr = 100) month, count(*) AS n FROM trips GROUP BY month"
    )
    found = trips.con.execute(
        "SELECT stderr FROM dp_check('trips', ?) WHERE option = 'max_rows_contributed' AND bound = ?", [asked, MOST]
    ).fetchall()
    assert found[0][0] == pytest.approx(100, rel=1e-2)


def test_epsilon_alone_has_no_norms() -> None:
    """Without a delta a statement has Laplace noise, which goes by rows: they are shown, and norms are not."""
    clinic = opened(made_rows(1))
    found = clinic.con.execute(
        "FROM dp_check('trips', 'SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM trips')"
    ).fetchall()
    assert {row[5] for row in found} == {None, "max_rows_contributed"}
    assert found[-1][0] == "this statement takes no max_norm_contributed"
    clinic.con.close()


def test_the_hint_has_about_the_least_error(trips: Clinic) -> None:
    """One bound of each option is named: the least sum of noise and of rows left out of a cell."""
    found = checked(trips, "month, count(*) AS n FROM trips GROUP BY month")
    for option in ("max_rows_contributed", "max_norm_contributed"):
        figures = at_bounds(found, "count(*)", option)
        errors = {bound: one["value"] / 6 + 0.8 * one["stderr"] for bound, one in figures.items()}
        hinted = [bound for bound, one in figures.items() if "least error" in one["advice"]]
        assert hinted == [min(errors, key=lambda bound: errors[bound])]


def test_nobody_in_the_table() -> None:
    """Without rows there are no quantiles, and nothing is left out."""
    clinic = opened([(None, 1, "a", 1)])
    found = checked(clinic, "month, count(*) AS n, avg(price) AS a, sum(price) AS s FROM trips GROUP BY month")
    assert [one["value"] for one in found[:3]] == [0, 0, None]
    assert {one["value"] for one in found if one["bound"] is not None} == {0}
    assert {one["percent"] for one in found} == {None}
    clinic.con.close()


REFUSED = {
    "month, median(price) AS m FROM trips GROUP BY month": "is of counts, sums, averages and variances alone",
    "month, count(DISTINCT town) AS n FROM trips GROUP BY month": "is of counts, sums, averages and variances alone",
    "month, count(*) AS n FROM trips GROUP BY prefixes(month)": "looks at counts, sums, averages and variances by",
}


def refused(clinic: Clinic, table: str, statement: str) -> str:
    """The one line of a check that is refused."""
    with pytest.raises(duckdb.Error) as caught:
        clinic.con.execute("FROM dp_check(?, ?)", [table, statement]).fetchall()
    return one_line(caught.value)


def test_other_statements_are_refused_in_one_line(trips: Clinic) -> None:
    """Each has its reason, and what would be accepted."""
    for select, reason in REFUSED.items():
        message = refused(trips, "trips", CLAUSE.format("") + select)
        assert reason in message and "; accepted: " in message, message
    plain = CLAUSE.format("") + "count(*) AS n FROM trips"
    for table, statement, reason in (
        ("towns", plain, "the statement does not read 'towns'; accepted: one of its tables: trips"),
        ("nothing", plain, "the statement does not read 'nothing'; accepted: one of its tables: trips"),
        ("trips", "SELECT count(*) FROM trips", "the statement is not annotated; accepted: "),
        ("trips", "DROP PRIVACY POLICY ON trips", "only statements with a price are explained; accepted: "),
        ("trips", "", "the statement is empty; accepted: "),
        ("trips", f"{plain}; {plain}", "two statements in one text; accepted: one statement"),
    ):
        assert reason in refused(trips, table, statement)
    assert trips.value("SELECT count(*) FROM dp_policies()") == 1


def test_units_with_one_row_have_no_bound_to_choose() -> None:
    """MAX ROWS 1 and PRIVACY UNIT ROW are refused."""
    clinic = opened(made_rows(1), 1)
    plain = CLAUSE.format("") + "count(*) AS n FROM trips"
    assert "a privacy unit has one row here" in refused(clinic, "trips", plain)
    clinic.dp("CREATE OR REPLACE PRIVACY POLICY ON trips (PRIVACY UNIT ROW, BUDGET (rho = 1000))")
    assert "a privacy unit has one row here" in refused(clinic, "trips", plain)
    clinic.con.close()


def test_the_check_is_the_owners(trips: Clinic) -> None:
    """Others are refused by role: before the statement is read, and again before a row is."""
    database, alice = require_database(trips.con), Caller("alice", owner=False)
    statement = CLAUSE.format("") + "count(*) AS n FROM trips"
    for argument in ('["trips", "no statement"]', '["trips", null]'):
        with pytest.raises(PermissionRefusal, match="the data owner's"):
            database.check(argument, alice)
    question, request = database.question_of(statement, OWNER)
    with pytest.raises(PermissionRefusal, match="the data owner's"):
        database.checks.check("trips", question, request, alice)


def test_facts_are_of_units_without_norms(trips: Clinic) -> None:
    """Facts of rows without a unit, or of units that are weighed already, are a defect."""
    question, _ = require_database(trips.con).question_of(
        CLAUSE.format(", max_norm_contributed = 2") + "count(*) AS n FROM trips", OWNER
    )
    assert isinstance(question, SelectRequest)
    (scan,) = scans_of(plans_at(question, noise_of(question), amount_of(question)))
    with pytest.raises(InternalError, match="facts of no units"):
        facts_of_units(trips.con.cursor(), scan.job, bytes(32), Workers())
    bare = replace(scan.job, aggregates=tuple(replace(one, norm=0) for one in scan.job.aggregates))
    facts = facts_of_units(trips.con.cursor(), bare, bytes(32), Workers())
    assert facts.added.shape == facts.squares.shape == (1, facts.added.shape[1])


def test_bounds_are_public_numbers() -> None:
    """1, 2 and 5 times powers of ten, from the least on. The last is the bound of a statement without a norm."""
    assert bounds(Fraction(1), 3.0, Fraction(1000)) == [1, 2, 5, 1000]
    assert bounds(Fraction(1), 1e9, Fraction(10)) == [1, 2, 5, 10]
    assert bounds(Fraction(3, 100), 0.15, Fraction(7)) == [Fraction(1, 20), Fraction(1, 10), Fraction(1, 5), 7]
    assert bounds(Fraction(9), 100.0, Fraction(4)) == [4]
