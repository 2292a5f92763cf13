"""Measured tables that can answer one question: tables about the same rows, and the codes that each table sees.

Tables may be combined if they were measured over the same rows at one moment, and dropped the same rows. A table that
sums over a column also sees rows outside the column's domain, so it is not combined with a table by that column
(docs/decisions.md).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpduck.language.rows.expressions import sql_of
from dpduck.language.select.conditions import CodeCondition, conjuncts
from dpduck.language.select.known import KnownQuestion
from dpduck.language.select.request import Aggregate
from dpduck.language.statements.parse import parse_expression
from dpduck.store.measured import MeasuredKey, MeasuredTable, MeasurementRecord, domain_digest, rows_digest

PLANNED = "planned"

MOST_SEEN = 4096

Quantity = tuple[str | Fraction | int, ...]
"""A quantity that is summed over rows: ('count',), ('sum', value and bounds), ('moment', value and bounds, 0 or 1)."""


@dataclass(frozen=True)
class Same:
    """Common properties of tables that may be combined.

    moment: the time of the rows, or the release if they may change.
    inside: columns seen only inside their domains.
    filters, dropped: conditions and codes that drop rows before MAX ROWS.
    conditions: other conditions that are no sets of codes.
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
    """One measured quantity of a release: the weighted sum of the parts of the table with number `table`.

    seen: conditions on the counted codes. Keys may leave out more codes.
    before: a cache of measurements along axes.
    """

    kept: MeasurementRecord
    table: int
    weights: tuple[float, ...]
    seen: tuple[CodeCondition, ...]
    before: dict[Hashable, Sequence[Any]]

    @property
    def name(self) -> tuple[Hashable, ...] | None:
        if self.kept.name == PLANNED:
            return None
        return self.kept.name, self.kept.moment, self.table, self.weights

    @property
    def keys(self) -> tuple[int, ...]:
        measured = self.kept.measured
        return tuple(measured.keys_of(measured.tables[self.table]))

    @property
    def joins(self) -> bool:
        """Tells whether the table counts kinds of rows that several columns distinguish jointly."""
        measured = self.kept.measured
        kinds = measured.tables[self.table].keys is not None
        return kinds and any(len(measured.keys[key].columns) > 1 for key in self.keys)

    @property
    def columns(self) -> frozenset[str]:
        measured = self.kept.measured
        keyed = (measured.columns[place].sql for key in self.keys for place in measured.keys[key].columns)
        return frozenset((*keyed, *(column for condition in self.seen for column in condition.columns)))


_Quantity = tuple[Same, tuple[float, ...], tuple[CodeCondition, ...]]
"""The common properties of a quantity, the weights of its parts, and the conditions on the codes that it sees."""


def usable(question: KnownQuestion, releases: Sequence[MeasurementRecord]) -> dict[Same, list[Usable]]:
    """Returns every quantity that was measured about a question's rows. Quantities under one key may be combined."""
    groups: dict[Same, list[Usable]] = {}
    rows = rows_digest(question.analysis.request.rows)
    for release in releases:
        if release.measured.rows == rows and _columns_are_known(question, release):
            for number, table in enumerate(release.measured.tables):
                for same, weights, seen in _quantities_of(question, release, number, table):
                    groups.setdefault(same, []).append(Usable(release, number, weights, seen, question.readings.seen))
    return groups


def _quantities_of(
    question: KnownQuestion, release: MeasurementRecord, number: int, table: MeasuredTable
) -> Sequence[_Quantity]:
    """Returns the quantities of a release's table. They never change, so they are cached if the release is stored."""
    cached, name = question.readings.tables, (release.name, release.moment, number)
    if name in cached and release.released_at:
        return cached[name]
    own: dict[Same, _Quantity] = {}
    for same, weights, seen in _of_table(question, release, table):
        before = own.get(same)
        if before is None or np.count_nonzero(weights) > np.count_nonzero(before[1]):
            own[same] = same, weights, seen  # of two sums with common noise, prefers the sum of more parts
    cached[name] = tuple(own.values())
    return cached[name]


def _columns_are_known(question: KnownQuestion, release: MeasurementRecord) -> bool:
    return all(_domain_of(question, column.sql) == column.domain for column in release.measured.columns)


def _domain_of(question: KnownQuestion, sql: str) -> str:
    digests, column = question.readings.domains, question.column(sql)
    if sql not in digests:
        digests[sql] = "" if column is None else domain_digest(column.domain)
    return digests[sql]


def _of_table(question: KnownQuestion, release: MeasurementRecord, table: MeasuredTable) -> Iterator[_Quantity]:
    measured = release.measured
    filters, conditions, seen = set[str](), set[str](), list[CodeCondition]()
    keys = measured.keys_of(table).values()
    keyed = frozenset(measured.columns[place].sql for key in keys for place in key.columns)
    inside = {column for column in keyed if question.partial(column)}
    dropped = {f"{column} outside" for column in inside} | {_codes_left_out(release, key) for key in keys} - {""}
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
            release.moment or release.name,
            measured.rows,
            frozenset(filters),
            frozenset(dropped if measured.bounded else ()),
            frozenset(added),
            frozenset(within),
            quantity,
        )
        yield same, weights, tuple(more)


