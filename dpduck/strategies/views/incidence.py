"""Which components each view contains, for a large workload: as a sparse matrix, or by sums over the lattice."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import scipy

from dpduck.algebra.lattice import WORD, Lattice
from dpduck.values.arrays import BoolArray, FloatArray, IndexArray


def find_sets(lattice: Lattice, subsets: IndexArray) -> IndexArray:
    """Returns the lattice numbers of sets of one order, or -1 outside the lattice. subsets: rows of increasing indices.

    >>> from dpduck.algebra.lattice import close_downward
    >>> find_sets(close_downward([(0, 1), (2,)], (2, 2, 2)), np.array([[0, 1], [1, 2]])).tolist()
    [4, -1]
    """
    order = subsets.shape[1]
    if order >= len(lattice.members):
        return np.full(len(subsets), -1, dtype=np.intp)
    radix = len(lattice.attributes)
    kind = np.int64 if radix**order < 1 << WORD else object
    places = np.array([radix**place for place in range(order)], dtype=kind)
    codes, wanted = lattice.members[order].astype(kind) @ places, subsets.astype(kind) @ places
    ranking = np.argsort(codes, kind="stable")
    slots = np.minimum(np.searchsorted(codes[ranking], wanted), len(codes) - 1)
    numbers = ranking[slots]
    return np.asarray(np.where(codes[numbers] == wanted, numbers + lattice.offsets[order], -1), dtype=np.intp)


def sparse_incidence(lattice: Lattice, components: IndexArray, views: BoolArray) -> scipy.sparse.csr_array:
    """Returns a sparse matrix with 1 where a view (row) contains a component, from lookups of the views' subsets."""
    orders = views.sum(axis=1)
    rows, columns = [np.zeros(0, dtype=np.intp)], [np.zeros(0, dtype=np.intp)]
    for size in np.unique(orders).tolist():
        chosen = np.flatnonzero(orders == size)
        members = np.nonzero(views[chosen])[1].reshape(len(chosen), size)
        for order in range(min(size, len(lattice.members) - 1) + 1):
            count = comb(size, order)
            picks = np.array(list(combinations(range(size), order)), dtype=np.intp).reshape(count, order)
            numbers = find_sets(lattice, members[:, picks].reshape(len(chosen) * count, order))
            rows.append(np.repeat(chosen, count)[numbers >= 0])
            columns.append(numbers[numbers >= 0])
    renumbered = np.full(len(lattice), -1, dtype=np.intp)
    renumbered[components] = np.arange(len(components))
    row, column = np.concatenate(rows), renumbered[np.concatenate(columns)]
    row, column = row[column >= 0], column[column >= 0]
    return scipy.sparse.csr_array((np.ones(len(row)), (row, column)), shape=(len(views), len(components)))


@dataclass(frozen=True, eq=False)
class LatticeIncidence:
    """Matrix with 1 where a view (row) contains a component. It is never built: products are sums over the lattice."""

    lattice: Lattice
    kept: IndexArray
    views: IndexArray
    transposed: bool = False

    @property
    def T(self) -> LatticeIncidence:  # noqa: N802 - as on arrays
        return LatticeIncidence(self.lattice, self.kept, self.views, not self.transposed)

    def __getitem__(self, rows: BoolArray) -> LatticeIncidence:
        return LatticeIncidence(self.lattice, self.kept, self.views[rows], self.transposed)

    def __matmul__(self, values: FloatArray) -> FloatArray:
        ones = np.ones(len(self.lattice.attributes))
        spread = np.zeros(len(self.lattice))
        spread[self.views if self.transposed else self.kept] = values
        if self.transposed:
            return self.lattice.sum_over_supersets(spread, ones)[self.kept]
        return self.lattice.sum_over_subsets(spread, ones)[self.views]


def lattice_incidence(lattice: Lattice, components: IndexArray, views: BoolArray) -> LatticeIncidence | None:
    """Returns the incidence as sums over the lattice, or None if a view is repeated or is no set of the lattice."""
    orders = views.sum(axis=1)
    numbers = np.full(len(views), -1, dtype=np.intp)
    for size in np.unique(orders).tolist():
        chosen = np.flatnonzero(orders == size)
        numbers[chosen] = find_sets(lattice, np.nonzero(views[chosen])[1].reshape(len(chosen), size))
    if (numbers < 0).any() or len(np.unique(numbers)) < len(numbers):
        return None
    return LatticeIncidence(lattice, components, numbers)
