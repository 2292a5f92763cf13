"""Covariances between released cells, for standard errors of sums, differences and ratios: public, from noise alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import compress, product
from math import inf, prod, sqrt

import numpy as np

from dpduck.algebra.lattice import Lattice, close_downward
from dpduck.kernel.noise.law import noise_variance
from dpduck.kernel.queries.operators import HadamardFactor, IdentityFactor
from dpduck.strategies.marginals.planners import code_lattice, coefficient_variances
from dpduck.strategies.plan import Plan, factor_kinds
from dpduck.strategies.recovery.intervals import SumMargin
from dpduck.strategies.variance import component_precisions, component_variances, direct_sources
from dpduck.values.arrays import FloatArray

ROUNDED = 1e-6
"""A factor closer to 1 than this is a rounding error."""

Members = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ComponentCovariances:
    """Covariances of answers made of uncorrelated ANOVA components. variances: c_U of each set U in the lattice."""

    lattice: Lattice
    variances: FloatArray

    def between(self, first: Members, second: Members) -> FloatArray:
        """Returns covariances of a cell of each marginal, shape (2,) * common attributes. Index 1: equal values."""
        sizes = dict(zip(self.lattice.attributes, self.lattice.sizes, strict=True))
        common = tuple(sorted(set(first) & set(second)))
        table = np.zeros((2,) * len(common))
        for flags in product((0, 1), repeat=len(common)):
            table[flags] = self.variances[self.lattice.numbers[tuple(compress(common, flags))]]
        for axis, attribute in enumerate(common):  # rows: equal values, 0 or 1. columns: attribute in U, 0 or 1.
            step = np.array([[1.0, -1.0], [1.0, sizes[attribute] - 1.0]])
            table = np.moveaxis(np.tensordot(step, table, axes=([1], [axis])), 0, axis)
        cells = prod([float(sizes[i]) for i in first]) * prod([float(sizes[i]) for i in second])
        return np.asarray(table / cells)


@dataclass(frozen=True, eq=False)
class TableCovariances:
    """Covariances of answers that each sum one noisy table. sources: that table's attributes and noise variance."""

    sizes: tuple[int, ...]
    sources: dict[Members, tuple[Members, float]]

    def between(self, first: Members, second: Members) -> FloatArray:
        common = set(first) & set(second)
        table = np.zeros((2,) * len(common))
        (measured, variance), (other, _) = self.sources[first], self.sources[second]
        if measured == other:
            shared = [float(self.sizes[i]) for i in measured if i not in {*first, *second}]
            table[(1,) * len(common)] = variance * prod(shared)
        return table


def covariances(plan: Plan) -> ComponentCovariances | TableCovariances:
    """Returns the covariances of all pairs of released cells, for a plan over marginals.

    With consistency 'l1' or 'linf' there is no closed form. The covariances then hold before the linear program, and
    are not stored with a release.
    """
    kinds = factor_kinds(plan)
    tables = kinds <= {IdentityFactor}
    if tables and (plan.consistency != "l2" or len(plan.measurements) == 1):
        sources, _ = direct_sources(plan.workload, plan.measurements, plan.noise)
        measurements = [plan.measurements[source] for source in sources]
        noisy_tables = [(used.query.attributes, noise_variance(plan.noise, used.parameter)) for used in measurements]
        return TableCovariances(plan.workload.sizes, dict(zip(plan.workload.marginals, noisy_tables, strict=True)))
    lattice = close_downward(plan.workload.marginals, plan.workload.sizes)
    if kinds <= {HadamardFactor} and plan.consistency == "none":
        return ComponentCovariances(
            code_lattice(lattice), coefficient_variances(lattice, plan.measurements, plan.noise)
        )
    precisions = component_precisions(lattice, plan.measurements, plan.noise)
    return ComponentCovariances(lattice, component_variances(lattice, precisions))


Covariances = ComponentCovariances | TableCovariances


def scale_to_variance(covariances: Covariances, members: Members, variance: float) -> Covariances:
    """Returns all covariances times one factor, so that a cell of the grouping set `members` has this variance."""
    own = float(covariances.between(members, members)[(1,) * len(members)])
    times = variance / own
    if abs(times - 1) < ROUNDED:
        return covariances
    if isinstance(covariances, TableCovariances):
        sources = {marginal: (table, times * noise) for marginal, (table, noise) in covariances.sources.items()}
        return TableCovariances(covariances.sizes, sources)
    return ComponentCovariances(covariances.lattice, times * covariances.variances)


def variance_of_sum(covariances: Covariances, weights: Mapping[Members, FloatArray]) -> float:
    """Returns the variance of a weighted sum of released cells. weights: a table of weights per used marginal."""
    if isinstance(covariances, TableCovariances):
        return _from_tables(covariances, weights)
    return _from_components(covariances, weights)


def ratio_weights(
    numerator: Mapping[Members, FloatArray], denominator: Mapping[Members, FloatArray], ratio: float, divisor: float
) -> dict[Members, FloatArray]:
    """Returns weights (w_N - R w_D) / D. To first order (delta method), noise summed by them is the error of N/D."""
    return {
        marginal: (numerator[marginal] - ratio * denominator[marginal]) / divisor
        for marginal in numerator.keys() | denominator.keys()
    }


