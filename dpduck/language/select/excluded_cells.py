"""Cells that WHERE rules out by public facts: no row can be in them, so the answer leaves them out.

Only conditions on one key column are read: its comparisons with literals, joined by AND and OR. A label stands
for values by its declared domain: a value for itself, a bin for every value between its edges, OTHER for anything.
The release itself has all cells of the domain, whatever WHERE says, and keeps its name and its price.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from itertools import pairwise
from math import floor

from sqlglot import exp

from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.facts import SourceColumn
from dpduck.language.rows.scope import Scope, resolve
from dpduck.language.select.answers import column_of_release
from dpduck.language.select.request import Key
from dpduck.language.select.value_ranges import literal, text_literal
from dpduck.language.text.dialect import exact_number
from dpduck.language.text.names import GROUPING_ID
from dpduck.values.domain import Domain, RangeDomain
from dpduck.values.sqltypes import sql_type

MOST_LISTED = 1_000
"""The most labels that the answer's SQL lists, possible or impossible ones. If both are more, all labels are shown."""

_FARTHEST = Fraction(10**80)  # beyond every HUGEINT and DECIMAL
_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}
_OPPOSITE: dict[type[exp.Expr], type[exp.Binary]] = {
    exp.EQ: exp.NEQ, exp.NEQ: exp.EQ, exp.GT: exp.LTE, exp.LTE: exp.GT, exp.LT: exp.GTE, exp.GTE: exp.LT,
}  # fmt: skip
_TEMPORAL = (exp.DataType.Type.DATE, exp.DataType.Type.TIMESTAMP)
Value = Fraction | str | datetime | bool
Reader = Callable[[exp.Expr], Value | None]


@dataclass(frozen=True)
class LabelSpan:
    """Values of a label: low <= value < high. Without `high`, the only value is `low`. Without `low`, it is NULL.

    anything: whether all values belong to the label, except for `besides`.
    """

    low: Value | None
    high: Value | None = None
    anything: bool = False
    besides: frozenset[Value] = frozenset()


def possible_cells(
    where: exp.Expr, keys: Sequence[Key], sources: Sequence[SourceColumn], scope: Scope, collated: bool
) -> exp.Expr | None:
    """Returns a condition for the released cells that may hold rows. None if all cells may."""
    conjuncts = list(where.flatten()) if isinstance(where, exp.And) else [where]
    combined: exp.Expr | None = None
    for position, key in enumerate(keys):
        if key.shape or len(key.sources) != 1 or key.expression != sources[key.sources[0]].sql:
            continue
        domain = sources[key.sources[0]].domain
        read = reader(domain, collated)
        mine = [part for part in conjuncts if columns_of(part, scope) == {key.expression}]
        if read is None or not mine:
            continue
        spans = spans_of(domain, read)
        possible = [all(_may(part, span, read) for part in mine) for span in spans]
        condition = _label_condition(key, position, possible)
        if condition is not None:
            combined = condition if combined is None else exp.And(this=combined, expression=condition)
    return combined


def met_by(condition: exp.Expr, domain: Domain, collated: bool) -> list[bool | None]:
    """Tells for each code with several values whether they meet a condition: True for all, False for none.

    None if only some meet it, or if that is not known. Codes of a single value, which can be tried, have None, too.
    """
    read = _number if domain.type_name == "DOUBLE" else reader(domain, collated)
    if read is None:
        return [None] * domain.size
    spans = spans_of(domain, read)
    if isinstance(domain, RangeDomain):
        spans = _with_beyond(spans, domain, read) if domain.with_edges else spans
    elif domain.other is not None:
        spans = [*spans[:-1], LabelSpan(None, anything=True, besides=_values_of(spans))]
    condition = _of_integers(condition) if sql_type(domain.type_name).is_integer else condition
    opposite, decisions = negate(condition), list[bool | None]()
    for span, many in zip(spans, stands_for_several(domain), strict=True):
        met, missed = could(condition, span, read), could(opposite, span, read)
        decisions.append(met if many and met != missed else None)
    return decisions


