"""A histogram over an unbounded universe: one charge, and a noisy count for whatever key is ever touched.

The keys that have rows get their noise when the histogram is made, from fresh entropy, and their noisy counts are
kept with the secrets: rows that move from key to key later can never meet the same charge again. The noise of every
other key is derived when it is touched (keyed_noise). The time of a question does not tell the two apart: the keyed
noise is drawn for all of its keys.
"""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

from dpduck.errors import InternalError
from dpduck.trusted.draw import draw
from dpduck.trusted.entropy import Entropy
from dpduck.trusted.exact_counts import Hidden
from dpduck.trusted.key_counts import KeyCounts, KeyDigests, find
from dpduck.trusted.keyed_noise import SECRET_BYTES, keyed_noise
from dpduck.trusted.noise import Noise


class LazyHistogram(Hidden):
    """The secret state of one histogram: a key of the noise, and noisy counts by digest; hidden."""

    __slots__ = ("_high", "_low", "_noisy", "_secret")

    def __init__(
        self, secret: bytes, high: NDArray[np.uint64], low: NDArray[np.uint64], noisy: NDArray[np.int64]
    ) -> None:
        self._secret, self._high, self._low, self._noisy = secret, high, low, noisy

    def to_bytes(self) -> bytes:
        """For the secrets file alone."""
        return self._secret + self._high.tobytes() + self._low.tobytes() + self._noisy.tobytes()

    @classmethod
    def from_bytes(cls, state: bytes) -> LazyHistogram:
        """What to_bytes wrote."""
        body = np.frombuffer(state, dtype="<u8", offset=SECRET_BYTES)
        if len(body) % 3:
            raise InternalError("the secret of a histogram is damaged")
        high, low, noisy = np.split(body, 3)
        return cls(state[:SECRET_BYTES], high, low, noisy.view(np.int64))

    def values(self, keys: KeyDigests, noise: Noise) -> NDArray[np.int64]:
        """Noisy counts of any keys, always the same ones."""
        absent = keyed_noise(self._secret, keys, noise)
        if not len(self._high):
            return absent
        places = find(self._high, self._low, keys)
        result: NDArray[np.int64] = np.where(places < 0, absent, self._noisy[places])
        return result


def open_histogram(counts: KeyCounts, noise: Noise, entropy: Entropy) -> LazyHistogram:
    """A histogram of these counts with a fresh secret."""
    noisy = draw(noise, len(counts._exact_counts), entropy)
    noisy += counts._exact_counts
    return LazyHistogram(secrets.token_bytes(SECRET_BYTES), counts._exact_high, counts._exact_low, noisy)
