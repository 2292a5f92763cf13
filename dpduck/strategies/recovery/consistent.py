"""Nearest consistent marginals in the L1 or the L-infinity norm, by linear programs (paper, section 4.3).

Marginals are consistent if some table has them. For each subset U of an asked marginal, the variables theta are the
counts at values other than the first. They determine all consistent marginals, by a sparse matrix C. The program
corrects the least squares answer. With y for the noisy answers less least squares, and w = 1/stderr,

    'l1': minimise the sum of w |y - C theta|,     'linf': minimise the maximum of w |y - C theta|.

Of all tables at the least maximum, the answer is the nearest to least squares. HiGHS solves 5,000 cells in about a
second and 20,000 in about a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import scipy
from numpy.typing import NDArray

from dpduck.algebra.lattice import Lattice, close_downward
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.values.arrays import FloatArray

TIGHT = 2.0**-26
"""Relative excess over the least maximum that is allowed for rounding errors."""

MOST_HELD, MOST_STAGES, SMALLEST = 1_000, 100, 1e-12


def nearest_consistent(
    workload: MarginalWorkload,
    answers: Sequence[FloatArray],
    deviations: Sequence[float],
    start: Sequence[FloatArray],
    consistency: str,
) -> tuple[FloatArray, ...]:
    """Returns consistent tables at the least weighted distance from `answers`, in the norm 'l1' or 'linf'.

    deviations: standard error of a cell in each marginal. start: any consistent tables, preferably by least squares.
    """
    lattice = close_downward(workload.marginals, workload.sizes)
    design = coordinates(lattice)
    residual = np.concatenate([(answer - base).ravel() for answer, base in zip(answers, start, strict=True)])
    widths = np.array(deviations) / max(deviations)
    weights = np.repeat(1 / widths, [table.size for table in answers])
    theta = (_least_sum if consistency == "l1" else _least_maximum)(design, residual, weights)
    if consistency == "linf":
        theta = _nearest_to_start(design, residual, weights, theta)
    correction = np.split(design @ theta, np.cumsum([table.size for table in answers])[:-1])
    return tuple(base + moved.reshape(base.shape) for base, moved in zip(start, correction, strict=True))


def coordinates(lattice: Lattice) -> scipy.sparse.csr_array:
    """Returns the matrix from the variables theta (see above) to the cells of all marginals in turn, row-major."""
    lengths = np.rint(lattice.products(np.asarray(lattice.sizes) - 1.0)).astype(np.intp)
    offsets = np.cumsum(lengths) - lengths
    blocks = [_block(lattice, number, offsets, int(lengths.sum())) for number in lattice.family.tolist()]
    return scipy.sparse.csr_array(scipy.sparse.vstack(blocks, format="csr"))


def _block(lattice: Lattice, number: int, offsets: NDArray[np.intp], width: int) -> scipy.sparse.csr_array:
    names = lattice.sets[number]
    sizes = [lattice.sizes[lattice.attributes.index(attribute)] for attribute in names]
    columns = np.empty(tuple(sizes), dtype=np.intp)
    for flags in product((0, 1), repeat=len(names)):  # flag 0: the attribute is not in U
        subset = tuple(name for name, inside in zip(names, flags, strict=True) if inside)
        place = tuple(slice(1, None) if inside else 0 for inside in flags)
        entries = columns[place]
        columns[place] = offsets[lattice.numbers[subset]] + np.arange(entries.size).reshape(entries.shape)
    block = scipy.sparse.csr_array(np.ones((1, 1)))
    for size in sizes:
        block = scipy.sparse.csr_array(scipy.sparse.kron(block, _corner(size), format="csr"))
    return scipy.sparse.csr_array(
        (block.data, columns.ravel()[block.indices], block.indptr), shape=(block.shape[0], width)
    )


def _corner(size: int) -> scipy.sparse.csr_array:
    corner = np.eye(size)
    corner[0, 1:] = -1.0
    return scipy.sparse.csr_array(corner)


def _least_sum(design: scipy.sparse.csr_array, residual: FloatArray, weights: FloatArray) -> FloatArray:
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
    """Returns theta with the least maximum of weights |residual - design theta|. The last variable is this maximum."""
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
    """Returns the theta of least weighted squares at the least maximum, or `optimum` if the search does not end.

    theta = 0 violates few of the bounds on weights (residual - design theta), and only in the worst tables. The first
    step takes the shortest theta within those bounds. Each further step adds the bounds that the last theta violates.
    """
    scaled = scipy.sparse.csr_array(scipy.sparse.diags_array(weights) @ design)
    target = weights * residual
    least = float(np.abs(target - scaled @ optimum).max())
    solve = scipy.sparse.linalg.splu(scipy.sparse.csc_array(scaled.T @ scaled)).solve
    both = scipy.sparse.csr_array(
        scipy.sparse.vstack([scaled, -scaled])
    )  # both theta >= bounds: below the maximum on either side
    bounds = np.concatenate([target, -target]) - least * (1 + TIGHT)
    theta, active = np.zeros(design.shape[1]), np.zeros(0, dtype=np.intp)
    for _ in range(MOST_STAGES):
        violated = np.flatnonzero(bounds - both @ theta > least * TIGHT)
        if violated.size == 0:
            return theta
        active = np.union1d(active, violated)
        if active.size > MOST_HELD or least == 0:
            break
        moves = solve(both[active].T.toarray())
        theta = moves @ _multipliers(both[active] @ moves, bounds[active])
    return optimum


def _multipliers(products: FloatArray, bounds: FloatArray) -> FloatArray:
    """Returns lambda >= 0 from G G'. G'lambda is the shortest x with G x >= bounds (Lawson and Hanson, ch. 23)."""
    values, vectors = np.linalg.eigh(products)
    roots = vectors * np.sqrt(np.maximum(values, 0))
    scale = float(np.abs(bounds).max())
    solution, _ = scipy.optimize.nnls(np.vstack([roots.T, bounds / scale]), np.append(np.zeros(len(bounds)), 1.0))
    multipliers: FloatArray = solution * scale / max(1 - float(bounds @ solution) / scale, SMALLEST)
    return multipliers


def _solution(solved: object, rank: int) -> FloatArray:
    values: FloatArray | None = getattr(solved, "x", None)
    if values is None:
        raise ArithmeticError("the linear program of the consistency step was not solved")
    return values[:rank]