def stands_for_several(domain: Domain) -> list[bool]:
    """Tells which codes of a domain stand for several values: bins, values beyond all edges, OTHER."""
    if not isinstance(domain, RangeDomain):
        return [False] * (domain.size - (domain.other is not None)) + [True] * (domain.other is not None)
    several = [not (sql_type(domain.type_name).is_integer and domain.step == "1")] * len(domain.edges)
    if domain.with_edges:
        several[0] = several[-1] = True
    return several + [False] * domain.with_null


def _values_of(spans: Sequence[LabelSpan]) -> frozenset[Value]:
    return frozenset(span.low for span in spans if span.low is not None)


def could(node: exp.Expr, span: LabelSpan, read: Reader) -> bool:
    """Tells whether some value of a label can meet the condition. It decides IS NULL, too, which _may does not."""
    node = node.unnest()
    if isinstance(node, exp.And):
        return all(could(part, span, read) for part in (node.left, node.right))
    if isinstance(node, exp.Or):
        return any(could(part, span, read) for part in (node.left, node.right))
    asked = node.this.unnest() if isinstance(node, exp.Not) else node
    if isinstance(asked, exp.Is) and isinstance(asked.expression, exp.Null):
        is_null = span.low is None and not span.anything
        return is_null if asked is node else not is_null
    if isinstance(node, exp.Not) and not isinstance(opposite := negate(node.this), exp.Not):
        return could(opposite, span, read)
    return _may(node, span, read)


def _with_beyond(spans: Sequence[LabelSpan], domain: RangeDomain, read: Reader) -> list[LabelSpan]:
    """Returns the spans of bins. The outermost spans extend to all values beyond the edges."""
    edges = [_parser(read)(text) for text in (*domain.edges, domain.upper)]
    if any(edge is None for edge in edges):
        return list(spans)
    first, last = (datetime.min, datetime.max) if isinstance(edges[0], datetime) else (-_FARTHEST, _FARTHEST)
    count = len(domain.edges)
    changed = list(spans)
    changed[0] = LabelSpan(first, edges[1] if count > 1 else last)
    if count > 1:
        changed[count - 1] = LabelSpan(edges[count - 1], last)
    return changed


def _of_integers(node: exp.Expr) -> exp.Expr:
    """Rewrites >, <= and BETWEEN on a column of integers with >= and < alone, which spans decide exactly."""
    node = node.unnest()
    if isinstance(node, (exp.And, exp.Or)):
        return type(node)(this=_of_integers(node.left), expression=_of_integers(node.right))
    if isinstance(node, exp.Not):
        return exp.Not(this=_of_integers(node.this))
    if isinstance(node, exp.Between):
        low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
        high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
        return exp.And(this=_of_integers(low), expression=_of_integers(high))
    if type(node) in _FLIPPED and isinstance(node.args["expression"].unnest(), exp.Column):
        node = _FLIPPED[type(node)](this=node.args["expression"].copy(), expression=node.this.copy())
    value = literal(node.args["expression"]) if type(node) in _FLIPPED else None
    if value is None or not isinstance(node, (exp.GT, exp.LTE)):
        return node
    after = exp.Literal.number(floor(value) + 1)
    return (exp.GTE if isinstance(node, exp.GT) else exp.LT)(this=node.this.copy(), expression=after)


def negate(node: exp.Expr) -> exp.Expr:
    """Negates a condition for values other than NULL. A condition without a known opposite becomes a plain NOT."""
    node = node.unnest()
    if isinstance(node, exp.And):
        return exp.Or(this=negate(node.left), expression=negate(node.right))
    if isinstance(node, exp.Or):
        return exp.And(this=negate(node.left), expression=negate(node.right))
    if isinstance(node, exp.Not):
        inner: exp.Expr = node.this.copy()
        return inner
    if isinstance(node, exp.Between):
        low, high = node.args["low"].copy(), node.args["high"].copy()
        below = exp.LT(this=node.this.copy(), expression=low)
        return exp.Or(this=below, expression=exp.GT(this=node.this.copy(), expression=high))
    if isinstance(node, exp.In) and node.expressions:
        apart = [exp.NEQ(this=node.this.copy(), expression=member.copy()) for member in node.expressions]
        return apart[0] if len(apart) == 1 else exp.and_(*apart)
    if type(node) in _OPPOSITE:
        return _OPPOSITE[type(node)](this=node.this.copy(), expression=node.args["expression"].copy())
    return exp.Not(this=node.copy())


