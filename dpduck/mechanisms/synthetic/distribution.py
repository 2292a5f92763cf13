"""A distribution on a junction tree: dense tables over cliques, conditionally independent given what they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.margin_tree import margin_tree, sum_away
from dpduck.language.select.impossible_cells import ImpossibleCells
from dpduck.mechanisms.synthetic.fit import IMPOSSIBLE, PRIOR, Observation, Parameters, fit
from dpduck.mechanisms.synthetic.junction import (
    Beliefs,
    JunctionTree,
    Members,
    calibrated,
    eliminated,
    junction_tree,
    spread,
    tree_axes,
)
from dpduck.values.arrays import FloatArray, IntegerArray

LARGEST_TABLE = 1 << 24
"""Cells of all tables of a distribution."""


@dataclass(frozen=True, eq=False)
class Component:
    """A dense table of probabilities over some attributes, increasing: a clique's margin."""

    members: Members
    table: FloatArray


@dataclass(frozen=True, eq=False)
class Distribution:
    """Components that have all attributes, and agree where they share some; cliques of a junction tree."""

    sizes: tuple[int, ...]
    components: tuple[Component, ...]

    @cached_property
    def tree(self) -> JunctionTree:
        """Tells how the components hang together."""
        return junction_tree(tuple(component.members for component in self.components))

    def holding(self, attributes: Iterable[int]) -> list[int]:
        """Returns positions of the components that hold some of these attributes, or hang together with one
        that does.
        """
        wanted, roots = set(attributes), self.tree.roots
        held = {roots[place] for place, component in enumerate(self.components) if wanted & set(component.members)}
        return [place for place, root in enumerate(roots) if root in held]

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
        kept = tuple(component for place, component in enumerate(self.components) if place not in places)
        return Distribution(self.sizes, (*kept, Component(members, table))), len(kept)

    def replaced(self, place: int, table: FloatArray) -> Distribution:
        """Returns the distribution with another table in one component."""
        component = Component(self.components[place].members, table)
        return Distribution(self.sizes, (*self.components[:place], component, *self.components[place + 1 :]))

    def marginals(self, wanted: Sequence[Members]) -> dict[Members, FloatArray]:
        """Returns marginals: those of connected components, multiplied where a marginal spans several parts."""
        roots, homes = self.tree.roots, self.tree.homes
        pieces: dict[Members, list[Members]] = {}
        for attributes in wanted:
            parts: dict[int, list[int]] = {}
            for attribute in attributes:
                parts.setdefault(roots[homes[attribute]], []).append(attribute)
            pieces[attributes] = [tuple(part) for part in parts.values()]
        whole = tuple(dict.fromkeys(part for parts in pieces.values() for part in parts))
        beliefs = Beliefs(self.tree, [component.table for component in self.components])
        known = beliefs.marginals(whole)
        found: dict[Members, FloatArray] = {}
        for attributes, parts_of in pieces.items():
            table = np.ones(()) if len(parts_of) != 1 else known[parts_of[0]]
            if len(parts_of) > 1:
                shape = tuple(self.sizes[attribute] for attribute in attributes)
                for part in parts_of:
                    table = table * known[part].reshape(spread(attributes, part, shape))
            found[attributes] = table
        return found

    def flat_marginals(self, wanted: Sequence[Members]) -> FloatArray:
        """Returns the cells of marginals, all of them different, one marginal after the other."""
        if len(self.components) == 1 and all(wanted):
            only = self.components[0]
            return margin_tree(only.members, only.table.shape, wanted).flat(only.table)
        marginals = self.marginals(wanted)
        return np.concatenate([marginals[attributes].reshape(-1) for attributes in wanted])


def conditional(component: Component, given: Members) -> FloatArray:
    """Returns a component's probabilities given some of its members; 0 where these have none."""
    inside = sum_away(component.table, tree_axes(component.members, given))
    inside = inside.reshape(spread(component.members, given, component.table.shape))
    return np.divide(component.table, inside, out=np.zeros_like(component.table), where=inside > 0)


