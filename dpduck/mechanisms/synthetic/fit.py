"""Fit of a distribution to all noisy answers: entropic mirror descent with a line search, weights by variance.

It minimises over distributions p on a junction tree

    F(p) = sum over observations |n q(p) - y|^2 / (2 variance) + strength KL(p | prior)

by steps log p <- log p - step gradient F. Up to a constant, log p is log prior plus a sum of tables over observed
margins, which are the parameters. Steps are Barzilai and Borwein's in the geometry of KL. A step must bring F enough
below the largest of the last values (Grippo, Lampariello and Lucidi 1986).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import scipy

from dpduck.algebra.margin_tree import MarginTree, margin_tree
from dpduck.mechanisms.synthetic.junction import JunctionTree, Members, calibrate, spread
from dpduck.mechanisms.synthetic.observations import Observation
from dpduck.values.arrays import FloatArray, IntegerArray

MEMORY = 5  # values of F that the line search looks back at
ENOUGH = 1e-4  # share of the decrease that the gradient promises
TOLERANCE = 1e-4  # relative: a fit ends if PATIENCE steps together gain less
PATIENCE = 5
SMALLEST = 1e-300
PRIOR = 1 / 12
"""Weight per record of a prior with the 1-way marginals. This and FLAT_PRIOR were the best on tables that no acceptance
test uses (benchmarks/papers/prior_weight.py)."""

FLAT_PRIOR = 3 / 4
"""Weight per measured value of the uniform prior."""

Parameters = Mapping[Members, FloatArray]
FEW_ENTRIES = 1 << 15
"""A clique is small if its cells times its sets are at most this. Small cliques share a matrix, to save calls."""

IMPOSSIBLE = -1e9
"""Stands for the logarithm of 0: its exponential is 0 exactly."""


def inner(left: FloatArray, right: FloatArray) -> float:
    """Returns the inner product by one thread, since two threads of BLAS wait long for each other on a busy machine."""
    return float(np.einsum("i,i->", left.reshape(-1), right.reshape(-1)))


@dataclass(frozen=True, eq=False)
class Point:
    """Distribution with its value of F. parameters, margins: on all sets, as flat arrays. tables: margins on cliques.

    residuals: predicted less measured values over variances, in an array for all marginals and in one for each query.
    """

    parameters: FloatArray
    margins: FloatArray
    tables: Sequence[FloatArray]
    value: float
    residuals: tuple[FloatArray, ...]


@dataclass(frozen=True, eq=False)
class FitProblem:
    """Input of a fit. sets: sets of attributes with parameters. records: n. prior: tables that add up to log prior.

    zeros: tables to be added to the prior, IMPOSSIBLE in cells that no row can have, else 0.
    """

    tree: JunctionTree
    sizes: Sequence[int]
    sets: tuple[Members, ...]
    observations: tuple[Observation, ...]
    records: float
    prior: Parameters
    strength: float
    zeros: Parameters

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        return [tuple(self.sizes[member] for member in clique) for clique in self.tree.cliques]

    @cached_property
    def places(self) -> dict[Members, slice]:
        ends = np.cumsum([0, *(prod(self.sizes[member] for member in attributes) for attributes in self.sets)]).tolist()
        return {attributes: slice(ends[number], ends[number + 1]) for number, attributes in enumerate(self.sets)}

    @cached_property
    def margin_trees(self) -> list[MarginTree | None]:
        """Returns the margins to take from each clique. A set's margin is from the smallest clique that contains it."""
        inside: list[list[Members]] = [[] for _ in self.tree.cliques]
        members, cells = [set(clique) for clique in self.tree.cliques], [prod(shape) for shape in self.shapes]
        for attributes in self.sets:
            holders = [place for place, clique in enumerate(members) if clique.issuperset(attributes)]
            inside[min(holders, key=lambda place: cells[place])].append(attributes)
        cliques = zip(self.tree.cliques, self.shapes, inside, strict=True)
        return [margin_tree(clique, shape, sets) if sets else None for clique, shape, sets in cliques]

    @cached_property
    def base(self) -> tuple[list[FloatArray], float]:
        """Returns tables over cliques that add up to the logarithm of the prior, and the logarithm of its total."""
        tables = [np.zeros(shape) for shape in self.shapes]
        for key, logarithm in (*self.prior.items(), *self.zeros.items()):
            place = next(place for place, clique in enumerate(self.tree.cliques) if set(key) <= set(clique))
            clique, shape = self.tree.cliques[place], self.shapes[place]
            tables[place] += logarithm.reshape([size if m in key else 1 for m, size in zip(clique, shape, strict=True)])
        if self.zeros or any(len(key) != 1 for key in self.prior):
            return tables, calibrate(self.tree, tables)[1]
        members = {member for clique in self.tree.cliques for member in clique}  # independent, so totals are multiplied
        logarithms = [self.prior.get((key,), np.zeros(self.sizes[key])) for key in members]
        return tables, sum(float(scipy.special.logsumexp(key)) for key in logarithms)

    @cached_property
    def small(self) -> tuple[list[int], scipy.sparse.csr_array, list[int]]:
        """Returns the small cliques, the matrix that lifts parameters to their cells, and the bounds of each clique."""
        places, rows, ends = [], [np.zeros(0, np.int64)], [0]
        lengths = [np.zeros(1, np.int64)]
        for place, (clique, shape) in enumerate(zip(self.tree.cliques, self.shapes, strict=True)):
            tree, cells = self.margin_trees[place], prod(shape)
            if tree is None or cells * len(tree.wanted) > FEW_ENTRIES:
                continue
            columns = np.empty((cells, len(tree.wanted)), np.int64)
            for number, key in enumerate(tree.wanted):
                numbers = np.arange(self.places[key].start, self.places[key].stop).reshape(spread(clique, key, shape))
                columns[:, number] = np.broadcast_to(numbers, shape).reshape(-1)
            places.append(place)
            rows.append(columns.reshape(-1))
            lengths.append(np.full(cells, len(tree.wanted)))
            ends.append(ends[-1] + cells)
        indices, parameters = np.concatenate(rows), max(self.places[key].stop for key in self.sets)
        entries = np.ones(len(indices)), indices, np.cumsum(np.concatenate(lengths))
        return places, scipy.sparse.csr_array(entries, shape=(ends[-1], parameters)), ends

    @cached_property
    def whole(self) -> FlatMarginals:
        seen = [observation for observation in self.observations if observation.coefficients is None]
        nothing = np.zeros(0)
        return FlatMarginals(
            np.concatenate([np.zeros(0, np.int64), *(np.arange(*self._span(observation)) for observation in seen)]),
            np.concatenate([nothing, *(observation.value.reshape(-1) for observation in seen)]),
            np.concatenate([nothing, *(self._weights(observation) for observation in seen)]),
        )

    @cached_property
    def queries(self) -> list[Observation]:
        return [observation for observation in self.observations if observation.coefficients is not None]

    def _span(self, observation: Observation) -> tuple[int, int]:
        place = self.places[observation.attributes]
        return place.start, place.stop

    def _weights(self, observation: Observation) -> FloatArray:
        """Returns 1 / variance for each cell, but 0 for impossible cells, which hold nothing but noise."""
        weights = np.full(observation.shape, 1 / observation.variance)
        for key, table in self.zeros.items():
            if set(key) <= set(observation.attributes):
                weights *= np.exp(table).reshape(spread(observation.attributes, key, observation.shape))
        return weights.reshape(-1)

    def lift(self, flat: FloatArray) -> list[FloatArray]:
        """Returns tables over cliques from flat tables over sets. Both add up to the same table over all attributes."""
        places, matrix, ends = self.small
        cells = matrix @ flat
        ready = {place: cells[ends[number] : ends[number + 1]] for number, place in enumerate(places)}
        result = []
        for place, (tree, shape) in enumerate(zip(self.margin_trees, self.shapes, strict=True)):
            if place in ready or tree is None:
                result.append(ready[place].reshape(shape) if tree is not None else np.zeros(shape))
                continue
            tables = {key: flat[self.places[key]].reshape([self.sizes[m] for m in key]) for key in tree.wanted}
            result.append(tree.lift(tables))
        return result

    def margins(self, tables: Sequence[FloatArray]) -> FloatArray:
        """Returns the margins on all sets of tables over cliques, as a flat array. This is the adjoint of `lift`."""
        places, matrix, _ = self.small
        result: FloatArray = matrix.T @ np.concatenate([np.zeros(0), *(tables[place].reshape(-1) for place in places)])
        ready = set(places)
        for place, tree in enumerate(self.margin_trees):
            if tree is not None and place not in ready:
                for key, margin in tree.margins(tables[place]).items():
                    result[self.places[key]] = margin.reshape(-1)
        return result

    def logarithms(self, parameters: FloatArray) -> Sequence[FloatArray]:
        lifted, base = self.lift(parameters), self.base[0]
        return [part + other for part, other in zip(lifted, base, strict=True)] if self.prior or self.zeros else lifted

    def point(self, parameters: FloatArray, logarithms: Sequence[FloatArray]) -> Point:
        tables, constant = calibrate(self.tree, logarithms)
        margins, whole, total = self.margins(tables), self.whole, self.base[1]
        gaps = self.records * margins[whole.places] - whole.values
        scaled = gaps * whole.weights
        residuals, misfit = [scaled], inner(gaps, scaled) / 2
        for observation in self.queries:
            margin = margins[self.places[observation.attributes]].reshape(observation.shape)
            residual = self.records * observation.predict(margin) - observation.value
            misfit += inner(residual, residual) / (2 * observation.variance)
            residuals.append(residual / observation.variance)
        divergence = inner(margins, parameters) - constant + total
        return Point(parameters, margins, tables, misfit + self.strength * divergence, tuple(residuals))

    def gradient(self, point: Point) -> FloatArray:
        """Returns the gradient of F over the sets. It is centred: its mean under the distribution is 0."""
        slope = self.strength * point.parameters
        slope += np.bincount(self.whole.places, self.records * point.residuals[0], len(slope))
        for observation, residual in zip(self.queries, point.residuals[1:], strict=True):
            part = self.records * observation.parameter(residual)
            slope[self.places[observation.attributes]] += part.reshape(-1)
        slope[self.places[self.sets[0]]] -= inner(point.margins, slope)
        return slope


