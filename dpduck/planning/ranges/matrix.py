"""A user's own integer matrix as a strategy for ranges: grouped greedily, refused where it cannot answer a query."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.ranges import RangeWorkload
from dpduck.planning.ranges.hierarchy import LARGEST_DENSE
from dpduck.planning.ranges.strategy import RangeStrategy
from dpduck.trusted.operators import MatrixFactor
from dpduck.values.arrays import FloatArray, IntegerArray
from dpduck.values.errors import Refusal

NULL = 1e-10
"""Singular values below this part of the largest count as 0."""

MISSED = 1e-7
"""A query whose part outside the row space is shorter than this is answered."""

MOST_GROUPS = 64


def matrix_strategy(workload: RangeWorkload, entries: IntegerArray, norm: int) -> RangeStrategy:
    """Least squares from the rows of `entries`, shape (rows, n), with the better of equal and grouped budgets.

    norm: 1 for Laplace, 2 for Gaussian noise. Refuses a matrix that leaves queries undetermined, and names them.
    """
    if entries.ndim != 2 or entries.shape[1] != workload.size or not entries.any():
        raise Refusal(f"the strategy's matrix must have {workload.size} columns and an entry that is not 0")
    if workload.size > LARGEST_DENSE:
        raise Refusal(
            f"a strategy's matrix may have at most {LARGEST_DENSE} columns", accepted="strategy = 'hierarchy'"
        )
    missed = unanswerable(workload, entries)
    if len(missed):
        named = ", ".join(f"[{workload.starts[q]}, {workload.stops[q]})" for q in missed[:3])
        dots = ", .." if len(missed) > 3 else ""
        raise Refusal(
            f"the strategy's rows do not determine {len(missed)} of the {workload.queries} intervals: {named}{dots}",
            accepted="a matrix whose rows span every interval asked",
        )
    found = [_with_groups(workload, [entries], np.ones(1))]
    groups = greedy_groups(entries)
    if 1 < len(groups) <= MOST_GROUPS:
        blocks = [entries[list(group.rows)] for group in groups]
        norms = np.array([group.norm**norm for group in groups], dtype=np.float64)
        found.append(_with_groups(workload, blocks, _shares(workload, blocks, norms, norm)))
    return min(found, key=lambda strategy: strategy.unit_total(norm))


def unanswerable(workload: RangeWorkload, entries: IntegerArray) -> NDArray[np.intp]:
    """The queries outside the row space of the matrix."""
    _, singular, rows = np.linalg.svd(entries.astype(np.float64), full_matrices=True)
    rank = int((singular > NULL * singular.max()).sum())
    outside = workload.answers(rows[rank:].T)
    missed: NDArray[np.intp] = np.flatnonzero((outside**2).sum(axis=1) > MISSED**2)
    return missed


def _with_groups(workload: RangeWorkload, blocks: list[IntegerArray], shares: FloatArray) -> RangeStrategy:
    boundaries = np.arange(workload.size + 1)
    factors = tuple(MatrixFactor(np.ascontiguousarray(block)) for block in blocks)
    groups = tuple(range(len(blocks)))
    return RangeStrategy("matrix", workload, workload, boundaries, factors, shares, None, groups)


def _shares(workload: RangeWorkload, blocks: list[IntegerArray], norms: FloatArray, norm: int) -> FloatArray:
    """Closed-form shares for the recovery weights of unweighted least squares (DESIGN 4.2).

    norms: C_r or C_r^2. Laplace: eta proportional to (s/C)^(1/3), share C eta; Gaussian: share C^2 eta^2 = C s^(1/2).
    """
    inverse = np.linalg.pinv(np.vstack(blocks).astype(np.float64), rcond=NULL)
    recovery = (inverse * workload.times_gram(inverse.T).T).sum(axis=0)
    edges = np.cumsum([0, *(len(block) for block in blocks)])
    weights = np.maximum(np.add.reduceat(recovery, edges[:-1]), 1e-9 * recovery.sum())
    raised = norms ** (2 / 3) * weights ** (1 / 3) if norm == 1 else np.sqrt(norms * weights)
    shares: FloatArray = raised / raised.sum()
    return shares


# Groups of rows of an arbitrary strategy matrix (Cormode et al., Definition 3.1 and the greedy grouping after
# it).


@dataclass(frozen=True)
class Group:
    """Rows with disjoint supports. norm: C_r, their largest absolute entry.

    exact: every column has an entry of absolute value C_r in some row, as Definition 3.1 wants.
    """

    rows: tuple[int, ...]
    norm: int
    exact: bool


def greedy_groups(matrix: IntegerArray) -> tuple[Group, ...]:
    """Each row joins the first group of its absolute value whose rows' supports it does not meet.

    With all groups exact the closed-form budgets are optimal; else they are safe (the norm of every group is paid in
    full in every column) and the convex program may do better. Rows of zeros ask nothing and join no group.

    >>> [group.rows for group in greedy_groups(np.array([[1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]]))]
    [(0,), (1, 2, 3)]
    """
    magnitudes = np.abs(matrix)
    supports = magnitudes > 0
    largest = magnitudes.max(axis=1, initial=0)
    rows: list[list[int]] = []
    norms: list[int] = []
    covered: list[NDArray[np.bool_]] = []
    for row in np.flatnonzero(largest > 0).tolist():
        norm = int(largest[row])
        fitting = (
            number
            for number, taken in enumerate(covered)
            if norms[number] == norm and not (taken & supports[row]).any()
        )
        joined = next(fitting, None)
        if joined is None:
            rows.append([row])
            norms.append(norm)
            covered.append(supports[row])
        else:
            rows[joined].append(row)
            covered[joined] = covered[joined] | supports[row]
    return tuple(
        Group(tuple(members), norm, bool((magnitudes[members].max(axis=0) == norm).all()))
        for members, norm in zip(rows, norms, strict=True)
    )
