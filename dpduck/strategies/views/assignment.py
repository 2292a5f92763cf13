"""Assignment of attributes to points of a covering design: annealing over assignments, with budgets for each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from dpduck.strategies.views.annealing import LARGE_PAIR, assign_points, with_common_point
from dpduck.strategies.views.designs import DesignFamily
from dpduck.strategies.views.effort import HashCounter, WorkLimit
from dpduck.strategies.views.objective import ViewObjective
from dpduck.values.arrays import BoolArray, FloatArray

HOT, COLD = 0.05, 0.001
"""Temperatures, in units of the logarithm of the error."""

SWAPS = 0.6
"""Part of the moves that exchange the points of two attributes. All other moves move one attribute."""


@dataclass(frozen=True, eq=False)
class DesignStart:
    """Covering design with a point for each attribute. blocks: points of each block, the common point last."""

    family: DesignFamily
    blocks: BoolArray
    assignment: NDArray[np.intp]
    budgets: FloatArray
    error: float


def evaluate(
    objective: ViewObjective, blocks: BoolArray, assignment: NDArray[np.intp], budgets: FloatArray, rounds: int
) -> tuple[FloatArray, float]:
    """Returns budgets by block after some rounds of improvement, and the error. Equal views share a budget evenly."""
    views = blocks[:, assignment]
    codes, cells = views @ objective.bits, np.exp(views @ objective.log_sizes)
    if len(set(codes.tolist())) == len(codes):
        return objective.improve(objective.incidence_of_codes(codes), cells, budgets, rounds)
    distinct, first, block_of, copies = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)
    start = np.bincount(block_of, budgets).astype(np.float64)
    shares, error = objective.improve(objective.incidence_of_codes(distinct), cells[first], start, rounds)
    return (shares / copies)[block_of], error


def start_design(objective: ViewObjective, family: DesignFamily, largest_view: float) -> DesignStart | None:
    """Returns a design with the attributes spread evenly over its points, or None if a view would be too large."""
    blocks = with_common_point(family.build())
    assignment = assign_points(objective.log_sizes, family.points)
    if (blocks[:, assignment] @ objective.log_sizes).max() > log(largest_view):
        return None
    budgets, error = evaluate(objective, blocks, assignment, np.ones(len(blocks)), 10)
    return DesignStart(family, blocks, assignment, budgets, error)


def assigning_seconds(objective: ViewObjective, design: DesignStart, each: float = 2e-9) -> float:
    """Estimates the seconds of one step on an idle machine. each: seconds per pair of block and component."""
    return 4e-5 + each * len(design.blocks) * len(objective.nonempty)


def anneal_assignment(
    objective: ViewObjective,
    start: DesignStart,
    steps: int,
    largest_view: float,
    source: HashCounter,
    limit: WorkLimit,
) -> DesignStart:
    """Returns the best assignment of a simulated annealing. Each step improves the budgets by a few rounds."""
    current, best = start, start
    attributes, points = len(start.assignment), start.blocks.shape[1]
    most = log(largest_view)
    for step in range(steps):
        if limit.is_over:
            break
        limit.work(assigning_seconds(objective, start, LARGE_PAIR))
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
    """Exchanges two attributes' points or moves one attribute, at random. Returns None if nothing changed."""
    kind, attribute = source.uniform(), source.below(attributes)
    moved = assignment.copy()
    if kind < SWAPS:
        other = source.below(attributes)
        moved[attribute], moved[other] = assignment[other], assignment[attribute]
    else:
        moved[attribute] = source.below(points)
    return None if (moved == assignment).all() else moved
