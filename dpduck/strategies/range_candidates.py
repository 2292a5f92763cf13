"""The strategies for one range workload, by name, each built for the L1 or the L2 norm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic

import numpy as np

from dpduck.arrays import IndexArray
from dpduck.errors import Refusal
from dpduck.strategies.gaussian_ranges import optimise_gaussian
from dpduck.strategies.haar import haar_shares, haar_wavelet
from dpduck.strategies.hierarchy import LARGEST_DENSE, Hierarchy, balanced_hierarchy
from dpduck.strategies.level_budgets import level_shares
from dpduck.strategies.p_identity import optimise_p_identity, p_identity_matrix
from dpduck.strategies.quantise import BITS, quantise_l1, quantise_l2
from dpduck.strategies.range_strategy import RangeStrategy, factor_over, identity_over
from dpduck.workload.ranges import RangeWorkload

BRANCHINGS = (2, 3, 5)
"""Tried for 'hierarchy'; powers of these arise by levels that get no budget."""

SEARCH_PART = 0.55
"""Part of the time left that an optimised strategy may search for; the rest is for predicting its errors."""

LEAST_BITS = 10
"""With fewer bits real strategies are not rounded: the loss, and a singular matrix, could be large."""

LEAST_PART = 0.25
"""Part of the whole planning time that it gets in any case."""


@dataclass(frozen=True, eq=False)
class RangeProblem:
    """A workload, the norm that privacy is accounted in (1: Laplace, 2: Gaussian), and seconds to plan from `begin`.

    bits: what real strategies are rounded to (strategies/quantise.py).
    """

    workload: RangeWorkload
    norm: int
    seconds: float
    bits: int = BITS
    begin: float = field(default_factory=monotonic)

    @cached_property
    def reduction(self) -> tuple[RangeWorkload, IndexArray]:
        return self.workload.reduced()

    @property
    def search_seconds(self) -> float:
        """What an optimised strategy may take from now."""
        left = self.begin + self.seconds - monotonic()
        return max(SEARCH_PART * left, LEAST_PART * self.seconds)

    @property
    def dense(self) -> bool:
        """Whether strategies of real numbers, over all pairs of buckets, can serve and be rounded well."""
        return self.reduction[0].size <= LARGEST_DENSE and self.bits >= LEAST_BITS


def identity_strategy(problem: RangeProblem) -> RangeStrategy:
    """Every bucket counted: a tree of its leaves alone."""
    buckets, boundaries = problem.reduction
    factor = identity_over(problem.workload.size, boundaries)
    leaves = Hierarchy(buckets.size, (np.arange(buckets.size + 1),))
    return RangeStrategy("identity", problem.workload, buckets, boundaries, (factor,), np.ones(1), leaves)


def haar_strategy(problem: RangeProblem) -> RangeStrategy:
    """The wavelet with optimal budgets per level."""
    buckets, boundaries = problem.reduction
    haar = haar_wavelet(buckets.size)
    shares = haar_shares(haar, buckets, problem.norm)
    groups = tuple(int(group) for group in np.flatnonzero(shares))
    factors = tuple(factor_over(problem.workload.size, boundaries, haar.group_entries(group)) for group in groups)
    return RangeStrategy(
        "haar", problem.workload, buckets, boundaries, factors, shares[list(groups)], haar, groups, "inverse transform"
    )


def hierarchy_strategy(problem: RangeProblem, branchings: tuple[int, ...] = BRANCHINGS) -> RangeStrategy:
    """The best tree of one of these branchings, with optimal budgets per level; levels may be dropped."""
    buckets, boundaries = problem.reduction
    trees = [balanced_hierarchy(buckets.size, branching) for branching in branchings]
    planned = [level_shares(tree, buckets, problem.norm) for tree in trees]
    best = int(np.argmin([total for _, total in planned]))
    tree, shares = trees[best], planned[best][0]
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
    """HDMM's p-identity, quantised: every column has the same L1 norm exactly."""
    buckets, boundaries = problem.reduction
    theta = optimise_p_identity(buckets, problem.search_seconds)
    factor = factor_over(problem.workload.size, boundaries, quantise_l1(p_identity_matrix(theta), problem.bits))
    note = f"p = {len(theta)} overlapping bumps"
    return RangeStrategy("p_identity", problem.workload, buckets, boundaries, (factor,), np.ones(1), note=note)


def gaussian_strategy(problem: RangeProblem) -> RangeStrategy:
    """The convex optimum, quantised."""
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
"""Simplest first: of equal predictions the first wins."""


def applies(name: str, problem: RangeProblem) -> bool:
    """Whether a candidate can serve the problem."""
    optimised = {"p_identity": 1, "gaussian_optimum": 2}
    return name not in optimised or (optimised[name] == problem.norm and problem.dense)


def build_strategies(problem: RangeProblem, strategy: str) -> Iterator[RangeStrategy]:
    """All candidates that apply for 'auto', one by one, else the one named; 'hierarchy_4' is a tree of branching 4."""
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
    known = ", ".join(["auto", *(name for name in CANDIDATES if applies(name, problem)), "hierarchy_<branching>"])
    raise Refusal(f"strategy = '{strategy}' cannot serve these ranges", accepted=f"one of {known}")
