"""Periods of a policy's PER that a statement may read: one run, found from its conditions and domains alone.

No row outside this run can have a part in the answer. It is the smallest run that is found without reading any row.
A condition that is not understood may hold in any period. Only the answer rests on this module: the kernel reads rows
of that run alone (kernel/rows/placed.py), and the charge names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from functools import reduce

from sqlglot import exp

from dpduck.kernel.relations import Units
from dpduck.language.rows.facts import PublicFacts, RequestRows, SourceColumn
from dpduck.language.rows.moments import MomentColumn, moment_of, moments_of, says_one_period
from dpduck.language.rows.relation import PrivateRelation
from dpduck.language.rows.sql import base
from dpduck.language.rows.tree import PrivateJoin, RowSource
from dpduck.language.text.positions import refusal
from dpduck.values.domain import Domain, RangeDomain
from dpduck.values.errors import Refusal
from dpduck.values.periods import WORDS, Period, PeriodColumn, Periods, between, every, last_number, number_of, start_of

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(\.\d{3}|\.\d{6})?", re.ASCII)
_TICK = timedelta(microseconds=1)
_FIRST, _LAST = datetime.min, datetime.max
_MOMENTS = (None, exp.DataType.Type.DATE, exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPNTZ)


@dataclass(frozen=True)
class MomentSpan:
    """Moments from low to high, both included. The span is empty if low is after high."""

    low: datetime = _FIRST
    high: datetime = _LAST

    def common(self, other: MomentSpan) -> MomentSpan:
        return MomentSpan(max(self.low, other.low), min(self.high, other.high))

    def both(self, other: MomentSpan) -> MomentSpan:
        """Returns the shortest span that covers both. An empty span adds nothing."""
        if self.low > self.high or other.low > other.high:
            return other if self.low > self.high else self
        return MomentSpan(min(self.low, other.low), max(self.high, other.high))


_ANY = MomentSpan()


def require_periods_alone(source: RowSource, facts: PublicFacts, place: exp.Expr) -> Period | None:
    """Returns the period of a source's rows. Refuses a join that does not say that its rows are of one period."""
    policies = [policy for policy in map(facts.policy, source.tables) if policy is not None]
    period = next((policy.unit.period for policy in policies if policy.unit.period is not None), None)
    if period is None:
        return None
    for level in _levels(source):
        for number in range(len(level.joins)):
            lost = _lost(level, number, period.word)
            if lost is not None:
                what, accepted = lost
                raise refusal(place, f"units of one {period.word.lower()} are not followed through {what}", accepted)
    return source.first.policy.unit.period


def _levels(source: RowSource) -> Iterator[RowSource]:
    """Yields a source and all sources inside it."""
    yield source
    for branch in source.branches:
        yield from _levels(branch)
    for join in source.private_joins:
        yield from _levels(join.source)


def _lost(source: RowSource, number: int, word: str) -> tuple[str, str] | None:
    """Says why a join of private rows is not within one period, and the accepted form. None if it is within one."""
    join, inner = source.joins[number], word.lower()
    if not isinstance(join, PrivateJoin):
        return None
    before = [source.first, *(relation for other in source.joins[:number] for relation in _relations(other))]
    sides = before, list(join.source.relations)
    ours, theirs = map(moments_of, sides)
    if any(says_one_period(condition, ours, theirs, word) for condition in join.conditions):
        return None
    hidden = next((side[0] for side, moments in zip(sides, (ours, theirs), strict=True) if not moments), None)
    if hidden is not None:
        return _hidden(hidden, inner)
    within = " = ".join(
        f"date_trunc('{inner}', {side[0].table.table}.{moments[0].name})"
        for side, moments in zip(sides, (ours, theirs), strict=True)
    )
    accepted = f"{join.kind} {join.source.table.table} ON .. AND {within}"
    return f"a join of private rows that is not within one {inner}", accepted


def _relations(join: object) -> tuple[PrivateRelation, ...]:
    return join.source.relations if isinstance(join, PrivateJoin) else ()


