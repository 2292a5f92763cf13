"""Combinations of values that WHERE rules out by public facts: cells of several columns that can hold no row.

Conditions on one column's labels are decided as in excluded_cells. Over several columns, AND and OR combine possible
cells. A combination is impossible only if no row in it can meet the condition.
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
from dpduck.language.select.excluded_cells import LabelSpan, Reader, columns_of, could, negate, reader, spans_of
from dpduck.language.select.request import Key

MOST_CELLS = 1 << 16
"""The most combinations over the columns of one condition. A condition with more combinations rules nothing out."""


@dataclass(frozen=True)
class ImpossibleCells:
    """Cells that can hold no row. members: increasing positions of keys. cells: row-major positions in their table."""

    members: tuple[int, ...]
    cells: tuple[int, ...]


@dataclass(frozen=True)
class _ConditionKey:
    """Key that a condition may name. axis: its axis in the table over the condition's columns.

    codes: for each span of the domain, the position of its label. A merged bin is possible if one of its spans is.
    """

    axis: int
    codes: Sequence[int]
    spans: Sequence[LabelSpan]
    read: Reader | None


def impossible_cells(
    where: exp.Expr, keys: Sequence[Key], sources: Sequence[SourceColumn], scope: Scope, collated: bool
) -> tuple[ImpossibleCells, ...]:
    """Returns the cells that each condition of a WHERE rules out, if all columns of the condition are plain keys."""
    places = {
        key.expression: place
        for place, key in enumerate(keys)
        if not key.shape and len(key.sources) == 1 and key.expression == sources[key.sources[0]].sql
    }
    ruled_out = []
    for conjunct in where.flatten() if isinstance(where, exp.And) else [where]:
        names = columns_of(conjunct, scope)
        if not names or not names <= set(places):
            continue
        members = tuple(sorted(places[name] for name in names))
        shape = tuple(len(keys[place].labels) for place in members)
        if prod(shape) > MOST_CELLS:
            continue
        axes = {}
        for axis, place in enumerate(members):
            domain = sources[keys[place].sources[0]].domain
            read = reader(domain, collated)
            axes[keys[place].expression] = _ConditionKey(
                axis, keys[place].codes, [] if read is None else spans_of(domain, read), read
            )
        possible = np.broadcast_to(_possible(conjunct, axes, shape, scope), shape)
        if not possible.all():
            ruled_out.append(ImpossibleCells(members, tuple(np.flatnonzero(~possible).tolist())))
    return tuple(ruled_out)


def _possible(
    node: exp.Expr, axes: Mapping[str, _ConditionKey], shape: tuple[int, ...], scope: Scope
) -> NDArray[np.bool_]:
    """Decides for each combination whether some row in it may meet a condition. True if that is not known."""
    node = node.unnest()
    if isinstance(node, (exp.And, exp.Or)):
        left, right = (_possible(part, axes, shape, scope) for part in (node.left, node.right))
        return left & right if isinstance(node, exp.And) else left | right
    if isinstance(node, exp.Not) and not isinstance(opposite := negate(node.this), exp.Not):
        return _possible(opposite, axes, shape, scope)
    names = {sql_of(resolve(column, scope)) for column in node.find_all(exp.Column)}
    column = axes[names.pop()] if len(names) == 1 else None
    if column is None or column.read is None:
        return np.ones((1,) * len(shape), np.bool_)
    met = np.zeros(shape[column.axis], np.bool_)
    for code, span in zip(column.codes, column.spans, strict=True):
        met[code] |= could(node, span, column.read)
    return met.reshape([size if axis == column.axis else 1 for axis, size in enumerate(shape)])
