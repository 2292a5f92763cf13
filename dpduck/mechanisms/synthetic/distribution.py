"""A distribution as a product of independent dense tables, joined when a query spans several (factored universe)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.margin_tree import margin_tree
from dpduck.mechanisms.synthetic.fit import PRIOR, Observation, fit
from dpduck.values.arrays import FloatArray, IntegerArray

Members = tuple[int, ...]

LARGEST_TABLE = 1 << 24
"""Cells of one dense table."""


@dataclass(frozen=True, eq=False)
class Component:
    """A dense table of probabilities over some attributes, increasing."""

    members: Members
    table: FloatArray


@dataclass(frozen=True, eq=False)
class Distribution:
    """Independent components that share the attributes out among them."""

    sizes: tuple[int, ...]
    components: tuple[Component, ...]

    def holding(self, attributes: Iterable[int]) -> list[int]:
        """Positions of the components that hold some of these attributes."""
        wanted = set(attributes)
        return [place for place, component in enumerate(self.components) if wanted & set(component.members)]

    def joined_cells(self, attributes: Iterable[int]) -> int:
        """Cells of the table that a query on these attributes would need."""
        return prod(self.components[place].table.size for place in self.holding(attributes))

    def join(self, attributes: Iterable[int]) -> tuple[Distribution, int]:
        """The same distribution with these attributes in one component, and that component's position."""
        places = self.holding(attributes)
        if len(places) == 1:
            return self, places[0]
        joined = _product([self.components[place] for place in places])
        kept = tuple(component for place, component in enumerate(self.components) if place not in places)
        return Distribution(self.sizes, (*kept, joined)), len(kept)

    def replaced(self, place: int, table: FloatArray) -> Distribution:
        """The distribution with another table in one component."""
        component = Component(self.components[place].members, table)
        return Distribution(self.sizes, (*self.components[:place], component, *self.components[place + 1 :]))

    def marginals(self, wanted: Sequence[Members]) -> dict[Members, FloatArray]:
        """Marginals: those of the components, multiplied where a marginal spans several."""
        parts: list[dict[Members, FloatArray]] = []
        for component in self.components:
            inside = {_within(attributes, component.members) for attributes in wanted}
            inside.discard(())
            tree = margin_tree(component.members, component.table.shape, sorted(inside))
            parts.append(tree.margins(component.table) if inside else {})
        found: dict[Members, FloatArray] = {}
        for attributes in wanted:
            pieces = [
                Component(part, parts[place][part])
                for place, component in enumerate(self.components)
                if (part := _within(attributes, component.members))
            ]
            found[attributes] = pieces[0].table if len(pieces) == 1 else _product(pieces).table
        return found

    def flat_marginals(self, wanted: Sequence[Members]) -> FloatArray:
        """The cells of marginals, all of them different, one marginal after the other."""
        if len(self.components) == 1 and all(wanted):
            only = self.components[0]
            return margin_tree(only.members, only.table.shape, wanted).flat(only.table)
        marginals = self.marginals(wanted)
        return np.concatenate([marginals[attributes].reshape(-1) for attributes in wanted])


def uniform(sizes: Sequence[int], *, dense: bool) -> Distribution:
    """The uniform distribution, as one dense table or as a component for each attribute."""
    if dense:
        members = tuple(range(len(sizes)))
        return Distribution(tuple(sizes), (Component(members, np.full(tuple(sizes), 1 / prod(sizes))),))
    return Distribution(
        tuple(sizes), tuple(Component((place,), np.full(size, 1 / size)) for place, size in enumerate(sizes))
    )


def _within(attributes: Members, members: Members) -> Members:
    return tuple(attribute for attribute in attributes if attribute in members)


def _product(components: Sequence[Component]) -> Component:
    """The outer product, its axes in increasing order of attributes."""
    members = [attribute for component in components for attribute in component.members]
    table = np.ones(())
    for component in components:
        table = np.multiply.outer(table, component.table)
    order = np.argsort(members)
    return Component(tuple(sorted(members)), np.ascontiguousarray(table.transpose(order)))


# Rows drawn from a distribution: post-processing, so that randomness need only be unpredictable, not exact.
#
# Systematic sampling: with one uniform u, cell i gets floor(F_i + u) - floor(F_(i-1) + u) rows, F the
# cumulated expected numbers. Every cell gets its expected number rounded up or down, so that margins of the
# rows are close to the distribution's.

Words = Callable[[int], NDArray[np.uint64]]


def sampled_codes(distribution: Distribution, rows: int, words: Words) -> list[IntegerArray]:
    """The code of every row for each attribute, in a random order. words: so many uniform 64-bit integers."""
    codes: dict[int, IntegerArray] = {}
    for component in distribution.components:
        weights = component.table.reshape(-1)
        cumulated = np.cumsum(weights)
        cumulated *= rows / cumulated[-1]
        cumulated[-1] = rows
        shift = float(words(1)[0] >> np.uint64(11)) * 2.0**-53
        ends = np.floor(cumulated + shift).astype(np.int64)
        cells = np.repeat(np.arange(len(weights)), np.diff(ends, prepend=0))
        cells = cells[np.argsort(words(rows))]
        for member, of_member in zip(component.members, np.unravel_index(cells, component.table.shape), strict=True):
            codes[member] = of_member
    return [codes[attribute] for attribute in range(len(distribution.sizes))]


# A distribution fitted to a whole set of noisy marginals at once: a released cube, or all Fourier
# coefficients.

STEPS = 250
TOLERANCE = 1e-3
"""Where a fit ends, see fit.TOLERANCE; past it noise is fitted (benchmarks/papers/prior_weight.py, as fit.PRIOR)."""


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
