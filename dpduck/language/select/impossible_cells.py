"""Combinations of values that WHERE rules out by public facts: cells of several columns that can hold no row.

A comparison with one column gives the labels that may meet it. AND and OR combine such results over several columns. A
combination is impossible only if no row with its values can meet the condition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from operator import and_, or_

import numpy as np
from sqlglot import exp

from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.facts import SourceColumn
from dpduck.language.rows.predicates import ConditionReader
from dpduck.language.rows.scope import Scope, resolve
from dpduck.language.select.excluded_cells import columns_of, is_plain
from dpduck.language.select.label_spans import BoolArray, label_reader
from dpduck.language.select.request import Key

MOST_CELLS = 1 << 16  # most combinations over the columns of one condition. With more, it rules nothing out


@dataclass(frozen=True)
class ImpossibleCells:
    """Cells that can hold no row."""

    members: tuple[int, ...]  # increasing positions of keys
    cells: tuple[int, ...]  # row-major positions over these keys


@dataclass(frozen=True)
class _ConditionKey:
    """Key that a condition may name."""

    axis: int  # in the table over the condition's columns
    codes: Sequence[int]  # for each code of the domain, the position of its label. Several bins may share a label
    labels: ConditionReader[BoolArray] | None  # reads conditions on this key alone, None if its type is not read


def impossible_cells(
    where: exp.Expr, keys: Sequence[Key], sources: Sequence[SourceColumn], scope: Scope, collated: bool
) -> tuple[ImpossibleCells, ...]:
    """Returns the cells that each condition of a WHERE rules out, if all columns of the condition are plain keys."""
    places = {key.expression: place for place, key in enumerate(keys) if is_plain(key, sources)}
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
            key = keys[place]
            labels = label_reader(sources[key.sources[0]].domain, collated)
            axes[key.expression] = _ConditionKey(axis, key.codes, labels)
        possible = np.broadcast_to(_combination_reader(axes, shape, scope).read_condition(conjunct), shape)
        if not possible.all():
            ruled_out.append(ImpossibleCells(members, tuple(np.flatnonzero(~possible).tolist())))
    return tuple(ruled_out)


def _combination_reader(
    keys: Mapping[str, _ConditionKey], shape: tuple[int, ...], scope: Scope
) -> ConditionReader[BoolArray]:
    """Returns a reader that tells for each combination of labels whether a row with them may meet a condition."""
    unknown = np.ones((1,) * len(shape), np.bool_)

    def compare(operand: exp.Expr, sign: str, literal: exp.Expr) -> BoolArray:
        key = keys[sql_of(resolve(operand, scope))] if isinstance(operand, exp.Column) else None
        if key is None or key.labels is None:
            return unknown
        spans = key.labels.compare(operand, sign, literal)
        if spans is key.labels.unknown:
            return unknown
        met = np.zeros(shape[key.axis], np.bool_)
        np.logical_or.at(met, np.array(key.codes), spans)
        return met.reshape([size if axis == key.axis else 1 for axis, size in enumerate(shape)])

    return ConditionReader(unknown, and_, or_, compare, halves=False)
