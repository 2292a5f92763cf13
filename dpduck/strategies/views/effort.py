"""Time limits and random numbers of a search that has one result on every machine. They are never used for noise."""

from __future__ import annotations

from hashlib import shake_128
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpduck.strategies.views.incidence import LatticeIncidence


class WorkLimit:
    """Limit that counts down from `seconds` by a step's estimated time on an idle machine, not by a clock."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.left = seconds

    def work(self, seconds: float) -> None:
        self.left = max(0.0, self.left - seconds)

    @property
    def is_over(self) -> bool:
        return self.left <= 0


def round_seconds(incidence: Any) -> float:
    """Estimates the seconds of one round of ViewObjective.improve on an idle machine."""
    if isinstance(incidence, np.ndarray):
        return 2e-5 + 1e-9 * incidence.size
    if isinstance(incidence, LatticeIncidence):
        return 5e-5 + 5e-9 * len(incidence.lattice) * len(incidence.lattice.attributes)
    return 5e-5 + 6e-9 * float(incidence.nnz)


BLOCK = 1 << 14
"""Number of random numbers that one call of the hash gives."""


class HashCounter:
    """Pseudo-random uniform numbers in [0, 1) that depend on the key alone: a hash in counter mode.

    >>> first, again = HashCounter("a"), HashCounter("a")
    >>> first.uniform() == again.uniform()
    True
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._block = 0
        self._numbers: list[float] = []

    def uniform(self) -> float:
        if not self._numbers:
            self._numbers = self._next_block().tolist()
        return self._numbers.pop()

    def below(self, limit: int) -> int:
        """Returns the next number as an integer from 0 to limit - 1."""
        return int(self.uniform() * limit)

    def _next_block(self) -> NDArray[np.float64]:
        digest = shake_128(f"{self._key}/{self._block}".encode()).digest(8 * BLOCK)
        self._block += 1
        words = np.frombuffer(digest, dtype="<u8") >> np.uint64(11)
        return words.astype(np.float64) / float(1 << 53)
