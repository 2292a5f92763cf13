"""Exact private choices among scored candidates. No floating-point rounding changes a probability.

Scores are integers. One privacy unit moves each score by at most `sensitivity`, in either direction. So both mechanisms
below are epsilon-differentially private with rate = epsilon / (2 sensitivity). The exponential mechanism also is
(epsilon^2 / 8)-zCDP, because the range of its privacy loss is epsilon (Cesar and Rogers 2021). Permute-and-flip
(McKenna and Sheldon 2020) is never worse at equal pure epsilon, but has no such bound.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.noise.coins import is_below
from dpduck.kernel.noise.entropy import Entropy, LazyUniform, uniform_below, words64
from dpduck.kernel.noise.exponentials import exp_bounds, exp_minus
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError

STEPS = 16  # entries of the table for each unit of the exponent: about 1/16 of the flips that may succeed are undecided
LAST = 45 * STEPS  # exp(-45) < 2**-64
MARGIN = 1e-12  # relative; the product of two rounded floats is within 4 * 2**-53
LARGEST_GAP = 1 << 61
BLOCK = 1 << 16


def exponential_choice(scores: IntegerArray, rate: Fraction, entropy: Entropy) -> int:
    """Draws candidate i with probability proportional to exp(rate * scores[i]), exactly: the exponential mechanism."""
    # uniform proposals are accepted with probability exp(-rate * (best - score)), until one is accepted
    gaps = _gaps(scores)
    count = min(max(len(gaps), 64), BLOCK)
    while True:
        proposed = uniform_below(len(gaps), count, entropy)
        accepted = np.flatnonzero(flips(gaps[proposed], rate, entropy))
        if accepted.size:
            return int(proposed[accepted[0]])


def permute_and_flip(scores: IntegerArray, rate: Fraction, entropy: Entropy) -> int:
    """Flips the candidates' coins in a uniform order. Returns the first with heads: P = exp(-rate (best - score))."""
    gaps = _gaps(scores)
    order = uniform_order(len(gaps), entropy)
    return int(order[np.argmax(flips(gaps[order], rate, entropy))])  # the best candidate's coin always shows heads


def flips(gaps: IntegerArray, rate: Fraction, entropy: Entropy) -> NDArray[np.bool_]:
    """Flips independent coins, heads with probability exp(-rate * gaps[i]), exactly. The gaps are from 0 to 2**61."""
    # the exponent lies between two neighbours in a table of proven bounds: integers decide a draw between these
    lower, upper = _table()
    exponents = gaps.astype(np.float64) * float(rate) * STEPS
    near = np.minimum(exponents * (1 - MARGIN), LAST).astype(np.int64)
    far = np.minimum(exponents * (1 + MARGIN) + 1, LAST).astype(np.int64)
    draws = words64(entropy, len(gaps))
    heads: NDArray[np.bool_] = draws < lower[far]
    heads[gaps == 0] = True
    for position in np.flatnonzero(~heads & (draws <= upper[near])):
        uniform = LazyUniform(int(draws[position]), 64, entropy)
        heads[position] = is_below(uniform, partial(exp_bounds, int(gaps[position]) * rate))
    return heads


def uniform_order(count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Draws a uniform permutation: the order of distinct random words. If two words are equal, all are drawn again."""
    while True:
        words = words64(entropy, count)
        order: NDArray[np.int64] = np.argsort(words, kind="stable").astype(np.int64)
        ordered = words[order]
        if not np.any(ordered[1:] == ordered[:-1]):
            return order


def _gaps(scores: IntegerArray) -> IntegerArray:
    if not len(scores):
        raise InternalError("there is nothing to choose from")
    best, worst = int(scores.max()), int(scores.min())
    if best - worst > LARGEST_GAP:
        raise InternalError("the scores are too far apart for 64-bit integers")
    return best - scores


@cache
def _table() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Returns for j = 0..LAST a lower bound on 2**64 exp(-j/STEPS), and an upper bound on 2**64 exp(-j/STEPS) - 1."""
    bounds = [exp_minus(Fraction(step, STEPS), 128) for step in range(LAST + 1)]
    lower = [min(low >> 64, (1 << 64) - 1) for low, _ in bounds]
    upper = [min(high >> 64, (1 << 64) - 1) for _, high in bounds]
    return np.array(lower, np.uint64), np.array(upper, np.uint64)
