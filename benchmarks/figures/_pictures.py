"""One style for all pictures of the papers. Writes them small, and byte for byte alike for the same figures."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from PIL import Image

mpl.use("agg")
from matplotlib import pyplot
from matplotlib.ticker import LogLocator, NullFormatter

SIZES = ("full", "reduced", "tiny")
"""Sizes of runs: as in docs/, for `make papers`, and for a quick test with meaningless figures."""

LARGEST_FILE = 80_000
COLOURS = 64
DPI = 100
PANEL = (3.7, 3.3)
"""Inches."""

STYLES: Mapping[str, Mapping[str, Any]] = {
    "geometric": {"color": "#555555", "linestyle": "--", "marker": ""},
    "filter": {"color": "#1f77b4", "marker": "o"},
    "filter_one_sided": {"color": "#17becf", "marker": "v"},
    "threshold": {"color": "#ff7f0e", "marker": "s"},
    "priority": {"color": "#2ca02c", "marker": "D"},
    "filter_threshold": {"color": "#9467bd", "marker": "^"},
    "filter_priority": {"color": "#d62728", "marker": "*", "markersize": 8},
}
"""Of summaries, the same in all pictures of the paper on sparse data."""

Claim = tuple[bool | None, str]
"""Whether a claim of the paper holds with ours, and our figures. None: the figures only inform."""


@dataclass(frozen=True)
class Setup:
    """data: the folder of the files. size: one of SIZES. made: whether the files are made up (`made.py`)."""

    data: Path
    size: str = "full"
    made: bool = False

    def title(self, text: str) -> str:
        return f"{text} (made up)" if self.made else text


@dataclass(frozen=True)
class Drawn:
    """A picture in memory, and the claims that its figures were held against."""

    figure: Any
    claims: Sequence[Claim] = ()


@dataclass(frozen=True)
class Picture:
    """A figure or table of a paper. files: without which it cannot be drawn."""

    name: str
    draw: Callable[[Setup], Drawn]
    files: tuple[str, ...] = ()

    def missing(self, setup: Setup) -> list[str]:
        return [name for name in self.files if not (setup.data / name).is_file()]


def panels(count: int, *, rows: int = 1, share_y: bool = False) -> tuple[Any, list[Any]]:
    """Returns a figure and its panels, side by side."""
    across = -(-count // rows)
    size = (PANEL[0] * across, PANEL[1] * rows + 0.4)
    figure, grid = pyplot.subplots(rows, across, figsize=size, squeeze=False, sharey=share_y, layout="constrained")
    return figure, list(grid.flat)


def curve(axes: Any, x: Sequence[float], y: Sequence[float] | np.ndarray, label: str, **style: Any) -> None:
    """Draws a line in the style of a method."""
    axes.plot(x, y, label=label, **{"markersize": 4.5, "linewidth": 1.4, **STYLES.get(label, {}), **style})


def finish(axes: Any, title: str, x: str, y: str, *, logs: str = "") -> None:
    """Adds title and units. logs: the axes with a logarithmic scale. The others begin at 0."""
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.35)
    for name in ("x", "y"):
        if name in logs:
            axes.set(**{f"{name}scale": "log"})
            plain_numbers(axes.xaxis if name == "x" else axes.yaxis)
        else:
            axes.set(**{f"{name}lim": (0, None)})


def plain_numbers(axis: Any) -> None:
    """Labels a logarithmic axis by numbers. A short axis has more numbers."""
    low, high = axis.get_view_interval()
    decades = np.log10(high / low)
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2.2 else (1, 3) if decades < 3.2 else (1,)))
    axis.set_major_formatter(lambda value, _: number_words(value))
    axis.set_minor_formatter(NullFormatter())


def number_words(value: float) -> str:
    """Writes a tick short enough for its place: millions with an M."""
    if value >= 1e6:
        return f"{value / 1e6:,.0f} M"
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def legend(figure: Any, axes: Any, most: int = 7) -> None:
    """Adds one legend for all panels, below them."""
    handles, labels = axes.get_legend_handles_labels()
    columns = min(most, len(labels))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def write(figure: Any, path: Path) -> int:
    """Writes a picture with few colours and without a date. Returns its bytes."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    pyplot.close(figure)
    image = Image.open(drawn).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, optimize=True)
    return path.stat().st_size
