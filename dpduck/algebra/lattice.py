"""Lattice of all subsets of a workload's marginals, and sums over all subsets or all supersets of each set.

A marginal is a set of attributes. A workload's answers consist of one ANOVA component for each subset of its marginals.
Sums over subsets or supersets take one pass per attribute (Yates), and touch each set once per member. Memory and time
grow with the number of sets times their members. They depend neither on 2^d for d attributes, nor on the cells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from dpduck.values.arrays import FloatArray, IndexArray

MOST_STEPS = 5_000_000  # of closure_steps: a lattice with more would take seconds and gigabytes

WORD = 62  # bits of an int64 that a set's code may use


@dataclass(frozen=True, eq=False)
class Lattice:
    """All subsets of a family of attribute sets. Sets are numbered by their count of members, the empty set first."""

    attributes: tuple[int, ...]  # domain positions of the attributes that occur
    sizes: tuple[int, ...]  # the number of values n_i of each attribute
    members: tuple[IndexArray, ...]  # entry k: sets of k members, shape (sets, k), as indices into `attributes`
    drops: tuple[IndexArray, ...]  # shaped as `members`: the number of the set that is left if this member is removed
    family: IndexArray  # the number of each set of the original family, in the family's order

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Returns the number of the first set with k members, for each k, and the count of all sets last."""
        return tuple(np.cumsum([0, *(len(level) for level in self.members)]).tolist())

    def __len__(self) -> int:
        return self.offsets[-1]

    @cached_property
    def orders(self) -> IndexArray:
        counts = [len(level) for level in self.members]
        return np.repeat(np.arange(len(counts)), counts)

    @cached_property
    def sets(self) -> tuple[tuple[int, ...], ...]:
        """Returns every set as a tuple of domain positions."""
        names = np.asarray(self.attributes, dtype=np.intp)
        return tuple(chain.from_iterable(map(tuple, names[level].tolist()) for level in self.members))

    @cached_property
    def steps(self) -> tuple[tuple[IndexArray, IndexArray, IndexArray], ...]:
        """Returns for each attribute: the sets with it, the same sets without it, and its place in the sets."""
        attribute, whole, less, axis = [], [], [], []
        for order, (level, drop) in enumerate(zip(self.members, self.drops, strict=True)):
            numbers = np.arange(self.offsets[order], self.offsets[order + 1])
            attribute.append(level.ravel())
            whole.append(np.repeat(numbers, order))
            less.append(drop.ravel())
            axis.append(np.tile(np.arange(order), len(level)))
        names = np.concatenate(attribute)
        ranking = np.argsort(names, kind="stable")
        cuts = np.searchsorted(names[ranking], np.arange(1, len(self.attributes)))
        columns = [np.split(np.concatenate(column)[ranking], cuts) for column in (whole, less, axis)]
        return tuple(zip(*columns, strict=True)) if self.attributes else ()

    def products(self, values: Sequence[float] | FloatArray) -> FloatArray:
        """Computes the product of values[i] over i in A, for every set A. `values` are in the order of `attributes`."""
        table = np.asarray(values, dtype=np.float64)
        return np.concatenate([table[level].prod(axis=1) for level in self.members])

    def integer_products(self, values: Sequence[int]) -> list[int]:
        """Computes the product of values[i] over i in A, for every set A, in exact integers of any length."""
        rounded = self.products(np.asarray(values, dtype=np.float64))
        if rounded.max(initial=0.0) < 1 << 53:  # every partial product was exact
            return [int(product) for product in rounded.tolist()]
        return [prod([values[member] for member in row]) for level in self.members for row in level.tolist()]

    def family_totals(self, values: Sequence[float] | FloatArray) -> FloatArray:
        """Adds up values by set. values: one for each set of the original family. Sets outside the family have 0."""
        totals = np.zeros(len(self))
        np.add.at(totals, self.family, np.asarray(values, dtype=np.float64))
        return totals

    def sum_over_supersets(self, values: FloatArray, ratios: Sequence[float] | FloatArray) -> FloatArray:
        """Computes g(A), the sum over supersets B of A of values(B) times the product of the ratios in B minus A."""
        sums = values.copy()
        for (whole, less, _), ratio in zip(self.steps, ratios, strict=True):
            sums[less] += sums[whole] * ratio
        return sums

    def sum_over_subsets(self, values: FloatArray, ratios: Sequence[float] | FloatArray) -> FloatArray:
        """Computes g(B), the sum over subsets A of B of values(A) times the product of the ratios in B minus A."""
        sums = values.copy()
        for (whole, less, _), ratio in zip(self.steps, ratios, strict=True):
            sums[whole] += sums[less] * ratio
        return sums

    @cached_property
    def numbers(self) -> dict[tuple[int, ...], int]:
        return {members: number for number, members in enumerate(self.sets)}

    @cached_property
    def membership(self) -> NDArray[np.bool_]:
        """Marks the attributes of each set, shape (sets, attributes)."""
        marks = np.zeros((len(self), len(self.attributes)), dtype=np.bool_)
        for offset, level in zip(self.offsets, self.members, strict=False):
            rows = np.arange(offset, offset + len(level))[:, None]
            marks[rows, level] = True
        return marks

    def within(self, attributes: Sequence[int]) -> NDArray[np.bool_]:
        """Marks the sets with members among `attributes` (domain positions) only."""
        outside = np.isin(np.asarray(self.attributes, dtype=np.intp), np.asarray(attributes), invert=True)
        return np.asarray(~self.membership[:, outside].any(axis=1))


