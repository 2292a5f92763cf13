"""Families of covering designs: blocks of points such that every t points lie together in some block.

Under pure epsilon a few large views beat many small ones (DESIGN 4.6): a view whose attributes are a block answers
all t-way marginals inside it, so a good set of views is a covering design with few blocks, weighted. Each family is
given by parameters and built by its algebra when asked for; it serves any number of attributes, because several may
share a point and points may stay empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product
from math import comb

import numpy as np
from numpy.typing import NDArray

from dpduck.values.arrays import BoolArray

MOST_POINTS = 130
"""Designs on more points are left out: tables of vector sums are square in their number."""


@dataclass(frozen=True, order=True)
class DesignFamily:
    """A covering design that can be built: every `strength` of its points lie in a common block.

    kind and parameters: what to build. blocks, block_size: how many blocks, and points in each.
    """

    kind: str
    parameters: tuple[int, ...]
    points: int
    blocks: int
    block_size: int
    strength: int

    def __str__(self) -> str:
        if self.kind == "subsets":
            size, points = self.parameters
            return f"all {size}-subsets of {points} groups"
        if self.kind == "circles":
            return f"inversive plane of order {self.parameters[0]}"
        dimension, length, order = self.parameters
        space = {"affine": "AG", "projective": "PG"}[self.kind]
        flats = {1: "lines", 2: "planes"}.get(dimension, f"{dimension}-flats")
        return f"{flats} of {space}({length},{order})"

    def build(self) -> BoolArray:
        """Which point lies in which block, shape (blocks, points)."""
        return _build(self)


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


def families(strength: int, attributes: int, most_blocks: int) -> tuple[DesignFamily, ...]:
    """Every known family of at least this strength that may serve so many attributes, in a fixed order.

    Points may outnumber the attributes fourfold: what is left of a design without its other points can be good.

    >>> [family.parameters for family in families(2, 3, 3)]
    [(1, 1), (2, 2), (2, 3), (3, 3), (4, 4)]
    """
    most_points = min(4 * attributes + 3, MOST_POINTS)
    every = [
        *_subset_families(strength, attributes + 1),
        *_flat_families(most_points),
        *_circle_families(most_points),
    ]
    kept = {
        family for family in every if family.strength >= min(strength, family.points) and family.blocks <= most_blocks
    }
    return tuple(sorted(kept))


def _subset_families(strength: int, most_points: int) -> Iterator[DesignFamily]:
    """All r-subsets of g points, strength r, for r little above the strength or little below g."""
    for points in range(1, most_points + 1):
        for size in {*range(1, min(strength + 2, points) + 1), max(1, points - 1), points}:
            yield DesignFamily("subsets", (size, points), points, comb(points, size), size, size)


def _flat_families(most_points: int) -> Iterator[DesignFamily]:
    """Flats of dimension r in AG(m, q) and PG(m, q): any r + 1 points lie in one; in AG(m, 2) lines are pairs."""
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


def _circle_families(most_points: int) -> Iterator[DesignFamily]:
    """Inversive planes: the 3-(q^2 + 1, q + 1, 1) designs."""
    for order in (3, 4, 5, 7, 8):
        if (points := order**2 + 1) <= most_points:
            yield DesignFamily("circles", (order,), points, order * points, order + 1, 3)


@lru_cache(maxsize=256)
def _build(family: DesignFamily) -> BoolArray:
    """The incidence matrix of a family, read-only."""
    if family.kind == "subsets":
        size, points = family.parameters
        blocks = _incidence(list(combinations(range(points), size)), points)
    elif family.kind == "circles":
        blocks = _circles(family.parameters[0])
    else:
        blocks = _flats(family.kind == "projective", *family.parameters)
    blocks.setflags(write=False)
    return blocks


def _incidence(blocks: list[tuple[int, ...]], points: int) -> BoolArray:
    incidence = np.zeros((len(blocks), points), dtype=np.bool_)
    for row, block in enumerate(blocks):
        incidence[row, list(block)] = True
    return incidence


def _flats(projective: bool, dimension: int, length: int, order: int) -> BoolArray:
    """Subspaces without their zero, seen from it; or all translates of subspaces."""
    if projective:
        points = projective_points(order, length + 1)
        blocks = {
            tuple(sorted(set(points[list(held[1:])].tolist()))) for held in _sub(order, length + 1, dimension + 1)
        }
        return _incidence(sorted(blocks), int(points.max()) + 1)
    sums = vector_sums(order, length)
    translates = {tuple(sorted(row)) for held in _sub(order, length, dimension) for row in sums[:, list(held)].tolist()}
    return _incidence(sorted(translates), order**length)


def _sub(order: int, length: int, dimension: int) -> tuple[tuple[int, ...], ...]:
    return subspaces(order, length, dimension)


def _circles(order: int) -> BoolArray:
    """Circles a x^(q+1) + b x + (b x)^q + c = 0 over GF(q^2) and infinity; a, c in GF(q), b^(q+1) unlike a c."""
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
    return _incidence(sorted(full), order * order + 1)


# Arithmetic of the field GF(q) as tables, and the subspaces of its vector spaces: what covering designs are
# made of.
#
# An element of GF(p^k) is a number below q whose digits in base p are the coefficients of a polynomial; a
# vector of GF(q)^m is a number below q^m whose digits in base q are its coordinates.

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
