"""Measured tables and questions along common axes: a column is one, and columns that are only told apart together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from math import ceil, log2, prod

import numpy as np
import scipy
from numpy.typing import NDArray

from dpduck.kernel.noise.law import noise_variance
from dpduck.kernel.queries.operators import Factor, IdentityFactor, MatrixFactor
from dpduck.language.select.conditions import Condition, conjuncts
from dpduck.language.select.request import Aggregate, Key, Question
from dpduck.mechanisms.known.tables import MOST_SEEN, Usable, quantities, wanted
from dpduck.mechanisms.released_rows import range_workload
from dpduck.store.measured import Measured
from dpduck.strategies.recovery.atoms import Along, Seen
from dpduck.strategies.recovery.known import Knowledge
from dpduck.values.arrays import FloatArray, IntegerArray
from dpduck.values.errors import Refusal

LARGEST_JOINT = 4096
"""Codes of an axis that is made of several columns."""


@dataclass(frozen=True)
class Axes:
    """Columns of each axis, and how many codes each column has."""

    columns: tuple[tuple[str, ...], ...]
    sizes: tuple[tuple[int, ...], ...]

    @property
    def lengths(self) -> list[int]:
        """Returns codes of each axis."""
        return [prod(sizes) for sizes in self.sizes]

    def of(self, column: str) -> int:
        """Returns the axis of a column."""
        return next(number for number, columns in enumerate(self.columns) if column in columns)

    def spread(self, columns: Sequence[str], table: NDArray[np.int64] | NDArray[np.bool_]) -> NDArray[np.int64]:
        """Returns a table over some columns of one axis, repeated over the others, as one list over its codes."""
        axis = self.of(columns[0])
        order = [columns.index(column) for column in self.columns[axis] if column in columns]
        shape = [
            size if column in columns else 1 for column, size in zip(self.columns[axis], self.sizes[axis], strict=True)
        ]
        return np.broadcast_to(table.transpose(order).reshape(shape), self.sizes[axis]).ravel().astype(np.int64)


def axes_of(sizes: dict[str, int], together: Iterable[Sequence[str]]) -> Axes:
    """Returns one axis for each column, or for columns that something tells apart together."""
    groups = [{column} for column in sizes]
    for columns in together:
        met = [group for group in groups if group & set(columns)]
        groups = [group for group in groups if not group & set(columns)] + [set().union(*met)]
    ordered = sorted(tuple(sorted(group)) for group in groups)
    return Axes(tuple(ordered), tuple(tuple(sizes[column] for column in group) for group in ordered))


@dataclass(frozen=True, eq=False)
class _Part:
    """What one key asks along its axis: rows over the key's labels. codes: the label of each code of the axis."""

    factor: Factor | scipy.sparse.csr_array
    codes: NDArray[np.int64]

    @property
    def rows(self) -> scipy.sparse.csr_array:
        """Returns rows over the codes of the axis."""
        held = np.flatnonzero(self.codes >= 0)
        labels = _matrix(self.factor)
        entries = (np.ones(len(held)), (self.codes[held], held))
        return scipy.sparse.csr_array(
            labels @ scipy.sparse.csr_array(entries, shape=(labels.shape[1], len(self.codes)))
        )

    @property
    def whole(self) -> bool:
        """Tells whether labels are the codes themselves."""
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


def _along(parts: Sequence[_Part], kept: NDArray[np.bool_] | None) -> Along:
    """Returns all that is asked along one axis, of the codes that are seen."""
    if len(parts) == 1 and parts[0].whole and not isinstance(parts[0].factor, (MatrixFactor, scipy.sparse.csr_array)):
        factor = parts[0].factor
        if kept is None or isinstance(factor, IdentityFactor):
            return Along(factor, kept)
    size = len(parts[0].codes) if parts else len(kept if kept is not None else ())
    rows = scipy.sparse.csr_array(np.ones((1, size)))
    for part in parts:  # a row of each, and of all their products: what is asked of both at once
        own = part.rows
        rows = scipy.sparse.csr_array(
            scipy.sparse.vstack([own.multiply(rows[[number]]) for number in range(rows.shape[0])], format="csr")
        )
    if kept is not None:
        rows = scipy.sparse.csr_array(rows.multiply(kept.astype(np.float64)[None, :]))
    rows.eliminate_zeros()
    rows.sort_indices()
    return Along(rows=rows)


