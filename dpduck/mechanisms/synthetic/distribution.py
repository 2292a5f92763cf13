"""Distribution on a junction tree: dense tables over cliques, conditionally independent given their separators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from dpduck.algebra.margin_tree import margin_tree, sum_away
from dpduck.language.select.impossible_cells import ImpossibleCells
from dpduck.mechanisms.synthetic.fit import IMPOSSIBLE, PRIOR, Parameters, fit
from dpduck.mechanisms.synthetic.junction import (
    Beliefs,
    JunctionTree,
    Members,
    calibrate,
    eliminate,
    junction_tree,
    spread,
    tree_axes,
)
from dpduck.mechanisms.synthetic.observations import Observation
from dpduck.values.arrays import FloatArray

LARGEST_TABLE = 1 << 24
"""Most cells of all tables of a distribution."""


@dataclass(frozen=True, eq=False)
class Component:
    """Margin of a clique: a dense table of probabilities over increasing attributes."""

    members: Members
    table: FloatArray


@dataclass(frozen=True, eq=False)
class Distribution:
    """Components that cover all attributes and agree on shared attributes: cliques of a junction tree."""

    sizes: tuple[int, ...]
    components: tuple[Component, ...]

    @cached_property
    def tree(self) -> JunctionTree:
        """Returns the junction tree of the components."""
        return junction_tree(tuple(component.members for component in self.components))

    def holding(self, attributes: Iterable[int]) -> list[int]:
        """Returns positions of the components with any of the attributes, and of components connected to them."""
        wanted, roots = set(attributes), self.tree.roots
        own_roots = {roots[place] for place, component in enumerate(self.components) if wanted & set(component.members)}
        return [place for place, root in enumerate(roots) if root in own_roots]

    def join(self, attributes: Iterable[int]) -> tuple[Distribution, int]:
        """Returns the same distribution with these attributes in one component, and that component's position."""
        places = self.holding(attributes)
        if len(places) == 1:
            return self, places[0]
        members = tuple(sorted({member for place in places for member in self.components[place].members}))
        shape, table = tuple(self.sizes[member] for member in members), np.ones(())
        for place in (place for place in self.tree.order if place in places):
            component, separator = self.components[place], self.tree.separators[place]
            part = conditional(component, separator) if separator else component.table
            table = table * part.reshape(spread(members, component.members, shape))
        others = tuple(component for place, component in enumerate(self.components) if place not in places)
        return Distribution(self.sizes, (*others, Component(members, table))), len(others)

    def with_table(self, place: int, table: FloatArray) -> Distribution:
        """Returns the distribution with another table in one component."""
        component = Component(self.components[place].members, table)
        return Distribution(self.sizes, (*self.components[:place], component, *self.components[place + 1 :]))

    def marginals(self, wanted: Sequence[Members]) -> dict[Members, FloatArray]:
        """Returns the marginal of each set. Unconnected cliques are independent, so their marginals are multiplied."""
        roots, homes = self.tree.roots, self.tree.homes
        pieces: dict[Members, list[Members]] = {}
        for attributes in wanted:
            parts: dict[int, list[int]] = {}
            for attribute in attributes:
                parts.setdefault(roots[homes[attribute]], []).append(attribute)
            pieces[attributes] = [tuple(part) for part in parts.values()]
        whole = tuple(dict.fromkeys(part for parts in pieces.values() for part in parts))
        beliefs = Beliefs(self.tree, [component.table for component in self.components])
        margins = beliefs.marginals(whole)
        result: dict[Members, FloatArray] = {}
        for attributes, parts_of in pieces.items():
            table = np.ones(()) if len(parts_of) != 1 else margins[parts_of[0]]
            if len(parts_of) > 1:
                shape = tuple(self.sizes[attribute] for attribute in attributes)
                for part in parts_of:
                    table = table * margins[part].reshape(spread(attributes, part, shape))
            result[attributes] = table
        return result

    def flat_marginals(self, wanted: Sequence[Members]) -> FloatArray:
        """Returns the cells of different marginals, one marginal after the other."""
        if len(self.components) == 1 and all(wanted):
            only = self.components[0]
            return margin_tree(only.members, only.table.shape, wanted).flat(only.table)
        marginals = self.marginals(wanted)
        return np.concatenate([marginals[attributes].reshape(-1) for attributes in wanted])


def conditional(component: Component, given: Members) -> FloatArray:
    """Returns a component's probabilities given some of its members, 0 if these have probability 0."""
    inside = sum_away(component.table, tree_axes(component.members, given))
    inside = inside.reshape(spread(component.members, given, component.table.shape))
    return np.divide(component.table, inside, out=np.zeros_like(component.table), where=inside > 0)


