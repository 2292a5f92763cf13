"""Many marginals of one table at once, and the adjoint map. A sum that several marginals need is computed once.

Attributes are kept or summed away one after the other, the one with most values first. Many marginals of binary
attributes have a separate algorithm, see binary_margins.
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
# Let z(T) be the sum over the cells in which all attributes of T are 0. Take the cell of marginal A in which the
# attributes Z are 0 and the rest of A is 1. It is the sum over the sets T with Z in T in A of (-1)^|T - Z| z(T). One
# sweep over the attributes, which halves the table at each step, gives z(T) for all sets of at most k attributes. So
# all 3-way marginals of 16 attributes cost about 8 passes.


WORTH_IT = 8  # least number of marginals for the sweep of a binary table. Fewer marginals are summed one by one


@dataclass(frozen=True, eq=False)
class BinaryMargins:
    """Sweep (one pass) that computes marginals of a table of 2^attributes cells."""

    attributes: int
    order: int  # the most attributes of a marginal
    length: int  # the number of cells of all marginals
    blocks: tuple[tuple[IntegerArray, IntegerArray], ...]  # places in the result, and needed z, by size

    def flat(self, table: NDArray[Scalar]) -> NDArray[Scalar]:
        """Returns the cells of all marginals, one marginal after the other. It is exact for integers."""
        sums = self._zero_sums(table)
        cells = np.empty(self.length, table.dtype)
        for places, needed in self.blocks:
            cells[places] = sums[needed] @ _signs(needed.shape[1]).astype(table.dtype)
        return cells

    def _zero_sums(self, table: NDArray[Scalar]) -> NDArray[Scalar]:
        """Computes z(T), the sum of cells in which all of T is 0, for T of at most `order` members: see `_numbers`."""
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
    """Builds the sweep for marginals, each a tuple of increasing axes. Returns None if single sums are faster."""
    order = max((len(axes) for axes in wanted), default=0)
    cells = [1 << len(axes) for axes in wanted]
    if len(wanted) < WORTH_IT or sum(comb(attributes, size) for size in range(order + 1)) > 2 * sum(cells):
        return None
    starts, blocks = np.cumsum([0, *cells]), []
    for size in range(order + 1):
        indices = [place for place, axes in enumerate(wanted) if len(axes) == size]
        if indices:
            places = starts[indices][:, None] + np.arange(1 << size)
            axes = np.array([wanted[place] for place in indices], np.int64).reshape(len(indices), size)
            blocks.append((places, np.stack([_numbers(attributes, axes, mask) for mask in range(1 << size)], axis=1)))
    return BinaryMargins(attributes, order, sum(cells), tuple(blocks))


def _numbers(attributes: int, axes: IntegerArray, mask: int) -> IntegerArray:
    """Returns the sweep's number for each set. A row of `axes` gives one set: its axes with bit 0 in `mask`.

    The first axis has the highest bit, as in the cells of a marginal. Smaller sets come first. Sets of equal size are
    in the order of their largest attribute, then the next. So t_1 < t_2 < .. comes after comb(t_1, 1) + comb(t_2, 2) +
    .. sets of its size.
    """
    size = axes.shape[1]
    members = [place for place in range(size) if not mask >> (size - 1 - place) & 1]
    numbers = np.full(len(axes), sum(comb(attributes, smaller) for smaller in range(len(members))), np.int64)
    for position, place in enumerate(members, start=1):
        ways = np.array([comb(axis, position) for axis in range(attributes)], np.int64)
        numbers += ways[axes[:, place]]
    return numbers


def _signs(cells: int) -> IntegerArray:
    """Returns a matrix of (-1)^|T - Z| for sets Z in T, else 0. Bits of a row (T) or column (Z) mark absent members."""
    sets = np.arange(cells)
    inside = (sets[:, None] & ~sets[None, :]) == 0
    return np.where(inside, 1 - 2 * (np.bitwise_count(sets[None, :] ^ sets[:, None]).astype(np.int64) % 2), 0)


Members = tuple[int, ...]
Scalar = TypeVar("Scalar", np.int64, np.float64)


@dataclass(frozen=True)
class MarginTree:
    """Plan of sums that marginals share."""

    members: Members  # the table's attributes by axis
    shape: tuple[int, ...]
    wanted: tuple[Members, ...]  # marginals, with attributes increasing

    @cached_property
    def steps(self) -> tuple[tuple[Members, tuple[int, ...], Members], ...]:
        """Returns the sums in order, as (attributes before, summed axes, attributes after). Sources come first."""
        return _steps(self.members, self.shape, self.wanted)

    @cached_property
    def _spreads(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
        """Returns two shapes for each step: the shape of its source, and the same with 1 for each summed axis."""
        sizes = dict(zip(self.members, self.shape, strict=True))
        spreads = []
        for source, axes, _ in self.steps:
            shape = tuple(sizes[attribute] for attribute in source)
            spreads.append((shape, tuple(1 if axis in axes else size for axis, size in enumerate(shape))))
        return tuple(spreads)

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        sizes = dict(zip(self.members, self.shape, strict=True))
        return tuple(tuple(sizes[attribute] for attribute in attributes) for attributes in self.wanted)

    @cached_property
    def _binary(self) -> BinaryMargins | None:
        if set(self.shape) != {2}:
            return None
        places = {attribute: place for place, attribute in enumerate(self.members)}
        return binary_margins(len(self.members), [tuple(places[member] for member in wanted) for wanted in self.wanted])

    def margins(self, table: NDArray[Scalar]) -> dict[Members, NDArray[Scalar]]:
        if self._binary is not None:
            flat = self._binary.flat(table)
            ends = pairwise(accumulate(map(prod, self.shapes), initial=0))
            parts = zip(self.wanted, self.shapes, ends, strict=True)
            return {attributes: flat[start:end].reshape(shape) for attributes, shape, (start, end) in parts}
        tables = {self.members: table}
        for source, axes, target in self.steps:
            tables[target] = sum_away(tables[source], axes)
        return {attributes: tables[attributes] for attributes in self.wanted}

    def flat(self, table: NDArray[Scalar]) -> NDArray[Scalar]:
        if self._binary is not None:
            return self._binary.flat(table)
        return np.concatenate([marginal.reshape(-1) for marginal in self.margins(table).values()])

    def lift(self, tables: Mapping[Members, FloatArray]) -> FloatArray:
        """Computes the adjoint: repeats each marginal's table over the attributes it lacks, and adds up the results."""
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
    """Sums a table over some axes, one after the other from the first. numpy then adds long rows, which is fastest.

    Axes that follow each other are joined, which makes rows even longer.
    """
    if len(axes) == 1:
        return np.asarray(np.add.reduce(table, axis=axes[0]))
    joined, places, rest = _runs(table.shape, tuple(axes))
    result = table.reshape(joined)
    for place in places:
        result = np.asarray(np.add.reduce(result, axis=place))
    return result.reshape(rest)