@dataclass(frozen=True, eq=False)
class FlatMarginals:
    """Measured marginals, one after the other. places: their cells in flat margins. weights: 1 / variance."""

    places: IntegerArray
    values: FloatArray
    weights: FloatArray


@dataclass(frozen=True, eq=False)
class Ray:
    """Ray from a point down a slope. logarithms: the point's. slopes: the slope as tables over cliques."""

    point: Point
    logarithms: Sequence[FloatArray]
    slope: FloatArray
    slopes: Sequence[FloatArray]


@dataclass(frozen=True, eq=False)
class Fitted:
    """Result of a fit. tables: margins over the cliques. parameters: for the start of the next fit."""

    tables: Sequence[FloatArray]
    parameters: Parameters


def fit(
    tree: JunctionTree,
    sizes: Sequence[int],
    observations: Sequence[Observation],
    records: float,
    *,
    steps: int,
    start: Parameters,
    prior: Parameters,
    strength: float,
    tolerance: float = TOLERANCE,
    zeros: Parameters | None = None,
    first: float = 1.0,
) -> Fitted:
    """Fits a distribution. start: first parameters, each over a set within a clique. prior, zeros: see FitProblem.

    Steps may raise F for a while, so the answer is the point with the lowest F.

    first: the largest change of log p by the first step.
    """
    sets = tuple(dict.fromkeys([*(observation.attributes for observation in observations), *start]))
    problem = FitProblem(tree, sizes, sets, tuple(observations), records, prior, strength, zeros or {})
    parts = [start.get(item, np.zeros([sizes[member] for member in item])).reshape(-1) for item in sets]
    logarithms = problem.logarithms(np.concatenate(parts))
    point = best = problem.point(np.concatenate(parts), logarithms)
    slope = problem.gradient(point)
    slopes = problem.lift(slope)
    largest = sum(float(np.abs(part).max()) for part in slopes)
    values, step, idle, mark = [point.value], first / max(largest, SMALLEST), 0, point.value
    for number in range(steps if largest > SMALLEST else 0):
        slopes = problem.lift(slope) if number else slopes
        accepted = _line_search(problem, Ray(point, logarithms, slope, slopes), step, max(values[-MEMORY:]))
        if accepted is None:
            break
        after, logarithms, step = accepted
        next_slope = problem.gradient(after)
        # <slope, old margins> and <next_slope, new margins> are 0: gradients are centred
        along = inner(slope, after.margins)
        travelled = -step * along
        curvature = -inner(next_slope, point.margins) - along
        point, slope = after, next_slope
        best = min(best, after, key=lambda item: item.value)
        idle = 0 if best.value < mark - tolerance * abs(mark) else idle + 1
        mark = best.value if idle == 0 else mark
        values.append(after.value)
        step = travelled / curvature if travelled > 0 and curvature > 0 else 2 * step
        if idle >= PATIENCE:
            break
    return Fitted(best.tables, {item: best.parameters[place] for item, place in problem.places.items()})


def _line_search(
    problem: FitProblem, ray: Ray, step: float, reference: float
) -> tuple[Point, Sequence[FloatArray], float] | None:
    """Returns the point after the first step that lowers F enough, its logarithms, and the step. None if no step does.

    After any other step, the next one ends at the lowest point of a parabola through both points, at most half as far.
    """
    for _ in range(60):
        tried = [table - step * slope for table, slope in zip(ray.logarithms, ray.slopes, strict=True)]
        after = problem.point(ray.point.parameters - step * ray.slope, tried)
        promised = -inner(after.margins, ray.slope)  # <slope, old margins> is 0
        if after.value <= reference - ENOUGH * promised:
            return after, tried, step
        bend = after.value - ray.point.value + promised
        step *= min(1 / 2, max(1 / 32, promised / (2 * bend))) if bend > 0 else 1 / 2
    return None
