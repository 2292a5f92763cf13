"""Questions about exact counts cost their stated price, never more than the limit, and reveal no more than that."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from fractions import Fraction
from itertools import permutations
from math import log, prod
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.price import Ask, price
from dpduck.kernel.queries import families as module
from dpduck.kernel.queries.families import GRID, WEIGHT, Candidate, Choice, Families, Guess, Marginal, family_answers
from dpduck.kernel.queries.later import Within
from dpduck.kernel.queries.operators import Family
from dpduck.kernel.queries.tables import Total
from dpduck.mechanisms.synthetic.mwem import Method, synthesise
from dpduck.mechanisms.synthetic.mwem_asks import DoorOracle, MwemAsks
from dpduck.mechanisms.synthetic.pool import Pool
from dpduck.mechanisms.synthetic.schedule import Schedule
from dpduck.strategies.budgets import root_below
from dpduck.values.errors import InternalError
from tests.kernel.doors import door_over, drawn, oracle, price_of, scan_of
from tests.kernel.noise.noise_sizes import has_scale

ENTROPY = operating_system_entropy()
FALSE_ALARM = 1e-9
POOL = Pool((2, 3), (Family((0,), (2,)), Family((1,), (3,)), Family((0, 1), (2, 3))), (), whole=True)


def counts_of(table: np.ndarray, unit_bound: int = 1) -> ExactCounts:
    places = np.indices(table.shape).reshape(table.ndim, -1)
    return ExactCounts(tuple(places), table.reshape(1, -1).astype(np.int64), table.shape, (unit_bound,))


def answers_of(table: np.ndarray, pool: Pool) -> np.ndarray:
    return family_answers(counts_of(table, 1), Families(pool.families, pool.whole), scan_of(1))[0]


def schedule_of(pure: bool, amount: Fraction, bound: int = 1, first: int = 0, adaptive: bool = False) -> Schedule:
    share = Fraction(1, 5) if first else Fraction(0)
    return Schedule(pure, amount, bound, 4, Fraction(1, 3), first, share, adaptive)


@pytest.mark.parametrize("pure", [True, False])
@pytest.mark.parametrize("adaptive", [True, False])
def test_what_is_paid_is_what_was_charged(pure: bool, adaptive: bool) -> None:
    """Meter, schedule and an independent sum agree to the last digit, below the limit and within 1e-9 of its value."""
    limit, bound = Fraction(3, 7), 4
    schedule = schedule_of(pure, limit, bound, first=1, adaptive=adaptive)
    pool = Pool(POOL.sizes, POOL.workload, (Family((0,), (2,)),), whole=True)
    meter = oracle(counts_of(np.full((2, 3), 50), bound), pool, schedule)
    synthesise(pool, schedule, Method(), meter)
    assert 0 <= meter.left < Fraction(1, 10**9)
    assert adaptive or set(meter._door._left.values()) == {0}, "all that was declared was asked"
    total, first = schedule.parameter(schedule.total_price), schedule.parameter(schedule.first_price)
    rate, answer = schedule.of_round(schedule.round_price)
    questions = [(False, total), (False, first), *([(True, rate), (False, answer)] * schedule.rounds)]
    paid = price(MwemAsks(pool, schedule, scan_of(bound)).asks)
    amount = paid.epsilon if pure else paid.rho
    assert amount is not None and limit * (1 - Fraction(1, 10**9)) < amount <= limit
    by_hand = 0.0  # floats and other formulas: a choice has epsilon 2 m rate; rho is epsilon^2 / 8 or m^2 / (2 sigma^2)
    for chooses, parameter in questions:
        value = float(parameter)
        loss = 2 * bound * value if chooses else bound / value
        by_hand += loss if pure else (loss**2 / 8 if chooses else bound * loss / 2)
    assert by_hand == pytest.approx(float(limit), rel=1e-9)


def test_no_question_beyond_the_limit() -> None:
    """A question that costs more than the rest, or nothing, is an error before the counts are read."""
    scan, families = scan_of(1), Families(POOL.families, whole=True)
    family: Ask[None] = Ask(scan, Within(Fraction(1), pure=True, kinds=(Choice, Candidate)))
    door = door_over(counts_of(np.full((2, 3), 5)), [family])
    paid = Ask(scan, Candidate(families), Noise(NoiseKind.LAPLACE, Fraction(4, 3)))
    door.admit(paid, family)
    door.answer(paid, 0)
    dear = Ask(scan, Candidate(families), Noise(NoiseKind.LAPLACE, Fraction(2)))
    other = Ask(scan_of(1), Candidate(families), Noise(NoiseKind.LAPLACE, Fraction(9)))
    kind = Ask(scan, Total(), Noise(NoiseKind.LAPLACE, Fraction(9)))
    refused: list[Ask[Any]] = [dear, Ask(scan, Choice(families, Fraction(1), pure=True)), other, kind]
    for ask in refused:
        with pytest.raises(InternalError, match="family"):
            door.admit(ask, family)
        with pytest.raises(InternalError, match="not declared, or is used up"):
            door.answer(ask, 0)
    with pytest.raises(InternalError, match="without chance"):
        door.admit(Ask(scan, Choice(families, Fraction(0), pure=True)), family)
    with pytest.raises(InternalError, match="without noise"):
        Noise(NoiseKind.LAPLACE, Fraction(-1))
    assert door.left(family) == Fraction(1, 4)


@pytest.mark.parametrize("pure", [True, False])
def test_answers_have_the_noise_that_was_paid_for(pure: bool) -> None:
    """Single cells and whole marginals have the paid noise, and reject 2/3 and 3/2 of its scale. False alarm 4e-11."""
    table, noise = np.full((2_000, 1), 70), NoiseKind.LAPLACE if pure else NoiseKind.GAUSSIAN
    parameter, pool = Fraction(25), Pool((2_000, 1), (Family((0,), (2_000,)),), (), whole=True)
    families, counts, law = Families(pool.families, pool.whole), counts_of(table, 1), Noise(noise, parameter)
    assert has_scale(drawn(Candidate(families), counts, law, chosen=0) - 70, noise, parameter)
    assert has_scale(drawn(Marginal(families, 0), counts, law) - 70, noise, parameter)
    cost = price_of(Candidate(families), Noise(noise, parameter))
    assert (cost.epsilon if pure else cost.rho) == (1 / parameter if pure else 1 / (2 * parameter))


@pytest.mark.parametrize("pure", [True, False])
def test_choices_are_made_at_the_rate_that_was_paid_for(pure: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores are whole steps of 1/GRID of a count, so the rate of a step is the rate over GRID. Each mechanism gets the
    scores of allowed candidates alone, less their penalties."""
    given: list[tuple[str, list[int], Fraction]] = []

    def remembered(name: str) -> Callable[..., int]:
        def choice(scores: np.ndarray, rate: Fraction, entropy: object) -> int:
            given.append((name, scores.tolist(), rate))
            return 1

        return choice

    for name in ("permute_and_flip", "exponential_choice"):
        monkeypatch.setattr(module, name, remembered(name))
    counts = counts_of(np.array([[9, 0, 0], [1, 0, 0]]), 1)
    allowed, penalties = np.array([True, False, False, True]), np.array([0.0, 0.0, 0.0, 2.0])
    rate = Fraction(1, 7)
    choice = Choice(Families(POOL.families, whole=True), rate, pure)
    assert drawn(choice, counts, chosen=Guess(np.zeros(12), penalties, allowed)) == 3
    for estimates, taken in ((np.full(12, np.nan), penalties), (np.zeros(12), np.full(4, np.nan))):
        with pytest.raises(InternalError, match="estimates are not of these candidates"):
            drawn(choice, counts, chosen=Guess(estimates, taken, allowed))
    name = "permute_and_flip" if pure else "exponential_choice"
    assert given == [(name, [10 * GRID, 8 * GRID], rate / GRID)]
    cost = price_of(choice, None)
    assert (cost.epsilon if pure else cost.rho) == (2 * rate if pure else rate * rate / 2)


