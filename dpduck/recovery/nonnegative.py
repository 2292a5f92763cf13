"""Options nonnegative and integer: changes after the noise that bias sums (DESIGN section 7, trap 8), totals kept.

What is guaranteed. A table's sum afterwards is max(its sum before, 0); with `integer` that sum rounded.

- nonnegative_table: the nearest non-negative table with that sum, each table alone; margins of different tables agree
  no longer.
- nonnegative_consistent: non-negative tables that agree on all shared margins, near the least squares answer: the
  Dykstra projections onto "each table non-negative" and "all tables consistent" in turn, then the least step towards
  the even table that makes every cell non-negative. Exactly consistent (to rounding) and exactly non-negative.
  Workloads with more than MOST_STEPS subsets and members are projected table by table.
- integer_table: each cell becomes one of its two neighbouring integers, those with the largest remainders the upper;
  the sum is the rounded sum. A non-negative table stays so. Tables of equal sums keep equal sums, other shared
  margins may differ by less than the number of cells summed: no rounding keeps all margins of a cube in general.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpduck.arrays import FloatArray
from dpduck.recovery.anova import centre, spread_evenly
from dpduck.workload.lattice import MOST_STEPS, Lattice, close_downward, closure_steps
from dpduck.workload.marginals import MarginalWorkload

MOST_ROUNDS = 200
"""Dykstra projections at most; the last step makes the answer feasible wherever they stop."""

CLOSE = 1e-9
"""The projections stop when no cell is more negative than this part of the total."""


def nonnegative_table(table: FloatArray) -> FloatArray:
    """The non-negative table with the sum max(sum, 0) that is nearest in squares: the simplex projection.

    >>> nonnegative_table(np.array([3.0, 1.0, -2.0]))
    array([2., 0., 0.])
    """
    total = float(table.sum())
    if total <= 0:
        return np.zeros_like(table)
    if table.size == 0 or float(table.min()) >= 0:
        return table.copy()
    falling = np.sort(table, axis=None)[::-1]
    taken = (np.cumsum(falling) - total) / np.arange(1, falling.size + 1)
    level = taken[np.flatnonzero(falling > taken)[-1]]
    projected: FloatArray = np.maximum(table - level, 0.0)
    return projected


def integer_table(table: FloatArray) -> FloatArray:
    """Every cell rounded down or up, largest remainders up, so that the sum is the rounded sum.

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


def nonnegative_consistent(
    workload: MarginalWorkload, answers: Sequence[FloatArray], variances: Sequence[float]
) -> tuple[FloatArray, ...]:
    """Non-negative tables, consistent with each other, near the consistent `answers` in squares over variance.

    answers: consistent tables, in the order of workload.marginals. Every table ends with the sum max(sum, 0).
    """
    if len(set(workload.marginals)) == 1 or closure_steps(workload.marginals) > MOST_STEPS:
        return tuple(nonnegative_table(table) for table in answers)
    total = float(answers[0].sum())
    if total <= 0:
        return tuple(np.zeros_like(table) for table in answers)
    pull = _Projection(close_downward(workload.marginals, workload.sizes), workload, variances)
    current = [table.copy() for table in answers]
    corrections = [np.zeros_like(table) for table in answers]
    for _ in range(MOST_ROUNDS):
        if min(float(table.min()) for table in current) >= -CLOSE * total:
            break
        moved = [table + correction for table, correction in zip(current, corrections, strict=True)]
        clipped = [nonnegative_table_of(table, total) for table in moved]
        corrections = [before - after for before, after in zip(moved, clipped, strict=True)]
        current = pull.consistent(clipped)
    return _lift(current, total)


def nonnegative_table_of(table: FloatArray, total: float) -> FloatArray:
    """The nearest non-negative table with a given positive sum."""
    shift = (total - float(table.sum())) / table.size
    return nonnegative_table(table + shift)


def _lift(tables: Sequence[FloatArray], total: float) -> tuple[FloatArray, ...]:
    """The least step towards the even table of this total that leaves no cell negative; it keeps all margins."""
    share = 0.0
    for table in tables:
        even, least = total / table.size, float(table.min())
        if least < 0:
            share = max(share, least / (least - even))
    lifted = [(1 - share) * table + share * total / table.size for table in tables]
    return tuple(np.maximum(table, 0.0) for table in lifted)


class _Projection:
    """Least squares onto consistent tables, weights 1/variance, in ANOVA components (DESIGN 4.3)."""

    def __init__(self, lattice: Lattice, workload: MarginalWorkload, variances: Sequence[float]) -> None:
        sizes = np.asarray(lattice.sizes, dtype=np.float64)
        self.lattice = lattice
        cells = lattice.products(sizes)[lattice.family]
        self.scales = 1 / (cells * np.asarray(variances, dtype=np.float64))  # 1/(n_A v_A)
        self.precisions = lattice.sum_over_supersets(lattice.family_totals(self.scales), np.ones(len(sizes)))

    def consistent(self, tables: Sequence[FloatArray]) -> list[FloatArray]:
        """The consistent tables nearest to these."""
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
