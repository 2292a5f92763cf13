"""MWEM (Hardt, Ligett and McSherry 2012): ask the worst answered query, answer it with noise, fit, again.

It sees noisy answers only: whoever asks is given by a protocol, and exact figures stay behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpduck.frontend.select.impossible_cells import ImpossibleCells
from dpduck.mechanisms.synthetic.distribution import (
    LARGEST_TABLE,
    Component,
    Distribution,
    cliques_of,
    connected,
    singles,
    uniform,
    zero_tables,
)
from dpduck.mechanisms.synthetic.fit import (
    FLAT_PRIOR,
    TOLERANCE,
    Observation,
    Parameters,
    fit,
    observed_marginal,
    observed_query,
    total_of,
)
from dpduck.mechanisms.synthetic.junction import Members, eliminated, junction_tree
from dpduck.mechanisms.synthetic.multiplicative import replayed
from dpduck.mechanisms.synthetic.schedule import Schedule, mean_absolute
from dpduck.trusted.operators import Family
from dpduck.values.arrays import FloatArray

ROUND_STEPS = 30
"""Steps of a fit after a round; it starts from the fit before."""

QUICK_STEPS, QUICK_TOLERANCE = 12, 1e-3
"""Of a fit after an annealed round, which begins near its end (`_moved_to`); the last fit is as thorough as others."""

LAST_STEPS = 300
"""Steps of the last fit."""

GROWTH = 2
"""Of a round's price, where nothing is learnt."""

SINGLES_PRIOR = 1 / 192
"""Weight per record of the prior where rounds anneal."""


class NoisyOracle(Protocol):
    """Who answers: synthetic.measure.DoorOracle in the product."""

    @property
    def left(self) -> Fraction:
        """Returns what may still be spent."""

    def choose(self, estimates: FloatArray, penalties: FloatArray, allowed: NDArray[np.bool_], rate: Fraction) -> int:
        """Returns a candidate that is answered badly."""

    def answer(self, candidate: int, parameter: Fraction) -> NDArray[np.int64]:
        """Returns its noisy answer."""

    def marginal(self, family: int, parameter: Fraction) -> NDArray[np.int64]:
        """Returns a whole noisy marginal."""


@dataclass(frozen=True)
class Pool:
    """What may be asked: the workload's families, then those asked before the rounds, last the number of records.

    whole: candidates are the workload's families as a whole, which are marginals then; else their queries. weights: of
    the workload's families in choices, in units of 1/WEIGHT; none for 1 each. zeros: where no row can be.
    """

    sizes: tuple[int, ...]
    workload: tuple[Family, ...]
    first: tuple[Family, ...]
    whole: bool
    weights: tuple[int, ...] = ()
    zeros: tuple[ImpossibleCells, ...] = ()

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """Returns all of them, in the order of their numbers."""
        return (*self.workload, *self.first, Family((), ()))

    @property
    def all_weights(self) -> tuple[int, ...]:
        """Of all families; those before the rounds and the number of records are never chosen."""
        return (*self.weights, *(1 for _ in self.first), 1) if self.weights else ()

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Returns the first query of each family, and the number of queries."""
        return np.cumsum([0, *(family.rows for family in self.families)])

    @cached_property
    def asked(self) -> tuple[tuple[int, ...], ...]:
        """Returns the marginals that the workload's families speak of."""
        return tuple(dict.fromkeys(family.attributes for family in self.workload))

    @cached_property
    def plain(self) -> bool:
        """Tells whether the workload's queries are the cells of different marginals, one marginal after the other."""
        return len(self.asked) == len(self.workload) and all(family.is_marginal for family in self.workload)

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """Returns the family of each candidate; of those that are not of the workload too."""
        numbers = np.arange(len(self.families))
        return numbers if self.whole else np.repeat(numbers, np.diff(self.starts))


@dataclass(frozen=True)
class Method:
    """fits: to convergence after each round; else the paper's update, `passes` times over all measurements.

    averages: the mean of the rounds' distributions in place of the last. dense: one table from the start.
    expected: a public guess at the number of records, None where there is none. anneals: as AIM (McKenna et al. 2022),
    a round's price grows where the distribution moved less than noise would move it, and the prior knows 1-way margins.
    largest: cells of the distribution's tables, about.
    """

    fits: bool = True
    passes: int = 20
    averages: bool = False
    dense: bool = False
    expected: int | None = None
    anneals: bool = False
    largest: int = LARGEST_TABLE


@dataclass(frozen=True, eq=False)
class Synthesis:
    """The result, noisy through and through. records: estimated. chosen: the candidates of the rounds."""

    distribution: Distribution
    records: float
    chosen: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class State:
    """What is known so far. parameters: of the distribution, where it was fitted. zeros: see FitProblem."""

    distribution: Distribution
    parameters: Parameters
    zeros: Parameters


