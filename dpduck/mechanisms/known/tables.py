"""Which measured tables answer one question: those that are about the same rows, and how they see these.

Two tables may be combined if they were measured over the same rows at one moment, dropped the same rows, and count
those that meet the same conditions. A condition over declared columns is no difference: it is a set of codes, and the
table sees those alone. Where rows may be in no code of a column's domain, a table that has this column sees other rows
than one that sums over it: along that axis the one knows of the codes, the other of all rows, and what is in no code is
known to neither. So they are kept apart (docs/decisions.md).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpduck.language.rows.expressions import sql_of
from dpduck.language.select.conditions import Condition, conjuncts
from dpduck.language.select.known import KnownQuestion
from dpduck.language.select.request import Aggregate, Operand
from dpduck.language.statements.parse import parse_expression
from dpduck.store.measured import Kept, MeasuredKey, MeasuredTable, domain_digest, rows_digest

PLANNED = "planned"
"""The name of what is not measured yet."""

MOST_SEEN = 4096
"""Tables whose view of some axes is remembered."""

Quantity = tuple[str | Fraction | int, ...]
"""What is added up over rows: ('count',), ('sum', value and bounds), ('moment', the same and which of the two)."""


@dataclass(frozen=True)
class Same:
    """What tables have in common that may be combined.

    moment: of the rows; of rows that may change, the release. filters, dropped: what left rows out before a unit's
    rows were cut to MAX ROWS. conditions: those that are no sets of codes. inside: columns whose other rows are unseen.
    """

    moment: str
    rows: str
    filters: frozenset[str]
    dropped: frozenset[str]
    conditions: frozenset[str]
    inside: frozenset[str]
    quantity: Quantity


@dataclass(frozen=True, eq=False)
class Usable:
    """One quantity that a release measured. table: its number there. weights: of its parts, whose sum is the quantity.

    seen: codes that it sees alone, beside those that its keys leave out. before: see Readings.seen.
    """

    kept: Kept
    table: int
    weights: tuple[float, ...]
    seen: tuple[Condition, ...]
    before: dict[Hashable, Sequence[Any]]

    @property
    def name(self) -> tuple[Hashable, ...] | None:
        """Returns equal for the same quantity; None for what is planned, which has none."""
        if self.kept.name == PLANNED:
            return None
        return self.kept.name, self.kept.moment, self.table, self.weights

    @property
    def keys(self) -> tuple[int, ...]:
        """Returns the positions of the keys by which its rows were counted."""
        measured = self.kept.measured
        return tuple(measured.keys_of(measured.tables[self.table]))

    @property
    def joins(self) -> bool:
        """Tells whether it counts kinds of rows that several columns tell apart together."""
        measured = self.kept.measured
        kinds = measured.tables[self.table].keys is not None
        return kinds and any(len(measured.keys[key].columns) > 1 for key in self.keys)

    @property
    def columns(self) -> frozenset[str]:
        """Returns all that it tells apart."""
        measured = self.kept.measured
        keyed = (measured.columns[place].sql for key in self.keys for place in measured.keys[key].columns)
        return frozenset((*keyed, *(column for one in self.seen for column in one.columns)))


_Quantity = tuple[Same, tuple[float, ...], tuple[Condition, ...]]
"""What may be combined with it, the weights of its parts, and the codes that it sees alone."""


def usable(question: KnownQuestion, kept: Sequence[Kept]) -> dict[Same, list[Usable]]:
    """Returns every quantity that was measured about the rows of a question, by what may be combined."""
    found: dict[Same, list[Usable]] = {}
    rows = rows_digest(question.analysis.request.rows)
    for one in kept:
        if one.measured.rows == rows and _columns_are_known(question, one):
            for number, table in enumerate(one.measured.tables):
                for same, weights, seen in _quantities_of(question, one, number, table):
                    found.setdefault(same, []).append(Usable(one, number, weights, seen, question.readings.seen))
    return found


def _quantities_of(question: KnownQuestion, one: Kept, number: int, table: MeasuredTable) -> Sequence[_Quantity]:
    """Returns what a table of a release is about, which was worked out before where it is stored: it never changes."""
    known, name = question.readings.tables, (one.name, one.moment, number)
    if name in known and one.released_at:
        return known[name]
    own: dict[Same, _Quantity] = {}
    for same, weights, seen in _of_table(question, one, table):
        before = own.get(same)
        if before is None or np.count_nonzero(weights) > np.count_nonzero(before[1]):
            own[same] = same, weights, seen  # of two sums that share their noises the one of more parts
    known[name] = tuple(own.values())
    return known[name]


def _columns_are_known(question: KnownQuestion, one: Kept) -> bool:
    """Tells whether the columns of a release have the domains that they had."""
    return all(_domain_of(question, column.sql) == column.domain for column in one.measured.columns)


def _domain_of(question: KnownQuestion, sql: str) -> str:
    """Returns the digest of a column's domain, "" where it has none."""
    known, column = question.readings.domains, question.column(sql)
    if sql not in known:
        known[sql] = "" if column is None else domain_digest(column.domain)
    return known[sql]


