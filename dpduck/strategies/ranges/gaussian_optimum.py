"""The optimal Gaussian strategy A of any workload: the least trace(V X^-1) over X = A'A with unit diagonal.

V is the workload's Gram matrix. The problem is convex. For any m > 0 let D = diag(m) and R = (D^1/2 V D^1/2)^1/2. By
duality, the total variance of every strategy is at least (trace R)^2 / sum(m) (Li, Miklau, Hay, McGregor, Rastogi, The
matrix mechanism, 2015). At the optimum both are equal, and X = D^-1/2 R D^-1/2 has unit diagonal: m = diag(R). The
planner iterates this (Denisov, McMahan, Rush, Smith, Thakurta, Improved differential privacy for SGD via optimal
private linear operators, 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

import numpy as np
import scipy

from dpduck.strategies.threads import one_thread
from dpduck.values.arrays import FloatArray

GAP = 1e-4
"""The iteration stops if the total variance exceeds the lower bound by at most this part of the bound."""

COARSEST = 128
"""With more values, the iteration starts from the solution over a quarter as many intervals of values."""

MOST_STEPS = 300

MEMORY = 5
"""Number of former iterates that Anderson's acceleration combines."""

MIXING, ALONE = 1.5, 1.9
"""Multiples of a step of the iteration: with acceleration, and without. Multiples below 2 converge."""

LARGEST_MOVE = 4.0
"""Largest change of a logarithm of m in one step."""

RIDGE = 1e-9
"""Added to the diagonal of V, relative to its mean, so that the strategy answers even values that no query needs."""


@dataclass(frozen=True, eq=False)
class GaussianOptimum:
    """Strategy A with columns of L2 norm 1, its total variance at sigma = 1, and a lower bound on any total."""

    matrix: FloatArray
    total: float
    lower_bound: float


def optimise_gaussian(gram: FloatArray, seconds: float) -> GaussianOptimum:
    """Returns the optimum for the Gram matrix V, shape (n, n), within GAP unless time or steps run out first.

    Acceleration may not converge if V has a low rank. Then a second iteration runs without acceleration.
    """
    deadline = monotonic() + seconds
    size = len(gram)
    raised = gram + RIDGE * np.trace(gram) / size * np.eye(size)
    with one_thread():
        _, inner, total, bound = _iterate(raised, _multipliers(raised, deadline), deadline, GAP)
        if total > bound * (1 + GAP):
            _, other, less, higher = _iterate(raised, np.ones(size), deadline, GAP, accelerated=False)
            (total, inner), bound = min((total, inner), (less, other), key=lambda pair: pair[0]), max(bound, higher)
    return GaussianOptimum(scipy.linalg.cholesky(inner), total, bound)


def _multipliers(gram: FloatArray, deadline: float) -> FloatArray:
    """Returns a start for m: ones for small sizes, else an interpolated solution over fewer, wider values."""
    size = len(gram)
    if size <= COARSEST:
        return np.ones(size)
    bounds = np.arange(size // 4 + 1) * size // (size // 4)
    coarse = np.add.reduceat(np.add.reduceat(gram, bounds[:-1], axis=0), bounds[:-1], axis=1)
    solution = _iterate(coarse, _multipliers(coarse, deadline), deadline, GAP / 10)[0]
    centres = (bounds[:-1] + bounds[1:] - 1) / 2
    return np.asarray(np.interp(np.arange(size), centres, solution))


def _iterate(
    gram: FloatArray, multipliers: FloatArray, deadline: float, gap: float, accelerated: bool = True
) -> tuple[FloatArray, FloatArray, float, float]:
    """Iterates until the gap, the deadline or the steps end it. Returns (m, best X, its total, best lower bound)."""
    best_total, best_bound = np.inf, 0.0
    inner = np.eye(len(gram))
    logs: list[FloatArray] = []
    steps: list[FloatArray] = []
    for _ in range(MOST_STEPS):
        root = np.sqrt(multipliers)
        values, vectors = scipy.linalg.eigh(root[:, None] * gram * root, check_finite=False, driver="evd")
        singular = np.sqrt(np.maximum(values, 1e-15 * values[-1]))
        best_bound = max(best_bound, float(singular.sum() ** 2 / multipliers.sum()))
        diagonal = (vectors * vectors) @ singular
        # X = D^-1/2 R D^-1/2 has the diagonal diag(R)/m. Scaled to 1, its inverse follows from `rows` and `singular`.
        scale = np.sqrt(diagonal / multipliers)
        rows = vectors.T * (root * scale)
        total = float(np.einsum("ij,ij->i", rows @ gram, rows) @ (1 / singular))
        if total < best_total:
            best_total = total
            half = np.sqrt(singular)[:, None] * vectors.T / (root * scale)
            inner = half.T @ half
        if best_total <= best_bound * (1 + gap) or monotonic() > deadline:
            break
        step = np.log(diagonal / diagonal.sum()) - np.log(multipliers / multipliers.sum())
        if accelerated:
            logs, steps = [*logs[-MEMORY:], np.log(multipliers)], [*steps[-MEMORY:], step]
            multipliers = np.exp(_mix_iterates(logs, steps, diagonal))
        else:
            following = np.log(multipliers) + ALONE * step
            multipliers = np.exp(following - following.mean())
    return multipliers, inner, best_total, best_bound


def _mix_iterates(logs: list[FloatArray], steps: list[FloatArray], weights: FloatArray) -> FloatArray:
    """Returns the next log m, with a mean of 0, by Anderson's acceleration of the iteration log m -> log m + step."""
    move = MIXING * steps[-1]
    if len(logs) > 1:
        step_changes = np.stack([steps[-1] - step for step in steps[:-1]], axis=1)
        log_changes = np.stack([logs[-1] - log for log in logs[:-1]], axis=1)
        root = np.sqrt(weights)
        mixed = np.linalg.lstsq(step_changes * root[:, None], steps[-1] * root, rcond=1e-6)[0]
        move = move - (log_changes + MIXING * step_changes) @ mixed
    following = logs[-1] + np.clip(move, -LARGEST_MOVE, LARGEST_MOVE)
    return np.asarray(following - following.mean())
