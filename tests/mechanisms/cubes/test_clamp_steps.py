"""A CLAMP that names no step counts values as finely as their type or their bounds allow, and says where it rounds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.clinics import Clinic

Open = Callable[..., Clinic]
FINE = (("DOUBLE", "0.000001"), ("FLOAT", "0.000001"), ("DECIMAL(5, 2)", "0.01"), ("DECIMAL(18, 9)", "0.000000001"))


def fares(open_clinic: Open, type_name: str, clamp: str) -> tuple[Clinic, str]:
    """10,000 rows of 0.3 in a column of a type, and the messages that the owner got about its policy."""
    clinic = open_clinic()
    clinic.rows(f"CREATE TABLE fares AS SELECT CAST(0.3 AS {type_name}) AS x FROM range(10000)")
    told = clinic.dp(f"CREATE PRIVACY POLICY ON fares (PRIVACY UNIT ROW, BUDGET (epsilon = 1000), CLAMP x {clamp})")
    return clinic, str(told[0][0])


@pytest.mark.parametrize(("type_name", "step"), FINE)
def test_fractions_are_kept(open_clinic: Open, type_name: str, step: str) -> None:
    """Averages and sums of 0.3 between 0 and 1 are 0.3 and 3,000: at epsilon 100, noise of a tenth is 2^-14 rare."""
    clinic, told = fares(open_clinic, type_name, "BETWEEN 0 AND 1")
    assert clinic.value("SELECT clamps FROM dp_policies()") == f"x 0 to 1 step {step}"
    assert ("rounded" in told) == (type_name in ("DOUBLE", "FLOAT", "DECIMAL(18, 9)"))
    average, added, middle = clinic.dp(
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) avg(x), sum(x), median(x) FROM fares"
    )[0]
    assert average == pytest.approx(0.3, abs=1e-4)
    assert added == pytest.approx(3000, abs=1)
    assert middle == pytest.approx(0.3, abs=0.002)


def test_whole_numbers_step_by_one(open_clinic: Open) -> None:
    """Columns of integers count in ones, as they did. A written step stands, however coarse."""
    clinic, told = fares(open_clinic, "INTEGER", "BETWEEN 0 AND 10")
    assert clinic.value("SELECT clamps FROM dp_policies()") == "x 0 to 10 step 1"
    assert "rounded" not in told
    clinic, told = fares(open_clinic, "DOUBLE", "BETWEEN 0 AND 10 STEP 1")
    assert clinic.value("SELECT clamps FROM dp_policies()") == "x 0 to 10 step 1"
    assert "rounded" not in told


def test_bounds_are_on_the_step(open_clinic: Open) -> None:
    """A step that nobody wrote divides both bounds."""
    clinic, _ = fares(open_clinic, "DOUBLE", "BETWEEN 0.00000025 AND 1000.5")
    assert clinic.value("SELECT clamps FROM dp_policies()") == "x 0.00000025 to 1000.5 step 0.00000025"


def test_wide_bounds_say_that_they_round(open_clinic: Open) -> None:
    """Where the bounds are too far apart for every value, the owner is told the step of the rounding."""
    _, told = fares(open_clinic, "BIGINT", "BETWEEN 0 AND 1000000000")
    assert "; values of x are rounded to multiples of 60;" in told
    assert told.endswith("; dp_check('fares') tells what its answers leave out")


def test_what_is_said_of_a_policy_stays_short(open_clinic: Open) -> None:
    """Of several clamps that round there is one line, and where to look: it grew by a line a clamp."""
    clinic = open_clinic()
    columns = ", ".join(f"CAST(i AS DOUBLE) AS x{number}" for number in range(9))
    clinic.con.execute(f"CREATE TABLE wide AS SELECT i AS p, {columns} FROM range(9) AS r(i)")
    clamps = ", ".join(f"CLAMP x{number} BETWEEN 0 AND 10" for number in range(9))
    told = clinic.dp(f"CREATE PRIVACY POLICY ON wide (PRIVACY UNIT p MAX ROWS 1, BUDGET (epsilon = 1), {clamps})")[0][0]
    assert "; values of 9 columns are rounded, to the STEP that dp_columns('wide') shows; " in told and len(told) < 250
    assert all(clamp for (clamp,) in clinic.rows("SELECT clamp FROM dp_columns('wide') WHERE column_name LIKE 'x%'"))


def test_a_stored_step_stays(open_clinic: Open) -> None:
    """Changing another item of a policy leaves the step that was stored, and the stored answers with it."""
    clinic, _ = fares(open_clinic, "DOUBLE", "BETWEEN 0 AND 1 STEP 1")
    clinic.dp("ALTER PRIVACY POLICY ON fares SET EXPECT ROWS 10")
    assert clinic.value("SELECT clamps FROM dp_policies()") == "x 0 to 1 step 1"


def test_a_variance_leaves_what_is_beside_it_as_fine_as_it_was(open_clinic: Open) -> None:
    """Between 0 and 1,000,000, squares are of steps of 122, in which every age is 0. Averages and sums beside a
    variance keep the fine steps, and intervals of deviations hold the rounding. At epsilon 50 an error of 5 is 50
    deviations of the noise of the average. An interval of 99.9999 % misses by 4 more with 1e-8."""
    clinic, _ = fares(open_clinic, "INTEGER", "BETWEEN 0 AND 1000000")
    clinic.rows("UPDATE fares SET x = 20 + rowid % 41")
    clinic.rows("INSERT INTO fares SELECT x FROM fares, range(99)")
    average, added, low, high, noise, widest, error = clinic.dp(
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 50, confidence = 0.999999) avg(x), sum(x), "
        "dp_interval_low(var_pop(x)), dp_interval_high(var_pop(x)), dp_stderr(var_pop(x)), "
        "dp_interval_high(stddev_samp(x)), dp_stderr(stddev_samp(x)) FROM fares"
    )[0]
    assert average == pytest.approx(40, abs=5)
    assert added == pytest.approx(40e6, rel=0.1)
    assert low - 4 * noise <= 140 <= high
    assert widest > 11.8 and error > 30


def test_a_clamp_bounds_no_condition(open_clinic: Open) -> None:
    """Of 0 to 999, each ten times, 4,990 are above 500, whatever the CLAMP is, live and prepared. At epsilon 100 a
    count is 10 off with a chance below 1e-80."""
    clinic = open_clinic()
    clinic.rows("CREATE TABLE fares AS SELECT range AS person, range % 1000 AS x FROM range(10000)")
    clinic.dp(
        "CREATE PRIVACY POLICY ON fares (PRIVACY UNIT person MAX ROWS 1, BUDGET (epsilon = 1000), "
        "CLAMP x BETWEEN 0 AND 200)"
    )
    asked = (
        "sum(CASE WHEN x > 500 THEN 1 ELSE 0 END), sum(CAST(x > 500 AND x < 1000 AS INTEGER)), "
        "count(*) FILTER (WHERE x > 500), count(nullif(x, 700))"
    )
    for number in (1, 2):
        statement = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100, refresh = '{number}') {asked} FROM fares"
        assert clinic.dp(statement)[0] == pytest.approx((4990, 4990, 4990, 9990), abs=10)
        clinic.dp("ALTER PRIVACY POLICY ON fares PREPARE")
