"""Figures 4 to 6 of Cormode, Procopiuc, Srivastava and Yaroslavtsev, as benchmarks/papers/datacubes.py measures them.

The paper's methods have its consistency step here, which is least squares. The benchmark's own pictures go without.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from time import perf_counter

import duckdb

from benchmarks.figures._pictures import Claim, Drawn, Picture, Setup
from benchmarks.papers._datacube_errors import TABLES, Setting, predicted_root_mean_square, read_table, settings
from benchmarks.papers._datacube_plots import draw_errors, draw_times
from benchmarks.papers.datacubes import Results, compare, time_gates

SIZE = (9.5, 6.2)
"""Inches."""


@dataclass(frozen=True)
class Runs:
    """columns: how many columns of each table are taken, from the first on. 0 takes all."""

    epsilons: tuple[Fraction, ...]
    repetitions: int
    planning_seconds: float
    columns: int = 0


RUNS = {
    "full": Runs(tuple(Fraction(tenths, 10) for tenths in (1, 2, 4, 7, 10)), 4, 0.5),
    "reduced": Runs((Fraction(1, 2), Fraction(1)), 2, 0.3),
    "tiny": Runs((Fraction(1),), 1, 0.05, 3),
}


def settings_of(setup: Setup, name: str) -> list[Setting]:
    """The six workloads over one table."""
    few = RUNS[setup.size].columns
    return list(settings(read_table(name, setup.data, TABLES[name][:few] if few else ())))


def measured(setup: Setup, asked: Sequence[Setting]) -> Results:
    runs = RUNS[setup.size]
    options = Namespace(
        epsilons=runs.epsilons, repetitions=runs.repetitions, planning_seconds=runs.planning_seconds
    )  # fmt: skip
    return compare(asked, options, "l2")


def predicted(results: Results, setting: str, method: str) -> float:
    """The root mean squared error that the planner foresees at epsilon 1."""
    return predicted_root_mean_square(results[setting, method, Fraction(1)].plan)


def relative(results: Results, asked: Sequence[Setting], setting: str, method: str) -> float:
    """The paper's measure at epsilon 1: the average absolute error over the mean true answer."""
    (found,) = [of for of in asked if str(of) == setting]
    return results[setting, method, Fraction(1)].measured.mean / found.mean_answer


def figure_4(setup: Setup) -> Drawn:
    """Adult: six workloads by epsilon."""
    asked = settings_of(setup, "adult")
    results = measured(setup, asked)
    drawn = draw_errors(asked, results, RUNS[setup.size].epsilons, SIZE)
    drawn.suptitle(setup.title(drawn.get_suptitle()), fontsize=11)
    return Drawn(drawn, [] if setup.size == "tiny" or setup.made else claims_of_4(results))


def claims_of_4(results: Results) -> list[Claim]:
    """Optimal budgets lower the error of Q* workloads."""
    claims: list[Claim] = []
    for setting, better, than, least in (
        ("adult Q1*", "Q+", "Q", 0.2), ("adult Q1*", "C+", "C", 0.0), ("adult Q2*", "C+", "C", 0.0)
    ):  # fmt: skip
        less = 1 - predicted(results, setting, better) / predicted(results, setting, than)
        claims.append((less > least, f"4: {setting}: {better} {less:.1%} below {than} in root mean square"))
    return claims


def figure_5(setup: Setup) -> Drawn:
    """NLTCS: six workloads by epsilon."""
    asked = settings_of(setup, "nltcs")
    results = measured(setup, asked)
    drawn = draw_errors(asked, results, RUNS[setup.size].epsilons, SIZE)
    drawn.suptitle(setup.title(drawn.get_suptitle()), fontsize=11)
    return Drawn(drawn, [] if setup.size == "tiny" or setup.made else claims_of_5(results, asked))


def claims_of_5(results: Results, asked: Sequence[Setting]) -> list[Claim]:
    """Clusters err least and Fourier a little more. The last line only informs: I does not win on Q2* and Q2a."""
    claims: list[Claim] = []
    for setting in ("nltcs Q1", "nltcs Q1*"):
        clusters, fourier = predicted(results, setting, "C+"), predicted(results, setting, "F+")
        claims.append((clusters < fourier, f"5: {setting}: C+ {clusters:.1f} below F+ {fourier:.1f}, in rows"))
    for setting in ("nltcs Q2*", "nltcs Q2a"):
        base, clusters = (predicted(results, setting, method) for method in ("I", "C+"))
        relatives = ", ".join(f"{m} {relative(results, asked, setting, m):.4f}" for m in ("I", "C", "C+", "F+", "auto"))
        claims.append((None, f"5: {setting}: I {base:.0f}, C+ {clusters:.0f}; relative errors {relatives}"))
    return claims


def figure_6(setup: Setup) -> Drawn:
    """Seconds of one release by method, and of counting all rows once."""
    asked = [setting for name in TABLES for setting in settings_of(setup, name)]
    times: dict[tuple[str, str], float] = {}
    gates = list(time_gates(asked, times))
    drawn = draw_times(asked, times, SIZE)
    for axes, name in zip(drawn.axes, TABLES, strict=True):
        seconds = min(counted(setup, name) for _ in range(3))
        axes.axhline(seconds, color="#555555", linewidth=1, linestyle="--")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        words = f"{axes.get_title()} (dashed: counting the rows once, {seconds:.3f} s)"
        axes.set_title(setup.title(words), fontsize=10)
    return Drawn(drawn, [] if setup.size == "tiny" else [(passed, f"6: {text}") for passed, text in gates])


def counted(setup: Setup, name: str) -> float:
    """Seconds of DuckDB for the cells of a table."""
    relation = duckdb.read_parquet(str(setup.data / f"{name}.parquet"))
    columns = ", ".join(TABLES[name])
    start = perf_counter()
    relation.aggregate(f"{columns}, count(*) AS n", columns).fetchnumpy()
    return perf_counter() - start


FILES = tuple(f"{name}.parquet" for name in TABLES)
PICTURES = (
    Picture("datacubes_4", figure_4, FILES[:1]),
    Picture("datacubes_5", figure_5, FILES[1:]),
    Picture("datacubes_6", figure_6, FILES),
)
