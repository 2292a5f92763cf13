"""Total error of weighted views after least squares under pure epsilon, and the budgets that lower it (DESIGN 4.3).

A view is a marginal that is measured, asked for or not. With budgets eta_V that add up to 1, discrete noise in its
continuous limit 2/eta^2, and components B in the workload's closure,

    D_B = sum over views V containing B of eta_V^2 / (2 n_V)
    f   = sum over B of c_B / D_B,    c_B = prod_{i in B} (n_i - 1) * sum over asked A containing B of w_A / n_A,

the total variance for epsilon = 1. f is homogeneous of degree -2 and not convex: its minima use few views.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpduck.arrays import BoolArray, FloatArray
from dpduck.planning.search_clock import SearchClock
from dpduck.planning.view_incidence import lattice_incidence, sparse_incidence
from dpduck.workload.lattice import WORD, Lattice
from dpduck.workload.marginals import MarginalWorkload

DENSE = 6_000_000
"""Incidence of views and components is a dense matrix up to this many entries."""

LEAST_WEIGHT = 1e-9
"""A marginal without weight gets this part of the largest: it must stay answerable."""

NOTHING = 1e-14
"""What a search takes for the precision of a component that is not measured, as a part of the largest."""

UNCOVERED = 1e-13
"""A component with at most this part of the largest precision counts as not measured."""


USELESS = 1e-6
"""Views with less than this part of the largest budget are dropped where that costs nothing."""

MOST_CHUNKS = 200


@dataclass(frozen=True, eq=False)
class ViewObjective:
    """The error f of views over one workload; views are rows of a Boolean matrix over `lattice.attributes`."""

    lattice: Lattice
    coefficients: FloatArray

    @classmethod
    def of(cls, workload: MarginalWorkload, lattice: Lattice) -> ViewObjective:
        """The objective of a workload; components of attributes of one value are empty and left to 0."""
        weights = np.asarray(workload.weights, dtype=np.float64)
        weights = np.maximum(weights, LEAST_WEIGHT * weights.max(initial=0.0)) if weights.any() else weights + 1
        sizes = np.asarray(lattice.sizes, dtype=np.float64)
        shares = lattice.family_totals(weights) / lattice.products(sizes)
        above = lattice.sum_over_supersets(shares, np.ones(len(sizes)))
        return cls(lattice, above * lattice.products(sizes - 1))

    @cached_property
    def log_sizes(self) -> FloatArray:
        """log n_i."""
        return np.log(np.asarray(self.lattice.sizes, dtype=np.float64))

    @cached_property
    def kept(self) -> NDArray[np.intp]:
        """Numbers of the components that are not empty."""
        return np.flatnonzero(self.coefficients > 0)

    @cached_property
    def kept_coefficients(self) -> FloatArray:
        """c_B of those."""
        return self.coefficients[self.kept]

    @cached_property
    def component_codes(self) -> NDArray[np.int64]:
        """A bit per attribute of each component kept; only for domains that fit a word."""
        return self.lattice.membership[self.kept] @ self.bits

    @cached_property
    def bits(self) -> NDArray[np.int64]:
        """The bit of each attribute."""
        return np.left_shift(np.int64(1), np.arange(len(self.lattice.attributes), dtype=np.int64))

    @property
    def fits_a_word(self) -> bool:
        """Whether views can be coded as the bits of an int64."""
        return len(self.lattice.attributes) <= WORD

    def cells(self, views: BoolArray) -> FloatArray:
        """n_V of every view."""
        counts: FloatArray = np.exp(views @ self.log_sizes)
        return counts

    def coded_incidence(self, codes: NDArray[np.int64]) -> FloatArray:
        """1 where view V (by its bits) contains component B, shape (views, components kept)."""
        contained: BoolArray = (self.component_codes & ~codes[:, None]) == 0
        return contained.astype(np.float64)

    def incidence(self, views: BoolArray) -> Any:
        """The same from Boolean views: dense, or by transforms, or sparse."""
        if self.fits_a_word and len(views) * len(self.kept) <= DENSE:
            return self.coded_incidence(views @ self.bits)
        return lattice_incidence(self.lattice, self.kept, views) or sparse_incidence(self.lattice, self.kept, views)

    def precisions(self, incidence: Any, cells: FloatArray, budgets: FloatArray) -> FloatArray:
        """D_B of the components kept."""
        measured: FloatArray = incidence.T @ (budgets * budgets / (2 * cells))
        return measured

    def value(self, incidence: Any, cells: FloatArray, budgets: FloatArray) -> float:
        """f at these budgets scaled to add up to 1; infinite where some component is not measured."""
        measured = self.precisions(incidence, cells, budgets)
        if len(measured) and measured.min() <= UNCOVERED * measured.max():
            return float("inf")
        return float((self.kept_coefficients / measured).sum() * budgets.sum() ** 2)

    def gradient(self, incidence: Any, cells: FloatArray, budgets: FloatArray) -> FloatArray:
        """df/d eta_V of the total variance at these budgets, unscaled: -(eta_V / n_V) sum over B in V of c_B/D_B^2."""
        measured = self.precisions(incidence, cells, budgets)
        slope: FloatArray = -budgets / cells * (incidence @ (self.kept_coefficients / measured**2))
        return slope

    def improve(self, incidence: Any, cells: FloatArray, budgets: FloatArray, rounds: int) -> tuple[FloatArray, float]:
        """Budgets after some rounds of optimal recovery, then optimal budgets for it; and f there.

        Least squares takes component B from view V with weight p = eta_V^2 / (2 n_V D_B); with that recovery held,
        s_V proportional to n_V sum_B c_B p^2 and the paper's optimum eta_V proportional to s_V^(1/3) (DESIGN 4.2).
        Each of the two steps lowers f, so f never rises. An unmeasured component counts as very dear, not infinite.
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
        self, views: BoolArray, budgets: FloatArray, tolerance: float, clock: SearchClock
    ) -> tuple[BoolArray, FloatArray, float]:
        """The local optimum reached from these budgets, views of no use taken away; f is infinite where B is missed.

        Stops when a chunk of rounds gains less than `tolerance` of f, or when the clock has passed.
        """
        incidence, cells, error = self.incidence(views), self.cells(views), np.inf
        rounds = 25 if isinstance(incidence, np.ndarray) else 6
        for _ in range(MOST_CHUNKS):
            budgets, improved = self.improve(incidence, cells, budgets, rounds)
            useful = budgets > USELESS * budgets.max()
            if not useful.all() and self.value(incidence[useful], cells[useful], budgets[useful]) <= improved * (
                1 + 1e-9
            ):
                views, budgets, cells, incidence = views[useful], budgets[useful], cells[useful], incidence[useful]
            if improved > error * (1 - tolerance) or clock.passed:
                break
            error = improved
        return views, budgets / budgets.sum(), self.value(incidence, cells, budgets)


def _above_nothing(measured: FloatArray) -> FloatArray:
    """Precisions, with what is not measured at a tiny part of the largest."""
    raised: FloatArray = np.maximum(measured, NOTHING * measured.max())
    return raised
