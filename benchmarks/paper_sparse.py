"""Figures 2 to 6 of "Differentially Private Publication of Sparse Data" (Cormode et al. 2012), and its claims as gates.

Synthetic data of the paper: m = 10^6, occupied cells at random with counts of mean 100 and standard deviation 20 or 40,
density 0.1, 0.01, 0.001, epsilon 0.1; and the US county commuting matrix where it is there. Ranges are runs of cells in
mixed-radix order. Errors are root mean squared over ranges and repetitions; sizes of summaries are 2 n.

Gates: filter_priority at most 1.1 times the error of the full geometric mechanism for ranges of 1,000 cells and more at
density 0.1, and below it at density 0.01; the consistency check cuts the error of dyadic filters by 30 % or more on
skewed data. Informs: the tables, and throughput (rows of the noisy table a second, if there were one) by density.
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

from dpduck.frontend.summary import Summary
from dpduck.summaries.consistency import with_parents
from dpduck.summaries.design import designed
from dpduck.summaries.estimators import EstimatedSummary, estimated, with_priorities
from dpduck.trusted.entropy import operating_system_entropy
from dpduck.trusted.exact_counts import ExactCounts
from dpduck.trusted.mixed_radix import MixedRadix
from dpduck.trusted.range_nodes import node_sensitivity, sparse_counts
from dpduck.trusted.summary_sampler import SparseCounts, draw_summary
from dpduck.workload.dyadic import Axis

CELLS = 1_000_000
EPSILON = Fraction(1, 10)
METHODS = ("geometric", "filter", "threshold", "priority", "filter_threshold", "filter_priority")
SIZES = (10, 100, 1_000, 10_000, 100_000)
RANGES = 200
DATA = Path(os.environ.get("DPDUCK_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")


def synthetic(density: float, deviation: float, rng: np.random.Generator) -> np.ndarray:
    """Dense exact counts of the paper's first data set."""
    table = np.zeros(CELLS, dtype=np.int64)
    places = rng.choice(CELLS, int(CELLS * density), replace=False)
    table[places] = np.maximum(rng.normal(100, deviation, len(places)).round(), 1)
    return table


def summarised(table: np.ndarray, method: str, size: int, epsilon: Fraction = EPSILON) -> EstimatedSummary:
    """One summary of a dense table, by the shortcut."""
    places = np.flatnonzero(table)
    counts = SparseCounts(MixedRadix((len(table),)), places[None, :], table[places])
    design = designed(Summary(method, size), len(table), 1 / epsilon)
    noisy = draw_summary(counts, design.plan, operating_system_entropy())
    kept, tau = with_priorities(noisy, design.keep, float(design.tau))
    return estimated(kept, design.scale, design.theta, tau, whole=design.plan.whole)


def range_errors(table: np.ndarray, summary: EstimatedSummary, rng: np.random.Generator) -> list[float]:
    """Mean squared error over random ranges of each size."""
    dense = np.zeros(len(table))
    dense[summary.positions[0]] = summary.weights
    off = np.concatenate([[0.0], np.cumsum(dense - table)])
    errors = []
    for size in SIZES:
        starts = rng.integers(0, len(table) - min(size, len(table)) + 1, RANGES)
        errors.append(float(np.mean((off[starts + min(size, len(table))] - off[starts]) ** 2)))
    return errors


