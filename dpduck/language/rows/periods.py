"""Which periods of a policy's PER a statement may read, from its conditions and domains alone.

The answer is a run of periods that no row outside of could have a part in what is asked: the smallest run that is
found without looking at any row. What is not understood may be any period. Nothing rests on it but the answer: the
scan reads rows of that run alone (kernel/rows/periods.py), and the charge names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from functools import reduce

from sqlglot import exp

from dpduck.kernel.columns.expressions import Column as RowColumn
from dpduck.kernel.relations import PeriodRows, Union, Units
from dpduck.language.rows.facts import PublicFacts, Rows, SourceColumn
from dpduck.language.rows.relation import PrivateRelation
from dpduck.language.rows.sql import base, column_types
from dpduck.language.rows.tree import PrivateJoin, RowSource
from dpduck.language.text.positions import refusal
from dpduck.values.domain import Domain, RangeDomain
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.periods import WORDS, Period, PeriodColumn, Periods, between, every, last_number, number_of, start_of
from dpduck.values.quoting import fold
from dpduck.values.sqltypes import sql_type

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(\.\d{3}|\.\d{6})?", re.ASCII)
_TICK = timedelta(microseconds=1)
_FIRST, _LAST = datetime.min, datetime.max
_MOMENTS = (None, exp.DataType.Type.DATE, exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPNTZ)


@dataclass(frozen=True)
class _Of:
    """The column that says of which period a row is. days: whether it holds whole days, so that all of one compare
    alike.
    """

    alias: str
    name: str
    days: bool


@dataclass(frozen=True)
class _Span:
    """Moments from low to high, both included; none where low is after high."""

    low: datetime = _FIRST
    high: datetime = _LAST

    def common(self, other: _Span) -> _Span:
        return _Span(max(self.low, other.low), min(self.high, other.high))

    def both(self, other: _Span) -> _Span:
        """Returns the shortest span that has both; one that has no moment adds none."""
        if self.low > self.high or other.low > other.high:
            return other if self.low > self.high else self
        return _Span(min(self.low, other.low), max(self.high, other.high))


_ANY = _Span()


def require_periods_alone(source: RowSource, facts: PublicFacts, place: exp.Expr) -> Period | None:
    """Returns the period of the rows of a source; refused where they are made of rows of several periods."""
    policies = [policy for policy in map(facts.policy, source.tables) if policy is not None]
    period = next((policy.unit.period for policy in policies if policy.unit.period is not None), None)
    if period is None:
        return None
    reasons = [_made_of_several(source), *(_lost(source, one, period.word) for one in range(len(source.joins)))]
    for what, accepted in filter(None, reasons):
        raise refusal(place, f"units of one {period.word.lower()} are not followed through {what}", accepted)
    return source.first.policy.unit.period


_Reason = tuple[str, str] | None
"""What loses the period of a row, and what would be accepted in its place."""


def _made_of_several(source: RowSource) -> _Reason:
    """Says why the rows of a source's first table are of no period of their own."""
    if _has_moments(source):
        return None
    table, one = source.table.table, "in a statement of its own"
    if isinstance(source.first.nested, Union):
        return "UNION ALL, whose rows say of no period which they are", f"FROM {table}, and each table {one}"
    if isinstance(source.first.nested, Units):
        what = "features of each unit, which are made of its rows of all periods"
        return what, f"FROM {table} as it is, or joined with public tables; conditions in WHERE"
    return "rows without PER", f"FROM a table whose policy says PER, each table {one}"


def _has_moments(source: RowSource) -> bool:
    """Tells whether a source's first table is one whose own rows say of which period they are."""
    return source.first.nested is None and not source.first.parents and source.first.policy.unit.period is not None


