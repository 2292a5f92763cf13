"""Options that change answers after the noise: `nonnegative` and `integer`. Both bias sums of many cells.

A table's sum becomes max(sum before, 0), rounded for `integer`. Every release reports that an option was applied.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpduck.algebra.lattice import MOST_STEPS, Lattice, close_downward, closure_steps
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.strategies.plan import Plan
from dpduck.strategies.variance import centre, spread_evenly
from dpduck.values.arrays import FloatArray

MOST_ROUNDS = 200
"""Most rounds of Dykstra's projections. The step after the last round makes any result non-negative."""

CLOSE = 1e-9
"""The projections stop if no cell is more negative than this part of the total."""


def apply_options(
    plan: Plan, answers: Sequence[FloatArray], *, nonnegative: bool, integer: bool
) -> tuple[FloatArray, ...]:
    """Returns the answers after the options `nonnegative` and `integer`. Answers of ranges are only rounded.

    Consistent tables stay consistent, under `integer` only if one table has all attributes.
    """
    tables = tuple(answers)
    if plan.parts:
        return tuple(np.rint(table) for table in tables) if integer else tables
    if nonnegative and plan.consistency == "none":
        tables = tuple(nonnegative_table(table) for table in tables)
    elif nonnegative:
        tables = nonnegative_consistent(plan.workload, tables, plan.variances)
    if not integer:
        return tables
    if plan.consistency == "none":
        return tuple(integer_table(table) for table in tables)
    return integer_margins(plan.workload, tables)


def nonnegative_table(table: FloatArray) -> FloatArray:
    """Returns the nearest non-negative table (least squares) with the sum max(sum, 0): the simplex projection.

    >>> nonnegative_table(np.array([3.0, 1.0, -2.0]))
    array([2., 0., 0.])
    """
    total = float(table.sum())
    if total <= 0:
        return np.zeros_like(table)
    if table.size == 0 or float(table.min()) >= 0:
        return table.copy()
    falling = np.sort(table, axis=None)[::-1]
    levels = (np.cumsum(falling) - total) / np.arange(1, falling.size + 1)
    level = levels[np.flatnonzero(falling > levels)[-1]]
    projected: FloatArray = np.maximum(table - level, 0.0)
    return projected


def integer_table(table: FloatArray) -> FloatArray:
    """Rounds every cell down or up, the largest remainders up, so that the sum of cells is the old sum, rounded.

    >>> integer_table(np.array([0.4, 0.4, 0.4, 0.8]))
    array([1., 0., 0., 1.])
    """
    lower = np.floor(table)
    missing = int(np.rint(table.sum()) - lower.sum())
    remainders = (table - lower).ravel()
    raised = np.argsort(-remainders, kind="stable")[: max(missing, 0)]
    rounded = lower.ravel()
    rounded[raised] += 1.0
    return rounded.reshape(table.shape)


def integer_cube(table: FloatArray) -> FloatArray:
    """Rounds every cell down or up. First the total is rounded, then the sums along the first axis, and so on.

    Sums over all of the last axes err by less than 1. Other sums err less than after rounding each cell alone.

    >>> integer_cube(np.array([[0.4, 0.4], [0.4, 0.8]]))
    array([[1., 0.],
           [0., 1.]])
    """
    above: FloatArray = np.rint(table.sum()).reshape(())
    for axis, size in enumerate(table.shape):
        sums = table.sum(axis=tuple(range(axis + 1, table.ndim)))
        split = sums.reshape(-1, size)
        rounded = np.floor(split)
        order = np.argsort(rounded - split, axis=1, kind="stable")
        raised = np.arange(size) < (above.reshape(-1, 1) - rounded.sum(axis=1, keepdims=True))
        np.put_along_axis(rounded, order, np.take_along_axis(rounded, order, axis=1) + raised, axis=1)
        above = rounded.reshape(sums.shape)
    return above


