"""Total error of weighted views after least squares under pure epsilon, and the budgets that lower it.

A view is a marginal that is measured, asked for or not. With budgets eta_V that add up to 1, discrete noise in its
continuous limit 2/eta^2, and components B in the workload's closure,

    D_B = sum over views V containing B of eta_V^2 / (2 n_V)
    f   = sum over B of c_B / D_B,    c_B = prod_{i in B} (n_i - 1) * sum over asked A containing B of w_A / n_A,

the total variance for epsilon = 1. f is homogeneous of degree -2 and not convex: its minima use few views.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import shake_128
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from dpduck.algebra.lattice import WORD, Lattice, MarginalWorkload
from dpduck.values.arrays import BoolArray, FloatArray, IndexArray

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
        """Returns the objective of a workload; components of attributes of one value are empty and left to 0."""
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
        """Returns numbers of the components that are not empty."""
        return np.flatnonzero(self.coefficients > 0)

    @cached_property
    def kept_coefficients(self) -> FloatArray:
        """c_B of those."""
        return self.coefficients[self.kept]

    @cached_property
    def component_codes(self) -> NDArray[np.int64]:
        """Returns a bit per attribute of each component kept; only for domains that fit a word."""
        return self.lattice.membership[self.kept] @ self.bits

    @cached_property
    def bits(self) -> NDArray[np.int64]:
        """Returns the bit of each attribute."""
        return np.left_shift(np.int64(1), np.arange(len(self.lattice.attributes), dtype=np.int64))

    @property
    def fits_a_word(self) -> bool:
        """Tells whether views can be coded as the bits of an int64."""
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
        """Returns the same from Boolean views: dense, or by transforms, or sparse."""
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
        """Returns budgets after some rounds of optimal recovery, then optimal budgets for it; and f there.

        Least squares takes component B from view V with weight p = eta_V^2 / (2 n_V D_B); with that recovery held,
        s_V proportional to n_V sum_B c_B p^2 and the paper's optimum eta_V proportional to s_V^(1/3).
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
        self, views: BoolArray, budgets: FloatArray, tolerance: float, limit: WorkLimit
    ) -> tuple[BoolArray, FloatArray, float]:
        """Returns the local optimum that these budgets lead to, without views of no use.

        f is infinite where B is missed. The search stops when a chunk of rounds gains less than `tolerance` of f, or
        when the limit is reached.
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
            if improved > error * (1 - tolerance) or limit.passed:
                break
            error = improved
        return views, budgets / budgets.sum(), self.value(incidence, cells, budgets)


def _above_nothing(measured: FloatArray) -> FloatArray:
    """Returns precisions, with what is not measured at a tiny part of the largest."""
    raised: FloatArray = np.maximum(measured, NOTHING * measured.max())
    return raised


# Which view contains which component of a large workload: sparse rows, or two transforms over the lattice.


def find_sets(lattice: Lattice, subsets: IndexArray) -> IndexArray:
    """Returns numbers in the lattice of sets of one order, one a row of increasing attribute indices; -1 where it has
    none.

    >>> from dpduck.algebra.lattice import close_downward
    >>> find_sets(close_downward([(0, 1), (2,)], (2, 2, 2)), np.array([[0, 1], [1, 2]])).tolist()
    [4, -1]
    """
    order = subsets.shape[1]
    if order >= len(lattice.members):
        return np.full(len(subsets), -1, dtype=np.intp)
    radix = len(lattice.attributes)
    kind = np.int64 if radix**order < 1 << WORD else object
    places = np.array([radix**place for place in range(order)], dtype=kind)
    codes, wanted = lattice.members[order].astype(kind) @ places, subsets.astype(kind) @ places
    ranking = np.argsort(codes, kind="stable")
    slots = np.minimum(np.searchsorted(codes[ranking], wanted), len(codes) - 1)
    found = ranking[slots]
    return np.asarray(np.where(codes[found] == wanted, found + lattice.offsets[order], -1), dtype=np.intp)


def sparse_incidence(lattice: Lattice, kept: IndexArray, views: BoolArray) -> scipy.sparse.csr_array:
    """1 where a view contains one of the components kept: subsets of each view looked up level by level."""
    orders = views.sum(axis=1)
    rows, columns = [np.zeros(0, dtype=np.intp)], [np.zeros(0, dtype=np.intp)]
    for size in np.unique(orders).tolist():
        chosen = np.flatnonzero(orders == size)
        members = np.nonzero(views[chosen])[1].reshape(len(chosen), size)
        for order in range(min(size, len(lattice.members) - 1) + 1):
            count = comb(size, order)
            picks = np.array(list(combinations(range(size), order)), dtype=np.intp).reshape(count, order)
            found = find_sets(lattice, members[:, picks].reshape(len(chosen) * count, order))
            rows.append(np.repeat(chosen, count)[found >= 0])
            columns.append(found[found >= 0])
    renumbered = np.full(len(lattice), -1, dtype=np.intp)
    renumbered[kept] = np.arange(len(kept))
    row, column = np.concatenate(rows), renumbered[np.concatenate(columns)]
    row, column = row[column >= 0], column[column >= 0]
    return scipy.sparse.csr_array((np.ones(len(row)), (row, column)), shape=(len(views), len(kept)))


@dataclass(frozen=True, eq=False)
class LatticeIncidence:
    """Views that are themselves sets of the lattice, by number: their incidence is never built."""

    lattice: Lattice
    kept: IndexArray
    views: IndexArray
    transposed: bool = False

    @property
    def T(self) -> LatticeIncidence:  # noqa: N802 - as on arrays
        """Returns the transposed operator."""
        return LatticeIncidence(self.lattice, self.kept, self.views, not self.transposed)

    def __getitem__(self, rows: BoolArray) -> LatticeIncidence:
        return LatticeIncidence(self.lattice, self.kept, self.views[rows], self.transposed)

    def __matmul__(self, values: FloatArray) -> FloatArray:
        ones = np.ones(len(self.lattice.attributes))
        held = np.zeros(len(self.lattice))
        held[self.views if self.transposed else self.kept] = values
        if self.transposed:
            return self.lattice.sum_over_supersets(held, ones)[self.kept]
        return self.lattice.sum_over_subsets(held, ones)[self.views]


def lattice_incidence(lattice: Lattice, kept: IndexArray, views: BoolArray) -> LatticeIncidence | None:
    """Returns the operator where every view is a set of the lattice, each once; else None."""
    orders = views.sum(axis=1)
    numbers = np.full(len(views), -1, dtype=np.intp)
    for size in np.unique(orders).tolist():
        chosen = np.flatnonzero(orders == size)
        numbers[chosen] = find_sets(lattice, np.nonzero(views[chosen])[1].reshape(len(chosen), size))
    if (numbers < 0).any() or len(np.unique(numbers)) < len(numbers):
        return None
    return LatticeIncidence(lattice, kept, numbers)


# When an anytime search must end.


class WorkLimit:
    """A limit that counts down from `seconds`. A step counts with its time on an idle machine, not by a clock.

    A price that follows from a search is thus the same however busy the machine is.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.left = seconds

    def work(self, seconds: float) -> None:
        """Counts a step that takes this time."""
        self.left = max(0.0, self.left - seconds)

    @property
    def passed(self) -> bool:
        """Tells whether no time is left."""
        return self.left <= 0


