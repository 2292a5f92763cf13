"""Queries of counts by cell: integer operators, numbers of distinct values, and the number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt, prod

from dpduck.kernel.counting.hidden import Hidden
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.noise.draw import draw
from dpduck.kernel.noise.entropy import Entropy
from dpduck.kernel.noise.law import Noise
from dpduck.kernel.price import Ask, AskScan, Query
from dpduck.kernel.queries.key_counts import KeyCounts
from dpduck.kernel.queries.marginals import by_value, cells_of, exact_marginals, present, require_cells, require_values
from dpduck.kernel.queries.operators import KroneckerQuery, Norms
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError

Arrays = tuple[IntegerArray, ...]
LARGEST_ROW_COUNT = 1 << 40  # answers about at most this many rows fit into 64 bits, see require_weights


@dataclass(frozen=True, eq=False, slots=True)
class Table(Query[Arrays]):
    """Linear integer query of every table of the scan. The answer has one array per table, of shape query.shape.

    A unit adds l1 in all, so the answers move by l1 times the largest column norm of the operator: all tables of one
    aggregate together cost as much as one table. If each answer is about one cell, answers move by less in the L2 norm.
    A unit adds at most l1 in all and `most` in one cell. So the squares of the moves add up to at most l1 * most, times
    two norms of the operator. They also add up to at most `squared` times its squared column norm.
    Neither bound holds for other operators, not even for margins: a unit with a row in each of m cells moves the total
    by m.
    """

    query: KroneckerQuery

    def moves(self, scan: AskScan) -> Norms:
        first, second, largest = self.query.norms
        moved, squared, most = scan.l1 * first, scan.l1 * scan.l1 * second, scan.l1 * largest
        if self.query.asks_single_cells(scan.attributes):
            most = min(most, (scan.l1 if scan.most is None else scan.most) * largest)
            squared = min(squared, moved * most)
            if scan.squared is not None:
                squared = min(squared, scan.squared * second)
        return moved, squared, most

    def draw(self, counts: Hidden, ask: Ask[Arrays], entropy: Entropy, chosen: object) -> Arrays:
        return self.draw_together(counts, [ask], entropy)[0]

    def draw_together(self, counts: Hidden, asks: Sequence[Ask[Arrays]], entropy: Entropy) -> list[Arrays]:
        """Draws noisy integers of each table, for several asks. Their marginals are computed together."""
        scan, queries = asks[0].scan, [operator_of(ask) for ask in asks]
        cells, wanted = cells_of(counts, scan, queries, scan.tables), {query.attributes for query in queries}
        for query in queries:
            require_weights(query)
        by_table = [exact_marginals(cells, table, wanted) for table in scan.tables]
        return [
            tuple(with_noise(query, exact[query.attributes], ask.law, entropy) for exact in by_table)
            for query, ask in zip(queries, asks, strict=True)
        ]


def operator_of(ask: Ask[Arrays]) -> KroneckerQuery:
    """Returns the operator of an ask for tables. Refuses other asks."""
    if not isinstance(ask.query, Table):
        raise InternalError("no ask for tables")
    return ask.query.query


def require_weights(query: KroneckerQuery) -> None:
    """Refuses, from public facts, a query with answers that could leave 64 bits."""
    # a row adds one entry to an answer, at most the column's L2 norm; sums inside `apply` may wrap, modulo 2^64
    if isqrt(query.norms[1]) * LARGEST_ROW_COUNT >= 1 << 62:
        raise InternalError("the weights of a query are too large for 64-bit answers")


def with_noise(query: KroneckerQuery, marginal: IntegerArray, noise: Noise, entropy: Entropy) -> IntegerArray:
    """Returns exact answers plus noise, both in integers. A sum beyond 64 bits would wrap, which is post-processing."""
    noisy = draw(noise, prod(query.shape), entropy).reshape(query.shape)
    noisy += query.apply(marginal)
    return noisy


@dataclass(frozen=True, eq=False)
class Present(Query[IntegerArray]):
    """Number of values of the scan's last attribute in each cell. values: the size of that attribute.

    A value is present in a cell if some row has it. So m rows change at most m presences. A cell's answer is one of 0
    .. values with and without a unit. So all cells together move by at most values times cells. Squares of the moves
    add up to at most their sum times the largest move. The numbers of finer cells do not add up to that of a coarser
    cell, so each set of keys is counted by itself.
    """

    query: KroneckerQuery
    values: int

    def moves(self, scan: AskScan) -> Norms:
        require_cells(self.query)
        moved = min(scan.l1, self.values * prod(self.query.shape))
        most = min(moved, self.values)
        return moved, moved * most, most

    def require(self, job: CountingJob) -> None:
        require_values(job, self.values)

    def draw(self, counts: Hidden, ask: Ask[IntegerArray], entropy: Entropy, chosen: object) -> IntegerArray:
        cells, _ = by_value(counts, ask.scan, self.query, self.values)
        return with_noise(self.query, present(cells, self.query.attributes), ask.law, entropy)


@dataclass(frozen=True, eq=False)
class Total(Query[int]):
    """Noisy number of rows. A unit has at most l1 rows. The answer may be negative."""

    def moves(self, scan: AskScan) -> Norms:
        return scan.norms()

    def draw(self, counts: Hidden, ask: Ask[int], entropy: Entropy, chosen: object) -> int:
        exact = counts._exact_counts if isinstance(counts, KeyCounts) else cells_of(counts, ask.scan)._exact_counts[0]
        return int(exact.sum()) + int(draw(ask.law, 1, entropy)[0])
