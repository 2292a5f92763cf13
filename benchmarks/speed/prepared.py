"""Private answers over prepared tables beside DuckDB's exact ones over the tables, 20 M rows of 5 M people, one run.

Gates, of people as privacy units with MAX ROWS 4 and columns of texts, two of which have NULLs: one, three
and eight columns at most 1.0 times DuckDB's query, with WHERE over declared columns 1.1, with a tenth of the people
above MAX ROWS 1.5, count(DISTINCT unit) 1.0, CUBE of five columns 0.3. Peak memory at most 1.2 times DuckDB's own.
Preparing at most 4 times `CREATE TABLE AS .. ORDER BY unit`. Informs: three of them unprepared, a sum, a join
with a public table, a condition on a column that is not declared, and the size of the files.

Traps avoided: every time is that of a whole statement of `dp()`, a new release with its charge, and what the same
statement takes over a prepared table of a thousand rows is taken from it (printed beside it: of eight columns that is
noise for 2.5 million cells). Both sides run alternately in one process on one file, after one round that warms DuckDB's
buffers, and both fetch their rows as Arrow; medians of five. Peak memory is that of processes of their own, which have
loaded the same modules.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import duckdb

import dpduck

ROWS = 20_000_000
FEW = 1_000
"""Rows of the table that shows what a statement costs whatever is counted."""
ROUNDS = 5
SIZES = (9, 16, 7, 15, 6, 5, 2, 2)  # Adult's eight columns
LABELS = tuple(f"s{column}" for column in range(8))
NULLS = (2, 5)
CROWDED = 20
"""Rows of each of the tenth of the people who are above MAX ROWS, in the table of crowds."""


@dataclass(frozen=True)
class Case:
    """A statement and its limit as a multiple of DuckDB's time. {table} stands for the table asked."""

    selected: str
    rest: str
    gate: float | None
    table: str = "visits"

    def exact(self) -> str:
        return f"SELECT {self.selected} FROM {self.table} {self.rest}"

    def private(self, tag: str) -> str:
        options = f"epsilon = 1, planning_seconds = 1, refresh = '{tag}'"
        return f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({options}) {self.selected} FROM {self.table} {self.rest}"


def grouped(columns: tuple[str, ...], gate: float | None, table: str = "visits", where: str = "") -> Case:
    return Case(f"{', '.join(columns)}, count(*) AS n", f"{where} GROUP BY {', '.join(columns)}", gate, table)


WHERE = "WHERE s0 <> 'label of value 3' AND s3 IN ('label of value 1', 'label of value 2', 'label of value 5')"
CASES = {
    "one column": grouped(LABELS[:1], 1.0),
    "three columns": grouped(LABELS[:3], 1.0),
    "eight columns": grouped(LABELS, 1.0),
    "one column, WHERE over declared ones": grouped(LABELS[1:2], 1.1, where=WHERE),
    "three columns, WHERE over declared ones": grouped(LABELS[:3], 1.1, where=WHERE),
    "crowds, one column": grouped(LABELS[:1], 1.5, "crowds"),
    "crowds, three columns": grouped(LABELS[:3], 1.5, "crowds"),
    "count(DISTINCT unit)": Case("s0, count(DISTINCT person) AS n", "GROUP BY s0", 1.0),
    "CUBE of five columns": Case("s0, s2, s4, s5, s6, count(*) AS n", "GROUP BY CUBE (s0, s2, s4, s5, s6)", 0.3),
    "sum by one column": Case("s0, sum(amount) AS total", "GROUP BY s0", None),
    "a join with a public table": Case("kind, count(*) AS n", "JOIN kinds ON s0 = value GROUP BY kind", None),
    "WHERE over a column not declared": grouped(LABELS[:1], None, where="WHERE raw < 900"),
}
UNPREPARED = ("one column", "three columns", "three columns, WHERE over declared ones")
PEAKS = {
    "memory: three columns": ("three columns", 1.2),
    "memory: crowds": ("crowds, three columns", 1.2),
    "memory: eight columns": ("eight columns", 1.2),
}