def synthesise(pool: Pool, schedule: Schedule, method: Method, oracle: NoisyOracle) -> Synthesis:
    """Returns the whole algorithm; the price is what the schedule says."""
    parameter = schedule.parameter(schedule.total_price)
    first_total = float(oracle.marginal(len(pool.families) - 1, parameter)[0])
    total = first_total, schedule.variance(parameter), method.expected
    observations: list[Observation] = []
    records = total_of(observations, *total)
    zeros = zero_tables(pool.sizes, pool.zeros)
    state = State(uniform(pool.sizes, dense=method.dense or method.averages, zeros=zeros), {}, zeros)
    state = _begin(pool, schedule, method, oracle, state, observations, records)
    chosen: list[int] = []
    mean: FloatArray | None = None
    share, more = schedule.round_price / (4 if schedule.adaptive else 1), schedule.rounds > 0
    while more:
        price, before = _price(schedule, share, oracle.left), state
        more = price < oracle.left if schedule.adaptive else len(chosen) + 1 < schedule.rounds
        candidate, gap, parameter = _ask(pool, schedule, method, oracle, state, observations, records, price)
        chosen.append(candidate)
        records = total_of(observations, *total)
        state = _updated(state, observations, records, method, ROUND_STEPS)
        noise = mean_absolute(schedule.pure, schedule.variance(parameter))
        if schedule.adaptive and (_moved(before, state, observations[-1], records) if method.anneals else gap) <= noise:
            share *= GROWTH if method.anneals else 2
        if method.averages:
            table = state.distribution.components[0].table
            mean = table.copy() if mean is None else mean + table
    if mean is not None:
        return Synthesis(state.distribution.replaced(0, mean / len(chosen)), records, tuple(chosen))
    if method.fits and observations:
        state = _updated(state, observations, records, method, LAST_STEPS, everywhere=True)
    return Synthesis(state.distribution, records, tuple(chosen))


def _moved(before: State, after: State, newest: Observation, records: float) -> float:
    """Tells how far the last fit moved a cell of what was asked, in the mean."""
    old, new = (state.distribution.marginals([newest.attributes])[newest.attributes] for state in (before, after))
    return float(np.abs(new - old).mean()) * records


def _price(schedule: Schedule, share: Fraction, left: Fraction) -> Fraction:
    """Of the next round; the last of adaptive rounds takes what a further one could not live on."""
    if not schedule.adaptive:
        return schedule.round_price
    return left if left < 2 * share else share


def _begin(
    pool: Pool,
    schedule: Schedule,
    method: Method,
    oracle: NoisyOracle,
    state: State,
    observations: list[Observation],
    records: float,
) -> State:
    """After the questions before the rounds: a noisy histogram, or noisy marginals to be fitted."""
    if not pool.first:
        return state
    parameter = schedule.parameter(schedule.first_price)
    for number, family in enumerate(pool.first, start=len(pool.workload)):
        noisy = observed_marginal(family, oracle.marginal(number, parameter), schedule.variance(parameter))
        if len(family.attributes) == len(pool.sizes) > 1:
            joined, place = state.distribution.join(family.attributes)
            table = from_histogram(noisy, records, schedule.pure)
            return replace(
                state, distribution=joined.replaced(place, table), parameters={family.attributes: np.log(table)}
            )
        observations.append(noisy)
    return _updated(state, observations, records, replace(method, fits=True), ROUND_STEPS, everywhere=True)


def from_histogram(noisy: Observation, records: float, pure: bool) -> FloatArray:
    """Returns cells whose noisy count stands out of the noise start there; the others share what remains evenly."""
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
    method: Method,
    oracle: NoisyOracle,
    state: State,
    observations: list[Observation],
    records: float,
    price: Fraction,
) -> tuple[int, float, Fraction]:
    """Returns one choice and its noisy answer, noted; the candidate, the mean gap that was found, and the parameter."""
    rate, parameter = schedule.of_round(price)
    used = 1 - float((oracle.left - price) / schedule.amount) if method.anneals else 1.0
    allowed = _allowed(pool, method, [one.attributes for one in observations], used)
    estimates = estimated(pool, state.distribution, records, allowed)
    owners, variance = pool.owners, schedule.variance(parameter)
    penalties = np.zeros(len(owners))
    if pool.whole:
        penalties = np.diff(pool.starts) * mean_absolute(schedule.pure, variance)
    candidate = oracle.choose(estimates, penalties, allowed[owners], rate)
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


def estimated(
    pool: Pool, distribution: Distribution, records: float, allowed: NDArray[np.bool_] | None = None
) -> FloatArray:
    """Returns what the distribution says of every query that may be asked; nothing of the others."""
    numbers = range(len(pool.workload)) if allowed is None else np.flatnonzero(allowed).tolist()
    found = np.zeros(int(pool.starts[-1]))
    if pool.plain and len(numbers) == len(pool.workload):
        answers = distribution.flat_marginals(pool.asked)
        answers *= records
        found[: len(answers)] = answers
        return found
    marginals = distribution.marginals(list(dict.fromkeys(pool.workload[number].attributes for number in numbers)))
    for number in numbers:
        family, start = pool.workload[number], int(pool.starts[number])
        found[start : start + family.rows] = records * family.answers(marginals[family.attributes])
    return found


