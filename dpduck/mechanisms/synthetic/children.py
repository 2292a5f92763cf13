"""Child rows for each row of released parents: post-processing, free of charge.

A pass over the junction tree to its roots gives the probability of the parents' known values beneath each clique. A
pass back draws the unknown values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpduck.language.select.impossible_cells import ImpossibleCells
from dpduck.language.select.request import Key, SelectRequest
from dpduck.language.statements.synthetic import FOR_EACH, LARGEST_SAMPLE, ForEach
from dpduck.language.text.words import meant_or
from dpduck.mechanisms.released_rows import label_array
from dpduck.mechanisms.synthetic.cliques import kept_zeros
from dpduck.mechanisms.synthetic.distribution import Distribution, conditional, uniform, zero_tables
from dpduck.mechanisms.synthetic.junction import Members, spread
from dpduck.mechanisms.synthetic.pool import LARGEST_ZEROS
from dpduck.mechanisms.synthetic.request import SyntheticRequest
from dpduck.mechanisms.synthetic.sample import Words
from dpduck.store.releases import ReleaseStore
from dpduck.store.sandbox import sandbox
from dpduck.values.arrays import FloatArray, IntegerArray
from dpduck.values.domain import RangeDomain
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold, quote_text

MOST_ENTRIES = 1 << 22
"""Most entries at a time in the tables of all cliques, one table for each combination of the parents' values."""

RUN = 256
"""Most rows with equal parents that get evenly spread numbers from 0 to 1, in a random order."""

BELOW_ONE = 1 - 2.0**-20


@dataclass(frozen=True, eq=False)
class Parents:
    """Released rows that are parents. given: each row's code, by the position of the key in the question.

    times: the number of children of each row, 0 if WHERE rules out every child.
    """

    keys: pa.Array
    times: IntegerArray
    given: Mapping[int, IntegerArray]
    identity: str

    @property
    def children(self) -> int:
        return int(self.times.sum())


def has_parents(releases: ReleaseStore, for_each: ForEach) -> bool:
    """Tells whether the parents of a statement exist as released rows."""
    view = releases.view(for_each.parents)
    return view is not None and releases.is_taken(view.name)


def parents_of(releases: ReleaseStore, for_each: ForEach, asked: SyntheticRequest) -> Parents:
    """Returns the parents of a statement. Refusals come before a charge, and are about released rows alone."""
    request = asked.base
    view = releases.view(for_each.parents)
    if view is None or not releases.is_taken(view.name):
        accepted = meant_or(for_each.parents, releases.views(), "a name of dp_releases()")
        raise Refusal(
            f"there is no private table {for_each.parents[:100]!r}", accepted=accepted, position=for_each.position
        )
    rows = releases.rows(view.name)
    names = {fold(name): name for name in rows.column_names}
    keys, numbers = (_whole(rows, names, column, for_each) for column in (for_each.key, for_each.times))
    times = numbers.to_numpy()
    if pc.count_distinct(keys).as_py() < len(keys):
        raise _refusal(for_each, f"{for_each.key[:100]!r} is not different in every row", "the option key of parents")
    if len(times) and (times.min() < 0 or int(times.max()) * len(times) > 1 << 62 or times.sum() > LARGEST_SAMPLE):
        raise _refusal(for_each, f"{for_each.times[:100]!r} is below 0, or too large", f"{LARGEST_SAMPLE} rows in all")
    given = {}
    for place, key in enumerate(request.question.keys):
        if fold(key.name) in names:
            given[place] = _codes(rows[names[fold(key.name)]].combine_chunks(), key, request, for_each)
    if not given:
        raise _refusal(for_each, "no column of the SELECT is one of the parents", "columns of both, by the same names")
    hashed = hashlib.sha256(repr((view.name, for_each.column, sorted(given))).encode())
    for values in (keys.to_numpy(), times, *(given[place] for place in sorted(given))):
        hashed.update(np.ascontiguousarray(values).tobytes())
    times = np.where(is_childless(request.question.sizes, given, asked.zeros), 0, times)
    return Parents(keys, times, given, hashed.hexdigest())