def make_tables(path: Path, rows: int) -> None:
    """People's rows scattered over the table: eight texts, two with NULLs, an amount and a column without a domain."""
    numbers = ", ".join(
        f"((hash(i + {column * 1000003}) >> 24) % {size})::UTINYINT AS u{column}" for column, size in enumerate(SIZES)
    )
    told = {column: "hash(i, 9) % 50 > 0" if column in NULLS else "TRUE" for column in range(8)}
    labels = ", ".join(f"CASE WHEN {told[c]} THEN 'label of value ' || u{c} END AS s{c}" for c in range(8))
    people = max(rows // 4, 1)
    crowded = f"CASE WHEN i < {rows // 2} THEN i % {max(people // 10, 1)} ELSE {people} + i % {people} END"
    crowded = crowded if rows // 2 // max(people // 10, 1) == CROWDED else f"i % {people}"
    amounts = "(hash(i, 3) % 1000)::INTEGER AS amount, (hash(i, 5) % 1000)::INTEGER AS raw"
    kinds = ", ".join(f"('label of value {i}', 'kind {i % 3}')" for i in range(SIZES[0]))
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE kinds AS FROM (VALUES {kinds}) AS k(value, kind)")
        for name, unit in (("visits", f"(i * 7919) % {people}"), ("crowds", crowded)):
            connection.execute(
                f"CREATE TABLE {name} AS SELECT person, {labels}, {amounts} FROM "
                f"(SELECT i, ({unit})::BIGINT AS person, {numbers} FROM range({rows}) AS r(i))"
            )


def protect(connection: duckdb.DuckDBPyConnection) -> None:
    domains = []
    for name, size in zip(LABELS, SIZES, strict=True):
        values = ", ".join(f"'label of value {value}'" for value in range(size))
        domains.append(f"DOMAIN {name} IN ({values}){' WITH NULL' if int(name[1:]) in NULLS else ''}")
    items = ", ".join(["PRIVACY UNIT person MAX ROWS 4", "BUDGET (epsilon = 100000)", *domains])
    connection.execute("FROM dp('DECLARE PUBLIC TABLE kinds')").fetchall()
    for table in ("visits", "crowds"):
        statement = f"CREATE PRIVACY POLICY ON {table} ({items}, CLAMP amount BETWEEN 0 AND 1000 STEP 1)"
        connection.execute("FROM dp(?)", [statement]).fetchall()


def prepare(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    connection.execute("FROM dp(?)", [f"ALTER PRIVACY POLICY ON {table} PREPARE"]).fetchall()


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


class Bench:
    """The database, another one of a thousand rows, and the gates that failed."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.path, self.few = folder / "people.duckdb", folder / "few.duckdb"
        self.failed: list[str] = []
        self.tags = 0
        make_tables(self.few, FEW)
        print(f"{rows} rows, twice, made in {seconds(lambda: make_tables(self.path, rows)):.0f} s; medians of {ROUNDS}")
        with dpduck.connect(self.path) as connection:
            protect(connection)
        with dpduck.connect(self.few) as connection:
            protect(connection)
            for table in ("visits", "crowds"):
                prepare(connection, table)

    def ask(self, connection: duckdb.DuckDBPyConnection, case: Case) -> float:
        self.tags += 1
        statement = case.private(f"tag {self.tags}")
        return seconds(lambda: connection.execute("FROM dp(?)", [statement]).to_arrow_table())

    def unprepared(self) -> dict[str, float]:
        """Seconds of some cases before the tables are prepared, once: they take minutes."""
        with dpduck.connect(self.path) as connection:
            return {title: self.ask(connection, CASES[title]) for title in UNPREPARED if title in CASES}

    def preparing(self) -> None:
        """Seconds of preparing each table, beside a sorted copy."""
        for table in ("visits", "crowds"):
            with duckdb.connect(str(self.path)) as connection:
                copied = seconds(lambda: connection.execute(f"CREATE TABLE sorted AS FROM {table} ORDER BY person"))  # noqa: B023
                connection.execute("DROP TABLE sorted")
                connection.execute("CHECKPOINT")
            with dpduck.connect(self.path) as connection:
                took = seconds(lambda: prepare(connection, table))  # noqa: B023
            self.report(f"preparing {table}", took, copied, "s", 4)
        for file in sorted(self.path.parent.glob("people*.duckdb")):
            kind = "prepared" if "_prepared_" in file.name else file.stem
            print(f"  {kind}: {file.stat().st_size / 1e6:.0f} MB")

    def times(self, unprepared: dict[str, float]) -> None:
        with dpduck.connect(self.path) as connection, dpduck.connect(self.few) as few:
            for title, case in CASES.items():
                exact, ours, fixed = [], [], []
                for _ in range(ROUNDS + 1):
                    exact.append(seconds(lambda: connection.execute(case.exact()).to_arrow_table()))  # noqa: B023
                    ours.append(self.ask(connection, case))
                    fixed.append(self.ask(few, case))
                whatever, before = median(fixed[1:]), unprepared.get(title)
                told = f"fixed {whatever:5.3f} s"
                told += f", unprepared {before / median(exact[1:]):4.1f} times" if before else ""
                self.report(title, max(median(ours[1:]) - whatever, 0.0), median(exact[1:]), "s", case.gate, told)

    def memory(self) -> None:
        for title, (case, gate) in PEAKS.items():
            self.report(title, self.peak("ours", case), self.peak("duckdb", case), "MB", gate)

    def peak(self, side: str, case: str) -> float:
        command = [sys.executable, "-m", "benchmarks.speed.prepared", "--peak", str(self.path), side, case]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def report(self, title: str, ours: float, duck: float, unit: str, gate: float | None, told: str = "") -> None:
        ratio = ours / duck
        verdict = "informs" if gate is None else f"gate {gate}: {'PASS' if ratio <= gate else 'FAIL'}"
        if verdict.endswith("FAIL"):
            self.failed.append(title)
        print(
            f"{title:42s} {ours:9.3f} {unit:2s}  DuckDB {duck:9.3f} {unit:2s}  ratio {ratio:5.2f}  {verdict}  {told}",
            flush=True,
        )


def print_peak(path: str, side: str, case: str) -> None:
    """The peak resident memory of one side, in megabytes. dpduck is loaded on both."""
    with dpduck.connect(path) as connection:
        if side == "ours":
            connection.execute("FROM dp(?)", [CASES[case].private(f"peak {os.getpid()}")]).to_arrow_table()
        else:
            connection.execute(CASES[case].exact()).to_arrow_table()
    status = Path("/proc/self/status")
    if status.exists():
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        print(int(peak.split()[1]) / 1024)
    else:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> int:
    if sys.argv[1:2] == ["--peak"]:
        print_peak(*sys.argv[2:])
        return 0
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as directory:
        os.environ["DPDUCK_STATE_DIR"] = directory
        bench = Bench(Path(directory), rows)
        unprepared = bench.unprepared()
        bench.preparing()
        bench.times(unprepared)
        bench.memory()
    print("FAIL: " + ", ".join(bench.failed) if bench.failed else "PASS")
    return bool(bench.failed)


if __name__ == "__main__":
    raise SystemExit(main())
