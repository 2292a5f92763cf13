"""Many marginals of one table at once, and the adjoint, with shared partial sums: no pass for every marginal.

Attributes are decided one after the other, the largest first; a sum that several marginals need is made once. Many
marginals of binary attributes have a way of their own, see binary_margins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, groupby, pairwise
from math import comb, prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpduck.values.arrays import FloatArray, IntegerArray

# Many marginals of a table of binary attributes at once, by sums over "these attributes are 0" alone.
#
# With z(T) the sum over the cells in which all attributes of T are 0, the cell of marginal A in which exactly
# the attributes Z of A are 0 is the sum over T, Z in T in A, of (-1)^|T - Z| z(T). All z(T) up to order k
# come from one sweep over the attributes that halves the table at each step: all 3-way marginals of 16
# attributes cost about 8 passes.


WORTH_IT = 8
"""Fewer marginals than these are summed one by one."""


@dataclass(frozen=True, eq=False)
class BinaryMargins:
    """attributes: of the table. order: of the largest marginal.

    blocks: for each order of marginals, where their cells stand in the result, and which z each of them needs.
    """

    attributes: int
    order: int
    length: int
    blocks: tuple[tuple[IntegerArray, IntegerArray], ...]

    def flat(self, table: NDArray[Scalar]) -> NDArray[Scalar]:
        """Returns the cells of all marginals, one marginal after the other; exact for integers."""
        sums = self._zero_sums(table)
        found = np.empty(self.length, table.dtype)
        for places, needed in self.blocks:
            found[places] = sums[needed] @ _signs(needed.shape[1]).astype(table.dtype)
        return found

    def _zero_sums(self, table: NDArray[Scalar]) -> NDArray[Scalar]:
        """z of all sets up to the order, as `_numbers` counts them. Rows of parts[k]: sets of k of the attributes."""
        parts: list[NDArray[Scalar]] = [np.ascontiguousarray(table).reshape(1, -1)]
        for _ in range(self.attributes):
            halves = [part.reshape(len(part), 2, -1) for part in parts]
            after: list[NDArray[Scalar]] = []
            for size in range(min(len(parts), self.order) + 1):
                away = len(parts[size]) if size < len(parts) else 0
                rows = away + (len(parts[size - 1]) if size else 0)
                part = np.empty((rows, halves[0].shape[2]), table.dtype)
                if away:
                    np.add(halves[size][:, 0], halves[size][:, 1], out=part[:away])
                if size:
                    part[away:] = halves[size - 1][:, 0]
                after.append(part)
            parts = after
        return np.concatenate([part[:, 0] for part in parts])


def binary_margins(attributes: int, wanted: Sequence[tuple[int, ...]]) -> BinaryMargins | None:
    """Builds the sweep for marginals on these axes, increasing each; None where it would not be worth it."""
    order = max((len(axes) for axes in wanted), default=0)
    cells = [1 << len(axes) for axes in wanted]
    if len(wanted) < WORTH_IT or sum(comb(attributes, size) for size in range(order + 1)) > 2 * sum(cells):
        return None
    starts, blocks = np.cumsum([0, *cells]), []
    for size in range(order + 1):
        chosen = [place for place, axes in enumerate(wanted) if len(axes) == size]
        if chosen:
            places = starts[chosen][:, None] + np.arange(1 << size)
            axes = np.array([wanted[place] for place in chosen], np.int64).reshape(len(chosen), size)
            blocks.append((places, np.stack([_numbers(attributes, axes, mask) for mask in range(1 << size)], axis=1)))
    return BinaryMargins(attributes, order, sum(cells), tuple(blocks))


def _numbers(attributes: int, axes: IntegerArray, mask: int) -> IntegerArray:
    """Tells where the sweep leaves the sets of those axes whose bit in mask is 0, one set per row of axes.

    The first axis has the highest bit, as in the cells of a marginal. Smaller sets come first; of sets of one size,
    those that lack an attribute come before those that have it, so that a set of t_1 < t_2 < .. is number
    comb(t_1, 1) + comb(t_2, 2) + .. among them.
    """
    size = axes.shape[1]
    kept = [place for place in range(size) if not mask >> (size - 1 - place) & 1]
    found = np.full(len(axes), sum(comb(attributes, smaller) for smaller in range(len(kept))), np.int64)
    for position, place in enumerate(kept, start=1):
        ways = np.array([comb(axis, position) for axis in range(attributes)], np.int64)
        found += ways[axes[:, place]]
    return found


def _signs(cells: int) -> IntegerArray:
    """Fills entries (mask of T, mask of Z) by (-1)^|T - Z| where Z is in T; set bits are attributes not in it."""
    sets = np.arange(cells)
    inside = (sets[:, None] & ~sets[None, :]) == 0
    return np.where(inside, 1 - 2 * (np.bitwise_count(sets[None, :] ^ sets[:, None]).astype(np.int64) % 2), 0)


Members = tuple[int, ...]
Scalar = TypeVar("Scalar", np.int64, np.float64)


@dataclass(frozen=True)
class MarginTree:
    """members: the attributes of the table, one per axis. wanted: the marginals, increasing attributes each."""

    members: Members
    shape: tuple[int, ...]
    wanted: tuple[Members, ...]

    @cached_property
    def steps(self) -> tuple[tuple[Members, tuple[int, ...], Members], ...]:
        """Returns the order of summation: (from, axes that are summed away, to), parents first."""
        return _steps(self.members, self.shape, self.wanted)

    @cached_property
    def _spreads(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
        """Returns for each step the shape of its source, and the same with 1 for the axes that are summed away."""
        sizes = dict(zip(self.members, self.shape, strict=True))
        found = []
        for source, axes, _ in self.steps:
            shape = tuple(sizes[attribute] for attribute in source)
            found.append((shape, tuple(1 if axis in axes else size for axis, size in enumerate(shape))))
        return tuple(found)

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Returns the shapes of the wanted marginals."""
        sizes = dict(zip(self.members, self.shape, strict=True))
        return tuple(tuple(sizes[attribute] for attribute in attributes) for attributes in self.wanted)

    @cached_property
    def _binary(self) -> BinaryMargins | None:
        if set(self.shape) != {2}:
            return None
        places = {attribute: place for place, attribute in enumerate(self.members)}
        return binary_margins(len(self.members), [tuple(places[one] for one in wanted) for wanted in self.wanted])

    def margins(self, table: NDArray[Scalar]) -> dict[Members, NDArray[Scalar]]:
        """Returns every wanted marginal of the table."""
        if self._binary is not None:
            flat = self._binary.flat(table)
            ends = pairwise(accumulate(map(prod, self.shapes), initial=0))
            parts = zip(self.wanted, self.shapes, ends, strict=True)
            return {attributes: flat[start:end].reshape(shape) for attributes, shape, (start, end) in parts}
        found = {self.members: table}
        for source, axes, target in self.steps:
            found[target] = sum_away(found[source], axes)
        return {attributes: found[attributes] for attributes in self.wanted}

    def flat(self, table: NDArray[Scalar]) -> NDArray[Scalar]:
        """Returns the cells of every wanted marginal, one after the other."""
        if self._binary is not None:
            return self._binary.flat(table)
        return np.concatenate([marginal.reshape(-1) for marginal in self.margins(table).values()])

    def lifted(self, tables: Mapping[Members, FloatArray]) -> FloatArray:
        """Returns the adjoint: the sum of tables over wanted marginals, each repeated over the attributes it lacks."""
        sums: dict[Members, FloatArray] = {attributes: tables[attributes] for attributes in self.wanted}
        own: set[Members] = set()  # sums that are not the caller's arrays and may be added to in place
        for (source, _, target), (shape, spread) in zip(reversed(self.steps), reversed(self._spreads), strict=True):
            part = sums.pop(target).reshape(spread)
            before = sums.get(source)
            if source not in own:
                sums[source] = np.add(0.0 if before is None else before, part, out=np.empty(shape))
                own.add(source)
            elif before is not None:
                before += part
        return sums[self.members]