def met_outside(condition: exp.Expr, domain: Domain, collated: bool) -> bool:
    """Tells whether a value in no code of a column's domain may meet a condition. True if that is not known."""
    read = _number if domain.type_name == "DOUBLE" else reader(domain, collated)
    if read is None:
        return True
    beyond = [] if domain.with_null else [LabelSpan(None)]
    condition = _of_integers(condition) if sql_type(domain.type_name).is_integer else condition
    if not isinstance(domain, RangeDomain):
        declared = _values_of(spans_of(domain, read))
        beyond += [] if domain.other is not None else [LabelSpan(None, anything=True, besides=declared)]
    else:
        low, high = _parser(read)(domain.edges[0]), _parser(read)(domain.upper)
        if low is None or high is None:
            beyond.append(LabelSpan(None, anything=True))
        elif not domain.with_edges:
            first, last = (datetime.min, datetime.max) if isinstance(low, datetime) else (-_FARTHEST, _FARTHEST)
            beyond += [LabelSpan(first, low), LabelSpan(high, last)]
        if domain.type_name == "DOUBLE":  # NaN and infinities are larger or smaller than all declared values
            beyond.append(LabelSpan(None, anything=True))
    return any(could(condition, span, read) for span in beyond)


def columns_of(part: exp.Expr, scope: Scope) -> set[str]:
    """Returns the resolved columns of a condition. Empty if one of its columns is ambiguous or unknown."""
    columns = list(part.find_all(exp.Column))
    if any(len(scope.find(column)) != 1 for column in columns):
        return set()
    return {sql_of(resolve(column, scope)) for column in columns}


def reader(domain: Domain, collated: bool) -> Reader | None:
    """Returns the reader of literals beside a column of this domain. None for types that are not read."""
    type_name = domain.type_name
    if sql_type(type_name).is_integer or sql_type(type_name).is_decimal:
        return _number
    readers: dict[str, Reader] = {"DATE": _day, "TIMESTAMP": _moment, "BOOLEAN": _flag}
    return text_literal if type_name == "VARCHAR" and not collated else readers.get(type_name)


def _number(node: exp.Expr) -> Fraction | None:
    """Reads a decimal literal. None for an exponent: such a literal is a DOUBLE, which may be compared inexactly."""
    number = literal(node)
    return None if any("e" in token.name.lower() for token in node.find_all(exp.Literal)) else number


def _flag(node: exp.Expr) -> bool | None:
    node = node.unnest()
    return bool(node.this) if isinstance(node, exp.Boolean) else None


def _moment(node: exp.Expr) -> datetime | None:
    node = node.unnest()
    if isinstance(node, (exp.Cast, exp.TryCast)) and node.to.this in _TEMPORAL:
        node = node.this
    return None if not isinstance(node, exp.Literal) or not node.is_string else _parse_moment(node.name)


def _day(node: exp.Expr) -> datetime | None:
    moment = _moment(node)
    return moment if moment is not None and moment == datetime(moment.year, moment.month, moment.day) else None


def _parse_moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is None else None


def _parser(read: Reader) -> Callable[[str], Value | None]:
    """Returns the parser of a domain's labels that belongs to a reader of literals."""
    parsers: dict[Reader, Callable[[str], Value | None]] = {
        _number: exact_number, _day: _parse_moment, _moment: _parse_moment, text_literal: str, _flag: "true".__eq__,
    }  # fmt: skip
    return parsers[read]


def spans_of(domain: Domain, read: Reader) -> list[LabelSpan]:
    """Returns the span of each code of the domain, in order."""
    value, anything, nothing = _parser(read), LabelSpan(None, anything=True), LabelSpan(None)
    if not isinstance(domain, RangeDomain):
        values = [value(text) for text in domain.values]
        listed = [anything if constant is None else LabelSpan(constant) for constant in values]
        other = LabelSpan(None, anything=True, besides=frozenset[Value](domain.values))
        return [*listed, *[nothing] * domain.with_null, *[other] * (domain.other is not None)]
    edges = [value(text) for text in (*domain.edges, domain.upper)]
    single = sql_type(domain.type_name).is_integer and domain.step == "1"
    spans = [
        anything if low is None or high is None else LabelSpan(low) if single else LabelSpan(low, high)
        for low, high in pairwise(edges)
    ]
    if domain.with_edges:
        spans[0] = spans[-1] = anything
    return [*spans, *[nothing] * domain.with_null]


