"""The largest error of k sparse queries by m, by k and by universe, as benchmarks/papers/sparse_queries.py measures it.

The paper (Blum and Roth) has bounds and no experiments. What our mechanisms state, at 95 per cent, is dashed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.figures._pictures import Claim, Drawn, Picture, Setup, curve, finish, legend, panels
from benchmarks.papers.sparse_queries import BETA, UNIVERSES, WAYS, data, full
from dpduck.values.accounting import rho_of
from dpduck.values.privacy import Charge

EPSILON = Fraction(1)
STYLES: Mapping[str, Mapping[str, Any]] = {
    "projection": {"color": "#d62728", "marker": "o"},
    "session": {"color": "#9467bd", "marker": "s"},
    "histogram": {"color": "#1f77b4", "marker": "D"},
}
FEW, MANY, UNIVERSE = 16, 200, "10^6"
"""m, k and universe where another is varied."""


@dataclass(frozen=True)
class Runs:
    repetitions: int
    sparsities: tuple[int, ...]
    queries: tuple[int, ...]


RUNS = {
    "full": Runs(8, (1, 4, 16, 64, 256), (10, 30, 100, 300, 1_000, 3_000)),
    "reduced": Runs(4, (4, 16, 64), (30, 200, 1_000)),
    "tiny": Runs(1, (4,), (5, 20)),
}


@dataclass(frozen=True)
class Point:
    """One setting: mean largest errors, the largest statements, how often one was exceeded, and a full histogram."""

    errors: Mapping[str, float]
    stated: Mapping[str, float]
    exceeded: int
    whole: float | None


def point(setup: Setup, sparsity: int, queries: int, universe: str) -> Point:
    """Asks the three mechanisms, each over tables and questions of its own seed."""
    charge = Charge.zcdp(rho_of(EPSILON, Fraction(1, 10**6)))
    sets = [data(universe, sparsity, seed, queries) for seed in range(RUNS[setup.size].repetitions)]
    found = {name: [way(held, charge, sparsity) for held in sets] for name, way in WAYS.items()}
    whole = [error for held in sets if (error := full(held, charge, universe)) is not None]
    return Point(
        {name: float(np.mean([error for error, _ in of])) for name, of in found.items()},
        {name: max(stated for _, stated in of) for name, of in found.items()},
        sum(error > stated for of in found.values() for error, stated in of),
        float(np.mean(whole)) if whole else None,
    )


def plot(axes: Any, x: Sequence[float], points: Sequence[Point]) -> None:
    """Draws errors, statements, and the full histogram where the universe is small enough for one."""
    for name, style in STYLES.items():
        curve(axes, x, [of.errors[name] for of in points], name, **style)
        shown = {**style, "marker": "", "linestyle": "--", "linewidth": 1}
        curve(axes, x, [of.stated[name] for of in points], f"{name}, stated", **shown)
    wholes = [(place, of.whole) for place, of in zip(x, points, strict=True) if of.whole is not None]
    style = {"color": "black", "marker": "x", "linestyle": ":"}
    curve(
        axes, [place for place, _ in wholes], [whole for _, whole in wholes], "histogram of the whole universe", **style
    )


def figure(setup: Setup) -> Drawn:
    """By m, by k, and by universe."""
    runs = RUNS[setup.size]
    drawn, (by_sparsity, by_queries, by_universe) = panels(3, share_y=True)
    questions = MANY if setup.size != "tiny" else 10
    first = [point(setup, sparsity, questions, UNIVERSE) for sparsity in runs.sparsities]
    second = [point(setup, FEW, queries, UNIVERSE) for queries in runs.queries]
    third = [point(setup, FEW, questions, universe) for universe in UNIVERSES]
    plot(by_sparsity, runs.sparsities, first)
    plot(by_queries, runs.queries, second)
    plot(by_universe, range(len(third)), third)
    words = "largest error of k queries, in rows"
    finish(by_sparsity, f"(a) k = {questions}, universe {UNIVERSE}", "m, keys of a query", words, logs="xy")
    finish(by_queries, f"(b) m = {FEW}, universe {UNIVERSE}", "k, queries", "", logs="xy")
    finish(by_universe, f"(c) m = {FEW}, k = {questions}", "universe, keys", "", logs="y")
    by_universe.set_xticks(range(len(third)), list(UNIVERSES))
    by_universe.set_xlim(-0.3, len(third) - 0.7)
    legend(drawn, by_sparsity, most=4)
    return Drawn(drawn, [] if setup.size == "tiny" else claims_of(first, second, third, runs.repetitions))


def claims_of(first: Sequence[Point], second: Sequence[Point], third: Sequence[Point], repetitions: int) -> list[Claim]:
    """Errors do not grow with the universe, grow slowly with k, and stay below the stated bound."""
    points = [*first, *second, *third]
    releases = len(points) * len(WAYS) * repetitions
    exceeded = sum(of.exceeded for of in points)
    ratios = {name: max(of.errors[name] for of in third) / min(of.errors[name] for of in third) for name in WAYS}
    growth = {name: second[-1].errors[name] / second[0].errors[name] for name in WAYS}
    least = all(of.errors["histogram"] <= of.errors["projection"] for of in points)
    by_m = "; ".join(f"{name} " + ", ".join(f"{of.errors[name]:,.0f}" for of in first) for name in WAYS)
    return [
        (max(ratios.values()) <= 2, f"errors of four universes are within {max(ratios.values()):.2f} of each other"),
        (max(growth.values()) <= 10, "from the fewest queries to the most, errors grow by " + _words(growth)),
        (exceeded <= 2 * BETA * releases + 1, f"statements were exceeded in {exceeded} of {releases} releases"),
        (least, f"the lazy histogram errs least everywhere; errors by m: {by_m}"),
    ]


def _words(of: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.1f}" for name, value in of.items())


PICTURES = (Picture("sparse_queries", figure),)