def round_seconds(incidence: Any) -> float:
    """Estimates the time of one round of better budgets on an idle machine."""
    if isinstance(incidence, np.ndarray):
        return 2e-5 + 1e-9 * incidence.size
    if isinstance(incidence, LatticeIncidence):
        return 5e-5 + 5e-9 * len(incidence.lattice) * len(incidence.lattice.attributes)
    return 5e-5 + 6e-9 * float(incidence.nnz)


# Reproducible pseudo-random numbers for searches over public facts: a hash in counter mode, never used for
# noise.

BLOCK = 1 << 14
"""Numbers drawn from the hash at once."""


class HashCounter:
    """Uniform numbers in [0, 1) that depend on the key alone.

    >>> first, again = HashCounter("a"), HashCounter("a")
    >>> first.uniform() == again.uniform()
    True
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._block = 0
        self._numbers: list[float] = []

    def uniform(self) -> float:
        """Returns the next number."""
        if not self._numbers:
            self._numbers = self._next_block().tolist()
        return self._numbers.pop()

    def below(self, limit: int) -> int:
        """Returns the next number as an integer from 0 to limit - 1."""
        return int(self.uniform() * limit)

    def _next_block(self) -> NDArray[np.float64]:
        digest = shake_128(f"{self._key}/{self._block}".encode()).digest(8 * BLOCK)
        self._block += 1
        words = np.frombuffer(digest, dtype="<u8") >> np.uint64(11)
        numbers: NDArray[np.float64] = words.astype(np.float64) / float(1 << 53)
        return numbers