def _seen(axes: Axes, conditions: Sequence[Condition]) -> dict[int, NDArray[np.bool_]]:
    """Returns the codes that meet all conditions, by axis."""
    found: dict[int, NDArray[np.bool_]] = {}
    for one in conditions:
        axis, met = axes.of(one.columns[0]), axes.spread(one.columns, one.met).astype(np.bool_)
        found[axis] = found[axis] & met if axis in found else met
    return found


def seen_by(axes: Axes, use: Usable) -> Sequence[Seen]:
    """Returns what a release measured of one quantity, along the axes; remembered, since it never changes."""
    name = None if use.name is None else (axes, use.name)
    found = None if name is None else use.before.get(name)
    if found is None:
        found = _seen_by(axes, use)
        if name is not None:
            if len(use.before) >= MOST_SEEN:
                use.before.clear()
            use.before[name] = found
    return found


def _seen_by(axes: Axes, use: Usable) -> list[Seen]:
    """Returns the same; factors that ask the same are one object."""
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
    found = []
    for query, values in zip(measured.queries[table.group], measured.values[use.table], strict=True):
        summed = weighted(use.weights, values)
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
                kept = masks.get(axis)
                for number in outside:
                    if places[number] == axis:
                        kept = (codes[number] >= 0) if kept is None else kept & (codes[number] >= 0)
                built[name] = _along([_Part(query.factors[place], codes[query.keys[place]]) for place in mine], kept)
            along[axis] = built[name]
        shape = [
            prod(summed.shape[place] for place in order if places[query.keys[place]] == axis) for axis in sorted(along)
        ]
        variance = size * noise_variance(measured.noise, query.parameter)
        found.append(Seen(along, variance, summed.transpose(order).reshape(shape)))
    return found


def weighted(weights: Sequence[float], parts: Sequence[IntegerArray]) -> FloatArray:
    """Returns the sum of a table's parts."""
    used = [weight * part for weight, part in zip(weights, parts, strict=True) if weight]
    return np.asarray(np.sum(used, axis=0), np.float64)


@dataclass(frozen=True, eq=False)
class Asked:
    """What a question asks of one grouping set along the axes.

    shape: of its keys in the order of the axes. order: of these keys, as they are released.
    """

    along: dict[int, scipy.sparse.csr_array]
    shape: tuple[int, ...]
    order: tuple[int, ...]

    def cells(self, table: FloatArray) -> FloatArray:
        """Returns a table over the asked axes as one list of cells."""
        return table.reshape(self.shape).transpose(self.order).ravel()


def asked(axes: Axes, question: Question, grouping_set: Sequence[int], conditions: Sequence[Condition]) -> Asked:
    """Returns the cells of a grouping set, of the codes that meet the conditions."""
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
            held = of_key >= 0
            masks[places[number]] = masks[places[number]] & held if places[number] in masks else held
    order = sorted(range(len(grouping_set)), key=lambda place: places[grouping_set[place]])
    along = {}
    for axis in sorted({places[number] for number in grouping_set} | masks.keys()):
        parts = [
            _Part(_labels(question.keys[grouping_set[place]]), codes[grouping_set[place]])
            for place in order
            if places[grouping_set[place]] == axis
        ]
        one = _along(parts, masks.get(axis))
        along[axis] = one.rows if one.rows is not None else _kept(one)
    lengths = [question.keys[grouping_set[place]].released_size for place in order]
    return Asked(along, tuple(lengths), tuple(int(place) for place in np.argsort(order)) if order else ())


