"""Run of periods that a statement may read, under a policy with PER. Conditions and domains alone decide it.

No row outside this run can change the answer. A condition that this module does not understand may hold in any period.
Privacy does not depend on this module: the kernel reads only the rows of the run (kernel/rows/placed.py), and the
charge names the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from functools import reduce

from sqlglot import exp

from dpduck.kernel.relations import Units
from dpduck.language.rows.facts import PublicFacts, RequestRows, SourceColumn
from dpduck.language.rows.moments import MomentColumn, moment_of, moments_of, says_one_period, split_truncation
from dpduck.language.rows.predicates import ConditionReader, moment_text, parse_moment
from dpduck.language.rows.relation import PrivateRelation
from dpduck.language.rows.sql import base
from dpduck.language.rows.tree import PrivateJoin, RowSource
from dpduck.language.text.positions import refusal
from dpduck.values.domain import Domain, RangeDomain
from dpduck.values.errors import Refusal
from dpduck.values.periods import WORDS, Period, PeriodColumn, Periods, between, every, last_number, number_of, start_of

_LENGTHS = (10, 19, 23, 26)  # texts of a day, and of a moment with seconds, milliseconds or microseconds
_TICK = timedelta(microseconds=1)
_FIRST, _LAST = datetime.min, datetime.max


@dataclass(frozen=True)
class MomentSpan:
    """Moments from low to high, both included. The span is empty if low is after high."""

    low: datetime = _FIRST
    high: datetime = _LAST

    def common(self, other: MomentSpan) -> MomentSpan:
        return MomentSpan(max(self.low, other.low), min(self.high, other.high))

    def both(self, other: MomentSpan) -> MomentSpan:
        """Returns the shortest span that covers both spans. An empty span adds nothing."""
        if self.low > self.high or other.low > other.high:
            return other if self.low > self.high else self
        return MomentSpan(min(self.low, other.low), max(self.high, other.high))


_ANY = MomentSpan()


def require_periods_alone(source: RowSource, facts: PublicFacts, place: exp.Expr) -> Period | None:
    """Returns the period of a source's rows. Refuses a join without a condition that both rows are of one period."""
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
    """Yields a source, and all sources inside its subqueries and joins."""
    yield source
    for branch in source.branches:
        yield from _levels(branch)
    for join in source.private_joins:
        yield from _levels(join.source)


def _lost(source: RowSource, number: int, word: str) -> tuple[str, str] | None:
    """Returns the fault of a join that may join rows of different periods, and the accepted form. Else None."""
    join, inner = source.joins[number], word.lower()
    if not isinstance(join, PrivateJoin):
        return None
    earlier = (other for other in source.joins[:number] if isinstance(other, PrivateJoin))
    before = [source.first, *(relation for other in earlier for relation in other.source.relations)]
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


def _hidden(relation: PrivateRelation, inner: str) -> tuple[str, str]:
    """Returns the fault of a joined subquery that does not select the period of its rows, and the accepted form."""
    if isinstance(relation.subquery_node, Units) and not relation.subquery_node.windowed:
        what = f"a join with a row for each unit and {inner} that does not show the {inner}"
        return what, f"SELECT .., date_trunc('{inner}', ..) AS {inner} .. GROUP BY .., date_trunc('{inner}', ..) there"
    return f"a join with rows that do not show of which {inner} they are", "the column that PER .. OF names in SELECT"


def period_column(source: RowSource, facts: PublicFacts, place: exp.Expr) -> PeriodColumn | None:
    """Returns a column that gives the period of a row, with the periods that the conditions allow."""
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
    """Returns the SQL and the type of the column that gives the period of a relation's rows. Else ("", "")."""
    moment = moment_of(relation)
    return ("", "") if moment is None else (base(moment.alias, moment.name), relation.type_of(moment.name))


def _inside(source: RowSource) -> tuple[str, str]:
    """Returns the SQL and the type of the first period column of a source, its subqueries and joins. Else ("", "")."""
    columns = (
        _moment_column(relation) for level in _levels(source) for relation in level.relations if moment_of(relation)
    )
    return next(columns, ("", ""))


