"""Exact counts in, noisy integer answers out: the only door (DESIGN 5), and what passing it costs."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt, prod

import numpy as np
from numpy.typing import NDArray

from dpduck.errors import InternalError
from dpduck.planning.plan import Measurement, NoiseKind, Plan
from dpduck.privacy import Charge
from dpduck.trusted.discrete_gaussian import discrete_gaussian
from dpduck.trusted.discrete_laplace import discrete_laplace
from dpduck.trusted.entropy import Entropy
from dpduck.trusted.exact_counts import ExactCounts
from dpduck.workload.kronecker import Factor, KroneckerQuery
from dpduck.workload.margin_tree import margin_tree

IntegerArray = NDArray[np.int64]

LARGEST_DENSE = 1 << 22  # cells of one table that all marginals are rolled up from
LARGEST_SHARED = 1 << 16  # cells of a table that some of very many attributes share
OPEN_GROUPS = 32  # tables that a further marginal may join: keeps grouping linear
LARGEST_ROW_COUNT = 1 << 40  # answers about at most this many rows fit into 64 bits, see _check_weights
LARGEST_PROBE = 1 << 20  # entries of a factor that compiled_cost looks at one by one


def measure(counts: ExactCounts, plan: Plan, table: int, unit_bound: int, entropy: Entropy) -> tuple[IntegerArray, ...]:
    """One noisy integer array for each measurement of `plan`, shape measurement.query.shape, of one exact table.

    unit_bound: what one unit adds at most to this table and the others of its aggregate together, which the plan's
    noise is for: since that is an L1 bound, tables of one aggregate that are measured alike cost as much as one.
    """
    if counts._unit_bounds[table] > unit_bound or counts._sizes != plan.workload.sizes:
        raise InternalError("the plan and the counts disagree about the domain or the contribution bound")
    for measurement in plan.measurements:
        _check_weights(measurement.query)
    wanted = {measurement.query.attributes for measurement in plan.measurements}
    marginals = exact_marginals(counts, table, wanted)
    return tuple(
        with_noise(measurement, marginals[measurement.query.attributes], plan.noise, entropy)
        for measurement in plan.measurements
    )


def with_noise(measurement: Measurement, marginal: IntegerArray, noise: NoiseKind, entropy: Entropy) -> IntegerArray:
    """Exact answers plus noise, both in integers; a sum beyond 64 bits would wrap, which is post-processing."""
    shape = measurement.query.shape
    draws = discrete_laplace if noise is NoiseKind.LAPLACE else discrete_gaussian
    noisy = draws(measurement.spread, prod(shape), entropy).reshape(shape)
    noisy += measurement.query.apply(marginal)
    return noisy


def _check_weights(query: KroneckerQuery) -> None:
    """Refuses, from public facts, a query whose answers could leave 64 bits.

    A row adds one entry of the query to an answer, and no entry exceeds the column's L2 norm. Sums inside `apply`
    may wrap: int64 arithmetic is exact modulo 2^64, so an answer that fits is right.
    """
    if isqrt(query.column_l2_squared()) * LARGEST_ROW_COUNT >= 1 << 62:
        raise InternalError("the weights of a query are too large for 64-bit answers")


def exact_marginals(
    counts: ExactCounts, number: int, wanted: set[tuple[int, ...]]
) -> dict[tuple[int, ...], IntegerArray]:
    """Exact marginals; those that fit into one dense table are rolled up from it, not from the sparse counts."""
    found: dict[tuple[int, ...], IntegerArray] = {}
    for group in _groups(wanted, counts._sizes):
        union = tuple(sorted(set().union(*group)))
        tree = margin_tree(union, [counts._sizes[attribute] for attribute in union], group)
        found |= tree.margins(_dense(counts, number, union))
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
    """The marginal on `attributes`, added up in integers from the sparse counts."""
    shape = tuple(counts._sizes[attribute] for attribute in attributes)
    values = counts._exact_counts[number]
    position = np.zeros(values.shape, dtype=np.int64)
    for attribute, size in zip(attributes, shape, strict=True):
        position *= size
        position += counts._exact_coordinates[attribute]
    table = np.zeros(prod(shape), dtype=np.int64)
    np.add.at(table, position, values)
    return table.reshape(shape)


def compiled_cost(plans: Sequence[Plan], unit_bound: int) -> Charge:
    """The price of the compiled measurements, from the operators that will run; never below the true price.

    A unit adds at most `unit_bound` to the exact tables, all of it perhaps to one cell: norms are multiplied by it.
    Laplace with scale b: unit_bound * max L1 of a column / b, and these add up.
    Gaussian with variance s: unit_bound^2 * max squared L2 of a column / (2 s), and these add up.
    """
    kinds = {plan.noise for plan in plans}
    if len(kinds) != 1:
        raise InternalError("a release has either Laplace or Gaussian noise")
    norms: dict[Fraction, int] = {}
    known: dict[Factor, tuple[int, int]] = {}
    for measurement in (measurement for plan in plans for measurement in plan.measurements):
        if measurement.spread <= 0 or unit_bound < 1:
            raise InternalError("a measurement without noise")
        l1, l2_squared = _column_norms(measurement.query, known)
        norm = l1 * unit_bound if kinds == {NoiseKind.LAPLACE} else l2_squared * unit_bound**2
        norms[measurement.spread] = norms.get(measurement.spread, 0) + norm
    total = sum((norm / spread for spread, norm in norms.items()), Fraction(0))
    return Charge.pure(total) if kinds == {NoiseKind.LAPLACE} else Charge.concentrated(total / 2)


def _column_norms(query: KroneckerQuery, known: dict[Factor, tuple[int, int]]) -> tuple[int, int]:
    """Largest L1 and squared L2 norm of a column: those of the factors, multiplied."""
    for factor in query.factors:
        if factor not in known:
            known[factor] = _factor_norms(factor)
    norms = [known[factor] for factor in query.factors]
    return prod(l1 for l1, _ in norms), prod(l2 for _, l2 in norms)


def _factor_norms(factor: Factor) -> tuple[int, int]:
    """What `apply` does to every unit vector, not what the factor says of itself; a very large factor is believed."""
    if max(factor.rows, factor.size) * factor.size > LARGEST_PROBE:
        return factor.column_l1(), factor.column_l2_squared()
    columns = factor.apply(np.eye(factor.size, dtype=np.int64), 0)
    if int(np.abs(columns).max()) ** 2 * len(columns) >= 1 << 62:
        columns = columns.astype(object)
    return int(np.abs(columns).sum(axis=0).max()), int((columns * columns).sum(axis=0).max())
