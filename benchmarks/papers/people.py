"""People with several rows: best MAX ROWS, best bounds by group, best norm, private norms, totals and the default.

Through SQL, from the table to the answer: one statement at a time, at (epsilon, 1e-6), with a generous MAX ROWS in the
policy. A group's error is |answer - truth| over the truth, and of averages |answer - truth|. A statement's error is the
median over its groups, by their rows, and the mean over DRAWS releases. "Rows" is the best max_rows_contributed of a
grid, "by group" the best max_groups_contributed and contribution_bounds_per_group, "norm" the best
max_norm_contributed. The error that is shown chooses them: nobody could choose so well. "Private" is
max_norm_contributed = 'private'. "Total" adds total = TRUE. "Default" is a statement that says no bounds. All three are
paid for out of the same price. "Held" is the part of rows in groups where the default's interval of 95 per cent holds
the true answer. Bias and noise are shown apart for the best rows, the best norm and the default: roots of mean squares
over groups, by their rows, from the means and the variances of the releases.

Gates, of geometric means over statements: the total at most 1.3 times the best norm for counts and persons. Private is
at most 1.3 times for sums and 2 times for averages. The best norm is at most 0.7 times the best rows for counts, and
0.35 times for averages. The default of cubes is at most half of the best rows. Intervals of counts, persons and sums
hold the truth in 93 per cent, on the mean. Traps avoided: truths are of the whole table, so that rows beyond a bound
are an error. All bounds have the same statements. Bounds that err twice as much as the best of their grid so far, in
one release, have no second one. Groups without rows have no relative error and are left out for all
alike. Tables of others need ../shared/data or $DPDUCK_DATA.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from math import exp, inf, log
from pathlib import Path

import duckdb
import numpy as np

import dpduck

DATA = Path(os.environ.get("DPDUCK_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
DRAWS, DELTA, HOPELESS = 3, "1e-6", 2
BY_GROUP = "contribution_bounds_per_group"
MOST_ROWS = 1000
ROWS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
NORMS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 150, 300)
SUM_NORMS = (0.3, 1, 3, 10, 30, 100)
"""Of averages and sums: in units of a tenth of the clamp."""


@dataclass(frozen=True)
class People:
    """People with several rows. sql: their rows. domains: of the keys, and a clamp. clamp: width. value: for averages,
    with a public guess.
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
COMMUTERS = """SELECT home_county AS person, work_county AS work FROM '{}/od_us_counties.parquet',
    LATERAL (SELECT unnest(range(workers // 1000)))"""
LINES = """SELECT o_custkey AS person, l_shipmode AS mode, CAST(month(l_shipdate) AS INTEGER) AS month,
    CAST(l_quantity AS DOUBLE) AS quantity FROM tpch.lineitem JOIN tpch.orders ON l_orderkey = o_orderkey"""
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
    People("commuters of a county", COMMUTERS, "DOMAIN work FROM listed.name", ("work",)),
)  # fmt: skip
TPCH = People(
    "lines of TPC-H's customers", LINES,
    "DOMAIN mode IN ('AIR', 'FOB', 'MAIL', 'RAIL', 'REG AIR', 'SHIP', 'TRUCK'), DOMAIN month RANGE 1 TO 13 STEP 1, "
    "CLAMP quantity BETWEEN 0 AND 50 STEP 1",
    ("mode", "mode, month"), "quantity", 50, 25,
)  # fmt: skip
"""At scale factor 0.1."""


@dataclass(frozen=True)
class Errors:
    """The errors of a few releases of a statement. error: the mean. held: the part of all rows that intervals hold."""

    error: float
    held: float
    bias: float
    noise: float


