"""A distribution as a product of independent dense tables, joined when a query spans several (factored universe)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from dpduck.arrays import FloatArray
from dpduck.workload.margin_tree import margin_tree

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
