"""Figures 2 to 6 of Cormode, Procopiuc, Srivastava and Tran, as benchmarks/papers/sparse_data.py measures them.

Errors are mean absolute ones, over all runs of so many cells and all repetitions. Errors of the check are root mean
squared. Cells with rows lie at random in made tables, so that a run is a subset drawn at random there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from benchmarks.figures._pictures import STYLES, Claim, Drawn, Picture, Setup, curve, finish, legend, panels
from benchmarks.papers._datacube_errors import mean_absolute
from benchmarks.papers._dyadic import intervals_of, range_sums, summary_of
from benchmarks.papers.sparse_data import (
    EPSILON,
    LENGTHS,
    METHODS,
    RANGES,
    SKEWED,
    county_table,
    drawn,
    dyadic_errors,
    histogram,
    occupied,
    range_gaps,
    skewed,
    summarised,
    synthetic,
)
from dpduck.mechanisms.summaries.plan import noise_variance
from dpduck.mechanisms.summaries.recover import EstimatedSummary

SEED = 2012
THETA = 50
"""The paper's, of a filter."""
THETA_OF_SAMPLES = 40
"""The paper's, of a filter before a sample."""
THETAS = {"filter": THETA, "filter_threshold": THETA_OF_SAMPLES, "filter_priority": THETA_OF_SAMPLES}
SUM = 5_000
"""Cells of the sums in figure 2."""


@dataclass(frozen=True)
class Runs:
    """repetitions: for each point. scale: by which the paper's 10^6 cells are divided."""

    repetitions: int
    scale: int = 1


RUNS = {"full": Runs(20), "reduced": Runs(8), "tiny": Runs(1, 50)}


