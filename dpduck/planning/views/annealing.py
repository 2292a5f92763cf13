"""Simulated annealing over the views themselves: one attribute in or out, two exchanged, or a view thrown elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from dpduck.planning.views.designs import DesignFamily, balanced_assignment, with_common_point
from dpduck.planning.views.objective import NOTHING, HashCounter, SearchClock, ViewObjective
from dpduck.values.arrays import BoolArray, FloatArray

CodeArray = NDArray[np.int64]

ROUND = 100
"""Moves between two improvements of the budgets."""

LEAST_SHARE = 1e-3
"""Budgets stay above this part of an equal one while views move, so that a lost view can come back."""


@dataclass(eq=False)
class _State:
    """Views under way: their codes, incidence, cells, budgets adding up to 1, and precisions D_B."""

    objective: ViewObjective
    codes: CodeArray
    budgets: FloatArray

    def refresh(self, rounds: int) -> None:
        """Better budgets, and everything that depends on them."""
        objective = self.objective
        self.incidence = objective.coded_incidence(self.codes)
        self.cells = np.exp(((self.codes[:, None] & objective.bits) != 0) @ objective.log_sizes)
        self.budgets, _ = objective.improve(self.incidence, self.cells, self.budgets, rounds)
        self.budgets = np.maximum(self.budgets, LEAST_SHARE / len(self.codes))
        self.budgets /= self.budgets.sum()
        self.precisions = objective.precisions(self.incidence, self.cells, self.budgets)
        self.logarithm = log(float((objective.kept_coefficients / self.floored(self.precisions)).sum()))

    def floored(self, precisions: FloatArray) -> FloatArray:
        """Precisions, none at 0."""
        raised: FloatArray = np.maximum(precisions, NOTHING * precisions[0])
        return raised


def anneal_views(
    objective: ViewObjective,
    codes: CodeArray,
    budgets: FloatArray,
    steps: int,
    temperatures: tuple[float, float],
    largest_view: float,
    source: HashCounter,
    clock: SearchClock,
) -> tuple[CodeArray, FloatArray]:
    """Returns the best views met, as bits, and their budgets; the number of views does not change."""
    state = _State(objective, codes.copy(), budgets / budgets.sum())
    state.refresh(20)
    best = (state.logarithm, state.codes.copy(), state.budgets)
    hot, cold = temperatures
    most, coefficients = log(largest_view), objective.kept_coefficients
    for start in range(0, steps, ROUND):
        if clock.passed:
            break
        temperature = hot * (cold / hot) ** (start / steps)
        for _ in range(ROUND):
            view, code = _move(state.codes, len(objective.bits), source)
            chance = source.uniform()
            log_cells = float((code & objective.bits != 0) @ objective.log_sizes)
            if code == 0 or log_cells > most:
                continue
            row, cells, half = (
                objective.coded_incidence(np.array([code]))[0],
                exp(log_cells),
                state.budgets[view] ** 2 / 2,
            )
            moved = state.precisions + half * (row / cells - state.incidence[view] / state.cells[view])
            logarithm = log(float((coefficients / state.floored(moved)).sum()))
            if logarithm < state.logarithm or chance < exp((state.logarithm - logarithm) / temperature):
                state.codes[view], state.incidence[view], state.cells[view] = code, row, cells
                state.precisions, state.logarithm = moved, logarithm
        state.refresh(4)
        if state.logarithm < best[0]:
            best = (state.logarithm, state.codes.copy(), state.budgets)
    return best[1], best[2]


def _move(codes: CodeArray, attributes: int, source: HashCounter) -> tuple[int, int]:
    """Returns a view and what it becomes."""
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


# Which attribute takes which point of a covering design: annealing over assignments, budgets following along.

HOT, COLD = 0.05, 0.001
"""Temperatures, in units of the logarithm of the error."""

SWAPS = 0.6
"""Part of the moves that exchange the points of two attributes; the others move one attribute."""


@dataclass(frozen=True, eq=False)
class DesignStart:
    """A design with its points given to attributes: blocks have the common point last; budgets by block."""

    family: DesignFamily
    blocks: BoolArray
    assignment: NDArray[np.intp]
    budgets: FloatArray
    error: float


def evaluate(
    objective: ViewObjective, blocks: BoolArray, assignment: NDArray[np.intp], budgets: FloatArray, rounds: int
) -> tuple[FloatArray, float]:
    """Budgets by block after some rounds, and the error; equal views are measured once, with their budgets summed."""
    held = blocks[:, assignment]
    codes, cells = held @ objective.bits, np.exp(held @ objective.log_sizes)
    if len(set(codes.tolist())) == len(codes):
        return objective.improve(objective.coded_incidence(codes), cells, budgets, rounds)
    distinct, first, block_of, copies = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)
    start = np.bincount(block_of, budgets).astype(np.float64)
    shares, error = objective.improve(objective.coded_incidence(distinct), cells[first], start, rounds)
    return (shares / copies)[block_of], error


def start_design(objective: ViewObjective, family: DesignFamily, largest_view: float) -> DesignStart | None:
    """Returns the design with its attributes spread evenly, or None where a view would be too large."""
    blocks = with_common_point(family.build())
    assignment = balanced_assignment(objective.log_sizes, family.points)
    if (blocks[:, assignment] @ objective.log_sizes).max() > log(largest_view):
        return None
    budgets, error = evaluate(objective, blocks, assignment, np.ones(len(blocks)), 10)
    return DesignStart(family, blocks, assignment, budgets, error)


def anneal_assignment(
    objective: ViewObjective,
    start: DesignStart,
    steps: int,
    largest_view: float,
    source: HashCounter,
    clock: SearchClock,
) -> DesignStart:
    """Returns the best assignment met in some steps; the error is the objective after a few rounds of budgets."""
    current, best = start, start
    attributes, points = len(start.assignment), start.blocks.shape[1]
    most = log(largest_view)
    for step in range(steps):
        if step % 16 == 0 and clock.passed:
            break
        moved = _assignment_move(current.assignment, attributes, points, source)
        chance = source.uniform()
        if moved is None or (start.blocks[:, moved] @ objective.log_sizes).max() > most:
            continue
        spread = np.maximum(current.budgets, 1e-3 / len(start.blocks))
        budgets, error = evaluate(objective, start.blocks, moved, spread, 3)
        temperature = HOT * (COLD / HOT) ** (step / steps)
        if error < current.error or chance < exp(log(current.error / error) / temperature):
            current = replace(current, assignment=moved, budgets=budgets, error=error)
            best = current if error < best.error else best
    return best


def _assignment_move(
    assignment: NDArray[np.intp], attributes: int, points: int, source: HashCounter
) -> NDArray[np.intp] | None:
    """Two attributes exchange their points, or one goes elsewhere; None where that changes nothing."""
    kind, one = source.uniform(), source.below(attributes)
    moved = assignment.copy()
    if kind < SWAPS:
        other = source.below(attributes)
        moved[one], moved[other] = assignment[other], assignment[one]
    else:
        moved[one] = source.below(points)
    return None if (moved == assignment).all() else moved
