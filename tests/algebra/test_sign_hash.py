"""The signs of projections: exact arithmetic, exact independence, exact sums."""

from itertools import permutations, product

import numpy as np
import pytest

from dpduck.algebra.hashing import PRIME, SIGNS, evaluate, multiply, project
from tests.algebra.sign_oracle import element_of, elements_of, polynomial, signs


def draws(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, PRIME, shape, dtype=np.uint64)


def test_products_are_exact() -> None:
    """Products modulo 2^61 - 1 equal Python's, at the ends of the field too."""
    left, right = draws(500), draws(500, seed=2)
    left[:4], right[:4] = [0, PRIME - 1, PRIME - 1, 1], [PRIME - 1, PRIME - 1, 1, PRIME - 1]
    expected = [int(a) * int(b) % PRIME for a, b in zip(left, right, strict=True)]
    assert multiply(left, right).tolist() == expected


@pytest.mark.parametrize("independence", [1, 2, 7, 32])
def test_words_equal_horners_rule(independence: int) -> None:
    """Words from limbs multiplied as doubles equal Horner's rule in Python's integers, largest values included."""
    coefficients, elements = draws(3, independence), draws(40, seed=3)
    coefficients[0], elements[0] = PRIME - 1, PRIME - 1
    expected = [[polynomial([int(c) for c in row], int(x)) for x in elements] for row in coefficients]
    assert evaluate(coefficients, elements).tolist() == expected


def tuples_are_uniform(prime: int, size: int, coefficients: int) -> bool:
    """Whether all values of all tuples of different elements are equally frequent over all polynomials."""
    every = list(product(range(prime), repeat=coefficients))
    values = [[polynomial(one, x, prime) for x in range(prime)] for one in every]
    for elements in permutations(range(prime), size):
        _, counts = np.unique([[row[x] for x in elements] for row in values], axis=0, return_counts=True)
        if len(counts) != prime**size or len(set(counts.tolist())) != 1:
            return False
    return True


@pytest.mark.parametrize(("prime", "size"), [(7, 1), (7, 2), (7, 3), (5, 4), (3, 3)])
def test_every_tuple_is_exactly_uniform(prime: int, size: int) -> None:
    """r coefficients make the words of any r different keys exactly independent and uniform: all of them counted."""
    assert tuples_are_uniform(prime, size, size)


def test_fewer_coefficients_are_not_enough() -> None:
    """The count of tuples tells: r - 1 coefficients do not make r words independent."""
    assert not tuples_are_uniform(7, 3, 2)
    assert not tuples_are_uniform(5, 4, 3)


def test_every_bit_of_a_word_is_a_fair_sign() -> None:
    """On the field of 2^5 - 1 elements every bit is 1 in 15 of 31 words and pairs of bits are as even as they can."""
    words = np.arange(31)
    bits = (words[:, None] >> np.arange(5)) & 1
    assert bits.sum(axis=0).tolist() == [15] * 5
    for first, second in permutations(range(5), 2):
        pairs = np.bincount(2 * bits[:, first] + bits[:, second], minlength=4)
        assert pairs.tolist() == [8, 8, 8, 7]
    assert signs(np.array([0, 1, PRIME - 1], np.uint64))[:, 0].tolist() == [1, -1, 1]
    assert signs(np.array([0], np.uint64)).shape == (1, SIGNS)


def test_projection_equals_the_dense_one() -> None:
    """The sums by pieces of bits are the product with the dense sign matrix, in exact integers."""
    coefficients, elements = draws(3, 32), draws(700, seed=5)
    counts = np.random.default_rng(6).integers(0, 10**9, 700)
    dense = np.moveaxis(signs(evaluate(coefficients, elements)), 1, 2).reshape(-1, 700).astype(np.int64)
    assert (project(coefficients, elements, counts, 170) == (dense @ counts)[:170]).all()
    assert project(coefficients, elements[:0], counts[:0], 170).tolist() == [0] * 170


def test_keys_are_hashed_by_their_text() -> None:
    """A key's element is that of its UTF-8 text, of any length."""
    assert element_of("E11.9") == 2114673996394497761
    assert elements_of(["", "é", "x" * 10**5]).tolist() == [element_of(t) for t in ("", "é", "x" * 10**5)]