def _hidden(relation: PrivateRelation, inner: str) -> tuple[str, str]:
    """Says that a joined subquery shows no column of its rows' period, and the accepted form."""
    if isinstance(relation.nested, Units) and not relation.nested.windowed:
        what = f"a join with a row for each unit and {inner} that does not show the {inner}"
        return what, f"SELECT .., date_trunc('{inner}', ..) AS {inner} .. GROUP BY .., date_trunc('{inner}', ..) there"
    return f"a join with rows that do not show of which {inner} they are", "the column that PER .. OF names in SELECT"


def period_column(source: RowSource, facts: PublicFacts, place: exp.Expr) -> PeriodColumn | None:
    """Returns a column that gives the period of a row, with the periods that conditions leave."""
    period = require_periods_alone(source, facts, place)
    if period is None:
        return None
    shown = [
        _moment_column(join.source.first) for join in source.private_joins if moment_of(join.source.first) is not None
    ]
    if moment_of(source.first) is None and shown:
        sql, type_name = shown.pop(0)
    else:
        sql, type_name = _moment_column(source.first) if moment_of(source.first) else _inside(source)
    span = span_of(source, period.word)
    column = PeriodColumn(sql, type_name, every(period.word), tuple(shown))
    return column if span == _ANY else replace(column, periods=_within(period.word, span))


def _moment_column(relation: PrivateRelation) -> tuple[str, str]:
    """Returns the SQL and the type of a relation's moment column, "" for both if it has none."""
    moment = moment_of(relation)
    return ("", "") if moment is None else (base(moment.alias, moment.name), relation.type_of(moment.name))


def _inside(source: RowSource) -> tuple[str, str]:
    """Returns the SQL and the type of the first moment column of an inner table, "" for both if there is none."""
    columns = (
        _moment_column(relation) for level in _levels(source) for relation in level.relations if moment_of(relation)
    )
    return next(columns, ("", ""))


def is_one_period(source: RowSource, word: str) -> bool:
    """Tells whether the conditions of a source leave only rows of one period."""
    span = span_of(source, word)
    return span != _ANY and (span.low > span.high or _within(word, span).count == 1)


def span_of(source: RowSource, word: str) -> MomentSpan:
    """Returns the moments of rows that can have a part in a source. The moments of one row lie in one period."""
    span = reduce(MomentSpan.both, [span_of(branch, word) for branch in source.branches]) if source.branches else _ANY
    for join in source.private_joins:
        span = _join_spans(span, span_of(join.source, word), join.kind)
    moments = _read_moments(source)
    for of in moments:
        own = reduce(MomentSpan.common, (_condition_span(condition, of) for condition in source.filters), _ANY)
        alone = len(moments) == 1 and span == _ANY
        span = own if alone else _whole(span, word).common(_whole(own, word))
    return span


def _join_spans(left: MomentSpan, right: MomentSpan, kind: str) -> MomentSpan:
    """Returns the moments of a join's rows. Both sides of a joined row are of one period."""
    if kind == "FULL JOIN":
        return left.both(right)
    if kind in ("JOIN", "SEMI JOIN"):
        return left.common(right)
    return right if kind == "RIGHT JOIN" else left


def _read_moments(source: RowSource) -> list[MomentColumn]:
    """Lists the moment columns that conditions are read over.

    If tables are joined by keys, only the first table's column counts, so that such a statement keeps its old price.
    """
    joins = [(number, join) for number, join in enumerate(source.joins) if isinstance(join, PrivateJoin)]
    nested = any(join.source.first.nested or join.source.joins or join.kind != "JOIN" for _, join in joins)
    first = moment_of(source.first)
    if first is None or source.first.nested or nested or any(source.multiplies(number) for number, _ in joins):
        return moments_of(source.relations)
    return [first]


def _whole(span: MomentSpan, word: str) -> MomentSpan:
    """Extends a span to the moments of all periods that it touches."""
    if span == _ANY or span.low > span.high:
        return span
    low = number_of(word, span.low.date())
    return MomentSpan(datetime.combine(start_of(word, low), time()), _last(span.high, word))


