"""Replays random statements against a fixed standard error: `python -m benchmarks.papers.replay`.

Each statement is a 1- to 3-way table with at least one filter or range. Every column that it names is grouped by,
filtered, or both. Each way answers every cell of every statement, and its charges are added up.

* ours: `reuse = TRUE` with `target_stderr`, and `dp_known` where that is already as accurate, through dpduck.
  It runs twice. A statement pays for its lack alone (ahead 1), or up to four times its price to spare later ones.
* alone: the price of each statement by itself, with a cache of exact matches.
* Turbo: private multiplicative weights with bypass (Kostopoulou et al., SOSP 2023), see _turbo.py.

Gates: ours, with the last of --ahead, is at most a fifth of alone, and below Turbo. Prices are in rho, or in epsilon
with --pure.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

import dpduck
from benchmarks.papers._turbo import Turbo

DATA = Path(os.environ.get("DPDUCK_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
STATEMENTS = 2000
TARGET = 20.0
AHEAD = (1, 4)
"""How many times its price a statement may pay; 2 to 8 were compared by formula, over other statements, too."""
BAR = 0.2
EVERY = 250
"""Statements between lines that say how far it is."""
SEED = 19
"""Of the statements, not of any noise."""


@dataclass(frozen=True)
class Table:
    """Rows of codes. columns: name, number of codes, whether their order means something."""

    name: str
    sql: str
    columns: tuple[tuple[str, int, bool], ...]


def _labels(*names: str) -> str:
    return ", ".join(f"dense_rank() OVER (ORDER BY {name}) - 1 AS {name}" for name in names)


ADULT = Table(
    "adult",
    f"SELECT least((age - 15) // 5, 15) AS age, education_num - 1 AS education, "
    f"{_labels('workclass', 'marital_status', 'occupation', 'race', 'sex', 'salary')} FROM '{{data}}/adult.parquet'",
    (("age", 16, True), ("education", 16, True), ("workclass", 9, False), ("marital_status", 7, False),
     ("occupation", 15, False), ("race", 5, False), ("sex", 2, False), ("salary", 2, False)),
)  # fmt: skip
TAXI = Table(
    "taxi",
    "SELECT PULocationID - 1 AS zone, day(lpep_pickup_datetime) - 1 AS day, hour(lpep_pickup_datetime) // 4 AS part "
    "FROM '{data}/nyc_green_taxi_2025_11.parquet' WHERE month(lpep_pickup_datetime) = 11",
    (("zone", 265, False), ("day", 30, True), ("part", 6, True)),
)
TABLES = {"adult": ADULT, "taxi": TAXI}


@dataclass(frozen=True)
class Part:
    """The part of a statement that concerns one column. kept: codes that a filter keeps, None for all."""

    column: int
    grouped: bool
    kept: tuple[int, ...] | None


def statements(table: Table, count: int) -> list[tuple[Part, ...]]:
    """Random statements, the same each time."""
    draw, found = np.random.default_rng(SEED), list[tuple[Part, ...]]()
    while len(found) < count:
        chosen = sorted(
            draw.choice(len(table.columns), draw.integers(1, min(3, len(table.columns)) + 1), replace=False).tolist()
        )
        parts = tuple(_part(draw, column, *table.columns[column][1:]) for column in chosen)
        if any(one.grouped for one in parts) and any(one.kept is not None for one in parts):
            found.append(parts)
    return found


def _part(draw: np.random.Generator, column: int, size: int, ordered: bool) -> Part:
    """Filters an ordered column by a range half of the time. Filters others by one or a few values one time in four."""
    if draw.random() >= (0.5 if ordered else 0.25):
        return Part(column, True, None)
    if ordered:
        low, high = sorted(draw.integers(0, size, 2).tolist())
        kept = tuple(range(low, high + 1)) if high - low < size - 1 else tuple(range(1, size))
    else:
        several = size > 2 and draw.random() < 0.5
        number = int(draw.integers(2, max(3, size // 2 + 1))) if several else 1
        kept = tuple(sorted(draw.choice(size, number, replace=False).tolist()))
    return Part(column, bool(draw.random() < 0.5), kept)


def sql_of(table: Table, parts: tuple[Part, ...]) -> str:
    """A statement as an analyst writes it, without the clause."""
    grouped = ", ".join(table.columns[one.column][0] for one in parts if one.grouped)
    conditions = []
    for one in parts:
        name, size, ordered = table.columns[one.column]
        if one.kept is not None and ordered:  # a first or last bin also holds what lies beyond it
            conditions += [f"{name} >= {one.kept[0]}"] if one.kept[0] else []
            conditions += [f"{name} < {one.kept[-1] + 1}"] if one.kept[-1] < size - 1 else []
        elif one.kept is not None:
            conditions.append(f"{name} IN ({listed(one.kept)})")
    return f"{grouped}, count(*) AS n FROM {table.name} WHERE {' AND '.join(conditions)} GROUP BY {grouped}"


def codes(size: int) -> str:
    """Returns all codes of a column of texts."""
    return listed(range(size))


def listed(kept: Iterable[int]) -> str:
    """Returns codes as texts."""
    return ", ".join(f"'{code}'" for code in kept)


def made(table: Table, budget: str) -> duckdb.DuckDBPyConnection:
    """The table, prepared, under a policy by which no row is in no code."""
    connection = dpduck.connect()
    texts = ", ".join(f"CAST({name} AS VARCHAR) AS {name}" for name, _, ordered in table.columns if not ordered)
    rows = f"SELECT * REPLACE ({texts}) FROM ({table.sql.format(data=DATA)})" if texts else table.sql.format(data=DATA)
    connection.execute(f"CREATE TABLE {table.name} AS {rows}")
    domains = ", ".join(
        f"DOMAIN {name} "
        + (
            f"RANGE 0 TO {size} STEP 1 WITH NULL WITH EDGES"
            if ordered
            else f"IN ({codes(size)}) WITH NULL WITH OTHER 'other'"
        )
        for name, size, ordered in table.columns
    )
    for statement in (
        f"CREATE PRIVACY POLICY ON {table.name} (PRIVACY UNIT ROW, BUDGET ({budget} = 1000000), {domains})",
        f"ALTER PRIVACY POLICY ON {table.name} PREPARE",
    ):
        connection.execute("FROM dp(?)", [statement]).fetchall()
    return connection


def counts_of(connection: duckdb.DuckDBPyConnection, table: Table) -> np.ndarray:
    """The exact table, which Turbo looks at when it pays, and against which errors are checked."""
    sizes = [size for _, size, _ in table.columns]
    names = ", ".join(name for name, *_ in table.columns)
    found = connection.execute(f"SELECT {names}, count(*) FROM {table.name} GROUP BY ALL").fetchnumpy()
    *places, counts = (np.asarray(one, np.int64) for one in found.values())
    exact = np.zeros(sizes)
    exact[tuple(places)] = counts
    return exact


def sums(exact: np.ndarray, parts: tuple[Part, ...]) -> np.ndarray:
    """A statement's answers."""
    named = {one.column: one for one in parts}
    values: np.ndarray = exact.sum(axis=tuple(axis for axis in range(exact.ndim) if axis not in named))
    for place in reversed(range(len(parts))):
        kept = parts[place].kept
        values = values if kept is None else values.take(kept, axis=place)
        values = values if parts[place].grouped else np.asarray(values.sum(axis=place))
    return values


