"""Candidate strategies for one range workload, by name, for the L1 or the L2 norm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic

import numpy as np
import scipy

from dpduck.algebra.ranges import RangeWorkload
from dpduck.strategies.ranges.hierarchy import (
    LARGEST_DENSE,
    Hierarchy,
    build_hierarchy,
    haar_shares,
    haar_wavelet,
    level_shares,
    one_thread,
    uniform_shares,
)
from dpduck.strategies.ranges.strategy import (
    RangeStrategy,
    factor_over,
    identity_over,
    optimise_p_identity,
    p_identity_matrix,
)
from dpduck.values.arrays import FloatArray, IndexArray, IntegerArray
from dpduck.values.errors import Refusal

# Rounding turns a real strategy with unit columns into an integer strategy. The columns of the integer strategy have
# norms as nearly equal as integers allow.
#
# Privacy is accounted for the integers: rounding costs a little accuracy and never any privacy.

BITS = 15
"""Entries are rounded to multiples of 2^-15 of the columns' norm. This costs < 0.01 % of variance at 1,024 values."""


def quantise_l1(strategy: FloatArray, bits: int = BITS) -> IntegerArray:
    """Rounds 2^bits times `strategy` to integers. A column's L1 norm is at most 2^bits, and exactly 2^bits if it was 1.

    The largest entry of each column absorbs the rounding of the others.

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
    """Rounds likewise under L2. A column's squared norm is at most 4^bits, and above 4^bits - 2^(bits + 1) if it was 1.

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
"""Branchings that 'hierarchy' tries. Their powers arise from levels without a budget."""

SEARCH_PART = 0.55
"""Part of the remaining time that the search for a strategy may take. The rest is for the prediction of its errors."""

LEAST_BITS = 10
"""With fewer bits, real strategies are not tried. Rounding could lose much, or make the matrix singular."""

LEAST_PART = 0.25
"""Least part of the whole planning time for the search."""


@dataclass(frozen=True, eq=False)
class RangeProblem:
    """Workload, norm for the privacy accounting (1: Laplace, 2: Gaussian), and `seconds` of planning time from `begin`.

    bits: precision of rounded real strategies (quantise_l1, quantise_l2). uniform: equal budgets for all levels of a
    tree or wavelet. least_bits: fewest bits for a real strategy to be tried.
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
        """Returns the seconds that an optimised strategy may take from now."""
        left = self.begin + self.seconds - monotonic()
        return max(SEARCH_PART * left, LEAST_PART * self.seconds)

    @property
    def dense(self) -> bool:
        """Tells whether a matrix over all pairs of buckets is small enough, and real strategies can be rounded well."""
        return self.reduction[0].size <= LARGEST_DENSE and self.bits >= self.least_bits


def identity_strategy(problem: RangeProblem) -> RangeStrategy:
    """Returns the strategy that counts every bucket: a tree that has only its leaves."""
    buckets, boundaries = problem.reduction
    factor = identity_over(problem.workload.size, boundaries)
    leaves = Hierarchy(buckets.size, (np.arange(buckets.size + 1),))
    return RangeStrategy("identity", problem.workload, buckets, boundaries, (factor,), np.ones(1), leaves)


def haar_strategy(problem: RangeProblem) -> RangeStrategy:
    """Returns the wavelet with optimal or uniform budgets per level."""
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
    """Returns the best tree of these branchings, with optimal or uniform budgets per level. Levels may be dropped."""
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
    """Returns HDMM's p-identity, quantised. All columns have exactly the same L1 norm."""
    buckets, boundaries = problem.reduction
    theta = optimise_p_identity(buckets, problem.search_seconds)
    factor = factor_over(problem.workload.size, boundaries, quantise_l1(p_identity_matrix(theta), problem.bits))
    note = f"p = {len(theta)} overlapping bumps"
    return RangeStrategy("p_identity", problem.workload, buckets, boundaries, (factor,), np.ones(1), note=note)


def gaussian_strategy(problem: RangeProblem) -> RangeStrategy:
    """Returns the convex optimum, quantised."""
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
"""Candidates, the simplest first. Of equal predictions the first wins."""


def applies(name: str, problem: RangeProblem) -> bool:
    """Tells whether a candidate can serve the problem."""
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


# The optimal Gaussian strategy of any workload: min trace(V X^-1) over X = A'A with unit diagonal, certified.
#
# The problem is convex. For any m > 0 let D = diag(m) and R = (D^1/2 V D^1/2)^1/2. By duality every strategy's total
# is at least (trace R)^2 / sum(m) (Li, Miklau, Hay, McGregor, Rastogi, The matrix mechanism, 2015). At the optimum both
# are equal, and X = D^-1/2 R D^-1/2 has unit diagonal: m = diag(R). The planner iterates this fixed point (Denisov,
# McMahan, Rush, Smith, Thakurta, Improved differential privacy for SGD via optimal private linear operators, 2022,
# section 4), first on a coarser workload. At every step, X scaled to unit diagonal is a strategy with a known gap.


