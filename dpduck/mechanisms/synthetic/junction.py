"""Junction trees: measured margins lie in cliques, with exact messages in between (Lauritzen and Spiegelhalter 1988).

Attributes are eliminated one after the other. The front of an attribute is itself with its neighbours at its turn,
which become connected. The maximal fronts are the cliques.
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
"""Most multiplications of a matrix product for which BLAS begins no second thread."""

LEAST_SUM = 1e-200
"""Least sum over the cells with one value of the separator, if the table's largest cell is scaled to 1."""


@dataclass(frozen=True)
class Elimination:
    """Order of eliminating attributes. fronts: each attribute with its neighbours at its turn. Bit b is `order[b]`."""

    sizes: tuple[int, ...]
    order: Members
    fronts: tuple[int, ...]

    @cached_property
    def places(self) -> dict[int, int]:
        return {attribute: place for place, attribute in enumerate(self.order)}

    @cached_property
    def cells(self) -> int:
        """Counts the cells of all fronts together. They are no fewer than the cells of the cliques."""
        return sum(self.front_cells)

    @cached_property
    def front_cells(self) -> list[int]:
        return [self._cells(front) for front in self.fronts]

    def cells_with(self, attributes: Members) -> int:
        """Counts the cells of all fronts if some front must also contain all these attributes."""
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
        fronts = [front for front in self.fronts if not any(front & other == front != other for other in self.fronts)]
        return tuple(tuple(sorted(self.order[place] for place in _bits(front))) for front in fronts)

    def _cells(self, front: int) -> int:
        return prod(self.sizes[self.order[place]] for place in _bits(front))


def _bits(number: int) -> list[int]:
    bits = []
    while number:
        lowest = number & -number
        bits.append(lowest.bit_length() - 1)
        number ^= lowest
    return bits


@lru_cache(maxsize=16)  # the next round asks about the sets that this round fits
def eliminate(sizes: tuple[int, ...], sets: frozenset[Members]) -> Elimination:
    """Returns the better of two greedy orders of elimination, by few cells of each front or by few new connections."""
    graph = [1 << place for place in range(len(sizes))]
    for attributes in sets:
        front = sum(1 << attribute for attribute in attributes)
        for attribute in attributes:
            graph[attribute] |= front
    return min((_greedy(sizes, graph, weigh) for weigh in (_weight, _fill)), key=lambda elimination: elimination.cells)


def _weight(sizes: Sequence[int], graph: Sequence[int], front: int) -> tuple[float, float]:
    return float(prod(sizes[place] for place in _bits(front))), 0.0