def _see(question: KnownQuestion, text: str, conditions: set[str], seen: list[CodeCondition], inside: set[str]) -> None:
    """Adds a condition to `seen` if it is a set of codes without rows outside domains, else to `conditions`."""
    condition = question.condition(text)
    if condition is None or condition.outside:
        conditions.add(text)
    else:
        seen.append(condition)
        inside |= {column for column in condition.columns if question.partial(column)}


def _codes_left_out(release: MeasurementRecord, key: MeasuredKey) -> str:
    """Returns the codes that a key leaves out, as text. The release counts no row with these codes."""
    without = [place for place, code in enumerate(key.codes) if code < 0]
    return f"{[release.measured.columns[place].sql for place in key.columns]} {without}" if without else ""


def quantities(table: MeasuredTable) -> Iterator[tuple[Quantity, tuple[str, ...], tuple[float, ...]]]:
    """Yields the quantities of a table: each with the conditions that it adds, and the weights of the table's parts."""
    if table.form == "count":
        yield ("count",), (), (1.0,)
        return
    column = (table.value, table.low, table.high, table.step)
    if table.form == "sum":
        yield ("sum", *column), (), (float(table.step),)
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
        yield ("sum", *column), (), tuple(map(float, parts)) + rest
    if degree == 1:
        for which in range(2):
            yield ("moment", *column, which), (), tuple(float(place == which) for place in range(2)) + rest


def present_text(value: str) -> str:
    """Renders the condition that a row's value is not NULL, as SQL in the form of `conjuncts`."""
    return sql_of(parse_expression(f"{value} IS NOT NULL").unnest())


@dataclass(frozen=True, eq=False)
class Wanted:
    """Quantities that an aggregate needs, each over the rows that meet all conditions."""

    quantities: tuple[Quantity, ...]
    conditions: tuple[str, ...]


def needs_of(aggregate: Aggregate, filters: Sequence[str]) -> Wanted | None:
    """Returns the quantities that an aggregate needs, None if only its own release can answer it."""
    conditions = [part for text in (*filters, aggregate.condition) for part in conjuncts(text)]
    operand = aggregate.operand
    if operand is not None and operand.per_group:
        return None
    if aggregate.function == "count":
        conditions += [] if operand is None else [present_text(operand.sql)]
        return Wanted((("count",),), tuple(dict.fromkeys(conditions)))
    if operand is None or aggregate.function not in ("sum", "avg"):
        return None
    column = (operand.sql, operand.low, operand.high, operand.step)
    sums = (("sum", *column),) if aggregate.function == "sum" else (("moment", *column, 0), ("moment", *column, 1))
    return Wanted(sums, tuple(dict.fromkeys(conditions)))


def row_needs_of(aggregate: Aggregate, filters: Sequence[str]) -> Wanted | None:
    """Returns the count that an aggregate equals if it is a sum of 1 under a condition, else None."""
    if not aggregate.counts or aggregate.count_condition is None:
        return None
    conditions = [part for text in (*filters, aggregate.count_condition) for part in conjuncts(text)]
    return Wanted((("count",),), tuple(dict.fromkeys(conditions)))


@dataclass(frozen=True, eq=False)
class Match:
    """Match of tables to a question. seen: the question's conditions on codes. left_out: see KnownAnswer.

    bounded: how MAX ROWS was applied, "" if as in the question, after WHERE and before FILTER.
    """

    seen: tuple[CodeCondition, ...]
    left_out: frozenset[str]
    bounded: str


def match(question: KnownQuestion, same: Same, conditions: Sequence[str]) -> Match | None:
    """Matches tables with common properties to a question over rows with conditions. None if they cannot answer it."""
    asked = {column.sql for column in question.analysis.request.question.sources}
    if not same.filters | same.conditions <= set(conditions):
        return None
    left = [text for text in conditions if text not in same.filters | same.conditions]
    read = [question.condition(text) for text in left]
    seen = [condition for condition in read if condition is not None]
    if len(seen) < len(read):
        return None
    own = {column for column in asked if question.partial(column)}
    needed = own | {column for condition in seen for column in condition.columns if question.partial(column)}
    own |= {column for condition in seen if not condition.outside for column in condition.columns}
    if not needed <= same.inside:
        return None
    dropped = {text.removesuffix(" outside") for text in same.dropped if text.endswith(" outside")}
    return Match(tuple(seen), (same.inside | dropped) - own, _row_bound_mismatch(question, same))


def _holds(question: KnownQuestion, same: Same, text: str) -> bool:
    condition = question.condition(text)
    if text in same.filters or condition is None or condition.outside or not condition.met.all():
        return False
    return all(f"{column} outside" in same.dropped or not question.partial(column) for column in condition.columns)


def _row_bound_mismatch(question: KnownQuestion, same: Same) -> str:
    """Describes how MAX ROWS was applied to other rows than the question means. "" if it was not."""
    rows = question.analysis.request.rows
    where = {part for text in rows.filters for part in question.conjuncts(text) if not _holds(question, same, part)}
    if rows.unit_sql is None or same.filters == where:
        return ""
    return "MAX ROWS was applied " + ("after FILTER" if same.filters - where else "before WHERE")