def closure_steps(family: Sequence[tuple[int, ...]]) -> int:
    """Returns an upper bound on the steps of a sum over all subsets of the family's sets, without building the lattice.

    There are at most min(C(d, k), sum of C(|A|, k)) sets of k of the d attributes, with a step for each member.

    >>> closure_steps([(0, 1), (1, 2)])
    7
    """
    attributes = len(set().union(*family))
    orders = Counter(map(len, family))
    return sum(
        order * min(comb(attributes, order), sum(count * comb(size, order) for size, count in orders.items()))
        for order in range(attributes + 1)
    )


def close_downward(family: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> Lattice:
    """Builds the lattice of all subsets of sets of increasing domain positions. sizes: of all attributes by position.

    >>> close_downward([(0, 2)], (3, 4, 5)).sets
    ((), (0,), (2,), (0, 2))
    """
    lengths = np.fromiter(map(len, family), dtype=np.intp, count=len(family))
    flat = np.fromiter(chain.from_iterable(family), dtype=np.intp, count=int(lengths.sum()))
    attributes, local = np.unique(flat, return_inverse=True)
    starts = np.cumsum(lengths) - lengths
    top = int(lengths.max(initial=0))
    numbers = np.zeros(len(family), dtype=np.intp)
    members: list[IndexArray] = []
    drops: list[IndexArray] = []
    pending = np.zeros((0, top), dtype=np.intp)
    for order in range(top, -1, -1):
        indices = np.flatnonzero(lengths == order)
        rows = np.concatenate([local[starts[indices][:, None] + np.arange(order)], pending])
        first, inverse = _distinct(rows, len(attributes))
        level = rows[first]
        numbers[indices] = inverse[: len(indices)]
        if drops:
            drops[-1] = inverse[len(indices) :].reshape(drops[-1].shape)
        members.append(level)
        drops.append(np.zeros(level.shape, dtype=np.intp))
        without_each = [np.delete(level, column, axis=1) for column in range(order)]
        pending = np.concatenate(without_each or [np.zeros((0, 0), dtype=np.intp)], axis=1)
        pending = pending.reshape(len(level) * order, max(order - 1, 0))
    members.reverse()
    drops.reverse()
    offsets = np.cumsum([0, *(len(level) for level in members)])
    for order in range(1, top + 1):
        drops[order] = drops[order] + offsets[order - 1]
    return Lattice(
        attributes=tuple(attributes.tolist()),
        sizes=tuple(int(sizes[attribute]) for attribute in attributes),
        members=tuple(members),
        drops=tuple(drops),
        family=numbers + offsets[lengths],
    )


def _distinct(rows: IndexArray, attributes: int) -> tuple[IndexArray, IndexArray]:
    """Returns the first position of each distinct row, and for every row its number among the distinct rows."""
    codes: NDArray[np.generic]
    order = rows.shape[1]
    if attributes <= WORD:  # a bit for each member
        codes = np.left_shift(np.int64(1), rows.astype(np.int64)).sum(axis=1)
    elif attributes**order < 1 << WORD:  # mixed radix over the members in order
        codes = rows.astype(np.int64) @ (attributes ** np.arange(order, dtype=np.int64))
    else:  # bits again, in integers of any length
        codes = np.array([sum(1 << member for member in row) for row in rows.tolist()], dtype=object)
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return first, inverse.reshape(-1)
