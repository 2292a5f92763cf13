"""Reproducible pseudo-random numbers for searches over public facts: a hash in counter mode, never used for noise."""

from __future__ import annotations

from hashlib import shake_128

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 14
"""Numbers drawn from the hash at once."""


class HashCounter:
    """Uniform numbers in [0, 1) that depend on the key alone.

    >>> first, again = HashCounter("a"), HashCounter("a")
    >>> first.uniform() == again.uniform()
    True
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._block = 0
        self._numbers: list[float] = []

    def uniform(self) -> float:
        """The next number."""
        if not self._numbers:
            self._numbers = self._next_block().tolist()
        return self._numbers.pop()

    def below(self, limit: int) -> int:
        """The next number as an integer from 0 to limit - 1."""
        return int(self.uniform() * limit)

    def _next_block(self) -> NDArray[np.float64]:
        digest = shake_128(f"{self._key}/{self._block}".encode()).digest(8 * BLOCK)
        self._block += 1
        words = np.frombuffer(digest, dtype="<u8") >> np.uint64(11)
        numbers: NDArray[np.float64] = words.astype(np.float64) / float(1 << 53)
        return numbers