def _may(node: exp.Expr, span: LabelSpan, read: Reader) -> bool:
    """Tells whether some value of a label can meet the condition. True if that is not known."""
    node = node.unnest()
    if isinstance(node, exp.And):
        return all(_may(part, span, read) for part in (node.this, node.expression))
    if isinstance(node, exp.Or):
        return any(_may(part, span, read) for part in (node.this, node.expression))
    if isinstance(node, exp.Between) and isinstance(node.this.unnest(), exp.Column):
        low, high = read(node.args["low"]), read(node.args["high"])
        return low is None or high is None or (_compare(exp.GTE, span, low) and _compare(exp.LTE, span, high))
    if isinstance(node, exp.In) and isinstance(node.this.unnest(), exp.Column) and node.expressions:
        listed = [read(member) for member in node.expressions]
        return any(member is None or _compare(exp.EQ, span, member) for member in listed)
    if isinstance(node, exp.Column):
        return _compare(exp.EQ, span, True)
    if isinstance(node, exp.Not) and isinstance(node.this.unnest(), exp.Column):
        return _compare(exp.EQ, span, False)
    if type(node) not in (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE):
        return True
    left, right, kind = node.this, node.args["expression"], type(node)
    if isinstance(right.unnest(), exp.Column):
        left, right, kind = right, left, _FLIPPED.get(kind, kind)
    value = read(right) if isinstance(left.unnest(), exp.Column) else None
    return value is None or _compare(kind, span, value)


def _compare(kind: type[exp.Expr], span: LabelSpan, value: Value) -> bool:
    """Tells whether the comparison with `value` can hold for some value of the span. It never holds for NULL."""
    low, high = span.low, span.high
    if span.anything:
        return kind is not exp.EQ or value not in span.besides
    if low is None:
        return False
    if isinstance(low, str):  # texts have an order of their own: only equality is read
        return low == value if kind is exp.EQ else low != value if kind is exp.NEQ else True
    below, above = low < value, low > value  # type: ignore[operator]
    reaches = above or low == value if high is None else high > value  # type: ignore[operator]
    decided: Mapping[type[exp.Expr], bool] = {
        exp.EQ: not above and reaches,
        exp.NEQ: high is not None or low != value,
        exp.GTE: reaches,
        exp.GT: above if high is None else reaches,
        exp.LTE: not above,
        exp.LT: below,
    }
    return decided[kind]


def _label_condition(key: Key, position: int, possible: Sequence[bool]) -> exp.Expr | None:
    """Renders the condition that the key is rolled up or has a possible label. None if it leaves nothing out."""
    if all(possible):
        return None
    pairs = list(zip(key.labels, possible, strict=True))
    shown = [label for label, keep in pairs if keep]
    hidden = [label for label, keep in pairs if not keep]
    listed = shown if len(shown) <= len(hidden) else hidden
    if len(listed) > MOST_LISTED:
        return None
    values = [
        exp.cast(exp.Literal.string(label), key.type_name, dialect="duckdb") for label in listed if label is not None
    ]
    column = column_of_release(key.name)
    is_shown: exp.Expr = exp.In(this=column, expressions=values) if values else exp.Boolean(this=False)
    if None in listed:
        is_shown = exp.Paren(this=exp.Or(this=is_shown, expression=exp.Is(this=column.copy(), expression=exp.Null())))
    is_shown = exp.Is(this=exp.Paren(this=is_shown), expression=exp.Boolean(this=True))
    if listed is hidden:
        is_shown = exp.Not(this=exp.Paren(this=is_shown))
    bit = exp.Paren(
        this=exp.BitwiseRightShift(this=column_of_release(GROUPING_ID), expression=exp.Literal.number(position))
    )
    rolled_up = exp.EQ(
        this=exp.Paren(this=exp.BitwiseAnd(this=bit, expression=exp.Literal.number(1))),
        expression=exp.Literal.number(1),
    )
    return exp.Paren(this=exp.Or(this=rolled_up, expression=is_shown))
