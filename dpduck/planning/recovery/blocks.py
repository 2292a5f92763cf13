"""One block of least squares: its generalised inverse, also where precisions differ by more digits than doubles have.

Measurements come in levels: within one, precisions differ by a factor of at most WIDTH. One level is solved by its
normal equations. Several are not added up, since the least precise would be lost to rounding: each level's matrix is
written as A'A, and the rows of all A, the most precise first, are brought to one triangle R by Householder reflections,
which keep each row's own digits as long as large rows come first (Cox and Higham, Stability of Householder QR
factorization for weighted least squares problems, 1998). What a level measures only up to rounding is cut against that
level's own rows before the next one comes in. Then M = R'R, and the estimate is a sum over levels of an operator
times the level's own part of S'V^-1 z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, lapack, qr, solve_triangular

from dpduck.values.arrays import FloatArray

WIDTH = 1e3
"""Between the largest and the smallest precision of a level."""

NULL = 1e-11
"""Eigenvalues below this part of the largest count as 0, in a block whose diagonal is 1."""

CUT = 1e-6
"""Rows shorter than this part of their level's, after more precise ones were taken out, count as 0."""

MISSED = 1e-7
"""A query whose part outside of the range is longer than this, relative to it, is not determined."""

AT_ONCE = 1 << 22
"""Numbers that are worked on together."""


def levels_of(precisions: FloatArray) -> list[NDArray[np.intp]]:
    """Returns measurements of like precision together, the most precise first."""
    order, found = np.argsort(-precisions, kind="stable"), list[list[int]]()
    for place in order.tolist():
        if not found or precisions[found[-1][0]] > WIDTH * precisions[place]:
            found.append([])
        found[-1].append(place)
    return [np.array(level, np.intp) for level in found or [[]]]


@dataclass(frozen=True, eq=False)
class Block:
    """A block with a generalised inverse.

    solvers: for each level the matrix that takes its part of S'V^-1 z to its part of the estimate. inverse: G with
    M G M = M; None for several levels, where the root has it: G = root'root. scale: M in these has a diagonal of ones.
    null: the projector on what is not determined in these scales, or, of several levels, an orthonormal basis of it as
    rows; None where there is none.
    """

    solvers: tuple[FloatArray, ...]
    inverse: FloatArray | None
    root: FloatArray
    scale: FloatArray
    null: FloatArray | None

    @classmethod
    def of(cls, matrices: Sequence[FloatArray]) -> Block:
        """Returns the block whose matrix is the sum of those of the levels, the most precise first."""
        held = [number for number, matrix in enumerate(matrices) if np.diag(matrix).any()]
        if len(held) > 1:
            return _of_several(matrices)
        one = _of_one(matrices[held[0] if held else 0])
        nothing = np.zeros_like(matrices[0])
        solvers = tuple(one.solvers[0] if number in held else nothing for number in range(len(matrices)))
        return cls(solvers, one.inverse, one.root, one.scale, one.null)

    @property
    def variance(self) -> float:
        """Of a block of one number."""
        return float(self.inverse[0, 0] if self.inverse is not None else np.square(self.root).sum())

    def solve(self, data: Sequence[FloatArray], leading: int) -> FloatArray:
        """Returns the inverse along all but the leading axes of each level's data."""
        shape = data[0].shape
        flat = (
            one.reshape(prod(shape[:leading]), -1) @ solver.T for one, solver in zip(data, self.solvers, strict=True)
        )
        solved: FloatArray = np.sum(list(flat), axis=0).reshape(shape)
        return solved

    def errors(self, rows: Sequence[FloatArray]) -> tuple[FloatArray, NDArray[np.bool_]]:
        """u'Gu of every product of rows, one from each list, and whether u is determined."""
        variances = _squares(self.root, rows) if self.inverse is None else _quadratic(self.inverse, rows)
        if self.null is None:
            return variances, np.ones(variances.shape, np.bool_)
        lengths = _quadratic(np.diag(self.scale**2), rows)
        missed = _squares(self.null, rows) if self.inverse is None else _quadratic(self.null, rows)
        return variances, missed <= MISSED**2 * lengths


def _of_one(matrix: FloatArray) -> Block:
    scale, values, vectors, held = _eigen(matrix)
    scaled = vectors[:, held] * scale[:, None]
    inverse = (scaled / values[held]) @ scaled.T
    missed = vectors[:, ~held] * scale[:, None]
    null = None if held.all() else missed @ missed.T
    return Block((inverse,), inverse, np.zeros((0, len(matrix))), scale, null)


def _eigen(matrix: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, NDArray[np.bool_]]:
    """Scales that make the diagonal ones; eigenvalues and vectors in them, and which of these are not rounding."""
    diagonal = np.diag(matrix)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = eigh(matrix * scale * scale[:, None])
    return scale, values, vectors, values > NULL * max(values[-1], 1.0)


