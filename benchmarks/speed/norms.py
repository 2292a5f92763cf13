"""Times the default for people with many rows beside a count by MAX ROWS: norms are found, weights applied.

The made table has people with one to five rows. One in ten has a heavy tail of up to some thousands. A text key and an
integer key have 200 groups. By default a statement finds a norm, weighs units, and measures a total and the sum of all
rows. It is asked again with max_rows_contributed = 20. Sides run alternately in one process. Each statement is new.
Figures are medians of processor time on one thread, so that other work on the machine counts little.

Gates: counts and persons by default at most 2.0 times the same by rows, sums 2.6, averages 3.2. Weights at a stated
norm have two gates. With one unit in a thousand above it, they take at most 1.3 times a plain count that keeps 4 rows
of each. With half of the units above it, they take at most 1.6 times a window over all rows.

Where each count of a statement read rows by itself, counts took 4.65 times as long as by rows, sums 5.3, persons 5.1
and averages 6.3. Two ways were measured and not kept: weights by a window over units and cells in place of a join (1.4
times the time), and squares in HUGEINT where BIGINT holds them (1.1 times).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from unittest.mock import patch

import duckdb

import dpduck
from benchmarks.speed.counting import make_table, stored_job
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.exact import count_exactly
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.rows import bounding, reader
from dpduck.kernel.rows.plans import keep_plans_plain

ROWS = 2_000_000
ROUNDS = 3
MANY, NORM = 1000, 16

PEOPLE = """CREATE TABLE visits AS WITH people AS (
    SELECT n AS person, CASE WHEN hash(n, 1) % 10 < 9 THEN 1 + (hash(n, 2) % 5)::BIGINT
    ELSE least(3000, (3 / pow(greatest((hash(n, 3) % 1000000) / 1e6, 1e-6), 0.9))::BIGINT) END AS n
    FROM range({people}) AS u(n)), drawn AS (SELECT person, i, hash(person, i) AS h
    FROM people, unnest(range(n)) AS t(i))
SELECT person, 'label ' || CASE WHEN h % 3 = 0 THEN hash(person) % 20 ELSE h // 3 % 20 END AS place,
    (h // 1000000 % 10)::INTEGER AS kind, h // 1000000000 % 1000 / 10.0 AS price
FROM drawn ORDER BY hash(person, i, 5)"""
POLICY = (
    f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT person MAX ROWS {MANY}, BUDGET (rho = 1000000), DOMAIN place IN "
    f"({', '.join(repr(f'label {n}') for n in range(20))}), DOMAIN kind IN ({', '.join(map(str, range(10)))}), "
    "CLAMP price BETWEEN 0 AND 100 STEP 0.1)"
)
STATEMENTS: dict[str, tuple[str, float]] = {
    "count(*)": ("count(*) AS n", 2.0),
    "sum(price)": ("sum(price) AS n", 2.6),
    "count(DISTINCT person)": ("count(DISTINCT person) AS n", 2.0),
    "avg(price)": ("avg(price) AS n", 3.2),
}
BY_ROWS = "max_rows_contributed = 20"


def seconds(work: Callable[[], object]) -> float:
    """Returns the processor time of all threads."""
    started = time.process_time()
    work()
    return time.process_time() - started


def medians(sides: Mapping[str, Callable[[], object]]) -> list[float]:
    """Returns the time of each side, which run alternately, after one round of each."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS + 1):
        for name, work in sides.items():
            found[name].append(seconds(work))
    return [median(times[1:]) for times in found.values()]


def reported(title: str, ours: float, other: float, gate: float) -> bool:
    """Prints a line, and tells whether the gate is met."""
    verdict = "PASS" if ours <= gate * other else "FAIL"
    print(
        f"{title:58s} {ours:7.3f} s  beside {other:7.3f} s  ratio {ours / other:5.2f}  gate {gate}: {verdict}",
        flush=True,
    )
    return verdict == "PASS"


def by_default(rows: int) -> list[bool]:
    """Compares statements by default with the same statements by rows."""
    met = []
    with dpduck.connect(config={"threads": 1}) as connection:
        connection.execute(PEOPLE.format(people=rows * 7 // 20))
        connection.execute("FROM dp(?)", [POLICY]).fetchall()
        asked = 0

        def ask(options: str, select: str) -> None:
            nonlocal asked
            asked += 1
            said = f"OPTIONS (rho = 0.1, refresh = '{asked}'{options})"
            text = f"SELECT WITH DIFFERENTIAL_PRIVACY {said} place, kind, {select} FROM visits GROUP BY place, kind"
            connection.execute("FROM dp(?)", [text]).fetchall()

        for title, (select, gate) in STATEMENTS.items():
            sides = {
                "ours": lambda select=select: ask("", select),
                "rows": lambda select=select: ask(f", {BY_ROWS}", select),
            }
            ours, other = medians(sides)
            met.append(reported(f"{title} by default, beside {BY_ROWS}", ours, other, gate))
    return met


def weights(path: Path) -> list[bool]:
    """Compares counts at a norm that is stated with plain ones."""
    met = []
    with duckdb.connect(str(path), read_only=True, config={"threads": 1}) as connection:
        keep_plans_plain(connection)

        def count(job: CountingJob, few: int = bounding.FEW) -> None:
            with patch.object(bounding, "FEW", few), connection.cursor() as cursor:
                reader.begin(cursor)
                count_exactly(cursor, job, b"key")

        for table, few, gate, beside in (
            ("thousandth", bounding.FEW, 1.3, "one unit in a thousand above the norm, beside 4 rows of each"),
            ("half", 1 << 62, 1.6, "half of the units above the norm, beside a window"),
        ):
            plain = stored_job(table)
            weighed = replace(plain, max_rows=MANY, aggregates=(Contribution(norm=NORM),))
            ours, other = medians(
                {
                    "ours": lambda weighed=weighed: count(weighed),
                    "plain": lambda plain=plain, few=few: count(plain, few),
                }
            )
            met.append(reported(beside, ours, other, gate))
    return met


def main() -> int:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as directory:
        with patch.dict(os.environ, {"DPDUCK_STATE_DIR": directory}):
            met = by_default(rows)
        path = Path(directory) / "counting.duckdb"  # the name of its catalog in stored_job
        make_table(path, rows)
        met += weights(path)
    print("PASS" if all(met) else "FAIL")
    return not all(met)


if __name__ == "__main__":
    raise SystemExit(main())
