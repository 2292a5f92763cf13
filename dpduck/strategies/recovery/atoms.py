"""Atoms of an axis, and the solution of one block of least squares by a generalised inverse.

An atom is a set of codes that no factor tells apart, except identity, centred and Hadamard factors. The module
estimator.py defines the blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import cast

import numpy as np
import scipy
from numpy.typing import NDArray

from dpduck.kernel.queries.operators import CentredFactor, HadamardFactor, IdentityFactor
from dpduck.strategies.variance import adjoint, gram
from dpduck.values.arrays import FloatArray, IntegerArray

WIDTH = 1e3
"""Largest quotient of two precisions in one level."""

NULL = 1e-11
"""Eigenvalues below this part of the largest count as 0, in a block with a diagonal of ones."""

CUT = 1e-6
"""Rows shorter than this part of their level's longest row are rounding errors, after projection on earlier rows."""

MISSED = 1e-7
"""A query is not determined if its part outside the block's range is longer than this part of the query."""

AT_ONCE = 1 << 22
"""Most numbers in an array of intermediate results. Longer results are computed in pieces."""

LARGE = 256
"""Number of atoms above which a block's rank is computed first."""


def levels_of(precisions: FloatArray) -> list[NDArray[np.intp]]:
    """Groups measurements into levels, most precise first. In a level, precisions differ by a factor up to WIDTH."""
    order, levels = np.argsort(-precisions, kind="stable"), list[list[int]]()
    for place in order.tolist():
        if not levels or precisions[levels[-1][0]] > WIDTH * precisions[place]:
            levels.append([])
        levels[-1].append(place)
    return [np.array(level, np.intp) for level in levels or [[]]]


@dataclass(frozen=True, eq=False)
class LeastSquaresBlock:
    """Block M of the normal equations, with a generalised inverse G: M G M = M.

    - solvers: for each level, the matrix from the level's part of S'V^-1 z to its part of the estimate.
    - inverse, root: G. For several levels or a low rank, `inverse` is None and G = root'root.
    - scale: the numbers s for which s_i M_ij s_j has a diagonal of ones.
    - null: the projection on the null space of the scaled M, where nothing is determined. For several levels it is an
      orthonormal basis of that space, as rows. None if every query is determined.
    - span: an orthonormal basis of the determined space, as rows. A block of low rank has `span` in place of `null`.
    """

    solvers: tuple[FloatArray, ...]
    inverse: FloatArray | None
    root: FloatArray
    scale: FloatArray
    null: FloatArray | None
    span: FloatArray | None = None

    @classmethod
    def of(cls, matrices: Sequence[FloatArray]) -> LeastSquaresBlock:
        """Returns the block for the sum of the matrices, one for each level, the most precise level first."""
        nonzero = [number for number, matrix in enumerate(matrices) if np.diag(matrix).any()]
        if len(nonzero) > 1:
            return _of_several(matrices)
        block = _of_one(matrices[nonzero[0] if nonzero else 0])
        nothing = np.zeros_like(matrices[0])
        solvers = tuple(block.solvers[0] if number in nonzero else nothing for number in range(len(matrices)))
        return replace(block, solvers=solvers)

    @property
    def variance(self) -> float:
        return float(self.inverse[0, 0] if self.inverse is not None else np.square(self.root).sum())

    def solve(self, data: Sequence[FloatArray], leading: int) -> FloatArray:
        shape = data[0].shape
        flat = (
            part.reshape(prod(shape[:leading]), -1) @ solver.T for part, solver in zip(data, self.solvers, strict=True)
        )
        solved: FloatArray = np.sum(list(flat), axis=0).reshape(shape)
        return solved

    def errors(self, rows: Sequence[FloatArray]) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Computes u'Gu, and whether u is determined, for every Kronecker product u of one row from each matrix."""
        if self.span is not None:
            return _low_rank_errors(self.root, self.span, self.scale, rows)
        variances = _squares(self.root, rows) if self.inverse is None else _quadratic(self.inverse, rows)
        if self.null is None:
            return variances, np.ones(variances.shape, np.bool_)
        lengths = _quadratic(np.diag(self.scale**2), rows)
        missed = _squares(self.null, rows) if self.inverse is None else _quadratic(self.null, rows)
        return variances, missed <= MISSED**2 * lengths


