"""Writes the covering designs that optimised views start from: `python -m benchmarks.papers.covering_designs`.

The product reads them from dpduck/strategies/views/designs.npz. tests/strategies/test_covering_designs.py compares
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpduck.strategies.views.designs import FILE, MOST_POINTS, DesignFamily
from dpduck.strategies.views.search import MOST_LARGE_BLOCKS
from dpduck.values.arrays import BoolArray


def all_families(most_points: int = MOST_POINTS) -> list[DesignFamily]:
    """Every family of flats and circles on so many points that a search would look at."""
    every = [*flat_families(most_points), *circle_families(most_points)]
    return sorted(family for family in every if family.blocks <= MOST_LARGE_BLOCKS)


def built(family: DesignFamily) -> BoolArray:
    """Which point lies in which block, from its algebra."""
    if family.kind == "circles":
        return circle_blocks(family.parameters[0])
    return flat_blocks(family.kind == "projective", *family.parameters)


def main() -> None:
    """Writes the file."""
    families = all_families()
    figures = [
        (*family.parameters, *[0] * (3 - len(family.parameters)), family.points, family.blocks, family.block_size,
         family.strength)
        for family in families
    ]  # fmt: skip
    packed = {str(family): np.packbits(built(family)) for family in families}
    kinds = np.array([family.kind for family in families])
    arrays: dict[str, Any] = {"kinds": kinds, "figures": np.array(figures), **packed}
    np.savez_compressed(FILE, **arrays)


def gaussian_binomial(length: int, dimension: int, order: int) -> int:
    """Number of subspaces of this dimension in GF(order)^length.

    >>> gaussian_binomial(3, 1, 2), gaussian_binomial(4, 2, 2)
    (7, 35)
    """
    above = below = 1
    for step in range(dimension):
        above *= order ** (length - step) - 1
        below *= order ** (step + 1) - 1
    return above // below


def flat_families(most_points: int) -> Iterator[DesignFamily]:
    """Flats of dimension r in AG(m, q) and PG(m, q): any r + 1 points lie in one. In AG(m, 2) lines are pairs."""
    for order in range(2, 12):
        if prime_power(order) is None:
            continue
        length = 2
        while order**length <= most_points:
            for dimension in range(1 + (order == 2), length):  # lines over GF(2) are all pairs
                blocks = gaussian_binomial(length, dimension, order) * order ** (length - dimension)
                parameters = (dimension, length, order)
                yield DesignFamily("affine", parameters, order**length, blocks, order**dimension, dimension + 1)
            length += 1
        length = 2
        while (points := (order ** (length + 1) - 1) // (order - 1)) <= most_points:
            for dimension in range(1, length):
                blocks = gaussian_binomial(length + 1, dimension + 1, order)
                size = (order ** (dimension + 1) - 1) // (order - 1)
                parameters = (dimension, length, order)
                yield DesignFamily("projective", parameters, points, blocks, size, dimension + 1)
            length += 1


def circle_families(most_points: int) -> Iterator[DesignFamily]:
    """Inversive planes: the 3-(q^2 + 1, q + 1, 1) designs."""
    for order in (3, 4, 5, 7, 8):
        if (points := order**2 + 1) <= most_points:
            yield DesignFamily("circles", (order,), points, order * points, order + 1, 3)


def incidence(blocks: list[tuple[int, ...]], points: int) -> BoolArray:
    incidence = np.zeros((len(blocks), points), dtype=np.bool_)
    for row, block in enumerate(blocks):
        incidence[row, list(block)] = True
    return incidence


def flat_blocks(projective: bool, dimension: int, length: int, order: int) -> BoolArray:
    """Subspaces as seen from zero, without it, or all translates of subspaces."""
    if projective:
        points = projective_points(order, length + 1)
        blocks = {
            tuple(sorted(set(points[list(held[1:])].tolist()))) for held in subspaces(order, length + 1, dimension + 1)
        }
        return incidence(sorted(blocks), int(points.max()) + 1)
    sums = vector_sums(order, length)
    translates = {
        tuple(sorted(row)) for held in subspaces(order, length, dimension) for row in sums[:, list(held)].tolist()
    }
    return incidence(sorted(translates), order**length)


def circle_blocks(order: int) -> BoolArray:
    """Circles a x^(q+1) + b x + (b x)^q + c = 0 over GF(q^2) and infinity. A, c in GF(q), b^(q+1) unlike a c."""
    whole = field(order * order)
    conjugate = np.arange(order * order)
    for _ in range(order - 1):
        conjugate = whole.times[conjugate, np.arange(order * order)]
    real = np.flatnonzero(conjugate == np.arange(order * order))
    norm = whole.times[np.arange(order * order), conjugate]
    circles: set[tuple[int, ...]] = set()
    for a in (0, 1):  # up to a common real factor
        for b in range(order * order):
            line = whole.times[b]
            trace = whole.sum[line, conjugate[line]]
            for c in real.tolist():
                if norm[b] == whole.times[a, c] or (a == 0 and b == 0):
                    continue
                value = whole.sum[whole.sum[whole.times[a, norm], trace], c]
                circle = np.flatnonzero(value == 0).tolist()
                circles.add((*circle, *([order * order] if a == 0 else [])))
    full = [circle for circle in circles if len(circle) == order + 1]
    return incidence(sorted(full), order * order + 1)


# Arithmetic of the field GF(q) as tables, and the subspaces of its vector spaces, from which designs are built. An
# element of GF(p^k) is a number below q. Its digits in base p are the coefficients of a polynomial. A vector of GF(q)^m
# is a number below q^m. Its digits in base q are its coordinates.

IndexArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Field:
    """Tables of GF(q): sum[a, b] and times[a, b]. The elements 0 and 1 are the numbers 0 and 1."""

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
    """GF(order), from the first polynomial with a root x that generates all non-zero elements.

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
    """1, x, x^2, .. until one repeats or vanishes, where x^k = `low`. For k = 1, x is the number `low` itself."""
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
    """For every vector the number of its line through zero: the points of PG(length - 1, order). -1 for zero."""
    scaled = multiples(order, length)
    smallest = scaled[1:].min(axis=0)
    _, numbers = np.unique(smallest, return_inverse=True)
    points: IndexArray = numbers.reshape(-1).astype(np.int64) - 1
    return points


if __name__ == "__main__":
    main()
