"""Histogram over an unbounded universe of keys: one charge pays for a noisy count of every key.

Keys with rows get fresh noise when the histogram is made, and their noisy counts are stored with the secrets. So rows
that move to another key later are never counted again under the same charge. The noise of every other key is derived
when somebody asks for the key (draw_key_noise). Keyed noise is drawn for every key of a question, so that its time does
not show which keys have rows.
"""

from __future__ import annotations

import builtins
import hashlib
import hmac
import secrets
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.counting.hidden import Hidden
from dpduck.kernel.noise.draw import draw
from dpduck.kernel.noise.entropy import Entropy
from dpduck.kernel.noise.law import Noise
from dpduck.kernel.price import Ask, AskScan, Query
from dpduck.kernel.queries.key_counts import KeyDigests, find, keys_of
from dpduck.kernel.queries.operators import Norms
from dpduck.values.errors import InternalError


@dataclass(frozen=True, eq=False)
class EveryKey(Query[bytes]):
    """Noisy counts of all keys of an unbounded universe, as a secret state. All rows of a unit may have one key."""

    def moves(self, scan: AskScan) -> Norms:
        return scan.norms()

    def draw(self, counts: Hidden, ask: Ask[bytes], entropy: Entropy, chosen: object) -> bytes:
        keys = keys_of(counts)
        noisy = draw(ask.law, len(keys._exact_counts), entropy)
        noisy += keys._exact_counts
        secret = secrets.token_bytes(SECRET_BYTES)
        return LazyHistogram(secret, keys._exact_high, keys._exact_low, noisy).to_bytes()


class LazyHistogram(Hidden):
    """Hidden secret state of one histogram: the secret that its noise derives from, and noisy counts by digest."""

    __slots__ = ("_high", "_low", "_noisy", "_secret")

    def __init__(
        self, secret: bytes, high: NDArray[np.uint64], low: NDArray[np.uint64], noisy: NDArray[np.int64]
    ) -> None:
        self._secret, self._high, self._low, self._noisy = secret, high, low, noisy

    def to_bytes(self) -> bytes:
        """Serialises the state, for the secrets file alone."""
        return self._secret + self._high.tobytes() + self._low.tobytes() + self._noisy.tobytes()

    @classmethod
    def from_bytes(cls, state: bytes) -> LazyHistogram:
        body = np.frombuffer(state, dtype="<u8", offset=SECRET_BYTES)
        if len(body) % 3:
            raise InternalError("the secret of a histogram is damaged")
        high, low, noisy = np.split(body, 3)
        return cls(state[:SECRET_BYTES], high, low, noisy.view(np.int64))

    def values(self, keys: KeyDigests, noise: Noise) -> NDArray[np.int64]:
        """Returns noisy counts of any keys. Every call gives the same count for a key."""
        absent = draw_key_noise(self._secret, keys, noise)
        if not len(self._high):
            return absent
        places = find(self._high, self._low, keys)
        result: NDArray[np.int64] = np.where(places < 0, absent, self._noisy[places])
        return result


SECRET_BYTES = 32


class KeyedEntropy:
    """Entropy for the noise of one key, derived from a secret: an entropy.Entropy that always yields the same bytes.

    The stream is HMAC-SHA256 of (secret; key, counter) in counter mode. If HMAC-SHA256 is a pseudo-random function,
    nobody without the secret can distinguish it from fresh entropy. So the guarantee of the noise is computational.
    """

    def __init__(self, secret: builtins.bytes, key: builtins.bytes) -> None:
        self._secret = secret
        self._key = key
        self._block = 0
        self._rest = b""

    def bytes(self, count: int) -> builtins.bytes:
        while len(self._rest) < count:
            message = self._block.to_bytes(8, "big") + self._key
            self._rest += hmac.digest(self._secret, message, hashlib.sha256)
            self._block += 1
        head, self._rest = self._rest[:count], self._rest[count:]
        return head


def draw_key_noise(secret: builtins.bytes, keys: KeyDigests, noise: Noise) -> NDArray[np.int64]:
    """Returns one exact draw of noise for each key, shape (keys,). Every call gives the same draw for a key."""
    values = np.empty(len(keys.high), dtype=np.int64)
    for place, (high, low) in enumerate(zip(keys.high.tolist(), keys.low.tolist(), strict=True)):
        stream = KeyedEntropy(secret, high.to_bytes(8, "big") + low.to_bytes(8, "big"))
        values[place] = draw(noise, 1, stream)[0]
    return values
