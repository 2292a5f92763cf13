"""MWEM (Hardt, Ligett and McSherry 2012): choose a badly answered query, answer it with noise, fit, and repeat.

Noisy answers come from an oracle (NoisyOracle), which never hands out an exact figure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpduck.mechanisms.synthetic.cliques import LARGEST_TABLE, attribute_groups, cliques_of
from dpduck.mechanisms.synthetic.distribution import Component, Distribution, uniform, zero_tables
from dpduck.mechanisms.synthetic.estimates import askable_families, estimate_queries
from dpduck.mechanisms.synthetic.fit import FLAT_PRIOR, Parameters, fit
from dpduck.mechanisms.synthetic.junction import junction_tree
from dpduck.mechanisms.synthetic.multiplicative import replay
from dpduck.mechanisms.synthetic.observations import Observation, marginal_observation, query_observation, total_of
from dpduck.mechanisms.synthetic.pool import Estimates, Pool
from dpduck.mechanisms.synthetic.schedule import Schedule, mean_absolute
from dpduck.mechanisms.synthetic.table_fit import singles
from dpduck.values.arrays import FloatArray

ROUND_STEPS = 30
"""Steps of a fit after a round. It starts from the result of the last fit."""

QUICK_STEPS, LAST_QUICK_STEPS, QUICK_FIRST = 3, 60, 1 / 32
"""Steps of a fit after an annealed round, which begins near its end (`_step_towards`), and of the last fit. Largest
change of log p by the first step of a round's fit: a first step of 1 was nearly always cut back to this."""

REFRESHED = 8
"""Number of answers after which all candidates of annealed rounds are estimated anew (`_estimates`)."""

LEAST_GAIN = -0.95
"""Least relative change of a cell in `_step_towards`. One answer justifies no more: noise may put a cell near 0."""

LAST_STEPS = 300

GROWTH = 2
"""Factor by which the price of a round grows if the last round learnt nothing."""

SINGLES_PRIOR = 1 / 192


class NoisyOracle(Protocol):
    """Oracle that answers questions: synthetic.measure.DoorOracle in the product."""

    @property
    def left(self) -> Fraction:
        """Returns the price that may still be spent."""

    def choose(self, estimates: FloatArray, penalties: FloatArray, allowed: NDArray[np.bool_], rate: Fraction) -> int:
        """Chooses a candidate that the estimates answer badly."""

    def answer(self, candidate: int, parameter: Fraction) -> NDArray[np.int64]:
        """Returns the noisy answer of a candidate."""

    def marginal(self, family: int, parameter: Fraction) -> NDArray[np.int64]:
        """Returns a whole noisy marginal."""


@dataclass(frozen=True)
class Method:
    """Use of the answers. fits: True for a fit after a round, False for the paper's update, in `passes` passes.

    averages: whether the result is the mean of the rounds' distributions, not the last.
    dense: whether one table over all attributes is used from the start.
    anneals: as in AIM (McKenna et al. 2022): a round's price grows if the distribution moves less than noise would move
        it, and the prior has the 1-way margins.
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
    """Result of MWEM, from noisy answers only. records: their estimated number. chosen: each round's candidate."""

    distribution: Distribution
    records: float
    chosen: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class State:
    """State after some rounds. zeros: see FitProblem. parameters, estimates: of the last fit and choice."""

    distribution: Distribution
    parameters: Parameters
    zeros: Parameters
    records: float
    observations: tuple[Observation, ...] = ()
    estimates: Estimates | None = None


@dataclass(frozen=True, eq=False)
class Run:
    """Run of MWEM: the pool of questions, their prices, the method that fits answers, and the oracle."""

    pool: Pool
    schedule: Schedule
    method: Method
    oracle: NoisyOracle


