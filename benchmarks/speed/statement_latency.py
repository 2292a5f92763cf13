"""What a statement costs before it reads rows: new releases over 5,000 rows, one of each shape asked before.

Gates, in processor time of all processes, on an idle machine of two cores: a new count takes at most 25 ms over a
database that is opened for reading alone and 40 ms over one that can be written. The same statement asked again, which
is answered from the store, 4 ms. An expression over a raw column, another one in each statement, 15 ms more than a
count; and of 1,000 different small statements on one connection there are at least 40 a second. The clock's time and
the other shapes inform: a cube, an average, a join. The first statement of a shape. And, to compare machines by, how
long DuckDB takes to list its functions, which a statement does once after something was written to the database.
Traps avoided: a warm-up of each shape. Medians of 21 releases, each with its own charge, analysis, noise, table and
commit to disk, all told apart by `refresh` or by a number in them. The state directory is on the same disk as the
store. Time on a processor tells what waiting hides where others use the machine, too.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import duckdb

import dpduck

ROUNDS = 21
STATEMENTS = 1_000
SETTLING = 2.5
"""Seconds after which a file's time tells a later write from the last one (dpduck/store/attached.py)."""

NEW = {"read-only": 0.025, "written to": 0.040}
AGAIN, MORE, RATE = 0.004, 0.015, 40
ANNOTATED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5, refresh = '{}') "
COUNT, EXPRESSION = "count by one column", "an expression"
SHAPES = {
    COUNT: "sex, count(*) AS n FROM visits GROUP BY sex",
    "average and its error": "sex, avg(charge + 1) AS a, dp_stderr(a) AS e FROM visits GROUP BY sex",
    "count and sum in a cube": "sex, age, count(*) AS n, sum(charge) AS s FROM visits WHERE charge > 3 "
    "GROUP BY CUBE (sex, age) ORDER BY n",
    "count after a join": "region, count(*) AS n FROM visits JOIN wards ON ward = name GROUP BY region",
}
WRITTEN = "sex, count(*) AS n FROM visits WHERE charge % 7 > 2.{} GROUP BY sex"
DIFFERENT = "sex, count(*) AS n FROM visits WHERE age < {} GROUP BY sex"
POLICY = """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 100000),
    DOMAIN sex IN ('F', 'M'), DOMAIN age RANGE 0 TO 100 STEP 5, DOMAIN ward FROM wards.name,
    CLAMP charge BETWEEN 0 AND 100 STEP 0.5)"""


@dataclass(frozen=True)
class Taken:
    """Seconds that statements took: by the clock and of processors, of this process and of its workers."""

    clock: float
    processor: float

    def __str__(self) -> str:
        return f"{1e3 * self.clock:6.1f} ms ({self.processor * 1e3:5.1f})"


def make_clinic(folder: Path) -> duckdb.DuckDBPyConnection:
    """5,000 visits of 1,250 patients in a file."""
    connection = dpduck.connect(folder / "clinic.duckdb")
    connection.execute(
        "CREATE TABLE visits AS SELECT range // 4 AS patient, ['F', 'M'][range % 2 + 1] AS sex, "
        "CAST(range * 7 % 100 AS INTEGER) AS age, 'w' || (range % 5) AS ward, range % 50 * 1.5 AS charge "
        "FROM range(5000)"
    )
    connection.execute("CREATE TABLE wards AS SELECT 'w' || range AS name, 'r' || (range % 2) AS region FROM range(5)")
    for statement in ("DECLARE PUBLIC TABLE wards", POLICY):
        connection.execute("FROM dp(?)", [statement]).fetchall()
    return connection


def processor_seconds() -> float:
    """Processor seconds of this process, and of every child that has ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def workers_seconds() -> float:
    """Returns the seconds of working children, to a hundredth. 0 where the system does not say."""
    ticks, own = 0, str(os.getpid())
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        ticks += int(fields[11]) + int(fields[12]) if fields[1] == own else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def taken(connection: duckdb.DuckDBPyConnection, statements: Sequence[str]) -> Taken:
    """The medians of the times to fetch answers. Workers' times are means, since the system reports them coarsely."""
    clocks, processors, workers = [], [], workers_seconds()
    for statement in statements:
        begin, used = time.perf_counter(), processor_seconds()
        connection.execute("FROM dp(?)", [statement]).fetchall()
        clocks.append(time.perf_counter() - begin)
        processors.append(processor_seconds() - used)
    return Taken(median(clocks), median(processors) + (workers_seconds() - workers) / len(statements))


def verdict(name: str, found: float, gate: float, unit: str) -> bool:
    """Prints and tells whether a figure is at most its gate, or at least, of a rate."""
    met = found >= gate if unit == "a second" else found <= gate
    print(f"  {name:42} {found:6.1f} {unit} (gate {gate:g}): {'PASS' if met else 'FAIL'}", flush=True)
    return met


def shapes(connection: duckdb.DuckDBPyConnection, kind: str) -> list[bool]:
    """One line for each shape, and the gates: which are met. kind: of database."""
    print(f"{kind}: new (of processors), again (of processors), the first, a list of functions")
    found: dict[str, tuple[Taken, Taken]] = {}
    for name, shape in {**SHAPES, EXPRESSION: WRITTEN}.items():
        numbers = range(100, 100 + ROUNDS + 2)
        tagged = [ANNOTATED.format(f"{kind} {number}") + shape.format(number) for number in numbers]
        first = taken(connection, tagged[:1])
        taken(connection, tagged[1:2])
        found[name] = taken(connection, tagged[2:]), taken(connection, tagged[:1] * ROUNDS)
        listing = median(listed(connection) for _ in range(min(ROUNDS, 5)))
        new, again = found[name]
        print(f"  {name:24} {new}  {again}  {1e3 * first.clock:7.1f} ms  {1e3 * listing:5.1f} ms", flush=True)
    (new, again), (computed, _) = found[COUNT], found[EXPRESSION]
    return [
        verdict("a new count", 1e3 * new.processor, 1e3 * NEW[kind], "ms"),
        verdict("a stored answer", 1e3 * again.processor, 1e3 * AGAIN, "ms"),
        verdict("an expression, beside a new count", 1e3 * (computed.processor - new.processor), 1e3 * MORE, "ms"),
    ]


def many(connection: duckdb.DuckDBPyConnection) -> bool:
    """Many different statements, one after the other."""
    begin, used, workers = time.perf_counter(), processor_seconds(), workers_seconds()
    for number in range(STATEMENTS):
        statement = ANNOTATED.format(f"many {number}") + DIFFERENT.format(number)
        connection.execute("FROM dp(?)", [statement]).fetchall()
    spent = processor_seconds() - used + workers_seconds() - workers
    print(f"  {STATEMENTS} statements: {STATEMENTS / (time.perf_counter() - begin):.1f} a second by the clock")
    return verdict("different statements, of a processor", STATEMENTS / spent, RATE, "a second")


def main() -> int:
    """Both kinds of databases."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPDUCK_STATE_DIR"] = folder
        with make_clinic(Path(folder)) as connection:
            time.sleep(SETTLING)
            met = shapes(connection, "written to")
        with dpduck.connect(Path(folder) / "clinic.duckdb", read_only=True) as connection:
            met += [*shapes(connection, "read-only"), many(connection)]
    return 0 if all(met) else 1


def listed(connection: duckdb.DuckDBPyConnection) -> float:
    """Times DuckDB's listing of its functions."""
    begin = time.perf_counter()
    connection.execute("SELECT count(*) FROM duckdb_functions()").fetchall()
    return time.perf_counter() - begin


if __name__ == "__main__":
    sys.exit(main())
