"""The nearest consistent marginals for p = 1 and p = infinity, by linear programs (paper, section 4.3).

Consistent marginals are the range of the workload; its ANOVA coordinates are the variables: for every set U of the
closure prod_{i in U} (n_i - 1) of them, together the rank of the workload, never N. Coordinates are the counts of
marginal U at values other than the first ("corner" contrasts): they span what Fourier coefficients span, and keep
the matrix sparse. The program corrects the least squares answer, so its numbers stay of the size of the noise:

    p = 1:         minimise sum of w |y - C theta|,     p = infinity:  minimise max of w |y - C theta|,

The second has no unique optimum: of all tables at the least maximum the one nearest to least squares answers.
w = 1/stderr of each answer (all equal under uniform budgets, as in the paper). HiGHS's interior point method
with crossover solves 5,000 cells in about a second and 20,000 in about a minute; the planner refuses more.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import scipy
from numpy.typing import NDArray

from dpduck.algebra.lattice import MOST_STEPS, Lattice, MarginalWorkload, close_downward, closure_steps
from dpduck.strategies.variance import centre, spread_evenly
from dpduck.values.arrays import FloatArray

TIGHT = 2.0**-26
"""By so much of it the least maximum may be exceeded, for the sake of rounding."""

MOST_HELD, MOST_STAGES, SMALLEST = 1_000, 100, 1e-12


def nearest_consistent(
    workload: MarginalWorkload,
    answers: Sequence[FloatArray],
    deviations: Sequence[float],
    start: Sequence[FloatArray],
    consistency: str,
) -> tuple[FloatArray, ...]:
    """Returns consistent tables at the least weighted distance from `answers`, in the norm that `consistency` names.

    deviations: standard error of a cell of each marginal. start: any consistent tables; least squares is a good one.
    """
    lattice = close_downward(workload.marginals, workload.sizes)
    design = coordinates(lattice)
    residual = np.concatenate([(got - base).ravel() for got, base in zip(answers, start, strict=True)])
    widths = np.array(deviations) / max(deviations)
    weights = np.repeat(1 / widths, [table.size for table in answers])
    theta = (_least_sum if consistency == "l1" else _least_maximum)(design, residual, weights)
    if consistency == "linf":
        theta = _nearest_to_start(design, residual, weights, theta)
    correction = np.split(design @ theta, np.cumsum([table.size for table in answers])[:-1])
    return tuple(base + moved.reshape(base.shape) for base, moved in zip(start, correction, strict=True))


def coordinates(lattice: Lattice) -> scipy.sparse.csr_array:
    """Returns the matrix from ANOVA coordinates to the cells of the family's marginals, row-major, in turn."""
    lengths = np.rint(lattice.products(np.asarray(lattice.sizes) - 1.0)).astype(np.intp)
    offsets = np.cumsum(lengths) - lengths
    blocks = [_block(lattice, number, offsets, int(lengths.sum())) for number in lattice.family.tolist()]
    return scipy.sparse.csr_array(scipy.sparse.vstack(blocks, format="csr"))


def _block(lattice: Lattice, number: int, offsets: NDArray[np.intp], width: int) -> scipy.sparse.csr_array:
    """Returns one marginal's rows: the Kronecker product of corner matrices, its columns sent to their coordinates."""
    names = lattice.sets[number]
    sizes = [lattice.sizes[lattice.attributes.index(attribute)] for attribute in names]
    columns = np.empty(tuple(sizes), dtype=np.intp)
    for held in product((0, 1), repeat=len(names)):  # index 0 along an axis: the attribute is not in U
        subset = tuple(name for name, inside in zip(names, held, strict=True) if inside)
        place = tuple(slice(1, None) if inside else 0 for inside in held)
        found = columns[place]
        columns[place] = offsets[lattice.numbers[subset]] + np.arange(found.size).reshape(found.shape)
    block = scipy.sparse.csr_array(np.ones((1, 1)))
    for size in sizes:
        block = scipy.sparse.csr_array(scipy.sparse.kron(block, _corner(size), format="csr"))
    return scipy.sparse.csr_array(
        (block.data, columns.ravel()[block.indices], block.indptr), shape=(block.shape[0], width)
    )