def synthesise(pool: Pool, schedule: Schedule, method: Method, oracle: NoisyOracle) -> Synthesis:
    """Runs the whole algorithm at the price of the schedule."""
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
        before, (candidate, newest, gap, more, estimates) = state, _ask(run, state, share)
        chosen.append(candidate)
        more = more if schedule.adaptive else len(chosen) < schedule.rounds
        observations = (*state.observations, newest)
        reusable = estimates if method.anneals else None  # other methods do not reuse them, and they may be large
        state = replace(state, observations=observations, estimates=reusable, records=total_of(observations, *total))
        state = _update_state(state, newest, method, ROUND_STEPS)
        noise = mean_absolute(schedule.pure, newest.variance)
        if schedule.adaptive and (_mean_move(before, state, newest) if method.anneals else gap) <= noise:
            share *= GROWTH
        if method.averages:
            table = state.distribution.components[0].table
            mean = table.copy() if mean is None else mean + table
    if mean is not None:
        return Synthesis(state.distribution.with_table(0, mean / len(chosen)), state.records, tuple(chosen))
    if method.fits and state.observations:
        state = _update_state(state, None, method, LAST_QUICK_STEPS if method.anneals else LAST_STEPS)
    return Synthesis(state.distribution, state.records, tuple(chosen))


def _mean_move(before: State, after: State, newest: Observation) -> float:
    old, new = (state.distribution.marginals([newest.attributes])[newest.attributes] for state in (before, after))
    return float(np.abs(new - old).mean()) * after.records


def _begin(run: Run, state: State) -> State:
    """Returns the state after the questions before the rounds: a noisy histogram, or fitted noisy marginals."""
    pool, schedule, observations = run.pool, run.schedule, list[Observation]()
    if not pool.first:
        return state
    parameter = schedule.parameter(schedule.first_price)
    for number, family in enumerate(pool.first, start=len(pool.workload)):
        noisy = marginal_observation(family, run.oracle.marginal(number, parameter), schedule.variance(parameter))
        if len(family.attributes) == len(pool.sizes) > 1:
            joined, place = state.distribution.join(family.attributes)
            table = from_histogram(noisy, state.records, schedule.pure)
            return replace(
                state, distribution=joined.with_table(place, table), parameters={family.attributes: np.log(table)}
            )
        observations.append(noisy)
    state = replace(state, observations=tuple(observations))
    return _update_state(state, None, replace(run.method, fits=True), ROUND_STEPS)


def from_histogram(noisy: Observation, records: float, pure: bool) -> FloatArray:
    """Returns a first distribution from a noisy histogram: counts that exceed noise, and the rest in even shares."""
    cells = noisy.value.size
    scale = mean_absolute(pure, noisy.variance)
    outstanding = noisy.value > scale * np.log(2 * cells)
    table = np.where(outstanding, noisy.value, 0.0)
    remaining = max(records - float(table.sum()), 0.05 * records)
    table += remaining / cells
    return np.asarray(table / table.sum())


def _ask(run: Run, state: State, share: Fraction) -> tuple[int, Observation, float, bool, Estimates]:
    """Runs a round. Returns the candidate, its noisy answer and mean gap, whether price is left, and the estimates.

    The last adaptive round also takes a rest of the price that is too small for another round.
    """
    pool, schedule, method, oracle, owners = run.pool, run.schedule, run.method, run.oracle, run.pool.owners
    left = oracle.left
    price = left if schedule.adaptive and left < 2 * share else share
    rate, parameter = schedule.of_round(price)
    used = 1 - float((left - price) / schedule.amount) if method.anneals else 1.0
    sets = [observation.attributes for observation in state.observations]
    asked = askable_families(pool, sets, method.largest, used, anneals=method.anneals)
    estimates = _estimates(run, state, asked)
    variance, penalties = schedule.variance(parameter), np.zeros(len(owners))
    if pool.whole:
        penalties = np.diff(pool.starts) * mean_absolute(schedule.pure, variance)
    candidate = oracle.choose(estimates.values, penalties, asked[owners], rate)
    noisy = oracle.answer(candidate, parameter)
    number = int(owners[candidate])
    family, start = pool.families[number], int(pool.starts[number])
    if pool.whole:
        newest, expected = marginal_observation(family, noisy, variance), estimates.values[start : start + family.rows]
    else:
        newest = query_observation(family, candidate - start, float(noisy[0]), variance)
        expected = estimates.values[candidate : candidate + 1]
    return candidate, newest, float(np.abs(noisy - expected).mean()), price < left, estimates


