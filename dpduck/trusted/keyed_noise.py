"""Noise that a key of an unbounded universe has from the start: exact samplers fed by a keyed stream.

HMAC-SHA256 of (secret; key, counter) in counter mode is a stream that nobody without the secret tells from fresh
entropy, as far as HMAC-SHA256 is a pseudo-random function: the guarantee of what is made from it is computational.
"""

from __future__ import annotations

import builtins
import hashlib
import hmac

import numpy as np
from numpy.typing import NDArray

from dpduck.trusted.draw import draw
from dpduck.trusted.key_counts import KeyDigests
from dpduck.trusted.noise import Noise

SECRET_BYTES = 32


class KeyedEntropy:
    """The stream of one key under one secret; not for two purposes (see entropy.Entropy)."""

    def __init__(self, secret: builtins.bytes, key: builtins.bytes) -> None:
        self._secret = secret
        self._key = key
        self._block = 0
        self._rest = b""

    def bytes(self, count: int) -> builtins.bytes:
        """The next `count` bytes."""
        while len(self._rest) < count:
            message = self._block.to_bytes(8, "big") + self._key
            self._rest += hmac.digest(self._secret, message, hashlib.sha256)
            self._block += 1
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken


def keyed_noise(secret: builtins.bytes, keys: KeyDigests, noise: Noise) -> NDArray[np.int64]:
    """One exact draw for each key, always the same one; shape (keys,)."""
    values = np.empty(len(keys.high), dtype=np.int64)
    for place, (high, low) in enumerate(zip(keys.high.tolist(), keys.low.tolist(), strict=True)):
        stream = KeyedEntropy(secret, high.to_bytes(8, "big") + low.to_bytes(8, "big"))
        values[place] = draw(noise, 1, stream)[0]
    return values