def _corner(size: int) -> scipy.sparse.csr_array:
    """Counts by value from (total, counts of the other values): the first value is the total less the others."""
    corner = np.eye(size)
    corner[0, 1:] = -1.0
    return scipy.sparse.csr_array(corner)


def _least_sum(design: scipy.sparse.csr_array, residual: FloatArray, weights: FloatArray) -> FloatArray:
    """theta that minimises sum of weights |residual - design theta|: residual = design theta + over - under."""
    cells, rank = design.shape
    identity = scipy.sparse.eye_array(cells, format="csr")
    solved = scipy.optimize.linprog(
        np.concatenate([np.zeros(rank), weights, weights]),
        A_eq=scipy.sparse.hstack([design, identity, -identity], format="csr"),
        b_eq=residual,
        bounds=[(None, None)] * rank + [(0, None)] * (2 * cells),
        method="highs-ipm",
    )
    return _solution(solved, rank)


def _least_maximum(design: scipy.sparse.csr_array, residual: FloatArray, weights: FloatArray) -> FloatArray:
    """theta that minimises the largest of weights |residual - design theta|: one more variable bounds them all."""
    rank = design.shape[1]
    width = scipy.sparse.csr_array(1 / weights[:, None])
    upper = scipy.sparse.hstack([design, -width], format="csr")
    lower = scipy.sparse.hstack([-design, -width], format="csr")
    solved = scipy.optimize.linprog(
        np.concatenate([np.zeros(rank), [1.0]]),
        A_ub=scipy.sparse.vstack([upper, lower], format="csr"),
        b_ub=np.concatenate([residual, -residual]),
        bounds=[(None, None)] * rank + [(0, None)],
        method="highs-ipm",
    )
    return _solution(solved, rank)


def _nearest_to_start(
    design: scipy.sparse.csr_array, residual: FloatArray, weights: FloatArray, optimum: FloatArray
) -> FloatArray:
    """Returns the theta of least weighted squares among all that reach the least maximum, or that optimum where none is
    found.

    The bounds on weights (residual - design theta) that theta = 0 violates are few, in the worst tables alone. They
    are met by the least move, and then so are those that this move violates.
    """
    scaled = scipy.sparse.csr_array(scipy.sparse.diags_array(weights) @ design)
    target = weights * residual
    least = float(np.abs(target - scaled @ optimum).max())
    solve = scipy.sparse.linalg.splu(scipy.sparse.csc_array(scaled.T @ scaled)).solve
    both = scipy.sparse.csr_array(
        scipy.sparse.vstack([scaled, -scaled])
    )  # both theta >= bounds: below the maximum on either side
    bounds = np.concatenate([target, -target]) - least * (1 + TIGHT)
    theta, held = np.zeros(design.shape[1]), np.zeros(0, dtype=np.intp)
    for _ in range(MOST_STAGES):
        wrong = np.flatnonzero(bounds - both @ theta > least * TIGHT)
        if wrong.size == 0:
            return theta
        held = np.union1d(held, wrong)
        if held.size > MOST_HELD or least == 0:
            break
        moves = solve(both[held].T.toarray())
        theta = moves @ _multipliers(both[held] @ moves, bounds[held])
    return optimum


def _multipliers(products: FloatArray, bounds: FloatArray) -> FloatArray:
    """lambda >= 0 with G'lambda the shortest x for which G x >= bounds, from G G' (Lawson and Hanson, ch. 23)."""
    values, vectors = np.linalg.eigh(products)
    roots = vectors * np.sqrt(np.maximum(values, 0))
    scale = float(np.abs(bounds).max())
    found, _ = scipy.optimize.nnls(np.vstack([roots.T, bounds / scale]), np.append(np.zeros(len(bounds)), 1.0))
    multipliers: FloatArray = found * scale / max(1 - float(bounds @ found) / scale, SMALLEST)
    return multipliers


