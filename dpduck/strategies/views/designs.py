"""Starting sets of views, covering designs, and simulated annealing from there.

In a covering design every t points lie together in some block. Under pure epsilon a few large views beat many small
ones. A view with the attributes of a block answers all t-way marginals inside it. So a good set of views is a weighted
covering design with few blocks. Each family is read from a file, or made of all subsets of one size. It serves any
number of attributes, because several may share a point and points may stay empty.
`python -m benchmarks.papers.covering_designs` writes the file.

A step of the annealing over views moves one attribute in or out, exchanges two, or throws a view close to another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from math import comb, exp, log
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.lattice import Lattice, MarginalWorkload
from dpduck.strategies.marginals.planners import cluster
from dpduck.strategies.plan import distinct_marginals
from dpduck.strategies.views.objective import NOTHING, HashCounter, ViewObjective, WorkLimit
from dpduck.values.arrays import BoolArray, FloatArray, IndexArray

FILE = Path(__file__).with_name("designs.npz")
MOST_POINTS = 130
"""Most points of a design. Larger designs are left out."""


@dataclass(frozen=True, order=True)
class DesignFamily:
    """Covering design that can be built: every `strength` points lie in a common block.

    kind, parameters: the construction. blocks, block_size: the number of blocks, and of points in each block.
    """

    kind: str
    parameters: tuple[int, ...]
    points: int
    blocks: int
    block_size: int
    strength: int

    def __str__(self) -> str:
        if self.kind == "subsets":
            size, points = self.parameters
            return f"all {size}-subsets of {points} groups"
        if self.kind == "circles":
            return f"inversive plane of order {self.parameters[0]}"
        dimension, length, order = self.parameters
        space = {"affine": "AG", "projective": "PG"}[self.kind]
        flats = {1: "lines", 2: "planes"}.get(dimension, f"{dimension}-flats")
        return f"{flats} of {space}({length},{order})"

    def build(self) -> BoolArray:
        """Returns the incidence of blocks and points, shape (blocks, points)."""
        return _build(self)


def families(strength: int, attributes: int, most_blocks: int) -> tuple[DesignFamily, ...]:
    """Returns every known family of at least this strength that may serve this many attributes, in a fixed order.

    Points may outnumber the attributes fourfold: a design can be good even without its empty points.

    >>> [family.parameters for family in families(2, 3, 3)]
    [(1, 1), (2, 2), (2, 3), (3, 3), (4, 4)]
    """
    most_points = min(4 * attributes + 3, MOST_POINTS)
    stored = (family for family in _load_families() if family.points <= most_points)
    every = {*_subset_families(strength, attributes + 1), *stored}
    candidates = (family for family in every if family.strength >= min(strength, family.points))
    return tuple(sorted(family for family in candidates if family.blocks <= most_blocks))


def _subset_families(strength: int, most_points: int) -> Iterator[DesignFamily]:
    """Yields all r-subsets of g points, strength r, for r little above the strength or little below g."""
    for points in range(1, most_points + 1):
        for size in {*range(1, min(strength + 2, points) + 1), max(1, points - 1), points}:
            yield DesignFamily("subsets", (size, points), points, comb(points, size), size, size)


@lru_cache(maxsize=1)
def _load_families() -> dict[DesignFamily, NDArray[np.uint8]]:
    """Returns the families of FILE, packed as eight points in a byte."""
    with np.load(FILE) as arrays:
        named = [
            DesignFamily(str(kind), tuple(row[: 1 if kind == "circles" else 3]), *row[3:])
            for kind, row in zip(arrays["kinds"].tolist(), arrays["figures"].tolist(), strict=True)
        ]
        return {family: arrays[str(family)] for family in named}


@lru_cache(maxsize=256)
def _build(family: DesignFamily) -> BoolArray:
    """Returns the incidence matrix of a family, read-only."""
    shape = (family.blocks, family.points)
    if family.kind == "subsets":
        blocks = np.zeros(shape, dtype=np.bool_)
        for row, block in enumerate(combinations(range(family.points), family.block_size)):
            blocks[row, list(block)] = True
    else:
        blocks = np.unpackbits(_load_families()[family], count=family.blocks * family.points).reshape(shape) != 0
    blocks.setflags(write=False)
    return blocks


# Strategy O: a few views, usually larger than the asked marginals, that together contain every asked marginal.


LARGEST_VIEW = 1 << 24
"""Most cells of a view. It is measured as a dense array."""


MOST_MARGINALS = 600
"""Most asked marginals that are clustered or compared with each other."""


def views_of(lattice: Lattice, sets: Sequence[tuple[int, ...]]) -> BoolArray:
    """Returns views from sets of domain positions. Attributes that the workload does not use are left out."""
    local = {attribute: index for index, attribute in enumerate(lattice.attributes)}
    views = np.zeros((len(sets), len(local)), dtype=np.bool_)
    for row, members in enumerate(sets):
        views[row, [local[attribute] for attribute in members if attribute in local]] = True
    return views


def sets_of(lattice: Lattice, views: BoolArray) -> tuple[tuple[int, ...], ...]:
    """Returns the domain positions of each view, increasing."""
    names = np.asarray(lattice.attributes, dtype=np.intp)
    return tuple(tuple(names[view].tolist()) for view in views)


def workload_starts(workload: MarginalWorkload, lattice: Lattice) -> Iterator[tuple[str, BoolArray, FloatArray]]:
    """Yields the starts of every workload: a name, views, and the budgets that suit each view's own marginals."""
    asked, weights = distinct_marginals(workload)
    weights = np.maximum(weights, 1e-9 * weights.max(initial=1e-300))
    views = views_of(lattice, asked)
    yield "the asked marginals", views, np.cbrt(weights)
    yield "one view of all attributes", np.ones((1, views.shape[1]), dtype=np.bool_), np.ones(1)
    if len(asked) > MOST_MARGINALS:
        return
    widest = ~np.array([(views[:, view].all(axis=1) & (views.sum(axis=1) > view.sum())).any() for view in views])
    yield "the largest asked marginals", views[widest], np.cbrt(weights[widest])
    log_sizes = np.log(np.asarray(lattice.sizes, dtype=np.float64))
    pulls = weights / np.exp(views @ log_sizes)
    clusters = cluster(workload.sizes, asked, pulls, 2)
    unions, inverse = np.unique(views_of(lattice, [union for union, _ in clusters]), axis=0, return_inverse=True)
    sums = [float(pulls[list(members)].sum()) for _, members in clusters]
    name, worth = "clusters of marginals", np.bincount(inverse.reshape(-1), sums) * np.exp(unions @ log_sizes)
    yield name, unions, np.cbrt(worth)
    yield name, unions, np.ones(len(unions))