def _refusal(for_each: ForEach, what: str, accepted: str) -> Refusal:
    return Refusal(f"{for_each.parents[:100]}: {what}", accepted=accepted, position=for_each.position)


def _whole(rows: pa.Table, names: Mapping[str, str], wanted: str, for_each: ForEach) -> pa.Array:
    """Returns the column `wanted` as 64-bit integers. Refuses columns of other types, and columns with NULLs."""
    name = names.get(fold(wanted))
    if name is None:
        raise _refusal(for_each, f"there is no column {wanted[:100]!r}", FOR_EACH)
    values = rows[name].combine_chunks()
    kind = values.type
    if not pa.types.is_integer(kind) or pa.types.is_uint64(kind) or values.null_count:
        raise _refusal(for_each, f"{wanted[:100]!r} is no column of whole numbers", FOR_EACH)
    return values.cast(pa.int64())


def _codes(values: pa.Array, key: Key, request: SelectRequest, for_each: ForEach) -> IntegerArray:
    """Returns the number of each value's label or bin. Unless WITH EDGES is given, refuses values beyond all bins."""
    domain = request.question.sources[key.sources[0]].domain
    with sandbox() as connection:
        labels = label_array(connection, key.labels, key.type_name)
        if values.type != labels.type:
            raise _refusal(for_each, f"{key.name[:100]!r} has another type than here", "the same column of the parents")
        connection.register("parents", pa.table({"place": np.arange(len(values)), "value": values}))
        connection.register("labels", pa.table({"code": np.arange(len(labels)), "label": labels}))
        join, code = "LEFT JOIN labels ON value IS NOT DISTINCT FROM label", "code"
        if isinstance(domain, RangeDomain):
            join = "ASOF LEFT JOIN (FROM labels WHERE label IS NOT NULL) ON value >= label"
            inside = f"CASE WHEN value < CAST({quote_text(domain.upper)} AS {domain.type_name}) THEN code END"
            code = "ifnull(code, 0)" if domain.with_edges else inside
        null = "(SELECT code FROM labels WHERE label IS NULL)"
        sql = f"SELECT CASE WHEN value IS NULL THEN {null} ELSE {code} END FROM parents {join} ORDER BY place"
        codes = connection.sql(sql).to_arrow_table().column(0).combine_chunks()
    if codes.null_count or len(codes) != len(values):
        raise _refusal(for_each, f"{key.name[:100]!r} has values outside the domain here", "the same column, and bins")
    return np.asarray(codes.to_numpy(), np.int64)


def child_codes(
    distribution: Distribution,
    times: IntegerArray,
    given: Mapping[int, IntegerArray],
    words: Words,
    zeros: Sequence[ImpossibleCells] = (),
) -> list[IntegerArray]:
    """Returns the codes of all children for each attribute, the children of the first parent first.

    If the parent's values have probability 0, a child is drawn as if its parent were unknown. A child that WHERE rules
    out is drawn again, evenly among possible children.

    times, given: the number of children, and the known codes, of each parent.
    zeros: cells that WHERE rules out. Each parent with children keeps a possible child.
    """
    parents = np.flatnonzero(times)
    fixed = np.stack([given[place] for place in given])[:, parents] if given else np.zeros((0, len(parents)), np.int64)
    combinations, owners = np.unique(fixed, axis=1, return_inverse=True)
    rows = np.repeat(np.arange(len(parents)), times[parents])
    turns = np.arange(len(rows)) - np.repeat(np.cumsum(times[parents]) - times[parents], times[parents])
    of_row = owners.reshape(-1)[rows]
    codes = [np.zeros(len(rows), np.int64) for _ in distribution.sizes]
    for place, values in zip(given, combinations, strict=True):
        codes[place] = values[of_row]
    order, step = np.argsort(of_row, kind="stable"), _at_once(distribution, tuple(given))
    ends = np.searchsorted(of_row[order], np.arange(0, combinations.shape[1] + step, step))
    for number, begin in enumerate(range(0, combinations.shape[1], step)):
        step_rows = order[ends[number] : ends[number + 1]]
        known_values = dict(zip(given, combinations[:, begin : begin + step], strict=True))
        _draw(distribution, known_values, step_rows, of_row[step_rows] - begin, turns[step_rows], codes, words)
    rules, broken = _rules(distribution.sizes, zeros), _broken(distribution.sizes, codes, zeros)
    if rules is not None and broken.any():
        again = np.bincount(np.repeat(np.arange(len(times)), times)[broken], minlength=len(times))
        for place, values in enumerate(child_codes(rules, again, given, words)):
            codes[place][broken] = values
    return codes


