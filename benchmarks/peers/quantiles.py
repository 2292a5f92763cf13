"""Quantiles of wages by region at epsilon 1 beside OpenDP's make_private_quantile, in one run: part of docs/peers.md.

usage: python -m benchmarks.peers.quantiles [--wages FILE.parquet] [--runs N] [--write docs/peers.md]

FILE has columns wage and region, as AER's CPS1988 has them. Without it wages are made, with heaps at whole fives. One
row a person, one person added or removed, bounds 0 to 2000, one-dollar steps for both. Errors are root mean squared
over groups, quantiles and runs, against quantile_cont of the exact wages. OpenDP has a third of the price for each of
three quartiles, and no intervals. Ours is asked as it is by default, without intervals, and by a tree.

Gates: without intervals our error is at most 1.25 times OpenDP's, and that of three quartiles at most 1.1 times the
best of the tree and three choices. Without OpenDP the first are skipped, and the benchmark says so.
Traps avoided: a refresh tag for each run, so that no answer is a stored one. OpenDP's scale is that of its own map.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dpduck
from benchmarks.peers._wide_page import QUANTILES
from benchmarks.peers.table import here

HIGH, ROWS, RUNS = 2000, 28_000, 25
DESIGNS = ((0.5,), (0.9,), (0.25,), (0.25, 0.5, 0.75))
OURS = {
    "default": "",
    "without intervals": ", quantile_intervals = FALSE",
    "tree": ", quantiles = 'tree'",
}
MADE = f"""SELECT i AS who, ['midwest', 'northeast', 'south', 'west'][i % 4 + 1] AS region,
    least(CASE WHEN i % 3 = 0 THEN round(w / 5) * 5 ELSE w END, {HIGH}) AS wage
    FROM (SELECT i, 500 * exp(0.7 * (hash(i) % 1000 + hash(i, 1) % 1000 + hash(i, 2) % 1000 - 1500.0) / 500) AS w
          FROM range({{rows}}) AS r(i))"""
Errors = NDArray[np.float64]


class Wages:
    """Wages by region, their exact quantiles, and dpduck over them."""

    def __init__(self, file: Path | None) -> None:
        self.con, self.number = dpduck.connect(), 0
        given = f"SELECT row_number() OVER () AS who, region, wage FROM '{file}'" if file else MADE.format(rows=ROWS)
        self.con.execute(
            f"CREATE TABLE wages AS SELECT who, region, greatest(least(wage, {HIGH}), 0.0)::DOUBLE AS wage "
            f"FROM ({given})"
        )
        rows = self.con.execute("SELECT region, list(wage) FROM wages GROUP BY ALL ORDER BY ALL").fetchall()
        self.groups: dict[str, list[float]] = dict(rows)
        labels = ", ".join(f"'{region}'" for region in self.groups)
        self.dp(
            f"CREATE PRIVACY POLICY ON wages (PRIVACY UNIT who MAX ROWS 1, BUDGET (epsilon = 1000000), "
            f"DOMAIN region IN ({labels}), CLAMP wage BETWEEN 0 AND {HIGH} STEP 1)"
        )

    def dp(self, statement: str) -> list[tuple[Any, ...]]:
        return self.con.execute("FROM dp(?)", [statement]).fetchall()

    def exact(self, fractions: tuple[float, ...]) -> Errors:
        return np.array([np.quantile(self.groups[region], fractions) for region in sorted(self.groups)])

    def asked(self, fractions: tuple[float, ...], options: str) -> Errors:
        self.number += 1
        items = ", ".join(f"quantile_cont(wage, {fraction})" for fraction in fractions)
        rows = self.dp(
            f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, refresh = 'r{self.number}'{options}) "
            f"region, {items} FROM wages GROUP BY region ORDER BY region"
        )
        return np.array([row[1:] for row in rows], float)


def opendp(wages: Wages, fractions: tuple[float, ...]) -> Callable[[], Errors]:
    """Returns OpenDP's answers for epsilon 1, in equal parts, on whole dollars."""
    dp = import_module("opendp.prelude")
    dp.enable_features("contrib", "honest-but-curious", "private-selection-v2")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
    candidates = [float(value) for value in range(HIGH + 1)]
    made = []
    for fraction in fractions:
        unit = dp.m.make_private_quantile(*space, dp.max_divergence(), candidates, fraction, scale=1.0).map(1)
        scale = float(unit) * len(fractions)
        made.append(dp.m.make_private_quantile(*space, dp.max_divergence(), candidates, fraction, scale=scale))
        if not made[-1].map(1) <= 1 / len(fractions) * (1 + 1e-6):
            raise ValueError("a scale that costs more than its part")
    return lambda: np.array([[one(wages.groups[region]) for one in made] for region in sorted(wages.groups)])


