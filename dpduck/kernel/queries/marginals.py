"""Exact marginals of counts by cell, which most queries are answered from, and what those refuse to answer from."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from dpduck.kernel.counting.hidden import ExactCounts, Hidden
from dpduck.kernel.counting.jobs import CountingJob
from dpduck.kernel.price import Scan
from dpduck.kernel.queries.operators import KroneckerQuery
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import InternalError

LARGEST_DENSE = 1 << 22  # cells of one table that all marginals are rolled up from
LARGEST_SHARED = 1 << 16  # cells of a table that some of very many attributes share
OPEN_GROUPS = 32  # tables that a further marginal may join: keeps grouping linear


def cells_of(counts: Hidden, scan: Scan) -> ExactCounts:
    """Returns counts by cell; refuses others, and other bounds of the first table than the price is of."""
    if not isinstance(counts, ExactCounts):
        raise InternalError("a query of other counts")
    if counts._unit_bounds[0] != scan.l1:
        raise InternalError("the asks and the counts disagree about the contribution bound")
    return counts


def require_fit(counts: ExactCounts, queries: Sequence[KroneckerQuery]) -> None:
    """Refuses counts of another domain."""
    sizes = counts._sizes
    if not all(
        attribute < len(sizes) and factor.size == sizes[attribute]
        for query in queries
        for attribute, factor in zip(query.attributes, query.factors, strict=True)
    ):
        raise InternalError("the plan and the counts disagree about the domain")


def require_values(job: object, values: int) -> None:
    """Refuses a price for fewer values, or more, than the last attribute of what will be counted has."""
    if not isinstance(job, CountingJob) or [last.size for last in job.attributes[-1:]] != [values]:
        raise InternalError("the asks and the counts disagree about the values; nothing was charged")


def by_value(counts: ExactCounts, query: KroneckerQuery, values: int) -> tuple[int, ...]:
    """Returns the attributes of a query and the last one, which has so many values; refuses counts of others."""
    require_fit(counts, [query])
    last = len(counts._sizes) - 1
    if last in query.attributes or counts._sizes[last] != values:
        raise InternalError("the plan and the counts disagree about the values")
    return (*query.attributes, last)


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