def sum_away(table: NDArray[Scalar], axes: Sequence[int]) -> NDArray[Scalar]:
    """Returns the sum over these axes, one after the other from the first: long rows are added, which numpy does
    fastest.

    Axes that follow each other are one, which makes rows longer still.
    """
    if len(axes) == 1:
        return np.asarray(np.add.reduce(table, axis=axes[0]))
    joined, places, kept = _runs(table.shape, tuple(axes))
    found = table.reshape(joined)
    for place in places:
        found = np.asarray(np.add.reduce(found, axis=place))
    return found.reshape(kept)


@lru_cache(maxsize=4096)
def _runs(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Returns the shape with axes joined that go or stay together, what to sum away from it in turn, what is left."""
    runs = [(gone, list(run)) for gone, run in groupby(range(len(shape)), set(axes).__contains__)]
    places = [place - sum(gone for gone, _ in runs[:place]) for place, (gone, _) in enumerate(runs) if gone]
    kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    return tuple(prod(shape[axis] for axis in run) for _, run in runs), tuple(places), kept


@lru_cache(maxsize=64)
def _tree(members: Members, shape: tuple[int, ...], wanted: tuple[Members, ...]) -> MarginTree:
    return MarginTree(members, shape, wanted)


def margin_tree(members: Members, shape: Sequence[int], wanted: Iterable[Members]) -> MarginTree:
    """Returns the tree for a table with these attributes and sizes; `wanted` may repeat, and may be the whole table."""
    return _tree(members, tuple(shape), tuple(dict.fromkeys(wanted)))


def _steps(
    members: Members, shape: tuple[int, ...], wanted: tuple[Members, ...]
) -> tuple[tuple[Members, tuple[int, ...], Members], ...]:
    sizes = dict(zip(members, shape, strict=True))
    order = sorted(members, key=lambda attribute: -sizes[attribute])
    steps: list[tuple[Members, tuple[int, ...], Members]] = []
    pending: list[tuple[Members, int, tuple[Members, ...]]] = [(members, 0, wanted)]
    while pending:
        left, position, asked = pending.pop()
        if len(asked) == 1 or position == len(order):
            if asked and asked[0] != left:
                axes = tuple(axis for axis, attribute in enumerate(left) if attribute not in asked[0])
                steps.append((left, axes, asked[0]))
            continue
        attribute = order[position]
        keeping = tuple(target for target in asked if attribute in target)
        dropping = tuple(target for target in asked if attribute not in target)
        if keeping:
            pending.append((left, position + 1, keeping))
        if dropping:
            axis = left.index(attribute)
            rest = left[:axis] + left[axis + 1 :]
            steps.append((left, (axis,), rest))
            pending.append((rest, position + 1, dropping))
    return tuple(steps)
