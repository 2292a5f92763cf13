"""Draws uniformly random sets of empty cells of a domain that is too large for memory."""

from __future__ import annotations

import numpy as np

from dpduck.kernel.noise.entropy import Entropy, uniform_below, words64
from dpduck.kernel.queries.cells import MixedRadix, Positions, at_most, first_of_each, ordering

FEW = 4
"""A set of more than 1/FEW of all ranks is drawn by sorting random keys. A smaller set is drawn rank by rank."""


def empty_cells(radix: MixedRadix, occupied: Positions, count: int, entropy: Entropy) -> Positions:
    """Draws a set of `count` cells that are not occupied, exactly uniformly. Returns it sorted.

    occupied: sorted and distinct. The i-th occupied cell z_i has z_i - i empty cells before it. So the empty cell of
    rank r is r plus the number of i with z_i - i <= r. So no occupied cell is ever drawn and rejected.
    """
    ranks = random_subset(radix, occupied.shape[1], count, entropy)
    before = radix.plus(occupied, -np.arange(occupied.shape[1], dtype=np.int64))
    return radix.plus(ranks, at_most(before, ranks))


def random_subset(radix: MixedRadix, left_out: int, count: int, entropy: Entropy) -> Positions:
    """Draws a set of `count` ranks below radix.cells - left_out, exactly uniformly. Returns it sorted.

    Ranks are drawn until `count` are different. The first different values of an independent uniform sequence are a
    uniformly random set. On average at most one in FEW draws repeats. Larger sets are drawn by random keys.
    """
    available = radix.cells - left_out
    if not 0 <= count <= available:
        raise ValueError("there are not so many empty cells")
    if count * FEW > available:
        return _by_random_keys(available, count, entropy)
    ranks = np.empty((len(radix.bases), 0), dtype=np.int64)
    while ranks.shape[1] < count:
        fresh = _uniform_ranks(radix, available, count - ranks.shape[1], entropy)
        ranks = np.concatenate([ranks, fresh], axis=1)
        ranks = ranks[:, ordering(ranks)] if len(ranks) > 1 else np.sort(ranks, axis=1)
        ranks = ranks[:, first_of_each(ranks)]
    return ranks


def _by_random_keys(available: int, count: int, entropy: Entropy) -> Positions:
    """Returns the ranks with the smallest random keys. All keys are drawn again if the last chosen key has a tie."""
    while True:
        keys = words64(entropy, available)
        if count in (0, available):
            return np.arange(count, dtype=np.int64)[None, :]
        order = np.argpartition(keys, count - 1)
        border = keys[order[:count]].max()
        if np.count_nonzero(keys <= border) == count:
            return np.sort(order[:count]).astype(np.int64)[None, :]


def _uniform_ranks(radix: MixedRadix, available: int, count: int, entropy: Entropy) -> Positions:
    if len(radix.bases) == 1:
        return uniform_below(available, count, entropy)[None, :]
    # Several words: nearly every position of the domain is below the number of its empty cells.
    limit = np.array(_digits(radix, available), dtype=np.int64)[:, None]
    ranks = np.empty((len(radix.bases), 0), dtype=np.int64)
    while ranks.shape[1] < count:
        missing = count - ranks.shape[1]
        fresh = np.stack([uniform_below(base, missing, entropy) for base in radix.bases])
        inside = at_most(limit, fresh) == 0
        ranks = np.concatenate([ranks, fresh[:, inside]], axis=1)
    return ranks


def _digits(radix: MixedRadix, number: int) -> list[int]:
    digits = []
    for base in radix.bases[:0:-1]:
        number, digit = divmod(number, base)
        digits.append(digit)
    return [number, *reversed(digits)]