def _estimates(run: Run, state: State, asked: NDArray[np.bool_]) -> Estimates:
    """Returns the distribution's estimates of the families that may be asked.

    Between full estimates, annealed rounds estimate only families that share a column with the last question, or are
    new.
    """
    pool, last = run.pool, state.estimates
    if last is None or not run.method.anneals or len(state.observations) % REFRESHED == 0:
        return Estimates(estimate_queries(pool, state.distribution, state.records, asked), asked)
    due = asked & (pool.sharing(state.observations[-1].attributes) | ~last.known)
    values = estimate_queries(pool, state.distribution, state.records, due)
    return Estimates(np.where(np.repeat(due, np.diff(pool.starts)), values, last.values), asked)


def _update_state(state: State, newest: Observation | None, method: Method, steps: int) -> State:
    """Returns the state after the newest observation. newest: None if all groups are to be fitted once more.

    The paper's update replays all observations. A fit changes only the group of the newest observation.
    """
    if method.fits or newest is None:
        return _fit_parts(state, newest, method, steps)
    distribution, _ = state.distribution.join(newest.attributes)
    for place, component in enumerate(distribution.components):
        inside = [answer for answer in state.observations if set(answer.attributes) <= set(component.members)]
        if inside:
            table = replay(component.members, component.table, inside, state.records, method.passes)
            distribution = distribution.with_table(place, table)
    return replace(state, distribution=distribution)


def _fit_parts(state: State, newest: Observation | None, method: Method, steps: int) -> State:
    """Chooses cliques for all observations, and fits each connected group that the newest observation changes."""
    sizes, observations, records = state.distribution.sizes, state.observations, state.records
    changed = set(range(len(sizes)) if newest is None else newest.attributes)
    sets = [*(item.attributes for item in observations), *state.parameters, *state.zeros]
    dense = method.dense or method.averages
    cliques = (tuple(range(len(sizes))),) if dense else cliques_of(sizes, sets)
    old = {component.members: component for component in state.distribution.components}
    margins = singles(sizes, observations, records) if method.anneals else []
    components: list[Component] = []
    quick = method.anneals and newest is not None
    parameters = {**state.parameters, **(_step_towards(newest, state) if method.anneals and newest else {})}
    for group in attribute_groups(len(sizes), cliques):
        tree = junction_tree(tuple(clique for clique in cliques if group.issuperset(clique)))
        inside = [item for item in observations if group.issuperset(item.attributes)]
        same = all(clique in old for clique in tree.cliques)
        if same and not (inside and changed & group):
            components += [old[clique] for clique in tree.cliques]
            continue
        values = sum(item.value.size for item in inside)
        result = fit(
            tree, sizes, inside, records,
            steps=QUICK_STEPS if quick else steps, first=QUICK_FIRST if quick else 1.0,
            start={item: table for item, table in parameters.items() if group.issuperset(item)},
            prior={(place,): np.log(margins[place]) for place in group} if margins else {},
            strength=SINGLES_PRIOR * records if margins else FLAT_PRIOR * values,
            zeros={item: table for item, table in state.zeros.items() if group.issuperset(item)},
        )  # fmt: skip
        parameters.update(result.parameters)
        components += [Component(clique, table) for clique, table in zip(tree.cliques, result.tables, strict=True)]
    return replace(state, distribution=Distribution(sizes, tuple(components)), parameters=parameters)


def _step_towards(newest: Observation, state: State) -> Parameters:
    """Returns the newest marginal's parameters after a step of proportional fitting, damped by its noise.

    A cell far below its answer rises to the answer, not beyond. Newton's step in the logarithm would overshoot.
    """
    margin = state.distribution.marginals([newest.attributes])[newest.attributes]
    before = state.records * margin.reshape(newest.shape)
    gain = before * (newest.value - before) / (before * before + newest.variance)
    step = np.log1p(np.maximum(gain, LEAST_GAIN))
    return {newest.attributes: state.parameters.get(newest.attributes, np.zeros(1)).reshape(-1) + step.reshape(-1)}
