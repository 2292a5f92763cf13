"""Positions of cells in domains of up to 10^30 cells: mixed radix, in one 64-bit word if it fits, else in several.

Positions have shape (words, count), int64. Word w holds consecutive attributes, the first varying slowest, and has
values from 0 to bases[w] - 1. Words are digits, the most significant first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]
LARGEST_WORD = 1 << 62


@dataclass(frozen=True)
class MixedRadix:
    """Mixed-radix numbering of cells. sizes: the sizes of the attributes, each below LARGEST_WORD.

    >>> MixedRadix((3, 1 << 60, 5)).bases
    (3458764513820540928, 5)
    """

    sizes: tuple[int, ...]

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        groups: list[list[int]] = [[]]
        for attribute, size in enumerate(self.sizes):
            if prod(self.sizes[other] for other in groups[-1]) * size >= LARGEST_WORD:
                groups.append([])
            groups[-1].append(attribute)
        return tuple(tuple(group) for group in groups)

    @cached_property
    def bases(self) -> tuple[int, ...]:
        return tuple(prod(self.sizes[attribute] for attribute in group) for group in self.groups)

    @cached_property
    def cells(self) -> int:
        return prod(self.bases)

    def pack(self, coordinates: Sequence[NDArray[np.integer]], count: int) -> Positions:
        positions = np.zeros((len(self.groups), count), dtype=np.int64)
        for word, group in zip(positions, self.groups, strict=True):
            for attribute in group:
                np.multiply(word, self.sizes[attribute], out=word)
                np.add(word, coordinates[attribute], out=word)
        return positions

    def unpack(self, positions: Positions) -> tuple[NDArray[np.int64], ...]:
        codes: list[NDArray[np.int64]] = []
        for word, group in zip(positions, self.groups, strict=True):
            rest, digits = word, []
            for attribute in reversed(group[1:]):
                rest, code = np.divmod(rest, self.sizes[attribute])
                digits.append(code)
            codes += [*([rest] if group else []), *reversed(digits)]
        return tuple(codes)

    def plus(self, positions: Positions, amounts: NDArray[np.int64]) -> Positions:
        """Returns positions plus amounts, which may be negative. No sum may leave the domain."""
        if len(positions) == 1:
            return positions + amounts
        sums, carry = positions.copy(), amounts
        for word, base in zip(sums[::-1], self.bases[::-1], strict=True):
            carry, digit = np.divmod(carry, base)
            np.add(word, digit, out=word)  # below 2 * LARGEST_WORD
            over = word >= base
            word[over] -= base
            carry = carry + over
        return sums


def ordering(positions: Positions) -> NDArray[np.intp]:
    """Returns the permutation that sorts the positions stably."""
    return np.argsort(positions[0], kind="stable") if len(positions) == 1 else np.lexsort(positions[::-1])


def first_of_each(ordered: Positions) -> NDArray[np.bool_]:
    """Marks the sorted positions that differ from their predecessor."""
    first = np.ones(ordered.shape[1], dtype=np.bool_)
    np.not_equal(ordered[0, 1:], ordered[0, :-1], out=first[1:])
    for word in ordered[1:]:
        first[1:] |= word[1:] != word[:-1]
    return first


def merge_cells(positions: Positions, counts: NDArray[np.int64]) -> tuple[Positions, NDArray[np.int64]]:
    """Returns the distinct positions in order with the sums of their counts, without positions that sum to 0."""
    order = ordering(positions)
    positions, counts = positions.take(order, axis=1), counts[order]
    first = first_of_each(positions)
    if not first.all():
        counts = np.add.reduceat(counts, np.flatnonzero(first))
        positions = positions[:, first]
    occupied = counts != 0
    return (positions, counts) if occupied.all() else (positions[:, occupied], counts[occupied])


def at_most(ordered: Positions, wanted: Positions) -> NDArray[np.int64]:
    """Counts, for each wanted position, the ordered positions up to and including it."""
    if len(ordered) == 1:
        counts: NDArray[np.int64] = np.searchsorted(ordered[0], wanted[0], side="right").astype(np.int64)
        return counts
    low = np.zeros(wanted.shape[1], dtype=np.int64)
    high = np.full(wanted.shape[1], ordered.shape[1], dtype=np.int64)
    for _ in range(ordered.shape[1].bit_length()):
        open_still = low < high
        middle = (low + high) >> 1
        probe = ordered[:, np.minimum(middle, ordered.shape[1] - 1)] if ordered.shape[1] else wanted
        beyond = _less(wanted, probe)
        low = np.where(open_still & ~beyond, middle + 1, low)
        high = np.where(open_still & beyond, middle, high)
    return low


def _less(first: Positions, second: Positions) -> NDArray[np.bool_]:
    """Marks where `first` is less. The most significant word that differs decides, so the loop ends with word 0."""
    less = np.zeros(first.shape[1], dtype=np.bool_)
    for left, right in zip(first[::-1], second[::-1], strict=True):
        less = (left < right) | ((left == right) & less)
    return less
