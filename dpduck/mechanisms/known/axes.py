"""Measured tables and questions along common axes. An axis is a column, or columns that are distinguished jointly."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import scipy
from numpy.typing import NDArray

from dpduck.kernel.noise.law import noise_variance
from dpduck.kernel.queries.operators import Factor, IdentityFactor, MatrixFactor
from dpduck.language.select.conditions import CodeCondition
from dpduck.language.select.request import Key, Question
from dpduck.mechanisms.known.tables import MOST_SEEN, Usable
from dpduck.mechanisms.released_rows import range_workload
from dpduck.strategies.recovery.atoms import Along, NoisyTable
from dpduck.values.arrays import FloatArray, IntegerArray

LARGEST_JOINT = 4096


@dataclass(frozen=True)
class Axes:
    """Axes of tables and questions: the columns of each axis, and the number of codes of each column."""

    columns: tuple[tuple[str, ...], ...]
    sizes: tuple[tuple[int, ...], ...]

    @property
    def lengths(self) -> list[int]:
        return [prod(sizes) for sizes in self.sizes]

    def of(self, column: str) -> int:
        return next(number for number, columns in enumerate(self.columns) if column in columns)

    def spread(self, columns: Sequence[str], table: NDArray[np.int64] | NDArray[np.bool_]) -> NDArray[np.int64]:
        """Repeats a table over some columns of one axis along its other columns, as one list over the axis's codes."""
        axis = self.of(columns[0])
        order = [columns.index(column) for column in self.columns[axis] if column in columns]
        shape = [
            size if column in columns else 1 for column, size in zip(self.columns[axis], self.sizes[axis], strict=True)
        ]
        return np.broadcast_to(table.transpose(order).reshape(shape), self.sizes[axis]).ravel().astype(np.int64)


def axes_of(sizes: dict[str, int], together: Iterable[Sequence[str]]) -> Axes:
    """Builds one axis for each column, but a common axis for columns that the lists of `together` connect."""
    groups = [{column} for column in sizes]
    for columns in together:
        met = [group for group in groups if group & set(columns)]
        groups = [group for group in groups if not group & set(columns)] + [set().union(*met)]
    ordered = sorted(tuple(sorted(group)) for group in groups)
    return Axes(tuple(ordered), tuple(tuple(sizes[column] for column in group) for group in ordered))


@dataclass(frozen=True, eq=False)
class _Part:
    """Query of one key along its axis: rows over the key's labels. codes: the label of each code of the axis."""

    factor: Factor
    codes: NDArray[np.int64]

    @property
    def rows(self) -> scipy.sparse.csr_array:
        labelled = np.flatnonzero(self.codes >= 0)
        labels = _matrix(self.factor)
        entries = (np.ones(len(labelled)), (self.codes[labelled], labelled))
        return scipy.sparse.csr_array(
            labels @ scipy.sparse.csr_array(entries, shape=(labels.shape[1], len(self.codes)))
        )

    @property
    def whole(self) -> bool:
        return np.array_equal(self.codes, np.arange(len(self.codes)))


def _matrix(factor: Factor) -> scipy.sparse.csr_array:
    if isinstance(factor, MatrixFactor):
        return scipy.sparse.csr_array(factor.entries).astype(np.float64)
    if isinstance(factor, IdentityFactor):
        return scipy.sparse.csr_array(scipy.sparse.eye_array(factor.size))
    columns = factor.apply(np.eye(factor.size, dtype=np.int64), 0)
    return scipy.sparse.csr_array(columns.astype(np.float64))


def _along(parts: Sequence[_Part], visible: NDArray[np.bool_] | None) -> Along:
    """Combines the queries of all keys along one axis, over the visible codes alone."""
    if len(parts) == 1 and parts[0].whole and not isinstance(parts[0].factor, MatrixFactor):
        factor = parts[0].factor
        if visible is None or isinstance(factor, IdentityFactor):
            return Along(factor, visible)
    size = len(parts[0].codes) if parts else len(visible if visible is not None else ())
    rows = scipy.sparse.csr_array(np.ones((1, size)))
    for part in parts:  # one row for each product of the keys' rows: the cells of all keys
        own = part.rows
        rows = scipy.sparse.csr_array(
            scipy.sparse.vstack([own.multiply(rows[[number]]) for number in range(rows.shape[0])], format="csr")
        )
    if visible is not None:
        rows = scipy.sparse.csr_array(rows.multiply(visible.astype(np.float64)[None, :]))
    rows.eliminate_zeros()
    rows.sort_indices()
    return Along(rows=rows)


