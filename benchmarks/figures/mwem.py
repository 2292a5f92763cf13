"""Figures 2 and 3 and Table 1 of Hardt, Ligett and McSherry, as benchmarks/papers/mwem.py measures them.

Errors are relative entropies of the data's distribution and the synthetic one, in nats, means with standard deviations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures._pictures import Claim, Drawn, Picture, Setup, finish, legend, panels
from benchmarks.papers._synthetic_data import relative_entropy, table_of
from benchmarks.papers.mwem import TABLES, barak, barak_once, contingency, mwem_by_queries

Table = NDArray[np.int64]
Values = Mapping[str, Sequence[NDArray[np.float64]]]
"""Relative entropies of all runs, for each line and each epsilon."""

LINES: Mapping[str, Mapping[str, Any]] = {
    "Barak et al., fitted": {"color": "#7f7f7f", "marker": "s"},
    "Barak et al., one pass": {"color": "#7f7f7f", "marker": "s", "linestyle": ":"},
    "MWEM": {"color": "#ff7f0e", "marker": "o"},
    "MWEM, replays": {"color": "#2ca02c", "marker": "^"},
    "MWEM, optimised": {"color": "#d62728", "marker": "D"},
    "MWEM, 20 rounds": {"color": "#f4b183", "marker": "o"},
    "MWEM, 30 rounds": {"color": "#e67e22", "marker": "^"},
    "MWEM, 40 rounds": {"color": "#a04000", "marker": "D"},
}
OF_CONTINGENCY = {
    "Barak": "Barak et al., fitted", "MWEM": "MWEM", "replays": "MWEM, replays", "optimised": "MWEM, optimised"
}  # fmt: skip
"""Lines of figure 2 by their name in the benchmark."""

PRINTED = {
    "mildew": (64, 22, 70), "czech": (64, 63, 1841), "rochdale": (256, 91, 665), "nltcs": (65_536, 3_152, 21_574)
}  # fmt: skip
"""Table 1: cells, cells with rows, rows."""


@dataclass(frozen=True)
class Runs:
    """epsilons: in tenths. small, large: repetitions over contingency tables and over NLTCS."""

    epsilons: tuple[int, ...]
    small: int
    large: int
    rounds: tuple[int, ...] = (20, 30, 40)


RUNS = {
    "full": Runs((1, 2, 4, 6, 8, 10), 30, 3),
    "reduced": Runs((1, 5, 10), 20, 3),
    "tiny": Runs((10,), 1, 1, (2,)),
}


def plot(axes: Any, epsilons: Sequence[float], values: Values) -> None:
    """Draws means, with a standard deviation of one run up and down."""
    for label, found in values.items():
        means, spreads = [runs.mean() for runs in found], [runs.std() for runs in found]
        axes.errorbar(epsilons, means, spreads, label=label, markersize=4.5, linewidth=1.4, capsize=2, **LINES[label])


def measured(work: Callable[[], float], runs: int) -> NDArray[np.float64]:
    return np.array([work() for _ in range(runs)])


def figure_2(setup: Setup) -> Drawn:
    """Three contingency tables by epsilon."""
    runs = RUNS[setup.size]
    figure, grid = panels(3)
    claims: list[Claim] = []
    for axes, name in zip(grid, TABLES, strict=True):
        table = table_of(setup.data, name)
        values: dict[str, list[NDArray[np.float64]]] = {label: [] for label in list(LINES)[:5]}
        for tenths in runs.epsilons:
            epsilon = Fraction(tenths, 10)
            for label, work in contingency(table, epsilon).items():
                values[OF_CONTINGENCY[label]].append(measured(work, runs.small))
            values["Barak et al., one pass"].append(
                measured(lambda t=table, e=epsilon: relative_entropy(t, barak_once(t, 3, e)), runs.small)  # type: ignore[misc]
            )
        plot(axes, [tenths / 10 for tenths in runs.epsilons], values)
        finish(axes, setup.title(name), "epsilon", "relative entropy, nats", logs="y")
        axes.set_xlim(0, None)
        claims += claims_of_2(name, values)
    legend(figure, grid[0])
    return Drawn(figure, [] if setup.size == "tiny" else claims)


def claims_of_2(name: str, values: Values) -> list[Claim]:
    """The optimised version errs less than either fit of the baseline. Figures of the plain one only inform."""
    means = {label: np.array([runs.mean() for runs in found]) for label, found in values.items()}
    baseline = np.minimum(means["Barak et al., fitted"], means["Barak et al., one pass"])
    text = "; ".join(f"{label} " + ", ".join(f"{mean:.2f}" for mean in of) for label, of in means.items())
    return [(bool((means["MWEM, optimised"] < baseline).all()), f"2, {name}: optimised below Barak ({text})")]


def figure_3(setup: Setup) -> Drawn:
    """NLTCS by epsilon, with all coefficients of two and of three attributes."""
    runs, table = RUNS[setup.size], table_of(setup.data, "nltcs")
    figure, grid = panels(2)
    found: list[dict[str, list[NDArray[np.float64]]]] = []
    for axes, order in zip(grid, (2, 3), strict=True):
        values: dict[str, list[NDArray[np.float64]]] = {}
        for tenths in runs.epsilons:
            for label, work in lines_of_3(table, order, Fraction(tenths, 10), runs.rounds).items():
                values.setdefault(label, []).append(measured(work, runs.large))
        plot(axes, [tenths / 10 for tenths in runs.epsilons], values)
        finish(axes, setup.title(f"NLTCS, {order}-way"), "epsilon", "relative entropy, nats", logs="y")
        axes.set_xlim(0, None)
        found.append(values)
    legend(figure, grid[0], most=3)
    return Drawn(figure, [] if setup.size == "tiny" else claims_of_3(found))


def lines_of_3(table: Table, order: int, epsilon: Fraction, rounds: Sequence[int]) -> dict[str, Callable[[], float]]:
    """Single coefficients, as in the paper. The baseline stands with the better of two fits, and with one pass."""
    lines: dict[str, Callable[[], float]] = {
        "Barak et al., fitted": lambda: min(relative_entropy(table, made) for made in barak(table, order, epsilon)),
        "Barak et al., one pass": lambda: relative_entropy(table, barak_once(table, order, epsilon)),
    }
    for number in rounds:
        label = f"MWEM, {number} rounds" if number >= 20 else "MWEM"
        lines[label] = lambda n=number: relative_entropy(table, mwem_by_queries(table, order, epsilon, n))  # type: ignore[misc]
    return lines


def claims_of_3(found: Sequence[Values]) -> list[Claim]:
    """MWEM wins with three attributes at epsilon 0.1, the baseline with two."""
    claims: list[Claim] = []
    for order, values in zip((2, 3), found, strict=True):
        first = {label: runs[0].mean() for label, runs in values.items()}
        ours = min(mean for label, mean in first.items() if label.startswith("MWEM"))
        baseline = min(mean for label, mean in first.items() if label.startswith("Barak"))
        text = "; ".join(f"{label} " + ", ".join(f"{r.mean():.2f}" for r in runs) for label, runs in values.items())
        right = ours < baseline if order == 3 else baseline < ours
        claims.append((bool(right), f"3, {order}-way at 0.1: MWEM {ours:.2f}, Barak {baseline:.2f} ({text})"))
    return claims


def table_1(setup: Setup) -> Drawn:
    """The tables' cells and rows: ours, and the paper's figures."""
    figure, (axes,) = panels(1)
    lines, same = [], True
    for name, printed in PRINTED.items():
        table = table_of(setup.data, name)
        counted = (table.size, int(np.count_nonzero(table)), int(table.sum()))
        same &= counted == printed
        lines.append([name, *(f"{ours:,} ({paper:,})" for ours, paper in zip(counted, printed, strict=True))])
    axes.axis("off")
    shown = axes.table(lines, colLabels=["table", "cells", "with rows", "rows"], bbox=(0, 0, 1, 1), cellLoc="right")
    shown.auto_set_font_size(False)
    shown.set_fontsize(9)
    axes.set_title(setup.title("Table 1: ours (the paper's)"), fontsize=10)
    figure.set_size_inches(5.2, 1.8)
    return Drawn(figure, [] if setup.made else [(same, "table 1: cells and rows are those of the paper")])


CONTINGENCY = tuple(f"{name}.csv" for name in TABLES)
PICTURES = (
    Picture("mwem_2", figure_2, CONTINGENCY),
    Picture("mwem_3", figure_3, ("nltcs.parquet",)),
    Picture("mwem_table_1", table_1, (*CONTINGENCY, "nltcs.parquet")),
)
