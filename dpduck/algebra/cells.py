"""Queries over the cells of several attributes. Each query is a product of one interval per attribute of its set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from dpduck.algebra.ranges import RangeWorkload
from dpduck.values.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class CellWorkload:
    """Queries of each grouping set over the cells. In the order of the cells, the first attribute varies slowest.

    >>> from dpduck.algebra.ranges import identity, prefixes
    >>> CellWorkload((identity(2), prefixes(3)), ((0, 1), (1,)), (1.0, 1.0)).shapes
    ((2, 3), (3,))
    """

    attributes: tuple[RangeWorkload, ...]  # the interval queries along each attribute
    sets: tuple[tuple[int, ...], ...]  # increasing positions of attributes. A set's queries sum over all others
    weights: tuple[float, ...]  # for each set, the weight of its squared errors

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(attribute.size for attribute in self.attributes)

    @property
    def cells(self) -> int:
        return prod(self.sizes)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Returns the shape of each set's answers, which have one axis per attribute of the set."""
        return tuple(tuple(self.attributes[place].queries for place in members) for members in self.sets)

    @property
    def queries(self) -> int:
        """Returns the number of answers of all sets."""
        return sum(prod(shape) for shape in self.shapes)

    @cached_property
    def gram(self) -> FloatArray:
        """Computes the Gram matrix V, shape (cells, cells): the weighted sum of W'W over the sets' query matrices W."""
        total = np.zeros((self.cells, self.cells))
        for members, weight in zip(self.sets, self.weights, strict=True):
            product: FloatArray = np.ones((1, 1))
            for place, attribute in enumerate(self.attributes):
                own = attribute.gram if place in members else np.ones((attribute.size, attribute.size))
                product = np.kron(product, own).astype(np.float64)
            total += weight * product
        return total

    def answers(self, values: FloatArray) -> tuple[FloatArray, ...]:
        """Computes every answer, an array per set. The first axis of values is over cells, and other axes remain."""
        table = values.reshape(*self.sizes, *values.shape[1:])
        return tuple(self._answers(table, members) for members in self.sets)

    def _answers(self, table: FloatArray, members: Sequence[int]) -> FloatArray:
        sums: FloatArray = table.sum(axis=tuple(place for place in range(len(self.sizes)) if place not in members))
        for axis, place in enumerate(members):
            sums = np.moveaxis(self.attributes[place].answers(np.moveaxis(sums, axis, 0)), 0, axis)
        return sums

    def variances(self, covariance: FloatArray) -> tuple[FloatArray, ...]:
        """Computes the variance of every answer from the covariance of the cells, shape (cells, cells)."""
        table = covariance.reshape(*self.sizes, *self.sizes)
        return tuple(self._variances(table, members) for members in self.sets)

    def _variances(self, table: FloatArray, members: Sequence[int]) -> FloatArray:
        """Replaces both axes of an attribute by one last axis for its queries, or sums both if it has no queries."""
        result = table
        for place, attribute in enumerate(self.attributes):
            left = len(self.attributes) - place
            if place not in members:
                result = result.sum(axis=(0, left))
                continue
            pair = np.moveaxis(result, (0, left), (-2, -1))
            sums = np.zeros((*pair.shape[:-2], attribute.size + 1, attribute.size + 1))
            sums[..., 1:, 1:] = pair.cumsum(axis=-2).cumsum(axis=-1)
            low, high = attribute.starts, attribute.stops
            result = sums[..., high, high] - sums[..., high, low] - sums[..., low, high] + sums[..., low, low]
        return result