def table_of(setup: Setup, density: float, deviation: float) -> np.ndarray:
    """The paper's made data. At a tiny size, only its first cells."""
    table = synthetic(density, deviation, np.random.default_rng(SEED))
    return table[: len(table) // RUNS[setup.size].scale]


def geometric(cells: int) -> float:
    """The mean absolute error of the full mechanism, from the law of its noise."""
    return mean_absolute(((noise_variance(float(1 / EPSILON)), cells),))


def errors_of(
    setup: Setup, table: np.ndarray, sizes: Sequence[int], draw: Callable[[], EstimatedSummary]
) -> np.ndarray:
    """Mean absolute errors of sums over so many cells."""
    runs = [
        [float(np.abs(gaps).mean()) for gaps in range_gaps(table, draw(), sizes)]
        for _ in range(RUNS[setup.size].repetitions)
    ]
    return np.asarray(np.mean(runs, axis=0))


def figure_2(setup: Setup) -> Drawn:
    """Errors by the parameters: theta of filters, rows of samples, theta of a filter before a sample."""
    table = table_of(setup, 0.1, 20)
    there = int(np.count_nonzero(table))
    figure, (filters, samples, both) = panels(3)

    def error(method: str, size: int, theta: int | None) -> float:
        return float(errors_of(setup, table, [SUM], lambda: summarised(table, method, size, EPSILON, theta))[0])

    thetas = (10, 20, 30, 40, 50, 60, 70)
    found = {m: [error(m, there, theta) for theta in thetas] for m in ("filter_one_sided", "filter")}
    for method, values in found.items():
        curve(filters, thetas, values, method)
    parts = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
    sizes = [round(part * there) for part in parts]
    sampled = {m: [error(m, size, None) for size in sizes] for m in ("threshold", "priority")}
    for method, values in sampled.items():
        curve(samples, [size / 1000 for size in sizes], values, method)
    wide = (5, 10, 20, 30, 40, 50, 60, 70)
    last = [error("filter_priority", there, theta) for theta in wide]
    curve(both, wide, last, "filter_priority")
    for axes in (filters, samples, both):
        axes.axhline(geometric(SUM), color="#555555", linestyle="--", linewidth=1.2, label="geometric")
        axes.legend(fontsize=8)
    words = f"error of a sum of {SUM:,} cells, in rows"
    finish(filters, "(a) filters by theta", "theta, in rows", words, logs="y")
    finish(samples, "(b) samples by their size", "rows of the summary, thousands", words)
    finish(both, "(c) filter, then priorities", "theta, in rows", words)
    best, paper = wide[int(np.argmin(last))], last[wide.index(THETA_OF_SAMPLES)]
    least = min(last)
    two_sided = all(two < one for one, two in zip(found["filter_one_sided"][:3], found["filter"][:3], strict=True))
    both_sides = ", ".join(f"{t}: {a:.0f} / {b:.0f}" for t, a, b in zip(thetas, *found.values(), strict=True))
    sample = ", ".join(f"{s}: {a:.0f} / {b:.0f}" for s, a, b in zip(sizes, *sampled.values(), strict=True))
    falls = all(values == sorted(values, reverse=True) for values in sampled.values())
    claims: list[Claim] = [
        (two_sided, f"2a: two sides err less than one up to theta 30 ({both_sides})"),
        (falls, f"2b: errors of samples fall with their size ({sample})"),
        (
            best in (30, 40, 50, 60),
            f"2c: the best theta is {best}, {least:.0f}; the paper's 40 has {paper:.0f}",
        ),
    ]
    return Drawn(figure, [] if setup.size == "tiny" else claims)


CASES = (
    ("(a) density 0.1, sigma 20: few cells", 0.1, 20, (10, 30, 100, 300, 1_000, 3_000, 10_000)),
    ("(b) the same: many cells", 0.1, 20, (50_000, 100_000, 200_000, 300_000, 400_000, 500_000)),
    ("(c) density 0.1, sigma 40", 0.1, 40, (10, 100, 1_000, 10_000, 100_000, 300_000)),
    ("(d) density 0.01, sigma 20", 0.01, 20, (10, 100, 1_000, 10_000, 100_000, 300_000)),
)
"""Panels of figure 3, and the cells of their sums."""

MANY = 500_000
"""Cells of the sums by which priorities and the filter are compared. Near 250,000 they err alike."""

CHOSEN = "filter_priority, theta chosen"
Errors = dict[str, np.ndarray]


def figure_3(setup: Setup) -> Drawn:
    """Errors by the cells of a sum, with as many rows as occupied cells, and theta 50 and 40."""
    figure, grid = panels(4, rows=2)
    found = []
    for axes, (title, density, deviation, cells) in zip(grid, CASES, strict=True):
        table = table_of(setup, density, deviation)
        sizes = [size for size in cells if size < len(table)] or [100]
        errors = errors_by_method(setup, table, sizes)
        for method, values in errors.items():
            style = {**STYLES["filter_priority"], "linestyle": ":"} if method == CHOSEN else {}
            curve(axes, sizes, values, method, **style)
        linear = cells[0] > 10
        finish(axes, title, "cells of the sum", "error, in rows", logs="" if linear else "xy")
        if linear:
            in_thousands(axes)
        found.append(errors)
    legend(figure, grid[0], most=4)
    if setup.size == "tiny":
        return Drawn(figure, [])
    return Drawn(figure, claims_of_3(found, law_of_priority(table_of(setup, 0.1, 20), MANY)))


def errors_by_method(setup: Setup, table: np.ndarray, sizes: Sequence[int], *, thetas: bool = True) -> Errors:
    """Errors with as many rows as occupied cells. thetas: the paper's, and beside them what SQL chooses."""
    there = int(np.count_nonzero(table))
    errors = {"geometric": np.array([geometric(size) for size in sizes])}
    asked = [(method, method, THETAS.get(method) if thetas else None) for method in METHODS[1:]]
    asked += [(CHOSEN, "filter_priority", None)] if thetas else []
    for label, method, theta in asked:
        draw = partial(summarised, table, method, there, EPSILON, theta)
        errors[label] = errors_of(setup, table, sizes, draw)
    return errors


def in_thousands(axes: Any) -> None:
    """Labels both axes in thousands."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value / 1000:,.0f}")
        axis.set_label_text(f"{axis.get_label_text()}, thousands")


def law_of_priority(table: np.ndarray, cells: int) -> float:
    """Returns the mean absolute error of a sum of so many cells, by the variances that one release states.

    Sums over half of the table are nearly one number for each release, and deviate by 14,000 rows from one release to
    the next. The mean of a few releases would not tell.
    """
    variances = summarised(table, "priority", int(np.count_nonzero(table)), EPSILON).variances
    return float(np.sqrt(2 / np.pi * variances.sum() * cells / len(table)))


def claims_of_3(found: Sequence[Errors], law: float) -> list[Claim]:
    """The four panels' claims, as docs/papers_items.md has them. law: of priorities, for sums of MANY cells."""
    few, many, noisy, sparse = found
    next_best = min(float((few[method] / few["filter"])[:5].min()) for method in METHODS[2:])
    other = float(many["filter"][CASES[1][3].index(MANY)])
    loses, wins = noisy["filter_priority"] / noisy["geometric"], sparse["filter_priority"] / sparse["geometric"]
    below, chosen = bool((sparse[CHOSEN] < sparse["geometric"]).all()), _words(sparse[CHOSEN] / sparse["geometric"])
    return [
        (next_best > 1, f"3a: the filter errs least of all summaries; the next errs {next_best:.2f} times as much"),
        (law < other, f"3b: priority {law:,.0f} is below the filter {other:,.0f} at {MANY:,} cells"),
        (float(loses[3:].min()) > 1, f"3c: filter and priority over geometric, from 10,000 cells on: {_words(loses)}"),
        (below, f"3d: filter and priority over geometric: {chosen} at a chosen theta; {_words(wins)} at 40"),
    ]


def _words(ratios: np.ndarray) -> str:
    return ", ".join(f"{ratio:.2f}" for ratio in ratios)


DENSITIES = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0001)


