"""Exact marginals of counts by cell, from which most queries are answered, and the checks before an answer."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from dpduck.kernel.counting.hidden import ExactCounts, Hidden
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.price import AskScan
from dpduck.kernel.queries.operators import KroneckerQuery
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError

LARGEST_DENSE = 1 << 22  # cells of one dense table from which all marginals are summed
LARGEST_SHARED = 1 << 16  # cells of a table that several marginals share, if one for all exceeds LARGEST_DENSE
OPEN_GROUPS = 32  # newest tables that a marginal is compared with, so that grouping takes linear time


def cells_of(
    counts: Hidden, scan: AskScan, queries: Sequence[KroneckerQuery] = (), tables: Sequence[int] = (0,)
) -> ExactCounts:
    """Returns `counts`. Refuses counts that are not by cell, of another domain, or with bounds that were not priced."""
    if not isinstance(counts, ExactCounts):
        raise InternalError("a query of other counts")
    if any(counts._unit_bounds[table] != scan.l1 for table in tables):
        raise InternalError("the asks and the counts disagree about the contribution bound")
    factors = [pair for query in queries for pair in zip(query.attributes, query.factors, strict=True)]
    sizes = dict(enumerate(counts._sizes))
    if any(sizes.get(attribute) != factor.size for attribute, factor in factors):
        raise InternalError("the plan and the counts disagree about the domain")
    return counts


def require_cells(query: KroneckerQuery) -> None:
    """Refuses a query unless each answer is the plain count of one cell. The price assumes that cells share no rows."""
    if not query.is_identity:
        raise InternalError("values of several cells add up to no other query")


def require_values(job: CountingJob, values: int) -> None:
    """Refuses a query that was priced for another number of values than the job's last attribute has."""
    if [last.size for last in job.attributes[-1:]] != [values]:
        raise InternalError("the asks and the counts disagree about the values; nothing was charged")


def require_counts(job: CountingJob) -> None:
    """Refuses jobs with sums. Sums modulo 2^64 have no distances and no maximum."""
    aggregate = job.aggregates[0]
    if aggregate.value is not None and aggregate.form != "valued":
        raise InternalError("a choice by numbers that are no counts; nothing was charged")


def by_value(counts: Hidden, scan: AskScan, query: KroneckerQuery, values: int) -> tuple[ExactCounts, int]:
    """Returns counts by cell, and the last attribute's position. It has `values` values. The query leaves it out."""
    require_cells(query)
    cells = cells_of(counts, scan, [query])
    last = len(cells._sizes) - 1
    if last in query.attributes or cells._sizes[last] != values:
        raise InternalError("the plan and the counts disagree about the values")
    return cells, last


def exact_marginals(
    counts: ExactCounts, number: int, wanted: set[tuple[int, ...]]
) -> dict[tuple[int, ...], IntegerArray]:
    """Returns the wanted marginals of table `number`. Those that share a dense table are summed from that table."""
    marginals: dict[tuple[int, ...], IntegerArray] = {}
    for group in _groups(wanted, counts._sizes):
        union = tuple(sorted(set().union(*group)))
        order = sorted(union, key=lambda attribute: -counts._sizes[attribute])
        marginals |= roll_up(_dense(counts, number, union), union, group, order)
    return marginals


def roll_up(
    table: IntegerArray, members: tuple[int, ...], wanted: Sequence[tuple[int, ...]], order: Sequence[int]
) -> dict[tuple[int, ...], IntegerArray]:
    """Returns wanted marginals of a table over `members`. They share sums. order: attributes to sum over, in order."""
    if len(wanted) == 1:
        return {wanted[0]: table.sum(axis=tuple(axis for axis, item in enumerate(members) if item not in wanted[0]))}
    marginals: dict[tuple[int, ...], IntegerArray] = {}
    keeping, dropping = ([item for item in wanted if (order[0] in item) is keeps] for keeps in (True, False))
    if keeping:
        marginals |= roll_up(table, members, keeping, order[1:])
    if dropping:
        axis = members.index(order[0])
        marginals |= roll_up(table.sum(axis=axis), members[:axis] + members[axis + 1 :], dropping, order[1:])
    return marginals


def _groups(wanted: set[tuple[int, ...]], sizes: tuple[int, ...]) -> list[list[tuple[int, ...]]]:
    """Groups sets of attributes so that each group shares one dense table. It uses public sizes alone."""
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
    shape = tuple(counts._sizes[attribute] for attribute in attributes)
    table = np.zeros(prod(shape), dtype=np.int64)
    np.add.at(table, positions(counts, attributes), counts._exact_counts[number])
    return table.reshape(shape)


def positions(counts: ExactCounts, attributes: tuple[int, ...]) -> IntegerArray:
    """Returns the index of each occupied cell in the marginal on `attributes`. The first attribute varies slowest."""
    cells = np.zeros(counts._exact_counts.shape[1], dtype=np.int64)
    for attribute in attributes:
        cells *= counts._sizes[attribute]
        cells += counts._exact_coordinates[attribute]
    return cells


def present(counts: ExactCounts, attributes: tuple[int, ...]) -> IntegerArray:
    """Returns the exact number of values of the last attribute in each cell of `attributes`."""
    cells = tuple(counts._sizes[attribute] for attribute in attributes)
    position = positions(counts, (*attributes, len(counts._sizes) - 1))[counts._exact_counts[0] > 0]
    numbers = np.bincount(np.unique(position) // counts._sizes[-1], minlength=prod(cells))
    return numbers.astype(np.int64).reshape(cells)
