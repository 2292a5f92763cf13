"""Many marginals of one table at once, and the adjoint, with shared partial sums: no pass for every marginal.

Attributes are decided one after the other, the largest first; a sum that several marginals need is made once. All
3-way marginals of 16 binary attributes take about 30 passes over the table instead of 560.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Members = tuple[int, ...]
FloatArray = NDArray[np.float64]
Scalar = TypeVar("Scalar", np.int64, np.float64)


@dataclass(frozen=True)
class MarginTree:
    """The order of summation.

    members: the attributes of the table, one per axis. steps: (from, axes that are summed away, to), parents first.
    wanted: the marginals, increasing attributes each.
    """

    members: Members
    shape: tuple[int, ...]
    steps: tuple[tuple[Members, tuple[int, ...], Members], ...]
    wanted: tuple[Members, ...]

    def margins(self, table: NDArray[Scalar]) -> dict[Members, NDArray[Scalar]]:
        """Every wanted marginal of the table."""
        found = {self.members: table}
        for source, axes, target in self.steps:
            found[target] = sum_away(found[source], axes)
        return {attributes: found[attributes] for attributes in self.wanted}

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
    """The sum over these axes, one after the other from the first: long rows are added, which numpy does fastest."""
    for done, axis in enumerate(sorted(axes)):
        table = np.asarray(table.sum(axis=axis - done))
    return table


def margin_tree(members: Members, shape: Sequence[int], wanted: Iterable[Members]) -> MarginTree:
    """The tree for a table with these attributes and sizes; `wanted` may repeat, and may hold the whole table."""
    return _tree(members, tuple(shape), tuple(dict.fromkeys(wanted)))


@lru_cache(maxsize=64)
def _tree(members: Members, shape: tuple[int, ...], distinct: tuple[Members, ...]) -> MarginTree:
    sizes = dict(zip(members, shape, strict=True))
    order = sorted(members, key=lambda attribute: -sizes[attribute])
    steps: list[tuple[Members, tuple[int, ...], Members]] = []
    pending: list[tuple[Members, int, tuple[Members, ...]]] = [(members, 0, distinct)]
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
    return MarginTree(members, shape, tuple(steps), distinct)
