"""What is measured along one axis, and the atoms of its codes: those that no factor but the identity tells apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpduck.planning.variance import adjoint, gram
from dpduck.trusted.operators import CentredFactor, HadamardFactor, IdentityFactor
from dpduck.values.arrays import FloatArray, IntegerArray

NOTHING = 1e-13
"""Squared lengths below this, relative to the whole, are rounding."""

Kin = IdentityFactor | CentredFactor | HadamardFactor


@dataclass(frozen=True, eq=False)
class Along:
    """What is asked along one axis: the identity or its kin, or rows of any matrix.

    kept: of the identity, which codes it counts; None for all. rows: shape (questions, codes), where there is no plain.
    """

    plain: Kin | None = None
    kept: NDArray[np.bool_] | None = None
    rows: sparse.csr_array | None = None

    @cached_property
    def signature(self) -> tuple[object, ...]:
        """Returns equal for factors that ask the same."""
        if self.plain is not None:
            return type(self.plain).__name__, None if self.kept is None else self.kept.tobytes()
        rows = cast(sparse.csr_array, self.rows)
        return rows.shape, rows.indptr.tobytes(), rows.indices.tobytes(), rows.data.tobytes()

    def back(self, answers: FloatArray, axis: int) -> FloatArray:
        """Returns the transpose times answers, along an axis of theirs."""
        if isinstance(self.plain, IdentityFactor) and self.kept is None:
            return answers
        if self.plain is None:
            rows, moved = cast(sparse.csr_array, self.rows), np.moveaxis(answers, axis, 0)
            flat = rows.T @ moved.reshape(len(moved), -1)
            return np.moveaxis(np.asarray(flat).reshape(rows.shape[1], *moved.shape[1:]), 0, axis)
        found = adjoint(self.plain, answers, axis)
        if self.kept is None:
            return found
        return found * self.kept.reshape([-1 if place == axis else 1 for place in range(found.ndim)])


@dataclass(frozen=True, eq=False)
class Seen:
    """One noisy table. along: what is asked along its axes. variance: of the noise of each of its numbers.

    values: an axis for each of `along`, in increasing order.
    """

    along: Mapping[int, Along]
    variance: float
    values: FloatArray | IntegerArray


@dataclass(frozen=True, eq=False)
class Axis:
    """The atoms of one axis. atom: of each code. sizes: how many codes each has."""

    atom: NDArray[np.intp]
    sizes: FloatArray

    @cached_property
    def ones(self) -> FloatArray:
        """U'1: the row of ones along this axis."""
        roots: FloatArray = np.sqrt(self.sizes)
        return roots

    def codes(self, atom: int) -> NDArray[np.intp]:
        """Returns the codes of an atom."""
        return np.flatnonzero(self.atom == atom)

    def lumped(self, table: FloatArray, axis: int) -> FloatArray:
        """U' times a table along one of its axes."""
        moved = np.moveaxis(table, axis, 0)
        lumped = self._summed(moved) / self.ones.reshape(-1, *[1] * (moved.ndim - 1))
        return np.moveaxis(lumped, 0, axis)

    def _summed(self, table: FloatArray) -> FloatArray:
        """Sums over the codes of each atom, along the first axis."""
        if len(self.sizes) == 1:
            return np.asarray(table.sum(axis=0, keepdims=True))
        summed = np.zeros((len(self.sizes), *table.shape[1:]))
        np.add.at(summed, self.atom, table)
        return summed

    def contrasts(self, table: FloatArray, axis: int) -> FloatArray:
        """A table less its mean over each atom, along one of its axes."""
        moved = np.moveaxis(table, axis, 0)
        means = self._summed(moved) / self.sizes.reshape(-1, *[1] * (moved.ndim - 1))
        return np.moveaxis(moved - means[self.atom], 0, axis)

    @cached_property
    def _indicators(self) -> sparse.csr_array:
        places = (np.arange(len(self.atom)), self.atom)
        return sparse.csr_array((np.ones(len(self.atom)), places), shape=(len(self.atom), len(self.sizes)))

    def atoms_of(self, weights: sparse.csr_array) -> FloatArray:
        """Returns rows of weights times U."""
        return np.asarray((weights @ self._indicators).todense(), np.float64) / self.ones

    def contrast_norms(self, weights: sparse.csr_array) -> FloatArray:
        """Returns the squared length of the contrasts that rows of weights have inside of each atom, shape (rows,
        atoms).
        """
        whole = np.asarray((weights.multiply(weights) @ self._indicators).todense(), np.float64)
        parts = whole - self.atoms_of(weights) ** 2
        parts[parts <= NOTHING * whole] = 0.0
        return parts

    def block(self, along: Along | None) -> FloatArray:
        """L: what a factor does to the atoms; None for the row of ones."""
        ones = self.ones
        if along is None:
            return np.outer(ones, ones)
        if along.plain is None:
            lumped = self.lumped(np.asarray(cast(sparse.csr_array, along.rows).todense(), np.float64), 1)
            return lumped.T @ lumped
        alpha, beta = cast(tuple[int, int], gram(along.plain))
        block = np.diag(alpha * self._kept(along)) + beta * np.outer(ones, ones)
        block[np.abs(block) <= NOTHING * alpha] = 0.0  # what cancels: residuals and Fourier rows see no constant
        return block

    def multiplier(self, along: Along | None) -> FloatArray:
        """a: what a factor's square multiplies contrasts inside of each atom by."""
        if along is None or along.plain is None:
            return np.zeros(len(self.sizes))
        alpha, _ = cast(tuple[int, int], gram(along.plain))
        return alpha * self._kept(along)

    def _kept(self, along: Along) -> FloatArray:
        """1 for each atom that a factor counts, 0 for the others."""
        kept = np.ones(len(self.sizes))
        if along.kept is not None:
            kept[self.atom] = along.kept
        return kept


