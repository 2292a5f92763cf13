"""TPC-H with the customer as privacy unit: annotated queries at epsilon 1 beside DuckDB's exact answers, one run.

Gates: at scale factor 1 each query takes at most 5 times DuckDB's own time. With --prepared, the tables prepared
before, at most 3, and at scale factor 10 at most 1.5, of a database that is opened read-only, as a server
opens it. Informs: relative errors, times at scale factor 0.1, and those of prepared tables in a database that can be
written. Traps avoided: both sides run alternately on one connection after a round that warms DuckDB's buffers. Every
annotated run is a new release with its own charge, analysis, noise and table; medians of five. Errors are medians over
the cells that the exact answer holds and over releases. A cell's error is relative to its exact value.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import duckdb

import dpduck
from benchmarks.speed._tpch import QUERIES, Query, make_database, protect

ROUNDS = 5
LIMITS = {"1": 5.0}
PREPARED_LIMITS = {"1": 3.0, "10": 1.5}


def cells(rows: Sequence[tuple[Any, ...]], keys: int) -> dict[tuple[str, ...], list[float]]:
    """Answers by key."""
    return {tuple(map(str, row[:keys])): [float(value or 0) for value in row[keys:]] for row in rows}


def errors(exact: dict[tuple[str, ...], list[float]], noisy: dict[tuple[str, ...], list[float]]) -> list[float]:
    """Relative errors of the cells that the exact answer holds. 1 where the noisy answer lacks the cell."""
    found = []
    for key, values in exact.items():
        answered = noisy.get(key, [0.0] * len(values))
        found += [abs(one - value) / abs(value) for one, value in zip(answered, values, strict=True) if value]
    return found


def run(connection: duckdb.DuckDBPyConnection, query: Query, title: str) -> tuple[float, float, float]:
    """Median seconds of DuckDB and of the annotated statement, and the median relative error. title: told apart by."""
    own, ours, found = [], [], []
    for number in range(ROUNDS + 1):
        start = time.perf_counter()
        exact = connection.execute(query.exact).fetchall()
        middle = time.perf_counter()
        noisy = connection.execute("FROM dp(?)", [query.annotated(f"{title}, round {number}")]).fetchall()
        end = time.perf_counter()
        if number:
            own.append(middle - start)
            ours.append(end - middle)
            found += errors(cells(exact, query.keys), cells(noisy, query.keys))
    return median(own), median(ours), median(found)


def prepare(connection: duckdb.DuckDBPyConnection) -> None:
    """Prepares every table that has a policy."""
    tables = [row[0] for row in connection.execute("SELECT table_name FROM dp_policies()").fetchall()]
    start = time.perf_counter()
    connection.execute("FROM dp(?)", [f"ALTER PRIVACY POLICY ON {', '.join(tables)} PREPARE"]).fetchall()
    print(f"{len(tables)} tables prepared in {time.perf_counter() - start:.1f} s")


def table(folder: Path, scale: str, prepared: bool) -> bool:
    """Prints a line for each query. Returns whether every gate is met."""
    path = folder / f"tpch_{scale.replace('.', '_')}.duckdb"
    make_database(path, scale)
    with dpduck.connect(path) as connection:
        protect(connection)
        if not prepared:
            return asked(connection, f"scale factor {scale}", LIMITS.get(scale))
        prepare(connection)
        asked(connection, f"scale factor {scale}, written to", None)
    with dpduck.connect(path, read_only=True) as connection:
        return asked(connection, f"scale factor {scale}, read-only", PREPARED_LIMITS.get(scale))


def asked(connection: duckdb.DuckDBPyConnection, title: str, limit: float | None) -> bool:
    """Prints a line for each query under a title. Returns whether every ratio is within the limit."""
    good = True
    print(f"{title}: query, DuckDB, dpduck at epsilon 1, ratio, median relative error")
    for query in QUERIES:
        own, ours, error = run(connection, query, title)
        ratio = ours / own
        verdict = "informs" if limit is None else f"gate <= {limit:g}: " + ("met" if ratio <= limit else "MISSED")
        good = good and (limit is None or ratio <= limit)
        print(f"  Q{query.number:<3} {own:8.3f} s {ours:8.3f} s {ratio:7.2f} {error:10.4%}  {verdict}", flush=True)
    return good


def main() -> int:
    """Runs both scale factors, or those named on the command line. --prepared prepares the tables first."""
    scales = [word for word in sys.argv[1:] if word != "--prepared"] or ["0.1", "1"]
    prepared = "--prepared" in sys.argv
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPDUCK_STATE_DIR"] = folder
        results = [table(Path(folder), scale, prepared) for scale in scales]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
