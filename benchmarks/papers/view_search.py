"""Optimised views under pure epsilon against the best-known figures, and against a long independent search.

Gates (exit status 1 when one fails): on all eight workloads the error per released cell is within 2 % of
the best known, planned in under 10 s; on five random size vectors it is within 3 % of the better of two other
methods that are given `--independent` seconds each: L-BFGS over the logarithms of the budgets of all 2^d views from
many starts, and annealing from random views. Neither knows of designs. The column `2 s` (the default planning time)
only informs. Traps: a busy machine takes longer for the same plan, which ends after so much work, not by the clock;
the first search of a process also builds the designs, so it is timed as it is.

    python -m benchmarks.papers.view_search [--seconds 8] [--independent 60] [--seed 1] [--skip-random]
"""

from __future__ import annotations

import argparse
import sys
from itertools import combinations
from math import log, sqrt
from time import monotonic

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dpduck.algebra.lattice import close_downward
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.strategies.views.annealing import anneal_views
from dpduck.strategies.views.effort import HashCounter, WorkLimit
from dpduck.strategies.views.objective import ViewObjective
from dpduck.strategies.views.search import FoundViews, search_views

ADULT8 = (9, 16, 7, 15, 6, 5, 2, 2)
BIN16 = (2,) * 16
UP_TO_3 = (0, 1, 2, 3)
BEST_KNOWN = [
    ("Adult8 1-way", ADULT8, (1,), 9.16),
    ("Adult8 2-way", ADULT8, (2,), 24.92),
    ("Adult8 3-way", ADULT8, (3,), 37.01),
    ("Adult8 up to 3-way", ADULT8, UP_TO_3, 38.76),
    ("Bin16 1-way", BIN16, (1,), 12.00),
    ("Bin16 2-way", BIN16, (2,), 34.06),
    ("Bin16 3-way", BIN16, (3,), 60.43),
    ("Bin16 up to 3-way", BIN16, UP_TO_3, 61.00),
]


def problem(sizes: tuple[int, ...], orders: tuple[int, ...]) -> tuple[MarginalWorkload, ViewObjective]:
    marginals = tuple(members for order in orders for members in combinations(range(len(sizes)), order))
    workload = MarginalWorkload(sizes, marginals, (1.0,) * len(marginals))
    return workload, ViewObjective.of(workload, close_downward(marginals, sizes))


def timed(workload: MarginalWorkload, objective: ViewObjective, seconds: float) -> tuple[float, float, FoundViews]:
    """Error per released cell, wall seconds, and the result."""
    started = monotonic()
    found = search_views(objective, workload, seconds)
    return sqrt(found.error / workload.cells), monotonic() - started, found


def gradient_search(objective: ViewObjective, seconds: float, seed: int) -> float:
    """The least error of L-BFGS over log budgets of every view, f(eta) (sum eta)^2, from random starts."""
    attributes = len(objective.lattice.attributes)
    codes = np.arange(1, 1 << attributes)
    views = (codes[:, None] & objective.bits) != 0
    incidence, cells = objective.incidence(views), objective.cells(views)
    random, best, end_at = np.random.default_rng(seed), np.inf, monotonic() + seconds

    def log_error(logarithms: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        budgets = np.exp(logarithms - logarithms.max())
        measured = np.maximum(objective.precisions(incidence, cells, budgets), 1e-290)
        total = float((objective.kept_coefficients / measured).sum())
        slope = -budgets / cells * (incidence @ (objective.kept_coefficients / measured**2))
        return log(total) + 2 * log(budgets.sum()), budgets * (slope / total + 2 / budgets.sum())

    while monotonic() < end_at:
        start = random.normal(scale=random.choice([0.3, 1.0, 3.0]), size=len(codes)) - 0.5 * np.log(cells) / 3
        end = minimize(log_error, start, jac=True, method="L-BFGS-B", bounds=[(-40, 20)] * len(codes))
        best = min(best, float(np.exp(end.fun)))
    return best


def annealed_search(objective: ViewObjective, seconds: float, seed: int, largest_view: float = 1 << 24) -> float:
    """The least error of long annealing from random views."""
    random, best, limit = np.random.default_rng(seed), np.inf, WorkLimit(seconds)
    attributes = len(objective.lattice.attributes)
    number = 0
    while not limit.is_over:
        number += 1
        views = random.random((int(random.integers(20, 90)), attributes)) < random.uniform(0.3, 0.6)
        views = np.concatenate([views, np.ones((1, attributes), dtype=bool)])
        codes = np.maximum(views @ objective.bits, 1)
        source, hot = HashCounter(f"independent {seed} {number}"), 10 ** random.uniform(-2.5, -1.3)
        codes, budgets = anneal_views(
            objective, codes, np.ones(len(codes)), 60_000, (hot, 0.0003), largest_view, source, limit
        )
        views = (codes[:, None] & objective.bits) != 0
        best = min(best, objective.converge(views, budgets, 1e-8, WorkLimit(5))[2])
    return best


def known_table(seconds: float) -> bool:
    passed = True
    print(f"{'workload':20s} {'best known':>10s} {'2 s':>8s} {'ours':>8s} {'ratio':>6s} {'seconds':>7s}  found")
    for name, sizes, orders, best in BEST_KNOWN:
        workload, objective = problem(sizes, orders)
        quick, _, _ = timed(workload, objective, 2.0)
        error, wall, found = timed(workload, objective, seconds)
        good = error <= 1.02 * best and wall < 10
        passed &= good
        print(
            f"{name:20s} {best:10.2f} {quick:8.3f} {error:8.3f} {error / best:6.3f} {wall:7.1f}  "
            f"{'PASS' if good else 'FAIL'} {len(found.views)} views: {found.origin}",
            flush=True,
        )
    return passed


def random_table(seconds: float, independent: float, seed: int) -> bool:
    passed, random = True, np.random.default_rng(seed)
    print(
        f"\nrandom sizes (seed {seed}): ours, L-BFGS over all views, annealing from random views, ratio to the better"
    )
    for number in range(5):
        count = int(random.integers(5, 11))
        sizes = tuple(int(size) for size in np.round(np.exp(random.uniform(log(2), log(20), count))))
        orders = [(2,), (3,), UP_TO_3][number % 3]
        workload, objective = problem(sizes, orders)
        error, wall, found = timed(workload, objective, seconds)
        others = [
            sqrt(search(objective, independent, seed) / workload.cells) for search in (gradient_search, annealed_search)
        ]
        good = error <= 1.03 * min(others) and wall < 10
        passed &= good
        print(
            f"{sizes} {orders}: {error:.3f} {others[0]:.3f} {others[1]:.3f} {error / min(others):.3f} {wall:.1f} s "
            f"{'PASS' if good else 'FAIL'} {len(found.views)} views: {found.origin}",
            flush=True,
        )
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--independent", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skip-random", action="store_true")
    arguments = parser.parse_args()
    passed = known_table(arguments.seconds)
    if not arguments.skip_random:
        passed &= random_table(arguments.seconds, arguments.independent, arguments.seed)
    print("\nPASS" if passed else "\nFAIL")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