@dataclass(frozen=True, eq=False)
class Kinds:
    """The different factors along one axis. which: of each measurement. blocks, contrasts: L and a of each."""

    which: NDArray[np.intp]
    blocks: FloatArray
    contrasts: FloatArray

    @classmethod
    def of(cls, axis: Axis, along: Sequence[Along | None]) -> Kinds:
        """Those of all measurements, None where one sums over the axis."""
        numbers: dict[object, int] = {}
        distinct: list[Along | None] = []
        which = np.zeros(len(along), np.intp)
        for place, one in enumerate(along):
            name = None if one is None else one.signature
            if name not in numbers:
                numbers[name] = len(distinct)
                distinct.append(one)
            which[place] = numbers[name]
        return cls(
            which, np.array([axis.block(one) for one in distinct]), np.array([axis.multiplier(one) for one in distinct])
        )


def refined(atom: NDArray[np.intp], along: Along) -> NDArray[np.intp]:
    """Returns the atoms of codes after one more factor has told them apart; each has a number from 0 on."""
    columns: list[bytes] | NDArray[np.bool_] | None = along.kept
    if along.plain is None:
        by_code = sparse.csc_array(cast(sparse.csr_array, along.rows))
        by_code.sort_indices()
        bounds = zip(by_code.indptr, by_code.indptr[1:], strict=False)
        columns = [by_code.indices[a:b].tobytes() + by_code.data[a:b].tobytes() for a, b in bounds]
    if columns is None:
        return atom
    numbers: dict[object, int] = {}
    pairs = zip(atom.tolist(), columns, strict=True)
    return np.array([numbers.setdefault(pair, len(numbers)) for pair in pairs], np.intp)


def atoms_of_axis(size: int, along: Sequence[Along]) -> Axis:
    """Returns the codes of an axis that no factor but the identity and its kin tells apart, together."""
    atom, known = np.zeros(size, np.intp), set[object]()
    for one in along:
        if one.signature not in known:
            known.add(one.signature)
            atom = refined(atom, one)
    return Axis(atom, np.bincount(atom).astype(np.float64))
