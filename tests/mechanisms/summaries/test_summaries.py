"""OPTIONS (summary = ..): from a statement to a released table that any SQL can ask."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

import dpduck
from dpduck.kernel.noise.law import Noise
from dpduck.strategies.budgets import noise_for
from tests.support.clinics import Clinic

MACROS = Path(__file__).parents[3] / "sql" / "macros" / "summaries.sql"
POLICY = """CREATE PRIVACY POLICY ON trips (PRIVACY UNIT person MAX ROWS 2, BUDGET (epsilon = 10000),
    DOMAIN home FROM places.name, DOMAIN work FROM places.name WITH NULL, DOMAIN day RANGE 0 TO 365 STEP 1,
    EXPECT ROWS 20000)"""
METHODS = ("filter", "filter_one_sided", "threshold", "priority", "filter_threshold", "filter_priority", "auto")
BY_PLACE = "home, work, count(*) AS n FROM trips GROUP BY home, work"


def view(name: str, options: str, select: str = BY_PLACE, epsilon: str = "100") -> str:
    return f"CREATE PRIVATE VIEW {name} OPTIONS (epsilon = {epsilon}, {options}) AS SELECT {select}"


@pytest.fixture
def commuters(open_clinic: Callable[..., Clinic]) -> Clinic:
    """20,000 trips between 2,000 places on 365 days. Occupied cells hold about 40 trips each."""
    clinic = open_clinic()
    clinic.con.execute(
        "CREATE TABLE trips AS SELECT 'p' || (range % 100) AS home, "
        "CASE WHEN range % 5 < 4 THEN 'p' || (range % 5) END AS work, "
        "CAST((range * range) % 365 AS INTEGER) AS day, range // 2 AS person FROM range(20000)"
    )
    clinic.con.execute("CREATE TABLE places AS SELECT 'p' || range AS name FROM range(2000)")
    clinic.dp("DECLARE PUBLIC TABLE places")
    clinic.dp(POLICY)
    clinic.con.execute(MACROS.read_text())
    return clinic


@pytest.mark.slow
def test_every_method_releases_its_summary(commuters: Clinic) -> None:
    """At a high price and a size above the number of occupied cells, each method finds every trip of a subset.

    Noise has standard deviation 0.14 at most. Only a filter of 1 and empty cells disturb: 1e-9 for 60 off.
    """
    exact = commuters.rows("SELECT count(*) FROM trips WHERE home < 'p5'")[0][0]
    for method in METHODS:
        asked = view(f"v_{method}", f"summary = '{method}', summary_size = 2000", epsilon="40")
        assert commuters.dp(asked) == [(f"private.v_{method} is ready",)]
        found = commuters.rows(
            f"SELECT sum(n), dp_sum_stderr(n_variance), count(*) FROM private.v_{method} WHERE home < 'p5'"
        )[0]
        assert abs(found[0] - exact) < 60 + 7 * found[1], method
        assert 0 < found[2] <= 2000
    assert commuters.charges() == len(METHODS)


def test_the_released_table(commuters: Clinic) -> None:
    """Columns are the selected ones, then the noisy count and the variance. Rows lie in the domain, NULL among them."""
    commuters.dp(view("v", "summary = 'filter', theta = 20"))
    columns = [row[:2] for row in commuters.rows("DESCRIBE private.v")]
    assert columns == [
        ("home", "VARCHAR"), ("work", "VARCHAR"), ("n", "DOUBLE"), ("n_raw", "BIGINT"), ("n_variance", "DOUBLE"),
    ]  # fmt: skip
    assert commuters.rows("SELECT count(*), count(work), min(n_raw) >= 20 FROM private.v") == [(100, 80, True)]
    assert commuters.rows("SELECT bool_and(n = n_raw) FROM private.v") == [(True,)]


def test_a_plain_question_has_error_bars(commuters: Clinic) -> None:
    """dp_stderr and intervals work in the same SELECT. HAVING and ORDER BY are post-processing."""
    rows = commuters.dp(
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100, summary = 'filter_priority', summary_size = 150) "
        "home, count(*) AS n, dp_stderr(n), dp_interval_low(n), dp_interval_high(n) FROM trips "
        "GROUP BY home HAVING n > 50 ORDER BY n DESC LIMIT 10"
    )
    assert len(rows) == 10
    assert all(low <= n <= high and error >= 0 for _, n, error, low, high, _, _ in rows)


@pytest.mark.parametrize("shape", ["dyadic", "haar"])
def test_ranges_of_days(commuters: Clinic, shape: str) -> None:
    """Ranges over dyadic intervals and Haar coefficients: within 12 of truth at a scale of 1/5 (1e-9)."""
    commuters.dp(
        view(
            "days", f"summary = 'filter', theta = 1, range_summary = '{shape}'",
            "day, range_end(day) AS until, count(*) AS n FROM trips GROUP BY RANGES(day)",
        )
    )  # fmt: skip
    for low, high in ((0, 364), (10, 90), (7, 7), (364, 364), (100, 355)):
        exact = commuters.rows(f"SELECT count(*) FROM trips WHERE day BETWEEN {low} AND {high}")[0][0]
        weight = {
            "dyadic": f"CAST(dp_in_range(day_level, day_node, {low}, {high}) AS INTEGER)",
            "haar": f"dp_haar_weight(day_level, day_node, {low}, {high}, 365)",
        }[shape]
        found = commuters.rows(f"SELECT sum(n * {weight}) FROM private.days")[0][0]
        assert abs(found - exact) < 12, (low, high)
    whole = commuters.rows("SELECT day, until FROM private.days WHERE day_node = 0 AND until - day = 365")
    assert whole[0] == (0, 365)


def test_both_shapes_of_ranges_are_explained(commuters: Clinic) -> None:
    """dp_explain has a row for the other shape, and every row says where its shape is the better one."""
    for shape, other, note in (
        ("dyadic", "filter, range_summary = 'haar'", "dyadic intervals, by least squares where none is sampled: "),
        ("haar", "filter, range_summary = 'dyadic'", "Haar coefficients: for ranges where most labels have rows"),
    ):
        rows = commuters.rows(
            "SELECT strategy, chosen, note FROM dp_explain($$ SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, "
            f"summary = 'filter', range_summary = '{shape}') day, count(*) AS n FROM trips GROUP BY RANGES(day) $$)"
        )
        assert rows[0][:2] == ("filter", True) and note in rows[0][2]
        assert (rows[-1][0], rows[-1][1]) == (other, False) and note not in rows[-1][2]


def test_intervals_agree_with_their_halves(commuters: Clinic) -> None:
    """An interval is the sum of its halves wherever both were released, noisy counts stay integers, and
    consistency = 'none' leaves counts as they were drawn."""
    for name, more in (("fitted", ""), ("drawn", ", consistency = 'none'")):
        asked = "home, day, count(*) AS n FROM trips GROUP BY home, RANGES(day)"
        commuters.dp(view(name, f"summary = 'filter', theta = 1{more}", asked))
    families = """
        SELECT count(*), max(abs(whole.n - one.n - other.n)), max(abs(whole.n_raw - one.n_raw - other.n_raw))
        FROM private.{0} AS whole JOIN private.{0} AS one ON one.home = whole.home
            AND one.day_level = whole.day_level - 1 AND one.day_node = 2 * whole.day_node
        JOIN private.{0} AS other ON other.home = whole.home
            AND other.day_level = whole.day_level - 1 AND other.day_node = 2 * whole.day_node + 1"""
    (count, fitted, raw), (_, drawn, _) = (commuters.rows(families.format(name))[0] for name in ("fitted", "drawn"))
    assert count > 100
    assert fitted < 1e-6
    assert min(raw, drawn) >= 1
    assert commuters.rows("SELECT count(*) FROM private.drawn WHERE n <> n_raw") == [(0,)]


def test_ranges_of_several_columns(commuters: Clinic) -> None:
    """A dyadic summary over days and a plain key: nodes within each home.

    At most 18 nodes with noise of scale 1/5: a sum of 8 has a chance below 1e-11.
    """
    commuters.dp(
        view(
            "both", "summary = 'filter', theta = 1, consistency = 'none'",
            "home, day, count(*) AS n FROM trips GROUP BY home, RANGES(day)",
        )
    )  # fmt: skip
    exact = commuters.rows("SELECT count(*) FROM trips WHERE home = 'p7' AND day BETWEEN 30 AND 200")[0][0]
    found = commuters.rows(
        "SELECT sum(n) FROM private.both WHERE home = 'p7' AND dp_in_range(day_level, day_node, 30, 200)"
    )
    assert abs(found[0][0] - exact) < 8


def test_a_sketch_is_asked_by_key(commuters: Clinic) -> None:
    """The median of the rows finds a key's count, NULL too. A plain DuckDB repeats the hashing.

    8 of 15 rows would have to collide, each with a chance of 1 %.
    """
    commuters.dp(view("sketched", "summary = 'sketch', summary_size = 150000, sketch_rows = 15"))
    assert commuters.rows("SELECT count(*), max(sketch_row) FROM private.sketched") == [(150000, 15)]
    for home, work in (("p0", "'p0'"), ("p4", "NULL"), ("p1999", "'p3'")):
        where = f"home = '{home}' AND work IS NOT DISTINCT FROM {work}"
        exact = commuters.rows(f"SELECT count(*) FROM trips WHERE {where}")[0][0]
        found = commuters.rows(f"SELECT n FROM dp_sketch_point('private.sketched', ['{home}', {work}])")
        assert abs(found[0][0] - exact) <= 5, (home, work)


def test_explain_shows_every_summary(commuters: Clinic) -> None:
    """Predicted size, and errors of sums of 10, 1,000 and 100,000 cells. Nothing is charged."""
    statement = view("v", "summary = 'auto', summary_size = 500", epsilon="0.5")
    rows = commuters.con.execute(
        "SELECT strategy, chosen, cells, error_10, error_1000, error_100000, note FROM dp_explain(?)", [statement]
    ).fetchall()
    assert {row[0] for row in rows} == {*METHODS[:-1], "sketch", "geometric"}
    assert [row[1] for row in rows] == [True] + [False] * (len(rows) - 1)
    assert all(row[2] > 0 and 0 < row[3] < row[4] < row[5] for row in rows)
    assert commuters.charges() == 0
    commuters.dp(statement)
    assert commuters.rows("SELECT strategy FROM dp_releases() LIMIT 1") == [(rows[0][0],)]


def test_the_same_summary_is_free(commuters: Clinic) -> None:
    """The canonical request is the key. Another size is another release."""
    for size in (300, 300, 301):
        commuters.dp(
            "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS "
            f"(epsilon = 1, summary = 'priority', summary_size = {size}) {BY_PLACE}"
        )
    assert commuters.charges() == 2


def test_a_noisy_total_sets_the_threshold(commuters: Clinic) -> None:
    """2,857 trips where 20,000 are expected: tau follows from the noisy total, and about 100 rows come of 100 asked.

    With the guess, tau is seven times too high and about 14 rows come: 45 and 60 are further than 1e-10 from either.
    """
    few = "home, count(*) FILTER (WHERE person % 7 = 0) AS n FROM trips GROUP BY home"
    for name, share in (("guessed", ""), ("counted", "total_epsilon = 10, ")):
        commuters.dp(view(name, f"{share}summary = 'threshold', summary_size = 100", few))
    assert commuters.value("SELECT count(*) FROM private.guessed") < 45
    assert 60 < commuters.value("SELECT count(*) FROM private.counted") <= 130
    ledger = commuters.rows("SELECT epsilon, mechanism FROM dp_ledger() WHERE mechanism LIKE '%threshold%' ORDER BY id")
    assert [row[0] for row in ledger] == [100, 100]
    assert [row[1].endswith("threshold summary, noisy total") for row in ledger] == [False, True]
    note = commuters.con.execute(
        "SELECT note FROM dp_explain(?)", [view("v", "total_epsilon = 10, summary = 'threshold'", few)]
    ).fetchall()[0][0]
    assert "after epsilon = 10 for the number of rows" in note


def test_a_total_that_is_not_in_the_price(commuters: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """The price is computed again from what will be drawn: a total beyond its share is noticed before a charge."""
    patched = "dpduck.mechanisms.summaries.measure.noise_for"
    monkeypatch.setattr(patched, lambda *asked: smaller(noise_for(*asked)))
    asked = view("v", "total_epsilon = 10, summary = 'threshold', summary_size = 100")
    assert "cost more than the statement; nothing was charged" in commuters.refused(asked)


def smaller(noise: Noise) -> Noise:
    return replace(noise, parameter=noise.parameter * Fraction(99, 100))


@pytest.mark.slow
@pytest.mark.parametrize("price", ["rho = 0.02", "epsilon = 1, delta = 1e-6"])
def test_a_sketch_has_gaussian_noise_for_a_rho(price: str) -> None:
    """Each bucket has variance r m^2 / (2 rho), and the ledger is charged that rho.

    Of 40,000 buckets the sample variance has a relative standard error of 0.0071: a tenth off, either way, has a chance
    below 1e-40, and factors of 2/3 or 3/2 are always noticed. Four rows add 20 units of 1 to buckets at most.
    """
    with dpduck.connect(":memory:") as connection:
        clinic = Clinic(connection)
        clinic.rows("CREATE TABLE trips AS SELECT i % 2 AS who, i % 2 AS home FROM range(4) AS r(i)")
        clinic.dp(
            "CREATE PRIVACY POLICY ON trips (PRIVACY UNIT who MAX ROWS 2, BUDGET (epsilon = 3, delta = 1e-6), "
            "DOMAIN home RANGE 0 TO 50000 STEP 1)"
        )
        options = f"{price}, summary = 'sketch', summary_size = 40000, sketch_rows = 5"
        statement = f"CREATE PRIVATE VIEW s OPTIONS ({options}) AS SELECT home, count(*) AS n FROM trips GROUP BY home"
        stated = connection.execute("SELECT worst_stderr, rho FROM dp_explain(?) WHERE chosen", [statement]).fetchall()
        clinic.dp(statement)
        mechanism, rho = clinic.rows("SELECT mechanism, rho FROM dp_ledger() ORDER BY id DESC LIMIT 1")[0]
        assert mechanism == "discrete Gaussian, count sketch" and stated[0][1] == rho
        assert 0.0199 < rho < 0.0245
        wanted = 5 * 2**2 / (2 * rho)
        assert clinic.value("SELECT var_pop(n) FROM private.s") == pytest.approx(wanted, rel=0.1)
        assert stated[0][0] == pytest.approx(math.sqrt(wanted / 5), rel=1e-3)


def test_a_sketch_has_no_noisy_total_for_a_rho() -> None:
    """A part of an epsilon is refused where there is none."""
    with dpduck.connect(":memory:") as connection:
        clinic = Clinic(connection)
        clinic.rows("CREATE TABLE trips AS SELECT i % 2 AS home FROM range(4) AS r(i)")
        clinic.dp("CREATE PRIVACY POLICY ON trips (PRIVACY UNIT ROW, BUDGET (rho = 1), DOMAIN home IN (0, 1))")
        line = clinic.refused(
            "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 0.1, summary = 'sketch', total_epsilon = 0.1) home, "
            "count(*) FROM trips GROUP BY home"
        )
        assert "total_epsilon" in line