def ratio_interval(
    covariances: Covariances,
    numerator: tuple[float, Mapping[Members, FloatArray]],
    denominator: tuple[float, Mapping[Members, FloatArray]],
    margins: SumMargin,
) -> tuple[float, float]:
    """Returns Fieller's interval of a ratio N/D: all t for which N - t D is within the margin of its noise.

    At the true ratio t, N - t D is noise alone. So the interval covers the ratio however near to 0 the denominator is.
    If D may be 0, every ratio is possible. numerator, denominator: a noisy sum of cells, and the weights of the cells.
    """
    (above, upper), (below, lower) = numerator, denominator
    variances = [variance_of_sum(covariances, weights) for weights in (upper, lower)]
    together = variance_of_sum(covariances, ratio_weights(upper, lower, -1.0, 1.0))
    shared = (together - sum(variances)) / 2

    def stderr(ratio: float) -> float:
        return sqrt(max(variances[0] - 2 * ratio * shared + ratio**2 * variances[1], 0.0))

    def step(ratio: float) -> float:
        return max(float(np.abs(part).max(initial=0.0)) for part in ratio_weights(upper, lower, ratio, 1.0).values())

    middle, largest = above / below, max(float(np.abs(table).max(initial=0.0)) for table in lower.values())
    lows, highs = [], []
    for times, jump in ((margins.farthest, 0.0), (margins.usual, 1.0)):
        room = abs(below) - times * sqrt(variances[1]) - jump * largest
        if room <= 0:
            continue
        farthest = (times * stderr(middle) + jump * step(middle)) / room

        def outside(ratio: float, times: float = times, jump: float = jump) -> float:
            return abs(above - ratio * below) - times * stderr(ratio) - jump * step(ratio)

        ends = [_root(outside, middle, middle + side * farthest * (1 + 1e-9)) for side in (-1, 1)]
        lows.append(ends[0])
        highs.append(ends[1])
    return max(lows, default=-inf), min(highs, default=inf)


def _root(outside: Callable[[float], float], inside: float, beyond: float) -> float:
    """Bisects from `inside`, where a function is negative, to `beyond`, where it is not. Returns the last `beyond`."""
    for _ in range(100):
        middle = (inside + beyond) / 2
        inside, beyond = (middle, beyond) if outside(middle) < 0 else (inside, middle)
    return beyond


def _from_tables(covariances: TableCovariances, weights: Mapping[Members, FloatArray]) -> float:
    """Returns the variance of a weighted sum. Each cell sums cells of one noisy table, and tables are independent."""
    lifted: dict[Members, FloatArray] = {}
    variances: dict[Members, float] = {}
    for marginal, table in weights.items():
        measured, variance = covariances.sources[marginal]
        shape = [covariances.sizes[i] if i in marginal else 1 for i in measured]
        full = np.broadcast_to(table.reshape(shape), [covariances.sizes[i] for i in measured])
        lifted[measured] = lifted[measured] + full if measured in lifted else full.copy()
        variances[measured] = variance
    return float(sum(variances[measured] * np.square(total).sum() for measured, total in lifted.items()))


def _from_components(covariances: ComponentCovariances, weights: Mapping[Members, FloatArray]) -> float:
    """Returns the sum over components U of c_U s_U' kron_{i in U} (n_i I - J) s_U. s_U: sums of weights / n_A in U."""
    lattice = covariances.lattice
    sizes = dict(zip(lattice.attributes, lattice.sizes, strict=True))
    total = 0.0
    for number, members in enumerate(lattice.sets):
        summed = _sum_outside(members, weights, sizes)
        if summed is None:
            continue
        centred = summed
        for axis, attribute in enumerate(members):
            centred = sizes[attribute] * centred - centred.sum(axis=axis, keepdims=True)
        total += float(covariances.variances[number]) * float((summed * centred).sum())
    return max(total, 0.0)


def _sum_outside(
    members: Members, weights: Mapping[Members, FloatArray], sizes: Mapping[int, int]
) -> FloatArray | None:
    total: FloatArray | None = None
    for marginal, table in weights.items():
        if not set(members) <= set(marginal):
            continue
        outside = tuple(axis for axis, attribute in enumerate(marginal) if attribute not in members)
        part = table.sum(axis=outside) / prod(float(sizes[attribute]) for attribute in marginal)
        total = part if total is None else total + part
    return total


def covariances_to_text(covariances: Covariances) -> str:
    """Returns covariances as JSON text, for a store."""
    if isinstance(covariances, TableCovariances):
        sources = [[list(members), list(table), variance] for members, (table, variance) in covariances.sources.items()]
        return json.dumps({"sizes": list(covariances.sizes), "sources": sources})
    lattice = covariances.lattice
    components = [[list(members), float(covariances.variances[number])] for number, members in enumerate(lattice.sets)]
    return json.dumps({"attributes": list(lattice.attributes), "sizes": list(lattice.sizes), "components": components})


def covariances_from_text(text: str) -> Covariances:
    """Reads covariances from the JSON text that covariances_to_text writes."""
    fields = json.loads(text)
    if "sources" in fields:
        sources = {tuple(marginal): (tuple(table), variance) for marginal, table, variance in fields["sources"]}
        return TableCovariances(tuple(fields["sizes"]), sources)
    components = {tuple(members): variance for members, variance in fields["components"]}
    sizes = [1] * (max(fields["attributes"], default=-1) + 1)
    for attribute, size in zip(fields["attributes"], fields["sizes"], strict=True):
        sizes[attribute] = size
    lattice = close_downward(tuple(components), tuple(sizes))
    return ComponentCovariances(lattice, np.array([components[members] for members in lattice.sets], np.float64))
