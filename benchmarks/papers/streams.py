"""Streams over 36, 128 and 1,024 periods: errors of strategies beside the lower bound, a binary tree and paying anew.

Root mean squared errors over all periods, each answer as published when its period closes. One charge for all, a unit
of one row, Gaussian noise at sigma = 1 (rho = 1/2), and Laplace noise at epsilon = 1 in the continuous limit. The lower
bound of running totals is the dual of the factorisation norm (Denisov et al. 2022): over v > 0,
tr((D^1/2 A'A D^1/2)^1/2)^2 / sum(v) with D = diag(v), and every v gives a bound. `best` is the factorisation from the
same fixed point, the best published one, before any rounding. The square root of Fichtenberger, Henzinger and Upadhyay
stands beside it. Anew: each period's answer as a statement of its own, a T-th of the price each.

Gates: running totals within 5 % of `best`, single periods within 1 % of the plain mechanism, under Gaussian noise.
"""

from __future__ import annotations

import sys
from math import sqrt

import numpy as np

from dpduck.strategies.time_axis import BRANCHINGS, FACTORISATION, PERIODS, TREE, TimeAxis, time_axis
from dpduck.strategies.time_questions import TimeQuestion, variances
from dpduck.values.arrays import FloatArray

SIZES = (36, 128, 1024)
QUESTIONS = (TimeQuestion(0), TimeQuestion(1), TimeQuestion(12))
STEPS, NEAR = 60, 1e-4


def bounds(periods: int) -> tuple[float, float]:
    """The lower bound for running totals, and the error of the factorisation that comes with it."""
    totals = np.tril(np.ones((periods, periods)))
    gram, weights = totals.T @ totals, np.ones(periods)
    for _ in range(STEPS):
        scale = np.sqrt(weights)
        values, vectors = np.linalg.eigh(scale[:, None] * gram * scale)
        roots = np.sqrt(np.maximum(values, 0))
        following = (vectors**2) @ roots
        lower = float(roots.sum() / sqrt(weights.sum() * periods))
        metric = (vectors * roots) @ vectors.T / np.outer(scale, scale)
        metric /= np.diag(metric).max()
        best = sqrt(np.trace(np.linalg.solve(metric, gram)) / periods)
        if best / lower < 1 + NEAR:
            break
        weights = following
    return lower, best


def square_root(periods: int) -> float:
    """The error of running totals of the square root, before its columns are brought to one norm."""
    entries = np.cumprod([1.0, *((2 * k - 1) / (2 * k) for k in range(1, periods))])
    squares = np.cumsum(entries**2)
    return sqrt(squares[-1] * squares.mean())


def error(axis: TimeAxis, question: TimeQuestion, gaussian: bool) -> float:
    """The root mean squared error of a strategy at sigma = 1, or at epsilon = 1."""
    l1, l2_squared, _ = axis.factor.norms
    found: FloatArray = variances(axis, question)
    return sqrt((l2_squared if gaussian else 2 * l1 * l1) * found.mean())


def main() -> int:
    failed = 0
    for periods in SIZES:
        lower, best = bounds(periods)
        axes = {"periods": time_axis(PERIODS, periods), "tree_2": time_axis(TREE, periods, 2)}
        axes["factorisation"] = time_axis(FACTORISATION, periods)
        trees = [time_axis(TREE, periods, branching) for branching in BRANCHINGS]
        print(f"\n{periods} periods: lower bound of running totals {lower:.4f}, best known {best:.4f},", end=" ")
        print(f"square root {square_root(periods):.4f}")
        for gaussian, noise in ((True, "Gaussian, sigma = 1"), (False, "Laplace, epsilon = 1")):
            print(f"  {noise:22s}" + "".join(f"{question.text:>24s}" for question in QUESTIONS))
            for name, axis in axes.items():
                print(f"    {name:20s}" + "".join(f"{error(axis, one, gaussian):24.3f}" for one in QUESTIONS))
            print(f"    {'best tree':20s}", end="")
            print("".join(f"{min(error(tree, one, gaussian) for tree in trees):24.3f}" for one in QUESTIONS))
            anew = sqrt(periods) if gaussian else sqrt(2) * periods
            print(f"    {'anew each period':20s}" + f"{anew:24.3f}" * len(QUESTIONS))
        for said, ours, limit in (
            ("running totals to the best known", error(axes["factorisation"], QUESTIONS[0], True) / best, 1.05),
            ("single periods to the plain mechanism", error(axes["periods"], QUESTIONS[1], True), 1.01),
        ):
            failed += ours > limit
            print(f"  {said}: {ours:.4f}  gate: {limit}  {'PASS' if ours <= limit else 'FAIL'}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
