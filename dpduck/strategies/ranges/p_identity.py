"""HDMM's p-identity strategies: a scaled identity and p smooth overlapping bumps, from a descent.

McKenna, Miklau, Hay, Machanavajjhala, Optimizing error of high-dimensional statistical queries under differential
privacy (2018), section 5.2. The strategy A has the rows of the identity and of a p x n matrix Theta >= 0, divided by
D = diag(1 + 1'Theta), so that columns have L1 norm 1. The descent minimises trace(V (A'A)^-1), with the Gram matrix V.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from time import monotonic
from typing import Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

from dpduck.algebra.ranges import RangeShape, RangeWorkload
from dpduck.strategies.threads import one_thread
from dpduck.values.arrays import FloatArray

Layers = tuple[tuple[int, float], ...]

LEAST_HEIGHT = 0.125
THREE_LAYERS = 1500
"""Above this many values, three layers of hats are tried as well."""

GAIN = 1e-6
"""The descent stops when an iteration gains less than this part of the variance."""

SEARCH_PART = 0.25
"""Part of the time for the choice of starts."""

WIDER_OR_NARROWER = (0.8, 0.5, 1.25, 0.65)
"""Factors of the number of hats in the finest layer, tried in this order while there is time."""

EARLY_STEPS = 40
"""Iterations from each start. Then the descent goes on from the best result."""


class GramWorkload(Protocol):
    """Workload with a Gram matrix V, known by its diagonal and by products of rows and V."""

    @property
    def gram_diagonal(self) -> FloatArray: ...

    def times_gram(self, rows: FloatArray) -> FloatArray: ...


def p_identity_total(theta: FloatArray, workload: GramWorkload) -> float:
    """Computes the total variance trace(V (A'A)^-1) of the strategy A with this Theta, shape (p, n)."""
    return _terms(theta, workload)[0]


def p_identity_gradient(theta: FloatArray, workload: GramWorkload) -> tuple[float, FloatArray]:
    """Returns the total variance and its gradient in Theta, in O(p^2 n) if V times a vector takes linear time.

    Let M = I + Theta Theta' and G = D V D. Then the total is trace(G) - trace(M^-1 Theta G Theta') (Woodbury). Its
    gradient is 2 M^-1 Theta (G Theta' M^-1 Theta - G) + d. Every row of d is 2 diag(V D (I - Theta' M^-1 Theta)).
    """
    total, scale, inverse, rows_gram, solved = _terms(theta, workload)
    solved_theta = inverse @ theta
    by_scale = workload.gram_diagonal * scale - np.einsum("ij,ij->j", solved_theta, rows_gram) / scale
    gradient: FloatArray = 2 * (solved @ solved_theta - inverse @ rows_gram + by_scale)
    return total, gradient


def _terms(theta: FloatArray, workload: GramWorkload) -> tuple[float, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Returns the total, the diagonal of D, M^-1, Theta G and M^-1 Theta G Theta' (see p_identity_gradient)."""
    scale = 1 + theta.sum(axis=0)
    unit = np.eye(len(theta))
    inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(unit + theta @ theta.T), unit)
    rows_gram = workload.times_gram(theta * scale) * scale
    solved = inverse @ (rows_gram @ theta.T)
    total = float(workload.gram_diagonal @ (scale * scale) - np.trace(solved))
    return total, scale, inverse, rows_gram, solved


def p_identity_matrix(theta: FloatArray) -> FloatArray:
    """Returns the strategy A, shape (n + p, n): identity above Theta, with columns divided by their L1 norm."""
    scale = 1 + theta.sum(axis=0)
    stacked: FloatArray = np.vstack([np.eye(theta.shape[1]), theta]) / scale
    return stacked


def optimise_p_identity(workload: RangeWorkload, seconds: float) -> FloatArray:
    """Returns the best Theta of a search in about `seconds`, shape (p, n). If nothing beats the identity, p = 0."""
    with one_thread():
        return _optimise(workload, seconds)


def _optimise(workload: RangeWorkload, seconds: float) -> FloatArray:
    begin = monotonic()
    best: tuple[float, FloatArray] = (np.inf, np.zeros((0, workload.size)))
    for theta in _starts(workload, begin, seconds):
        best = min(best, descend(theta, workload, begin + seconds / 2, EARLY_STEPS), key=lambda pair: pair[0])
        if monotonic() > begin + seconds / 2:
            break
    total, theta = descend(best[1], workload, begin + seconds, 10_000)
    bumps = theta[theta.max(axis=1, initial=0.0) > 1e-6]
    nothing = np.zeros((0, workload.size))
    return nothing if total >= float(workload.gram_diagonal.sum()) else bumps


def descend(theta: FloatArray, workload: GramWorkload, deadline: float, steps: int) -> tuple[float, FloatArray]:
    """Runs L-BFGS-B over Theta >= 0 until it stalls, or until `steps` or the deadline ends it. Returns (total, Theta).

    Each row's support may grow by about half. Other entries stay 0: fewer variables give faster and better optima.
    """
    free = np.flatnonzero(_widen_support(theta))
    moving = np.zeros(theta.size)
    unit = p_identity_total(theta, workload)
    best: tuple[float, FloatArray] = (unit, theta)

    def value(free_values: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best
        moving[free] = free_values
        total, gradient = p_identity_gradient(moving.reshape(theta.shape), workload)
        if total < best[0]:
            best = (total, moving.reshape(theta.shape).copy())
        return total / unit, gradient.ravel()[free] / unit

    def in_time(_: FloatArray) -> None:
        if monotonic() > deadline:
            raise StopIteration

    if theta.size and monotonic() < deadline:
        bounds = [(0.0, None)] * len(free)
        options = {"maxiter": steps, "ftol": GAIN, "maxcor": 10}
        start = theta.ravel()[free]
        scipy.optimize.minimize(
            value, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=in_time, options=options
        )
    return best


def _widen_support(theta: FloatArray) -> NDArray[np.bool_]:
    """Marks the entries that may be positive: each row's support, wider by a quarter of its width on either side."""
    values = np.arange(theta.shape[1])
    first = (theta > 0).argmax(axis=1)
    last = theta.shape[1] - 1 - (theta[:, ::-1] > 0).argmax(axis=1)
    more = 1 + (last - first) // 4
    allowed: NDArray[np.bool_] = (values >= (first - more)[:, None]) & (values <= (last + more)[:, None])
    return allowed


def hats(size: int, layers: Layers) -> FloatArray:
    """Builds Theta from layers (number of bumps, height) of evenly spaced linear B-splines. One bump is constant."""
    rows = []
    for bumps, height in layers:
        place = (np.arange(size) + 0.5) / size * (bumps - 1)
        rows.append(height * np.maximum(0.0, 1 - np.abs(place - np.arange(bumps)[:, None])))
    return np.vstack(rows) if rows else np.zeros((0, size))


def _starts(workload: RangeWorkload, begin: float, seconds: float) -> Iterator[FloatArray]:
    """Yields matrices Theta to start from: the best hats in one layer, in two layers, and for many values in three.

    Optima for ranges are layers of overlapping hat functions. Then come the intervals of a short list, and wider and
    narrower hats, which may be better by up to 1 % of error after the descent.
    """
    size = workload.size
    first: list[Layers] = [((max(1, size // 16), 1.0),), ((4, 0.7), (max(1, size // 12), 1.0))]
    if size > THREE_LAYERS:
        first.append(((3, 0.5), (size // 96, 0.7), (size // 12, 1.0)))
    hat_layers = []
    for index, layers in enumerate(first):
        until = begin + (index + 1) / len(first) * SEARCH_PART * seconds
        hat_layers.append(_best_layers(layers, workload, until))
    hat_layers.sort(key=lambda layers: p_identity_total(hats(size, layers), workload))
    yield from (hats(size, layers) for layers in hat_layers)
    wide = workload.stops - workload.starts > 1
    if workload.shape is RangeShape.LIST and 0 < wide.sum() <= size:
        rows = np.unique(np.stack([workload.starts[wide], workload.stops[wide]], axis=1), axis=0)
        values = np.arange(size)
        inside = ((rows[:, :1] <= values) & (values < rows[:, 1:])).astype(np.float64)
        yield inside / max(1.0, float(inside.sum(axis=0).mean()))
    for factor in WIDER_OR_NARROWER:
        for *above, (bumps, height) in hat_layers:
            yield hats(size, (*above, (max(1, round(factor * bumps)), height)))


def _best_layers(layers: Layers, workload: RangeWorkload, deadline: float) -> Layers:
    """Searches for better layers. A step changes one number or height by a factor, which shrinks after a failure."""
    totals: dict[Layers, float] = {}

    def total(trial: Layers) -> float:
        if trial not in totals:
            late = totals and monotonic() > deadline
            totals[trial] = np.inf if late else p_identity_total(hats(workload.size, trial), workload)
        return totals[trial]

    best, step = layers, 2.0
    total(best)
    while step > 1.1 and monotonic() < deadline:
        neighbour = min(_moves(best, step, workload.size), key=total)
        if total(neighbour) < total(best) * (1 - 1e-4):
            best = neighbour
        else:
            step = sqrt(step)
    return best


def _moves(layers: Layers, step: float, size: int) -> list[Layers]:
    moves = []
    for index, (bumps, height) in enumerate(layers):
        fewer_or_more = [min(max(1, size // 2), max(1, round(bumps * factor))) for factor in (step, 1 / step)]
        changed = [(number, height) for number in fewer_or_more]
        changed += [(bumps, max(LEAST_HEIGHT, height * factor)) for factor in (step, 1 / step)]
        moves += [(*layers[:index], layer, *layers[index + 1 :]) for layer in changed]
    return moves
