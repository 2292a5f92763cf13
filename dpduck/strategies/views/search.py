"""Searches for the views (marginals) to measure under pure epsilon, within an allowed time.

Views derived from the asked marginals compete with covering designs that fit the sizes. Annealing improves both. The
number of its steps follows from the problem's size and the allowed seconds, by estimates of a step's time, not by a
clock. So equal requests have equal plans and prices, however busy the machine is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, comb, inf, log, log2

import numpy as np

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.strategies.views.annealing import (
    LARGEST_VIEW,
    anneal_views,
    annealing_seconds,
    assign_points,
    design_views,
    workload_starts,
)
from dpduck.strategies.views.assignment import DesignStart, anneal_assignment, assigning_seconds, start_design
from dpduck.strategies.views.designs import DesignFamily, families
from dpduck.strategies.views.effort import HashCounter, WorkLimit
from dpduck.strategies.views.objective import ViewObjective
from dpduck.values.arrays import BoolArray, FloatArray

ASSIGNING, ANNEALING = 0.35, 0.1
"""Parts of the planning seconds for assignments of designs and for annealing of views."""

MOST_ASSIGNING, MOST_ANNEALING = 20, 300
"""Most steps in one round of assigning, and in one annealing, per pair of attributes. Small problems end early."""

MOST_COMPONENTS = 20_000
"""Most components of a step-by-step search. With more, starts and designs are only compared."""

MOST_PAIRS = 600_000
"""Most pairs of block and component of a design, if its assignment is searched."""

MOST_ENTRIES = 2_000_000
"""Most components in the views of a start, added up over its views. Larger starts are left out."""

MOST_LARGE_DESIGNS, MOST_LARGE_BLOCKS = 8, 50_000
"""Most designs that are compared although they are too large for a search, and most blocks of such a design."""

ROUGH, FINE = 1e-3, 1e-10
"""Budgets count as settled at smaller relative gains than these: in comparisons of starts, and in the result."""


@dataclass(frozen=True, eq=False)
class FoundViews:
    """Views with budgets that add up to 1, and the total variance at epsilon = 1. origin: where the search began."""

    views: BoolArray
    budgets: FloatArray
    error: float
    origin: str

    def rank(self) -> tuple[float, int]:
        """Returns a sort key, smaller for better views: the error to seven digits, then the number of views."""
        return round(log(self.error), 6), len(self.views)


@dataclass(frozen=True)
class ViewSearch:
    """One search for views. largest_view: the most cells of a view."""

    objective: ViewObjective
    workload: MarginalWorkload
    limit: WorkLimit
    largest_view: float = LARGEST_VIEW

    @property
    def small(self) -> bool:
        return self.objective.fits_a_word and len(self.objective.nonempty) <= MOST_COMPONENTS

    @property
    def most_blocks(self) -> int:
        return min(400, MOST_PAIRS // max(1, len(self.objective.nonempty))) if self.small else 0

    def run(self) -> FoundViews:
        """Runs the search and returns the best views. One candidate is the asked marginals with better budgets."""
        starts = self._starts()
        options = [next(starts)]
        if self.small:
            if len(self.objective.lattice.attributes) > 1:
                options += [self._from_design(design) for design in self._halve(self._designs())]
            options += starts
            options.sort(key=FoundViews.rank)
            few = [start for start in _distinct(options) if len(start.views) <= self.most_blocks]
            options += self._anneal_starts(few[:3])
        else:
            options += starts
        if len(self.objective.lattice.attributes) > 1:
            options += self._large_designs()
        best = min(options, key=FoundViews.rank)
        limit = WorkLimit(max(self.limit.left, self.limit.seconds / 10))
        tolerance = FINE if self.small else ROUGH
        views, budgets, error = self.objective.converge(best.views, best.budgets, tolerance, limit)
        return FoundViews(views, budgets, error, best.origin) if error <= best.error else best

    def _settle_budgets(self, views: BoolArray, budgets: FloatArray, origin: str) -> FoundViews | None:
        """Improves the budgets. Returns None if a view is too large, or if no view contains some component."""
        if (views @ self.objective.log_sizes).max() > log(self.largest_view) + 1e-9:
            return None
        settled = FoundViews(*self.objective.converge(views, budgets, ROUGH, self.limit), origin)
        return settled if settled.error < inf else None

    def _starts(self) -> Iterator[FoundViews]:
        """Yields starts that need no design: first the asked marginals, last all subsets of the asked marginals."""
        lattice = self.objective.lattice
        starts = workload_starts(self.workload, lattice)
        origin, views, budgets = next(starts)
        yield FoundViews(*self.objective.converge(views, budgets, 0.1, WorkLimit(0)), origin)
        for origin, views, budgets in starts:
            if self.limit.is_over:
                return
            start = self._settle_budgets(views, budgets, origin) if self._entries(views) <= MOST_ENTRIES else None
            if start is not None:
                yield start
        yield from self._subset_starts()

    def _subset_starts(self) -> Iterator[FoundViews]:
        """Yields views from all subsets of asked marginals, with uneven budgets. Most budgets then shrink to 0."""
        subsets = self.objective.lattice.membership[self.objective.nonempty]
        entries = self._entries(subsets) if len(subsets) <= 2000 else MOST_ENTRIES
        for number in range(8 if entries <= 20_000 else 1 if entries <= MOST_ENTRIES // 8 and self.small else 0):
            source = HashCounter(f"subsets of the asked marginals/{number}")
            noise = np.array([source.uniform() for _ in range(len(subsets))])
            start = self._settle_budgets(subsets, np.exp(3 * noise), "subsets of the asked marginals")
            if start is not None:
                yield start

    def _entries(self, views: BoolArray) -> int:
        """Bounds the number of components in the views, added up over the views."""
        highest = len(self.objective.lattice.members) - 1
        sizes, counts = np.unique(views.sum(axis=1), return_counts=True)
        each = [sum(comb(size, order) for order in range(min(size, highest) + 1)) for size in sizes.tolist()]
        return sum(count * entries for count, entries in zip(counts.tolist(), each, strict=True))

    def _families(self, most_blocks: int) -> tuple[DesignFamily, ...]:
        """Returns designs that may fit. Strength: the most attributes of a set if all such sets are asked, else 2."""
        lattice = self.objective.lattice
        attributes, highest = len(lattice.attributes), len(lattice.members) - 1
        complete = len(lattice.members[highest]) == comb(attributes, highest)
        return families(highest if complete else min(2, highest), attributes, most_blocks)

    def _designs(self) -> list[DesignStart]:
        designs: list[DesignStart] = []
        for family in self._families(self.most_blocks):
            if self.limit.is_over:
                break
            design = start_design(self.objective, family, self.largest_view)
            if design is not None:
                designs.append(design)
        return designs

    def _halve(self, designs: list[DesignStart]) -> list[DesignStart]:
        """Anneals assignments of designs in rounds. The better half goes into the next round, with more steps each."""
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
            best = designs[: max(3, len(designs) // 2)]
            designs = [best[0], *(after for before, after in pairwise(best) if not _equal(before.error, after.error))]
        return designs

    def _from_design(self, design: DesignStart) -> FoundViews:
        views, block_of = np.unique(design_views(design.blocks, design.assignment), axis=0, return_inverse=True)
        budgets: FloatArray = np.bincount(block_of.reshape(-1), design.budgets).astype(np.float64)
        return FoundViews(*self.objective.converge(views, budgets, ROUGH, self.limit), str(design.family))

    def _anneal_starts(self, starts: list[FoundViews]) -> Iterator[FoundViews]:
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
            settled = self._settle_budgets(views, summed, f"{start.origin}, annealed")
            if settled is not None:
                yield settled

    def _large_designs(self) -> Iterator[FoundViews]:
        """Yields views of designs that are too large for a search: the most promising by the estimate below."""
        lattice = self.objective.lattice
        highest = len(lattice.members) - 1
        scale = float(self.objective.log_sizes.mean())

        def estimate(family: DesignFamily) -> float:
            """Returns the logarithm of K^2 for equal budgets over K blocks, times the cells that an answer sums."""
            width = family.block_size * len(lattice.attributes) / family.points
            return 2 * log(family.blocks) + scale * max(0.0, width - highest)

        tried = 0
        large = [family for family in self._families(MOST_LARGE_BLOCKS) if family.blocks > self.most_blocks]
        for family in sorted(large, key=estimate):
            if self.limit.is_over or tried == MOST_LARGE_DESIGNS:
                return
            views = design_views(family.build(), assign_points(self.objective.log_sizes, family.points))
            views = np.unique(views, axis=0)
            if self._entries(views) > MOST_ENTRIES or (views @ self.objective.log_sizes).max() > log(self.largest_view):
                continue
            tried += 1
            start = self._settle_budgets(views, np.ones(len(views)), str(family))
            if start is not None:
                yield start


def _equal(error: float, other: float) -> bool:
    return abs(log(error / other)) < 1e-6


def _distinct(options: list[FoundViews]) -> list[FoundViews]:
    distinct: list[FoundViews] = []
    for start in options:
        if not distinct or not _equal(distinct[-1].error, start.error):
            distinct.append(start)
    return distinct


def search_views(
    objective: ViewObjective,
    workload: MarginalWorkload,
    planning_seconds: float = 2.0,
    largest_view: float = LARGEST_VIEW,
) -> FoundViews:
    """Returns the best views of a search for a workload in about `planning_seconds` at most."""
    return ViewSearch(objective, workload, WorkLimit(planning_seconds), largest_view).run()
