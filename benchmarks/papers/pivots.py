"""Several counts of one SELECT, as one workload: a pivot of exclusive conditions, and conditions that overlap.

Through SQL: predicted errors of `dp_explain` at epsilon = 1 and at rho = 1/2, of 100,000 made rows that are units. The
optimum is the lower bound of every Gaussian strategy (Li, Miklau, Hay, McGregor and Rastogi 2015). Under Laplace noise
there is no such bound. Three plain ways stand beside p-identity there: each count, each kind of rows, and GROUP BY the
columns with sums of cells.

Gates: a pivot of ten exclusive conditions, written as FILTER, count_if or CASE, within 1.05 of GROUP BY. Three
overlapping conditions within 1.05 of the optimum (Gaussian), or of the best plain way (Laplace). Ten conditions that
overlap in two columns: the same. No statement is worse than its counts by themselves.
Trap avoided: errors are summed variances of the same answers, and no answer is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import duckdb
import numpy as np

import dpduck
from dpduck.strategies.ranges.gaussian_optimum import optimise_gaussian

GATE = 1.05
RHO = 0.5
PRICES = ("epsilon = 1", f"rho = {RHO}")
TEN = [f"x = {number}" for number in range(10)]
THREE = ["x BETWEEN 0 AND 5", "x BETWEEN 3 AND 8", "x IN (0, 4, 9)"]
CROSSED = ["a", "NOT a", "b", "NOT b", "a AND b", "a OR b", "c", "a AND c", "b AND c", "NOT (a AND b AND c)"]
FORMS = {
    "FILTER": "count(*) FILTER (WHERE {})",
    "count_if": "count_if({})",
    "sum of CASE": "sum(CASE WHEN {} THEN 1 ELSE 0 END)",
    "count of CASE": "count(CASE WHEN {} THEN 1 END)",
}


def open_rows() -> duckdb.DuckDBPyConnection:
    """Rows with a number from 0 to 9, and three flags."""
    connection = dpduck.connect()
    connection.execute(
        "CREATE TABLE visits AS SELECT CAST(hash(i, 1) % 10 AS INTEGER) AS x, hash(i, 2) % 2 = 0 AS a, "
        "hash(i, 3) % 2 = 0 AS b, hash(i, 4) % 2 = 0 AS c FROM range(100000) AS r(i)"
    )
    connection.execute(
        "FROM dp($$ CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 100, delta = 1e-6), "
        "DOMAIN x RANGE 0 TO 10 STEP 1, DOMAIN a BOOLEAN WITH NULL, DOMAIN b BOOLEAN WITH NULL, "
        "DOMAIN c BOOLEAN WITH NULL) $$)"
    )
    return connection


def total(connection: duckdb.DuckDBPyConnection, price: str, counts: str, group: str = "") -> float:
    """Returns the summed variance that is predicted."""
    statement = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}) {counts} FROM visits {group}"
    ((found,),) = connection.execute("SELECT total_variance FROM dp_explain(?) WHERE chosen", [statement]).fetchall()
    return float(found)


def least(conditions: list[str], price: str, connection: duckdb.DuckDBPyConnection) -> float:
    """Returns the optimum (Gaussian), or the best plain way (Laplace), of counts over all combinations of values."""
    flags = "unnest([TRUE, FALSE, NULL])"
    cells = f"SELECT * FROM range(10) AS r(x), (SELECT {flags} AS a), (SELECT {flags} AS b), (SELECT {flags} AS c)"
    listed = ", ".join(f"coalesce({one}, FALSE)" for one in conditions)
    kinds = connection.execute(f"SELECT DISTINCT {listed} FROM ({cells})").fetchall()
    met = np.array(kinds, np.float64).T
    asked = met[:, met.any(axis=0)]
    if price.startswith("rho"):
        return optimise_gaussian(asked.T @ asked, 10.0).lower_bound / (2 * RHO)
    scale = 1 / (2 * np.sinh(0.5) ** 2)
    widest = asked.sum(axis=0).max()
    each = len(conditions) / (2 * np.sinh(0.5 / widest) ** 2)
    return float(min(each, scale * asked.sum()))


def gates(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[bool, str]]:
    """Yields each gate as whether it holds and its text."""
    for price in PRICES:
        grouped = total(connection, price, "x, count(*)", "GROUP BY x")
        for name, form in FORMS.items():
            found = total(connection, price, ", ".join(form.format(one) for one in TEN))
            yield found <= GATE * grouped, f"{price}: ten by {name}: {found:.4g}, GROUP BY {grouped:.4g}"
        for name, conditions in (("three", THREE), ("ten in three columns", CROSSED)):
            found, bound = (
                total(connection, price, ", ".join(map(FORMS["FILTER"].format, conditions))),
                least(conditions, price, connection),
            )
            yield found <= GATE * bound, f"{price}: {name} overlapping: {found:.4g}, best known {bound:.4g}"
            alone = total(connection, f"{price}, strategy = 'I'", ", ".join(map(FORMS["FILTER"].format, conditions)))
            yield found <= alone, f"{price}: {name} by themselves {alone:.4g}: {alone / found:.1f} times as much"


def main() -> int:
    """Returns 1 where a gate fails."""
    failures = 0
    with open_rows() as connection:
        for good, text in gates(connection):
            print(f"{'PASS' if good else 'FAIL'}  {text}")
            failures += not good
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