def uniform(sizes: Sequence[int], *, dense: bool, zeros: Parameters | None = None) -> Distribution:
    """Returns the uniform distribution over what is possible, as one dense table or on the cliques of zeros."""
    known = zeros or {}
    every = tuple(range(len(sizes)))
    cliques = (every,) if dense else cliques_of(sizes, list(known))
    components: list[Component] = []
    for group in connected(len(sizes), cliques):
        tree = junction_tree(tuple(clique for clique in cliques if group.issuperset(clique)))
        logarithms = [np.zeros([sizes[member] for member in clique]) for clique in tree.cliques]
        for one in (one for one in known if group.issuperset(one)):
            place = next(place for place, clique in enumerate(tree.cliques) if set(one) <= set(clique))
            logarithms[place] += known[one].reshape(spread(tree.cliques[place], one, logarithms[place].shape))
        tables, _ = calibrated(tree, logarithms)
        components += [Component(clique, table) for clique, table in zip(tree.cliques, tables, strict=True)]
    return Distribution(tuple(sizes), tuple(components))


def zero_tables(sizes: Sequence[int], zeros: Iterable[ImpossibleCells]) -> Parameters:
    """Returns zeros as a fit takes them."""
    found: dict[Members, FloatArray] = {}
    for one in zeros:
        table = found.setdefault(one.members, np.zeros([sizes[member] for member in one.members]))
        table.reshape(-1)[list(one.cells)] = IMPOSSIBLE
    return found


def kept_zeros(
    sizes: Sequence[int], sets: Sequence[Members], zeros: Iterable[ImpossibleCells], most: int
) -> tuple[ImpossibleCells, ...]:
    """Returns zeros beside which these sets need at most so many cells: sizes decide, no row does."""
    kept: list[ImpossibleCells] = []
    for one in zeros:
        if needed_cells(sizes, [*sets, *(other.members for other in kept), one.members]) <= most:
            kept.append(one)
    return tuple(kept)


def cliques_of(sizes: Sequence[int], sets: Sequence[Members]) -> tuple[Members, ...]:
    """Returns cliques that hold these sets and all attributes; one for each part if that has no more cells."""
    found: list[Members] = []
    cliques = eliminated(tuple(sizes), frozenset(sets)).cliques()
    for group in connected(len(sizes), sets):
        inside = [clique for clique in cliques if group.issuperset(clique)]
        joint = prod(sizes[attribute] for attribute in group)
        cells = sum(prod(sizes[attribute] for attribute in clique) for clique in inside)
        found += [tuple(sorted(group))] if joint <= cells else inside
    return tuple(found)


def cells_of(sizes: Sequence[int], cliques: Iterable[Members]) -> int:
    """Counts the cells of all tables."""
    return sum(prod(sizes[attribute] for attribute in clique) for clique in cliques)


# Rows drawn from a distribution: post-processing, so that randomness need only be unpredictable, not exact.
#
# Systematic sampling: with one uniform u, cell i gets floor(F_i + u) - floor(F_(i-1) + u) rows, F the
# cumulated expected numbers. Every cell gets its expected number rounded up or down, so that margins of the
# rows are close to the distribution's. A clique's new attributes are drawn so for the rows of each value of
# what it shares with the one before it: each value has its own u, from a sequence of even distribution.

Words = Callable[[int], NDArray[np.uint64]]
GOLDEN = (5**0.5 - 1) / 2


def sampled_codes(distribution: Distribution, rows: int, words: Words) -> list[IntegerArray]:
    """Returns the code of every row for each attribute, in a random order. words: so many uniform 64-bit integers."""
    codes: dict[int, IntegerArray] = {}
    tree, history = distribution.tree, np.zeros(rows, np.int64)
    for place in tree.order:
        component, given = distribution.components[place], tree.separators[place]
        axes = tree_axes(component.members, given)
        shape = [component.table.shape[axis] for axis in axes]
        kept = [axis for axis in range(component.table.ndim) if axis not in axes]
        weights = component.table.transpose([*kept, *axes]).reshape(-1, prod(shape))
        groups = np.zeros(rows, np.int64)
        for axis in kept:
            groups = groups * component.table.shape[axis] + codes[component.members[axis]]
        order = np.lexsort((words(rows), history, groups))
        groups, cells = groups[order], np.empty(rows, np.int64)
        turns = (np.arange(rows) * GOLDEN) % 1
        cells[order[np.lexsort((turns, groups))]] = _drawn(
            weights, groups, float(words(1)[0] >> np.uint64(11)) * 2.0**-53
        )
        for axis, of_member in zip(axes, np.unravel_index(cells, shape), strict=True):
            codes[component.members[axis]] = of_member
        history[np.lexsort((history, cells))] = np.arange(rows)
    return [codes[attribute] for attribute in range(len(distribution.sizes))]