def figure_4(setup: Setup) -> Drawn:
    """Processor seconds of one summary by density, with as many rows as occupied cells: the fastest of some draws."""
    figure, (domain, entries) = panels(2)
    seconds: dict[str, list[float]] = {method: [] for method in METHODS}
    tables = [table_of(setup, density, 20) for density in DENSITIES]
    for table in tables:
        counts, rows = occupied(table), int(table.sum())
        for method in METHODS:
            draw = partial(drawn, counts, rows, method, int(np.count_nonzero(table)))
            seconds[method].append(min(timed(draw) for _ in range(RUNS[setup.size].repetitions)))
    for method, taken in seconds.items():
        rates = np.array([len(table) for table in tables]) / taken / 1e6
        curve(domain, DENSITIES, rates, method)
        there = np.array([np.count_nonzero(table) for table in tables])
        curve(entries, DENSITIES, there / taken / 1e6, method)
    finish(domain, "(a) cells of the domain", "density", "millions a second", logs="xy")
    finish(entries, "(b) occupied cells, the unit of the paper", "density", "millions a second", logs="xy")
    legend(figure, domain, most=6)
    gains = np.array(seconds["geometric"]) / np.array(seconds["filter_priority"])
    words = ", ".join(f"{density:g}: {gain:.0f}" for density, gain in zip(DENSITIES, gains, strict=True))
    claim = (float(gains[-2]) > 4, f"4: filter and priority is faster than geometric, times by density: {words}")
    return Drawn(figure, [] if setup.size == "tiny" else [claim])


def timed(work: Callable[[], object]) -> float:
    start = process_time()
    work()
    return process_time() - start


def figure_5(setup: Setup) -> Drawn:
    """Errors of ranges from dyadic intervals: uniform and skewed labels, and the consistency check."""
    figure, (uniform, zipf, check) = panels(3)
    rng = np.random.default_rng(SEED)
    tables = ((uniform, "(a) uniform", table_of(setup, 0.1, 20)), (zipf, "(b) skewed", skewed(rng)))
    claims: list[Claim] = []
    for axes, title, table in tables:
        errors = interval_errors(setup, table, rng)
        for method, values in errors.items():
            curve(axes, lengths_of(table), values, method)
        finish(axes, f"{title}, {len(table):,} labels", "labels of the range", "error, in rows", logs="xy")
        claims.append((None, f"5 {title}: " + "; ".join(f"{m} {_rounded(v)}" for m, v in errors.items())))
    cuts = check_panel(setup, check, {"made, skewed": tables[1][2]} | histograms(setup), rng)
    legend(figure, uniform, most=6)
    least = min(min(cut) for name, cut in cuts.items() if name != "made, skewed") if len(cuts) > 1 else 1.0
    words = "; ".join(f"{name} " + ", ".join(f"{cut:.0%}" for cut in of) for name, of in cuts.items())
    claims.append((bool(least >= 0.3), f"5c: the check cuts errors by {words}"))
    return Drawn(figure, [] if setup.size == "tiny" else claims)


