"""Random signs for keys of any universe: bits of a polynomial over a prime field (Wegman and Carter 1981).

Row t of the projection has the sign (-1)^b, where b is bit t mod 60 of the word h_w(x), w = t div 60. Here

    h_w(x) = c_(w,0) + c_(w,1) x + .. + c_(w,r-1) x^(r-1)   mod  2^61 - 1

and x is the key's element of the field. With uniform coefficients, the words of any r different elements are exactly
independent and uniform on the field. So 60 of the 61 bits are signs of bias 1/(2^61 - 1), as independent as the words.
sql/macros/sparse_queries.sql computes these signs in SQL.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

PRIME = (1 << 61) - 1
SIGNS = 60  # signs of one word
PIECE = 12  # bits of a word that one table of totals covers: 5 tables of 4096
LIMB = 21  # bits of a limb: a product of two has 42, a sum of 32 products 47, which a double holds exactly
KEYS_AT_A_TIME, WORDS_AT_A_TIME = 1 << 14, 128

Words = NDArray[np.uint64]


def words_for(rows: int) -> int:
    """Returns the number of words that hold one sign for each of `rows` rows of the projection.

    >>> words_for(4096)
    69
    """
    return -(-rows // SIGNS)


def multiply(left: Words, right: Words) -> Words:
    """Multiplies numbers below 2^61 modulo 2^61 - 1, in 64-bit integers.

    Let a = 2^31 a1 + a0, b = 2^31 b1 + b0 and m = a1 b0 + a0 b1. Since 2^61 is 1 modulo 2^61 - 1, the product is
    2 a1 b1 + (m >> 30) + ((m mod 2^30) << 31) + a0 b0, which is below 2^63.
    """
    half, low = np.uint64(31), np.uint64((1 << 31) - 1)
    left_high, left_low, right_high, right_low = left >> half, left & low, right >> half, right & low
    middle = left_high * right_low + left_low * right_high
    total = left_high * right_high * np.uint64(2) + (middle >> np.uint64(30))
    total += ((middle & np.uint64((1 << 30) - 1)) << half) + left_low * right_low
    return reduce_mod(total)


def reduce_mod(values: Words) -> Words:
    """Reduces values below 2^64 modulo 2^61 - 1."""
    folded = (values & np.uint64(PRIME)) + (values >> np.uint64(61))
    result: Words = np.where(folded >= PRIME, folded - np.uint64(PRIME), folded)
    return result


def powers(elements: Words, count: int) -> Words:
    """Computes the powers x^0 .. x^(count - 1) of each key's element x, shape (count, keys)."""
    table = np.ones((count, len(elements)), dtype=np.uint64)
    for degree in range(1, count):
        table[degree] = multiply(table[degree - 1], elements)
    return table


def evaluate(coefficients: Words, elements: Words) -> Words:
    """Computes h_w(x) for all words and keys, shape (words, keys).

    coefficients: shape (words, r), r at most 32. S_k is the sum of the products of two 21-bit limbs with places i + j =
    k. It is below 2^49, so doubles are exact. A word is sum_k S_k 2^(21 k), where 2^63 counts as 2^2 and 2^84 as 2^23.
    """
    if coefficients.shape[1] > 32:
        raise ValueError("more than 32 coefficients would not be added exactly")
    left, right = limbs(coefficients), limbs(powers(elements, coefficients.shape[1]))
    sums: list[Words] = []
    for places in ((0, 0), (1, 0), (2, 0), (2, 1), (2, 2)):
        first, last = places
        total_of_place = left[first] @ right[last]
        for i in range(last, first):
            total_of_place += left[i] @ right[first + last - i]
        sums.append(total_of_place.astype(np.uint64))
    total = sums[0] + _shift(sums[1], 21) + _shift(sums[2], 42) + sums[3] * np.uint64(4) + _shift(sums[4], 23)
    return reduce_mod(total)


def limbs(values: Words) -> list[NDArray[np.float64]]:
    """Splits each number into three limbs of 21 bits, the lowest first, as doubles."""
    low = np.uint64((1 << LIMB) - 1)
    return [((values >> np.uint64(LIMB * place)) & low).astype(np.float64) for place in range(3)]


def _shift(values: Words, bits: int) -> Words:
    """Computes values * 2^bits modulo 2^61 - 1. The result is not quite reduced: it is below 2^61 + 2^49."""
    keep = np.uint64(61 - bits)
    low = (np.uint64(1) << keep) - np.uint64(1)
    return ((values & low) << np.uint64(bits)) + (values >> keep)


def project(coefficients: Words, elements: Words, counts: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """Computes the projection y_t = sum over keys of count * sign, for rows t < `rows`.

    It is exact if counts add up to less than 2^53. A word is cut into pieces of 12 bits, one bit per row. Counts of
    keys with equal pieces are added up first, to 4096 totals. Each of the 12 rows is a signed sum of the totals.
    """
    weights = counts.astype(np.float64)
    projected = np.zeros((len(coefficients), SIGNS), dtype=np.float64)
    for block in _blocks(len(coefficients), WORDS_AT_A_TIME):
        totals = np.zeros((block.stop - block.start, SIGNS // PIECE, 1 << PIECE))
        for chunk in _blocks(len(elements), KEYS_AT_A_TIME):
            words = evaluate(coefficients[block], elements[chunk])
            for place in range(SIGNS // PIECE):
                codes = ((words >> np.uint64(PIECE * place)) & np.uint64((1 << PIECE) - 1)).astype(np.intp)
                for word, of_word in enumerate(codes):
                    totals[word, place] += np.bincount(of_word, weights[chunk], 1 << PIECE)
        projected[block] = (totals @ piece_signs().T).reshape(-1, SIGNS)
    return np.rint(projected).astype(np.int64).reshape(-1)[:rows]


def piece_signs() -> NDArray[np.float64]:
    """Returns the signs of the 12 bits of each pattern 0 .. 4095, shape (12, 4096). A bit of 1 has the sign -1."""
    patterns = np.arange(1 << PIECE)
    return (1 - 2 * ((patterns >> np.arange(PIECE)[:, None]) & 1)).astype(np.float64)


def _blocks(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