def _of_table(question: KnownQuestion, one: Kept, table: MeasuredTable) -> Iterator[_Quantity]:
    measured = one.measured
    filters, conditions, seen = set[str](), set[str](), list[Condition]()
    keys = measured.keys_of(table).values()
    keyed = frozenset(measured.columns[place].sql for key in keys for place in key.columns)
    inside = {column for column in keyed if question.partial(column)}
    dropped = {f"{column} outside" for column in inside} | {_dropped(one, key) for key in keys} - {""}
    for text in (part for written in measured.filters for part in question.conjuncts(written)):
        if measured.bounded:
            filters.add(text)
        else:
            _see(question, text, conditions, seen, inside)
    for text in question.conjuncts(table.condition):
        _see(question, text, conditions, seen, inside)
    for quantity, value, weights in quantities(table):
        added, more, within = set(conditions), list(seen), set(inside)
        for text in value:
            _see(question, text, added, more, within)
        same = Same(
            one.moment or one.name,
            measured.rows,
            frozenset(filters),
            frozenset(dropped if measured.bounded else ()),
            frozenset(added),
            frozenset(within),
            quantity,
        )
        yield same, weights, tuple(more)


def _see(question: KnownQuestion, text: str, conditions: set[str], seen: list[Condition], inside: set[str]) -> None:
    """Enters a condition as codes that are seen alone; as itself where it is none, or may hold outside of all codes."""
    condition = question.condition(text)
    if condition is None or condition.outside:
        conditions.add(text)
    else:
        seen.append(condition)
        inside |= {column for column in condition.columns if question.partial(column)}


def _dropped(one: Kept, key: MeasuredKey) -> str:
    """Returns the codes that a key leaves out, which leaves their rows out of everything."""
    without = [place for place, code in enumerate(key.codes) if code < 0]
    return f"{[one.measured.columns[place].sql for place in key.columns]} {without}" if without else ""


def quantities(table: MeasuredTable) -> Iterator[tuple[Quantity, tuple[str, ...], tuple[float, ...]]]:
    """Returns what a table measures: the quantity, conditions that this adds, and weights of the table's parts."""
    if table.form == "count":
        yield ("count",), (), (1.0,)
        return
    of = (table.value, table.low, table.high, table.step)
    if table.form == "sum":
        yield ("sum", *of), (), (float(table.step),)
        return
    degree, rest = table.degree, (0.0,) * table.rest
    whole = Fraction(1, table.steps**degree)
    present = present_text(table.value)
    yield ("count",), (present,), ((float(whole),) * (degree + 1)) + rest
    if table.rest:
        yield ("count",), (), (float(whole),) * (degree + 2)
    if (table.high - table.low) / table.step == table.steps:
        width = table.high - table.low
        parts = [whole * (table.low + width * Fraction(part, degree)) for part in range(degree + 1)]
        yield ("sum", *of), (), tuple(map(float, parts)) + rest
    if degree == 1:
        for which in range(2):
            yield ("moment", *of, which), (), tuple(float(place == which) for place in range(2)) + rest