def uniform(sizes: Sequence[int], *, dense: bool, zeros: Parameters | None = None) -> Distribution:
    """Returns the uniform distribution over possible rows. dense: as one table, else on cliques that hold the zeros."""
    masks = zeros or {}
    all_members = tuple(range(len(sizes)))
    cliques = (all_members,) if dense else cliques_of(sizes, list(masks))
    components: list[Component] = []
    for group in attribute_groups(len(sizes), cliques):
        tree = junction_tree(tuple(clique for clique in cliques if group.issuperset(clique)))
        logarithms = [np.zeros([sizes[member] for member in clique]) for clique in tree.cliques]
        for key in (key for key in masks if group.issuperset(key)):
            place = next(place for place, clique in enumerate(tree.cliques) if set(key) <= set(clique))
            logarithms[place] += masks[key].reshape(spread(tree.cliques[place], key, logarithms[place].shape))
        tables, _ = calibrate(tree, logarithms)
        components += [Component(clique, table) for clique, table in zip(tree.cliques, tables, strict=True)]
    return Distribution(tuple(sizes), tuple(components))


def zero_tables(sizes: Sequence[int], zeros: Iterable[ImpossibleCells]) -> Parameters:
    """Returns impossible cells as tables to add to log probabilities: IMPOSSIBLE in these cells, 0 in all others."""
    tables: dict[Members, FloatArray] = {}
    for zero in zeros:
        table = tables.setdefault(zero.members, np.zeros([sizes[member] for member in zero.members]))
        table.reshape(-1)[list(zero.cells)] = IMPOSSIBLE
    return tables


def kept_zeros(
    sizes: Sequence[int], sets: Sequence[Members], zeros: Iterable[ImpossibleCells], most: int
) -> tuple[ImpossibleCells, ...]:
    """Returns the `zeros` (impossible cells) that a fit to `sets` can include in tables of `most` cells in all."""
    chosen: list[ImpossibleCells] = []
    for zero in zeros:
        if cells_for_fit(sizes, [*sets, *(other.members for other in chosen), zero.members]) <= most:
            chosen.append(zero)
    return tuple(chosen)


def cliques_of(sizes: Sequence[int], sets: Sequence[Members]) -> tuple[Members, ...]:
    """Returns cliques that contain these sets and all attributes. Connected cliques are merged if that adds no cell."""
    result: list[Members] = []
    cliques = eliminate(tuple(sizes), frozenset(sets)).cliques()
    for group in attribute_groups(len(sizes), sets):
        inside = [clique for clique in cliques if group.issuperset(clique)]
        joint = prod(sizes[attribute] for attribute in group)
        cells = sum(prod(sizes[attribute] for attribute in clique) for clique in inside)
        result += [tuple(sorted(group))] if joint <= cells else inside
    return tuple(result)


def cells_of(sizes: Sequence[int], cliques: Iterable[Members]) -> int:
    """Counts the cells of the tables over all cliques."""
    return sum(prod(sizes[attribute] for attribute in clique) for clique in cliques)


# A distribution fitted to a whole set of noisy marginals at once: a released cube, or all Fourier
# coefficients.

STEPS = 250
TOLERANCE = 1e-3
"""End of a fit, see fit.TOLERANCE. Later steps fit noise (benchmarks/papers/prior_weight.py, as fit.PRIOR)."""

LOOSE = 1 / 10
"""Share of the largest variance. More precise marginals are first fitted as if they had this variance. A step that
keeps precise marginals moves the others only a little. So a fit of all at once ends far from the lowest point."""


def cells_for_fit(sizes: Sequence[int], marginals: Sequence[Members]) -> int:
    """Counts the cells of the tables in a fit to the marginals."""
    return cells_of(sizes, cliques_of(sizes, marginals))


def attribute_groups(attributes: int, marginals: Sequence[tuple[int, ...]]) -> list[set[int]]:
    """Returns the groups of attributes that marginals connect."""
    groups = [{attribute} for attribute in range(attributes)]
    for marginal in marginals:
        touched = [group for group in groups if group & set(marginal)]
        if len(touched) > 1:
            groups = [group for group in groups if group not in touched] + [set().union(*touched)]
    return groups


def fit_tables(
    sizes: Sequence[int],
    observations: Sequence[Observation],
    steps: int = STEPS,
    zeros: Sequence[ImpossibleCells] = (),
    weight: float = PRIOR,
) -> tuple[Distribution, float]:
    """Returns the fitted distribution and the number of records: the observations' mean total by precision. The
    prior is the product of the 1-way marginals. weight: the prior's weight for each record.
    """
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

    All shares move towards even shares by the rule of James and Stein, as far as noise alone would have moved them
    away. No share is below about a ten-thousandth.
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