@dataclass(frozen=True)
class Ours:
    """dpduck's charge, how many statements paid, and the mean square of error over standard error."""

    charged: float
    paying: int
    seconds: float
    squares: float


def ours(
    connection: duckdb.DuckDBPyConnection, table: Table, asked: list[tuple[Part, ...]], measure: str, ahead: int
) -> Ours:
    """Answers all statements as a client would: free where that is accurate enough, else for the missing part."""
    exact, squares, cells, paying, begin = counts_of(connection, table), 0.0, 0, 0, time.perf_counter()
    for number, parts in enumerate(asked):
        if number and number % EVERY == 0:
            different, so_far = len(set(asked[:number])), charged_by(connection, measure)
            print(f"    after {number}: {so_far:.4g}, {paying} paid, {different} different", flush=True)
        text = sql_of(table, parts)
        found = known(connection, text, parts)
        if found is None or found[1].max() > TARGET:
            paying += 1
            option = f"target_stderr = {TARGET}, reuse = TRUE, ahead = {ahead}"
            shown = text.replace("count(*) AS n", "count(*) AS n, dp_stderr(n) AS stderr")
            statement = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({option}) {shown}"
            found = answer(connection, "dp", statement, parts)
        if found is None or found[1].max() > TARGET * (1 + 1e-9):
            raise AssertionError(f"not as accurate as was asked: {text}")
        errors = (found[0] - sums(exact, parts).ravel()) / found[1]
        squares, cells = squares + float((errors**2).sum()), cells + len(errors)
    return Ours(charged_by(connection, measure), paying, time.perf_counter() - begin, squares / cells)


