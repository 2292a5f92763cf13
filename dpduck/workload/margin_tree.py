"""Many marginals of one table at once, and the adjoint, with shared partial sums: no pass for every marginal.

Attributes are decided one after the other, the largest first; a sum that several marginals need is made once. Many
marginals of binary attributes have a way of their own, see binary_margins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, groupby, pairwise
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpduck.arrays import FloatArray
from dpduck.workload.binary_margins import BinaryMargins, binary_margins

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
        """The order of summation: (from, axes that are summed away, to), parents first."""
        return _steps(self.members, self.shape, self.wanted)

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the wanted marginals."""
        sizes = dict(zip(self.members, self.shape, strict=True))
        return tuple(tuple(sizes[attribute] for attribute in attributes) for attributes in self.wanted)

    @cached_property
    def _binary(self) -> BinaryMargins | None:
        if set(self.shape) != {2}:
            return None
        places = {attribute: place for place, attribute in enumerate(self.members)}
        return binary_margins(len(self.members), [tuple(places[one] for one in wanted) for wanted in self.wanted])

    def margins(self, table: NDArray[Scalar]) -> dict[Members, NDArray[Scalar]]:
        """Every wanted marginal of the table."""
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
        """The cells of every wanted marginal, one after the other."""
        if self._binary is not None:
            return self._binary.flat(table)
        return np.concatenate([marginal.reshape(-1) for marginal in self.margins(table).values()])

    def lifted(self, tables: Mapping[Members, FloatArray]) -> FloatArray:
        """The adjoint: the sum of tables over wanted marginals, each repeated over the attributes it lacks."""
        sums: dict[Members, FloatArray] = {attributes: tables[attributes] for attributes in self.wanted}
        own: set[Members] = set()  # sums that are not the caller's arrays and may be added to in place
        for source, axes, target in reversed(self.steps):
            part = np.expand_dims(sums.pop(target), axes)
            before = sums.get(source)
            if source in own and before is not None:
                before += part
                continue
            shape = tuple(self.shape[self.members.index(attribute)] for attribute in source)
            sums[source] = np.array(np.broadcast_to(part, shape)) if before is None else before + part
            own.add(source)
        return sums[self.members]


def sum_away(table: NDArray[Scalar], axes: Sequence[int]) -> NDArray[Scalar]:
    """The sum over these axes, one after the other from the first: long rows are added, which numpy does fastest.

    Axes that follow each other are one, which makes rows longer still.
    """
    if len(axes) == 1:
        return np.asarray(np.add.reduce(table, axis=axes[0]))
    away = set(axes)
    runs = [(gone, list(run)) for gone, run in groupby(range(table.ndim), away.__contains__)]
    found, place = table.reshape([prod(table.shape[axis] for axis in run) for _, run in runs]), 0
    for gone, _ in runs:
        if gone:
            found = np.asarray(np.add.reduce(found, axis=place))
        else:
            place += 1
    return found.reshape([size for axis, size in enumerate(table.shape) if axis not in away])


@lru_cache(maxsize=64)
def _tree(members: Members, shape: tuple[int, ...], wanted: tuple[Members, ...]) -> MarginTree:
    return MarginTree(members, shape, wanted)


def margin_tree(members: Members, shape: Sequence[int], wanted: Iterable[Members]) -> MarginTree:
    """The tree for a table with these attributes and sizes; `wanted` may repeat, and may hold the whole table."""
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