def test_exact_answers_stay_hidden() -> None:
    """No repr, copy or pickle shows an exact answer. An ask with a smaller bound than the counts' is refused."""
    meter, families = counts_of(np.full((2, 3), 123456), 5), Families(POOL.families, whole=True)
    assert family_answers(meter, families, scan_of(5)) is family_answers(meter, families, scan_of(5))
    assert "123456" not in repr(meter)
    for leak in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(InternalError):
            leak(meter)
    with pytest.raises(InternalError):
        family_answers(meter, families, scan_of(4))


def test_roots_round_down() -> None:
    """Roots for rates round down, so that a choice never costs more than its price, at any size."""
    for value in (Fraction(1, 3), Fraction(7, 10**30), Fraction(10**12, 7), Fraction(1, 2**200)):
        root = root_below(value)
        assert root * root <= value < (root * (1 + Fraction(1, 2**30))) ** 2


def exponential_law(scores: np.ndarray, rate: float) -> np.ndarray:
    weights = np.exp(rate * (scores - scores.max()))
    return weights / weights.sum()


def permute_and_flip_law(scores: np.ndarray, rate: float) -> np.ndarray:
    heads, law = np.exp(rate * (scores - scores.max())), np.zeros(len(scores))
    for order in permutations(range(len(scores))):
        for place, candidate in enumerate(order):
            law[candidate] += heads[candidate] * prod(1 - heads[other] for other in order[:place])
    return law / law.sum()


