"""Synthetic data at small prices: `auto` beside 1-way margins, the uniform table and the update of the MWEM paper.

usage: python -m benchmarks.papers.small_prices [--data DIR] [--runs N] [--tables N]

Through SQL, under pure epsilon: each way makes a table with its weights. Its pairs of columns are compared with exact
ones. The error is the mean total variation over pairs, and of runs. Tables: NLTCS, six columns of Adult, mildew,
rochdale and czech. "Best" is the least of the three other errors, which nobody knows beforehand.
Gates (exit status 1): the geometric mean of auto over the best at most 1, and no setting above 1.25, which is more than
chance. Traps avoided: all ways have the same statement, price and columns. Each run is charged and drawn anew.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import combinations
from math import exp, log
from pathlib import Path

import numpy as np
import pyarrow as pa

import dpduck
from benchmarks.papers._synthetic_data import data_folder, table_of

PRICES = ("0.05", "0.1", "0.2", "0.5")
TABLES = ("nltcs", "adult", "mildew", "rochdale", "czech")
KEPT = (0, 2, 4, 5, 6, 7)
"""Columns of Adult that have few values."""

WAYS = {
    "auto": ("", 2),
    "update": (", mechanism = 'mwem', update = 'paper'", 2),
    "1-way": ("", 1),
}
WORST, SMALL = 1.25, 1024
"""The largest ratio of a gate, and the cells of a table that is run four times as often: its errors vary more."""
Table = np.ndarray


def read(folder: Path, name: str) -> Table:
    table = table_of(folder, name)
    return table if name != "adult" else table.sum(axis=tuple(set(range(table.ndim)) - set(KEPT)))


def rows_of(table: Table) -> pa.Table:
    """The rows of a table of counts."""
    occupied = np.nonzero(table)
    codes = np.repeat(np.array(occupied), table[occupied], axis=1)
    return pa.table({f"c{place}": of for place, of in enumerate(codes)})


def distribution(rows: pa.Table, shape: tuple[int, ...], way: str, epsilon: str) -> Table:
    """The distribution that a way makes, from a fresh copy of the table. Each row is a unit."""
    options, order = WAYS[way]
    columns = ", ".join(f"c{place}" for place in range(len(shape)))
    domains = ", ".join(f"DOMAIN c{place} RANGE 0 TO {size} STEP 1" for place, size in enumerate(shape))
    policy = f"CREATE PRIVACY POLICY ON t (PRIVACY UNIT ROW, BUDGET (epsilon = 1), EXPECT ROWS {len(rows)}, {domains})"
    made = (
        f"CREATE PRIVATE TABLE s OPTIONS (epsilon = {epsilon}, rows = 1, weights = TRUE{options}) AS SELECT {columns}"
    )
    with dpduck.connect() as connection:
        connection.register("given", rows)
        connection.execute("CREATE TABLE t AS FROM given")
        for statement in (policy, f"{made} FROM t WORKLOAD MARGINALS ({order})"):
            connection.execute("FROM dp(?)", [statement]).fetchall()
        cells = connection.execute(f"SELECT {columns}, probability FROM private.s_weights").fetchnumpy()
    found = np.zeros(shape)
    found[tuple(np.asarray(cells[f"c{place}"], np.int64) for place in range(len(shape)))] = cells["probability"]
    return found / found.sum()


def error(table: Table, found: Table) -> float:
    """The mean total variation over pairs of columns."""
    pairs = list(combinations(range(table.ndim), 2))
    others = [tuple(place for place in range(table.ndim) if place not in pair) for pair in pairs]
    true = table / table.sum()
    return float(np.mean([np.abs(true.sum(axis=gone) - found.sum(axis=gone)).sum() / 2 for gone in others]))


def measured(folder: Path, names: tuple[str, ...], runs: int) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Yields the errors of all ways, by table and price."""
    for name in names:
        table = read(folder, name)
        rows = rows_of(table)
        even, times = error(table, np.full(table.shape, 1 / table.size)), runs * (4 if table.size <= SMALL else 1)
        for epsilon in PRICES:
            found = {
                way: float(np.mean([error(table, distribution(rows, table.shape, way, epsilon)) for _ in range(times)]))
                for way in WAYS
            }
            yield name, epsilon, {**found, "uniform": even}


def main() -> int:
    """Prints a line for each setting, and gates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tables", type=int, default=len(TABLES))
    given = parser.parse_args()
    folder, ratios = data_folder(given.data), list[float]()
    if not (folder / "nltcs.parquet").is_file():
        print(f"skipped: no nltcs.parquet in {folder.name}; docs/papers.md says how to get it")
        return 0
    for name, epsilon, errors in measured(folder, TABLES[-given.tables :], given.runs):
        best = min(errors[way] for way in ("update", "1-way", "uniform"))
        ratios.append(errors["auto"] / best)
        said = ", ".join(f"{way} {value:.4f}" for way, value in errors.items())
        print(f"{name:9} epsilon {epsilon:5} {said}; auto over the best {ratios[-1]:.2f}", flush=True)
    mean = exp(sum(map(log, ratios)) / len(ratios))
    passed = mean <= 1 and max(ratios) <= WORST
    print(
        f"{'PASS' if passed else 'FAIL'}  auto over the best of the others {mean:.2f}, at most {max(ratios):.2f} "
        f"(gate: 1 and {WORST})"
    )
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
