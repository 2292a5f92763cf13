"""Draws what each strategy measures, the pictures of docs/strategies.md: `python -m benchmarks.pictures`.

A row of a picture is one measurement, a column one cell of the table, its colour what a row of that cell adds to the
measurement. Strategies are those of the product, as it plans them. Prints the root mean squared error of an answer.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from fractions import Fraction
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers._range_plans import plan_ranges
from dpduck.algebra.lattice import MarginalWorkload
from dpduck.algebra.ranges import all_ranges
from dpduck.planning.choose import plan_workload
from dpduck.planning.plan import Plan
from dpduck.planning.ranges.plan import RangePlan
from dpduck.planning.ranges.strategy import matrix_of
from dpduck.trusted.noise.law import NoiseKind

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
    """What is measured, over the 64 cells, each measurement in units of its noise."""
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


def range_plan(name: str) -> RangePlan:
    """All ranges over 64 ordered values."""
    noise = NoiseKind.GAUSSIAN if name == "gaussian_optimum" else NoiseKind.LAPLACE
    return plan_ranges(all_ranges(VALUES), noise, PRICE, 1, strategy=name)[0]


def range_matrix(plan: RangePlan) -> NDArray[np.float64]:
    """What is measured, each measurement in units of its noise."""
    gaussian, strategy = plan.noise is NoiseKind.GAUSSIAN, plan.groups
    parameters = strategy.unit_parameters(2) ** 0.5 if gaussian else strategy.unit_parameters(1)
    parts = zip(strategy.factors, parameters, strict=True)
    return np.vstack([matrix_of(factor).astype(np.float64) / scale for factor, scale in parts])


def draw(matrix: NDArray[np.float64], path: Path, cells: str) -> None:
    """Writes one picture; the same matrix gives the same file."""
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


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=FOLDER, help="the folder of the pictures")
    folder = parser.parse_args(arguments).to
    folder.mkdir(parents=True, exist_ok=True)
    for letter, name in MARGINALS.items():
        cubes = cube_plan(letter)
        draw(cube_matrix(cubes), folder / f"{name}.svg", "the 64 cells of six BOOLEAN columns")
        print(f"{name}: {(cubes.total_variance / cubes.workload.cells) ** 0.5:.1f}")
    for name in RANGES:
        ranges = range_plan(name)
        draw(range_matrix(ranges), folder / f"{name}.svg", "64 ordered values")
        print(f"{name}: {(ranges.total_variance / len(ranges.variances)) ** 0.5:.1f}")


if __name__ == "__main__":
    main()
