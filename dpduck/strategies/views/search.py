"""Anytime search for the views to measure under pure epsilon: designs, their assignments, annealing.

The starts of every workload compete with the covering designs that fit its sizes. Designs are first spread evenly over
the attributes. Then the better half gets twice the annealing of its assignment, again and again. The winners are
annealed view by view.

The number of steps follows from the problem's size and the seconds that are allowed. The time of a step is an estimate,
not a measurement. So the same request has the same plan and price, however busy the machine is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import ceil, comb, inf, log, log2

import numpy as np

from dpduck.algebra.lattice import Lattice, MarginalWorkload, close_downward
from dpduck.kernel.noise.law import NoiseKind
from dpduck.strategies.budgets import safe_parameters
from dpduck.strategies.marginals.planners import MOST_MARGINALS, plan_clustering
from dpduck.strategies.plan import Plan, PlanningProblem
from dpduck.strategies.variance import workload_variances
from dpduck.strategies.views.designs import (
    LARGEST_VIEW,
    DesignFamily,
    DesignStart,
    anneal_assignment,
    anneal_views,
    annealing_seconds,
    assigning_seconds,
    balanced_assignment,
    design_views,
    families,
    sets_of,
    start_design,
    workload_starts,
)
from dpduck.strategies.views.objective import HashCounter, ViewObjective, WorkLimit
from dpduck.values.arrays import BoolArray, FloatArray
from dpduck.values.errors import Refusal

ASSIGNING, ANNEALING = 0.35, 0.1
"""Parts of the planning seconds given to assignments of designs and to annealing of views, on an idle machine."""

MOST_ASSIGNING, MOST_ANNEALING = 20, 300
"""Most steps in one round of assigning, and in one annealing, per pair of attributes: small problems end early."""

MOST_COMPONENTS = 20_000
"""Searches step by step up to so many components; beyond, starts and designs are only compared."""

MOST_PAIRS = 600_000
"""Designs are assigned by search up to so many pairs of block and component."""

MOST_ENTRIES = 2_000_000
"""Starts whose views contain more components, summed over the views, are left out."""

MOST_LARGE_DESIGNS, MOST_LARGE_BLOCKS = 8, 50_000
"""So many designs with at most so many blocks are compared where they are too large to be searched."""

ROUGH, FINE = 1e-3, 1e-10
"""Relative gains at which budgets count as settled: to compare starts, and in the end."""


@dataclass(frozen=True, eq=False)
class FoundViews:
    """Views, their budgets adding up to 1, the total variance at epsilon = 1, and where they came from."""

    views: BoolArray
    budgets: FloatArray
    error: float
    origin: str

    def rank(self) -> tuple[float, int]:
        """Returns a sort key, smaller is better: the error to seven digits, then the number of views."""
        return round(log(self.error), 6), len(self.views)


@dataclass(frozen=True)
class ViewSearch:
    """One search: its objective, workload, limit, and the largest number of cells of a view."""

    objective: ViewObjective
    workload: MarginalWorkload
    limit: WorkLimit
    largest_view: float = LARGEST_VIEW

    @property
    def small(self) -> bool:
        """Tells whether step-by-step searches are cheap enough."""
        return self.objective.fits_a_word and len(self.objective.kept) <= MOST_COMPONENTS

    @property
    def most_blocks(self) -> int:
        """Returns how many views are searched step by step at most."""
        return min(400, MOST_PAIRS // max(1, len(self.objective.kept))) if self.small else 0

    def run(self) -> FoundViews:
        """Returns the best views found; at least the asked marginals with better budgets."""
        starts = self._starts()
        found = [next(starts)]
        if self.small:
            if len(self.objective.lattice.attributes) > 1:
                found += [self._from_design(design) for design in self._halve(self._designs())]
            found += starts
            found.sort(key=FoundViews.rank)
            few = [start for start in _distinct(found) if len(start.views) <= self.most_blocks]
            found += self._annealed(few[:3])
        else:
            found += starts
        if len(self.objective.lattice.attributes) > 1:
            found += self._large_designs()
        best = min(found, key=FoundViews.rank)
        limit = WorkLimit(max(self.limit.left, self.limit.seconds / 10))
        tolerance = FINE if self.small else ROUGH
        views, budgets, error = self.objective.converge(best.views, best.budgets, tolerance, limit)
        return FoundViews(views, budgets, error, best.origin) if error <= best.error else best

    def _settled(self, views: BoolArray, budgets: FloatArray, origin: str) -> FoundViews | None:
        """Returns these views with better budgets; None where one is too large or they leave something out."""
        if (views @ self.objective.log_sizes).max() > log(self.largest_view) + 1e-9:
            return None
        settled = FoundViews(*self.objective.converge(views, budgets, ROUGH, self.limit), origin)
        return settled if settled.error < inf else None

    def _starts(self) -> Iterator[FoundViews]:
        """Lists the starts that every workload has: the asked marginals first, and every subset of what is asked."""
        lattice = self.objective.lattice
        starts = workload_starts(self.workload, lattice)
        origin, views, budgets = next(starts)
        yield FoundViews(*self.objective.converge(views, budgets, 0.1, WorkLimit(0)), origin)
        for origin, views, budgets in starts:
            if self.limit.passed:
                return
            start = self._settled(views, budgets, origin) if self._entries(views) <= MOST_ENTRIES else None
            if start is not None:
                yield start
        yield from self._subset_starts()

    def _subset_starts(self) -> Iterator[FoundViews]:
        """Yields every subset of what is asked, several times with other uneven budgets: most views fade away."""
        subsets = self.objective.lattice.membership[self.objective.kept]
        entries = self._entries(subsets) if len(subsets) <= 2000 else MOST_ENTRIES
        for number in range(8 if entries <= 20_000 else 1 if entries <= MOST_ENTRIES // 8 and self.small else 0):
            source = HashCounter(f"subsets of the asked marginals/{number}")
            noise = np.array([source.uniform() for _ in range(len(subsets))])
            start = self._settled(subsets, np.exp(3 * noise), "subsets of the asked marginals")
            if start is not None:
                yield start

    def _entries(self, views: BoolArray) -> int:
        """Tells how many components these views contain, at most."""
        highest = len(self.objective.lattice.members) - 1
        sizes, counts = np.unique(views.sum(axis=1), return_counts=True)
        each = [sum(comb(size, order) for order in range(min(size, highest) + 1)) for size in sizes.tolist()]
        return sum(count * entries for count, entries in zip(counts.tolist(), each, strict=True))

    def _families(self, most_blocks: int) -> tuple[DesignFamily, ...]:
        """Returns designs that may fit: of full strength where every set of the highest order is asked."""
        lattice = self.objective.lattice
        attributes, highest = len(lattice.attributes), len(lattice.members) - 1
        complete = len(lattice.members[highest]) == comb(attributes, highest)
        return families(highest if complete else min(2, highest), attributes, most_blocks)

    def _designs(self) -> list[DesignStart]:
        """Returns the designs that fit, their points given out evenly."""
        designs: list[DesignStart] = []
        for family in self._families(self.most_blocks):
            if self.limit.passed:
                break
            design = start_design(self.objective, family, self.largest_view)
            if design is not None:
                designs.append(design)
        return designs

    def _halve(self, designs: list[DesignStart]) -> list[DesignStart]:
        """Successive halving: every round anneals those left, then keeps the better half, three at the end."""
        rounds = max(1, ceil(log2(max(1, len(designs)) / 3)) + 1)
        for number in range(rounds if designs else 0):
            cost = sum(assigning_seconds(self.objective, design) for design in designs)
            steps = int(ASSIGNING * self.limit.seconds / rounds / max(cost, 1e-9))
            steps = min(steps, MOST_ASSIGNING * len(self.objective.lattice.attributes) ** 2)
            designs = [
                anneal_assignment(
                    self.objective,
                    design,
                    steps,
                    self.largest_view,
                    HashCounter(f"{design.family}/{number}"),
                    self.limit,
                )
                for design in designs
            ]
            designs.sort(key=lambda design: (round(log(design.error), 6), len(design.blocks)))
            kept = designs[: max(3, len(designs) // 2)]
            designs = [kept[0], *(after for before, after in pairwise(kept) if not _equal(before.error, after.error))]
        return designs

    def _from_design(self, design: DesignStart) -> FoundViews:
        views, block_of = np.unique(design_views(design.blocks, design.assignment), axis=0, return_inverse=True)
        budgets: FloatArray = np.bincount(block_of.reshape(-1), design.budgets).astype(np.float64)
        return FoundViews(*self.objective.converge(views, budgets, ROUGH, self.limit), str(design.family))

    def _annealed(self, starts: list[FoundViews]) -> Iterator[FoundViews]:
        """Yields each start with its views annealed, gently."""
        objective = self.objective
        for start in starts:
            step = annealing_seconds(objective, len(start.views))
            steps = int(ANNEALING * self.limit.seconds / len(starts) / step)
            steps = min(steps, MOST_ANNEALING * len(objective.lattice.attributes) ** 2)
            source = HashCounter(f"annealing {start.origin}")
            codes, budgets = anneal_views(
                objective,
                start.views @ objective.bits,
                start.budgets,
                steps,
                (0.004, 0.0002),
                self.largest_view,
                source,
                self.limit,
            )
            distinct, which = np.unique(codes, return_inverse=True)
            views = (distinct[:, None] & objective.bits) != 0
            summed: FloatArray = np.bincount(which, budgets).astype(np.float64)
            settled = self._settled(views, summed, f"{start.origin}, annealed")
            if settled is not None:
                yield settled

    def _large_designs(self) -> Iterator[FoundViews]:
        """Yields the designs too large to search: those that look best by count and size of blocks, spread evenly."""
        lattice = self.objective.lattice
        highest = len(lattice.members) - 1
        scale = float(self.objective.log_sizes.mean())

        def estimate(family: DesignFamily) -> float:
            """log of K^2 n^(block - order): equal budgets over K blocks, cells summed to the asked ones."""
            width = family.block_size * len(lattice.attributes) / family.points
            return 2 * log(family.blocks) + scale * max(0.0, width - highest)

        tried = 0
        large = [family for family in self._families(MOST_LARGE_BLOCKS) if family.blocks > self.most_blocks]
        for family in sorted(large, key=estimate):
            if self.limit.passed or tried == MOST_LARGE_DESIGNS:
                return
            views = design_views(family.build(), balanced_assignment(self.objective.log_sizes, family.points))
            views = np.unique(views, axis=0)
            if self._entries(views) > MOST_ENTRIES or (views @ self.objective.log_sizes).max() > log(self.largest_view):
                continue
            tried += 1
            start = self._settled(views, np.ones(len(views)), str(family))
            if start is not None:
                yield start


def _equal(one: float, other: float) -> bool:
    """Tells whether two errors are most likely those of the same views."""
    return abs(log(one / other)) < 1e-6


def _distinct(found: list[FoundViews]) -> list[FoundViews]:
    """Drops those with the same error as another one."""
    kept: list[FoundViews] = []
    for start in found:
        if not kept or not _equal(kept[-1].error, start.error):
            kept.append(start)
    return kept


def search_views(
    objective: ViewObjective,
    workload: MarginalWorkload,
    planning_seconds: float = 2.0,
    largest_view: float = LARGEST_VIEW,
) -> FoundViews:
    """Returns the best views found for a workload in about `planning_seconds` at most."""
    return ViewSearch(objective, workload, WorkLimit(planning_seconds), largest_view).run()


# Plans of the strategy O: a few views found by search, usually larger than what is asked, under pure epsilon.


REMEMBERED_MARGINALS = 64
"""Views of workloads of at most so many marginals are searched once and remembered: they depend on nothing else."""


def _searched(workload: MarginalWorkload, closed: Lattice, seconds: float) -> FoundViews:
    if len(workload.marginals) > REMEMBERED_MARGINALS:
        return search_views(ViewObjective.of(workload, closed), workload, seconds)
    return _remembered_search(workload, seconds)


@lru_cache(maxsize=128)
def _remembered_search(workload: MarginalWorkload, seconds: float) -> FoundViews:
    closed = close_downward(workload.marginals, workload.sizes)
    return search_views(ViewObjective.of(workload, closed), workload, seconds)


def plan_optimised_views(problem: PlanningProblem, _: str = "optimal") -> Plan:
    """O: views and budgets that minimise the total variance after least squares, as far as a search finds them.

    The views depend on the workload and the seconds allowed, not on the amount: the search takes the discrete noise
    at its continuous limit 2/eta^2. Budgets are part of what is searched.
    """
    workload, noise, amount, closed = problem.workload, problem.noise, problem.amount, problem.lattice
    if noise is not NoiseKind.LAPLACE:
        raise Refusal("strategy = 'O' is for pure epsilon budgets", accepted="strategy = 'R' or 'auto'")
    found = _searched(workload, closed, problem.planning_seconds)
    sets = sets_of(closed, found.views)
    parameters = safe_parameters(
        noise, 1 / (found.budgets * float(amount)), [1] * len(sets), amount, problem.unit_bound
    )
    measurements = problem.tables(sets, parameters)
    note = f"measures {len(sets)} views: {found.origin}; searched for at most {problem.planning_seconds:g} s"
    plan = problem.plan("O", measurements, workload_variances(closed, measurements, noise), note)
    if len(workload.marginals) > MOST_MARGINALS or problem.consistency != "l2":
        return plan
    rival = plan_clustering(problem)
    return replace(rival, strategy="O") if rival.total_variance < plan.total_variance else plan
