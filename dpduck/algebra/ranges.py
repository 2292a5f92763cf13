"""Weighted sums over intervals of one ordered attribute: all ranges, prefixes, single values, or any list.

Let E_q be the indicator of interval q and a_q its weight. Then V = sum_q a_q E_q E_q' is the workload's Gram matrix.
The total weighted variance of an unbiased estimate with covariance S is trace(V S).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpduck.values.arrays import FloatArray, IndexArray


class RangeShape(Enum):
    """Workloads with a Gram matrix in closed form. LIST is any other workload."""

    RANGES = "ranges"
    PREFIXES = "prefixes"
    IDENTITY = "identity"
    LIST = "list"


@dataclass(frozen=True, eq=False)
class RangeWorkload:
    """Interval queries. Query q sums over starts[q] <= value < stops[q]. Its squared error counts weights[q] times."""

    size: int  # n, the number of values
    starts: IndexArray
    stops: IndexArray
    weights: FloatArray
    shape: RangeShape = RangeShape.LIST
    attribute: int = 0  # its position in the domain

    def __post_init__(self) -> None:
        if not len(self.starts) == len(self.stops) == len(self.weights) > 0:
            raise ValueError("a range workload needs a start, a stop and a weight for each interval, and an interval")
        if self.starts.min() < 0 or self.stops.max() > self.size or np.any(self.starts >= self.stops):
            raise ValueError("an interval must satisfy 0 <= start < stop <= size")
        if self.weights.min() < 0 or not np.isfinite(self.weights).all() or self.weights.max() == 0:
            raise ValueError("weights must be finite, at least 0, and not all 0")

    @property
    def queries(self) -> int:
        return len(self.starts)

    def on(self, attribute: int) -> RangeWorkload:
        return replace(self, attribute=attribute)

    @cached_property
    def gram(self) -> FloatArray:
        """Computes the Gram matrix V, shape (n, n): V_ij is the total weight of the intervals that hold i and j."""
        ends = np.zeros((self.size + 1, self.size + 1))
        np.add.at(ends, (self.starts, self.stops), self.weights)
        # the entry for i <= j sums the intervals with start <= i and stop > j
        upper = ends.cumsum(axis=0)[:, ::-1].cumsum(axis=1)[: self.size, ::-1][:, 1:]
        filled: FloatArray = np.triu(upper) + np.triu(upper, 1).T
        return filled

    @cached_property
    def gram_diagonal(self) -> FloatArray:
        """Computes the diagonal of the Gram matrix V: the total weight of the intervals that hold each value."""
        steps = np.zeros(self.size + 1)
        np.add.at(steps, self.starts, self.weights)
        np.subtract.at(steps, self.stops, self.weights)
        return steps.cumsum()[: self.size]

    def times_gram(self, rows: FloatArray) -> FloatArray:
        """Computes `rows` times the Gram matrix V, for rows of shape (p, n). Time is linear unless the shape is LIST.

        Prefixes: V_ij = n - max(i, j). All ranges: V_ij = (min(i, j) + 1)(n - max(i, j)), i and j from 0.
        """
        if self.shape is RangeShape.LIST:
            product: FloatArray = rows @ self.gram
            return product
        if self.shape is RangeShape.IDENTITY:
            return rows
        from_right = np.arange(self.size, 0.0, -1.0)
        from_left = np.arange(1.0, self.size + 1) if self.shape is RangeShape.RANGES else np.ones(self.size)
        right = (rows * from_right).cumsum(axis=1)
        right = right[:, -1:] - right
        semiseparable: FloatArray = from_right * (rows * from_left).cumsum(axis=1) + from_left * right
        return semiseparable

    def answers(self, values: FloatArray) -> FloatArray:
        """Computes every query's answer from one number per value, with values on the first axis. Other axes remain."""
        prefix = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])
        difference: FloatArray = prefix[self.stops] - prefix[self.starts]
        return difference

    def variances(self, covariance: FloatArray) -> FloatArray:
        """Returns each query's variance P_jj + P_ii - 2 P_ij for [i, j), where P is the covariance of prefix sums."""
        prefix = np.zeros((self.size + 1, self.size + 1))
        prefix[1:, 1:] = covariance.cumsum(axis=0).cumsum(axis=1)
        diagonal = prefix.diagonal()
        result: FloatArray = diagonal[self.stops] + diagonal[self.starts] - 2 * prefix[self.starts, self.stops]
        return result

    def matrix(self) -> NDArray[np.int64]:
        """Returns the queries as a dense matrix, shape (queries, n). Only tests use it."""
        values = np.arange(self.size)
        inside = (self.starts[:, None] <= values) & (values < self.stops[:, None])
        return inside.astype(np.int64)

    def merge_values(self) -> tuple[RangeWorkload, IndexArray]:
        """Returns the same queries over buckets of values that no query splits, and the buckets' increasing boundaries.

        Bucket k is [boundaries[k], boundaries[k+1]). No query has values before the first or after the last boundary.
        """
        if self.shape is not RangeShape.LIST:
            return self, np.arange(self.size + 1)
        boundaries = np.union1d(self.starts, self.stops)
        if len(boundaries) == self.size + 1:
            return self, boundaries
        starts, stops = np.searchsorted(boundaries, self.starts), np.searchsorted(boundaries, self.stops)
        return replace(self, size=len(boundaries) - 1, starts=starts, stops=stops, shape=RangeShape.LIST), boundaries


def all_ranges(size: int) -> RangeWorkload:
    """Returns the workload of all n(n+1)/2 intervals over n values.

    >>> all_ranges(3).queries
    6
    """
    starts, last = np.triu_indices(size)
    return RangeWorkload(size, starts, last + 1, np.ones(len(starts)), RangeShape.RANGES)


def prefixes(size: int) -> RangeWorkload:
    """Returns the workload of the n running totals over n values: of the first value, the first two, and so on.

    >>> prefixes(2).matrix().tolist()
    [[1, 0], [1, 1]]
    """
    stops = np.arange(1, size + 1)
    return RangeWorkload(size, np.zeros(size, dtype=np.intp), stops, np.ones(size), RangeShape.PREFIXES)


def identity(size: int) -> RangeWorkload:
    """Returns the workload of one query for each single value."""
    starts = np.arange(size)
    return RangeWorkload(size, starts, starts + 1, np.ones(size), RangeShape.IDENTITY)


def total(size: int) -> RangeWorkload:
    """Returns the workload of the sum of all values."""
    return intervals(size, [(0, size)])


def intervals(
    size: int, bounds: Sequence[tuple[int, int]], weights: Sequence[float] | FloatArray | None = None
) -> RangeWorkload:
    """Returns the workload of a list of half-open intervals (start, stop), each with a weight, by default 1.

    >>> intervals(4, [(0, 2), (1, 4)]).gram.tolist()
    [[1.0, 1.0, 0.0, 0.0], [1.0, 2.0, 1.0, 1.0], [0.0, 1.0, 1.0, 1.0], [0.0, 1.0, 1.0, 1.0]]
    """
    pairs = np.array(bounds, dtype=np.intp).reshape(-1, 2)
    query_weights = np.ones(len(pairs)) if weights is None else np.asarray(weights, dtype=np.float64)
    return RangeWorkload(size, pairs[:, 0], pairs[:, 1], query_weights)
