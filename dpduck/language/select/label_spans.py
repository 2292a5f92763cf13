"""Reader of conditions on one column with a domain. It finds the labels that rows which meet a condition may have.

A label stands for values by its declared domain: a value for itself, a bin for every value between its edges, OTHER
for any other value. A label is called impossible only if none of its values can meet the condition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, time
from fractions import Fraction
from itertools import pairwise
from math import floor
from operator import and_, or_

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dpduck.language.rows.predicates import (
    ConditionReader,
    LiteralReader,
    PublicValue,
    decimal_literal,
    flag_literal,
    moment_text,
    parse_moment,
    text_literal,
)
from dpduck.language.text.dialect import exact_number
from dpduck.values.domain import Domain, RangeDomain
from dpduck.values.sqltypes import sql_type

BoolArray = NDArray[np.bool_]
Parser = Callable[[str], PublicValue | None]
_WRITTEN = (exp.DType.DATE, exp.DType.TIMESTAMP)


@dataclass(frozen=True)
class LabelSpan:
    """Values of a label: low <= value < high, or the value `low` alone if both are equal."""

    low: PublicValue | None = None  # None for no bound on this side
    high: PublicValue | None = None  # None for no bound on this side
    besides: frozenset[PublicValue] = frozenset()  # values between the bounds that have other labels
    null: bool = False  # whether the label is NULL instead

    def may(self, sign: str, value: PublicValue) -> bool:
        """Tells whether the comparison with `value` can hold for some value of the span. It never holds for NULL."""
        low, high = self.low, self.high
        if self.null or sign == "<>":
            return not self.null and (low is None or low != high or low != value)
        if isinstance(value, str) and sign != "=":
            return True  # texts have an order of their own: only equality is read
        below, above = low is None or low < value, high is None or high > value  # type: ignore[operator]
        if sign in ("<", ">"):
            return below if sign == "<" else above
        least, most = below or low == value, above or low == high == value
        return least if sign == "<=" else most if sign == ">=" else least and most and value not in self.besides


def label_reader(
    domain: Domain, collated: bool, *, reads_not: bool = True, closely: bool = False, outside: bool = False
) -> ConditionReader[BoolArray] | None:
    """Returns a reader of conditions on one column, None for types that are not read.

    The reader tells for each code whether some value may meet a condition. outside: whether the reader tells this for
    values without a code.
    reads_not: whether NOT and IS NULL are read. closely: whether x > n means x >= n + 1 for integers, outer bins WITH
    EDGES are open on one side, and DOUBLE is read. Stored plans and digests would change if a caller read more or less.
    """
    kind, (literal_of, _) = sql_type(domain.type_name), _readers(domain.type_name)
    is_number = kind.is_integer or kind.is_decimal or (closely and domain.type_name == "DOUBLE")
    if (literal_of is decimal_literal and not is_number) or (literal_of is text_literal and collated):
        return None
    spans = _spans_outside(domain) if outside else _spans_of(domain, closely)
    unknown, steps = np.ones(len(spans), np.bool_), closely and kind.is_integer

    def compare(operand: exp.Expr, sign: str, node: exp.Expr) -> BoolArray:
        if not isinstance(operand, exp.Column) or (sign in ("IS", "IS NOT") and not reads_not):
            return unknown
        if sign in ("IS", "IS NOT"):
            return np.array([span.null is (sign == "IS") for span in spans], np.bool_)
        is_next = steps and sign in (">", "<=")
        value = literal_of(node)
        if value is None:
            return unknown
        if is_next and isinstance(value, Fraction):
            sign, value = ">=" if sign == ">" else "<", Fraction(floor(value) + 1)
        return np.array([span.may(sign, value) for span in spans], np.bool_)

    return ConditionReader(unknown, and_, or_, compare, reads_not, halves=steps)


def _readers(type_name: str) -> tuple[LiteralReader, Parser]:
    """Returns the reader of literals that are compared with such a column, and the parser of its domain's labels."""
    readers: dict[str, tuple[LiteralReader, Parser]] = {
        "DATE": (_day, parse_moment), "TIMESTAMP": (_moment, parse_moment), "BOOLEAN": (flag_literal, "true".__eq__),
        "VARCHAR": (text_literal, str),
    }  # fmt: skip
    return readers.get(type_name, (decimal_literal, exact_number))


def _moment(node: exp.Expr) -> datetime | None:
    """Reads a text, a DATE or a TIMESTAMP_US. Stored plans and digests would change if TIMESTAMP were read."""
    text = moment_text(node, _WRITTEN)
    return None if text is None else parse_moment(text)


def _day(node: exp.Expr) -> datetime | None:
    moment = _moment(node)
    return moment if moment is not None and moment.time() == time() else None


def _spans_of(domain: Domain, beyond: bool) -> list[LabelSpan]:
    """Returns the span of each code of the domain, in order.

    beyond: whether the first and the last bin WITH EDGES are open on one side. Otherwise they may hold any value.
    """
    parse = _readers(domain.type_name)[1]
    nulls = [LabelSpan(null=True)] * domain.with_null
    if not isinstance(domain, RangeDomain):
        values = [parse(text) for text in domain.values]
        listed = [LabelSpan(value, value) for value in values]
        others = LabelSpan(besides=frozenset[PublicValue](domain.values))
        return [*listed, *nulls, *[others] * (domain.other is not None)]
    edges = [parse(text) for text in (*domain.edges, domain.upper)]
    if domain.with_edges and beyond:
        edges[0] = edges[-1] = None
    single = sql_type(domain.type_name).is_integer and domain.step == "1"
    spans = [LabelSpan(low, low if single and None not in (low, high) else high) for low, high in pairwise(edges)]
    if domain.with_edges and not beyond:
        spans[0] = spans[-1] = LabelSpan()
    return [*spans, *nulls]


def _spans_outside(domain: Domain) -> list[LabelSpan]:
    """Returns spans that cover all values without a code in a domain."""
    outside = [] if domain.with_null else [LabelSpan(null=True)]
    if not isinstance(domain, RangeDomain):
        declared = frozenset(span.low for span in _spans_of(domain, False) if span.low is not None)
        return outside if domain.other is not None else [*outside, LabelSpan(besides=declared)]
    if sql_type(domain.type_name).is_float:  # NaN and infinities are larger or smaller than all declared values
        return [*outside, LabelSpan()]
    parse = _readers(domain.type_name)[1]
    beyond = [LabelSpan(high=parse(domain.edges[0])), LabelSpan(low=parse(domain.upper))]
    return outside if domain.with_edges else [*outside, *beyond]
