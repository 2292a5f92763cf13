"""Generalised least squares from all measurements of the same rows, with any shapes and noises.

All measurements are z = S x + noise, with x the table over all axes, and V the diagonal covariance of the noise.
Measurement m has noise variance v_m and is a Kronecker product of factors F_mi, a row of ones along each axis that m
sums over. Let U_i be the normalised indicators of the k_i atoms of axis i (see atoms.py). Then every F_mi'F_mi maps the
span of U_i to itself, as the k_i x k_i matrix L_mi, and multiplies contrasts inside atom j by one number a_mij. So
S'V^-1 S has a block for each set B of axes, with an atom j_i along each axis in B. It has size prod_{i not in B} k_i:

    M_BJ = sum over m of (1/v_m) prod_{i in B} a_mij  kron_{i not in B} L_mi.

Nothing of the size of x is built. The best linear unbiased estimate of w'x is the sum over blocks of w_B' M^+ r_B, with
r_B the block's part of S'V^-1 z. Its variance is the sum of w_B' M^+ w_B. w'x is determined if and only if each part of
w is in the range of its block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod
from typing import TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from dpduck.strategies.recovery.atoms import NOTHING, Kinds, LeastSquaresBlock, NoisyTable, atoms_of_axis, levels_of
from dpduck.values.arrays import FloatArray

LARGEST_BLOCK = 2048
"""Most atoms of a block that is solved. More would take seconds and more than a hundred megabytes."""

LEAST_VARIANCE = 1e-150
"""Smaller variances are raised to this one, so that precisions and their products stay finite."""

Scalar = TypeVar("Scalar", np.float64, np.bool_)


@dataclass(frozen=True, eq=False)
class LeastSquaresAnswers:
    """Answers with an axis for each asked axis. known: whether the measurements determine an answer."""

    estimates: FloatArray
    variances: FloatArray
    known: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _WeightRows:
    """Rows of weights over an axis's atoms. distinct: each different row once. which: a row's place in `distinct`."""

    all: FloatArray
    distinct: FloatArray
    which: NDArray[np.intp]

    @classmethod
    def of(cls, rows: FloatArray) -> _WeightRows:
        numbers: dict[bytes, int] = {}
        which = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in rows], np.intp)
        first = np.unique(which, return_index=True)[1]
        return cls(rows, rows[first], which)


class Estimator:
    """Least squares from all noisy tables about one table x with these sizes. A block is solved at its first use."""

    def __init__(self, sizes: Sequence[int], seen: Sequence[NoisyTable]) -> None:
        self._seen = tuple(seen)
        self._axes = [
            atoms_of_axis(size, [table.along[i] for table in seen if i in table.along]) for i, size in enumerate(sizes)
        ]
        self._precisions = np.array([1 / max(table.variance, LEAST_VARIANCE) for table in seen])
        self._levels = levels_of(self._precisions)
        self._kinds = [Kinds.of(axis, [table.along.get(i) for table in seen]) for i, axis in enumerate(self._axes)]
        self._solved: dict[tuple[tuple[int, ...], tuple[int, ...]], LeastSquaresBlock] = {}

    def answer(self, asked: Mapping[int, scipy.sparse.csr_array], errors_alone: bool = False) -> LeastSquaresAnswers:
        """Returns estimates of weighted sums of x. asked: rows of weights along some axes, with weights of 1 elsewhere.

        errors_alone: estimates are 0, as for a plan. Variances do not depend on the measured values.
        """
        members = tuple(sorted(asked))
        rows = {
            i: _WeightRows.of(axis.atoms_of(asked[i]) if i in asked else axis.ones[None, :])
            for i, axis in enumerate(self._axes)
        }
        parts = {i: self._axes[i].contrast_norms(asked[i]) for i in members}
        shape = tuple(asked[i].shape[0] for i in members)
        estimates, variances, determined = np.zeros(shape), np.zeros(shape), np.ones(shape, np.bool_)
        sums = [] if errors_alone else [self._sums(members, level) for level in self._levels]
        for inside in _subsets(members):
            data = [self._part(inside, members, part) for part in sums] if all(parts[i].any() for i in inside) else []
            for chosen in product(*(np.flatnonzero(parts[i].any(axis=0)).tolist() for i in inside)):
                block = self._block(inside, chosen)
                codes = [self._axes[i].codes(atom) for i, atom in zip(inside, chosen, strict=True)]
                size = [parts[i][:, atom] for i, atom in zip(inside, chosen, strict=True)]
                outside = [rows[i] for i in range(len(self._axes)) if i not in inside]
                variance, in_range = _every(outside, *block.errors([part.distinct for part in outside]))
                size_of_all = _outer(size)
                variances += self._place_on_axes(np.multiply.outer(size_of_all, variance), inside, members)
                determined &= self._place_on_axes(
                    np.logical_or.outer(size_of_all <= NOTHING, in_range), inside, members
                )
                if data:
                    solved = block.solve([part[np.ix_(*codes)] if codes else part for part in data], len(inside))
                    for place, i in enumerate(inside):
                        solved = _contract_axis(asked[i][:, codes[place]], solved, place)
                    for place, row in enumerate(outside, len(inside)):
                        solved = _contract_axis(row.all, solved, place)
                    estimates += self._place_on_axes(solved, inside, members)
        return LeastSquaresAnswers(estimates, variances, determined)

    def component_variance(self, inside: tuple[int, ...]) -> float:
        """Returns the variance of a set of axes' component, infinite if unmeasured. Each axis must have one atom."""
        (block,) = (self._block(inside, (0,) * len(inside)),)
        return float("inf") if block.null is not None else block.variance

    def _sums(self, members: tuple[int, ...], level: NDArray[np.intp]) -> dict[tuple[int, ...], FloatArray]:
        """Computes S'V^-1 z of the tables in `level`, by the asked axes (`members`) that a table has.

        An array has codes along those axes, then atoms along each axis that is not asked and has several atoms.
        """
        others = [i for i in range(len(self._axes)) if i not in members]
        alone = {i for i in others if len(self._axes[i].sizes) == 1}
        whole = prod(float(self._axes[i].ones[0]) for i in alone)
        sums: dict[tuple[int, ...], FloatArray] = {}
        for table, precision in ((self._seen[number], float(self._precisions[number])) for number in level):
            names, scale, summed = sorted(table.along), precision * whole, []
            values: FloatArray = np.asarray(table.values, np.float64)
            for place, i in enumerate(names):
                values = table.along[i].back(values, place)
                if i in alone:
                    summed.append(place)
                    scale /= len(self._axes[i].atom)
                elif i not in members:
                    values = self._axes[i].lump(values, place)
            values = np.multiply(values.sum(axis=tuple(summed)) if summed else values, scale)
            left = [i for i in names if i not in alone]
            present = tuple(i for i in left if i in members)
            order = [*present, *(i for i in left if i not in members)]
            for i in others:
                if i not in alone and i not in table.along:
                    values, left, order = np.multiply.outer(values, self._axes[i].ones), [*left, i], [*order, i]
            order = [*present, *sorted(order[len(present) :])]
            if order != left:
                values = values.transpose([left.index(i) for i in order])
            sums[present] = sums[present] + values if present in sums else values
        return sums

    def _part(
        self, inside: tuple[int, ...], members: tuple[int, ...], sums: Mapping[tuple[int, ...], FloatArray]
    ) -> FloatArray:
        """Returns S'V^-1 z of blocks with B = `inside`. B's axes have codes (less the atom's mean), others atoms."""
        outside = [i for i in range(len(self._axes)) if i not in inside]
        shape = [*(len(self._axes[i].atom) for i in inside), *(len(self._axes[i].sizes) for i in outside)]
        total = np.zeros(shape)
        for present, table in sums.items():
            if not set(inside) <= set(present):
                continue
            values = table
            for place, i in enumerate(present):
                axis = self._axes[i]
                values = axis.contrasts(values, place) if i in inside else axis.lump(values, place)
            missing = [i for i in members if i not in present]
            for i in missing:
                values = np.multiply.outer(values, self._axes[i].ones)
            several = [i for i in outside if i not in members and len(self._axes[i].sizes) > 1]
            names = [*present, *several, *missing]
            order = [*inside, *sorted(set(names) - set(inside))]
            total += values.transpose([names.index(i) for i in order]).reshape(shape)
        return total

    def _block(self, inside: tuple[int, ...], chosen: tuple[int, ...]) -> LeastSquaresBlock:
        """Returns the solved block M (see above) for the axes `inside` and one chosen atom along each."""
        if (inside, chosen) not in self._solved:
            weights = self._precisions.copy()
            for i, atom in zip(inside, chosen, strict=True):
                weights *= self._kinds[i].contrasts[self._kinds[i].which, atom]
            outside = [kinds for i, kinds in enumerate(self._kinds) if i not in inside]
            several = [kinds for kinds in outside if kinds.blocks.shape[1] > 1]
            for kinds in outside:
                if kinds.blocks.shape[1] == 1:
                    weights *= kinds.blocks[kinds.which, 0, 0]
            matrices = [_matrix(several, weights, level[weights[level] != 0]) for level in self._levels]
            self._solved[inside, chosen] = LeastSquaresBlock.of(matrices)
        return self._solved[inside, chosen]

    def _place_on_axes(
        self, table: NDArray[Scalar], inside: tuple[int, ...], members: tuple[int, ...]
    ) -> NDArray[Scalar]:
        """Returns a table with the axes `inside` first, then all others, as a table over the asked axes in order."""
        names = [*inside, *(i for i in range(len(self._axes)) if i not in inside)]
        asked_names = [i for i in names if i in members]
        summed = table.reshape([length for i, length in zip(names, table.shape, strict=True) if i in members])
        return summed.transpose([asked_names.index(i) for i in members])


