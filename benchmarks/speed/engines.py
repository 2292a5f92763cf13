"""Tables that lie in an engine: memory of dpduck's own process, and time beside DuckDB in process or native Spark SQL.

Gates, rows of a tenth as many people in Parquet, GROUP BY three columns, MAX ROWS 3: this process under 1 GB,
and for ten times the rows at most 1.2 times what it takes for one part of them. Sail with two workers at most 2 times
dpduck over DuckDB's own table on the same cores. Spark at most 1.5 times Spark SQL that bounds and counts the same.
Prepared, at most as long as dpduck over DuckDB's own table, or as that Spark SQL, and no more room than the Parquet.
Informs: how cost grows with rows, units, buckets and cells.

    python -m benchmarks.speed.engines [ROWS]                                         Sail
    .venv-spark/bin/python -m benchmarks.speed.engines [ROWS] --on connect            Spark, behind Spark Connect

Traps avoided: whoever is measured is a process of its own, which has one statement before the timed ones, so that the
engine has started its workers. Peaks are those of dpduck's process, the engine's are not among them. The same rows are
read from Parquet by the engine, and DuckDB has them as a table of its own, which is to its advantage.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

import dpduck
from dpduck.engines.spark import open_session
from tests.support.engine_servers import Server, sail_server, spark_connect

ROWS = 100_000_000
LEAST_FILES, ROWS_OF_FILE = 2, 1_000_000
ROUNDS = 2
SERVERS: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {
    "sail": partial(sail_server, parallelism=8),
    "connect": spark_connect,
}
MOST_MB, MOST_GROWTH, SAIL_GATE, SPARK_GATE = 1000.0, 1.2, 2.0, 1.5
PREPARED_GATE = 1.0
POLICY = """CREATE PRIVACY POLICY ON {} (PRIVACY UNIT person MAX ROWS 3, BUDGET (epsilon = 1000), EXPECT ROWS {},
    DOMAIN sex IN ('F', 'M'), DOMAIN age RANGE 0 TO 100 STEP 5, DOMAIN place RANGE 0 TO 100000 STEP 1,
    DOMAIN ward IN ('w0', 'w1', 'w2', 'w3', 'w4', 'w5', 'w6', 'w7', 'w8', 'w9', 'w10', 'w11'))"""
ASK = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, refresh = '{}') {}, count(*) FROM {} GROUP BY {}"
THREE = "sex, age, ward"
NATIVE = """SELECT sex, age, ward, count(*) FROM (
    SELECT sex, age, ward, row_number() OVER (PARTITION BY person ORDER BY keyed, sex, age, ward) AS place FROM (
        SELECT person, sex, least(greatest(age div 5, 0), 19) AS age, ward, xxhash64(7, sex, age, ward, place) AS keyed
        FROM {} WHERE person IS NOT NULL AND sex IN ('F', 'M') AND age >= 0 AND age < 100 AND ward IS NOT NULL))
    WHERE place <= 3 GROUP BY sex, age, ward"""


@dataclass(frozen=True)
class Run:
    """The task of one process. where: an engine's address, "" for DuckDB. table: its name, or a folder of Parquet."""

    where: str
    table: str
    rows: int
    columns: str = THREE
    buckets: int | None = None
    native: bool = False
    prepared: bool = False


