"""Numbers of distinct values by cell, with noise: presence, not counts, so they are added up for each set by itself."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from dpduck.errors import InternalError
from dpduck.planning.plan import Plan
from dpduck.trusted.entropy import Entropy
from dpduck.trusted.exact_counts import ExactCounts
from dpduck.trusted.measure import with_noise
from dpduck.workload.kronecker import IdentityFactor

IntegerArray = NDArray[np.int64]


def measure_distinct(counts: ExactCounts, plan: Plan, unit_bound: int, entropy: Entropy) -> tuple[IntegerArray, ...]:
    """For each measurement, how many values of the last attribute each of its cells holds, with noise.

    A unit with m rows makes or unmakes the presence of at most m values in all cells of a set together, so that its
    L1 bound is that of counts: m for every set.
    """
    if counts._unit_bounds[0] > unit_bound or counts._sizes[:-1] != plan.workload.sizes:
        raise InternalError("the plan and the counts disagree about the domain or the contribution bound")
    for measurement in plan.measurements:
        if not all(isinstance(factor, IdentityFactor) for factor in measurement.query.factors):
            raise InternalError("distinct values add up to no other query")
    return tuple(
        with_noise(measurement, _present(counts, measurement.query.attributes), plan.noise, entropy)
        for measurement in plan.measurements
    )


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
