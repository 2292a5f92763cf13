"""Measured tables and questions along common axes. An axis is a column, or columns that are distinguished jointly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
"""The most codes of an axis that is made of several columns."""


@dataclass(frozen=True)
class Axes:
    """Axes of tables and questions: the columns of each axis, and the number of codes of each column."""

    columns: tuple[tuple[str, ...], ...]
    sizes: tuple[tuple[int, ...], ...]

    @property
    def lengths(self) -> list[int]:
        """Returns the number of codes of each axis."""
        return [prod(sizes) for sizes in self.sizes]

    def of(self, column: str) -> int:
        """Returns the axis of a column."""
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

    factor: Factor | scipy.sparse.csr_array
    codes: NDArray[np.int64]

    @property
    def rows(self) -> scipy.sparse.csr_array:
        """Returns the query's rows over the codes of the axis."""
        labelled = np.flatnonzero(self.codes >= 0)
        labels = _matrix(self.factor)
        entries = (np.ones(len(labelled)), (self.codes[labelled], labelled))
        return scipy.sparse.csr_array(
            labels @ scipy.sparse.csr_array(entries, shape=(labels.shape[1], len(self.codes)))
        )

    @property
    def whole(self) -> bool:
        """Tells whether the labels are the codes themselves."""
        return np.array_equal(self.codes, np.arange(len(self.codes)))


def _matrix(factor: Factor | scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    if isinstance(factor, scipy.sparse.csr_array):
        return factor
    if isinstance(factor, MatrixFactor):
        return scipy.sparse.csr_array(factor.entries).astype(np.float64)
    if isinstance(factor, IdentityFactor):
        return scipy.sparse.csr_array(scipy.sparse.eye_array(factor.size))
    columns = factor.apply(np.eye(factor.size, dtype=np.int64), 0)
    return scipy.sparse.csr_array(columns.astype(np.float64))


def _along(parts: Sequence[_Part], visible: NDArray[np.bool_] | None) -> Along:
    """Combines the queries of all keys along one axis, over the visible codes alone."""
    if len(parts) == 1 and parts[0].whole and not isinstance(parts[0].factor, (MatrixFactor, scipy.sparse.csr_array)):
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


def _seen(axes: Axes, conditions: Sequence[CodeCondition]) -> dict[int, NDArray[np.bool_]]:
    """Returns the codes that meet all conditions, by axis."""
    masks: dict[int, NDArray[np.bool_]] = {}
    for condition in conditions:
        axis, met = axes.of(condition.columns[0]), axes.spread(condition.columns, condition.met).astype(np.bool_)
        masks[axis] = masks[axis] & met if axis in masks else met
    return masks


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
    """Computes the measurements of `seen_by`. Equal queries along an axis share one object."""
    measured = use.kept.measured
    table, names = measured.tables[use.table], [column.sql for column in measured.columns]
    masks = _seen(axes, use.seen)
    keys = measured.keys_of(table)
    codes = {
        number: axes.spread(
            [names[place] for place in key.columns],
            np.array(key.codes, np.int64).reshape([measured.columns[place].size for place in key.columns]),
        )
        for number, key in keys.items()
    }
    places = {number: axes.of(names[key.columns[0]]) for number, key in keys.items()}
    built: dict[tuple[object, ...], Along] = {}
    size = float(np.square(use.weights).sum())
    measurements = []
    for query, values in zip(measured.queries[table.group], measured.values[use.table], strict=True):
        summed = weighted_sum(use.weights, values)
        outside = [number for number in codes if number not in query.keys and (codes[number] < 0).any()]
        order = sorted(range(len(query.keys)), key=lambda place: places[query.keys[place]])
        along = {}
        for axis in sorted({places[number] for number in (*query.keys, *outside)} | masks.keys()):
            mine = [place for place in order if places[query.keys[place]] == axis]
            name = (
                axis,
                *(
                    (
                        query.keys[place],
                        id(query.factors[place])
                        if isinstance(query.factors[place], MatrixFactor)
                        else query.factors[place],
                    )
                    for place in mine
                ),
            )
            if name not in built:
                visible = masks.get(axis)
                for number in outside:
                    if places[number] == axis:
                        visible = (codes[number] >= 0) if visible is None else visible & (codes[number] >= 0)
                built[name] = _along([_Part(query.factors[place], codes[query.keys[place]]) for place in mine], visible)
            along[axis] = built[name]
        shape = [
            prod(summed.shape[place] for place in order if places[query.keys[place]] == axis) for axis in sorted(along)
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
    """Query for the cells of one grouping set along the axes.

    shape: the sizes of its keys in the order of the axes. order: the positions of the keys in the order of release.
    """

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
    masks, names = _seen(axes, conditions), [source.sql for source in question.sources]
    sizes = question.sources
    places = {number: axes.of(names[question.keys[number].sources[0]]) for number in range(len(question.keys))}
    codes = {
        number: axes.spread(
            [names[source] for source in key.sources],
            np.array(key.codes, np.int64).reshape([sizes[source].domain.size for source in key.sources]),
        )
        for number, key in enumerate(question.keys)
    }
    for number, of_key in codes.items():  # rows without a label are in no grouping set
        if number not in grouping_set and (of_key < 0).any():
            labelled = of_key >= 0
            masks[places[number]] = masks[places[number]] & labelled if places[number] in masks else labelled
    order = sorted(range(len(grouping_set)), key=lambda place: places[grouping_set[place]])
    along = {}
    for axis in sorted({places[number] for number in grouping_set} | masks.keys()):
        parts = [
            _Part(_labels(question.keys[grouping_set[place]]), codes[grouping_set[place]])
            for place in order
            if places[grouping_set[place]] == axis
        ]
        along_axis = _along(parts, masks.get(axis))
        along[axis] = along_axis.rows if along_axis.rows is not None else _diagonal(along_axis)
    lengths = [question.keys[grouping_set[place]].released_size for place in order]
    return CellQuery(along, tuple(lengths), tuple(int(place) for place in np.argsort(order)) if order else ())


def _diagonal(along: Along) -> scipy.sparse.csr_array:
    size = 0 if along.plain is None else along.plain.size
    diagonal = np.ones(size) if along.kept is None else along.kept.astype(np.float64)
    return scipy.sparse.csr_array(scipy.sparse.diags_array(diagonal))


def _labels(key: Key) -> Factor | scipy.sparse.csr_array:
    """Returns the released cells of a key: its labels, or intervals of labels."""
    size = len(key.labels)
    if not key.shape:
        return IdentityFactor(size)
    workload = range_workload(key)
    lengths = workload.stops - workload.starts
    columns = np.concatenate([np.arange(a, b) for a, b in zip(workload.starts, workload.stops, strict=True)])
    rows = np.repeat(np.arange(len(lengths)), lengths)
    return scipy.sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(lengths), size))
