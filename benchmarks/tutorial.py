"""Draws the tutorial's pictures from the tables on its pages. `python -m benchmarks.pictures` calls this.

Private numbers are those of the tables on the pages, which are answers that somebody got. Exact ones are counted in the
clinic of the first page. So a picture agrees with the table beside it, and the same pages give the same files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

PAGES = Path(__file__).resolve().parent.parent / "docs" / "tutorial"
EXACT, PRIVATE, WEAK, CUT, INK = "#b8bec7", "#2f6db5", "#9cc3ee", "#e08a2e", "#102a4c"
NO_ENTRY = "no entry"
_BOX = re.compile(r"^┌.*?^└[^\n]*", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"(?:^\|[^\n]*\n)+", re.MULTILINE)

Row = dict[str, str]


def page(name: str) -> str:
    """The text of a chapter."""
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def boxes(text: str) -> list[list[Row]]:
    """The boxes of a page, as rows of texts by column."""
    return [_rows(re.findall(r"^│(.*)│$", box, re.MULTILINE), "│", 2) for box in _BOX.findall(text)]


def tables(text: str) -> list[list[Row]]:
    """The tables of a page's prose, as rows of texts by column."""
    return [_rows([line.strip("|") for line in table.splitlines()], "|", 2) for table in _TABLE.findall(text)]


def _rows(lines: Sequence[str], separator: str, first: int) -> list[Row]:
    cells = [[cell.strip() for cell in line.split(separator)] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[first:]]


def with_columns(found: Sequence[list[Row]], *columns: str) -> list[list[Row]]:
    """Those tables that have just these columns."""
    return [rows for rows in found if rows and tuple(rows[0]) == columns]


def clinic() -> duckdb.DuckDBPyConnection:
    """The clinic of the first chapter, in memory."""
    (sql,) = re.findall(r"`clinic\.sql`:\n\n```sql\n(.*?)```", page("first_counts"), re.DOTALL)
    connection = duckdb.connect()
    connection.execute(sql)
    return connection


def number(text: str) -> float:
    """A number as a page shows it."""
    return float(text.replace(",", ""))


@dataclass(frozen=True)
class Series:
    """Bars of one kind. low, high: the ends of their error bars, empty where they are exact."""

    label: str
    colour: str
    values: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()

    @property
    def errors(self) -> Any:
        """How far error bars reach below and above. None: there are none."""
        if not self.low:
            return None
        values = np.array(self.values)
        return np.array([values - np.array(self.low), np.array(self.high) - values])


def of_rows(label: str, colour: str, rows: Sequence[Row], answer: str) -> Series:
    """Bars of an answer's rows, which have the ends of intervals."""
    low, high = ([number(row[end]) for row in rows] for end in ("low", "high"))
    return Series(label, colour, [number(row[answer]) for row in rows], low, high)


@contextmanager
def drawing(path: Path, panels: int = 1, below: float = 0.0) -> Iterator[Any]:
    """Lends the panels of a picture and writes it. The same drawing gives the same file.

    below: the part of the height that is kept for what stands below the panels.
    """
    import matplotlib as mpl  # noqa: PLC0415 - the notebooks' library, not needed to read pages

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    with mpl.rc_context({"svg.hashsalt": "dpduck", "svg.fonttype": "none", "font.size": 10}):
        figure, axes = plt.subplots(1, panels, figsize=(7.2, 3.2), squeeze=False)
        yield list(axes[0])
        for one in axes[0]:
            one.spines[["top", "right"]].set_visible(False)
        figure.tight_layout(rect=(0, below, 1, 1))
        figure.savefig(path, metadata={"Date": None}, facecolor="white")
        plt.close(figure)


def draw_bars(axes: Any, labels: Sequence[str], series: Sequence[Series]) -> None:
    """Draws the series beside each other in groups."""
    places, wide = np.arange(len(labels)), 0.8 / len(series)
    for position, kind in enumerate(series):
        at = places + (position - (len(series) - 1) / 2) * wide
        style: dict[str, Any] = {"color": kind.colour, "label": kind.label}
        if kind.low:
            style |= {"yerr": kind.errors, "capsize": 3, "ecolor": INK}
        axes.bar(at, kind.values, wide * 0.95, **style)
    axes.set_xticks(places, labels)


