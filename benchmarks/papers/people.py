"""People with several rows: the best MAX ROWS, the best public norm and a private norm, over real and made tables.

Through SQL, from the table to the answer: one statement at a time, at (epsilon, 1e-6), with a generous MAX ROWS in the
policy. A group's error is |answer - truth| over the truth, and of averages |answer - truth|. A statement's error is the
median over its groups, by their rows, and the mean over DRAWS releases. "Rows" is the best max_rows_contributed of a
grid, and "norm" the best max_norm_contributed. The error that is shown chooses them: nobody could choose so well.
"Private" is max_norm_contributed = 'private': everything is paid for out of the same price.

Gates, of geometric means over statements: private at most 1.3 times the best norm for counts, sums and persons, and 2
times for averages. The best norm is at most 0.7 times the best rows for counts, and 0.35 times for averages.
Traps avoided: truths are of the whole table, so that rows beyond a bound are an error. All bounds have the same
statements. Groups without rows have no relative error and are left out for all alike. Tables of others need
../shared/data or $DPDUCK_DATA.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import exp, log
from pathlib import Path

import duckdb
import numpy as np

import dpduck

DATA = Path(os.environ.get("DPDUCK_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
DRAWS, DELTA = 3, "1e-6"
MOST_ROWS = 1000
ROWS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
NORMS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 150, 300)
SUM_NORMS = (0.3, 1, 3, 10, 30, 100)
"""Of averages and sums: in units of a tenth of the clamp."""


@dataclass(frozen=True)
class People:
    """A table of people with several rows. sql: its rows. domains: of its keys, and a clamp. clamp: width. value: of
    averages, with a public guess.
    """

    name: str
    sql: str
    domains: str
    keys: tuple[str, ...]
    value: str = ""
    clamp: float = 0.0
    centre: float = 0.0


WEB = """SELECT person, CAST(hash(person, n) % 20 AS INTEGER) // (1 + CAST(hash(person) % 3 AS INTEGER)) AS category,
    CAST(hash(n, person, 1) % 24 AS INTEGER) AS hour, CAST(hash(n, 7) % 30 AS INTEGER) AS day,
    least(600, -60 * ln((hash(person, n, 3) % 1000000 + 1) / 1000001.0)) AS seconds FROM (SELECT range AS person,
    least(2000, CAST(1.5 * pow((hash(range, 5) % 1000000 + 1) / 1000001.0, -0.87) AS INTEGER)) AS rows
    FROM range(20000)), LATERAL (SELECT unnest(range(rows)) AS n)"""
STAYS = """SELECT CAST(range % 5000 AS INTEGER) AS person, CAST(hash(range, 3) % 12 AS INTEGER) AS month,
    CAST(hash(range % 5000, range // 15000) % 40 AS INTEGER) AS ward, abs(hash(range, 9) % 1000 / 10.0 - 20) AS cost
    FROM range(120000) WHERE range // 5000 < 1 + hash(range % 5000) % 24"""
TAXI = """SELECT hash(PULocationID, DOLocationID) AS person, CAST(hour(lpep_pickup_datetime) AS INTEGER) AS hour,
    CAST(isodow(lpep_pickup_datetime) AS INTEGER) AS weekday, CAST(tip_amount AS DOUBLE) AS tip
    FROM '{}/nyc_green_taxi_2025_11.parquet'"""
FLIGHTS = """SELECT hash(origin, CAST(date AS DATE)) AS person, destination AS dest,
    CAST(month(date) AS INTEGER) AS month, CAST(delay AS DOUBLE) AS delay FROM '{}/flights_3m.parquet'
    WHERE hash(origin, CAST(date AS DATE)) % 4 = 0"""
JOBS = """SELECT hash(h_geocode) AS person, w_geocode AS work FROM '{}/lodes_hamilton_tn.parquet',
    LATERAL (SELECT unnest(range(jobs)))"""
GIFTS = """SELECT person, CAST((recency_months + (time_months - recency_months) * n / greatest(frequency - 1, 1)) // 12
    AS INTEGER) AS year FROM (SELECT row_number() OVER () AS person, * FROM read_csv('{}/transfusion.csv')),
    LATERAL (SELECT unnest(range(frequency)) AS n)"""
MADE = (
    People(
        "web logs (made)", WEB, "DOMAIN category RANGE 0 TO 20 STEP 1, DOMAIN hour RANGE 0 TO 24 STEP 1, "
        "DOMAIN day RANGE 0 TO 30 STEP 1, CLAMP seconds BETWEEN 0 AND 600 STEP 1",
        ("category", "category, hour", "day"), "seconds", 600, 60,
    ),
    People(
        "stays (made)", STAYS, "DOMAIN ward RANGE 0 TO 40 STEP 1, DOMAIN month RANGE 0 TO 12 STEP 1, "
        "CLAMP cost BETWEEN 0 AND 500 STEP 0.1", ("ward", "ward, month"), "cost", 500, 30,
    ),
)  # fmt: skip
REAL = (
    People(
        "taxi routes", TAXI, "DOMAIN weekday RANGE 1 TO 8 STEP 1, DOMAIN hour RANGE 0 TO 24 STEP 1, "
        "CLAMP tip BETWEEN 0 AND 100 STEP 0.01", ("hour", "weekday, hour"), "tip", 100, 3,
    ),
    People(
        "flights of an airport and day", FLIGHTS, "DOMAIN dest FROM listed.name, DOMAIN month RANGE 1 TO 13 STEP 1, "
        "CLAMP delay BETWEEN -60 AND 600 STEP 1", ("dest", "dest, month"), "delay", 660, 5,
    ),
    People("jobs of a home block", JOBS, "DOMAIN work FROM listed.name", ("work",)),
    People("gifts of donors", GIFTS, "DOMAIN year RANGE 0 TO 9 STEP 1", ("year",)),
)  # fmt: skip


class Table:
    """A table with its policy, and the errors of statements about it."""

    def __init__(self, people: People) -> None:
        self.people, self.con = people, dpduck.connect(":memory:")
        self.con.execute(f"CREATE TABLE t AS {people.sql.replace('{}', str(DATA))}")
        if "listed.name" in people.domains:
            self.con.execute(f"CREATE TABLE listed AS SELECT DISTINCT {people.keys[0]} AS name FROM t")
            self.dp("DECLARE PUBLIC TABLE listed")
        self.dp(
            f"CREATE PRIVACY POLICY ON t (PRIVACY UNIT person MAX ROWS {MOST_ROWS}, "
            f"BUDGET (epsilon = 1000000, delta = 1e-6), {people.domains})"
        )
        self.number = 0

    def dp(self, statement: str) -> list[tuple[object, ...]]:
        return self.con.execute("FROM dp(?)", [statement]).fetchall()

    def truths(self, keys: str, aggregate: str) -> dict[tuple[object, ...], tuple[float, float]]:
        """The exact answer and the rows of each group."""
        rows = self.con.execute(f"SELECT {keys}, {aggregate}, count(*) FROM t GROUP BY {keys}").fetchall()
        return {row[:-2]: (float(row[-2] or 0), float(row[-1])) for row in rows}

    def error(self, keys: str, aggregate: str, options: str, epsilon: float) -> float:
        """The mean error of a few releases."""
        truths, found = self.truths(keys, aggregate), []
        for _ in range(DRAWS):
            self.number += 1
            clause = f"OPTIONS (epsilon = {epsilon}, delta = {DELTA}, refresh = '{self.number}'{options})"
            answers = self.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY {clause} {keys}, {aggregate} FROM t GROUP BY {keys}")
            told = {row[:-1]: row[-1] for row in answers}
            pairs = [(told.get(group), *truth) for group, truth in truths.items() if group in told]
            off = [abs(float(str(one)) - truth) if one is not None else abs(truth) for one, truth, _ in pairs]
            if not aggregate.startswith("avg"):
                off = [one / abs(truth) if truth else 1.0 for one, (_, truth, _) in zip(off, pairs, strict=True)]
            found.append(weighted_median(np.array(off), np.array([rows for _, _, rows in pairs])))
        return float(np.mean(found))


def weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    """The value at which half of the weight is reached."""
    order = np.argsort(values)
    place = int(np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2))
    return float(values[order][min(place, len(values) - 1)])


def statements(people: People) -> Iterator[tuple[str, str, str]]:
    """The kind, keys and aggregate of each statement."""
    for keys in people.keys:
        yield "counts", keys, "count(*)"
        yield "persons", keys, "count(DISTINCT person)"
    if people.value:
        yield "averages", people.keys[0], f"avg({people.value})"
        yield "sums", people.keys[0], f"sum({people.value})"


def norms(people: People, kind: str) -> Iterator[str]:
    """Options of the grid of norms."""
    if kind in ("counts", "persons"):
        yield from (f", max_norm_contributed = {norm}" for norm in NORMS)
        return
    for norm, sums in product(NORMS[2::2], SUM_NORMS):
        stated = f", max_sum_norm_contributed = {sums * people.clamp / 10 * norm**0.5:.6g}"
        yield f", max_norm_contributed = {norm}{stated}{centre(people, kind)}"


def centre(people: People, kind: str) -> str:
    return f", centers = {people.centre}" if kind == "averages" else ""


def main() -> int:
    """Prints a line a statement, and geometric means of ratios by kind, with their gates."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--tables", type=int, default=99, help="the first so many tables alone")
    given = parser.parse_args()
    tables = [*MADE, *(REAL if DATA.is_dir() else ())][: given.tables]
    if not DATA.is_dir():
        print("no ../shared/data: made tables alone")
    ratios: dict[str, list[tuple[float, float]]] = {}
    print(f"epsilon = {given.epsilon:g}, delta = {DELTA}; errors in per cent, of averages in the column's units")
    print(f"{'table':32} {'statement':44} {'best rows':>10} {'best norm':>10} {'private':>10}")
    for people in tables:
        try:
            table = Table(people)
        except duckdb.Error as error:
            print(f"{people.name}: not measured ({str(error).splitlines()[0][:90]})")
            continue
        for kind, keys, aggregate in statements(people):
            rows = min(table.error(keys, aggregate, f", max_rows_contributed = {most}", given.epsilon) for most in ROWS)
            norm = min(table.error(keys, aggregate, options, given.epsilon) for options in norms(people, kind))
            options = f", max_norm_contributed = 'private'{centre(people, kind)}"
            private = table.error(keys, aggregate, options, given.epsilon)
            times = 1 if kind == "averages" else 100
            line = " ".join(f"{times * one:10.3g}" for one in (rows, norm, private))
            print(f"{people.name:32} {aggregate + ' by ' + keys:44} {line}", flush=True)
            ratios.setdefault(kind, []).append((norm / rows, private / norm))
    return gates(ratios)


def gates(ratios: dict[str, list[tuple[float, float]]]) -> int:
    """Prints geometric means. Returns 1 where a gate is missed."""
    most = {"counts": (0.7, 1.3), "persons": (1.0, 1.3), "averages": (0.35, 2.0), "sums": (0.7, 1.3)}
    missed = False
    for kind, found in ratios.items():
        means = [exp(sum(log(one[place]) for one in found) / len(found)) for place in range(2)]
        met = [mean <= gate for mean, gate in zip(means, most[kind], strict=True)]
        missed |= not all(met)
        print(
            f"{kind}: best norm over best rows {means[0]:.2f} (gate {most[kind][0]}: {'PASS' if met[0] else 'FAIL'}), "
            f"private over best norm {means[1]:.2f} (gate {most[kind][1]}: {'PASS' if met[1] else 'FAIL'})"
        )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
