"""Reader of conditions over public values: comparisons with literals, and AND, OR and NOT around them.

Each caller gives a comparison its own meaning: the labels that may meet it, or the moments at which it may hold.
A part of another form is unknown, so it may hold for any row. DuckDB compares the literals that are read here exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from functools import reduce
from typing import Generic, TypeVar

from sqlglot import exp

from dpduck.language.rows.compiled import PARTS, SIGNS, TURNED
from dpduck.language.text.dialect import exact_number

T = TypeVar("T")
PublicValue = Fraction | str | datetime | bool
LiteralReader = Callable[[exp.Expr], PublicValue | None]

_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">", "IS": "IS NOT"}
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?", re.ASCII)
MOMENT_TYPES = (exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ)
"""DATE and TIMESTAMP by sqlglot's names: its TIMESTAMPNTZ is DuckDB's TIMESTAMP, its TIMESTAMP is TIMESTAMP_US."""
_DAY_LENGTH = len("2024-01-31")
_MOST_DIGITS = 38  # a longer literal is a DOUBLE, which rounds it and the column


@dataclass(frozen=True)
class ConditionReader(Generic[T]):
    """Reader of a condition. Its result says for which rows the condition may hold.

    compare: reads an operand, a sign and a literal. IS and IS NOT compare with NULL. No other comparison holds for
    NULL.
    """

    unknown: T  # the result that allows any row
    both: Callable[[T, T], T]  # joins two results by AND
    either: Callable[[T, T], T]  # joins two results by OR
    compare: Callable[[exp.Expr, str, exp.Expr], T]
    reads_not: bool = True  # whether NOT is read before any condition. NOT before a column alone is always read
    halves: bool = True  # whether BETWEEN is read if one of its ends is unknown

    def read_condition(self, node: exp.Expr, holds: bool = True) -> T:
        """Returns for which rows a condition may be TRUE, or may be FALSE if `holds` is false."""
        node = node.unnest()
        if isinstance(node, (exp.And, exp.Or)):
            join = self.both if isinstance(node, exp.And) is holds else self.either
            return reduce(join, [self.read_condition(part, holds) for part in node.flatten()])
        if isinstance(node, exp.Not) and (self.reads_not or isinstance(node.this.unnest(), exp.Column)):
            return self.read_condition(node.this, not holds)
        if isinstance(node, exp.Column):
            return self.compare(node, "=", exp.Boolean(this=holds))
        results = []
        for operand, sign, literal in _comparisons_of(node):
            results.append(self.compare(operand.unnest(), sign if holds else _OPPOSITE[sign], literal))
        is_between = isinstance(node, exp.Between)
        if not results or (is_between and not self.halves and any(result is self.unknown for result in results)):
            return self.unknown
        return reduce(self.both if is_between is holds else self.either, results)


def _comparisons_of(node: exp.Expr) -> list[tuple[exp.Expr, str, exp.Expr]]:
    """Lists the comparisons that BETWEEN (by AND) or IN (by OR) combines. The list is empty for other conditions."""
    if not {name for name, value in node.args.items() if value} <= PARTS - {"negate"}:
        return []
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return [(node.this, "IS", node.expression)]
    if isinstance(node, exp.Between):
        return [(node.this, ">=", node.args["low"]), (node.this, "<=", node.args["high"])]
    if isinstance(node, exp.In):
        if any(map(_is_double, node.expressions)):
            return []  # one DOUBLE makes the whole list DOUBLE, and the column
        return [(node.this, "=", value) for value in node.expressions]
    sign = SIGNS.get(type(node), "")
    if sign not in _OPPOSITE:
        return []
    operand, literal = node.this, node.args["expression"]
    is_turned = operand.find(exp.Column) is None
    return [(literal, TURNED.get(sign, sign), operand) if is_turned else (operand, sign, literal)]


def literal(node: exp.Expr) -> Fraction | None:
    """Returns the value of a literal number, which may be negative. None for other expressions."""
    node = node.unnest()
    if isinstance(node, exp.Neg):
        value = literal(node.this)
        return None if value is None else -value
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    try:
        return exact_number(node.name)
    except (ValueError, ZeroDivisionError):
        return None


def decimal_literal(node: exp.Expr) -> Fraction | None:
    """Reads a number that DuckDB keeps exactly. None for a DOUBLE, which has an exponent or very many digits."""
    number = node.find(exp.Literal)
    digits = "" if number is None else number.name.replace(".", "").replace("_", "")
    return literal(node) if digits.isdecimal() and len(digits) <= _MOST_DIGITS else None


def _is_double(node: exp.Expr) -> bool:
    """Tells whether an expression has a number that DuckDB reads as a DOUBLE."""
    return any(not number.is_string and decimal_literal(number) is None for number in node.find_all(exp.Literal))


def text_literal(node: exp.Expr) -> str | None:
    """Returns the value of a literal text, None for other expressions."""
    node = node.unnest()
    return node.name if isinstance(node, exp.Literal) and node.is_string else None


def flag_literal(node: exp.Expr) -> bool | None:
    """Returns the value of TRUE or FALSE, None for other expressions."""
    node = node.unnest()
    return bool(node.this) if isinstance(node, exp.Boolean) else None


def moment_text(node: exp.Expr, types: Collection[exp.DType] = MOMENT_TYPES) -> str | None:
    """Returns the text of a moment: a text literal, alone or in a cast to one of these types.

    DuckDB cuts the time off a DATE. So a DATE with a time is not the moment of its text, and is not read.
    """
    node, to = node.unnest(), None
    if isinstance(node, exp.Cast):
        to, node = node.to, node.this
        if to.this not in types or to.expressions:
            return None
    text = text_literal(node)
    cut = text is not None and to is not None and to.this is exp.DType.DATE and len(text) > _DAY_LENGTH
    return None if cut else text


def parse_moment(text: str) -> datetime | None:
    """Parses a moment that DuckDB and Python read in the same way. None for other texts."""
    try:
        return datetime.fromisoformat(text) if _MOMENT.fullmatch(text) else None
    except ValueError:
        return None
