"""Total error of weighted views after least squares under pure epsilon, and the budgets that lower it.

A view is a measured marginal, asked or not. The budgets eta_V add up to 1. Noise is taken to have the variance
2/eta_V^2 of continuous Laplace noise. n_V is the number of cells of V. For every component B in an asked marginal,

    D_B = sum over views V containing B of eta_V^2 / (2 n_V).
    f   = sum over B of c_B / D_B.    c_B = prod_{i in B} (n_i - 1) * sum over asked A containing B of w_A / n_A.

f is the total variance for epsilon = 1. It is homogeneous of degree -2 and not convex. Its minima use few views.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.lattice import WORD, Lattice
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.strategies.views.effort import WorkLimit, round_seconds
from dpduck.strategies.views.incidence import lattice_incidence, sparse_incidence
from dpduck.values.arrays import BoolArray, FloatArray

DENSE = 6_000_000
"""Most entries of a dense incidence of views and components."""

LEAST_WEIGHT = 1e-9
"""A marginal without weight gets this part of the largest weight, since it must stay answerable."""

NOTHING = 1e-14
"""Precision that a search gives to an unmeasured component, as a part of the largest precision."""

UNCOVERED = 1e-13
"""A component with at most this part of the largest precision counts as not measured."""

USELESS = 1e-6
"""Views with less than this part of the largest budget are dropped if that costs nothing."""

MOST_CHUNKS = 200


@dataclass(frozen=True, eq=False)
class ViewObjective:
    """Total variance f of views. Views are Boolean rows over `lattice.attributes`. coefficients: c_B of each set B."""

    lattice: Lattice
    coefficients: FloatArray

    @classmethod
    def of(cls, workload: MarginalWorkload, lattice: Lattice) -> ViewObjective:
        """Returns the objective of a workload. Components with an attribute of one value are empty: c_B is 0."""
        weights = np.asarray(workload.weights, dtype=np.float64)
        weights = np.maximum(weights, LEAST_WEIGHT * weights.max(initial=0.0)) if weights.any() else weights + 1
        sizes = np.asarray(lattice.sizes, dtype=np.float64)
        shares = lattice.family_totals(weights) / lattice.products(sizes)
        above = lattice.sum_over_supersets(shares, np.ones(len(sizes)))
        return cls(lattice, above * lattice.products(sizes - 1))

    @cached_property
    def log_sizes(self) -> FloatArray:
        return np.log(np.asarray(self.lattice.sizes, dtype=np.float64))

    @cached_property
    def nonempty(self) -> NDArray[np.intp]:
        """Returns the lattice numbers of the components that are not empty."""
        return np.flatnonzero(self.coefficients > 0)

    @cached_property
    def kept_coefficients(self) -> FloatArray:
        return self.coefficients[self.nonempty]

    @cached_property
    def component_codes(self) -> NDArray[np.int64]:
        return self.lattice.membership[self.nonempty] @ self.bits

    @cached_property
    def bits(self) -> NDArray[np.int64]:
        return np.left_shift(np.int64(1), np.arange(len(self.lattice.attributes), dtype=np.int64))

    @property
    def fits_a_word(self) -> bool:
        """Tells whether the bits of an int64 can code a view: one bit for each attribute."""
        return len(self.lattice.attributes) <= WORD

    def cells(self, views: BoolArray) -> FloatArray:
        return np.exp(views @ self.log_sizes)

    def incidence_of_codes(self, codes: NDArray[np.int64]) -> FloatArray:
        contained: BoolArray = (self.component_codes & ~codes[:, None]) == 0
        return contained.astype(np.float64)

    def incidence(self, views: BoolArray) -> Any:
        """Returns the matrix with 1 where a view contains a kept component: dense, or by lattice sums, or sparse."""
        if self.fits_a_word and len(views) * len(self.nonempty) <= DENSE:
            return self.incidence_of_codes(views @ self.bits)
        return lattice_incidence(self.lattice, self.nonempty, views) or sparse_incidence(
            self.lattice, self.nonempty, views
        )

    def precisions(self, incidence: Any, cells: FloatArray, budgets: FloatArray) -> FloatArray:
        """Returns the precision D_B of each kept component. cells, budgets: n_V and eta_V of each view."""
        measured: FloatArray = incidence.T @ (budgets * budgets / (2 * cells))
        return measured

    def value(self, incidence: Any, cells: FloatArray, budgets: FloatArray) -> float:
        """Returns the total variance f at budgets scaled to a sum of 1. It is infinite if a component is unmeasured."""
        measured = self.precisions(incidence, cells, budgets)
        if len(measured) and measured.min() <= UNCOVERED * measured.max():
            return float("inf")
        return float((self.kept_coefficients / measured).sum() * budgets.sum() ** 2)

    def gradient(self, incidence: Any, cells: FloatArray, budgets: FloatArray) -> FloatArray:
        """Returns the derivative of f in each budget, unscaled: -(eta_V / n_V) times the sum of c_B/D_B^2 in V."""
        measured = self.precisions(incidence, cells, budgets)
        slope: FloatArray = -budgets / cells * (incidence @ (self.kept_coefficients / measured**2))
        return slope

    def improve(self, incidence: Any, cells: FloatArray, budgets: FloatArray, rounds: int) -> tuple[FloatArray, float]:
        """Returns budgets and their f after some rounds. A round finds the best recovery, then the best budgets for it.

        Least squares takes component B from view V with weight p = eta_V^2 / (2 n_V D_B). For this recovery, the weight
        s_V of view V is proportional to n_V sum_B c_B p^2, and the paper's optimum eta_V to s_V^(1/3). Neither step
        raises f. An unmeasured component has a very high cost, but not an infinite cost.
        """
        coefficients, transposed = self.kept_coefficients, incidence.T
        twice = 2 * cells
        shares = budgets / budgets.sum()
        for _ in range(rounds):
            squares = shares * shares
            measured = _above_nothing(transposed @ (squares / twice))
            weights = coefficients / measured
            weights /= measured
            shares = np.cbrt(squares * squares * (incidence @ weights) / cells)
            shares /= shares.sum()
        measured = _above_nothing(transposed @ (shares * shares / twice))
        return shares, float((coefficients / measured).sum())

    def converge(
        self, views: BoolArray, budgets: FloatArray, tolerance: float, limit: WorkLimit
    ) -> tuple[BoolArray, FloatArray, float]:
        """Returns views, budgets and f of the local optimum that these budgets lead to, without useless views.

        f is infinite if a component is not measured. The search ends at the limit or at a relative gain below
        `tolerance`.
        """
        incidence, cells, error = self.incidence(views), self.cells(views), np.inf
        rounds = 25 if isinstance(incidence, np.ndarray) else 6
        for _ in range(MOST_CHUNKS):
            limit.work(rounds * round_seconds(incidence))
            budgets, improved = self.improve(incidence, cells, budgets, rounds)
            useful = budgets > USELESS * budgets.max()
            if not useful.all() and self.value(incidence[useful], cells[useful], budgets[useful]) <= improved * (
                1 + 1e-9
            ):
                views, budgets, cells, incidence = views[useful], budgets[useful], cells[useful], incidence[useful]
            if improved > error * (1 - tolerance) or limit.is_over:
                break
            error = improved
        return views, budgets / budgets.sum(), self.value(incidence, cells, budgets)


def _above_nothing(measured: FloatArray) -> FloatArray:
    raised: FloatArray = np.maximum(measured, NOTHING * measured.max())
    return raised
