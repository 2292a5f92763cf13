"""Candidate strategies for one workload of intervals, by name, for the L1 or the L2 norm.

Strategies with real entries are rounded to integers, with column norms as nearly equal as integers allow. Privacy is
accounted for the integers, so rounding costs a little accuracy and never any privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic

import numpy as np

from dpduck.algebra.ranges import RangeWorkload
from dpduck.strategies.ranges.gaussian_optimum import optimise_gaussian
from dpduck.strategies.ranges.haar import haar_shares, haar_wavelet
from dpduck.strategies.ranges.hierarchy import LARGEST_DENSE, Hierarchy, build_hierarchy
from dpduck.strategies.ranges.level_shares import level_shares, uniform_shares
from dpduck.strategies.ranges.p_identity import optimise_p_identity, p_identity_matrix
from dpduck.strategies.ranges.strategy import RangeStrategy, factor_over, identity_over
from dpduck.values.arrays import FloatArray, IndexArray, IntegerArray
from dpduck.values.errors import Refusal

BITS = 15
"""Entries become multiples of 2^-15 of the columns' norm. This costs less than 0.01 % of variance at 1,024 values."""


def quantise_l1(strategy: FloatArray, bits: int = BITS) -> IntegerArray:
    """Rounds 2^bits * `strategy` to integers, with column L1 norms of at most 2^bits. Largest entries absorb rounding.

    >>> quantise_l1(np.array([[0.5, 0.1], [-0.5, 0.9]]), 3).tolist()
    [[4, 1], [-4, 7]]
    """
    scaled = np.ldexp(strategy, bits)
    rounded = np.rint(scaled).astype(np.int64)
    target = np.rint(np.abs(scaled).sum(axis=0)).astype(np.int64)
    largest, columns = np.abs(rounded).argmax(axis=0), np.arange(strategy.shape[1])
    others = np.abs(rounded).sum(axis=0) - np.abs(rounded[largest, columns])
    signs = np.where(strategy[largest, columns] < 0, -1, 1)
    rounded[largest, columns] = signs * np.maximum(np.minimum(target, 1 << bits) - others, 0)
    return rounded


def quantise_l2(strategy: FloatArray, bits: int = BITS) -> IntegerArray:
    """Rounds 2^bits * `strategy` to integers, with squared L2 norms of at most 4^bits. Largest entries absorb rounding.

    >>> quantise_l2(np.array([[0.6, 1.0], [0.8, 0.0]]), 4).tolist()
    [[10, 16], [12, 0]]
    """
    rounded = np.rint(np.ldexp(strategy, bits)).astype(np.int64)
    target = np.floor(np.minimum((np.ldexp(strategy, bits) ** 2).sum(axis=0) * (1 + 1e-12), 4.0**bits)).astype(np.int64)
    largest, columns = np.abs(rounded).argmax(axis=0), np.arange(strategy.shape[1])
    others = (rounded * rounded).sum(axis=0) - rounded[largest, columns] ** 2
    left = np.maximum(target - others, 0)
    root = np.floor(np.sqrt(left.astype(np.float64))).astype(np.int64)  # exact: far below 2^52
    signs = np.where(strategy[largest, columns] < 0, -1, 1)
    rounded[largest, columns] = signs * root
    return rounded


BRANCHINGS = (2, 3, 5)
"""Branching factors that 'hierarchy' tries. A tree without some levels has powers of these, such as 4 or 8."""

SEARCH_PART = 0.55
"""Part of the remaining time for the search for a strategy. The rest is for predicting the strategy's errors."""

LEAST_BITS = 10
"""Fewest bits for strategies with real entries. With fewer, rounding loses much or makes the matrix singular."""

LEAST_PART = 0.25
"""Least part of the whole planning time that the search may take."""


@dataclass(frozen=True, eq=False)
class RangeProblem:
    """Workload, norm of its privacy cost (1: Laplace, 2: Gaussian), and `seconds` of planning time from `begin`.

    bits: precision of strategies with real entries (quantise_l1, quantise_l2), which need `least_bits` to be tried.
    uniform: whether all levels of a tree or wavelet get equal budgets.
    """

    workload: RangeWorkload
    norm: int
    seconds: float
    bits: int = BITS
    uniform: bool = False
    least_bits: int = LEAST_BITS
    begin: float = field(default_factory=monotonic)

    @cached_property
    def reduction(self) -> tuple[RangeWorkload, IndexArray]:
        return self.workload.merge_values()

    @property
    def search_seconds(self) -> float:
        left = self.begin + self.seconds - monotonic()
        return max(SEARCH_PART * left, LEAST_PART * self.seconds)

    @property
    def dense(self) -> bool:
        """Tells whether strategies with real entries may be tried: few enough buckets, and enough bits for rounding."""
        return self.reduction[0].size <= LARGEST_DENSE and self.bits >= self.least_bits


