"""What a statement costs before it reads rows: new releases over 5,000 rows, one of each shape asked before.

Informs, beside aims of 35 ms for a new answer and 8 ms for one asked again, on an idle machine: the median of 21
releases, each with its own charge, analysis, noise, table and commit to disk; the same statement asked again, which is
answered from the store; the first of a shape; in brackets, what of these the statement's own thread computed; and, to
compare machines by, how long DuckDB takes to list its functions, which a statement over a database that can be written
does once, beside its other work. All of it for such a database and for a read-only one, as a server's is.
Traps avoided: a warm-up of each shape; every release is told apart by `refresh` and paid for; the state directory is
on the same disk as the store. Time on a processor tells what waiting hides where others use the machine, too.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import duckdb

import dpduck

ROUNDS = 21
NEW, AGAIN = 0.035, 0.008
ANNOTATED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5, refresh = '{}') "
SHAPES = {
    "count by one column": "sex, count(*) AS n FROM visits GROUP BY sex",
    "average and its error": "sex, avg(charge + 1) AS a, dp_stderr(a) AS e FROM visits GROUP BY sex",
    "count and sum in a cube": "sex, age, count(*) AS n, sum(charge) AS s FROM visits WHERE charge > 3 "
    "GROUP BY CUBE (sex, age) ORDER BY n",
    "count after a join": "region, count(*) AS n FROM visits JOIN wards ON ward = name GROUP BY region",
}
POLICY = """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 100000),
    DOMAIN sex IN ('F', 'M'), DOMAIN age RANGE 0 TO 100 STEP 5, DOMAIN ward FROM wards.name,
    CLAMP charge BETWEEN 0 AND 100 STEP 0.5)"""


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


def seconds(connection: duckdb.DuckDBPyConnection, statement: str) -> tuple[float, float]:
    """How long an answer takes, fetched; how much of it this thread computed."""
    begin, computed = time.perf_counter(), time.thread_time()
    connection.execute("FROM dp(?)", [statement]).fetchall()
    return time.perf_counter() - begin, time.thread_time() - computed


def medians(connection: duckdb.DuckDBPyConnection, statements: Sequence[str]) -> str:
    """The medians of both, in milliseconds."""
    taken = [seconds(connection, statement) for statement in statements]
    whole, own = (1e3 * median(one) for one in zip(*taken, strict=True))
    return f"{whole:6.1f} ms ({own:5.1f})"


def shapes(connection: duckdb.DuckDBPyConnection, kind: str) -> None:
    """One line for each shape. kind: of database."""
    print(f"{kind}: new (aim {1e3 * NEW:.0f} ms), again (aim {1e3 * AGAIN:.0f} ms), the first, a list of functions")
    for name, shape in SHAPES.items():
        tagged = [ANNOTATED.format(f"{kind} {number}") + shape for number in range(ROUNDS + 2)]
        first, _ = seconds(connection, tagged[0])
        seconds(connection, tagged[1])
        new, again = medians(connection, tagged[2:]), medians(connection, tagged[:1] * ROUNDS)
        listing = median(listed(connection) for _ in range(ROUNDS))
        print(f"  {name:24} {new}  {again}  {1e3 * first:7.1f} ms  {1e3 * listing:5.1f} ms", flush=True)


def main() -> int:
    """Both kinds of databases."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPDUCK_STATE_DIR"] = folder
        with make_clinic(Path(folder)) as connection:
            shapes(connection, "written to")
        with dpduck.connect(Path(folder) / "clinic.duckdb", read_only=True) as connection:
            shapes(connection, "read-only")
    return 0


def listed(connection: duckdb.DuckDBPyConnection) -> float:
    """How long DuckDB takes to list its functions."""
    begin = time.perf_counter()
    connection.execute("SELECT count(*) FROM duckdb_functions()").fetchall()
    return time.perf_counter() - begin


if __name__ == "__main__":
    sys.exit(main())