GAP = 1e-4
"""The iteration stops if the total variance exceeds the lower bound by at most this part of the bound."""

COARSEST = 128
"""A workload over more values starts from the solution over a quarter as many intervals of values."""

MOST_STEPS = 300

MEMORY = 5
"""Number of former iterates that Anderson's acceleration combines."""

MIXING = 1.5
LARGEST_MOVE = 4.0
"""Largest change of a logarithm of m in one step."""

RIDGE = 1e-9
"""Added to V's diagonal, relative to its mean. The strategy then answers every value even if no query needs it."""


@dataclass(frozen=True, eq=False)
class GaussianOptimum:
    """Strategy and its total variance at sigma = 1, with columns of L2 norm 1.

    matrix: A, shape (n, n), upper triangular. total: trace(V (A'A)^-1). lower_bound: on every strategy's total.
    """

    matrix: FloatArray
    total: float
    lower_bound: float


def optimise_gaussian(gram: FloatArray, seconds: float) -> GaussianOptimum:
    """Returns the optimum for the Gram matrix V, shape (n, n), within GAP unless the time runs out first."""
    deadline = monotonic() + seconds
    size = len(gram)
    raised = gram + RIDGE * np.trace(gram) / size * np.eye(size)
    with one_thread():
        _, inner, total, bound = _iterate(raised, _multipliers(raised, deadline), deadline, GAP)
    return GaussianOptimum(scipy.linalg.cholesky(inner), total, bound)


def _multipliers(gram: FloatArray, deadline: float) -> FloatArray:
    """Returns a start for m: ones for small sizes, else the interpolated solution over intervals of values."""
    size = len(gram)
    if size <= COARSEST:
        return np.ones(size)
    bounds = np.arange(size // 4 + 1) * size // (size // 4)
    coarse = np.add.reduceat(np.add.reduceat(gram, bounds[:-1], axis=0), bounds[:-1], axis=1)
    solution = _iterate(coarse, _multipliers(coarse, deadline), deadline, GAP / 10)[0]
    centres = (bounds[:-1] + bounds[1:] - 1) / 2
    return np.asarray(np.interp(np.arange(size), centres, solution))


def _iterate(
    gram: FloatArray, multipliers: FloatArray, deadline: float, gap: float
) -> tuple[FloatArray, FloatArray, float, float]:
    """Returns (m, best X, its total, lower bound) after the gap closes, the deadline passes, or the steps run out."""
    best_total, best_bound = np.inf, 0.0
    inner = np.eye(len(gram))
    logs: list[FloatArray] = []
    steps: list[FloatArray] = []
    for _ in range(MOST_STEPS):
        root = np.sqrt(multipliers)
        values, vectors = scipy.linalg.eigh(root[:, None] * gram * root, check_finite=False, driver="evd")
        singular = np.sqrt(np.maximum(values, 1e-15 * values[-1]))
        best_bound = max(best_bound, float(singular.sum() ** 2 / multipliers.sum()))
        diagonal = (vectors * vectors) @ singular
        # X = D^-1/2 R D^-1/2 has diagonal diag(R)/m; scaled to 1 its inverse is B' R^-1 B with B below
        scale = np.sqrt(diagonal / multipliers)
        rows = vectors.T * (root * scale)
        total = float(np.einsum("ij,ij->i", rows @ gram, rows) @ (1 / singular))
        if total < best_total:
            best_total = total
            half = np.sqrt(singular)[:, None] * vectors.T / (root * scale)
            inner = half.T @ half
        if best_total <= best_bound * (1 + gap) or monotonic() > deadline:
            break
        logs = [*logs[-MEMORY:], np.log(multipliers)]
        steps = [*steps[-MEMORY:], np.log(diagonal / diagonal.sum()) - np.log(multipliers / multipliers.sum())]
        multipliers = np.exp(_mix_iterates(logs, steps, diagonal))
    return multipliers, inner, best_total, best_bound


def _mix_iterates(logs: list[FloatArray], steps: list[FloatArray], weights: FloatArray) -> FloatArray:
    """Returns the next log m, scaled to a mean of 0, by Anderson's mixing for the iteration log m -> log m + step."""
    move = MIXING * steps[-1]
    if len(logs) > 1:
        step_changes = np.stack([steps[-1] - step for step in steps[:-1]], axis=1)
        log_changes = np.stack([logs[-1] - log for log in logs[:-1]], axis=1)
        root = np.sqrt(weights)
        mixed = np.linalg.lstsq(step_changes * root[:, None], steps[-1] * root, rcond=1e-6)[0]
        move = move - (log_changes + MIXING * step_changes) @ mixed
    following = logs[-1] + np.clip(move, -LARGEST_MOVE, LARGEST_MOVE)
    return np.asarray(following - following.mean())
