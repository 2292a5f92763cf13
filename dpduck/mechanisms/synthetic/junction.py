"""Junction trees: measured margins lie in cliques, between which messages are exact (Lauritzen and Spiegelhalter 1988).

Attributes are eliminated one after the other. What is connected to one at its turn is its front, and becomes connected.
Fronts that lie in no other are the cliques. A clique's separator is what it shares with the clique before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np

from dpduck.algebra.margin_tree import margin_tree, sum_away
from dpduck.values.arrays import FloatArray

Members = tuple[int, ...]


@dataclass(frozen=True)
class Elimination:
    """order: of the attributes. fronts: of each of them; bit b stands for the one that is eliminated as number b."""

    sizes: tuple[int, ...]
    order: Members
    fronts: tuple[int, ...]

    @cached_property
    def places(self) -> dict[int, int]:
        """Tells when each attribute is eliminated."""
        return {attribute: place for place, attribute in enumerate(self.order)}

    @cached_property
    def cells(self) -> int:
        """Of all fronts together: no fewer than those of the cliques."""
        return sum(map(self._cells, self.fronts))

    def cells_with(self, attributes: Members) -> int:
        """Counts the cells of all fronts if these attributes are in one of them too."""
        added, total = sum(1 << self.places[attribute] for attribute in attributes), self.cells
        while added:
            place = (added & -added).bit_length() - 1
            front = self.fronts[place] | added
            if front == self.fronts[place]:
                break
            total += self._cells(front) - self._cells(self.fronts[place])
            added = front ^ (1 << place)
        return total

    def cliques(self) -> tuple[Members, ...]:
        """Fronts that lie in no other."""
        found = [front for front in self.fronts if not any(front & one == front != one for one in self.fronts)]
        return tuple(tuple(sorted(self.order[place] for place in _bits(front))) for front in found)

    def _cells(self, front: int) -> int:
        return prod(self.sizes[self.order[place]] for place in _bits(front))


def _bits(number: int) -> list[int]:
    found = []
    while number:
        lowest = number & -number
        found.append(lowest.bit_length() - 1)
        number ^= lowest
    return found


def eliminated(sizes: Sequence[int], sets: Iterable[Members]) -> Elimination:
    """Returns an order in which the cells of fronts are few: the better of two greedy ones, by cells and by new
    connections.
    """
    graph = [1 << place for place in range(len(sizes))]
    for attributes in sets:
        front = sum(1 << attribute for attribute in attributes)
        for attribute in attributes:
            graph[attribute] |= front
    both = (_greedy(tuple(sizes), graph, weigh) for weigh in (_weight, _fill))
    return min(both, key=lambda one: one.cells)


def _weight(sizes: Sequence[int], graph: Sequence[int], front: int) -> tuple[float, float]:
    return float(prod(sizes[place] for place in _bits(front))), 0.0


def _fill(sizes: Sequence[int], graph: Sequence[int], front: int) -> tuple[float, float]:
    missing = sum((front & ~graph[place]).bit_count() for place in _bits(front))
    return float(missing), _weight(sizes, graph, front)[0]


def _greedy(
    sizes: tuple[int, ...],
    graph: Sequence[int],
    weigh: Callable[[Sequence[int], Sequence[int], int], tuple[float, float]],
) -> Elimination:
    graph, left = list(graph), set(range(len(sizes)))
    weights = {attribute: weigh(sizes, graph, graph[attribute]) for attribute in left}
    order, fronts = [], []
    while left:
        chosen = min(left, key=lambda attribute: (weights[attribute], attribute))
        front = graph[chosen]
        left.remove(chosen)
        order.append(chosen)
        fronts.append(front)
        rest = front ^ (1 << chosen)
        touched = rest
        for attribute in _bits(rest):
            graph[attribute] = (graph[attribute] | rest) & ~(1 << chosen)
            touched |= graph[attribute]
        for attribute in _bits(touched):
            weights[attribute] = weigh(sizes, graph, graph[attribute])
    places = {attribute: place for place, attribute in enumerate(order)}
    placed = tuple(sum(1 << places[attribute] for attribute in _bits(front)) for front in fronts)
    return Elimination(sizes, tuple(order), placed)


@dataclass(frozen=True)
class JunctionTree:
    """cliques: each with an intersection property: what two share is in all between them.

    order: of messages, those before first. parents: by number of the clique, -1 for none.
    """

    cliques: tuple[Members, ...]
    order: tuple[int, ...]
    parents: tuple[int, ...]

    @cached_property
    def separators(self) -> tuple[Members, ...]:
        """Returns what each clique shares with the one before it."""
        return tuple(
            tuple(one for one in clique if parent >= 0 and one in self.cliques[parent])
            for clique, parent in zip(self.cliques, self.parents, strict=True)
        )

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """For each clique, the first of those that it is connected with."""
        found = list(range(len(self.cliques)))
        for number in self.order:
            if self.parents[number] >= 0:
                found[number] = found[self.parents[number]]
        return tuple(found)

    @cached_property
    def homes(self) -> dict[int, int]:
        """For each attribute, the first clique that has it."""
        return {one: number for number in reversed(self.order) for one in self.cliques[number]}

    def path(self, number: int) -> list[int]:
        """From a clique to its root."""
        found = [number]
        while self.parents[found[-1]] >= 0:
            found.append(self.parents[found[-1]])
        return found


@lru_cache(maxsize=256)
def junction_tree(cliques: tuple[Members, ...]) -> JunctionTree:
    """Returns largest separators first: a tree of the greatest weight has the intersection property wherever
    one has.
    """
    bits = [sum(1 << attribute for attribute in clique) for clique in cliques]
    order, parents, left = [], [-1] * len(cliques), set(range(len(cliques)))
    shared = dict.fromkeys(left, (0, -1))
    while left:
        chosen = max(left, key=lambda number: (shared[number][0], -number))
        left.remove(chosen)
        order.append(chosen)
        parents[chosen] = shared[chosen][1]
        for number in left:
            common = (bits[number] & bits[chosen]).bit_count()
            if common > shared[number][0]:
                shared[number] = common, chosen
    return JunctionTree(cliques, tuple(order), tuple(parents))


def calibrated(tree: JunctionTree, logarithms: Sequence[FloatArray]) -> tuple[list[FloatArray], float]:
    """Returns the margin on each clique of the distribution whose logarithm is the sum of these, and that of its total.

    One pass to the roots in logarithms, which leaves conditional probabilities in their place, and one back.
    """
    tables, logarithm = list(logarithms), 0.0
    own = [False] * len(tables)
    for number in reversed(tree.order):
        absent = tree_axes(tree.cliques[number], tree.separators[number])
        table = tables[number]
        peaks = table.max(axis=absent, keepdims=True)
        table = np.subtract(table, peaks, out=table if own[number] else None)
        np.exp(table, out=table)
        sums = _summed(table, absent)
        table /= sums
        tables[number] = table
        message, parent = peaks + np.log(sums), tree.parents[number]
        if parent < 0:
            logarithm += float(message.reshape(-1)[0])
            continue
        lifted = message.reshape(spread(tree.cliques[parent], tree.separators[number], tables[parent].shape))
        tables[parent] = np.add(tables[parent], lifted, out=tables[parent] if own[parent] else None)
        own[parent] = True
    for number in tree.order:
        parent = tree.parents[number]
        if parent >= 0:
            shared = tree.separators[number]
            inside = sum_away(tables[parent], tree_axes(tree.cliques[parent], shared))
            tables[number] *= inside.reshape(spread(tree.cliques[number], shared, tables[number].shape))
    return tables, logarithm


def _summed(table: FloatArray, absent: tuple[int, ...]) -> FloatArray:
    """Sums over these axes, which stay with size 1."""
    kept = [1 if axis in absent else size for axis, size in enumerate(table.shape)]
    return np.asarray(sum_away(table, absent)).reshape(kept) if absent else table.copy()


def tree_axes(members: Members, kept: Members) -> tuple[int, ...]:
    """Returns the axes of what is not kept."""
    return tuple(axis for axis, member in enumerate(members) if member not in kept)


def spread(members: Members, kept: Members, shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the shape of a table over `kept` beside one over `members`."""
    return tuple(size if member in kept else 1 for member, size in zip(members, shape, strict=True))


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Margins of a distribution: within a clique by sums; across cliques a product along the tree, sums taken early."""

    tree: JunctionTree
    tables: Sequence[FloatArray]
    known: dict[tuple[int, Members], FloatArray]

    def marginals(self, wanted: Sequence[Members]) -> dict[Members, FloatArray]:
        """Of these sets of attributes, all of them in one connected part each."""
        inside: dict[int, list[Members]] = {}
        found: dict[Members, FloatArray] = {}
        for attributes in wanted:
            holders = [place for place, clique in enumerate(self.tree.cliques) if set(attributes) <= set(clique)]
            if holders:
                inside.setdefault(min(holders, key=lambda place: self.tables[place].size), []).append(attributes)
            else:
                found[attributes] = self._across(attributes)
        for place, sets in inside.items():
            table = self.tables[place]
            found |= margin_tree(self.tree.cliques[place], table.shape, sets).margins(table)
        return found

    def _across(self, attributes: Members) -> FloatArray:
        """Beneath the last clique that the paths of all attributes share."""
        paths = [self.tree.path(self.tree.homes[attribute])[::-1] for attribute in attributes]
        shared = [steps[0] for steps in zip(*paths, strict=False) if len(set(steps)) == 1]
        return self._below(shared[-1], attributes, ())

    def _under(self, number: int, attributes: Members) -> FloatArray:
        """Returns the probability of attributes beneath a clique, given its separator, whose axes come first."""
        known = self.known.get((number, attributes))
        if known is None:
            known = self._below(number, attributes, self.tree.separators[number])
            inside = sum_away(self.tables[number], tree_axes(self.tree.cliques[number], self.tree.separators[number]))
            shape = (*inside.shape, *(1 for _ in attributes))
            known = np.divide(known, inside.reshape(shape), out=np.zeros_like(known), where=inside.reshape(shape) > 0)
            self.known[number, attributes] = known
        return known

    def _below(self, number: int, attributes: Members, first: Members) -> FloatArray:
        """Returns the margin of attributes at or beneath a clique and of some of the clique's own, which come first."""
        branches: dict[int, list[int]] = {}
        own = [attribute for attribute in attributes if attribute in self.tree.cliques[number]]
        for attribute in attributes:
            if attribute not in own:
                path = self.tree.path(self.tree.homes[attribute])
                branches.setdefault(path[path.index(number) - 1], []).append(attribute)
        needed = {*own, *first, *(one for child in branches for one in self.tree.separators[child])}
        labels = tuple(member for member in self.tree.cliques[number] if member in needed)
        table, left = self._margin(number, labels), list(branches)
        while left:
            child = left.pop()
            beneath, separator = tuple(branches[child]), self.tree.separators[child]
            needed = {*attributes, *first, *(one for other in left for one in self.tree.separators[other])}
            kept = (*(one for one in labels if one in needed), *beneath)
            table = _contracted(table, labels, self._under(child, beneath), (*separator, *beneath), kept)
            labels = kept
        target = (*first, *attributes)
        return table.transpose([labels.index(one) for one in target])

    def _margin(self, number: int, attributes: Members) -> FloatArray:
        """Returns a margin of a clique, in the clique's order."""
        clique = self.tree.cliques[number]
        if attributes == clique:
            return self.tables[number]
        known = self.known.get((-1 - number, attributes))
        if known is None:
            known = sum_away(self.tables[number], tree_axes(clique, attributes))
            self.known[-1 - number, attributes] = known
        return known


def _contracted(left: FloatArray, axes: Members, right: FloatArray, others: Members, kept: Members) -> FloatArray:
    """Returns the product of two tables, summed over all attributes that are not kept."""
    letters = {attribute: chr(ord("A") + number) for number, attribute in enumerate(dict.fromkeys((*axes, *others)))}
    first, second, third = ("".join(letters[one] for one in labels) for labels in (axes, others, kept))
    return np.asarray(np.einsum(f"{first},{second}->{third}", left, right))
