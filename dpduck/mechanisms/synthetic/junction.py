"""Junction trees: measured margins lie in cliques, between which messages are exact (Lauritzen and Spiegelhalter 1988).

Attributes are eliminated one after the other. What is connected to one at its turn is its front, and becomes connected.
Fronts that lie in no other are the cliques. A clique's separator is what it shares with the clique before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod

import numpy as np

from dpduck.algebra.margin_tree import margin_tree, sum_away
from dpduck.values.arrays import FloatArray

Members = tuple[int, ...]

ONE_THREAD = 1 << 18
"""Multiplications of a matrix product, up to which BLAS begins no second thread."""

LEAST_SUM = 1e-200
"""Of the cells of a separator's value, where the largest of all cells is 1."""


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
        """Counts the cells of all fronts together: no fewer than those of the cliques."""
        return sum(self.front_cells)

    @cached_property
    def front_cells(self) -> list[int]:
        """Counts the cells of each front."""
        return [self._cells(front) for front in self.fronts]

    def cells_with(self, attributes: Members) -> int:
        """Counts the cells of all fronts if these attributes are in one of them too."""
        added, total = sum(1 << self.places[attribute] for attribute in attributes), self.cells
        while added:
            place = (added & -added).bit_length() - 1
            front = self.fronts[place]
            new = added & ~front
            if not new:
                break
            total += self.front_cells[place] * (self._cells(new) - 1)
            added = (front | added) ^ (1 << place)
        return total

    def cliques(self) -> tuple[Members, ...]:
        """Returns the fronts that lie in no other."""
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