def by_periods(
    rows: RequestRows, columns: Sequence[SourceColumn], source: RowSource, facts: PublicFacts, place: exp.Expr
) -> RequestRows:
    """Adds to the rows the periods that WHERE leaves, without periods that no code of a key covers.

    Rows of such periods are dropped from every grouping set. columns: the columns that keys depend on.
    """
    column = period_column(source, facts, place)
    if column is None:
        return rows
    for key_column in columns:
        span = _of_domain(key_column) if key_column.sql == column.sql else None
        if span is not None:
            common = column.periods.common(_within(column.periods.word, span))
            if common is None:
                raise _empty()
            column = replace(column, periods=common)
    return replace(rows, periods=column)


def within_one(
    rows: RequestRows, columns: Sequence[SourceColumn], codes: Sequence[int], sources: Sequence[int]
) -> bool:
    """Tells whether all rows with one label of a key are of one period: then a person is one unit among them.

    codes: the label's number for each combination of its sources' codes, -1 for none. sources: positions in columns.
    """
    column = rows.periods
    if column is None or column.periods.count == 1:
        return True
    if len(sources) != 1 or columns[sources[0]].sql != column.sql:
        return False
    by_label: dict[int, set[int | None]] = {}
    for label, number in zip(codes, _numbers(columns[sources[0]].domain, column.periods.word), strict=True):
        by_label.setdefault(label, set()).add(number)
    return all(len(numbers) == 1 and None not in numbers for label, numbers in by_label.items() if label >= 0)


def _numbers(domain: Domain, word: str) -> list[int | None]:
    """Returns the period's number for each code of a domain, None for a code of several periods or of none."""
    if isinstance(domain, RangeDomain):
        ends = [_moment(text) for text in (*domain.edges[1:], domain.upper)]
        spans = zip(map(_moment, domain.edges), (end and end - _TICK for end in ends), strict=True)
    else:
        spans = zip(map(_moment, domain.values), map(_moment, domain.values), strict=True)
    numbers = [number_of(word, low.date()) if low and high and _same(word, low, high) else None for low, high in spans]
    if isinstance(domain, RangeDomain) and domain.with_edges:
        numbers[0] = numbers[-1] = None
    return [*numbers, *([None] * (domain.size - len(numbers)))]


def _same(word: str, low: datetime, high: datetime) -> bool:
    return number_of(word, low.date()) == number_of(word, high.date())


def _within(word: str, span: MomentSpan) -> Periods:
    run = between(word, span.low.date(), span.high.date()) if span.low <= span.high else None
    if run is None:
        raise _empty()
    return run


def _empty() -> Refusal:
    return Refusal(
        "no row could meet the conditions on the column of PER: there is nothing to ask about",
        accepted="dates from the year 1 to 9998, the earlier one first",
    )


def _of_domain(column: SourceColumn) -> MomentSpan | None:
    """Returns the moments that a domain has codes for. None if others have codes too, or if a value is no moment."""
    domain = column.domain
    if isinstance(domain, RangeDomain):
        low, high = _moment(domain.edges[0]), _moment(domain.upper)
        return None if domain.with_edges or low is None or high is None else MomentSpan(low, high - _TICK)
    moments = [_moment(text) for text in domain.values]
    parsed = [moment for moment in moments if moment is not None]
    if domain.other is not None or not parsed or len(parsed) < len(moments):
        return None
    return MomentSpan(min(parsed), max(parsed))


def _moment(text: str) -> datetime | None:
    """Parses a moment that DuckDB and Python read alike, None for other texts."""
    if not (_DAY.fullmatch(text) or _MOMENT.fullmatch(text)):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


# Conditions over the column. A condition that is not listed may hold at any moment.


