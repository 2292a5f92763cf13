"""Answers err by the errors that dp_errors foresees, where rows and values lie as evenly as it assumes."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from statistics import fmean

import pytest

import dpduck
from tests.support.clinics import Clinic

GROUPS, HIGH = 200, 1000
TREE = ", quantiles = 'tree'"
CASES = [
    ("min(x)", ""), ("max(x)", ""), ("median(x)", ""), ("median(x)", TREE), ("quantile_cont(x, 0.9)", ""),
    ("quantile_cont(x, 0.9)", TREE), ("avg(x)", ""), ("var_pop(x)", ""),
]  # fmt: skip


@pytest.fixture(scope="module", params=[200, 1000])
def even(request: pytest.FixtureRequest) -> Iterator[Clinic]:
    """GROUPS groups of as many rows, each a person. Values lie as far apart as they can."""
    rows = request.param
    with dpduck.connect(":memory:") as connection:
        clinic = Clinic(connection)
        clinic.con.execute(
            f"CREATE TABLE visits AS SELECT i AS who, i // {rows} AS g, "
            f"{HIGH} * ((i * 7919) % {rows} + 0.5) / {rows} AS x FROM range({GROUPS * rows}) AS r(i)"
        )
        clinic.dp(
            "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT who MAX ROWS 1, BUDGET (epsilon = 1e6, delta = 1e-6), "
            f"DOMAIN g RANGE 0 TO {GROUPS} STEP 1, CLAMP x BETWEEN 0 AND {HIGH} STEP 0.5, "
            f"EXPECT ROWS {GROUPS * rows})"
        )
        yield clinic


def asked(price: str, item: str) -> str:
    return f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}) g, {item} AS a FROM visits GROUP BY g ORDER BY g"


def foreseen(clinic: Clinic, statement: str) -> tuple[float, float | None]:
    _, _, _, typical, worst, _ = clinic.con.execute("FROM dp_errors(?)", [statement]).fetchall()[0]
    return typical, worst


@pytest.mark.parametrize("price", ["epsilon = 1", "rho = 0.5"])
@pytest.mark.parametrize(("item", "option"), CASES, ids=[f"{item}{option}" for item, option in CASES])
def test_even_rows_err_as_foreseen(even: Clinic, price: str, item: str, option: str) -> None:
    """The root mean square error of 200 groups is between half and twice the foreseen error.

    If both agree, a Laplace law's sum of 200 squares is so far off with a chance below 1e-14. The error of min and max
    was once foreseen six times too large. Figures that depend on the smallest group have no worst error.
    """
    statement = asked(price + option, item)
    typical, worst = foreseen(even, statement)
    exact = even.value(f"SELECT {item} FROM visits WHERE g = 0")
    realised = sqrt(fmean((row[1] - exact) ** 2 for row in even.dp(statement)))
    assert 0.5 < realised / typical < 2, (realised, typical)
    assert worst is None


def test_no_error_of_a_quantile_is_nothing(even: Clinic) -> None:
    """However dear, a quantile is known no better than a bucket is wide."""
    for item in ("min(x)", "max(x)", "median(x)", "quantile_cont(x, 0.9)"):
        for option in ("", TREE):
            typical, _ = foreseen(even, asked("epsilon = 100" + option, item))
            assert typical >= 0.5 / sqrt(12)