def identity_strategy(problem: RangeProblem) -> RangeStrategy:
    """Returns the strategy that counts every bucket. Its structure is a tree that has only leaves."""
    buckets, boundaries = problem.reduction
    factor = identity_over(problem.workload.size, boundaries)
    leaves = Hierarchy(buckets.size, (np.arange(buckets.size + 1),))
    return RangeStrategy("identity", problem.workload, buckets, boundaries, (factor,), np.ones(1), leaves)


def haar_strategy(problem: RangeProblem) -> RangeStrategy:
    """Returns the Haar wavelet with optimal or uniform budgets per level. Levels without a budget are left out."""
    buckets, boundaries = problem.reduction
    haar = haar_wavelet(buckets.size)
    shares = haar_shares(haar, buckets, problem.norm)
    if problem.uniform:
        shares = (shares > 0) / (shares > 0).sum()
    groups = tuple(int(group) for group in np.flatnonzero(shares))
    factors = tuple(factor_over(problem.workload.size, boundaries, haar.group_entries(group)) for group in groups)
    return RangeStrategy(
        "haar", problem.workload, buckets, boundaries, factors, shares[list(groups)], haar, groups, "inverse transform"
    )


def hierarchy_strategy(problem: RangeProblem, branchings: tuple[int, ...] = BRANCHINGS) -> RangeStrategy:
    """Returns the best tree: one of each branching factor is tried. Levels have optimal or uniform budgets, or none."""
    buckets, boundaries = problem.reduction
    trees = [build_hierarchy(buckets.size, branching) for branching in branchings]
    shares_of = uniform_shares if problem.uniform else level_shares
    plans = [shares_of(tree, buckets, problem.norm) for tree in trees]
    best = int(np.argmin([total for _, total in plans]))
    tree, shares = trees[best], plans[best][0]
    groups = tuple(int(level) for level in np.flatnonzero(shares))
    size = problem.workload.size
    factors = tuple(
        identity_over(size, boundaries)
        if level == tree.levels - 1
        else factor_over(size, boundaries, tree.level_entries(level))
        for level in groups
    )
    nodes = ", ".join(str(len(tree.boundaries[level]) - 1) for level in groups)
    note = f"branching {branchings[best]}; measured levels of {nodes} nodes"
    return RangeStrategy(
        "hierarchy", problem.workload, buckets, boundaries, factors, shares[list(groups)], tree, groups, note
    )


def p_identity_strategy(problem: RangeProblem) -> RangeStrategy:
    """Returns HDMM's p-identity, rounded to integers. All columns have exactly equal L1 norms."""
    buckets, boundaries = problem.reduction
    theta = optimise_p_identity(buckets, problem.search_seconds)
    factor = factor_over(problem.workload.size, boundaries, quantise_l1(p_identity_matrix(theta), problem.bits))
    note = f"p = {len(theta)} overlapping bumps"
    return RangeStrategy("p_identity", problem.workload, buckets, boundaries, (factor,), np.ones(1), note=note)


def gaussian_strategy(problem: RangeProblem) -> RangeStrategy:
    """Returns the optimal Gaussian strategy, rounded to integers."""
    buckets, boundaries = problem.reduction
    optimum = optimise_gaussian(buckets.gram, problem.search_seconds)
    factor = factor_over(problem.workload.size, boundaries, quantise_l2(optimum.matrix, problem.bits))
    gap = max(0.0, optimum.total / optimum.lower_bound - 1)
    note = f"total variance within {100 * gap:.2g} % of every Gaussian strategy's lower bound"
    return RangeStrategy("gaussian_optimum", problem.workload, buckets, boundaries, (factor,), np.ones(1), note=note)


CANDIDATES: dict[str, Callable[[RangeProblem], RangeStrategy]] = {
    "identity": identity_strategy,
    "hierarchy": hierarchy_strategy,
    "haar": haar_strategy,
    "p_identity": p_identity_strategy,
    "gaussian_optimum": gaussian_strategy,
}
"""Candidates, the simplest first. The first of equal predictions wins."""


def applies(name: str, problem: RangeProblem) -> bool:
    """Tells whether the candidate with this name can serve the problem."""
    optimised = {"p_identity": 1, "gaussian_optimum": 2}
    return name not in optimised or (optimised[name] == problem.norm and problem.dense)


def build_strategies(problem: RangeProblem, strategy: str) -> Iterator[RangeStrategy]:
    """Yields every applicable candidate for 'auto', else the named candidate. 'hierarchy_4' has branching 4."""
    strategy = {"i": "identity"}.get(strategy.casefold(), strategy)  # 'I' is a name of the identity
    if strategy == "auto":
        yield from (build(problem) for name, build in CANDIDATES.items() if applies(name, problem))
        return
    if strategy in CANDIDATES and applies(strategy, problem):
        yield CANDIDATES[strategy](problem)
        return
    branching = strategy.removeprefix("hierarchy_")
    if branching != strategy and branching.isdecimal() and 2 <= int(branching) <= problem.workload.size:
        yield hierarchy_strategy(problem, (int(branching),))
        return
    names = ", ".join(["auto", *(name for name in CANDIDATES if applies(name, problem)), "hierarchy_<branching>"])
    raise Refusal(f"strategy = '{strategy}' cannot serve these ranges", accepted=f"one of {names}")