def missed(answer: Callable[[], Errors], exact: Errors, runs: int) -> tuple[float, float]:
    """Returns the root mean square error, and its standard error as a part of the error."""
    squares = np.array([((answer() - exact) ** 2).mean() for _ in range(runs)])
    mean = float(squares.mean())
    return sqrt(mean), float(squares.std(ddof=1)) / sqrt(runs) / mean / 2 if mean else 0.0


def measured(wages: Wages, runs: int) -> dict[tuple[float, ...], dict[str, tuple[float, float]]]:
    """Returns errors of every design, by who answers."""
    told: dict[tuple[float, ...], dict[str, tuple[float, float]]] = {}
    for fractions in DESIGNS:
        exact, by = wages.exact(fractions), told.setdefault(fractions, {})
        if find_spec("opendp") is not None:
            by["OpenDP"] = missed(opendp(wages, fractions), exact, 4 * runs)
        for name, options in OURS.items():
            by[name] = missed(partial(wages.asked, fractions, options), exact, runs)
    return told


def lines_of(
    told: dict[tuple[float, ...], dict[str, tuple[float, float]]], file: Path | None, runs: int
) -> Iterator[str]:
    """Yields the part of the page."""
    data = "AER's CPS1988" if file else "made wages"
    yield from (
        QUANTILES, "",
        f"Made by `python -m benchmarks.peers.quantiles` in one run: {here()}.",
        "",
        f"The data are wages by region of {data}, in four groups. Epsilon is 1 for the whole statement, and one",
        f"person is added or removed. There are {runs} runs, and {4 * runs} of OpenDP's. OpenDP has",
        "`make_private_quantile` on whole dollars, without intervals, and a third of the price for each of three",
        "quartiles. Errors are root mean squared, in dollars. After ± is the standard error, as a part of the error.",
        "",
        "| quantiles | OpenDP 0.16 | dpduck | without intervals | tree |", "|---|---|---|---|---|",
    )  # fmt: skip
    for fractions, by in told.items():
        theirs = by.get("OpenDP")
        cells = [f"{theirs[0]:.3g} ± {100 * theirs[1]:.0f} %" if theirs else ""]
        for name in OURS:
            error, sure = by[name]
            beside = f", {error / theirs[0]:.2f} times" if theirs else ""
            cells.append(f"{error:.3g} ± {100 * sure:.0f} %{beside}")
        yield f"| {', '.join(f'{one:g}' for one in fractions)} | {' | '.join(cells)} |"
    yield from (
        "",
        "Half of the price of a chosen quantile is for its interval, which OpenDP does not have. So compare",
        '"without intervals" (`quantile_intervals = FALSE`) with OpenDP. By default three quartiles have a tree.',
        "Without intervals they are chosen.",
    )


def main() -> int:
    """Prints the part, with gates, or writes it into the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--wages", type=Path)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    told = measured(Wages(given.wages), given.runs)
    part = "\n".join(lines_of(told, given.wages, given.runs))
    if given.write is not None:
        put(given.write, part)
    print(part)
    passed = []
    for fractions, by in told.items():
        error, name = by["without intervals"][0], ", ".join(f"{one:g}" for one in fractions)
        if "OpenDP" in by:
            passed.append(gate(error <= 1.25 * by["OpenDP"][0], f"{name}: {error / by['OpenDP'][0]:.2f} of OpenDP's"))
        passed.append(gate(error <= 1.1 * by["tree"][0], f"{name}: {error / by['tree'][0]:.2f} of the tree's"))
    if find_spec("opendp") is None:
        print("skipped: no OpenDP", file=sys.stderr)
    return 0 if all(passed) else 1


def gate(passed: bool, text: str) -> bool:
    """Prints a verdict."""
    print(f"{'PASS' if passed else 'FAIL'} gate    {text}", flush=True)
    return passed


def put(page: Path, part: str) -> None:
    """Writes the part in place of the old text, before the heading after it."""
    text = page.read_text("utf-8")
    before, _, rest = text.partition(QUANTILES)
    _, mark, after = (rest if rest else "").partition("\n## ")
    if not rest:
        before, mark, after = text.partition("\n## Synthetic data of wide tables")
    page.write_text(f"{before.rstrip()}\n\n{part}\n{mark}{after}", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
