"""Lazy histograms: the same noise for a key for ever, exact noise for every key, one charge for all keys."""

from fractions import Fraction

import numpy as np
import pytest

from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.queries.histograms import EveryKey, KeyedEntropy, LazyHistogram, draw_key_noise
from dpduck.kernel.queries.key_counts import KeyCounts, KeyDigests
from dpduck.values.errors import InternalError
from tests.kernel.doors import drawn, price_of

ENTROPY = operating_system_entropy()
SPREAD = {NoiseKind.GAUSSIAN: Fraction(2500), NoiseKind.LAPLACE: Fraction(50)}
VARIANCE = {NoiseKind.GAUSSIAN: 2500.0, NoiseKind.LAPLACE: 5000.0}


def keys(count: int, start: int = 0) -> KeyDigests:
    numbers = np.arange(start, start + count, dtype=np.uint64)
    return KeyDigests(numbers, numbers * np.uint64(7))


def counts(values: np.ndarray) -> KeyCounts:
    these = keys(len(values))
    return KeyCounts(these.high, these.low, values.astype(np.int64))


def test_a_stream_does_not_depend_on_how_it_is_read() -> None:
    """The stream of a key is the same bytes however it is read. Other keys and secrets have other streams."""
    whole = KeyedEntropy(b"s" * 32, b"key").bytes(100)
    parts = KeyedEntropy(b"s" * 32, b"key")
    assert b"".join(parts.bytes(size) for size in (1, 31, 2, 66)) == whole
    assert KeyedEntropy(b"s" * 32, b"kez").bytes(100) != whole
    assert KeyedEntropy(b"t" * 32, b"key").bytes(100) != whole


@pytest.mark.parametrize("noise", list(NoiseKind))
def test_keyed_noise_has_its_law(noise: NoiseKind) -> None:
    """Over 4,000 keys the variance is within 25 % (9 standard errors or more), the mean near 0, and draws repeat.

    A scale that is 2/3 or 3/2 of the right one has a variance of 4/9 or 9/4: rejected. False alarm below 1e-9.
    """
    drawn = draw_key_noise(b"s" * 32, keys(4000), Noise(noise, SPREAD[noise])).astype(float)
    assert 0.75 < np.mean(drawn**2) / VARIANCE[noise] < 1.25
    assert abs(drawn.mean()) < 7 * (VARIANCE[noise] / 4000) ** 0.5
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.12
    assert draw_key_noise(b"s" * 32, keys(20, 30), Noise(noise, SPREAD[noise])).tolist() == drawn[30:50].tolist()


def opened(values: np.ndarray, noise: Noise) -> LazyHistogram:
    """A histogram of given counts with a fresh secret."""
    return LazyHistogram.from_bytes(drawn(EveryKey(), counts(values), noise))


@pytest.mark.parametrize("noise", list(NoiseKind))
def test_values_are_counts_plus_noise_for_ever(noise: NoiseKind) -> None:
    """A key with rows or without has one value for ever, in any order of questions and after a restart.

    The mean square of 1,000 Laplace draws is above 1.8 of the variance or below 0.6 with a chance below 1e-12.
    """
    made = opened(np.full(3000, 10**6), Noise(noise, SPREAD[noise]))
    first = made.values(keys(4000), Noise(noise, SPREAD[noise]))
    again = LazyHistogram.from_bytes(made.to_bytes())
    assert again.values(keys(4000), Noise(noise, SPREAD[noise])).tolist() == first.tolist()
    assert again.values(keys(10, 2995), Noise(noise, SPREAD[noise])).tolist() == first[2995:3005].tolist()
    for part, exact in ((first[:3000], 10**6), (first[3000:], 0)):
        assert 0.6 < np.mean((part - exact).astype(float) ** 2) / VARIANCE[noise] < 1.8
    assert "10" not in repr(made)
    with pytest.raises(InternalError):
        LazyHistogram.from_bytes(made.to_bytes() + b"\0" * 8)


def test_every_histogram_has_its_own_noise() -> None:
    """Two histograms of the same counts share no noise, for keys with rows or for keys without."""
    values = [
        opened(np.zeros(200), Noise(NoiseKind.GAUSSIAN, Fraction(10**8))).values(
            keys(400), Noise(NoiseKind.GAUSSIAN, Fraction(10**8))
        )
        for _ in range(2)
    ]
    assert (values[0] == values[1]).sum() < 10
    empty = opened(np.zeros(0), Noise(NoiseKind.GAUSSIAN, Fraction(100)))
    assert LazyHistogram.from_bytes(empty.to_bytes()).values(
        keys(3), Noise(NoiseKind.GAUSSIAN, Fraction(100))
    ).shape == (3,)


def test_the_price_is_that_of_one_key() -> None:
    """All keys together cost the price of one key, because a unit's rows are bounded over all keys."""
    assert price_of(EveryKey(), Noise(NoiseKind.LAPLACE, Fraction(8)), 4).epsilon == Fraction(1, 2)
    assert price_of(EveryKey(), Noise(NoiseKind.GAUSSIAN, Fraction(32)), 4).rho == Fraction(1, 4)
    with pytest.raises(InternalError):
        price_of(EveryKey(), Noise(NoiseKind.GAUSSIAN, Fraction(0)), 4)