def assign_points(log_sizes: FloatArray, points: int) -> IndexArray:
    """Assigns a point to each attribute: the largest attributes first, each to the emptiest point so far.

    >>> assign_points(np.log([4.0, 2.0, 9.0]), 2).tolist()
    [1, 1, 0]
    """
    loads = np.zeros(points)
    assignment = np.zeros(len(log_sizes), dtype=np.intp)
    for attribute in np.argsort(-log_sizes, kind="stable").tolist():
        point = int(loads.argmin())
        assignment[attribute] = point
        loads[point] += max(log_sizes[attribute], 1e-3)
    return assignment


def with_common_point(blocks: BoolArray) -> BoolArray:
    """Returns the blocks with one more point that lies in all blocks. An attribute there is in every view."""
    return np.concatenate([blocks, np.ones((len(blocks), 1), dtype=np.bool_)], axis=1)


def design_views(blocks: BoolArray, assignment: IndexArray) -> BoolArray:
    """Returns the view of each block: the attributes with a point in the block."""
    views: BoolArray = blocks[:, assignment]
    return views


CodeArray = NDArray[np.int64]

LARGE_PAIR = 6e-9
ROUND = 100
"""Number of moves between two improvements of the budgets."""

LEAST_SHARE = 1e-3
"""While views move, budgets stay above this part of an equal budget, so that a lost view can come back."""


