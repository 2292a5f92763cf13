"""The pictures of datacubes.py: errors by epsilon on each data set, times, measured against predicted errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from benchmarks.papers._datacube_errors import Setting, predicted_root_mean_square

STYLES: Mapping[
    str, Mapping[str, Any]
] = {  # One colour for a strategy. Uniform budgets are dashed, optimal ones solid, ours thick.
    "I": {"color": "#888888", "linestyle": ":", "marker": "x"},
    "Q": {"color": "#1f77b4", "linestyle": "--", "marker": "s"},
    "Q+": {"color": "#1f77b4", "linestyle": "-", "marker": "s"},
    "F": {"color": "#e377c2", "linestyle": "--", "marker": "v"},
    "F+": {"color": "#e377c2", "linestyle": "-", "marker": "v"},
    "C": {"color": "#2ca02c", "linestyle": "--", "marker": "D"},
    "C+": {"color": "#2ca02c", "linestyle": "-", "marker": "D"},
    "auto": {"color": "#d62728", "linestyle": "-", "marker": "o", "linewidth": 2.4},
    "R": {"color": "#9467bd", "linestyle": "-.", "marker": "*"},
}
NAMES = {"auto": "auto (ours)", "R": "R (ours), Gaussian, delta = 1e-6"}
Results = Mapping[tuple[str, str, Fraction], Any]


def draw_all(
    folder: Path,
    asked: Sequence[Setting],
    results: Results,
    times: Mapping[tuple[str, str], float],
    methods: Sequence[str],
) -> None:
    """Four files into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    epsilons = sorted({epsilon for _, _, epsilon in results})
    for number, name in ((4, "adult"), (5, "nltcs")):
        panels = [setting for setting in asked if setting.table.name == name]
        saved(draw_errors(panels, results, epsilons), folder / f"figure_{number}_errors_{name}.png")
    saved(draw_times(asked, times), folder / "figure_6_times.png")
    _agreement(folder / "measured_against_predicted.png", asked, results, epsilons, methods)


def saved(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_errors(
    panels: Sequence[Setting], results: Results, epsilons: Sequence[Fraction], size: tuple[float, float] = (14, 8)
) -> Figure:
    """Six panels, one for each workload of one data set."""
    figure, grid = plt.subplots(2, 3, figsize=size, sharex=True, layout="constrained")
    for axes, setting in zip(grid.flat, panels, strict=True):
        for method, style in STYLES.items():
            errors = [results[str(setting), method, e].measured.mean / setting.mean_answer for e in epsilons]
            label = NAMES.get(method, method)
            axes.plot([float(e) for e in epsilons], errors, markersize=5, label=label, **style)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:,.10g} %")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid(which="major", alpha=0.4)
        axes.set_title(f"{setting.label} ({len(setting.workload.marginals)} marginals)")
    for axes in grid[-1]:
        axes.set_xlabel("epsilon")
    for axes in grid[:, 0]:
        axes.set_ylabel("average absolute error /\nmean true answer")
    figure.suptitle({"adult": "Adult, eight attributes", "nltcs": "NLTCS, 16 binary attributes"}[panels[0].table.name])
    handles, labels = grid.flat[0].get_legend_handles_labels()
    columns = min(len(labels), int(size[0] / 1.5))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    return figure


def draw_times(
    asked: Sequence[Setting], times: Mapping[tuple[str, str], float], size: tuple[float, float] = (11, 7)
) -> Figure:
    """Seconds of each method, one panel for each data set."""
    methods = list(dict.fromkeys(method for _, method in times))
    figure, grid = plt.subplots(2, 1, figsize=size, sharey=True, layout="constrained")
    for axes, name in zip(grid, ("adult", "nltcs"), strict=True):
        panels = [setting for setting in asked if setting.table.name == name]
        for position, method in enumerate(methods):
            style = STYLES[method]
            filled = style["color"] if style["linestyle"] != "--" else "white"
            axes.bar(
                np.arange(len(panels)) + (position - (len(methods) - 1) / 2) * 0.1,
                [times[str(setting), method] for setting in panels],
                width=0.09, color=filled, edgecolor=style["color"], label=method,
            )  # fmt: skip
        axes.axhline(1.0, color="black", linewidth=1, linestyle=":")
        axes.text(len(panels) - 0.5, 0.9, "gate: 1 s", ha="right", va="top")
        axes.set_yscale("log")
        axes.set_xticks(range(len(panels)), [setting.label for setting in panels])
        axes.set(ylabel="seconds", title=f"{name}: plan, noise and recovery of one release")
        axes.grid(axis="y", alpha=0.4)
    grid[0].legend(ncols=len(methods), loc="upper left", frameon=False, bbox_to_anchor=(0, 0.97))
    return figure


def _agreement(
    path: Path, asked: Sequence[Setting], results: Results, epsilons: Sequence[Fraction], methods: Sequence[str]
) -> None:
    figure, axes = plt.subplots(figsize=(7, 6.5), layout="constrained")
    for method in methods:
        if method not in STYLES:
            continue
        found = [results[str(setting), method, epsilon] for setting in asked for epsilon in epsilons]
        axes.scatter(
            [predicted_root_mean_square(item.plan) for item in found],
            [item.measured.root_mean_square for item in found],
            s=18, alpha=0.7, color=STYLES[method]["color"], marker=STYLES[method]["marker"],
            facecolors="none" if STYLES[method]["linestyle"] == "--" else None, label=NAMES.get(method, method),
        )  # fmt: skip
    everything = [predicted_root_mean_square(item.plan) for item in results.values()]
    ends = [min(everything), max(everything)]
    axes.plot(ends, ends, color="black", linewidth=1, label="equal")
    axes.set(xscale="log", yscale="log", xlabel="predicted root mean squared error", ylabel="measured")
    axes.set_title("Every setting, method and epsilon")
    axes.grid(alpha=0.4)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