def charged_by(connection: duckdb.DuckDBPyConnection, measure: str) -> float:
    """Returns the sum of the ledger's charges."""
    ((charged,),) = connection.execute(f"SELECT coalesce(sum({measure}), 0) FROM dp_ledger()").fetchall()
    return float(charged)


def known(
    connection: duckdb.DuckDBPyConnection, text: str, parts: tuple[Part, ...]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the known answer and its errors, or None where there is none."""
    try:
        return answer(connection, "dp_known", f"SELECT {text}", parts)
    except duckdb.Error as error:
        if "determines" not in str(error) and "nothing was measured" not in str(error):
            raise
        return None


def answer(
    connection: duckdb.DuckDBPyConnection, function: str, statement: str, parts: tuple[Part, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns estimates and standard errors of the statement's cells, in order. A NULL key matches no cell."""
    found = connection.execute(f"FROM {function}(?)", [statement]).fetchnumpy()
    *keys, estimates, stderrs = list(found.values())[: sum(one.grouped for one in parts) + 2]
    wanted, numbers = np.ones(len(estimates), np.bool_), []
    for column, part in zip(keys, (one for one in parts if one.grouped), strict=True):
        shown = [-1 if value is None or value is np.ma.masked or value == "other" else int(value) for value in column]
        numbers.append(np.array(shown, np.int64))
        wanted &= numbers[-1] >= 0 if part.kept is None else np.isin(numbers[-1], part.kept)
    order = np.lexsort([one[wanted] for one in reversed(numbers)])
    return np.ma.getdata(estimates)[wanted][order], np.ma.getdata(stderrs)[wanted][order]


def alone(connection: duckdb.DuckDBPyConnection, table: Table, parts: tuple[Part, ...], measure: str) -> float:
    """Returns the price of a statement by itself. All cost the same, since each measures one table."""
    statement = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (target_stderr = {TARGET}) {sql_of(table, parts)}"
    query = f"SELECT {measure} FROM dp_explain(?) WHERE chosen"
    return float(connection.execute(query, [statement]).fetchall()[0][0])


def replay(table: Table, count: int, pure: bool, ways: list[int]) -> bool:
    """Prints the lines of a table. Returns whether its gates are met."""
    measure, asked, charged = "epsilon" if pure else "rho", statements(table, count), 0.0
    different = len(set(asked))
    print(f"{table.name}, {count} statements ({different} different), standard error {TARGET:g}, {measure}", flush=True)
    for ahead in ways:
        with made(table, measure) as connection:
            price, exact = alone(connection, table, asked[0], measure), counts_of(connection, table)
            found = ours(connection, table, asked, measure, ahead)
        charged = found.charged
        print(f"  ours, ahead {ahead}  {charged:10.4g}  {found.paying} paid, {found.seconds:.0f} s, errors squared / "
              f"variance {found.squares:.3f}", flush=True)  # fmt: skip
    cached = price * different
    print(f"  alone          {cached:10.4g}  each {price:.4g}", flush=True)
    turbo = Turbo(exact, TARGET, price, pure)
    for parts in asked:
        turbo.answer(parts)
    print(f"  Turbo          {turbo.charged:10.4g}  {turbo.said()}")
    of_alone, of_turbo = charged / cached, charged / turbo.charged
    first = of_alone <= BAR
    print(f"  ours / alone {of_alone:.3f}  {'PASS' if first else 'MISSED'} (gate: at most {BAR})")
    print(f"  ours / Turbo {of_turbo:.3f}  {'PASS' if of_turbo < 1 else 'MISSED'} (gate: below 1)", flush=True)
    return first and of_turbo < 1


def main() -> int:
    """Replays every table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--statements", type=int, default=STATEMENTS)
    parser.add_argument("--tables", nargs="*", default=sorted(TABLES))
    parser.add_argument("--pure", action="store_true")
    parser.add_argument("--ahead", type=int, nargs="+", default=AHEAD)
    options = parser.parse_args()
    met = True
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPDUCK_STATE_DIR"] = folder
        for name in options.tables:
            met &= replay(TABLES[name], options.statements, options.pure, options.ahead)
    return int(not met)


if __name__ == "__main__":
    raise SystemExit(main())