def is_childless(
    sizes: Sequence[int], given: Mapping[int, IntegerArray], zeros: Sequence[ImpossibleCells]
) -> NDArray[np.bool_]:
    """Tells for each parent whether WHERE rules out every child with the parent's values. Public facts decide it."""
    count = len(next(iter(given.values())))
    rules = _rules(sizes, zeros)
    if rules is None or not count:
        return np.zeros(count, np.bool_)
    if any(len(zero.cells) == prod(sizes[member] for member in zero.members) for zero in zeros):
        return np.ones(count, np.bool_)
    combinations, owners = np.unique(np.stack(list(given.values())), axis=1, return_inverse=True)
    step, impossible = _at_once(rules, tuple(given)), []
    for begin in range(0, combinations.shape[1], step):
        impossible.append(_beneath(rules, dict(zip(given, combinations[:, begin : begin + step], strict=True)))[1])
    return np.concatenate(impossible)[owners.reshape(-1)]


def _rules(sizes: Sequence[int], zeros: Sequence[ImpossibleCells]) -> Distribution | None:
    """Returns the uniform distribution over rows that WHERE allows, None if WHERE rules out nothing."""
    usable = kept_zeros(sizes, (), zeros, LARGEST_ZEROS)
    return uniform(sizes, dense=False, zeros=zero_tables(sizes, usable)) if usable else None


def _broken(sizes: Sequence[int], codes: Sequence[IntegerArray], zeros: Sequence[ImpossibleCells]) -> NDArray[np.bool_]:
    broken = np.zeros(len(codes[0]), np.bool_)
    for zero in kept_zeros(sizes, (), zeros, LARGEST_ZEROS):
        places = tuple(codes[member] for member in zero.members)
        broken |= np.isin(np.ravel_multi_index(places, [sizes[member] for member in zero.members]), zero.cells)
    return broken


