"""Counts of one SELECT that may be planned together: their conditions distinguish values of columns with domains.

Rows that no condition distinguishes are of one kind, and each row is of one kind. So exclusive conditions together
cost as much as one. Rows outside of the domains are of no kind, so no condition may hold there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import prod

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.facts import PublicFacts, SourceColumn
from dpduck.language.rows.tree import RowSource
from dpduck.language.select.aggregates import condition_of_count
from dpduck.language.select.conditions import has_other_values, read_condition, without_try
from dpduck.language.select.keys import KeyBuilder
from dpduck.language.select.request import JointCounts, SelectRequest
from dpduck.language.statements.parse import parse_expression
from dpduck.values.arrays import IntegerArray
from dpduck.values.errors import Refusal
from dpduck.values.sqltypes import sql_type

MOST_CELLS = 1_000_000  # the most combinations of values over the columns of counts that are planned together
MOST_JOINT = 4096  # most combinations of several columns in a statement with reuse: known answers tell no more apart
MOST_KINDS = 256  # the most kinds of rows that counts planned together may distinguish
MOST_PARTS = 200  # the most comparisons of a statement that are read
WORD = 62  # the number of conditions that one integer holds, a bit for each
_EQUALITIES = (exp.EQ, exp.NEQ, exp.In, exp.Is, exp.Null, exp.Not, exp.Column, exp.Identifier, exp.Literal, exp.Paren)


@dataclass(frozen=True, eq=False)
class _Predicate:
    """Condition as a set of codes."""

    text: str  # the condition, canonical
    columns: tuple[str, ...]  # the columns that it names
    met: NDArray[np.bool_]  # whether codes meet the condition, with an axis for each column
    inside: frozenset[str]  # columns that have a declared value in every row that meets the condition


@dataclass(frozen=True, eq=False)
class _PredicateReader:
    """Reader of conditions."""

    source: RowSource
    facts: PublicFacts
    dropped: frozenset[str]  # grouping columns, in which every counted row has a declared value
    columns: dict[str, SourceColumn] = field(default_factory=dict)
    parts: dict[str, _Predicate | None] = field(default_factory=dict)

    def is_partial(self, sql: str) -> bool:
        """Tells whether counted rows may have values of this column for which its domain has no code."""
        return sql not in self.dropped and has_other_values(self.columns[sql], self.source)

    def read_condition(self, text: str) -> _Predicate | None:
        everything = _Predicate("", (), np.ones((), np.bool_), frozenset())
        predicate = self._node(parse_expression(text)) if text else everything
        return None if predicate is None else replace(predicate, text=text)

    def _node(self, node: exp.Expr) -> _Predicate | None:
        node = without_try(node)
        if isinstance(node, exp.Not):
            inner = without_try(node.this)
            if isinstance(inner, exp.Not):
                return self._node(inner.this)
            if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
                counted = condition_of_count(inner.this)  # of count(CASE WHEN .. THEN 1 END)
                if counted is not None and not _has_zero(inner.this):
                    return self._node(counted)
            if isinstance(inner, (exp.And, exp.Or)):
                other = exp.Or if isinstance(inner, exp.And) else exp.And
                return self._node(other(this=exp.Not(this=inner.left), expression=exp.Not(this=inner.right)))
        if not isinstance(node, (exp.And, exp.Or)) or len(_column_names(node)) < 2:
            return self._part(node)
        return self._join_predicates(type(node), [self._node(part) for part in _by_column(node)])

    def _join_predicates(self, kind: type[exp.And | exp.Or], parts: Sequence[_Predicate | None]) -> _Predicate | None:
        """Joins predicates by AND or OR. None if a part is None, or if there are too many cells."""
        operands = [operand for operand in parts if operand is not None]
        columns = _columns_of(operands)
        sizes = {name: self.size(name) for name in columns}
        if len(operands) < len(parts) or prod(sizes.values()) > MOST_CELLS:
            return None
        both = kind is exp.And
        tables = (_spread(operand.met, operand.columns, sizes) for operand in operands)
        met = reduce(np.logical_and if both else np.logical_or, tables)
        inside = reduce(frozenset.union if both else frozenset.intersection, (operand.inside for operand in operands))
        return _Predicate("", columns, met, inside)

    def _part(self, node: exp.Expr) -> _Predicate | None:
        """Reads a part without AND or OR, or with one column. DuckDB evaluates it for every combination of values."""
        text = sql_of(node)
        if text not in self.parts:
            try:
                self.parts[text] = self._decide_part(text, node) if len(self.parts) < MOST_PARTS else None
            except Refusal:
                self.parts[text] = None
        return self.parts[text]

    def _decide_part(self, text: str, node: exp.Expr) -> _Predicate | None:
        for column in node.find_all(exp.Column):
            if sql_of(column) not in self.columns:
                builder = KeyBuilder(self.source, self.facts)
                builder.build(sql_of(column), column)
                self.columns[sql_of(column)] = builder.sources[0]
        named = dict.fromkeys(sql_of(column) for column in node.find_all(exp.Column))
        listed = any(sql_type(self.columns[name].domain.type_name).is_enum for name in named)
        if listed and not all(isinstance(part, _EQUALITIES) for part in node.walk()):
            return None  # ENUMs have an order of their own, which their texts do not have
        result = read_condition(text, self.source, self.facts, False, self.is_partial)
        if result is None:
            return None
        return _Predicate("", result.columns, result.met, frozenset() if result.outside else frozenset(result.columns))

    def size(self, name: str) -> int:
        return self.columns[name].domain.size

    def fits(self, predicates: Sequence[_Predicate], most: int) -> bool:
        """Tells whether predicates may be counted together: few cells, and no predicate holds outside the domains."""
        names = _columns_of(predicates)
        needed = {name for name in names if self.is_partial(name)}
        few = prod(self.size(name) for name in names) <= (most if len(names) > 1 else MOST_CELLS)
        return few and all(needed <= predicate.inside for predicate in predicates)


@dataclass(frozen=True, eq=False)
class _Alike:
    """Classes of values that no predicate splits."""

    classes: Mapping[str, IntegerArray]  # for each column, the class of each value
    met: Mapping[str, NDArray[np.bool_]]  # for each predicate's text, whether classes meet it

    @classmethod
    def of(cls, predicates: Sequence[_Predicate]) -> _Alike:
        classes: dict[str, IntegerArray] = {}
        for pred in predicates:
            for axis, name in enumerate(pred.columns):
                rows = np.moveaxis(pred.met, axis, 0).reshape(pred.met.shape[axis], -1)
                value_codes = np.unique(np.packbits(rows, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
                classes[name] = _number_pairs(classes.get(name, np.zeros_like(value_codes)), value_codes)
        firsts = {name: np.unique(codes, return_index=True)[1] for name, codes in classes.items()}
        met = {pred.text: np.asarray(pred.met[np.ix_(*(firsts[name] for name in pred.columns))]) for pred in predicates}
        return cls(classes, met)

    def kinds(self, predicates: Sequence[_Predicate]) -> tuple[IntegerArray, IntegerArray]:
        """Returns the kind of each combination of classes, and for each predicate the kinds that meet it."""
        names = _columns_of(predicates)
        sizes = {name: int(self.classes[name].max()) + 1 for name in names}
        tables = [_spread(self.met[predicate.text], predicate.columns, sizes) for predicate in predicates]
        codes = np.zeros([*sizes.values()], np.int64).ravel()
        for start in range(0, len(tables), WORD):
            word = np.zeros([*sizes.values()], np.int64)
            for table in tables[start : start + WORD]:
                word = word * 2 + table
            codes = _number_pairs(codes, word.ravel())
        firsts = np.unique(codes, return_index=True)[1]
        return codes.reshape([*sizes.values()]), np.array([table.ravel()[firsts] for table in tables], np.int64)

    def together(self, predicates: Sequence[_Predicate], reader: _PredicateReader) -> JointCounts:
        """Returns the joint counts for some predicates, with the kinds of rows that the predicates distinguish."""
        names = _columns_of(predicates)
        codes, met = self.kinds(predicates)
        whole = codes[np.ix_(*(self.classes[name] for name in names))].ravel()
        columns = tuple(reader.columns[name] for name in names)
        return JointCounts(
            tuple(pred.text for pred in predicates), columns, tuple(whole.tolist()), tuple(map(tuple, met.tolist()))
        )


def _spread(table: NDArray[np.bool_], columns: Sequence[str], sizes: Mapping[str, int]) -> NDArray[np.bool_]:
    """Repeats a table over `columns` along all other columns of `sizes`, in the order of `sizes`."""
    order = [columns.index(name) for name in sizes if name in columns]
    shape = [size if name in columns else 1 for name, size in sizes.items()]
    return np.broadcast_to(table.transpose(order).reshape(shape), [*sizes.values()])


def _has_zero(value: exp.Expr) -> bool:
    """Tells whether a value is 0, and not NULL, if its condition is not met."""
    node = value.unnest()
    other = node.args.get("default" if isinstance(node, exp.Case) else "false")
    return other is not None and not isinstance(other.unnest(), exp.Null)


def _column_names(node: exp.Expr) -> frozenset[str]:
    return frozenset(sql_of(column) for column in node.find_all(exp.Column))


def _by_column(node: exp.And | exp.Or) -> list[exp.Expr]:
    """Returns the parts that AND or OR joins. All parts that name the same single column become one part."""
    kind, parts, pending = type(node), list[exp.Expr](), [node.left, node.right]
    while pending:
        part = without_try(pending.pop(0))
        if isinstance(part, kind):
            pending = [part.left, part.right, *pending]
        else:
            parts.append(part)
    by_name: dict[frozenset[str], exp.Expr] = {}
    several = []
    for part in parts:
        names = _column_names(part)
        if len(names) != 1:
            several.append(part)
        else:
            by_name[names] = kind(this=by_name[names], expression=part) if names in by_name else part
    return [*by_name.values(), *several]


def _columns_of(predicates: Sequence[_Predicate]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for predicate in predicates for name in predicate.columns))


def _number_pairs(codes: IntegerArray, word: IntegerArray) -> IntegerArray:
    first = np.unique(codes, return_inverse=True)[1].reshape(-1)
    second, others = np.unique(word, return_inverse=True)
    return np.asarray(np.unique(first * len(second) + others.reshape(-1), return_inverse=True)[1].reshape(-1), np.int64)


def with_counts_together(request: SelectRequest, source: RowSource, facts: PublicFacts, reuse: bool) -> SelectRequest:
    """Returns the request with the ways to plan its counts together. A single condition has no such way.

    One way joins as many counts as possible. The other joins only counts that share a column.
    """
    question = request.question
    texts = list(
        dict.fromkeys(item.count_condition for item in question.aggregates if item.count_condition is not None)
    )
    if len(texts) < 2 or any(facts.has_collations(table) for table in source.every_table):
        return request
    if not plans_together(request):
        return request
    reader = _PredicateReader(source, facts, frozenset(item.sql for item in question.sources))
    reader.columns.update({item.sql: item for item in question.sources})
    read = [reader.read_condition(text) for text in texts]
    predicates = [item for item in read if item is not None and reader.fits([item], MOST_CELLS)]
    most, alike = MOST_JOINT if reuse else MOST_CELLS, _Alike.of(predicates)
    ways: list[tuple[JointCounts, ...]] = []
    for shares in (False, True):
        groups = _group_predicates(reader, alike, predicates, most, shares)
        way = tuple(alike.together(group, reader) for group in groups if len(group) > 1)
        if way and way not in ways:
            ways.append(way)
    return replace(request, question=replace(question, together=tuple(ways)))


def plans_together(request: SelectRequest) -> bool:
    """Tells whether the options of a statement leave the measurement of its counts to the planner."""
    question, treatment = request.question, request.question.treatment
    plain = treatment.strategy == "auto" and not treatment.strategy_table and not question.intervals
    normed = treatment.norm is not None or treatment.finds_norm or bool(treatment.groups)
    return plain and not normed and question.selection is None and question.summary is None and not question.own


def _group_predicates(
    reader: _PredicateReader, alike: _Alike, predicates: Sequence[_Predicate], most: int, shares: bool
) -> list[list[_Predicate]]:
    """Puts each predicate into the first group that it fits, if the group then has few kinds of rows.

    shares: whether a predicate joins only groups that name one of its columns.
    """
    groups: list[list[_Predicate]] = []
    for pred in predicates:
        for group in groups:
            meets = not shares or {*_columns_of(group)} & {*pred.columns}
            if meets and reader.fits([*group, pred], most) and alike.kinds([*group, pred])[1].shape[1] <= MOST_KINDS:
                group.append(pred)
                break
        else:
            groups.append([pred])
    return groups
