"""Binomial draws are exact, for any number of trials."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from scipy import stats

from dpduck.kernel.noise import binomial as exact_binomial
from dpduck.kernel.noise.binomial import binomial
from dpduck.kernel.noise.coins import equal_flips, flips
from dpduck.kernel.noise.entropy import LazyUniform, operating_system_entropy
from dpduck.kernel.noise.layers import SummaryLaw

DRAWS = 8_000


class Scripted:
    """Entropy that plays given bytes first, so that a test can force ties."""

    def __init__(self, script: bytes) -> None:
        self.script = script

    def bytes(self, count: int) -> bytes:
        block, self.script = self.script[:count], self.script[count:]
        return block + operating_system_entropy().bytes(count - len(block))


@pytest.mark.parametrize(
    ("trials", "probability"),
    [(1, Fraction(1, 3)), (40, Fraction(1, 2)), (40, Fraction(97, 100)), (2000, Fraction(1, 900)), (7, Fraction(0))],
)
def test_the_law_is_binomial(trials: int, probability: Fraction) -> None:
    """Draws fit the binomial law, and reject a law that is 3 % off where it has spread enough.

    False alarm 1e-10 each, 1.2e-9 at most with the exact law of small cells: every cell expects 20 draws or more.
    """
    entropy = operating_system_entropy()
    draws = [binomial(trials, lambda bits: (probability, probability), entropy) for _ in range(DRAWS)]
    expected = stats.binom.pmf(np.arange(trials + 1), trials, float(probability)) * DRAWS
    first, last = np.flatnonzero(expected > 20)[[0, -1]]
    places = np.clip(np.arange(trials + 1), first, last) - first  # tails join the last cell that expects enough
    wanted, found = np.bincount(places, expected), np.bincount(places[draws], minlength=last - first + 1)
    assert len(wanted) == 1 or stats.chisquare(found, wanted * DRAWS / wanted.sum()).pvalue > 1e-10
    if probability:
        error = sqrt(trials * probability * (1 - probability) / DRAWS)
        assert abs(np.mean(draws) - trials * float(probability)) < 6.5 * error


@pytest.mark.parametrize("exponent", [9, 18, 30])
def test_huge_domains(exponent: int) -> None:
    """Mean and variance are right with 10^exponent trials and about 300 successes (false alarms below 2e-10)."""
    law = SummaryLaw(Fraction(10), round(10 * np.log(10.0**exponent / 300)))
    entropy, mean = operating_system_entropy(), 10**exponent * law.float_probability()
    draws = np.array([binomial(10**exponent, law.given_not_before, entropy) for _ in range(1_500)])
    assert abs(draws.mean() - mean) < 6.5 * sqrt(mean / 1_500)
    assert abs(draws.var() / mean - 1) < 7.5 * sqrt(2 / 1_500)


def test_doubt_draws_more_bits() -> None:
    """A uniform that ties with a step of the distribution function is refined, never guessed."""
    half = (Fraction(1, 2), Fraction(1, 2))
    # F(mode) of one fair trial is 1/2: U = 1/2 exactly for 64 bits, so only later bits can decide.
    tied = (1 << 63).to_bytes(8, "big")
    for later, answer in ((b"\0" * 8, {0, 1}), (b"\xff" * 8, {0, 1})):
        assert binomial(1, lambda bits: half, Scripted(tied + later)) in answer
    vague = iter([(Fraction(1, 4), Fraction(3, 4))])
    assert binomial(1, lambda bits: next(vague, half), Scripted(tied)) in (0, 1)
    assert binomial(5, lambda bits: (Fraction(1), Fraction(1)), Scripted(b"")) == 5


LAWS = [
    (1, Fraction(1, 3)), (40, Fraction(97, 100)), (40, Fraction(1, 1000)), (2000, Fraction(1, 900)),
    (10**9, Fraction(1, 10**6)), (10**9, 1 - Fraction(1, 10**6)), (10**30, Fraction(1, 10**26)),
    (50_000, Fraction(1, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("trials", "probability"), LAWS)
def test_floats_say_what_integers_say(trials: int, probability: Fraction) -> None:
    """Floats decide nearly always, and always as integers do, however far out U is. Next to a step they abstain."""
    rng = np.random.default_rng(8)
    words = [*rng.integers(0, 1 << 63, 40).tolist(), *((1 << 64) - (1 << shift) for shift in range(1, 60, 7)), 0, 1]
    bounds, decided = (probability, probability), 0
    steps = []
    for word in words:
        quick = exact_binomial._in_floats(trials, bounds, LazyUniform(word, 64, operating_system_entropy()))
        slow = exact_binomial._invert_bounds(trials, bounds, LazyUniform(word, 64, operating_system_entropy()))
        assert quick is None or quick == slow
        decided += quick is not None
        steps.append(slow)
    assert decided >= 40
    assert len(set(steps)) > 1 or trials == 1


def test_floats_leave_what_is_close() -> None:
    """Floats leave draws to integers next to the step of one fair trial, with vague bounds, and near certainty."""
    half = (Fraction(1, 2), Fraction(1, 2))
    for word, quick in (((1 << 63) - (1 << 32), None), ((1 << 63) + (1 << 32), None), (1 << 62, 1), (3 << 62, 0)):
        found = exact_binomial._in_floats(1, half, LazyUniform(word, 64, operating_system_entropy()))
        assert found == quick, word
    uniform = LazyUniform(1 << 62, 64, operating_system_entropy())
    assert exact_binomial._in_floats(1, (Fraction(1, 2), Fraction(1, 2) + Fraction(1, 1 << 70)), uniform) is None
    assert exact_binomial._in_floats(10**18, (1 - Fraction(1, 10**15),) * 2, uniform) is None
    assert exact_binomial._in_floats(10**18, half, uniform) is None


def test_flips_are_exact_where_floats_doubt() -> None:
    """With U = 1/2 for 64 bits, flips of probability 1/2 + 2^-70 and 1/2 - 2^-70 differ. Bounds are refined, too."""
    tied = (1 << 63).to_bytes(8, "little")
    more, less = (Fraction(1, 2) + sign * Fraction(1, 1 << 70) for sign in (1, -1))
    later = b"\0" * 8
    assert flips(np.array([0.5]), lambda place: more, Scripted(tied + later)).tolist() == [True]
    assert flips(np.array([0.5]), lambda place: less, Scripted(tied + later)).tolist() == [False]
    assert equal_flips(lambda bits: (more, more), 1, Scripted(tied + later)).tolist() == [True]
    assert equal_flips(lambda bits: (less, less), 1, Scripted(tied + later)).tolist() == [False]


@pytest.mark.parametrize("probability", [0.2, 0.5])
def test_flips_have_their_probability(probability: float) -> None:
    """The mean of 400,000 flips is within 6.5 standard deviations of their probability."""
    exact = Fraction(probability)
    entropy = operating_system_entropy()
    for outcome in (
        flips(np.full(400_000, probability), lambda place: exact, entropy),
        equal_flips(lambda bits: (exact, exact), 400_000, entropy),
    ):
        assert abs(outcome.mean() - probability) < 6.5 * sqrt(probability * (1 - probability) / 400_000)
