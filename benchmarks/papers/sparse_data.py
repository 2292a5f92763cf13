"""Figures 3, 4, 5 (c) and a table for 6 (a) of "Publication of Sparse Data" (Cormode et al. 2012); claims as gates.

Synthetic data of the paper: m = 10^6, occupied cells at random with counts of mean 100 and standard deviation 20 or 40,
density 0.1, 0.01, 0.001, epsilon 0.1; and the US county commuting matrix where it is there. Ranges are runs of cells in
mixed-radix order, all there are of each length. Errors are root mean squared over ranges and repetitions; summaries
have 2 n rows, n the occupied cells (nodes, for dyadic ranges); the paper takes n and the total as public.

Gates: filter_priority at most 1.1 times the error of the full geometric mechanism for ranges of 1,000 cells and more at
density 0.1, and below it at density 0.01; the consistency check cuts the error of dyadic filters by 30 % or more, at
every length, on the skewed histograms of DPBench (fewer than a fifth of the bins occupied; skipped without the data);
least squares on top never err more than 5 % beyond it there, and on 1,024 labels with about 100 rows each they take at
least a third of the error of ranges of 100.
Informs: the tables, throughput (cells of the noisy table a second, if there were one) by density, and the consistency
check on synthetic data, which helps short ranges: errors of long ones are noise of large nodes, which no check removes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import duckdb
import matplotlib as mpl
import numpy as np
from matplotlib import pyplot

from benchmarks.papers._dyadic import intervals_of, range_sums
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.queries.cells import MixedRadix
from dpduck.kernel.queries.sparse_counts import SparseCounts
from dpduck.kernel.queries.summaries import draw_summary
from dpduck.language.select.request import Summary
from dpduck.mechanisms.summaries.fit import fit_intervals
from dpduck.mechanisms.summaries.parents import with_parents
from dpduck.mechanisms.summaries.plan import design_method, noise_variance
from dpduck.mechanisms.summaries.recover import EstimatedSummary, estimate_weights, with_priorities

CELLS = 1_000_000
EPSILON = Fraction(1, 10)
METHODS = ("geometric", "filter", "threshold", "priority", "filter_threshold", "filter_priority")
SIZES = (10, 100, 1_000, 10_000, 100_000)
RANGES = 200
DENSE_LABELS = 1_024
LENGTHS = (10, 100, 1_000)
"""Of random ranges over dyadic nodes."""
GATE_REPETITIONS = 60
"""Standard errors of the gates' ratios are then below 3 %."""
SKEWED = ("ADULTFRANK", "GrossCompenMDSalary1", "GrossCompenMDSalary2_filtered", "NETTRACE")
"""All of DPBench's histograms with fewer than a fifth of 4,096 bins occupied."""
DATA = Path(os.environ.get("DPDUCK_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")


def synthetic(density: float, deviation: float, rng: np.random.Generator) -> np.ndarray:
    """Dense exact counts of the paper's first data set."""
    table = np.zeros(CELLS, dtype=np.int64)
    places = rng.choice(CELLS, int(CELLS * density), replace=False)
    table[places] = np.maximum(rng.normal(100, deviation, len(places)).round(), 1)
    return table


def occupied(table: np.ndarray) -> SparseCounts:
    """The cells of a dense table that have rows, by position, as the database hands them over."""
    places = np.flatnonzero(table)
    return SparseCounts(MixedRadix((len(table),)), places[None, :], table[places])


def drawn(
    counts: SparseCounts, rows: int, method: str, size: int, epsilon: Fraction = EPSILON, theta: int | None = None
) -> EstimatedSummary:
    """One summary by the shortcut. theta: of a filter, where the size is not to choose it."""
    cells = counts.radix.cells
    design = design_method(Summary(method, size, theta, expect_rows=rows), cells, 1 / epsilon)
    noisy = draw_summary(counts, design.plan, operating_system_entropy())
    kept, tau = with_priorities(noisy, design.keep, float(design.tau))
    return estimate_weights(kept, design.scale, design.theta, tau, sides=design.sides, whole=design.plan.whole)


def summarised(
    table: np.ndarray, method: str, size: int, epsilon: Fraction = EPSILON, theta: int | None = None
) -> EstimatedSummary:
    """One summary of a dense table."""
    return drawn(occupied(table), int(table.sum()), method, size, epsilon, theta)


def range_gaps(table: np.ndarray, summary: EstimatedSummary, sizes: Sequence[int]) -> list[np.ndarray]:
    """Returns, for each size, by how much the sums over all ranges are off."""
    dense = -table.astype(np.float64)
    dense[summary.positions[0]] += summary.weights
    off = np.concatenate([[0.0], np.cumsum(dense)])
    return [off[size:] - off[:-size] for size in sizes]


def range_errors(table: np.ndarray, summary: EstimatedSummary) -> list[float]:
    """Mean squared error over all ranges of each size."""
    return [float(np.mean(gaps**2)) for gaps in range_gaps(table, summary, SIZES)]


def error_table(table: np.ndarray, size: int, repetitions: int) -> dict[str, np.ndarray]:
    """Root mean squared error of each method by range size, with the seconds of one summary last."""
    found = {}
    for method in METHODS:
        start = time.perf_counter()
        summaries = [summarised(table, method, size) for _ in range(repetitions)]
        seconds = (time.perf_counter() - start) / repetitions
        errors = np.mean([range_errors(table, summary) for summary in summaries], axis=0)
        found[method] = np.append(np.sqrt(errors), seconds)
    return found


def show(title: str, errors: dict[str, np.ndarray], cells: int) -> None:
    print(f"\n{title}")
    print(f"  {'range of':18}" + "".join(f"{size:>10}" for size in SIZES) + f"{'seconds':>10}{'M cells/s':>11}")
    for method, row in errors.items():
        figures = "".join(f"{error:10.1f}" for error in row[:-1])
        print(f"  {method:18}{figures}{row[-1]:10.3f}{cells / row[-1] / 1e6:11.1f}")


def gate(passed: bool, text: str) -> bool:
    print(f"{'PASS' if passed else 'FAIL'} gate    {text}", flush=True)
    return passed


def claims(tables: dict[tuple[float, int], np.ndarray]) -> list[bool]:
    """The paper's shape: filtering, then sampling, is as good as all the noise, and better where data are sparse.

    The full mechanism's error is known: that of one cell times the root of the cells.
    """
    passed = []
    full = np.sqrt(noise_variance(float(1 / EPSILON)) * np.array(SIZES))
    least = SIZES.index(1_000)
    for (density, deviation), table in tables.items():
        if density == 0.001:
            continue
        runs = [summarised(table, "filter_priority", int(2 * CELLS * density)) for _ in range(GATE_REPETITIONS)]
        errors = np.sqrt(np.mean([range_errors(table, run) for run in runs], axis=0))
        worst = (errors / full)[least:].max()
        most, words = (1.1, "at most 1.1") if density == 0.1 else (1.0, "below 1")
        where = f"density {density:g}, sigma {deviation}: filter_priority / geometric"
        passed.append(gate(worst <= most, f"{where} {worst:.2f} from 1,000 cells on ({words})"))
    return passed


def dyadic_errors(
    table: np.ndarray, repetitions: int, rng: np.random.Generator, wanted: Sequence[int] | None = None
) -> np.ndarray:
    """Root mean squared error over random ranges of each length from a dyadic filter, shape (3, lengths).

    First without the consistency check, then with the check, then with least squares too, from the same draws and
    ranges. wanted: the lengths, by default LENGTHS.
    """
    held = intervals_of(table)
    design = held.design("filter", 2 * held.occupied, EPSILON)
    total = np.concatenate([[0], np.cumsum(table)])
    lengths = [min(length, len(table) // 2) for length in wanted or LENGTHS]
    errors = np.zeros((3, len(lengths), repetitions))
    for number in range(repetitions):
        noisy = held.draw(design)
        checked = with_parents(noisy, held.radix, held.axes)
        plain = estimate_weights(checked, design.scale, design.theta, 0.0)
        agreeing = fit_intervals(plain, held.radix, held.axes, noise_variance(design.scale))
        asked = [rng.integers(0, len(table) - length + 1, RANGES) for length in lengths]
        kinds = ((noisy, noisy.counts), (checked, checked.counts), (checked, agreeing.weights))
        for kind, (chosen, counts) in enumerate(kinds):
            for place, (length, starts) in enumerate(zip(lengths, asked, strict=True)):
                truth = total[starts + length] - total[starts]
                sums = range_sums(held.axis, chosen.positions[0], counts.astype(np.float64), starts, length)
                errors[kind, place, number] = np.mean((sums - truth) ** 2)
    found: np.ndarray = np.sqrt(errors.mean(axis=2))
    return found


def skewed(rng: np.random.Generator) -> np.ndarray:
    """300 occupied labels of 65,536 with Zipf counts in the hundreds and more."""
    table = np.zeros(65_536, dtype=np.int64)
    table[rng.choice(65_536, 300, replace=False)] = (300 * rng.zipf(1.5, 300)).clip(300, 200_000)
    return table


def histogram(folder: Path, name: str) -> np.ndarray:
    """A histogram of DPBench, zeros included."""
    path = str(folder / "dpbench_1d.parquet")
    rows = duckdb.execute("SELECT n FROM read_parquet(?) WHERE dataset = ? ORDER BY bin", [path, name])
    return rows.fetchnumpy()["n"].astype(np.int64)


def consistency(repetitions: int, rng: np.random.Generator) -> tuple[list[bool], dict[str, np.ndarray]]:
    """Gates on real histograms. A made one only informs."""
    found = {"Zipf": dyadic_errors(skewed(rng), repetitions, rng)}
    print("\ndyadic filter, ranges of " + ", ".join(str(length) for length in LENGTHS))
    print(f"     informs Zipf: {_cuts(found['Zipf'])}")
    passed = []
    dense = dyadic_errors(rng.poisson(100, DENSE_LABELS), repetitions, rng)
    passed.append(gate(bool(dense[2, 1] <= 2 / 3 * dense[1, 1]), f"dense: {_fits(dense)} (a third, ranges of 100)"))
    if not (DATA / "dpbench_1d.parquet").is_file():
        print("skipped: no DPBench data")
        return passed, found
    for name in SKEWED:
        errors = found[name] = dyadic_errors(histogram(DATA, name), repetitions, rng)
        passed.append(gate(bool((errors[1] <= 0.7 * errors[0]).all()), f"{name}: {_cuts(errors)} (30 %)"))
        passed.append(gate(bool((errors[2] <= 1.05 * errors[1]).all()), f"{name}: {_fits(errors)} (5 % more)"))
    return passed, found


def _cuts(errors: np.ndarray) -> str:
    return "; ".join(f"{plain:.0f} to {checked:.0f}, {1 - checked / plain:.0%} less" for plain, checked, _ in errors.T)


def _fits(errors: np.ndarray) -> str:
    return "; ".join(f"{checked:.0f} to {agreeing:.0f} by least squares" for _, checked, agreeing in errors.T)


def county_table(folder: Path | None = None, below: str = "99") -> np.ndarray | None:
    """The commuting matrix, dense, in the order of its counties. None without the data.

    below: takes only counties with smaller codes. '57' leaves the fifty states and the District of Columbia.
    """
    path = (folder or DATA) / "od_us_counties.parquet"
    if not path.is_file():
        return None
    rows = duckdb.execute(
        f"SELECT (dense_rank() OVER (ORDER BY home_county) - 1) AS home, dense_rank() OVER (ORDER BY work_county) - 1 "
        f"AS work, workers FROM '{path}' WHERE home_county < $1 AND work_county < $1", [below]
    ).fetchnumpy()  # fmt: skip
    table = np.zeros((int(rows["home"].max()) + 1, int(rows["work"].max()) + 1), dtype=np.int64)
    table[rows["home"], rows["work"]] = rows["workers"]
    return table.reshape(-1)


def draw_figures(
    folder: Path, found: dict[tuple[float, int], dict[str, np.ndarray]], dyadic: dict[str, np.ndarray]
) -> None:
    """Error against range size for each density and deviation, throughput against density, and consistency."""
    mpl.use("agg")
    for (density, deviation), errors in found.items():
        figure, axes = pyplot.subplots()
        for method, row in errors.items():
            axes.loglog(SIZES, row[:-1], marker="o", label=method)
        axes.set(xlabel="cells in the range", ylabel="error", title=f"density {density:g}, sigma {deviation}")
        axes.legend()
        figure.savefig(folder / f"sparse_{density:g}_{deviation}.png")
        pyplot.close(figure)
    figure, axes = pyplot.subplots()
    densities = sorted({density for density, _ in found})
    for method in METHODS:
        rates = [CELLS / found[density, 20][method][-1] for density in densities]
        axes.loglog(densities, rates, marker="o", label=method)
    axes.set(xlabel="density", ylabel="cells of the domain a second", title="throughput")
    axes.legend()
    figure.savefig(folder / "sparse_throughput.png")
    pyplot.close(figure)
    figure, axes = pyplot.subplots()
    for name, (plain, checked, agreeing) in dyadic.items():
        (line,) = axes.loglog(LENGTHS, plain, marker="o", linestyle="dashed")
        axes.loglog(LENGTHS, agreeing, marker="o", color=line.get_color(), linestyle="dotted")
        axes.loglog(LENGTHS, checked, marker="o", color=line.get_color(), label=name)
    axes.set(xlabel="labels in the range", ylabel="error", title="dyadic filters; dashed: unchecked; dotted: fitted")
    axes.legend()
    figure.savefig(folder / "sparse_dyadic.png")
    pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument(
        "--no-counties", action="store_true", help="leave out the commuting matrix, which takes longest"
    )
    parser.add_argument("--figures", type=Path)
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(2012)
    found, tables = {}, {}
    for deviation in (20, 40):
        for density in (0.1, 0.01, 0.001):
            table = tables[density, deviation] = synthetic(density, deviation, rng)
            errors = error_table(table, int(2 * CELLS * density), options.repetitions)
            show(f"density {density:g}, sigma {deviation}, epsilon {float(EPSILON):g}", errors, CELLS)
            found[density, deviation] = errors
    county = None if options.no_counties else county_table()
    if county is None:
        print("\nskipped: the county data are not there, or not wanted")
    else:
        size = int(2 * np.count_nonzero(county))
        show("US county commuting", error_table(county, size, max(1, options.repetitions // 5)), len(county))
    passed = claims(tables)
    gates, dyadic = consistency(max(3, options.repetitions // 2), rng)
    if options.figures is not None:
        draw_figures(options.figures, found, dyadic)
    return 0 if all([*passed, *gates]) else 1


if __name__ == "__main__":
    sys.exit(main())