def _solution(solved: object, rank: int) -> FloatArray:
    """Returns the coordinates of a solved program; both programs are feasible and bounded, so they always solve."""
    values: FloatArray | None = getattr(solved, "x", None)
    if values is None:
        raise ArithmeticError("the linear program of the consistency step was not solved")
    return values[:rank]


# Options nonnegative and integer: changes after the noise that bias sums, totals
# kept.
#
# What is guaranteed. A table's sum afterwards is max(its sum before, 0); with `integer` that sum rounded.
#
# - nonnegative_table: the nearest non-negative table with that sum, each table alone; margins of different
# tables agree no longer. - nonnegative_consistent: non-negative tables that agree on all shared margins, near
# the least squares answer: the Dykstra projections onto "each table non-negative" and "all tables consistent"
# in turn, then the least step towards the even table that makes every cell non-negative. Exactly consistent
# (to rounding) and exactly non-negative. Workloads with more than MOST_STEPS subsets and members are
# projected table by table. - integer_table: each cell becomes one of its two neighbouring integers, those
# with the largest remainders the upper; the sum is the rounded sum. A non-negative table stays so. -
# integer_margins: where one table has all attributes it is rounded, and the others are its sums, so that all
# agree. Else tables of equal sums keep equal sums, and other shared margins may differ by less than the number
# of cells summed.

MOST_ROUNDS = 200
"""Dykstra projections at most; the last step makes the answer feasible wherever they stop."""

CLOSE = 1e-9
"""The projections stop when no cell is more negative than this part of the total."""


def nonnegative_table(table: FloatArray) -> FloatArray:
    """Returns the non-negative table with the sum max(sum, 0) that is nearest in squares: the simplex projection.

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
    """Returns every cell rounded down or up, largest remainders up, so that the sum is the rounded sum.

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
    """Returns every cell rounded down or up. Rounding begins with the total, and splits it axis by axis.

    The sums over the last axes are within one, too. Others err less than where cells alone decide.

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
    """Returns consistent tables as whole numbers: sums of a table that has all attributes, else each by itself."""
    whole = set().union(*workload.marginals)
    finest = next((number for number, one in enumerate(workload.marginals) if set(one) == whole), None)
    if finest is None or len(tables) == 1:
        return tuple(integer_table(table) for table in tables)
    cells, attributes = integer_cube(tables[finest]), workload.marginals[finest]
    gone = [
        tuple(axis for axis, attribute in enumerate(attributes) if attribute not in marginal)
        for marginal in workload.marginals
    ]
    return tuple(np.asarray(cells.sum(axis=axes)) for axes in gone)


def nonnegative_consistent(
    workload: MarginalWorkload, answers: Sequence[FloatArray], variances: Sequence[float]
) -> tuple[FloatArray, ...]:
    """Returns non-negative tables, consistent with each other, near the consistent `answers` in squares over variance.

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
    """Returns the nearest non-negative table with a given positive sum."""
    shift = (total - float(table.sum())) / table.size
    return nonnegative_table(table + shift)


def _lift(tables: Sequence[FloatArray], total: float) -> tuple[FloatArray, ...]:
    """Returns the least step towards the even table of this total that leaves no cell negative; margins stay."""
    share = 0.0
    for table in tables:
        even, least = total / table.size, float(table.min())
        if least < 0:
            share = max(share, least / (least - even))
    lifted = [(1 - share) * table + share * total / table.size for table in tables]
    return tuple(np.maximum(table, 0.0) for table in lifted)


class _Projection:
    """Least squares onto consistent tables, weights 1/variance, in ANOVA components."""

    def __init__(self, lattice: Lattice, workload: MarginalWorkload, variances: Sequence[float]) -> None:
        sizes = np.asarray(lattice.sizes, dtype=np.float64)
        self.lattice = lattice
        cells = lattice.products(sizes)[lattice.family]
        self.scales = 1 / (cells * np.asarray(variances, dtype=np.float64))  # 1/(n_A v_A)
        self.precisions = lattice.sum_over_supersets(lattice.family_totals(self.scales), np.ones(len(sizes)))

    def consistent(self, tables: Sequence[FloatArray]) -> list[FloatArray]:
        """Returns the consistent tables nearest to these."""
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