def _fill(sizes: Sequence[int], graph: Sequence[int], front: int) -> tuple[float, float]:
    """Returns the connections that a front lacks, each counted from both ends, and then its number of cells."""
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
    """Junction tree. Attributes that two cliques share are in all cliques between them (intersection property).

    order: the cliques with parents first. parents: each clique's parent, -1 for none.
    """

    cliques: tuple[Members, ...]
    order: tuple[int, ...]
    parents: tuple[int, ...]

    @cached_property
    def separators(self) -> tuple[Members, ...]:
        """Returns the attributes that each clique shares with its parent."""
        return tuple(
            tuple(member for member in clique if parent >= 0 and member in self.cliques[parent])
            for clique, parent in zip(self.cliques, self.parents, strict=True)
        )

    @cached_property
    def absent(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Lists the axes that each separator lacks: of its clique, and of the clique's parent."""
        pairs = zip(self.cliques, self.parents, self.separators, strict=True)
        return [(tree_axes(clique, both), tree_axes(self.cliques[parent], both)) for clique, parent, both in pairs]

    @cached_property
    def roots(self) -> tuple[int, ...]:
        firsts = list(range(len(self.cliques)))
        for number in self.order:
            if self.parents[number] >= 0:
                firsts[number] = firsts[self.parents[number]]
        return tuple(firsts)

    @cached_property
    def homes(self) -> dict[int, int]:
        return {member: number for number in reversed(self.order) for member in self.cliques[number]}

    @cached_property
    def bits(self) -> tuple[int, ...]:
        return tuple(sum(1 << attribute for attribute in clique) for clique in self.cliques)

    @cached_property
    def ways(self) -> tuple[dict[int, int], ...]:
        """Returns for each clique a map from the cliques beneath it to the child that leads there."""
        paths: tuple[dict[int, int], ...] = tuple({} for _ in self.cliques)
        for number in self.order:
            child, parent = number, self.parents[number]
            while parent >= 0:
                paths[parent][number] = child
                child, parent = parent, self.parents[parent]
        return paths


@lru_cache(maxsize=256)
def junction_tree(cliques: tuple[Members, ...]) -> JunctionTree:
    """Builds a tree with large separators (Prim). It has the intersection property if any tree has it."""
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


def calibrate(tree: JunctionTree, logarithms: Sequence[FloatArray]) -> tuple[list[FloatArray], float]:
    """Returns the margin on each clique of exp(sum of logarithms), normalised, and the logarithm of the total.

    One pass goes to the roots in logarithms, and one back. Operations along axes are slow, so a table is summed once
    and multiplied once. It is scaled by its largest cell, unless the sum for a separator's value gets too small.
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
        sums = _sum_axes(table, absent)
        if sums.min() < LEAST_SUM:
            peaks = given.max(axis=absent, keepdims=True)
            table = np.subtract(given, peaks, out=out)
            np.exp(table, out=table)
            sums = _sum_axes(table, absent)
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


def _sum_axes(table: FloatArray, absent: tuple[int, ...]) -> FloatArray:
    shape = [1 if axis in absent else size for axis, size in enumerate(table.shape)]
    return np.asarray(sum_away(table, absent)).reshape(shape) if absent else table.copy()


def tree_axes(members: Members, part: Members) -> tuple[int, ...]:
    """Returns the axes of the members that are not in `part`."""
    return tuple(axis for axis, member in enumerate(members) if member not in part)


def spread(members: Members, part: Members, shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the shape of a table over `part` that broadcasts to a table over `members`."""
    return tuple(size if member in part else 1 for member, size in zip(members, shape, strict=True))


Way = tuple[tuple[Members, ...], Members]
"""Parts of a set of attributes, one part beneath each child, and the whole set."""


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Margins of a distribution: sums within a clique, or products of several cliques' tables.

    Sets with the same way through the tree are computed by one matrix product, since a call for each takes longer.
    """

    tree: JunctionTree
    tables: Sequence[FloatArray]
    margins: dict[int, dict[Members, FloatArray]] = field(default_factory=lambda: defaultdict(dict))
    conditional: dict[tuple[int, Members], FloatArray] = field(default_factory=dict)

    def marginals(self, wanted: Sequence[Members]) -> dict[Members, FloatArray]:
        """Returns the marginals of these sets of attributes. Each set lies in one connected part."""
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
        result: dict[Members, FloatArray] = {}
        for place, sets in inside.items():
            table = self.tables[place]
            result |= margin_tree(self.tree.cliques[place], table.shape, sets).margins(table)
        for place, sets in across.items():
            result |= self._below(place, sets, ())
        return result

    def _top(self, attributes: Members) -> int:
        """Returns the last clique that the paths from the root to all these attributes share."""
        homes, ways = [self.tree.homes[attribute] for attribute in attributes], self.tree.ways
        top = homes[0]
        while any(home != top and home not in ways[top] for home in homes):
            top = self.tree.parents[top]
        return top

    def _below(self, number: int, sets: Sequence[Members], first: Members) -> dict[Members, FloatArray]:
        """Returns the margins of sets at or beneath a clique. The clique's attributes `first` are the first axes."""
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
        result: dict[Members, FloatArray] = {}
        for (own_members, children), tasks in groups.items():
            separators = [self.tree.separators[child] for child in children]
            needed = {*own_members, *first, *(label for separator in separators for label in separator)}
            labels = tuple(member for member in self.tree.cliques[number] if member in needed)
            self._follow(self._margin(number, labels), labels, (*first, *own_members), children, tasks, first, result)
        return result

    def _follow(
        self,
        table: FloatArray,
        labels: Members,
        fixed: Members,
        children: tuple[int, ...],
        tasks: Sequence[Way],
        first: Members,
        result: dict[Members, FloatArray],
    ) -> None:
        """Multiplies a table by the parts beneath each child. Writes margins to `result`. fixed: labels to keep."""
        if not children:
            for _, attributes in tasks:
                result[attributes] = table.transpose([labels.index(label) for label in (*first, *attributes)])
            return
        child, rest = children[0], children[1:]
        parts: dict[Members, list[Way]] = {}
        for (part, *others), attributes in tasks:
            parts.setdefault(part, []).append((tuple(others), attributes))
        stays = {*fixed, *(label for other in rest for label in self.tree.separators[other])}
        columns = self._under(child, list(parts))
        table, labels = _contract(table, labels, columns, self.tree.separators[child], stays)
        end = 0
        for (part, tasks_of), column in zip(parts.items(), columns, strict=True):
            shape = column.shape[len(self.tree.separators[child]) :]
            begin, end = end, end + prod(shape)
            piece = table[..., begin:end].reshape(*table.shape[:-1], *shape)
            self._follow(piece, (*labels, *part), (*fixed, *part), rest, tasks_of, first, result)

    def _under(self, number: int, sets: Sequence[Members]) -> list[FloatArray]:
        """Returns the probabilities of sets beneath a clique given its separator. Axes of the separator come first."""
        missing = [attributes for attributes in sets if (number, attributes) not in self.conditional]
        if missing:
            separator = self.tree.separators[number]
            inside = self._margin(number, separator)
            shares = np.divide(1.0, inside, out=np.zeros(inside.shape), where=inside > 0)
            for attributes, table in self._below(number, missing, separator).items():
                self.conditional[number, attributes] = table * shares.reshape(*inside.shape, *(1 for _ in attributes))
        return [self.conditional[number, attributes] for attributes in sets]

    def _margin(self, number: int, attributes: Members) -> FloatArray:
        """Returns a margin of a clique, from its smallest known margin that contains the attributes."""
        cached = self.margins[number]
        if attributes not in cached:
            wanted, sources = set(attributes), [(self.tree.cliques[number], self.tables[number]), *cached.items()]
            members, table = min((pair for pair in sources if wanted.issubset(pair[0])), key=lambda pair: pair[1].size)
            cached[attributes] = sum_away(table, tree_axes(members, attributes)) if members != attributes else table
        return cached[attributes]


def _contract(
    table: FloatArray, labels: Members, columns: Sequence[FloatArray], separator: Members, stays: set[int]
) -> tuple[FloatArray, Members]:
    """Multiplies a table by columns, and sums over the separator's labels that are not in `stays`.

    Returns the result, with the columns as its last axis, and the labels of its other axes.
    """
    both = [item for item in labels if item in stays and item in separator]
    rows = [item for item in labels if item not in separator]
    away = [item for item in labels if item in separator and item not in stays]
    sizes = dict(zip(labels, table.shape, strict=True))
    shape, gone = tuple(sizes[item] for item in (*both, *rows)), prod(sizes[item] for item in away)
    left = table.transpose([labels.index(item) for item in (*both, *rows, *away)])
    axes = [*(separator.index(item) for item in (*both, *away)), len(separator)]
    flat = [item.reshape(*item.shape[: len(separator)], -1) for item in columns]
    right = np.concatenate(flat, axis=-1).transpose(axes)
    batch = prod(sizes[item] for item in both)
    product = _multiply(left.reshape(batch, -1, gone), right.reshape(batch, gone, -1))
    return product.reshape(*shape, -1), (*both, *rows)


def _multiply(left: FloatArray, right: FloatArray) -> FloatArray:
    """Returns matrix products, in steps of so few entries that BLAS stays with one thread (see fit.inner)."""
    (batch, rows, inner), columns = left.shape, right.shape[2]
    product, step = np.empty((batch, rows, columns)), max(1, ONE_THREAD // max(1, rows * inner))
    for begin in range(0, columns, step):
        np.matmul(left, right[..., begin : begin + step], out=product[..., begin : begin + step])
    return product
