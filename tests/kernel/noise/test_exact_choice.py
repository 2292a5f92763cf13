"""Choices follow their laws exactly, by an oracle of probabilities that also rejects wrong laws."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from math import exp, prod

import numpy as np
import pytest
from scipy.stats import chi2

from dpduck.kernel.noise.choice import (
    LAST,
    STEPS,
    _table,
    exponential_choice,
    flips,
    permute_and_flip,
    uniform_order,
)
from dpduck.kernel.noise.entropy import operating_system_entropy, uniform_below
from dpduck.values.errors import InternalError
from tests.kernel.noise.test_block_sampler import ScriptedEntropy

FALSE_ALARM = 1e-9
ENTROPY = operating_system_entropy()
SCORES = np.array([7, 3, 7, 0, -4], dtype=np.int64)


def rejected(drawn: np.ndarray, law: np.ndarray) -> bool:
    """Tells whether Pearson's test rejects the draws at the stated false-alarm rate."""
    observed = np.bincount(drawn, minlength=len(law))
    expected = law * len(drawn)
    return bool(((observed - expected) ** 2 / expected).sum() > chi2.isf(FALSE_ALARM, len(law) - 1))


def exponential_law(rate: float) -> np.ndarray:
    weights = np.exp(rate * SCORES)
    return weights / weights.sum()


def permute_and_flip_law(rate: float) -> np.ndarray:
    """The law of permute-and-flip, as a sum over all orders of the candidates."""
    heads = np.exp(rate * (SCORES - SCORES.max()))
    law = np.zeros(len(SCORES))
    orders = list(permutations(range(len(SCORES))))
    for order in orders:
        for place, candidate in enumerate(order):
            law[candidate] += heads[candidate] * prod(1 - heads[other] for other in order[:place]) / len(orders)
    return law


@pytest.mark.parametrize(
    ("mechanism", "law"), [(exponential_choice, exponential_law), (permute_and_flip, permute_and_flip_law)]
)
def test_choices_follow_their_law(mechanism, law) -> None:
    """Choices at the right rate pass (false alarms 1e-9). Laws with 2/3 and 3/2 of the rate are rejected."""
    rate = Fraction(1, 5)
    drawn = np.array([mechanism(SCORES, rate, ENTROPY) for _ in range(5000)])
    assert not rejected(drawn, law(float(rate)))
    assert rejected(drawn, law(float(rate) * 2 / 3))
    assert rejected(drawn, law(float(rate) * 3 / 2))


@pytest.mark.parametrize("exponent", [Fraction(1, 100), Fraction(2, 3), Fraction(5, 2)])
def test_coins_have_their_probability(exponent: Fraction) -> None:
    """Coins of probability exp(-x) have their mean (false alarms 1e-9)."""
    heads = flips(np.full(200_000, 3, np.int64), exponent / 3, ENTROPY)
    chance = exp(-float(exponent))
    assert not rejected(heads.astype(np.int64), np.array([1 - chance, chance]))


def test_the_table_encloses_the_exponential() -> None:
    """Entry j of the lower table is at most 2**64 exp(-j/16), and entry j of the upper one at least that less 1."""
    lower, upper = _table()
    for step in (0, 1, 17, 400, LAST):
        truth = exp(-step / STEPS) * 2.0**64
        assert float(lower[step]) <= truth * (1 + 1e-12)
        assert float(upper[step]) + 1 >= truth * (1 - 1e-12)
    assert (np.diff(lower.astype(float)) <= 0).all()
    assert lower[LAST] == 0


def test_a_doubtful_coin_goes_to_integers() -> None:
    """Where a coin's float is in doubt integers decide: bisection finds 2**64 exp(-x) to 64 bits."""
    rate = Fraction(3, 7)
    low, high = 0, (1 << 64) - 1
    while high - low > 1:
        middle = (low + high) // 2
        blocks = [middle.to_bytes(8, "little"), *([bytes(8)] * 3)]
        entropy = ScriptedEntropy(*blocks)
        heads = bool(flips(np.array([1], np.int64), rate, entropy)[0])
        low, high = (middle, high) if heads else (low, middle)
    assert abs(low / 2**64 - exp(-3 / 7)) < 1e-15


def test_the_best_is_certain_at_a_large_rate() -> None:
    """Candidates are hardly ever taken if their coins have probability below 2**-64, at any size of gap."""
    scores = np.array([0, 1 << 60, 5], dtype=np.int64)
    assert {exponential_choice(scores, Fraction(1), ENTROPY) for _ in range(50)} == {1}
    assert {permute_and_flip(scores, Fraction(1), ENTROPY) for _ in range(50)} == {1}


def test_uniform_draws_are_uniform() -> None:
    """Integers below 7, and permutations, are uniform (false alarms 1e-9 each). Words out of range are redrawn."""
    assert not rejected(uniform_below(7, 70_000, ENTROPY), np.full(7, 1 / 7))
    orders = [tuple(uniform_order(3, ENTROPY)) for _ in range(6000)]
    numbers = {order: number for number, order in enumerate(permutations(range(3)))}
    assert not rejected(np.array([numbers[order] for order in orders]), np.full(6, 1 / 6))
    entropy = ScriptedEntropy(bytes([7, 0, 2, 0]), bytes([3, 0]))
    assert uniform_below(7, 2, entropy).tolist() == [3, 2]
    tie = bytes(16)
    fresh = (5).to_bytes(8, "little") + (4).to_bytes(8, "little")
    assert uniform_order(2, ScriptedEntropy(tie, fresh)).tolist() == [1, 0]


def test_nothing_to_choose_from_is_an_error() -> None:
    """An empty list of candidates, and scores that would overflow, are errors before any draw."""
    with pytest.raises(InternalError):
        exponential_choice(np.array([], np.int64), Fraction(1), ENTROPY)
    with pytest.raises(InternalError):
        permute_and_flip(np.array([-(1 << 62), 1 << 62], np.int64), Fraction(1), ENTROPY)