@dataclass(eq=False)
class _State:
    """Views under way: their codes, incidence, cells, budgets that add up to 1, and precisions D_B."""

    objective: ViewObjective
    codes: CodeArray
    budgets: FloatArray

    def refresh(self, rounds: int) -> None:
        """Improves the budgets, and updates everything that depends on them."""
        objective = self.objective
        self.incidence = objective.incidence_of_codes(self.codes)
        self.cells = np.exp(((self.codes[:, None] & objective.bits) != 0) @ objective.log_sizes)
        self.budgets, _ = objective.improve(self.incidence, self.cells, self.budgets, rounds)
        self.budgets = np.maximum(self.budgets, LEAST_SHARE / len(self.codes))
        self.budgets /= self.budgets.sum()
        self.precisions = objective.precisions(self.incidence, self.cells, self.budgets)
        self.logarithm = log(float((objective.kept_coefficients / self.floor_precisions(self.precisions)).sum()))

    def floor_precisions(self, precisions: FloatArray) -> FloatArray:
        """Returns the precisions, each raised above 0."""
        raised: FloatArray = np.maximum(precisions, NOTHING * precisions[0])
        return raised


def annealing_seconds(objective: ViewObjective, views: int) -> float:
    """Estimates the time of one step of annealing on an idle machine."""
    return 15e-6 + (10e-9 + 1e-9 * views) * len(objective.kept)


def anneal_views(
    objective: ViewObjective,
    codes: CodeArray,
    budgets: FloatArray,
    steps: int,
    temperatures: tuple[float, float],
    largest_view: float,
    source: HashCounter,
    limit: WorkLimit,
) -> tuple[CodeArray, FloatArray]:
    """Returns the best views of the annealing, as bits, and their budgets. The number of views does not change."""
    state = _State(objective, codes.copy(), budgets / budgets.sum())
    state.refresh(20)
    best = (state.logarithm, state.codes.copy(), state.budgets)
    hot, cold = temperatures
    most, coefficients = log(largest_view), objective.kept_coefficients
    for start in range(0, steps, ROUND):
        if limit.is_over:
            break
        limit.work(ROUND * annealing_seconds(objective, len(codes)))
        temperature = hot * (cold / hot) ** (start / steps)
        for _ in range(ROUND):
            view, code = _move(state.codes, len(objective.bits), source)
            chance = source.uniform()
            log_cells = float((code & objective.bits != 0) @ objective.log_sizes)
            if code == 0 or log_cells > most:
                continue
            row, cells, half = (
                objective.incidence_of_codes(np.array([code]))[0],
                exp(log_cells),
                state.budgets[view] ** 2 / 2,
            )
            moved = state.precisions + half * (row / cells - state.incidence[view] / state.cells[view])
            logarithm = log(float((coefficients / state.floor_precisions(moved)).sum()))
            if logarithm < state.logarithm or chance < exp((state.logarithm - logarithm) / temperature):
                state.codes[view], state.incidence[view], state.cells[view] = code, row, cells
                state.precisions, state.logarithm = moved, logarithm
        state.refresh(4)
        if state.logarithm < best[0]:
            best = (state.logarithm, state.codes.copy(), state.budgets)
    return best[1], best[2]


def _move(codes: CodeArray, attributes: int, source: HashCounter) -> tuple[int, int]:
    """Returns a view and its next code."""
    view, kind = source.below(len(codes)), source.uniform()
    code = int(codes[view])
    if kind < 0.3:
        return view, code ^ (1 << source.below(attributes))
    if kind < 0.95:
        inside = [bit for bit in range(attributes) if code >> bit & 1]
        outside = [bit for bit in range(attributes) if not code >> bit & 1]
        if not inside or not outside:
            return view, code ^ (1 << source.below(attributes))
        return view, code ^ (1 << inside[source.below(len(inside))]) ^ (1 << outside[source.below(len(outside))])
    other = int(codes[source.below(len(codes))])
    return view, other ^ (1 << source.below(attributes)) ^ (1 << source.below(attributes))


