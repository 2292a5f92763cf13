"""Trips by day and zone: NYC's green taxis of November 2025 as a stream, against a release of its own for each day.

Through SQL, from the table to what is published: each trip is a unit (PRIVACY UNIT ROW), one charge of rho for 30 days
and 265 zones, refreshed every third day. Root mean squared errors against the true counts over all days and zones:
single days, running totals and the last seven days, for the strategy that is chosen for each question. Beside them: a
statement for each day at a 30th of the price, with its totals summed up, and the lower bound of running totals. The
last lines are of a cube: zones and the whole city, for one charge.

Gates: what is published says its error (measured to published within 6 %, the sampling error of the totals of 265
zones). Running totals within 5 % of the best published factorisation, single days within 1 % of the plain mechanism.
Needs ../shared/data or $DPDUCK_DATA, or --data.
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import date, timedelta
from math import sqrt
from pathlib import Path

import numpy as np

import dpduck
from benchmarks.papers.streams import bounds
from dpduck.values.arrays import FloatArray

DATA = Path(os.environ.get("DPDUCK_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
FILE, FIRST, DAYS, ZONES, RHO, EVERY = "nyc_green_taxi_2025_11.parquet", date(2025, 11, 1), 30, 265, 0.05, 3
QUESTIONS = {"periods": ("n", 1), "totals": ("n_total", 0), "window": ("n_last", 7)}


class Trips:
    """The table with its policy."""

    def __init__(self, path: Path) -> None:
        self.con = dpduck.connect(":memory:")
        rows = f"SELECT CAST(lpep_pickup_datetime AS DATE) AS day, PULocationID AS zone FROM '{path}'"
        self.con.execute(f"CREATE TABLE trips AS {rows}")
        self.dp(
            f"CREATE PRIVACY POLICY ON trips (PRIVACY UNIT ROW, BUDGET (rho = 100), DOMAIN zone RANGE 1 TO {ZONES + 1} "
            f"STEP 1, DOMAIN day RANGE {FIRST} TO {FIRST + timedelta(DAYS)} STEP DAY)"
        )
        self.exact = np.zeros((DAYS, ZONES))
        inside = f"day >= DATE '{FIRST}' AND day < DATE '{FIRST + timedelta(DAYS)}' AND zone BETWEEN 1 AND {ZONES}"
        counted = f"SELECT day, zone, count(*) FROM trips WHERE {inside} GROUP BY day, zone"
        for day, zone, count in self.con.execute(counted).fetchall():
            self.exact[(day - FIRST).days, zone - 1] = count

    def dp(self, statement: str) -> list[tuple[object, ...]]:
        return self.con.execute("FROM dp(?)", [statement]).fetchall()

    def stream(self, answers: str, grouping: str = "zone") -> tuple[str, float]:
        """Makes and refreshes a stream. Returns its strategy and its price."""
        before = self.con.execute("SELECT sum(spent) FROM dp_budget()").fetchall()[0][0]
        self.dp("DROP PRIVATE STREAM IF EXISTS s")
        self.dp(
            f"CREATE PRIVATE STREAM s OPTIONS (rho = {RHO}, answers = '{answers}', window = 7) AS "
            f"SELECT day, zone, count(*) AS n FROM trips GROUP BY day, {grouping}"
        )
        for day in range(EVERY, DAYS + EVERY, EVERY):
            self.dp(f"REFRESH PRIVATE STREAM s UNTIL '{FIRST + timedelta(min(day, DAYS))}'")
        after = self.con.execute("SELECT sum(spent) FROM dp_budget()").fetchall()[0][0]
        return str(self.con.execute("SELECT strategy FROM dp_streams()").fetchall()[0][0]), after - before

    def published(self, column: str, where: str = "TRUE") -> FloatArray:
        """A published column by day and the other keys, shape (days, cells)."""
        found = self.con.execute(f"SELECT {column} FROM private.s WHERE {where} ORDER BY day, zone").fetchall()
        return np.array(found, float).reshape(DAYS, -1)

    def anew(self) -> FloatArray:
        """Answers each day by a statement of its own, at a 30th of the price each."""
        found = np.zeros((DAYS, ZONES))
        for day in range(DAYS):
            rows = self.dp(
                f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = {RHO / DAYS}) zone, count(*) AS n FROM trips "
                f"WHERE day = DATE '{FIRST + timedelta(day)}' GROUP BY zone"
            )
            for zone, count in rows:
                found[day, int(str(zone)) - 1] = float(str(count))
        return found


def added(table: FloatArray, window: int) -> FloatArray:
    """The sums of the last days, of all so far where the window is 0."""
    totals = np.cumsum(table, axis=0)
    if window:
        totals[window:] -= np.cumsum(table, axis=0)[:-window]
    return totals


def rms(errors: FloatArray) -> float:
    return sqrt(float((errors**2).mean()))


def compared(trips: Trips) -> tuple[int, dict[str, float]]:
    """Prints the errors of each question. Returns how many gates failed, and the published errors."""
    failed, told = 0, dict[str, float]()
    anew = trips.anew()
    for answers, (column, window) in QUESTIONS.items():
        strategy, price = trips.stream(answers)
        errors = trips.published(column) - added(trips.exact, window)
        ours, told[answers] = rms(errors), rms(trips.published(f"{column}_stderr"))
        ratio, wrong = ours / told[answers], rms(added(anew - trips.exact, window))
        within = abs(ratio - 1) <= 0.06
        failed += not within
        print(f"  {answers:8s} {strategy:14s} rho {price:.3g}: {ours:7.2f}, published {told[answers]:7.2f}", end="")
        print(f" ({ratio:.3f}, gate: 0.94 to 1.06  {'PASS' if within else 'FAIL'})", end="")
        print(f"; a statement each day {wrong:7.2f}, {wrong / ours:.1f} times", flush=True)
    return failed, told


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the data")
    path = parser.parse_args().data / FILE
    if not path.is_file():
        print(f"skipped: no {FILE} in the folder of the data; name one with --data or $DPDUCK_DATA")
        return 0
    trips = Trips(path)
    print(f"{int(trips.exact.sum())} trips, {DAYS} days, {ZONES} zones, rho = {RHO}: root mean squared errors")
    failed, told = compared(trips)
    sigma, (lower, best) = sqrt(1 / (2 * RHO)), bounds(DAYS)
    print(f"  lower bound of running totals {sigma * lower:.2f}, best known {sigma * best:.2f}")
    for said, ratio, limit in (
        ("running totals to the best known", told["totals"] / (sigma * best), 1.05),
        ("single days to the plain mechanism", told["periods"] / sigma, 1.01),
    ):
        failed += ratio > limit
        print(f"  {said}: {ratio:.4f}  gate: {limit}  {'PASS' if ratio <= limit else 'FAIL'}")
    strategy, price = trips.stream("totals", "CUBE (zone)")
    city = _city(trips)
    print(f"  zones and the city, {strategy}, rho {price:.3g}: zones {city[0]:.2f}, the city {city[1]:.2f}")
    return int(failed > 0)


def _city(trips: Trips) -> tuple[float, float]:
    """The errors of a cube's running totals: of zones, and of all zones together. Rows of the latter have no zone."""
    zones = trips.published("n_total", "zone IS NOT NULL") - added(trips.exact, 0)
    whole = trips.published("n_total", "zone IS NULL")[:, 0] - added(trips.exact, 0).sum(axis=1)
    return rms(zones), rms(whole)


if __name__ == "__main__":
    sys.exit(main())
