"""Replay of the paper's update: multiply the weights by exp(q(x) (y - n q(p)) / (2 n)) for each measured query.

The updates of queries about few attributes depend on one marginal, so such queries form a block. That marginal is
updated by one query after the other. Then the table is multiplied once, by the quotient of the new and the old
marginal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, prod

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.margin_tree import sum_away
from dpduck.mechanisms.synthetic.observations import Observation
from dpduck.values.arrays import FloatArray

Codes = NDArray[np.intp]
Slice = tuple[int | slice, ...]
Members = tuple[int, ...]

LARGEST_BITS = 11.5
"""Binary logarithm of the most cells in the marginal of a block of queries. A single query may need more."""

REARRANGED = 1 << 17
"""Most cells of a table that is rearranged for every block, so that the axes of the block come last."""


FARTHEST = 1e60
"""Updates of slices change the sum of weights. If the sum exceeds FARTHEST or falls below 1 / FARTHEST, it is scaled
back to 1."""


@dataclass(frozen=True, eq=False)
class Update:
    """Query in its block. codes: for each cell of the block, the cell of the query's marginal. cells: of the latter.

    target: the answer, divided by twice the records.
    """

    codes: Codes
    cells: int
    target: FloatArray
    coefficients: FloatArray | None


@dataclass(frozen=True, eq=False)
class QueryBlock:
    """Consecutive queries, and the axes of the table that they are about."""

    axes: tuple[int, ...]
    updates: tuple[Update, ...]


@dataclass(frozen=True, eq=False)
class Cell:
    """Query of one cell of a marginal: its slice of the table, and its answer, divided by twice the records."""

    where: Slice
    target: float


def replay(
    members: Members, table: FloatArray, observations: Sequence[Observation], records: float, passes: int
) -> FloatArray:
    """Returns the table after `passes` rounds of updates with every observation. It sums to 1."""
    moved = table.size <= REARRANGED
    arranged: tuple[int, ...] = ()
    weights, total = table.copy(order="C"), float(table.sum())
    for step, times in _turns(_steps(members, table.shape, observations, records), passes):
        if isinstance(step, Cell):
            for _ in range(times):
                total = _update_slice(weights[(*step.where, ...)], total, step.target)  # a view, even of one cell
            if not 1 / FARTHEST < total < FARTHEST:
                weights /= total
                total = 1.0
        elif moved:
            weights, arranged = weights.take(_moves(table.shape, arranged, step.axes)), step.axes
            total = _update_last(weights, total, step, prod(table.shape[axis] for axis in step.axes), times)
        else:
            total = _update_inside(weights, total, step, times)
    if arranged:
        weights = weights.take(_moves(table.shape, arranged, ()))
    return weights.reshape(table.shape) / float(weights.sum())


def _turns(steps: Sequence[QueryBlock | Cell], passes: int) -> list[tuple[QueryBlock | Cell, int]]:
    """Lists the steps of all passes, each with how often it runs. Every second pass is reversed. Repeats are merged."""
    turns: list[tuple[QueryBlock | Cell, int]] = []
    for number in range(passes):
        for step in reversed(steps) if number % 2 else steps:
            if turns and turns[-1][0] is step:
                turns[-1] = step, turns[-1][1] + 1
            else:
                turns.append((step, 1))
    return turns


def _update_slice(part: FloatArray, total: float, target: float) -> float:
    """Multiplies a slice in place by the update for its query. Returns the new sum of all weights."""
    inside = float(part.sum())
    factor = exp(target - inside / (2 * total))
    part *= factor
    return total + (factor - 1) * inside


def _update_last(weights: FloatArray, total: float, block: QueryBlock, cells: int, times: int) -> float:
    """Updates all weights in place by a block with the last axes of the table. Returns the new sum, which is 1."""
    view = weights.reshape(-1, cells)
    before = np.asarray(np.add.reduce(view, axis=0))
    view *= _quotient(*_update_marginal(before, total, block.updates * times), before)
    return 1.0


def _update_inside(weights: FloatArray, total: float, block: QueryBlock, times: int) -> float:
    """Updates all weights in place by a block with any axes of the table. Returns the new sum, which is 1."""
    absent = tuple(axis for axis in range(weights.ndim) if axis not in block.axes)
    marginal = sum_away(weights, absent)
    before = marginal.reshape(-1)
    factors = _quotient(*_update_marginal(before, total, block.updates * times), before).reshape(marginal.shape)
    _multiply(weights, np.expand_dims(factors, absent), absent)
    return 1.0


def _update_marginal(before: FloatArray, total: float, updates: Sequence[Update]) -> tuple[FloatArray, float]:
    weights = before.copy()
    for update in updates:
        marginal = np.bincount(update.codes, weights, update.cells)
        if update.coefficients is None:
            factors = np.exp(update.target - marginal * (0.5 / total))
        else:
            gap = update.target - float(update.coefficients @ marginal) / (2 * total)
            factors = np.exp(update.coefficients * gap)
        total = float(marginal @ factors)
        weights *= factors[update.codes]
    return weights, total


def _quotient(after: FloatArray, total: float, before: FloatArray) -> FloatArray:
    after /= total
    return np.divide(after, before, out=np.zeros_like(after), where=before > 0)


def _multiply(weights: FloatArray, factors: FloatArray, absent: tuple[int, ...]) -> None:
    """Multiplies weights in place by factors of size 1 along absent axes. Later axes are merged into long rows."""
    if not absent:
        weights *= factors
        return
    first = absent[0]
    count = next((step for step, axis in enumerate(absent) if axis != first + step), len(absent))
    before, block = prod(weights.shape[:first]), prod(weights.shape[first : first + count])
    rest = weights.shape[first + count :]
    row = np.broadcast_to(factors.reshape(before, *factors.shape[first + count :]), (before, *rest))
    view = weights.reshape(before, block, -1)
    view *= row.reshape(before, 1, -1)


def replay_order(members: Members, shape: tuple[int, ...], observations: Sequence[Observation]) -> list[list[int]]:
    """Returns the numbers of the observations, block by block. Queries of one cell in a large table come last, alone.

    A block takes the observation that needs the fewest further cells next, as long as LARGEST_BITS allows.
    """
    large, axis_of = prod(shape) > REARRANGED, {member: axis for axis, member in enumerate(members)}
    left, spoken = np.ones(len(observations), np.bool_), np.zeros((len(observations), len(members)), np.bool_)
    for number, observation in enumerate(observations):
        spoken[number, [axis_of[attribute] for attribute in observation.attributes]] = True
        left[number] = not (large and _cell(observation, members) is not None)
    bits, alone = np.log2(shape), np.flatnonzero(~left)
    blocks: list[list[int]] = []
    while left.any():
        block = [int(np.argmax(left))]
        left[block[0]] = False
        axes = spoken[block[0]]
        while left.any():
            further = np.where(left, (spoken & ~axes) @ bits, np.inf)
            nearest = int(np.argmin(further))
            if further[nearest] + axes @ bits > LARGEST_BITS:
                break
            axes = axes | spoken[nearest]
            left[nearest] = False
            block.append(nearest)
        blocks.append(block)
    return blocks + [[number] for number in alone.tolist()]


def _steps(
    members: Members, shape: tuple[int, ...], observations: Sequence[Observation], records: float
) -> list[QueryBlock | Cell]:
    steps: list[QueryBlock | Cell] = []
    for numbers in replay_order(members, shape, observations):
        block = [observations[number] for number in numbers]
        cell = _cell(block[0], members) if prod(shape) > REARRANGED else None
        if cell is not None:
            value = min(max(float(block[0].value), 0.0), records)
            steps.append(Cell(cell, value / (2 * records)))
        else:
            steps.append(_block(members, shape, block, records))
    return steps


def _block(members: Members, shape: tuple[int, ...], observations: Sequence[Observation], records: float) -> QueryBlock:
    axis_of = {member: axis for axis, member in enumerate(members)}
    axes = tuple(sorted({axis_of[attribute] for query in observations for attribute in query.attributes}))
    sizes = tuple(shape[axis] for axis in axes)
    updates = []
    for observation in observations:
        own_axes = tuple(axes.index(axis_of[attribute]) for attribute in observation.attributes)
        coefficients = None if observation.coefficients is None else observation.coefficients.reshape(-1)
        lowest = -records if coefficients is not None and coefficients.min() < 0 else 0.0
        target = np.clip(observation.value, lowest, records).reshape(-1) / (2 * records)
        cells = prod(sizes[place] for place in own_axes)
        updates.append(Update(_codes(sizes, own_axes), cells, target, coefficients))
    return QueryBlock(axes, tuple(updates))


@lru_cache(maxsize=256)
def _codes(sizes: tuple[int, ...], axes: tuple[int, ...]) -> Codes:
    """Returns for each cell of a table its cell in the marginal on these axes."""
    inside = [size if place in axes else 1 for place, size in enumerate(sizes)]
    return np.ascontiguousarray(np.broadcast_to(np.arange(prod(inside)).reshape(inside), sizes)).reshape(-1)


@lru_cache(maxsize=24)
def _moves(shape: tuple[int, ...], arranged: tuple[int, ...], wanted: tuple[int, ...]) -> Codes:
    """Returns an index that moves axes of a flat table. `arranged` come last before the move, and `wanted` after it."""
    before, after = ([*(axis for axis in range(len(shape)) if axis not in last), *last] for last in (arranged, wanted))
    steps = dict(zip(before, np.cumprod([1, *(shape[axis] for axis in before[:0:-1])])[::-1], strict=True))
    places = np.zeros(1, np.intp)
    for axis in reversed(after):
        places = np.add.outer(np.arange(shape[axis]) * steps[axis], places).reshape(-1)
    return places


def _cell(observation: Observation, members: Members) -> Slice | None:
    if observation.coefficients is None or np.count_nonzero(observation.coefficients) != 1:
        return None
    place = np.unravel_index(int(np.argmax(observation.coefficients)), observation.coefficients.shape)
    if observation.coefficients[place] != 1:
        return None
    index = dict(zip(observation.attributes, (int(code) for code in place), strict=True))
    return tuple(index.get(member, slice(None)) for member in members)