# Assignment of attributes to points of a covering design: annealing over assignments, with budgets that follow.

HOT, COLD = 0.05, 0.001
"""Temperatures, in units of the logarithm of the error."""

SWAPS = 0.6
"""Part of the moves that exchange the points of two attributes. The others move one attribute."""


@dataclass(frozen=True, eq=False)
class DesignStart:
    """Design with a point for each attribute. blocks: with the common point last. budgets: by block."""

    family: DesignFamily
    blocks: BoolArray
    assignment: NDArray[np.intp]
    budgets: FloatArray
    error: float


def evaluate(
    objective: ViewObjective, blocks: BoolArray, assignment: NDArray[np.intp], budgets: FloatArray, rounds: int
) -> tuple[FloatArray, float]:
    """Returns budgets by block after some rounds, and the error. Equal views count as one, with summed budgets."""
    views = blocks[:, assignment]
    codes, cells = views @ objective.bits, np.exp(views @ objective.log_sizes)
    if len(set(codes.tolist())) == len(codes):
        return objective.improve(objective.incidence_of_codes(codes), cells, budgets, rounds)
    distinct, first, block_of, copies = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)
    start = np.bincount(block_of, budgets).astype(np.float64)
    shares, error = objective.improve(objective.incidence_of_codes(distinct), cells[first], start, rounds)
    return (shares / copies)[block_of], error


def start_design(objective: ViewObjective, family: DesignFamily, largest_view: float) -> DesignStart | None:
    """Returns the design with its attributes spread evenly, or None if a view would be too large."""
    blocks = with_common_point(family.build())
    assignment = assign_points(objective.log_sizes, family.points)
    if (blocks[:, assignment] @ objective.log_sizes).max() > log(largest_view):
        return None
    budgets, error = evaluate(objective, blocks, assignment, np.ones(len(blocks)), 10)
    return DesignStart(family, blocks, assignment, budgets, error)


def assigning_seconds(objective: ViewObjective, design: DesignStart, each: float = 2e-9) -> float:
    """Estimates the time of one step of an assignment on an idle machine, by pairs of block and component.

    each: the time of one pair. The default sets numbers of steps. LARGE_PAIR holds beyond the processor's cache.
    """
    return 4e-5 + each * len(design.blocks) * len(objective.kept)


def anneal_assignment(
    objective: ViewObjective,
    start: DesignStart,
    steps: int,
    largest_view: float,
    source: HashCounter,
    limit: WorkLimit,
) -> DesignStart:
    """Returns the best assignment of an annealing. The error is the objective after a few rounds of budgets."""
    current, best = start, start
    attributes, points = len(start.assignment), start.blocks.shape[1]
    most = log(largest_view)
    for step in range(steps):
        if limit.is_over:
            break
        limit.work(assigning_seconds(objective, start, LARGE_PAIR))
        moved = _assignment_move(current.assignment, attributes, points, source)
        chance = source.uniform()
        if moved is None or (start.blocks[:, moved] @ objective.log_sizes).max() > most:
            continue
        spread = np.maximum(current.budgets, 1e-3 / len(start.blocks))
        budgets, error = evaluate(objective, start.blocks, moved, spread, 3)
        temperature = HOT * (COLD / HOT) ** (step / steps)
        if error < current.error or chance < exp(log(current.error / error) / temperature):
            current = replace(current, assignment=moved, budgets=budgets, error=error)
            best = current if error < best.error else best
    return best


def _assignment_move(
    assignment: NDArray[np.intp], attributes: int, points: int, source: HashCounter
) -> NDArray[np.intp] | None:
    """Exchanges the points of two attributes, or moves one. Returns None if that changes nothing."""
    kind, attribute = source.uniform(), source.below(attributes)
    moved = assignment.copy()
    if kind < SWAPS:
        other = source.below(attributes)
        moved[attribute], moved[other] = assignment[other], assignment[attribute]
    else:
        moved[attribute] = source.below(points)
    return None if (moved == assignment).all() else moved
