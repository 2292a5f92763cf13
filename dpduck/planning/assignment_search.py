"""Which attribute takes which point of a covering design: annealing over assignments, budgets following along."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from dpduck.arrays import BoolArray, FloatArray
from dpduck.planning.hash_counter import HashCounter
from dpduck.planning.search_clock import SearchClock
from dpduck.planning.view_objective import ViewObjective
from dpduck.strategies.covering_designs import DesignFamily
from dpduck.strategies.optimised_views import balanced_assignment, with_common_point

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
    """The design with its attributes spread evenly, or None where a view would be too large."""
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
    """The best assignment met in some steps; the error is the objective after a few rounds of budgets."""
    current, best = start, start
    attributes, points = len(start.assignment), start.blocks.shape[1]
    most = log(largest_view)
    for step in range(steps):
        if step % 16 == 0 and clock.passed:
            break
        moved = _move(current.assignment, attributes, points, source)
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


def _move(assignment: NDArray[np.intp], attributes: int, points: int, source: HashCounter) -> NDArray[np.intp] | None:
    """Two attributes exchange their points, or one goes elsewhere; None where that changes nothing."""
    kind, one = source.uniform(), source.below(attributes)
    moved = assignment.copy()
    if kind < SWAPS:
        other = source.below(attributes)
        moved[one], moved[other] = assignment[other], assignment[one]
    else:
        moved[one] = source.below(points)
    return None if (moved == assignment).all() else moved