def error_table(table: np.ndarray, size: int, repetitions: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Root mean squared error of each method by range size, with the seconds of one summary last."""
    found = {}
    for method in METHODS:
        start = time.perf_counter()
        summaries = [summarised(table, method, size) for _ in range(repetitions)]
        seconds = (time.perf_counter() - start) / repetitions
        errors = np.mean([range_errors(table, summary, rng) for summary in summaries], axis=0)
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


def claims(found: dict[tuple[float, int], dict[str, np.ndarray]]) -> list[bool]:
    """The paper's shape: filtering, then sampling, is as good as all the noise, and better where data are sparse."""
    passed = []
    for (density, deviation), errors in found.items():
        ratios = errors["filter_priority"][:-1] / errors["geometric"][:-1]
        where = f"density {density:g}, sigma {deviation}: filter_priority / geometric"
        if density == 0.1:
            worst = ratios[SIZES.index(1_000) :].max()
            passed.append(gate(worst <= 1.1, f"{where} {worst:.2f} from 1,000 cells on (at most 1.1)"))
        elif density == 0.01:
            worst = ratios[SIZES.index(1_000) :].max()
            passed.append(gate(worst < 1.0, f"{where} {worst:.2f} from 1,000 cells on (below 1)"))
    return passed


def dyadic_errors(table: np.ndarray, repetitions: int, rng: np.random.Generator) -> tuple[float, float]:
    """Error of random ranges from a dyadic filter summary, without and with the consistency check."""
    axis = Axis("dyadic", len(table))
    axes = (axis,)
    places = np.flatnonzero(table)
    exact = ExactCounts((places,), table[places][None, :], (len(table),), (1,))
    radix = MixedRadix((axis.nodes,))
    design = designed(Summary("filter", 2_000), axis.nodes, node_sensitivity(axes) / EPSILON)
    total = np.concatenate([[0], np.cumsum(table)])
    errors = np.zeros((2, repetitions))
    for number in range(repetitions):
        noisy = draw_summary(sparse_counts(exact, axes, radix), design.plan, operating_system_entropy())
        bounds = np.sort(rng.integers(0, len(table), (RANGES, 2)), axis=1)
        truth = total[bounds[:, 1] + 1] - total[bounds[:, 0]]
        for kind, chosen in enumerate((noisy, with_parents(noisy, radix, axes))):
            levels, nodes = axis.places(chosen.positions[0])
            sums = [range_sum(levels, nodes, chosen.counts, low, high) for low, high in bounds]
            errors[kind, number] = np.mean((np.array(sums) - truth) ** 2)
    return float(np.sqrt(errors[0].mean())), float(np.sqrt(errors[1].mean()))


def range_sum(levels: np.ndarray, nodes: np.ndarray, counts: np.ndarray, low: int, high: int) -> int:
    """The sum over the maximal nodes inside a range."""
    first, last = nodes << levels, ((nodes + 1) << levels) - 1
    above, beyond = nodes >> 1 << (levels + 1), (((nodes >> 1) + 1) << (levels + 1)) - 1
    inside = (first >= low) & (last <= high) & ~((above >= low) & (beyond <= high))
    return int(counts[inside].sum())


def consistency_gate(repetitions: int, rng: np.random.Generator) -> bool:
    """Skewed data: 300 occupied labels of 65,536 with Zipf counts in the hundreds and thousands."""
    table = np.zeros(65_536, dtype=np.int64)
    table[rng.choice(65_536, 300, replace=False)] = (300 * rng.zipf(1.5, 300)).clip(300, 200_000)
    plain, checked = dyadic_errors(table, repetitions, rng)
    cut = 1 - checked / plain
    return gate(cut >= 0.3, f"dyadic filter: error {plain:.0f}, with consistency {checked:.0f}: {cut:.0%} less (30 %)")


def county_table() -> np.ndarray | None:
    """The commuting matrix, dense, in the order of its counties; None without the data."""
    path = DATA / "od_us_counties.parquet"
    if not path.is_file():
        return None
    rows = duckdb.sql(
        f"SELECT (dense_rank() OVER (ORDER BY home_county) - 1) AS home, dense_rank() OVER (ORDER BY work_county) - 1 "
        f"AS work, workers FROM '{path}'"
    ).fetchnumpy()
    table = np.zeros((int(rows["home"].max()) + 1, int(rows["work"].max()) + 1), dtype=np.int64)
    table[rows["home"], rows["work"]] = rows["workers"]
    return table.reshape(-1)


def draw_figures(folder: Path, found: dict[tuple[float, int], dict[str, np.ndarray]]) -> None:
    """Error against range size, one picture for each density and deviation."""
    mpl.use("agg")
    for (density, deviation), errors in found.items():
        figure, axes = pyplot.subplots()
        for method, row in errors.items():
            axes.loglog(SIZES, row[:-1], marker="o", label=method)
        axes.set(xlabel="cells in the range", ylabel="error", title=f"density {density:g}, sigma {deviation}")
        axes.legend()
        figure.savefig(folder / f"sparse_{density:g}_{deviation}.png")
        pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--figures", type=Path)
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(2012)
    found = {}
    for deviation in (20, 40):
        for density in (0.1, 0.01, 0.001):
            table = synthetic(density, deviation, rng)
            errors = error_table(table, int(2 * CELLS * density), options.repetitions, rng)
            show(f"density {density:g}, sigma {deviation}, epsilon {float(EPSILON):g}", errors, CELLS)
            found[density, deviation] = errors
    county = county_table()
    if county is None:
        print("\nskipped: no county data")
    else:
        size = int(2 * np.count_nonzero(county))
        show("US county commuting", error_table(county, size, max(1, options.repetitions // 5), rng), len(county))
    if options.figures is not None:
        draw_figures(options.figures, found)
    passed = [*claims(found), consistency_gate(options.repetitions, rng)]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