def made(folder: Path, name: str, rows: int, people: int) -> Path:
    """A folder of Parquet files with rows that are scattered over them."""
    place = folder / name
    place.mkdir()
    columns = (
        f"(i * 7919) % {people} AS person, ['F', 'M'][1 + (hash(i) % 2)::INTEGER] AS sex, "
        "(hash(i, 1) % 100)::INTEGER AS age, 'w' || hash(i, 2) % 12 AS ward, (hash(i, 3) % 100000)::INTEGER AS place"
    )
    files = max(LEAST_FILES, rows // ROWS_OF_FILE)
    with duckdb.connect() as connection:
        for number in range(files):
            first, last = rows * number // files, rows * (number + 1) // files
            sql = f"SELECT {columns} FROM range({first}, {last}) AS r(i)"
            connection.execute(f"COPY ({sql}) TO '{place}/{number}.parquet'")
    return place


def put(server: Server, place: Path) -> str:
    name = f"db.{place.name}"
    server.session.sql(f"CREATE TABLE {name} USING parquet LOCATION 'file://{place}'").collect()
    return name


def measure(run: Run) -> None:
    """Prints the seconds of a statement, the best of some after an untimed one, and the peak of this process."""
    if run.native:
        session = open_session(run.where)
        times = timed(lambda _: session.sql(NATIVE.format(run.table)).toArrow())
    else:
        with dpduck.connect() as con:
            table = "visits"
            if run.where:
                (table,) = dpduck.attach_spark(con, run.where, name="lake", tables=[run.table], buckets=run.buckets)
            else:
                con.execute(f"SET threads = 2; CREATE TABLE visits AS FROM '{run.table}/*.parquet'")
            con.execute("FROM dp(?)", [POLICY.format(table, run.rows)]).fetchall()
            started = time.perf_counter()
            if run.prepared:
                con.execute("FROM dp(?)", [f"ALTER PRIVACY POLICY ON {table} PREPARE"]).fetchall()
            preparing = time.perf_counter() - started
            times = timed(
                lambda tag: con.execute("FROM dp(?)", [ASK.format(tag, run.columns, table, run.columns)]).fetchall()
            )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": min(times), "peak": peak, "preparing": preparing if run.prepared else 0.0}))


def timed(work: Callable[[int], Any]) -> list[float]:
    times = []
    for number in range(ROUNDS + 1):
        started = time.perf_counter()
        work(number)
        times.append(time.perf_counter() - started)
    return times[1:]


class Bench:
    """An engine with tables, and which gates failed."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder, self.failed = server, folder, list[str]()

    def told(self, run: Run) -> tuple[float, float, float]:
        command = [sys.executable, "-m", "benchmarks.speed.engines", "--run", json.dumps(asdict(run))]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = json.loads(said.splitlines()[-1])
        return found["seconds"], found["peak"], found["preparing"]

    def line(self, title: str, run: Run) -> tuple[float, float]:
        seconds, peak, preparing = self.told(run)
        told = f"  prepared in {preparing:.1f} s" if run.prepared else ""
        print(f"{title:56s} {seconds:8.2f} s  {peak:6.0f} MB{told}", flush=True)
        return seconds, peak

    def gate(self, title: str, value: float, most: float) -> None:
        passed = value <= most
        print(f"{title:56s} {value:8.2f}  gate {most:g}: {'PASS' if passed else 'FAIL'}", flush=True)
        if not passed:
            self.failed.append(title)

    def scale(self, rows: int, on: str) -> None:
        """The gates: a tenth of the rows, then all of them, beside DuckDB in process or native SQL."""
        address, tenth = self.server.address, max(rows // 10, 100)
        few, many = (made(self.folder, name, n, n // 10) for name, n in (("few", tenth), ("many", rows)))
        tables = [put(self.server, place) for place in (few, many)]
        _, small = self.line(f"{tenth:,} rows of {tenth // 10:,} people", Run(address, tables[0], tenth))
        seconds, large = self.line(f"{rows:,} rows of {rows // 10:,} people", Run(address, tables[1], rows))
        self.gate("MB of dpduck's own process", large, MOST_MB)
        self.gate("its peak, of all rows against a tenth", large / small, MOST_GROWTH)
        if on == "sail":
            here, _ = self.line("the same, dpduck over a table of DuckDB, 2 threads", Run("", str(many), rows))
            self.gate("times DuckDB in process", seconds / here, SAIL_GATE)
            self.prepared(tables[1], rows, here)
        else:
            native, _ = self.line(
                "the same, Spark SQL that bounds and counts", Run(address, tables[1], rows, native=True)
            )
            self.gate("times native Spark SQL", seconds / native, SPARK_GATE)
            self.prepared(tables[1], rows, native)

    def prepared(self, table: str, rows: int, other: float) -> None:
        """Times the prepared table, and measures its room."""
        seconds, _ = self.line("the same, prepared", Run(self.server.address, table, rows, prepared=True))
        self.gate("times that", seconds / other, PREPARED_GATE)
        packed = sum(file.stat().st_size for file in self.server.folder.rglob("*dpduck_packed*/**/*.parquet"))
        raw = sum(file.stat().st_size for file in (self.folder / table.partition(".")[2]).iterdir())
        self.gate("bytes of it, times those of the Parquet", packed / raw, PREPARED_GATE)

    def growth(self, rows: int) -> None:
        """Prints costs at a tenth of the rows, to show their growth."""
        address, rows = self.server.address, max(rows // 10, 100)
        table = "db.few"
        for people in (rows // 100, rows):
            units = put(self.server, made(self.folder, f"people_{people}", rows, max(people, 1)))
            self.line(f"{rows:,} rows of {people:,} people", Run(address, units, rows))
        for buckets in (2, 8, 64):
            self.line(f"{rows:,} rows, {buckets} buckets", Run(address, table, rows, buckets=buckets))
        for columns, cells in (("sex", 2), ("place", 100_000), ("place, sex", 200_000)):
            self.line(f"{rows:,} rows, {cells:,} cells", Run(address, table, rows, columns))


def main() -> int:
    words = argparse.ArgumentParser()
    words.add_argument("rows", nargs="?", type=int, default=ROWS)
    words.add_argument("--on", choices=SERVERS, default="sail")
    words.add_argument("--without-growth", action="store_true")
    words.add_argument("--run", help="What a process of its own does, as JSON.")
    given = words.parse_args()
    if given.run:
        measure(Run(**json.loads(given.run)))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        os.environ["DPDUCK_STATE_DIR"] = str(folder / "state")
        (folder / "server").mkdir()
        with SERVERS[given.on](folder / "server") as server:
            bench = Bench(server, folder)
            bench.scale(given.rows, given.on)
            if not given.without_growth:
                bench.growth(given.rows)
    print("FAIL: " + ", ".join(bench.failed) if bench.failed else "PASS")
    return bool(bench.failed)


if __name__ == "__main__":
    raise SystemExit(main())
