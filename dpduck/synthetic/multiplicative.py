"""The paper's update, replayed: multiply the weights by exp(q(x) (y - n q(p)) / (2 n)) for each measured query.

Noisy answers beyond what n records could give count as the nearest that could, so that no exponent exceeds 1.
A query of one cell of a marginal touches a slice of the table alone: its answer, the new weights and their sum cost
that slice and no pass over the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, prod

import numpy as np
from numpy.typing import NDArray

from dpduck.synthetic.observations import Observation
from dpduck.workload.margin_tree import sum_away

FloatArray = NDArray[np.float64]
Slice = tuple[int | slice, ...]


def replayed(
    members: tuple[int, ...],
    table: FloatArray,
    observations: Sequence[Observation],
    records: float,
    passes: int,
) -> FloatArray:
    """The table after `passes` rounds of updates with every observation, in order; sums to 1."""
    weights, total = table.copy(order="C"), float(table.sum())
    prepared = [(observation, _cell(observation, members)) for observation in observations]
    for _ in range(passes):
        for observation, cell in prepared:
            if cell is not None:
                total = _update_slice(weights[(*cell, ...)], total, observation, records)  # a view, of one cell too
            else:
                total = _update(members, weights, total, observation, records)
        weights /= total
        total = 1.0
    return weights / float(weights.sum())


def _update_slice(part: FloatArray, total: float, observation: Observation, records: float) -> float:
    """Multiplies a slice in place; the new sum of all weights."""
    inside = float(part.sum())
    value = min(max(float(observation.value), 0.0), records)
    factor = exp((value - records * inside / total) / (2 * records))
    part *= factor
    return total + (factor - 1) * inside


def _update(
    members: tuple[int, ...], weights: FloatArray, total: float, observation: Observation, records: float
) -> float:
    """Multiplies all weights in place; the new sum follows from the marginal."""
    absent = tuple(axis for axis, member in enumerate(members) if member not in observation.attributes)
    marginal = sum_away(weights, absent)
    lowest = -records if observation.coefficients is not None and observation.coefficients.min() < 0 else 0.0
    gap = np.clip(observation.value, lowest, records) - records * observation.predicted(marginal / total)
    factors = np.exp(observation.spread(gap / (2 * records)))
    changed = float((marginal * factors).sum())
    _multiply(weights, np.expand_dims(factors, absent), absent)
    return changed


def _multiply(weights: FloatArray, factors: FloatArray, absent: tuple[int, ...]) -> None:
    """weights *= factors, which have size 1 along absent axes; what follows the first of those is laid out in a row."""
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


def _cell(observation: Observation, members: tuple[int, ...]) -> Slice | None:
    """Where in the table the query's cell lies; None where the query is no single cell."""
    if observation.coefficients is None or np.count_nonzero(observation.coefficients) != 1:
        return None
    place = np.unravel_index(int(np.argmax(observation.coefficients)), observation.coefficients.shape)
    if observation.coefficients[place] != 1:
        return None
    index = dict(zip(observation.attributes, (int(code) for code in place), strict=True))
    return tuple(index.get(member, slice(None)) for member in members)