class Table:
    """A table with its policy, and the errors of statements about it."""

    def __init__(self, people: People) -> None:
        self.people, self.con = people, dpduck.connect(":memory:")
        self.open(people.sql.replace("{}", str(DATA)))
        if "listed.name" in people.domains:
            self.con.execute(f"CREATE TABLE listed AS SELECT DISTINCT {people.keys[0]} AS name FROM t")
            self.dp("DECLARE PUBLIC TABLE listed")
        self.dp(
            f"CREATE PRIVACY POLICY ON t (PRIVACY UNIT person MAX ROWS {MOST_ROWS}, "
            f"BUDGET (epsilon = 1000000, delta = 1e-6), {people.domains})"
        )
        self.number = 0

    def open(self, sql: str) -> None:
        """Makes the table, from TPC-H's generator where it reads that."""
        if "tpch." not in sql:
            self.con.execute(f"CREATE TABLE t AS {sql}")
            return
        make_database = import_module("benchmarks.speed._tpch").make_database  # needs an extension
        with tempfile.TemporaryDirectory() as folder:
            make_database(Path(folder) / "tpch.duckdb", "0.1")
            self.con.execute(f"ATTACH '{folder}/tpch.duckdb' AS tpch (READ_ONLY)")
            self.con.execute(f"CREATE TABLE t AS {sql}")
            self.con.execute("DETACH tpch")

    def dp(self, statement: str) -> list[tuple[object, ...]]:
        return self.con.execute("FROM dp(?)", [statement]).fetchall()

    def truths(self, keys: str, aggregate: str) -> dict[tuple[object, ...], tuple[float, float]]:
        """The exact answer and the rows of each group."""
        listed = keys.removeprefix("CUBE (").removesuffix(")")
        rows = self.con.execute(f"SELECT {listed}, {aggregate}, count(*) FROM t GROUP BY {keys}").fetchall()
        return {row[:-2]: (float(row[-2] or 0), float(row[-1])) for row in rows}

    def error(self, keys: str, aggregate: str, options: str, epsilon: float) -> float:
        """The mean error of a few releases."""
        return self.asked(keys, aggregate, options, epsilon).error

    def asked(self, keys: str, aggregate: str, options: str, epsilon: float, known: float = inf) -> Errors:
        """The errors of a few releases, or of one release if it has more than twice a known error."""
        exact = "count(*)" if BY_GROUP in aggregate else aggregate
        listed = keys.removeprefix("CUBE (").removesuffix(")")
        truths, found, held, signed = self.truths(keys, exact), [], [], []
        for _ in range(DRAWS):
            self.number += 1
            clause = f"OPTIONS (epsilon = {epsilon}, delta = {DELTA}, refresh = '{self.number}'{options})"
            shown = f"{aggregate} AS n, dp_interval_low(n) AS low, dp_interval_high(n) AS high"
            answers = self.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY {clause} {listed}, {shown} FROM t GROUP BY {keys}")
            told = {row[:-3]: row[-3:] for row in answers}
            pairs = [(told[group], *truth) for group, truth in truths.items() if group in told]
            off = np.array([float(str(one[0] or 0)) - truth for one, truth, _ in pairs])
            if not aggregate.startswith("avg"):
                off = off / [
                    abs(truth) or max(1.0, abs(error)) for error, (_, truth, _) in zip(off, pairs, strict=True)
                ]
            weights = np.array([rows for _, _, rows in pairs])
            inside = [float(str(one[1])) <= truth <= float(str(one[2])) for one, truth, _ in pairs]
            found.append(weighted_median(np.abs(off), weights))
            held.append(float(np.average(inside, weights=weights)))
            signed.append(off)
            if found[-1] > HOPELESS * known:
                break
        spread = np.var(signed, axis=0, ddof=1) if len(signed) > 1 else np.zeros(len(weights))
        squared = np.mean(signed, axis=0) ** 2 - spread / len(signed)
        bias, noise = (float(np.average(one, weights=weights)) for one in (squared, spread))
        return Errors(float(np.mean(found)), float(np.mean(held)), max(0.0, bias) ** 0.5, noise**0.5)


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
        if "," in keys:
            yield "cubes", f"CUBE ({keys})", "count(*)"
    if people.value:
        yield "averages", people.keys[0], f"avg({people.value})"
        yield "sums", people.keys[0], f"sum({people.value})"
        yield "variances", people.keys[0], f"var_pop({people.value})"


def norms(people: People, kind: str) -> Iterator[str]:
    """Options of the grid of norms."""
    if kind in ("counts", "persons", "cubes"):
        yield from (f", max_norm_contributed = {norm}" for norm in NORMS)
        return
    for norm, sums in product(NORMS[2::2], SUM_NORMS):
        stated = f", max_sum_norm_contributed = {sums * people.clamp / 10 * norm**0.5:.6g}"
        yield f", max_norm_contributed = {norm}{stated}{centre(people, kind)}"


def centre(people: People, kind: str) -> str:
    return f", centers = {people.centre}" if kind in ("averages", "variances") else ""


def by_group(table: Table, keys: str, epsilon: float) -> float:
    """The least error of counts that are bounded by group, in so many groups."""
    ways = [f", max_groups_contributed = {groups}" for groups in (1, 3, 10, 30)]
    counts = [f"count(*, {BY_GROUP} => (0, {most}))" for most in (1, 3, 10, 30, 100)]
    return min(best(table, keys, count, ways, epsilon).error for count in counts)


NAMES = ("best rows", "by group", "best norm", "private", "total", "default")
APART = ("best rows", "best norm", "default")
"""Ways that show bias and noise apart."""


