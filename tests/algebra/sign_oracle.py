"""What dpduck/algebra/hashing.py must equal: keys to elements, words and signs, one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import md5

import numpy as np
from numpy.typing import NDArray

from dpduck.algebra.hashing import PRIME, SIGNS, Words


def element_of(text: str) -> int:
    """The field element of a key's canonical text; DuckDB's md5_number_lower(text) % (2^61 - 1).

    >>> element_of("E11.9") == element_of("E11.65")
    False
    """
    digest = md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[8:], "little") % PRIME


def elements_of(texts: Sequence[str]) -> Words:
    """Field elements of many keys."""
    return np.array([element_of(text) for text in texts], dtype=np.uint64)


def polynomial(coefficients: Sequence[int], element: int, prime: int = PRIME) -> int:
    """Horner's rule in Python's integers, for any prime: what everything else here must equal."""
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * element + coefficient) % prime
    return value


def signs(words: Words) -> NDArray[np.int8]:
    """The signs in each word, shape (.., 60)."""
    bits = (words[..., None] >> np.arange(SIGNS, dtype=np.uint64)) & np.uint64(1)
    result: NDArray[np.int8] = (1 - 2 * bits.astype(np.int8)).astype(np.int8)
    return result