def _lost(source: RowSource, number: int, word: str) -> _Reason:
    """Says why rows of a join may be made of rows of several periods; of public tables, they never are.

    It is by a key: where rows of a unit are joined each with each, which are read would depend on other periods.
    """
    join, inner = source.joins[number], word.lower()
    if not isinstance(join, PrivateJoin):
        return None
    of_several, table = _made_of_several(join.source), join.source.table.table
    if of_several is not None:
        return of_several
    before = [source.first, *(one.source.first for one in source.joins[:number] if isinstance(one, PrivateJoin))]
    moments = [(_moment_of(of), of.table.table) for of in (before[0], join.source.first)]
    within = " = ".join(f"date_trunc('{inner}', {of}.{name})" for name, of in moments)
    if join.kind != "JOIN":
        return f"{join.kind} of private rows, which depends on other {inner}s", f"JOIN {table} ON .. AND {within}"
    if join.source.joins:
        return "a join in brackets", f"tables one after the other: JOIN {table} ON .. AND {within} JOIN .."
    if source.multiplies(number):
        what = f"a join of private rows that is not by a key, which joins each with each of other {inner}s, too"
        return what, f"JOIN {table} ON a PRIMARY KEY or UNIQUE column AND equal units AND {within}"
    ours, theirs = ([_Of(of.alias, _moment_of(of), False) for of in sides] for sides in (before, [join.source.first]))
    if any(_within_one_period(condition, ours, theirs, word) for condition in join.conditions):
        return None
    return f"a join of private rows that is not within one {inner}", f"JOIN {table} ON .. AND {within}"


def _moment_of(relation: PrivateRelation) -> str:
    """Returns the column that says of which period a row of a table is."""
    period = relation.policy.unit.period
    names = (column.name for column in relation.columns if period and fold(column.name) == fold(period.column))
    return next(names, "")


def _within_one_period(condition: exp.Expr, ours: list[_Of], theirs: list[_Of], word: str) -> bool:
    """Tells whether a condition holds only of two rows of one period: equal moments, or their equal days or periods."""
    node = condition.unnest()
    if not isinstance(node, exp.EQ):
        return False
    sides = [_inner(side.unnest(), word) for side in (node.left, node.right)]
    return any(
        any(_is_column(one, of) for of in ours) and any(_is_column(other, of) for of in theirs)
        for one, other in (sides, sides[::-1])
    )


def _inner(node: exp.Expr, word: str) -> exp.Expr:
    """Returns what is truncated to a day or a period of a word; anything else as it is."""
    days = isinstance(node, exp.Cast) and node.args["to"].this is exp.DataType.Type.DATE
    unit = node.args.get("unit") if isinstance(node, (exp.TimestampTrunc, exp.DateTrunc)) else None
    to = unit.name.upper() if isinstance(unit, exp.Expr) else ""
    inner: exp.Expr = node.this.unnest() if days or to in ("DAY", word) else node
    return inner


def period_column(source: RowSource, facts: PublicFacts, place: exp.Expr) -> PeriodColumn | None:
    """Returns the column that says of which period a row is, with the periods that the conditions of WHERE leave."""
    period = require_periods_alone(source, facts, place)
    if period is None:
        return None
    joined = [join.source.first for join in source.joins if isinstance(join, PrivateJoin)]
    types = column_types(source)
    (sql, type_name), *also = [_stored_moment(one, types, place) for one in (source.first, *joined)]
    of = _Of(source.first.alias, _moment_of(source.first), type_name == "DATE")
    span = reduce(_Span.common, (_read(condition, of) for condition in source.filters), _ANY)
    found = PeriodColumn(sql, type_name, every(period.word), tuple(also))
    return found if span == _ANY else replace(found, periods=_within(period.word, span))


def period_rows(column: PeriodColumn, columns: Mapping[str, RowColumn]) -> PeriodRows:
    """Returns the periods that are read with the columns that say of which period a row is. columns: by their SQL."""
    named = ((column.sql, column.type_name), *column.also)
    found = tuple(columns[sql] for sql, type_name in named if sql in columns and columns[sql].type_name == type_name)
    if len(found) != len(named):
        raise InternalError("a period of no column of these rows")
    return PeriodRows(found, column.periods)