def test_choices_cost_what_is_charged() -> None:
    """Laws of neighbours, enumerated: loss at most epsilon, Renyi divergence at most alpha epsilon^2 / 8."""
    draws = np.random.default_rng(1)
    for _ in range(60):
        scores = draws.integers(0, 9, 4).astype(float)
        near = scores + draws.choice([-1, 0, 1], 4)
        rate = float(draws.uniform(0.05, 1.5))
        loss = 2 * rate
        p, q = exponential_law(scores, rate), exponential_law(near, rate)
        assert np.abs(np.log(p / q)).max() <= loss * (1 + 1e-9)
        for alpha in (1.01, 2.0, 8.0, 50.0):
            divergence = log(float((p**alpha * q ** (1 - alpha)).sum())) / (alpha - 1)
            assert divergence <= alpha * loss**2 / 8 * (1 + 1e-9)
        p, q = permute_and_flip_law(scores, rate), permute_and_flip_law(near, rate)
        assert np.abs(np.log(p / q)).max() <= loss * (1 + 1e-9)


def test_scores_of_neighbours_differ_by_one() -> None:
    """On the grid the score of a query and of a whole marginal moves by at most one unit for each row, exactly."""
    draws = np.random.default_rng(2)
    for whole in (True, False):
        pool = Pool(POOL.sizes, POOL.workload, (), whole)
        for _ in range(20):
            table = draws.integers(0, 9, (2, 3))
            near = table.copy()
            near[tuple(draws.integers(0, n) for n in (2, 3))] += 3
            estimates = draws.uniform(-5, 20, 12)
            grid = np.rint(estimates * 256).astype(np.int64)
            moved = []
            for one in (table, near):
                exact = answers_of(one, pool)
                distances = np.abs(exact * 256 - grid)
                moved.append(np.add.reduceat(distances, pool.starts[:-1]) if whole else distances)
            assert np.abs(moved[0] - moved[1]).max() <= 3 * 256


def bounded_events(first: np.ndarray, second: np.ndarray) -> list[tuple[float, float]]:
    """For each event, both ways round: a lower bound of its probability here, an upper one there (Clopper, Pearson)."""
    events = np.unique(np.concatenate([first, second]))
    alarm, found = FALSE_ALARM / (4 * len(events)), []
    for event in events:
        for many, few in ((first, second), (second, first)):
            high, low = int((many == event).sum()), int((few == event).sum())
            least = beta.ppf(alarm, high, len(many) - high + 1) if high else 0.0
            found.append((float(least), float(beta.isf(alarm, low + 1, len(few) - low)) if low < len(few) else 1.0))
    return [(least, most) for least, most in found if least > most]


def lower_bound_on_epsilon(first: np.ndarray, second: np.ndarray) -> float:
    """Returns a lower bound of epsilon from outcomes on neighbours, at the stated false-alarm rate."""
    return max((log(least / most) for least, most in bounded_events(first, second)), default=0.0)


def lower_bound_on_rho(first: np.ndarray, second: np.ndarray) -> float:
    """Returns a lower bound of rho: any event has a Renyi divergence of at most alpha rho (Bun, Steinke 2016)."""
    best = 0.0
    for p, q in bounded_events(first, second):
        for alpha in (1.001, 1.5, 2.0, 4.0, 8.0, 16.0):
            power = p**alpha * q ** (1 - alpha) + (1 - p) ** alpha * (1 - q) ** (1 - alpha)
            best = max(best, log(power) / (alpha - 1) / alpha)
    return best


class Listener:
    """An oracle that remembers its last answer."""

    def __init__(self, meter: DoorOracle) -> None:
        self._meter = meter
        self.said: np.ndarray = np.zeros(1, np.int64)
        self.choose, self.marginal = meter.choose, meter.marginal

    @property
    def left(self) -> Fraction:
        return self._meter.left

    def answer(self, candidate: int, parameter: Fraction) -> np.ndarray:
        self.said = self._meter.answer(candidate, parameter)
        return self.said


def outcomes(table: np.ndarray, amount: Fraction, runs: int, pure: bool = True, whole: bool = False) -> np.ndarray:
    """Returns in each run which candidate was chosen, and whether its noisy answer, or first cell, was above 0."""
    pool = Pool((2,), (Family((0,), (2,)),), (), whole)
    schedule = Schedule(pure, amount, 1, 1, Fraction(1, 2))
    found = []
    for _ in range(runs):
        listener = Listener(oracle(counts_of(table), pool, schedule))
        result = synthesise(pool, schedule, Method(fits=False, passes=1), listener)
        found.append(2 * result.chosen[0] + (listener.said[0] > 0))
    return np.array(found)


