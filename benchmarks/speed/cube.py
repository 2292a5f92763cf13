"""Released cubes beside DuckDB's exact GROUPING SETS, end to end through SQL, 20 M rows in a DuckDB file, one run.

Gates: all 56 three-way marginals of Adult's eight attributes at most 0.5 times DuckDB's own GROUPING SETS; a
full CUBE of six attributes likewise; plan, noise and recovery of the 56 marginals under 1 s. Informs: the same under
pure epsilon, whose search for views is part of the time. Traps avoided: both sides alternate on one connection after
one warm round; DuckDB's rows are fetched as Arrow; a release is new each time (refresh), stored, charged and fetched.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from math import prod
from pathlib import Path
from statistics import median

import duckdb
import numpy as np

import dpduck
from benchmarks.speed.counting import SIZES, make_table
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.integers import discrete_gaussian
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.choose import plan_workload
from dpduck.strategies.recovery.recover import recover

NAMES = [f"u{column}" for column in range(8)]
THREE_WAY = f"MARGINALS (3, {', '.join(NAMES)})"
THREE_WAY_SETS = "GROUPING SETS (" + ", ".join(f"({', '.join(chosen)})" for chosen in combinations(NAMES, 3)) + ")"
CUBE = f"CUBE ({', '.join(NAMES[:6])})"
ROUNDS = 3
PURE = "epsilon = 1"


def statement(columns: list[str], grouping: str, price: str, tag: str) -> str:
    listed = ", ".join(columns)
    return (
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}, refresh = '{tag}') {listed}, count(*) AS n, dp_stderr(n) "
        f"FROM t GROUP BY {grouping}"
    )


def policy() -> str:
    domains = ", ".join(
        f"DOMAIN {name} IN ({', '.join(map(str, range(size)))})" for name, size in zip(NAMES, SIZES, strict=True)
    )
    return f"CREATE PRIVACY POLICY ON t (PRIVACY UNIT ROW, BUDGET (rho = 90), {domains})"


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(con: duckdb.DuckDBPyConnection, title: str, columns: list[str], sets: tuple[str, str], price: str) -> float:
    """Median time of the release over the median time of DuckDB's own query."""
    private, exact = [], []
    query = f"SELECT {', '.join(columns)}, count(*) AS n FROM t GROUP BY {sets[1]}"
    for turn in range(ROUNDS + 1):
        text = statement(columns, sets[0], price, f"{title} {turn}")
        exact.append(seconds(lambda query=query: con.execute(query).to_arrow_table()))
        private.append(seconds(lambda text=text: con.execute("FROM dp($1)", [text]).to_arrow_table()))
    ratio = median(private[1:]) / median(exact[1:])
    print(
        f"{title:46s} {median(private[1:]):7.2f} s  DuckDB exact {median(exact[1:]):7.2f} s  ratio {ratio:5.2f}", end=""
    )
    return ratio


def statistical_part() -> float:
    """Times plan, exact noise on exact zeros, and recovery, without counting."""
    sets = tuple(combinations(range(8), 3))
    workload = MarginalWorkload(SIZES, sets, (1.0,) * len(sets))
    entropy = operating_system_entropy()

    def once() -> None:
        plan = plan_workload(workload, NoiseKind.GAUSSIAN, Fraction(1, 2), 1)[0]
        noisy = []
        for measurement in plan.measurements:
            exact = measurement.query.apply(np.zeros([SIZES[i] for i in measurement.query.attributes], np.int64))
            noisy.append(
                exact + discrete_gaussian(measurement.parameter, prod(exact.shape), entropy).reshape(exact.shape)
            )
        recover(plan, noisy)

    return median(seconds(once) for _ in range(ROUNDS))


def gate(ratio: float, limit: float, failed: list[str], title: str) -> None:
    print(f"  gate {limit}: {'PASS' if ratio <= limit else 'FAIL'}", flush=True)
    if ratio > limit:
        failed.append(title)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=20_000_000)
    rows = arguments.parse_args().rows
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPDUCK_STATE_DIR"] = str(Path(folder) / "state")
        make_table(Path(folder) / "t.duckdb", rows)
        with dpduck.connect(Path(folder) / "t.duckdb") as con:
            con.execute("FROM dp($1)", [policy()]).fetchall()
            sets = (THREE_WAY, THREE_WAY_SETS)
            ratio = compare(con, "56 three-way marginals, Gaussian", NAMES, sets, "rho = 0.5")
            gate(ratio, 0.5, failed, "three-way")
            ratio = compare(con, "CUBE of six attributes, Gaussian", NAMES[:6], (CUBE, CUBE), "rho = 0.5")
            gate(ratio, 0.5, failed, "cube")
            compare(con, "56 three-way marginals, pure epsilon", NAMES, sets, PURE)
            print("  informs")
            compare(con, "CUBE of six attributes, pure epsilon", NAMES[:6], (CUBE, CUBE), PURE)
            print("  informs")
    taken = statistical_part()
    print(f"{'plan, noise and recovery of 56 marginals':46s} {taken:7.2f} s", end="")
    gate(taken, 1.0, failed, "statistical part")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
