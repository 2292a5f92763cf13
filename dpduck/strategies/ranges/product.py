"""Kronecker products of strategies for ranges, one strategy for each attribute.

Every combination of one group of rows per attribute is one measurement. Unit parameters (the noise at a price of 1)
multiply, and so do the variances of answers: Var(q_1 x .. x q_d) = prod Var(q_i).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from itertools import product

import numpy as np

from dpduck.kernel.noise.law import NoiseKind, noise_variance
from dpduck.kernel.queries.operators import KroneckerQuery
from dpduck.strategies.budgets import safe_parameters
from dpduck.strategies.measurements import Measurement
from dpduck.strategies.ranges.least_squares import recover_buckets
from dpduck.strategies.ranges.strategy import RangeStrategy
from dpduck.values.arrays import FloatArray, IntegerArray

TIE = 1e-6
"""Predicted errors this close (relative) count as equal, and the simpler candidate wins."""

LARGEST_NORM_BITS = 21
"""Most bits of the product of all column norms. Answers about 2^40 rows must fit 64 bits."""

Place = tuple[slice | int, ...]
"""Place of a grouping set's answers within the answers of a product: an index for each attribute."""


@dataclass(frozen=True, eq=False)
class RangeProduct:
    """One strategy per attribute, and the measurements of their Kronecker product, which answer one set or several.

    measurements: one for each combination of groups, where the last attribute's group varies fastest. Their noise
    variance is `scale` times the product of their groups' `unit_variances`: exact for one attribute and one set, and an
    upper bound otherwise. places: of each grouping set's answers.
    """

    strategies: tuple[RangeStrategy, ...]
    measurements: tuple[Measurement, ...]
    unit_variances: tuple[FloatArray, ...]
    scale: float
    places: tuple[Place, ...]

    @cached_property
    def attribute_variances(self) -> tuple[FloatArray, ...]:
        """Returns each query's variance at unit_variances, by attribute."""
        pairs = zip(self.strategies, self.unit_variances, strict=True)
        return tuple(strategy.variances(units) for strategy, units in pairs)

    @cached_property
    def variances(self) -> tuple[FloatArray, ...]:
        return tuple(
            self.scale * reduce(np.multiply.outer, [own[of] for own, of in pairs], np.ones(()))
            for pairs in (zip(self.attribute_variances, place, strict=True) for place in self.places)
        )

    def recover(self, noisy: Sequence[IntegerArray]) -> tuple[FloatArray, ...]:
        """Returns the answers of every set, by least squares along one attribute at a time, which is exact."""
        groups = [range(len(strategy.factors)) for strategy in self.strategies]
        pieces: Mapping[tuple[int, ...], FloatArray] = {
            key: np.asarray(answers, dtype=np.float64) for key, answers in zip(product(*groups), noisy, strict=True)
        }
        for axis, (strategy, variances) in enumerate(zip(self.strategies, self.unit_variances, strict=True)):
            recovered = {}
            for rest in product(*groups[axis + 1 :]):
                rows = [np.moveaxis(pieces[(group, *rest)], axis, 0) for group in groups[axis]]
                answers = strategy.buckets.answers(recover_buckets(strategy, variances, rows))
                recovered[rest] = np.moveaxis(answers, 0, axis)
            pieces = recovered
        return tuple(np.asarray(pieces[()][place]) for place in self.places)


def norm_of(noise: NoiseKind) -> int:
    """Returns the column norm that sets the price under this noise: 1 for L1 (Laplace), 2 for L2 (Gaussian)."""
    return 1 if noise is NoiseKind.LAPLACE else 2


def combine(
    strategies: Sequence[RangeStrategy],
    noise: NoiseKind,
    amount: Fraction,
    unit_bound: int,
    places: Sequence[Place] = (),
) -> RangeProduct:
    """Returns the product, with exact parameters that cost at most `amount`. places: as in RangeProduct."""
    norm = norm_of(noise)
    attributes = tuple(strategy.workload.attribute for strategy in strategies)
    each = [strategy.unit_parameters(norm) for strategy in strategies]
    units = reduce(np.multiply.outer, each, np.ones(())).ravel()
    queries = [
        KroneckerQuery(attributes, factors) for factors in product(*(strategy.factors for strategy in strategies))
    ]
    norms = [query.norms[norm - 1] for query in queries]
    wanted = units / float(amount if norm == 1 else 2 * amount)
    parameters = safe_parameters(noise, wanted, norms, amount, unit_bound)
    measurements = tuple(Measurement(query, parameter) for query, parameter in zip(queries, parameters, strict=True))
    # Laplace: 2 b^2, Gaussian: sigma^2, by the largest rounding of a parameter
    largest = max(float(parameter) / float(unit) for parameter, unit in zip(parameters, units, strict=True))
    scale = 2 * largest**2 if norm == 1 else largest
    variances = tuple(own**2 if norm == 1 else own for own in each)
    if len(strategies) == 1 and not places:
        scale, variances = 1.0, (np.array([noise_variance(noise, parameter) for parameter in parameters]),)
    places = tuple(places) or ((slice(None),) * len(strategies),)
    return RangeProduct(tuple(strategies), measurements, variances, scale, places)