def _allowed(pool: Pool, method: Method, asked: Sequence[Members], used: float) -> NDArray[np.bool_]:
    """Lists families of the workload whose question leaves the tables within bounds: by sizes and past choices.

    used: of the price, so that one large table does not keep all others out. Where rounds anneal, pairs are candidates,
    and those of three and more columns are such as answers connect already: most of the others' time for no less error.
    """
    allowed, limit = np.zeros(len(pool.families), np.bool_), 2 * method.largest * used
    if prod(pool.sizes) <= method.largest:
        allowed[: len(pool.workload)] = True
        return allowed
    asked = [*asked, *(one.members for one in pool.zeros)]
    elimination = eliminated(pool.sizes, asked)
    near = [1 << attribute for attribute in range(len(pool.sizes))]
    for attributes in asked:
        for attribute in attributes:
            near[attribute] |= sum(1 << one for one in attributes)
    for number, family in enumerate(pool.workload):
        if method.anneals and len(family.attributes) > 2 and not _hangs(family.attributes, near):
            continue
        cells = elimination.cells_with(family.attributes)
        allowed[number] = cells <= limit or cells == elimination.cells
    return allowed


def _hangs(attributes: Members, near: Sequence[int]) -> bool:
    """Tells whether attributes are connected among themselves. near: for each attribute its neighbours' bits."""
    wanted = sum(1 << attribute for attribute in attributes)
    reached, grown = 0, 1 << attributes[0]
    while grown != reached:
        reached = grown
        for attribute in attributes:
            if reached >> attribute & 1:
                grown |= near[attribute] & wanted
    return reached == wanted


def _updated(
    state: State,
    observations: Sequence[Observation],
    records: float,
    method: Method,
    steps: int,
    *,
    everywhere: bool = False,
) -> State:
    """Returns the distribution after one more observation.

    The paper's update replays all observations over one table for all that they connect; a fit is done already in every
    part but the one that changes. everywhere: fit them all once more.
    """
    if method.fits:
        return _fitted(state, observations, records, method, steps, everywhere)
    distribution, _ = state.distribution.join(observations[-1].attributes)
    for place, component in enumerate(distribution.components):
        inside = [one for one in observations if set(one.attributes) <= set(component.members)]
        if inside:
            table = replayed(component.members, component.table, inside, records, method.passes)
            distribution = distribution.replaced(place, table)
    return replace(state, distribution=distribution)


def _fitted(
    state: State, observations: Sequence[Observation], records: float, method: Method, steps: int, everywhere: bool
) -> State:
    """Chooses cliques for all that was asked, and fits each part that hangs together."""
    sizes, newest = state.distribution.sizes, set(observations[-1].attributes)
    sets = [*(one.attributes for one in observations), *state.parameters, *state.zeros]
    dense = method.dense or method.averages
    cliques = (tuple(range(len(sizes))),) if dense else cliques_of(sizes, sets)
    old = {component.members: component for component in state.distribution.components}
    known = singles(sizes, observations, records) if method.anneals else []
    components: list[Component] = []
    quick = method.anneals and not everywhere
    parameters = {**state.parameters, **(_moved_to(observations[-1], state, records) if quick else {})}
    for group in connected(len(sizes), cliques):
        tree = junction_tree(tuple(clique for clique in cliques if group.issuperset(clique)))
        inside = [one for one in observations if group.issuperset(one.attributes)]
        same = all(clique in old for clique in tree.cliques)
        if same and not (inside and (everywhere or newest & group)):
            components += [old[clique] for clique in tree.cliques]
            continue
        values = sum(one.value.size for one in inside)
        found = fit(
            tree, sizes, inside, records,
            steps=QUICK_STEPS if quick else steps,
            start={one: table for one, table in parameters.items() if group.issuperset(one)},
            prior={(place,): np.log(known[place]) for place in group} if known else {},
            strength=SINGLES_PRIOR * records if known else FLAT_PRIOR * values,
            tolerance=QUICK_TOLERANCE if quick else TOLERANCE,
            zeros={one: table for one, table in state.zeros.items() if group.issuperset(one)},
        )  # fmt: skip
        parameters.update(found.parameters)
        components += [Component(clique, table) for clique, table in zip(tree.cliques, found.tables, strict=True)]
    return State(Distribution(sizes, tuple(components)), parameters, state.zeros)


def _moved_to(newest: Observation, state: State, records: float) -> Parameters:
    """Returns the parameters of what was asked last after Newton's step for each cell alone, damped by its noise."""
    before = records * state.distribution.marginals([newest.attributes])[newest.attributes].reshape(newest.shape)
    step = before * (newest.value - before) / (before * before + newest.variance)
    return {newest.attributes: state.parameters.get(newest.attributes, np.zeros(1)).reshape(-1) + step.reshape(-1)}