@dataclass(frozen=True, eq=False)
class _PlacedKeys:
    """Keys of a table or of a question along the axes. codes: the label of each code of a key's axis, -1 for none.

    masks: the codes that meet all conditions, by axis.
    built: queries along an axis. Equal queries are one object.
    """

    axes: dict[int, int]
    codes: dict[int, NDArray[np.int64]]
    masks: dict[int, NDArray[np.bool_]]
    built: dict[Hashable, Along] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        axes: Axes,
        columns: Sequence[tuple[str, int]],
        keys: Mapping[int, tuple[Sequence[int], Sequence[int]]],
        conditions: Sequence[CodeCondition],
    ) -> _PlacedKeys:
        """Places keys, each with the positions of its columns and its labels. columns: names and numbers of codes."""
        codes = {
            number: axes.spread(
                [columns[place][0] for place in places],
                np.array(labels, np.int64).reshape([columns[place][1] for place in places]),
            )
            for number, (places, labels) in keys.items()
        }
        masks: dict[int, NDArray[np.bool_]] = {}
        for condition in conditions:
            axis, met = axes.of(condition.columns[0]), axes.spread(condition.columns, condition.met).astype(np.bool_)
            masks[axis] = masks[axis] & met if axis in masks else met
        return cls({number: axes.of(columns[places[0]][0]) for number, (places, _) in keys.items()}, codes, masks)

    def order(self, keys: Sequence[int]) -> list[int]:
        return sorted(range(len(keys)), key=lambda place: self.axes[keys[place]])

    def along(self, keys: Sequence[int], factors: Sequence[Factor]) -> dict[int, Along]:
        """Returns, along each axis, the query by some keys. Rows without a label of another key are left out."""
        outside = [number for number, labels in self.codes.items() if number not in keys and (labels < 0).any()]
        names = [id(factor) if isinstance(factor, MatrixFactor) else factor for factor in factors]
        along, order = {}, self.order(keys)
        for axis in sorted({self.axes[number] for number in (*keys, *outside)} | self.masks.keys()):
            mine = [place for place in order if self.axes[keys[place]] == axis]
            name = (axis, *((keys[place], names[place]) for place in mine))
            if name not in self.built:
                visible = self.masks.get(axis)
                for labelled in (self.codes[number] >= 0 for number in outside if self.axes[number] == axis):
                    visible = labelled if visible is None else visible & labelled
                self.built[name] = _along([_Part(factors[place], self.codes[keys[place]]) for place in mine], visible)
            along[axis] = self.built[name]
        return along


def seen_by(axes: Axes, use: Usable) -> Sequence[NoisyTable]:
    """Returns a release's measurements of one quantity along the axes. They never change, so they are cached."""
    name = None if use.name is None else (axes, use.name)
    seen = None if name is None else use.before.get(name)
    if seen is None:
        seen = _seen_by(axes, use)
        if name is not None:
            if len(use.before) >= MOST_SEEN:
                use.before.clear()
            use.before[name] = seen
    return seen


def _seen_by(axes: Axes, use: Usable) -> list[NoisyTable]:
    measured = use.kept.measured
    table, columns = measured.tables[use.table], [(column.sql, column.size) for column in measured.columns]
    keys = {number: (key.columns, key.codes) for number, key in measured.keys_of(table).items()}
    placed = _PlacedKeys.of(axes, columns, keys, use.seen)
    size = float(np.square(use.weights).sum())
    measurements = []
    for query, values in zip(measured.queries[table.group], measured.values[use.table], strict=True):
        summed, order = weighted_sum(use.weights, values), placed.order(query.keys)
        along = placed.along(query.keys, query.factors)
        shape = [
            prod(summed.shape[place] for place in order if placed.axes[query.keys[place]] == axis) for axis in along
        ]
        variance = size * noise_variance(measured.noise, query.parameter)
        measurements.append(NoisyTable(along, variance, summed.transpose(order).reshape(shape)))
    return measurements


def weighted_sum(weights: Sequence[float], parts: Sequence[IntegerArray]) -> FloatArray:
    """Returns the weighted sum of a table's parts."""
    used = [weight * part for weight, part in zip(weights, parts, strict=True) if weight]
    return np.asarray(np.sum(used, axis=0), np.float64)


@dataclass(frozen=True, eq=False)
class CellQuery:
    """Query for a grouping set's cells. shape: its keys' sizes by axis. order: the keys' positions in the release."""

    along: dict[int, scipy.sparse.csr_array]
    shape: tuple[int, ...]
    order: tuple[int, ...]

    def cells(self, table: FloatArray) -> FloatArray:
        """Flattens a table over the query's axes to one list of cells, in the order of release."""
        return table.reshape(self.shape).transpose(self.order).ravel()


def cell_query(
    axes: Axes, question: Question, grouping_set: Sequence[int], conditions: Sequence[CodeCondition]
) -> CellQuery:
    """Returns the query for the cells of a grouping set, over the codes that meet the conditions."""
    columns = [(source.sql, source.domain.size) for source in question.sources]
    keys = {number: (key.sources, key.codes) for number, key in enumerate(question.keys)}
    placed = _PlacedKeys.of(axes, columns, keys, conditions)
    along = placed.along(grouping_set, [_labels(question.keys[number]) for number in grouping_set])
    rows = {axis: query.rows if query.rows is not None else _diagonal(query) for axis, query in along.items()}
    order = placed.order(grouping_set)
    lengths = [question.keys[grouping_set[place]].released_size for place in order]
    return CellQuery(rows, tuple(lengths), tuple(int(place) for place in np.argsort(order)) if order else ())


def _diagonal(along: Along) -> scipy.sparse.csr_array:
    size = 0 if along.plain is None else along.plain.size
    diagonal = np.ones(size) if along.kept is None else along.kept.astype(np.float64)
    return scipy.sparse.csr_array(scipy.sparse.diags_array(diagonal))


def _labels(key: Key) -> Factor:
    size = len(key.labels)
    if not key.shape:
        return IdentityFactor(size)
    workload = range_workload(key)
    lengths = workload.stops - workload.starts
    columns = np.concatenate([np.arange(a, b) for a, b in zip(workload.starts, workload.stops, strict=True)])
    rows = np.repeat(np.arange(len(lengths)), lengths)
    ones = np.ones(len(rows), np.int64)
    return MatrixFactor(scipy.sparse.csr_array((ones, (rows, columns)), shape=(len(lengths), size)))