@lru_cache(maxsize=4096)
def _runs(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Returns the shape with neighbouring axes joined, the joined axes to sum away in turn, and the final shape."""
    runs = [(gone, list(run)) for gone, run in groupby(range(len(shape)), set(axes).__contains__)]
    places = [place - sum(gone for gone, _ in runs[:place]) for place, (gone, _) in enumerate(runs) if gone]
    rest = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    return tuple(prod(shape[axis] for axis in run) for _, run in runs), tuple(places), rest


@lru_cache(maxsize=64)
def _tree(members: Members, shape: tuple[int, ...], wanted: tuple[Members, ...]) -> MarginTree:
    return MarginTree(members, shape, wanted)


def margin_tree(members: Members, shape: Sequence[int], wanted: Iterable[Members]) -> MarginTree:
    """Returns the plan of sums for a table with these attributes and sizes. Marginals in `wanted` may repeat."""
    return _tree(members, tuple(shape), tuple(dict.fromkeys(wanted)))


def _steps(
    members: Members, shape: tuple[int, ...], wanted: tuple[Members, ...]
) -> tuple[tuple[Members, tuple[int, ...], Members], ...]:
    sizes = dict(zip(members, shape, strict=True))
    order = sorted(members, key=lambda attribute: -sizes[attribute])
    steps: list[tuple[Members, tuple[int, ...], Members]] = []
    pending: list[tuple[Members, int, tuple[Members, ...]]] = [(members, 0, wanted)]
    while pending:
        left, position, targets = pending.pop()
        if len(targets) == 1 or position == len(order):
            if targets and targets[0] != left:
                axes = tuple(axis for axis, attribute in enumerate(left) if attribute not in targets[0])
                steps.append((left, axes, targets[0]))
            continue
        attribute = order[position]
        keeping = tuple(target for target in targets if attribute in target)
        dropping = tuple(target for target in targets if attribute not in target)
        if keeping:
            pending.append((left, position + 1, keeping))
        if dropping:
            axis = left.index(attribute)
            rest = left[:axis] + left[axis + 1 :]
            steps.append((left, (axis,), rest))
            pending.append((rest, position + 1, dropping))
    return tuple(steps)