def _stored_moment(relation: PrivateRelation, types: Mapping[str, str], place: exp.Expr) -> tuple[str, str]:
    """Returns the column of PER of a table by its SQL and type; refused where it, or the unit, became another one."""
    period = relation.policy.unit.period
    written, word = ("", "period") if period is None else (period.column, period.word.lower())
    sql = base(relation.alias, _moment_of(relation))
    type_name = types.get(sql, "")
    if not sql_type(type_name).is_moment:
        raise refusal(
            place,
            f"{written!r} is {sql_type(type_name).word or 'gone'}, and no longer says of which {word} a row is",
            "the column that PER .. OF names as a DATE or TIMESTAMP",
        )
    if relation.unit is not None and not sql_type(relation.unit_type).is_unit_part:
        raise refusal(place, f"{relation.unit!r} is no longer told apart by {word}", "the type that it had")
    return sql, type_name


def by_periods(
    rows: Rows, columns: Sequence[SourceColumn], source: RowSource, facts: PublicFacts, place: exp.Expr
) -> Rows:
    """Returns the rows with the periods that WHERE leaves, without those that no code of a key has.

    Such rows are dropped from every grouping set. columns: those that keys depend on.
    """
    column = period_column(source, facts, place)
    if column is None:
        return rows
    for one in columns:
        span = _of_domain(one) if one.sql == column.sql else None
        if span is not None:
            common = column.periods.common(_within(column.periods.word, span))
            if common is None:
                raise _empty()
            column = replace(column, periods=common)
    return replace(rows, periods=column)


def within_one(rows: Rows, columns: Sequence[SourceColumn], codes: Sequence[int], sources: Sequence[int]) -> bool:
    """Tells whether all rows that have one label of a key are of one period: then a person is one unit among them.

    codes: for each combination of its sources' codes the label's number, -1 for none; sources: positions in columns.
    """
    column = rows.periods
    if column is None or column.periods.count == 1:
        return True
    if len(sources) != 1 or columns[sources[0]].sql != column.sql:
        return False
    found: dict[int, set[int | None]] = {}
    for label, number in zip(codes, _numbers(columns[sources[0]].domain, column.periods.word), strict=True):
        found.setdefault(label, set()).add(number)
    return all(len(numbers) == 1 and None not in numbers for label, numbers in found.items() if label >= 0)


def _numbers(domain: Domain, word: str) -> list[int | None]:
    """Returns the number of the period that each code of a domain lies in; None where it is in several, or in none."""
    if isinstance(domain, RangeDomain):
        ends = [_moment(text) for text in (*domain.edges[1:], domain.upper)]
        spans = zip(map(_moment, domain.edges), (end and end - _TICK for end in ends), strict=True)
    else:
        spans = zip(map(_moment, domain.values), map(_moment, domain.values), strict=True)
    one = [number_of(word, low.date()) if low and high and _same(word, low, high) else None for low, high in spans]
    if isinstance(domain, RangeDomain) and domain.with_edges:
        one[0] = one[-1] = None
    return [*one, *([None] * (domain.size - len(one)))]


def _same(word: str, low: datetime, high: datetime) -> bool:
    return number_of(word, low.date()) == number_of(word, high.date())


def _within(word: str, span: _Span) -> Periods:
    run = between(word, span.low.date(), span.high.date()) if span.low <= span.high else None
    if run is None:
        raise _empty()
    return run


def _empty() -> Refusal:
    return Refusal(
        "no row could meet the conditions on the column of PER: there is nothing to ask about",
        accepted="dates from the year 1 to 9998, the earlier one first",
    )


def _of_domain(column: SourceColumn) -> _Span | None:
    """Returns the moments that a domain has codes for; None where others have one, too, or are in texts that are not
    ours.
    """
    domain = column.domain
    if isinstance(domain, RangeDomain):
        low, high = _moment(domain.edges[0]), _moment(domain.upper)
        return None if domain.with_edges or low is None or high is None else _Span(low, high - _TICK)
    moments = [_moment(text) for text in domain.values]
    known = [moment for moment in moments if moment is not None]
    if domain.other is not None or not known or len(known) < len(moments):
        return None
    return _Span(min(known), max(known))


def _moment(text: str) -> datetime | None:
    """Returns a moment as DuckDB and Python read it alike."""
    if not (_DAY.fullmatch(text) or _MOMENT.fullmatch(text)):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


# Conditions over the column: what is not listed may hold at any moment.