def _of_several(matrices: Sequence[FloatArray]) -> Block:
    size = len(matrices[0])
    columns, rank = np.arange(size), 0
    triangle = np.zeros((0, size))  # of columns in this order; its first `rank` are upper triangular
    solvers = [np.zeros((0, size)) for _ in matrices]  # from each level's data to the right side of the triangle
    for level, matrix in enumerate(matrices):
        scale, values, vectors, held = _eigen(matrix)
        roots = np.sqrt(values[held])[:, None]
        own = (vectors[:, held].T * roots / scale)[:, columns]
        longest = np.sqrt(np.square(own).sum(axis=1).max(initial=0.0))
        stack = np.vstack([triangle, own])
        right = np.zeros((len(stack), size * len(matrices)))
        right[:rank] = np.hstack(solvers)
        right[rank:, level * size : (level + 1) * size] = vectors[:, held].T / roots * scale
        if rank:
            stack, right = _reflected(stack[:, :rank], stack), _reflected(stack[:, :rank], right)
            stack[:, :rank] = np.triu(stack[:, :rank])
        kept, order = _new_rows(stack[rank:, rank:], longest)
        if kept:
            below, rest = np.ascontiguousarray(stack[rank:, rank:][:, order]), right[rank:]
            stack[:, rank:] = stack[:, rank:][:, order]
            stack[rank:, rank:] = _reflected(below[:, :kept], below)
            right[rank:] = _reflected(below[:, :kept], rest)
            stack[rank:, rank : rank + kept] = np.triu(stack[rank:, rank : rank + kept])
            columns = np.concatenate([columns[:rank], columns[rank:][order]])
            rank += kept
        triangle = stack[:rank]
        solvers = np.split(right[:rank], len(matrices), axis=1)
    return _solved(triangle, solvers, columns)


def _new_rows(below: FloatArray, longest: float) -> tuple[int, NDArray[np.intp]]:
    """Tells how many rows a level adds to more precise ones, and an order of columns of which the first show them."""
    if not below.size:
        return 0, np.arange(below.shape[1])
    found, order = qr(below, mode="r", pivoting=True, check_finite=False)
    return int(np.count_nonzero(np.abs(np.diag(found)) > CUT * longest)), order


def _reflected(columns: FloatArray, table: FloatArray) -> FloatArray:
    """Q' times a table, where QR is some columns; reflections one after the other, never Q itself."""
    if not len(columns) or not table.shape[1]:
        return table.copy()
    _, _, work, _ = lapack.dgeqrf(columns, -1)
    factored, tau, _, _ = lapack.dgeqrf(columns, int(work[0]))
    found, work, _ = lapack.dormqr("L", "T", factored, tau, table, -1)
    found, _, _ = lapack.dormqr("L", "T", factored, tau, table, int(work[0]))
    return np.asarray(found)


def _solved(triangle: FloatArray, solvers: Sequence[FloatArray], columns: NDArray[np.intp]) -> Block:
    """Returns the generalised inverse from R of all rows, whose first columns are triangular."""
    rank, size = triangle.shape
    square, rest = triangle[:, :rank], triangle[:, rank:]
    root = np.zeros((rank, size))
    root[:, columns[:rank]] = solve_triangular(square, np.eye(rank), trans="T")
    estimates = []
    for solver in solvers:
        one = np.zeros((size, size))
        one[columns[:rank]] = solve_triangular(square, solver)
        estimates.append(one)
    null = None
    if rank < size:
        basis = np.zeros((size, size - rank))
        basis[columns[:rank]] = -solve_triangular(square, rest)
        basis[columns[rank:]] = np.eye(size - rank)
        null = np.ascontiguousarray(qr(basis, mode="economic")[0].T)
    return Block(tuple(estimates), None, root, np.ones(size), null)


def _squares(matrix: FloatArray, rows: Sequence[FloatArray]) -> FloatArray:
    """|Mu|^2 for every u that is the product of one row from each list, an axis for each list."""
    sizes, lengths = [row.shape[1] for row in rows], [len(row) for row in rows]
    found = np.zeros(lengths)
    step = max(1, AT_ONCE // max(1, prod(max(pair) for pair in zip(sizes, lengths, strict=True))))
    for start in range(0, len(matrix), step):
        part = matrix[start : start + step].reshape(-1, *sizes)
        for row in rows:
            part = np.tensordot(part, row, axes=([1], [1]))
        found += np.square(part).sum(axis=0)
    return found


def _quadratic(matrix: FloatArray, rows: Sequence[FloatArray]) -> FloatArray:
    """u'Mu for every u that is the product of one row from each list, an axis for each list."""
    sizes = [row.shape[1] for row in rows]
    order = sorted(range(len(rows)), key=lambda place: len(rows[place]) / sizes[place])
    found = matrix.reshape([*sizes, *sizes]).transpose([*order, *(place + len(sizes) for place in order)])
    for done, place in enumerate(order):  # of each axis that is left there are two, after those that are done
        distinct, which = np.unique(rows[place], axis=0, return_inverse=True)
        left = len(order) - done
        found = np.moveaxis(found, [done, done + left], [0, 1])
        half = np.tensordot(distinct, found, axes=([1], [0]))
        summed = np.einsum("gb...,gb->g...", half, distinct)
        found = np.moveaxis(summed[which.ravel()], 0, done)
    return np.maximum(found.transpose(np.argsort(order)) if order else found, 0.0)