def _at_once(distribution: Distribution, given: Members) -> int:
    rest = [[member for member in component.members if member not in given] for component in distribution.components]
    return max(1, MOST_ENTRIES // sum(prod(distribution.sizes[member] for member in members) for members in rest))


def _draw(
    distribution: Distribution, given: Mapping[int, IntegerArray], rows: IntegerArray, of_row: IntegerArray,
    turns: IntegerArray, codes: Sequence[IntegerArray], words: Words,
) -> None:  # fmt: skip
    """Draws some rows into `codes`. of_row: each row's combination in `given`. turns: the number among siblings."""
    tables, impossible = _beneath(distribution, given)
    tree = distribution.tree
    for place in tree.order:
        members = _unknown(distribution.components[place].members, given)
        shared = _unknown(tree.separators[place], given)
        new = tuple(member for member in members if member not in shared)
        if not new:
            continue
        axes = [1 + members.index(member) for member in (*shared, *new)]
        table = tables[place].transpose(0, *axes)
        shape, cells = table.shape[1 + len(shared) :], prod(table.shape[1 + len(shared) :])
        before = np.zeros(len(rows), np.int64)
        for member in shared:
            before = before * distribution.sizes[member] + codes[member][rows]
        both = before * len(tables[place]) + of_row
        groups, inverse = np.unique(both, return_inverse=True)
        flat = table.reshape(table.shape[0], -1, cells)
        step = max(1, MOST_ENTRIES // cells)
        drawn, uniform = np.zeros(len(rows), np.int64), _spread_evenly(turns, inverse, words)
        order = np.argsort(inverse, kind="stable")
        ends = np.searchsorted(inverse[order], np.arange(0, len(groups) + step, step))
        for number, begin in enumerate(range(0, len(groups), step)):
            places, part = order[ends[number] : ends[number + 1]], groups[begin : begin + step]
            weights = flat[part % len(flat), part // len(flat)]
            drawn[places] = _pick_cells(weights, inverse[places] - begin, uniform[places])
        for member, values in zip(new, np.unravel_index(drawn, shape), strict=True):
            codes[member][rows] = values
    again = impossible[of_row]
    if given and again.any():
        nothing = np.zeros(int(again.sum()), np.int64)
        free = [np.zeros(len(column), np.int64) for column in codes]
        _draw(distribution, {}, rows[again], nothing, turns[again], free, words)
        for member in set(range(len(codes))) - set(given):
            codes[member][rows[again]] = free[member][rows[again]]


def _beneath(
    distribution: Distribution, given: Mapping[int, IntegerArray]
) -> tuple[list[FloatArray], NDArray[np.bool_]]:
    """Returns for each clique the weights of unknown values, by known combination. Marks impossible combinations.

    A weight is the probability given the separator, times that of the known values beneath the clique.
    """
    tree, combinations = distribution.tree, len(next(iter(given.values()))) if given else 1
    tables: list[FloatArray] = []
    for component, separator in zip(distribution.components, tree.separators, strict=True):
        part = conditional(component, separator) if separator else component.table
        known_axes = [axis for axis, member in enumerate(component.members) if member in given]
        rest = [axis for axis in range(part.ndim) if axis not in known_axes]
        index = tuple(given[component.members[axis]] for axis in known_axes)
        moved = part.transpose([*known_axes, *rest])
        tables.append(np.array(moved[index]) if known_axes else np.repeat(moved[None], combinations, axis=0))
    impossible = np.zeros(combinations, np.bool_)
    for place in reversed(tree.order):
        members = _unknown(distribution.components[place].members, given)
        shared = _unknown(tree.separators[place], given)
        absent = tuple(1 + axis for axis, member in enumerate(members) if member not in shared)
        message, parent = tables[place].sum(axis=absent), tree.parents[place]
        if parent < 0:
            impossible |= ~(message > 0)
            continue
        of_parent = _unknown(distribution.components[parent].members, given)
        shape = tables[parent].shape[1:]
        tables[parent] *= message.reshape(combinations, *spread(of_parent, shared, shape))
    return tables, impossible


def _unknown(members: Members, given: Mapping[int, IntegerArray]) -> Members:
    return tuple(member for member in members if member not in given)


def _spread_evenly(turns: IntegerArray, groups: IntegerArray, words: Words) -> FloatArray:
    """Returns a uniform number from 0 to 1 for each row, evenly spread over rows with equal parents.

    Rows of one turn are sorted by group and cut into runs. The n rows of a run get numbers from n parts of equal
    length, in random order. Children of a parent are in different turns, and so get independent numbers.
    """
    count = len(turns)
    order = np.lexsort((words(count), groups, turns))
    of_turn = turns[order]
    begins = np.searchsorted(of_turn, of_turn)
    run = np.cumsum(np.diff(of_turn, prepend=-1).astype(np.bool_) | ((np.arange(count) - begins) % RUN == 0))
    ranked = np.lexsort((words(count), run))
    starts = np.searchsorted(run, run)
    sizes = np.searchsorted(run, run, side="right") - starts
    rank = np.empty(count, np.int64)
    rank[ranked] = np.arange(count)
    within = (words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    numbers = np.empty(count)
    numbers[order] = (rank - starts + within) / sizes
    return np.minimum(numbers, BELOW_ONE)


def _pick_cells(weights: FloatArray, groups: IntegerArray, uniform: FloatArray) -> IntegerArray:
    """Draws a cell for each row: the first of its group with a cumulated share above the row's uniform number."""
    cumulated = np.cumsum(weights, axis=1)
    total = cumulated[:, -1:]
    shares = np.divide(cumulated, total, out=np.ones_like(cumulated), where=total > 0)
    flat = (shares + np.arange(len(shares))[:, None]).reshape(-1)
    cells = np.searchsorted(flat, groups + uniform, side="right") - groups * weights.shape[1]
    return np.asarray(np.minimum(cells, weights.shape[1] - 1), np.int64)
