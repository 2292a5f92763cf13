"""Asks of counts by cell: integer operators, numbers of distinct values, and the number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt, prod

import numpy as np

from dpduck.kernel.counting.hidden import ExactCounts, Hidden
from dpduck.kernel.noise.draw import draw
from dpduck.kernel.noise.entropy import Entropy
from dpduck.kernel.noise.law import Noise
from dpduck.kernel.price import Ask, Query, Scan
from dpduck.kernel.queries.key_counts import KeyCounts
from dpduck.kernel.queries.marginals import by_value, cells_of, exact_marginals, positions, require_fit, require_values
from dpduck.kernel.queries.operators import KroneckerQuery, Norms
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError

LARGEST_ROW_COUNT = 1 << 40  # answers about at most this many rows fit into 64 bits, see require_weights


@dataclass(frozen=True, eq=False, slots=True)
class Table(Query[tuple[IntegerArray, ...]]):
    """An integer operator on every table of the scan. Answer: an array for each of them, shape query.shape.

    A unit adds l1 in all, so the answers move by l1 times the largest norm of a column of the operator: tables of one
    aggregate cost as much as one. Answers that are of one cell each move by less in the L2 norm. With at most l1 in all
    and at most `most` in one cell, squares add up to l1 * most, times two norms of the operator. They add up to
    `squared` times its squared column norm, too. That holds of no other operator, not even of margins: a unit that is
    once in each of m cells moves their total by m.
    """

    query: KroneckerQuery

    def moves(self, scan: Scan) -> Norms:
        first, second, largest = self.query.norms
        moved, squared, most = scan.l1 * first, scan.l1 * scan.l1 * second, scan.l1 * largest
        if self.query.asks_single_cells(scan.attributes):
            most = min(most, scan.cell_bound * largest)
            squared = min(squared, moved * most)
            if scan.squared is not None:
                squared = min(squared, scan.squared * second)
        return moved, squared, most

    def draw(
        self, counts: Hidden, ask: Ask[tuple[IntegerArray, ...]], entropy: Entropy, chosen: object
    ) -> tuple[IntegerArray, ...]:
        return self.draw_together(counts, [ask], entropy)[0]

    def draw_together(
        self, counts: Hidden, asks: Sequence[Ask[tuple[IntegerArray, ...]]], entropy: Entropy
    ) -> list[tuple[IntegerArray, ...]]:
        """Rolls all of them up together, table by table."""
        scan, queries = asks[0].scan, [(operator_of(ask), ask.law) for ask in asks]
        if not isinstance(counts, ExactCounts):
            raise InternalError("a query of other counts")
        by_table = [measure(counts, queries, table, scan.l1, entropy) for table in scan.tables]
        return [tuple(noisy[place] for noisy in by_table) for place in range(len(asks))]


def operator_of(ask: Ask[tuple[IntegerArray, ...]]) -> KroneckerQuery:
    """Returns the operator of an ask for tables; refuses others."""
    if not isinstance(ask.query, Table):
        raise InternalError("no ask for tables")
    return ask.query.query


def measure(
    counts: ExactCounts,
    queries: Sequence[tuple[KroneckerQuery, Noise]],
    table: int,
    unit_bound: int,
    entropy: Entropy,
) -> tuple[IntegerArray, ...]:
    """Returns one noisy integer array for each query, shape query.shape, of one exact table.

    unit_bound: what one unit adds at most to this table and the others of its aggregate together, which the noise is
    for: since that is an L1 bound, tables of one aggregate that are measured alike cost as much as one.
    """
    require_fit(counts, [query for query, _ in queries])
    if counts._unit_bounds[table] != unit_bound:
        raise InternalError("the asks and the counts disagree about the contribution bound")
    for query, _ in queries:
        require_weights(query)
    marginals = exact_marginals(counts, table, {query.attributes for query, _ in queries})
    return tuple(with_noise(query, marginals[query.attributes], noise, entropy) for query, noise in queries)


def require_weights(query: KroneckerQuery) -> None:
    """Refuses, from public facts, a query whose answers could leave 64 bits.

    A row adds one entry of the query to an answer, and no entry exceeds the column's L2 norm. Sums inside `apply`
    may wrap: int64 arithmetic is exact modulo 2^64, so an answer that fits is right.
    """
    if isqrt(query.norms[1]) * LARGEST_ROW_COUNT >= 1 << 62:
        raise InternalError("the weights of a query are too large for 64-bit answers")


def with_noise(query: KroneckerQuery, marginal: IntegerArray, noise: Noise, entropy: Entropy) -> IntegerArray:
    """Returns exact answers plus noise, both in integers; a sum beyond 64 bits would wrap, which is post-processing."""
    noisy = draw(noise, prod(query.shape), entropy).reshape(query.shape)
    noisy += query.apply(marginal)
    return noisy


@dataclass(frozen=True, eq=False)
class Present(Query[IntegerArray]):
    """How many values of the scan's last attribute each cell holds. values: how many that attribute has.

    A row makes or unmakes one presence, so that m rows change m at most. A cell's answer is one of 0 .. values with and
    without a unit, so that the answers of all cells together move by no more than values times cells. Squares
    of the moves add up to no more than their sum times the largest. Presences are no counts: they are added up for each
    set of keys by itself.
    """

    query: KroneckerQuery
    values: int

    def bound(self, rows: int) -> int:
        """Returns the L1 sensitivity of all answers to a unit of so many rows."""
        return min(rows, self.values * prod(self.query.shape))

    def cell_bound(self, rows: int) -> int:
        """Returns the most that one cell's answer moves."""
        return min(self.values, self.bound(rows))

    def moves(self, scan: Scan) -> Norms:
        if not self.query.is_identity:
            raise InternalError("distinct values add up to no other query")
        moved, most = self.bound(scan.l1), self.cell_bound(scan.l1)
        return moved, moved * most, most

    def require(self, job: object) -> None:
        require_values(job, self.values)

    def draw(self, counts: Hidden, ask: Ask[IntegerArray], entropy: Entropy, chosen: object) -> IntegerArray:
        cells = cells_of(counts, ask.scan)
        by_value(cells, self.query, self.values)
        if not self.query.is_identity:
            raise InternalError("distinct values add up to no other query")
        return with_noise(self.query, present(cells, self.query.attributes), ask.law, entropy)


def present(counts: ExactCounts, attributes: tuple[int, ...]) -> IntegerArray:
    """Returns the exact number of values of the last attribute in each cell of these."""
    cells = tuple(counts._sizes[attribute] for attribute in attributes)
    position = positions(counts, (*attributes, len(counts._sizes) - 1))[counts._exact_counts[0] > 0]
    found = np.bincount(np.unique(position) // counts._sizes[-1], minlength=prod(cells))
    return found.astype(np.int64).reshape(cells)


@dataclass(frozen=True, eq=False)
class Total(Query[int]):
    """The number of rows, of which a unit has l1 at most. It may be negative."""

    def moves(self, scan: Scan) -> Norms:
        return scan.norms()

    def draw(self, counts: Hidden, ask: Ask[int], entropy: Entropy, chosen: object) -> int:
        return noisy_total(counts if isinstance(counts, KeyCounts) else cells_of(counts, ask.scan), ask.law, entropy)


def noisy_total(counts: ExactCounts | KeyCounts, noise: Noise, entropy: Entropy) -> int:
    """Returns the number of rows plus noise."""
    return int(np.atleast_2d(counts._exact_counts)[0].sum()) + int(draw(noise, 1, entropy)[0])