def _drawn(weights: FloatArray, groups: IntegerArray, shift: float) -> IntegerArray:
    """Draws a cell for rows in increasing groups, by the row of weights that the group names."""
    found, counts = np.unique(groups, return_counts=True)
    cumulated = np.cumsum(weights[found], axis=1)
    ended = cumulated >= cumulated[:, -1:]  # cells of no weight at the end have no row by rounding either
    cumulated *= (counts / np.maximum(cumulated[:, -1], 1e-300))[:, None]
    cumulated = np.where(ended, counts[:, None], cumulated)
    cumulated += ((shift + np.arange(len(found)) * GOLDEN) % 1)[:, None]
    ends = np.floor(cumulated).astype(np.int64)
    ends[:, 1:] -= ends[:, :-1].copy()
    drawn: IntegerArray = np.repeat(np.arange(ends.size), ends.reshape(-1)) % weights.shape[1]
    return drawn


# A distribution fitted to a whole set of noisy marginals at once: a released cube, or all Fourier
# coefficients.

STEPS = 250
TOLERANCE = 1e-3
"""Where a fit ends, see fit.TOLERANCE; past it noise is fitted (benchmarks/papers/prior_weight.py, as fit.PRIOR)."""

LOOSE = 1 / 10
"""Of the largest variance: marginals that are known better are first fitted as if they had this one. A step that holds
them moves all others a little alone, so that a fit of both at once ends far from the lowest point."""


def needed_cells(sizes: Sequence[int], marginals: Sequence[Members]) -> int:
    """Returns cells of the tables that a fit of these marginals needs."""
    return cells_of(sizes, cliques_of(sizes, marginals))


def connected(attributes: int, marginals: Sequence[tuple[int, ...]]) -> list[set[int]]:
    """Returns groups of attributes that some marginal connects."""
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
    """Returns the distribution, and the number of records that the tables speak of. The prior: the 1-way marginals'
    product. weight: of the prior, for each record.
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
    for group in connected(len(sizes), cliques):
        tree = junction_tree(tuple(clique for clique in cliques if group.issuperset(clique)))
        inside = [one for one in observations if one.attributes and group.issuperset(one.attributes)]
        known: Parameters = {(place,): np.log(prior[place]) for place in group}
        start: Parameters = {(place,): np.zeros(sizes[place]) for place in group}
        there = {one: table for one, table in impossible.items() if group.issuperset(one)}
        least = LOOSE * max((one.variance for one in inside), default=0.0)
        loose = [replace(one, variance=max(one.variance, least)) for one in inside]
        stages = [(inside, steps)]
        if any(one.variance < least for one in inside):
            stages = [(loose, steps), (inside, steps // 2)]
        for of_stage, most in stages:
            found = fit(
                tree, sizes, of_stage, records, steps=most, start=start, prior=known, strength=weight * records,
                tolerance=TOLERANCE, zeros=there,
            )  # fmt: skip
            start = found.parameters
        components += [Component(clique, table) for clique, table in zip(tree.cliques, found.tables, strict=True)]
    return Distribution(tuple(sizes), tuple(components)), records


def singles(sizes: Sequence[int], observations: Sequence[Observation], records: float) -> list[FloatArray]:
    """Returns the 1-way marginal of each attribute, averaged over the tables that have it, no cell below a
    ten-thousandth.

    All shares are moved towards even ones by the rule of James and Stein, as far as noise alone would have moved them
    away.
    """
    found, precisions = list[FloatArray](), list[float]()
    for attribute, size in enumerate(sizes):
        total, weight = np.zeros(size), 0.0
        for observation in observations:
            if attribute in observation.attributes:
                others = tuple(axis for axis, one in enumerate(observation.attributes) if one != attribute)
                precision = size / (observation.variance * observation.value.size)
                total += precision * observation.value.sum(axis=others)
                weight += precision
        found.append(total / weight / records if weight else np.full(size, 1 / size))
        precisions.append(weight * records**2)
    away = sum(
        float(((single - single.mean()) ** 2).sum()) * precision
        for single, precision in zip(found, precisions, strict=True)
    )
    noise = sum(len(single) - 1 for single, precision in zip(found, precisions, strict=True) if precision) - 2
    kept = max(0.0, 1 - max(0, noise) / away) if away > 0 else 1.0
    moved = [np.maximum(kept * single + (1 - kept) / len(single), 1e-4) for single in found]
    return [single / single.sum() for single in moved]
