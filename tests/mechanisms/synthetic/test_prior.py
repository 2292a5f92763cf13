"""The weight of a prior is chosen by fresh noise: where columns depend on each other it is low, else high."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from itertools import combinations

import numpy as np
import pytest

from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.law import NoiseKind
from dpduck.mechanisms.synthetic.distribution import Distribution
from dpduck.mechanisms.synthetic.fit import PRIOR
from dpduck.mechanisms.synthetic.observations import Observation
from dpduck.mechanisms.synthetic.prior import FACTOR, HIGHEST, LOWEST, chosen_weight, fresh_noise, weight_of
from dpduck.mechanisms.synthetic.table_fit import fit_tables, singles
from dpduck.strategies.choose import plan_workload
from dpduck.strategies.plan import Plan
from dpduck.strategies.recovery.recover import recover

SIZES = (8, 6, 5, 4, 3)
PAIRS = tuple(combinations(range(len(SIZES)), 2))


def planned(noise: NoiseKind, amount: Fraction) -> Plan:
    return plan_workload(MarginalWorkload(SIZES, PAIRS, (1.0,) * len(PAIRS)), noise, amount, 1)[0]


def observed(plan: Plan, table: np.ndarray, random: np.random.Generator) -> list[Observation]:
    """Seeded noise on the exact answers, as the product recovers them."""
    exact = [
        one.query.apply(table.sum(axis=tuple(i for i in range(len(SIZES)) if i not in one.query.attributes)))
        for one in plan.measurements
    ]
    noises = [random.laplace(0, float(one.parameter), one.query.shape) for one in plan.measurements]
    answers = recover(plan, [one + np.rint(noise).astype(np.int64) for one, noise in zip(exact, noises, strict=True)])
    triples = zip(PAIRS, answers, plan.variances, strict=True)
    return [Observation(members, np.asarray(answer, np.float64), variance) for members, answer, variance in triples]


def independent(random: np.random.Generator) -> np.ndarray:
    shares = [random.dirichlet(np.full(size, 0.8)) for size in SIZES]
    return random.multinomial(20_000, reduce(np.multiply.outer, shares).ravel()).reshape(SIZES)


def dependent(random: np.random.Generator) -> np.ndarray:
    """Each column follows one of six kinds of rows."""
    kinds = [[random.dirichlet(np.full(size, 0.3)) for size in SIZES] for _ in range(6)]
    shares = np.mean([reduce(np.multiply.outer, kind) for kind in kinds], axis=0)
    return random.multinomial(20_000, shares.ravel()).reshape(SIZES)


def variation(table: np.ndarray, distribution: Distribution) -> float:
    found = distribution.marginals(PAIRS)
    pairs = [
        (table.sum(axis=tuple(i for i in range(len(SIZES)) if i not in members)) / table.sum(), found[members])
        for members in PAIRS
    ]
    return float(np.mean([np.abs(one - other).sum() / 2 for one, other in pairs]))


def seeded_noise(plan: Plan, random: np.random.Generator) -> list[np.ndarray]:
    """As fresh_noise, of a generator that can be seeded."""
    noises = [random.laplace(0, float(one.parameter), one.query.shape) for one in plan.measurements]
    return [np.asarray(one, np.float64) for one in recover(plan, [np.rint(noise).astype(np.int64) for noise in noises])]


def fit(observations: Sequence[Observation], weight: float) -> tuple[Distribution, float]:
    return fit_tables(SIZES, observations, weight=weight)


def test_the_weight_follows_the_data() -> None:
    """Seeded: four tables that depend on each other get a lower weight and err less, and four others lose little."""
    plan, gains = planned(NoiseKind.LAPLACE, Fraction(1, 10)), {}
    for made in (dependent, independent):
        errors, weights = [], []
        for seed in range(4):
            random = np.random.default_rng(seed)
            table = made(random)
            observations = observed(plan, table, random)
            noises = [seeded_noise(plan, random) for _ in range(2)]
            weights.append(chosen_weight(observations, noises, fit))
            chosen, fixed = (variation(table, fit(observations, one)[0]) for one in (weights[-1], PRIOR))
            errors.append(chosen / fixed)
        gains[made.__name__] = float(np.exp(np.log(errors).mean())), float(np.exp(np.log(weights).mean())) / PRIOR
    assert gains["dependent"][0] < 0.7 and gains["dependent"][1] < 0.3
    assert gains["independent"][0] < 1.03 and gains["independent"][1] > 0.5


def test_neighbours_are_tried_as_long_as_they_miss_less() -> None:
    """With misses that are least at a known weight: it is found, and no farther weights are tried than one beyond."""
    for least in range(LOWEST, HIGHEST + 1):
        tried: list[int] = []

        def miss(
            observations: Sequence[Observation], weight: float, least: int = least, tried: list[int] = tried
        ) -> tuple[Distribution, float]:
            power = round(np.log(weight / PRIOR) / np.log(FACTOR))
            tried.append(power)
            flat = fit_tables((2, 2), [Observation((0, 1), np.full((2, 2), 10.0), 1.0)])[0]
            return flat, 40.0 + 100.0 * abs(power - least)

        observations = [Observation((0, 1), np.full((2, 2), 10.0), 1.0)]
        assert chosen_weight(observations, [[np.zeros((2, 2))]], miss) == weight_of(least)
        assert set(tried) <= set(range(min(least, 0) - 1, max(least, 0) + 2))


@pytest.mark.parametrize("noise", [NoiseKind.LAPLACE, NoiseKind.GAUSSIAN])
def test_fresh_noise_has_the_variance_of_the_answers(noise: NoiseKind) -> None:
    """The mean square of 100 draws of all cells is within 0.3 of what the plan says.

    Its relative standard error is 0.015 for independent cells: the root of 5 over 230 cells times 100. If answers were
    sums of twenty measured ones it would be 0.05. The bar of 0.3 is six times that. Half the noise has a fourth.
    """
    plan, entropy = planned(noise, Fraction(1, 10)), operating_system_entropy()
    draws = [fresh_noise(plan, entropy) for _ in range(100)]
    summed = sum(float((draw[place] ** 2).mean()) for draw in draws for place in range(len(PAIRS))) / 100
    assert summed == pytest.approx(sum(plan.variances), rel=0.3)


def test_drowned_marginals_move_towards_even_ones() -> None:
    """By the rule of James and Stein: clear ones stay as they are, noise alone ends near even shares."""
    random = np.random.default_rng(3)
    clear = [Observation((place,), np.array([900.0, 50.0, 50.0]), 1.0) for place in range(3)]
    for found in singles((3, 3, 3), clear, 1000.0):
        np.testing.assert_allclose(found, [0.9, 0.05, 0.05], atol=1e-4)
    moved = []
    for _ in range(50):
        drowned = [Observation((place,), 1000 / 3 + random.normal(0, 300, 3), 300.0**2) for place in range(5)]
        raw = np.mean([np.abs(one.value / one.value.sum() - 1 / 3).sum() for one in drowned])
        kept = np.mean([np.abs(found - 1 / 3).sum() for found in singles((3,) * 5, drowned, 1000.0)])
        moved.append(kept / raw)
    assert np.mean(moved) < 0.5
