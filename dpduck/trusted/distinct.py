"""Numbers of distinct values by cell, with noise: presence, not counts, so they are added up for each set by itself."""

from __future__ import annotations

from math import prod

import numpy as np

from dpduck.arrays import IntegerArray
from dpduck.errors import InternalError
from dpduck.trusted.ask import Present
from dpduck.trusted.entropy import Entropy
from dpduck.trusted.exact_counts import ExactCounts
from dpduck.trusted.measure import require_fit, with_noise
from dpduck.trusted.noise import Noise
from dpduck.trusted.operators import IdentityFactor


def measure_distinct(
    counts: ExactCounts, query: Present, noise: Noise, unit_bound: int, entropy: Entropy
) -> IntegerArray:
    """How many values of the last attribute each cell of a query holds, with noise.

    unit_bound: the rows of a unit, for which Present.bound says how far it moves the answers. What that rests on is
    looked at here: as many rows, as many values, and every cell of the attributes once.
    """
    require_fit(counts, [(query.query, noise)], 0, unit_bound)
    if not all(isinstance(factor, IdentityFactor) for factor in query.query.factors):
        raise InternalError("distinct values add up to no other query")
    if len(counts._sizes) - 1 in query.query.attributes:
        raise InternalError("the values that are counted are no key")
    if counts._sizes[-1] != query.values:
        raise InternalError("the plan and the counts disagree about the values")
    return with_noise(query.query, _present(counts, query.query.attributes), noise, entropy)


def _present(counts: ExactCounts, attributes: tuple[int, ...]) -> IntegerArray:
    """The exact number of values in each cell of the attributes."""
    values = counts._sizes[-1]
    shape = tuple(counts._sizes[attribute] for attribute in attributes)
    occupied = counts._exact_counts[0] > 0
    position = np.zeros(int(occupied.sum()), dtype=np.int64)
    for attribute, size in zip(attributes, shape, strict=True):
        position = position * size + counts._exact_coordinates[attribute][occupied]
    position = position * values + counts._exact_coordinates[-1][occupied]
    cells = np.unique(position) // values
    return np.bincount(cells, minlength=prod(shape)).astype(np.int64).reshape(shape)