def _condition_span(node: exp.Expr, of: MomentColumn) -> MomentSpan:
    """Returns the moments at which a condition may hold."""
    node = node.unnest()
    if isinstance(node, exp.And):
        return reduce(MomentSpan.common, (_condition_span(part, of) for part in node.flatten()), _ANY)
    if isinstance(node, exp.Or):
        return reduce(MomentSpan.both, [_condition_span(part, of) for part in node.flatten()])
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        low = _comparison_span(exp.GTE, node.this, node.args["low"], of)
        return low.common(_comparison_span(exp.LTE, node.this, node.args["high"], of))
    if isinstance(node, exp.In) and node.expressions:
        return reduce(MomentSpan.both, [_comparison_span(exp.EQ, node.this, value, of) for value in node.expressions])
    if isinstance(node, (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE)):
        kind: type[exp.Expr] = type(node)
        left, right = node.left, node.right
        if not _column_in(left, of):
            kind, left, right = _TURNED.get(kind, kind), right, left
        return _comparison_span(kind, left, right, of)
    return _ANY


_TURNED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.GTE: exp.LTE,
}  # fmt: skip


def _column_in(node: exp.Expr, of: MomentColumn) -> bool:
    return any(of.is_column(column) for column in node.find_all(exp.Column))


def _comparison_span(kind: type[exp.Expr], left: exp.Expr, right: exp.Expr, of: MomentColumn) -> MomentSpan:
    """Returns the moments at which the column, or its truncation, may meet a comparison with a literal."""
    left = left.unnest()
    moment = _literal(right)
    if isinstance(left, exp.Year) and of.is_column(left.this.unnest()):
        year = right.unnest()
        if not (isinstance(year, exp.Literal) and year.is_int and 1 <= int(year.name[:5]) <= 9998):
            return _ANY
        return _span(kind, datetime(int(year.name), 1, 1), "YEAR")
    if moment is None:
        return _ANY
    if of.is_column(left):
        return _span(kind, moment, "DAY" if of.days else "")
    if isinstance(left, exp.Cast) and left.args["to"].this is exp.DataType.Type.DATE:
        return _span(kind, moment, "DAY") if of.is_column(left.this.unnest()) else _ANY
    if isinstance(left, (exp.TimestampTrunc, exp.DateTrunc)) and of.is_column(left.this.unnest()):
        unit = left.args.get("unit")
        word = unit.name.upper() if isinstance(unit, exp.Expr) else ""
        return _span(kind, moment, word) if word in WORDS else _ANY
    return _ANY


def _span(kind: type[exp.Expr], moment: datetime, word: str) -> MomentSpan:
    """Returns the moments that meet a comparison. With a word, the first moment of their period has to meet it."""
    if kind is exp.LT and moment == _FIRST:
        return MomentSpan(_LAST, _FIRST)
    if kind is exp.LT:
        moment -= _TICK
    last = _last(moment, word)
    first = datetime.combine(moment.date(), time())  # a DATE is compared with the day alone, also of a text with a time
    if kind is exp.EQ:
        return MomentSpan(first, last)
    if kind is exp.GTE or (kind is exp.GT and not word):
        return MomentSpan(low=first)
    if kind is exp.GT:
        return MomentSpan(low=last + _TICK) if last < _LAST else MomentSpan(_LAST, _FIRST)
    return MomentSpan(high=last)


def _last(moment: datetime, word: str) -> datetime:
    """Returns the last moment of the period that a moment lies in, or the moment itself if the word is empty."""
    if not word:
        return moment
    number = number_of(word, moment.date())
    if number >= last_number(word):
        return _LAST
    return datetime.combine(start_of(word, number + 1), time()) - _TICK


def _literal(node: exp.Expr) -> datetime | None:
    """Parses the moment of a literal: a text, DATE or TIMESTAMP. None for other literals."""
    node, kind = node.unnest(), None
    if isinstance(node, exp.Cast):
        kind, node = node.args["to"].this, node.this
    if not (isinstance(node, exp.Literal) and node.is_string) or kind not in _MOMENTS:
        return None
    return _moment(node.name) if kind is not exp.DataType.Type.DATE or _DAY.fullmatch(node.name) else None
