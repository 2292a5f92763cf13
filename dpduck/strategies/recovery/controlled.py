"""Non-negative and whole counts with exact totals: the nearest such table, and controlled rounding.

The equations are B x = t with a matrix B of 0 and 1, over the cells of the finest table. If the groups of cells nest in
two families, B is totally unimodular (Edmonds). Every vertex of a linear program with whole bounds is then whole.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from dpduck.strategies.recovery.options import integer_table, nonnegative_table_of
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import InternalError

MOST_STEPS = 100
CLOSE = 1e-9
"""A projection ends if no total is off by more than this part of the largest total."""

Groups: TypeAlias = "scipy.sparse.csr_array"


def has_counts(groups: Groups, totals: FloatArray) -> bool:
    """Tells whether any table without negative cells has these totals. Cells in the same groups are one variable."""
    merged = _merge_cells(groups)
    solved = scipy.optimize.linprog(np.zeros(merged.shape[1]), A_eq=merged, b_eq=totals, method="highs")
    return bool(solved.status == 0)


def nest_twice(groups: Groups) -> bool:
    """Tells whether the groups form two families. Within a family, any two groups are nested or apart."""
    matrix = scipy.sparse.csr_array(groups, dtype=np.float64)
    common = scipy.sparse.coo_array(matrix @ matrix.T)
    sizes = np.asarray(matrix.sum(axis=1)).ravel()
    crossing = common.data < np.minimum(sizes[common.row], sizes[common.col])
    links = (common.data[crossing], (common.row[crossing], common.col[crossing]))
    crossed = scipy.sparse.csr_array(links, shape=common.shape)
    family = np.full(len(sizes), -1)
    for first in range(len(sizes)):
        if family[first] >= 0:
            continue
        family[first], pending = 0, [first]
        while pending:
            group = pending.pop()
            others = crossed.indices[crossed.indptr[group] : crossed.indptr[group + 1]]
            if (family[others] == family[group]).any():
                return False
            pending += others[family[others] < 0].tolist()
            family[others] = 1 - family[group]
    return True


def with_rest(groups: Groups, totals: FloatArray, cells: FloatArray, *, nonnegative: bool) -> tuple[Groups, FloatArray]:
    """Adds the group of all cells that are in no group. This group keeps its rounded sum, at least 0 for counts."""
    rest = np.asarray(groups.sum(axis=0)).ravel() == 0
    if not rest.any():
        return groups, totals
    kept = float(np.rint(cells[rest].sum()))
    row = scipy.sparse.csr_array(rest[None, :].astype(np.float64))
    stacked = scipy.sparse.csr_array(scipy.sparse.vstack([groups, row]))
    return stacked, np.append(totals, max(kept, 0.0) if nonnegative else kept)


def nearest_counts(groups: Groups, totals: FloatArray, cells: FloatArray) -> FloatArray:
    """Returns the nearest table (least squares) without negative cells that has the totals.

    It is x = max(0, y + B'm), where m are multipliers of the equations: Newton's method on the dual program.
    """
    apart = _groups_apart(groups)
    if apart is not None:
        table = np.maximum(cells, 0.0)
        for places, total in zip(apart, totals.tolist(), strict=True):
            table[places] = nonnegative_table_of(cells[places], total)
        return table
    multipliers, largest = np.zeros(len(totals)), max(1.0, float(totals.max(initial=0.0)))
    table = np.maximum(cells, 0.0)
    for _ in range(MOST_STEPS):
        missing = totals - groups @ table
        if np.abs(missing).max(initial=0.0) <= CLOSE * largest:
            return table
        above = scipy.sparse.diags_array((table > 0).astype(np.float64))
        slopes = groups @ above @ groups.T + 1e-9 * scipy.sparse.eye_array(len(totals))
        direction = scipy.sparse.linalg.splu(scipy.sparse.csc_array(slopes)).solve(missing)
        multipliers = multipliers + _step(groups, totals, cells, multipliers, direction) * direction
        table = np.maximum(cells + groups.T @ multipliers, 0.0)
    return _least_moves(groups, totals, cells, whole=False)


def _groups_apart(groups: Groups) -> list[NDArray[np.intp]] | None:
    """Returns the cells of each group if no cell is in two of them and no group is empty, else None."""
    matrix = scipy.sparse.csr_array(groups)
    if matrix.sum(axis=0).max(initial=0) > 1 or (np.diff(matrix.indptr) == 0).any():
        return None
    return np.split(matrix.indices, matrix.indptr[1:-1])


def _step(groups: Groups, totals: FloatArray, cells: FloatArray, start: FloatArray, direction: FloatArray) -> float:
    """Returns the first of 1, 1/2, 1/4 .. that lowers the dual's objective by enough (Armijo's rule)."""

    def objective(multipliers: FloatArray) -> float:
        above = np.maximum(cells + groups.T @ multipliers, 0.0)
        return float(above @ above) / 2 - float(totals @ multipliers)

    now, step = objective(start), 1.0
    slope = float((groups @ np.maximum(cells + groups.T @ start, 0.0) - totals) @ direction)
    while step > 1e-9 and objective(start + step * direction) > now + 1e-4 * step * slope:
        step /= 2
    return step


def rounded_counts(groups: Groups, totals: FloatArray, cells: FloatArray, *, nonnegative: bool) -> FloatArray:
    """Returns a table of whole numbers that has the whole totals. If possible, every cell is rounded up or down."""
    apart = _groups_apart(groups)
    if apart is not None:
        table = np.rint(cells)
        for places in apart:
            table[places] = integer_table(cells[places])
        if np.array_equal(groups @ table, totals):  # totals of 10^12 leave rounding errors
            return table
    lower = np.floor(cells + CLOSE)
    solved = scipy.optimize.linprog(
        1 - 2 * (cells - lower), A_eq=groups, b_eq=totals - groups @ lower, bounds=(0, 1), method="highs-ds"
    )
    if solved.status == 0:
        return _require_whole(groups, totals, lower + np.rint(solved.x))
    return _least_moves(groups, totals, cells, whole=True, nonnegative=nonnegative)


def _least_moves(
    groups: Groups, totals: FloatArray, cells: FloatArray, *, whole: bool, nonnegative: bool = True
) -> FloatArray:
    """Returns the table with the totals at the least sum of moves from `cells`, by a linear program.

    A cell is its base, plus a first unit, plus a part above, minus a part below. Each part has its cost.
    """
    start = np.maximum(cells, 0.0) if nonnegative else cells
    base = np.floor(start) if whole else start
    first = 1 - 2 * (start - base) if whole else np.ones_like(base)
    costs = np.concatenate([first, np.ones_like(base), np.ones_like(base)])
    most_below: list[float | None] = list(base) if nonnegative else [None] * len(base)
    bounds = [(0.0, 1.0)] * len(base) + [(0.0, None)] * len(base) + [(0.0, most) for most in most_below]
    solved = scipy.optimize.linprog(
        costs, A_eq=scipy.sparse.hstack([groups, groups, -groups]), b_eq=totals - groups @ base, bounds=bounds,
        method="highs-ds",
    )  # fmt: skip
    if solved.status != 0:
        raise InternalError("no table has totals that were checked before")
    up, above, below = np.split(solved.x, 3)
    moved = base + up + above - below
    return _require_whole(groups, totals, np.rint(moved)) if whole else np.maximum(moved, 0.0)


def _require_whole(groups: Groups, totals: FloatArray, table: FloatArray) -> FloatArray:
    if not np.array_equal(groups @ table, totals):
        raise InternalError("rounding has lost a total")
    return table


def _merge_cells(groups: Groups) -> scipy.sparse.csc_array:
    """Returns one column for each combination of groups that some cell is in."""
    columns = scipy.sparse.csc_array(groups)
    columns.sort_indices()
    seen: dict[tuple[int, ...], int] = {}
    for place, (start, end) in enumerate(pairwise(columns.indptr.tolist())):
        seen.setdefault(tuple(columns.indices[start:end].tolist()), place)
    kept: NDArray[np.intp] = np.array([*seen.values()], np.intp)
    return scipy.sparse.csc_array(columns[:, kept])