def present_text(value: str) -> str:
    """Writes the condition that a row has a value, as `conjuncts` does."""
    return sql_of(parse_expression(f"{value} IS NOT NULL").unnest())


@dataclass(frozen=True, eq=False)
class Wanted:
    """What an aggregate needs: quantities, each over the rows that meet all of these conditions."""

    quantities: tuple[Quantity, ...]
    conditions: tuple[str, ...]


def wanted(aggregate: Aggregate, filters: Sequence[str]) -> Wanted | None:
    """Returns what an aggregate needs; None for one that nothing is known of but its own release."""
    conditions = [part for text in (*filters, aggregate.condition) for part in conjuncts(text)]
    operand = aggregate.operand
    if operand is not None and operand.per_group:
        return None
    if aggregate.function == "count":
        conditions += [] if operand is None else [present_text(operand.sql)]
        return Wanted((("count",),), tuple(dict.fromkeys(conditions)))
    if operand is None or aggregate.function not in ("sum", "avg"):
        return None
    return Wanted(_of_values(aggregate.function, operand), tuple(dict.fromkeys(conditions)))


def wanted_of_rows(aggregate: Aggregate, filters: Sequence[str]) -> Wanted | None:
    """Returns the tables for a sum of 1 over rows that were counted, or None for other aggregates."""
    if not aggregate.counts or aggregate.counted is None:
        return None
    conditions = [part for text in (*filters, aggregate.counted) for part in conjuncts(text)]
    return Wanted((("count",),), tuple(dict.fromkeys(conditions)))


def _of_values(function: str, operand: Operand) -> tuple[Quantity, ...]:
    of = (operand.sql, operand.low, operand.high, operand.step)
    return (("sum", *of),) if function == "sum" else (("moment", *of, 0), ("moment", *of, 1))


@dataclass(frozen=True, eq=False)
class Match:
    """How tables answer a question. seen: codes that are asked alone. left_out: columns whose other rows are not in it.

    bounded: how a unit's rows were cut to MAX ROWS, where the question means it otherwise: WHERE first, FILTER then.
    """

    seen: tuple[Condition, ...]
    left_out: frozenset[str]
    bounded: str


def match(question: KnownQuestion, same: Same, conditions: Sequence[str]) -> Match | None:
    """Tells how a question over rows with these conditions is asked of such tables; None where it cannot be."""
    asked = {column.sql for column in question.analysis.request.question.sources}
    if not same.filters | same.conditions <= set(conditions):
        return None
    left = [text for text in conditions if text not in same.filters | same.conditions]
    read = [question.condition(text) for text in left]
    seen = [one for one in read if one is not None]
    if len(seen) < len(read):
        return None
    own = {column for column in asked if question.partial(column)}
    needed = own | {column for one in seen for column in one.columns if question.partial(column)}
    own |= {column for one in seen if not one.outside for column in one.columns}
    if not needed <= same.inside:
        return None
    dropped = {text.removesuffix(" outside") for text in same.dropped if text.endswith(" outside")}
    return Match(tuple(seen), (same.inside | dropped) - own, _bounded(question, same))


def _holds(question: KnownQuestion, same: Same, text: str) -> bool:
    """Tells whether every row that the tables kept meets a condition."""
    one = question.condition(text)
    if text in same.filters or one is None or one.outside or not one.met.all():
        return False
    return all(f"{column} outside" in same.dropped or not question.partial(column) for column in one.columns)


def _bounded(question: KnownQuestion, same: Same) -> str:
    """Tells how MAX ROWS was applied to other rows than the question means; "" where it was not."""
    rows = question.analysis.request.rows
    where = {part for text in rows.filters for part in question.conjuncts(text) if not _holds(question, same, part)}
    if rows.unit_sql is None or same.filters == where:
        return ""
    return "MAX ROWS was applied " + ("after FILTER" if same.filters - where else "before WHERE")
