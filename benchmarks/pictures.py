"""Draws the README's picture, and the strategies of docs/strategies.md: `python -m benchmarks.pictures`.

A row of a picture is one measurement, and a column is one cell of the table. The colour is the weight of the cell in
the measurement. Strategies are those of the product, as it plans them. Prints the root mean squared error of an answer.
The README's picture is one release of a made clinic beside its exact counts; the tutorial's are those of its tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from fractions import Fraction
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import dpduck
from benchmarks.papers._range_plans import plan_ranges, total_variance
from benchmarks.tutorial import draw_tutorial
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.algebra.ranges import all_ranges
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.choose import plan_workload
from dpduck.strategies.plan import Plan
from dpduck.strategies.ranges.product import RangeProduct
from dpduck.strategies.ranges.strategy import matrix_of

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
SIZES = (2,) * 6
TABLES = tuple((first, first + 1) for first in range(5))
MARGINALS = {"I": "identity", "Q": "marginals", "O": "views", "R": "residual", "C": "clustering", "F": "fourier"}
RANGES = ("hierarchy", "haar", "p_identity", "gaussian_optimum")
VALUES = 64
PRICE = Fraction(1)


def cube_plan(letter: str) -> Plan:
    """Six BOOLEAN columns, and the table of each two that are neighbours."""
    workload = MarginalWorkload(SIZES, TABLES, (1.0,) * len(TABLES))
    noise = NoiseKind.GAUSSIAN if letter == "R" else NoiseKind.LAPLACE
    return plan_workload(workload, noise, PRICE, 1, strategy=letter, budgets="uniform" if letter == "I" else "optimal")[
        0
    ]


def cube_matrix(plan: Plan) -> NDArray[np.float64]:
    """Returns the measurements over the 64 cells, each in units of its noise."""
    rows = []
    for measurement in plan.measurements:
        summed = tuple(axis for axis in range(len(SIZES)) if axis not in measurement.query.attributes)
        columns = []
        for cell in range(prod(SIZES)):
            one = np.zeros(prod(SIZES), np.int64)
            one[cell] = 1
            columns.append(measurement.query.apply(one.reshape(SIZES).sum(axis=summed)).ravel())
        scale = float(measurement.parameter) ** (0.5 if plan.noise is NoiseKind.GAUSSIAN else 1)
        rows.append(np.array(columns, np.float64).T / scale)
    return np.vstack(rows)


def range_plan(name: str) -> RangeProduct:
    """All ranges over 64 ordered values."""
    noise = NoiseKind.GAUSSIAN if name == "gaussian_optimum" else NoiseKind.LAPLACE
    return plan_ranges(all_ranges(VALUES), noise, PRICE, 1, strategy=name)[0]


def range_matrix(plan: RangeProduct) -> NDArray[np.float64]:
    """Returns the measurements, each in units of its noise."""
    (strategy,) = plan.strategies
    gaussian = strategy.name == "gaussian_optimum"
    parameters = strategy.unit_parameters(2) ** 0.5 if gaussian else strategy.unit_parameters(1)
    parts = zip(strategy.factors, parameters, strict=True)
    return np.vstack([matrix_of(factor).astype(np.float64) / scale for factor, scale in parts])


def draw(matrix: NDArray[np.float64], path: Path, cells: str) -> None:
    """Writes one picture. The same matrix gives the same file."""
    import matplotlib as mpl  # noqa: PLC0415 - the notebooks' library, not needed to compute matrices

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    with mpl.rc_context({"svg.hashsalt": "dpduck", "svg.fonttype": "none", "font.size": 9}):
        figure, axes = plt.subplots(figsize=(3.6, 0.6 + 0.06 * max(24, min(64, len(matrix)))))
        most = float(np.abs(matrix).max())
        axes.imshow(matrix, cmap="RdBu", vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
        axes.set(xlabel=cells, ylabel=f"{len(matrix)} measurements", xticks=[], yticks=[])
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None}, facecolor="white")
        plt.close(figure)


WARDS = ("cardiology", "emergency", "geriatrics", "neurology", "oncology", "paediatrics")
CLINIC = """CREATE TABLE visits AS SELECT range // 2 AS patient_id,
    [{wards}][1 + CAST(floor(6 * pow(hash(range, 3) % 10000 / 10000.0, 1.6)) AS INTEGER)] AS ward FROM range(2400)"""
POLICY = """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient_id MAX ROWS 2, BUDGET (epsilon = 1),
    DOMAIN ward IN ({wards}))"""
RELEASE = """SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1)
    ward, count(*) AS n, dp_interval_low(n) AS low, dp_interval_high(n) AS high
    FROM visits GROUP BY ward ORDER BY ward"""
EPSILON = 0.1


def release() -> list[tuple[str, int, float, float, float]]:
    """The exact count, the private one and its interval, of each ward of a made clinic."""
    wards = ", ".join(f"'{ward}'" for ward in WARDS)
    with dpduck.connect() as connection:
        connection.execute(CLINIC.format(wards=wards))
        connection.execute("FROM dp(?)", [POLICY.format(wards=wards)]).fetchall()
        exact = dict(connection.execute("SELECT ward, count(*) FROM visits GROUP BY ward").fetchall())
        private = connection.execute("FROM dp(?)", [RELEASE]).fetchall()
    return [(ward, exact[ward], count, low, high) for ward, count, low, high in private]


def draw_release(rows: Sequence[tuple[str, int, float, float, float]], path: Path) -> None:
    """Writes bars of exact and private counts, with the intervals of the private ones."""
    import matplotlib as mpl  # noqa: PLC0415 - as below

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    places, counts = np.arange(len(rows)), np.array([row[2] for row in rows], np.float64)
    ends = np.array([[row[3], row[4]] for row in rows]).T
    with mpl.rc_context({"svg.hashsalt": "dpduck", "svg.fonttype": "none", "font.size": 10}):
        figure, axes = plt.subplots(figsize=(7.2, 3.0))
        axes.bar(places - 0.2, [row[1] for row in rows], 0.38, color="#b8bec7", label="exact")
        bars = np.abs(ends - counts)
        label = f"private, epsilon = {EPSILON:g}, with 95 % intervals"
        axes.bar(places + 0.2, counts, 0.38, yerr=bars, capsize=4, color="#2f6db5", ecolor="#102a4c", label=label)
        axes.set(ylabel="visits", xticks=places, xticklabels=[row[0] for row in rows])
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None}, facecolor="white")
        plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=FOLDER, help="the folder of the pictures")
    folder = parser.parse_args(arguments).to
    folder.mkdir(parents=True, exist_ok=True)
    draw_release(release(), folder / "first_counts.svg")
    draw_tutorial(folder / "tutorial")
    for letter, name in MARGINALS.items():
        cubes = cube_plan(letter)
        draw(cube_matrix(cubes), folder / f"{name}.svg", "the 64 cells of six BOOLEAN columns")
        print(f"{name}: {(cubes.total_variance / cubes.workload.cells) ** 0.5:.1f}")
    for name in RANGES:
        ranges = range_plan(name)
        draw(range_matrix(ranges), folder / f"{name}.svg", "64 ordered values")
        print(f"{name}: {(total_variance(ranges) / len(ranges.variances[0])) ** 0.5:.1f}")


if __name__ == "__main__":
    main()
