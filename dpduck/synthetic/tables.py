"""A distribution fitted to a whole set of noisy marginals at once: a released cube, or all Fourier coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from dpduck.arrays import FloatArray
from dpduck.synthetic.distribution import LARGEST_TABLE, Distribution, uniform
from dpduck.synthetic.fit import PRIOR, fit
from dpduck.synthetic.observations import Observation

STEPS = 250
TOLERANCE = 1e-3
"""Where a fit ends, see fit.TOLERANCE; past it noise is fitted (benchmarks/_prior_weight.py, as for fit.PRIOR)."""


def largest_table(sizes: Sequence[int], marginals: Sequence[tuple[int, ...]]) -> int:
    """Cells of the largest table that these marginals connect."""
    return max(prod(sizes[attribute] for attribute in group) for group in connected(len(sizes), marginals))


def connected(attributes: int, marginals: Sequence[tuple[int, ...]]) -> list[set[int]]:
    """Groups of attributes that some marginal connects."""
    groups = [{attribute} for attribute in range(attributes)]
    for marginal in marginals:
        touched = [group for group in groups if group & set(marginal)]
        if len(touched) > 1:
            groups = [group for group in groups if group not in touched] + [set().union(*touched)]
    return groups


def fit_tables(
    sizes: Sequence[int], observations: Sequence[Observation], steps: int = STEPS
) -> tuple[Distribution, float]:
    """The distribution, and the number of records that the tables speak of. The prior: the 1-way marginals' product."""
    marginals = [observation.attributes for observation in observations]
    if largest_table(sizes, marginals) > LARGEST_TABLE:
        raise ValueError("these marginals connect more attributes than one table holds")
    sums = [float(observation.value.sum()) for observation in observations]
    precisions = [1 / (observation.variance * observation.value.size) for observation in observations]
    records = max(1.0, float(np.average(sums, weights=precisions)))
    distribution = uniform(sizes, dense=False)
    for place, single in enumerate(_single_marginals(sizes, observations, records)):
        distribution = distribution.replaced(place, single)
    for marginal in filter(None, marginals):
        distribution, _ = distribution.join(marginal)
    for place, component in enumerate(distribution.components):
        inside = [one for one in observations if one.attributes and set(one.attributes) <= set(component.members)]
        if inside:
            table, _ = fit(
                component.members,
                component.table,
                inside,
                records,
                steps=steps,
                prior=component.table,
                strength=PRIOR * records,
                tolerance=TOLERANCE,
            )
            distribution = distribution.replaced(place, table)
    return distribution, records


def _single_marginals(sizes: Sequence[int], observations: Sequence[Observation], records: float) -> list[FloatArray]:
    """The 1-way marginal of each attribute, averaged over the tables that have it, no cell below a ten-thousandth."""
    found = []
    for attribute, size in enumerate(sizes):
        total, weight = np.zeros(size), 0.0
        for observation in observations:
            if attribute in observation.attributes:
                others = tuple(axis for axis, one in enumerate(observation.attributes) if one != attribute)
                precision = size / (observation.variance * observation.value.size)
                total += precision * observation.value.sum(axis=others)
                weight += precision
        single = np.maximum(total / weight / records, 1e-4) if weight else np.ones(size)
        found.append(single / single.sum())
    return found
