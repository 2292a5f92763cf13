"""The choice between two mechanisms for quantiles: the exponential mechanism, and a tree of counts.

The mechanism with the smaller predicted error is taken. An error is the variance of a value's rank at the whole price,
in units of the variance of a count's noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import log2

import numpy as np

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import NoiseKind
from dpduck.language.select.request import AUTO, CHOICE, TREE, Aggregate, Operand
from dpduck.strategies.ranges.buckets import MOST_TREE_CELLS, PARTS, WITHOUT_ENDS, Buckets, buckets_for, tree_workload
from dpduck.strategies.ranges.sets import plan_range_sets
from dpduck.strategies.recovery.quantiles import EXTREME, rank_deviations
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import Refusal

MOST_CHOSEN = 1 << 14
"""Most cells in which the exponential mechanism answers quantiles. More cells get a tree."""
LARGEST_PART = 1000
WRITTEN_TREE, WRITTEN_CHOICE = 3 / 4, 2.0
"""Assumed errors if the statement names the mechanism, as in earlier versions. The error of a tree is multiplied by its
squared number of levels."""
MOST_LEVELS = 1024
FINE = Fraction(1, 64)
"""The price at which errors of trees are computed. Another price multiplies errors for many rows by a factor."""


def power_of(noise: NoiseKind) -> float:
    """Returns the exponent p such that a measurement with error e at the whole price gets a share that grows by e^p."""
    return 1 / 3 if noise is NoiseKind.LAPLACE else 1 / 2


@dataclass(frozen=True)
class QuantileRule:
    """The rule by which quantiles are measured: as the statement says, or with the smaller predicted error.

    how: 'auto', 'tree' or 'choice', which is the exponential mechanism.
    cells: the number of cells of all grouping sets.
    """

    how: str
    intervals: bool = True
    cells: int = 1

    @property
    def parts(self) -> tuple[Fraction, ...]:
        """Returns the parts of the price for a quantile by the exponential mechanism, and for its ends."""
        return PARTS if self.intervals else WITHOUT_ENDS

    def choose(
        self, aggregates: Sequence[Aggregate], weights: Sequence[float], noise: NoiseKind
    ) -> frozenset[Aggregate]:
        """Returns the quantiles for the exponential mechanism. A tree answers the others.

        With 'auto', they are all quantiles of a column that the exponential mechanism can answer, or none of them. With
        'choice', a quantile is among them only if its column has no other quantile.
        """
        quantiles = [quantile for quantile in aggregates if quantile.is_quantile]
        if self.how == TREE or self.cells > MOST_CHOSEN:
            return frozenset()
        groups = [
            [quantile for quantile in quantiles if (quantile.condition, quantile.operand) == key]
            for key in dict.fromkeys((quantile.condition, quantile.operand) for quantile in quantiles)
        ]
        if self.how == CHOICE:
            return frozenset(
                quantile for group in groups for quantile in group if len(group) == 1 and can_be_chosen(quantile)
            )
        weight = dict(zip(aggregates, weights, strict=True))
        return frozenset(quantile for group in groups for quantile in self._better(group, weight, noise))

    def _better(
        self, group: Sequence[Aggregate], weight: dict[Aggregate, float], noise: NoiseKind
    ) -> Sequence[Aggregate]:
        """Returns one column's quantiles for the exponential mechanism, or none if trees alone err less."""
        able = [quantile for quantile in group if can_be_chosen(quantile)]
        if not able or self.cells * len(able) > MOST_CHOSEN:
            return ()
        power = power_of(noise)
        trees = {quantile: weight[quantile] * self.error(quantile, noise, chosen=False) for quantile in group}
        choices = [(weight[quantile] * self.error(quantile, noise, chosen=True)) ** power for quantile in able]
        rest = sum(trees[quantile] for quantile in group if quantile not in able)
        return able if sum(choices) + rest**power < sum(trees.values()) ** power else ()

    def error(self, aggregate: Aggregate, noise: NoiseKind, *, chosen: bool) -> float:
        """Returns the variance of a quantile's rank at the whole price. chosen: for the exponential mechanism."""
        if aggregate.operand is None:
            raise Refusal("a quantile needs a column", accepted="quantile_cont(column, 0.5)")
        if self.how != AUTO:
            steps = int((aggregate.operand.high - aggregate.operand.low) / aggregate.operand.step)
            return WRITTEN_CHOICE if chosen else WRITTEN_TREE * log2(max(2, min(steps, MOST_LEVELS))) ** 2
        fraction = aggregate.fraction or Fraction(0)
        if chosen:
            return choice_error(fraction, noise, self.parts[0])
        return tree_error(fraction, tree_of(aggregate.operand, self.cells).count, noise)


TREES = QuantileRule(TREE)


def can_be_chosen(aggregate: Aggregate) -> bool:
    """Tells whether the exponential mechanism can answer a quantile. It cannot choose among buckets below a minimum."""
    part = aggregate.fraction if aggregate.is_quantile and aggregate.fraction is not None else Fraction(0)
    return 0 < part < 1 and part.denominator <= LARGEST_PART


def tree_of(operand: Operand, cells: int) -> Buckets:
    """Returns the buckets of a tree over a column's values."""
    return buckets_for(operand.low, operand.high, operand.step, min(cells, MOST_TREE_CELLS))


def choice_error(fraction: Fraction, noise: NoiseKind, part: Fraction) -> float:
    """Returns the rank variance of the exponential mechanism's value for a part of the price. A count has variance 1.

    With Laplace noise it is 2 (2 M / part)^2 / epsilon^2, against 2 / epsilon^2 for a count. With Gaussian noise it is
    the variance for a loss of sqrt(8 part rho), against 1 / (2 rho). M is max(q, 1 - q).
    """
    farther = float(2 * max(fraction, 1 - fraction))
    return (farther / float(part)) ** 2 if noise is NoiseKind.LAPLACE else farther**2 / (2 * float(part))


def tree_error(fraction: Fraction, buckets: int, noise: NoiseKind) -> float:
    """Returns the mean rank variance of a tree's quantiles. A minimum or maximum is read at a nearby rank."""
    if buckets < 2:
        return 0.0
    ranks = rank_deviations(_tree_variances(buckets, noise), float(fraction), buckets - 1) ** 2
    return float(np.mean(ranks)) * (1 if 0 < fraction < 1 else 1 + EXTREME**2)


@cache
def _tree_variances(buckets: int, noise: NoiseKind) -> FloatArray:
    """Returns the variance of each answer of a tree at the whole price, in units of a count's variance."""
    workload = MarginalWorkload((buckets,), ((0,),), (1.0,))
    plan = plan_range_sets([tree_workload(buckets)], workload, noise, FINE, 1, strategy="hierarchy", apart=True)[0]
    unit = 2 / float(FINE) ** 2 if noise is NoiseKind.LAPLACE else 1 / (2 * float(FINE))
    answers: FloatArray = plan.cell_variances[0].reshape(1, -1) / unit
    return answers
