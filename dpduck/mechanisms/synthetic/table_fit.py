"""Fit of a distribution to a whole set of noisy marginals at once: a released cube, or all Fourier coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpduck.language.select.impossible_cells import ImpossibleCells
from dpduck.mechanisms.synthetic.cliques import LARGEST_TABLE, attribute_groups, cells_of, cliques_of
from dpduck.mechanisms.synthetic.distribution import Component, Distribution, zero_tables
from dpduck.mechanisms.synthetic.fit import PRIOR, Parameters, fit
from dpduck.mechanisms.synthetic.junction import junction_tree
from dpduck.mechanisms.synthetic.observations import Observation
from dpduck.values.arrays import FloatArray

STEPS = 250
TOLERANCE = 1e-3
"""End of a fit, see fit.TOLERANCE. Later steps fit noise (benchmarks/papers/prior_weight.py, as fit.PRIOR)."""

LOOSE = 1 / 10
"""Share of the largest variance. More precise marginals are first fitted as if they had this variance, since a step
that keeps precise marginals moves the others only a little."""


def fit_tables(
    sizes: Sequence[int],
    observations: Sequence[Observation],
    steps: int = STEPS,
    zeros: Sequence[ImpossibleCells] = (),
    weight: float = PRIOR,
) -> tuple[Distribution, float]:
    """Returns the distribution and the number of records. weight: per record, of a prior with the 1-way marginals."""
    impossible = zero_tables(sizes, zeros)
    cliques = cliques_of(sizes, [*(observation.attributes for observation in observations), *impossible])
    if cells_of(sizes, cliques) > LARGEST_TABLE:
        raise ValueError("these marginals connect more attributes than tables can hold")
    sums = [float(observation.value.sum()) for observation in observations]
    precisions = [1 / (observation.variance * observation.value.size) for observation in observations]
    records = max(1.0, float(np.average(sums, weights=precisions)))
    prior = singles(sizes, observations, records)
    components: list[Component] = []
    for group in attribute_groups(len(sizes), cliques):
        tree = junction_tree(tuple(clique for clique in cliques if group.issuperset(clique)))
        inside = [item for item in observations if item.attributes and group.issuperset(item.attributes)]
        log_prior: Parameters = {(place,): np.log(prior[place]) for place in group}
        start: Parameters = {(place,): np.zeros(sizes[place]) for place in group}
        own_zeros = {item: table for item, table in impossible.items() if group.issuperset(item)}
        least = LOOSE * max((item.variance for item in inside), default=0.0)
        loose = [replace(item, variance=max(item.variance, least)) for item in inside]
        stages = [(inside, steps)]
        if any(item.variance < least for item in inside):
            stages = [(loose, steps), (inside, steps // 2)]
        for of_stage, most in stages:
            result = fit(
                tree, sizes, of_stage, records, steps=most, start=start, prior=log_prior, strength=weight * records,
                tolerance=TOLERANCE, zeros=own_zeros,
            )  # fmt: skip
            start = result.parameters
        components += [Component(clique, table) for clique, table in zip(tree.cliques, result.tables, strict=True)]
    return Distribution(tuple(sizes), tuple(components)), records


def singles(sizes: Sequence[int], observations: Sequence[Observation], records: float) -> list[FloatArray]:
    """Returns the 1-way marginal of each attribute: the mean over the observations with it, weighted by precision.

    Shares move towards even shares as far as noise alone would have moved them away (James and Stein).
    """
    marginals, precisions = list[FloatArray](), list[float]()
    for attribute, size in enumerate(sizes):
        total, weight = np.zeros(size), 0.0
        for observation in observations:
            if attribute in observation.attributes:
                others = tuple(axis for axis, other in enumerate(observation.attributes) if other != attribute)
                precision = size / (observation.variance * observation.value.size)
                total += precision * observation.value.sum(axis=others)
                weight += precision
        marginals.append(total / weight / records if weight else np.full(size, 1 / size))
        precisions.append(weight * records**2)
    away = sum(
        float(((single - single.mean()) ** 2).sum()) * precision
        for single, precision in zip(marginals, precisions, strict=True)
    )
    noise = sum(len(single) - 1 for single, precision in zip(marginals, precisions, strict=True) if precision) - 2
    factor = max(0.0, 1 - max(0, noise) / away) if away > 0 else 1.0
    moved = [np.maximum(factor * single + (1 - factor) / len(single), 1e-4) for single in marginals]
    return [single / single.sum() for single in moved]