def lengths_of(table: np.ndarray) -> list[int]:
    return [length for length in (10, 100, 1_000, 10_000, 100_000, 1_000_000) if length <= len(table) // 5]


def interval_errors(setup: Setup, table: np.ndarray, rng: np.random.Generator) -> Errors:
    """Mean absolute errors by length of the range. A summary has as many rows as there are occupied intervals."""
    held, total = intervals_of(table), np.concatenate([[0], np.cumsum(table)])
    errors = {}
    for method in METHODS:
        design = held.design(method, held.occupied, EPSILON)
        runs: list[list[float]] = []
        for _ in range(max(1, RUNS[setup.size].repetitions // 4)):
            found = summary_of(held, design, consistent=False)
            runs.append([])
            for length in lengths_of(table):
                starts = rng.integers(0, len(table) - length + 1, RANGES)
                sums = range_sums(held.axis, found.positions[0], found.weights, starts, length)
                runs[-1].append(float(np.abs(sums - total[starts + length] + total[starts]).mean()))
        errors[method] = np.mean(runs, axis=0)
    return errors


def histograms(setup: Setup) -> dict[str, np.ndarray]:
    """The skewed histograms of DPBench. Empty without the data."""
    there = (setup.data / "dpbench_1d.parquet").is_file()
    return {name.removesuffix("_filtered"): histogram(setup.data, name) for name in SKEWED if there}


def check_panel(
    setup: Setup, axes: Any, tables: dict[str, np.ndarray], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Draws errors of dyadic filters with the check over those without. Returns the largest cut."""
    cuts = {}
    for name, table in tables.items():
        plain, checked, _ = dyadic_errors(table, max(2, RUNS[setup.size].repetitions), rng)
        cuts[name] = 1 - checked / plain
        axes.plot(LENGTHS, 100 * cuts[name], marker="o", markersize=4.5, linewidth=1.4, label=name)
    axes.axhspan(30, 60, color="#999999", alpha=0.25, label="the paper: 30 to 60 %")
    finish(
        axes,
        setup.title("(c) the consistency check, filters"),
        "labels of the range",
        "error less by, per cent",
        logs="x",
    )
    axes.set_ylim(0, 100)
    axes.legend(fontsize=7)
    return cuts


SHARES = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.2)
"""Of the domain, in the sums of figure 6 (a)."""

STATES = "57"
"""Codes of counties are smaller in the fifty states: 9,872,164 pairs, which are one column of a policy, too."""


def figure_6(setup: Setup) -> Drawn:
    """Commuting between counties: sums over subsets, ranges of a column of all pairs, and the consistency check."""
    table = county_table(setup.data, STATES)
    if table is None:
        raise SystemExit("no od_us_counties.parquet in the folder of the data")
    figure, (subsets, ranges, check) = panels(3)
    rng = np.random.default_rng(SEED)
    sizes = [max(1, int(share * len(table))) for share in SHARES]
    errors = errors_by_method(fewer(setup), rng.permutation(table), sizes, thetas=False)
    for method, values in errors.items():
        curve(subsets, [100 * share for share in SHARES], values, method)
    finish(
        subsets, setup.title("(a) subsets of all pairs"), "part of the domain, per cent", "error, in workers", logs="xy"
    )
    intervals = interval_errors(fewer(setup), table, rng)
    for method, values in intervals.items():
        curve(ranges, lengths_of(table), values, method)
    finish(ranges, setup.title("(b) dyadic ranges"), "pairs of the range", "error, in workers", logs="xy")
    kinds = dyadic_errors(table, max(2, RUNS[setup.size].repetitions // 2), rng, lengths_of(table))
    styles = (("filter", "--", "without"), ("filter", "-", "with the check"), ("filter_priority", "-", "fitted, too"))
    for values, (like, line, label) in zip(kinds, styles, strict=True):
        curve(check, lengths_of(table), values, label, **{**STYLES[like], "linestyle": line})
    finish(check, setup.title("(c) the check, filters"), "pairs of the range", "root mean squared error", logs="xy")
    check.legend(fontsize=8)
    legend(figure, subsets, most=6)
    above = errors["filter_priority"] / errors["geometric"]
    cuts, shares = 1 - kinds[1] / kinds[0], ", ".join(f"{share:.2%}" for share in SHARES)
    claims: list[Claim] = [
        (None, f"6a: filter and priority over geometric, at {shares} of the domain: {_words(above)}"),
        (None, "6b: " + "; ".join(f"{method} {_rounded(values)}" for method, values in intervals.items())),
        (bool(cuts[0] >= 0.3), "6c: the check cuts errors by " + ", ".join(f"{cut:.0%}" for cut in cuts)),
    ]
    return Drawn(figure, [] if setup.size == "tiny" else claims)


def fewer(setup: Setup) -> Setup:
    """Takes the reduced repetitions, of a table of ten million cells."""
    return replace(setup, size="reduced") if setup.size == "full" else setup


PICTURES = (
    Picture("sparse_2", figure_2),
    Picture("sparse_3", figure_3),
    Picture("sparse_4", figure_4),
    Picture("sparse_5", figure_5, ("dpbench_1d.parquet",)),
    Picture("sparse_6", figure_6, ("od_us_counties.parquet",)),
)


def _rounded(values: np.ndarray) -> str:
    return ", ".join(f"{value:,.0f}" for value in values)
