"""MWEM (Hardt, Ligett and McSherry 2012): ask the worst answered query, answer it with noise, fit, again.

It sees noisy answers only: whoever asks is given by a protocol, and exact figures stay behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

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
    Observation,
    Parameters,
    fit,
    observed_marginal,
    observed_query,
    total_of,
)
from dpduck.mechanisms.synthetic.junction import Members, junction_tree
from dpduck.mechanisms.synthetic.multiplicative import replayed
from dpduck.mechanisms.synthetic.pool import Pool, allowed, apart, estimated
from dpduck.mechanisms.synthetic.schedule import Schedule, mean_absolute
from dpduck.values.arrays import FloatArray

ROUND_STEPS = 30
"""Steps of a fit after a round; it starts from the fit before."""

QUICK_STEPS, LAST_QUICK_STEPS = 3, 60
"""Of fits after annealed rounds, which begin near their end (`_moved_to`), and of the last of them."""

LEAST_GAIN = -0.95
"""Of a cell before such a fit: no single answer says more, since it may be noise that puts a cell near 0."""

LAST_STEPS = 300
"""Steps of the last fit."""

MOST_TOGETHER = 3
"""Rounds that have one fit, at most."""

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
    records: float
    observations: tuple[Observation, ...] = ()


@dataclass(frozen=True, eq=False)
class Run:
    """What may be asked, at which prices, how answers become a distribution, and who answers."""

    pool: Pool
    schedule: Schedule
    method: Method
    oracle: NoisyOracle


def synthesise(pool: Pool, schedule: Schedule, method: Method, oracle: NoisyOracle) -> Synthesis:
    """Returns the whole algorithm; the price is what the schedule says."""
    parameter, run = schedule.parameter(schedule.total_price), Run(pool, schedule, method, oracle)
    first_total = float(oracle.marginal(len(pool.families) - 1, parameter)[0])
    total = first_total, schedule.variance(parameter), method.expected
    zeros = zero_tables(pool.sizes, pool.zeros)
    start = uniform(pool.sizes, dense=method.dense or method.averages, zeros=zeros)
    state = _begin(run, State(start, {}, zeros, total_of([], *total)))
    chosen: list[int] = []
    mean: FloatArray | None = None
    share, more = schedule.round_price / (4 if schedule.adaptive else 1), schedule.rounds > 0
    while more:
        before, (found, newest, gap, more) = state, _ask(run, state, share)
        chosen += found
        more = more if schedule.adaptive else len(chosen) < schedule.rounds
        observations = (*state.observations, *newest)
        state = replace(state, observations=observations, records=total_of(observations, *total))
        state = _updated(state, newest, method, ROUND_STEPS)
        noise = mean_absolute(schedule.pure, newest[-1].variance)
        if schedule.adaptive and (_moved(before, state, newest) if method.anneals else gap) <= noise:
            share *= GROWTH if method.anneals else 2
        if method.averages:
            table = state.distribution.components[0].table
            mean = table.copy() if mean is None else mean + table
    if mean is not None:
        return Synthesis(state.distribution.replaced(0, mean / len(chosen)), state.records, tuple(chosen))
    if method.fits and state.observations:
        state = _updated(state, [], method, LAST_QUICK_STEPS if method.anneals else LAST_STEPS)
    return Synthesis(state.distribution, state.records, tuple(chosen))


def _moved(before: State, after: State, newest: Sequence[Observation]) -> float:
    """Tells how far the last fit moved a cell of what was asked, in the mean."""
    sets = [one.attributes for one in newest]
    old, new = (state.distribution.marginals(sets) for state in (before, after))
    return float(np.mean([np.abs(new[one] - old[one]).mean() for one in sets])) * after.records


def _begin(run: Run, state: State) -> State:
    """After the questions before the rounds: a noisy histogram, or noisy marginals to be fitted."""
    pool, schedule, observations = run.pool, run.schedule, list[Observation]()
    if not pool.first:
        return state
    parameter = schedule.parameter(schedule.first_price)
    for number, family in enumerate(pool.first, start=len(pool.workload)):
        noisy = observed_marginal(family, run.oracle.marginal(number, parameter), schedule.variance(parameter))
        if len(family.attributes) == len(pool.sizes) > 1:
            joined, place = state.distribution.join(family.attributes)
            table = from_histogram(noisy, state.records, schedule.pure)
            return replace(
                state, distribution=joined.replaced(place, table), parameters={family.attributes: np.log(table)}
            )
        observations.append(noisy)
    state = replace(state, observations=tuple(observations))
    return _updated(state, [], replace(run.method, fits=True), ROUND_STEPS)


def from_histogram(noisy: Observation, records: float, pure: bool) -> FloatArray:
    """Returns cells whose noisy count stands out of the noise start there; the others share what remains evenly."""
    cells = noisy.value.size
    scale = mean_absolute(pure, noisy.variance)
    outstanding = noisy.value > scale * np.log(2 * cells)
    table = np.where(outstanding, noisy.value, 0.0)
    remaining = max(records - float(table.sum()), 0.05 * records)
    table += remaining / cells
    return np.asarray(table / table.sum())


def _ask(run: Run, state: State, share: Fraction) -> tuple[list[int], list[Observation], float, bool]:
    """Returns choices, their noisy answers, the mean gap that the last one found, and whether a price is left.

    Several have one fit while the price suffices for many: they share a column at most, so that none is chosen for what
    another tells. The last of adaptive rounds takes what a further one could not live on.
    """
    pool, schedule, method, oracle = run.pool, run.schedule, run.method, run.oracle
    chosen, newest, gap, more, owners = list[int](), list[Observation](), 0.0, True, pool.owners
    known = estimates = None
    together = min(MOST_TOGETHER, int(oracle.left / share / len(pool.sizes))) if method.anneals else 1
    for _ in range(max(1, together)):
        price = oracle.left if schedule.adaptive and oracle.left < 2 * share else share
        more = price < oracle.left
        rate, parameter = schedule.of_round(price)
        used = 1 - float((oracle.left - price) / schedule.amount) if method.anneals else 1.0
        sets = [one.attributes for one in (*state.observations, *newest)]
        again = allowed(pool, sets, method.largest, used, anneals=method.anneals)
        if known is None or estimates is None:
            known, estimates = again, estimated(pool, state.distribution, state.records, again)
        else:
            known &= again & apart(pool, sets[-1])
            if not known.any():
                break
        variance, penalties = schedule.variance(parameter), np.zeros(len(owners))
        if pool.whole:
            penalties = np.diff(pool.starts) * mean_absolute(schedule.pure, variance)
        candidate = oracle.choose(estimates, penalties, known[owners], rate)
        noisy = oracle.answer(candidate, parameter)
        number = int(owners[candidate])
        family, start = pool.families[number], int(pool.starts[number])
        if pool.whole:
            newest.append(observed_marginal(family, noisy, variance))
            expected = estimates[start : start + family.rows]
        else:
            newest.append(observed_query(family, candidate - start, float(noisy[0]), variance))
            expected = estimates[candidate : candidate + 1]
        chosen.append(candidate)
        gap = float(np.abs(noisy - expected).mean())
    return chosen, newest, gap, more


def _updated(state: State, newest: Sequence[Observation], method: Method, steps: int) -> State:
    """Returns the distribution after the newest observations.

    The paper's update replays all observations over one table for all that they connect; a fit is done already in every
    part but those that change. newest: none where all parts are fitted once more.
    """
    if method.fits:
        return _fitted(state, newest, method, steps)
    distribution, _ = state.distribution.join(newest[-1].attributes)
    for place, component in enumerate(distribution.components):
        inside = [one for one in state.observations if set(one.attributes) <= set(component.members)]
        if inside:
            table = replayed(component.members, component.table, inside, state.records, method.passes)
            distribution = distribution.replaced(place, table)
    return replace(state, distribution=distribution)


def _fitted(state: State, newest: Sequence[Observation], method: Method, steps: int) -> State:
    """Chooses cliques for all that was asked, and fits each part that hangs together."""
    sizes, observations, records = state.distribution.sizes, state.observations, state.records
    changed = {attribute for one in newest for attribute in one.attributes}
    sets = [*(one.attributes for one in observations), *state.parameters, *state.zeros]
    dense = method.dense or method.averages
    cliques = (tuple(range(len(sizes))),) if dense else cliques_of(sizes, sets)
    old = {component.members: component for component in state.distribution.components}
    known = singles(sizes, observations, records) if method.anneals else []
    components: list[Component] = []
    quick = method.anneals and bool(newest)
    parameters = _moved_to(newest, state) if quick else dict(state.parameters)
    for group in connected(len(sizes), cliques):
        tree = junction_tree(tuple(clique for clique in cliques if group.issuperset(clique)))
        inside = [one for one in observations if group.issuperset(one.attributes)]
        same = all(clique in old for clique in tree.cliques)
        if same and not (inside and (not newest or changed & group)):
            components += [old[clique] for clique in tree.cliques]
            continue
        values = sum(one.value.size for one in inside)
        found = fit(
            tree, sizes, inside, records,
            steps=QUICK_STEPS if quick else steps,
            start={one: table for one, table in parameters.items() if group.issuperset(one)},
            prior={(place,): np.log(known[place]) for place in group} if known else {},
            strength=SINGLES_PRIOR * records if known else FLAT_PRIOR * values,
            zeros={one: table for one, table in state.zeros.items() if group.issuperset(one)},
        )  # fmt: skip
        parameters.update(found.parameters)
        components += [Component(clique, table) for clique, table in zip(tree.cliques, found.tables, strict=True)]
    return replace(state, distribution=Distribution(sizes, tuple(components)), parameters=parameters)


def _moved_to(newest: Sequence[Observation], state: State) -> dict[Members, FloatArray]:
    """Returns the parameters of what was asked last after a step of proportional fitting, damped by the noise.

    A cell far below its answer is raised to it, not beyond: Newton's step in the logarithm would overshoot.
    """
    margins, found = state.distribution.marginals([one.attributes for one in newest]), dict(state.parameters)
    for one in newest:
        before = state.records * margins[one.attributes].reshape(one.shape)
        gain = before * (one.value - before) / (before * before + one.variance)
        step = np.log1p(np.maximum(gain, LEAST_GAIN)).reshape(-1)
        found[one.attributes] = found.get(one.attributes, np.zeros(1)).reshape(-1) + step
    return found
