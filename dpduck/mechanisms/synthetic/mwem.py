"""MWEM (Hardt, Ligett and McSherry 2012): ask the worst answered query, answer it with noise, fit, again.

It sees noisy answers only: whoever asks is given by a protocol, and exact figures stay behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpduck.mechanisms.synthetic.distribution import LARGEST_TABLE, Distribution, uniform
from dpduck.mechanisms.synthetic.fit import FLAT_PRIOR, Observation, fit, observed_marginal, observed_query, total_of
from dpduck.mechanisms.synthetic.multiplicative import replayed
from dpduck.mechanisms.synthetic.schedule import Schedule, mean_absolute
from dpduck.trusted.operators import Family
from dpduck.values.arrays import FloatArray

ROUND_STEPS = 30
"""Steps of a fit after a round; it starts from the fit before."""

LAST_STEPS = 300
"""Steps of the last fit."""


class NoisyOracle(Protocol):
    """Who answers: synthetic.measure.DoorOracle in the product."""

    @property
    def left(self) -> Fraction:
        """What may still be spent."""

    def choose(self, estimates: FloatArray, penalties: FloatArray, allowed: NDArray[np.bool_], rate: Fraction) -> int:
        """A candidate that is answered badly."""

    def answer(self, candidate: int, parameter: Fraction) -> NDArray[np.int64]:
        """Its noisy answer."""

    def marginal(self, family: int, parameter: Fraction) -> NDArray[np.int64]:
        """A whole noisy marginal."""


@dataclass(frozen=True)
class Pool:
    """What may be asked: the workload's families, then those asked before the rounds, last the number of records.

    whole: candidates are the workload's families as a whole, which are marginals then; else their queries.
    """

    sizes: tuple[int, ...]
    workload: tuple[Family, ...]
    first: tuple[Family, ...]
    whole: bool

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """All of them, in the order of their numbers."""
        return (*self.workload, *self.first, Family((), ()))

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first query of each family, and the number of queries."""
        return np.cumsum([0, *(family.rows for family in self.families)])

    @cached_property
    def asked(self) -> tuple[tuple[int, ...], ...]:
        """The marginals that the workload's families speak of."""
        return tuple(dict.fromkeys(family.attributes for family in self.workload))

    @cached_property
    def plain(self) -> bool:
        """Whether the workload's queries are the cells of different marginals, one marginal after the other."""
        return len(self.asked) == len(self.workload) and all(family.is_marginal for family in self.workload)

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """The family of each candidate; of those that are not of the workload too."""
        numbers = np.arange(len(self.families))
        return numbers if self.whole else np.repeat(numbers, np.diff(self.starts))


@dataclass(frozen=True)
class Method:
    """fits: to convergence after each round; else the paper's update, `passes` times over all measurements.

    averages: the mean of the rounds' distributions in place of the last. dense: one table from the start.
    expected: a public guess at the number of records, None where there is none.
    """

    fits: bool = True
    passes: int = 20
    averages: bool = False
    dense: bool = False
    expected: int | None = None


@dataclass(frozen=True, eq=False)
class Synthesis:
    """The result, noisy through and through. records: estimated. chosen: the candidates of the rounds."""

    distribution: Distribution
    records: float
    chosen: tuple[int, ...]


def synthesise(pool: Pool, schedule: Schedule, method: Method, oracle: NoisyOracle) -> Synthesis:
    """The whole algorithm; the price is what the schedule says."""
    parameter = schedule.parameter(schedule.total_price)
    first_total = float(oracle.marginal(len(pool.families) - 1, parameter)[0])
    total = first_total, schedule.variance(parameter), method.expected
    distribution = uniform(pool.sizes, dense=method.dense or method.averages)
    observations: list[Observation] = []
    records = total_of(observations, *total)
    distribution = _begin(pool, schedule, oracle, distribution, observations, records)
    chosen: list[int] = []
    mean: FloatArray | None = None
    share, more = schedule.round_price / (4 if schedule.adaptive else 1), True
    while more:
        price = _price(schedule, share, oracle.left)
        more = price < oracle.left if schedule.adaptive else len(chosen) + 1 < schedule.rounds
        candidate, gap, parameter = _ask(pool, schedule, oracle, distribution, observations, records, price)
        chosen.append(candidate)
        if schedule.adaptive and gap <= mean_absolute(schedule.pure, schedule.variance(parameter)):
            share *= 2
        records = total_of(observations, *total)
        distribution = _updated(distribution, observations, records, method, ROUND_STEPS)
        if method.averages:
            table = distribution.components[0].table
            mean = table.copy() if mean is None else mean + table
    if mean is not None:
        distribution = distribution.replaced(0, mean / len(chosen))
    elif method.fits and observations:
        distribution = _updated(distribution, observations, records, method, LAST_STEPS, everywhere=True)
    return Synthesis(distribution, records, tuple(chosen))


