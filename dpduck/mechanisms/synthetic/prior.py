"""Choice of the weight of a fit's prior, from the noisy answers alone and free of charge.

Fresh noise z has the law of the noise in the answers y. The mean distance of a fit of y + z from y - z is its mean
distance from the truth, plus a constant (Oliveira, Lei and Tibshirani, Unbiased risk estimation in the normal means
problem via coupled bootstrap techniques, 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import numpy as np
import scipy

from dpduck.kernel.noise.entropy import Entropy, operating_system_entropy, words64
from dpduck.kernel.noise.law import NoiseKind
from dpduck.language.select.impossible_cells import ImpossibleCells
from dpduck.mechanisms.synthetic.distribution import Distribution
from dpduck.mechanisms.synthetic.fit import PRIOR
from dpduck.mechanisms.synthetic.observations import Observation
from dpduck.mechanisms.synthetic.table_fit import fit_tables
from dpduck.strategies.plan import Plan
from dpduck.strategies.recovery.recover import recover
from dpduck.values.arrays import FloatArray

DRAWS = 2

FACTOR, LOWEST, HIGHEST = 4.0, -4, 1
"""Weights are PRIOR times powers of FACTOR, from LOWEST to HIGHEST."""

FINE = 1 << 10

TRIED = 8
"""Mean number of fits, the last fit included."""

Fit = Callable[[Sequence[Observation], float], tuple[Distribution, float]]
Answers = Sequence[FloatArray]


def best_fit(
    plan: Plan, observations: Sequence[Observation], zeros: Sequence[ImpossibleCells] = ()
) -> tuple[Distribution, float]:
    """Returns the fit of a plan's answers by the prior's best weight (`chosen_weight`), and the number of records."""

    def fit(observed: Sequence[Observation], weight: float) -> tuple[Distribution, float]:
        return fit_tables(plan.workload.sizes, observed, zeros=zeros, weight=weight)

    entropy = operating_system_entropy()
    noises = [fresh_noise(plan, entropy) for _ in range(DRAWS)]
    return fit(observations, chosen_weight(observations, noises, fit))


def chosen_weight(observations: Sequence[Observation], noises: Sequence[Answers], fit: Fit) -> float:
    """Returns the prior's weight with the least distance (`_miss`). Neighbours are tried as long as the distance falls.

    noises: for each draw, the noise that moves each observation.
    """
    misses: dict[int, float] = {}

    def miss_at(power: int) -> float:
        if power not in misses:
            misses[power] = sum(_miss(observations, noise, fit, weight_of(power)) for noise in noises)
        return misses[power]

    best = 0
    step = -1 if miss_at(-1) < miss_at(0) else 1
    while LOWEST <= best + step <= HIGHEST and miss_at(best + step) < miss_at(best):
        best += step
    return weight_of(best)


def weight_of(power: int) -> float:
    """Returns the weight of the prior for a power of FACTOR.

    >>> weight_of(0) == PRIOR
    True
    """
    return PRIOR * FACTOR**power


def _miss(observations: Sequence[Observation], noise: Answers, fit: Fit, weight: float) -> float:
    """Returns the squared distance of the fit of y + z from y - z, divided by the variance. y: answers. z: `noise`."""
    pairs = list(zip(observations, noise, strict=True))
    more = [replace(answer, value=answer.value + moved, variance=2 * answer.variance) for answer, moved in pairs]
    distribution, records = fit(more, weight)
    margins = distribution.marginals([answer.attributes for answer in observations])
    return sum(
        float(((records * margins[answer.attributes] - (answer.value - moved)) ** 2).sum()) / answer.variance
        for answer, moved in pairs
    )


def fresh_noise(plan: Plan, entropy: Entropy) -> list[FloatArray]:
    """Returns a plan's answers if all counts are 0: noise by each measurement's scale, recovered to answers."""
    drawn = []
    for measurement in plan.measurements:
        scale, shape = float(measurement.parameter), measurement.query.shape
        uniform = ((words64(entropy, prod(shape)) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        if plan.noise is NoiseKind.LAPLACE:
            noise = -scale * np.sign(uniform - 0.5) * np.log1p(-2 * np.abs(uniform - 0.5))
        else:
            noise = np.sqrt(scale) * scipy.special.ndtri(uniform)
        drawn.append(np.rint(noise * FINE).astype(np.int64).reshape(shape))
    return [np.asarray(answer, np.float64) / FINE for answer in recover(plan, drawn)]
