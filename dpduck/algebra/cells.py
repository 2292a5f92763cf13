"""Queries over all cells of several attributes: in each grouping set a product of intervals along its attributes."""

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
    """What each grouping set asks of the cells, the first attribute varying slowest.

    attributes: the queries along each attribute. sets: increasing positions of attributes. All other attributes are
    summed away.
    weights: of the squared errors of each set.

    >>> from dpduck.algebra.ranges import identity, prefixes
    >>> CellWorkload((identity(2), prefixes(3)), ((0, 1), (1,)), (1.0, 1.0)).shapes
    ((2, 3), (3,))
    """

    attributes: tuple[RangeWorkload, ...]
    sets: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Returns the number of values of each attribute."""
        return tuple(attribute.size for attribute in self.attributes)

    @property
    def cells(self) -> int:
        """Returns the number of cells that the queries are over."""
        return prod(self.sizes)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Returns the shape of each set's answers: one axis per attribute."""
        return tuple(tuple(self.attributes[place].queries for place in chosen) for chosen in self.sets)

    @property
    def queries(self) -> int:
        """Returns the number of answers of all sets."""
        return sum(prod(shape) for shape in self.shapes)

    @cached_property
    def gram(self) -> FloatArray:
        """V, shape (cells, cells): the weighted sum of the sets' W'W."""
        found = np.zeros((self.cells, self.cells))
        for chosen, weight in zip(self.sets, self.weights, strict=True):
            product: FloatArray = np.ones((1, 1))
            for place, one in enumerate(self.attributes):
                own = one.gram if place in chosen else np.ones((one.size, one.size))
                product = np.kron(product, own).astype(np.float64)
            found += weight * product
        return found

    def answers(self, values: FloatArray) -> tuple[FloatArray, ...]:
        """Returns every answer from one number per cell. The leading axis has the cells. Further axes are kept."""
        table = values.reshape(*self.sizes, *values.shape[1:])
        return tuple(self._answers(table, chosen) for chosen in self.sets)

    def _answers(self, table: FloatArray, chosen: Sequence[int]) -> FloatArray:
        found: FloatArray = table.sum(axis=tuple(place for place in range(len(self.sizes)) if place not in chosen))
        for axis, place in enumerate(chosen):
            found = np.moveaxis(self.attributes[place].answers(np.moveaxis(found, axis, 0)), 0, axis)
        return found

    def variances(self, covariance: FloatArray) -> tuple[FloatArray, ...]:
        """Returns the variance of every answer from the covariance of the cells, shape (cells, cells)."""
        table = covariance.reshape(*self.sizes, *self.sizes)
        return tuple(self._variances(table, chosen) for chosen in self.sets)

    def _variances(self, table: FloatArray, chosen: Sequence[int]) -> FloatArray:
        """Takes one attribute after the other, both axes at once. Axes of answers gather at the end."""
        found = table
        for place, one in enumerate(self.attributes):
            left = len(self.attributes) - place
            if place not in chosen:
                found = found.sum(axis=(0, left))
                continue
            pair = np.moveaxis(found, (0, left), (-2, -1))
            sums = np.zeros((*pair.shape[:-2], one.size + 1, one.size + 1))
            sums[..., 1:, 1:] = pair.cumsum(axis=-2).cumsum(axis=-1)
            low, high = one.starts, one.stops
            found = sums[..., high, high] - sums[..., high, low] - sums[..., low, high] + sums[..., low, low]
        return found
