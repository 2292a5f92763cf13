"""Starting sets of views that together contain every asked marginal, and simulated annealing from these sets.

A view is a measured marginal. Under pure epsilon (strategy O) a few views, usually larger than the asked marginals,
beat many small views. A step adds, removes or exchanges one attribute of a view, or moves a view close to another view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.lattice import Lattice
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.strategies.marginals.clustering import cluster
from dpduck.strategies.marginals.weights import distinct_marginals
from dpduck.strategies.views.effort import HashCounter, WorkLimit
from dpduck.strategies.views.objective import NOTHING, ViewObjective
from dpduck.values.arrays import BoolArray, FloatArray, IndexArray

LARGEST_VIEW = 1 << 24
"""Most cells of a view, which is measured as a dense array."""

MOST_MARGINALS = 600
"""Most asked marginals that are clustered or compared with each other."""


def views_of(lattice: Lattice, sets: Sequence[tuple[int, ...]]) -> BoolArray:
    """Returns a Boolean row over lattice.attributes for each set of domain positions. Other attributes are dropped."""
    local = {attribute: index for index, attribute in enumerate(lattice.attributes)}
    views = np.zeros((len(sets), len(local)), dtype=np.bool_)
    for row, members in enumerate(sets):
        views[row, [local[attribute] for attribute in members if attribute in local]] = True
    return views


def sets_of(lattice: Lattice, views: BoolArray) -> tuple[tuple[int, ...], ...]:
    """Returns the increasing domain positions of each view, from its Boolean row over lattice.attributes."""
    names = np.asarray(lattice.attributes, dtype=np.intp)
    return tuple(tuple(names[view].tolist()) for view in views)


def workload_starts(workload: MarginalWorkload, lattice: Lattice) -> Iterator[tuple[str, BoolArray, FloatArray]]:
    """Yields starts of the search: a name, views, and budgets that suit the asked marginals within each view."""
    asked, weights = distinct_marginals(workload)
    weights = np.maximum(weights, 1e-9 * weights.max(initial=1e-300))
    views = views_of(lattice, asked)
    yield "the asked marginals", views, np.cbrt(weights)
    yield "one view of all attributes", np.ones((1, views.shape[1]), dtype=np.bool_), np.ones(1)
    if len(asked) > MOST_MARGINALS:
        return
    widest = ~np.array([(views[:, view].all(axis=1) & (views.sum(axis=1) > view.sum())).any() for view in views])
    yield "the largest asked marginals", views[widest], np.cbrt(weights[widest])
    log_sizes = np.log(np.asarray(lattice.sizes, dtype=np.float64))
    pulls = weights / np.exp(views @ log_sizes)
    clusters = cluster(workload.sizes, asked, pulls, 2)
    unions, inverse = np.unique(views_of(lattice, [union for union, _ in clusters]), axis=0, return_inverse=True)
    sums = [float(pulls[list(members)].sum()) for _, members in clusters]
    name, worth = "clusters of marginals", np.bincount(inverse.reshape(-1), sums) * np.exp(unions @ log_sizes)
    yield name, unions, np.cbrt(worth)
    yield name, unions, np.ones(len(unions))


def assign_points(log_sizes: FloatArray, points: int) -> IndexArray:
    """Returns a point for each attribute. The largest attributes come first, each at the point with the fewest cells.

    >>> assign_points(np.log([4.0, 2.0, 9.0]), 2).tolist()
    [1, 1, 0]
    """
    loads = np.zeros(points)
    assignment = np.zeros(len(log_sizes), dtype=np.intp)
    for attribute in np.argsort(-log_sizes, kind="stable").tolist():
        point = int(loads.argmin())
        assignment[attribute] = point
        loads[point] += max(log_sizes[attribute], 1e-3)
    return assignment


def with_common_point(blocks: BoolArray) -> BoolArray:
    """Adds to the blocks a point that lies in all blocks. Every view has the attributes at that point."""
    return np.concatenate([blocks, np.ones((len(blocks), 1), dtype=np.bool_)], axis=1)


def design_views(blocks: BoolArray, assignment: IndexArray) -> BoolArray:
    """Returns the view of each block: all attributes assigned to a point in the block."""
    return blocks[:, assignment]


CodeArray = NDArray[np.int64]

LARGE_PAIR = 6e-9
ROUND = 100
"""Number of moves between two improvements of the budgets."""

LEAST_SHARE = 1e-3
"""While views move, budgets stay above this part of an equal budget, so that no view is lost for good."""


@dataclass(eq=False)
class _State:
    """Current views of the annealing. codes: a bit per attribute for each view. budgets: by view, with sum 1."""

    objective: ViewObjective
    codes: CodeArray
    budgets: FloatArray

    def refresh(self, rounds: int) -> None:
        """Improves the budgets by some rounds, and updates everything that follows from views and budgets."""
        objective = self.objective
        self.incidence = objective.incidence_of_codes(self.codes)
        self.cells = np.exp(((self.codes[:, None] & objective.bits) != 0) @ objective.log_sizes)
        self.budgets, _ = objective.improve(self.incidence, self.cells, self.budgets, rounds)
        self.budgets = np.maximum(self.budgets, LEAST_SHARE / len(self.codes))
        self.budgets /= self.budgets.sum()
        self.precisions = objective.precisions(self.incidence, self.cells, self.budgets)
        self.logarithm = log(float((objective.kept_coefficients / self.floor_precisions(self.precisions)).sum()))

    def floor_precisions(self, precisions: FloatArray) -> FloatArray:
        """Raises the precisions D_B to at least a tiny part of the precision of the total, above 0."""
        raised: FloatArray = np.maximum(precisions, NOTHING * precisions[0])
        return raised


def annealing_seconds(objective: ViewObjective, views: int) -> float:
    """Estimates the seconds of one step of annealing on an idle machine. views: the number of views."""
    return 15e-6 + (10e-9 + 1e-9 * views) * len(objective.nonempty)


def anneal_views(
    objective: ViewObjective,
    codes: CodeArray,
    budgets: FloatArray,
    steps: int,
    temperatures: tuple[float, float],
    largest_view: float,
    source: HashCounter,
    limit: WorkLimit,
) -> tuple[CodeArray, FloatArray]:
    """Returns the best views of an annealing, as codes with a bit per attribute, and their budgets."""
    state = _State(objective, codes.copy(), budgets / budgets.sum())
    state.refresh(20)
    best = (state.logarithm, state.codes.copy(), state.budgets)
    hot, cold = temperatures
    most, coefficients = log(largest_view), objective.kept_coefficients
    for start in range(0, steps, ROUND):
        if limit.is_over:
            break
        limit.work(ROUND * annealing_seconds(objective, len(codes)))
        temperature = hot * (cold / hot) ** (start / steps)
        for _ in range(ROUND):
            view, code = _move(state.codes, len(objective.bits), source)
            chance = source.uniform()
            log_cells = float((code & objective.bits != 0) @ objective.log_sizes)
            if code == 0 or log_cells > most:
                continue
            row, cells, half = (
                objective.incidence_of_codes(np.array([code]))[0],
                exp(log_cells),
                state.budgets[view] ** 2 / 2,
            )
            moved = state.precisions + half * (row / cells - state.incidence[view] / state.cells[view])
            logarithm = log(float((coefficients / state.floor_precisions(moved)).sum()))
            if logarithm < state.logarithm or chance < exp((state.logarithm - logarithm) / temperature):
                state.codes[view], state.incidence[view], state.cells[view] = code, row, cells
                state.precisions, state.logarithm = moved, logarithm
        state.refresh(4)
        if state.logarithm < best[0]:
            best = (state.logarithm, state.codes.copy(), state.budgets)
    return best[1], best[2]


def _move(codes: CodeArray, attributes: int, source: HashCounter) -> tuple[int, int]:
    """Returns the position of a random view, and a random code that this view may change to."""
    view, kind = source.below(len(codes)), source.uniform()
    code = int(codes[view])
    if kind < 0.3:
        return view, code ^ (1 << source.below(attributes))
    if kind < 0.95:
        inside = [bit for bit in range(attributes) if code >> bit & 1]
        outside = [bit for bit in range(attributes) if not code >> bit & 1]
        if not inside or not outside:
            return view, code ^ (1 << source.below(attributes))
        return view, code ^ (1 << inside[source.below(len(inside))]) ^ (1 << outside[source.below(len(outside))])
    other = int(codes[source.below(len(codes))])
    return view, other ^ (1 << source.below(attributes)) ^ (1 << source.below(attributes))
