"""Summaries of sums count values in steps of their clamp, and state every figure in the column's own units."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from dpduck.mechanisms.summaries.plan import noise_variance
from tests.support.clinics import Clinic

METHODS = ("filter", "threshold", "priority", "filter_threshold", "filter_priority", "geometric", "auto")
POLICY = """CREATE PRIVACY POLICY ON sales (PRIVACY UNIT person MAX ROWS 2, BUDGET (epsilon = 10000),
    DOMAIN shop RANGE 0 TO 400 STEP 1, DOMAIN item RANGE 0 TO 50 STEP 1, CLAMP price BETWEEN 0 AND 20 STEP 0.25,
    CLAMP change BETWEEN -8 AND 4 STEP 0.5, EXPECT ROWS 6000)"""
CELLS = 20_000


@pytest.fixture
def sales(open_clinic: Callable[..., Clinic]) -> Clinic:
    """6,000 sales of 3,000 people in 600 of 20,000 cells, with prices beyond the clamp, off its steps, and NULLs."""
    clinic = open_clinic()
    clinic.con.execute(
        "CREATE TABLE sales AS SELECT range // 2 AS person, CAST(range % 300 AS INTEGER) AS shop, "
        "CAST(range % 20 AS INTEGER) AS item, CASE WHEN range % 50 > 0 THEN CAST(range % 97 / 4.0 AS DOUBLE) END "
        "AS price, CAST(range % 31 / 2.0 - 9 AS DOUBLE) AS change FROM range(6000)"
    )
    clinic.dp(POLICY)
    return clinic


def asked(column: str, options: str) -> str:
    return (
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({options}) shop, item, sum({column}) AS n, dp_stderr(n) AS error "
        "FROM sales GROUP BY shop, item"
    )


def exact(clinic: Clinic, column: str, low: float, high: float) -> dict[tuple[int, int], float]:
    summed = f"sum(greatest({low}, least({high}, {column}))) FILTER (WHERE {column} IS NOT NULL)"
    rows = clinic.rows(f"SELECT shop, item, {summed} FROM sales GROUP BY ALL")
    return {(shop, item): value or 0.0 for shop, item, value in rows}


@pytest.fixture
def steps(open_clinic: Callable[..., Clinic]) -> Clinic:
    """Rows that are units, in 300 of 1,000 cells, with prices in steps of 5: at epsilon = 100 there is no noise."""
    clinic = open_clinic()
    clinic.con.execute(
        "CREATE TABLE sales AS SELECT CAST(range % 30 AS INTEGER) AS shop, CAST(range % 100 % 20 AS INTEGER) AS item, "
        "CASE WHEN range % 50 > 0 THEN range % 7 * 5 END AS price, range % 9 * 5 - 20 AS change FROM range(6000)"
    )
    clinic.dp(
        "CREATE PRIVACY POLICY ON sales (PRIVACY UNIT ROW, BUDGET (epsilon = 10000), DOMAIN shop RANGE 0 TO 50 STEP 1, "
        "DOMAIN item RANGE 0 TO 20 STEP 1, CLAMP price BETWEEN 0 AND 20 STEP 5, CLAMP change BETWEEN -15 AND 10 STEP 5)"
    )
    return clinic


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("column", "low", "high"), [("price", 0, 20), ("change", -15, 10)])
def test_sums_are_those_of_clamped_values(steps: Clinic, method: str, column: str, low: int, high: int) -> None:
    """At a huge price the sums of all cells are exact, and negative ones among them.

    Noise of 1,000 cells is 0 but with a chance of 3e-8.
    """
    truths, size = exact(steps, column, low, high), "" if method == "geometric" else ", summary_size = 900"
    rows = steps.dp(asked(column, f"epsilon = 100, summary = '{method}'{size}"))
    found = {(shop, item): value for shop, item, value, *_ in rows}
    assert column == "price" or min(truths.values()) < 0 < max(truths.values())
    assert {cell: found.get(cell, 0.0) for cell in truths} == truths
    assert all(value == 0 for cell, value in found.items() if cell not in truths)


def test_noise_is_that_of_what_a_person_adds(sales: Clinic) -> None:
    """Two rows of at most 20 at epsilon = 2: noise of scale 20, in steps of 0.25. 19,400 cells are noise alone.

    The mean square of so many is within 5.5 of its standard errors, 0.089 of itself, but with a chance of 4e-8. Noise
    for one row, or for one step, has a fourth of that mean square or less.
    """
    rows = sales.dp(asked("price", "epsilon = 2, summary = 'geometric'"))
    truths = exact(sales, "price", 0, 20)
    noise = np.array([value for shop, item, value, *_ in rows if (shop, item) not in truths])
    expected = noise_variance(80) / 16
    assert len(rows) == CELLS and all(one[3] == pytest.approx(math.sqrt(expected)) for one in rows)
    assert abs(np.mean(noise**2) / expected - 1) < 5.5 * math.sqrt(5 / len(noise))
    assert set(np.unique(np.mod(noise, 0.25))) == {0.0}


def test_filters_and_thresholds_are_in_the_units_of_the_column(sales: Clinic) -> None:
    """theta = 90 keeps sums of at least 90. tau = 300 raises the sums that it keeps below 300.

    Sums are the nearest doubles of whole numbers of steps, and print like them.
    """
    rows = sales.dp(asked("price", "epsilon = 2, summary = 'filter', theta = 90"))
    assert rows and min(abs(float(str(value))) for _, _, value, *_ in rows) >= 90
    sampled = sales.dp(asked("price", "epsilon = 2, summary = 'threshold', tau = 300"))
    assert sampled and min(abs(float(str(value))) for _, _, value, *_ in sampled) >= 300
    statement = asked("price", "epsilon = 2, summary = 'filter', theta = 90")
    notes = sales.con.execute("SELECT note, worst_stderr FROM dp_explain(?) WHERE chosen", [statement]).fetchall()
    assert "theta = 90" in notes[0][0] and notes[0][1] > 1


@pytest.mark.parametrize("method", ["filter", "filter_priority", "threshold"])
def test_sums_of_many_cells_say_their_errors(sales: Clinic, method: str) -> None:
    """Everything, with a total that is paid for, is within six standard errors. Intervals of 95 % hold the truth."""
    sales.dp(
        f"CREATE PRIVATE VIEW v OPTIONS (epsilon = 20, summary = '{method}', summary_size = 700, total_epsilon = 2) AS "
        "SELECT shop, item, sum(price) AS n, dp_interval_low(n) AS low, dp_interval_high(n) AS high FROM sales "
        "GROUP BY shop, item"
    )
    truths = exact(sales, "price", 0, 20)
    ((total, error),) = sales.rows("SELECT sum(n), sqrt(sum(n_variance)) FROM private.v")
    assert abs(total - sum(truths.values())) < 6 * error
    rows = sales.rows("SELECT shop, item, low, high FROM private.v")
    held = [low <= truths.get((shop, item), 0.0) <= high for shop, item, low, high in rows]
    # of 400 or more intervals that hold with a chance of 0.94, fewer than 0.86 do with a chance below 1e-8
    assert len(rows) > 400 and sum(held) / len(held) > 0.86


def test_ranges_of_sums(sales: Clinic) -> None:
    """Dyadic intervals of sums, at a high price: all shops are the sum of their prices, with noise of scale 5."""
    sales.dp(
        "CREATE PRIVATE VIEW r OPTIONS (epsilon = 80, summary = 'filter', summary_size = 700) AS "
        "SELECT shop, sum(price) AS n FROM sales GROUP BY RANGES(shop)"
    )
    ((found,),) = sales.rows("SELECT sum(n) FROM private.r WHERE shop_level = 9")
    assert found == pytest.approx(sum(exact(sales, "price", 0, 20).values()), abs=150)


@pytest.mark.parametrize(
    ("select", "options", "said"),
    [
        ("sum(price)", "summary = 'sketch'", "a sketch counts rows"),
        ("sum(change)", "summary = 'filter_one_sided'", "a filter on one side drops negative sums"),
        ("avg(price)", "summary = 'filter'", "a summary does not answer"),
        ("sum(price), count(*)", "summary = 'filter'", "2 aggregates in a summary"),
    ],
)
def test_refused_sums(sales: Clinic, select: str, options: str, said: str) -> None:
    """One clear line before the charge."""
    statement = (
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, {options}) shop, {select} FROM sales GROUP BY shop"
    )
    assert said in sales.refused(statement) and sales.charges() == 0


def test_sums_print_like_multiples_of_their_steps(open_clinic: Callable[..., Clinic]) -> None:
    """In steps of 0.1 no sum has more than one decimal: 2879.1, and not 2879.1000000000004."""
    clinic = open_clinic()
    clinic.con.execute("CREATE TABLE sales AS SELECT range % 40 AS shop, range % 97 / 10.0 AS price FROM range(400)")
    clinic.dp(
        "CREATE PRIVACY POLICY ON sales (PRIVACY UNIT ROW, BUDGET (epsilon = 100), DOMAIN shop RANGE 0 TO 4000 STEP 1, "
        "CLAMP price BETWEEN 0 AND 10 STEP 0.1)"
    )
    rows = clinic.dp(
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1, summary = 'geometric') shop, sum(price) AS n "
        "FROM sales GROUP BY shop"
    )
    assert len(rows) == 4000 and all(len(str(value).partition(".")[2]) == 1 for row in rows for value in row[1:3])
