"""What dp_explain says a synthetic table takes, beside what it takes: made tables, every mechanism, and free samples.

Gate (exit status 1): each within a factor of 3, for those that take a second or more. Shorter ones inform: planning,
the ledger and the store are most of them.
Time is processor time of the whole process, from the end of the count on (of samples, of the whole statement). The time
of the count is not predicted. Columns follow a kind of row, so that there is something to fit.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from time import process_time

import duckdb

import dpduck

ROWS, COLUMNS, FACTOR, LEAST = 100_000, 24, 3.0, 1.0
SIZES = [2 + 2 * (place % 4) for place in range(COLUMNS)]
COLUMN = "(hash(i, {0}) % 5 > 1)::INT * (i // 2 % 7 * {0} % {1}) + (hash(i, {0}) % 5 < 2)::INT * (hash(i + {0}) % {1})"
STATEMENTS = (
    ("rho = 0.5", 8, 3, "cube"),
    ("epsilon = 2", 8, 2, "cube"),
    ("rho = 0.05", 9, 2, "cube"),
    ("rho = 0.02", 14, 3, "aim"),
    ("rho = 0.5", 14, 3, "aim"),
    ("rho = 0.02", 24, 3, "aim"),
    ("epsilon = 2", 14, 2, "aim"),
    ("rho = 0.02", 8, 2, "mwem"),
    ("rho = 0.5", 8, 3, "mwem"),
)
"""Price, columns, marginals of so many at a time, mechanism."""

SAMPLES = ("SAMPLE 1000000 FROM private.cube", "SAMPLE 1000000 FROM KNOWN people (c0, c1, c2, c3, c4, c5, c6, c7)")


class Clock:
    """Notes when the count has ended."""

    def __init__(self) -> None:
        self.began = 0.0

    def __call__(self, step: str) -> None:
        if step == "after the count":
            self.began = process_time()


def gate(text: str, told: float, took: float) -> bool:
    passed = 1 / FACTOR <= took / told <= FACTOR
    verdict = ("PASS" if passed else "FAIL") if took >= LEAST else "    "
    print(f"{verdict}  {text}: {took:.2f} s, told {told:.2f} s, {took / told:.2f} times", flush=True)
    return passed or took < LEAST


def measured(con: duckdb.DuckDBPyConnection, clock: Clock, text: str, label: str) -> bool:
    told = con.execute("SELECT seconds FROM dp_explain(?) WHERE chosen", [text]).fetchall()[0][0]
    clock.began = process_time()
    con.execute("FROM dp(?)", [text]).fetchall()
    return gate(label, told, process_time() - clock.began)


def main() -> int:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    clock, passed = Clock(), True
    with tempfile.TemporaryDirectory() as directory:
        os.environ["DPDUCK_STATE_DIR"] = directory
        with duckdb.connect(str(Path(directory) / "people.duckdb")) as con:
            dpduck.load(con, steps=clock)
            made = ", ".join(f"{COLUMN.format(place, size)} AS c{place}" for place, size in enumerate(SIZES))
            con.execute(f"CREATE TABLE people AS SELECT i // 2 AS person, {made} FROM range({rows}) AS r(i)")
            domains = ", ".join(
                f"DOMAIN c{place} IN ({', '.join(map(str, range(size)))})" for place, size in enumerate(SIZES)
            )
            policy = f"PRIVACY UNIT person MAX ROWS 2, BUDGET (rho = 1000), {domains}, EXPECT ROWS {rows}"
            con.execute(f"FROM dp('CREATE PRIVACY POLICY ON people ({policy})')")
            for number, (price, columns, order, mechanism) in enumerate(STATEMENTS):
                listed = ", ".join(f"c{place}" for place in range(columns))
                options = f"OPTIONS ({price}, mechanism = '{mechanism}')"
                text = (
                    f"PRIVATE TABLE made{number} {options} AS SELECT {listed} FROM people WORKLOAD MARGINALS ({order})"
                )
                label = f"{mechanism}, {columns} columns, {order} at a time, {price}"
                passed &= measured(con, clock, f"CREATE {text}", label)
            listed = ", ".join(f"c{place}" for place in range(8))
            cube = f"SELECT {listed}, count(*) AS n FROM people GROUP BY MARGINALS (3, {listed})"
            con.execute("FROM dp(?)", [f"CREATE PRIVATE VIEW cube OPTIONS (rho = 0.5) AS {cube}"]).fetchall()
            for number, sample in enumerate(SAMPLES):
                passed &= measured(con, clock, f"CREATE PRIVATE TABLE drawn{number} AS {sample}", sample)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