def _kept(one: Along) -> scipy.sparse.csr_array:
    size = 0 if one.plain is None else one.plain.size
    held = np.ones(size) if one.kept is None else one.kept.astype(np.float64)
    return scipy.sparse.csr_array(scipy.sparse.diags_array(held))


def _labels(key: Key) -> Factor | scipy.sparse.csr_array:
    """Returns the released cells of a key: its labels, or intervals of them."""
    size = len(key.labels)
    if not key.shape:
        return IdentityFactor(size)
    workload = range_workload(key)
    lengths = workload.stops - workload.starts
    columns = np.concatenate([np.arange(a, b) for a, b in zip(workload.starts, workload.stops, strict=True)])
    rows = np.repeat(np.arange(len(lengths)), lengths)
    return scipy.sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(lengths), size))


# The cells of a release: one table over all of its columns, whose sums are the consistent margins.


@dataclass(frozen=True, eq=False)
class Cells:
    """One aggregate in every cell of all keys. stderr: of a cell, NaN where the release does not determine it.

    variances: for dp_cells_stderr: sizes of the keys; for each set of them, as bits, its component's variance.
    """

    estimates: FloatArray
    stderr: float
    variances: str


def cells_of(measured: Measured, question: Question) -> list[Cells]:
    """Returns the cells of each aggregate of a release of grouping sets, from what it measured.

    Components that it did not measure are 0: the flattest table with these margins. Cells are multiples of a power of 2
    so small that sums of all of them are exact in any order.
    """
    return [_cells(measured, question, aggregate) for aggregate in question.aggregates]


def _cells(measured: Measured, question: Question, aggregate: Aggregate) -> Cells:
    sizes = list(question.sizes)
    knowledge = Knowledge(sizes, list(_cells_seen(measured, aggregate)))
    everything = {place: scipy.sparse.csr_array(scipy.sparse.eye_array(size)) for place, size in enumerate(sizes)}
    found = knowledge.answer(everything)
    estimates = found.estimates.ravel()
    quantum = 2.0 ** (ceil(log2(float(np.abs(estimates).sum()) + 1)) - 50)
    sets = (tuple(compress(range(len(sizes)), bits)) for bits in _subsets(len(sizes)))
    components = [knowledge.component_variance(members) for members in sets]
    text = f"{','.join(map(str, sizes))}|{','.join(f'{one:.17g}' for one in components)}"
    stderr = float(found.variances.flat[0] ** 0.5) if found.known.flat[0] else float("nan")
    return Cells(np.rint(estimates / quantum) * quantum, stderr, text)


def _subsets(count: int) -> Iterator[list[bool]]:
    """Yields every set of positions, as bits, the first position the lowest."""
    for number in range(1 << count):
        yield [bool(number >> place & 1) for place in range(count)]


def _cells_seen(measured: Measured, aggregate: Aggregate) -> Iterator[Seen]:
    """Returns what the release measured of an aggregate, along its keys."""
    need = wanted(aggregate, ())
    for table, values in zip(measured.tables, measured.values, strict=True):
        for quantity, more, weights in quantities(table):
            same = need is not None and (quantity,) == need.quantities
            if need is None or not same or {*conjuncts(table.condition), *more} != set(need.conditions):
                continue
            size = float(np.square(weights).sum())
            for query, parts in zip(measured.queries[table.group], values, strict=True):
                factors = dict(zip(query.keys, query.factors, strict=True))
                if any(isinstance(factor, MatrixFactor) for factor in factors.values()):
                    raise Refusal("this release was not measured by margins", accepted="strategy = 'auto'")
                along = {key: Along(factor) for key, factor in factors.items() if not isinstance(factor, MatrixFactor)}
                yield Seen(along, size * noise_variance(measured.noise, query.parameter), weighted(weights, parts))
            return