def ward_counts(connection: duckdb.DuckDBPyConnection) -> dict[str, float]:
    """The exact visits of each ward. Wards without visits are left out."""
    counted = "SELECT ward, count(*) FROM visits WHERE ward IS NOT NULL GROUP BY ward ORDER BY ward"
    return {ward: float(count) for ward, count in connection.execute(counted).fetchall()}


def draw_by_ward(path: Path, wards: list[str], series: list[Series], title: str) -> None:
    """Draws visits by ward under a title of the bars."""
    with drawing(path) as (axes,):
        draw_bars(axes, wards, series)
        axes.set(ylabel="visits")
        axes.legend(frameon=False, title=title)


def draw_wards(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Chapter 1: exact counts beside those of two prices."""
    exact = ward_counts(connection)
    good, weak = with_columns(boxes(page("first_counts")), "ward", "visits", "low", "high")
    assert [row["ward"] for row in good] == [row["ward"] for row in weak] == list(exact)
    series = [
        Series("exact", EXACT, list(exact.values())),
        of_rows("private, epsilon = 0.2", PRIVATE, good, "visits"),
        of_rows("private, epsilon = 0.02", WEAK, weak, "visits"),
    ]
    draw_by_ward(path, list(exact), series, "bars: 95 % intervals")


def draw_max_rows(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Chapter 2: short bars about numbers from which rows are left out."""
    exact = ward_counts(connection)
    (whole, _), (cut,) = (
        with_columns(boxes(page(name)), "ward", "visits", "low", "high") for name in ("first_counts", "whose_data")
    )
    assert [row["ward"] for row in whole] == [row["ward"] for row in cut] == list(exact)
    series = [
        Series("exact", EXACT, list(exact.values())),
        of_rows("private, up to 40 visits of a patient", PRIVATE, whole, "visits"),
        of_rows("private, up to 5 visits of a patient", CUT, cut, "visits"),
    ]
    draw_by_ward(path, list(exact), series, "epsilon = 0.2, bars: 95 % intervals")


def draw_bounds(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Chapter 3: bias against noise, as the bound of a bill changes."""
    columns = ("upper bound", "exact within it", "private", "low", "high")
    (rows,) = with_columns(tables(page("sums_and_averages")), *columns)
    ((unbounded,),) = connection.execute("SELECT avg(cost) FROM visits").fetchall()
    series = [
        Series("exact within the bound", EXACT, [number(row["exact within it"]) for row in rows]),
        of_rows("private, epsilon = 0.05, with 95 % intervals", PRIVATE, rows, "private"),
    ]
    with drawing(path) as (axes,):
        draw_bars(axes, [row["upper bound"] for row in rows], series)
        axes.axhline(unbounded, color=INK, linestyle="--", linewidth=1, label="exact without a bound")
        axes.set(ylabel="average cost of a visit", xlabel="upper bound of a bill")
        axes.legend(frameon=False, loc="upper left")


def draw_repetition(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Chapter 4: several cheap answers, their average, and one answer for the same price."""
    (rows,) = with_columns(tables(page("budget")), "", "private", "low", "high")
    ((exact,),) = connection.execute("SELECT count(*) FROM visits").fetchall()
    colours = [*[WEAK] * 5, CUT, PRIVATE]
    labels = [*["0.02"] * 5, "average\nof the five", "one answer\nfor 0.1"]
    shown = of_rows("", "", rows, "private")
    with drawing(path) as (axes,):
        for place, (value, colour) in enumerate(zip(shown.values, colours, strict=True)):
            reach = shown.errors[:, [place]]
            axes.errorbar(place, value, reach, fmt="o", color=colour, ecolor=colour, capsize=5, linewidth=2)
        axes.axhline(exact, color=INK, linestyle="--", linewidth=1, label="exact")
        axes.set(ylabel="visits in all", xticks=range(len(labels)), xticklabels=labels)
        axes.set_xlabel("price of the answer, as epsilon")
        axes.legend(frameon=False, title="bars: 95 % intervals", loc="lower right")


def draw_cube(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Chapter 5: the cells of the cube, by sex and ward. The small cells have a scale of their own."""
    (rows,) = with_columns(boxes(page("cubes")), "ward", "sex", "visits", "visits_stderr", "grouping_level")
    counted = "SELECT coalesce(ward, 'NULL'), coalesce(sex, 'NULL'), count(*) FROM visits GROUP BY ALL"
    exact = {(ward, sex): float(count) for ward, sex, count in connection.execute(counted).fetchall()}
    panels = {"F": "women", "M": "men", "NULL": f"{NO_ENTRY} of sex\n(another scale)"}
    with drawing(path, 3, 0.08) as axes:
        for one, (sex, title) in zip(axes, panels.items(), strict=True):
            cells = [row for row in rows if row["grouping_level"] == "ward, sex" and row["sex"] == sex]
            wards = [NO_ENTRY if row["ward"] == "NULL" else row["ward"] for row in cells]
            for kind, shift in ((_exact_cells(cells, exact), 0.2), (_cells(cells), -0.2)):
                style: dict[str, Any] = {"color": kind.colour, "label": kind.label}
                if kind.low:
                    style |= {"xerr": kind.errors, "capsize": 3, "ecolor": INK}
                one.barh(np.arange(len(cells))[::-1] + shift, kind.values, 0.38, **style)
            one.set_yticks(np.arange(len(cells))[::-1], wards if sex == "F" else [""] * len(cells))
            one.set_title(title, fontsize=10)
        axes[1].set_xlim(axes[0].get_xlim())
        axes[2].axvline(0, color=INK, linewidth=0.8)
        axes[1].set_xlabel("visits")
        axes[1].figure.legend(*axes[1].get_legend_handles_labels(), frameon=False, loc="lower center", ncols=2)


def _exact_cells(cells: Sequence[Row], exact: dict[tuple[str, str], float]) -> Series:
    return Series("exact", EXACT, [exact[row["ward"], row["sex"]] for row in cells])


def _cells(rows: Sequence[Row]) -> Series:
    """Bars of the rows of a view, with two standard errors to each side."""
    values, errors = ([number(row[name]) for row in rows] for name in ("visits", "visits_stderr"))
    low, high = ([value + sign * 2 * e for value, e in zip(values, errors, strict=True)] for sign in (-1, 1))
    return Series("private, with two standard errors each way", PRIVATE, values, low, high)


def draw_months(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Chapter 6: the months of the stream beside exact ones."""
    *_, rows = with_columns(boxes(page("publishing")), "month", "visits", "visits_stderr")
    counted = "SELECT date_trunc('month', day)::DATE::VARCHAR AS month, count(*) FROM visits GROUP BY month"
    exact = dict(connection.execute(counted).fetchall())
    series = [Series("exact", EXACT, [exact[row["month"]] for row in rows]), _cells(rows)]
    with drawing(path) as (axes,):
        draw_bars(axes, [row["month"][5:7] for row in rows], series)
        axes.set(ylabel="visits", xlabel="month of 2025")
        axes.legend(frameon=False, loc="upper left")
        axes.set_ylim(top=1.2 * max(exact.values()))


DRAWERS = {
    "wards": draw_wards,
    "max_rows": draw_max_rows,
    "bounds": draw_bounds,
    "repetition": draw_repetition,
    "cube": draw_cube,
    "months": draw_months,
}
"""The pictures, one of each chapter."""


def draw_tutorial(folder: Path) -> None:
    """Writes all pictures of the tutorial."""
    folder.mkdir(parents=True, exist_ok=True)
    with clinic() as connection:
        for name, draw in DRAWERS.items():
            draw(connection, folder / f"{name}.svg")