def _of_one(matrix: FloatArray) -> LeastSquaresBlock:
    low = _low_rank(matrix)
    if low is not None:
        scale, rows = low
        span, triangle = scipy.linalg.qr(rows.T, mode="economic", check_finite=False)
        root = scipy.linalg.solve_triangular(triangle, span.T, check_finite=False) * scale
        return LeastSquaresBlock((root.T @ root,), None, root, scale, None, np.ascontiguousarray(span.T))
    scale, values, vectors, held = _eigen(matrix)
    scaled = vectors[:, held] * scale[:, None]
    inverse = (scaled / values[held]) @ scaled.T
    missed = vectors[:, ~held] * scale[:, None]
    null = None if held.all() else missed @ missed.T
    return LeastSquaresBlock((inverse,), inverse, np.zeros((0, len(matrix))), scale, null)


def _low_rank(matrix: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Returns scales for a diagonal of ones, and as many rows A as the rank, so that A'A is the scaled matrix.

    Filters cut an axis into far more atoms than a release has numbers, so large blocks have a low rank. A Cholesky
    factorisation with pivots ends after as many steps as the rank (Higham, Analysis of the Cholesky decomposition of a
    semi-definite matrix, 1990). Returns None for a small block, or if the rank is above half of the size.
    """
    if len(matrix) <= LARGE:
        return None
    diagonal = np.diag(matrix)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled = np.asarray(matrix * scale * scale[:, None])
    largest = np.abs(scaled).sum(axis=1).max()  # no eigenvalue is above it
    triangle, pivots, rank, _ = scipy.linalg.lapack.dpstrf(scaled, tol=NULL * max(largest, 1.0))
    if rank > len(matrix) // 2:
        return None
    rows = np.zeros((rank, len(matrix)))
    rows[:, pivots - 1] = np.triu(triangle[:rank])
    return scale, rows


def _rows_of(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns rows A with A'A = M for a matrix M, and the matrix that maps a vector A'y to y."""
    low = _low_rank(matrix)
    if low is not None:
        scale, rows = low
        span, triangle = scipy.linalg.qr(rows.T, mode="economic", check_finite=False)
        return rows / scale, scipy.linalg.solve_triangular(triangle, span.T, check_finite=False) * scale
    scale, values, vectors, held = _eigen(matrix)
    roots = np.sqrt(values[held])[:, None]
    return vectors[:, held].T * roots / scale, vectors[:, held].T / roots * scale


def _low_rank_errors(
    root: FloatArray, span: FloatArray, scale: FloatArray, rows: Sequence[FloatArray]
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Returns |root u|^2, and whether u is in the span, for every Kronecker product u of one row from each matrix."""
    lengths = [len(row) for row in rows]
    variances, determined = np.zeros(prod(lengths)), np.zeros(prod(lengths), np.bool_)
    step = max(1, AT_ONCE // len(scale))
    for start in range(0, len(variances), step):
        part = slice(start, min(start + step, len(variances)))
        products = np.ones((part.stop - start, 1))
        for row, places in zip(rows, np.unravel_index(np.arange(start, part.stop), lengths), strict=True):
            products = (products[:, :, None] * row[places][:, None, :]).reshape(len(products), -1)
        variances[part] = np.square(products @ root.T).sum(axis=1)
        products *= scale
        missed = products - (products @ span.T) @ span
        determined[part] = np.square(missed).sum(axis=1) <= MISSED**2 * np.square(products).sum(axis=1)
    return variances.reshape(lengths), determined.reshape(lengths)


def _eigen(matrix: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, NDArray[np.bool_]]:
    """Returns scales for a diagonal of ones, the scaled matrix's eigenvalues and vectors, and a mask of nonzeros."""
    diagonal = np.diag(matrix)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = scipy.linalg.eigh(matrix * scale * scale[:, None])
    return scale, values, vectors, values > NULL * max(values[-1], 1.0)


def _of_several(matrices: Sequence[FloatArray]) -> LeastSquaresBlock:
    """Solves a block with precisions that differ by more digits than doubles have.

    A sum of all normal equations would lose the least precise measurements to rounding. So each level's matrix is
    written as A'A. Householder reflections then bring the rows of all A, the most precise first, to one triangle R,
    with M = R'R (Cox and Higham, Stability of Householder QR factorization for weighted least squares problems, 1998).
    """
    size = len(matrices[0])
    columns, rank = np.arange(size), 0
    triangle = np.zeros((0, size))  # in the order of `columns`, of which the first `rank` are upper triangular
    solvers = [np.zeros((0, size)) for _ in matrices]  # from each level's data to the right side of the triangle
    for level, matrix in enumerate(matrices):
        rows, backwards = _rows_of(matrix)
        own = rows[:, columns]
        longest = np.sqrt(np.square(own).sum(axis=1).max(initial=0.0))
        stack = np.vstack([triangle, own])
        right = np.zeros((len(stack), size * len(matrices)))
        right[:rank] = np.hstack(solvers)
        right[rank:, level * size : (level + 1) * size] = backwards
        if rank:
            stack, right = _reflect(stack[:, :rank], stack), _reflect(stack[:, :rank], right)
            stack[:, :rank] = np.triu(stack[:, :rank])
        added, order = _new_rows(stack[rank:, rank:], longest)
        if added:
            below, rest = np.ascontiguousarray(stack[rank:, rank:][:, order]), right[rank:]
            stack[:, rank:] = stack[:, rank:][:, order]
            stack[rank:, rank:] = _reflect(below[:, :added], below)
            right[rank:] = _reflect(below[:, :added], rest)
            stack[rank:, rank : rank + added] = np.triu(stack[rank:, rank : rank + added])
            columns = np.concatenate([columns[:rank], columns[rank:][order]])
            rank += added
        triangle = stack[:rank]
        solvers = np.split(right[:rank], len(matrices), axis=1)
    return _solve_triangle(triangle, solvers, columns)


def _new_rows(below: FloatArray, longest: float) -> tuple[int, NDArray[np.intp]]:
    """Returns the rank that a level adds to more precise levels, and an order of columns with the pivots first."""
    if not below.size:
        return 0, np.arange(below.shape[1])
    triangle, order = scipy.linalg.qr(below, mode="r", pivoting=True, check_finite=False)
    return int(np.count_nonzero(np.abs(np.diag(triangle)) > CUT * longest)), order


def _reflect(columns: FloatArray, table: FloatArray) -> FloatArray:
    """Returns Q' times a table, for the factorisation `columns` = QR. Reflections are applied, and Q is never built."""
    if not len(columns) or not table.shape[1]:
        return table.copy()
    _, _, work, _ = scipy.linalg.lapack.dgeqrf(columns, -1)
    factored, tau, _, _ = scipy.linalg.lapack.dgeqrf(columns, int(work[0]))
    product, work, _ = scipy.linalg.lapack.dormqr("L", "T", factored, tau, table, -1)
    product, _, _ = scipy.linalg.lapack.dormqr("L", "T", factored, tau, table, int(work[0]))
    return np.asarray(product)


def _solve_triangle(
    triangle: FloatArray, solvers: Sequence[FloatArray], columns: NDArray[np.intp]
) -> LeastSquaresBlock:
    """Returns the block M = R'R. triangle: R, columns in the order `columns`. solvers: from a level's data to R x."""
    rank, size = triangle.shape
    square, rest = triangle[:, :rank], triangle[:, rank:]
    root = np.zeros((rank, size))
    root[:, columns[:rank]] = scipy.linalg.solve_triangular(square, np.eye(rank), trans="T")
    estimates = []
    for solver in solvers:
        estimate = np.zeros((size, size))
        estimate[columns[:rank]] = scipy.linalg.solve_triangular(square, solver)
        estimates.append(estimate)
    if size > LARGE and rank <= size // 2:
        span = np.zeros((size, rank))
        span[columns] = scipy.linalg.qr((triangle / np.linalg.norm(triangle, axis=1)[:, None]).T, mode="economic")[0]
        return LeastSquaresBlock(tuple(estimates), None, root, np.ones(size), None, np.ascontiguousarray(span.T))
    null = None
    if rank < size:
        basis = np.zeros((size, size - rank))
        basis[columns[:rank]] = -scipy.linalg.solve_triangular(square, rest)
        basis[columns[rank:]] = np.eye(size - rank)
        null = np.ascontiguousarray(scipy.linalg.qr(basis, mode="economic")[0].T)
    return LeastSquaresBlock(tuple(estimates), None, root, np.ones(size), null)


def _squares(matrix: FloatArray, rows: Sequence[FloatArray]) -> FloatArray:
    """Computes |matrix u|^2 for every Kronecker product u of one row from each of `rows`, with an axis for each."""
    sizes, lengths = [row.shape[1] for row in rows], [len(row) for row in rows]
    totals = np.zeros(lengths)
    step = max(1, AT_ONCE // max(1, prod(max(pair) for pair in zip(sizes, lengths, strict=True))))
    for start in range(0, len(matrix), step):
        part = matrix[start : start + step].reshape(-1, *sizes)
        for row in rows:
            part = np.tensordot(part, row, axes=([1], [1]))
        totals += np.square(part).sum(axis=0)
    return totals


def _quadratic(matrix: FloatArray, rows: Sequence[FloatArray]) -> FloatArray:
    """Computes u' matrix u for every Kronecker product u of one row from each of `rows`, with an axis for each."""
    sizes = [row.shape[1] for row in rows]
    order = sorted(range(len(rows)), key=lambda place: len(rows[place]) / sizes[place])
    form = matrix.reshape([*sizes, *sizes]).transpose([*order, *(place + len(sizes) for place in order)])
    for done, place in enumerate(order):  # finished axes come first, then each remaining axis twice
        left = len(order) - done
        form = np.moveaxis(form, [done, done + left], [0, 1])
        half = np.tensordot(rows[place], form, axes=([1], [0]))
        form = np.moveaxis(np.einsum("gb...,gb->g...", half, rows[place]), 0, done)
    return np.maximum(form.transpose(np.argsort(order)) if order else form, 0.0)


NOTHING = 1e-13
"""Squared lengths below this part of the whole are rounding errors."""

Kin = IdentityFactor | CentredFactor | HadamardFactor


@dataclass(frozen=True, eq=False)
class Along:
    """Queries along one axis: an identity, centred or Hadamard factor (`plain`), or the rows of any matrix.

    kept: the codes that the plain factor counts, None for all codes. rows: that matrix, shape (queries, codes).
    """

    plain: Kin | None = None
    kept: NDArray[np.bool_] | None = None
    rows: scipy.sparse.csr_array | None = None

    @cached_property
    def signature(self) -> tuple[object, ...]:
        if self.plain is not None:
            return type(self.plain).__name__, None if self.kept is None else self.kept.tobytes()
        rows = cast(scipy.sparse.csr_array, self.rows)
        return rows.shape, rows.indptr.tobytes(), rows.indices.tobytes(), rows.data.tobytes()

    def back(self, answers: FloatArray, axis: int) -> FloatArray:
        """Returns the transposed query matrix times `answers`, along one axis of the answers."""
        if isinstance(self.plain, IdentityFactor) and self.kept is None:
            return answers
        if self.plain is None:
            rows, moved = cast(scipy.sparse.csr_array, self.rows), np.moveaxis(answers, axis, 0)
            flat = rows.T @ moved.reshape(len(moved), -1)
            return np.moveaxis(np.asarray(flat).reshape(rows.shape[1], *moved.shape[1:]), 0, axis)
        spread = adjoint(self.plain, answers, axis)
        if self.kept is None:
            return spread
        return spread * self.kept.reshape([-1 if place == axis else 1 for place in range(spread.ndim)])


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """One noisy table. along: the queries of each axis that is not summed away. variance: of the noise in one number.

    values: the noisy answers, with the axes of `along` in increasing order.
    """

    along: Mapping[int, Along]
    variance: float
    values: FloatArray | IntegerArray


@dataclass(frozen=True, eq=False)
class AtomAxis:
    """Atoms of one axis. atom: the number of each code's atom. sizes: the number of codes in each atom.

    In the methods, U has one column for each atom: a unit vector, constant on the atom's codes and 0 elsewhere.
    """

    atom: NDArray[np.intp]
    sizes: FloatArray

    @cached_property
    def ones(self) -> FloatArray:
        """Returns U'1: the square root of each atom's size."""
        return np.sqrt(self.sizes)

    def codes(self, atom: int) -> NDArray[np.intp]:
        return np.flatnonzero(self.atom == atom)

    def lump(self, table: FloatArray, axis: int) -> FloatArray:
        """Returns U' times a table along one axis: sums over each atom's codes, divided by the root of its size."""
        moved = np.moveaxis(table, axis, 0)
        lumped = self._sum_codes(moved) / self.ones.reshape(-1, *[1] * (moved.ndim - 1))
        return np.moveaxis(lumped, 0, axis)

    def _sum_codes(self, table: FloatArray) -> FloatArray:
        if len(self.sizes) == 1:
            return np.asarray(table.sum(axis=0, keepdims=True))
        summed = np.zeros((len(self.sizes), *table.shape[1:]))
        np.add.at(summed, self.atom, table)
        return summed

    def contrasts(self, table: FloatArray, axis: int) -> FloatArray:
        moved = np.moveaxis(table, axis, 0)
        means = self._sum_codes(moved) / self.sizes.reshape(-1, *[1] * (moved.ndim - 1))
        return np.moveaxis(moved - means[self.atom], 0, axis)

    @cached_property
    def _indicators(self) -> scipy.sparse.csr_array:
        places = (np.arange(len(self.atom)), self.atom)
        return scipy.sparse.csr_array((np.ones(len(self.atom)), places), shape=(len(self.atom), len(self.sizes)))

    def atoms_of(self, weights: scipy.sparse.csr_array) -> FloatArray:
        """Returns rows of weights times U: sums over each atom's codes, divided by the root of the atom's size."""
        return np.asarray((weights @ self._indicators).todense(), np.float64) / self.ones

    def contrast_norms(self, weights: scipy.sparse.csr_array) -> FloatArray:
        """Returns the squared length of each weight row's deviation from its mean in each atom, shape (rows, atoms)."""
        whole = np.asarray((weights.multiply(weights) @ self._indicators).todense(), np.float64)
        parts = whole - self.atoms_of(weights) ** 2
        parts[parts <= NOTHING * whole] = 0.0
        return parts

    def block(self, along: Along | None) -> FloatArray:
        """Returns U'F'F U for a factor F, a matrix over the atoms. None stands for the row of ones."""
        ones = self.ones
        if along is None:
            return np.outer(ones, ones)
        if along.plain is None:
            lumped = self.lump(np.asarray(cast(scipy.sparse.csr_array, along.rows).todense(), np.float64), 1)
            return lumped.T @ lumped
        alpha, beta = cast(tuple[int, int], gram(along.plain))
        block = np.diag(alpha * self._atom_mask(along)) + beta * np.outer(ones, ones)
        block[np.abs(block) <= NOTHING * alpha] = 0.0  # rounding: centred and Hadamard rows of a constant are 0
        return block

    def multiplier(self, along: Along | None) -> FloatArray:
        """Returns a number for each atom. F'F of a factor F multiplies contrasts inside the atom by this number."""
        if along is None or along.plain is None:
            return np.zeros(len(self.sizes))
        alpha, _ = cast(tuple[int, int], gram(along.plain))
        return alpha * self._atom_mask(along)

    def _atom_mask(self, along: Along) -> FloatArray:
        """Returns 1 for each atom that a factor counts, 0 for all other atoms."""
        counted = np.ones(len(self.sizes))
        if along.kept is not None:
            counted[self.atom] = along.kept
        return counted


@dataclass(frozen=True, eq=False)
class Kinds:
    """Distinct factors along one axis, with their AtomAxis.block and multiplier. which: each measurement's factor."""

    which: NDArray[np.intp]
    blocks: FloatArray
    contrasts: FloatArray

    @classmethod
    def of(cls, axis: AtomAxis, along: Sequence[Along | None]) -> Kinds:
        numbers: dict[object, int] = {}
        distinct: list[Along | None] = []
        which = np.zeros(len(along), np.intp)
        for place, use in enumerate(along):
            name = None if use is None else use.signature
            if name not in numbers:
                numbers[name] = len(distinct)
                distinct.append(use)
            which[place] = numbers[name]
        return cls(
            which, np.array([axis.block(use) for use in distinct]), np.array([axis.multiplier(use) for use in distinct])
        )


def refine_atoms(atom: NDArray[np.intp], along: Along) -> NDArray[np.intp]:
    """Returns the atom number of each code, after one more factor has split the atoms in `atom`."""
    columns = None if along.kept is None else along.kept.tolist()
    if along.plain is None:
        by_code = scipy.sparse.csc_array(cast(scipy.sparse.csr_array, along.rows))
        by_code.sort_indices()
        bounds = zip(by_code.indptr, by_code.indptr[1:], strict=False)
        columns = [by_code.indices[a:b].tobytes() + by_code.data[a:b].tobytes() for a, b in bounds]
    numbers: dict[object, int] = {}
    pairs = zip(atom.tolist(), columns or [0] * len(atom), strict=True)
    return np.array([numbers.setdefault(pair, len(numbers)) for pair in pairs], np.intp)


def atoms_of_axis(size: int, along: Sequence[Along]) -> AtomAxis:
    """Returns the atoms of an axis. A plain factor splits atoms only by the codes that it counts."""
    atom = np.zeros(size, np.intp)
    for factor in {factor.signature: factor for factor in along}.values():
        atom = refine_atoms(atom, factor)
    return AtomAxis(atom, np.bincount(atom).astype(np.float64))
