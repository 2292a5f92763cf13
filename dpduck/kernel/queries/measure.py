"""Adds noise to exact answers of integer queries, and answers adaptive questions; called by the door alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt, prod

import numpy as np
from numpy.typing import NDArray

from dpduck.kernel.ask import WEIGHT, Choice, Families
from dpduck.kernel.counting.hidden import ExactCounts, Hidden
from dpduck.kernel.noise.choice import exponential_choice, permute_and_flip
from dpduck.kernel.noise.draw import draw
from dpduck.kernel.noise.entropy import Entropy
from dpduck.kernel.noise.law import Noise
from dpduck.kernel.queries.key_counts import KeyCounts
from dpduck.kernel.queries.operators import KroneckerQuery
from dpduck.values.arrays import FloatArray, IntegerArray
from dpduck.values.errors import InternalError

NoisyQuery = tuple[KroneckerQuery, Noise]

LARGEST_DENSE = 1 << 22  # cells of one table that all marginals are rolled up from
LARGEST_SHARED = 1 << 16  # cells of a table that some of very many attributes share
OPEN_GROUPS = 32  # tables that a further marginal may join: keeps grouping linear
LARGEST_ROW_COUNT = 1 << 40  # answers about at most this many rows fit into 64 bits, see require_weights


def measure(
    counts: ExactCounts, queries: Sequence[NoisyQuery], table: int, unit_bound: int, entropy: Entropy
) -> tuple[IntegerArray, ...]:
    """Returns one noisy integer array for each query, shape query.shape, of one exact table.

    unit_bound: what one unit adds at most to this table and the others of its aggregate together, which the noise is
    for: since that is an L1 bound, tables of one aggregate that are measured alike cost as much as one.
    """
    require_fit(counts, [query for query, _ in queries], table, unit_bound)
    for query, _ in queries:
        require_weights(query)
    marginals = exact_marginals(counts, table, {query.attributes for query, _ in queries})
    return tuple(with_noise(query, marginals[query.attributes], noise, entropy) for query, noise in queries)


def require_fit(counts: ExactCounts, queries: Sequence[KroneckerQuery], table: int, unit_bound: int) -> None:
    """Refuses counts of another domain, or of which a unit holds more than the noise is for."""
    sizes = counts._sizes
    fits = all(
        attribute < len(sizes) and factor.size == sizes[attribute]
        for query in queries
        for attribute, factor in zip(query.attributes, query.factors, strict=True)
    )
    if counts._unit_bounds[table] != unit_bound or not fits:
        raise InternalError("the plan and the counts disagree about the domain or the contribution bound")


def with_noise(query: KroneckerQuery, marginal: IntegerArray, noise: Noise, entropy: Entropy) -> IntegerArray:
    """Returns exact answers plus noise, both in integers; a sum beyond 64 bits would wrap, which is post-processing."""
    noisy = draw(noise, prod(query.shape), entropy).reshape(query.shape)
    noisy += query.apply(marginal)
    return noisy


def noisy_total(counts: ExactCounts | KeyCounts, noise: Noise, entropy: Entropy) -> int:
    """Returns the number of rows plus noise; it may be negative."""
    return int(np.atleast_2d(counts._exact_counts)[0].sum()) + int(draw(noise, 1, entropy)[0])


def require_weights(query: KroneckerQuery) -> None:
    """Refuses, from public facts, a query whose answers could leave 64 bits.

    A row adds one entry of the query to an answer, and no entry exceeds the column's L2 norm. Sums inside `apply`
    may wrap: int64 arithmetic is exact modulo 2^64, so an answer that fits is right.
    """
    if isqrt(query.norms[1]) * LARGEST_ROW_COUNT >= 1 << 62:
        raise InternalError("the weights of a query are too large for 64-bit answers")


def exact_marginals(
    counts: ExactCounts, number: int, wanted: set[tuple[int, ...]]
) -> dict[tuple[int, ...], IntegerArray]:
    """Returns exact marginals; those that fit into one dense table are rolled up from it, not from sparse counts."""
    found: dict[tuple[int, ...], IntegerArray] = {}
    for group in _groups(wanted, counts._sizes):
        union = tuple(sorted(set().union(*group)))
        order = sorted(union, key=lambda attribute: -counts._sizes[attribute])
        found |= rolled_up(_dense(counts, number, union), union, group, order)
    return found


def rolled_up(
    table: IntegerArray, members: tuple[int, ...], wanted: Sequence[tuple[int, ...]], order: Sequence[int]
) -> dict[tuple[int, ...], IntegerArray]:
    """Returns the wanted marginals of a table with these members, all different: an array each, sums being shared.

    order: in which attributes are kept by some of the marginals and summed away for the others.
    """
    if len(wanted) == 1:
        return {wanted[0]: table.sum(axis=tuple(axis for axis, one in enumerate(members) if one not in wanted[0]))}
    found: dict[tuple[int, ...], IntegerArray] = {}
    keeping, dropping = ([one for one in wanted if (order[0] in one) is kept] for kept in (True, False))
    if keeping:
        found |= rolled_up(table, members, keeping, order[1:])
    if dropping:
        axis = members.index(order[0])
        found |= rolled_up(table.sum(axis=axis), members[:axis] + members[axis + 1 :], dropping, order[1:])
    return found


def _groups(wanted: set[tuple[int, ...]], sizes: tuple[int, ...]) -> list[list[tuple[int, ...]]]:
    """Sets of attributes that share one dense table, decided from public sizes alone; the largest sets come first."""
    ordered = sorted(wanted, key=lambda attributes: (-prod(sizes[a] for a in attributes), attributes))
    if prod(sizes[a] for a in set().union(*ordered)) <= LARGEST_DENSE:
        return [ordered] if ordered else []
    groups: list[list[tuple[int, ...]]] = []
    unions: list[set[int]] = []
    for attributes in ordered:
        for group, union in zip(groups[-OPEN_GROUPS:], unions[-OPEN_GROUPS:], strict=True):
            joint = union.union(attributes)
            if joint == union or prod(sizes[a] for a in joint) <= LARGEST_SHARED:
                group.append(attributes)
                union.update(attributes)
                break
        else:
            groups.append([attributes])
            unions.append(set(attributes))
    return groups


def _dense(counts: ExactCounts, number: int, attributes: tuple[int, ...]) -> IntegerArray:
    """Returns the marginal on `attributes`, added up in integers from the sparse counts."""
    shape = tuple(counts._sizes[attribute] for attribute in attributes)
    table = np.zeros(prod(shape), dtype=np.int64)
    np.add.at(table, positions(counts, attributes), counts._exact_counts[number])
    return table.reshape(shape)


def positions(counts: ExactCounts, attributes: tuple[int, ...]) -> IntegerArray:
    """Returns the cell of each occupied combination of the attributes, of which the first varies slowest."""
    found = np.zeros(counts._exact_counts.shape[1], dtype=np.int64)
    for attribute in attributes:
        found *= counts._sizes[attribute]
        found += counts._exact_coordinates[attribute]
    return found


# Answers adaptive questions about exact counts: which candidate is answered worst, and its noisy answer.
#
# What may be asked, and how often, is the door's matter. Sensitivities, with m the most rows of one privacy unit (add
# or remove all of them):
#
# * the answer of one query moves by at most m, since its coefficients are 0, 1 or -1;
# * a marginal as a whole moves by at most m in L1 and in L2 (all rows may fall into one cell);
# * |answer - estimate| and the L1 distance of a marginal from its estimate move by at most m for the same reason. They
#   are taken against estimates on the grid of multiples of 1/GRID, so that scores are integers and this is exact;
#   a public weight of at most 1, in units of 1/WEIGHT, and a public penalty move them no further.


GRID = 256
LARGEST_ESTIMATE = float(1 << 42)


@dataclass(frozen=True, eq=False)
class Guess:
    """What is public about a choice.

    estimates: of every query of every family, in order. penalties, allowed: one per candidate.
    """

    estimates: FloatArray
    penalties: FloatArray
    allowed: NDArray[np.bool_]


class FamilyAnswers(Hidden):
    """The exact answers of families of queries; hidden."""

    __slots__ = ("_exact", "_families", "_starts", "_weights")

    def __init__(self, counts: ExactCounts, families: Families, unit_bound: int) -> None:
        if counts._unit_bounds[0] != unit_bound:
            raise InternalError("the questions and the counts disagree about the contribution bound")
        marginals = exact_marginals(counts, 0, {family.attributes for family in families.families})
        answers = [family.answers(marginals[family.attributes]) for family in families.families]
        self._exact = np.concatenate(answers)
        self._starts = np.cumsum([0, *(len(answer) for answer in answers)])
        self._families = families
        self._weights = np.array(families.weights, np.int64) if families.weights else None

    def choose(self, choice: Choice, guess: Guess, entropy: Entropy) -> int:
        """Returns a candidate whose distance from its estimate, less its penalty, is nearly the largest."""
        estimates, whole = guess.estimates, self._families.whole
        fit = estimates.shape == self._exact.shape and guess.allowed.any()
        if not fit or np.abs(estimates).max() > LARGEST_ESTIMATE:
            raise InternalError("estimates are not of these candidates")
        if whole and float(np.add.reduceat(np.abs(estimates), self._starts[:-1]).max()) > LARGEST_ESTIMATE:
            raise InternalError("estimates of a marginal are too large for 64-bit scores")
        grid = np.rint(estimates * GRID).astype(np.int64)
        scores = np.abs(self._exact * GRID - grid)
        if whole:
            scores = np.add.reduceat(scores, self._starts[:-1])
        scores -= np.rint(np.clip(guess.penalties, -LARGEST_ESTIMATE, LARGEST_ESTIMATE) * GRID).astype(np.int64)
        rate, numbers = choice.rate / GRID, np.flatnonzero(guess.allowed)
        if self._weights is not None:
            scores, rate = scores * self._weights, rate / WEIGHT
        mechanism = permute_and_flip if choice.pure else exponential_choice
        return int(numbers[mechanism(scores[numbers], rate, entropy)])

    def answer(self, candidate: int, noise: Noise, entropy: Entropy) -> IntegerArray:
        """Returns the noisy answer of a candidate, shape (queries,): one number, or every cell of a marginal."""
        if self._families.whole:
            return self.marginal(candidate, noise, entropy)
        return self._noisy(candidate, candidate + 1, noise, entropy)

    def marginal(self, number: int, noise: Noise, entropy: Entropy) -> IntegerArray:
        """Returns every answer of a family that is a marginal, shape (cells,)."""
        return self._noisy(self._starts[number], self._starts[number + 1], noise, entropy)

    def _noisy(self, first: int, last: int, noise: Noise, entropy: Entropy) -> IntegerArray:
        noisy = draw(noise, int(last - first), entropy)
        noisy += self._exact[first:last]
        return noisy
