"""Distribution on a junction tree: dense tables over cliques, conditionally independent given their separators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpduck.algebra.margin_tree import margin_tree, sum_away
from dpduck.language.select.impossible_cells import ImpossibleCells
from dpduck.mechanisms.synthetic.cliques import attribute_groups, cliques_of
from dpduck.mechanisms.synthetic.fit import IMPOSSIBLE, Parameters
from dpduck.mechanisms.synthetic.junction import (
    Beliefs,
    JunctionTree,
    Members,
    calibrate,
    junction_tree,
    spread,
    tree_axes,
)
from dpduck.values.arrays import FloatArray


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