def _read(node: exp.Expr, of: _Of) -> _Span:
    """Returns the moments at which a condition may hold."""
    node = node.unnest()
    if isinstance(node, exp.And):
        return reduce(_Span.common, (_read(part, of) for part in node.flatten()), _ANY)
    if isinstance(node, exp.Or):
        return reduce(_Span.both, [_read(part, of) for part in node.flatten()])
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        low = _compared(exp.GTE, node.this, node.args["low"], of)
        return low.common(_compared(exp.LTE, node.this, node.args["high"], of))
    if isinstance(node, exp.In) and node.expressions:
        return reduce(_Span.both, [_compared(exp.EQ, node.this, one, of) for one in node.expressions])
    if isinstance(node, (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE)):
        kind: type[exp.Expr] = type(node)
        left, right = node.left, node.right
        if not _column_in(left, of):
            kind, left, right = _TURNED.get(kind, kind), right, left
        return _compared(kind, left, right, of)
    return _ANY


_TURNED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.GTE: exp.LTE,
}  # fmt: skip


def _column_in(node: exp.Expr, of: _Of) -> bool:
    return any(_is_column(one, of) for one in node.find_all(exp.Column))


def _is_column(node: exp.Expr, of: _Of) -> bool:
    return isinstance(node, exp.Column) and node.table == of.alias and node.name == of.name


def _compared(kind: type[exp.Expr], left: exp.Expr, right: exp.Expr, of: _Of) -> _Span:
    """Returns the moments of the column at which it, or what it is truncated to, compares so with a literal."""
    left = left.unnest()
    moment = _literal(right)
    if isinstance(left, exp.Year) and _is_column(left.this.unnest(), of):
        year = right.unnest()
        if not (isinstance(year, exp.Literal) and year.is_int and 1 <= int(year.name[:5]) <= 9998):
            return _ANY
        return _span(kind, datetime(int(year.name), 1, 1), "YEAR")
    if moment is None:
        return _ANY
    if _is_column(left, of):
        return _span(kind, moment, "DAY" if of.days else "")
    if isinstance(left, exp.Cast) and left.args["to"].this is exp.DataType.Type.DATE:
        return _span(kind, moment, "DAY") if _is_column(left.this.unnest(), of) else _ANY
    if isinstance(left, (exp.TimestampTrunc, exp.DateTrunc)) and _is_column(left.this.unnest(), of):
        unit = left.args.get("unit")
        word = unit.name.upper() if isinstance(unit, exp.Expr) else ""
        return _span(kind, moment, word) if word in WORDS else _ANY
    return _ANY


def _span(kind: type[exp.Expr], moment: datetime, word: str) -> _Span:
    """Returns the moments that compare so with a moment, or of which the first one of their period of a word does."""
    if kind is exp.LT and moment == _FIRST:
        return _Span(_LAST, _FIRST)
    if kind is exp.LT:
        moment -= _TICK
    last = _last(moment, word)
    first = datetime.combine(moment.date(), time())  # a DATE is compared with the day of a text that has a time, too
    if kind is exp.EQ:
        return _Span(first, last)
    if kind is exp.GTE or (kind is exp.GT and not word):
        return _Span(low=first)
    if kind is exp.GT:
        return _Span(low=last + _TICK) if last < _LAST else _Span(_LAST, _FIRST)
    return _Span(high=last)


def _last(moment: datetime, word: str) -> datetime:
    """Returns the last moment of the period that a moment lies in; of no word, the moment itself."""
    if not word:
        return moment
    number = number_of(word, moment.date())
    if number >= last_number(word):
        return _LAST
    return datetime.combine(start_of(word, number + 1), time()) - _TICK


def _literal(node: exp.Expr) -> datetime | None:
    """Returns the moment that a literal says: a text, DATE or TIMESTAMP; None for anything else."""
    node, kind = node.unnest(), None
    if isinstance(node, exp.Cast):
        kind, node = node.args["to"].this, node.this
    if not (isinstance(node, exp.Literal) and node.is_string) or kind not in _MOMENTS:
        return None
    return _moment(node.name) if kind is not exp.DataType.Type.DATE or _DAY.fullmatch(node.name) else None
