"""Arithmetic of the field GF(q) as tables, and the subspaces of its vector spaces: what covering designs are made of.

An element of GF(p^k) is a number below q whose digits in base p are the coefficients of a polynomial; a vector of
GF(q)^m is a number below q^m whose digits in base q are its coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

IndexArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Field:
    """Tables of GF(q): sum[a, b] and times[a, b]; 0 and 1 are what they say."""

    order: int
    sum: IndexArray
    times: IndexArray


def prime_power(order: int) -> tuple[int, int] | None:
    """(p, k) with order = p^k, or None.

    >>> prime_power(8), prime_power(12)
    ((2, 3), None)
    """
    prime = next((factor for factor in range(2, order + 1) if order % factor == 0), None)
    if prime is None:
        return None
    exponent = 0
    while order % prime == 0:
        order //= prime
        exponent += 1
    return (prime, exponent) if order == 1 else None


@lru_cache(maxsize=32)
def field(order: int) -> Field:
    """GF(order), from the first polynomial by whose root x every non-zero element is a power.

    >>> field(4).times[2].tolist()
    [0, 2, 3, 1]
    """
    powers = prime_power(order)
    if powers is None:
        raise ValueError(f"{order} is not the power of a prime")
    prime, degree = powers
    digits = np.array(list(product(range(prime), repeat=degree)), dtype=np.int64)[:, ::-1]
    places = prime ** np.arange(degree, dtype=np.int64)
    total = ((digits[:, None, :] + digits[None, :, :]) % prime) @ places
    cycle = next(found for low in digits if len(found := _powers(low, prime, places)) == order - 1)
    logarithm = np.zeros(order, dtype=np.int64)
    logarithm[cycle] = np.arange(order - 1)
    times = np.array(cycle, dtype=np.int64)[(logarithm[:, None] + logarithm[None, :]) % (order - 1)]
    times[0, :] = times[:, 0] = 0
    return Field(order, total, times)


def _powers(low: IndexArray, prime: int, places: IndexArray) -> list[int]:
    """1, x, x^2, .. until one repeats or vanishes, where x^k = `low`; for k = 1, x is the number `low` itself."""
    degree = len(places)
    current = np.zeros(degree, dtype=np.int64)
    current[0] = 1
    found: list[int] = []
    while (number := int(current @ places)) not in (0, *found[:1]):
        found.append(number)
        if len(found) > prime**degree:  # a cycle that does not pass 1 again
            return []
        carried = current[-1]
        current = (np.concatenate([[0], current[:-1]]) + carried * low) % prime
    return found


@lru_cache(maxsize=32)
def vector_sums(order: int, length: int) -> IndexArray:
    """The table of v + w over GF(order)^length."""
    small = field(order).sum
    table = np.zeros((1, 1), dtype=np.int64)
    for _ in range(length):
        count = len(table)
        table = (small[:, None, :, None] * count + table[None, :, None, :]).reshape(count * order, count * order)
    return table


@lru_cache(maxsize=32)
def multiples(order: int, length: int) -> IndexArray:
    """multiples[c, v] = c v over GF(order)^length."""
    small = field(order).times
    table = np.zeros((order, 1), dtype=np.int64)
    for _ in range(length):
        table = (small[:, :, None] * table.shape[1] + table[:, None, :]).reshape(order, -1)
    return table


@lru_cache(maxsize=32)
def subspaces(order: int, length: int, dimension: int) -> tuple[tuple[int, ...], ...]:
    """Every subspace of this dimension, as its sorted vectors.

    >>> subspaces(2, 2, 1)
    ((0, 1), (0, 2), (0, 3))
    """
    if dimension == 0:
        return ((0,),)
    sums, scaled = vector_sums(order, length), multiples(order, length)
    found: set[tuple[int, ...]] = set()
    for smaller in subspaces(order, length, dimension - 1):
        held = np.array(smaller)
        left = set(range(order**length)) - set(smaller)
        while left:
            vector = min(left)
            joined = np.unique(sums[held[:, None], scaled[:, vector][None, :]])
            found.add(tuple(joined.tolist()))
            left.difference_update(joined.tolist())
    return tuple(sorted(found))


@lru_cache(maxsize=32)
def projective_points(order: int, length: int) -> IndexArray:
    """For every vector the number of the line through it: the points of PG(length - 1, order); -1 for zero."""
    scaled = multiples(order, length)
    smallest = scaled[1:].min(axis=0)
    _, numbers = np.unique(smallest, return_inverse=True)
    points: IndexArray = numbers.reshape(-1).astype(np.int64) - 1
    return points
