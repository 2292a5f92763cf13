"""Source of randomness: the operating system, read anew for every block. There is no seed, no buffer and no state."""

from __future__ import annotations

import builtins
import os
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Entropy(Protocol):
    """A source of independent, uniform bytes. Tests inject their own. The product has only the operating system's."""

    def bytes(self, count: int) -> builtins.bytes:
        """Returns exactly `count` fresh bytes."""


class _OperatingSystemEntropy:
    """The operating system's generator. Nothing is kept between calls, so no fork and no thread can repeat a byte.

    A keyed stream (SHAKE) would be 1.2 times as fast, but its state would need protection against fork and threads.
    """

    __slots__ = ()

    def bytes(self, count: int) -> builtins.bytes:
        return os.urandom(count)


def operating_system_entropy() -> Entropy:
    """Returns the only source of randomness of the product."""
    return _OperatingSystemEntropy()


def _take(entropy: Entropy, count: int) -> bytes:
    """Reads `count` bytes. Raises if a source returns fewer or more, since fewer bytes would change the noise."""
    block = entropy.bytes(count)
    if len(block) != count:
        raise ValueError("the entropy source returned a block of the wrong length")
    return block


def words16(entropy: Entropy, count: int) -> NDArray[np.uint16]:
    """Returns uniform 16-bit words, shape (count,)."""
    return np.frombuffer(_take(entropy, 2 * count), dtype="<u2")


def words32(entropy: Entropy, count: int) -> NDArray[np.uint32]:
    """Returns uniform 32-bit words, shape (count,)."""
    return np.frombuffer(_take(entropy, 4 * count), dtype="<u4")


def words64(entropy: Entropy, count: int) -> NDArray[np.uint64]:
    """Returns uniform 64-bit words, shape (count,)."""
    return np.frombuffer(_take(entropy, 8 * count), dtype="<u8")


def uniform_bits(entropy: Entropy, bits: int, count: int) -> NDArray[np.int64]:
    """Returns uniform integers of `bits` bits, 1 to 64, shape (count,)."""
    if bits <= 16:
        return (words16(entropy, count) & np.uint16((1 << bits) - 1)).astype(np.int64)
    if bits <= 32:
        return (words32(entropy, count) & np.uint32((1 << bits) - 1)).astype(np.int64)
    return (words64(entropy, count) & np.uint64((1 << bits) - 1)).astype(np.int64)


def uniform_below(limit: int, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Draws independent uniform integers from 0 to limit - 1 by rejection. limit: at most 2**62."""
    bits = max((limit - 1).bit_length(), 1)
    values = uniform_bits(entropy, bits, count)
    outside = np.flatnonzero(values >= limit)
    while outside.size:
        values[outside] = uniform_bits(entropy, bits, outside.size)
        outside = outside[values[outside] >= limit]
    return values


class LazyUniform:
    """A uniform real in [0, 1), in [value, value + 1) / 2**bits. More bits are drawn when they are needed."""

    __slots__ = ("_entropy", "bits", "value")

    def __init__(self, value: int, bits: int, entropy: Entropy) -> None:
        self.value = value
        self.bits = bits
        self._entropy = entropy

    def extend(self, bits: int) -> None:
        """Draws more bits of the number. bits: how many, a multiple of 8."""
        self.value = self.value << bits | int.from_bytes(_take(self._entropy, bits // 8), "big")
        self.bits += bits
