"""Combinations of values that WHERE rules out by public facts: cells of several columns in which no row can be.

What a condition says of one column's labels is decided as for cells that are left out of an answer. Over several
columns, AND and OR are those of what may be met: a combination is impossible only where no row of it can be kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.facts import SourceColumn
from dpduck.language.rows.scope import Scope, resolve
from dpduck.language.select.excluded_cells import Reader, Span, columns_of, could, negated, reader, spans_of
from dpduck.language.select.request import Key

MOST_CELLS = 1 << 16
"""Combinations of the columns of one condition; a condition over more says nothing."""


@dataclass(frozen=True)
class ImpossibleCells:
    """members: positions of keys, increasing. cells: of their table, row-major, in which no row can be."""

    members: tuple[int, ...]
    cells: tuple[int, ...]


@dataclass(frozen=True)
class _Column:
    """A key that a condition may speak of. axis: of the table over the condition's columns.

    codes: of the key's labels, for each span of its domain: merged bins are what one of them may be.
    """

    axis: int
    codes: Sequence[int]
    spans: Sequence[Span]
    read: Reader | None


def impossible_cells(
    where: exp.Expr, keys: Sequence[Key], sources: Sequence[SourceColumn], scope: Scope, collated: bool
) -> tuple[ImpossibleCells, ...]:
    """Returns what each condition of a WHERE rules out, where all its columns are keys as they are."""
    places = {
        key.expression: place
        for place, key in enumerate(keys)
        if not key.shape and len(key.sources) == 1 and key.expression == sources[key.sources[0]].sql
    }
    found = []
    for part in where.flatten() if isinstance(where, exp.And) else [where]:
        names = columns_of(part, scope)
        if not names or not names <= set(places):
            continue
        members = tuple(sorted(places[name] for name in names))
        shape = tuple(len(keys[place].labels) for place in members)
        if prod(shape) > MOST_CELLS:
            continue
        known = {}
        for axis, place in enumerate(members):
            domain = sources[keys[place].sources[0]].domain
            read = reader(domain, collated)
            known[keys[place].expression] = _Column(
                axis, keys[place].codes, [] if read is None else spans_of(domain, read), read
            )
        possible = np.broadcast_to(_possible(part, known, shape, scope), shape)
        if not possible.all():
            found.append(ImpossibleCells(members, tuple(np.flatnonzero(~possible).tolist())))
    return tuple(found)


def _possible(node: exp.Expr, known: Mapping[str, _Column], shape: tuple[int, ...], scope: Scope) -> NDArray[np.bool_]:
    """Tells of each combination whether some row of it may meet a condition; true where that is not known."""
    node = node.unnest()
    if isinstance(node, (exp.And, exp.Or)):
        left, right = (_possible(part, known, shape, scope) for part in (node.left, node.right))
        return left & right if isinstance(node, exp.And) else left | right
    if isinstance(node, exp.Not) and not isinstance(opposite := negated(node.this), exp.Not):
        return _possible(opposite, known, shape, scope)
    names = {sql_of(resolve(column, scope)) for column in node.find_all(exp.Column)}
    column = known[names.pop()] if len(names) == 1 else None
    if column is None or column.read is None:
        return np.ones((1,) * len(shape), np.bool_)
    met = np.zeros(shape[column.axis], np.bool_)
    for code, span in zip(column.codes, column.spans, strict=True):
        met[code] |= could(node, span, column.read)
    return met.reshape([size if axis == column.axis else 1 for axis, size in enumerate(shape)])
