"""Intervals of SUM hold the sums of skewed data as often as they say, through whole releases.

The cells of one release are the runs: their noises are independent and of one law. 20,000 of them tell 95 % from
94 % with a false alarm in 10^10: P(Bin(20000, 0.95) < 18800) = 4e-11, P(Bin(20000, 0.95) > 19200) < 1e-11.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.clinics import Clinic

CELLS = 20_000
LOW, HIGH = 0.94, 0.99
ANSWERS = "g, sum(charge) AS s, dp_stderr(s) AS e, dp_interval_low(s) AS low, dp_interval_high(s) AS high"
# Every fifth cell is empty, some hold hundreds of rows. Charges are lognormal, with NULLs and values beyond the clamp.
ROWS = f"""CREATE TABLE stays AS SELECT range // 2 AS who,
    CAST(floor({CELLS} * pow(hash(range, 1) / 18446744073709551616, 3)) AS INTEGER) // 5 * 5 + range % 4 AS g,
    CASE WHEN range % 50 > 0 THEN CAST(exp(3 + 1.5 * sqrt(-2 * ln((hash(range, 2) / 18446744073709551616) + 1e-9))
        * cos(6.283185307 * (hash(range, 3) / 18446744073709551616))) AS DECIMAL(12, 2)) END AS charge,
    range % 2 AS h FROM range(60000)"""
POLICY = f"""CREATE PRIVACY POLICY ON stays (PRIVACY UNIT who MAX ROWS 2, BUDGET ({{budget}}),
    DOMAIN g RANGE 0 TO {CELLS} STEP 1, DOMAIN h IN (0, 1), CLAMP charge BETWEEN -10 AND 400 STEP 0.01)"""
EXACT = "SELECT g, CAST(sum(least(greatest(charge, -10), 400)) AS DOUBLE) FROM stays GROUP BY g"


@pytest.fixture
def stays(open_clinic: Callable[..., Clinic]) -> Callable[[str], Clinic]:
    def made(budget: str) -> Clinic:
        clinic = open_clinic()
        clinic.rows(ROWS)
        clinic.dp(POLICY.format(budget=budget))
        return clinic

    return made


def released(clinic: Clinic, statement: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Answer, standard error and both ends of every cell by g, shape (cells, 4), and the exact sums."""
    rows = sorted(clinic.dp(statement))
    assert [row[0] for row in rows] == list(range(CELLS))
    exact = dict(clinic.rows(EXACT))
    return np.array([row[1:5] for row in rows], float), np.array([exact.get(g) or 0.0 for g in range(CELLS)])


def covered(found: NDArray[np.float64], exact: NDArray[np.float64], widened: float = 1.0) -> float:
    """The part of the intervals, made wider or narrower about their answers, that hold the exact sums."""
    answers, _, lows, highs = found.T
    inside = (answers + widened * (lows - answers) <= exact) & (exact <= answers + widened * (highs - answers))
    return float(inside.mean())


@pytest.mark.parametrize("budget", ["epsilon = 3", "rho = 3"])
def test_intervals_of_sums_cover(stays: Callable[[str], Clinic], budget: str) -> None:
    """Of 20,000 cells, 94 % to 96 % of the 95 % intervals hold the clamped sum, under both kinds of noise. Intervals
    from two thirds or from one and a half times the standard error are rejected."""
    price = budget.replace("3", "1")
    found, exact = released(
        stays(budget), f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}) {ANSWERS} FROM stays GROUP BY g"
    )
    assert LOW <= covered(found, exact) <= 0.96
    assert covered(found, exact, 2 / 3) < LOW
    assert covered(found, exact, 3 / 2) > 0.96
    assert len(set(found[:, 1])) == 1
    assert np.abs(found[:, 0] - exact).mean() == pytest.approx(
        found[0, 1] * (np.sqrt(1 / 2) if "epsilon" in budget else np.sqrt(2 / np.pi)), rel=0.06
    )  # mean absolute noise: six and a half deviations of the mean of 20,000 are less than 5 %


def test_intervals_of_summed_sums_cover(stays: Callable[[str], Clinic]) -> None:
    """If a cell adds up two measured ones, and no other cell shares their noises, coverage is 94 % to 99 %."""
    found, exact = released(
        stays("epsilon = 3"),
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, strategy = 'identity') "
        f"{ANSWERS} FROM stays GROUP BY GROUPING SETS ((g), (g, h)) HAVING GROUPING(h) = 1",
    )
    assert LOW <= covered(found, exact) <= HIGH
    assert covered(found, exact, 2 / 3) < LOW


def test_a_price_shared_by_aggregates_covers(stays: Callable[[str], Clinic]) -> None:
    """A sum beside a count and an average has a part of the price, and correspondingly wide intervals."""
    found, exact = released(
        stays("epsilon = 3"),
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 2) {ANSWERS}, count(*), avg(charge) "
        "FROM stays GROUP BY g",
    )
    assert LOW <= covered(found, exact) <= HIGH
    assert covered(found, exact, 2 / 3) < LOW
