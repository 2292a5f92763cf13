"""Simulated annealing over the views themselves: one attribute in or out, two exchanged, or a view thrown elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from dpduck.arrays import FloatArray
from dpduck.planning.hash_counter import HashCounter
from dpduck.planning.search_clock import SearchClock
from dpduck.planning.view_objective import NOTHING, ViewObjective

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
    """The best views met, as bits, and their budgets; the number of views does not change."""
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
    """A view and what it becomes."""
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