def integer_margins(workload: MarginalWorkload, tables: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
    """Rounds consistent tables. If one table has all attributes, it is rounded and the others become its sums.

    Otherwise tables with equal sums keep equal sums. Other shared margins may differ by less than the summed cells.
    """
    whole = set().union(*workload.marginals)
    finest = next((number for number, members in enumerate(workload.marginals) if set(members) == whole), None)
    if finest is None or len(tables) == 1:
        return tuple(integer_table(table) for table in tables)
    cells, attributes = integer_cube(tables[finest]), workload.marginals[finest]
    summed_axes = [
        tuple(axis for axis, attribute in enumerate(attributes) if attribute not in marginal)
        for marginal in workload.marginals
    ]
    return tuple(np.asarray(cells.sum(axis=axes)) for axes in summed_axes)


def nonnegative_consistent(
    workload: MarginalWorkload, answers: Sequence[FloatArray], variances: Sequence[float]
) -> tuple[FloatArray, ...]:
    """Returns consistent non-negative tables near the consistent `answers`, by least squares with weights 1/variance.

    Dykstra's projections onto "each table non-negative" and "all tables consistent" alternate. The least step towards a
    table of equal cells then makes every cell non-negative. If closure_steps is above MOST_STEPS, each table is
    projected alone, and the results may disagree.
    """
    if len(set(workload.marginals)) == 1 or closure_steps(workload.marginals) > MOST_STEPS:
        return tuple(nonnegative_table(table) for table in answers)
    total = float(answers[0].sum())
    if total <= 0:
        return tuple(np.zeros_like(table) for table in answers)
    projection = _Projection(close_downward(workload.marginals, workload.sizes), workload, variances)
    current = [table.copy() for table in answers]
    corrections = [np.zeros_like(table) for table in answers]
    for _ in range(MOST_ROUNDS):
        if min(float(table.min()) for table in current) >= -CLOSE * total:
            break
        moved = [table + correction for table, correction in zip(current, corrections, strict=True)]
        clipped = [nonnegative_table_of(table, total) for table in moved]
        corrections = [before - after for before, after in zip(moved, clipped, strict=True)]
        current = projection.nearest_consistent(clipped)
    return _lift(current, total)


def nonnegative_table_of(table: FloatArray, total: float) -> FloatArray:
    """Returns the nearest non-negative table (least squares) with a given positive sum."""
    shift = (total - float(table.sum())) / table.size
    return nonnegative_table(table + shift)


def _lift(tables: Sequence[FloatArray], total: float) -> tuple[FloatArray, ...]:
    """Moves tables towards equal cells with this total until no cell is negative. Consistent tables stay consistent."""
    share = 0.0
    for table in tables:
        even, least = total / table.size, float(table.min())
        if least < 0:
            share = max(share, least / (least - even))
    lifted = [(1 - share) * table + share * total / table.size for table in tables]
    return tuple(np.maximum(table, 0.0) for table in lifted)


class _Projection:
    """Least squares projection onto consistent tables, with weights 1/variance, in ANOVA components."""

    def __init__(self, lattice: Lattice, workload: MarginalWorkload, variances: Sequence[float]) -> None:
        sizes = np.asarray(lattice.sizes, dtype=np.float64)
        self.lattice = lattice
        cells = lattice.products(sizes)[lattice.family]
        self.scales = 1 / (cells * np.asarray(variances, dtype=np.float64))  # 1/(n_A v_A)
        self.precisions = lattice.sum_over_supersets(lattice.family_totals(self.scales), np.ones(len(sizes)))

    def nearest_consistent(self, tables: Sequence[FloatArray]) -> list[FloatArray]:
        lattice = self.lattice
        sums = [np.zeros([lattice.sizes[lattice.attributes.index(i)] for i in members]) for members in lattice.sets]
        for number, scale, table in zip(lattice.family.tolist(), self.scales.tolist(), tables, strict=True):
            sums[number] += scale * table
        for step in lattice.steps:
            for whole, less, axis in zip(*(column.tolist() for column in step), strict=True):
                sums[less] += sums[whole].sum(axis=axis)
        for table, precision in zip(sums, self.precisions.tolist(), strict=True):
            np.divide(table, precision, out=table)
            centre(table)
        spread_evenly(lattice, sums)
        return [sums[number].copy() for number in lattice.family.tolist()]