def _price(schedule: Schedule, share: Fraction, left: Fraction) -> Fraction:
    """Of the next round; the last of adaptive rounds takes what a further one could not live on."""
    if not schedule.adaptive:
        return schedule.round_price
    return left if left < 2 * share else share


def _begin(
    pool: Pool,
    schedule: Schedule,
    oracle: NoisyOracle,
    distribution: Distribution,
    observations: list[Observation],
    records: float,
) -> Distribution:
    """The distribution after the questions before the rounds: a noisy histogram, or noisy marginals to be fitted."""
    if not pool.first:
        return distribution
    parameter = schedule.parameter(schedule.first_price)
    for number, family in enumerate(pool.first, start=len(pool.workload)):
        noisy = observed_marginal(family, oracle.marginal(number, parameter), schedule.variance(parameter))
        if len(family.attributes) == len(pool.sizes) > 1:
            joined, place = distribution.join(family.attributes)
            return joined.replaced(place, from_histogram(noisy, records, schedule.pure))
        observations.append(noisy)
        distribution = _updated(distribution, observations[-1:], records, Method(), ROUND_STEPS)
    return distribution


def from_histogram(noisy: Observation, records: float, pure: bool) -> FloatArray:
    """Cells whose noisy count stands out of the noise start there; the others share what remains evenly."""
    cells = noisy.value.size
    scale = mean_absolute(pure, noisy.variance)
    outstanding = noisy.value > scale * np.log(2 * cells)
    table = np.where(outstanding, noisy.value, 0.0)
    remaining = max(records - float(table.sum()), 0.05 * records)
    table += remaining / cells
    return np.asarray(table / table.sum())


def _ask(
    pool: Pool,
    schedule: Schedule,
    oracle: NoisyOracle,
    distribution: Distribution,
    observations: list[Observation],
    records: float,
    price: Fraction,
) -> tuple[int, float, Fraction]:
    """One choice and its noisy answer, noted; the candidate, the mean gap that was found, and the parameter."""
    rate, parameter = schedule.of_round(price)
    estimates = estimated(pool, distribution, records)
    owners, variance = pool.owners, schedule.variance(parameter)
    penalties = np.zeros(len(owners))
    if pool.whole:
        penalties = np.diff(pool.starts) * mean_absolute(schedule.pure, variance)
    candidate = oracle.choose(estimates, penalties, _allowed(pool, distribution)[owners], rate)
    noisy = oracle.answer(candidate, parameter)
    number = int(owners[candidate])
    family, start = pool.families[number], int(pool.starts[number])
    if pool.whole:
        observations.append(observed_marginal(family, noisy, variance))
        expected = estimates[start : start + family.rows]
    else:
        observations.append(observed_query(family, candidate - start, float(noisy[0]), variance))
        expected = estimates[candidate : candidate + 1]
    return candidate, float(np.abs(noisy - expected).mean()), parameter


def estimated(pool: Pool, distribution: Distribution, records: float) -> FloatArray:
    """What the distribution says of every query in the workload; nothing of the others, which are no candidates."""
    others = np.zeros(int(pool.starts[-1] - pool.starts[len(pool.workload)]))
    if pool.plain:
        answers = distribution.flat_marginals(pool.asked)
        answers *= records
        return np.concatenate([answers, others])
    marginals = distribution.marginals(pool.asked)
    found = [records * family.answers(marginals[family.attributes]) for family in pool.workload]
    return np.concatenate([*found, others])


def _allowed(pool: Pool, distribution: Distribution) -> NDArray[np.bool_]:
    """Families of the workload whose question leaves every table within bounds: a matter of sizes and past choices."""
    allowed = np.zeros(len(pool.families), np.bool_)
    fits = prod(pool.sizes) <= LARGEST_TABLE
    allowed[: len(pool.workload)] = [
        fits or distribution.joined_cells(family.attributes) <= LARGEST_TABLE for family in pool.workload
    ]
    return allowed


def _updated(
    distribution: Distribution,
    observations: Sequence[Observation],
    records: float,
    method: Method,
    steps: int,
    *,
    everywhere: bool = False,
) -> Distribution:
    """The distribution after one more observation.

    The paper's update replays all observations; a fit is done already in every table but the one that changes.
    everywhere: fit them all once more.
    """
    for observation in observations if everywhere else observations[-1:]:
        distribution, _ = distribution.join(observation.attributes)
    changed = distribution.holding(observations[-1].attributes)
    for place, component in enumerate(distribution.components):
        inside = [one for one in observations if set(one.attributes) <= set(component.members)]
        if not inside or (method.fits and not everywhere and place not in changed):
            continue
        if method.fits:
            table, _ = fit(
                component.members,
                component.table,
                inside,
                records,
                steps=steps,
                prior=np.full(component.table.shape, 1 / component.table.size),
                strength=FLAT_PRIOR * sum(one.value.size for one in inside),
            )
        else:
            table = replayed(component.members, component.table, inside, records, method.passes)
        distribution = distribution.replaced(place, table)
    return distribution
