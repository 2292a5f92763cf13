"""Estimates that meet linear equations with public right-hand sides: the projection of least squares answers.

Let y be the answers with covariance V, and C x = t the equations. The best linear unbiased estimate under them is

    y - V C' K^+ (C y - t)    with K = C V C',    and its covariance is V - V C' K^+ C V.

The second term is never negative, so that no variance grows. Equations may repeat each other: K^+ is a pseudoinverse.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import scipy

from dpduck.algebra.lattice import close_downward
from dpduck.strategies.recovery.covariances import ComponentCovariances, Covariances, TableCovariances
from dpduck.strategies.recovery.fixed_margins import UNEQUAL, cells_of
from dpduck.values.arrays import FloatArray

DEPENDENT = 1e-9
"""An eigenvalue of a correlation matrix below this number is a rounding error."""

KNOWN = 1e-9
"""A cell with less than this part of its variance left is known exactly."""

Members = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Equations:
    """Linear equations between released cells. weights: a row for each equation, a column for each cell of all sets.

    sets: the grouping sets of the cells, in order. sizes: the number of labels of each key.
    """

    sets: tuple[Members, ...]
    sizes: tuple[int, ...]
    weights: scipy.sparse.csr_array
    totals: FloatArray

    @property
    def cells(self) -> list[int]:
        """Returns the number of cells of each grouping set."""
        return cells_of(self.sets, self.sizes)

    def agree(self) -> bool:
        """Tells whether some table meets all equations. Its cells may be negative."""
        lattice = close_downward(self.sets, self.sizes)
        every = ComponentCovariances(lattice, np.ones(len(lattice)))
        roots, scales, inverse = _roots(self.weights @ _covariances_with(every, self))
        scaled = self.totals / scales
        left = scaled - roots @ (inverse.T @ scaled)
        return bool(np.abs(left * scales).max(initial=0.0) <= UNEQUAL * max(1.0, np.abs(self.totals).max(initial=0.0)))


@dataclass(frozen=True, eq=False)
class TotalsProjection:
    """Projection of all released cells onto equations. variances: of projected cells, 0 for known cells."""

    equations: Equations
    gains: FloatArray
    variances: FloatArray

    def project(self, answers: FloatArray) -> FloatArray:
        """Returns answers that meet the equations. The second step removes rounding errors of the first."""
        for _ in range(2):
            answers = answers - self.gains @ (self.equations.weights @ answers - self.equations.totals)
        return answers

    def split(self, cells: FloatArray) -> list[FloatArray]:
        """Returns the cells of each grouping set."""
        return np.split(cells, np.cumsum(self.equations.cells)[:-1])


def projection_onto(equations: Equations, covariances: Covariances) -> TotalsProjection:
    """Returns the projection of answers with these covariances."""
    crossed = _covariances_with(covariances, equations)
    _, scales, inverse = _roots(equations.weights @ crossed)
    explained = (crossed / scales) @ inverse
    own = np.concatenate(
        [
            np.full(cells, float(covariances.between(members, members)[(1,) * len(members)]))
            for members, cells in zip(equations.sets, equations.cells, strict=True)
        ]
    )
    variances = own - np.square(explained).sum(axis=1)
    variances[variances < KNOWN * own] = 0.0
    return TotalsProjection(equations, (explained @ inverse.T) / scales, variances)


def _roots(covariance: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns R and R^+' with R R' the correlation matrix of a covariance matrix, and its standard deviations."""
    scales = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    scales[scales == 0] = 1.0
    values, vectors = np.linalg.eigh(covariance / np.outer(scales, scales))
    kept = values > DEPENDENT * max(1.0, float(values.max(initial=0.0)))
    roots, chosen = np.sqrt(values[kept]), vectors[:, kept]
    return chosen * roots, scales, chosen / roots


def _covariances_with(covariances: Covariances, equations: Equations) -> FloatArray:
    """Returns V C', shape (cells, equations)."""
    starts = np.cumsum([0, *equations.cells])
    columns = scipy.sparse.csc_array(equations.weights)
    weights: dict[Members, FloatArray] = {}
    for number, members in enumerate(equations.sets):
        own = columns[:, starts[number] : starts[number + 1]]
        if own.nnz:
            weights[members] = own.T.toarray().reshape(*(equations.sizes[key] for key in members), -1)
    spread = _spread_tables if isinstance(covariances, TableCovariances) else _spread_components
    return np.concatenate(spread(covariances, equations, weights))  # type: ignore[arg-type]


def _spread_tables(
    covariances: TableCovariances, equations: Equations, weights: dict[Members, FloatArray]
) -> list[FloatArray]:
    """Sums the weights of each noisy table, over the table's cells, and then onto each grouping set."""
    sizes, lifted = equations.sizes, dict[Members, FloatArray]()
    for members, table in weights.items():
        measured, _ = covariances.sources[members]
        full = np.zeros([*(sizes[key] for key in measured), table.shape[-1]])
        full += table.reshape([*(sizes[key] if key in members else 1 for key in measured), -1])
        lifted[measured] = lifted[measured] + full if measured in lifted else full
    crossed = []
    for members, cells in zip(equations.sets, equations.cells, strict=True):
        measured, variance = covariances.sources[members]
        if measured not in lifted:
            crossed.append(np.zeros((cells, len(equations.totals))))
            continue
        outside = tuple(axis for axis, key in enumerate(measured) if key not in members)
        crossed.append(variance * lifted[measured].sum(axis=outside).reshape(cells, -1))
    return crossed


def _spread_components(
    covariances: ComponentCovariances, equations: Equations, weights: dict[Members, FloatArray]
) -> list[FloatArray]:
    """Adds c_U / (n_A n_B) times kron_{i in U} (n_i I - J) of the weights in each component U, for sets A and B."""
    sizes, width = equations.sizes, len(equations.totals)
    sums = [np.zeros([*(sizes[key] for key in members), width]) for members in equations.sets]
    for inside, variance in zip(covariances.lattice.sets, covariances.variances.tolist(), strict=True):
        part = np.zeros([*(sizes[key] for key in inside), width])
        for members, table in weights.items():
            if set(inside) <= set(members):
                outside = tuple(axis for axis, key in enumerate(members) if key not in inside)
                part += table.sum(axis=outside) / prod(sizes[key] for key in members)
        for axis, key in enumerate(inside):
            part = sizes[key] * part - part.sum(axis=axis, keepdims=True)
        for number, members in enumerate(equations.sets):
            if set(inside) <= set(members):
                shape = [*(sizes[key] if key in inside else 1 for key in members), width]
                sums[number] += variance / prod(sizes[key] for key in members) * part.reshape(shape)
    return [total.reshape(-1, width) for total in sums]