@pytest.mark.slow
def test_neighbours_are_told_apart_no_better_than_charged() -> None:
    """Audit: no event reveals more than the charged epsilon, and at eight times the price the audit sees it."""
    table, near = np.array([1, 0]), np.array([0, 0])
    assert lower_bound_on_epsilon(*(outcomes(one, Fraction(1, 2), 1200) for one in (table, near))) <= 0.5
    assert lower_bound_on_epsilon(*(outcomes(one, Fraction(8), 1200) for one in (table, near))) > 0.5


@pytest.mark.audit
@pytest.mark.parametrize(("pure", "amount", "dearer"), [(True, Fraction(1, 2), 8), (False, Fraction(1, 8), 32)])
@pytest.mark.parametrize("whole", [True, False])
def test_audit_of_whole_runs(pure: bool, amount: Fraction, dearer: int, whole: bool) -> None:
    """In 10,000 runs no event reveals more than was charged, for queries and marginals, under epsilon and under rho. At
    a price that is much larger than the charge the audit sees it."""
    bound = lower_bound_on_epsilon if pure else lower_bound_on_rho
    table, near = np.array([1, 0]), np.array([0, 0])
    stated, unstated = (
        bound(*(outcomes(one, price, 10_000, pure, whole) for one in (table, near)))
        for price in (amount, dearer * amount)
    )
    assert stated <= float(amount) < unstated


WEIGHTED = Pool(POOL.sizes, POOL.workload, (), True, (WEIGHT, 64, 1))


@pytest.mark.parametrize("pure", [True, False])
def test_weighted_scores_of_neighbours(pure: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate times the score of a candidate moves by at most the price's rate for each row of a unit, on the grid.
    This holds for all weights and penalties, and a weight above 1 is refused."""
    seen: list[np.ndarray] = []

    def remembered(scores: np.ndarray, rate: Fraction, entropy: object) -> int:
        seen.append(np.array([int(score) * rate for score in scores]))
        return 0

    for name in ("permute_and_flip", "exponential_choice"):
        monkeypatch.setattr(module, name, remembered)
    draws, rate, rows = np.random.default_rng(3), Fraction(2, 7), 3
    families = Families(WEIGHTED.families, True, WEIGHTED.all_weights)
    for _ in range(40):
        table = draws.integers(0, 9, (2, 3))
        near = table.copy()
        for _row in range(rows):
            near[tuple(draws.integers(0, n) for n in (2, 3))] += 1
        guess = Guess(draws.uniform(-5, 20, 12), draws.uniform(0, 1e15, 4), np.array([True, True, True, False]))
        for one in (table, near):
            drawn(Choice(families, rate, pure), counts_of(one, rows), bound=rows, chosen=guess)
        assert max(np.abs(seen[-1] - seen[-2])) <= rate * rows
    unweighted = Choice(Families(POOL.families, True), rate, pure)
    assert price_of(Choice(families, rate, pure), None) == price_of(unweighted, None)
    for weights in ((WEIGHT + 1, 1, 1, 1), (0, 1, 1, 1), (1, 1)):
        with pytest.raises(InternalError, match="weight"):
            Families(WEIGHTED.families, True, weights)


def annealed_outcomes(table: np.ndarray, amount: Fraction, runs: int) -> np.ndarray:
    """Whether the first round asked for the pair, whether many followed, and whether the last answer was above 1."""
    families = (Family((0,), (2,)), Family((1,), (2,)), Family((0, 1), (2, 2)))
    pool = Pool((2, 2), families, families[:2], True, (WEIGHT, WEIGHT, WEIGHT // 2))
    schedule = Schedule(False, amount, 1, 2, Fraction(1, 2), 2, Fraction(1, 10), True)
    found = []
    for _ in range(runs):
        meter = oracle(counts_of(table), pool, schedule)
        listener = Listener(meter)
        result = synthesise(pool, schedule, Method(anneals=True, expected=4), listener)
        assert meter.left >= 0
        found.append(4 * (listener.said[0] > 1) + 2 * (len(result.chosen) > 4) + (result.chosen[0] == 2))
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [150, pytest.param(2_000, marks=pytest.mark.audit)])
def test_annealed_rounds_tell_no_more_than_charged(runs: int) -> None:
    """In annealed rounds, where choices and prices depend on answers, no event reveals more rho than was charged. With
    many runs the audit sees 200 times the price."""
    table, near = np.array([[2, 0], [0, 0]]), np.array([[1, 0], [0, 0]])
    amount = Fraction(1, 8)
    assert lower_bound_on_rho(*(annealed_outcomes(one, amount, runs) for one in (table, near))) <= float(amount)
    if runs > 1_000:
        dearer = (annealed_outcomes(one, 200 * amount, runs // 4) for one in (table, near))
        assert lower_bound_on_rho(*dearer) > float(amount)