@lru_cache(maxsize=16)  # what a round fits is what the next one asks about
def eliminated(sizes: tuple[int, ...], sets: frozenset[Members]) -> Elimination:
    """Returns an order with few cells in its fronts: the better of two greedy ones, by cells and by connections."""
    graph = [1 << place for place in range(len(sizes))]
    for attributes in sets:
        front = sum(1 << attribute for attribute in attributes)
        for attribute in attributes:
            graph[attribute] |= front
    return min((_greedy(sizes, graph, weigh) for weigh in (_weight, _fill)), key=lambda one: one.cells)


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
    def absent(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Lists the axes that each separator lacks: of its clique, and of the one before it."""
        pairs = zip(self.cliques, self.parents, self.separators, strict=True)
        return [(tree_axes(one, kept), tree_axes(self.cliques[parent], kept)) for one, parent, kept in pairs]

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """Returns for each clique, the first of those that it is connected with."""
        found = list(range(len(self.cliques)))
        for number in self.order:
            if self.parents[number] >= 0:
                found[number] = found[self.parents[number]]
        return tuple(found)

    @cached_property
    def homes(self) -> dict[int, int]:
        """Returns for each attribute, the first clique that has it."""
        return {one: number for number in reversed(self.order) for one in self.cliques[number]}

    @cached_property
    def bits(self) -> tuple[int, ...]:
        """Returns the attributes of each clique as bits."""
        return tuple(sum(1 << attribute for attribute in clique) for clique in self.cliques)

    @cached_property
    def ways(self) -> tuple[dict[int, int], ...]:
        """Returns for each clique, and each one beneath it, the child that leads there."""
        found: tuple[dict[int, int], ...] = tuple({} for _ in self.cliques)
        for number in self.order:
            child, parent = number, self.parents[number]
            while parent >= 0:
                found[parent][number] = child
                child, parent = parent, self.parents[parent]
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

    One pass to the roots in logarithms and one back. Passes along axes are slow: tables are summed once and multiplied
    once, and measured by their largest cell where that loses no value of a separator.
    """
    tables, logarithm = list(logarithms), 0.0
    own = [False] * len(tables)
    factors: list[FloatArray] = [np.ones(())] * len(tables)
    for number in reversed(tree.order):
        absent, gone = tree.absent[number]
        given, out = tables[number], tables[number] if own[number] else None
        peaks = np.asarray(given.max())
        table = np.subtract(given, peaks)
        np.exp(table, out=table)
        sums = _summed(table, absent)
        if sums.min() < LEAST_SUM:
            peaks = given.max(axis=absent, keepdims=True)
            table = np.subtract(given, peaks, out=out)
            np.exp(table, out=table)
            sums = _summed(table, absent)
        tables[number], factors[number] = table, 1 / sums
        message, parent = peaks + np.log(sums), tree.parents[number]
        if parent < 0:
            logarithm += float(message.reshape(-1)[0])
            continue
        lifted = message.reshape([1 if axis in gone else size for axis, size in enumerate(tables[parent].shape)])
        tables[parent] = np.add(tables[parent], lifted, out=tables[parent] if own[parent] else None)
        own[parent] = True
    for number in tree.order:
        parent, factor = tree.parents[number], factors[number]
        if parent >= 0:
            factor *= sum_away(tables[parent], tree.absent[number][1]).reshape(factor.shape)
        tables[number] *= factor
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


Way = tuple[tuple[Members, ...], Members]
"""A set's parts beneath some children, and the set."""


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Margins of a distribution: within a clique by sums; across cliques a product along the tree, sums taken early.

    Sets that go the same way through the tree are one matrix product: a call for each would take longer than its sums.
    margins: of cliques, and conditional: of what is beneath them given their separators, as far as they were needed.
    """

    tree: JunctionTree
    tables: Sequence[FloatArray]
    margins: dict[int, dict[Members, FloatArray]] = field(default_factory=lambda: defaultdict(dict))
    conditional: dict[tuple[int, Members], FloatArray] = field(default_factory=dict)

    def marginals(self, wanted: Sequence[Members]) -> dict[Members, FloatArray]:
        """Returns the marginals of these sets of attributes, all of them in one connected part each."""
        order = sorted(range(len(self.tables)), key=lambda place: self.tables[place].size)
        bits = [(self.tree.bits[place], place) for place in order]
        inside: dict[int, list[Members]] = {}
        across: dict[int, list[Members]] = {}
        for attributes in wanted:
            these = sum(1 << attribute for attribute in attributes)
            holder = next((place for held, place in bits if these & ~held == 0), None)
            if holder is None:
                across.setdefault(self._top(attributes), []).append(attributes)
            else:
                inside.setdefault(holder, []).append(attributes)
        found: dict[Members, FloatArray] = {}
        for place, sets in inside.items():
            table = self.tables[place]
            found |= margin_tree(self.tree.cliques[place], table.shape, sets).margins(table)
        for place, sets in across.items():
            found |= self._below(place, sets, ())
        return found

    def _top(self, attributes: Members) -> int:
        """Returns the last clique that the paths from the root to all these attributes share."""
        homes, ways = [self.tree.homes[attribute] for attribute in attributes], self.tree.ways
        found = homes[0]
        while any(home != found and home not in ways[found] for home in homes):
            found = self.tree.parents[found]
        return found

    def _below(self, number: int, sets: Sequence[Members], first: Members) -> dict[Members, FloatArray]:
        """Returns the margins of sets at or beneath a clique and of some of the clique's own, which come first."""
        groups: dict[tuple[Members, tuple[int, ...]], list[Way]] = {}
        homes, ways = self.tree.homes, self.tree.ways[number]
        for attributes in sets:
            own: list[int] = []
            branches: dict[int, list[int]] = {}
            for attribute in attributes:
                home = homes[attribute]
                (own if home == number else branches.setdefault(ways[home], [])).append(attribute)
            children = tuple(sorted(branches))
            parts = tuple(tuple(branches[child]) for child in children)
            groups.setdefault((tuple(own), children), []).append((parts, attributes))
        found: dict[Members, FloatArray] = {}
        for (own_ones, children), tasks in groups.items():
            separators = [self.tree.separators[child] for child in children]
            needed = {*own_ones, *first, *(one for separator in separators for one in separator)}
            labels = tuple(member for member in self.tree.cliques[number] if member in needed)
            self._follow(self._margin(number, labels), labels, (*first, *own_ones), children, tasks, first, found)
        return found

    def _follow(
        self,
        table: FloatArray,
        labels: Members,
        kept: Members,
        children: tuple[int, ...],
        tasks: Sequence[Way],
        first: Members,
        found: dict[Members, FloatArray],
    ) -> None:
        """Takes in what is beneath one child after the other. kept: labels of the results."""
        if not children:
            for _, attributes in tasks:
                found[attributes] = table.transpose([labels.index(one) for one in (*first, *attributes)])
            return
        child, rest = children[0], children[1:]
        parts: dict[Members, list[Way]] = {}
        for (part, *others), attributes in tasks:
            parts.setdefault(part, []).append((tuple(others), attributes))
        stays = {*kept, *(one for other in rest for one in self.tree.separators[other])}
        columns = self._under(child, list(parts))
        table, labels = _contracted(table, labels, columns, self.tree.separators[child], stays)
        end = 0
        for (part, tasks_of), column in zip(parts.items(), columns, strict=True):
            shape = column.shape[len(self.tree.separators[child]) :]
            begin, end = end, end + prod(shape)
            piece = table[..., begin:end].reshape(*table.shape[:-1], *shape)
            self._follow(piece, (*labels, *part), (*kept, *part), rest, tasks_of, first, found)

    def _under(self, number: int, sets: Sequence[Members]) -> list[FloatArray]:
        """Returns the probabilities of sets beneath a clique given its separator, whose axes come first."""
        missing = [attributes for attributes in sets if (number, attributes) not in self.conditional]
        if missing:
            separator = self.tree.separators[number]
            inside = self._margin(number, separator)
            shares = np.divide(1.0, inside, out=np.zeros(inside.shape), where=inside > 0)
            for attributes, table in self._below(number, missing, separator).items():
                self.conditional[number, attributes] = table * shares.reshape(*inside.shape, *(1 for _ in attributes))
        return [self.conditional[number, attributes] for attributes in sets]

    def _margin(self, number: int, attributes: Members) -> FloatArray:
        """Returns a margin of a clique, in the clique's order: from the smallest that is known."""
        known = self.margins[number]
        if attributes not in known:
            wanted, found = set(attributes), [(self.tree.cliques[number], self.tables[number]), *known.items()]
            members, table = min((one for one in found if wanted.issubset(one[0])), key=lambda one: one[1].size)
            known[attributes] = sum_away(table, tree_axes(members, attributes)) if members != attributes else table
        return known[attributes]


def _contracted(
    table: FloatArray, labels: Members, columns: Sequence[FloatArray], separator: Members, stays: set[int]
) -> tuple[FloatArray, Members]:
    """Returns a table times columns, which come last, summed over what of a separator does not stay; its labels."""
    both = [one for one in labels if one in stays and one in separator]
    rows = [one for one in labels if one not in separator]
    away = [one for one in labels if one in separator and one not in stays]
    sizes = dict(zip(labels, table.shape, strict=True))
    shape, gone = tuple(sizes[one] for one in (*both, *rows)), prod(sizes[one] for one in away)
    left = table.transpose([labels.index(one) for one in (*both, *rows, *away)])
    axes = [*(separator.index(one) for one in (*both, *away)), len(separator)]
    flat = [one.reshape(*one.shape[: len(separator)], -1) for one in columns]
    right = np.concatenate(flat, axis=-1).transpose(axes)
    batch = prod(sizes[one] for one in both)
    product = _multiplied(left.reshape(batch, -1, gone), right.reshape(batch, gone, -1))
    return product.reshape(*shape, -1), (*both, *rows)


def _multiplied(left: FloatArray, right: FloatArray) -> FloatArray:
    """Returns matrix products of so few entries at a time that BLAS stays with one thread (see fit.inner)."""
    (batch, rows, inner), columns = left.shape, right.shape[2]
    found, step = np.empty((batch, rows, columns)), max(1, ONE_THREAD // max(1, rows * inner))
    for begin in range(0, columns, step):
        np.matmul(left, right[..., begin : begin + step], out=found[..., begin : begin + step])
    return found