def main() -> int:
    """Prints a line a statement, and geometric means of ratios by kind, with their gates."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--tables", type=int, default=99, help="the first so many tables alone")
    given = parser.parse_args()
    lines = (TPCH,) if find_spec("duckdb_extension_tpch") else ()
    tables = [*MADE, *(REAL if DATA.is_dir() else ()), *lines][: given.tables]
    if not DATA.is_dir():
        print("no ../shared/data: made tables alone")
    found: dict[str, list[dict[str, float]]] = {}
    print(f"epsilon = {given.epsilon:g}, delta = {DELTA}; errors in per cent, of averages in the column's units")
    columns = "".join(f"{name:>11}" for name in (*NAMES, "held"))
    print(f"{'table':30} {'statement':40}{columns}" + "".join(f"{f'{name}: bias, noise':>26}" for name in APART))
    for people in tables:
        try:
            table = Table(people)
        except duckdb.Error as error:
            print(f"{people.name}: not measured ({str(error).splitlines()[0][:90]})")
            continue
        for kind, keys, aggregate in statements(people):
            errors = measured(table, kind, keys, aggregate, given.epsilon)
            times = 1 if kind == "averages" else 100
            line = "".join(f"{times * errors[name]:11.3g}" if name in errors else f"{'':11}" for name in NAMES)
            print(
                f"{people.name:30} {aggregate + ' by ' + keys:40}{line}{errors['held']:11.2f}{apart(errors, times)}",
                flush=True,
            )
            found.setdefault(kind, []).append(errors)
    return gates(found)


def apart(errors: dict[str, float], times: int) -> str:
    """Returns columns of bias and noise."""
    pairs = [(times * errors[f"{name} bias"], times * errors[f"{name} noise"]) for name in APART]
    return "".join(f"{f'{bias:.3g}, {noise:.3g}':>26}" for bias, noise in pairs)


def measured(table: Table, kind: str, keys: str, aggregate: str, epsilon: float) -> dict[str, float]:
    """The errors of a statement by each way, and the part of rows that intervals of the default hold."""
    people, private = table.people, f", max_norm_contributed = 'private'{centre(table.people, kind)}"
    ways = {
        "best rows": best(table, keys, aggregate, (f", max_rows_contributed = {most}" for most in ROWS), epsilon),
        "best norm": best(table, keys, aggregate, norms(people, kind), epsilon),
        "private": table.asked(keys, aggregate, private, epsilon),
        "default": table.asked(keys, aggregate, "", epsilon),
    }
    errors = {name: one.error for name, one in ways.items()}
    errors |= {f"{name} bias": ways[name].bias for name in APART} | {
        f"{name} noise": ways[name].noise for name in APART
    }
    if kind not in ("averages", "variances") and not (kind == "sums" and "-" in people.domains.rpartition("CLAMP")[2]):
        errors["total"] = table.error(keys, aggregate, f"{private}, total = TRUE", epsilon)
    if kind == "counts":
        errors["by group"] = by_group(table, keys, epsilon)
    errors["held"] = ways["default"].held
    return errors


def best(table: Table, keys: str, aggregate: str, ways: Iterable[str], epsilon: float) -> Errors:
    """Returns the errors of the options that err least. Options that are refused are left out."""
    found = Errors(inf, 0.0, 0.0, 0.0)
    for way in ways:
        with suppress(duckdb.InvalidInputException):  # noise of the largest bounds cannot be drawn at small prices
            found = min(found, table.asked(keys, aggregate, way, epsilon, found.error), key=lambda one: one.error)
    return found


GATES = (
    ("counts", "best norm", "best rows", 0.7), ("averages", "best norm", "best rows", 0.35),
    ("counts", "total", "best norm", 1.3), ("persons", "total", "best norm", 1.3),
    ("sums", "private", "best norm", 1.3),
    ("averages", "private", "best norm", 2.0), ("variances", "best norm", "best rows", 0.35),
    ("variances", "private", "best norm", 2.0), ("cubes", "default", "best rows", 0.5),
)  # fmt: skip
HELD = 0.93


def gates(found: dict[str, list[dict[str, float]]]) -> int:
    """Prints geometric means. Returns 1 where a gate is missed."""
    missed = False
    for kind, statement in found.items():
        for name in NAMES[1:]:
            pairs = [(one[name], one["best rows"]) for one in statement if name in one]
            if pairs:
                print(f"{kind}: {name} over best rows {mean_ratio(pairs):.2f}")
    for kind, name, beside, most in GATES:
        pairs = [(one[name], one[beside]) for one in found.get(kind, []) if name in one]
        if pairs:
            met = mean_ratio(pairs) <= most
            missed |= not met
            print(f"{kind}: {name} over {beside} {mean_ratio(pairs):.2f} (gate {most}: {'PASS' if met else 'FAIL'})")
    linear = [kind for kind in found if kind not in ("averages", "variances")]
    held = [one["held"] for kind in linear for one in found[kind]]
    met = bool(held) and sum(held) / len(held) >= HELD
    print(f"intervals hold {sum(held) / max(1, len(held)):.2f} of rows (gate {HELD}: {'PASS' if met else 'FAIL'})")
    return int(missed or not met)


def mean_ratio(pairs: list[tuple[float, float]]) -> float:
    return exp(sum(log(max(one, 1e-9) / max(other, 1e-9)) for one, other in pairs) / len(pairs))


if __name__ == "__main__":
    sys.exit(main())