def is_one_period(source: RowSource, word: str) -> bool:
    """Tells whether the conditions of a source leave only rows of one period."""
    span = span_of(source, word)
    return span != _ANY and (span.low > span.high or _within(word, span).count == 1)


def span_of(source: RowSource, word: str) -> MomentSpan:
    """Returns a span that includes the moments of all rows that meet the conditions.

    The moments of one row lie in one period.
    """
    span = reduce(MomentSpan.both, [span_of(branch, word) for branch in source.branches]) if source.branches else _ANY
    for join in source.private_joins:
        span = _join_spans(span, span_of(join.source, word), join.kind)
    moments = _read_moments(source)
    for moment in moments:
        own = reduce(MomentSpan.common, map(moment_reader(moment).read_condition, source.filters), _ANY)
        alone = len(moments) == 1 and span == _ANY
        span = own if alone else _whole(span, word).common(_whole(own, word))
    return span


def _join_spans(left: MomentSpan, right: MomentSpan, kind: str) -> MomentSpan:
    """Returns the span of a join's rows from the spans of its sides. Both sides of a joined row are of one period."""
    if kind == "FULL JOIN":
        return left.both(right)
    if kind in ("JOIN", "SEMI JOIN"):
        return left.common(right)
    return right if kind == "RIGHT JOIN" else left


def _read_moments(source: RowSource) -> list[MomentColumn]:
    """Lists the period columns on which conditions are read.

    If tables are joined by keys, only the first table's column counts, so that such a statement keeps its old price.
    """
    joins = [(number, join) for number, join in enumerate(source.joins) if isinstance(join, PrivateJoin)]
    nested = any(join.source.first.subquery_node or join.source.joins or join.kind != "JOIN" for _, join in joins)
    first = moment_of(source.first)
    if first is None or source.first.subquery_node or nested or any(source.multiplies(number) for number, _ in joins):
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
    """Adds to the rows the periods that WHERE and the domains of keys allow.

    Rows outside the domain of a key are in no grouping set. columns: the columns that keys are computed from.
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
    """Tells whether all rows with one label of a key are of one period. A person is then one unit in each group.

    codes: the label's number for each combination of source codes, -1 for none. sources: positions in `columns`.
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
    """Returns the period's number for each code of a domain. None for a code of several periods, or of no period."""
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
    """Returns the moments that a domain has codes for. None if there is OTHER or EDGES, or a value is no moment."""
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
    """Parses a moment in one of the usual forms. Digests of releases would change if more forms were read."""
    return parse_moment(text) if len(text) in _LENGTHS else None


def moment_reader(of: MomentColumn) -> ConditionReader[MomentSpan]:
    """Returns a reader of the moments at which a condition may hold. Prices and digests would change if it read NOT."""

    def compare(operand: exp.Expr, sign: str, literal: exp.Expr) -> MomentSpan:
        if isinstance(operand, exp.Year) and of.is_column(operand.this.unnest()):
            year = literal.unnest()
            if not (isinstance(year, exp.Literal) and year.is_int and 1 <= int(year.name[:5]) <= 9998):
                return _ANY
            return _span(sign, datetime(int(year.name), 1, 1), "YEAR")
        (column, word), text = split_truncation(operand), moment_text(literal)
        moment = None if text is None else _moment(text)
        if moment is None or not of.is_column(column) or (word and word not in WORDS):
            return _ANY
        return _span(sign, moment, word or ("DAY" if of.days else ""))

    return ConditionReader(_ANY, MomentSpan.common, MomentSpan.both, compare, reads_not=False)


def _span(sign: str, moment: datetime, word: str) -> MomentSpan:
    """Returns the moments that meet a comparison. With a `word`, each moment is first truncated to that period."""
    if sign == "<>":
        return _ANY
    if sign == "<" and moment == _FIRST:
        return MomentSpan(_LAST, _FIRST)
    if sign == "<":
        moment -= _TICK
    last = _last(moment, word)
    first = datetime.combine(moment.date(), time())  # a DATE is compared with the text's day alone, without its time
    if sign == "=":
        return MomentSpan(first, last)
    if sign == ">=" or (sign == ">" and not word):
        return MomentSpan(low=first)
    if sign == ">":
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