def _matrix(several: Sequence[Kinds], weights: FloatArray, used: NDArray[np.intp]) -> FloatArray:
    which = np.array([kinds.which[used] for kinds in several], np.intp).reshape(len(several), len(used))
    alike, groups = np.unique(which, axis=1, return_inverse=True)
    return _product(
        [kinds.blocks for kinds in several], alike, np.bincount(groups.ravel(), weights[used]).astype(np.float64)
    )


def _product(blocks: Sequence[FloatArray], kinds: NDArray[np.intp], weights: FloatArray) -> FloatArray:
    """Sums weight times Kronecker product of one block per axis (row) over the columns of `kinds`.

    Columns with equal blocks along the first axis are first added up over the other axes, where matrices are smaller.
    """
    if not blocks:
        return np.full((1, 1), weights.sum())
    size, rest = blocks[0].shape[1], prod(block.shape[1] for block in blocks[1:])
    total = np.zeros((size, rest, size, rest))
    for kind in np.unique(kinds[0]).tolist():
        chosen = kinds[0] == kind
        inner = _product(blocks[1:], kinds[1:, chosen], weights[chosen])
        total += blocks[0][kind][:, None, :, None] * inner[None, :, None, :]
    return total.reshape(size * rest, size * rest)


def _every(
    rows: Sequence[_WeightRows], variances: FloatArray, determined: NDArray[np.bool_]
) -> tuple[FloatArray, NDArray[np.bool_]]:
    if not rows:
        return variances, determined
    places = np.ix_(*(row.which for row in rows))
    return variances[places], determined[places]


def _outer(parts: Sequence[FloatArray]) -> FloatArray:
    products: FloatArray = np.ones(())
    for part in parts:
        products = np.multiply.outer(products, part)
    return products


def _contract_axis(rows: FloatArray | scipy.sparse.csr_array, table: FloatArray, axis: int) -> FloatArray:
    moved = np.moveaxis(table, axis, 0)
    summed = np.asarray(rows @ moved.reshape(len(moved), -1))
    return np.moveaxis(summed.reshape(rows.shape[0], *moved.shape[1:]), 0, axis)


def _subsets(members: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for count in range(len(members) + 1):
        yield from combinations(members, count)
